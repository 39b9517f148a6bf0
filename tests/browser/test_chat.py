"""Chat of a page: messages with sender and recipient, up to the point."""

import pytest

import hansard
from tests.browser.shared_runs import small_team
from tests.browser.support import Open, Pages

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def shared(record: hansard.Record) -> str:
    """Return a run of two agents that send each other messages."""
    return small_team(record, "talked")


@pytest.fixture(scope="module")
def empty(record: hansard.Record) -> str:
    """Record a run without messages or shared entries."""
    with record.run("empty", run="empty", agent="ada", role="r"):
        return "empty"


async def test_messages_are_a_chat(view: Open, pages: Pages, shared: str):
    """Each message has sender, role and receivers in order, with statements about the window."""
    seen = await view(await pages.of(shared))
    await seen.page.click("#desk-chat")
    await seen.end()
    whom = await seen.page.locator(".bubble").evaluate_all("all => all.map((e) => e.ariaLabel)")
    assert whom == ["ada to everyone of role writer", "ada to bob", "user to ada", "ada"]
    bubbles = await seen.page.locator(".bubble").all_inner_texts()
    assert "I begin with the papers" in bubbles[0]
    assert "p2" in bubbles[1]
    assert "How does it go?" in bubbles[2]
    await seen.page.click("#chats :text('In context windows')")
    assert await seen.page.locator(".bubble").count() == 2
    await seen.page.click("#chats :text('Between agents')")
    assert await seen.page.locator(".bubble").count() == 0
    assert await seen.page.get_attribute("#chats button >> nth=0", "aria-pressed") == "false"


@pytest.mark.thorough(quick="browser/test_page.py::test_what_had_not_happened_is_not_shown")
async def test_the_chat_is_as_of_the_point(view: Open, pages: Pages, shared: str):
    """A later message is only counted; button, bubble and click move between messages."""
    seen = await view(await pages.of(shared))
    await seen.move(0)
    await seen.page.click("#desk-chat")
    assert "No message yet" in await seen.text("#chat")
    assert "4 messages come later" in await seen.text("#chat")
    points = []
    for count in range(1, 5):
        before = await seen.at()
        await seen.page.click("#chat .next")
        await seen.page.wait_for_selector(f'html:not([data-point="{before}"])')
        points.append(await seen.at())
        assert await seen.page.locator(".bubble").count() == count
        assert await seen.page.locator(".bubble[aria-current=true]").count() == 1
        assert "here" in await seen.page.locator(".bubble").last.inner_text()
    assert await seen.page.locator("#chat .next").count() == 0
    assert points == sorted(points)
    await seen.page.locator(".bubble .bubble-text").first.click()
    await seen.reached(points[0])
    assert await seen.page.locator(".bubble").count() == 1
    assert "mail" in await seen.text("#event")


@pytest.mark.thorough(quick="browser/test_page.py::test_the_keyboard_moves_everything")
async def test_tabs_are_walked_by_key(view: Open, pages: Pages, shared: str):
    """Each group of tabs has one stop; arrows go round, and the panel follows."""
    seen = await view(await pages.of(shared))
    point = await seen.at()
    await seen.page.focus("#desk-state")
    for name in ("board", "tasks", "changes", "state"):
        await seen.page.keyboard.press("ArrowRight")
        assert await seen.page.evaluate("document.activeElement.id") == f"desk-{name}"
        assert await seen.page.get_attribute(f"#desk-{name}", "aria-selected") == "true"
        assert await seen.page.locator(f"#{name}").is_visible()
    stops = (
        "[...document.querySelectorAll('#right [role=tab]')].filter((t) => t.tabIndex === 0).length"
    )
    assert await seen.page.evaluate(stops) == 1
    assert await seen.at() == point
