"""How large is the page of a 10,000-step run, how soon is it open, and how fast is its slider?

A run of two agents: every step with its intent and outcome, a message every tenth step, a decision
or a checkpoint every fiftieth, a failed attempt now and then; 300 bytes of arguments and as much of
a result. It is appended in bulk, written as one HTML file, and opened from disk in a browser. A
move of the slider is timed from the input to the first task after the frame that shows it: to
random points (jumps), one event on (steps), and while everything later is hidden; besides, a search
that finds something in every step. Goals: every move under 100 ms, the file under 20 MB.

A second run of 10,000 events, and one of 1,000: four agents that add, claim and complete tasks that
wait for each other, write keys that grow, and send each other messages. Beside the file's size what
its board and tasks add to it, and the slider with each of the panels that show them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, say, sized, summary
from hansard.bus.commits import record
from hansard.bus.file_lock import write_whole
from hansard.bus.log import Append
from hansard.domain import agent as agents
from hansard.domain import board, steps, team
from hansard.domain import run as runs
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, uuid8
from hansard.domain.steps import Effects, Failure
from hansard.ext.browser import chromium
from hansard.inspect import page as page_data
from hansard.web.pages import run_page

RUN = "long-run"
AGENTS = (("planner", "lead"), ("worker", "hands"))
PAYLOAD_BYTES = 300
EVENTS_A_TASK = 27
KEYS = ("log", "seen", "by task", "sum", "plan")
MOVE_MS_MAX, FILE_BYTES_MAX = 100.0, 20_000_000
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Arguments of the browser: as root in a container, and without network requests."""

MOVE = """([values]) => new Promise((done) => {
  const slider = document.getElementById("slider");
  const times = [];
  const next = () => {
    if (!values.length) return done(times);
    const start = performance.now();
    slider.value = String(values.shift());
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    requestAnimationFrame(() => {
      const after = new MessageChannel();
      after.port1.onmessage = () => {
        times.push(performance.now() - start);
        setTimeout(next, 5);
      };
      after.port2.postMessage(0);
    });
  };
  next();
})"""
"""Sets the slider to each value and takes the time to the first task after the next frame."""


class _Stream:
    """One stream's commits, one event each, with ids and times that follow from their numbers."""

    def __init__(self, stream: StreamId, actor: str) -> None:
        self.stream = stream
        self.version = 1
        self.actor = Actor(actor)

    def commit(self, *events: Event) -> Append:
        """Return the next commit."""
        name = f"{self.stream}@{self.version}"
        told = tuple(record(event, uuid8(name, str(at))) for at, event in enumerate(events))
        commit = Commit(
            id=uuid8(name),
            version=self.version,
            at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.version),
            actor=self.actor,
            epoch=0 if isinstance(self.stream, RunStream) else 1,
            events=told,
        )
        self.version += len(events)
        return Append(self.stream, commit)


