"""Effects of a move on the panels: visible panels show the change, and nothing else."""

import random
from collections.abc import Callable

import pytest

import hansard
from tests.browser.shared_runs import random_team
from tests.browser.support import Open, Pages

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

PANELS = """() => Object.fromEntries(["board", "tasks", "chat", "now"].map((name) => {
  const box = document.getElementById(name === "now" ? name : `${name}-now`);
  return [name, box ? box.innerHTML : null];
}))"""
"""Script that reads each visible panel."""


@pytest.fixture(scope="module")
def shared(record: hansard.Record) -> str:
    """Return a run whose agents share something, by chance."""
    return random_team(record, "moves", 3, 40)


@pytest.mark.long
async def test_a_panel_shows_the_same_whichever_way_its_point_was_reached(
    view: Open, pages: Pages, shared: str, rounds: Callable[[int, int], int]
):
    """After any moves each panel equals that of a page opened at that point."""
    path, chance = await pages.of(shared), random.Random(5)
    walked, fresh = await view(path), await view(path)
    last, compared = await walked.last(), 0
    rounds_made = rounds(1, 12)
    for _ in range(rounds_made):
        for _ in range(3):
            for tab in (
                chance.choice(("state", "board", "tasks")),
                chance.choice(("trace", "chat")),
            ):
                await walked.page.click(f"#desk-{tab}")
            near = await walked.at() + chance.choice((-1, 1))
            await walked.move(max(0, min(last, chance.choice((near, chance.randint(0, last))))))
        right = chance.choice(("state", "board", "tasks"))
        fresh.loads += 1
        await fresh.page.reload()
        await fresh.page.wait_for_selector("html[data-point]")
        for seen in (walked, fresh):
            await seen.page.click(f"#desk-{right}")
            await seen.page.click("#desk-chat")
        await fresh.move(await walked.at())
        panels = await walked.page.evaluate(PANELS)
        assert panels == await fresh.page.evaluate(PANELS)
        compared += sum(each is not None for each in panels.values())
    assert compared == 2 * rounds_made


@pytest.mark.thorough(quick="test_a_panel_shows_the_same_whichever_way_its_point_was_reached")
async def test_a_row_that_did_not_change_is_the_same_element(view: Open, pages: Pages, shared: str):
    """Rows that a move does not change keep their elements and the focus."""
    seen = await view(await pages.of(shared))
    for tab, row in (("board", "#board-now [data-key]"), ("tasks", "#tasks-now [data-task]")):
        await seen.page.click(f"#desk-{tab}")
        await seen.end()
        kept = 0
        for point in range(await seen.last() - 1, await seen.last() - 5, -1):
            count = "all => all.filter((row) => row.stood).length"
            await seen.page.eval_on_selector_all(row, "all => all.forEach((row) => row.stood = 1)")
            before = await seen.page.locator(row).count()
            await seen.move(point)
            kept += before - await seen.page.eval_on_selector_all(row, count) <= 3
        assert kept == 4, tab


@pytest.mark.thorough(quick="test_a_panel_shows_the_same_whichever_way_its_point_was_reached")
async def test_what_is_out_of_sight_is_made_when_it_is_shown(view: Open, pages: Pages, shared: str):
    """A hidden panel is not made until it is shown or printed, and then shows the point."""
    seen = await view(await pages.of(shared))
    await seen.move(0)
    await seen.page.click("#desk-tasks")
    await seen.page.click("#desk-chat")
    await seen.end()
    assert await seen.page.locator("#now, #board, #rows").count() == 0
    await seen.page.click("#desk-state")
    asof = await seen.page.text_content("#asof")
    assert asof is not None
    assert asof.removeprefix("at ") == await seen.text("#where strong")
    await seen.page.click("#desk-trace")
    assert await seen.page.locator("#rows .row.current").count() == 1
    await seen.move(0)
    await seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    await seen.page.wait_for_selector("#tasks-at", state="attached")
    moment = await seen.page.text_content("#asof")
    assert moment == await seen.page.text_content("#tasks-at")
    assert await seen.page.locator("main .panel").count() == 7
    await seen.page.evaluate("dispatchEvent(new Event('afterprint'))")
    await seen.page.wait_for_selector("#tasks-at", state="detached")
