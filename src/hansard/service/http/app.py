"""The HTTP listener of `hansard up --http`: one address for all routes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hansard.agents.errors import RoleRefused
from hansard.bus.loggers import logger, unexpected
from hansard.client.listening import CLOSE, LOCAL, Address, Call, Handler, foreign, listen
from hansard.client.opening import Broker, alongside, data_dir_of
from hansard.domain.errors import BadValue, HansardError
from hansard.operations.record import RecordOperations
from hansard.service.http.identity import Identity, Security
from hansard.service.http.logins import Logins, published
from hansard.service.http.mcp import PATH, McpEndpoint
from hansard.service.http.problems import RETRY, CallerRefused, of_error, problem
from hansard.service.http.records import OpenWorkspace, Records, RoleCallerContext
from hansard.service.http.repeats import Repeats
from hansard.service.http.routes import (
    LEFT,
    SLICE_ROUTES,
    SMALL_BODY_BYTES,
    Caller,
    Context,
    RequestCounts,
    Route,
    RouteTable,
    body_of,
)
from hansard.service.http.site import Site
from hansard.settings import Settings

BODY_BYTES_MAX = 16 * 1024 * 1024
"""Largest body of a request, as it is sent."""

HANDLED_MAX = 8
"""Requests that are read and handled at the same time; others wait."""

OF_ONE_MAX = 3
"""Most of them of one principal, so that it keeps none of the others out."""

WAIT_S, HANDLE_S = 10.0, 60.0
"""Longest wait for such a place, and longest time of a handler, in seconds."""

WAIT_FOR_S, POLL_S = 10.0, 0.02
"""Longest wait for the position of `wait_for`, and time between two looks, in seconds."""

WORKSPACES = "/workspaces/"
"""Prefix of paths of slices that name their workspace."""

POSITION = "Hansard-Position"
"""Header of the position as of which an answer holds."""

_json = msgspec.json.Encoder(enc_hook=str)

_log = logger(__name__)


@contextlib.asynccontextmanager
async def listening(
    settings: Settings,
    broker: Broker,
    address: Address,
    *,
    token: str | None = None,
    tls: tuple[Path, Path] | None = None,
    proxy_key: bytes | None = None,
    only: Sequence[str] | None = None,
    slices: Mapping[str, str] = SLICE_ROUTES,
) -> AsyncGenerator[str]:
    """Serve the routes while the block runs; yield the listener's URL.

    Args:
        settings: The settings; their workspace is that of paths that name none.
        broker: The running broker.
        address: Where to listen; port 0 is a free port.
        token: The operator's bearer token; without one, slices accept all from this machine.
        tls: Files of a certificate and its key, to speak HTTPS.
        proxy_key: The key with which a proxy signs the header that names the caller.
        only: The only workspaces that are served; None for all.
        slices: Other paths of slices than `SLICE_ROUTES`.

    Raises BadValue if the address cannot be listened on, or is open to others without TLS.
    """
    security = Security(token=token, tls=tls, proxy_key=proxy_key)
    folder = data_dir_of(settings)
    async with (
        contextlib.aclosing(Records(settings, broker, only)) as records,
        contextlib.aclosing(Repeats(folder / "http" / "writes.sqlite")) as repeats,
    ):
        identity = Identity(Logins(folder), records, address, security)
        app = App(records, identity, address, RouteTable.of_modules(), slices, repeats)
        begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def announce(url: str) -> None:
            identity.use_port(urlsplit(url).port or 0)
            begun.set_result(url)

        options: dict[str, Any] = (
            {} if tls is None else {"ssl_certfile": tls[0], "ssl_keyfile": tls[1]}
        )
        async with (
            alongside(identity.sweep()),
            contextlib.aclosing(app.mcp),
            alongside(listen(app, address, "", announce, identity.end, **options)) as serving,
        ):
            either: set[asyncio.Future[object]] = {serving, begun}  # type: ignore[arg-type] # their results differ
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            with published(folder, begun.result()):
                yield begun.result()


class App:
    """The ASGI application: it checks a request, reads it, and has its route answer."""

    def __init__(
        self,
        records: Records,
        identity: Identity,
        address: Address,
        table: RouteTable,
        slices: Mapping[str, str],
        repeats: Repeats,
    ) -> None:
        self.records = records
        self.table = table
        self.document: dict[str, Any] | None = None
        """The OpenAPI document, once it was requested."""
        self.requests = RequestCounts()
        self.mcp = McpEndpoint(records, identity)
        self._identity = identity
        self._site = Site(identity)
        self._repeats = repeats
        self._slices = slices
        self._hosts = {*LOCAL, address.host.lower(), *(host.lower() for host in address.hosts)}
        self._handlers: dict[str, Handler] = {}
        self._places = asyncio.Semaphore(HANDLED_MAX)
        self._places_of: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = (
            WeakValueDictionary()
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. The workspace stays open until the answer is sent."""
        began_s = time.monotonic()
        request = Request(scope, receive)
        async with contextlib.AsyncExitStack() as stack:
            workspace, path = _split(request.url.path)
            if path == PATH and foreign(request.headers, self._hosts) is None:
                await self._mcp(request, workspace, stack, send)
                return
            answer = await self._response(request, stack)
            answer.headers.update(self._identity.headers)
            caller: Caller | None = getattr(request.state, "caller", None)
            route = getattr(request.state, "route", "other")
            took_s = time.monotonic() - began_s
            self.requests.add(route, request.method, answer.status_code, took_s)
            await self._identity.send(caller, answer, scope, receive, send)

    async def _mcp(
        self, request: Request, workspace: str | None, stack: contextlib.AsyncExitStack, send: Send
    ) -> None:
        """Pass a request to the MCP server of its caller."""
        caller: Caller | None = None
        try:
            caller, answer = await self.mcp.answer(request, workspace, stack)
        except HansardError as error:
            answer = of_error(error)
        scope = dict(request.scope) | {"path": PATH, "raw_path": PATH.encode(), "root_path": ""}
        await self._identity.send(caller, answer, scope, request.receive, send)

    async def _response(self, request: Request, stack: contextlib.AsyncExitStack) -> Response:
        """Answer a request, or return the problem that prevents it."""
        path = request.url.path
        try:
            return await self._checked(request) or await self._in_turn(request, stack)
        except RoleRefused as error:
            await self._identity.note_refusal(request.state.caller, error)
            return of_error(error)
        except HansardError as error:
            return of_error(error)
        except TimeoutError:
            fact, remedy = f"not done within {HANDLE_S:g} s", "send it again later"
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, fact, RETRY, remedy=remedy)
        except Exception as error:  # noqa: BLE001 -- the client gets the failure, the log its place
            _log.warning("a request failed", path=path, **unexpected(error))
            remedy = "see the log of 'hansard up'"
            return problem(HTTPStatus.INTERNAL_SERVER_ERROR, f"{path} failed", remedy=remedy)

    async def _checked(self, request: Request) -> Response | None:
        """Return the answer that needs no open workspace, or a refusal; None to continue.

        The caller is known before anything of the request's body is read; it is None for a path
        that shows nothing of a record.
        """
        refusal = foreign(request.headers, self._hosts)
        if refusal is not None:
            return problem(*refusal, CLOSE)
        answer = await self._site.answer(request, self.records.names)
        if answer is not None:
            return answer
        method, headers, path = request.method, request.headers, request.url.path
        methods = request.state.methods = self.table.at(_path_of(request))
        is_slice = _split(path)[1] in self._slices
        allowed = ["POST"] if is_slice else [*methods]
        if not allowed:
            remedy = "see /api/v1/openapi.json for the paths"
            fact = f"there is nothing at {path!r:.80}"
            return problem(HTTPStatus.NOT_FOUND, fact, CLOSE, remedy=remedy)
        if method not in allowed and not (method == "HEAD" and "GET" in allowed):
            known = ", ".join(allowed)
            fields = CLOSE | {"Allow": known}
            fact = f"{method} of {path!r:.80}"
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return problem(status, fact, fields, remedy=f"use {known}")
        request.state.caller = None
        workspaces = [each["workspace"] for _, each in methods.values() if "workspace" in each]
        if is_slice or any(route.trusted and not names for route, names in methods.values()):
            request.state.caller = await self._identity.program(method, headers)
        elif workspaces:
            request.state.caller = await self._identity.caller(method, headers, workspaces[0])
        return None

    async def _in_turn(self, request: Request, stack: contextlib.AsyncExitStack) -> Response:
        """Answer a request in one of the places, or one that mostly waits without."""
        routes = [route for route, _ in request.state.methods.values()]
        length = request.headers.get("content-length", "")
        is_small = length.isdigit() and int(length) <= SMALL_BODY_BYTES
        if is_small and any(route.waits for route in routes):
            return await self._handled(request, stack)
        async with self._place(request.state.caller) as is_free:
            if is_free:
                return await self._handled(request, stack)
        fact = "too many requests are under way"
        busy = HTTPStatus.SERVICE_UNAVAILABLE
        return problem(busy, fact, CLOSE | RETRY, remedy="send this one again later")

    @contextlib.asynccontextmanager
    async def _place(self, caller: Caller | None) -> AsyncGenerator[bool]:
        """Take a place; yield whether there was one within `WAIT_S`."""
        places = [self._places]
        if caller is not None and caller.principal is not None:
            own = self._places_of.get(caller.owner) or asyncio.Semaphore(OF_ONE_MAX)
            self._places_of[caller.owner] = own
            places.insert(0, own)  # waiting for the own place takes no common one
        async with contextlib.AsyncExitStack() as held:
            try:
                async with asyncio.timeout(WAIT_S):
                    for each in places:
                        await held.enter_async_context(each)
            except TimeoutError:
                await held.aclose()
                yield False
            else:
                yield True

    async def _handled(self, request: Request, stack: contextlib.AsyncExitStack) -> Response:
        """Read and answer a request within the limits of size and time."""
        body = await body_of(request, BODY_BYTES_MAX)
        async with asyncio.timeout(HANDLE_S):
            workspace, slice_path = _split(request.url.path)
            if slice_path in self._slices:
                request.state.route = slice_path
                opened = await stack.enter_async_context(self.records.of(workspace))
                return await self._slice(request, body, slice_path, opened)
            methods = request.state.methods
            route, parameters = methods.get(request.method) or methods["GET"]
            request.state.route = route.path
            return await self._routed(route, request, parameters, body, stack)

    async def _slice(
        self, request: Request, body: bytes, path: str, opened: OpenWorkspace
    ) -> Response:
        """Answer by the handler of a slice, which writes to the trusted record."""
        opened.pinned = True  # it may keep sessions for the record
        context = await self._context(request, opened)
        record, later = context.trusted(path), self.records.later
        call = Call(path, request.headers, request.query_params, body, record, later)
        name = self._slices[path]
        if name not in self._handlers:
            module, _, function = name.partition(":")
            self._handlers[name] = getattr(importlib.import_module(module), function)
        return await self._handlers[name](call)

    async def _routed(
        self,
        route: Route,
        request: Request,
        parameters: dict[str, str],
        body: bytes,
        stack: contextlib.AsyncExitStack,
    ) -> Response:
        """Answer by the function of a route."""
        if not route.in_workspace:
            arguments = route.arguments(request, parameters, body)
            return _encoded(await route.function(self, **arguments), None)
        name = parameters.pop("workspace")
        opened = await stack.enter_async_context(self.records.of(name))
        context = await self._context(request, opened, reads=not route.waits)
        if route.trusted:
            context.trusted(f"{route.method} {route.path}")
        arguments = route.arguments(request, parameters, body)
        await self._wait_for(context)

        async def answered() -> Response:
            async with self.records.of(name):  # a write goes on if its client leaves
                return await _answered(route, context, arguments)

        if route.effects:
            caller = "/".join((name, *context.caller.owner))
            return await self._repeats.answer(request, caller, body, answered)
        if route.cancels:
            return await _while_there(request, _answered(route, context, arguments))
        return await _answered(route, context, arguments)

    async def _context(
        self, request: Request, opened: OpenWorkspace, *, reads: bool = True
    ) -> Context:
        """Return the context of a request; one that does not read has no record."""
        caller: Caller = request.state.caller
        record: Any = opened.record if reads else None
        role = None
        if caller.principal is not None and reads:
            role = await opened.role_context(caller.principal)
            record = RecordOperations(RoleCallerContext(role, opened.requests))
        return Context(caller, opened, record, request, role)

    async def _wait_for(self, context: Context) -> None:
        """Wait for the position that `wait_for` names. Raises Behind.

        Each read brings its tables to the newest position at its time, which is then no older.
        """
        target = context.request.query_params.get("wait_for")
        if target is None:
            return
        log = context.trusted("wait_for").workspace.log
        if not (target.isascii() and target.isdigit()):
            raise BadValue("wait_for", f"{target!r:.40}", "give a position, a number")
        position = int(target)
        head = await log.head()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_FOR_S):
                while head < position:
                    await asyncio.sleep(POLL_S)
                    head = await log.head()
        if head < position:
            raise NotReached(position, head)


