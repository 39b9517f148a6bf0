"""The record's server over streamable HTTP: a token identifies the caller; the rest is as over
stdio.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from hansard.agents.access import principals
from hansard.broker import access
from hansard.bus.portal import portal
from hansard.client.listening import Address
from hansard.domain.errors import BadValue
from tests.faults._warm import python
from tests.integrations.mcp.support import NO_TLS, SCENARIO_S, WAIT_S, Setup, Wire, served
from tests.service.mcp.test_serve import ROLES, SECRET, Team
from tests.service.support import House

pytestmark = pytest.mark.later

if TYPE_CHECKING:  # see the support's
    import httpx2

TOKEN = "a token of thirty-two characters"


@asynccontextmanager
async def serving(
    setup: Setup, folder: Path, port: int = 0, **options: str
) -> AsyncGenerator[tuple[str, asyncio.subprocess.Process]]:
    """Run the service; yield its address and process once it listens, and stop it at the end."""
    up = [python(), "-m", "hansard", "-w", setup.workspace, "up", "--http", str(port)]
    command = [*up, "--token-file", str(token_file(folder))]
    async with served(setup, command, r"http://[^ /]+") as (url, process):
        yield f"{url}/mcp?{urlencode({'tools': 'all'} | options)}", process


def token_file(folder: Path) -> Path:
    """Return a file with the token."""
    file = folder / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    return file


@asynccontextmanager
async def asking(url: str, token: str, mode: str, **more: Any) -> AsyncGenerator[Team]:
    """Yield the SDK's client."""
    import httpx2  # noqa: PLC0415 -- it is an extra that may be missing
    from mcp import Client  # noqa: PLC0415 -- it is an extra that may be missing
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 -- it is an extra that may be missing

    async with (
        asyncio.timeout(SCENARIO_S),
        httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"}, timeout=WAIT_S, verify=NO_TLS
        ) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **more) as client,
    ):
        yield Team(client)


async def posted(url: str, **headers: str) -> httpx2.Response:
    """Return the response to a request for the list of agents."""
    import httpx2  # noqa: PLC0415 -- it is an extra that may be missing

    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accepted = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(timeout=WAIT_S, verify=NO_TLS) as http:
        return await http.post(url, json=ping, headers=accepted | headers)


@pytest.mark.slow
async def test_the_query_names_the_agent_and_its_tools(setup: Setup, tmp_path: Path):
    """A broken or large request is refused, as is an option or a group that does not exist."""
    import httpx2  # noqa: PLC0415 -- it is an extra that may be missing

    bearer = {"Authorization": f"Bearer {TOKEN}"}
    async with serving(setup, tmp_path, agent="ada", prefix="h") as (url, _):
        plain = url.partition("?")[0]
        for query, fact in (("tool=all", "tools"), ("tools=nothing", "neither a group nor a tool")):
            refused = await posted(f"{plain}?{query}", **bearer)
            assert refused.status_code == 400
            assert fact in refused.text
        async with httpx2.AsyncClient(timeout=WAIT_S, headers=bearer, verify=NO_TLS) as http:
            typed = {"Content-Type": "application/json", "Accept": "*/*"}
            broken = await http.post(url, content=b"{nonsense", headers=typed)
            large = await http.post(url, content=b" " * (5 * 2**20), headers=typed)
        assert (broken.status_code, large.status_code) == (400, 413)
        async with asking(url, TOKEN, "auto") as ada:
            assert not isinstance(ada.client, Wire)
            names = {each.name for each in (await ada.client.list_tools()).tools}
            begun = await ada.ask("h_start_run", workflow="w")
        assert all(each.startswith("h_") for each in names)
        assert begun["structuredContent"]["result"]["agent"] == "ada"


def revoke(house: House, who: str) -> None:
    """Take a principal's tokens back."""
    with house.trusted() as record:
        portal().run(principals.revoke_all(record.workspace, who, reason="left"))


async def until_refused(client: Team, arguments: dict[str, Any]) -> str:
    """Return the error of a client whose credentials are refused: a result, or HTTP."""
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 -- it is an extra that may be missing

    for _ in range(200):
        try:
            result = await client.ask("board_entry", **arguments)
        except MCPError as error:
            return str(error)
        if result.get("isError"):
            return json.dumps(result)
        await asyncio.sleep(0.1)
    pytest.fail("it is not refused")


