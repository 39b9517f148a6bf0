"""How long after its commit is an event at 50 streams of a run, against 50 bare NATS subscribers?

Commits of one event are appended at a fixed rate by 40 writers; a process of its own reads 50 live
streams of the run from `hansard up --http`, then 50 subscriptions of as many nats-py connections to
what the log republishes. Each event's time is that of the log, until it was read from the socket.
Every stream gets every event, once; bare subscribers lose what they are too slow for. Goal: p99
below 250 ms on two idle cores, writers and readers included.

`python -m benchmarks.bench_live silent`: the memory of the service while a run is written of which
200 clients have asked for the live stream and read nothing, beside that without them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import nats
from nats.aio.msg import Msg

import hansard
from benchmarks import _world
from benchmarks._report import Findings, quick, sized, summary
from benchmarks.bench_http import TOKEN, WORKSPACE, served
from hansard.broker.lease import peek
from hansard.bus import subjects
from hansard.bus.jetstream.wire import stamp_ns
from hansard.bus.log import Append
from hansard.client.record import AsyncRecord
from hansard.domain.board import ValuePut
from hansard.domain.ids import KeyStream
from hansard.domain.values import dump

STREAMS, WRITERS, SILENT = 50, 40, 200
P99_MS_MAX = 250.0
_END_S = 120.0


class _Rows(msgspec.Struct):
    """Times of rows, in us since 1970."""

    time: list[int]


_rows = msgspec.json.Decoder(_Rows)


async def write(record: AsyncRecord, run: str, epoch: int, events: int, rate: float) -> None:
    """Append events at a rate, each as a commit of its own."""
    workspace = record.workspace
    begun_s = time.monotonic()

    async def one(number: int) -> None:
        for each in range(events // WRITERS):
            due_s = begun_s + each * WRITERS / rate
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            event = ValuePut(value=dump(f"value {each} of {number}"), role="r")
            commit = workspace.commit(each + 1, "a", [event], epoch=epoch)
            await workspace.log.append(Append(KeyStream(run, f"key-{number}"), commit))

    await asyncio.gather(*map(one, range(WRITERS)))


async def read(url: str, folder: str, run: str, events: int, streams: int = STREAMS) -> None:
    """Read all events of so many streams, and print the milliseconds that each took."""
    took: list[float] = []
    async with AsyncExitStack() as stack:
        waits = [
            await stack.enter_async_context(
                _stream(url, run, events, took) if url else _subscription(folder, run, events, took)
            )
            for _ in range(streams)
        ]
        print("ready", flush=True)
        _, late = await asyncio.wait(waits, timeout=_END_S)
        assert not url or not late
    print(msgspec.json.encode(took).decode(), flush=True)


@asynccontextmanager
async def _stream(
    url: str, run: str, events: int, took: list[float]
) -> AsyncIterator[asyncio.Task[None]]:
    host, _, port = url.removeprefix("http://").strip("/").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
    path = f"/api/v1/{WORKSPACE}/runs/{run}/live"
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    writer.write(head.encode())
    await reader.readuntil(b"event: open")

    async def all_of_them() -> None:
        count = 0
        while count < events:
            line = await reader.readline()
            assert line, "the stream ended"
            if line.startswith(b'data: {"position":['):
                now_us = time.time() * 1_000_000
                times = _rows.decode(line[len("data: ") :]).time
                took.extend((now_us - each) / 1_000 for each in times)
                count += len(times)

    yield asyncio.create_task(all_of_them())
    writer.close()


@asynccontextmanager
async def _subscription(
    folder: str, run: str, events: int, took: list[float]
) -> AsyncIterator[asyncio.Task[bool]]:
    info = peek(Path(folder))
    assert info is not None
    client = await nats.connect(info.url, user=info.runtime.user, password=info.runtime.password)
    done = asyncio.Event()
    count = 0

    async def take(message: Msg) -> None:
        nonlocal count
        count += 1
        stamp = stamp_ns((message.headers or {})["Nats-Time-Stamp"].encode())
        took.append((time.time_ns() - stamp) / 1_000_000)
        if count == events:
            done.set()

    pattern = subjects.live(f"{subjects.run_prefix(WORKSPACE, run)}.board.>")
    await client.subscribe(pattern, cb=take)
    await client.flush()
    yield asyncio.create_task(done.wait())
    await client.close()


async def measured(events: int, rate: float) -> dict[str, list[float]]:
    """Return the milliseconds of each event at each reader, by kind of reader."""
    took: dict[str, list[float]] = {}
    async with (
        _world.world("relaxed") as place,
        hansard.connect_async(WORKSPACE, data_dir=place.folder) as record,
    ):
        for kind in ("streams", "NATS subscribers"):
            async with record.run("w", agent="a", role="r") as session:
                epoch = session.engine.ledger.state.epoch
                async with served(Path(place.folder), "service", session.run) as http:
                    url = str(http.base_url) if kind == "streams" else "-"
                    reader = await asyncio.create_subprocess_exec(
                        *(sys.executable, "-m", "benchmarks.bench_live", "read", url),
                        *(str(place.folder), session.run, str(events)),
                        stdout=asyncio.subprocess.PIPE,
                        limit=1 << 28,
                    )
                    assert reader.stdout is not None
                    await reader.stdout.readline()
                    await write(record, session.run, epoch, events, rate)
                    took[kind] = msgspec.json.decode(await reader.stdout.readline())
                    await reader.wait()
            if kind == "streams":
                assert len(took[kind]) == events * STREAMS
    return took


def memory_mb() -> float:
    """Return the resident memory of the service, in MB."""
    for process in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        if "benchmarks.bench_http" in Path(f"/proc/{process}/cmdline").read_text():
            return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4_096 / 1e6
    raise AssertionError("the service has ended")


async def silent(clients: int, events: int, rate: float) -> dict[str, float]:
    """Return the service's memory before and at most while a run is written."""
    async with (
        _world.world("relaxed") as place,
        hansard.connect_async(WORKSPACE, data_dir=place.folder) as record,
        record.run("w", agent="a", role="r") as session,
        served(Path(place.folder), "service", session.run) as http,
    ):
        path = f"/api/v1/{WORKSPACE}/runs/{session.run}/live"
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        seen = [memory_mb()]
        with ExitStack() as stack:
            for _ in range(clients):
                client = stack.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                await asyncio.to_thread(client.connect, (http.base_url.host, http.base_url.port))
                client.sendall(head.encode())
                first = await asyncio.to_thread(client.recv, 12, socket.MSG_PEEK)
                assert first == b"HTTP/1.1 200", first
            async with _stream(str(http.base_url), session.run, events, []) as all_of_them:
                writer = asyncio.create_task(
                    write(record, session.run, session.engine.ledger.state.epoch, events, rate)
                )
                while not (writer.done() and all_of_them.done()):
                    await asyncio.sleep(0.2)
                    seen.append(memory_mb())
                await asyncio.gather(writer, all_of_them)
        return {"before, MB": seen[0], "most, MB": max(seen)}


