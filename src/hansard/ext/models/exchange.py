"""An HTTP exchange with a provider of models as a step: recorded, replayed, resumed.

The step is a stream. Its items are objects of one key: `head` (status and headers), `chunk` (the
pieces of the body that arrived while earlier ones were being recorded, as transferred, undecoded,
with their sizes and times), and at last `end`: how the exchange ended, and the facts of the call.
A slow stream has a chunk a piece, a fast one few large chunks. An item is recorded before the
client gets its pieces.

A recorded exchange is found by its identity and by how many equal ones preceded it, in any order
of arrival. What the provider answers is an outcome, whatever its status, and so is a connection
that breaks after the request was sent: a replay breaks at the same byte.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from hansard.agents.errors import NotDone
from hansard.agents.flow import Flow, done
from hansard.client.session import AsyncMixin
from hansard.domain.steps import Effects, PromptUse
from hansard.ext import steps
from hansard.ext.models import edited, providers
from hansard.ext.models.clients import STEP_HEADER
from hansard.ext.models.differences import Earlier, Nearest, digest_of, nearest_recorded
from hansard.ext.models.messages import Conversation, PromptMatcher
from hansard.ext.models.providers import Facts, Message, Operation

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

SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
)
"""Request headers whose values are keys; no request header is recorded."""

SECRET_CHARACTERS_MIN = 16
"""Shortest key that is masked where a body repeats it: a shorter one may be an ordinary word."""

SECRET_PARAMETERS = frozenset({"key", "api_key", "api-key", "access_token", "token", "sig"})
"""Parameters of a query that are not recorded."""

FACTS_BYTES_MAX = 64 * 2**20
"""Longest body of a response from which facts are read."""

OPEN_S_MAX = 5.0
"""Longest time between a request's head and its body, in seconds: a provider may close a connection
on which it waits for a body. After a slower intent the request is sent on another one.
"""

THREAD_BYTES_MIN = 256 * 1024
"""From this size on, a body that is no stream is read in a thread: other calls go on meanwhile."""

JOINED_BYTES_MAX = 2**20
"""Size of a chunk from which no more pieces join it, and most that is received ahead of the record:
from here on larger commits are hardly faster, and each exchange may hold this in memory.
"""

JOINED_S = 0.01
"""Longest time in which pieces join a chunk that a sync client waits for, in seconds."""

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
        attempt: The SDK's number of the attempt, from 0; None if it does not say.
        caller: The step in which the program made the call, if it is one of a record.
        secrets: Its keys (`secrets_of`): where a body repeats one, asterisks are recorded.
    """

    provider: str
    method: str
    path: str
    body: bytes
    attempt: int | None = None
    caller: str = ""
    secrets: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, provider: str, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Request:
        """Return a request by its headers, which are looked up in lower case."""
        retries = headers.get("x-stainless-retry-count", "")
        return cls(
            provider=provider,
            method=method,
            path=path,
            body=body,
            attempt=int(retries) if retries.isdecimal() else None,
            caller=headers.get(STEP_HEADER, ""),
            secrets=secrets_of([*headers.items()], path.partition("?")[2]),
        )

    def masked(self, data: bytes) -> bytes:
        """Return data of the same length without the request's keys."""
        for secret in self.secrets:
            data = data.replace(secret.encode(), b"*" * len(secret.encode()))
        return data

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


def with_texts(session: Any, request: Request) -> Request:
    """Return a request with the messages that a fork has in place of its parent's."""
    texts = getattr(getattr(session.engine, "settings", None), "texts", None)
    if texts is None or request.operation is None:
        return request
    try:
        body = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return request
    changed = texts.value(body)
    if changed is body:
        return request
    return msgspec.structs.replace(request, body=msgspec.json.encode(changed))


class Broken(Exception):
    """The connection to the provider broke after the request was sent."""


class Closed(Exception):
    """The client closed the exchange."""


Piece = tuple[bytes, int]
"""A piece of a body, and when it arrived, in ms after the request."""


