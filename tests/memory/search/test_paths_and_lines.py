"""Paths by glob and lines by regular expression: results, bounds and refusals."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.agents.memory.search import LINE_CHARACTERS_MAX, grep, paths_matching
from hansard.domain.errors import BadValue

TREE = {
    "AGENTS.md": "# Rules\nAsk first.\n",
    "notes/.hidden.md": "ask\n",
    "notes/deep/a.md": "nothing\n",
    "skills/pdf/SKILL.md": "Reads a PDF.\r\nAsk before writing.\n",
}


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.md", ["AGENTS.md"]),
        ("**/*.md", list(TREE)),
        ("notes/*", ["notes/.hidden.md"]),
        ("skills/*/SKILL.md", ["skills/pdf/SKILL.md"]),
        ("{notes,skills}/**/[aS]*", ["notes/deep/a.md", "skills/pdf/SKILL.md"]),
        ("notes", []),
    ],
)
def test_a_glob_lists_paths_in_order(glob, expected):
    """`*` stays within a folder, `**` goes through folders, and dots are names like others."""
    assert paths_matching(reversed(TREE), glob).paths == expected


def test_a_list_of_paths_says_where_it_was_cut():
    """A list longer than the limit is marked as cut; a list of exactly the limit is not."""
    assert paths_matching(TREE, "**", limit=3).more
    assert not paths_matching(TREE, "**", limit=4).more


@pytest.mark.parametrize(
    "glob", ["", "a\0b", "x" * 501, "**/a/**/b/**", "{a,b}" * 8, "{1..100000000}"]
)
def test_a_glob_that_could_cost_much_is_refused(glob):
    """A costly glob is refused before the search, with the bound."""
    began = time.process_time()
    with pytest.raises(BadValue):
        paths_matching(["a/b"], glob)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("glob", ["*a" * 200 + "b", "**/a/**/a/b", "?*" * 200 + "b", "[a-z]*" * 80])
def test_no_glob_backtracks_for_long(glob):
    """The worst permitted globs are fast on the deepest path of 500 characters."""
    began = time.process_time()
    paths_matching(["a/" * 250 + "a", "a" * 255], glob)
    assert time.process_time() - began < 2


def test_grep_gives_lines_by_path_with_the_place_of_the_match():
    """Grep gives each matching line once, with its path; a carriage return is no part of it."""
    result = grep(TREE, "ask", ignore_case=True)
    assert [(each.path, each.line, each.text) for each in result.lines] == [
        ("AGENTS.md", 2, "Ask first."),
        ("notes/.hidden.md", 1, "ask"),
        ("skills/pdf/SKILL.md", 2, "Ask before writing."),
    ]
    assert (result.files, result.more) == (3, False)
    assert all(each.text[each.begin : each.end].lower() == "ask" for each in result.lines)


def test_grep_says_where_it_was_cut():
    """Grep marks results cut at the limit, and lines too long to be shown."""
    tree = {"a": "x\n" * 10, "b": "y" * 5_000 + "needle" + "z" * 5_000}
    assert len(grep(tree, "x", limit=4).lines) == 4
    assert grep(tree, "x", limit=4).more
    [line] = grep(tree, "needle").lines
    assert line.text[line.begin : line.end] == "needle"
    assert len(line.text) < LINE_CHARACTERS_MAX + 10
    assert line.text.startswith("…")
    assert line.text.endswith("…")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*b", "(.*)*x", "(a{1,30}){1,30}b"])
def test_no_pattern_backtracks(pattern):
    """RE2 takes milliseconds for patterns on which a backtracking engine never ends."""
    began = time.process_time()
    grep({"a": "a" * 20_000 + "!"}, pattern)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "pattern", ["", "(?=a)", r"(a)\1", "[", "a" * 1_001, "((a{100}){100}){100}"]
)
def test_a_pattern_that_cannot_be_searched_for_is_refused(pattern):
    """An invalid pattern is refused, with the fault and the remedy."""
    with pytest.raises(BadValue, match="pattern"):
        grep(TREE, pattern)


def test_a_literal_is_searched_as_it_is():
    """A literal is searched verbatim, without special characters."""
    assert [each.text for each in grep({"a": "a.b\naxb"}, "a.b", literal=True).lines] == ["a.b"]


_TEXT = st.text(alphabet="ab \nü漢", max_size=40)


@given(text=_TEXT, pattern=st.sampled_from(["a", "^a", "b$", "a.b", "ü+", "^$", "[ab]*", "漢|a"]))
def test_grep_finds_the_lines_that_each_line_by_itself_would(text, pattern):
    """Grep finds the same lines as `re` line by line, with correct numbers and no duplicates."""
    lines = text.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    expected = [number for number, line in enumerate(lines, 1) if re.search(pattern, line)]
    assert [each.line for each in grep({"f": text}, pattern).lines] == expected
