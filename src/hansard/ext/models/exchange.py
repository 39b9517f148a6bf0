"""An HTTP exchange with a provider of models as a step: recorded, replayed, resumed.

The step is a stream. Its items are small objects of one key: `head` (status and headers), `chunk`
(a piece of the body as transferred, undecoded, with its time), and at last `end`: how the exchange
ended, and the facts of the call. An item is recorded before the client gets it.

A recorded exchange is found by its identity and by how many equal ones preceded it, in any order
of arrival. What the provider answers is an outcome, whatever its status, and so is a connection
that breaks after the request was sent: a replay breaks at the same byte.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode

import msgspec

from hansard.agents.errors import NotDone
from hansard.agents.flow import done
from hansard.domain.fingerprint import canonical
from hansard.domain.steps import Effects
from hansard.ext import steps
from hansard.ext.models import providers
from hansard.ext.models.providers import Facts, Operation

Headers = Sequence[tuple[str, str]]

ALLOWED = frozenset(
    {
        *("content-type", "content-encoding", "content-length", "content-language", "date"),
        *("cache-control", "vary", "via", "server", "cf-ray", "retry-after", "retry-after-ms"),
        *("request-id", "x-request-id", "x-should-retry", "openai-processing-ms"),
        *("openai-version", "openai-model", "server-timing", "warning", "link", "deprecation"),
    }
)
"""Response headers that are recorded, besides those of `ALLOWED_PREFIXES`; all others may hold
secrets.
"""

ALLOWED_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-", "x-stainless-")

SECRET_PARAMETERS = frozenset({"key", "api_key", "api-key", "access_token", "token", "sig"})
"""Parameters of a query that are not recorded."""

FACTS_BYTES_MAX = 64 * 2**20
"""Longest body of a response from which facts are read."""

COMPLETE, BROKEN, CLOSED = "complete", "broken", "closed by the client"
"""How an exchange ended."""

_NAMES = inspect.Signature([inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)])


class Unreached(NotDone):
    """The provider was not reached: the request was not sent."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a provider.

    Attributes:
        provider: The provider's name.
        method: The HTTP method.
        path: Path and query at the provider.
        body: The body as sent.
        content_type: Its media type.
        attempt: The SDK's number of the attempt, from 0; None if it does not say.
        caller: The step in which the program made the call, if it is one of a record.
    """

    provider: str
    method: str
    path: str
    body: bytes
    content_type: str = ""
    attempt: int | None = None
    caller: str = ""

    @property
    def operation(self) -> Operation | None:
        """The model call; None for another request."""
        return providers.operation_of(self.provider, self.method, self.path)

    @property
    def shown_path(self) -> str:
        """The path with its query, without secrets."""
        path, mark, query = self.path.partition("?")
        kept = [
            (name, value)
            for name, value in parse_qsl(query, keep_blank_values=True)
            if name.lower() not in SECRET_PARAMETERS
        ]
        return f"{path}{mark}{urlencode(kept)}" if kept else path


class Source(Protocol):
    """A provider's response that is being received."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Headers:
        """All headers, in their order."""
        ...

    async def next(self) -> bytes | None:
        """Return the next piece of the body as transferred, or None at its end. Raises Broken, and
        Closed if the client closed the exchange.
        """
        ...

    async def close(self) -> None:
        """Close the response."""
        ...


class Broken(Exception):
    """The connection to the provider broke after the request was sent."""


class Closed(Exception):
    """The client closed the exchange."""


Send = Callable[[], Awaitable[Source]]
"""Send the request and wait for the head. Raises Unreached, Broken, Closed."""


