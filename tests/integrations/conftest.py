"""A record, a server with effects, and the command line."""

import asyncio
from pathlib import Path

import pytest

from tests.cli.support import Call, Ran
from tests.integrations.mcp.support import Commands, Setup


@pytest.fixture
def setup(data_dir: Path, workspace: str, tmp_path: Path) -> Setup:
    """Return a fresh workspace, and a server without effects so far."""
    return Setup(data_dir, workspace, tmp_path / "sent.txt")


@pytest.fixture
def command(call: Call) -> Commands:
    """Return a function that runs the command line from inside a loop."""

    async def run(*arguments: object) -> Ran:
        return await asyncio.to_thread(call, *arguments)

    return run
