"""Agents that ask each other over A2A: each one's part is on record, and done once or in doubt."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.faults import _warm
from tests.integrations.mcp.support import WAIT_S, Commands, Setup, at_socket

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).with_name("programs")


def python() -> str:
    """Runs programs that find the SDK imported."""
    return _warm.python("a2a.client", "a2a.server.request_handlers", "a2a.server.routes", "uvicorn")


@contextlib.asynccontextmanager
async def agent(
    setup: Setup, how: str = "plain"
) -> AsyncGenerator[tuple[str, asyncio.subprocess.Process]]:
    """Run the agent at a free port."""
    program = [python(), str(PROGRAMS / "agent.py"), str(setup.sent), how]
    async with at_socket(setup, program) as (url, process):
        yield url.removesuffix("/mcp"), process


@contextlib.asynccontextmanager
async def asking(
    setup: Setup, url: str, *texts: str, mode: str = ""
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run the program that asks."""
    process = await asyncio.create_subprocess_exec(
        *(python(), str(PROGRAMS / "asker.py"), url, "asked", mode, *texts),
        env=setup.env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def responses_of(
    setup: Setup, url: str, *texts: str, mode: str = ""
) -> tuple[list[Any], str]:
    """Return the responses that the program printed, and its stderr."""
    async with asking(setup, url, *texts, mode=mode) as process:
        out, err = await asyncio.wait_for(process.communicate(), WAIT_S)
    return [json.loads(line) for line in out.splitlines()], err.decode()


async def test_who_asks_is_killed_and_finds_the_task_again(setup: Setup):
    """After a kill the agent's existing task is found; no second request is sent."""
    async with agent(setup) as (url, _):
        async with asking(setup, url, "slow") as process:
            await setup.has_effects()
            process.send_signal(signal.SIGKILL)
            await process.wait()
        responses, error = await responses_of(setup, url, "slow")
        assert error == ""
    assert responses[0]["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert responses[0]["task"]["id"] == responses[1]["id"]
    assert setup.effects() == ["slow"]


@pytest.mark.thorough(quick="test_what_a_hostile_agent_answers_is_reported")
async def test_an_agent_that_died_leaves_it_in_doubt(setup: Setup, command: Commands):
    """A message to an agent that died is in doubt and not sent again."""
    async with agent(setup) as (url, process):
        responses, error = await responses_of(setup, url, "die")
        await process.wait()
        assert "A2AClientError" in error
    gone, error = await responses_of(setup, url, "die")
    assert gone == []
    assert "its reconcile function raised" in error
    assert "Network communication error" in error
    step = next(
        each
        for each in (await command("run", "trace", "asked", "--json")).lines
        if each["tool"] == "a2a:send_message"
    )
    assert step["status"] == "in_doubt"
    done = await command(
        "run", "settle", "asked", step["step"], "--happened", json.dumps(responses[:1])
    )
    assert done.code == 0
    assert setup.effects() == ["die"]


async def test_an_agents_part_is_a_run_that_names_who_asked(setup: Setup, command: Commands):
    """The agent's run records its input, calls and output, and names the caller's run and key."""
    async with agent(setup, "recorded") as (url, _):
        live, error = await responses_of(setup, url, "whales")
        assert error == ""
    runs = {run["workflow"]: run for run in (await command("runs", "--json")).lines}
    assert {*runs} == {"asking", "a2a"}
    labels = runs["a2a"]["labels"]
    assert (labels["a2a_caller_run"], labels["a2a_task"]) == ("asked", live[0]["task"]["id"])
    assert runs["a2a"]["status"] == "completed"
    sent = (await command("run", "trace", "asked", "--json")).lines[1]
    assert labels["a2a_caller_key"] == sent["key"]
    steps = (await command("run", "trace", runs["a2a"]["run"], "--json")).lines
    assert [step["tool"] for step in steps] == [
        *("a2a:message", "a2a:tell", "a2a:tell", "look_up", "a2a:tell", "a2a:tell")
    ]
    assert steps[0]["result"]["parts"] == [{"text": "whales"}]
    assert steps[3]["result"] == 6


@pytest.mark.thorough(quick="test_who_asks_is_killed_and_finds_the_task_again")
async def test_an_error_of_the_agent_is_raised_again(setup: Setup):
    """A refusal by the agent is replayed."""
    async with agent(setup, "recorded") as (url, _):
        _, error = await responses_of(setup, url, "refuse")
    _, again = await responses_of(setup, url, "refuse", mode="offline")
    message = "a2a.utils.errors.UnsupportedOperationError: not that"
    assert message in error.splitlines()
    assert message in again.splitlines()
    assert setup.effects() == ["refuse"]


async def _answering(
    response: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
        await reader.readexactly(int(length))
        writer.write(response)
        await writer.drain()
    writer.close()


OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: %b\r\n\r\n%b"
HOSTILE = {
    "no JSON": (OK % (b"application/json", b"{nonsense"), "in_doubt"),
    "no answer": (OK % (b"application/json", b"[1, 2]"), "in_doubt"),
    "cut": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{", "in_doubt"),
    "500": (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "in_doubt"),
    "401": (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", "failed"),
    "no HTTP": (b"\x00\x01\r\n\r\n", "in_doubt"),
    "an error": (
        OK
        % (
            b"application/json",
            b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"not so"}}',
        ),
        "failed",
    ),
}


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("kind", HOSTILE)
async def test_what_a_hostile_agent_answers_is_reported(setup: Setup, kind: str):
    """The error is the caller's, and the record says whether it may have been done."""
    from a2a.client import create_client, minimal_agent_card  # noqa: PLC0415 -- it is an extra that may be missing
    from a2a.types import Message, Part, SendMessageRequest  # noqa: PLC0415 -- it is an extra that may be missing
    from a2a.utils.errors import A2AError  # noqa: PLC0415 -- it is an extra that may be missing

    from hansard.ext.a2a import RecordedClient  # noqa: PLC0415 -- it takes that extra

    answer, status = HOSTILE[kind]
    server = await asyncio.start_server(partial(_answering, answer), "127.0.0.1", 0)
    card = minimal_agent_card(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", ["JSONRPC"])
    request = SendMessageRequest(message=Message(message_id="1", parts=[Part(text="x")]))
    async with (
        server,
        hansard.connect_async(setup.workspace, data_dir=setup.data_dir) as record,
        record.run("asking", run="asked") as session,
        RecordedClient(await create_client(card), session, "papers") as agent,
    ):
        with pytest.raises((A2AError, hansard.errors.NotDone)):
            _ = [each async for each in agent.send_message(request)]
        (step,) = (await record.state("asked")).agents[session.agent].steps.values()
    assert step.status.value == status
