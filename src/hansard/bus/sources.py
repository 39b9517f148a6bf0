"""The port: where the messages of a workspace's log are.

The log of a workspace is a list of *generations*, each a source of messages with a first and a last
position; only the newest is open. A sealed generation accepts no message any more, so what it does
not hold was never written there. It is read from its sealed stream, or from the archive once that
has a verified copy. `hansard.bus.jetstream.generations` presents all of them as one log.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

import msgspec

from hansard.bus import reads, subjects
from hansard.bus.commits import stored_from
from hansard.bus.log import RawMessage, Stored


class Message(RawMessage, frozen=True, gc=False):
    """A message of a stream, with the decoding of one of the log's."""

    def commit(self) -> Stored:
        """Decode a message of the log to a commit. Raises Corrupt."""
        if self.fault is not None:
            raise self.fault
        return stored_from(self.position, self.stamp, self.subject, self.body, self.origin)

    def screened(self) -> Stored:
        """Decode as `commit` does, with a stand-in for a commit that does not fit
        (`hansard.bus.reads`). Raises Corrupt only if the subject is no stream's.
        """
        if self.fault is not None:
            stream, version = subjects.parse(self.subject)
            other = reads.stand_in(self.subject, version, 1, self.stamp, self.fault.fact)
            return Stored(self.position, self.stamp, stream, other, self.body)
        stream, commit = reads.read(self.subject, self.body, self.stamp)
        return Stored(self.position, self.stamp, stream, commit, self.body, self.origin)


class End(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The position of a filter's newest message, and the version of its last event."""

    position: int
    version: int


class _Counted(msgspec.Struct):
    events: list[msgspec.Raw]


_counted = msgspec.json.Decoder(_Counted)


def end_of(message: RawMessage) -> End:
    """Return the end of a stream's newest message; a body that is no commit counts as one event.
    Raises Corrupt if the subject is no stream's.
    """
    version = subjects.parse(message.subject)[1]
    try:
        count = len(_counted.decode(message.body).events) or 1
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        count = 1
    return End(message.position, version + count - 1)


class Source(Protocol):
    """Messages at the positions `first` to `last`, which never change.

    A filter is a subject of the log in which `*` is one token and a final `>` one or more
    (`subjects.matches`). A subject has at most one message. Lists are ordered by position.
    """

    @property
    def first(self) -> int:
        """The first position."""
        ...

    @property
    def last(self) -> int:
        """The last position; `first - 1` if it holds no message."""
        ...

    async def many(self, filters: Sequence[str]) -> list[Message]:
        """Return all messages whose subjects match one of the filters, each message once. Raises
        TooMany if the source limits the number (`wire.TooMany`); then `named` reads them.
        """
        ...

    async def named(self, names: Sequence[str]) -> list[Message]:
        """Return the messages on these subjects; those without one are left out."""
        ...

    async def names(self, pattern: str) -> list[str]:
        """Return the subjects that match a filter, unordered."""
        ...

    async def newest(self, pattern: str) -> Message | None:
        """Return the message with the highest position whose subject matches a filter."""
        ...

    async def end(self, pattern: str) -> End | None:
        """Return the end of the message that `newest` returns, without that if possible: a writer
        needs no more, and the object store may be away.
        """
        ...

    async def at(self, position: int) -> Message | None:
        """Return the message at a position."""
        ...

    async def since(self, stamp: int) -> Message | None:
        """Return the first message after a time, in ns since 1970 (UTC)."""
        ...

    def chunks(self, after: int, until: int, pattern: str) -> AsyncGenerator[list[Message], None]:
        """Yield the messages after a position, up to and with another, whose subjects match a
        filter, in lists of at most a few hundred. Raises Corrupt if one cannot be read.
        """
        ...


class Archived(msgspec.Struct, frozen=True):
    """A generation that the archive has read back and verified.

    It holds `messages` at positions `first` to `last`; `chain` is the rolling digest over exactly
    these messages (`marks.link`, from an empty digest). `place` is the URL of the archive, without
    any secret. Stored once per generation, before its stream is deleted.
    """

    generation: int
    first: int
    last: int
    messages: int
    chain: str
    place: str


class Archive(Protocol):
    """A place for sealed generations, opened for one workspace by `hansard.bus.archive.archive_at`
    (workspace, place). Opening it reads nothing.
    """

    @property
    def place(self) -> str:
        """The URL of the archive, without any secret."""
        ...

    async def store(self, generation: int, source: Source) -> Archived:
        """Store a sealed generation, read it back, and verify count, positions and digest.

        It may be repeated, also by two processes at once: what is already stored and verified is
        kept. Raises BusError if it could not be stored or verified; the stream is then kept.
        """
        ...

    async def demand_stored(self, listed: Sequence[Archived]) -> None:
        """Raise Corrupt or BusError unless the store has all objects of the generations that the
        list says are in it, in their sizes. Demanded before another is stored or a stream deleted:
        under a disk that is not mounted would be a second, incomplete archive.
        """
        ...

    def source(self, generations: Sequence[Archived]) -> Source:
        """Return all these generations, oldest first and without a gap, as one source. Nothing is
        read before it is needed, so that a missing archive is an error of the read that needs it.
        """
        ...
