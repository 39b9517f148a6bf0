"""What a restricted agent's client and the service say to each other: JSON, one form a version.

A request (`Request`) is sent to `svc.<workspace>.<role>.<principal>.open`, or, once a session is
open, to `....<instance>.<verb>`, and has one answer. What an operation comes to may need the client
first: then the answer is `Run`, the client does it, and sends what came of it as a request `done`,
whose answer is the operation's next word. A request outside of a session that takes long is
answered `Pending`, and asked again. So a client needs no subject but its own, and the service
never starts a conversation.

Values of programs are recorded values (`hansard.domain.values`) throughout.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from hansard.bus import subjects
from hansard.domain import values
from hansard.domain.errors import BadValue
from hansard.domain.steps import Failure, PromptUse

VERSION = 7
"""Of this form. A service refuses a client of another one, with a text that names both."""

BEAT_S = 1.0
"""Between two signs of life of a client, in seconds."""

QUIET_S_MAX = 10.0
"""A client of which nothing was heard for so many seconds counts as killed; so does a service."""

ONE_VERSION = "use the same version of hansard for client and service"
"""Remedy of messages that cannot be read."""

PING = "ping"
"""Asked to see whether a service is there: a stranger is answered no, who has a login nothing."""

AGAIN = "again"
"""Asks for what came of a request that was answered `Pending`, under the same nonce."""

EMPTY = msgspec.Raw(b"null")
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Began(msgspec.Struct, frozen=True, tag="began"):
    """A child scope has begun: its path is its parent's, a slash, and the name. apart: a call of
    the parent was open then.
    """

    parent: str
    name: str
    apart: bool = False


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """Child scopes have ended, and their parent goes on after them."""

    parent: str
    children: tuple[str, ...]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is asked.

    token: the secret text of the credentials. session: as `open` gave it. n: the request's number
    in its session (of `open`, `view`, `sql`: nothing), from 1 in the order of sending; no number is
    taken twice. nonce: the same for requests outside of a session, a UUIDv7: a run that an opening
    begins without naming it is called so. turn: the number of the request
    that began the operation, for `done`, `cancel`. scope: the path of the scope it stands in. data:
    by verb, see the structs below. busy: another call of its scope is open, as far as the client
    knows. scopes: what became of scopes since the last request, in its order.
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


# ------------------------------------------------------------ what is asked, by verb


class Open(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`open`: begin a run, join or resume it. See `Record.run`.

    budgets: the fields of each that the gate has, as recorded values. settles: the name of the
    function that settles doubt; empty for none.
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


class Do(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`do`, `enter`: an operation of the session, or a block of it. operation: its request, see
    `hansard.operations.session`. context: the number of the request that opened the block (a
    transaction, a claim, a loop) that it belongs to. verdict: what the client's own gate rules say
    of it, where they are asked about it; None: they allow it.
    """

    operation: msgspec.Raw
    context: int = 0
    verdict: Verdict | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`call`, `stream`: a tool's call. `tool` is what its declaration says and the record needs.

    verdict: what the client's own gate rules say of it; None: they allow it. secrets: the names of
    those that the client could give to the tool. prompts: the versions that it was given. defaults:
    the arguments that have their declared default. program: the names of the program's tools.
    """

    tool: Declared
    arguments: msgspec.Raw
    verdict: Verdict | None = None
    secrets: tuple[str, ...] = ()
    prompts: tuple[PromptUse, ...] = ()
    defaults: tuple[str, ...] = ()
    program: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule of the client's refuses a call, or, with `timeout_s`, wants a person asked first."""

    rule: str
    reason: str = ""
    timeout_s: float | None = None


class Declared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as the client declared it. `asks`: the name of the function that asks the world
    whether it happened. `shadows`: whether it has a shadow. `does`: what it says of itself.
    `waits`: the seconds before further attempts. `reuse`: seconds and scope of the answers of
    earlier runs that its calls may be given.
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
    """`next`, `shut`: the next item of a stream, or no further one."""

    stream: int


