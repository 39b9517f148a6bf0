"""How long after its commit is an event at 50 streams of a run, against 50 bare NATS subscribers?

Commits of one event are appended at a fixed rate by 40 writers; a process of its own reads 50 live
streams of the run from `hansard up --http`, then 50 subscriptions of as many nats-py connections to
what the log republishes. Each event's time is that of the log, until it was read from the socket.
Every stream gets every event, once; bare subscribers lose what they are too slow for. Goal: p99
below 250 ms on two idle cores, writers and readers included.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import nats
from nats.aio.msg import Msg

import hansard
from benchmarks import _world
from benchmarks._report import Findings, sized, summary
from benchmarks.bench_http import TOKEN, WORKSPACE, served
from hansard.broker.lease import peek
from hansard.bus import subjects
from hansard.bus.jetstream.wire import stamp_ns
from hansard.bus.log import Append
from hansard.client.record import AsyncRecord
from hansard.domain.board import ValuePut
from hansard.domain.ids import KeyStream
from hansard.domain.values import dump

STREAMS, WRITERS = 50, 40
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
    if sys.argv[1:2] == ["read"]:
        address, place, which, *numbers = sys.argv[2:]
        asyncio.run(read("" if address == "-" else address, place, which, *map(int, numbers)))
    else:
        sys.exit(main())
