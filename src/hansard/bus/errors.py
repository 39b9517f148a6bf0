"""What can go wrong on the bus, told apart by who must act.

    BusError
    ├── TooLarge            the caller: a commit that does not fit even with its payloads as blobs
    ├── ReadOnly            the caller: a data directory that can only be read
    ├── Contradiction       the caller: a stream or server that exists with other settings
    ├── NotFound            the caller: a run, stream, blob or point that is not there
    ├── Conflict            a lost race: another commit has that version; carries the winner
    ├── Fenced              a lost race: another session holds a later epoch; never retried
    ├── AppendUnknown       the world: the broker did not answer; the commit may be stored or not
    ├── StoreGone           the world: the embedded broker's files were deleted, moved or replaced
    ├── Unreachable         the world: no connection to the broker
    │   ├── NotWritable     the world: the disk of the embedded broker takes nothing (it is full)
    │   ├── Closed          the caller: the connection was closed
    │   └── ReplicaBehind   the world: no replica that has come far enough answered in time
    └── BrokerError         the world: the broker answered with an error of its own

A record that contradicts itself is `hansard.domain.errors.Corrupt`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.bus import disk
from hansard.domain.errors import HansardError

if TYPE_CHECKING:
    from pathlib import Path

    from hansard.bus.log import Stored
    from hansard.domain.ids import StreamId


class BusError(HansardError):
    """Base of the bus's errors."""


class TooLarge(BusError):
    """A commit that does not fit even with its payloads as blobs; nothing was written.

    Attributes:
        size: Bytes that it has.
        limit: Bytes that it may have.
    """

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what} has {size:,} bytes, the limit is {limit:,}: "
            "split it, or hand large values over by reference"
        )
        self.size = size
        self.limit = limit


class ReadOnly(BusError):
    """A data directory that cannot be written is only read; nothing was written. `path` is it."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"nothing can be recorded: {path!r} cannot be written, and what is read is a private "
            "copy that goes away; give back the rights to write, or copy it to a folder of your "
            "own and name that (--data-dir, HANSARD_DATA_DIR)"
        )
        self.path = path


class Contradiction(BusError):
    """A stream or server that exists with settings other than the ones asked for.

    Attributes:
        what: What exists.
        differences: By setting: what it has, and what was asked for.
    """

    def __init__(self, what: str, differences: dict[str, tuple[object, object]]) -> None:
        told = ", ".join(f"{k} is {has!r}, not {want!r}" for k, (has, want) in differences.items())
        super().__init__(
            f"{what} exists with other settings: {told}; "
            "use another workspace or data directory, or change the settings by hand"
        )
        self.what = what
        self.differences = differences


class NotFound(BusError):
    """A run, stream, blob or point that is not there.

    Attributes:
        what: What is not there.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} was not found: {remedy}")
        self.what = what


class Conflict(BusError):
    """Another commit has that version, or a condition does not hold; nothing was written.

    `winner` is the commit that stands there (None where only a condition failed and nothing
    under it could be read). An ordinary outcome: read what is new, decide again, append again.
    Where that was done as often as it may be, `tries` says how often.

    Attributes:
        stream: The stream.
        version: The version that is taken.
        winner: The commit that stands there, or None.
        tries: Races that were lost one after the other, this one included.
    """

    def __init__(
        self, stream: StreamId, version: int, winner: Stored | None, tries: int = 1
    ) -> None:
        by = f" by {winner.commit.actor.agent!r} at position {winner.position}" if winner else ""
        fact = f"version {version} of stream {stream} is already written{by}"
        remedy = "read the stream and decide again"
        if tries > 1:
            fact = f"{tries:,} tries in a row to write stream {stream} were lost to others: {fact}"
            remedy = "nothing was written; try again, or let fewer write to it at once"
        super().__init__(f"{fact}: {remedy}")
        self.stream = stream
        self.version = version
        self.winner = winner
        self.tries = tries


