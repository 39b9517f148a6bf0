"""A server of two tools, made with the SDK: one reads, one would write. Over stdio, or a port."""

import sys

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("bench", log_level="CRITICAL")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Return the sum."""
    return a + b


@server.tool()
def note(number: int) -> int:
    """Return the number, as a tool with a possible effect."""
    return number


if sys.argv[1:]:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run()
