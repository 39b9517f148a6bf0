"""A finding in a tree of memory files names file, line, rule and the permitted values."""

import sys

import pytest

from hansard.agents.memory import drafts
from hansard.agents.memory.formats import Link
from hansard.domain.errors import ExtraMissing

HEAD = b"---\nname: a\ndescription: d\n"
SKILL = "skills/a/SKILL.md"
AGENT = "subagents/a.md"
TOOL = b'{"tools": [{"name": "find", "mcp_server_url": "https://x"}]}'

BOMB = b"".join(
    b"%c: &%c [%s]\n" % (at, at, b",".join([b"*%c" % (at - 1)] * 9)) for at in range(98, 120)
)


def places_of(files, **options):
    """Path, line and rule of each problem."""
    return [
        (problem.path, problem.line, problem.rule) for problem in drafts.problems(files, **options)
    ]


@pytest.mark.parametrize(
    ("path", "content", "line", "rule"),
    [
        (SKILL, HEAD + BOMB + b"---\n", 4, "yaml.anchor"),
        (SKILL, HEAD + b"x: *x\n---\n", 4, "yaml.alias"),
        (AGENT, HEAD + b"x: " + b"[" * 60_000 + b"\n---\n", 4, "yaml.depth"),
        (AGENT, HEAD + b"x: [" + b"a," * 3_000 + b"]\n---\n", 4, "yaml.size"),
        (SKILL, HEAD + b"license: " + b"x" * 70_000 + b"\n---\n", 1, "frontmatter.size"),
        (SKILL, HEAD + b"license: \x01\n---\n", 4, "yaml.character"),
        (SKILL, HEAD + b"? [a]\n: b\n---\n", 4, "yaml.flow"),
        (AGENT, HEAD + b"? [a]\n: b\n---\n", 4, "yaml.key"),
        (SKILL, b"---\n- a\n---\n", 2, "frontmatter.fields"),
        (SKILL, b"---\n---\n", 1, "frontmatter.fields"),
        (SKILL, b"\xef\xbb\xbf" + HEAD + b"---\n", 1, "frontmatter.missing"),
        (SKILL, b"-" * 1_000_000, 1, "frontmatter.unclosed"),
        (SKILL, HEAD + b"metadata: x\n---\n", 4, "skill.metadata.fields"),
        (SKILL, HEAD + b"allowed-tools:\n  a: b\n---\n", 4, "skill.allowed-tools.text"),
        ("tools.json", b"[" * 500_000, 1, "json.depth"),
        ("tools.json", b'{"tools": [' + b"1" * 5_000 + b"]}", 1, "json.number"),
        ("tools.json", b'{"tools":\n[NaN]}', 1, "json.number"),
        (
            "tools.json",
            TOOL.replace(b"]", b', {"name": "find", "mcp_server_url": "https://x"}]'),
            1,
            "tools.twice",
        ),
        ("agent.json", b'{\n"description": 7}', 1, "agent.required"),
        ("subagents/a/agent.json", b'{"model": "a",\n"model_id": "a"}', 1, "agent.not"),
        ("AGENTS.md", b"x" * 10_000_000, 1, "file.size"),
        ("AGENTS.md", "a\nb".encode("utf-16"), 1, "file.encoding"),
        ("notes/a.md", b"a\nb\nh\xe9", 3, "file.encoding"),
        ("notes/a.md", b"\x89PNG\n\0", 2, "file.binary"),
        ("AGENTS.md", b"@AGENTS.md", 1, "import.circle"),
        ("../a.md", b"", 0, "path"),
        ("/a.md", b"", 0, "path"),
        ("a//b.md", b"", 0, "path.form"),
        ("a\\b.md", b"", 0, "path"),
        ("a\0.md", b"", 0, "path"),
        ("e\u0301.md", b"", 0, "path.form"),
        ("x" * 600, b"", 0, "path"),
        ("a.md", Link("/etc/passwd"), 0, "link"),
        ("a/b.md", Link("../../c.md"), 0, "link"),
        ("a.md", Link("b.md"), 0, "link.dangling"),
        ("a.md", Link("a.md"), 0, "link"),
        ("a/b", Link("../a"), 0, "link"),
    ],
)
def test_bad_input_is_reported_with_its_place(path, content, line, rule):
    """A problem names the file, the line and the rule."""
    assert (path, line, rule) in places_of({path: content})


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"AGENTS.md": b"", "agents.md": b""}, ("agents.md", 0, "path.twin")),
        ({"A/x.md": b"", "a/y.md": b""}, ("a/y.md", 0, "path.twin")),
        ({"a": b"", "a/y.md": b""}, ("a/y.md", 0, "path.folder")),
        (
            {"a.md": b"@b.md", "b.md": b"\n@c.md", "c.md": b"@a.md", "AGENTS.md": b"@a.md"},
            ("b.md", 2, "import.circle"),
        ),
        ({"a.md": Link("b.md"), "b.md": Link("a.md")}, ("a.md", 0, "link")),
    ],
)
def test_files_that_contradict_each_other_are_reported(files, expected):
    """Twins in case, files in the place of folders, circles of imports and links."""
    assert expected in places_of(files)