class Fenced(BusError):
    """Another session took over this agent's stream; this session is over and wrote nothing.

    Attributes:
        stream: The agent's stream.
        epoch: This session's.
        newer: The one that has begun.
    """

    def __init__(self, stream: StreamId, epoch: int, newer: int) -> None:
        super().__init__(
            f"this session writes {stream} in epoch {epoch}, but epoch {newer} has begun: "
            "the run was resumed elsewhere; stop here, nothing more is recorded from this session"
        )
        self.stream = stream
        self.epoch = epoch
        self.newer = newer


class AppendUnknown(BusError):
    """The broker did not answer in time: the commit may be stored or not. Start no effect.

    Reading the stream later tells: look for `commit_id` at `version`. Absence is no proof while
    the connection that sent it may still deliver it.

    Attributes:
        stream: The stream.
        version: The version that was to be written.
        commit_id: The commit's id.
        waited_s: Seconds that were waited.
        why: What else is known.
    """

    def __init__(
        self, stream: StreamId, version: int, commit_id: str, waited_s: float, why: str = ""
    ) -> None:
        known = f" ({why})" if why else ""
        super().__init__(
            f"the broker did not confirm commit {commit_id} (version {version} of {stream}) "
            f"within {waited_s:.1f} s: it may be stored or not{known}; reconnect, then resume the "
            "run"
        )
        self.stream = stream
        self.version = version
        self.commit_id = commit_id
        self.waited_s = waited_s
        self.why = why


class Unreachable(BusError):
    """No connection to the broker; nothing was sent.

    Attributes:
        url: The address.
    """

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"no NATS server answers at {url} ({why}): "
            "check HANSARD_NATS_URL and the server, or unset it to use the embedded one"
        )
        self.url = url


class NotWritable(Unreachable):
    """The disk of the embedded broker takes nothing: it is full, read-only, broken. Nothing was
    written. What is tried again goes on by itself once the cause is removed.

    Attributes:
        path: The data directory.
    """

    def __init__(self, path: Path, said: OSError | str) -> None:
        BusError.__init__(
            self,
            f"nothing can be recorded: {disk.explained(path, said)}; what waits then goes on by "
            f"itself [{said}]",
        )
        self.__cause__ = said if isinstance(said, OSError) else None
        self.url = ""
        self.path = path


class StoreGone(BusError):
    """The embedded broker's files were deleted, moved or replaced while they were in use.

    What was acknowledged before went with them; what is written after it is not on record, also
    where the broker acknowledged it.

    Attributes:
        path: The data directory.
    """

    def __init__(self, path: Path, fact: str) -> None:
        super().__init__(
            f"the data directory {str(path)!r} is not the one that was opened ({fact}): nothing is "
            "recorded any more; put it back, or connect again to go on with what stands there now"
        )
        self.path = path


class Closed(Unreachable):
    """The record was closed; nothing was sent."""

    def __init__(self, url: str) -> None:
        BusError.__init__(
            self,
            "the record was closed (record.close(), or its 'with' was left): "
            "do it before, or call hansard.connect(...) again",
        )
        self.url = url


class ReplicaBehind(Unreachable):
    """No replica that has come as far as a read must reach answered in time; nothing was read.

    Only on streams with several replicas. `wanted` is the position to be reached, `reached` the
    furthest that an answer reached.

    Attributes:
        stream: The stream's name.
        wanted: The position to be reached.
        reached: The furthest that an answer reached.
    """

    def __init__(
        self, url: str, stream: str, wanted: int, reached: int, waited_s: float, replicas: str
    ) -> None:
        BusError.__init__(
            self,
            f"stream {stream!r} was to be read up to position {wanted}, but what its replicas at "
            f"{url} answered within {waited_s:.1f} s ends at {reached} ({replicas}): read again "
            "when the replica has caught up, or restart the server that stays behind",
        )
        self.url = url
        self.stream = stream
        self.wanted = wanted
        self.reached = reached


class BrokerError(BusError):
    """The broker answered with an error of its own; nothing was written."""

    def __init__(self, doing: str, code: int, description: str) -> None:
        super().__init__(f"{doing}: the broker answered {code}, {description}")
        self.code = code
        self.description = description
