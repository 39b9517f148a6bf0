"""Recheck a whole workspace: whether the record is valid, consistent and complete.

Every message of the log is read once, in order, undecoded: a message that cannot be decoded is a
finding and does not stop the check. It checks gaps in positions and versions, bodies against their
subjects, transactions, epochs, references between events, whether each change of memory follows the
previous state, every blob that an event names, and the marks kept outside of the log: only those
reveal a log that lost its end. Costs one full replay, one fetch of each blob, and memory for the
steps' numbers. Long because one pass over the log applies every rule.
"""

from __future__ import annotations

import bisect
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from hansard.bus import subjects
from hansard.bus.commits import decode, revive, torn
from hansard.bus.errors import ArchiveUnavailable, NotFound
from hansard.bus.log import RawMessage, in_parts
from hansard.bus.marks import Extent, Known, Mark, link
from hansard.domain import agent, decider, payload, principal, run, steps
from hansard.domain.approval import ApprovalGranted, ApprovalRequested
from hansard.domain.choices import counted
from hansard.domain.conversation import ContextCompacted, RunJoined
from hansard.domain.decider import By, LabelDeclassified, evolve
from hansard.domain.errors import Corrupt, Refused, UnknownEvent
from hansard.domain.events import Commit, Event, Recorded, Tx
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream, run_of
from hansard.domain.integrity import Fold, foreign
from hansard.domain.label import LOWEST, Label, join, parse
from hansard.domain.memory import space
from hansard.domain.memory.files import KIND, MemoryChanged
from hansard.domain.memory.lines import in_full
from hansard.domain.payload import (
    APPEND,
    MARK,
    Copy,
    appended,
    arguments_in,
    arguments_of,
    blobs_in,
    parts_of,
    pieces_of,
)
from hansard.domain.principal import PrincipalShown
from hansard.domain.run import FORK_DEPTH_MAX
from hansard.domain.steps import StepAttempted, StepRequested

# The rules, applied message by message.


class Approvals:
    """Approvals requested, granted and used, by run and approval; events arrive by position."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str], ApprovalRequested] = {}
        self._granted: set[tuple[str, str]] = set()
        self._copies: set[str] = set()
        self._calls: dict[tuple[AgentStream, int], tuple[str, str]] = {}
        self._users: dict[tuple[str, str], tuple[AgentStream, int]] = {}

    def event(self, stream: StreamId, event: Event) -> Iterator[str]:
        """Yield an event's errors about approvals."""
        match stream, event:
            case RunStream(run=name), run.RunStarted(labels=labels) if run.SHARED in labels:
                self._copies.add(name)
            case KeyStream(run=name), ApprovalRequested():
                self._requests.setdefault((name, event.approval), event)
            case KeyStream(run=name), ApprovalGranted():
                self._granted.add((name, event.approval))
            case AgentStream(), StepRequested(approval=str(name)):
                self._calls[stream, event.step] = event.call, event.fingerprint
                yield from self._used(stream, event.step, name)
            case AgentStream(), StepRequested():
                self._calls[stream, event.step] = event.call, event.fingerprint
            case AgentStream(), StepAttempted(approval=str(name)):
                yield from self._used(stream, event.step, name)
            case _:
                pass

    def _used(self, stream: AgentStream, step: int, name: str) -> Iterator[str]:
        text = f"step {step} goes by approval {name}"
        request = self._requests.get((stream.run, name))
        if request is None:
            if stream.run not in self._copies:  # a copy's are in the run that it shows
                yield f"{text}, which was never requested"
            return
        if (stream.run, name) not in self._granted:
            yield f"{text}, which was not granted before"
        call = self._calls.get((stream, step), (request.call, request.fingerprint))
        if (request.agent, request.call, request.fingerprint) != (stream.agent, *call):
            yield f"{text}, which {request.agent!r} requested for another call"
        first = self._users.setdefault((stream.run, name), (stream, step))
        if first != (stream, step):
            yield f"{text}, which step {first[1]} of {first[0].agent!r} went by already"


