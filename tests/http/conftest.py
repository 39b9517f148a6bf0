"""A listener of a workspace of its own, with a client and the trusted record."""

from __future__ import annotations

import contextlib
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
from hansard.service.http.app import listening

TOKEN = "a-token-of-enough-characters"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}
"""Header of the operator's requests."""


class Lab(msgspec.Struct):
    """A listener, a client of it, and a record of its workspace."""

    http: httpx2.AsyncClient
    record: hansard.AsyncRecord
    name: str
    folder: Path
    config: Any = None
    broker: Any = None

    async def post(self, path: str, body: Any, key: str = "") -> httpx2.Response:
        """Post a write, with a new key if there is none."""
        headers = {"idempotency-key": key or uuid4().hex}
        return await self.http.post(self.at(path), json=body, headers=headers)

    @contextlib.asynccontextmanager
    async def listening(self, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
        """Yield a client of another listener of the same broker."""
        served = listening(
            self.config, self.broker, Address("127.0.0.1", 0), token=TOKEN, **options
        )
        async with (
            served as url,
            httpx2.AsyncClient(base_url=url, timeout=30, headers=OPERATOR) as http,
        ):
            yield http

    def at(self, path: str) -> str:
        """Return the address of a path of the workspace."""
        return f"/api/v1/{self.name}{path}"


@pytest.fixture(scope="session")
def broker_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the data directory of a broker that all tests of this folder share."""
    folder = tmp_path_factory.mktemp("http")
    with join(folder):
        yield folder


@pytest.fixture
async def lab(broker_dir: Path) -> AsyncIterator[Lab]:
    """Yield a listener of a workspace of its own."""
    name = f"lab-{uuid4().hex[:12]}"
    config = settings.load(workspace=name, data_dir=broker_dir)
    broker = await find_broker(config)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(broker.release)
        served = listening(config, broker, Address("127.0.0.1", 0), token=TOKEN)
        url = await stack.enter_async_context(served)
        http = httpx2.AsyncClient(base_url=url, timeout=30, headers=OPERATOR)
        await stack.enter_async_context(http)
        opened = hansard.connect_async(name, data_dir=broker_dir)
        yield Lab(http, await stack.enter_async_context(opened), name, broker_dir, config, broker)
