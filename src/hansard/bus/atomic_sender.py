"""Sends the joint writes of one process in shared atomic batches.

An atomic batch costs the broker about the same whatever its number of commits, and the broker takes
one at a time. So writes that wait while a batch is in flight go together in the next one, each
transaction still atomic on its own. A write may follow another that is not acknowledged yet: it is
stored behind it or not at all. Everything here runs on the bus's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence

import msgspec

from hansard.bus.errors import AppendUnknown, Conflict, Unreachable
from hansard.bus.log import Append, EventLog, Stored
from hansard.bus.portal import own_task

COMMITS_MAX = 512
"""Most commits sent at once: half of a batch's limit, which bounds the wait for it. A larger
transaction is sent alone.
"""

BYTES_MAX = 2 * 1024 * 1024
"""Most event data sent at once: a quarter of a batch's limit. A larger transaction is sent alone.
"""

GATHER_SHARE_MAX = 0.5
"""Longest wait for more writes from callers of the last batch, as a share of the time it took. 8
writers then share one batch; as two alternating batches they take twice as long.
"""

GATHER_MAX = 16
"""Number of waiting writes worth a batch of their own; while it is sent, other callers decide."""


class Ticket(msgspec.Struct, eq=False):
    """A joint write in flight.

    `after` are the writes that it follows; `stored` resolves to its commits or its error. `took_s`
    is the duration of the attempt that lost a race, 0.0 if it was not sent.
    """

    log: EventLog
    appends: Sequence[Append]
    after: Sequence[Ticket]
    stored: asyncio.Future[list[Stored]]
    alone: bool = False
    took_s: float = 0.0

    @property
    def failed(self) -> bool:
        """True if it ended without an acknowledgement."""
        future = self.stored
        return future.done() and (future.cancelled() or future.exception() is not None)

    @property
    def size(self) -> int:
        """The size of its events' data, in bytes."""
        return sum(len(bytes(it.data)) for each in self.appends for it in each.commit.events)

    def succeed(self, commits: list[Stored]) -> None:
        """Resolve the future, if a caller still waits."""
        self.after = ()  # else a busy key would hold all its earlier writes in memory
        if not self.stored.done():
            self.stored.set_result(commits)

    def fail(self, error: Exception) -> None:
        """Fail the future, if a caller still waits."""
        self.after = ()
        if not self.stored.done():
            self.stored.set_exception(error)
            self.stored.exception()


class JointSender:
    """Groups joint writes into batches, in the order of submission."""

    def __init__(self) -> None:
        self._waiting: deque[Ticket] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()
        self._batch_target = 0

    @property
    def is_idle(self) -> bool:
        """True if nothing waits and nothing is in flight."""
        return self._sending is None

    def put(self, log: EventLog, appends: Sequence[Append], after: Sequence[Ticket]) -> Ticket:
        """Send a transaction.

        If one that it follows fails, it fails with Conflict; otherwise as `EventLog.append_all`.
        The ones that it follows must have been submitted before.
        """
        ticket = Ticket(log, appends, after, asyncio.get_running_loop().create_future())
        self._waiting.append(ticket)
        if len(self._waiting) >= self._batch_target:
            self._enough.set()
        if self._sending is None:
            self._sending = own_task(self._drain())
        return ticket

    async def _drain(self) -> None:
        group: list[Ticket] = []
        try:
            while self._waiting:
                group = self._take()
                if group:
                    began_s = time.perf_counter()
                    await self._send(group)
                    await self._gather(len(group), time.perf_counter() - began_s)
        finally:
            self._sending = None
            for ticket in (*group, *self._waiting):  # unresolved when the loop ends
                ticket.stored.cancel()
            self._waiting.clear()

    async def _gather(self, sent: int, took_s: float) -> None:
        """Wait briefly until as many writers wait as in the last batch."""
        self._batch_target = min(GATHER_MAX, sent + len(self._waiting))
        if 1 < self._batch_target > len(self._waiting):
            self._enough.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), took_s * GATHER_SHARE_MAX)

    def _take(self) -> list[Ticket]:
        """Take the writes of the next batch, and fail those that can no longer be stored."""
        group: list[Ticket] = []
        commits = size = 0
        while self._waiting:
            ticket = self._waiting[0]
            if any(each.failed for each in ticket.after):
                last = self._waiting.popleft().appends[-1]
                ticket.fail(Conflict(last.stream, last.commit.version, None))
                continue
            commits += len(ticket.appends)
            size += ticket.size
            apart = group and (ticket.alone or ticket.log is not group[0].log)
            if apart or (group and (commits > COMMITS_MAX or size > BYTES_MAX)):
                break
            group.append(self._waiting.popleft())
            if ticket.alone:
                break
        return group

    async def _send(self, group: list[Ticket]) -> None:
        log, began_s = group[0].log, time.perf_counter()
        try:
            if len(group) == 1:
                stored = [await log.append_all(group[0].appends)]
            else:
                stored = await log.append_groups([each.appends for each in group])
        except Exception as error:  # noqa: BLE001 -- passed to the waiters
            self._failed(group, error, time.perf_counter() - began_s)
        else:
            for ticket, commits in zip(group, stored, strict=True):
                ticket.succeed(commits)

    def _failed(self, group: list[Ticket], error: Exception, took_s: float) -> None:
        """Fail the writes of a group that certainly failed, and queue the others again. A write
        that follows a failed one is failed when its turn comes.
        """
        again: list[Ticket] = []
        for ticket in group:
            first = ticket.appends[0]
            if len(group) == 1 or _lost(ticket, error) or isinstance(error, Unreachable):
                ticket.took_s = took_s
                ticket.fail(error)
            elif isinstance(error, AppendUnknown):
                unknown = (first.stream, first.commit.version, first.commit.id, took_s)
                ticket.fail(AppendUnknown(*unknown, error.why))
            else:
                again.append(ticket)
        if len(again) == len(group):  # no culprit is known: send each alone
            for ticket in again:
                ticket.alone = True
        self._waiting.extendleft(reversed(again))


def _lost(ticket: Ticket, error: Exception) -> bool:
    """Return whether this write is the one that lost a race."""
    return isinstance(error, Conflict) and any(
        (each.stream, each.commit.version) == (error.stream, error.version)
        for each in ticket.appends
    )