class AccumulatedLabels:
    """The accumulated label of each principal; commits and events arrive by position."""

    def __init__(self) -> None:
        self._labels: dict[str, Label] = {}

    def event(self, stream: StreamId, event: Event) -> None:
        """Take in an event of a principal's stream. Raises BadValue for an invalid label."""
        if not isinstance(stream, WorkspaceStream) or stream.kind != principal.KIND:
            return
        match event:
            case PrincipalShown():
                before = self._labels.get(stream.id, LOWEST)
                self._labels[stream.id] = join(before, parse(event.label))
            case LabelDeclassified():
                self._labels[stream.id] = decider.label_after(event)
            case _:
                pass

    def fault(self, stream: StreamId, commit: Commit) -> str:
        """Describe a commit whose label is too low; an empty text otherwise. The service names a
        principal as the writer, and as the first of those it writes on behalf of.
        """
        name = commit.actor.agent
        if commit.actor.on_behalf_of[:1] != (name,):
            return ""
        if isinstance(stream, WorkspaceStream) and stream.kind == principal.KIND:
            return ""
        carries, label = self._labels.get(name, LOWEST), commit.label or LOWEST
        if join(label, carries) == label:
            return ""
        return (
            f"it is labelled {str(label)!r}, but principal {name!r}, for whom it says that it was "
            f"written, carried {str(carries)!r}: no service wrote it, but a program with the "
            "broker's own credentials"
        )


class Count(Protocol):
    """Receives a finding's parts."""

    def __call__(
        self, kind: str, fact: str, where: Mapping[str, object], *, wrong: bool = True
    ) -> None:
        """Count one. `where`: position, run, stream, as far as known."""


class _Stream(msgspec.Struct):
    """The recheck's state of one stream.

    `following` is the version that must come next; None after a message that could not be decoded.
    `partial`: an earlier message could not be read, so references into this stream prove nothing.
    `cut` is the version at which its fork began.
    """

    following: int | None
    cut: int = 0
    partial: bool = False
    epoch: int = 0
    requested: dict[int, int] = {}
    lists: dict[int, dict[str, int | None]] = {}


