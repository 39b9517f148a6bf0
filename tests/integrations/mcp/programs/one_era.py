"""The server of tools, restricted to the `old` or the `new` era."""

import asyncio
import json
import sys
from pathlib import Path

VERSION = "io.modelcontextprotocol/protocolVersion"
PAPERS = Path(__file__).with_name("papers.py")


def refused(frame: dict, era: str) -> bool:
    """Return whether a frame is of the other era."""
    if era == "new":
        return frame.get("method") == "initialize"
    return VERSION in frame.get("params", {}).get("_meta", {})


async def main(era: str, sent: str, python: str) -> None:
    """Pass on lines."""
    server = await asyncio.create_subprocess_exec(
        *(python, str(PAPERS), sent), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def back(lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    answering = asyncio.create_task(back(server.stdout))
    while line := await reader.readline():
        frame = json.loads(line)
        if refused(frame, era):
            error = {"code": -32601, "message": "Method not found"}
            answer = {"jsonrpc": "2.0", "id": frame["id"], "error": error}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()
        else:
            server.stdin.write(line)
            await server.stdin.drain()
    server.stdin.close()
    await server.wait()
    await answering


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
