"""Tasks of MiniWoB++, learned from people's demonstrations, done on other seeds without a model.

Each page says itself whether its task was done.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard import testing
from hansard.domain.experience import checks as checking
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from tests.actions.test_miniwob import begun, is_done, pages
from tests.experience.demos import FOLDER, demonstrations

__all__ = ["pages"]

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not FOLDER.exists(), reason="no ../shared/data/browser/demos here"),
]

SURE = (
    "login-user",
    "login-user-popup",
    "enter-text",
    "enter-text-dynamic",
    "enter-password",
    "choose-list",
    "click-button-sequence",
)
OTHERS = ("click-tab-2",)


def learned(task: str) -> experiences.Experience:
    """What the people's demonstrations of a task teach, with the checks that all of them passed."""
    [told] = distil.distilled(demonstrations(task))
    made = experiences.made(task, told)
    checks = checking.proposed(made.procedure)
    confirmed: experiences.Experience = msgspec.structs.replace(made, checks=checks)
    return confirmed


async def done(record: Any, page: Any, address: str, seed: int, task: str, learnt: Any) -> Any:
    """Whether the page says that the task was done, and what came of it."""
    query = await begun(page, address, seed)
    async with record.run(task, agent="ada", role="agent") as session:
        session.browser(page, timeout_s=2.0)
        told = await session.run_experience(learnt, task=query, once="allow")
    return await is_done(page), told


async def rate(page: Any, folder: Path, task: str, seeds: range) -> tuple[float, float]:
    """The share of seeds on which a task was done, and the median of its seconds."""
    learnt = learned(task)
    address = (folder / f"{task}.html").as_uri()
    async with testing.record_async() as record:
        told = [await done(record, page, address, seed, task, learnt) for seed in seeds]
    seconds = statistics.median(each.seconds for _, each in told)
    return sum(ok for ok, _ in told) / len(told), seconds


@pytest.mark.slow
async def test_a_task_that_people_showed_is_done_on_another_seed(page, pages):
    """A popup that is there on some pages alone is closed where it is there."""
    assert (await rate(page, pages, "login-user-popup", range(1_000, 1_004)))[0] == 1


@pytest.mark.thorough(
    quick="tests/experience/test_miniwob.py::test_a_task_that_people_showed_is_done_on_another_seed"
)
@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("task", [*SURE, *OTHERS])
async def test_tasks_that_people_showed_are_done_on_other_seeds(
    task, page, pages, rounds, evidence
):
    """Level 3 of 32 demonstrations each; the seconds stand beside the people's own."""
    count = rounds(quick=5, full=50)
    share, seconds = await rate(page, pages, task, range(1_000, 1_000 + count))
    people = statistics.median(each.seconds for each in demonstrations(task) if each.success)
    evidence.record(f"experience.{task}", seeds=count, done=share, seconds=seconds, people=people)
    if task in SURE:
        assert share >= 0.95
