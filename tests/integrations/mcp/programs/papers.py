"""A server of tools made with the SDK; its argument is the file of effects."""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, Resolve
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

papers = MCPServer("papers", version="1", log_level="CRITICAL")  # else it colours tracebacks
sent = Path(sys.argv[1])


class Sure(BaseModel):
    """A question to a person."""

    sure: bool


async def ask() -> Elicit[Sure]:
    """Return the question."""
    return Elicit("Delete it?", Sure)


@papers.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


@papers.tool()
def send(to: str, text: str) -> str:
    """Send a mail."""
    with sent.open("a") as file:
        file.write(f"{to}: {text}\n")
    return f"sent to {to}"


@papers.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@papers.tool()
async def slow(ctx: Context, seconds: float) -> str:
    """Send, and take long to say so."""
    send("slow", str(seconds))
    for done in range(3):
        await ctx.report_progress(done, 3, f"stage {done}")
    await asyncio.sleep(seconds)
    return "done"


@papers.tool()
async def delete(item: str, sure: Annotated[ElicitationResult[Sure], Resolve(ask)]) -> str:
    """Delete something, if a person is sure."""
    accepted = isinstance(sure, AcceptedElicitation) and sure.data.sure
    return send("trash", item) if accepted else "kept"


@papers.tool(annotations=ToolAnnotations(read_only_hint=True))
def near(place: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Place"})]) -> str:
    """Return what is read at a place; over HTTP its argument must be in a header, too."""
    return f"whales near {place}"


@papers.tool()
def die() -> str:
    """End the process."""
    send("nobody", "the end")
    os._exit(3)


@papers.tool(annotations=ToolAnnotations(read_only_hint=True))
def big(characters: int) -> str:
    """A long text."""
    return "x" * characters


@papers.resource("note://{name}")
def note(name: str) -> str:
    """A note."""
    return f"a note on {name}"


@papers.prompt()
def review(title: str) -> str:
    """A prompt."""
    return f"Review {title}."


if sys.argv[2:]:  # over HTTP, at this socket that listens
    at = socket.socket(fileno=int(sys.argv[2]))
    config = uvicorn.Config(papers.streamable_http_app(), log_level="error")
    uvicorn.Server(config).run(sockets=[at])
else:
    papers.run()
