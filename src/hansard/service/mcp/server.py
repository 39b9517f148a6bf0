"""The server: the tools over the SDK's low-level server, which speaks both eras of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import Any, TypeVar

import jsonschema
import mcp_types as types
import msgspec
from mcp.server import NotificationOptions, Server
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ServerEvent,
    SubscriptionBus,
)
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette

from hansard._version import __version__
from hansard.agents.errors import RoleRefused
from hansard.bus.loggers import logger, unexpected
from hansard.client.protocol.errors import NotOffered
from hansard.domain.choices import check_options
from hansard.domain.errors import HansardError
from hansard.service.mcp import completion, prompts, resources
from hansard.service.mcp.offers import Answer, Offer, offers, refused
from hansard.service.mcp.progress import Report, reporting
from hansard.service.mcp.prompt_updates import PromptUpdates
from hansard.service.mcp.resources import Address
from hansard.service.mcp.sessions import Sessions, Work
from hansard.service.mcp.tools import for_client
from hansard.service.mcp.updates import WATCHED_MAX, Updates

_log = logger(__name__)

T = TypeVar("T")

JSON = "application/json"

PATH = "/mcp"
"""Where it is asked over HTTP."""

WATCHED = "hansard/watched"
"""Under which a connection keeps what it is subscribed to."""


INSTRUCTIONS = {
    "start_run": "Begin with {start_run}, or {resume_run} after a crash, and give its run_id to "
    "the other tools.",
    "board_put": "Share state with the run's other agents with {board_put}.",
    "team_claim": "Take tasks with {team_claim}.",
    "memory_remember": "Keep what is to hold in later runs with {memory_remember}.",
    "decide": "Record decisions with {decide}.",
    "checkpoint": "Record progress with {checkpoint}.",
    "sql": "Query what others did with {sql}.",
}
"""What a client is told about the tools that it is offered."""


class _Server(Server[Any]):
    """Says which of its lists it tells of when they change: in either era that of prompts. The
    tools are always the same; of resources a client lists what it wants to read.
    """

    def get_capabilities(
        self, notification_options: NotificationOptions | None = None, *given: Any, **named: Any
    ) -> types.ServerCapabilities:
        """As the SDK's, which since 2026-07-28 says of each list that it is told of."""
        told = notification_options or NotificationOptions(prompts_changed=True)
        found = super().get_capabilities(told, *given, **named)
        lists = {
            name: kind.model_copy(update={"list_changed": False})
            for name, kind in (("tools", found.tools), ("resources", found.resources))
            if kind is not None
        }
        return found.model_copy(update=lists)

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *given: Any, **named: Any
    ) -> InitializationOptions:
        """As the SDK's."""
        told = notification_options or NotificationOptions(prompts_changed=True)
        return super().create_initialization_options(told, *given, **named)


def serving(sessions: Sessions) -> tuple[Server[Any], _Subscriptions]:
    """A server of the record, for one client, and what that client watches."""
    watched = _Subscriptions(sessions)
    tools = offers(sessions.tools, sessions.prefix)
    asked = _Requests(sessions, tools, watched)
    names = {each.name: name for name, each in tools.items()}
    told = [text.format_map(names) for tool, text in INSTRUCTIONS.items() if tool in names]
    server = _Server(
        "hansard",
        version=__version__,
        instructions=" ".join(["Hansard records what agents do.", *told]),
        on_list_tools=asked.list_tools,
        on_call_tool=asked.call_tool,
        on_list_resources=asked.list_resources,
        on_list_resource_templates=_list_resource_templates,
        on_read_resource=asked.read_resource,
        on_subscribe_resource=watched.subscribe,
        on_unsubscribe_resource=watched.unsubscribe,
        on_subscriptions_listen=watched.listen,
        on_list_prompts=asked.list_prompts,
        on_get_prompt=asked.get_prompt,
        on_completion=asked.complete,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _set_level)
    return server, watched


