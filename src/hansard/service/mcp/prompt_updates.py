"""Word that the prompts which a client may see are others than they were: a version more, one that
is retired, an alias that was moved.

A trusted client's record is followed, prompts alone; a restricted client's service is asked now and
then, which tells of versions and not of aliases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hansard.agents.errors import RoleRefused
from hansard.agents.policy import permits
from hansard.bus.log import Kind, Stored
from hansard.bus.loggers import logger, unexpected
from hansard.client.protocol.errors import NotOffered
from hansard.domain.errors import HansardError
from hansard.domain.ids import WorkspaceStream
from hansard.domain.prompt import KIND, PromptAliased
from hansard.service.mcp.sessions import Sessions
from hansard.service.mcp.updates import ASKED_S_MAX, Watcher

_log = logger(__name__)

Seen = dict[str, tuple[Any, ...]]
"""Of each prompt what a list says of it."""


class PromptUpdates(Watcher):
    """Watches the prompts while a client is to be notified.

    told: Is called when they are to be listed again.
    """

    kind = Kind(KIND)

    def __init__(self, sessions: Sessions, told: Callable[[], Awaitable[None]]) -> None:
        super().__init__(sessions)
        self._told = told
        self._holders = 0
        self._seen: Seen = {}
        self._moved = set[str]()

    async def hold(self) -> None:
        """Watch from now on, for one more."""
        async with self._beginning:
            self._holders += 1
            if not self._tasks:
                workspace = self._sessions.workspace
                after = 0 if workspace is None else await workspace.log.head()
                self._seen = await self._sight()
                self._begin(after)

    def release(self) -> None:
        """Watch no more for one who did."""
        self._holders -= 1
        if not self._holders:
            self._end()

    def _note(self, stored: Stored) -> None:
        moves = any(each.type == PromptAliased.tag for each in stored.commit.events)
        if moves and isinstance(stored.stream, WorkspaceStream):
            self._moved.add(stored.stream.id)
        self._cue.set()

    async def _asking(self) -> None:
        while True:
            await asyncio.sleep(ASKED_S_MAX)
            await self._tell()

    async def _tell(self) -> int:
        moved, self._moved = self._moved, set()
        try:
            before, self._seen = self._seen, await self._sight()
        except HansardError as error:  # a client that cannot ask now is not notified
            self._sessions.note(error)
            self._moved |= moved
            self._again()
            _log.debug("the prompts were not looked at", **unexpected(error))
            return 0
        if self._seen == before and not moved & self._seen.keys():
            return 0
        await self._told()
        return 1

    async def _sight(self) -> Seen:
        """The prompts that the client may see; none where it may see none."""
        try:
            await self._sessions.demand(permits.prompts())
            found = await self._sessions.record.prompts()
        except (NotOffered, RoleRefused):
            return {}
        for each in found:
            await self._sessions.shown(each.label)
        return {each.name: (each.version, each.because, each.text) for each in found}
