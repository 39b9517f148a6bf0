"""Exceptions to what is recorded of them, and back."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import msgspec

from hansard.agents.errors import Blocked, RecordedFailure, ShadowedEffect
from hansard.agents.steps.tools import ToolSpec
from hansard.domain import values
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.fingerprint import digest
from hansard.domain.steps import Failure, Step, StepStatus, Withheld
from hansard.domain.values import RECORDED_LENGTH_MAX, Scrub, recordable


def failure(error: BaseException, scrub: Scrub | None = None) -> Failure:
    """An exception as it is recorded, secrets taken out."""
    message = _safe_text(error, scrub)
    try:
        plain = values.plain(_given(error), "error", scrub)
        arguments = values.dump(plain)
        if len(bytes(arguments)) > RECORDED_LENGTH_MAX:
            arguments = values.dump([message])
    except BadValue:
        arguments = values.dump([message])
    kind = type(error)
    return Failure(kind.__qualname__, message, arguments, kind.__module__)


def _given(error: BaseException) -> list[Any]:
    """What makes an equal error: an OSError keeps its files outside its arguments."""
    if isinstance(error, OSError) and error.filename is not None and len(error.args) == 2:  # noqa: PLR2004 -- errno, text
        second = [] if error.filename2 is None else [None, error.filename2]
        return [*error.args, error.filename, *second]
    return list(error.args)


def _safe_text(error: BaseException, scrub: Scrub | None) -> str:
    try:
        text = str(error)
    except Exception as broken:  # noqa: BLE001 -- whatever its __str__ raises, the error is recorded
        text = f"(its text cannot be had: {type(broken).__name__})"
    return recordable(text, scrub)


def failure_digest(recorded: Failure) -> str:
    """What a failed call counts for in its chain."""
    return digest(b"failed", recorded.type.encode(), recorded.message.encode())


def raised(step: Step, spec: ToolSpec | None) -> BaseException:
    """A recorded error as an exception to raise again.

    Its class is looked up by name among the builtins, the tool's `raises=` and error lists, and
    the names the tool's own function can see; nothing is imported, and no constructor but of a
    builtin runs.
    """
    recorded = step.error or Failure("Unknown", "no error was recorded")
    if step.status is StepStatus.BLOCKED and step.withheld is Withheld.REFUSED:
        return ShadowedEffect(step.tool)
    if step.status is StepStatus.BLOCKED:
        return Blocked(step.rule, recorded.message, step.tool)
    cls = _class_of(recorded, spec)
    error = _made(cls, _arguments(recorded)) if cls is not None else None
    if error is None:
        error = RecordedFailure(recorded.type, recorded.message)
    error.add_note(f"recorded at step {step.number} ({step.tool})")
    return error


def _made(cls: type[BaseException], arguments: list[Any]) -> BaseException | None:
    """An error of a class, None where the class does not take what was recorded."""
    try:
        if cls.__module__ == "builtins":
            return cls(*arguments)
        return cls.__new__(cls, *arguments)
    except (TypeError, ValueError):
        return None


def _arguments(recorded: Failure) -> list[Any]:
    try:
        loaded: list[Any] = values.load(recorded.arguments)
    except (BadValue, msgspec.DecodeError):
        return [recorded.message]
    return loaded


def _class_of(recorded: Failure, spec: ToolSpec | None) -> type[BaseException] | None:
    found: Any = None
    if recorded.module == "builtins":
        found = getattr(builtins, recorded.type, None)
    elif spec is not None:
        declared = (*spec.raises, *spec.safe_errors, *spec.doubtful_errors)
        seen = getattr(spec.function, "__globals__", {})
        same = [cls for cls in declared if cls.__qualname__ == recorded.type]
        found = same[0] if same else seen.get(recorded.type)
        if found is None and recorded.module.partition(".")[0] == "hansard":
            found = getattr(sys.modules.get(recorded.module), recorded.type, None)
            found = found or _own_error(recorded.type)
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    return None


def _own_error(name: str) -> type[BaseException] | None:
    """Return the one error of Hansard with this name; its module may have moved since."""
    found: list[type[BaseException]] = []
    waiting: list[type[BaseException]] = [HansardError]
    while waiting:
        cls = waiting.pop()
        if cls.__qualname__ == name and cls.__module__.partition(".")[0] == "hansard":
            found.append(cls)
        waiting += cls.__subclasses__()
    return found[0] if len(found) == 1 else None
