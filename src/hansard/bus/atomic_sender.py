"""Sends the joint writes of one process: those that wait while others are on their way go together.

An atomic batch costs the broker about the same however many commits it has, and it takes one at a
time. So what the sessions of a process write at once goes as one batch, each transaction still its
own. A write may follow another that is not acknowledged yet: it is stored behind it or not at all.

Everything here runs on the bus's loop.
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
"""Most commits sent at once, but for a larger transaction, which goes alone: half of what a batch
takes, so that whoever waits for it does not wait long."""

BYTES_MAX = 2 * 1024 * 1024
"""Most event data sent at once, with the same exception: a quarter of what a batch takes."""

GATHER_SHARE_MAX = 0.5
"""Longest wait for those who were just told to come back with more, as a share of what the last
batch took: 8 writers then go in one batch, not in two by turns, which takes twice as long."""

GATHER_MAX = 16
"""So many are worth a batch of their own: while it is sent, the others make up their minds."""


class Ticket(msgspec.Struct, eq=False):
    """A joint write on its way. `after` are those that it follows; `stored` gives its commits, or
    why it failed. `took_s` is how long the try took that it lost in, 0.0 where it was not sent.
    """

    log: EventLog
    appends: Sequence[Append]
    after: Sequence[Ticket]
    stored: asyncio.Future[list[Stored]]
    alone: bool = False
    took_s: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether it is over and was not acknowledged."""
        future = self.stored
        return future.done() and (future.cancelled() or future.exception() is not None)

    @property
    def size(self) -> int:
        """The bytes of its events' data."""
        return sum(len(bytes(it.data)) for each in self.appends for it in each.commit.events)

    def succeed(self, commits: list[Stored]) -> None:
        """Tell whoever waits, if anybody does."""
        self.after = ()  # else a busy key would keep all that was ever written to it
        if not self.stored.done():
            self.stored.set_result(commits)

    def fail(self, error: Exception) -> None:
        """Tell whoever waits, if anybody does."""
        self.after = ()
        if not self.stored.done():
            self.stored.set_exception(error)
            self.stored.exception()


class JointSender:
    """Puts joint writes into batches, in the order in which they come."""

    def __init__(self) -> None:
        self._waiting: deque[Ticket] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()
        self._wanted = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, and nothing is on its way."""
        return self._sending is None

    def put(self, log: EventLog, appends: Sequence[Append], after: Sequence[Ticket]) -> Ticket:
        """Have a transaction sent. Where one that it follows fails, it fails with Conflict; else as
        `EventLog.append_all` says. Those that it follows must have been put before it.
        """
        ticket = Ticket(log, appends, after, asyncio.get_running_loop().create_future())
        self._waiting.append(ticket)
        if len(self._waiting) >= self._wanted:
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
            for ticket in (*group, *self._waiting):  # of those that are not over the loop ends
                ticket.stored.cancel()
            self._waiting.clear()

    async def _gather(self, sent: int, took_s: float) -> None:
        """Wait a little where several write: until as many are there as there were."""
        self._wanted = min(GATHER_MAX, sent + len(self._waiting))
        if 1 < self._wanted > len(self._waiting):
            self._enough.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), took_s * GATHER_SHARE_MAX)

    def _take(self) -> list[Ticket]:
        """Those that go together, less those that cannot go any more."""
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
        except Exception as error:  # noqa: BLE001 -- told to whoever waits
            self._failed(group, error, time.perf_counter() - began_s)
        else:
            for ticket, commits in zip(group, stored, strict=True):
                ticket.succeed(commits)

    def _failed(self, group: list[Ticket], error: Exception, took_s: float) -> None:
        """Tell those of a group whose failure is certain, and send the others again. Who follows
        one that failed is found when its turn comes.
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
        if len(again) == len(group):  # which of them it is about is not known: each for itself
            for ticket in again:
                ticket.alone = True
        self._waiting.extendleft(reversed(again))


def _lost(ticket: Ticket, error: Exception) -> bool:
    """Whether it is this one that lost a race."""
    return isinstance(error, Conflict) and any(
        (each.stream, each.commit.version) == (error.stream, error.version)
        for each in ticket.appends
    )
