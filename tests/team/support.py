"""Shared parts of the team's tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hansard.domain.ids import KeyStream
from hansard.domain.team import TASKS_KEY as KEY
from tests.agents.twins import Twin, TwinRecord, TwinSession


class TwinTeam(Twin):
    """A team of either client, awaited."""

    @asynccontextmanager
    async def claimed(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Yield a task claimed for a block."""
        if self.is_async:
            async with self.raw.claimed(*args, **kwargs) as task:
                yield task
        else:
            with self.raw.claimed(*args, **kwargs) as task:
                yield task


def team_of(session: TwinSession) -> TwinTeam:
    """Return a session's team with methods that are awaited for either client."""
    return TwinTeam(session.raw.team, is_async=session.is_async)


async def task_tags(record: TwinRecord, run: str) -> list[str]:
    """Return the tags of a run's task events, in order."""
    return [
        recorded.type
        for stored in await record.commits(run)
        if stored.stream == KeyStream(run, KEY)
        for recorded in stored.commit.events
    ]
