"""Many experiences of recorded runs: duplicates are one hit, and the right one is found."""

import asyncio
import random
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.domain.errors import BadValue
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.distil import Demonstration
from tests.experience.demos import FOLDER, demonstrations
from tests.experience.test_miniwob import OTHERS, SURE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio,
    pytest.mark.skipif(not FOLDER.exists(), reason="no ../shared/data/browser/demos here"),
]

RUNS = 4
"""Runs of an experience, enough for common actions."""

TOGETHER = 50
AGAIN = "-again"
"""Suffix of a planted duplicate's name."""


def most(runs: list[Demonstration]) -> distil.Distilled:
    """Return the kind of task with a graph that has the most runs."""
    kinds = [each for each in distil.distilled(runs) if each.procedure is not None]
    if not kinds:
        raise BadValue("runs", "no two of them did it alike", "draw others")
    return max(kinds, key=lambda each: (len(each.sources), sorted(each.sources)))


def drawn(
    shown: dict[str, list[Demonstration]], count: int, dice: random.Random
) -> list[tuple[str, experiences.Experience]]:
    """Experiences and tasks; every second one is a duplicate under another name."""
    made: list[tuple[str, experiences.Experience]] = []
    for task in cycle(shown):
        runs = dice.sample(shown[task][:-1], RUNS)  # the last one is the query
        name = f"{task}-{len(made)}"
        description = f"Somebody else's way of {task.replace('-', ' ')}"
        try:
            first = experiences.made(name, most(runs))
            twin = experiences.made(f"{name}{AGAIN}", most(runs[::-1]), description=description)
        except BadValue:  # no two of them did it alike
            continue
        made += [(task, first), (task, twin)]
        if len(made) >= count:
            return made[:count]
    raise AssertionError


async def figures(data_dir: Path, tasks: tuple[str, ...], count: int) -> dict[str, Any]:
    """Keep, search by description and task, and return what was found of the same kind."""
    shown = {task: demonstrations(task) for task in tasks}
    made = drawn(shown, count, random.Random(19))
    templates = {task: {e.wording.template for of, e in made if of == task} for task in tasks}
    counts: dict[str, Any] = {"experiences": len(made), "duplicates": 0, "duplicates_found": 0}
    counts |= {"false_merges": 0, "found_at_1": 0, "found_at_5": 0, "task_at_1": 0, "task_at_5": 0}
    graphs = {each.name: msgspec.json.encode((each.wording, each.procedure)) for _, each in made}
    async with hansard.connect_async(f"store-{count}", data_dir=data_dir) as record:
        for begin in range(0, len(made), TOGETHER):
            part = [each for _, each in made[begin : begin + TOGETHER]]
            await asyncio.gather(*map(record.experiences.keep, part))
        listed = {e.experience: e.procedure for e in (await record.experiences.list()).experiences}
        for task, each in made:
            hits = (await record.experiences.find(each.description, limit=5)).hits
            like = [hit.task in templates[task] for hit in hits]  # tasks may have the same wording
            counts["found_at_1"] += any(like[:1])
            counts["found_at_5"] += any(like)
            for hit in hits:
                group = {graphs[name] for name in (hit.experience, *hit.duplicates)}
                counts["false_merges"] += len(group) > 1
            if each.name.endswith(AGAIN):
                counts["duplicates"] += 1
                first = each.name.removesuffix(AGAIN)
                counts["duplicates_found"] += listed[each.name] == listed[first]
        for task, runs in shown.items():
            hits = (await record.experiences.find(runs[-1].task, limit=5)).hits
            like = [hit.task in templates[task] for hit in hits]
            counts["task_at_1"] += any(like[:1])
            counts["task_at_5"] += any(like)
    counts["distinct"] = len(set(graphs.values()))
    return counts | {"tasks": len(shown)}


@pytest.mark.thorough(
    quick="tests/experience/test_kept.py::test_an_experience_is_kept_confirmed_and_found"
)
@pytest.mark.long
@pytest.mark.timeout(3_600)
async def test_five_hundred_experiences_are_distinguished_and_found(data_dir, evidence):
    """500 experiences of all tasks are found, and two that differ are never one hit."""
    tasks = tuple(each for each in (*SURE, *OTHERS) if each != "use-autocomplete-nodelay")
    counts = await figures(data_dir, tasks, 500)
    evidence.record("experience.store", **counts)
    assert counts["false_merges"] == 0
    assert counts["duplicates_found"] / counts["duplicates"] >= 0.95
    assert counts["found_at_5"] / counts["experiences"] >= 0.95
