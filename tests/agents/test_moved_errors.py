"""A recorded error of Hansard is raised as its class, also where the class has moved since."""

import msgspec
import pytest

from hansard.agents.errors import RecordedFailure
from hansard.agents.steps import failures, tools
from hansard.bus import errors as broker_errors
from hansard.domain import errors
from hansard.domain.fingerprint import UNORDERED
from hansard.domain.steps import Effects, Failure, Step, StepStatus
from hansard.integrations.mcp.http import server


def nothing() -> None:
    """A tool that knows no error by name."""


def raised(name: str, module: str) -> BaseException:
    """What a step raises whose error was recorded under a name and a module."""
    step = Step(
        number=1,
        tool="nothing",
        effects=Effects.ONCE,
        arguments=msgspec.Raw(b"{}"),
        call="c",
        fingerprint=UNORDERED,
        version=1,
        status=StepStatus.FAILED,
        error=Failure(name, "why", msgspec.Raw(b'["why"]'), module),
    )
    return failures.raised(step, tools.spec(nothing, "once", {}))


@pytest.mark.parametrize("cls", [broker_errors.NotFound, errors.BadValue])
@pytest.mark.parametrize("module", [None, "hansard.earlier.place"])
def test_an_error_is_found_by_its_name(cls: type[errors.HansardError], module: str | None):
    """By its module where it is still there, and wherever it is now."""
    assert type(raised(cls.__qualname__, module or cls.__module__)) is cls


def test_of_two_errors_with_one_name_the_recorded_module_decides():
    """Two modules have a Refused."""
    assert type(raised("Refused", server.__name__)) is server.Refused


def test_a_name_of_another_package_is_no_error_of_hansard():
    """Its class is not known here, so the failure is a recorded one."""
    assert type(raised("NotFound", "acme.errors")) is RecordedFailure