class Recheck:
    """Checks the messages of a log in order and counts the findings."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self.commits = 0
        self.events = 0
        self.streams: dict[StreamId, _Stream] = {}
        self.runs: dict[str, run.RunForked | None] = {}
        self.blobs: dict[str, tuple[int, int]] = {}
        self.causations: dict[str, tuple[int, bool]] = {}
        """By the event's id: the first position that names it, and whether only copies do."""
        self._tx: Tx | None = None
        self._tx_begin = 0
        self._commit_ids: set[int] = set()
        self._of_conversation: dict[str, tuple[str, int]] = {}
        self._joined: dict[tuple[str, str], int] = {}
        self._orphans: set[str] = set()
        self._roles: dict[tuple[str, str], str] = {}
        self._facts: list[tuple[AgentStream, int, int]] = []
        self.integrity = Fold()
        self._approvals = Approvals()
        self._carried = AccumulatedLabels()

    # ------------------------------------------------------------ one message

    def message(
        self, position: int, subject: str, body: bytes, *, copied: bool = False
    ) -> tuple[StreamId, Commit] | None:
        """Check one message; `copied`: it is from another log. Return its commit; None if readers
        get a stand-in for it.
        """
        try:
            stream, commit = decode(subject, body)
        except Corrupt as error:
            self._count("body", f"{error.where}: {error.fact}", {"position": position})
            self._unreadable(subject)
            return None
        where = {"position": position, "run": run_of(stream), "stream": str(stream)}
        why = self.integrity.misfit(stream, commit) or foreign(stream, commit)
        if why:
            self._count("quarantine", f"readers get a stand-in for it: {why}", where)
        low = "" if copied else self._carried.fault(stream, commit)
        if low:
            self._count("label", low, where, wrong=False)
        self.commits += 1
        self.events += len(commit.events)
        self._transaction(commit.tx, position)
        self._cause(commit, position, copied=copied)
        known = self._versions(stream, commit, where)
        self._identity(stream, commit, known, where)
        for index, recorded in enumerate(commit.events):
            try:
                self._blobs_of(recorded, position)
                self._event(stream, revive(recorded), commit.version + index, known, where)
            except UnknownEvent as error:
                self._count("unknown_event", str(error), where, wrong=False)
                known.partial = True
            except Corrupt as error:
                self._count("event", f"{error.where}: {error.fact}", where)
                known.partial = True
            except (msgspec.DecodeError, RecursionError) as error:
                fact = f"event {recorded.id}: a payload of it is not as Hansard writes it ({error})"
                self._count("event", fact, where)
                known.partial = True
        return None if why else (stream, commit)

    def _blobs_of(self, recorded: Recorded, position: int) -> None:
        if recorded.enc is None:
            for blob in blobs_in(recorded.data):
                self.blobs.setdefault(blob.sha256, (blob.size, position))

    def _cause(self, commit: Commit, position: int, *, copied: bool) -> None:
        if commit.causation is not None:
            first, only = self.causations.get(commit.causation, (position, True))
            self.causations[commit.causation] = first, only and copied

    def _unreadable(self, subject: str) -> None:
        """Mark the versions after an undecodable message as unknown, so that they are not reported
        as a gap.
        """
        try:
            stream, _ = subjects.parse(subject)
        except Corrupt:
            return
        known = self.streams.setdefault(stream, _Stream(None))
        known.following, known.partial = None, True

    def _transaction(self, tx: Tx | None, position: int) -> None:
        cut, headless = torn(self._tx, tx)
        if cut:
            self._count("transaction", cut, {"position": self._tx_begin})
        if headless:
            self._count("transaction", headless, {"position": position})
        if tx is not None and (tx.index == 0 or headless):
            self._tx_begin = position
        self._tx = tx

    def _versions(self, stream: StreamId, commit: Commit, where: dict[str, Any]) -> _Stream:
        known = self.streams.get(stream)
        if known is None:
            cut = self._cut(stream, commit)
            known = self.streams[stream] = _Stream(cut + 1, cut)
        if known.following is not None and commit.version != known.following:
            if commit.version > known.following:
                last = commit.version - 1
                fact = f"versions {known.following} to {last} are missing before this commit"
            else:
                fact = f"version {commit.version} is written again: {known.following} was next"
            self._count("version", fact, where)
            known.partial = True
        known.following = commit.last_version + 1
        return known

    def _cut(self, stream: StreamId, commit: Commit) -> int:
        """Return the version that a stream's first commit follows: 0, or the fork's cut."""
        name = run_of(stream)
        if name is None:
            return 0
        if isinstance(stream, RunStream):
            first = _first(commit)
            return first.at.get("life", 0) if isinstance(first, run.RunForked) else 0
        forked = self.runs.get(name)
        return forked.at.get(str(stream), 0) if forked is not None else 0

    def _identity(
        self, stream: StreamId, commit: Commit, known: _Stream, where: dict[str, Any]
    ) -> None:
        mark = hash(commit.id)
        if mark in self._commit_ids:
            self._count("duplicate", f"commit {commit.id} is in the log twice", where)
        self._commit_ids.add(mark)
        if isinstance(stream, AgentStream):
            role = self._roles.setdefault((stream.run, stream.agent), stream.role)
            if role != stream.role:
                fact = f"agent {stream.agent!r} writes as {stream.role!r} and as {role!r}"
                self._count("reference", fact, where)
            if commit.epoch < known.epoch:
                fact = f"it is of epoch {commit.epoch}, after epoch {known.epoch} had begun"
                self._count("epoch", fact, where)
            known.epoch = max(known.epoch, commit.epoch)

    # ------------------------------------------------------------ one event

    def _event(
        self, stream: StreamId, event: Event, version: int, known: _Stream, where: dict[str, Any]
    ) -> None:
        self._carried.event(stream, event)
        for fact in self._approvals.event(stream, event):
            self._count("reference", f"version {version}: {fact}", where)
        match stream:
            case AgentStream():
                for fact in self._of_agent(stream, event, version, known):
                    self._count("reference", f"version {version}: {fact}", where)
            case RunStream():
                for fact in self._of_life(stream, event, where["position"]):
                    self._count("reference", f"version {version}: {fact}", where)
            case WorkspaceStream() if isinstance(event, RunJoined):
                self._joined[stream.id, event.run] = where["position"]
            case _:
                pass

    def _of_agent(
        self, stream: AgentStream, event: Event, version: int, known: _Stream
    ) -> Iterator[str]:
        match event:
            case steps.StepRequested():
                for step in (*event.after, *([event.parent] if event.parent else [])):
                    if not self._knows(stream, step, known):
                        yield f"step {event.step} follows step {step}, which is not on record"
                known.requested[event.step] = version
                yield from self._lists(stream, event, known)
                yield from self._parts(stream, event.step, bytes(event.arguments), known)
            case (
                steps.StepAttempted()
                | steps.StepYielded()
                | steps.StepCompleted()
                | steps.StepFailed()
                | steps.StepBlocked()
                | steps.StepInDoubt()
                | steps.StepWithheld()
                | steps.StepSettled()
            ):
                if not self._knows(stream, event.step, known):
                    yield f"{event.tag} of step {event.step}, which was never requested"
                if isinstance(event, steps.StepCompleted):
                    yield from self._parts(stream, event.step, bytes(event.result), known)
            case agent.CheckpointSaved() | agent.DecisionMade():
                for step in event.after:
                    if not self._knows(stream, step, known):
                        yield f"{event.tag} follows step {step}, which is not on record"
            case agent.MessageAdded() | agent.ResourceAccessed() | ContextCompacted():
                if isinstance(event, ContextCompacted):
                    for first, last in event.versions:
                        if not 0 < first <= last < version:
                            what = f"versions {first} to {last}, which are not before it"
                            yield f"a summary of {what}"
                if event.step:
                    self._facts.append((stream, version, event.step))
            case _:
                pass

    def _knows(self, stream: AgentStream, step: int, known: _Stream) -> bool:
        return known.partial or step in known.requested or self._inherited(stream, step)

    def _inherited(self, stream: AgentStream, step: int) -> bool:
        """Return whether a step is before the cut in the stream that this one's run was forked
        from.
        """
        for _ in range(FORK_DEPTH_MAX):
            forked = self.runs.get(stream.run)
            cut = forked.at.get(str(stream), 0) if forked is not None else 0
            if forked is None or not cut:
                return False
            if forked.parent not in self.runs:
                return True  # reported once; its steps are unknown
            stream = AgentStream(forked.parent, stream.role, stream.agent)
            parents = self.streams.get(stream)
            if parents is not None:
                if parents.partial:
                    return True
                if step in parents.requested:
                    return parents.requested[step] <= cut
        return False

    def _lists(
        self, stream: AgentStream, event: steps.StepRequested, known: _Stream
    ) -> Iterator[str]:
        """Check growing lists: what each extends must exist and be long enough."""
        raw = bytes(event.arguments)
        if b"[" not in raw and APPEND not in raw:
            return
        sizes: dict[str, int | None] = {}
        for name, value in arguments_in(event.arguments).items():
            if isinstance(value, list):
                sizes[name] = len(value)
            elif (tail := appended(value)) is not None:
                argument = f"argument {name!r} of step {event.step}"
                length = self._length(stream, tail.to, name)
                if length is not None and length < tail.count:
                    yield f"{argument} extends {tail.count} of step {tail.to}'s {length} items"
                if tail.to == event.step or not self._knows(stream, tail.to, known):
                    yield f"{argument} extends step {tail.to}, which is not on record"
                sizes[name] = tail.length
        if sizes:
            known.lists[event.step] = sizes

    def _parts(self, stream: AgentStream, step: int, raw: bytes, known: _Stream) -> Iterator[str]:
        """Check values that refer to earlier steps: these must exist. Whether the values are equal
        to what was recorded is checked when a run is replayed (`hansard replay`).
        """
        if MARK not in raw:
            return
        fields = {"its result": raw}
        if parts_of(raw, "") is None:
            plain = msgspec.json.decode(raw)
            if type(plain) is not dict:
                return
            fields = {
                f"argument {name!r}": bytes(value)
                for name, value in arguments_of(raw, f"step {step}").items()
            }
        for name, value in fields.items():
            parts = parts_of(value, f"{name} of step {step}")
            for piece in pieces_of(parts, f"{name} of step {step}") if parts is not None else ():
                if not isinstance(piece, Copy):
                    continue
                before = piece.key[0]
                if (before == step and piece.key[1] is not None) or not self._knows(
                    stream, before, known
                ):
                    yield f"{name} of step {step} refers to step {before}, which is not on record"

    def _length(self, stream: AgentStream, step: int, name: str) -> int | None:
        """Return the length of a step's list argument; None if unknown (a blob, a gap)."""
        for _ in range(FORK_DEPTH_MAX):
            known = self.streams.get(stream)
            if known is not None and step in known.lists:
                return known.lists[step].get(name)
            forked = self.runs.get(stream.run)
            if forked is None:
                return None
            stream = AgentStream(forked.parent, stream.role, stream.agent)
        return None

    def _of_life(self, stream: RunStream, event: Event, position: int) -> Iterator[str]:
        roles = self.integrity.members(stream.run).roles
        match event:
            case run.RunStarted():
                self.runs.setdefault(stream.run, None)
                if event.conversation_id is not None:
                    self._of_conversation[stream.run] = (event.conversation_id, position)
            case run.RunForked():
                self.runs[stream.run] = event
                if event.parent not in self.runs or event.parent in self._orphans:
                    self._orphans.add(stream.run)
                yield from self._vector(event)
            case run.AgentJoined():
                role = roles.get(event.agent, event.role)
                if role != event.role:
                    yield f"agent {event.agent!r} joined as {event.role!r}, and is a {role!r}"
            case run.RunResumed():
                if event.agent not in roles and stream.run not in self._orphans:
                    yield f"agent {event.agent!r} resumed, but never joined"
            case run.RunAgentLeft():
                if event.agent not in roles and stream.run not in self._orphans:
                    yield f"agent {event.agent!r} left, but never joined"
            case _:
                pass

    def _vector(self, event: run.RunForked) -> Iterator[str]:
        if event.parent not in self.runs:
            yield f"its parent, run {event.parent}, is not on record"
            return
        have = {
            str(stream): (known.following or 1) - 1
            for stream, known in self.streams.items()
            if run_of(stream) == event.parent and known.following is not None
        }
        parents = self.runs[event.parent]
        inherited = parents.at if parents is not None else {}
        for name, version in event.at.items():
            if max(have.get(name, 0), inherited.get(name, 0)) < version:
                yield f"it holds version {version} of {name} of run {event.parent}: not on record"

    # ------------------------------------------------------------ at the end

    def end(self) -> None:
        """Report the findings that need the whole log."""
        self._transaction(None, 0)
        for stream in self.streams:
            if isinstance(stream, AgentStream):
                self._in_roster(stream)
        for stream, version, step in self._facts:
            if not self._knows(stream, step, self.streams[stream]):
                fact = f"version {version}: its step {step} was never requested"
                where = {"run": stream.run, "stream": str(stream)}
                self._count("reference", fact, where, wrong=False)
        for name, (conversation, position) in self._of_conversation.items():
            if (conversation, name) not in self._joined:
                fact = f"conversation {conversation!r} does not know this run"
                self._count("reference", fact, {"run": name, "position": position})
        for (conversation, name), position in self._joined.items():
            if self._of_conversation.get(name, ("", 0))[0] != conversation:
                fact = f"conversation {conversation!r} names run {name}, which is not of it"
                self._count("reference", fact, {"position": position})

    def _in_roster(self, stream: AgentStream) -> None:
        where = {"run": stream.run, "stream": str(stream)}
        life = self.streams.get(RunStream(stream.run))
        if life is None:
            self._count("reference", f"run {stream.run} has no life: it never began", where)
        elif (
            not life.partial
            and stream.run not in self._orphans
            and stream.agent not in self.integrity.members(stream.run).roles
        ):
            self._count("reference", f"agent {stream.agent!r} never joined the run", where)


