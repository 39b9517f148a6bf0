"""Values at a prompt and in a notebook: short and escaped, whatever they hold."""

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from hansard.domain import agent
from hansard.domain.choices import ITEMS_MAX, TEXT_MAX, Brief, first
from hansard.domain.errors import BadName, BadOption, BadValue, Corrupt, UnknownEvent


class Facts(Brief):
    __slots__ = ("facts",)

    def __init__(self, **facts: Any) -> None:
        self.facts = facts

    def _brief(self) -> Mapping[str, Any]:
        return self.facts


class Pair(Brief, msgspec.Struct):
    one: int
    other: str = ""


def _table(rows: dict[str, str], name: str = "Facts") -> str:
    shown = "".join(
        f"<tr><th style='text-align:left'>{key}</th><td style='text-align:left'>{value}</td></tr>"
        for key, value in rows.items()
    )
    return f"<table><caption><b>{name}</b></caption>{shown}</table>"


@pytest.mark.parametrize(
    ("value", "line", "cell"),
    [
        ("ada", "'ada'", "ada"),
        (0, "0", "0"),
        (False, "False", "False"),
        ([1, "b"], "<2>", "1<br>b"),
        ((7,), "<1>", "7"),
        ({"k<": 1}, "<1>", "k&lt;: 1"),
        (msgspec.Raw(b"abc"), "<3 bytes>", "&lt;3 bytes&gt;"),
        (first(range(12), str), "<12>", "<br>".join([*map(str, range(10)), "and 2 more"])),
        (first("ab", str.upper), "<2>", "A<br>B"),
        (range(3), "range(0, 3)", "range(0, 3)"),
        (Pair(1), "Pair(one=1)", "Pair(one=1)"),
        ("<b>&", "'<b>&'", "&lt;b&gt;&amp;"),
        ("a\nb", r"'a\nb'", r"a\nb"),
    ],
)
def test_a_fact_is_shown_in_a_line_and_in_a_table(value: Any, line: str, cell: str):
    """Lists are counted in the line and listed in the table; no markup, nothing invisible."""
    fact = Facts(fact=value)
    assert repr(fact) == f"Facts(fact={line})"
    assert fact._repr_html_() == _table({"fact": cell})


def test_what_is_empty_is_left_out():
    """But not zero, nor False."""
    empty = Facts(a=None, b="", c=[], d={}, e=(), f=set(), g=b"null", h=0, i=False)
    assert repr(empty) == "Facts(h=0, i=False)"
    assert empty._repr_html_() == _table({"h": "0", "i": "False"})
    assert repr(Pair(2)) == "Pair(one=2)"


def test_what_is_long_is_cut():
    """A text is cut after 80 letters, a list after ten items, with a count of the rest."""
    assert repr(Facts(t="x" * TEXT_MAX)) == f"Facts(t={'x' * TEXT_MAX!r})"
    assert repr(Facts(t="x" * (TEXT_MAX + 1))) == f"Facts(t={'x' * (TEXT_MAX - 1) + '…'!r})"
    numbers = list(range(ITEMS_MAX + 1))
    shown = "<br>".join([*map(str, numbers[:ITEMS_MAX]), "and 1 more"])
    assert Facts(n=numbers)._repr_html_() == _table({"n": shown})
    whole = "<br>".join(map(str, numbers[:ITEMS_MAX]))
    assert Facts(n=numbers[:ITEMS_MAX])._repr_html_() == _table({"n": whole})


def test_a_state_tells_what_label_it_carries():
    """An agent's state shows its name, version, and label if it has one."""
    state = agent.AgentState()
    assert "label" not in repr(state)
    state.label = "confidential"
    assert "label='confidential'" in repr(state)


@pytest.mark.parametrize("kind", [BadName, BadOption, BadValue, Corrupt, UnknownEvent])
def test_each_part_of_a_message_is_an_attribute(kind):
    """The value, the fact and the remedy of an error are attributes and in its message."""
    _, *names = inspect.signature(kind.__init__).parameters
    parts = {name: f"the {name}" for name in names}
    error = kind(**parts)
    assert {name: getattr(error, name) for name in names} == parts
    assert all(part in str(error) for part in parts.values())
