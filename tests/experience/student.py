"""A small model as the student: what does an experience make of it, on tasks of MiniWoB?

    python -m tests.experience.student FOLDER [SEEDS]

The student is wordllama's static vectors: it is asked for one element of a page, and names the line
that is nearest to what is asked. `alone` it is given the task's text, fills in what is quoted where
it names a field, and clicks where it names a button; `experienced` it works with what the people's
demonstrations teach, and is asked where no recorded way finds an element. Each seed of a task is
tried under both, and the plan is registered before.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright

import hansard
from benchmarks.bench_page import ARGUMENTS
from hansard.integrations.browser.chromium import program
from tests.actions.test_miniwob import begun, is_done
from tests.experience.test_miniwob import Learnt, learned

TASKS = ("login-user", "enter-text", "enter-password", "click-button-sequence", "choose-list")
MOVES_MAX = 6
_LINE = re.compile(r"0-(\d+) <(\w+)([^>]*)> ?(.*)")
_FIELDS = ("input", "textarea")


class Student:
    """Names the line of a page that is nearest to what is asked."""

    def __init__(self) -> None:
        self._vectors = hansard.StaticVectors()

    def __call__(self, question: str) -> str:
        """An answer as `browser(model=...)` takes it."""
        asked = question.split("\nInstruction: ", 1)[-1].split("\n\nPage:", 1)[0]
        lines = [each for each in question.splitlines() if _LINE.match(each)]
        return json.dumps({"id": self.nearest(asked, lines)})

    def nearest(self, asked: str, lines: list[str]) -> str | None:
        """The id of the nearest line; None where nothing is like it."""
        if not lines:
            return None
        [wanted, *told] = self._vectors.embed([asked, *map(_words, lines)])
        near = [sum(a * b for a, b in zip(wanted, each, strict=True)) for each in told]
        best = max(range(len(lines)), key=near.__getitem__)
        return lines[best].split()[0] if near[best] > 0 else None


def _words(line: str) -> str:
    """What a line says of its element, without its id and its marks."""
    found = _LINE.match(line)
    assert found is not None
    _, tag, about, says = found.groups()
    return " ".join([tag, *re.findall(r'="([^"]*)"', about), says])


async def alone(session: Any, page: Any, query: str, student: Student) -> None:
    """The student by itself: the part of the task before each quoted text says which field it is
    for; what remains says what is clicked.
    """
    browser = session.browser(page, timeout_s=2.0, model=student)
    parts = re.split(r'"([^"]*)"', query)
    for before, value in zip(parts[::2], parts[1::2], strict=False):
        at = await browser.ask(before, student)
        if at["selector"] and at["targets"]["tag"] in _FIELDS:
            await browser.act(
                before, at=at["selector"], method="fill", arguments=[value], effects="idempotent"
            )
    for wanted in (parts[-1], query):
        if not await is_done(page):
            at = await browser.ask(wanted, student)
            if at["selector"]:
                await browser.act(wanted, at=at["selector"])


async def tried(
    record: Any, page: Any, arm: str, address: str, seed: int, learnt: Learnt, student: Student
) -> None:
    """One task under one arm, judged by the page."""
    query = await begun(page, address, seed)
    task = f"{Path(address).stem}-{seed}"
    began = time.perf_counter()
    async with record.run(
        "miniwob", agent="student", role="agent", experiment="student", task=task, arm=arm
    ) as session:
        try:
            if arm == "alone":
                await alone(session, page, query, student)
            else:
                session.browser(page, timeout_s=2.0)
                await session.run_experience(
                    learnt.experiences[0], task=query, once="allow", fallback=student
                )
        except (hansard.NotDone, hansard.ActionFailed, hansard.BadValue, TimeoutError):
            pass  # it did not get on: the page says that the task was not done
        run = session.run
    seconds = time.perf_counter() - began
    reward = float(await is_done(page))
    await record.score(run, {"reward": reward, "seconds": seconds}, by="the page")


async def compared(folder: Path, tasks: tuple[str, ...], seeds: int, data_dir: str) -> Any:
    """The comparison that the record makes of both arms."""
    student = Student()
    async with (
        hansard.connect_async("student", data_dir=data_dir) as record,
        async_playwright() as player,
    ):
        browser = await player.chromium.launch(executable_path=program(), args=list(ARGUMENTS))
        page = await browser.new_page()
        plan = hansard.plan(
            question="Does an experience make a small model do more tasks?",
            arms=["alone", "experienced"],
            metrics=[{"name": "reward", "better": "higher"}],
            planned=len(tasks) * seeds,
        )
        await record.register("student", plan)
        for task in tasks:
            learnt = learned(task)
            address = (folder / f"{task}.html").as_uri()
            for seed in range(2_000, 2_000 + seeds):
                for arm in ("alone", "experienced"):
                    await tried(record, page, arm, address, seed, learnt, student)
        await browser.close()
        return await record.compare("student", metric="reward")


def main() -> None:
    """Print what `hansard compare` decides by."""
    folder, seeds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with tempfile.TemporaryDirectory() as data_dir:
        made = asyncio.run(compared(folder, TASKS, seeds, data_dir))
    for judged in made.report.judged:
        for row in (*judged.arms, *judged.comparisons):
            print(row)  # noqa: T201 -- its answer


if __name__ == "__main__":
    main()
