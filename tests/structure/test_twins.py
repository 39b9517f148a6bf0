"""The sync twins are those that the async ones make."""

import ast

import pytest

from tests.structure.rooms import made
from tests.structure.twins import SRC, TWINS, WORDS, Twin, named, stale


@pytest.mark.slow
def test_no_made_module_is_out_of_date() -> None:
    """Each says what its source says now: `python -m tests.structure.twins` makes them."""
    assert stale() == []


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.made)
def test_a_made_module_says_so(twin: Twin) -> None:
    """It is counted apart, and whoever opens it is told what to edit."""
    assert made(SRC / "hansard" / twin.made)
    assert twin.module in (SRC / "hansard" / twin.made).read_text()


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.made)
def test_nothing_of_a_made_module_is_awaited(twin: Twin) -> None:
    """A sync twin has all methods of its async one, and no word of a loop."""
    told = ast.parse((SRC / "hansard" / twin.made).read_text())
    waits = (ast.Await, ast.AsyncFunctionDef, ast.AsyncWith, ast.AsyncFor)
    assert not [each for each in ast.walk(told) if isinstance(each, waits)]
    source = ast.parse((SRC / "hansard" / twin.source).read_text())
    kinds = {each.name for each in source.body if isinstance(each, ast.ClassDef)}
    assert kinds & {*twin.classes}
    for name, other in twin.classes.items():
        if name not in kinds:
            assert other in {found for each in told.body for found in named(each)}
            continue
        assert _methods(source, name)
        assert _methods(told, other) == _methods(source, name)


def _methods(tree: ast.Module, name: str) -> list[str]:
    [found] = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = [each.name for each in found.body if isinstance(each, functions)]
    return [WORDS.get(name, name) for name in names]
