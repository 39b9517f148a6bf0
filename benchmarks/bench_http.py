"""What do the routes of `hansard up --http` cost, against a bare Starlette that does the same work?

200 events of a run are requested in alternation over one connection each: from the service, from a
bare Starlette application on the same server (uvicorn) that calls the same function on the same
open record and encodes the same struct, and from one that sends the finished bytes. Then a query of
one row in SQL, from the service and from the record itself. Each server is a process of its own;
the broker syncs each commit every 10 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import hansard
from benchmarks import _world
from benchmarks._report import Findings, sized, summary
from hansard import settings
from hansard.client.listening import Address, listen
from hansard.client.opening import find_broker
from hansard.inspect.outline import outline
from hansard.service.http.app import listening

EVENTS = 200
RATIO_MAX = 2.0
TOKEN = "a-token-of-enough-characters"  # noqa: S105 -- of this benchmark alone
WORKSPACE = "bench"


async def serve(folder: str, kind: str, run: str) -> None:
    """Serve as the process `kind`, and print the address."""
    config = settings.load(workspace=WORKSPACE, data_dir=folder)

    def announce(url: str) -> None:
        print(url, flush=True)

    if kind == "service":
        broker = await find_broker(config)
        async with listening(config, broker, Address("127.0.0.1", 0), token=TOKEN) as url:
            announce(url)
            await asyncio.Event().wait()
    async with hansard.connect_async(WORKSPACE, data_dir=folder) as record:
        fixed = msgspec.json.encode(await outline(record.workspace, run, 0, EVENTS))

        async def same(request: Request) -> Response:
            after = int(request.query_params["after"])
            page = await outline(record.workspace, request.path_params["run"], after, EVENTS)
            return Response(msgspec.json.encode(page), media_type="application/json")

        async def finished(_: Request) -> Response:
            return Response(fixed, media_type="application/json")

        answer = same if kind == "bare" else finished
        app = Starlette(routes=[Route("/api/v1/bench/runs/{run}/outline", answer)])
        await listen(app, Address("127.0.0.1", 0), "", announce)


@contextlib.asynccontextmanager
async def served(folder: Path, kind: str, run: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of a server in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_http", str(folder), kind, run]
    process = subprocess.Popen(  # noqa: ASYNC220 -- before anything is measured
        command, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = (await asyncio.to_thread(process.stdout.readline)).strip()
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            yield http
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def alternated(
    calls: Mapping[str, Callable[[], Awaitable[object]]], rounds: int
) -> dict[str, list[float]]:
    """Return the milliseconds of each call; the first round is not measured."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            await call()
            took[name].append((time.perf_counter() - begin) * 1_000)
    return {name: times[1:] for name, times in took.items()}


async def measured(rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each request."""
    async with _world.world("relaxed") as place, contextlib.AsyncExitStack() as stack:
        opened = hansard.connect_async(WORKSPACE, data_dir=place.folder)
        record = await stack.enter_async_context(opened)
        async with record.run("w", agent="a", role="r") as session:
            for number in range(EVENTS):
                await session.message("user", f"message {number}")
            run = session.run
        clients = {
            kind: await stack.enter_async_context(served(Path(place.folder), kind, run))
            for kind in ("service", "bare", "finished")
        }
        path = f"/api/v1/{WORKSPACE}/runs/{run}/outline?after=0&limit={EVENTS}"

        def request(http: httpx2.AsyncClient) -> Callable[[], Awaitable[object]]:
            async def call() -> None:
                answer = await http.get(path)
                assert answer.status_code == 200
                assert len(answer.json()["rows"]["position"]) == EVENTS

            return call

        took = await alternated({kind: request(http) for kind, http in clients.items()}, rounds)
        statement = "SELECT count(*) FROM events"

        async def by_http() -> None:
            body = {"statement": statement}
            answer = await clients["service"].post(f"/api/v1/{WORKSPACE}/sql", json=body)
            assert answer.status_code == 200

        async def by_record() -> None:
            await record.sql(statement)

        queries = {"SQL by HTTP": by_http, "SQL by the record": by_record}
        return took | await alternated(queries, max(3, rounds // 20))


def main() -> int:
    """Measure and report."""
    report = Findings()
    took = asyncio.run(measured(sized(400, 5)))
    for name, times in took.items():
        report.results[name] = summary(times)
    ratio = median(took["service"]) / median(took["bare"])
    report.ratios["service against a bare Starlette"] = ratio
    report.ratios["service against finished bytes"] = median(took["service"]) / median(
        took["finished"]
    )
    report.ratios["SQL by HTTP against the record"] = median(took["SQL by HTTP"]) / median(
        took["SQL by the record"]
    )
    report.goals[f"200 events, <= {RATIO_MAX} times a bare Starlette"] = ratio <= RATIO_MAX
    report.emit(__doc__)
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 2 and not sys.argv[1].startswith("--"):
        asyncio.run(serve(*sys.argv[1:]))
    else:
        sys.exit(main())
