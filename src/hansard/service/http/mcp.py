"""The record as an MCP server at `/mcp`, beside the other routes.

A client is the operator, or the principal of its bearer token: a restricted agent, whose requests
go to the service over the broker as those of its own connection. `/workspaces/NAME/mcp` is the
record of another workspace. The query has the options of `hansard mcp serve`: `?tools=board,team`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncGenerator
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp

from hansard.broker.access import Credentials
from hansard.bus.jetstream.client import BrokerOptions, Requests
from hansard.client.listening import bearer
from hansard.client.options import Defaults
from hansard.client.restricted.link import Link
from hansard.client.restricted.record import AsyncRestrictedRecord
from hansard.domain.choices import check_options
from hansard.domain.errors import ExtraMissing
from hansard.operations.protocol.faults import ServiceBusy
from hansard.service.http.identity import Identity
from hansard.service.http.problems import CallerRefused
from hansard.service.http.records import OpenWorkspace, Pool, Records
from hansard.service.http.routes import Caller

PATH = "/mcp"

CLIENTS_MAX, CLIENTS_OF_ONE_MAX = 100, 8
"""Most clients, and most of one principal; for one more, the one that was idle longest ends: among
all, or among the principal's.
"""

IDLE_S = 3_600.0
"""Seconds without a request after which a client ends."""

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


class McpEndpoint:
    """The servers of the clients, each with its own sessions."""

    def __init__(self, records: Records, identity: Identity) -> None:
        self._records = records
        self._identity = identity
        self._clients = Pool[_Key, ASGIApp](lambda: IDLE_S)
        self.aclose = self._clients.aclose

    async def answer(
        self, request: Request, workspace: str | None, stack: contextlib.AsyncExitStack
    ) -> tuple[Caller, ASGIApp]:
        """Return the caller of a request, and its server, which stays open with the stack.

        Raises CallerRefused, ExtraMissing, ServiceBusy, BadOption, and as opening a record.
        """
        name = workspace or self._records.settings.workspace
        caller = await self._identity.caller(request.method, request.headers, name)
        if caller.way != "token":
            fact = "send the bearer token of an MCP client"
            raise CallerRefused(HTTPStatus.UNAUTHORIZED, fact)
        options = _Options.of(request.query_params)
        who = caller.principal
        key = (name, "" if who is None else who.token_id, options)
        if key not in self._clients.kept:
            try:
                await asyncio.to_thread(importlib.import_module, "hansard.service.mcp.server")
            except ModuleNotFoundError as error:
                raise ExtraMissing("the MCP server at /mcp", error.name or "mcp", "mcp") from None
            self._make_room(key)
        token = bearer(request.headers)
        opening = partial(self._server, name, caller, token, options)
        return caller, await stack.enter_async_context(self._clients.use(key, opening))

    @contextlib.asynccontextmanager
    async def _server(
        self, name: str, caller: Caller, token: bytes, options: _Options
    ) -> AsyncGenerator[ASGIApp]:
        """Yield the server of a client, which begins with its first request."""
        from hansard.service.mcp.offers import Sessions  # noqa: PLC0415 -- of an extra
        from hansard.service.mcp.server import app_of  # noqa: PLC0415 -- of an extra

        async with contextlib.AsyncExitStack() as stack:
            opened = await stack.enter_async_context(self._records.of(name))
            record: Any = opened.record
            if caller.principal is not None:
                record = await _restricted(opened, caller, token)
                stack.push_async_callback(record.close)
            tools = options.tools.split(",")
            who = options.agent, options.role
            sessions = Sessions(record, *who, tools=tools, prefix=options.prefix)
            yield await stack.enter_async_context(app_of(sessions, SESSIONS_MAX))

    def _make_room(self, new: _Key) -> None:
        """End the client that was idle longest, if there are too many. Raises ServiceBusy."""
        kept = self._clients.kept
        own = [key for key in kept if new[1] and key[1] == new[1]]
        for among, most in ((own, CLIENTS_OF_ONE_MAX), ([*kept], CLIENTS_MAX)):
            if len(among) >= most and new not in kept:
                idle = [key for key in among if not kept[key].users]
                if not idle:
                    raise ServiceBusy("clients of MCP with open requests", most, 10.0)
                self._clients.close(min(idle, key=lambda key: kept[key].used_s))
                return


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