class NotReached(HansardError):
    """The log has not reached the requested position.

    State: nothing was read or written.
    Remedy: check the position and the workspace; if both are right, send it again later.
    """

    def __init__(self, position: int, head: int) -> None:
        super().__init__(f"position {position} was not reached in {WAIT_FOR_S:g} s: it is {head}")
        self.value = f"{position}"
        self.fact = f"the log is at position {head} after {WAIT_FOR_S:g} s"


async def _answered(route: Route, context: Context, arguments: dict[str, Any]) -> Response:
    """Return the response of a route's function."""
    if context.caller.is_operator:  # read first: the answer holds at least as of it
        context.position = await context.workspace.record.workspace.log.head()
    result = await route.function(context, **arguments)
    if route.effects and context.caller.is_operator:
        context.position = await context.workspace.record.workspace.log.head()
    return _encoded(result, context)


async def _while_there(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
    """Run work until its client leaves. Raises CallerRefused."""
    working = asyncio.create_task(work)
    # The body was read, so that nothing else arrives.
    leaving: asyncio.Future[Any] = asyncio.ensure_future(request.receive())
    try:
        both: set[asyncio.Future[Any]] = {working, leaving}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise CallerRefused(HTTPStatus.BAD_REQUEST, LEFT)
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait({working, leaving})


def _encoded(result: Any, context: Context | None) -> Response:
    """Return the response of a result, with its position."""
    if isinstance(result, Response):
        answer = result
    else:
        answer = Response(_json.encode(result), media_type="application/json")
    position = getattr(result, "position", None)
    if position is None and context is not None:
        position = context.position
    if isinstance(position, int):
        answer.headers[POSITION] = f"{position}"
    answer.headers.setdefault("Cache-Control", "no-store")
    return answer


def _path_of(request: Request) -> str:
    """Return the path as it was sent: an encoded slash is part of its segment."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    return raw.partition(b"?")[0].decode("ascii", errors="replace")


def _split(path: str) -> tuple[str | None, str]:
    """Return the workspace that a path of a slice names, if any, and the path below it."""
    if not path.startswith(WORKSPACES):
        return None, path
    name, slash, rest = path.removeprefix(WORKSPACES).partition("/")
    return name, slash + rest
