"""The HTTP listener of `hansard up --http`: one address for the routes of all slices.

A route names its handler as `module:function`, which is imported by the first request for it. Paths
below `/workspaces/NAME` belong to that workspace, all others to the one of the settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import importlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from http import HTTPStatus

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from hansard.bus.errors import NotFound
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.loggers import logger, unexpected
from hansard.client.listening import CLOSE, LOCAL, Address, bearer, foreign, listen
from hansard.client.opening import Broker, open_with_tables
from hansard.client.options import Defaults
from hansard.client.record import AsyncRecord
from hansard.domain import ids
from hansard.domain.errors import BadValue, CallerError, HansardError
from hansard.settings import Settings

BODY_BYTES_MAX = 16 * 1024 * 1024
"""Largest body of a request, as it is sent."""

HANDLED_MAX = 8
"""Requests that are read and handled at the same time; others wait."""

WAIT_S, HANDLE_S = 10.0, 60.0
"""Longest wait for such a place, and longest time of a handler, in seconds."""

WORKS_MAX = 2
"""Works that were put off and are done at the same time; they leave the loop to requests."""

END_S = 10.0
"""Longest wait for work that is under way when the listener ends, in seconds."""

RETRY = {"Retry-After": "1"}
"""Header of an answer after which the same request may succeed."""

TOKEN_LENGTH_MIN = 16
"""Shortest token, in characters: a shorter one can be guessed."""

WORKSPACES = "/workspaces/"
"""Prefix of paths that name their workspace."""

_log = logger(__name__)


class Later:
    """Work that is done once after a delay; what waits at the end of the listener is done then."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(WORKS_MAX)
        self._ending = asyncio.Event()

    def __call__(self, name: str, delay_s: float, work: Callable[[], Awaitable[object]]) -> None:
        """Do `work` after `delay_s` seconds, instead of what waits under this name."""
        if name in self._waiting:
            self._waiting[name].cancel()
        task = self._waiting[name] = asyncio.create_task(self._do(name, delay_s, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, name: str, delay_s: float, work: Callable[[], Awaitable[object]]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._ending.wait()
        del self._waiting[name]
        try:
            async with self._places:
                await work()
        except HansardError as error:
            _log.warning("work of the listener failed", work=name, error=str(error))
        except Exception as error:  # noqa: BLE001 -- the log gets its place, and the rest continues
            _log.warning("work of the listener failed", work=name, **unexpected(error))

    async def end(self) -> None:
        """Do what waits, and wait for it at most `END_S` seconds."""
        self._ending.set()
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=END_S)
            for task in left:
                task.cancel()


class Call(msgspec.Struct, frozen=True):
    """A request with its body, and the open record of its workspace.

    Attributes:
        path: The path, without the workspace.
        headers: The headers by lower-case name.
        query: The parameters of the query.
        body: The body, as it was sent (`content-encoding` is the handler's).
        record: The record, open until the listener ends.
        later: Does something after a delay, unless it is requested again before.
    """

    path: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    record: AsyncRecord
    later: Later


Handler = Callable[[Call], Awaitable[Response]]
"""Answers a request; a `CallerError` is answered as 400, any other error of Hansard's as 503."""


class Route(msgspec.Struct, frozen=True):
    """A path, the `module:function` of its handler, and its methods.

    A path that ends in `/` is the prefix of all paths below it.
    """

    path: str
    handler: str
    methods: tuple[str, ...] = ("POST",)


ROUTES: tuple[Route, ...] = (
    Route("/hooks/claude", "hansard.ext.frameworks.claude:handle"),
    Route("/v1/traces", "hansard.ext.otel.receiver:traces"),
    Route("/v1/logs", "hansard.ext.otel.receiver:logs"),
)
"""Every route of the listener. A slice adds a line here."""


def problem(status: HTTPStatus, fact: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer that states why a request failed."""
    return JSONResponse({"message": fact}, status, dict(headers or {}))


@contextlib.asynccontextmanager
async def listening(
    settings: Settings,
    broker: Broker,
    address: Address,
    *,
    token: str | None = None,
    only: str | None = None,
    routes: tuple[Route, ...] | None = None,
) -> AsyncGenerator[str]:
    """Serve the routes while the block runs; yield the listener's URL.

    Args:
        settings: The settings; their workspace is that of paths that name none.
        broker: The running broker.
        address: Where to listen; port 0 is a free port.
        token: The bearer token that each request must send; None to accept all from this machine.
        only: The only workspace that is served; None for all.
        routes: Other routes than `ROUTES`.

    Raises BadValue if the address cannot be listened on, or is open to others without a token.
    """
    if token is None and address.host not in LOCAL:
        fact = f"{address.host} can be reached from other machines, and no token is required"
        raise BadValue("--http", fact, f"add --token-file FILE, or listen on {LOCAL[0]}")
    if token is not None and len(token) < TOKEN_LENGTH_MIN:
        fact = f"a token of {len(token)} characters"
        raise BadValue("token", fact, f"give one of {TOKEN_LENGTH_MIN} or more")
    async with contextlib.aclosing(_Records(settings, broker, only)) as records:
        app = _Endpoint(records, ROUTES if routes is None else routes, address, token)
        begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(listen(app, address, "", begun.set_result))
        try:
            either: set[asyncio.Future[object]] = {serving, begun}  # type: ignore[arg-type] # their results differ
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            yield begun.result()
        finally:
            serving.cancel()
            await asyncio.wait({serving})


class _Records:
    """The open records of the workspaces that requests have named."""

    def __init__(self, settings: Settings, broker: Broker, only: str | None) -> None:
        self._settings = settings
        self._broker = broker
        self._only = only
        self._open: dict[str, asyncio.Task[AsyncRecord]] = {}
        self.later = Later()

    async def aclose(self) -> None:
        """Do what was put off, and close the records."""
        await self.later.end()
        for opening in self._open.values():
            with contextlib.suppress(HansardError):
                await (await opening).close()

    async def of(self, workspace: str | None) -> AsyncRecord:
        """Return the record of a workspace. Raises BadName, NotFound, and as `connect`."""
        name = ids.workspace_name(workspace or self._settings.workspace)
        opening = self._open.get(name)
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = self._open[name] = asyncio.create_task(self._opened(name))
        return await asyncio.shield(opening)  # a request that is cut off leaves nothing half open

    async def _opened(self, name: str) -> AsyncRecord:
        await self._check(name)
        settings = msgspec.structs.replace(self._settings, workspace=name)
        workspace, tables = await open_with_tables(settings)
        return AsyncRecord(workspace, Defaults.of(settings, {}), tables)

    async def _check(self, name: str) -> None:
        """Raise NotFound for a workspace that is not served here; the default one is created."""
        if self._only not in (None, name):
            raise NotFound(f"workspace {name!r}", f"this listener serves only {self._only!r}")
        if name == self._settings.workspace:
            return
        raw = await RawWorkspace.open(self._broker.runtime, name)
        try:
            known = await raw.workspaces()
        finally:
            await raw.close()
        if name not in known:
            raise NotFound(f"workspace {name!r}", f"create it: hansard up --workspace {name}")


class _Endpoint:
    """The ASGI application: it checks a request, reads it, and has its route's handler answer."""

    def __init__(
        self, records: _Records, routes: tuple[Route, ...], address: Address, token: str | None
    ) -> None:
        self._records = records
        self._routes = {route.path: route for route in routes}
        self._hosts = {*LOCAL, address.host.lower(), *(host.lower() for host in address.hosts)}
        self._token = None if token is None else token.encode()
        self._handlers: dict[str, Handler] = {}
        self._places = asyncio.Semaphore(HANDLED_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = self._refusal(request) or await self._in_turn(request)
        await answer(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        """Return the refusal of a foreign page or host, of a wrong token or an unknown path."""
        refusal = foreign(request.headers, self._hosts)
        if refusal is not None:
            return problem(*refusal, CLOSE)
        if self._token is not None and not hmac.compare_digest(
            bearer(request.headers), self._token
        ):
            fact = "no known token: send 'Authorization: Bearer TOKEN', that of the --token-file"
            return problem(HTTPStatus.UNAUTHORIZED, fact, CLOSE | {"WWW-Authenticate": "Bearer"})
        _, path = _split(request.url.path)
        route = self._route(path)
        if route is None:
            known = ", ".join(sorted(self._routes)) or "none"
            fact = f"there is nothing at {path!r:.80}; the paths here are: {known}"
            return problem(HTTPStatus.NOT_FOUND, fact, CLOSE)
        if request.method not in route.methods:
            allowed = ", ".join(route.methods)
            fact = f"{request.method} of {path}: use {allowed}"
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, fact, CLOSE | {"Allow": allowed})
        return None

    def _route(self, path: str) -> Route | None:
        exact = self._routes.get(path)
        if exact is not None:
            return exact
        below = (each for at, each in self._routes.items() if at[-1] == "/" and path.startswith(at))
        return max(below, key=lambda route: len(route.path), default=None)

    async def _in_turn(self, request: Request) -> Response:
        """Read and answer a request in one of the places, within the limits of time."""
        try:
            async with asyncio.timeout(WAIT_S):
                await self._places.acquire()
        except TimeoutError:
            fact = f"{HANDLED_MAX} requests are under way: send this one again later"
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, fact, CLOSE | RETRY)
        try:
            body = await _body(request)
            if body is None:
                fact = f"a body of more than {BODY_BYTES_MAX:,} bytes: send less at a time"
                return problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, fact, CLOSE)
            async with asyncio.timeout(HANDLE_S):
                return await self._answer(request, body)
        except ClientDisconnect:
            return problem(HTTPStatus.BAD_REQUEST, "the client has left")
        except TimeoutError:
            fact = f"not done within {HANDLE_S:g} s: send it again later"
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, fact, RETRY)
        finally:
            self._places.release()

    async def _answer(self, request: Request, body: bytes) -> Response:
        workspace, path = _split(request.url.path)
        route = self._route(path)
        try:
            record = await self._records.of(workspace)
            query, later = request.query_params, self._records.later
            call = Call(path, request.headers, query, body, record, later)
            return await self._handler(route.handler if route is not None else "")(call)
        except NotFound as error:
            return problem(HTTPStatus.NOT_FOUND, str(error))
        except CallerError as error:
            return problem(HTTPStatus.BAD_REQUEST, str(error))
        except HansardError as error:
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), RETRY)
        except Exception as error:  # noqa: BLE001 -- the client gets the failure, the log its place
            _log.warning("a request failed", path=path, **unexpected(error))
            fact = f"{path} failed: see the log of 'hansard up'"
            return problem(HTTPStatus.INTERNAL_SERVER_ERROR, fact)

    def _handler(self, name: str) -> Handler:
        if name not in self._handlers:
            module, _, function = name.partition(":")
            self._handlers[name] = getattr(importlib.import_module(module), function)
        return self._handlers[name]


def _split(path: str) -> tuple[str | None, str]:
    """Return the workspace that a path names, if any, and the path below it."""
    if not path.startswith(WORKSPACES):
        return None, path
    name, slash, rest = path.removeprefix(WORKSPACES).partition("/")
    return name, slash + rest


async def _body(request: Request) -> bytes | None:
    """Return a request's body; None if it is too large."""
    stated = request.headers.get("content-length", "0")
    if stated.isdigit() and int(stated) > BODY_BYTES_MAX:
        return None
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > BODY_BYTES_MAX:
            return None
    return bytes(taken)
