"""An error that a record names by where its class stood is raised as that class still."""

import importlib
import inspect

import msgspec
import pytest

from hansard.agents.steps import failures, tools
from hansard.domain.errors import HansardError
from hansard.domain.steps import Failure


def nothing() -> None:
    """A tool that knows no error by name."""


@pytest.mark.parametrize("old", failures.MOVED)
def test_an_error_is_found_where_its_class_stands_now(old: str):
    """Older records name the module of then."""
    module = importlib.import_module(failures.MOVED[old])
    ours = [
        cls
        for cls in vars(module).values()
        if inspect.isclass(cls)
        and issubclass(cls, HansardError)
        and cls.__module__ == module.__name__
    ]
    assert ours
    spec = tools.spec(nothing, "once", {})
    for cls in ours:
        recorded = Failure(cls.__qualname__, "why", msgspec.Raw(b"[]"), old)
        assert failures._class_of(recorded, spec) is cls
