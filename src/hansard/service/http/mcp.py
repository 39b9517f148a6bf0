"""The record as an MCP server at `/mcp`, beside the other routes.

A client is the operator, or the principal of its bearer token: a restricted agent, whose requests
go to the service over the broker as those of its own connection. `/workspaces/NAME/mcp` is the
record of another workspace. The query has the options of `hansard mcp serve`: `?tools=board,team`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import time
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from hansard.broker.access import Credentials
from hansard.bus.jetstream.client import BrokerOptions, Requests
from hansard.client.listening import CLOSE, bearer
from hansard.client.options import Defaults
from hansard.client.restricted.link import Link
from hansard.client.restricted.record import AsyncRestrictedRecord
from hansard.domain.choices import check_options
from hansard.domain.errors import ExtraMissing, HansardError
from hansard.operations.protocol.faults import ServiceBusy
from hansard.service.http.identity import Identity
from hansard.service.http.problems import CallerRefused, of_error, problem
from hansard.service.http.records import OpenWorkspace, Records
from hansard.service.http.routes import Caller

PATH = "/mcp"

CLIENTS_MAX, CLIENTS_OF_ONE_MAX = 100, 8
"""Most clients, and most of one principal; for one more, the one that was idle longest ends: among
all, or among the principal's.
"""

IDLE_S, SWEEP_S, VALID_S = 3_600.0, 30.0, 0.5
"""Seconds without a request after which a client ends, between two checks for such clients, and
between two checks of the access of an open request.
"""

SESSIONS_MAX = 100
"""Most sessions of the protocol of one client; one more is refused."""


class _ServiceLogin(Credentials, frozen=True, kw_only=True):
    """A principal's token, sent over the service's own login at the broker."""

    broker: BrokerOptions

    def options(self) -> BrokerOptions:
        """Return the service's options, with the principal's inbox."""
        name = f"hansard mcp {self.principal}"[:80]
        return msgspec.structs.replace(self.broker, inbox_prefix=self.inbox, name=name)


class _Options(msgspec.Struct, frozen=True):
    """Options of a client in the query: its agent and role, and the tools offered to it."""

    agent: str | None = None
    role: str | None = None
    tools: str = "default"
    prefix: str = ""

    @classmethod
    def of(cls, query: QueryParams) -> _Options:
        """Return the options in a query; `tools` may be repeated. Raises BadOption."""
        check_options(PATH, query, cls.__struct_fields__)
        return cls(**{name: ",".join(query.getlist(name)) for name in query})


_Key = tuple[str, str, _Options]
"""Workspace, id of the token (empty for the operator), and options of a client."""


class _Client:
    """A client, whose server runs in a task of its own."""

    def __init__(self) -> None:
        self.begun: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()
        self.ending = asyncio.Event()
        self.used_s = time.monotonic()
        self.open = 0
        self.task: asyncio.Task[None] | None = None


class McpEndpoint:
    """Passes each request to the server of its caller."""

    def __init__(self, records: Records, identity: Identity) -> None:
        self._records = records
        self._identity = identity
        self._clients: dict[_Key, _Client] = {}
        self._sweep = asyncio.create_task(self._end_idle())

    async def aclose(self) -> None:
        """End all clients."""
        self._sweep.cancel()
        for client in self._clients.values():
            client.ending.set()
        tasks = [each.task for each in self._clients.values() if each.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def answer(
        self, request: Request, workspace: str | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request; it is cut off when its caller loses access."""
        name = workspace or self._records.settings.workspace
        try:
            caller = await self._identity.caller(request.method, request.headers, name)
            if caller.way != "token":
                raise CallerRefused(
                    HTTPStatus.UNAUTHORIZED, "send the bearer token of an MCP client"
                )
            options = _Options.of(request.query_params)
            client = await self._client(name, caller, bearer(request.headers), options)
            server = await asyncio.shield(client.begun)
        except ExtraMissing as error:
            answer = problem(HTTPStatus.NOT_IMPLEMENTED, str(error), CLOSE)
            await answer(scope, receive, send)
            return
        except HansardError as error:
            await of_error(error)(scope, receive, send)
            return
        client.open += 1
        inner = dict(scope) | {"path": PATH, "raw_path": PATH.encode(), "root_path": ""}
        task = asyncio.ensure_future(server(inner, receive, send))
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=VALID_S)
                if not caller.valid():
                    break
            if task.done():
                task.result()
        finally:
            client.open -= 1
            client.used_s = time.monotonic()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _client(self, name: str, caller: Caller, token: bytes, options: _Options) -> _Client:
        """Return the client of a caller, which begins with its first request."""
        who = caller.principal
        key = (name, "" if who is None else who.token_id, options)
        client = self._clients.get(key)
        if client is None:
            try:
                await asyncio.to_thread(importlib.import_module, "hansard.service.mcp.server")
            except ModuleNotFoundError as error:
                raise ExtraMissing("the MCP server at /mcp", error.name or "mcp", "mcp") from None
            client = self._clients.get(key)
        if client is None:
            self._make_room(key[1])
            client = self._clients[key] = _Client()
            client.task = asyncio.create_task(self._run(client, name, caller, token, options))
            client.task.add_done_callback(lambda _: self._remove(key, client))
        client.used_s = time.monotonic()
        return client

    async def _run(
        self, client: _Client, name: str, caller: Caller, token: bytes, options: _Options
    ) -> None:
        from hansard.service.mcp.offers import Sessions  # noqa: PLC0415 -- of an extra
        from hansard.service.mcp.server import app_of  # noqa: PLC0415 -- of an extra

        try:
            async with contextlib.AsyncExitStack() as stack:
                opened = await stack.enter_async_context(self._records.of(name))
                record: Any = opened.record
                if caller.principal is not None:
                    record = await _restricted(opened, caller, token)
                    stack.push_async_callback(record.close)
                sessions = Sessions(
                    record,
                    options.agent,
                    options.role,
                    tools=options.tools.split(","),
                    prefix=options.prefix,
                )
                app = await stack.enter_async_context(app_of(sessions, SESSIONS_MAX))
                client.begun.set_result(app)
                await client.ending.wait()
        except BaseException as error:
            if not client.begun.done():
                client.begun.set_exception(error)
            if not isinstance(error, HansardError):
                raise

    def _make_room(self, token_id: str) -> None:
        """End the client that was idle longest, if there are too many. Raises ServiceBusy."""
        own = {key: each for key, each in self._clients.items() if token_id and key[1] == token_id}
        for among, most in ((own, CLIENTS_OF_ONE_MAX), (self._clients, CLIENTS_MAX)):
            if len(among) >= most:
                idle = [key for key, each in among.items() if not each.open]
                if not idle:
                    raise ServiceBusy("clients of MCP with open requests", most, 10.0)
                self._clients.pop(min(idle, key=lambda key: self._clients[key].used_s)).ending.set()
                return

    def _remove(self, key: _Key, client: _Client) -> None:
        """Forget a client that ended, unless another one has its place."""
        if self._clients.get(key) is client:
            del self._clients[key]

    async def _end_idle(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            late_s = time.monotonic() - IDLE_S
            for client in self._clients.values():
                if not client.open and client.used_s < late_s:
                    client.ending.set()


async def _restricted(opened: OpenWorkspace, caller: Caller, token: bytes) -> AsyncRestrictedRecord:
    """Open the record as a principal, over the service. Raises Unreachable, AccessRefused."""
    who = caller.principal
    assert who is not None  # noqa: S101 -- of a caller in a role
    login = _ServiceLogin(
        url=",".join(opened.runtime.urls),
        workspace=opened.name,
        role=who.role,
        principal=who.name,
        token=token.decode("ascii"),
        nkey_seed="",
        inbox=who.inbox,
        broker=opened.runtime,
    )
    link = Link(login, await Requests.open(login.options()))
    return AsyncRestrictedRecord(link, Defaults.of(opened.settings, {}))
