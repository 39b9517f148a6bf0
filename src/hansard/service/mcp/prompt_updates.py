"""Word that the prompts which a client may see are others than they were: a version more, one that
is retired, an alias that was moved.

A trusted client's record is followed, prompts alone; a restricted client's service is asked now and
then, which tells of versions and not of aliases.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from hansard.service.mcp.updates import AGAIN_S, ASKED_S_MAX, QUIET_S

_log = logger(__name__)

Seen = dict[str, tuple[Any, ...]]
"""Of each prompt what a list says of it."""


class PromptUpdates:
    """Watches the prompts while somebody is to be told.

    told: Is called when they are to be listed again.
    """

    def __init__(self, sessions: Sessions, told: Callable[[], Awaitable[None]]) -> None:
        self._sessions = sessions
        self._told = told
        self._holders = 0
        self._beginning = asyncio.Lock()
        self._seen: Seen = {}
        self._moved = set[str]()
        self._cue = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def hold(self) -> None:
        """Watch from now on, for one more."""
        async with self._beginning:
            self._holders += 1
            if self._tasks:
                return
            workspace = self._sessions.workspace
            if workspace is None:
                works = [self._asking()]
            else:
                works = [self._following(await workspace.log.head()), self._telling()]
            self._seen = await self._sight()
            self._tasks = [asyncio.create_task(each) for each in works]

    def release(self) -> None:
        """Watch no more for one who did."""
        self._holders -= 1
        if not self._holders:
            for task in self._tasks:
                task.cancel()
            self._tasks = []

    async def close(self) -> None:
        """Watch nothing any more."""
        ended, self._tasks = self._tasks, []
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    async def _following(self, after: int) -> None:
        while True:
            try:
                log = self._sessions.workspace.log
                async with contextlib.aclosing(log.follow(after, of=Kind(KIND))) as commits:
                    async for stored in commits:
                        after = stored.position
                        self._note(stored)
            except Exception as error:  # noqa: BLE001 -- who waits for word is not to wait in vain
                _log.warning("prompts are not followed", again_s=AGAIN_S, **unexpected(error))
            await asyncio.sleep(AGAIN_S)

    def _note(self, stored: Stored) -> None:
        moves = any(each.type == PromptAliased.tag for each in stored.commit.events)
        if moves and isinstance(stored.stream, WorkspaceStream):
            self._moved.add(stored.stream.id)
        self._cue.set()

    async def _telling(self) -> None:
        while True:
            await self._cue.wait()
            self._cue.clear()
            await self._tell()
            await asyncio.sleep(QUIET_S)

    async def _asking(self) -> None:
        while True:
            await asyncio.sleep(ASKED_S_MAX)
            await self._tell()

    async def _tell(self) -> None:
        """Tell of what changed that the client may see."""
        moved, self._moved = self._moved, set()
        try:
            before, self._seen = self._seen, await self._sight()
        except HansardError as error:  # who cannot ask now is told nothing
            self._sessions.note(error)
            self._moved |= moved
            asyncio.get_running_loop().call_later(AGAIN_S, self._cue.set)
            _log.debug("the prompts were not looked at", **unexpected(error))
            return
        if self._seen != before or moved & self._seen.keys():
            await self._told()

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
