"""The record as an MCP server, in both eras of the protocol: over stdio, or as an application."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import jsonschema
import mcp_types as types
import msgspec
from mcp.server import NotificationOptions, Server
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourceUpdated,
    ServerEvent,
    SubscriptionBus,
)
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette

from hansard._version import __version__
from hansard.agents.errors import RoleRefused
from hansard.agents.policy.approvals import listed
from hansard.bus.loggers import logger, unexpected
from hansard.client.opening import alongside
from hansard.domain.approval import ApprovalStatus
from hansard.domain.choices import check_options
from hansard.domain.errors import HansardError
from hansard.operations.protocol.faults import NotOffered
from hansard.service.mcp import resources
from hansard.service.mcp.offers import (
    TEXTS,
    Answer,
    Offer,
    Sessions,
    Work,
    for_client,
    offers,
    refused,
)
from hansard.service.mcp.resources import WATCHED_MAX, Address, Updates

# ------------------------------------------------------------ progress

FIRST_S, GROWTH, MOST_S = 1.0, 2, 5.0
"""Seconds until the first progress report, growth of the pauses after it, longest pause."""

Report = Callable[[float, float | None, str], Awaitable[None]]
"""Reports progress: seconds so far, the most it may take if known, and what it waits for."""

_log = logger(__name__)


@contextlib.asynccontextmanager
async def reporting(
    sessions: Sessions, name: str, arguments: Mapping[str, Any], report: Report | None
) -> AsyncGenerator[None]:
    """Report progress while the block runs; without `report` none was requested."""
    if report is None:
        yield
        return
    async with alongside(_telling(sessions, name, arguments, report)):
        yield


async def _telling(
    sessions: Sessions, name: str, arguments: Mapping[str, Any], report: Report
) -> None:
    began_s, pause_s = time.monotonic(), FIRST_S
    most = arguments.get("timeout_s")
    while True:
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * GROWTH, MOST_S)
        try:
            what = await _awaited(sessions, name, arguments)
            passed_s = round(time.monotonic() - began_s, 3)
            total_s = float(most) if isinstance(most, int | float) and most >= passed_s else None
            await report(passed_s, total_s, what)
        except Exception as error:  # noqa: BLE001 -- the call continues without reports
            _log.debug("cannot report progress", call=name, **unexpected(error))


async def _awaited(sessions: Sessions, name: str, arguments: Mapping[str, Any]) -> str:
    """Describe what a call waits for: a person's approval, its arguments, or its own work."""
    work = sessions.under_way(arguments.get("run_id"), in_run=True)
    if work is not None and sessions.workspace is not None:
        for each in await listed(sessions.workspace, [work.session.run]):
            call, name_of = each.approval.request, each.approval.id
            if call.agent == work.session.agent and each.standing is ApprovalStatus.PENDING:
                return f"{call.tool} waits for a person: hansard approvals grant {name_of}"
    for field in ("key", "task"):
        if name == "team_wait_for" and arguments.get(field) is not None:
            return f"waiting for {field} {arguments[field]!r:.80}"
    return "waiting for a task" if name == "team_claim" else f"{name} is under way"


T = TypeVar("T")

Context = ServerRequestContext[Any]
"""The context of a request."""

PATH = "/mcp"
"""Path of the server over HTTP."""

WATCHED = "hansard/watched"
"""Key of a connection's subscriptions in its state."""


