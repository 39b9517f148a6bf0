"""`record_http`: the model calls of this process as steps of its sessions, without a proxy process.

The clients of httpx and httpx2 are wrapped where they send a request. A call of aiohttp's own
client goes through a proxy in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from functools import partial
from types import ModuleType, TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from hansard.agents.errors import Miss
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.scope import ambient
from hansard.client.session import AsyncMixin
from hansard.domain.errors import HansardError
from hansard.ext.models import providers
from hansard.ext.models.calibration import checked_rule
from hansard.ext.models.clients import CLIENTS, REFUSED, OnImport, wrap
from hansard.ext.models.exchange import (
    CLOSED,
    COMPLETE,
    Broken,
    Closed,
    Exchange,
    Request,
    Rules,
    Source,
    Unreached,
    data_of,
    secrets_of,
)
from hansard.ext.models.proxy import NO_RETRY, URL_HEADER, ModelProxy, error_of, upstreams

_inside: ContextVar[bool] = ContextVar("hansard_inside_exchange", default=False)
"""True where a recorded request is being sent: what is below it is not recorded again."""


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
        def then(module: ModuleType) -> None:
            self._undo.append(wrap(module, self))

        for name in CLIENTS:
            if name in sys.modules:
                then(sys.modules[name])
        finder = OnImport([name for name in CLIENTS if name not in sys.modules], then)
        sys.meta_path.insert(0, finder)
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
        about = self._about(str(request.url), request.method)
        if about is None:
            return inner(client, request, **options)
        package = _package(request)
        stream = options.pop("stream", False)
        try:
            session = ambient(f"{about.provider}'s client")
            threaded = isinstance(session, AsyncMixin)
            sends = partial(_send, inner, client, request, options, package, threaded)
            exchange = self._exchange(session, about, request.read(), request.headers, sends)
            reply = _Reply(exchange, exchange.items(), package, request)
            response = reply.response(package.SyncByteStream)
        except HansardError as error:
            return _refused(package, request, error)
        if not stream:
            response.read()
        return response

    async def send_async(
        self, inner: Callable[..., Any], client: Any, request: Any, options: Any
    ) -> Any:
        """Send a request of an async client of httpx or httpx2."""
        about = self._about(str(request.url), request.method)
        if about is None:
            return await inner(client, request, **options)
        package = _package(request)
        stream = options.pop("stream", False)
        try:
            session = ambient(f"{about.provider}'s client")
            body = await request.aread()
            sends = partial(_send_async, inner, client, request, options, package)
            exchange = self._exchange(session, about, body, request.headers, sends)
            reply = _Reply(exchange, exchange.items_async(), package, request)
            response = await reply.response_async(package.AsyncByteStream)
        except HansardError as error:
            return _refused(package, request, error)
        if not stream:
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
            context.run(_inside.set, True)  # noqa: FBT003 -- the value of the variable
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
        if _inside.get():
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
        self,
        session: Any,
        about: Request,
        body: bytes,
        headers: Mapping[str, str],
        sends: Callable[[], Any],
    ) -> Exchange:
        retries = headers.get("x-stainless-retry-count", "")
        request = Request(
            provider=about.provider,
            method=about.method,
            path=about.path,
            body=body,
            attempt=int(retries) if retries.isdecimal() else None,
            secrets=secrets_of([*headers.items()], about.path.partition("?")[2]),
        )
        return Exchange(session, request, sends, self._rules_of(session))


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


def _refused(package: Any, request: Any, error: HansardError) -> Any:
    """Return the response to a call that may not run, in the provider's form."""
    provider = providers.provider_of(request.url.host)
    content = error_of(provider, REFUSED, str(error))
    return package.Response(REFUSED, headers=[NO_RETRY], json=content, request=request)


@contextlib.contextmanager
def _errors(package: Any, provider: str) -> Any:
    """Turn errors of a client into cases of an exchange."""
    token = _inside.set(True)
    try:
        yield
    except (package.ConnectError, package.ConnectTimeout, package.PoolTimeout) as error:
        message = f"{provider} cannot be reached: {error or type(error).__name__}"
        raise Unreached(message) from error
    except package.HTTPError as error:
        raise Broken(f"{type(error).__name__}: {error}") from error
    finally:
        _inside.reset(token)


class _Received:
    """A provider's response through a client of httpx or httpx2."""

    def __init__(self, response: Any, package: Any) -> None:
        self.status: int = response.status_code
        self.headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in response.headers.raw]
        self._response, self._package = response, package
        self.is_closed = False

    def _demand_open(self) -> None:
        if self.is_closed:
            raise Closed


class _ReceivedSync(_Received):
    def __init__(self, response: Any, package: Any, *, threaded: bool) -> None:
        super().__init__(response, package)
        self._chunks = response.iter_raw()
        self._threaded = threaded

    def _next(self) -> bytes | None:
        with _errors(self._package, "the provider"):
            data: bytes | None = next(self._chunks, None)
        return data

    async def next(self) -> bytes | None:
        self._demand_open()
        return await asyncio.to_thread(self._next) if self._threaded else self._next()

    async def close(self) -> None:
        self._response.close()


class _ReceivedAsync(_Received):
    def __init__(self, response: Any, package: Any) -> None:
        super().__init__(response, package)
        self._chunks = response.aiter_raw()

    async def next(self) -> bytes | None:
        self._demand_open()
        with _errors(self._package, "the provider"):
            data: bytes | None = await anext(self._chunks, None)
        return data

    async def close(self) -> None:
        await self._response.aclose()


