"""A record whose model calls go through the proxy, in this process."""

import contextlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import hansard
from hansard.client.session import AsyncSession
from hansard.ext.models.proxy import ModelProxy, upstreams


class House:
    """A record, and sessions of one run in it that stand behind proxies."""

    def __init__(self, workspace: str, data_dir: Path) -> None:
        self._workspace, self._data_dir = workspace, data_dir
        self.run = self.url = ""
        self.proxy: ModelProxy
        self.session: AsyncSession

    @contextlib.asynccontextmanager
    async def proxied(
        self, mode: str | None = None, gate: Sequence[Any] = (), **options: Any
    ) -> AsyncIterator[str]:
        """Open a proxy of a new run, of it again, or of its replay; yield OpenAI's base URL."""
        connecting = hansard.connect_async(self._workspace, data_dir=self._data_dir, gate=gate)
        async with connecting as record:
            workflow, run = (None, self.run) if self.run else ("w", None)
            async with record.run(workflow, agent="models", run=run, mode=mode) as session:
                assert isinstance(session, AsyncSession)
                self.run, self.session = session.run, session
                self.proxy = ModelProxy(session, upstreams(os.environ), **options)
                async with self.proxy.serving() as self.url:
                    yield f"{self.url}/openai"

    async def steps(self) -> list[Any]:
        """Return the run's steps."""
        async with hansard.connect_async(self._workspace, data_dir=self._data_dir) as record:
            view = await record.state(self.run)
            return [*view.agents["models"].steps.values()]

    async def messages(self) -> list[Any]:
        """Return the run's messages."""
        async with hansard.connect_async(self._workspace, data_dir=self._data_dir) as record:
            return (await record.state(self.run)).agents["models"].messages

    async def items(self) -> list[list[dict[str, Any]]]:
        """Return the recorded items of the steps."""
        return [[json.loads(bytes(raw)) for raw in each.items] for each in await self.steps()]
