"""Limits of the HTTP service: places of one principal, and connections that send nothing."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from hansard.service.http import app
from tests.http.conftest import Lab
from tests.http.test_login import reader

SLOW = "SELECT count(*) FROM range(100000000000) a"


@pytest.mark.slow
async def test_a_principal_keeps_no_other_out(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its queries share few places; the operator's requests are answered meanwhile."""
    monkeypatch.setattr(app, "WAIT_S", 0.5)
    ada = await reader(lab, tmp_path)
    headers = {"authorization": f"Bearer {ada.token}"}
    async with httpx2.AsyncClient(base_url=lab.http.base_url, headers=headers, timeout=60) as http:
        many = [
            asyncio.create_task(http.get(lab.at("/sql"), params={"statement": SLOW}))
            for _ in range(2 * app.HANDLED_MAX)
        ]
        await asyncio.sleep(1)
        began_s = time.monotonic()
        assert (await lab.http.get(lab.at("/runs"))).status_code == 200
        assert time.monotonic() - began_s < 5
        for each in many:
            each.cancel()
        await asyncio.wait(many)


@pytest.fixture
def files() -> Iterator[int]:
    """Raise the limit of open files while the test runs; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 21_000 if hard == resource.RLIM_INFINITY else min(hard, 21_000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    yield most
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.thorough(quick="test_a_principal_keeps_no_other_out")
async def test_10_000_half_open_connections_cost_little(lab: Lab, files: int):
    """The oldest are closed; requests are answered meanwhile, from old and new connections."""
    port, before = lab.http.base_url.port, _memory()
    with contextlib.ExitStack() as stack:
        for number in range(min(10_000, files - 3_000)):
            each = stack.enter_context(socket.socket())
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                each.connect(("127.0.0.1", port))
            if number % 2:
                with contextlib.suppress(OSError):
                    each.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            if number % 500 == 0:
                async with asyncio.timeout(10):
                    assert (await lab.http.get("/api/v1/me")).status_code == 200
        async with httpx2.AsyncClient(base_url=lab.http.base_url, timeout=10) as new:
            assert (await new.get("/healthz")).status_code == 200
        assert _memory() - before < 64 * 1024 * 1024


def _memory() -> int:
    """Return the resident memory of this process, in bytes."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()