class Rules(msgspec.Struct, frozen=True):
    """Rules of the exchanges of a session.

    Attributes:
        volatile: Fields of requests that are no part of a call's identity.
        prompts: Prompt versions that are recognised in requests; None for none.
        conversation: The messages that were stated in the session.
        earlier: Identities of recorded requests by those under `volatile`.
    """

    volatile: Sequence[str] = ()
    prompts: PromptMatcher | None = None
    conversation: Conversation = msgspec.field(default_factory=Conversation)
    earlier: Earlier = msgspec.field(default_factory=dict)

    def recorded(self, tool: str, path: str, digest: str) -> str:
        """Return the identity with which a request was recorded under other rules, else its own."""
        left = self.earlier.get((tool, path, digest))
        return left.pop(0) if left else digest


INSIDE: ContextVar[bool] = ContextVar("hansard_inside_exchange", default=False)
"""True where a recorded request is being sent: what is below it is not recorded again."""

Run = Callable[..., Awaitable[Any]]
"""Way to call a function of a client: in this thread, in another one, or awaited."""


async def awaited(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call and await a function of an async client: a `Run`."""
    return await function(*arguments)


@contextlib.contextmanager
def errors(package: Any, provider: str) -> Generator[None]:
    """Turn errors of a client into cases of an exchange; what runs inside is not recorded."""
    token = INSIDE.set(True)
    try:
        yield
    except package.HTTPError as error:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        unsent = (package.ConnectError, package.ConnectTimeout, package.PoolTimeout)
        if isinstance(error, (*unsent, package.UnsupportedProtocol)):
            raise Unreached(f"{provider} cannot be reached: {why}") from error
        raise Broken(why) from error
    finally:
        INSIDE.reset(token)


class Received:
    """A provider's response through a client of httpx or httpx2."""

    def __init__(self, response: Any, package: Any, run: Run) -> None:
        self.status: int = response.status_code
        self.headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in response.headers.raw]
        self._package, self._run = package, run
        self._stream = response.extensions.get("network_stream")
        if run is awaited:
            chunks, self._close = response.aiter_raw(), response.aclose
            self._next = partial(anext, chunks, None)
        else:
            chunks, self._close = response.iter_raw(), response.close
            self._next = partial(next, chunks, None)

    async def next(self) -> bytes | None:
        """Return the next piece of the body as transferred, or None at its end. Raises Broken."""
        with errors(self._package, "the provider"):
            data: bytes | None = await self._run(self._next)
        return data

    def is_ready(self) -> bool:
        """Ask the socket; other transports do not say it."""
        return bool(self._stream is not None and self._stream.get_extra_info("is_readable"))

    async def close(self) -> None:
        """Close the response."""
        await self._run(self._close)


Send = Callable[[], Awaitable[Received]]
"""Send the request and wait for the head. Raises Unreached, Broken, Closed."""


