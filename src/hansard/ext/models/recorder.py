"""`record_http`: the model calls of this process as steps of its sessions, without a proxy process.

The clients of httpx and httpx2 are wrapped where they send a request. A call of aiohttp's own
client goes through a proxy in this process.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
import inspect
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from hansard.agents.errors import Miss
from hansard.agents.flow import done
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.scope import ambient
from hansard.client.session import AsyncMixin
from hansard.domain.errors import HansardError
from hansard.ext.models import providers
from hansard.ext.models.calibration import checked_rule
from hansard.ext.models.clients import REFUSED, on_clients, wrap
from hansard.ext.models.exchange import (
    CLOSED,
    COMPLETE,
    INSIDE,
    Exchange,
    Received,
    Request,
    Rules,
    Run,
    Unreached,
    awaited,
    errors,
    pieces_of,
    with_texts,
)
from hansard.ext.models.proxy import (
    BODY_BYTES_MAX,
    NO_RETRY,
    URL_HEADER,
    ModelProxy,
    error_of,
    too_large,
    upstreams,
)


class record_http:  # noqa: N801 -- called as a function, as contextlib's context managers are
    """Record the calls of model SDKs inside a `with` or `async with` block as steps.

    Each request of httpx, httpx2 or aiohttp to a known provider, or to the address in its base-URL
    variable, is a step of the session that is current at the call: answered from the record when
    the run is resumed or replayed, else sent and recorded, piece by piece. A sync client needs a
    sync session (or a thread of an async one), an async client an async session; any other call is
    refused with an error in the provider's form.

    Args:
        volatile: Fields of requests to leave out of their identity, as JSON pointers such as
            `/metadata/user_id`.

    Raises BadValue for a pointer that is none.
    """

    def __init__(self, *, volatile: Sequence[str] = ()) -> None:
        self._volatile = tuple(map(checked_rule, volatile))
        self._rules: WeakKeyDictionary[Any, Rules] = WeakKeyDictionary()
        self._undo: list[Callable[[], None]] = []
        self._proxies: dict[Any, tuple[asyncio.Task[None], asyncio.Future[ModelProxy]]] = {}

    def __enter__(self) -> Self:
        finder = on_clients(lambda module: self._undo.append(wrap(module, self)))
        self._undo.append(partial(sys.meta_path.remove, finder))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._undo:
            self._undo.pop()()
        for serving, _ in self._proxies.values():
            serving.cancel()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)
        serving = [task for task, _ in self._proxies.values()]
        await asyncio.gather(*serving, return_exceptions=True)

    # Hooks of the clients

    def send(self, inner: Callable[..., Any], client: Any, request: Any, options: Any) -> Any:
        """Send a request of a sync client of httpx or httpx2."""
        return done(self._sent(inner, client, request, options, is_sync=True))

    async def send_async(
        self, inner: Callable[..., Any], client: Any, request: Any, options: Any
    ) -> Any:
        """Send a request of an async client of httpx or httpx2."""
        return await self._sent(inner, client, request, options, is_sync=False)

    async def _sent(
        self, inner: Callable[..., Any], client: Any, request: Any, options: Any, *, is_sync: bool
    ) -> Any:
        """Send a request of either client; of a sync one without waiting in this coroutine."""
        about = self._about(str(request.url), request.method)
        if about is None:
            response = inner(client, request, **options)
            return response if is_sync else await response
        is_stream = options.pop("stream", False)
        try:
            session = ambient(f"{about.provider}'s client")
            body = request.read() if is_sync else await request.aread()
            if len(body) > BODY_BYTES_MAX:
                return _refused(request, too_large(), HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            in_thread = is_sync and isinstance(session, AsyncMixin)
            run: Run = asyncio.to_thread if in_thread else _here if is_sync else awaited
            sends = partial(_send, run, inner, client, options)
            exchange = self._exchange(session, about, body, request, sends)
            items = exchange.items() if is_sync else exchange.items_async()
            reply = _Reply(exchange, items, request, is_sync=is_sync)
            response = await reply.response(lingers=is_stream and not is_sync)
        except HansardError as error:
            return _refused(request, str(error))
        if not is_stream and is_sync:
            response.read()
        elif not is_stream:
            await response.aread()
        return response

    async def request(
        self, inner: Callable[..., Any], client: Any, method: str, url: Any, options: Any
    ) -> Any:
        """Send a request of aiohttp through a proxy in this process."""
        whole = str(client._build_url(url))  # noqa: SLF001 -- it adds the session's base URL
        about = self._about(whole, method)
        if about is None:
            return await inner(client, method, url, **options)
        session = ambient(f"{about.provider}'s client")
        if session not in self._proxies:
            ready: asyncio.Future[ModelProxy] = asyncio.get_running_loop().create_future()
            context = copy_context()
            context.run(INSIDE.set, True)  # noqa: FBT003 -- the value of the variable
            serving = asyncio.get_running_loop().create_task(
                _serve(session, self._rules_of(session), ready), context=context
            )
            self._proxies[session] = serving, ready
        proxy = await asyncio.shield(self._proxies[session][1])
        headers = {**(options.get("headers") or {}), URL_HEADER: whole}
        address = f"{proxy.url}/{about.provider}{urlsplit(whole).path}"
        return await inner(client, method, address, **options | {"headers": headers})

    def _about(self, url: str, method: str) -> Request | None:
        """Return the provider and path of a request; None if it is not recorded."""
        if INSIDE.get():
            return None
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        known = providers.provider_of(parts.hostname or "")
        names = [known.name] if known is not None else []
        names += [name for name, base in upstreams(os.environ).items() if url.startswith(base)]
        calls = [name for name in names if providers.operation_of(name, method, parts.path)]
        name = next(iter([*calls, *names]), None)
        return None if name is None else Request(provider=name, method=method, path=path, body=b"")

    def _rules_of(self, session: Any) -> Rules:
        return self._rules.setdefault(session, Rules(self._volatile))

    def _exchange(
        self, session: Any, about: Request, body: bytes, sent: Any, sends: Callable[[Any], Any]
    ) -> Exchange:
        request = Request.of(about.provider, about.method, about.path, sent.headers, body)
        changed = with_texts(session, request)
        if changed is not request:
            fields = [
                (name, value) for name, value in sent.headers.raw if name != b"content-length"
            ]
            sent = _package(sent).Request(
                sent.method,
                sent.url,
                headers=fields,
                content=changed.body,
                extensions=sent.extensions,
            )
        return Exchange(session, changed, partial(sends, sent), self._rules_of(session))


async def _serve(session: Any, rules: Rules, ready: asyncio.Future[ModelProxy]) -> None:
    """Serve a proxy in this process until cancelled."""
    try:
        proxy = ModelProxy(session, upstreams(os.environ), rules=rules)
        async with proxy.serving():
            ready.set_result(proxy)
            await asyncio.Event().wait()
    except Exception as error:  # noqa: BLE001 -- those who wait for it get it
        if not ready.done():
            ready.set_exception(error)


def _package(request: Any) -> Any:
    """Return the package of a request: httpx or httpx2."""
    return importlib.import_module(type(request).__module__.partition(".")[0])


def _refused(request: Any, why: str, status: int = REFUSED) -> Any:
    """Return the response to a call that may not run, in the provider's form."""
    provider = providers.provider_of(request.url.host)
    content = error_of(provider, status, why)
    package = _package(request)
    return package.Response(status, headers=[NO_RETRY], json=content, request=request)


