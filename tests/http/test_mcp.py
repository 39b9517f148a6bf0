"""The record as an MCP server beside the other routes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from hansard.agents.access import principals
from hansard.service.http import mcp
from hansard.service.running import served
from tests.http.conftest import TOKEN, Lab
from tests.http.test_login import reader
from tests.late import LATE

if LATE:
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client


pytestmark = pytest.mark.slow


@contextlib.asynccontextmanager
async def client_of(
    lab: Lab, token: str, workspace: str = "", query: str = ""
) -> AsyncIterator[Client]:
    """Yield a client of the server of a token."""
    base = str(lab.http.base_url).rstrip("/")
    where = (f"{base}/workspaces/{workspace}/mcp" if workspace else f"{base}/mcp") + query
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=30) as http,
        Client(streamable_http_client(where, http_client=http)) as client,
    ):
        yield client


async def test_the_operator_is_served(lab: Lab):
    """Its tools write to the same record; a wrong token is refused."""
    async with client_of(lab, TOKEN) as client:
        names = {each.name for each in (await client.list_tools()).tools}
        assert {"start_run", "board_put"} <= names
        begun = await client.call_tool("start_run", {"workflow": "over-mcp"})
        run = begun.structured_content["result"]["run_id"]
    assert [each for each, _ in await lab.record.runs(workflow="over-mcp")] == [run]
    async with client_of(lab, TOKEN, lab.name, "?tools=board&tools=sql") as client:
        names = {each.name for each in (await client.list_tools()).tools}
        assert {"sql", "board_put"} <= names
    for headers in ({"authorization": "Bearer other"}, {"authorization": ""}):
        assert (await lab.http.post("/mcp", json={}, headers=headers)).status_code == 401
    assert (await lab.http.post("/mcp", headers={"host": "evil.example"})).status_code == 421


async def test_a_principal_is_served_in_its_role(lab: Lab, tmp_path: Path):
    """It sees what its role sees, and its token's end refuses the next request."""
    ada = await reader(lab, tmp_path)
    async with served(lab.config, lab.broker, lambda _: None) as is_served:
        assert is_served
        async with client_of(lab, ada.token, lab.name) as client:
            assert (await client.list_tools()).tools
            begun = await client.call_tool("start_run", {"workflow": "over-mcp"})
            run = begun.structured_content["result"]["run_id"]
            state = await lab.record.state(run)
            assert (state.agent("ada").role, [*state.agents]) == ("reader", ["ada"])
        for other in ("agent=bob", "role=boss"):
            async with client_of(lab, ada.token, lab.name, f"?{other}") as client:
                refused = await client.call_tool("start_run", {"workflow": "over-mcp"})
                assert refused.is_error
        assert [each for each, _ in await lab.record.runs(workflow="over-mcp")] == [run]
        await principals.revoke_all(lab.record.workspace, "ada")
        await asyncio.sleep(0.5)
        headers = {"authorization": f"Bearer {ada.token}"}
        where = f"/workspaces/{lab.name}/mcp"
        assert (await lab.http.post(where, json={}, headers=headers)).status_code == 401


async def test_a_principal_ends_no_client_of_another(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """However many clients it begins by other options, the operator's idle one stays."""
    monkeypatch.setattr(mcp, "CLIENTS_MAX", 3)
    monkeypatch.setattr(mcp, "CLIENTS_OF_ONE_MAX", 2)
    ada = await reader(lab, tmp_path)
    about = {"protocolVersion": "2025-06-18", "capabilities": {}}
    params = about | {"clientInfo": {"name": "x", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    accept = {"accept": "application/json, text/event-stream"}
    begun = await lab.http.post("/mcp", json=begin, headers=accept)
    headers = accept | {"authorization": f"Bearer {ada.token}"}
    for number in range(4):
        where = f"/workspaces/{lab.name}/mcp?prefix=p{number}"
        assert (await lab.http.post(where, json=begin, headers=headers)).status_code == 200
    session = accept | {"mcp-session-id": begun.headers["mcp-session-id"]}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert (await lab.http.post("/mcp", json=ping, headers=session)).status_code == 200
