"""MCP's own conformance suites against the record's server, where they need no special tools."""

from __future__ import annotations

import asyncio
import platform
import sys
from pathlib import Path

import pytest

from tests.integrations.mcp.support import Setup, at_socket, programs
from tests.integrations.mcp.test_conformance import SUITES, scored
from tests.service.mcp.test_http import TOKEN, serving

pytestmark = pytest.mark.thorough

BEARER = Path(__file__).with_name("bearer.py")

OF_EACH = {"tools-list", "tools-call-error", "resources-list", "prompts-list"} | {
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
}
"""Scenarios that need no tool, resource or prompt of a suite's own, whatever the version."""

OF_2025 = OF_EACH | {"server-initialize", "ping", "logging-set-level"}
"""Scenarios of protocol versions with a handshake."""

OURS = (
    OF_2025,
    OF_2025 | {"server-session-lifecycle"},
    OF_EACH
    | {"sep-2164-resource-not-found", "caching", "http-header-validation"}
    | {f"input-required-result-{each}" for each in ("unsupported-methods", "validate-input")}
    | {
        f"input-required-result-{each}"
        for each in ("ignore-extra-params", "missing-input-response")
    },
)
"""Scenarios of each suite. Two checks of `server-stateless` need a tool of the suite's own."""

STATELESS = (26, 2)


async def test_it_conforms(setup: Setup, tmp_path: Path):
    """Each scenario of both suite versions passes."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("the suite's Node is locked for Linux on x86_64 alone: it was not run")
    folder = tmp_path / "npm"
    folder.mkdir()
    modules = (await asyncio.to_thread(programs, folder)).parent
    scores: dict[str, tuple[int, int]] = {}
    async with (
        serving(setup, tmp_path) as (url, _),
        at_socket(setup, [sys.executable, str(BEARER), url, TOKEN]) as (front, _),
    ):
        for suite, ours in zip(SUITES, OURS, strict=True):
            scores = await scored(modules, suite, front, tmp_path)
            failed = {name: scores.get(name) for name in ours if scores.get(name, (0, 1))[1]}
            assert failed == {}, suite
            assert all(scores[name][0] for name in ours), suite
    assert scores["server-stateless"] == STATELESS
