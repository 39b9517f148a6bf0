"""What people, programs and auditors may rely on is still there, whatever moves inside.

Commands and their options, public names with their attributes and parameters, event tags, tables
with their columns. More may come: it is put on the list by `python -m tests.golden.surface`, which
takes nothing off. A public name of Python may get another name, said in `surface.RENAMED`; all else
keeps its name for ever.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from hansard.projections.store import Store
from tests.golden.surface import RENAMED, Surface, kept, of_store, surface

PYTHON = ("names", "parameters")


@pytest.fixture(scope="module")
def drawn() -> Surface:
    """The surface as it is."""
    return surface()


def renamed(item: str) -> str:
    """Under which name an item stands today: the longest old name that it begins with is changed,
    where that name ends.
    """
    for old in sorted(RENAMED, key=len, reverse=True):
        rest = item.removeprefix(old)
        if rest != item and rest[:1] in {"", ".", "("}:
            return RENAMED[old] + rest
    return item


def gone(there: Iterable[str], now: Iterable[str]) -> list[str]:
    """What was there and is not. A macro may have got further parameters, after those it had."""
    drawn = {*now}
    return sorted(
        item
        for item in {*there} - drawn
        if not (
            item.startswith("macro ")
            and any(each.startswith(f"{item.removesuffix(']')}, ") for each in drawn)
        )
    )


def test_what_a_macro_was_given_it_is_given_first():
    """A parameter more is no loss; one less, one between, or another name is."""
    there = ["macro m[a, b]", "t.c INTEGER"]
    assert not gone(there, ["macro m[a, b, c]", "t.c INTEGER"])
    for now in ("macro m[a]", "macro m[a, c, b]", "macro m[a, bb]", "macro n[a, b]"):
        assert gone(there, [now, "t.c INTEGER"]) == ["macro m[a, b]"]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["commands", "tables", "tags"])
def test_what_is_stored_or_typed_keeps_its_name(drawn: Surface, part: str):
    """No command, option, event tag, table, column, type or macro is gone or has another name."""
    there = kept()[part]
    assert len(there) > 50
    assert not gone(there, drawn[part])


@pytest.mark.slow
@pytest.mark.parametrize("part", PYTHON)
def test_what_programs_call_is_there(drawn: Surface, part: str):
    """Each public name, attribute and parameter is there, or has the new name that was said."""
    there = kept()[part]
    assert len(there) > 200
    assert not sorted({renamed(item) for item in there} - {*drawn[part]})


def test_a_new_name_stands_for_an_old_one():
    """What was renamed was public before, and nothing has both names."""
    there = {item for part in PYTHON for item in kept()[part]}
    assert not [old for old in RENAMED if old not in there]


def test_the_tables_of_a_role_are_the_same(tmp_path: Path):
    """A role's file, whose rows need not be whole, holds what the workspace's does."""
    store = Store(tmp_path / "role.duckdb", partial=True)
    try:
        assert not gone(kept()["tables"], of_store(store))
    finally:
        store.close()
