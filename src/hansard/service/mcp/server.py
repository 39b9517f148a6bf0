"""The server: the tools over the SDK's low-level server, which speaks both eras of the protocol."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import jsonschema
import mcp_types as types
import msgspec
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette

from hansard._version import __version__
from hansard.bus.loggers import logger, unexpected
from hansard.client.protocol.errors import NotOffered
from hansard.domain.choices import check_options
from hansard.domain.errors import HansardError
from hansard.service.mcp import prompts, resources
from hansard.service.mcp.offers import Answer, Offer, offers
from hansard.service.mcp.sessions import Sessions

_log = logger(__name__)

JSON = "application/json"

PATH = "/mcp"
"""Where it is asked over HTTP."""

LOCAL = ("127.0.0.1", "localhost", "::1")

INSTRUCTIONS = (
    "Hansard records what agents do. Begin with start_run, or resume_run after a crash, and give "
    "its run_id to the other tools. State shared by a run's agents is board_*, its tasks and "
    "messages are team_*; say what you decide with decide, and how far you are with checkpoint. "
    "What others did is asked with sql, why and compare."
)


def serving(sessions: Sessions) -> Server[Any]:
    """A server of the record, for one client."""
    tools = offers()
    listed = types.ListToolsResult(tools=[_tool(each) for each in tools.values()])

    async def on_list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context, params
        return listed

    async def on_call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        del context
        offer = tools.get(params.name)
        if offer is None:
            return _refused(f"there is no tool {params.name!r:.80}: there are {', '.join(tools)}")
        return await _called(sessions, offer, params.arguments or {})

    async def on_list_resources(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        del context, params
        try:
            found = await resources.listed(sessions)
        except NotOffered:  # of a restricted agent: it knows the runs it was told of
            found = []
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=each.uri, name=each.name, description=each.does, mime_type=JSON)
                for each in found
            ]
        )

    async def on_list_resource_templates(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        del context, params
        return _templates()

    async def on_read_resource(
        context: ServerRequestContext[Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        del context
        try:
            found = await resources.read(sessions, str(params.uri))
        except HansardError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        text = msgspec.json.encode(found).decode()
        told = types.TextResourceContents(uri=params.uri, mime_type=JSON, text=text)
        return types.ReadResourceResult(contents=[told])

    return Server(
        "hansard",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
        on_list_resources=on_list_resources,
        on_list_resource_templates=on_list_resource_templates,
        on_read_resource=on_read_resource,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
    )


async def _list_prompts(
    context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    del context, params
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
            for each in prompts.PROMPTS.values()
        ]
    )


async def _get_prompt(
    context: ServerRequestContext[Any], params: types.GetPromptRequestParams
) -> types.GetPromptResult:
    del context
    try:
        found, text = prompts.filled(params.name, params.arguments or {})
    except HansardError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    said = types.TextContent(type="text", text=text)
    return types.GetPromptResult(
        description=found.does, messages=[types.PromptMessage(role="user", content=said)]
    )


def _templates() -> types.ListResourceTemplatesResult:
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
    server = serving(sessions)
    try:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await sessions.close()


@contextlib.asynccontextmanager
async def app_of(sessions: Sessions, hosts: Sequence[str]) -> AsyncGenerator[Starlette]:
    """What answers one client over streamable HTTP, both eras of it, while it is open. A request is
    answered that asks for this machine's own names or for one of `hosts`: else a page that a
    browser shows could ask under another name (DNS rebinding).
    """
    server = serving(sessions)
    named = [_in_url(host) for host in dict.fromkeys([*LOCAL, *hosts])]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*named, *(f"{host}:*" for host in named)],
        allowed_origins=[f"{kind}://{host}:*" for host in named for kind in ("http", "https")],
    )
    app = server.streamable_http_app(streamable_http_path=PATH, transport_security=security)
    try:
        async with server.session_manager.run():
            yield app
    finally:
        await sessions.close()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _tool(offer: Offer) -> types.Tool:
    gives = {"type": "object", "properties": {"result": offer.gives}, "required": ["result"]}
    return types.Tool(
        name=offer.name,
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
    sessions: Sessions, offer: Offer, arguments: dict[str, Any]
) -> types.CallToolResult:
    try:
        check_options(offer.name, arguments, offer.takes["properties"])
        jsonschema.validate(arguments, offer.takes)
        answer = await offer.answer(sessions, arguments)
    except jsonschema.ValidationError as error:
        return _refused(f"{offer.name}: {error.message}; see the tool's input schema")
    except HansardError as error:
        return _refused(str(error))
    except Exception as error:  # noqa: BLE001 -- a client is told that it failed, the log where
        _log.warning("a tool failed", tool=offer.name, **unexpected(error))
        return _refused(f"{offer.name} failed: the server's own log says where")
    return _result(answer)


def _result(answer: Answer) -> types.CallToolResult:
    structured = {"result": answer.result}
    told = types.CallToolResult(
        content=[types.TextContent(type="text", text=msgspec.json.encode(structured).decode())],
        structured_content=structured,
    )
    if answer.work is not None:
        session = answer.work.session
        point = answer.work.point
        told.meta = {"hansard/run": session.run} | ({"hansard/at": point} if point else {})
    return told


def _refused(why: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=why)], is_error=True)
