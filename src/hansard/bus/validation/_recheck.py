"""The rules of a recheck, applied message by message. See `hansard.bus.validation.check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from hansard.bus import subjects
from hansard.bus.commits import decode, revive, torn
from hansard.domain import agent, label_events, principal, run, steps
from hansard.domain.approval import ApprovalGranted, ApprovalRequested
from hansard.domain.conversation import ContextCompacted, RunJoined
from hansard.domain.errors import Corrupt, UnknownEvent
from hansard.domain.events import Commit, Event, Recorded, Tx
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream, run_of
from hansard.domain.integrity.authorship import Fold
from hansard.domain.integrity.content import foreign
from hansard.domain.label import LOWEST, Label, join, parse
from hansard.domain.label_events import LabelDeclassified
from hansard.domain.payload.parts import MARK, Copy, arguments_of, parts_of, pieces_of
from hansard.domain.payload.references import APPEND, appended, arguments_in, blobs_in
from hansard.domain.principal import PrincipalShown
from hansard.domain.run import FORK_DEPTH_MAX
from hansard.domain.steps import StepAttempted, StepRequested


class Approvals:
    """Approvals requested, granted and used, by run and approval; events arrive by position."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str], ApprovalRequested] = {}
        self._granted: set[tuple[str, str]] = set()
        self._calls: dict[tuple[AgentStream, int], tuple[str, str]] = {}
        self._users: dict[tuple[str, str], tuple[AgentStream, int]] = {}

    def event(self, stream: StreamId, event: Event) -> Iterator[str]:
        """Yield an event's errors about approvals."""
        match stream, event:
            case KeyStream(run=run), ApprovalRequested():
                self._requests.setdefault((run, event.approval), event)
            case KeyStream(run=run), ApprovalGranted():
                self._granted.add((run, event.approval))
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
                self._labels[stream.id] = label_events.after(event)
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
