"""HTTP clients of a server command are served like its clients over pipes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults._warm import python
from tests.integrations.mcp.support import TOGETHER, WAIT_S, Commands, Setup, text
from tests.integrations.mcp.test_bridge import CALLED_S, DOUBLING
from tests.integrations.mcp.test_http import ERAS
from tests.integrations.mcp.test_http_clients import asks, called, headed, port, posted
from tests.integrations.mcp.test_several import servers

pytestmark = pytest.mark.slow

if TYPE_CHECKING:  # see the support's
    from mcp import Client


async def test_clients_of_both_eras_get_their_own_answers_at_the_same_time(setup: Setup):
    """Clients of both eras with equal ids get their own answers and progress."""

    async def many(client: Client) -> tuple[list[str], list[str | None]]:
        heard: list[str | None] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            del progress, total
            heard.append(message)

        calls = [client.call_tool("add", {"a": each, "b": each}) for each in range(TOGETHER)]
        slow = client.call_tool("slow", {"seconds": 0.2}, progress_callback=note)
        *results, _ = await asyncio.gather(*calls, slow)
        return [str(each.structured_content) for each in results], heard

    async with port(setup, "--", *setup.server) as (front, _):
        results = await asyncio.gather(*(asks(front, era, many) for era in (*ERAS, *ERAS)))
    stages = [f"stage {number}" for number in range(3)]
    assert results == [([str({"result": 2 * each}) for each in range(TOGETHER)], stages)] * 4


async def test_a_late_answer_is_not_given_to_another_client_with_an_equal_id(setup: Setup):
    """A late answer never goes to another client with an equal request id."""
    async with port(setup, "--", python(), str(DOUBLING), "new") as (front, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(CALLED_S):
                await posted(front, called("held"), **headed("held"))
        answer = frame_of(await posted(front, called("next"), **headed("next")))
    assert (answer["id"], text(answer["result"])) == (1, "of next")


async def test_a_server_that_dies_is_begun_again_for_the_next(setup: Setup, command: Commands):
    """A server that died is restarted for the next client; its call is in doubt once."""

    async def dies(client: Client) -> str:
        return text_of(await client.call_tool("die", {}))

    async with port(setup, "--", *setup.server) as (front, _):
        answer = await posted(front, called("die"), **headed("die"))
        assert "has ended (exit code 3)" in text(frame_of(answer)["result"])
        answer = await posted(front, called("add", a=1, b=2), **headed("add"))
        assert frame_of(answer)["result"]["structuredContent"] == {"result": 3}
        for wrong, status in (({"mcp-session-id": "no-such"}, 404), ({}, 400)):
            old = {"mcp-protocol-version": "2025-11-25", **wrong}
            ping = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
            assert (await posted(front, ping, **old)).status_code == status
        assert await asks(front, "legacy", adds) == str({"result": 3})
    async with port(setup, "--", *setup.server) as (front, _):
        assert "has ended (exit code 3)" in await asks(front, "legacy", dies)
        assert await asks(front, "legacy", adds) == str({"result": 3})
    assert setup.effects() == ["nobody: the end"] * 2
    steps = (await command("run", "trace", "last", "--json")).lines
    assert [each["status"] for each in steps if each["tool"] == "die"] == ["in_doubt"]


async def adds(client: Client) -> str:
    """Call `add` and return the sum."""
    return str((await client.call_tool("add", {"a": 1, "b": 2})).structured_content)


def text_of(result: Any) -> str:
    """Return the text of a result."""
    return text(json.loads(result.model_dump_json(by_alias=True)))


def frame_of(answer: Any) -> dict[str, Any]:
    """Return the last frame of a response, whether it is a body or a stream."""
    body: str = answer.text
    frame: dict[str, Any] = json.loads(body.rpartition("data: ")[2] or body)
    return frame


async def test_several_servers_have_one_port(setup: Setup, monkeypatch: pytest.MonkeyPatch):
    """Several servers share a port; their names prefix their tools."""
    monkeypatch.setenv("PYTHON", python())

    async def both(client: Client) -> set[str]:
        listed = await client.list_tools()
        first = await client.call_tool("one__add", {"a": 1, "b": 2})
        assert first.structured_content == {"result": 3}
        return {each.name for each in listed.tools if each.name.endswith("__add")}

    async with asyncio.timeout(WAIT_S), port(setup, "--servers", servers(setup)) as (front, _):
        assert await asks(front, "legacy", both) == {"one__add", "two__add"}
