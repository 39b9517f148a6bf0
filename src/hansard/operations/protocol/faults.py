"""Errors over the wire, both ways: those of programs, and those of hansard.

An error of a program is sent as it is recorded, with what its tool declares about the effect; the
service raises one of the same name. An error of hansard is sent as the code of its class, and
raised as that class, unless its text may reveal what the role does not see: then as
`ServiceFailed`. Codes are a fixed list, so that no peer can import a module or create another
class.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from typing import Any

import msgspec

from hansard.agents.errors import NotDone, RecordedFailure
from hansard.agents.steps.failures import TRANSFERRED, failure
from hansard.agents.steps.recorder import UNTOUCHED
from hansard.agents.steps.tools import DOUBTFUL, ToolSpec
from hansard.bus.errors import AppendUnknown, BusError, Conflict
from hansard.domain import values
from hansard.domain.errors import BadValue, CallerError, HansardError, Refused
from hansard.domain.ids import StreamId
from hansard.domain.steps import Effects, Failure, Step, StepStatus
from hansard.domain.team import ClaimLost
from hansard.domain.values import RECORDED_LENGTH_MAX, Scrub
from hansard.operations.protocol import wire
from hansard.operations.protocol.wire import Fault

# Errors between a restricted agent and the service, by who must act.
#
# CallerError
# └── NotOffered          the caller: an operation of trusted programs
# BusError
# ├── AccessRefused       the caller: the service does not accept these credentials
# ├── ServiceBusy         the caller: more requests at once than a principal may have
# ├── ServiceGone         the world: no answer; the request may have been done
# └── ServiceFailed       the world: the service met an error that the client may not see
#
# Those of the bus record nothing of a step: the run stops here.


class NotOffered(CallerError):
    """A restricted agent used an operation of a trusted program.

    State: nothing was sent.
    Remedy: use the alternative that the message names, or let a trusted program do it.

    Attributes:
        what: The operation.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} is not offered to a restricted agent: {remedy}")
        self.what = what


class AccessRefused(BusError):
    """The service does not accept the credentials for the request.

    State: nothing was done.
    Remedy: get new credentials (`hansard credentials`), or use those of another role.
    """

    def __init__(self) -> None:
        super().__init__(
            "the service refused these credentials: they may have expired or been revoked; "
            "get new ones (hansard credentials ROLE)"
        )


class ServiceBusy(BusError):
    """A principal has as many requests or sessions under way as it may.

    State: nothing was done.
    Remedy: wait `retry_after_s` seconds; if that is None, end a session.

    Attributes:
        limit: The most allowed.
    """

    def __init__(self, what: str, limit: int, retry_after_s: float | None = None) -> None:
        remedy = "end some" if retry_after_s is None else f"retry in {retry_after_s:g} s"
        super().__init__(
            f"this principal has {limit:,} {what}, the most allowed; nothing was done: {remedy}"
        )
        self.limit = limit
        self.retry_after_s = retry_after_s


class ServiceGone(BusError):
    """The service does not answer.

    State: the request may have been done; the session is over.
    Remedy: start `hansard up`, and open the run again (`run=ID`): the record shows what was done.

    Attributes:
        why: The known reason.
        taken: True if the service may have received the request. It has not if it no longer knows
            the session, as after a change of the role's rules.
    """

    def __init__(self, why: str, *, taken: bool = True) -> None:
        super().__init__(
            f"the service did not answer ({why}): the request may or may not have been done; "
            "check that 'hansard up' runs, then resume the run"
            if taken
            else f"the session is over ({why}): the request was not done; resume the run, and retry"
        )
        self.why = why
        self.taken = taken


class ServiceFailed(BusError):
    """The service met an error of its own.

    State: the request may have been done.
    Remedy: open the run again, and read the service's log.
    """

    def __init__(self, kind: str = "an error") -> None:
        super().__init__(
            f"the service met {kind} of its own: see the log of 'hansard up'; resume the run when "
            "it is fixed"
        )


TEXT_LENGTH_MAX = 200_000
"""Most characters of an error's text that are sent: far more than are recorded."""

NAME_LENGTH_MAX = 200
_KNOWN = "hansard_known"
_UNRECORDED = "could not be recorded"
_RECORDED = re.compile(r"recorded at step (\d+) \(")
_TYPED: dict[str, Any] = {"step": Step, "stream": StreamId}
"""Attributes of our errors that are not plain values."""

