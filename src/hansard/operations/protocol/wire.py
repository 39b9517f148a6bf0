"""Messages between a restricted agent's client and the service: JSON, one format a version.

A request (`Request`) is sent to `svc.<workspace>.<role>.<principal>.open`, or, in an open session,
to `....<instance>.<verb>`, and has one answer. If an operation needs a callback in the client, the
answer is `Run`; the client runs it, and sends its result as a request `done`, whose answer is the
operation's next one. A long request outside of a session is answered `Pending`, and sent again. So
a client needs no subject but its own, and the service never starts an exchange.

Values of programs are recorded values (`hansard.domain.values`) throughout.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import msgspec

from hansard.agents.access.roles import View
from hansard.agents.annotations.statements import Checkpoint
from hansard.agents.artifacts.prompts import Prompt
from hansard.agents.board import BoardEntry
from hansard.agents.experiments import Arm
from hansard.agents.memory.reading import MemoryEntry, MemoryNews, MemoryVersion
from hansard.agents.memory.search import SearchResult
from hansard.agents.memory.store import BlamedLine
from hansard.agents.team.tasks import Mail, Task, TaskEntry
from hansard.bus import subjects
from hansard.bus.clock import Slices
from hansard.domain import values
from hansard.domain.actions import ActionCache
from hansard.domain.board import KeyKind
from hansard.domain.errors import BadValue
from hansard.domain.steps import Failure, PromptUse
from hansard.inspect.actions import ActionsLog, KeptCaches
from hansard.inspect.experiments import PromptEvidence, PromptReport
from hansard.inspect.savings import Savings, SavingsAnswer
from hansard.operations.reports import Shown
from hansard.operations.sql_answer import SqlAnswer

VERSION = 8
"""Version of the format. A service refuses other versions, with a text that names both."""

BEAT_S = 1.0
"""Seconds between two heartbeats of a client."""

QUIET_S_MAX = 10.0
"""Seconds of silence after which a client or a service counts as killed."""

FOR_EVER_S = 366 * 24 * 3_600.0
"""Seconds that a session's request waits: as long as the session lives, since it may take a day."""

WAIT_S = 20.0
"""Longest wait for an answer over HTTP, in seconds, after which it is requested again."""

ONE_VERSION = "use the same version of hansard for client and service"

PING = "ping"
"""Verb that checks whether a service is there; its answer carries nothing."""

AGAIN = "again"
"""Verb that requests the result of a request answered `Pending`, under the same nonce."""

EMPTY = msgspec.Raw(b"null")
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Began(msgspec.Struct, frozen=True, tag="began"):
    """A child scope has begun: its path is its parent's, a slash, and the name.

    `apart`: a call of the parent was open then.
    """

    parent: str
    name: str
    apart: bool = False


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """Child scopes have ended, and their parent continues after them."""

    parent: str
    children: tuple[str, ...]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A request.

    Attributes:
        token: The secret text of the credentials.
        session: The session's id, as returned by `open`.
        n: The request's number in its session (0 for `open`, `view`, `sql`), from 1 in the order of
            sending; no number is accepted twice.
        nonce: The same for requests outside of a session, a UUIDv7; the id of a run that an opening
            begins without naming it.
        turn: The number of the request that began the operation, for `done`, `cancel`.
        scope: The path of its scope.
        data: By verb, see the structs below.
        busy: True if another call of its scope is open, as far as the client knows.
        scopes: Changes of scopes since the last request, in order.
    """

    v: int = VERSION
    token: str
    session: str = ""
    n: int = 0
    nonce: str = ""
    turn: int = 0
    scope: str = ""
    data: msgspec.Raw = EMPTY
    busy: bool = False
    scopes: tuple[Began | Joined, ...] = ()

    def __repr__(self) -> str:
        return f"Request(session={self.session!r}, n={self.n})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("session", self.session), ("n", self.n)]


# ------------------------------------------------------------ requests, by verb


class Open(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`open`: begin a run, join or resume it. See `Record.run`.

    Attributes:
        budgets: The fields of each budget of the gate, as recorded values.
        settles: The name of the function that settles doubt; empty for none.
        reopens: False to refuse a run that has ended.
    """

    workflow: str | None = None
    run: str | None = None
    agent: str
    mode: str | None = None
    labels: dict[str, str] = {}
    program: str = ""
    correlation: str | None = None
    traceparent: str | None = None
    budgets: msgspec.Raw = EMPTY
    settles: str = ""
    experiment: str | None = None
    arm: str | None = None
    task: str | None = None
    trial: int | None = None
    unit: str | None = None
    reopens: bool = True


