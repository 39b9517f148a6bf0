"""A listener of OTLP with a client and a record of its workspace."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

import hansard
from hansard import settings
from hansard.broker.lease import join
from hansard.client.listening import Address
from hansard.client.opening import find_broker
from hansard.ext.otel import receiver
from hansard.service.http.app import listening


class Door(msgspec.Struct):
    """A listener, a client of it, and a record of its workspace."""

    http: httpx2.AsyncClient
    record: hansard.AsyncRecord
    url: str
    place: tuple[str, ...]

    async def post(self, content: Any, path: str = "/v1/traces", **headers: str) -> httpx2.Response:
        """Post a request."""
        sent = {"content-type": "application/json"} | {
            name.replace("_", "-"): text for name, text in headers.items()
        }
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return await self.http.post(path, content=body, headers=sent)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return list((await self.record.sql(statement)).rows)

    async def ended(self, run: str) -> str:
        """Wait for a run, which is made when its trace is quiet."""
        for _ in range(200):
            if await self.rows(f"SELECT 1 FROM runs WHERE run = '{run}' AND status <> 'open'"):
                return run
            await asyncio.sleep(0.05)
        raise AssertionError(await self.rows("SELECT * FROM traces"))


@pytest.fixture(scope="session")
def broker_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the data directory of a broker that all tests of this folder share."""
    folder = tmp_path_factory.mktemp("otel")
    with join(folder):
        yield folder


@pytest.fixture
async def door(broker_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    """Yield a door to a workspace of its own, whose traces become runs at once."""
    monkeypatch.setattr(receiver, "ROOT_QUIET_S", 0.1)
    workspace = f"lab-{uuid4().hex[:12]}"
    config = settings.load(workspace=workspace, data_dir=broker_dir)
    broker = await find_broker(config)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(broker.release)
        url = await stack.enter_async_context(listening(config, broker, Address("127.0.0.1", 0)))
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=url, timeout=30))
        opened = hansard.connect_async(workspace, data_dir=broker_dir)
        record = await stack.enter_async_context(opened)
        place = ("--data-dir", str(broker_dir), "--workspace", workspace)
        yield Door(http, record, url, place)