_SENT = {
    "hansard.agents.access.carried": "Lowered",
    "hansard.agents.errors": (
        "AgentError Blocked Diverged InDoubt Miss NeedsSettling NoScope NotAnswered NotBegun "
        "NotDone RecordedFailure ReplayDiffers ResultMismatch ResultNotRecordable RoleRefused "
        "SecretUnavailable SessionEnded ShadowedEffect ToolError ViewDiffers"
    ),
    "hansard.agents.experiments": "NotPlaced",
    "hansard.bus.errors": "AppendUnknown Conflict Fenced NotFound TooLarge",
    "hansard.domain.aggregate_types": "AggregateConflict UndeclaredEvent",
    "hansard.domain.board": "BoardConflict",
    "hansard.domain.errors": "BadName BadOption BadValue CallerError ExtraMissing Refused",
    "hansard.domain.memory.space": "MemoryConflict MemoryInvalid",
    "hansard.domain.prompt": "PromptConflict",
    "hansard.domain.team": "Circle ClaimLost",
    "hansard.projections.errors": "NotAllowed QueryFailed SqlBusy SqlClosed SqlError TooCostly",
    __name__: "NotOffered ServiceBusy ServiceFailed ServiceGone",
}
"""Names of the errors that are sent as they are, by the module that defines them."""

CODES: dict[str, type[HansardError]] = {
    name: getattr(importlib.import_module(module), name)
    for module, names in _SENT.items()
    for name in names.split()
}
"""Errors sent as they are, being about the agent's own actions; others as their nearest base."""


class ClientGone(BaseException):
    """A client disconnected while it ran a callback, which may or may not have completed."""


class _Plain(Exception):
    pass


class Doubtful(Exception):
    """An error after which a tool's effect is in doubt."""


class _Safe(NotDone):
    pass


class _Untouched(Refused):
    pass


class _Lost(ClaimLost):
    pass


class _Interrupt(BaseException):
    pass


_BASES: dict[str, type[BaseException]] = {
    "plain": _Plain,
    "safe": _Safe,
    "doubtful": Doubtful,
    "untouched": _Untouched,
    "lost": _Lost,
    "interrupt": _Interrupt,
}


# ------------------------------------------------------------ the client's, to the service


def of_program(error: BaseException, spec: ToolSpec | None, scrub: Scrub | None) -> Fault:
    """Convert an error that a program raised to its message to the service."""
    failure_record = failure(error, scrub)
    message = failure_record.message
    if len(message) > RECORDED_LENGTH_MAX:  # the service cuts it, as a trusted session does
        whole = str(error)[:TEXT_LENGTH_MAX]
        scrubbed = scrub(whole) if scrub is not None else whole
        message = scrubbed if isinstance(scrubbed, str) else message
        message = message.encode(errors="backslashreplace").decode()
    return Fault(
        category=_category(error, spec),
        type=failure_record.type[:NAME_LENGTH_MAX],
        module=failure_record.module[:NAME_LENGTH_MAX],
        message=message,
        arguments=failure_record.arguments,
        known=getattr(error, _KNOWN, 0),
        failure=failure_record,
    )


def _category(error: BaseException, spec: ToolSpec | None) -> str:
    if isinstance(error, UNTOUCHED):
        return "untouched"
    if isinstance(error, ClaimLost):
        return "lost"
    if spec is not None and spec.is_safe(error):
        return "safe"
    if not isinstance(error, Exception):
        return "interrupt"
    doubtful = (*DOUBTFUL, *spec.doubtful_errors) if spec is not None else DOUBTFUL
    return "doubtful" if isinstance(error, doubtful) else "plain"


def rebuilt(fault: Fault) -> BaseException:
    """Rebuild a program's error for the service's session; it is recorded as the original would be.

    Raises BadValue.
    """
    base = _BASES.get(fault.category)
    arguments = wire.load(fault.arguments)
    names_fit = all(
        0 < len(name) <= NAME_LENGTH_MAX and "\0" not in name for name in (fault.type, fault.module)
    )
    if base is None or type(arguments) is not list or not names_fit:
        raise BadValue("error", f"a {fault.category!r:.40} of {fault.type!r:.40}", "give an error")
    about = {
        "__module__": sys.intern(fault.module),  # omitted from the record if it is the default
        "__qualname__": fault.type,
        "__str__": lambda _: fault.message,
    }
    cls: Any = type(fault.type, (base,), about)
    error: BaseException = cls.__new__(cls)
    error.args = tuple(arguments)
    if fault.failure is not None:
        named = {"type": fault.type, "module": sys.intern(fault.module), "message": fault.message}
        vars(error)[TRANSFERRED] = msgspec.structs.replace(fault.failure, **named)
    return error