async def _send(
    inner: Callable[..., Any],
    client: Any,
    request: Any,
    options: Mapping[str, Any],
    package: Any,
    threaded: bool,  # noqa: FBT001 -- bound in one place
) -> Source:
    def send() -> Any:
        with _errors(package, request.url.host):
            return inner(client, request, stream=True, **options)

    response = await asyncio.to_thread(send) if threaded else send()
    return _ReceivedSync(response, package, threaded=threaded)


async def _send_async(
    inner: Callable[..., Any], client: Any, request: Any, options: Mapping[str, Any], package: Any
) -> Source:
    with _errors(package, request.url.host):
        response = await inner(client, request, stream=True, **options)
    return _ReceivedAsync(response, package)


class _Reply:
    """The response of a client of httpx or httpx2, from the items of an exchange."""

    def __init__(self, exchange: Exchange, items: Any, package: Any, request: Any) -> None:
        self._exchange = exchange
        self._items = items
        self._package = package
        self._request = request
        self._began_s = time.monotonic()
        self._ended = False

    def response(self, base: Any) -> Any:
        """Return the response once its head is there."""
        head = self._first(self._following())

        class Stream(base):  # type: ignore[misc] # of the client's package
            def __iter__(stream) -> Any:  # noqa: N805 -- `self` is the reply
                while (data := self._data(self._following())) is not None:
                    yield data
                self._state_messages()

            def close(stream) -> None:  # noqa: N805 -- `self` is the reply
                self._leave()
                while not self._ended and self._following() is not None:
                    pass
                self._items.close()

        return self._made(head, Stream())

    async def response_async(self, base: Any) -> Any:
        """Return the response once its head is there."""
        head = self._first(await self._following_async())

        class Stream(base):  # type: ignore[misc] # of the client's package
            async def __aiter__(stream) -> Any:  # noqa: N805 -- `self` is the reply
                while (data := self._data(await self._following_async())) is not None:
                    yield data
                for each in self._exchange.new_messages():
                    session = self._exchange.session
                    await session.message(each.role, each.content, fields=each.fields)

            async def aclose(stream) -> None:  # noqa: N805 -- `self` is the reply
                self._leave()
                while not self._ended and await self._following_async() is not None:
                    pass
                await self._items.aclose()

        return self._made(head, Stream())

    def _made(self, head: Mapping[str, Any], stream: Any) -> Any:
        headers = self._exchange.headers if self._exchange.ran else head["headers"]
        response = self._package.Response(
            head["status"],
            headers=[(name, value) for name, value in headers],
            stream=stream,
            request=self._request,
            extensions={"http_version": b"HTTP/1.1"},
        )
        response.elapsed = dt.timedelta(seconds=time.monotonic() - self._began_s)
        return response

    def _following(self) -> Any:
        """Return the next item; None after the last one."""
        try:
            item = next(self._items, None)
        except Unreached as error:
            raise self._unreached(error) from error
        except Miss as error:
            raise _missed(error, self._near()) from error
        return self._observed(item)

    async def _following_async(self) -> Any:
        try:
            item = await anext(self._items, None)
        except Unreached as error:
            raise self._unreached(error) from error
        except Miss as error:
            session = self._exchange.session
            near = await session._flow(self._exchange.nearest()) if self._searches else ""  # noqa: SLF001 -- reads the record
            raise _missed(error, near) from error
        return self._observed(item)

    @property
    def _searches(self) -> bool:
        return isinstance(self._exchange.session.engine, StepEngine)

    def _near(self) -> str:
        session = self._exchange.session
        if not self._searches or isinstance(session, AsyncMixin):
            return ""
        near: str = session._drive(self._exchange.nearest())  # noqa: SLF001 -- reads the record
        return near

    def _observed(self, item: Any) -> Any:
        if item is None:
            self._ended = True
        else:
            self._exchange.observe(item)
        return item

    def _unreached(self, error: Unreached) -> Exception:
        if isinstance(error.__cause__, Exception) and self._exchange.ran:
            return error.__cause__  # the client's own
        unreached: Exception = self._package.ConnectError(str(error), request=self._request)
        return unreached

    def _first(self, item: Any) -> Mapping[str, Any]:
        """Return the head. Raises the client's error if the exchange ended before it."""
        if item is not None and "head" in item:
            head: Mapping[str, Any] = item["head"]
            return head
        self._data(item)
        raise self._broken("no response")

    def _data(self, item: Any) -> bytes | None:
        """Return the piece of an item; None at the clean end. Raises the client's error."""
        if item is None:
            return None
        if "chunk" in item:
            return data_of(item["chunk"])
        end = item["end"]
        if end["how"] == COMPLETE:
            return None
        raise self._broken("closed here on record" if end["how"] == CLOSED else end["error"])

    def _broken(self, why: str) -> Exception:
        error: Exception = self._package.RemoteProtocolError(why, request=self._request)
        return error

    def _leave(self) -> None:
        """Stop receiving: the client closed the response."""
        if self._exchange.source is not None:
            self._exchange.source.is_closed = True

    def _state_messages(self) -> None:
        session = self._exchange.session
        for each in self._exchange.new_messages():
            stated = session.message(each.role, each.content, fields=each.fields)
            if isinstance(session, AsyncMixin):
                asyncio.run_coroutine_threadsafe(stated, session._loop).result()  # noqa: SLF001 -- in a thread of it


def _missed(error: Miss, near: str) -> HansardError:
    return HansardError(f"{error}; {near}") if near else error
