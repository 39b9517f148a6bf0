"""Operations of a session, each derived from the method that answers it; and all, by name.

The request (`Ask`, tagged by the operation's name) and the type of the result follow from the
method's signature; beside it only the permissions are declared that it requires of the caller's
role. The service derives its dispatcher from it, and a restricted client encodes its calls from it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from hansard.agents.access.roles import View
from hansard.agents.annotations.statements import Annotations, Every
from hansard.agents.board import AsyncBoard, AsyncTransaction, Expected, Resolve
from hansard.agents.memory.search import HITS_MAX, SearchResult
from hansard.agents.memory.twins import AsyncMemory
from hansard.agents.policy.permits import Need, claims, reads, states, writes
from hansard.agents.team.tasks import STATES, Task
from hansard.agents.team.twins import AsyncTeam
from hansard.bus import slices
from hansard.domain.agent import (
    CheckpointSaved,
    DecisionMade,
    HandedOff,
    MessageAdded,
    ResourceAccessed,
)
from hansard.domain.board import Merge
from hansard.domain.errors import BadValue
from hansard.domain.team import MailSent
from hansard.operations.declare import (
    REGISTRY,
    Ask,
    ChainKind,
    Data,
    Name,
    Operation,
    SecretName,
    Takes,
    Text,
    Value,
    free,
    kinds_of,
    of_record,
)
from hansard.operations.memory import FileOp, Spaces, changes
from hansard.operations.protocol.wire import EMPTY, Fault
from hansard.operations.record import RecordOperations

A = TypeVar("A", bound="type[Ask]")


class Function(msgspec.Struct, frozen=True, tag_field="is", tag="function"):
    """A function that the client runs when the service requests it."""

    name: str


class Claim(msgspec.Struct, frozen=True, tag_field="is", tag="claim"):
    """A task that this session has claimed: its id, and the claim's number."""

    id: str
    number: int


class Raised(msgspec.Struct, frozen=True, tag_field="is", tag="error"):
    """An error of the client's program."""

    fault: Fault


OPERATIONS: dict[str, Operation] = REGISTRY
"""All operations by name, of a record and of its sessions."""

OPERATIONS.update(of_record(RecordOperations, Spaces))

_record = {each.verb: each for each in OPERATIONS.values()}
"""The operations of a record, by the word for each in the subject of a request."""


def of_verb(verb: str) -> Operation | None:
    """Return the operation of a record for a word in the subject of a request."""
    if verb not in _record:
        of_slices()
    return _record.get(verb)


@cache
def of_slices() -> dict[str, Operation]:
    """Return the operations of the installed slices, by name, which are known from now on."""
    operations = of_record(*(noun for each in slices.installed() for noun in each.operations()))
    OPERATIONS.update(operations)
    _record.update({each.verb: each for each in operations.values()})
    _decoders.update(decoders(operations))
    return operations


