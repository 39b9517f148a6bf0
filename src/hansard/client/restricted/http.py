"""Requests of a restricted agent to the service over HTTP (`hansard up --http`).

The messages are those sent over NATS (`hansard.operations.protocol.wire`). A request has a key: if
its answer takes long or its connection breaks, the answer is requested again under that key, and
the request is never done twice.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4

from hansard.bus.errors import TooLarge, Unreachable
from hansard.bus.jetstream.wire import NoAnswer, NoResponders
from hansard.domain.errors import import_extra
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import AccessRefused

if TYPE_CHECKING:
    import httpx2

    from hansard.broker.access import Credentials

CONNECT_S, AGAIN_S = 5.0, 0.2
"""Longest time to connect, and time before another attempt, in seconds."""

REFUSED_S = 3.0
"""Seconds for which connections may be refused, as while a service is restarted."""

KEEP_S = 3.0
"""Seconds that an unused connection is kept: less than the service keeps it."""

_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""Statuses of a request that the service did not pass on: it is sent again."""

SLACK_S = 10.0
"""Seconds that an answer may take longer than the service was to wait for it."""


class HttpRequests:
    """Connections for requests, with the methods of `bus.jetstream.client.Requests`."""

    def __init__(self, credentials: Credentials, client: httpx2.AsyncClient) -> None:
        self._url = credentials.url
        self._client = client

    @classmethod
    async def open(cls, credentials: Credentials) -> HttpRequests:
        """Connect. Raises Unreachable, AccessRefused, ExtraMissing."""
        import_extra("httpx2", "a session over HTTP", "httpx2", "http")
        import httpx2  # noqa: PLC0415 -- of an extra

        workspace = quote(credentials.workspace, safe="")
        client = httpx2.AsyncClient(
            base_url=f"{credentials.url.rstrip('/')}/api/v1/{workspace}",
            headers={"Authorization": f"Bearer {credentials.token}"},
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEP_S),
            timeout=httpx2.Timeout(SLACK_S, connect=CONNECT_S, pool=None),
        )
        try:
            answer = await client.get("/me")
            if answer.status_code != HTTPStatus.OK:
                _refuse(answer, credentials.url)
        except BaseException as error:
            await client.aclose()
            if isinstance(error, (httpx2.TransportError, NoAnswer)):
                raise Unreachable(credentials.url, _reason(error)) from error
            raise
        return cls(credentials, client)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def ask(self, subject: str, payload: bytes, timeout_s: float) -> bytes:
        """Send a request, and return the answer's body. Raises as `Requests.ask`, AccessRefused."""
        import httpx2  # noqa: PLC0415 -- of an extra

        loop = asyncio.get_running_loop()
        until_s, heard_s = loop.time() + timeout_s, loop.time()
        path = "/session/" + "/".join(subject.split(".")[4:])
        key, is_sent = uuid4().hex, False
        while (left_s := until_s - loop.time()) > 0:
            wait_s = min(left_s, wire.WAIT_S)
            try:
                answer = await self._client.post(
                    path,
                    content=b"null" if is_sent or not payload else payload,
                    params={"timeout_s": f"{wait_s:.3f}", "again": f"{is_sent}".lower()},
                    headers={"Idempotency-Key": key, "Content-Type": "application/json"},
                    timeout=httpx2.Timeout(wait_s + SLACK_S, connect=CONNECT_S, pool=None),
                )
            except httpx2.TransportError as error:
                is_refused = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
                is_sent = is_sent or not is_refused
                if loop.time() - heard_s > (REFUSED_S if is_refused else wire.QUIET_S_MAX):
                    raise NoAnswer(f"{self._url}: {_reason(error)}") from error
                await asyncio.sleep(AGAIN_S)
                continue
            late = loop.time() - heard_s > wire.QUIET_S_MAX
            if answer.status_code in _LATER and not late:
                await asyncio.sleep(AGAIN_S)
                continue
            heard_s = loop.time()
            if answer.status_code == HTTPStatus.OK:
                return answer.content
            if answer.status_code != HTTPStatus.ACCEPTED:
                _refuse(answer, subject)
            is_sent = True
        raise NoAnswer(f"{self._url} did not answer in {timeout_s:g} s")


def _refuse(answer: httpx2.Response, where: str) -> None:
    """Raise the error of an answer that is none to the request."""
    match answer.status_code:
        case 401 | 403 | 404:  # a workspace that these credentials do not open looks absent
            raise AccessRefused
        case 410:
            raise NoResponders(where)
        case 413:
            limit = json.loads(answer.content).get("value") or "0"
            raise TooLarge("the request", len(answer.request.content), int(limit))
        case _:
            raise NoAnswer(f"{where}: status {answer.status_code}: {answer.text[:200]}")


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
