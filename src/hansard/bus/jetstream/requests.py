"""Requests and answers between programs, apart from the log; used by the service and its clients.

Nothing is stored and nothing is sent twice: if no answer arrives, the request's outcome is unknown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from hansard.bus.errors import BusError
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.jetstream.wire import NoAnswer

KNOWN_S_MAX = 5.0
"""Longest time until the broker has registered a subscription, in seconds."""

Handle = Callable[[str, str, bytes], None]
"""Handles a request: its subject, its reply subject (empty for none), its body. Called inline in
the client's read loop, so it must not block.
"""


class _Taker:
    """Receives a subscription's messages, without their headers."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """Receive one message."""
        del headers
        self._handle(subject, reply, data)

    def lost(self, error: BusError) -> None:
        """Ignore the lost connection: the subscription is restored with it."""


class Requests:
    """A connection for requests."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @classmethod
    async def open(cls, options: BrokerOptions) -> Requests:
        """Connect. Raises Unreachable, BrokerError (refused)."""
        return cls(await Broker.open(options))

    async def ask(self, subject: str, payload: bytes, timeout_s: float) -> bytes:
        """Send a request, and return the answer's body. Raises TooLarge, NotSent, NoResponders
        (nobody received it), NoAnswer, BrokerError (denied). Cancelling it leaves the outcome
        unknown.
        """
        return (await self._broker.request(subject, payload, None, timeout_s))[1]

    async def serve(self, subject: str, handle: Handle, queue: str = "") -> Callable[[], Any]:
        """Handle requests to a subject; return the coroutine function that ends it.

        Of several programs that serve a subject with the same `queue`, one gets each request. On
        return the broker has registered the subscription, so that later requests find a responder;
        if the connection breaks meanwhile, it is registered on reconnect.
        """
        stop = await self._broker.listen(subject, _Taker(handle), queue)
        nobody = f"{self._broker.options.inbox_prefix}.{uuid4().hex}"
        with contextlib.suppress(NoAnswer):  # once rejected, earlier messages were processed
            await self._broker.request(nobody, timeout_s=KNOWN_S_MAX)
        return stop

    async def answer(self, reply: str, payload: bytes) -> None:
        """Send an answer. Raises TooLarge, NotSent."""
        await self._broker.send(reply, payload)

    async def close(self) -> None:
        """Close the connection. Pending requests get NoAnswer."""
        await self._broker.close()