def _states(tag: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (states(tag),)


def _writes(request: Any) -> tuple[Need, ...]:
    return (writes(request.key),)


def _reads(request: Any) -> tuple[Need, ...]:
    return (reads(request.key),)


# ------------------------------------------------------------ declarations

_NAMES = frozenset({"agent", "change", "folder", "key", "path", "role", "space", "task", "to"})
"""Parameters whose texts are used as names elsewhere."""

_WIRED: dict[Any, Any] = {
    str: Text,
    Any: Value,
    object: Value,
    Task: Claim,
    dict[str, Any]: Data,
    Mapping[str, str]: dict[str, Text],
    Iterable[Any]: list[Value],
    Iterable[object]: list[Value],
    Iterable[str]: list[Name],
    Sequence[str]: list[Name],
    Merge | str: str,
    int | Expected | str | None: int | str | None,
    Resolve | None: str | Function | None,
    BaseException | str: str | SecretName | Raised,
}
"""The wire forms of parameters, by their type; any other type is its own."""


def _declare(request: Any, result: Any, needs: Any, place: ChainKind, takes: Takes) -> None:
    name = str(request.__struct_config__.tag)
    OPERATIONS[name] = Operation(
        name=name,
        request=request,
        result=result,
        needs=needs,
        place=place,
        takes=takes,
        fields=kinds_of(request),
    )


def _operation(
    result: Any = None,
    *,
    needs: Callable[[Any], tuple[Need, ...]] = free,
    place: ChainKind = ChainKind.STEP,
    takes: Takes = Takes.LITTLE,
) -> Callable[[A], A]:
    """Declare an operation by its request, where it is not that of a method."""

    def declare(request: A) -> A:
        _declare(request, result, needs, place, takes)
        return request

    return declare


def _operations(
    group: str,
    answers: type[Any],
    methods: Mapping[str, Callable[[Any], tuple[Need, ...]]],
    *,
    place: ChainKind = ChainKind.STEP,
    takes: Takes = Takes.LITTLE,
    texts: Any = Text,
    **wired: Any,
) -> None:
    """Declare operations by the methods that answer them.

    Args:
        group: The object that has them.
        answers: Its class.
        methods: Returns the permissions that a request requires, by method.
        place: Their position in the chain of calls.
        takes: Their cost class.
        texts: The wire form of texts that are no names.
        **wired: The wire form of parameters of these names; None for one that is not sent.
    """
    for name, needs in methods.items():
        method = getattr(answers, name)
        hints = get_type_hints(method)
        fields: list[Any] = []
        for each, parameter in [*inspect.signature(method).parameters.items()][1:]:
            form = wired.get(each, _form(each, hints[each], texts))
            if form is None:
                continue
            default = parameter.default
            if default is parameter.empty:
                fields.append((each, form))
            elif form is Value:
                fields.append((each, form, EMPTY))
            else:
                fields.append((each, form, _plain(default)))
        tag = f"{group}.{name}"
        request = msgspec.defstruct(
            tag.replace(".", "_"), fields, bases=(Ask,), frozen=True, tag=tag
        )
        request.__doc__ = inspect.getdoc(method)
        _declare(request, _result(hints["return"]), needs, place, takes)


def _form(name: str, hint: Any, texts: Any) -> Any:
    """Return the wire form of a parameter."""
    if name in _NAMES and hint in (str, str | None):
        return Name if hint is str else Name | None
    return texts if hint is str else _WIRED.get(hint, hint)


def _plain(default: Any) -> Any:
    if isinstance(default, Mapping):
        return dict(default)
    return [*default] if isinstance(default, tuple) else default


def _result(hint: Any) -> Any:
    """Return the result of a method, a flow or a block; None for one that is not sent."""
    if get_origin(hint) in (Generator, AsyncGenerator):
        hint = get_args(hint)[-1 if get_origin(hint) is Generator else 0]
    return None if hint in (type(None), AsyncTransaction) else hint


# ------------------------------------------------------------ session


@_operation(View, takes=Takes.RUN)
class SessionView(Ask, frozen=True, tag="session.view"):
    """Return the run as the role sees it: now, or at an event that it was shown."""

    at: str | None = None
    key: bytes | None = None


_operations(
    "facts",
    Annotations,
    {
        "checkpoint": _states(CheckpointSaved.tag),
        "decide": _states(DecisionMade.tag),
        "resource": _states(ResourceAccessed.tag),
        "hand_off": _states(HandedOff.tag),
    },
    place=ChainKind.FACT,
)
_operations(
    "facts", Annotations, {"message": _states(MessageAdded.tag)}, place=ChainKind.FACT, role=Text
)
_operations(
    "facts",
    Annotations,
    {"checkpoint_data": free, "latest_checkpoint": free, "context": free},
    place=ChainKind.NONE,
)

# ------------------------------------------------------------ board and transactions

_WRITES = dict.fromkeys(("append", "add", "include", "discard", "merge", "remove"), _writes)

_operations(
    "board",
    AsyncBoard,
    {"entry": _reads, "keys": free, "put": _writes, **_WRITES, "transaction": free},
)
_operations(
    "transaction", AsyncTransaction, {"get": _reads, "put": _writes, **_WRITES, "roll_back": free}
)

# ------------------------------------------------------------ memory

_operations(
    "memory",
    AsyncMemory,
    {
        **dict.fromkeys(("entry", "ls", "glob", "prompt", "news", "history"), free),
        **dict.fromkeys(("create", "edit", "insert", "rename", "delete", "remember"), changes),
        "revert": free,
    },
    texts=str,
    at=str | None,
    count=None,
)
_operations("memory", AsyncMemory, {"grep": free}, takes=Takes.RUN, texts=str)


@_operation(SearchResult, takes=Takes.RUN)
class MemorySearch(Ask, frozen=True, tag="memory.search"):
    """Return the files that match the words of a question, best first.

    Args:
        question: The words.
        glob: Only files whose path matches it.
        limit: Most results.
        kind: Only files of that kind: procedural or semantic.
    """

    question: str
    glob: str = ""
    limit: int = HITS_MAX
    kind: str = ""


@_operation(needs=changes)
class MemoryChangeOf(Ask, frozen=True, tag="memory.change"):
    """Change several files of memory at once, all or none."""

    ops: list[FileOp]
    sources: list[Name] = []
    reason: str = ""
    space: Name | None = None


# ------------------------------------------------------------ team


def _claims(request: Any) -> tuple[Need, ...]:
    stated = states(STATES["claim"])
    return (stated,) if request.role is None else (stated, claims(request.role))


_operations(
    "team",
    AsyncTeam,
    {
        "add": _states(STATES["add"]),
        "claim": _claims,
        "claimed": lambda request: (*_claims(request), states(STATES["complete"])),
        **{
            name: _states(STATES[name])
            for name in ("extend", "complete", "fail", "release", "hand_off", "reopen")
        },
        "tasks": free,
        "wait_for": lambda request: () if request.key is None else (reads(request.key),),
        "send": _states(MailSent.tag),
        "inbox": free,
    },
    position=None,
)

# ------------------------------------------------------------ loops


@_operation(list[Any], place=ChainKind.NONE)
class LoopBegin(Ask, frozen=True, tag="loop.begin"):
    """Begin a `resumable` loop; return the results of the items done before."""

    name: Name
    every: Every


@_operation(str | None, place=ChainKind.FACT)
class LoopSkips(Ask, frozen=True, tag="loop.skips"):
    """Begin an item; return the path of its scope, null if it was done before."""

    item: Value


@_operation(needs=_states(CheckpointSaved.tag), place=ChainKind.FACT)
class LoopDone(Ask, frozen=True, tag="loop.done"):
    """Mark an item as done, and keep the results."""

    results: list[Value] = []


@_operation(place=ChainKind.FACT)
class LoopLeave(Ask, frozen=True, tag="loop.leave"):
    """Leave the loop, completed or not."""


@_operation(needs=_states(CheckpointSaved.tag), place=ChainKind.FACT)
class LoopEnd(Ask, frozen=True, tag="loop.end"):
    """Mark all items as done, and keep the remaining results."""

    results: list[Value] = []


# ------------------------------------------------------------ decoding


def decoders(operations: Mapping[str, Operation]) -> dict[str, msgspec.json.Decoder[Any]]:
    """Return the decoders of requests, by the operations' names."""
    return {name: msgspec.json.Decoder(each.request) for name, each in operations.items()}


_decoders = decoders(OPERATIONS)
_EXPECTED = re.compile(r"Expected `(.+?)`(?:, got `.+?`)?(?: - at .*)?$")
_AT = re.compile(r" - at `\$\.(\w+).*`$")
_NAMED = re.compile(r"(required|unknown) field `(.+?)`")


class _Tagged(msgspec.Struct):
    op: str


_tag = msgspec.json.Decoder(_Tagged)


def read(raw: msgspec.Raw) -> tuple[Operation, Any]:
    """Decode a request; return it with its operation.

    Raises BadValue, which names the operation, the field, its content, and the expected content.
    """
    try:
        name = _tag.decode(raw).op
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue("request", f"{error!s:.200}", "give an operation by its name") from error
    operation = OPERATIONS.get(name)
    if operation is None:
        raise BadValue(
            "request", f"there is no operation {name!r:.80}", "see the list of operations"
        )
    try:
        return operation, _decoders[name].decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(operation, raw, str(error)) from error


def _wrong(operation: Operation, raw: msgspec.Raw, text: str) -> BadValue:
    """Build the error for a request that does not fit the operation."""
    takes = f"{operation.called} takes {', '.join(operation.fields) or 'nothing'}"
    named, at = _NAMED.search(text), _AT.search(text)
    if at is None:
        if named is None:
            return BadValue(operation.called, text[:200], takes)
        fact = "missing" if named[1] == "required" else "unknown field"
        return BadValue(f"{operation.called}({named[2]:.80})", fact, takes)
    hint = get_type_hints(operation.request)[at[1]]
    remedy = text.partition(" - at ")[0]
    if isinstance(hint, type) and issubclass(hint, Enum):
        remedy = f"give one of {', '.join(str(each.value) for each in hint)}"
    elif (expected := _EXPECTED.match(text)) is not None:
        remedy = f"give {expected[1]}"
    value = bytes(msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[at[1]])
    return BadValue(f"{operation.called}({at[1]})", value[:80].decode(errors="replace"), remedy)
