"""Clients of the proxy: other people's SDK in both eras of the protocol, and one of lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.cli.support import Ran
from tests.conftest import THOROUGH
from tests.faults._warm import python

if TYPE_CHECKING:  # it takes 2 s to import, and every worker of the tests imports this module
    from mcp import Client
    from mcp.client.context import ClientRequestContext
    from mcp.types import ElicitRequestParams, ElicitResult

SERVER = Path(__file__).with_name("programs") / "papers.py"
LOCK = Path(__file__).with_name("npm")
PACKAGES_S_MAX = 300
WAIT_S = 60.0
"""Longest wait for an answer or an end, in seconds: a proxy with its server starts in about 2 s."""

SCENARIO_S = 240.0
"""Longest scenario of one client, in seconds: it starts several proxies and servers."""

POLL_S = 0.01

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""TLS settings for addresses without TLS, since loading a machine's certificates takes long."""


class Setup(msgspec.Struct):
    """A record, a server, and the file where its effects are."""

    data_dir: Path
    workspace: str
    sent: Path

    @property
    def server(self) -> list[str]:
        """The server's command."""
        return [python(), str(SERVER), str(self.sent)]

    @property
    def env(self) -> dict[str, str]:
        """Environment that names the record."""
        return os.environ | {
            "HANSARD_DATA_DIR": str(self.data_dir),
            "HANSARD_WORKSPACE": self.workspace,
        }

    def proxy(self, *options: object, server: bool = True) -> list[str]:
        """Return the proxy's command."""
        argv = [python(), "-m", "hansard", "mcp", "proxy", *map(str, options)]
        return [*argv, "--", *self.server] if server else argv

    def effects(self) -> list[str]:
        """Return the effects of the tools."""
        return self.sent.read_text().splitlines() if self.sent.exists() else []

    async def has_effects(self) -> None:
        """Wait until the tools did something."""
        async with asyncio.timeout(WAIT_S):
            while not self.effects():  # noqa: ASYNC110 -- another process makes it
                await asyncio.sleep(POLL_S)


Commands = Callable[..., Awaitable[Ran]]
"""Runs the command line beside a running loop."""


async def yes(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """Answer as a person who is sure."""
    from mcp.types import ElicitResult  # noqa: PLC0415 -- see above

    del context, params
    return ElicitResult(action="accept", content={"sure": True})


async def ask(
    setup: Setup,
    command: list[str],
    mode: str,
    do: Callable[[Client], Awaitable[Any]],
    person: Any = yes,
) -> Any:
    """Do something as the SDK's client of a command."""
    from mcp import Client, StdioServerParameters  # noqa: PLC0415 -- see above
    from mcp.client.stdio import stdio_client  # noqa: PLC0415 -- see above

    errors = sys.__stderr__ or sys.stderr  # a file, which what a test captures is not
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=setup.env)
    async with (
        asyncio.timeout(SCENARIO_S),
        Client(
            stdio_client(parameters, errlog=errors), mode=mode, elicitation_callback=person
        ) as client,
    ):
        return await do(client)


TOGETHER = 20 if THOROUGH else 8
"""Number of concurrent calls of a client."""


async def everything(client: Client) -> list[Any]:
    """Send each kind of request and return the results as plain values."""

    async def note(progress: float, total: float | None, message: str | None) -> None:
        del progress, total, message

    results: list[Any] = [
        await client.list_tools(),
        await client.call_tool("add", {"a": 1, "b": 2}),
        await client.call_tool("send", {"to": "ada", "text": "hello"}),
        await client.call_tool("send", {"to": "ada", "text": "hello"}),
        await client.call_tool("fail", {"why": "no reason"}),
        await client.call_tool("delete", {"item": "a note"}),
        await client.list_resource_templates(),
        await client.read_resource("note://whales"),
        await client.list_prompts(),
        await client.get_prompt("review", {"title": "Moby-Dick"}),
        await client.call_tool("slow", {"seconds": 0.0}, progress_callback=note),
    ]
    together = [client.call_tool("add", {"a": each, "b": each}) for each in range(TOGETHER)]
    results += await asyncio.gather(*together)
    return [json.loads(each.model_dump_json()) for each in results]


class Wire:
    """A client that writes lines, and reads them."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._number = 0

    async def say(self, line: bytes) -> None:
        """Write a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()

    async def line(self) -> bytes:
        """Read the next line."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            return await self.process.stdout.readline()

    async def hear(self) -> dict[str, Any]:
        """Return the next line."""
        frame: dict[str, Any] = json.loads(await self.line())
        return frame

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its answer; skip other lines."""
        number = await self.begin(method, **params)
        while True:
            frame = await self.hear()
            if frame.get("id") == number:
                return frame

    async def begin(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._number += 1
        frame = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        await self.say(json.dumps(frame).encode())
        return self._number

    async def greet(self, **capabilities: Any) -> dict[str, Any]:
        """Do the handshake of 2025."""
        info = {"name": "wire", "version": "1"}
        answer = await self.ask(
            "initialize", protocolVersion="2025-06-18", capabilities=capabilities, clientInfo=info
        )
        await self.say(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return answer

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its result."""
        answer = await self.ask("tools/call", name=tool, arguments=arguments)
        result: dict[str, Any] = answer["result"]
        return result

    async def leave(self) -> int:
        """Close, and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def wire(setup: Setup, command: list[str]) -> AsyncIterator[Wire]:
    """Start a command and yield a client that writes and reads lines."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=setup.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**27,
    )
    try:
        yield Wire(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def at_socket(
    setup: Setup, command: list[str]
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Yield a command that takes a listening socket, and the address of that socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd, port = listener.fileno(), listener.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *command, str(fd), env=setup.env, pass_fds=[fd]
        )
    try:
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def served(
    setup: Setup, command: list[str], address: str = r"http://\S+/mcp$"
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Yield a command that listens over HTTP and the address that it prints; end it."""
    process = await asyncio.create_subprocess_exec(
        *command, env=setup.env, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                line = (await process.stderr.readline()).decode()
                assert line, "it ended before it listened"
                if match := re.search(address, line.strip()):
                    break
        reading = asyncio.create_task(process.stderr.read())  # a full pipe would block it
        yield match.group(), process
        reading.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), WAIT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def free_port() -> int:
    """Return a port for a server that takes no socket; another process may take it first."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


async def listens(port: int, server: asyncio.subprocess.Process) -> None:
    """Wait until a process listens there. From its own address one could connect to oneself."""
    async with asyncio.timeout(WAIT_S):
        while True:
            assert server.returncode is None, "it ended before it listened"
            try:
                connecting = asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
                _, writer = await connecting
            except OSError:
                await asyncio.sleep(POLL_S)
            else:
                writer.close()
                return


def source_of(package: str, locked: Path, folder: Path) -> Path:
    """Return the folder of a package's source distribution, whose version and hash a file lists."""
    options = [
        "--no-deps",
        "--no-binary",
        package,
        "--require-hashes",
        "--requirement",
        str(locked),
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", *options, "--dest", str(folder)],
        check=True,
        timeout=PACKAGES_S_MAX,
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def text(result: dict[str, Any]) -> str:
    """Return the text of a result that a model reads."""
    content: str = result["content"][0]["text"]
    return content


def programs(folder: Path) -> Path:
    """Install the programs of npm's lock file and return their folder, or skip."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: other people's servers and clients were not run")
    for each in LOCK.iterdir():
        shutil.copy(each, folder)
    subprocess.run(
        [npm, "ci", "--omit=dev", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=PACKAGES_S_MAX,
    )
    return folder / "node_modules" / ".bin"
