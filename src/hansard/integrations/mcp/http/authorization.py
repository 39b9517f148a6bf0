"""OAuth of a server at a URL: logins of clients through the proxy, and a login of the proxy's own.

A client accepts protected resource metadata (RFC 9728) only for the address that it connects to. So
the proxy serves the server's metadata with its own address as the resource; the client logs in at
the server's authorization server, and its token passes through. The MCP SDK, whose flows these are,
is imported once a server asks for authorization: that takes a second.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

import httpx2
import msgspec

from hansard.agents.errors import NotDone
from hansard.domain.errors import BadValue
from hansard.integrations.mcp.servers import Login
from hansard.integrations.mcp.upstream import ServerGone

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

WELL_KNOWN = "/.well-known/oauth-protected-resource"
"""Before the path of a resource: where its metadata is (RFC 9728, section 3.1)."""

CHALLENGES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"""Statuses of an answer that may ask for authorization."""

METADATA_S = 10.0
"""Seconds for a server to answer with its metadata."""

LEGACY_PATHS = ("/authorize", "/token", "/register")
"""Endpoints of a server without any metadata, at its own origin (2025-03-26, "Fallbacks for Servers
without Metadata Discovery"). A client looks for them at the proxy's.
"""

OF_A_TOKEN_REQUEST = ("accept", "authorization", "content-type")
"""Headers that are passed on with a request to one of them."""

_LOCATION = re.compile(r'(\bresource_metadata=)(?:"([^"]*)"|([^\s,"]+))', re.IGNORECASE)


class Fetch(Protocol):
    """Requests another address than the server's, in no client's name; a body is posted."""

    async def __call__(
        self, url: str, headers: Mapping[str, str] = ..., raw: bytes | None = ...
    ) -> tuple[int, bytes]:
        """Return the status and the body. Raises NotDone, ServerGone."""
        ...


class ResourceMetadata:
    """The metadata of a server as a protected resource, for clients of the proxy's address."""

    def __init__(self, url: str, fetch: Fetch) -> None:
        """`fetch` gives the status and the body of an address. Raises NotDone, ServerGone."""
        self._url, self._fetch = url, fetch
        bare = httpx2.URL(url).copy_with(username=None, password=None, query=None, fragment=None)
        self._origin = str(bare.copy_with(path="/")).rstrip("/")
        self._location: str | None = None
        self._is_challenged = False
        self._has_none = False

    def addressed(
        self, status: int, headers: list[tuple[str, str]], own: httpx2.URL
    ) -> list[tuple[str, str]]:
        """Return headers of an answer; a challenge names the metadata of the own address."""
        if status not in CHALLENGES:
            return headers
        self._is_challenged = self._is_challenged or status == HTTPStatus.UNAUTHORIZED
        return [
            (name, self._challenge(value, own) if name.lower() == "www-authenticate" else value)
            for name, value in headers
        ]

    def _challenge(self, value: str, own: httpx2.URL) -> str:
        found = _LOCATION.search(value)
        if found is None:
            return value
        self._location = found[2] or found[3]
        at = own.copy_with(path=WELL_KNOWN + own.path)
        return _LOCATION.sub(rf'\1"{at}"', value, count=1)

    async def read(self, own: str) -> tuple[int, bytes]:
        """Return the status and the body for the proxy's own address.

        A server without metadata that wants authorization is of the revision 2025-03-26: its
        authorization server is at its own origin.
        """
        await asyncio.to_thread(importlib.import_module, "mcp.client.auth")
        from mcp.client.auth.utils import build_protected_resource_metadata_discovery_urls as urls  # noqa: PLC0415 -- it takes a second
        from mcp.shared.auth_utils import check_resource_allowed  # noqa: PLC0415 -- see above

        metadata: dict[str, Any] | None = None
        for url in urls(self._location, self._url):
            try:
                async with asyncio.timeout(METADATA_S):
                    status, raw = await self._fetch(url)
            except (NotDone, ServerGone, TimeoutError):
                return HTTPStatus.BAD_GATEWAY, b""
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                return HTTPStatus.BAD_GATEWAY, b""
            if status == HTTPStatus.OK and (metadata := _object(raw)) is not None:
                break
        if metadata is None and not self._is_challenged:
            return HTTPStatus.NOT_FOUND, b""
        if metadata is None:
            self._has_none = True
            metadata = {"authorization_servers": [self._origin]}
        resource = metadata.get("resource", self._url)
        if isinstance(resource, str) and check_resource_allowed(self._url, resource):
            metadata["resource"] = own  # another one stays, and the client refuses it
        metadata.pop("signed_metadata", None)
        return HTTPStatus.OK, msgspec.json.encode(metadata)

    async def legacy(
        self, path: str, headers: Mapping[str, str], raw: bytes
    ) -> tuple[int, bytes, str]:
        """Return the status, the body and the location of the server's own endpoint.

        404 unless the server is known to have no metadata: a client then logs in at the
        authorization server that the metadata names. `path` has the query.
        """
        at = self._origin + path
        if self._is_challenged and not self._has_none:  # a client of that revision reads none
            await self.read("")
        if not self._has_none:
            return HTTPStatus.NOT_FOUND, b"", ""
        if path.startswith(LEGACY_PATHS[0]):
            return HTTPStatus.FOUND, b"", at
        kept = {name: headers[name] for name in OF_A_TOKEN_REQUEST if name in headers}
        try:
            async with asyncio.timeout(METADATA_S):
                return *await self._fetch(at, kept, raw), ""
        except (NotDone, ServerGone, TimeoutError):
            return HTTPStatus.BAD_GATEWAY, b"", ""


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


class _Tokens:
    """Keeps a token in memory, as the SDK's storage."""

    tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        del client_info  # it is given, not registered


class LoginAuth(httpx2.Auth):
    """Authorizes requests with a token of the proxy's own, and gets one when the server asks.

    The SDK's flow holds its lock until the answer to a request begins; here it runs only for a
    request that was refused, so that a long call holds up no other.
    """

    def __init__(self, url: str, login: Login) -> None:
        """Raises BadValue for an issuer that is no address."""
        from mcp.client.auth import OAuthFlowError  # noqa: PLC0415 -- see the module
        from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider  # noqa: PLC0415 -- see above

        self._lock = asyncio.Lock()
        self._bearer: str | None = None
        self._failure = OAuthFlowError
        logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)  # clients get its errors
        try:
            self._provider = ClientCredentialsOAuthProvider(
                url,
                _Tokens(),
                login.client_id,
                login.secret,
                scope=login.scope,
                issuer=login.issuer,
            )
        except ValueError as bad:
            raise BadValue("--issuer", str(bad), "give https://HOST/PATH") from None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request; once more with a new token where it is refused. Raises NotDone."""
        used = self._bearer
        if used is not None:
            request.headers["authorization"] = used
        response = yield request
        if response.status_code not in CHALLENGES:
            return
        async with self._lock:
            if self._bearer == used:
                flow = self._provider.async_auth_flow(request)
                try:
                    await anext(flow)
                    while (step := await flow.asend(response)) is not request:
                        response = yield step
                except StopAsyncIteration:
                    return  # it is not refused for want of a token
                except self._failure as error:
                    raise NotDone(f"the login at {request.url.host} failed: {error}") from error
                finally:
                    await flow.aclose()
                self._bearer = request.headers["authorization"]
        request.headers["authorization"] = self._bearer or ""
        yield request
