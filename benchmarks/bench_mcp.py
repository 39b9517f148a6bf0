"""What does recording cost a client of an MCP server, for each call? And what does a client of our
own server wait for a read, beside a program that asks the same in its own process?

One client that writes lines, and one server made with the SDK, over stdio: directly, and through
`hansard mcp proxy` recording (the durable intent before each call included, `strict` and
`relaxed`), and replaying without the server; call by call in turn, and 300 calls at once. The same
over HTTP, call by call over one connection: the server directly, and through `proxy --http`
(`relaxed`). Then `hansard mcp serve` over stdio: an entry of shared state, and a statement of SQL;
and the entry from `up --http`. Goal: the median of a recorded call within 1.5 times the direct
one, `relaxed`. (Medians of all calls; beside them the median of the ratios of neighbours, which a
loaded machine disturbs less.)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2

import hansard
from benchmarks import _world
from benchmarks._report import Findings, sized, summary

SERVER = [sys.executable, str(Path(__file__).with_name("_mcp_server.py"))]
PROXY = [sys.executable, "-m", "hansard", "mcp", "proxy"]
TOGETHER = 300
STATEMENT = "SELECT count(*) FROM steps"
GREETING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


class Client:
    """Writes requests as lines, and reads answers in any order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            told = json.loads(line)
            if "method" not in told:
                self._waiting.pop(told["id"]).set_result(told)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return a request's result."""
        self._number += 1
        told = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        waiting = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        await self.say(told)
        answer = await asyncio.wait_for(waiting, 60)
        result: dict[str, Any] = answer["result"]
        assert not result.get("isError"), result
        return result

    async def say(self, told: dict[str, Any]) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        await self._process.stdin.drain()

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return a tool's result."""
        return await self.ask("tools/call", name=tool, arguments=arguments)

    async def leave(self) -> None:
        """Close, and wait for the end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), 60)
        await self._reading


class HttpClient:
    """Posts requests over one connection, each after the answer to the one before."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"accept": "application/json, text/event-stream"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self._http = httpx2.AsyncClient(headers=headers, timeout=60)
        self._url = url
        self._number = 0

    async def greet(self) -> None:
        """Begin a session."""
        answer = await self._post("initialize", GREETING)
        self._http.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._http.post(self._url, json=done)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return a tool's result."""
        answer = await self._post("tools/call", {"name": tool, "arguments": arguments})
        line = next(line for line in answer.text.splitlines() if '"result"' in line)
        result: dict[str, Any] = json.loads(line.removeprefix("data: "))["result"]
        assert not result.get("isError"), result
        return result

    async def _post(self, method: str, params: dict[str, Any]) -> httpx2.Response:
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        answer = await self._http.post(self._url, json=request)
        answer.raise_for_status()
        return answer


