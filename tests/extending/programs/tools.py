"""An MCP client that uses a slice's operations as tools of `hansard mcp serve`."""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    """Write the results as one line of JSON."""
    serve = ["-m", "hansard", "mcp", "serve", "--tools", "all"]
    server = StdioServerParameters(command=sys.executable, args=serve, env=dict(os.environ))
    async with Client(stdio_client(server)) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        opened = {"ticket": "t4", "title": "Door stuck", "priority": 1}
        report = {
            "priority": tools["tickets_open"].input_schema["properties"]["priority"],
            "opened": (await client.call_tool("tickets_open", opened)).structured_content,
            "found": (await client.call_tool("tickets_find", {})).structured_content,
        }
        refused = await client.call_tool("tickets_close", {"ticket": "t9", "resolution": "x"})
        sys.stdout.write(json.dumps(report | {"refused": str(refused.content[0])}))


asyncio.run(main())
