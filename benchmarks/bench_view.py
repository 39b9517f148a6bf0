"""How soon is a run of 1,000,000 events open in the page, and how fast are its slider and its news?

A run of 20 agents: steps with intents and outcomes, and messages, appended in bulk.
`hansard up --http` serves it to a browser: time until the rows at the point are painted, until the
state of the agent at the point is shown, until all events are there, and until the state of all
agents is shown, of which nothing was read or stored before; moves of the slider from the input to
the first task after the frame that shows them, by jumps and by steps; the memory of the page's
JavaScript after garbage collection.

Then a run that grows by 1,000 commits a second, of one event each, by 40 writers: it is followed by
the page while 49 other streams read it. The time of each event is that of the log, until the first
task after a frame whose list has it. Goals: open < 1.5 s, slider p95 < 100 ms, memory < 300 MB,
painted p99 < 250 ms, on two idle cores, writers and readers included.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, say, sized, summary
from benchmarks.bench_http import TOKEN, WORKSPACE, served
from benchmarks.bench_live import STREAMS, write
from benchmarks.bench_page import ARGUMENTS, MOVE, _raw, _Stream
from hansard.bus.log import Append
from hansard.domain import agent as agents
from hansard.domain import run as runs
from hansard.domain import steps
from hansard.domain.events import Actor, Event
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.steps import Effects
from hansard.ext.browser import chromium

AGENTS = 20
RUN = "many-events"
EVENTS_A_COMMIT = 40
OPEN_MS_MAX, MOVE_MS_MAX, HEAP_MB_MAX, PAINTED_MS_MAX = 1_500.0, 100.0, 300.0, 250.0
WAIT_MS = 120_000

FRAMES = """() => {
  const frames = (window.frames_seen = []);
  const look = () => requestAnimationFrame(() => {
    const after = new MessageChannel();
    after.port1.onmessage = () => {
      const size = /of ([\\d,]+)/.exec(document.querySelector("#where")?.textContent ?? "");
      const number = size ? Number(size[1].replaceAll(",", "")) : 0;
      const now = performance.timeOrigin + performance.now();
      if (number !== frames.at(-1)?.[1]) frames.push([now, number]);
      look();
    };
    after.port2.postMessage(0);
  });
  look();
}"""
"""Notes when a frame was painted that shows another number of events, in ms since 1970."""


ALL_AGENTS = "size => document.querySelectorAll('#now .agent').length === size"


def appends(count: int) -> Iterator[Append]:
    """Yield a run of so many events, the same every time."""
    letters = random.Random(7)
    names = [f"agent-{number}" for number in range(AGENTS)]
    life = _Stream(RunStream(RUN), names[0])
    yield life.commit(runs.RunStarted(workflow="many events"))
    for name in names:  # each by itself: what others say of an agent is ignored
        life.actor = Actor(name)
        yield life.commit(runs.AgentJoined(agent=name, role="hands"))
    streams = [_Stream(AgentStream(RUN, "hands", name), name) for name in names]
    begun = agents.SessionBegan
    for stream, name in zip(streams, names, strict=True):
        yield stream.commit(
            begun(epoch=1, agent=name, role="hands", server_version="1", protocol_version="1")
        )
    step = [0] * AGENTS
    for number in range(count // EVENTS_A_COMMIT):
        at = letters.randrange(AGENTS)
        events: list[Event] = []
        mark = ""
        while len(events) < EVENTS_A_COMMIT:
            step[at] += 1
            mark = f"{at:04d}{step[at]:012d}"
            events.append(
                steps.StepRequested(
                    step=step[at],
                    tool=f"tool_{step[at] % 9}",
                    effects=Effects.PURE,
                    arguments=_raw({"query": f"number {step[at]} of {names[at]}"}),
                    call=mark,
                    fingerprint=mark,
                )
            )
            events.append(
                steps.StepCompleted(
                    step=step[at], result=_raw({"rows": step[at]}), digest=mark, duration_ms=3
                )
            )
        if number % 10 == 0:
            text = _raw(f"message {number} of {names[at]}")
            events.append(agents.MessageAdded(role="assistant", content=text, fingerprint=mark))
        yield streams[at].commit(*events)


@contextlib.asynccontextmanager
async def tab(program: str) -> AsyncIterator[Any]:
    """Yield a tab of a browser that sends the token."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 -- only where a browser is

    async with async_playwright() as player:
        opened = await player.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        view = await opened.new_page(
            viewport={"width": 1400, "height": 900},
            bypass_csp=True,
            extra_http_headers={"Authorization": f"Bearer {TOKEN}"},
        )
        yield view
        await opened.close()