@contextlib.asynccontextmanager
async def at_port(command: list[str], port: int, **env: str) -> AsyncIterator[str]:
    """Run a command that listens at a port; yield its address and end it."""
    process = await asyncio.create_subprocess_exec(
        *command, env=os.environ | env, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while True:
                assert process.returncode is None, f"{command} ended before it listened"
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait_for(process.wait(), 60)


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def client(command: list[str], **env: str) -> AsyncIterator[Client]:
    """Yield a client after the handshake with the command."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    made = Client(process)
    await made.ask("initialize", **GREETING)
    await made.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    await made.ask("tools/list")
    try:
        yield made
    finally:
        await made.leave()


async def measure(found: Findings, folder: Path) -> None:
    """Measure calls in turn, then calls at once: recording, then replaying without the server."""
    homes = {name: str(folder / name) for name in ("strict", "relaxed")}
    envs = {
        name: {"HANSARD_DATA_DIR": home, "HANSARD_DURABILITY": name} for name, home in homes.items()
    }
    offline = [*PROXY, "--run", "last", "--mode", "offline"]
    async with contextlib.AsyncExitStack() as stack:
        direct = await stack.enter_async_context(client(SERVER))
        proxied = {
            name: await stack.enter_async_context(client([*PROXY, "--", *SERVER], **env))
            for name, env in envs.items()
        }
        await played(found, {"direct": direct, **proxied})
    async with contextlib.AsyncExitStack() as stack:
        direct = await stack.enter_async_context(client(SERVER))
        replayed = await stack.enter_async_context(client(offline, **envs["strict"]))
        await played(found, {"direct, again": direct, "replayed": replayed})


async def played(found: Findings, everybody: dict[str, Client]) -> None:
    """Make the same calls with each client, so that a replay finds them in the order of the
    record.
    """
    for tool, what in (("add", "a pure call"), ("note", "a call with an intent")):
        works = [caller(one, tool) for one in everybody.values()]
        times = await _world.turns(sized(300, 10), *works, warm_up=5)
        report(found, what, dict(zip(everybody, times, strict=True)))
    at_once: dict[str, list[float]] = {name: [] for name in everybody}
    for number in range(sized(6, 1)):
        for name, one in everybody.items():
            began_s = time.perf_counter()
            calls = (one.call("note", number=number * TOGETHER + n) for n in range(TOGETHER))
            await asyncio.gather(*calls)
            at_once[name].append((time.perf_counter() - began_s) * 1e3)
    report(found, f"{TOGETHER} calls at once", at_once)


async def over_http(found: Findings, folder: Path) -> None:
    """Measure calls in turn over HTTP: the server directly, through the proxy; an entry of our
    server.
    """
    env = {"HANSARD_DATA_DIR": str(folder / "http"), "HANSARD_DURABILITY": "relaxed"}
    served, front, ours = free_port(), free_port(), free_port()
    token = folder / "token"
    token.write_text(secrets.token_urlsafe(32))
    token.chmod(0o600)
    serve = [sys.executable, "-m", "hansard", "-w", "papers", "up", "--token-file", str(token)]
    async with (
        at_port([*SERVER, str(served)], served) as url,
        at_port([*PROXY, "--url", url, "--http", str(front)], front, **env) as proxied,
        at_port([*serve, "--http", str(ours)], ours, **env) as record,
    ):
        direct, through, reader = (
            HttpClient(url),
            HttpClient(proxied),
            HttpClient(record, token.read_text()),
        )
        for one in (direct, through, reader):
            await one.greet()
        begun = await reader.call("start_run")
        run = begun["structuredContent"]["result"]["run_id"]
        await reader.call("board_put", run_id=run, key="findings/1", value={"title": "Whales"})

        async def entry() -> None:
            await reader.call("board_entry", run_id=run, key="findings/1")

        for tool, what in (("add", "a pure call"), ("note", "a call with an intent")):
            works = [caller(direct, tool), caller(through, tool)]
            names = ["direct", "through proxy --http"]
            if tool == "add":
                works.append(entry)
                names.append("an entry from up --http")
            times = await _world.turns(sized(300, 10), *works, warm_up=5)
            report(found, f"{what} over HTTP", dict(zip(names, times, strict=True)))


async def reads(found: Findings, folder: Path) -> None:
    """Measure our server's tools beside the same operations here, in turn, on separate records.

    A query in SQL is a step of the server's, too, so that this process states a fact before its
    query: both answer as of a new position.
    """
    served = [sys.executable, "-m", "hansard", "mcp", "serve", "--agent", "ada"]
    served += ["--tools", "default,ask"]
    homes = {name: str(folder / name) for name in ("in process", "by our server")}
    env = {"HANSARD_DATA_DIR": homes["by our server"], "HANSARD_DURABILITY": "relaxed"}
    async with (
        client(served, **env) as remote,
        hansard.connect_async(data_dir=homes["in process"], durability="relaxed") as record,
        record.run("reads", agent="ada") as session,
    ):
        begun = await remote.call("start_run")
        run = {"run_id": begun["structuredContent"]["result"]["run_id"]}
        put: dict[str, Any] = {"key": "findings/1", "value": {"title": "Whales"}}
        await session.board.put(put["key"], put["value"])
        await remote.call("board_put", **run, **put)

        async def entry() -> None:
            await session.board.entry("findings/1")

        async def entry_by_tool() -> None:
            await remote.call("board_entry", **run, key="findings/1")

        async def sql() -> None:
            await session.message("user", "how many?")
            await record.sql(STATEMENT)

        async def sql_by_tool() -> None:
            await remote.call("sql", query=STATEMENT)

        for what, rounds, works in (
            ("an entry of the board", sized(200, 5), (entry, entry_by_tool)),
            ("a statement of SQL", sized(40, 3), (sql, sql_by_tool)),
        ):
            times = await _world.turns(rounds, *works, warm_up=2)
            report(found, what, dict(zip(homes, times, strict=True)))


def caller(one: Client | HttpClient, tool: str) -> Any:
    """Return a function that calls a tool with new arguments each time."""
    numbers = iter(range(10_000_000))

    async def call() -> None:
        number = next(numbers)
        await one.call(tool, **({"a": number, "b": 1} if tool == "add" else {"number": number}))

    return call


def report(found: Findings, what: str, times: dict[str, list[float]]) -> None:
    """Report each one's times beside the first's."""
    first, *others = times
    base = summary(times[first])
    found.results[f"{what}, {first}"] = base
    for name in others:
        mine = summary(times[name])
        found.results[f"{what}, {name}"] = mine
        ratio = mine.median_ms / base.median_ms
        found.ratios[f"{what}, {name} / {first}"] = ratio
        pairs = zip(times[name], times[first], strict=True)
        found.ratios[f"{what}, {name} / {first}, of neighbours"] = statistics.median(
            one / other for one, other in pairs
        )
        if name == "relaxed" and "at once" not in what:
            found.goals[f"{what}: relaxed within 1.5x direct"] = ratio <= 1.5


def main() -> int:
    """Measure and report."""
    found = Findings()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(found, Path(folder)))
        asyncio.run(over_http(found, Path(folder)))
        asyncio.run(reads(found, Path(folder)))
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
