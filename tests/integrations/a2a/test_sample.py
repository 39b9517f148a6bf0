"""The A2A SDK's own sample agent, in an environment of its own: recorded, killed, replayed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.integrations.a2a.test_a2a import asking, responses_of
from tests.integrations.mcp.support import PACKAGES_S_MAX, Setup, free_port, listens, source_of

pytestmark = pytest.mark.thorough

HERE = Path(__file__).parent


def environment(folder: Path) -> Path:
    """Return the Python of an environment with the sample's requirements."""
    made = folder / "environment"
    bare = [sys.executable, "-m", "venv", "--without-pip", str(made)]
    subprocess.run(bare, check=True, timeout=PACKAGES_S_MAX)
    options = ["--quiet", "--require-hashes", "--requirement", str(HERE / "sample.txt")]
    python = made / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", *options]
    subprocess.run(install, check=True, timeout=PACKAGES_S_MAX)
    return python


@contextlib.asynccontextmanager
async def sample(
    python: Path, source: Path
) -> AsyncGenerator[tuple[str, asyncio.subprocess.Process]]:
    """Run the agent; yield its address and process."""
    port = free_port()
    others = ("--grpc-port", str(free_port()), "--compat-grpc-port", str(free_port()))
    process = await asyncio.create_subprocess_exec(
        *(str(python), str(source / "samples" / "hello_world_agent.py"), "--port", str(port)),
        *others,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await listens(port, process)
        yield f"http://127.0.0.1:{port}", process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_the_sdks_sample_is_called_once(setup: Setup, tmp_path: Path):
    """The SDK's sample is called once, through kills of either side."""
    python = await asyncio.to_thread(environment, tmp_path)
    source = await asyncio.to_thread(source_of, "a2a-sdk", HERE / "sdist.txt", tmp_path)
    async with sample(python, source) as (url, agent):
        async with asking(setup, url, "how are you") as process:
            assert process.stdout is not None
            assert "SUBMITTED" in (await process.stdout.readline()).decode()
            process.send_signal(signal.SIGKILL)
            await process.wait()
        live, error = await responses_of(setup, url, "how are you", "bye")
        assert error == ""
        agent.kill()
        await agent.wait()
        again, error = await responses_of(setup, url, "how are you", "bye", mode="offline")
        assert error == ""
    assert again == live
    tasks = [response["task"]["id"] for response in live if "task" in response]
    assert len(tasks) == 2
    assert "Goodbye" in json.dumps(live)
