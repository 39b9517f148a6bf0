"""Snapshots on JetStream: derived states outside the log, thrown away at will.

Whoever reads one checks it against the log or rebuilds it: a missing or old snapshot costs time,
never truth.
"""

from __future__ import annotations

from collections.abc import Sequence

from hansard.bus import subjects
from hansard.bus.errors import BusError
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.wire import NoAnswer, Rejected, acknowledged
from hansard.bus.loggers import logger

HEADROOM_BYTES = 4 * 1024
"""What a message's subject and headers may take of the server's limit."""

IN_FLIGHT_MAX = 64
"""Unacknowledged snapshots; more are not sent: they can be made again later."""

_log = logger(__name__)


class _Unacknowledged:
    """Logs what became of a snapshot; nobody waits for it."""

    def __init__(self, snapshots: JetStreamSnapshots, subject: str) -> None:
        self._snapshots = snapshots
        self._subject = subject
        self.inbox = ""

    def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:  # noqa: ARG002 -- a Receiver
        self._snapshots.settle(self.inbox)
        try:
            acknowledged(data)
        except (Rejected, NoAnswer) as error:
            _log.warning("snapshot not stored", subject=self._subject, why=str(error))

    def lost(self, error: BusError) -> None:
        self._snapshots.settle(self.inbox)
        _log.debug("snapshot perhaps not stored", subject=self._subject, why=str(error))


class JetStreamSnapshots:
    """The snapshots of one workspace. A key is a subject made by `subjects.snapshot_prefix`."""

    def __init__(self, workspace: str, writes: Broker, direct: Direct) -> None:
        self._stream = subjects.snapshot_stream(workspace)
        self._broker = writes
        self._direct = direct
        self._in_flight: set[str] = set()

    async def put(self, subject: str, data: bytes) -> bool:
        """Send a snapshot without waiting for its acknowledgement; False if it was not sent.

        It is not sent when it is too large for one message, when 64 are unacknowledged, or while
        disconnected.
        """
        if len(data) + HEADROOM_BYTES > self._broker.max_payload:
            return False
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            return False
        receiver = _Unacknowledged(self, subject)
        receiver.inbox = self._broker.expect(receiver)
        self._in_flight.add(receiver.inbox)
        try:
            await self._broker.send(subject, data, receiver.inbox)
        except NoAnswer:
            self.settle(receiver.inbox)
            return False
        return True

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Those of the snapshots that exist, by subject. One request a thousand. A replica that
        lags may leave some out: that costs time.
        """
        messages = await self._direct.named(self._stream, keys, 0)
        return {message.subject: message.data for message in messages}

    def settle(self, inbox: str) -> None:
        """Forget an unacknowledged snapshot."""
        self._in_flight.discard(inbox)
        self._broker.forget(inbox)
