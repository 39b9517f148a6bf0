"""An operation that the service has under way for a client, and what it asks of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from hansard.client.protocol import faults, wire
from hansard.client.protocol.faults import ClientGone
from hansard.client.protocol.wire import EMPTY, Answer, Came, Run


class Turn:
    """One operation, from the request that began it to its last word.

    The client is told a word for each of its requests: the first word answers the request that
    began the operation, every further one the `done` before it.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.task: asyncio.Task[Any] | None = None
        self.warning = ""
        self.scopes: set[str] = set()
        """The paths of scopes that are known to the client for as long as this lasts."""
        self.own: list[Any] = []
        """What the client's last run gave, as the session got it."""
        self._words: asyncio.Queue[Answer] = asyncio.Queue()
        self._came: asyncio.Future[Came] | None = None
        self._gone = False

    async def run(self, what: str, arguments: msgspec.Raw = EMPTY, scope: str = "") -> Came:
        """Have the client do something. Raises ClientGone, and what the client's program raised."""
        if self._gone:
            raise ClientGone
        self._came = asyncio.get_running_loop().create_future()
        told = Run(
            turn=self.number, what=what, arguments=arguments, scope=scope, warning=self.warning
        )
        self.warning = ""
        self._words.put_nowait(told)
        try:
            came = await self._came
        finally:
            self._came = None
        if came.fault is not None:
            error = faults.rebuilt(came.fault)
            self.own = [error]
            raise error
        return came

    def done(self, came: Came) -> bool:
        """What the client's run came to; False where none was asked for."""
        if self._came is None or self._came.done():
            return False
        self._came.set_result(came)
        return True

    def raised(self, error: BaseException) -> bool:
        """The client's run raised an error that the service had told it."""
        if self._came is None or self._came.done():
            return False
        self.own = [error]
        self._came.set_exception(error)
        return True

    def gone(self) -> bool:
        """The client is gone; whether it was running something for this turn."""
        self._gone = True
        return self.raised(ClientGone("the connection to the client broke"))

    def last(self, word: Answer) -> None:
        """The operation's last word."""
        self._words.put_nowait(word)

    async def word(self) -> Answer:
        """The next word."""
        return await self._words.get()

    def is_own(self, value: object) -> bool:
        """Whether that is just what the client's last run gave."""
        return bool(self.own) and self.own[0] is value


Work = Callable[[Turn], Awaitable[Answer]]
"""What a turn does."""


def value(turn: Turn, given: Any, *, end: bool = False) -> wire.Value:
    """A program's value as a last word; what the client just gave is not given back."""
    if turn.is_own(given):
        return wire.Value(own=True, warning=turn.warning)
    return wire.Value(wire.dump(given, "result"), end=end, warning=turn.warning)