def appends(count: int, run: str = RUN) -> Iterator[Append]:
    """Yield a whole run of so many steps, the same every time."""
    life = _Stream(RunStream(run), AGENTS[0][0])
    streams = [_Stream(AgentStream(run, role, name), name) for name, role in AGENTS]
    joined = [runs.AgentJoined(agent=name, role=role) for name, role in AGENTS]
    yield life.commit(
        runs.RunStarted(workflow="a long run", labels={"size": str(count)}), joined[0]
    )
    life.actor = Actor(AGENTS[1][0])
    yield life.commit(joined[1])
    life.actor = Actor(AGENTS[0][0])
    for stream, (name, role) in zip(streams, AGENTS, strict=True):
        yield stream.commit(
            agents.SessionBegan(
                epoch=1, agent=name, role=role, server_version="1", protocol_version="1"
            ),
            steps.ToolDeclared(tool="search", effects=Effects.PURE),
        )
    letters = random.Random(5)
    for number in range(count):
        yield from _step(streams[number % 2], number // 2 + 1, number, letters)
    yield life.commit(runs.RunScored(metrics={"reward": 1.0}, by="the benchmark"))
    yield life.commit(runs.RunCompleted())


def _step(stream: _Stream, step: int, number: int, letters: random.Random) -> Iterator[Append]:
    """Yield a step and the facts beside it."""
    start = letters.randrange(4_000)
    text = _world.text(8_000)[start : start + PAYLOAD_BYTES]
    mark = f"{number:08d}" * 4
    yield stream.commit(
        steps.StepRequested(
            step=step,
            tool="search" if number % 3 else "send",
            effects=Effects.PURE if number % 3 else Effects.ONCE,
            arguments=_raw({"query": text, "number": number}),
            call=f"call{mark}",
            fingerprint=f"print{mark}",
            after=(step - 1,) if step > 1 else (),
            parent=step - 1 if number % 20 in (4, 5) else None,
        )
    )
    if number % 25 == 7:
        error = Failure("TimeoutError", "no answer in time")
        yield stream.commit(steps.StepAttempted(step=step, attempt=1, error=error))
    if number % 40 == 9:
        error = Failure("ValueError", f"{number} is not a size")
        yield stream.commit(steps.StepFailed(step=step, error=error, digest=f"digest{mark}"))
    elif number % 400 != 11:
        yield stream.commit(
            steps.StepCompleted(
                step=step, result=_raw(text[::-1]), digest=f"digest{mark}", duration_ms=number % 90
            )
        )
    if number % 10 == 0:
        yield stream.commit(
            agents.MessageAdded(
                role=("user", "assistant")[number // 10 % 2],
                content=_raw(f"{number}: {text}"),
                fingerprint=f"message{mark}",
                tokens=number % 70,
            )
        )
    if number % 50 == 3:
        yield stream.commit(
            agents.DecisionMade(
                question=f"Which of {number}?",
                selected="a",
                fingerprint=f"decision{mark}",
                alternatives=(agents.Alternative("a", 0.9), agents.Alternative("b", 0.1)),
            )
        )
    if number % 50 == 28:
        yield stream.commit(
            agents.CheckpointSaved(
                name=f"stage {number // 500}", data=_raw({"number": number}), fingerprint=f"c{mark}"
            )
        )


def team_appends(count: int, run: str) -> Iterator[Append]:
    """Yield a run of at least so many events whose agents share a board, tasks and messages."""
    names = ("ada", "bob", "cyd", "dan")
    life = _Stream(RunStream(run), names[0])
    first: list[Event] = [runs.RunStarted(workflow="a team")]
    first += [runs.AgentJoined(agent=name, role="hands") for name in names]
    yield life.commit(*first)
    agents_ = [_Stream(AgentStream(run, "hands", name), name) for name in names]
    for stream, name in zip(agents_, names, strict=True):
        yield stream.commit(
            agents.SessionBegan(
                epoch=1, agent=name, role="hands", server_version="1", protocol_version="1"
            )
        )
    shared = {
        key: _Stream(KeyStream(run, key), "") for key in (*KEYS, team.TASKS_KEY, team.MAIL_KEY)
    }
    asked = dict.fromkeys(names, 0)
    for number in range(count // EVENTS_A_TASK + 1):
        who = number // 7 % 4
        for key, event in _shared(number, names[who]):
            stream, asked[names[who]] = agents_[who], asked[names[who]] + 1
            step, mark = asked[names[who]], f"{number:08d}" * 4
            yield stream.commit(
                steps.StepRequested(
                    step=step,
                    tool="board.put",
                    effects=Effects.IDEMPOTENT,
                    arguments=_raw({"key": key, "value": _world.text(PAYLOAD_BYTES)}),
                    call=f"call{key}{mark}",
                    fingerprint=f"print{key}{mark}",
                    kind="board",
                )
            )
            shared[key].actor = Actor(names[who])
            yield shared[key].commit(event)
            yield stream.commit(
                steps.StepCompleted(
                    step=step, result=_raw(None), digest=f"digest{mark}", duration_ms=3
                )
            )


def _shared(number: int, who: str) -> Iterator[tuple[str, Event]]:
    """Yield one agent's team events: a task through its life, writes, a message."""
    text, role, name = _world.text(PAYLOAD_BYTES), "hands", f"t{number}"
    waits = (f"t{number - 1}",) if number % 10 else ()
    yield (
        team.TASKS_KEY,
        team.TaskAdded(task=name, title=f"Do {number}", what=_raw(text), waits_for=waits),
    )
    yield (
        team.TASKS_KEY,
        team.TaskClaimed(task=name, number=1, agent=who, role=role, lease_ms=60_000),
    )
    yield "log", board.ItemAppended(item=_raw(f"{number}: {text[:80]}"), role=role)
    yield "seen", board.ItemIncluded(item=_raw(f"{number:06d}"), role=role)
    yield "by task", board.ValueMerged(merge="union", value=_raw({name: text[:80]}), role=role)
    yield "sum", board.AmountAdded(amount=number, role=role)
    yield "plan", board.ValuePut(value=_raw({"now": number, "text": text}), role=role)
    yield (
        team.MAIL_KEY,
        team.MailSent(content=_raw(f"{number} is done"), sender_role=role, role=role),
    )
    yield team.TASKS_KEY, team.TaskCompleted(task=name, number=1, result=_raw(number))


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


async def of_team(program: str, folder: Path, opened: Any, found: Findings) -> None:
    """Measure the page of a team's run, small and large."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 -- only where a browser is

    for count in (sized(1_000, 100), sized(10_000, 300)):
        run, name = f"team-{count}", f"team of {count:,} events"
        await opened.workspace.log.append_bulk(team_appends(count, run))
        begun = time.perf_counter()
        page = await page_data.gather(opened.workspace, run)
        data = run_page(page)
        found.results[f"{name}: read and rendered, ms"] = _ms(begun)
        found.results[f"{name}: bytes"] = len(data)
        shared = len(msgspec.json.encode(page.shared))
        found.ratios[f"{name}: board and tasks / file"] = shared / len(data)
        path = folder / f"{run}.html"
        write_whole(path, data)
        async with async_playwright() as player:
            chromium = await player.chromium.launch(executable_path=program, args=list(ARGUMENTS))
            view = await chromium.new_page(viewport={"width": 1400, "height": 900})
            begun = time.perf_counter()
            await view.goto(path.as_uri())
            await view.wait_for_selector("html[data-point]")
            found.results[f"{name}: open, ms"] = _ms(begun)
            last, letters = len(page.events.id) - 1, random.Random(11)
            jumps = [letters.randint(0, last) for _ in range(sized(100, 5))]
            for tab in ("board", "tasks", "chat"):
                await view.click(f"#desk-{tab}")
                times = await view.evaluate(MOVE, [jumps])
                found.results[f"{name}: slider, jumps, {tab}"] = summary(times)
                found.goals[f"{name}, {tab}: every move < 100 ms"] = max(times) < MOVE_MS_MAX
            await chromium.close()


async def in_browser(path: Path, program: str, found: Findings) -> None:
    """Open a page and move its slider."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 -- only where a browser is

    moves, letters = sized(200, 5), random.Random(11)
    async with async_playwright() as player:
        opened = await player.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        view = await opened.new_page(viewport={"width": 1400, "height": 900})
        found.results["browser"] = opened.version
        begun = time.perf_counter()
        await view.goto(path.as_uri())
        await view.wait_for_selector("html[data-point]")
        found.results["open: ms until its state is shown"] = _ms(begun)
        last = int(await view.evaluate("Number(document.getElementById('slider').max)"))
        middle = last // 2
        lists = {
            "slider, jumps": [letters.randint(0, last) for _ in range(moves)],
            "slider, steps in the middle": list(range(middle, middle + moves)),
            "slider, steps at the end": list(range(last - moves, last)),
        }
        times = {name: await view.evaluate(MOVE, [points]) for name, points in lists.items()}
        await view.check("#hide")
        name = "slider, jumps, later rows hidden"
        times[name] = await view.evaluate(MOVE, [lists["slider, jumps"]])
        for name, each in times.items():
            found.results[name] = summary(each)
            found.goals[f"{name}: every move < 100 ms"] = max(each) < MOVE_MS_MAX
        for name in ("first search: ms", "next search: ms"):
            found.results[name] = await _search(view, "query" if "first" in name else "search")
        await opened.close()


async def _search(view: Any, word: str) -> float:
    begun = time.perf_counter()
    await view.fill("#query", word)
    await view.press("#query", "Enter")
    found = await view.inner_text("#found")
    took = _ms(begun)
    assert " of " in found, found
    await view.press("#query", "Escape")
    return took


def _ms(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1_000, 1)


async def measure(found: Findings) -> None:
    """Append, write, open, move."""
    count = sized(10_000, 300)
    async with _world.world("relaxed") as place:
        program = chromium.program(window=True)
        async with hansard.connect_async("bench", data_dir=place.folder) as opened:
            await opened.workspace.log.append_bulk(appends(count))
            begun = time.perf_counter()
            page = await page_data.gather(opened.workspace, RUN)
            data = run_page(page)
            stored = await opened.workspace.log.read_run(RUN)
            bodies = sum(len(each.body) for each in stored)
            found.results["read and rendered: ms"] = _ms(begun)
            if program is not None:
                await of_team(program, place.folder, opened, found)
        path = place.folder / "page.html"
        write_whole(path, data)
        found.results["steps"] = count
        found.results["events"] = len(page.events.id)
        found.results["bytes"] = len(data)
        found.results["bytes a step"] = round(len(data) / count)
        found.ratios["bytes of the file / of the log's commits"] = len(data) / bodies
        found.goals["the file < 20 MB"] = len(data) < FILE_BYTES_MAX
        if program is None:
            say("no browser: set HANSARD_BROWSER or install chromium to measure the slider")
            found.results["browser"] = "not found"
            return
        await in_browser(path, program, found)


if __name__ == "__main__":
    benchmark(measure, __doc__)
