"""Operations of a session, each declared by its request; and all operations, by name.

A declaration is a request (`Ask`, tagged by the operation's name), the type of its result, and the
permissions that it requires of the caller's role. The service derives its dispatcher from it, and a
restricted client encodes its calls from it; the fields are declared nowhere else.

Long because the operations are one list, in the order of the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_type_hints

import msgspec

from hansard.agents.access.roles import View
from hansard.agents.annotations import statements
from hansard.agents.board import BoardEntry
from hansard.agents.memory.reading import MemoryEntry, MemoryNews, MemoryVersion
from hansard.agents.memory.search import HITS_MAX, SearchResult
from hansard.agents.policy.permits import (
    Need,
    claims,
    reads,
    states,
    writes,
)
from hansard.agents.team.tasks import LEASE_S, STATES, Mail, Task, TaskEntry
from hansard.bus import slices
from hansard.domain.agent import (
    CheckpointSaved,
    DecisionMade,
    HandedOff,
    MessageAdded,
    ResourceAccessed,
)
from hansard.domain.errors import BadValue
from hansard.domain.memory.paths import AGENTS
from hansard.domain.team import MailSent
from hansard.operations.declare import (
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


OPERATIONS: dict[str, Operation] = of_record(RecordOperations, Spaces)
"""All operations by name, of a record and of its sessions."""

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
    operations = of_record(*(noun for each in slices.installed() for noun in each.nouns))
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


def _operation(
    result: Any = None,
    *,
    needs: Callable[[Any], tuple[Need, ...]] = free,
    place: ChainKind = ChainKind.STEP,
    takes: Takes = Takes.LITTLE,
) -> Callable[[A], A]:
    """Declare a request's operation."""

    def declare(request: A) -> A:
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
        return request

    return declare


# ------------------------------------------------------------ session


@_operation(View, takes=Takes.RUN)
class SessionView(Ask, frozen=True, tag="session.view"):
    """The role's view of the session's run: now, or at an event that it was shown."""

    at: str | None = None
    key: bytes | None = None


@_operation(needs=_states(CheckpointSaved.tag), place=ChainKind.FACT)
class Checkpoint(Ask, frozen=True, tag="facts.checkpoint"):
    """Record that a named stage is reached, with data to resume from."""

    name: Text
    data: Data


@_operation(dict[str, Any] | None, place=ChainKind.NONE)
class CheckpointData(Ask, frozen=True, tag="facts.checkpoint_data"):
    """The data of the newest checkpoint of a name."""

    name: Text


@_operation(statements.Checkpoint | None, place=ChainKind.NONE)
class LatestCheckpoint(Ask, frozen=True, tag="facts.latest_checkpoint"):
    """The newest checkpoint, of any name."""


@_operation(needs=_states(DecisionMade.tag), place=ChainKind.FACT)
class Decide(Ask, frozen=True, tag="facts.decide"):
    """Record a decision: the selected alternative, the others, and the reason."""

    question: Text
    selected: Text
    alternatives: list[Value] = []
    inputs: list[Value] = []
    threshold: float | None = None
    confidence: float | None = None
    reason: Text = ""


@_operation(needs=_states(MessageAdded.tag), place=ChainKind.FACT)
class Message(Ask, frozen=True, tag="facts.message"):
    """Add a message to the context window."""

    role: Text
    content: Value
    tokens: int | None
    fields: Data


@_operation(needs=_states(ResourceAccessed.tag), place=ChainKind.FACT)
class Resource(Ask, frozen=True, tag="facts.resource"):
    """Record the use of a resource."""

    uri: Text
    operation: Text


@_operation(needs=_states(HandedOff.tag), place=ChainKind.FACT)
class HandOff(Ask, frozen=True, tag="facts.hand_off"):
    """Hand the work over to an agent or a role."""

    to: Name
    reason: Text
    payload: Data


@_operation(list[dict[str, Any]], place=ChainKind.NONE)
class Context(Ask, frozen=True, tag="facts.context"):
    """The context window in the provider's message form."""


# ------------------------------------------------------------ board and transactions


@_operation(BoardEntry | None, needs=_reads)
class BoardGet(Ask, frozen=True, tag="board.entry"):
    """Get a key with its value, version and author."""

    key: Name


@_operation(list[str])
class BoardKeys(Ask, frozen=True, tag="board.keys"):
    """List the existing keys that the role may read."""


class _Put(Ask, frozen=True):
    key: Name
    value: Value
    expected: int | str | None = None
    labels: dict[str, Text] = {}
    ttl_s: float | None = None


@_operation(int, needs=_writes)
class BoardPut(_Put, frozen=True, tag="board.put"):
    """Put a value; returns the key's new version."""

    resolve: str | Function | None = None


@_operation(int, needs=_writes)
class BoardAppend(Ask, frozen=True, tag="board.append"):
    """Append an item to a list; returns its new length."""

    key: Name
    item: Value