class Exchange:
    """One exchange in a session; iterate over `items` or `items_async` once.

    Args:
        session: The session.
        request: The request.
        send: Sends it to the provider.
        rules: The rules of its exchanges.
        acknowledged: Set once the intent is on record. If it is given, `send` is called when the
            call may run, and sends the body only after that; `drop` ends what it began.
    """

    def __init__(
        self,
        session: Any,
        request: Request,
        send: Send,
        rules: Rules,
        acknowledged: asyncio.Event | None = None,
    ) -> None:
        self.session = session
        self.request = request
        self._send = send
        self._operation = request.operation
        self._rules = rules
        self._plain_body = _plain_body(request.masked(request.body))
        self.ran = False
        """True once the request goes to the provider."""
        self.headers: Headers = ()
        """All headers of the provider's response, if it ran."""
        self.pieces: list[bytes] = []
        """The pieces of the newest chunk, as they were received."""
        self.facts: Facts | None = None
        """Facts of the call, once it has ended."""
        self._status = 0
        self._began_s = 0.0
        self._joins = False
        self._is_closed = False
        self._acknowledged = acknowledged
        self._opening: asyncio.Future[Received] | None = None
        self._opened_s = 0.0
        self._receiving: asyncio.Future[None] | None = None
        self._reading: providers.Reading | None = None
        self._size = 0

    def items_async(self) -> Any:
        """Return the items as an async iterator. Raises Miss, Blocked, Unreached and others."""
        self._joins = True
        items = self.session.call(self._step(self._run), (), self._arguments())
        return edited.framed(items, self.request)

    def items(self) -> Any:
        """Return the items as an async iterator that never waits, in a sync session or a thread. In
        a sync session, `send` and its source never wait.
        """
        body = self._run if isinstance(self.session, AsyncMixin) else self._run_in_place
        items = steps.call(self.session, self._step(body), self._arguments())
        return edited.framed(_never_waiting(items), self.request)

    def _step(self, body: Callable[..., Any]) -> steps.NamedTool:
        is_read = self.request.method in ("GET", "HEAD", "OPTIONS")
        effects = Effects.PURE if is_read else Effects.ONCE
        name = f"{self.request.provider}.request"
        if self._operation is not None:
            name, effects = self._operation.name, Effects.IDEMPOTENT
        prompts: tuple[PromptUse, ...] = ()
        if self._operation is not None and self._rules.prompts:
            prompts = self._rules.prompts.uses(providers.messages_of(self._plain_body))
        made = steps.step(
            name,
            body,
            effects=effects,
            kind="model" if self._operation is not None else "resource",
            aside=("body", "attempt", "caller"),
            raises=(Unreached,),
            safe_errors=(Unreached,),
            prompts=prompts,
            ahead=effects is not Effects.ONCE,
            opens=self._open if self._acknowledged is not None and self.request.body else None,
        )
        return msgspec.structs.replace(made, signature=_NAMES)

    def _arguments(self) -> dict[str, Any]:
        request, body = self.request, self._plain_body
        if self._operation is None:
            identity = digest_of({"sha256": sha256(request.body).hexdigest()})
        else:
            whole = providers.identity(self._operation, request.body, self._rules.volatile)
            name, path = self._operation.name, request.shown_path
            identity = self._rules.recorded(name, path, digest_of(whole))
        model = self._operation.model if self._operation is not None else ""
        if not model and isinstance(body, dict) and isinstance(body.get("model"), str):
            model = body["model"]
        arguments: dict[str, Any] = {
            "model": model,
            "method": request.method,
            "path": request.shown_path,
            "identity": identity,
            "body": body,
        }
        if request.attempt is not None:
            arguments["attempt"] = request.attempt
        if request.caller:
            arguments["caller"] = request.caller
        return arguments

    def _open(self) -> None:
        """Begin to send, without the body: the provider cannot act on it yet."""
        self._opened_s = time.monotonic()
        self._opening = asyncio.ensure_future(self._send())
        self._opening.add_done_callback(lambda sent: sent.cancelled() or sent.exception())

    def drop(self) -> None:
        """Stop sending, if the body was not sent: the call does not run."""
        if self._opening is not None and not self.ran:
            self._opening.cancel()

    async def _sent(self) -> Received:
        """Send the request, now that its intent is on record. Raises Unreached, Broken, Closed."""
        if self._acknowledged is None:
            return await self._send()
        opening = self._opening
        if opening is not None and time.monotonic() - self._opened_s > OPEN_S_MAX:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            opening = None
        self._acknowledged.set()
        return await (opening or self._send())

    async def _run(self, *, waits: bool = True) -> AsyncGenerator[dict[str, Any], None]:
        self.ran = True
        self._began_s = time.monotonic()
        how, why = COMPLETE, ""
        counts = {"pieces": 0}
        source: Received | None = None
        try:
            try:
                source = await self._sent()
                self.headers, self._status = source.headers, source.status
                headers = [list(map(self._text, pair)) for pair in recorded_headers(self.headers)]
                yield {"head": {"status": source.status, "headers": headers}}
                received = self._joined(source) if self._joins else self._in_turn(source)
                async with contextlib.aclosing(received):
                    async for pieces in received:
                        self.pieces = [data for data, _ in pieces]
                        whole = b"".join(self.pieces)
                        counts["pieces"] += len(pieces)
                        counts.setdefault("first_ms", pieces[0][1])
                        yield {"chunk": chunk(self.request.masked(whole), pieces)}
                        self._take(whole)  # the client has its pieces already
            except Broken as error:
                how, why = BROKEN, self._text(str(error))
            except Closed:
                how = CLOSED
            end: dict[str, Any] = {"how": how, "bytes": self._size, **counts}
            if why:
                end["error"] = why
            end["ms"] = self._ms()
            if waits and self._size > THREAD_BYTES_MIN:
                await asyncio.to_thread(self._end_facts)
            else:
                self._end_facts()
            if self.facts is not None:
                self.session.usage(**self.facts.usage)
                end["facts"] = self.facts.recorded
            yield {"end": end}
        finally:
            if source is not None:
                await source.close()

    async def _in_turn(self, source: Received) -> AsyncGenerator[list[Piece], None]:
        """Yield each piece with those that are there already, where nothing can be received while
        they are being recorded. Raises Broken, Closed.
        """
        pieces: list[Piece] = []
        size, first_s = 0, 0.0
        while not self._is_closed:
            try:
                data = await source.next()
            except Broken:
                if pieces:
                    yield pieces
                raise
            if data is not None:
                first_s = first_s if pieces else time.monotonic()
                pieces.append((data, self._ms()))
                size += len(data)
                is_late = time.monotonic() - first_s > JOINED_S
                if source.is_ready() and size < JOINED_BYTES_MAX and not is_late:
                    continue
            if pieces:
                yield pieces
            if data is None:
                return
            pieces, size = [], 0
        if pieces:
            yield pieces
        raise Closed

    async def _joined(self, source: Received) -> AsyncGenerator[list[Piece], None]:
        """Yield the pieces that arrived since the last ones were taken. Raises Broken, Closed."""
        pieces: list[Piece] = []
        arrived, taken = asyncio.Event(), asyncio.Event()

        async def receive() -> None:
            size = 0
            while (data := await source.next()) is not None:
                size = size + len(data) if pieces else len(data)
                pieces.append((data, self._ms()))
                arrived.set()
                if size >= JOINED_BYTES_MAX:
                    taken.clear()
                    await taken.wait()

        receiving = self._receiving = asyncio.ensure_future(receive())
        receiving.add_done_callback(lambda _: arrived.set())
        if self._is_closed:
            receiving.cancel()
        try:
            while pieces or not receiving.done():
                if pieces:
                    newest = pieces.copy()
                    pieces.clear()
                    taken.set()
                    yield newest
                else:
                    arrived.clear()
                    await arrived.wait()
            if self._is_closed:
                raise Closed
            await receiving
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    def close(self) -> None:
        """Stop receiving: the client closed the exchange."""
        self._is_closed = True
        if self._receiving is not None:
            self._receiving.cancel()

    def _ms(self) -> int:
        return round((time.monotonic() - self._began_s) * 1000)

    def _text(self, text: str) -> str:
        """Return a text without the request's keys."""
        return self.request.masked(text.encode(errors="replace")).decode(errors="replace")

    def _run_in_place(self) -> Generator[dict[str, Any], None, None]:
        """Run in a thread without a loop; what it awaits never waits."""
        items = self._run(waits=False)
        try:
            while True:
                try:
                    item = done(items.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            done(items.aclose())

    def observe(self, item: Mapping[str, Any]) -> None:
        """Read the facts of a recorded exchange from its items, which are given one by one.

        A replay that writes nothing needs none.
        """
        if self.ran or self.session.mode.reads_only:
            return
        if "head" in item:
            self._status, self.headers = item["head"]["status"], item["head"]["headers"]
        elif "chunk" in item:
            self._take(data_of(item["chunk"]))
        else:
            self._end_facts()

    def _take(self, data: bytes) -> None:
        """Read the facts in a piece of the body."""
        self._size += len(data)
        if self._size > FACTS_BYTES_MAX:
            self._reading = None  # a part of an answer is none
        elif (reading := self._facts_so_far()) is not None:
            reading.add(data)

    def _facts_so_far(self) -> providers.Reading | None:
        if self._reading is None and self._operation is not None:
            self._reading = providers.Reading(
                self._operation, self._plain_body, self._status, self.headers
            )
        return self._reading

    def _end_facts(self) -> None:
        if (reading := self._facts_so_far()) is not None:
            facts = reading.facts()
            if self._size > FACTS_BYTES_MAX:
                facts.problem = f"longer than {FACTS_BYTES_MAX:,} bytes: tokens are not read"
            if self.request.secrets:  # an answer may repeat a key, also within a compressed body
                encoded = self.request.masked(msgspec.json.encode(facts))
                facts = msgspec.json.decode(encoded, type=Facts)
            self.facts, self._reading = facts, None

    def nearest(self) -> Flow[Nearest | None]:
        """Return the nearest recorded request, for a call that is a miss."""
        if self._operation is None:
            return None
        return (
            yield from nearest_recorded(
                self.session.engine,
                self._operation,
                self.request.shown_path,
                self._plain_body,
                self._rules.volatile,
            )
        )

    def new_messages(self) -> list[Message]:
        """Return the messages of the call that the session has not stated yet.

        Those of a recorded call count as stated, except in a fork, where a call may be answered
        from the parent or an edit. One that is on record is not recorded again.
        """
        if self.facts is None or self.session.mode.reads_only:
            return []
        fresh = self._rules.conversation.new(self.facts)
        return fresh if self.ran or self.session.engine.settings.parent is not None else []


def secrets_of(headers: Headers, query: str) -> tuple[str, ...]:
    """Return the keys in a request's headers and query, longest first."""
    values = [value for name, value in parse_qsl(query) if name.lower() in SECRET_PARAMETERS]
    for name, value in headers:
        if name.lower() == "cookie":
            values += [each.partition("=")[2] for each in value.split(";")]
        elif name.lower() in SECRET_HEADERS:
            values.append(value.rpartition(" ")[2])
    kept = {each.strip() for each in values if len(each.strip()) >= SECRET_CHARACTERS_MIN}
    return tuple(sorted(kept, key=len, reverse=True))


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


def pieces_of(recorded: Mapping[str, Any]) -> Iterator[Piece]:
    """Yield the pieces of a recorded chunk."""
    data, begin = data_of(recorded), 0
    for size, ms in zip((*recorded.get("sizes", ()), len(data)), recorded["ms"], strict=True):
        yield data[begin : begin + size], ms
        begin += size


def chunk(data: bytes, pieces: Sequence[Piece]) -> dict[str, Any]:
    """Return the recorded form of pieces: all data, sizes of all pieces but the last, all times."""
    try:
        recorded: dict[str, Any] = {"data": data.decode()}
    except UnicodeDecodeError:
        recorded = {"base64": base64.b64encode(data).decode()}
    if len(pieces) > 1:
        recorded["sizes"] = [len(piece) for piece, _ in pieces[:-1]]
    return recorded | {"ms": [ms for _, ms in pieces]}


async def _never_waiting(items: Generator[Any, None, None]) -> AsyncGenerator[Any, None]:
    """Yield the items of an iterator, for `done`."""
    with contextlib.closing(items):
        for item in items:
            yield item


def _plain_body(body: bytes) -> Any:
    """Return a request's body as it is recorded: JSON as a value, else text, else base64."""
    if not body:
        return None
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(body)
    with contextlib.suppress(UnicodeDecodeError):
        return body.decode()
    return {"base64": base64.b64encode(body).decode()}