class _Server(Server[Any]):
    """A server whose lists notify of no changes: a client lists what it wants to read."""

    def get_capabilities(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> types.ServerCapabilities:
        """Return the SDK's capabilities, which since 2026-07-28 declare each list that notifies."""
        capabilities = super().get_capabilities(notification_options, *args, **kwargs)
        lists = {
            name: getattr(capabilities, name).model_copy(update={"list_changed": False})
            for name in ("tools", "resources", "prompts")
        }
        return capabilities.model_copy(update=lists)


def serving(sessions: Sessions) -> tuple[Server[Any], _Subscriptions]:
    """Build a server of the record for one client; return it and the client's subscriptions."""
    watched = _Subscriptions(sessions)
    tools = offers(sessions.tools, sessions.prefix)
    requests = _Requests(sessions, tools)
    names = {each.name: name for name, each in tools.items()}
    instructions = [
        text.format_map(names) for tool, text in TEXTS["instructions"].items() if tool in names
    ]
    server = _Server(
        "hansard",
        version=__version__,
        instructions=" ".join(["Hansard records what agents do.", *instructions]),
        on_list_tools=requests.list_tools,
        on_call_tool=requests.call_tool,
        on_list_resources=requests.list_resources,
        on_list_resource_templates=_list_resource_templates,
        on_read_resource=requests.read_resource,
        on_subscribe_resource=watched.subscribe,
        on_unsubscribe_resource=watched.unsubscribe,
        on_subscriptions_listen=watched.listen,
        on_list_prompts=requests.list_prompts,
        on_get_prompt=requests.get_prompt,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)
    return server, watched


class _Requests:
    """The requests of a client, answered in its sessions."""

    def __init__(self, sessions: Sessions, tools: Mapping[str, Offer]) -> None:
        self._sessions = sessions
        self._tools = tools
        self._names = {each.name: name for name, each in tools.items()}

    async def list_tools(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """List the tools, of a restricted client those that its role may call."""
        names = await self._sessions.permitted(self._tools)
        return types.ListToolsResult(tools=[_tool(name, self._tools[name]) for name in names])

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Call a tool; return its result, or why it is refused."""
        offer = self._tools.get(params.name)
        arguments = params.arguments or {}
        if offer is None:
            known = ", ".join(self._tools)
            why = f"there is no tool {params.name!r:.80} among those offered: {known}"
            return _refused(why, await _noted(self._sessions, params.name, arguments, why))
        async with reporting(self._sessions, offer.name, arguments, _report(context)):
            return await _called(self._sessions, offer, arguments, self._names)

    async def list_resources(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """List the newest runs' traces, and the files of the agent's memory.

        A restricted agent gets no traces; it knows the runs that it was given.
        """
        listed: list[types.Resource] = []
        for listing in (resources.list_traces, resources.list_files):
            with contextlib.suppress(NotOffered, RoleRefused):
                listed += await listing(self._sessions)
        return types.ListResourcesResult(resources=listed)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read an address."""
        uri = str(params.uri)
        try:
            async with reporting(self._sessions, "resources/read", {}, _report(context)):
                answer = await resources.read(self._sessions, uri, Address.read(uri))
        except HansardError as error:
            await refused(self._sessions, "resources/read", {"uri": uri}, str(error))
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        is_text = uri.startswith("memory:")
        text = answer.result if is_text else msgspec.json.encode(answer.result).decode()
        result = types.TextResourceContents(uri=uri, mime_type=resources.mime_of(uri), text=text)
        return types.ReadResourceResult(contents=[result], _meta=answer.meta)

    async def list_prompts(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """List the server's own prompts, and those on record that the client's role may see."""
        prompts = await self._answered(resources.list_prompts(self._sessions))
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(
        self, _: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """Return a prompt's text with its arguments."""
        arguments = params.arguments or {}
        return await self._answered(resources.get_prompt(self._sessions, params.name, arguments))

    async def _answered(self, request: Awaitable[T]) -> T:
        """Await a request; convert its errors to the protocol's."""
        try:
            return await request
        except HansardError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None


class _Subscriptions:
    """The subscriptions of a client.

    A connection of 2025 has subscriptions that end with it; a client of 2026-07-28 listens to
    streams, which end when it closes them.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus, max_subscriptions=WATCHED_MAX)
        self.updates = Updates(sessions, self._notify)

    async def _notify(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri))

    async def close(self) -> None:
        """Stop watching."""
        await self.updates.close()

    def _subscriber(self, context: Context) -> _Subscriber:
        """Return the subscriber of a connection of 2025."""
        connection = context.session._connection  # noqa: SLF001 -- the SDK has no other way to what lasts as long as the client
        subscriber = connection.state.get(WATCHED)
        if not isinstance(subscriber, _Subscriber):
            subscriber = _Subscriber(self.updates, connection, self._bus)
            connection.state[WATCHED] = subscriber
            connection.exit_stack.push_async_callback(subscriber.close)
        return subscriber

    async def subscribe(
        self, context: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Notify a connection of changes of an address."""
        try:
            await self._subscriber(context).add(str(params.uri))
        except HansardError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        return types.EmptyResult()

    async def unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """End the notifications of an address."""
        self._subscriber(context).remove(str(params.uri))
        return types.EmptyResult()

    async def listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Stream changes of the named addresses; no list notifies."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        with contextlib.ExitStack() as held:
            for uri in uris:
                try:
                    await self.updates.hold(uri)
                except HansardError as error:
                    raise MCPError(types.INVALID_PARAMS, str(error)) from None
                held.callback(self.updates.release, uri)
            honored = types.SubscriptionFilter(resource_subscriptions=uris or None)
            request = params.model_copy(update={"notifications": honored})
            return await self._streams(context, request)


class _Subscriber:
    """A connection of 2025 and the addresses that it subscribed to.

    Each is notified at its own pace: one that does not read delays only itself, with one cue per
    address.
    """

    def __init__(self, updates: Updates, connection: Connection, bus: SubscriptionBus) -> None:
        self._updates = updates
        self._connection = connection
        self._uris: set[str] = set()
        self._held: set[str] = set()
        self._changed: dict[str, None] = {}
        self._cue = asyncio.Event()
        self._leave = bus.subscribe(self._note)
        self._sending = asyncio.create_task(self._send())

    async def add(self, uri: str) -> None:
        """Subscribe; a second time has no effect. Raises as `Updates.hold`."""
        if uri in self._uris:
            return
        self._uris.add(uri)
        try:
            await self._updates.hold(uri)
        except BaseException:
            self._uris.discard(uri)
            raise
        if uri in self._uris:
            self._held.add(uri)
        else:  # it left or unsubscribed in the meantime
            self._updates.release(uri)

    def remove(self, uri: str) -> None:
        """Unsubscribe."""
        if uri in self._uris:
            self._uris.discard(uri)
            self._changed.pop(uri, None)
            if uri in self._held:
                self._held.discard(uri)
                self._updates.release(uri)

    async def close(self) -> None:
        """End all subscriptions of a client that has left."""
        self._leave()
        self._sending.cancel()
        for uri in list(self._uris):
            self.remove(uri)

    def _note(self, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated) and event.uri in self._uris:
            self._changed[event.uri] = None
            self._cue.set()

    async def _send(self) -> None:
        while True:
            await self._cue.wait()
            self._cue.clear()
            while self._changed:
                uri = next(iter(self._changed))
                del self._changed[uri]
                await self._connection.send_resource_updated(uri)


def _report(context: Context) -> Report | None:
    """Return the function that reports a request's progress; None if not requested."""
    if "progress_token" not in (context.meta or {}):
        return None
    return context.session.report_progress


async def _set_level(_: Context, __: types.SetLevelRequestParams) -> types.EmptyResult:
    """Accept a log level, which clients of 2025 may send.

    Errors are in the answers, so no log message is ever sent.
    """
    return types.EmptyResult()


async def _list_resource_templates(
    _: Context, __: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=resources.TEMPLATES)


async def serve_stdio(sessions: Sessions) -> None:
    """Serve the client at stdin until it leaves."""
    server, watched = serving(sessions)
    try:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await watched.close()
        await sessions.close()


@contextlib.asynccontextmanager
async def app_of(sessions: Sessions, sessions_max: int) -> AsyncGenerator[Starlette]:
    """Serve one client over streamable HTTP, in both eras, while this is open.

    It has at most `sessions_max` sessions of the protocol. The caller has checked `Host` and
    `Origin`; the SDK's own check compares prefixes (`127.0.0.1:1@evil`).
    """
    server, watched = serving(sessions)
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(streamable_http_path=PATH, transport_security=security)
    try:
        server.session_manager.max_sessions = sessions_max
        async with server.session_manager.run():
            yield app
    finally:
        await watched.close()
        await sessions.close()


def _tool(name: str, offer: Offer) -> types.Tool:
    gives = {"type": "object", "properties": {"result": offer.gives}, "required": ["result"]}
    return types.Tool(
        name=name,
        description=offer.does,
        input_schema=offer.takes,
        output_schema=gives,
        annotations=types.ToolAnnotations(
            read_only_hint=offer.reads,
            destructive_hint=offer.destroys,
            idempotent_hint=offer.reads,
            open_world_hint=False,
        ),
    )


async def _called(
    sessions: Sessions, offer: Offer, arguments: dict[str, Any], names: Mapping[str, str]
) -> types.CallToolResult:
    before = sessions.under_way(arguments.get("run_id"), in_run=offer.in_run)
    point = None if before is None else before.point
    try:
        check_options(offer.name, arguments, offer.takes["properties"])
        jsonschema.validate(arguments, offer.takes)
        return _result(await offer.answer(sessions, arguments))
    except jsonschema.ValidationError as error:
        why = f"{offer.name}: {error.message}; see the tool's input schema"
    except HansardError as error:
        why = for_client(str(error), names)
    except Exception as error:  # noqa: BLE001 -- the client gets the failure, the log its place
        _log.warning("a tool failed", tool=offer.name, **unexpected(error))
        why = f"{offer.name} failed: see the server's log"
    work = sessions.under_way(arguments.get("run_id"), in_run=offer.in_run)
    if work is None or (work is before and work.point == point):  # nothing was recorded
        work = await _noted(sessions, offer.name, arguments, why) or work
    return _refused(why, work)


async def _noted(sessions: Sessions, name: str, arguments: dict[str, Any], why: str) -> Work | None:
    """Record a call that was refused before anything of it was recorded."""
    return await refused(sessions, "tools/call", {"name": name, "arguments": arguments}, why)


def _result(answer: Answer) -> types.CallToolResult:
    structured = {"result": answer.result}
    result = types.CallToolResult(
        content=[types.TextContent(type="text", text=msgspec.json.encode(structured).decode())],
        structured_content=structured,
    )
    result.meta = answer.meta
    return result


def _refused(why: str, work: Work | None) -> types.CallToolResult:
    result = types.CallToolResult(content=[types.TextContent(type="text", text=why)], is_error=True)
    result.meta = Answer(None, work, replayable=False).meta
    return result
