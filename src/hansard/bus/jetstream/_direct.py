"""Direct Get (ADR-31): reading stored messages by name, position or time, many in one request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from hansard.bus.errors import BrokerError, BusError, Unreachable
from hansard.bus.jetstream._client import Broker
from hansard.bus.jetstream._wire import (
    Message,
    NoAnswer,
    NoResponders,
    TooMany,
    header,
    status,
    stored,
)
from hansard.domain.errors import Corrupt

PAGE_BYTES_MAX = 8 * 1024 * 1024
"""What the server sends for one request: it pushes without asking, and cuts a connection with
64 MB waiting."""

PAGES_AT_ONCE_MAX = 4
"""Requests in flight on one connection: together at most half of those 64 MB."""

NAMES_MAX = 1_000
"""Names in one request; the server stops at 1,024 results, and a megabyte of request."""

READ_WAIT_S = 15.0
"""How long a read goes on asking a broker that restarts."""

STATUS_END, STATUS_NONE, STATUS_TOO_MANY, STATUS_NOBODY = 204, 404, 413, 503

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class _Page:
    """Collects one answer: messages until the end mark."""

    __slots__ = ("done", "messages", "subject")

    def __init__(self, subject: str, done: asyncio.Future[bytes]) -> None:
        self.subject = subject
        self.done = done
        self.messages: list[Message] = []

    def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:  # noqa: ARG002 -- a Receiver
        if headers[8:9] == b" ":
            self._end(headers)
            return
        try:
            self.messages.append(stored(headers, data))
        except (Corrupt, ValueError) as error:
            self._fail(Corrupt(f"an answer to {self.subject!r}", str(error)))

    def lost(self, error: BusError) -> None:
        self._fail(error)

    def _end(self, headers: bytes) -> None:
        code, text = status(headers)
        if code in (STATUS_END, STATUS_NONE):
            if not self.done.done():
                self.done.set_result(headers)
        elif code == STATUS_NOBODY:
            self._fail(NoResponders(self.subject))
        elif code == STATUS_TOO_MANY:
            self._fail(TooMany(f"more than 1,024 subjects in one {self.subject!r}"))
        else:
            self._fail(BrokerError(self.subject, code, text))

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Direct:
    """Reads over one connection of its own: its answers would stand before others' acks."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._turns = asyncio.Semaphore(PAGES_AT_ONCE_MAX)

    async def many(self, stream: str, request: dict[str, Any]) -> list[Message]:
        """All messages that a `multi_last` or `batch` request asks for, by position.

        Raises TooMany, BrokerError, Unreachable.
        """
        page, end = await self._page(stream, request)
        messages = page
        asked = dict(request)
        while (pending := int(header(end, b"Nats-Num-Pending") or 0)) and "batch" not in request:
            asked["seq"] = int(header(end, b"Nats-Last-Sequence")) + 1
            up_to = int(header(end, b"Nats-UpTo-Sequence") or 0)
            if up_to:
                asked["up_to_seq"] = up_to
            page, end = await self._page(stream, asked)
            if not page:
                raise BrokerError(f"reading {stream!r}", 0, f"{pending} more promised, none sent")
            messages += page
        return messages

    async def named(self, stream: str, names: list[str]) -> list[Message]:
        """The messages on these subjects, by position within each thousand names."""
        messages: list[Message] = []
        for start in range(0, len(names), NAMES_MAX):
            messages += await self.many(stream, {"multi_last": names[start : start + NAMES_MAX]})
        return messages

    async def last(self, stream: str, subject: str) -> Message | None:
        """The newest message on a subject, wildcards allowed. About 0.2 ms."""
        return await self._single(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"")

    async def at(self, stream: str, position: int) -> Message | None:
        """The message at a position."""
        return await self._single(f"$JS.API.DIRECT.GET.{stream}", _encode({"seq": position}))

    async def since(self, stream: str, time_utc: str) -> Message | None:
        """The first message at or after a time (RFC 3339)."""
        return await self._single(f"$JS.API.DIRECT.GET.{stream}", _encode({"start_time": time_utc}))

    async def _single(self, subject: str, body: bytes) -> Message | None:
        headers, data = await self.again(lambda: self.broker.request(subject, body))
        code, text = status(headers)
        if code == STATUS_NONE:
            return None
        if code:
            raise BrokerError(subject, code, text)
        return stored(headers, data)

    async def _page(self, stream: str, request: dict[str, Any]) -> tuple[list[Message], bytes]:
        subject = f"$JS.API.DIRECT.GET.{stream}"
        body = _encode({**request, "max_bytes": PAGE_BYTES_MAX})

        async def once() -> tuple[list[Message], bytes]:
            loop = asyncio.get_running_loop()
            page = _Page(subject, loop.create_future())
            inbox = self.broker.expect(page)
            late = NoAnswer(f"no end of the answer to {subject!r} in time")
            timer = loop.call_later(self.broker.options.request_timeout_s, page.lost, late)
            try:
                await self.broker.send(subject, body, inbox)
                end = await page.done
            finally:
                timer.cancel()
                self.broker.forget(inbox)
            return page.messages, end

        async with self._turns:
            return await self.again(once)

    async def again(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again while the broker gives no answer: a read may be repeated."""
        until = time.monotonic() + READ_WAIT_S
        while True:
            try:
                await self.broker.ready(max(0.0, until - time.monotonic()))
                return await ask()
            except NoAnswer as error:
                if time.monotonic() >= until:
                    raise Unreachable(self.broker.url, str(error)) from error
                await asyncio.sleep(0.01)