async def _here(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


async def _send(
    run: Run, inner: Callable[..., Any], client: Any, options: Mapping[str, Any], request: Any
) -> Received:
    """Send a request by its client. Raises Unreached, Broken."""
    package = _package(request)
    with errors(package, request.url.host):
        response = await run(partial(inner, stream=True, **options), client, request)
    return Received(response, package, run)


class _Reply:
    """The response of a client of httpx or httpx2, from the items of an exchange."""

    def __init__(
        self, exchange: Exchange, items: Any, request: Any, *, is_sync: bool = False
    ) -> None:
        self._exchange = exchange
        self._is_sync = is_sync
        self._session = exchange.session
        self._items = items
        self._request = request
        self._package = _package(request)
        self._began_s = time.monotonic()
        self._ended = False
        self._lingers = False
        self._next: asyncio.Future[Any] | None = None
        """The next item of a stream, which is on its way: a client that stops waiting for it may
        still close the response in order.
        """
        self._pieces: deque[bytes] = deque()

    async def response(self, *, lingers: bool = False) -> Any:
        """Return the response once its head is there. Raises the client's error.

        `lingers`: items go on to be received when the client stops waiting for them.
        """
        item = await self._following()
        if item is None or "head" not in item:
            self._take(item)
            raise self._broken("the provider closed the connection without an answer")
        head = item["head"]
        headers = self._exchange.headers if self._exchange.ran else head["headers"]
        response = self._package.Response(
            head["status"],
            headers=[(name, value) for name, value in headers],
            stream=self._stream(),
            request=self._request,
            extensions={"http_version": b"HTTP/1.1"},
        )
        self._lingers = lingers
        response.elapsed = dt.timedelta(seconds=time.monotonic() - self._began_s)
        return response

    def _stream(self) -> Any:
        package = self._package

        class Stream(package.SyncByteStream, package.AsyncByteStream):  # type: ignore[misc,name-defined] # of the client's package
            def __iter__(stream) -> Iterator[bytes]:  # noqa: N805 -- `self` is the reply
                while (data := done(self._piece())) is not None:
                    yield data

            def close(stream) -> None:  # noqa: N805 -- `self` is the reply
                done(self._leave())

            async def __aiter__(stream) -> AsyncIterator[bytes]:  # noqa: N805 -- `self` is the reply
                while (data := await self._piece()) is not None:
                    yield data

            async def aclose(stream) -> None:  # noqa: N805 -- `self` is the reply
                await self._leave()

        return Stream()

    async def _piece(self) -> bytes | None:
        """Return the next piece of the body; None at the clean end."""
        while not self._pieces:
            if not self._take(await self._following()):
                await self._finish()
                return None
        return self._pieces.popleft()

    async def _leave(self) -> None:
        """Stop receiving, and record the end: the client closed the response.

        If its task is being cancelled, the call is interrupted instead.
        """
        task = None if self._is_sync else asyncio.current_task()
        if self._next is not None and task is not None and task.cancelling():
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
            self._ended = True
        self._exchange.close()
        while not self._ended:
            await self._following()
        await self._items.aclose()

    async def _finish(self) -> None:
        """Wait until the end is on record, and state the new messages."""
        while not self._ended:
            await self._following()
        for each in self._exchange.new_messages():
            stated = self._session.message(each.role, each.content, fields=each.fields)
            if inspect.isawaitable(stated):
                if self._is_sync:  # in a thread of an async session
                    loop = self._session._loop  # noqa: SLF001 -- where it belongs to
                    asyncio.run_coroutine_threadsafe(awaited(lambda s=stated: s), loop).result()
                else:
                    await stated

    async def _following(self) -> Any:
        """Return the next item; None after the last one."""
        try:
            item = await self._taken()
        except Unreached as error:
            if isinstance(error.__cause__, Exception) and self._exchange.ran:
                raise error.__cause__ from None  # the client's own
            raise self._package.ConnectError(str(error), request=self._request) from error
        except Miss as error:
            near = await self._nearest()
            raise (HansardError(f"{error}; {near}") if near else error) from error
        self._ended = item is None
        if item is not None:
            self._exchange.observe(item)
        return item

    async def _taken(self) -> Any:
        if not self._lingers:
            return await anext(self._items, None)
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._items, None))
        try:
            return await asyncio.shield(self._next)
        finally:
            if self._next.done():
                self._next = None

    async def _nearest(self) -> str:
        in_thread = self._is_sync and isinstance(self._session, AsyncMixin)
        if in_thread or not isinstance(self._session.engine, StepEngine):
            return ""
        near = await self._session._flow(self._exchange.nearest())  # noqa: SLF001 -- reads the record
        return str(near or "")

    def _take(self, item: Any) -> bool:
        """Take the pieces of an item; return False at the clean end. Raises the client's error."""
        if item is None:
            return False
        if "chunk" in item:
            recorded = (data for data, _ in pieces_of(item["chunk"]))
            self._pieces.extend(self._exchange.pieces if self._exchange.ran else recorded)
            return True
        end = item["end"]
        if end["how"] == COMPLETE:
            return False
        raise self._broken("closed here on record" if end["how"] == CLOSED else end["error"])

    def _broken(self, why: str) -> Exception:
        error: Exception = self._package.RemoteProtocolError(why, request=self._request)
        return error