class Do(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`do`, `enter`: an operation of the session, or a block of it.

    Attributes:
        operation: Its request, see `hansard.operations.session`.
        context: The number of the request that opened its block (a transaction, a claim, a loop).
        verdict: The verdict of the client's own gate rules; None if they allow it.
    """

    operation: msgspec.Raw
    context: int = 0
    verdict: Verdict | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`call`, `stream`: a call of a tool.

    Attributes:
        tool: The tool's declaration, as far as the record needs it.
        verdict: The verdict of the client's own gate rules; None if they allow it.
        secrets: The names of the secrets that the client has for the tool.
        prompts: The prompt versions in the arguments.
        defaults: The arguments that have their declared default.
        program: The names of the program's tools.
    """

    tool: Declared
    arguments: msgspec.Raw
    verdict: Verdict | None = None
    secrets: tuple[str, ...] = ()
    prompts: tuple[PromptUse, ...] = ()
    defaults: tuple[str, ...] = ()
    program: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """A client's rule refuses a call, or, with `timeout_s`, requires a person's approval."""

    rule: str
    reason: str = ""
    timeout_s: float | None = None


class Declared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as the client declared it.

    Attributes:
        asks: The name of the function that checks whether the effect happened.
        shadows: True if it has a shadow.
        does: Its description.
        waits: The seconds before further attempts.
        reuse: Seconds and scope of the answers of earlier runs that its calls may reuse.
    """

    name: str
    effects: str
    aliases: tuple[str, ...] = ()
    version: str = ""
    kind: str = "tool"
    source: str = ""
    attempts: int = 1
    waits: tuple[float, ...] = ()
    key_argument: str | None = None
    asks: str = ""
    shadows: bool = False
    does: str = ""
    gives: str = ""
    takes: str = ""
    reuse: tuple[float, str] | None = None


class Next(msgspec.Struct, frozen=True):
    """`next`, `shut`: request the next item of a stream, or end it."""

    stream: int


class BodyResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`done`: the result of a callback in the client.

    Attributes:
        inexact: The reason why the result is not recorded exactly; empty if it is.
        end: True if a stream's tool has no more items.
        fault: The error that it raised.
        usage: The usage that it reported.
    """

    result: msgspec.Raw = EMPTY
    inexact: str = ""
    end: bool = False
    fault: Fault | None = None
    usage: dict[str, float] = {}


class BlockExit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`exit`, `close`: a block or the session is left, by an error or not.

    `result` completes a claimed task.
    """

    context: int = 0
    fault: Fault | None = None
    result: msgspec.Raw = EMPTY


# ------------------------------------------------------------ answers


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error.

    Attributes:
        category: For an error of a tool, what it declares about the effect; `ours` for hansard's.
        type: The class; for hansard's errors its code.
        known: The service's number of an error that it has sent before.
        failure: A program's error as it is recorded.
    """

    category: str = "plain"
    type: str = ""
    module: str = ""
    message: str = ""
    arguments: msgspec.Raw = EMPTY
    attributes: dict[str, msgspec.Raw] = {}
    notes: tuple[str, ...] = ()
    known: int = 0
    failure: Failure | None = None


class Value(msgspec.Struct, frozen=True, tag="value", omit_defaults=True):
    """The result of an operation.

    Attributes:
        own: True if it is the result of the client's last callback, which is not sent back.
        end: True if a stream has no more items.
        context: The number of the block or stream that was opened.
        warning: A warning of a changed tool.
    """

    value: msgspec.Raw = EMPTY
    own: bool = False
    end: bool = False
    context: int = 0
    warning: str = ""


class Run(msgspec.Struct, frozen=True, tag="run", kw_only=True, omit_defaults=True):
    """A callback that only the client can run.

    Attributes:
        what: `body`, `ask`, `shadow`, `resolve`, `settle` (a step in doubt), `item` (the next one
            of a stream's tool) or `shut` (its end).
        scope: The scope that it runs in.
    """

    turn: int
    what: str
    arguments: msgspec.Raw = EMPTY
    scope: str = ""
    warning: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The operation raised. `own`: it is the error of the client's last callback."""

    fault: Fault
    own: bool = False


class Opened(msgspec.Struct, frozen=True, tag="opened", kw_only=True):
    """An open session: the service instance that hosts it, and its data for the client.

    `arm` holds the fields of the run's arm, as recorded values, as far as the role sees them.
    """

    session: str
    instance: str
    run: str
    mode: str
    epoch: int
    arm: msgspec.Raw = EMPTY


class Pending(msgspec.Struct, frozen=True, tag="pending"):
    """Not yet, to a request outside of a session.

    The service `instance` works on it, and is sent the same nonce again, as `again`.
    """

    instance: str


class Denied(msgspec.Struct, frozen=True, tag="denied"):
    """A refusal: the same few bytes, whatever the reason."""


Answer = Value | Run | Failed | Opened | Pending | Denied

DENIED = msgspec.json.encode(Denied())


# ------------------------------------------------------------ encoding

encode = msgspec.json.encode
_answer = msgspec.json.Decoder(Answer)
_request = msgspec.json.Decoder(Request)


def request(payload: bytes) -> Request | None:
    """Decode a request; None if it is invalid."""
    try:
        message = _request.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return message


def answer(payload: bytes) -> Answer:
    """Decode an answer. Raises BadValue if it is invalid."""
    try:
        message: Answer = _answer.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("the service's answer", str(error), ONE_VERSION) from error
    return message


def read(raw: msgspec.Raw, kind: Any) -> Any:
    """Decode a request's data. Raises BadValue."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("request", str(error)[:200], "use the client of this version") from error


def load(raw: msgspec.Raw) -> Any:
    """Decode a program's value. Raises BadValue."""
    try:
        return values.load(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("request", str(error)[:200], "use the client of this version") from error


def plain(raw: msgspec.Raw) -> values.Plain:
    """Decode a program's value to plain ones. Raises BadValue."""
    try:
        return values.decode(bytes(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("request", str(error)[:200], "use the client of this version") from error


def dump(value: Any, where: str = "value") -> msgspec.Raw:
    """Encode a program's value. Raises BadValue."""
    return values.dump(values.plain(value, where))


# ------------------------------------------------------------ subjects


def opening(workspace: str, role: str, principal: str, verb: str) -> str:
    """Return the subject of a request that any service of the workspace may take."""
    return f"{subjects.requests(workspace, role, principal)}.{verb}"


def within(workspace: str, role: str, principal: str, instance: str, verb: str) -> str:
    """Return the subject of a request to the service that hosts the session."""
    return f"{subjects.requests(workspace, role, principal)}.{instance}.{verb}"


class Address(msgspec.Struct, frozen=True):
    """The parts of a request's subject: principal, role and verb.

    `instance` is empty if any service may take it.
    """

    role: str
    principal: str
    instance: str
    verb: str


def address(subject: str) -> Address | None:
    """Parse a subject; None if it is not a request's."""
    parts = subject.split(".")
    try:
        match parts:
            case ["svc", _, role, principal, verb]:
                return Address(subjects.untoken(role), subjects.untoken(principal), "", verb)
            case ["svc", _, role, principal, instance, verb]:
                who = subjects.untoken(role), subjects.untoken(principal)
                return Address(*who, instance, verb)
            case _:
                return None
    except ValueError:
        return None


# Results of operations over the wire and back: our own structs, which values cannot hold.

LINES_AT_ONCE = 50
"""Lines of a view that are encoded between two checks of the clock."""


def encode_arm(arm: Arm | None) -> msgspec.Raw:
    """Encode a run's arm."""
    return dump(None if arm is None else msgspec.structs.asdict(arm), "arm")


def decode_arm(raw: msgspec.Raw) -> Arm | None:
    """Decode a run's arm."""
    fields = load(raw)
    return None if fields is None else Arm(**fields)


async def encode_result(result: Any) -> msgspec.Raw:
    """Encode the result of an operation; a view, which may be long, in slices.

    An action cache is encoded as in its file: a secret in it is a name, for the program that
    replays it.
    """
    match result:
        case View():
            return await _view(result)
        case ActionCache():
            return msgspec.Raw(encode(result))
        case _:
            return dump(_fields(result))


def decode_result(raw: msgspec.Raw, result: Any) -> Any:
    """Decode the result of an operation to its declared type. Raises BadValue."""
    try:
        if result in (View, ActionCache):
            return msgspec.json.decode(raw, type=result)
        value = load(raw)
        return value if result is Any else msgspec.convert(value, result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("the service's answer", str(error)[:200], ONE_VERSION) from error


def _fields(result: Any) -> Any:
    match result:
        case SqlAnswer():
            return {k: v for k, v in msgspec.structs.asdict(result).items() if k != "ipc"}
        case BoardEntry() | Checkpoint() | Task() | TaskEntry() | Mail() | Savings():
            fields = msgspec.structs.asdict(result)
            return {
                name: value.value if isinstance(value, KeyKind) else value
                for name, value in fields.items()
            }
        case Prompt():
            label = msgspec.to_builtins(result.label)
            return msgspec.structs.asdict(result) | {"label": label}
        case SavingsAnswer():
            return {"position": result.position, "rows": _fields(result.rows)}
        case PromptReport() | PromptEvidence():
            return msgspec.to_builtins(result)
        case MemoryEntry() | MemoryVersion() | MemoryNews() | BlamedLine() | SearchResult():
            return msgspec.to_builtins(result)
        case Shown() | KeptCaches() | ActionsLog():
            return msgspec.to_builtins(result, builtin_types=(bytes, datetime, date, time, Decimal))
        case list():
            return [_fields(each) for each in result]
        case _:
            return result


async def _view(view: View) -> msgspec.Raw:
    """Encode a view in slices, to the same bytes as at once."""
    lines: list[bytes] = []
    async with Slices() as slices:
        for start in range(0, len(view.events), LINES_AT_ONCE):
            lines.append(encode(view.events[start : start + LINES_AT_ONCE])[1:-1])
            if slices.over:
                await slices.pause()
    fields = {name: getattr(view, name) for name in view.__struct_fields__}
    fields["events"] = msgspec.Raw(b"[" + b",".join(lines) + b"]")
    return msgspec.Raw(encode(fields))
