"""A client of one era and a server of the other understand each other through the proxy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.faults._warm import python
from tests.integrations.mcp.support import Setup, ask, everything, text, wire

pytestmark = pytest.mark.slow

ONE_ERA = Path(__file__).with_name("programs") / "one_era.py"
DOUBLING = ONE_ERA.with_name("doubling.py")
CALLED_S = 1.0
"""Seconds for a call to reach its server."""

NEW_ERA = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
}


def speaking(setup: Setup, era: str) -> list[str]:
    """Return the command of the server of tools that speaks one era only."""
    return [python(), str(ONE_ERA), era, str(setup.sent), python()]


@pytest.mark.parametrize(
    ("client", "server"),
    [("legacy", "new"), pytest.param("2026-07-28", "old", marks=pytest.mark.thorough)],
)
async def test_the_answers_are_those_of_a_server_of_the_same_era(setup, command, client, server):
    """Each request is answered as by a server of the client's era, and again offline."""
    direct = await ask(setup, setup.server, client, everything)
    effects = setup.effects()
    setup.sent.unlink()
    proxied = [*setup.proxy(server=False), "--", *speaking(setup, server)]
    assert await ask(setup, proxied, client, everything) == direct
    assert setup.effects() == effects
    offline = setup.proxy("--run", "last", "--mode", "offline", server=False)
    assert await ask(setup, offline, client, everything) == direct
    assert setup.effects() == effects
    steps = (await command("run", "trace", "last", "--json")).lines
    assert {step["status"] for step in steps if step["tool"] != "fail"} == {"completed"}


@pytest.mark.parametrize("server", ["new", "old"])
async def test_a_doubled_answer_does_not_count_for_the_request_that_is_sent_again(setup, server):
    """A repeated answer does not count for the request that is sent again."""
    command = [*setup.proxy(server=False), "--", python(), str(DOUBLING), server]
    async with wire(setup, command) as client:
        if server == "new":
            await client.greet(elicitation={})
            number = await client.begin("tools/call", name="send", arguments={})
        else:
            number = await client.begin("tools/list", _meta=NEW_ERA)
        frame = await client.hear()
        if server == "new":
            assert frame["method"] == "elicitation/create"
            answer = {"action": "accept", "content": {"sure": True}}
            line = {"jsonrpc": "2.0", "id": frame["id"], "result": answer}
            await client.say(json.dumps(line).encode())
            frame = await client.hear()
        assert (frame["id"], text(frame["result"])) == (number, "the answer")
        number = await client.begin("ping")  # nothing else arrived meanwhile
        assert (await client.hear())["id"] == number


async def test_a_cancelled_request_is_cancelled_under_the_id_that_the_server_has(setup: Setup):
    """A cancellation has the proxy's own id, since the server does not know the client's."""
    command = [*setup.proxy(server=False), "--", python(), str(DOUBLING), "new"]
    async with wire(setup, command) as client:
        await client.greet()
        number = await client.begin("tools/call", name="held", arguments={})
        await asyncio.sleep(CALLED_S)
        gone = {"method": "notifications/cancelled", "params": {"requestId": number}}
        await client.say(json.dumps({"jsonrpc": "2.0", **gone}).encode())
        assert (await client.hear())["params"]["data"] == "its own"