# ------------------------------------------------------------ the service's, to the client


def of_service(error: BaseException, steps: dict[int, Step]) -> Fault:
    """Convert an error of an operation to its message to the client. `steps` are the agent's."""
    notes = notes_of(error)
    if isinstance(error, asyncio.CancelledError):
        return Fault(category="cancelled")
    recorded = _recorded(error, notes, steps)
    if recorded is not None:
        return recorded
    if isinstance(error, Conflict):
        # without the winner, which the role may not see
        error = Conflict(error.stream, error.version, None, error.tries)
    if isinstance(error, AppendUnknown):
        why = "the service's disk takes nothing" if error.why else ""  # without the path
        unknown = error.stream, error.version, error.commit_id, error.waited_s, why
        error = AppendUnknown(*unknown)
    code = _code(error)
    if not code:
        error = ServiceFailed("an error" if isinstance(error, HansardError) else "a fault")
        code = _code(error)
    return Fault(
        category="ours",
        type=code,
        message=str(error),
        arguments=_arguments(error),
        attributes=_attributes(error),
        notes=notes,
    )


def _code(error: BaseException) -> str:
    """Return the code of an error that may be sent; empty for any other."""
    return next((cls.__name__ for cls in type(error).mro() if CODES.get(cls.__name__) is cls), "")


def notes_of(error: BaseException | None) -> tuple[str, ...]:
    """Return an error's notes, without the text of an error that may not be sent."""
    notes: list[str] = getattr(error, "__notes__", [])
    return tuple(
        f"{before}{_UNRECORDED}" if separator else note
        for note in notes
        for before, separator, _ in [note.partition(_UNRECORDED)]
    )


def _recorded(error: BaseException, notes: tuple[str, ...], steps: dict[int, Step]) -> Fault | None:
    """Convert an error of a program that is on record: the client knows its class."""
    if isinstance(error, HansardError) and not isinstance(error, RecordedFailure):
        return None
    for note in reversed(notes):
        match = _RECORDED.match(note)
        step = steps.get(int(match.group(1))) if match else None
        if step is not None and step.error is not None:
            return Fault(
                category="recorded",
                type=step.error.type,
                module=step.error.module,
                message=step.error.message,
                arguments=step.error.arguments,
                failure=step.error,
                attributes={"step": values.dump([step.number, step.tool])},
            )
    return None


def _arguments(error: BaseException) -> msgspec.Raw:
    try:
        return wire.dump(list(error.args), "error")
    except BadValue:
        return values.dump([str(error)])


def _attributes(error: BaseException) -> dict[str, msgspec.Raw]:
    fields: dict[str, msgspec.Raw] = {}
    for name, value in vars(error).items():
        if name in ("winner", _KNOWN) or name.startswith("__"):
            continue
        try:
            raw = wire.encode(value) if name in _TYPED else bytes(wire.dump(value, name))
        except (BadValue, TypeError):
            continue
        fields[name] = msgspec.Raw(raw)
    return fields


def ours(fault: Fault) -> BaseException:
    """Rebuild an error of hansard in the client's program. Raises BadValue for an unknown code."""
    if fault.category == "cancelled":
        return asyncio.CancelledError()
    cls: Any = CODES.get(fault.type)
    if cls is None:
        raise BadValue("the service's answer", f"error {fault.type!r:.80}", wire.ONE_VERSION)
    # Without its constructor: the recorded fields alone restore an error.
    error: BaseException = cls.__new__(cls, *wire.load(fault.arguments))
    for name, raw in fault.attributes.items():
        if name in _TYPED:
            setattr(error, name, msgspec.json.decode(raw, type=_TYPED[name]))
        else:
            setattr(error, name, wire.load(raw))
    for note in fault.notes:
        error.add_note(note)
    setattr(error, _KNOWN, fault.known)
    return error


def recorded_step(fault: Fault, spec: ToolSpec | None) -> Step:
    """Build a failed step with what is needed to raise its error again."""
    number, tool = wire.load(fault.attributes["step"])
    return Step(
        number=number,
        tool=tool,
        effects=spec.effects if spec is not None else Effects.ONCE,
        arguments=wire.EMPTY,
        call="",
        fingerprint="",
        version=0,
        status=StepStatus.FAILED,
        error=fault.failure or Failure(fault.type, fault.message, fault.arguments, fault.module),
    )
