"""Rules of the gate, each by itself: matches, and attempts to evade them."""

import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.agents.policy.gate import (
    CallRule,
    GateCall,
    allow,
    ask,
    at_least,
    at_most,
    budget,
    deny,
    host_in,
    one_of,
    path_under,
)


def call(tool="send_mail", role="writer", **arguments):
    """Return a call to judge."""
    return GateCall(tool, arguments, "r", "ada", role, "once")


def allowed(*rules, **fields):
    """Return whether some rules allow a call."""
    return ask(rules, call(**fields)).allowed


def test_the_first_rule_that_matches_decides():
    """Order counts, and an unmatched call is allowed; a closing `deny()` inverts that."""
    assert allowed()
    assert allowed(allow("send_*"), deny())
    assert not allowed(deny(), allow("send_*"))
    assert not allowed(allow("read_*"), deny())
    assert allowed(deny("read_*"))


def test_patterns_are_of_names_and_case_counts():
    """`*` matches any part of a name; `?` and `[` are literal."""
    assert not allowed(deny("send_*ail"))
    assert allowed(deny("send_?ail"))
    assert allowed(deny("send_[lm]ail"))
    assert allowed(deny("Send_*"))
    assert not allowed(deny(role="w*"))
    assert allowed(deny(role="reader"))
    assert allowed(deny("send_mail", role="reader"))


def test_where_needs_all_and_unless_spares_only_all():
    """A rule matches when every `where` holds and not every `unless` does."""
    both = {"to": one_of("a"), "n": at_most(3)}
    assert not allowed(deny(where=both), to="a", n=1)
    assert allowed(deny(where=both), to="a", n=4)
    assert allowed(deny(unless=both), to="a", n=1)
    assert not allowed(deny(unless=both), to="a", n=4)
    assert not allowed(deny(unless=both), to="a")
    assert allowed(deny(where=both), to="a")


def test_a_verdict_names_its_rule():
    """The deciding rule is named: by `name=`, else by its text."""
    assert ask([deny(name="no mail", reason="because")], call()).rule == "no mail"
    assert ask([deny(name="no mail", reason="because")], call()).reason == "because"
    titled = deny(
        "send_*", role="w*", where={"b": one_of(1), "a": one_of(2)}, unless={"c": one_of()}
    )
    assert isinstance(titled, CallRule)
    assert titled.title() == "deny send_* role w* where a, b unless c"
    anything = allow()
    assert isinstance(anything, CallRule)
    assert anything.title() == "allow **"


def test_a_function_may_be_a_rule():
    """A text or False refuses, anything else passes on; its name is the rule's."""

    def no_bob(request):
        return "bob is away" if request.arguments.get("to") == "bob" else None

    verdict = ask([no_bob, deny()], call(to="bob"))
    assert (verdict.allowed, verdict.rule, verdict.reason) == (False, "no_bob", "bob is away")
    assert not allowed(lambda request: False)
    assert ask([lambda request: False], call()).reason == "<lambda> denied the call"
    passing: list[Any] = [True, None, 0, [], {}]
    for passed in passing:
        assert allowed(lambda request, passed=passed: passed)
    assert not allowed(no_bob, deny(), to="cy")


def test_budgets_are_no_rules_of_order():
    """A budget neither allows nor denies here: it is counted when the call is to run."""
    assert allowed(budget("b", 0))
    assert not allowed(budget("b", 10), deny())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a folder `in` with a file, a folder `in2`, a link out of `in` and one into it."""
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in2").mkdir()
    (tmp_path / "in" / "file").write_text("x")
    (tmp_path / "in" / "out").symlink_to(tmp_path / "in2")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("in", True),
        ("in/file", True),
        ("in/new/deep", True),
        ("in/sub/../file", True),
        ("link/file", True),
        ("in//./file", True),
        ("in2", False),
        ("in2/file", False),
        ("in/../in2/file", False),
        ("in/sub/../../in2", False),
        ("in/out/file", False),
        ("in/out", False),
        ("..", False),
        ("", False),
        ("in\0/../../etc", False),
    ],
)
def test_path_under_resolves_dots_and_links(tree, path, inside):
    """The resolved path counts: `..`, links and equal prefixes do not count as inside."""
    holds = path_under(tree / "in")
    assert holds(os.path.join(tree, path) if path else path) is inside  # noqa: PTH118 -- `..` must stay
    assert holds(Path(tree, path) if path else Path()) is inside


def test_path_under_takes_several_roots_and_the_root_itself(tree):
    """Any one of the folders suffices; `/` holds every path; a non-path is in none."""
    assert path_under(tree / "in", str(tree / "in2"))(tree / "in2" / "x")
    assert path_under("/")("/etc/passwd")
    for odd in (None, 5, b"/etc", ["/etc"], True):
        assert not path_under("/")(odd)


def test_path_under_knows_relative_paths(tree, monkeypatch):
    """A relative path is resolved from the process's working directory, as the tool does."""
    monkeypatch.chdir(tree / "in")
    holds = path_under(tree / "in")
    assert holds("file")
    assert not holds("../in2/file")


@pytest.mark.parametrize(
    ("url", "inside"),
    [
        ("https://example.org/a", True),
        ("https://EXAMPLE.org:8443/", True),
        ("https://example.org./", True),
        ("https://user:pass@example.org/", True),
        ("https://api.good.net/", True),
        ("https://a.b.good.net/", True),
        ("https://good.net/", False),
        ("https://evilgood.net/", False),
        ("https://example.org@evil.com/", False),
        ("https://example.org:x@evil.com/", False),
        ("https://evil.com/example.org", False),
        ("https://evil.com#example.org", False),
        ("https://evil.com?example.org", False),
        ("https://example.org.evil.com/", False),
        ("https://notexample.org/", False),
        ("https://evil.com\\@example.org/", False),
        ("https://example.org\\.evil.com/", False),
        ("example.org", False),
        ("//example.org/x", True),
        ("https://", False),
        ("https:///example.org", False),
        ("http://[::1", False),
        ("https://exam\nple.org/", False),
        ("https://example.org\t/", False),
        ("", False),
        ("javascript:alert(1)", False),
        ("https://\u0435xample.org/", False),
    ],
)
def test_host_in_looks_at_the_host_alone(url, inside):
    """Userinfo, port, case and final dot do not count; an ambiguous address is in no list."""
    assert host_in("example.org", ".good.net")(url) is inside


@pytest.mark.parametrize("odd", [None, 5, b"https://example.org", ["https://example.org"]])
def test_what_is_no_url_is_on_no_host(odd):
    """Only a text can be a URL."""
    assert not host_in("example.org")(odd)


@given(st.integers() | st.floats(allow_nan=False), st.integers() | st.floats(allow_nan=False))
def test_limits_are_numbers_as_they_are(value, limit):
    """Both limits are inclusive."""
    assert at_most(limit)(value) is (value <= limit)
    assert at_least(limit)(value) is (value >= limit)


@pytest.mark.parametrize("odd", [math.nan, "1", None, True, False, [1], 1j, b"1"])
def test_what_is_no_number_fits_no_limit(odd):
    """NaN, texts and booleans are neither at most nor at least anything."""
    assert not at_most(10)(odd)
    assert not at_least(0)(odd)


def test_one_of_compares_type_and_value():
    """1, 1.0 and True are three things here."""
    assert one_of(1, "a")(1)
    assert not one_of(1)(True)
    assert not one_of(1)(1.0)
    assert not one_of("1")(1)
    assert not one_of()(None)
    assert not one_of(math.nan)(math.nan)