class Came(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`done`: what came of what the client was to run. `end`: a stream's tool has no more items.

    fault: what it raised. inexact: why its result is not recorded exactly; empty where it is.
    usage: what it has reported.
    """

    result: msgspec.Raw = EMPTY
    inexact: str = ""
    end: bool = False
    fault: Fault | None = None
    usage: dict[str, float] = {}


class Left(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`exit`, `close`: a block or the session is left, by an error or not. `result` is what a
    claimed task is completed with.
    """

    context: int = 0
    fault: Fault | None = None
    result: msgspec.Raw = EMPTY


# ------------------------------------------------------------ what is answered


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error. Of a tool: its `category` (what it says of the effect), type, module, message and
    arguments, as they are recorded. Of ours: the class by `module` and `type`, and its attributes.
    known: the service's number of an error that it has told before. failure: a program's error as
    it is recorded.
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
    """What the operation came to. own: it is what the client's last run gave: nothing is repeated.
    end: a stream has no more items. context: the number of what was opened. warning: of a changed
    tool.
    """

    value: msgspec.Raw = EMPTY
    own: bool = False
    end: bool = False
    context: int = 0
    warning: str = ""


class Run(msgspec.Struct, frozen=True, tag="run", kw_only=True, omit_defaults=True):
    """Something that only the client can do: `what` is `body`, `ask`, `shadow`, `resolve`, `settle`
    (what is true of a step), `item` (the next of a stream's tool) or `shut` (its end). scope: the
    scope it stands in.
    """

    turn: int
    what: str
    arguments: msgspec.Raw = EMPTY
    scope: str = ""
    warning: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The operation raised. own: what the client's last run raised."""

    fault: Fault
    own: bool = False


class Opened(msgspec.Struct, frozen=True, tag="opened", kw_only=True):
    """An open session: where its requests go, and what the client may want to know of it.

    arm: the fields of the run's arm, as recorded values, as far as the role sees them.
    """

    session: str
    instance: str
    run: str
    mode: str
    epoch: int
    arm: msgspec.Raw = EMPTY


class Pending(msgspec.Struct, frozen=True, tag="pending"):
    """Not yet, to a request outside of a session: the service `instance` is at it, and is asked
    again under the same nonce, as `again`.
    """

    instance: str


class Denied(msgspec.Struct, frozen=True, tag="denied"):
    """No: these few bytes, whatever the reason."""


Answer = Value | Run | Failed | Opened | Pending | Denied

DENIED = msgspec.json.encode(Denied())


# ------------------------------------------------------------ to bytes and back

encode = msgspec.json.encode
_answer = msgspec.json.Decoder(Answer)
_request = msgspec.json.Decoder(Request)


def request(payload: bytes) -> Request | None:
    """A request; None for what is none."""
    try:
        found = _request.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found


def answer(payload: bytes) -> Answer:
    """An answer. Raises BadValue for what is none."""
    try:
        found: Answer = _answer.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("the service's answer", str(error), ONE_VERSION) from error
    return found


def read(raw: msgspec.Raw, kind: Any) -> Any:
    """A request's data. Raises BadValue."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("request", str(error)[:200], "use the client of this version") from error


def load(raw: msgspec.Raw) -> Any:
    """A program's value. Raises BadValue."""
    try:
        return values.load(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("request", str(error)[:200], "use the client of this version") from error


def plain(raw: msgspec.Raw) -> values.Plain:
    """A program's value as plain ones. Raises BadValue."""
    try:
        return values.decode(bytes(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("request", str(error)[:200], "use the client of this version") from error


def dump(value: Any, where: str = "value") -> msgspec.Raw:
    """A program's value as it goes over the wire. Raises BadValue."""
    return values.dump(values.plain(value, where))


# ------------------------------------------------------------ subjects


def opening(workspace: str, role: str, principal: str, verb: str) -> str:
    """Where a request goes that any service of the workspace may take."""
    return f"{subjects.requests(workspace, role, principal)}.{verb}"


def within(workspace: str, role: str, principal: str, instance: str, verb: str) -> str:
    """Where a request goes that one service has to take: the one that hosts the session."""
    return f"{subjects.requests(workspace, role, principal)}.{instance}.{verb}"


class Address(msgspec.Struct, frozen=True):
    """What a request's subject says: who asks, in which role, for what. `instance` is empty for
    what any service takes.
    """

    role: str
    principal: str
    instance: str
    verb: str


def address(subject: str) -> Address | None:
    """What a subject says; None for one that is none of ours."""
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
