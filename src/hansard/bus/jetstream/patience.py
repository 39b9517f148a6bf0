"""How long one write is tried again: what nobody can explain, and a disk that takes nothing."""

from __future__ import annotations

import asyncio
import time

from hansard.bus.errors import NotWritable, StoreGone, Unreachable
from hansard.bus.jetstream.client import Broker
from hansard.bus.loggers import logger

RESEND_PAUSE_S = 0.02

OBSTACLE_POLL_S = 0.1
"""Pause between two looks whether the embedded server is still hindered."""

_log = logger(__name__)


class Patience:
    """For one write: `append_timeout_s` in all, and `disk_wait_s` beside it while it is known that
    the disk of the embedded server takes nothing.
    """

    def __init__(self, broker: Broker, began: float | None = None) -> None:
        """`began` is when it was first tried (time.monotonic), if not now."""
        self._broker = broker
        self._began = time.monotonic() if began is None else began
        self._hindered_s = 0.0

    @property
    def waited_s(self) -> float:
        """How long it has been tried."""
        return time.monotonic() - self._began

    async def again(self, error: Exception) -> None:
        """Return when it is time to try again. Raises Unreachable, NotWritable, StoreGone when it
        is no longer.
        """
        options = self._broker.options
        await self._hindered()
        left = options.append_timeout_s - (self.waited_s - self._hindered_s)
        if left <= 0:
            raise Unreachable(self._broker.url, str(error))
        await asyncio.sleep(min(RESEND_PAUSE_S, left))
        await self._broker.ready(left)

    async def _hindered(self) -> None:
        """Wait while the embedded server is said to be hindered; a little where only its disk
        tells, since it may still take what is small. Raises NotWritable, StoreGone.
        """
        host = self._broker.options.host
        if host is None:
            return
        since = time.monotonic()
        obstacle = host.obstacle() or host.look()
        try:
            while obstacle is not None:
                left = self._broker.options.disk_wait_s - self._hindered_s
                left -= time.monotonic() - since
                if isinstance(obstacle, StoreGone) or left <= 0:
                    raise obstacle
                self._tell(obstacle, left)
                await asyncio.sleep(OBSTACLE_POLL_S)
                obstacle = host.obstacle()
        finally:
            self._hindered_s += time.monotonic() - since

    def _tell(self, obstacle: NotWritable, left_s: float) -> None:
        """Once for all who wait, until there is a connection again."""
        if not self._broker.hindered:
            self._broker.hindered = True
            told = f"{obstacle}; waiting for at most {left_s:.0f} s"
            _log.warning(told)  # without fields: a program that sets up no log shows this alone
