"""Servers that ask for OAuth: clients log in through the proxy, or the proxy logs in itself."""

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
    ask,
    at_socket,
    served,
    wire,
)

pytestmark = pytest.mark.slow

if TYPE_CHECKING:  # see the support's
    import httpx2
    from mcp import Client

BACK = "http://127.0.0.1:1/back"
"""Redirect address of a client's login."""

NOT_FOUND = 404
GUARDED = Path(__file__).with_name("programs") / "guarded.py"


def guarded(setup: Setup, *how: str) -> AbstractAsyncContextManager[Any]:
    """Start the server; yield its address."""
    return at_socket(setup, [python(), str(GUARDED), *how])


def login(url: str) -> tuple[str, ...]:
    """Return the options by which the proxy logs in itself."""
    secret = ("--client-id", "lab", "--client-secret-env", "LAB_SECRET")
    return ("--url", url, *secret, "--issuer", url.removesuffix("/mcp"))


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_SECRET", "secret-of-the-lab")


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


@pytest.mark.parametrize("transport", ["pipes", "http"])
async def test_the_proxy_logs_in_itself_with_client_credentials(setup: Setup, transport: str):
    """The proxy logs in with a token for the server's own address, and again when revoked."""
    from mcp import Client  # noqa: PLC0415 -- see the support's

    async with guarded(setup, "strict") as (url, _):

        async def do(client: Client) -> list[str]:
            results: list[Any] = [await client.call_tool("add", {"a": 1, "b": 2})]
            await got(url.replace("/mcp", "/revoke"))
            calls = (client.call_tool("add", {"a": each, "b": 1}) for each in range(5))
            results += await asyncio.gather(*calls)
            return [each.content[0].text for each in results]

        if transport == "pipes":
            texts = await ask(setup, setup.proxy(*login(url), server=False), "legacy", do)
        else:
            proxy = setup.proxy(*login(url), "--http", 0, server=False)
            async with served(setup, proxy) as (front, _), Client(front, mode="legacy") as client:
                texts = await do(client)
        assert texts == ["3", "1", "2", "3", "4", "5"]
        assert (await got(url.replace("/mcp", "/resources"))).json() == [url, url]


async def test_what_a_login_lacks_is_reported(setup, command, monkeypatch):
    """A missing login, a wrong secret and incomplete options are reported."""
    async with guarded(setup) as (url, _):
        async with wire(setup, setup.proxy("--url", url, server=False)) as client:
            why = (await client.greet())["error"]["message"]
            assert "HTTP 401" in why
            assert "--client-id" in why
        monkeypatch.setenv("LAB_SECRET", "wrong")
        async with wire(setup, setup.proxy(*login(url), server=False)) as client:
            why = (await client.greet())["error"]["message"]
            assert "the login at 127.0.0.1 failed" in why
            assert "invalid_client" in why
    ran = await command("mcp", "proxy", "--url", "http://127.0.0.1:1/mcp", "--client-id", "lab")
    assert ran.code != 0
    assert "--client-secret-env" in ran.err
