"""Requests and answers between programs, apart from the log: what the service and its clients use.

Nothing is stored and nothing is sent twice: an answer that does not come leaves open what came of
the request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from hansard.bus.errors import BusError
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.jetstream.wire import NoAnswer, NoResponders, NotSent

__all__ = ["Handle", "NoAnswer", "NoResponders", "NotSent", "Requests"]

KNOWN_S_MAX = 5.0
"""How long the broker may take to know that somebody listens, in seconds."""

Handle = Callable[[str, str, bytes], None]
"""Takes a request: its subject, where its answer goes (empty for nowhere), its body. Called inline
in the client's read loop: it may not wait.
"""


class _Taker:
    """What arrives on a subscription, without its headers."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """One message."""
        del headers
        self._handle(subject, reply, data)

    def lost(self, error: BusError) -> None:
        """The connection broke: the subscription comes back with it."""


class Requests:
    """A connection for requests."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @classmethod
    async def open(cls, options: BrokerOptions) -> Requests:
        """Connect. Raises Unreachable, BrokerError (refused)."""
        return cls(await Broker.open(options))

    async def ask(self, subject: str, payload: bytes, timeout_s: float) -> bytes:
        """The answer's body. Raises TooLarge, NotSent, NoResponders (nobody was told), NoAnswer,
        BrokerError (denied). Cancelling it leaves the outcome open.
        """
        return (await self._broker.request(subject, payload, None, timeout_s))[1]

    async def serve(self, subject: str, handle: Handle, queue: str = "") -> Callable[[], Any]:
        """Have requests handled; returns the coroutine function that ends it. Of several programs
        that serve a subject with the same `queue`, one is given each request.

        When it comes back, the broker knows of it: nobody who asks from then on is told that
        nobody is there. Unless the connection breaks meanwhile: then it knows when that is back.
        """
        stop = await self._broker.listen(subject, _Taker(handle), queue)
        nobody = f"{self._broker.options.inbox_prefix}.{uuid4().hex}"
        with contextlib.suppress(NoAnswer):  # what was sent before has arrived when this is refused
            await self._broker.request(nobody, timeout_s=KNOWN_S_MAX)
        return stop

    async def answer(self, reply: str, payload: bytes) -> None:
        """Send an answer. Raises TooLarge, NotSent."""
        await self._broker.send(reply, payload)

    async def close(self) -> None:
        """Let go of the broker. Whoever waits for an answer gets NoAnswer."""
        await self._broker.close()
