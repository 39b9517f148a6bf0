"""Servers that ask for OAuth: clients log in through the proxy."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.faults._warm import python
from tests.integrations.mcp.support import (
    NO_TLS,
    SCENARIO_S,
    Commands,
    Setup,
    at_socket,
    served,
    wire,
)

pytestmark = pytest.mark.slow

if TYPE_CHECKING:  # see the support's
    import httpx2

BACK = "http://127.0.0.1:1/back"
"""Redirect address of a client's login."""

NOT_FOUND = 404
GUARDED = Path(__file__).with_name("programs") / "guarded.py"


def guarded(setup: Setup, *how: str) -> AbstractAsyncContextManager[Any]:
    """Start the server; yield its address."""
    return at_socket(setup, [python(), str(GUARDED), *how])


def oauth(url: str) -> httpx2.Auth:
    """Return the SDK's login of a client, whose user agrees at once."""
    import httpx2  # noqa: PLC0415 -- see the support's
    from mcp.client.auth import OAuthClientProvider  # noqa: PLC0415 -- see the support's
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata  # noqa: PLC0415 -- see the support's
    from pydantic import AnyUrl  # noqa: PLC0415 -- see the support's

    kept: dict[str, Any] = {}
    back: dict[str, list[str]] = {}

    class Storage:
        async def get_tokens(self) -> Any:
            return kept.get("tokens")

        async def set_tokens(self, tokens: Any) -> None:
            kept["tokens"] = tokens

        async def get_client_info(self) -> Any:
            return kept.get("client")

        async def set_client_info(self, client_info: Any) -> None:
            kept["client"] = client_info

    async def browse(address: str) -> None:
        async with httpx2.AsyncClient(verify=NO_TLS) as browser:
            while not address.startswith(BACK):
                address = (await browser.get(address)).headers["location"]
        back.update(parse_qs(urlsplit(address).query))

    async def callback() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=back["code"][0], state=back["state"][0])

    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(BACK)], client_name="test")
    return OAuthClientProvider(url, metadata, Storage(), browse, callback)


async def got(url: str) -> httpx2.Response:
    """Fetch an address."""
    import httpx2  # noqa: PLC0415 -- see the support's

    async with httpx2.AsyncClient(verify=NO_TLS, timeout=30) as http:
        return await http.get(url)


async def logged_in(url: str) -> str:
    """Log in as a client, and return what a call of `add` gives."""
    import httpx2  # noqa: PLC0415 -- see the support's
    from mcp import Client  # noqa: PLC0415 -- see the support's
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 -- see the support's

    async with (
        httpx2.AsyncClient(auth=oauth(url), verify=NO_TLS, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
    ):
        content: Any = (await client.call_tool("add", {"a": 1, "b": 2})).content[0]
        return str(content.text)


async def test_a_client_logs_in_at_the_servers_authorization_server_through_the_proxy(
    setup: Setup, command: Commands
):
    """A client finds the metadata at the proxy's address, and its token is not recorded."""
    async with (
        guarded(setup) as (url, _),
        served(setup, setup.proxy("--url", url, "--http", 0, server=False)) as (front, _),
        asyncio.timeout(SCENARIO_S),
    ):
        described = front.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        assert await logged_in(front) == "3"
        metadata = (await got(described)).json()
        assert metadata["resource"] == front
        assert metadata["authorization_servers"] == [url.removesuffix("/mcp")]
        assert (await got(url.replace("/mcp", "/resources"))).json() == [front]
        assert (await got(front.replace("/mcp", "/authorize"))).status_code == NOT_FOUND
    steps = (await command("run", "trace", "last", "--json")).out
    assert '"add"' in steps
    assert "Bearer" not in steps


async def test_a_client_logs_in_at_a_server_without_metadata_through_the_proxy(setup: Setup):
    """A client logs in by the default endpoints of 2025-03-26, at the proxy's address."""
    async with (
        guarded(setup, "bare") as (url, _),
        served(setup, setup.proxy("--url", url, "--http", 0, server=False)) as (front, _),
        asyncio.timeout(SCENARIO_S),
    ):
        assert (await got(front.replace("/mcp", "/authorize"))).status_code == NOT_FOUND
        assert await logged_in(url) == "3"
        assert await logged_in(front) == "3"
        answer = await got(front.replace("/mcp", "/authorize?client_id=x"))
        assert answer.headers["location"] == url.replace("/mcp", "/authorize?client_id=x")


async def test_what_a_login_lacks_is_reported(setup: Setup):
    """A missing login is reported with its remedies."""
    async with (
        guarded(setup) as (url, _),
        wire(setup, setup.proxy("--url", url, server=False)) as client,
    ):
        why = (await client.greet())["error"]["message"]
        assert "HTTP 401" in why
        assert "--token-env" in why