def measure_silent() -> int:
    """Measure the memory with and without clients that read nothing, and report."""
    report = Findings()
    most = {}
    for clients in (0, SILENT if not quick() else 20):
        figures = asyncio.run(silent(clients, sized(40_000, 400), 1_000.0))
        report.results[f"{clients} clients that read nothing"] = figures
        most[clients] = figures["most, MB"] - figures["before, MB"]
    (clients, more), base = most.popitem(), most.popitem()[1]
    report.results["kB a client"] = (more - base) * 1_000 / clients
    report.emit(__doc__)
    return 0


def main() -> int:
    """Measure and report."""
    report = Findings()
    rate = 1_000.0
    took = asyncio.run(measured(sized(8_000, 400), rate))
    for name, times in took.items():
        report.results[name] = summary(times)
        report.results[f"events at {name}"] = len(times)
    p99 = {name: sorted(times)[int(0.99 * len(times))] for name, times in took.items()}
    report.ratios["p99 of streams against NATS subscribers"] = (
        p99["streams"] / p99["NATS subscribers"]
    )
    report.goals[f"p99 < {P99_MS_MAX:g} ms"] = p99["streams"] < P99_MS_MAX
    report.emit(__doc__)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["silent"]:
        sys.exit(measure_silent())
    if sys.argv[1:2] == ["read"]:
        address, place, which, *numbers = sys.argv[2:]
        asyncio.run(read("" if address == "-" else address, place, which, *map(int, numbers)))
    else:
        sys.exit(main())
