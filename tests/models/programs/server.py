"""An MCP server with one tool; it notes that it was started."""

import sys
from pathlib import Path

from mcp.server import MCPServer

with Path(sys.argv[1]).open("a") as file:
    file.write("started\n")
server = MCPServer("clock", version="1")


@server.tool()
def answer() -> int:
    """Return the answer."""
    return 42


server.run()
