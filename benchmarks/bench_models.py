"""What does recording cost a program for each call of a model, and what does a replay take?

A program asks a provider on this machine that answers at once: directly, through `hansard record`,
and through `hansard replay` without the provider: calls in turn, the first byte of a stream, 300
calls at once, and a stream of 50 MB. Then 10,000 recorded calls, and the memory of the recorder
after a fifth of them and after all. Goals: the first byte of a recorded stream comes at most 1 ms
later than directly (medians), and memory grows by at most 1 KiB a call: the recorder counts equal
calls and messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import _world
from benchmarks._report import Findings, sized, summary

CALLS, TOGETHER, MANY = sized(200, 5), sized(300, 20), sized(10_000, 50)
STREAM_BYTES = sized(50 * 2**20, 2**20)
PIECE_BYTES = 16 * 1024
FIRST_BYTE_MAX_MS = 1.0
GROWTH_MAX_KIB = 1.0
AT_ONCE = 20
"""Calls under way at a time among the 10,000."""

EVENT = json.dumps(
    {
        "id": "chatcmpl-" + "A" * 29,
        "object": "chat.completion.chunk",
        "created": 1731456252,
        "model": "m",
        "choices": [
            {"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}
        ],
    }
)
REPLY = json.dumps(
    {
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "word " * 50}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 50},
    }
).encode()


# ---------------------------------------------------------------- provider


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            body = json.loads(await reader.readexactly(size))
            if not body.get("stream"):
                kind = b"content-type: application/json\r\n"
                writer.write(
                    b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\n\r\n" % (kind, len(REPLY))
                )
                writer.write(REPLY)
                continue
            kind = b"content-type: text/event-stream\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\n%stransfer-encoding: chunked\r\n\r\n" % kind)
            for data in _pieces(body["bytes"]):
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
                await writer.drain()
            writer.write(b"0\r\n\r\n")


def _pieces(size: int) -> Iterator[bytes]:
    event = f"data: {EVENT}\n\n".encode()
    piece = event * (PIECE_BYTES // len(event))
    yield event
    for _ in range(size // len(piece)):
        yield piece


async def provide() -> None:
    """Serve until killed; print the port."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# ---------------------------------------------------------------- client