async def of_many_events(
    record: hansard.AsyncRecord, place: Path, program: str, report: Findings
) -> None:
    """Measure the page of a large run."""
    count = sized(1_000_000, 2_000)
    begun = time.perf_counter()
    await record.workspace.log.append_bulk(appends(count))
    say(f"appended in {time.perf_counter() - begun:.0f} s")
    async with served(place, "service", RUN) as http, tab(program) as view:
        address = f"{http.base_url}/ws/{WORKSPACE}/runs/{RUN}"
        for name in ("first", "next"):
            begun = time.perf_counter()
            await view.goto(address)
            await view.wait_for_selector("html[data-point]", timeout=WAIT_MS)
            report.results[f"open, {name}: rows at the point, ms"] = _ms(begun)
            await view.wait_for_selector("#now [data-field=status]", timeout=WAIT_MS)
            report.results[f"open, {name}: state of the agent, ms"] = _ms(begun)
            await view.wait_for_selector(".live", timeout=WAIT_MS)
            report.results[f"open, {name}: all events, ms"] = _ms(begun)
            await view.wait_for_function(ALL_AGENTS, arg=AGENTS, timeout=WAIT_MS)
            report.results[f"open, {name}: state of all agents, ms"] = _ms(begun)
        for what in ("rows at the point", "state of the agent"):
            shown = report.results[f"open, next: {what}, ms"]
            report.goals[f"open, {what} < {OPEN_MS_MAX:g} ms"] = shown < OPEN_MS_MAX
        last = int(await view.evaluate("Number(document.getElementById('slider').max)"))
        report.results["events"] = last + 1
        letters, moves = random.Random(11), sized(200, 10)
        for name, points in {
            "jumps": [letters.randint(0, last) for _ in range(moves)],
            "steps": list(range(last // 2, last // 2 + moves)),
        }.items():
            times = await view.evaluate(MOVE, [points])
            report.results[f"slider, {name}"] = summary(times)
            p95 = sorted(times)[int(0.95 * len(times))]
            report.goals[f"slider, {name}: p95 < {MOVE_MS_MAX:g} ms"] = p95 < MOVE_MS_MAX
        session = await view.context.new_cdp_session(view)
        await session.send("HeapProfiler.collectGarbage")
        used = (await session.send("Runtime.getHeapUsage"))["usedSize"] / 1e6
        report.results["memory of JavaScript, MB"] = round(used)
        report.goals[f"memory < {HEAP_MB_MAX:g} MB"] = used < HEAP_MB_MAX


async def of_a_live_run(
    record: hansard.AsyncRecord, place: Path, program: str, report: Findings
) -> None:
    """Measure how long after its commit each event is painted."""
    count = sized(8_000, 400)
    async with record.run("w", agent="a", role="r") as session:
        epoch, run = session.engine.ledger.state.epoch, session.run
        async with served(place, "service", run) as http, tab(program) as view:
            reader = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "benchmarks.bench_live", "read", str(http.base_url)),
                *(str(place), run, str(count), str(STREAMS - 1)),
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 28,
            )
            assert reader.stdout is not None
            await reader.stdout.readline()
            await view.goto(f"{http.base_url}/ws/{WORKSPACE}/runs/{run}")
            await view.wait_for_selector(".live.live", timeout=WAIT_MS)
            await view.keyboard.press("f")
            await view.evaluate(FRAMES)
            await write(record, run, epoch, count, 1_000.0)
            await reader.stdout.readline()
            await reader.wait()
            rows = (await http.get(f"/api/v1/{WORKSPACE}/runs/{run}/outline?limit=50000")).json()[
                "rows"
            ]
            size = len(rows["time"])
            await view.wait_for_function(
                "size => window.frames_seen.at(-1)?.[1] >= size", arg=size, timeout=WAIT_MS
            )
            frames = await view.evaluate("() => window.frames_seen")
    took, at = [], 0
    for number in range(size - count, size):
        while frames[at][1] <= number:
            at += 1
        took.append(frames[at][0] - rows["time"][number] / 1_000)
    report.results["commit until painted"] = summary(took)
    report.results["frames with news"] = len(frames)
    p99 = sorted(took)[int(0.99 * len(took))]
    report.goals[f"painted: p99 < {PAINTED_MS_MAX:g} ms"] = p99 < PAINTED_MS_MAX


def _ms(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1_000, 1)


async def measure(report: Findings) -> None:
    """Measure both runs."""
    program = chromium.program(window=True)
    if program is None:
        say("no browser: set HANSARD_BROWSER or install chromium")
        return
    async with (
        _world.world("relaxed") as place,
        hansard.connect_async(WORKSPACE, data_dir=place.folder) as record,
    ):
        await of_a_live_run(record, Path(place.folder), program, report)
        await of_many_events(record, Path(place.folder), program, report)


if __name__ == "__main__":
    benchmark(measure, __doc__)
