"""What can go wrong on the bus, told apart by who must act.

    BusError
    ├── TooLarge            the caller: a commit that does not fit even with its payloads as blobs
    ├── Contradiction       the caller: a stream or server that exists with other settings
    ├── NotFound            the caller: a run, stream, blob or point that is not there
    ├── Conflict            a lost race: another commit has that version; carries the winner
    ├── Fenced              a lost race: another session holds a later epoch; never retried
    ├── AppendUnknown       the world: the broker did not answer; the commit may be stored or not
    ├── Unreachable         the world: no connection to the broker
    └── BrokerError         the world: the broker answered with an error of its own

A record that contradicts itself is `hansard.domain.errors.Corrupt`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.errors import HansardError

if TYPE_CHECKING:
    from hansard.bus.log import Stored
    from hansard.domain.ids import StreamId


class BusError(HansardError):
    """Base of the bus's errors."""


class TooLarge(BusError):
    """A commit that does not fit even with its payloads as blobs; nothing was written."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what} has {size:,} bytes, the limit is {limit:,}: "
            "split it, or hand large values over by reference"
        )
        self.size = size
        self.limit = limit


class Contradiction(BusError):
    """A stream or server that exists with settings other than the ones asked for."""

    def __init__(self, what: str, differences: dict[str, tuple[object, object]]) -> None:
        told = ", ".join(f"{k} is {has!r}, not {want!r}" for k, (has, want) in differences.items())
        super().__init__(
            f"{what} exists with other settings: {told}; "
            "use another workspace or data directory, or change the settings by hand"
        )
        self.what = what
        self.differences = differences


class NotFound(BusError):
    """A run, stream, blob or point that is not there."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what} was not found: {remedy}")
        self.what = what


class Conflict(BusError):
    """Another commit has that version, or a condition does not hold; nothing was written.

    `winner` is the commit that stands there (None where only a condition failed and nothing
    under it could be read). An ordinary outcome: read what is new, decide again, append again.
    """

    def __init__(self, stream: StreamId, version: int, winner: Stored | None) -> None:
        by = f" by {winner.commit.actor.agent!r} at position {winner.position}" if winner else ""
        super().__init__(
            f"version {version} of stream {stream} is already written{by}: "
            "read the stream and decide again"
        )
        self.stream = stream
        self.version = version
        self.winner = winner


class Fenced(BusError):
    """Another session took over this agent's stream; this session is over and wrote nothing."""

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
    """

    def __init__(self, stream: StreamId, version: int, commit_id: str, waited_s: float) -> None:
        super().__init__(
            f"the broker did not confirm commit {commit_id} (version {version} of {stream}) "
            f"within {waited_s:.1f} s: it may be stored or not; reconnect, then resume the run"
        )
        self.stream = stream
        self.version = version
        self.commit_id = commit_id


class Unreachable(BusError):
    """No connection to the broker; nothing was sent."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"no NATS server answers at {url} ({why}): "
            "check HANSARD_NATS_URL and the server, or unset it to use the embedded one"
        )
        self.url = url


class BrokerError(BusError):
    """The broker answered with an error of its own; nothing was written."""

    def __init__(self, doing: str, code: int, description: str) -> None:
        super().__init__(f"{doing}: the broker answered {code}, {description}")
        self.code = code
        self.description = description
