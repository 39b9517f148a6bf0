"""SIGKILL of the service and of the broker while clients follow a run: each event once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

import hansard
from hansard.broker.lease import join, peek
from hansard.inspect.outline import outline
from tests.bus.brokers import free_ports
from tests.http.conftest import OPERATOR, TOKEN
from tests.http.test_live import events
from tests.http.test_reads import pairs, plain

WORKSPACE = "kills"
WRITES_S = 0.01
"""Time between two messages of the run."""


class Service:
    """A service in a process of its own, which may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        [self.port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        token = self.folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        command = (
            *(sys.executable, "-m", "hansard", "--data-dir", f"{self.folder}"),
            *("--workspace", WORKSPACE, "up", "--json"),
            *("--http", f"127.0.0.1:{self.port}", "--token-file", f"{token}"),
        )
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        self._process = process
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = await process.stdout.readline()
        assert msgspec.json.decode(line)["http"] == self.url

    async def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            await self._process.communicate()
            self._process = None


class Tab:
    """A client that comes back with its last id, as a browser's EventSource does."""

    def __init__(self, service: Service, run: str) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.streams = 0
        """Streams in which it received rows."""
        self._path = f"/api/v1/{WORKSPACE}/runs/{run}/live?after=0"
        self._last = ""
        self._service = service

    async def follow(self, is_done: Callable[[], bool]) -> None:
        """Follow the run until `is_done`."""
        async with httpx2.AsyncClient(base_url=self._service.url, timeout=10) as http:
            while not is_done():
                with contextlib.suppress(httpx2.TransportError):
                    await self._once(http, is_done)
                await asyncio.sleep(0.1)

    async def _once(self, http: httpx2.AsyncClient, is_done: Callable[[], bool]) -> None:
        headers = OPERATOR | ({"last-event-id": self._last} if self._last else {})
        async with http.stream("GET", self._path, headers=headers) as answer:
            if answer.status_code != 200:
                return
            has_rows = False
            async for event in events(answer):
                if event.name == "rows":
                    self.rows += pairs(event.data)
                    self.streams += not has_rows
                    has_rows = True
                self._last = event.id
                if is_done():
                    return


@contextlib.asynccontextmanager
async def _service(folder: Path) -> AsyncIterator[Service]:
    service = Service(folder)
    try:
        await service.start()
        yield service
    finally:
        await service.kill()


async def _more_rows(tabs: Sequence[Tab]) -> None:
    """Wait until every tab has received more rows: it is in the middle of a stream."""
    counts = [len(tab.rows) for tab in tabs]
    for _ in range(3_000):
        if all(len(tab.rows) > count for tab, count in zip(tabs, counts, strict=True)):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(counts)


@pytest.mark.slow
async def test_each_event_once(tmp_path: Path, rounds: Callable[[int, int], int]) -> None:
    """Every tab has the rows of the outline, each once, whatever was killed in between."""
    kills = rounds(1, 10)
    with join(tmp_path):
        async with (
            _service(tmp_path) as service,
            hansard.connect_async(WORKSPACE, data_dir=tmp_path) as record,
            record.run("w", agent="ada", role="r") as s,
        ):
            over = asyncio.Event()

            async def write() -> None:
                number = 0
                while not over.is_set():
                    await s.message("user", f"number {number}")
                    await asyncio.sleep(WRITES_S)
                    number += 1

            writing = asyncio.create_task(write())
            last = 0
            tabs = [Tab(service, s.run) for _ in range(3)]

            def reached(tab: Tab) -> bool:
                return bool(last) and bool(tab.rows) and tab.rows[-1][0] >= last

            following = [asyncio.create_task(tab.follow(partial(reached, tab))) for tab in tabs]
            for _ in range(kills):
                await _more_rows(tabs)
                await service.kill()
                await service.start()
                await _more_rows(tabs)
                broker = peek(tmp_path)
                assert broker is not None
                os.kill(broker.server_pid, signal.SIGKILL)
            await _more_rows(tabs)
            over.set()
            await writing
            whole = await outline(record.workspace, s.run, limit=50_000)
            last = whole.position
            async with asyncio.timeout(60):
                await asyncio.gather(*following)
            for tab in tabs:
                assert tab.rows == pairs(plain(whole.rows))
                assert tab.streams > kills