class _Requests:
    """What a client asks, answered in its sessions."""

    def __init__(
        self, sessions: Sessions, tools: Mapping[str, Offer], watched: _Subscriptions
    ) -> None:
        self._sessions = sessions
        self._tools = tools
        self._watched = watched
        self._names = {each.name: name for name, each in tools.items()}
        self._listed = types.ListToolsResult(
            tools=[_tool(name, each) for name, each in tools.items()]
        )

    async def list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """The tools; they do not change."""
        del context, params
        return self._listed

    async def call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """What a tool gives, or why it is refused."""
        offer = self._tools.get(params.name)
        arguments = params.arguments or {}
        if offer is None:
            known = ", ".join(self._tools)
            why = f"there is no tool {params.name!r:.80} among those offered: {known}"
            return _refused(why, await _noted(self._sessions, params.name, arguments, why))
        async with reporting(self._sessions, offer.name, arguments, _report(context)):
            return await _called(self._sessions, offer, arguments, self._names)

    async def list_resources(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """The newest runs' traces, but for a restricted agent, who knows the runs it was told; and
        the files of the agent's memory.
        """
        del context, params
        found: list[resources.Template] = []
        for listing in (resources.listed, resources.files):
            with contextlib.suppress(NotOffered, RoleRefused):
                found += await listing(self._sessions)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=each.uri,
                    name=each.name,
                    description=each.does,
                    mime_type=resources.mime_of(each.uri),
                )
                for each in found
            ]
        )

    async def read_resource(
        self, context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """What stands at an address."""
        uri = str(params.uri)
        try:
            async with reporting(self._sessions, "resources/read", {}, _report(context)):
                found = await resources.read(self._sessions, uri, Address.read(uri))
        except HansardError as error:
            self._sessions.note(error)
            await refused(self._sessions, "resources/read", {"uri": uri}, str(error))
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        is_text = uri.startswith("memory:")
        text = found.result if is_text else msgspec.json.encode(found.result).decode()
        told = types.TextResourceContents(uri=uri, mime_type=resources.mime_of(uri), text=text)
        return types.ReadResourceResult(contents=[told], _meta=_meta(found))

    async def list_prompts(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """The server's own, and those on record that the client's role may see. A client of 2025
        is told from then on when they change.
        """
        del params
        if context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._answered(self._watched.lists(context))
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=each.name,
                    description=each.does,
                    arguments=[
                        types.PromptArgument(name=told.name, description=told.does, required=True)
                        for told in each.arguments
                    ],
                )
                for each in await self._answered(prompts.listed(self._sessions))
            ]
        )

    async def get_prompt(
        self, context: ServerRequestContext[Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """A prompt's text with what is given."""
        del context
        found = await self._answered(
            prompts.got(self._sessions, params.name, params.arguments or {})
        )
        said = types.TextContent(type="text", text=found.text)
        meta = None
        if found.answer is not None:
            meta = _meta(found.answer) | {"hansard/prompt": found.reference}
        return types.GetPromptResult(
            description=found.does,
            messages=[types.PromptMessage(role="user", content=said)],
            _meta=meta,
        )

    async def complete(
        self, context: ServerRequestContext[Any], params: types.CompleteRequestParams
    ) -> types.CompleteResult:
        """What may be meant by an argument that begins so."""
        del context
        ref = params.ref.name if isinstance(params.ref, types.PromptReference) else params.ref.uri
        known = params.context.arguments if params.context is not None else None
        begun = params.argument
        found = await self._answered(
            completion.complete(self._sessions, ref, begun.name, begun.value, known or {})
        )
        total = None if found.has_more else len(found.values)
        told = types.Completion(values=found.values, total=total, has_more=found.has_more)
        return types.CompleteResult(completion=told)

    async def _answered(self, asked: Awaitable[T]) -> T:
        """What is asked comes to, or its error as the protocol's."""
        try:
            return await asked
        except HansardError as error:
            self._sessions.note(error)
            raise MCPError(types.INVALID_PARAMS, str(error)) from None


class _Subscriptions:
    """What a client watches: each connection of 2025 by its subscriptions, which end with it; a
    client of 2026-07-28 by streams that it listens to, which end when it closes them.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus, max_subscriptions=WATCHED_MAX)
        self.updates = Updates(sessions, lambda uri: self._bus.publish(ResourceUpdated(uri)))
        self.prompts = PromptUpdates(sessions, lambda: self._bus.publish(PromptsListChanged()))

    async def close(self) -> None:
        """Watch nothing any more."""
        await self.prompts.close()
        await self.updates.close()

    def _told(self, context: ServerRequestContext[Any]) -> _Told:
        """A connection of 2025 as one that is told."""
        connection = context.session._connection  # noqa: SLF001 -- the SDK has no other way to what lasts as long as the client
        told = connection.state.get(WATCHED)
        if not isinstance(told, _Told):
            told = connection.state[WATCHED] = _Told(self, connection, self._bus)
            connection.exit_stack.push_async_callback(told.close)
        return told

    async def lists(self, context: ServerRequestContext[Any]) -> None:
        """Have a connection told when the list of prompts that it asks for changes."""
        await self._told(context).list_prompts()

    async def subscribe(
        self, context: ServerRequestContext[Any], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Have a connection told of an address."""
        try:
            await self._told(context).add(str(params.uri))
        except HansardError as error:
            self._sessions.note(error)
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        return types.EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """Have it told no more."""
        self._told(context).remove(str(params.uri))
        return types.EmptyResult()

    async def listen(
        self, context: ServerRequestContext[Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """A stream of what changes at the addresses that it names, and of the list of prompts where
        it asks for that; other lists never change.
        """
        wanted = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        with contextlib.ExitStack() as held:
            for uri in wanted:
                try:
                    await self.updates.hold(uri)
                except HansardError as error:
                    self._sessions.note(error)
                    raise MCPError(types.INVALID_PARAMS, str(error)) from None
                held.callback(self.updates.release, uri)
            lists = bool(params.notifications.prompts_list_changed)
            if lists:
                await self.prompts.hold()
                held.callback(self.prompts.release)
            honored = types.SubscriptionFilter(
                resource_subscriptions=wanted or None, prompts_list_changed=lists or None
            )
            asked = params.model_copy(update={"notifications": honored})
            return await self._streams(context, asked)


class _Told:
    """A connection of 2025 and the addresses that it subscribed to. It is told of each in its own
    time: one that does not read waits by itself, with one cue an address.
    """

    def __init__(
        self, watched: _Subscriptions, connection: Connection, bus: SubscriptionBus
    ) -> None:
        self._updates, self._prompts = watched.updates, watched.prompts
        self._connection = connection
        self._uris: set[str] = set()
        self._held: set[str] = set()
        self._changed: dict[str, None] = {}
        self._lists = self._list_changed = False
        self._cue = asyncio.Event()
        self._leave = bus.subscribe(self._note)
        self._sending = asyncio.create_task(self._send())

    async def add(self, uri: str) -> None:
        """Subscribe; again is nothing new. Raises as `Updates.hold`."""
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
        else:  # it left, or unsubscribed, meanwhile
            self._updates.release(uri)

    async def list_prompts(self) -> None:
        """Be told of them from now on."""
        if not self._lists:
            self._lists = True
            await self._prompts.hold()

    def remove(self, uri: str) -> None:
        """Unsubscribe."""
        if uri in self._uris:
            self._uris.discard(uri)
            self._changed.pop(uri, None)
            if uri in self._held:
                self._held.discard(uri)
                self._updates.release(uri)

    async def close(self) -> None:
        """The client has left."""
        self._leave()
        self._sending.cancel()
        for uri in list(self._uris):
            self.remove(uri)
        if self._lists:
            self._prompts.release()

    def _note(self, event: ServerEvent) -> None:
        if isinstance(event, ResourceUpdated) and event.uri in self._uris:
            self._changed[event.uri] = None
            self._cue.set()
        elif isinstance(event, PromptsListChanged) and self._lists:
            self._list_changed = True
            self._cue.set()

    async def _send(self) -> None:
        while True:
            await self._cue.wait()
            self._cue.clear()
            if self._list_changed:
                self._list_changed = False
                await self._connection.send_prompt_list_changed()
            while self._changed:
                uri = next(iter(self._changed))
                del self._changed[uri]
                await self._connection.send_resource_updated(uri)


def _report(context: ServerRequestContext[Any]) -> Report | None:
    """How a client is told of a request's progress; None of one who did not ask to be."""
    if "progress_token" not in (context.meta or {}):
        return None
    return context.session.report_progress


async def _set_level(
    context: ServerRequestContext[Any], params: types.SetLevelRequestParams
) -> types.EmptyResult:
    """Accept a level, which clients of 2025 may send: what fails is told in its own answer, so that
    no message of a log is ever sent.
    """
    del context, params
    return types.EmptyResult()


async def _list_resource_templates(
    context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    del context, params
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template=each.uri, name=each.name, description=each.does, mime_type=JSON
            )
            for each in resources.TEMPLATES
        ]
    )


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
    """Serve one client over streamable HTTP, both eras of it, while this is open, in at most
    `sessions_max` sessions of the protocol. The caller has checked `Host` and `Origin`; the SDK's
    own check compares prefixes (`127.0.0.1:1@evil`).
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
        sessions.note(error)
        why = for_client(str(error), names)
    except Exception as error:  # noqa: BLE001 -- a client is told that it failed, the log where
        _log.warning("a tool failed", tool=offer.name, **unexpected(error))
        why = f"{offer.name} failed: the server's own log says where"
    work = sessions.under_way(arguments.get("run_id"), in_run=offer.in_run)
    if work is None or (work is before and work.point == point):  # it left nothing on record
        work = await _noted(sessions, offer.name, arguments, why) or work
    return _refused(why, work)


async def _noted(sessions: Sessions, name: str, arguments: dict[str, Any], why: str) -> Work | None:
    """Put a call on record that was refused before anything of it was."""
    return await refused(sessions, "tools/call", {"name": name, "arguments": arguments}, why)


def _result(answer: Answer) -> types.CallToolResult:
    structured = {"result": answer.result}
    told = types.CallToolResult(
        content=[types.TextContent(type="text", text=msgspec.json.encode(structured).decode())],
        structured_content=structured,
    )
    told.meta = _meta(answer)
    return told


def _meta(answer: Answer) -> dict[str, Any]:
    """Where a result stands, and whether it can be had from there again."""
    work = answer.work
    told = {
        "hansard/run": answer.run if work is None else work.session.run,
        "hansard/at": None if work is None else work.point,
        "hansard/position": answer.position,
    }
    said = {name: value for name, value in told.items() if value is not None}
    return {**said, "hansard/replayable": answer.replayable}


def _refused(why: str, work: Work | None) -> types.CallToolResult:
    told = types.CallToolResult(content=[types.TextContent(type="text", text=why)], is_error=True)
    told.meta = _meta(Answer(None, work, replayable=False))
    return told