class Client:
    """The program: it measures its own calls."""

    def __init__(self, http: Any) -> None:
        self._http = http
        self._url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"

    async def ask(self, text: str) -> float:
        """Return the time of a call, in ms."""
        begin = time.perf_counter()
        body = {"model": "m", "messages": [{"role": "user", "content": text}]}
        response = await self._http.post(self._url, json=body)
        assert response.json()["usage"]["prompt_tokens"] == 100, response.text
        return (time.perf_counter() - begin) * 1e3

    async def stream(self, text: str, size: int) -> tuple[float, float]:
        """Return the time to the first byte, and to the last, in ms."""
        begin, first, received = time.perf_counter(), 0.0, 0
        body = {"model": "m", "messages": [text], "stream": True, "bytes": size}
        async with self._http.stream("POST", self._url, json=body) as response:
            async for data in response.aiter_raw():
                first = first or time.perf_counter() - begin
                received += len(data)
        assert received >= size * 0.9, received
        return first * 1e3, (time.perf_counter() - begin) * 1e3

    async def measure(self) -> dict[str, Any]:
        """Measure each kind of call."""
        await self.ask("warm up")
        one = [await self.ask(f"one {number}") for number in range(CALLS)]
        first = [(await self.stream(f"first {number}", 0))[0] for number in range(CALLS)]
        begin = time.perf_counter()
        await asyncio.gather(*(self.ask(f"together {number}") for number in range(TOGETHER)))
        together = (time.perf_counter() - begin) * 1e3
        _, big = await self.stream("big", STREAM_BYTES)
        return {"one": one, "first": first, "together": together, "big": big}

    async def many(self) -> dict[str, Any]:
        """Make many calls; read the recorder's memory on the way, in KiB."""
        memory, begin, number = [], time.perf_counter(), 0
        for until in (MANY // 5, MANY):
            while number < until:
                calls = (self.ask(f"many {number + each}") for each in range(AT_ONCE))
                await asyncio.gather(*calls)
                number += AT_ONCE
            memory.append(_resident_kib(os.getppid()))
        return {"memory": memory, "s": time.perf_counter() - begin}


def _resident_kib(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


async def ask(what: str, report: str) -> None:
    """Measure, and write the result to a file: stdout belongs to the command around."""
    import httpx2  # noqa: PLC0415 -- the provider needs none of it

    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(limits=limits, timeout=600) as http:
        client = Client(http)
        result = await (client.many() if what == "many" else client.measure())
    await asyncio.to_thread(Path(report).write_text, json.dumps(result), encoding="utf-8")


# ---------------------------------------------------------------- benchmark


@contextlib.asynccontextmanager
async def provider() -> AsyncIterator[str]:
    """Start the provider in a process of its own; yield its base URL."""
    command = [sys.executable, "-m", "benchmarks.bench_models", "provider"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        await process.wait()


async def run(folder: Path, url: str, what: str, *around: str) -> dict[str, Any]:
    """Run the client, directly or inside a command of Hansard; return its report."""
    report = folder / "report.json"
    sizes = [each for each in sys.argv[1:] if each.startswith("--") or each[0].isdigit()]
    client = [sys.executable, "-m", "benchmarks.bench_models", what, str(report), *sizes]
    command = [sys.executable, "-m", "hansard", *around, "--", *client] if around else client
    environment = os.environ | {
        "OPENAI_BASE_URL": url,
        "HANSARD_DATA_DIR": str(folder),
        "HANSARD_WORKSPACE": "bench",
    }
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-2000:]
    result: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return result


async def measure(found: Findings) -> None:
    """Direct, recorded, replayed; then many calls."""
    async with _world.world("relaxed") as world:
        folder = world.folder
        async with provider() as url:
            reports = {"direct": await run(folder, url, "measure")}
            reports["recorded"] = await run(folder, url, "measure", "record")
            gone = "http://127.0.0.1:9/v1"
            reports["replayed"] = await run(folder, gone, "measure", "replay", "last")
            many = await run(folder, url, "many", "record")
    megabytes = STREAM_BYTES / 2**20
    for how, report in reports.items():
        found.results[f"a call, {how}"] = summary(report["one"])
        found.results[f"the first byte of a stream, {how}"] = summary(report["first"])
        found.results[f"{TOGETHER} calls at once, {how}, ms"] = round(report["together"], 1)
        found.results[f"a stream of {megabytes:g} MB, {how}, ms"] = round(report["big"], 1)
    direct = reports["direct"]
    for how in ("recorded", "replayed"):
        report = reports[how]
        found.ratios[f"a call, {how} against direct"] = median(report["one"]) / median(
            direct["one"]
        )
        for name in ("together", "big"):
            found.ratios[f"{name}, {how} against direct"] = report[name] / direct[name]
    later_ms = median(reports["recorded"]["first"]) - median(direct["first"])
    found.results["the first byte recorded, later by, ms"] = round(later_ms, 2)
    goal = f"the first byte of a recorded stream comes at most {FIRST_BYTE_MAX_MS} ms later"
    found.goals[goal] = later_ms <= FIRST_BYTE_MAX_MS
    early, late = many["memory"]
    growth = (late - early) / (MANY * 4 / 5)
    found.results[f"{MANY} recorded calls, s"] = round(many["s"], 1)
    found.results["memory of the recorder after a fifth of them and after all, MiB"] = [
        round(early / 1024), round(late / 1024),
    ]  # fmt: skip
    found.results["memory a call, KiB"] = round(growth, 2)
    found.goals[f"memory grows by at most {GROWTH_MAX_KIB} KiB a call"] = growth <= GROWTH_MAX_KIB


def main() -> int:
    """Measure and report; or be the provider or the client."""
    match sys.argv[1:]:
        case ["provider", *_]:
            asyncio.run(provide())
        case ["measure" | "many" as what, report, *_]:
            asyncio.run(ask(what, report))
        case _:
            found = Findings()
            asyncio.run(measure(found))
            found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
