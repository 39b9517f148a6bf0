"""A small model as the student: what does an experience make of it, on the tasks of MiniWoB?

    python -m tests.experience.student FOLDER [SEEDS]

The student is wordllama's static vectors: it is asked for one element of a page, and names the line
that is nearest to what is asked. `alone` it goes on until the page says that the task is done, at
most `MOVES_MAX` times: it is asked by the part of the task's text before the next value in quotes,
then by the rest, and never names an element twice; what is done to the element its tag says.
`experienced` it works with what people's demonstrations teach, and is asked where no recorded way
finds an element; `taught` a key by hand, as the teacher, is asked where a check refuses what the
student names. Of a task of which nothing is learned, or that is said otherwise, these two do
nothing, and it is not done. All tasks of which there are demonstrations are tried, each seed under
all three; the plan is registered before. Seeds of a task are its trials: the pairs are of tasks.
"""

import asyncio
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import async_playwright

import hansard
from benchmarks.bench_page import ARGUMENTS
from hansard.integrations.browser.chromium import program
from tests.actions.test_miniwob import begun, is_done, key
from tests.experience.test_miniwob import OTHERS, SURE, Learnt, learned

ARMS = ("alone", "experienced", "taught")
TASKS = (*SURE, *OTHERS)
SEEDS = range(3_000, 3_010)
MOVES_MAX = 6
MEASURED = """SELECT r.arm, o.metric, avg(o.value) AS mean,
    median(o.value) AS median, sum(o.value) AS of_all
FROM outcomes AS o JOIN runs AS r ON r.run = o.run GROUP BY ALL ORDER BY ALL"""
ASKED = """SELECT r.arm, m.chosen_by, count(*) AS calls, count(DISTINCT m.run) AS runs
FROM model_inputs AS m JOIN runs AS r ON r.run = m.run GROUP BY ALL ORDER BY ALL"""
_LINE = re.compile(r"0-(\d+) <(\w+)([^>]*)> ?(.*)")
_FIELDS = ("input", "textarea")


class Student:
    """Names the line of a page that is nearest to what is asked."""

    def __init__(self) -> None:
        self._vectors = hansard.memory.StaticVectors()
        self.asked = 0
        """How often it was asked since that was last set to 0."""
        self.named: set[str | None] = set()
        """The elements that it is not to name again."""

    def __call__(self, question: str) -> str:
        """An answer as `browser(model=...)` takes it."""
        self.asked += 1
        asked = question.split("\nInstruction: ", 1)[-1].split("\n\nPage:", 1)[0]
        lines = [each for each in question.splitlines() if _LINE.match(each)]
        last = self.nearest(asked, [each for each in lines if each.split()[0] not in self.named])
        self.named.add(last)
        return json.dumps({"id": last})

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
    """The student by itself."""
    browser = session.browser(page, timeout_s=2.0, model=student)
    parts = re.split(r'"([^"]*)"', query)
    values = list(zip(parts[::2], parts[1::2], strict=False))
    for _ in range(MOVES_MAX):
        if await is_done(page):
            return
        wanted, value = values[0] if values else (parts[-1].strip(" .") or query, "")
        at = await browser.ask(wanted, student)
        if not at["selector"]:
            return
        tag = at["targets"]["tag"]
        if tag in _FIELDS and values:
            values.pop(0)
            await browser.act(wanted, at=at["selector"], method="fill", arguments=[value])
        elif tag == "select":
            options = await page.locator(at["selector"]).locator("option").all_inner_texts()
            chosen = [each for each in options if each.strip() and each.strip() in query]
            if chosen:
                arguments = [max(chosen, key=len).strip()]
                await browser.act(
                    wanted, at=at["selector"], method="selectOption", arguments=arguments
                )
        elif tag not in _FIELDS:
            await browser.act(wanted, at=at["selector"])


async def tried(
    record: Any, page: Any, arm: str, address: str, seed: int, learnt: Learnt, student: Student
) -> None:
    """One task under one arm, judged by the page."""
    query = await begun(page, address, seed)
    fitting = [each for each in learnt.experiences if each.params(query) is not None]
    began = time.perf_counter()
    student.asked = 0
    asked = 0
    async with record.run(
        "miniwob",
        agent="student",
        role="agent",
        experiment="student",
        task=Path(address).stem,
        trial=seed,
        arm=arm,
    ) as session:
        try:
            if arm == "alone":
                student.named = set()
                await alone(session, page, query, student)
            elif fitting:
                session.browser(page, timeout_s=2.0)
                model = fresh(student)
                taught = hansard.actions.teach(student=model, teacher=key)
                told = await session.run_experience(
                    fitting[0],
                    task=query,
                    once="allow",
                    fallback=taught if arm == "taught" else model,
                )
                asked = told.model_calls
        except (hansard.HansardError, PlaywrightError, TimeoutError) as stopped:
            # It did not get on: the page says that the task was not done.
            print(f"{arm}, {Path(address).stem} {seed}: {stopped!s:.200}", file=sys.stderr)  # noqa: T201 -- nothing is silent
        run = session.run
    seconds = time.perf_counter() - began
    reward = float(await is_done(page))
    scores = {"reward": reward, "seconds": seconds, "asked": asked or student.asked}
    await record.score(run, scores, by="the page")


def fresh(student: Student) -> Any:
    """The student, who may name any element at each question."""

    def asked(question: str) -> str:
        student.named = set()
        return student(question)

    return asked


async def compared(folder: Path, tasks: tuple[str, ...], seeds: range, data_dir: str) -> Any:
    """The comparison that the record makes of both arms."""
    student = Student()
    async with (
        hansard.connect_async("student", data_dir=data_dir) as record,
        async_playwright() as player,
    ):
        browser = await player.chromium.launch(executable_path=program(), args=list(ARGUMENTS))
        page = await browser.new_page()
        plan = hansard.experiments.plan(
            question="Does an experience make a small model do more tasks?",
            arms=list(ARMS),
            metrics=[{"name": "reward", "better": "higher"}],
            planned=len(tasks) * len(seeds),
            unit="run",  # each task is tried under every arm: they are paired by it
        )
        await record.register("student", plan)
        for task in tasks:
            learnt = learned(task)
            address = (folder / f"{task}.html").as_uri()
            for seed in seeds:
                for arm in ARMS:
                    await tried(record, page, arm, address, seed, learnt, student)
        await browser.close()
        for query in (MEASURED, ASKED):
            for row in (await record.sql(query)).rows:
                print(row)  # noqa: T201 -- its answer
        return await record.compare("student", metric="reward")


def main() -> None:
    """Print what `hansard compare` decides by."""
    folder = Path(sys.argv[1])
    seeds = SEEDS[: int(sys.argv[2])] if len(sys.argv) > 2 else SEEDS
    with tempfile.TemporaryDirectory() as data_dir:
        made = asyncio.run(compared(folder, TASKS, seeds, data_dir))
    for judged in made.report.judged:
        for row in (*judged.arms, *judged.comparisons):
            print(row)  # noqa: T201 -- its answer


if __name__ == "__main__":
    main()
