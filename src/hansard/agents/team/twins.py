"""`session.team` of both clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from hansard.agents.board.twins import OfAgent
from hansard.agents.flow import AsyncDrive, Drive, in_place, sync, sync_block
from hansard.agents.team.tasks import LEASE_S, Mail, MailFlows, Task, TaskEntry
from hansard.agents.team.wait_for import WaitFlows


class AsyncTeam(OfAgent):
    """What the run's agents are to do, for the async client."""

    def __init__(self, flows: WaitFlows, mail: MailFlows, drive: AsyncDrive) -> None:
        self._flows = flows
        self._mail = mail
        self._drive = drive

    async def add(
        self,
        title: str,
        *,
        what: Any = None,
        role: str | None = None,
        agent: str | None = None,
        waits_for: Iterable[str] = (),
        waits_for_roles: Iterable[str] = (),
        task: str | None = None,
    ) -> str:
        """Add a task; its id.

        Args:
            title: What it is called.
            what: What whoever claims it needs: `task.what`.
            role: Whose it is to do; anybody's by default.
            agent: Who is to do it; anybody of the role by default.
            waits_for: Ids of tasks that must be done before.
            waits_for_roles: Roles that must have a task, and all of whose tasks must be done.
            task: Its id, by default the next of t1, t2 ...; the same task again changes nothing.

        Raises:
            Refused: It would wait for itself; the circle is named.
            BadName, BadValue: A name is not one, or `what` cannot be recorded.
        """
        return await self._drive(
            self._flows.add(title, what, role, agent, waits_for, waits_for_roles, task)
        )

    async def claim(
        self, role: str | None = None, *, lease_s: float = LEASE_S, timeout_s: float | None = 0
    ) -> Task | None:
        """Claim the first task that is this agent's, its role's, or anybody's; None for none.

        Args:
            role: Another role to work for.
            lease_s: Seconds of the log's time after which another may claim it. A lease has always
                a bound: neither None nor 0 is one.
            timeout_s: Seconds to wait for one, also for one that is yet to be added: 0 looks once,
                None is no bound, and waits as long as one that is there could still be its own.
        """
        task, _ = await self._drive(self._flows.claim(role, lease_s, timeout_s))
        return task

    async def extend(self, task: Task, *, lease_s: float = LEASE_S) -> None:
        """Have a task's lease begin again. Raises ClaimLost: another has claimed it since."""
        await self._drive(self._flows.extend(task, lease_s))

    async def complete(self, task: Task, result: Any = None) -> None:
        """Say that a task is done. Raises ClaimLost, and nothing is written."""
        await self._drive(self._flows.complete(task, result))

    async def fail(self, task: Task, error: BaseException | str) -> None:
        """Say that a task cannot be done: what waits for it is blocked. Raises ClaimLost."""
        await self._drive(self._flows.fail(task, error))

    async def release(self, task: Task, because: str = "") -> None:
        """Give a task back for another to claim. Raises ClaimLost."""
        await self._drive(self._flows.release(task, because))

    async def hand_off(
        self,
        task: Task,
        *,
        role: str | None = None,
        agent: str | None = None,
        with_: Any = None,
        because: str = "",
    ) -> None:
        """Hand a task on to a role or an agent, `with_` what the receiver needs: whoever claims it
        has that as `task.given`. Raises ClaimLost, Refused (it would wait for itself), BadValue.
        """
        await self._drive(self._flows.hand_off(task, role, agent, with_, because))

    async def reopen(self, task: str, because: str = "") -> bool:
        """Have a task that failed (by its id) be done after all; False where it is not over.
        Another may then claim it, and what waits for it goes on. Raises Refused.
        """
        return await self._drive(self._flows.reopen(task, because))

    async def tasks(self) -> list[TaskEntry]:
        """All tasks of the run, in the order they were added."""
        return await self._drive(self._flows.tasks())

    @contextlib.asynccontextmanager
    async def claimed(
        self, role: str | None = None, *, lease_s: float = LEASE_S, timeout_s: float | None = 0
    ) -> AsyncGenerator[Task | None, None]:
        """Claim a task for a block of code, as `claim`; the claim is kept alive while it runs.

        At its end the task is completed with `task.result`, failed with the error that the block
        raised, or, where it was interrupted, released. What the block said itself stands. An error
        that says that the run stops here, not the task, leaves the claim to the resumed session,
        and so does any error while a call of the block is in doubt.
        """
        claimed = self._flows.claimed()
        task = await self._drive(claimed.begin(role, lease_s, timeout_s))
        try:
            yield task
        except BaseException as error:
            await self._drive(claimed.end(error))
            raise
        else:
            await self._drive(claimed.end(None))

    async def wait_for(
        self,
        *,
        key: str | None = None,
        task: str | None = None,
        position: int | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Wait for one thing; False where the time is up, or the task is blocked.

        Args:
            key: A key of the board, until it is there.
            task: A task by its id, until it is done or failed.
            position: A position of the log, until it has come so far.
            timeout_s: Seconds: 0 looks once, None is no bound.
        """
        return await self._drive(self._flows.wait_for(key, task, position, timeout_s))

    async def send(self, content: Any, *, role: str | None = None, agent: str | None = None) -> int:
        """Send a message to an agent, or to all agents of a role; its number in the run."""
        return await self._drive(self._mail.send(content, role, agent))

    async def inbox(self) -> list[Mail]:
        """The messages for this agent that it was not given yet, the oldest first."""
        return await self._drive(self._mail.inbox())


class Team(OfAgent):
    """What the run's agents are to do, for the sync client: the methods of `AsyncTeam`."""

    def __init__(self, flows: WaitFlows, mail: MailFlows, drive: Drive) -> None:
        self._flows = flows
        self._mail = mail
        self._drive = in_place(drive)

    add = sync(AsyncTeam.add)
    claim = sync(AsyncTeam.claim)
    extend = sync(AsyncTeam.extend)
    complete = sync(AsyncTeam.complete)
    fail = sync(AsyncTeam.fail)
    release = sync(AsyncTeam.release)
    hand_off = sync(AsyncTeam.hand_off)
    reopen = sync(AsyncTeam.reopen)
    tasks = sync(AsyncTeam.tasks)
    claimed = sync_block(AsyncTeam.claimed)
    wait_for = sync(AsyncTeam.wait_for)
    send = sync(AsyncTeam.send)
    inbox = sync(AsyncTeam.inbox)
