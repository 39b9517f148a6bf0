"""A run of 10,000 steps: the page is correct. benchmarks/bench_page.py measures its speed."""

import random
from typing import Any

import pytest
import pytest_asyncio

from benchmarks.bench_page import AGENTS, RUN, appends
from hansard.bus.log import AtPosition
from tests.browser.support import Open, Pages, ends, expected

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]

STEPS = 10_000
POINTS = 12
ROWS_MAX = 60
"""Elements of the trace's rows at any time: those in sight and a few around."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def long_run(pages: Pages) -> str:
    """Return the run, appended in bulk."""
    await pages.workspace.log.append_bulk(appends(STEPS))
    return RUN


async def test_a_long_run_is_right_at_random_points(view: Open, pages: Pages, long_run: str):
    """At any commit of 10,000 steps the state equals the fold's, and few rows are elements."""
    seen = await view(await pages.of(long_run))
    points = ends(await pages.data(long_run))
    assert len(points) > 2 * STEPS
    letters = random.Random(9)
    for number, position in [*letters.choices(points, k=POINTS), points[0], points[-1]]:
        await seen.move(number)
        state = await pages.workspace.states.run(long_run, AtPosition(position))
        assert _open(await seen.shown()) == _open(expected(state)), number
        assert await seen.page.locator(".row").count() <= ROWS_MAX


def _open(state: dict[str, Any]) -> dict[str, Any]:
    """Count calls in doubt as requested: the page knows that no outcome follows."""
    for agent in state["agents"].values():
        statuses = agent["statuses"]
        count = statuses.pop("requested", 0) + statuses.pop("in_doubt", 0)
        statuses |= {"requested": count} if count else {}
    return state


async def test_a_long_run_is_searched_whole(view: Open, pages: Pages, long_run: str):
    """A word of one step in ten thousand is found at its place; a frequent word is counted."""
    seen = await view(await pages.of(long_run))
    assert await seen.search("7769 is not a size") == "1 of 1"
    assert "7769 is not a size" in await seen.text("#event")
    searches = sum(number % 3 > 0 for number in range(STEPS))
    assert (await seen.search("search")).endswith(f" of {searches + len(AGENTS):,}")