@_operation(int, needs=_writes)
class BoardAdd(Ask, frozen=True, tag="board.add"):
    """Add a whole number to a counter; returns its new value."""

    key: Name
    amount: int = 1


@_operation(int, needs=_writes)
class BoardInclude(BoardAppend, frozen=True, tag="board.include"):
    """Add an item to a set; returns its size."""


@_operation(int, needs=_writes)
class BoardDiscard(BoardAppend, frozen=True, tag="board.discard"):
    """Remove an item from a set; returns its size."""


@_operation(Any, needs=_writes)
class BoardMerge(Ask, frozen=True, tag="board.merge"):
    """Merge a value into the present one."""

    key: Name
    merge: str
    value: Value


@_operation(bool, needs=_writes)
class BoardRemove(Ask, frozen=True, tag="board.remove"):
    """Remove a key; returns whether it existed."""

    key: Name
    expected: int | str | None = None


@_operation()
class BoardTransaction(Ask, frozen=True, tag="board.transaction"):
    """A block: several keys in one commit, made at its end."""


@_operation(Any, needs=_reads)
class TransactionGet(Ask, frozen=True, tag="transaction.get"):
    """Get a key's value, with the transaction's own writes."""

    key: Name
    default: Value = EMPTY


@_operation(needs=_writes)
class TransactionPut(_Put, frozen=True, tag="transaction.put"):
    """Put a value."""


@_operation(needs=_writes)
class TransactionAppend(BoardAppend, frozen=True, tag="transaction.append"):
    """Append an item to a list."""


@_operation(needs=_writes)
class TransactionAdd(BoardAdd, frozen=True, tag="transaction.add"):
    """Add a whole number to a counter."""


@_operation(needs=_writes)
class TransactionInclude(BoardAppend, frozen=True, tag="transaction.include"):
    """Add an item to a set."""


@_operation(needs=_writes)
class TransactionDiscard(BoardAppend, frozen=True, tag="transaction.discard"):
    """Remove an item from a set."""


@_operation(needs=_writes)
class TransactionMerge(BoardMerge, frozen=True, tag="transaction.merge"):
    """Merge a value into the present one."""


@_operation(needs=_writes)
class TransactionRemove(BoardRemove, frozen=True, tag="transaction.remove"):
    """Remove a key."""


@_operation()
class TransactionRollBack(Ask, frozen=True, tag="transaction.roll_back"):
    """End the transaction without writing."""

    reason: Text = ""


# ------------------------------------------------------------ memory


@_operation(MemoryEntry)
class MemoryEntryOf(Ask, frozen=True, tag="memory.entry"):
    """Read a file of memory with its text, author and label. at: the id of a change, or a time."""

    path: Name
    space: Name | None = None
    at: str | None = None


@_operation(list[str])
class MemoryLs(Ask, frozen=True, tag="memory.ls"):
    """List the paths of files of memory under a folder, sorted."""

    folder: Name = ""


@_operation(list[str])
class MemoryGlob(Ask, frozen=True, tag="memory.glob"):
    """List the paths of files of memory that match a pattern such as `skills/**`, sorted."""

    pattern: str


@_operation(list[tuple[str, int, str]], takes=Takes.RUN)
class MemoryGrep(Ask, frozen=True, tag="memory.grep"):
    """Find the lines of memory that match a regular expression of RE2: path, line from 1, text.

    glob: only files whose path matches it.
    """

    pattern: str
    glob: str = ""


@_operation(SearchResult, takes=Takes.RUN)
class MemorySearch(Ask, frozen=True, tag="memory.search"):
    """Search the files of memory by the words of a question, the best first.

    glob: only files whose path matches it. limit: most results. kind: only files of that kind:
    procedural or semantic.
    """

    question: str
    glob: str = ""
    limit: int = HITS_MAX
    kind: str = ""


@_operation(str)
class MemoryPrompt(Ask, frozen=True, tag="memory.prompt"):
    """The part of memory for the system prompt: all instructions, and the list of skills.

    budget: most characters.
    """

    budget: int | None = None


@_operation(list[MemoryNews])
class MemoryNewsOf(Ask, frozen=True, tag="memory.news"):
    """List changes of the files in the prompt, since the prompt or this was last called."""


@_operation(list[MemoryVersion])
class MemoryHistory(Ask, frozen=True, tag="memory.history"):
    """List the versions of a file of memory, the oldest first."""

    path: Name
    space: Name | None = None


class _Change(Ask, frozen=True, kw_only=True):
    reason: str = ""
    space: Name | None = None


@_operation(needs=changes)
class MemoryCreate(_Change, frozen=True, tag="memory.create"):
    """Create or replace a file of memory.

    An existing one must be unchanged since this session read it.
    """

    path: Name
    text: str
    link: bool = False
    sources: list[Name] = []


@_operation(needs=changes)
class MemoryEdit(_Change, frozen=True, tag="memory.edit"):
    """Replace a part of a file of memory, which must occur exactly once."""

    path: Name
    old: str
    new: str
    sources: list[Name] = []