def _first(commit: Commit) -> Event | None:
    try:
        return revive(commit.events[0])
    except (UnknownEvent, Corrupt):
        return None


# Comparison of a log with its marks (`hansard.bus.marks`) while it is read in order.


class Compared:
    """Reads the messages of a log in order and counts differences to the marks."""

    def __init__(self, known: Iterable[Known], count: Count) -> None:
        self._known = _together(known)
        self._count = count
        self._chain = ""
        self._messages = 0
        self._marks = sorted({each.mark.chained for each in self._known if each.mark.chain})
        self._counted = sorted({each.mark.position for each in self._known})
        self._chains: dict[int, str] = {}
        self._counts: dict[int, int] = {}

    def message(self, position: int, subject: str, body: bytes) -> None:
        """Take the next message."""
        self._before(position)
        if not self._marks:
            return
        self._chain = link(self._chain, position, subject, body)

    def _before(self, position: int) -> None:
        """Note the extent of the log at each mark passed now, and one message further."""
        while self._marks and self._marks[0] < position:
            self._chains[self._marks.pop(0)] = self._chain
        while self._counted and self._counted[0] < position:
            self._counts[self._counted.pop(0)] = self._messages
        self._messages += 1

    def end(self, last: int) -> None:
        """Count the differences of a log that ends there."""
        self._before(last + 1)
        agreed = [
            each.mark.chained
            for each in self._known
            if self._chains.get(each.mark.chained) == each.mark.chain
        ]
        for each in self._known:
            if not self._shorter(each, last) and not self._fewer(each):
                self._other(each, sorted(agreed))

    def _shorter(self, known: Known, last: int) -> bool:
        mark = known.mark
        if mark.position <= last:
            return False
        many = mark.position - last
        fact = (
            f"the log ends at position {last}, and {known.who} knew it up to {mark.position}: "
            f"{many} acknowledged commit{'s are' if many > 1 else ' is'} gone. {known.aside}"
        )
        self._count("loss", fact.strip(), {"position": last})
        return True

    def _fewer(self, known: Known) -> bool:
        mark = known.mark
        has = self._counts.get(mark.position)
        if has is None or has >= mark.count:
            return False
        fact = (
            f"up to position {mark.position} the log holds "
            f"{counted(has, 'commit')}, and {known.who} counted "
            f"{mark.count}: {mark.count - has} are gone. {known.aside}"
        )
        self._count("loss", fact.strip(), {"position": mark.position})
        return True

    def _other(self, known: Known, agreed: list[int]) -> None:
        mark = known.mark
        has = self._chains.get(mark.chained)
        if not mark.chain or has is None or has == mark.chain:
            return
        before = bisect.bisect_left(agreed, mark.chained)
        since = agreed[before - 1] if before else 0
        fact = (
            f"positions {since + 1} to {mark.chained} do not hold what {known.who} read "
            "there: commits are gone or changed, or an older copy of the broker's files or another "
            f"log was put in their place. {known.aside}"
        )
        self._count("history", fact.strip(), {"position": mark.chained})


