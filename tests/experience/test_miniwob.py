"""Tasks of MiniWoB++, learned from people's demonstrations, done on other seeds without a model.

Each page says itself whether its task was done.
"""

import contextlib
import statistics
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard import testing
from hansard.domain.actions import FORMAT, ActionCache, ActionsEnd, with_slots
from hansard.domain.experience import checks as checking
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.distil import Wording
from tests.actions.test_miniwob import begun, is_done, key, pages
from tests.experience.demos import FOLDER, demonstrations

__all__ = ["pages"]

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not FOLDER.exists(), reason="no ../shared/data/browser/demos here"),
]

SURE = (
    "login-user", "login-user-popup", "enter-text", "enter-text-dynamic", "enter-password",
    "choose-list", "click-button-sequence",
)  # fmt: skip
OTHERS = (
    "click-tab-2", "email-inbox", "enter-date", "multi-layouts", "multi-orderings", "navigate-tree",
    "search-engine", "social-media", "use-autocomplete-nodelay",
)  # fmt: skip


SEEDS = (1_000, 1_003)
"""Seeds of `login-user-popup`: one with the popup, and one without it."""


class Learnt(msgspec.Struct, frozen=True):
    """The experience of people's demonstrations of a task.

    It has the actions of the shortest demonstration, with its values as slots, and each kind of
    task that has a procedure, with the checks that all passed. `shortest` is None where a value
    changes no action, since it would be refused.
    """

    shortest: ActionCache | None
    wording: Wording
    experiences: tuple[experiences.Experience, ...]


def learned(task: str) -> Learnt:
    """Learn from all 32 demonstrations."""
    shown = {each.source: each for each in demonstrations(task)}
    kinds = distil.distilled(list(shown.values()))
    first = max(kinds, key=lambda each: len(each.sources))
    slips = {each.source for each in first.left_out}
    good = [shown[source] for source in first.sources]
    least = min(
        [each for each in good if each.source not in slips] or good,
        key=lambda each: (len(each.actions), each.source),
    )
    actions = [
        msgspec.structs.replace(each.action, step_index=at) for at, each in enumerate(least.actions)
    ]
    end = ActionsEnd(success=True, duration=0.0)
    as_shown = ActionCache(format=FORMAT, run=least.source, actions=actions, final_state=end)
    values = first.wording.read(least.task) or {}
    shortest = None
    with contextlib.suppress(hansard.BadValue):
        shortest = with_slots(as_shown, {name: v for name, v in values.items() if v})
    made = [experiences.made(task, each) for each in kinds if each.procedure is not None]
    confirmed = tuple(
        msgspec.structs.replace(each, checks=checking.proposed(each.procedure)) for each in made
    )
    return Learnt(shortest, first.wording, confirmed)


async def done(
    record: Any, page: Any, address: str, seed: int, learnt: Learnt, way: str
) -> tuple[bool, float, int]:
    """Return whether the page reports success, the seconds taken, and the number of model calls.

    `xpath` is the recorded xpath alone, `variants` the experience, `model` that with a key by hand
    where no recorded way finds an element. A task of unknown wording, or without an experience, is
    not attempted.
    """
    query = await begun(page, address, seed)
    async with record.run("task", agent="ada", role="agent") as session:
        browser = hansard.actions.AsyncBrowser(session, page, timeout_s=2.0)
        began = time.perf_counter()
        try:
            calls = await _by(browser, query, learnt, way)
        except (hansard.errors.PageGone, TimeoutError) as gone:
            warnings.warn(f"{way}, seed {seed}: {gone}", stacklevel=1)
            calls = 0
        seconds = time.perf_counter() - began
    return await is_done(page), seconds, calls


async def _by(browser: Any, query: str, learnt: Learnt, way: str) -> int:
    """Do a task by one way; return the number of model calls."""
    if way == "xpath":
        params = learnt.wording.read(query)
        if learnt.shortest is None or params is None or not all(params.values()):
            return 0
        result = await browser.run_actions(
            learnt.shortest, params=params, once="allow", xpath_only=True
        )
    else:
        fitting = [each for each in learnt.experiences if each.params(query) is not None]
        if not fitting:
            return 0
        fallback = key if way == "model" else None
        try:
            result = await browser.run_experience(
                fitting[0], task=query, once="allow", fallback=fallback
            )
        except hansard.BadValue as refused:
            assert "its value is in no argument" in str(refused)  # noqa: PT017 -- others are done
            return 0
    calls: int = result.model_calls
    return calls


async def rates(
    page: Any, folder: Path, task: str, seeds: Sequence[int], ways: Any
) -> dict[str, float]:
    """Return the share of seeds done by each way, and the time and calls taken."""
    learnt = learned(task)
    address = (folder / f"{task}.html").as_uri()
    figures: dict[str, float] = {}
    async with testing.record_async() as record:
        for way in ways:
            results = [await done(record, page, address, seed, learnt, way) for seed in seeds]
            figures[way] = sum(ok for ok, _, _ in results) / len(results)
            figures[f"{way}, seconds"] = statistics.median(took for _, took, _ in results)
            figures[f"{way}, asked"] = sum(calls for _, _, calls in results)
    return figures


@pytest.mark.thorough(
    quick="tests/experience/test_learning.py::test_what_people_showed_is_the_graph_that_one_expects"
)
async def test_a_task_that_people_showed_is_done_on_another_seed(page, pages):
    """A popup on some pages is closed where it occurs, without a model call."""
    figures = await rates(page, pages, "login-user-popup", SEEDS, ["variants"])
    assert (figures["variants"], figures["variants, asked"]) == (1, 0)


@pytest.mark.thorough(
    quick="tests/experience/test_learning.py::test_what_people_showed_is_the_graph_that_one_expects"
)
@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("task", [*SURE, *OTHERS])
async def test_tasks_that_people_showed_are_done_on_other_seeds(
    task, page, pages, rounds, evidence
):
    """From 32 demonstrations each; the seconds stand beside the people's own."""
    count = rounds(quick=5, full=50)
    seeds = range(1_000, 1_000 + count)
    figures = await rates(page, pages, task, seeds, ["xpath", "variants", "model"])
    people = statistics.median(each.seconds for each in demonstrations(task) if each.success)
    evidence.record(f"experience.{task}", seeds=count, people=people, **figures)
    assert figures["variants, asked"] == 0
    if task in SURE:
        assert figures["variants"] >= 0.95