@_operation(needs=changes)
class MemoryInsert(_Change, frozen=True, tag="memory.insert"):
    """Insert a text after a line of a file of memory (0: before the first)."""

    path: Name
    line: int
    text: str
    sources: list[Name] = []


@_operation(needs=changes)
class MemoryRename(_Change, frozen=True, tag="memory.rename"):
    """Move a file of memory."""

    path: Name
    to: Name


@_operation(needs=changes)
class MemoryDelete(_Change, frozen=True, tag="memory.delete"):
    """Delete a file of memory."""

    path: Name


@_operation(needs=changes)
class MemoryRemember(Ask, frozen=True, tag="memory.remember"):
    """Add a line to a file of memory, by default the instructions, to apply from now on."""

    text: str
    path: Name = AGENTS
    space: Name | None = None
    sources: list[Name] = []


@_operation(needs=changes)
class MemoryChangeOf(_Change, frozen=True, tag="memory.change"):
    """Change several files of memory at once, all or none."""

    ops: list[FileOp]
    sources: list[Name] = []


@_operation()
class MemoryRevert(_Change, frozen=True, tag="memory.revert"):
    """Undo a change of memory, named by the id of its event or commit: all of its files or none."""

    change: Name


# ------------------------------------------------------------ team


@_operation(str, needs=_states(STATES["add"]))
class TeamAdd(Ask, frozen=True, tag="team.add"):
    """Add a task for the team, a role or one agent; returns its id."""

    title: Text
    what: Value = EMPTY
    role: Name | None = None
    agent: Name | None = None
    waits_for: list[Name] = []
    waits_for_roles: list[Name] = []
    task: Name | None = None


def _claims(request: Any) -> tuple[Need, ...]:
    stated = states(STATES["claim"])
    return (stated,) if request.role is None else (stated, claims(request.role))


@_operation(Task | None, needs=_claims)
class TeamClaim(Ask, frozen=True, tag="team.claim"):
    """Claim the next task that this agent may do; null if there is none."""

    role: Name | None = None
    lease_s: float = LEASE_S
    timeout_s: float | None = 0


@_operation(Task | None, needs=lambda request: (*_claims(request), states(STATES["complete"])))
class TeamClaimed(TeamClaim, frozen=True, tag="team.claimed"):
    """A block: claims a task, keeps it alive meanwhile, and ends it with the block."""


@_operation(needs=_states(STATES["extend"]))
class TeamExtend(Ask, frozen=True, tag="team.extend"):
    """Restart the lease of a task."""

    task: Claim
    lease_s: float = LEASE_S


@_operation(needs=_states(STATES["complete"]))
class TeamComplete(Ask, frozen=True, tag="team.complete"):
    """Complete a claimed task with its result."""

    task: Claim
    result: Value = EMPTY


@_operation(needs=_states(STATES["fail"]))
class TeamFail(Ask, frozen=True, tag="team.fail"):
    """Fail a claimed task, with the reason."""

    task: Claim
    error: str | SecretName | Raised


@_operation(needs=_states(STATES["release"]))
class TeamRelease(Ask, frozen=True, tag="team.release"):
    """Give a task back for another to claim."""

    task: Claim
    reason: Text = ""


@_operation(needs=_states(STATES["hand_off"]))
class TeamHandOff(Ask, frozen=True, tag="team.hand_off"):
    """Hand a claimed task on to another agent or role."""

    task: Claim
    role: Name | None = None
    agent: Name | None = None
    with_: Value = EMPTY
    reason: Text = ""


@_operation(bool, needs=_states(STATES["reopen"]))
class TeamReopen(Ask, frozen=True, tag="team.reopen"):
    """Reopen a failed task."""

    task: Name
    reason: Text = ""


@_operation(list[TaskEntry])
class TeamTasks(Ask, frozen=True, tag="team.tasks"):
    """List all tasks of the run that the role sees."""


@_operation(bool, needs=lambda request: () if request.key is None else (reads(request.key),))
class TeamWaitFor(Ask, frozen=True, tag="team.wait_for"):
    """Wait until a key has a value, or a task is completed."""

    key: Name | None = None
    task: Name | None = None
    timeout_s: float | None = None


@_operation(int, needs=_states(MailSent.tag))
class TeamSend(Ask, frozen=True, tag="team.send"):
    """Send a message to an agent or a role; returns its number in the run."""

    content: Value
    role: Name | None = None
    agent: Name | None = None


@_operation(list[Mail])
class TeamInbox(Ask, frozen=True, tag="team.inbox"):
    """List the messages that this agent has not received yet."""


# ------------------------------------------------------------ loops


@_operation(list[Any], place=ChainKind.NONE)
class LoopBegin(Ask, frozen=True, tag="loop.begin"):
    """Begin a `resumable` loop; returns the results of the items done before."""

    name: Name
    every: int


@_operation(str | None, place=ChainKind.FACT)
class LoopSkips(Ask, frozen=True, tag="loop.skips"):
    """Begin an item; returns the path of its scope, null if it was done before."""

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
