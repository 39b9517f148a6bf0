"""A server of two tools, made with the SDK: one reads, one would write."""

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("bench")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


@server.tool()
def note(number: int) -> int:
    """What may have done something."""
    return number


server.run()
