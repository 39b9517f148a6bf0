"""Commits with their values in full, for a reader that starts anywhere in the log.

An agent's earlier events are read only once an event refers to them: from the log, through the
parents of a fork.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Protocol

import msgspec

from hansard.bus.commits import decode, revive
from hansard.bus.log import RawMessage, Stored
from hansard.bus.validation.reads import StandIn
from hansard.domain.errors import Corrupt, UnknownEvent
from hansard.domain.events import Commit, Recorded
from hansard.domain.ids import AgentStream, RunStream, StreamId
from hansard.domain.payload.line import PartsLine
from hansard.domain.payload.parts import MARK
from hansard.domain.run import FORK_DEPTH_MAX, RunForked

LINES_MAX = 256
"""Most agents whose values are kept, each up to 256 Ki characters joined; others are read again."""

LINES_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes kept of them, as recorded; the newest agent's are kept whatever their size."""


class Past(Protocol):
    """A source of an agent's past commits."""

    async def past(self, stream: StreamId) -> list[Stored]:
        """Return a stream's own commits, by version; unreadable ones are stand-ins."""
        ...


class Fault(msgspec.Struct, frozen=True):
    """A value that refers to a missing one: the event's index in its commit, and the reason."""

    index: int
    reason: str


class InFull:
    """Expands values in commits that are passed in the order of the log."""

    def __init__(self, source: Past) -> None:
        self._source = source
        self._lines: OrderedDict[tuple[str, str], PartsLine] = OrderedDict()

    async def ready(self, message: RawMessage) -> None:
        """Read what a message's commit may refer to, before it is passed to `commit`."""
        if MARK not in message.body or message.fault is not None:
            return
        try:
            stream, commit = decode(message.subject, message.body)
        except Corrupt:
            return
        if type(stream) is not AgentStream or (stream.run, stream.agent) in self._lines:
            return
        line = PartsLine()
        with contextlib.suppress(Corrupt):  # a gap: values in it are reported as missing
            await self._read(line, stream, commit.version - 1, 0)
        self._lines[stream.run, stream.agent] = line
        self._bound()

    async def _read(self, line: PartsLine, stream: AgentStream, to: int, depth: int) -> None:
        if depth > FORK_DEPTH_MAX:
            return
        parent, cut = await self._begin(stream)
        if parent and cut:
            before = AgentStream(parent, stream.role, stream.agent)
            await self._read(line, before, min(cut, to), depth + 1)
        for stored in await self._source.past(stream):
            if stored.commit.version > to:
                return
            if not isinstance(stored.commit, StandIn):
                _note(line, stored.commit, to)

    async def _begin(self, stream: AgentStream) -> tuple[str, int]:
        """Return the run and version that a stream continues from; empty if it is no fork."""
        for stored in await self._source.past(RunStream(stream.run)):
            try:
                event = revive(stored.commit.events[0])
            except (UnknownEvent, Corrupt):
                return "", 0
            if isinstance(event, RunForked):
                return event.parent, event.at.get(str(stream), 0)
            return "", 0
        return "", 0

    def _bound(self) -> None:
        total = sum(line.bytes for line in self._lines.values())
        while len(self._lines) > 1 and (len(self._lines) > LINES_MAX or total > LINES_BYTES_MAX):
            _, gone = self._lines.popitem(last=False)
            total -= gone.bytes

    def commit(self, stream: StreamId, commit: Commit) -> tuple[Commit, list[Fault]]:
        """Return a commit with its values in full, and the values that cannot be: they stay as they
        are.
        """
        if type(stream) is not AgentStream:
            return commit, []
        line = self._lines.get((stream.run, stream.agent))
        if line is None:
            return commit, []
        self._lines.move_to_end((stream.run, stream.agent))
        _note(line, commit, commit.last_version)
        return commit_in_full(line, commit)


def _note(line: PartsLine, commit: Commit, to: int) -> None:
    for version, recorded in enumerate(commit.events, commit.version):
        if version <= to and recorded.enc is None:
            line.note(recorded.type, version, bytes(recorded.data))


def commit_in_full(line: PartsLine, commit: Commit) -> tuple[Commit, list[Fault]]:
    """Return a noted commit with its values in full, and the values that cannot be."""
    faults: list[Fault] = []
    made: list[Recorded] = []
    for index, recorded in enumerate(commit.events):
        data = bytes(recorded.data)
        if MARK in data and recorded.enc is None:
            try:
                data = line.whole(recorded.type, commit.version + index, data)
            except Corrupt as error:
                faults.append(Fault(index, f"{error.where}: {error.fact}"))
            else:
                recorded = msgspec.structs.replace(recorded, data=msgspec.Raw(data))  # noqa: PLW2901 -- the event with its values in full
        made.append(recorded)
    if all(new is old for new, old in zip(made, commit.events, strict=True)):
        return commit, faults
    return msgspec.structs.replace(commit, events=tuple(made)), faults


class RunInFull:
    """Expands values like `InFull`, in a run's history that is complete, with its parents'."""

    def __init__(self) -> None:
        self._lines: dict[str, PartsLine] = {}

    def commit(self, stream: StreamId, commit: Commit) -> Commit:
        """Return a commit with its values in full, apart from those that cannot be expanded."""
        if type(stream) is not AgentStream:
            return commit
        line = self._lines.setdefault(stream.agent, PartsLine())
        _note(line, commit, commit.last_version)
        return commit_in_full(line, commit)[0]
