"""A hostile page or file is an error with fact and remedy in time; nothing is half done."""

import asyncio

import pytest

import hansard
from hansard import testing
from hansard.domain.actions import ElementTargets
from hansard.ext.browser import chromium as browsers
from hansard.ext.browser import elements
from tests.actions.test_cache import cache, entry

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

REPLAY_S_MAX = 45
BUTTON = "/html[1]/body[1]/button[1]"
COUNTS = (
    "<button onclick='count.value = +count.value + 1; {}'>Go</button><output id=count>0</output>"
)


def clicks(address, **fields):
    """Return a cache that opens a page and clicks its button."""
    goto = entry(0, action_type="goToUrl", method=None, arguments=[address], xpath=None)
    click = {"xpath": BUTTON, "method": "click", "arguments": [], "changed": "page"} | fields
    return cache(goto, entry(1, **click))


async def replayed(page, made, **how):
    """Return the outcome of a replay, in bounded time."""
    async with (
        asyncio.timeout(REPLAY_S_MAX),
        testing.record_async() as record,
        record.run("go", agent="ada", role="agent") as session,
    ):
        browser = hansard.actions.AsyncBrowser(session, page, timeout_s=how.pop("timeout_s", 3.0))
        return await browser.run_actions(made, **how)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    "script",
    [
        "alert(1)",
        "document.title = confirm(1) || prompt(1)",
        "window.open(location.href)",
        "Object.assign(document.createElement(`a`), {href: `data:,x`, download: `x`}).click()",
        "onbeforeunload = () => 1",
        "setInterval(() => { count.ariaLabel = document.title = Math.random() }, 5)",
    ],
    ids=["alert", "confirm", "pop-up", "download", "leaving", "never settles"],
)
async def test_a_replay_clicks_once_whatever_the_page_opens(page, site, script):
    """A dialog is dismissed, never accepted; a pop-up and a download are left alone."""
    made = clicks(site(COUNTS.format(script)))
    for _ in range(2):  # the second time the page left behind may show a dialog
        result = await replayed(page, made)
        assert result.success, result.error
        assert await page.inner_text("#count") == "1"
    assert await page.title() != "true"


@pytest.mark.thorough(
    quick="tests/actions/test_changed_pages.py::test_a_change_is_healed_or_refused_and_nothing_else_is_touched"
)
async def test_a_frame_that_vanishes_is_reported(page, site):
    """This holds before and during the search: nothing in another frame is clicked."""
    inner = COUNTS.format("").replace("Go", "In")
    shown = f'{COUNTS.format("")}<p><iframe id=f srcdoc="{inner}"></iframe>'
    made = clicks(site(shown), frame_index=1)
    assert (await replayed(page, made)).success
    gone = clicks(site(f"{shown}<script>f.remove()</script>"), frame_index=1)
    result = await replayed(page, gone)
    assert "frame 1 is not on the page, which has 1: record it again" in result.error
    leaves = "<script>f.onload = () => f.contentDocument.addEventListener('pointermove', () => "
    result = await replayed(
        page, clicks(site(f"{shown}{leaves}f.remove())</script>"), frame_index=1)
    )
    assert result.success or "entry 1 was not done" in result.error
    assert await page.inner_text("#count") == "0"


async def test_an_xpath_that_runs_for_ever_ends_and_so_does_the_browser(
    chromium, site, monkeypatch
):
    """An xpath within a file's limits can block the page, which is then reported as blocked."""
    monkeypatch.setattr(elements, "LOOK_TIMEOUT_S", 0.5)
    nodes = "<b><i></i></b>" * 3_000
    slow = "//*[count(//*[count(//*[count(//*) > 0]) > 0]) > 0]"
    address = site(COUNTS.format("") + nodes)
    assert chromium.is_connected()
    recorded = ElementTargets(tag="button", role="button", look="x")
    made = clicks(address, xpath=slow, targets=recorded)
    async with asyncio.timeout(REPLAY_S_MAX), browsers.page() as stuck:
        opened = stuck.context.browser
        result = await replayed(stuck, made)
    assert "did not answer within 0.5 s" in result.error
    assert "reload the page" in result.error
    assert opened is not None
    assert not opened.is_connected()