def test_what_is_allowed_together_is_no_problem():
    """Links inside the tree, to files and folders; imports that meet again without a circle."""
    files = {
        "AGENTS.md": b"@a.md and @b.md, @someone, `@AGENTS.md`, @missing.md",
        "CLAUDE.md": Link("AGENTS.md"),
        "a.md": b"@b.md",
        "b.md": b"",
        ".claude/skills": Link("../skills"),
        SKILL: HEAD + b"---\n",
        "tools.json": TOOL,
    }
    assert places_of(files) == []


def test_a_circle_of_imports_names_each_of_its_lines_and_no_other():
    """An import that only leads to a circle is not part of it."""
    files = {"AGENTS.md": b"@a.md", "a.md": b"@b.md", "b.md": b"@a.md\n@c.md", "c.md": b""}
    assert places_of(files) == [("a.md", 1, "import.circle"), ("b.md", 1, "import.circle")]


def test_only_what_changed_is_looked_at():
    """Only changed files are checked; a circle closed by a change is reported."""
    files = {"x.md": b"\0", "AGENTS.md": b"@a.md", "a.md": b"@AGENTS.md"}
    assert places_of(files, only=["y.md"]) == []
    assert {rule for _, _, rule in places_of(files, only=["a.md"])} == {"import.circle"}


def test_a_tool_that_its_server_does_not_have_is_reported():
    """An unknown tool of a recorded server is reported; other servers' tools are not checked."""
    files = {"tools.json": TOOL}
    assert places_of(files, offered={"https://x": ["search"]}) == [
        ("tools.json", 1, "tools.offered")
    ]
    assert (
        places_of(files, offered={"https://x": ["find"]})
        == places_of(files, offered={"https://y": []})
        == []
    )


def test_a_problem_says_the_value_and_what_is_allowed():
    """A problem's message is bounded and contains what a model needs to correct it."""
    [problem] = drafts.problems(
        {SKILL: HEAD.replace(b"a\n", b"A-%s\n" % (b"x" * 200), 1) + b"---\n"}
    )[:1]
    assert str(problem).startswith(f"{SKILL}:2: skill.name.case: found 'A-xxx")
    assert len(problem.stood) <= 80
    assert "lower case" in problem.allowed


def test_without_the_extra_the_remedy_is_named(monkeypatch):
    """Without the extra the error names the remedy, and nothing counts as valid."""
    monkeypatch.setitem(sys.modules, "frontmatter", None)
    monkeypatch.setitem(sys.modules, "frontmatter.default_handlers", None)
    with pytest.raises(ExtraMissing, match=r"pip install '.\[memory\]'"):
        drafts.problems({SKILL: HEAD + b"---\n"})