async def until_turned_away(url: str, token: str) -> httpx2.Response:
    """Return the first 401 for a token, however long the refusal takes to arrive."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await posted(url, Authorization=f"Bearer {token}")
            if answer.status_code == 401:
                return answer
            await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_each_token_has_its_role_and_no_other(setup: Setup, house: House, tmp_path: Path):
    """Each token has its own role; a revoked one is refused, and the other keeps working."""
    await asyncio.to_thread(house.apply, ROLES)
    files = [
        await asyncio.to_thread(house.login, name, role)
        for name, role in (("rob", "reader"), ("wanda", "writer"))
    ]
    restricted = Setup(house.data_dir, house.workspace, setup.sent)
    tokens = [access.load(file).token for file in files]
    async with AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(serving(restricted, tmp_path))
        rob, wanda = [
            await stack.enter_async_context(asking(url, token, "auto")) for token in tokens
        ]
        run = (await wanda.get("start_run", workflow="papers"))["run_id"]
        await wanda.get("board_put", run_id=run, key="plans/secret", value=SECRET)
        await wanda.get("board_put", run_id=run, key="findings/1", value="whales")
        heard = [
            await rob.ask("board_entry", run_id=run, key="findings/1"),
            await rob.ask("board_keys", run_id=run),
            await rob.ask("board_entry", run_id=run, key="plans/secret"),
            await rob.ask("view_run", run_id=run),
        ]
        arguments = {"run_id": run, "key": "plans/secret"}
        assert (await wanda.get("board_entry", **arguments))["value"] == SECRET
        await asyncio.to_thread(revoke, house, "wanda")
        refused = await until_refused(wanda, arguments)
        assert SECRET not in refused
        for turned_away in [await until_turned_away(url, tokens[1])] + [
            await posted(url, Authorization=f"Bearer {tokens[1]}") for _ in range(2)
        ]:
            assert turned_away.status_code == 401
            assert turned_away.headers["www-authenticate"] == "Bearer"
            assert "no valid login" in turned_away.json()["detail"]
        assert (await posted(url, Authorization=f"Bearer {tokens[0]}")).status_code != 401
        assert not (await rob.ask("board_keys", run_id=run)).get("isError")
    shown = json.dumps(heard)
    assert "whales" in shown
    assert "swordfish" not in shown
    assert heard[1]["structuredContent"]["result"] == ["findings/1"]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("8931", "127.0.0.1", 8931), ("192.0.2.1:0", "192.0.2.1", 0), ("[::1]:80", "::1", 80)],
)
def test_an_address_is_a_port_and_perhaps_a_host(text: str, host: str, port: int):
    """This machine's own, where none is named."""
    assert Address.of(text) == Address(host, port)


@pytest.mark.parametrize("text", ["", "http", "1.2.3.4:", "70000", "-1", "1:2:x"])
def test_what_is_no_address_is_refused(text: str):
    """The error has the valid form."""
    with pytest.raises(BadValue, match="PORT"):
        Address.of(text)


@pytest.mark.slow
async def test_a_token_has_a_bounded_number_of_sessions(setup: Setup, tmp_path: Path):
    """Above the bound a session is refused, and those that are open go on."""
    import httpx2  # noqa: PLC0415 -- it is an extra that may be missing

    from hansard.service.http.mcp import SESSIONS_MAX  # noqa: PLC0415 -- it is of an extra

    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
    async with (
        asyncio.timeout(SCENARIO_S),
        serving(setup, tmp_path) as (url, _),
        httpx2.AsyncClient(timeout=WAIT_S, headers=headers, verify=NO_TLS) as http,
    ):
        begun = [await http.post(url, json=begin) for _ in range(SESSIONS_MAX)]
        assert {each.status_code for each in begun} == {200}
        session = {"mcp-session-id": begun[0].headers["mcp-session-id"]}
        assert (await http.post(url, json=begin)).status_code == 503
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await http.post(url, json=ping, headers=session)).status_code == 200
        await http.delete(url, headers=session)
        assert (await http.post(url, json=begin)).status_code == 200