def _together(known: Iterable[Known]) -> list[Known]:
    """Group marks with equal contents, so that a difference is reported once."""
    groups: dict[Mark, list[Known]] = {}
    for each in known:
        groups.setdefault(replace(each.mark, before=""), []).append(each)
    return [
        Known(" and ".join(each.who for each in same), mark, same[-1].aside)
        for mark, same in groups.items()
    ]


class BlobSource(Protocol):
    """A source of blobs."""

    async def blobs(self, named: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Return some blobs by hash, each verified. Raises NotFound, Corrupt."""
        ...


class Memory:
    """Folds each memory space as its readers do, and derives the text of every change."""

    def __init__(self, source: BlobSource) -> None:
        self._source = source
        self._states: dict[str, space.MemoryState | None] = {}
        """None for a space with an unreadable event, which is another finding."""

    async def unfit(self, stream: StreamId, commit: Commit) -> list[tuple[int, str]]:
        """Return the versions of a commit whose change does not follow the previous state, or does
        not result in the recorded texts, with the reason.
        """
        if not isinstance(stream, WorkspaceStream) or stream.kind != KIND:
            return []
        state = self._states.setdefault(stream.id, space.MemoryState())
        if state is None:
            return []
        state.version, known = commit.version - 1, len(state.unfit)
        faults: list[tuple[int, str]] = []
        try:
            for recorded in commit.events:
                by = By(commit.actor.agent, 0, recorded.id, commit.label)
                faults += await self._folded(state, revive(recorded), by)
        except (NotFound, Corrupt, UnknownEvent, Refused, msgspec.DecodeError):
            self._states[stream.id] = None
            return []
        return [*state.unfit[known:], *faults]

    async def _folded(
        self, state: space.MemoryState, event: Event, by: By
    ) -> list[tuple[int, str]]:
        """Fold an event into a state; return the versions whose texts differ from the recorded
        ones, with the reason.
        """
        unfit = len(state.unfit)
        evolve(state, await self._with_links(event), by)
        if not isinstance(event, MemoryChanged) or len(state.unfit) > unfit:
            return []
        texts = [state.files[each.path].body for each in event.files if each.after]
        faults: list[tuple[int, str]] = []
        for part, named in in_parts((text, list(text.blobs())) for text in texts):
            held = await self._source.blobs(named) if named else {}
            for text in part:
                try:
                    text.text(held)
                except Corrupt as error:
                    faults.append((state.version, str(error)))
        return faults

    async def _with_links(self, event: Event) -> Event:
        if not isinstance(event, MemoryChanged):
            return event
        links = [each for each in event.files if each.link]
        named = {blob for each in links for blob in payload.blobs_named(bytes(each.edit))}
        if not named:
            return event
        held = await self._source.blobs(sorted(named))
        files = tuple(in_full(each, held) if each.link else each for each in event.files)
        return msgspec.structs.replace(event, files=files)


LOST = (
    "acknowledged commits are gone, or cannot be read any more; stop what writes, and put back a "
    "copy of the broker's files that has them"
)
"""Consequence of a gap in the positions, and its remedy."""

ERASED = "it was erased, or the blobs' files were lost or damaged: put back a copy that has it"


class Kind(StrEnum):
    """The subject of a finding."""

    SETTINGS = "settings"
    ARCHIVE = "archive"
    POSITION = "position"
    BODY = "body"
    QUARANTINE = "quarantine"
    VERSION = "version"
    TRANSACTION = "transaction"
    EPOCH = "epoch"
    DUPLICATE = "duplicate"
    EVENT = "event"
    UNKNOWN_EVENT = "unknown_event"
    REFERENCE = "reference"
    LABEL = "label"
    BLOB = "blob"
    LOSS = "loss"
    HISTORY = "history"
    MARK = "mark"
    TABLES = "tables"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding; `wrong` is False for a mere remark."""

    kind: Kind
    fact: str
    wrong: bool = True
    position: int | None = None
    run: str | None = None
    stream: str | None = None


class Summary(msgspec.Struct):
    """The number of things read, and the findings."""

    workspace: str
    position: int = 0
    commits: int = 0
    events: int = 0
    streams: int = 0
    runs: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    blobs_unreferenced: int = 0
    wrong: int = 0
    notes: int = 0
    marks: dict[str, int] = {}
    """The marks that the log was compared with, and their positions."""
    is_whole: bool = True
    """False if the log could not be read to its end; it was then compared with no mark."""


class Source(Protocol):
    """A source for a recheck."""

    @property
    def workspace(self) -> str:
        """The workspace's name."""
        ...

    async def extent(self) -> Extent:
        """Return the first and the newest position, and the number of messages."""
        ...

    def follow(
        self, after: int = 0, *, until: int | None = None
    ) -> AsyncGenerator[RawMessage, None]:
        """Follow every message after a position up to another, undecoded."""
        ...

    async def blob_chunks(self) -> dict[str, set[int]]:
        """Return the existing chunks of each blob."""
        ...

    async def blobs(self, named: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Return some blobs by hash, each verified. Raises NotFound, Corrupt."""
        ...

    async def contradictions(self) -> list[str]:
        """List differences between the streams' settings and ours."""
        ...

    async def lost_from_archive(self, read: Callable[[int, int], None]) -> list[tuple[int, str]]:
        """List what the archive's store lacks: first positions, and facts. `read` is called with
        the number of segments read and of all.
        """
        ...


OnFinding = Callable[[Finding], None]
Progress = Callable[[str, int, int], None]
"""Called with what is read, how much of it is done, and the total."""


def _silent(_what: str, _done: int, _total: int) -> None:
    return None


async def check(
    source: Source,
    on_finding: OnFinding,
    progress: Progress = _silent,
    *,
    known: Sequence[Known] = (),
    findings: Sequence[Finding] = (),
) -> Summary:
    """Recheck a workspace up to its current position. Raises Unreachable, BrokerError.

    `known` are marks of its log from before this call, `findings` are faults known from elsewhere.
    """
    summary = Summary(source.workspace)
    summary.marks = {each.who: each.mark.position for each in known}

    def take(finding: Finding) -> None:
        summary.wrong += finding.wrong
        summary.notes += not finding.wrong
        on_finding(finding)

    def count(kind: str, fact: str, where: Mapping[str, object], *, wrong: bool = True) -> None:
        take(msgspec.convert({"kind": kind, "fact": fact, "wrong": wrong, **where}, Finding))

    for finding in findings:
        take(finding)
    for fact in await source.contradictions():
        count(Kind.SETTINGS, fact, {})
    for position, fact in await source.lost_from_archive(partial(progress, "archived segments")):
        count(Kind.ARCHIVE, fact, {"position": position})
    recheck = await _log(source, summary, known, count, progress)
    summary.commits, summary.events = recheck.commits, recheck.events
    summary.streams, summary.runs = len(recheck.streams), len(recheck.runs)
    await _blobs(source, recheck.blobs, summary, count, progress)
    return summary


async def _log(
    source: Source, summary: Summary, known: Sequence[Known], count: Count, progress: Progress
) -> Recheck:
    """Read the whole log, and compare it with the marks."""
    extent = await source.extent()
    summary.position = extent.last
    is_loss = extent.missing > _accepted(extent, known)
    recheck, memory, compared = Recheck(count), Memory(source), Compared(known, count)
    at = 0
    try:
        async for message in source.follow(0, until=summary.position):
            if message.position != at + 1:
                remedy = LOST if is_loss else "this loss was accepted"
                fact = f"positions {at + 1} to {message.position - 1} are missing: {remedy}"
                count(Kind.POSITION, fact, {"position": message.position}, wrong=is_loss)
            at = message.position
            if message.fault is not None:
                count(Kind.BODY, str(message.fault), {"position": at})
            copied = message.origin is not None
            read = recheck.message(message.position, message.subject, message.body, copied=copied)
            if read is not None:
                for version, why in await memory.unfit(*read):
                    where = {"position": at, "stream": str(read[0])}
                    count(
                        Kind.EVENT, f"version {version} of this memory does not fit: {why}", where
                    )
            compared.message(message.position, message.subject, message.body)
            progress("commits", at, summary.position)
    except (Corrupt, ArchiveUnavailable) as error:  # of a generation in no store and no cache
        why = f"{error.where}: {error.fact}" if isinstance(error, Corrupt) else str(error)
        fact = (
            f"{why}. From position {at + 1:,} on nothing was checked, or "
            "compared with marks: run this command again after that"
        )
        count(Kind.POSITION, fact, {"position": at + 1})
        summary.position, summary.marks, summary.is_whole = at, {}, False
        return recheck
    if at < summary.position:
        fact = f"positions {at + 1} to {summary.position} are missing at the end: {LOST}"
        count(Kind.POSITION, fact, {"position": summary.position})
    recheck.end()
    compared.end(summary.position)
    target = recheck.causations
    if target:
        await _causations(source, summary.position, target, count)
    return recheck


def _accepted(extent: Extent, known: Sequence[Known]) -> int:
    """Return the number of missing positions that are accepted: they were missing when the marks
    were begun, since the operator removed older ones, or are accepted in the stream's metadata.
    """
    counted = [each.mark.missing for each in known if each.mark.position]
    return max(extent.accepted, min(counted, default=0))


async def _causations(
    source: Source, last: int, config: dict[str, tuple[int, bool]], count: Count
) -> None:
    """Check that events named as causes exist, in a second read that is made only if commits name
    any. A copied commit's cause may be in a run that was not copied.
    """
    missing = dict(config)
    async for message in source.follow(0, until=last):
        for event in _event_ids(message.body):
            missing.pop(event, None)
        if not missing:
            return
    for event, (position, copied) in missing.items():
        fact = f"its causation {event} is no event of this log"
        count(Kind.REFERENCE, fact, {"position": position}, wrong=not copied)


class _Id(msgspec.Struct):
    id: str


class _Ids(msgspec.Struct):
    """The part of a commit that holds its events' ids."""

    events: list[_Id] = []


_ids = msgspec.json.Decoder(_Ids)


def _event_ids(body: bytes) -> Iterator[str]:
    """Yield the ids of a body's events; none if it is not a commit."""
    try:
        yield from (event.id for event in _ids.decode(body).events)
    except msgspec.DecodeError:
        return


async def _blobs(
    source: Source,
    named: dict[str, tuple[int, int]],
    summary: Summary,
    count: Count,
    progress: Progress,
) -> None:
    stored = await source.blob_chunks()
    summary.blobs_unreferenced = len(stored.keys() - named.keys())
    for sha256, (_, position) in named.items():
        if sha256 not in stored:  # without a blob stream, no server would answer
            fact = str(NotFound(f"blob {sha256} (all its chunks)", ERASED))
            count(Kind.BLOB, fact, {"position": position})
    there = ((sha256, [(sha256, size)]) for sha256, (size, _) in named.items() if sha256 in stored)
    done = len(named.keys() - stored.keys())
    for part, names in in_parts(there):
        for sha256, why in await _unread(source, names):
            count(Kind.BLOB, why, {"position": named[sha256][1]})
        done += len(part)
        progress("blobs", done, len(named))
    summary.blobs = len(named)
    summary.blob_bytes = sum(size for size, _ in named.values())


async def _unread(source: Source, named: Sequence[tuple[str, int]]) -> list[tuple[str, str]]:
    """Return the blobs that cannot be read, and why; one by one if a request for all fails."""
    try:
        await source.blobs(named)
    except (NotFound, Corrupt) as error:
        if len(named) == 1:
            return [(named[0][0], str(error))]
        return [unread for each in named for unread in await _unread(source, [each])]
    return []