class Exchange:
    """One exchange in a session; iterate over `items` or `items_async` once."""

    def __init__(
        self, session: Any, request: Request, send: Send, volatile: Sequence[str] = ()
    ) -> None:
        self._session = session
        self.request = request
        self._send = send
        self._operation = request.operation
        self._volatile = volatile
        self.ran = False
        """True once the request goes to the provider."""
        self.headers: Headers = ()
        """All headers of the provider's response, if it ran."""
        self.facts: Facts | None = None

    def items_async(self) -> Any:
        """Return the items as an async iterator. Raises Miss, Blocked, Unreached and others."""
        return self._session.call(self._step(self._run), (), self._arguments())

    def items(self) -> Any:
        """Return the items as an iterator, for a `send` that never waits."""
        return steps.call(self._session, self._step(self._run_in_place), self._arguments())

    def _step(self, body: Callable[..., Any]) -> steps.NamedTool:
        is_read = self.request.method in ("GET", "HEAD", "OPTIONS")
        effects = Effects.PURE if is_read else Effects.ONCE
        name = f"{self.request.provider}.request"
        if self._operation is not None:
            name, effects = self._operation.name, Effects.IDEMPOTENT
        made = steps.step(
            name,
            body,
            effects=effects,
            kind="model" if self._operation is not None else "resource",
            aside=("body", "attempt", "caller"),
            raises=(Unreached,),
            safe_errors=(Unreached,),
        )
        return msgspec.structs.replace(made, signature=_NAMES)

    def _arguments(self) -> dict[str, Any]:
        request = self.request
        body = _plain_body(request.body)
        if self._operation is None:
            identity: Any = {"sha256": sha256(request.body).hexdigest()}
        else:
            identity = providers.identity(self._operation, request.body, self._volatile)
        model = self._operation.model if self._operation is not None else ""
        if not model and isinstance(body, dict) and isinstance(body.get("model"), str):
            model = body["model"]
        arguments: dict[str, Any] = {
            "model": model,
            "method": request.method,
            "path": request.shown_path,
            "identity": sha256(canonical(identity)).hexdigest(),
            "body": body,
        }
        if request.attempt is not None:
            arguments["attempt"] = request.attempt
        if request.caller:
            arguments["caller"] = request.caller
        return arguments

    async def _run(self) -> AsyncGenerator[dict[str, Any], None]:
        self.ran = True
        began = time.monotonic()
        parts: list[bytes] = []
        size, how, why = 0, COMPLETE, ""
        status, headers = 0, list[tuple[str, str]]()
        source: Source | None = None
        try:
            try:
                source = await self._send()
                self.headers = source.headers
                status, headers = source.status, recorded_headers(source.headers)
                yield {"head": {"status": status, "headers": [list(pair) for pair in headers]}}
                while (data := await source.next()) is not None:
                    size += len(data)
                    if size <= FACTS_BYTES_MAX:
                        parts.append(data)
                    yield {"chunk": _chunk(data, time.monotonic() - began)}
            except Broken as error:
                how, why = BROKEN, str(error)
            except Closed:
                how = CLOSED
            body = b"".join(parts) if size <= FACTS_BYTES_MAX else b""
            end: dict[str, Any] = {"how": how, "bytes": size}
            if why:
                end["error"] = why
            end["ms"] = _ms(time.monotonic() - began)
            if self._operation is not None:
                end["facts"] = self._read_facts(status, source, body)
            yield {"end": end}
        finally:
            if source is not None:
                await source.close()

    def _run_in_place(self) -> Generator[dict[str, Any], None, None]:
        """Run in a thread without a loop; what it awaits never waits."""
        items = self._run()
        try:
            while True:
                try:
                    item = done(items.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            done(items.aclose())

    def _read_facts(self, status: int, source: Source | None, body: bytes) -> dict[str, Any]:
        """Read the facts of the call, and report its usage."""
        assert self._operation is not None  # noqa: S101 -- its caller has looked
        headers = source.headers if source is not None else ()
        self.facts = facts = providers.facts(
            self._operation, self.request.body, status, headers, body
        )
        counts = {
            "input_tokens": facts.input_tokens,
            "output_tokens": facts.output_tokens,
            "cached_tokens": facts.cached_tokens,
            "reasoning_tokens": facts.reasoning_tokens,
        }
        self._session.usage(**{name: count for name, count in counts.items() if count is not None})
        plain: dict[str, Any] = msgspec.to_builtins(facts)
        return plain


def recorded_headers(headers: Headers) -> list[tuple[str, str]]:
    """Return the response headers that may be recorded, in their order, with repeated ones."""
    return [
        (name, value)
        for name, value in headers
        if name.lower() in ALLOWED or name.lower().startswith(ALLOWED_PREFIXES)
    ]


def data_of(chunk: Mapping[str, Any]) -> bytes:
    """Return the bytes of a recorded chunk."""
    if "base64" in chunk:
        return base64.b64decode(chunk["base64"])
    text: str = chunk["data"]
    return text.encode()


def _chunk(data: bytes, elapsed_s: float) -> dict[str, Any]:
    with contextlib.suppress(UnicodeDecodeError):
        return {"data": data.decode(), "ms": _ms(elapsed_s)}
    return {"base64": base64.b64encode(data).decode(), "ms": _ms(elapsed_s)}


def _ms(elapsed_s: float) -> int:
    return round(elapsed_s * 1000)


def _plain_body(body: bytes) -> Any:
    """Return a request's body as it is recorded: JSON as a value, else text, else base64."""
    if not body:
        return None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(body)
    with contextlib.suppress(UnicodeDecodeError):
        return body.decode()
    return {"base64": base64.b64encode(body).decode()}
