"""Tours of the page by keyboard alone."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Route

import hansard
from tests.cli.support import Runs, in_doubt
from tests.web.support import Tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

ROWS = "[...document.querySelectorAll('.run-row')]"
POINT = "document.querySelector('#where .mono')?.textContent"
EVENT = "document.querySelector('#where').textContent.match(/event (\\d+) of (\\d+)/)"

LISTS = {
    "p": ("Prompts", "/prompts/greeting"),
    "e": ("Experiments", "/experiments/greeting"),
    "m": ("Memory", "path=AGENTS.md"),
    "a": ("Audit", "/runs/"),
    "w": ("Why", ""),
    "d": ("Compare two runs", ""),
    "i": ("Inbox", "/inbox"),
}
"""Headings by the letter after `g`, and a part of the address that Enter at an item leads to."""

TABS_MAX = 80
"""Parts of a view that can have the focus, at most."""


async def press(tab: Tab, *keys: str) -> None:
    """Press keys, one after another."""
    for key in keys:
        await tab.page.keyboard.press(key)


async def tab_to(tab: Tab, name: str) -> None:
    """Press Tab until the focus is on what has a name."""
    for _ in range(TABS_MAX):
        await press(tab, "Tab")
        focused = await tab.page.evaluate(
            "(document.activeElement.labels?.[0] ?? document.activeElement).innerText"
        )
        if focused.strip().startswith(name):
            return
    raise AssertionError(name)


async def at_event(tab: Tab, number: int | str) -> None:
    """Wait until the point is the event of a number, or the last."""
    await tab.until(f"(at => String(at[1]) === String({number}))({EVENT})")


@pytest.mark.thorough(quick="test_a_run_is_read_by_keys")
async def test_a_run_is_found_and_opened_by_keys(tab: Tab, runs: Runs):
    """The list of keys, and the list of runs with its filter."""
    del runs
    await tab.open("/runs")
    await tab.page.wait_for_selector(".run-row")
    await press(tab, "?")
    listed = await tab.text("dialog")
    assert "Next run" in listed
    assert "Go to Inbox" in listed
    await press(tab, "Escape")
    await tab.page.wait_for_selector("dialog", state="detached")
    await press(tab, "j")
    await tab.until("document.querySelectorAll('.run-row')[1].ariaCurrent === 'true'")
    await press(tab, "k", "/")
    await tab.page.keyboard.type("refunds")
    await tab.page.wait_for_url("**/runs?text=refunds")
    await tab.until(f"{ROWS}.every((row) => row.innerText.includes('refunds'))")
    below = await tab.page.evaluate(f"{ROWS}.findIndex((row) => row.href.endsWith('/order-17'))")
    await press(tab, "Enter", *"j" * below, "Enter")
    await tab.page.wait_for_url("**/runs/order-17*")
    await tab.page.wait_for_selector("#where")


async def test_a_run_is_read_by_keys(tab: Tab, runs: Runs):
    """The point, pins, panels and search of a run, and the way to another view."""
    del runs
    await tab.open("/runs/order-17")
    await tab.page.wait_for_selector("#where")
    last = f"{EVENT}[2]"
    await press(tab, "Home")
    await at_event(tab, 1)
    await press(tab, "ArrowRight", "ArrowRight", "ArrowLeft")
    await at_event(tab, 2)
    start = await tab.page.evaluate(POINT)
    await press(tab, "j")
    await tab.until(f"{POINT} !== {start!r}")
    before = await tab.page.evaluate(POINT)
    await press(tab, "j")
    await tab.until(f"{POINT} !== {before!r}")
    await press(tab, "k")
    await tab.until(f"{POINT} === {before!r}")
    await press(tab, "[")
    await tab.page.wait_for_selector("#changes")
    await press(tab, "End")
    await at_event(tab, last)
    await tab.page.wait_for_selector("#changes .change")
    await press(tab, "]")
    await tab.until(f"{POINT} === {before!r}")
    await press(tab, "t")
    await tab.page.wait_for_selector("html[data-axis=time]")
    await press(tab, "t", "f")
    await at_event(tab, last)
    await press(tab, "/")
    await tab.page.keyboard.type("find_order")
    await press(tab, "Enter", "Escape", "Enter")
    await tab.until("document.activeElement.id === 'event'")
    await tab.until("document.querySelector('#event').innerText.includes('find_order')")
    await press(tab, "Escape", "ArrowDown")
    await tab.until("document.activeElement.id === 'tree'")

    await press(tab, "Control+k")
    await tab.until("document.activeElement.closest('.palette') !== null")
    await press(tab, "ArrowUp")  # to the last command, which is out of sight at first
    await tab.until(
        "(row => row?.getBoundingClientRect().bottom <= 1 + "
        "row?.parentElement.getBoundingClientRect().bottom)"
        "(document.querySelector('.palette li:last-child[aria-selected=true]'))"
    )
    await tab.page.keyboard.type("go to search")
    await press(tab, "Enter")
    await tab.page.wait_for_selector(".ask input[type=search]")
    await press(tab, "/")
    await tab.page.keyboard.type("lost")
    await press(tab, "Enter")
    await tab.page.wait_for_selector(".hits li")
    await press(tab, "j", "j", "k", "Enter")
    await tab.page.wait_for_url("**/runs/*at=*")
    assert (await tab.text("#workflow")).strip()


async def test_a_key_before_the_list_is_kept_until_it_is_there(tab: Tab, runs: Runs):
    """`j` while the answer is on its way goes to the first item as soon as there is one."""
    del runs
    await tab.open("/runs")
    answered = asyncio.Event()

    async def late(route: Route) -> None:
        await answered.wait()
        await route.continue_()

    await tab.page.route("**/api/v1/*/audit*", late)
    await press(tab, "g", "a")
    await tab.page.wait_for_selector("#content h1:text-is('Audit')")
    await tab.page.wait_for_selector("#content .note.waiting")
    await press(tab, "j")
    answered.set()
    await tab.page.wait_for_selector("#content .card:focus-within, #content .card:focus")
    assert await tab.page.locator("#content .card:focus, #content .card :focus").count() == 1


@pytest.mark.parametrize(
    "letters",
    [
        "pa",
        pytest.param(
            "".join(LISTS),
            marks=pytest.mark.thorough(
                quick="test_each_view_is_reached_and_its_list_opened_by_keys"
            ),
        ),
    ],
)
async def test_each_view_is_reached_and_its_list_opened_by_keys(tab: Tab, runs: Runs, letters: str):
    """`g` and a letter open a view, `j` goes to its first item, Enter opens it."""
    del runs
    await tab.open("/runs")
    for letter in letters:
        heading, leads = LISTS[letter]
        await press(tab, "g", letter)
        await tab.page.wait_for_selector(f"#content h1:text-is('{heading}')")
        await tab.shown()
        await press(tab, "j")
        if leads:
            await tab.until("document.activeElement.closest('#content :is(a, .card)') !== null")
        if letter == "a":  # the first item is a card; the next one is a link in it
            await press(tab, "j")
        if leads:
            await press(tab, "Enter")
            await tab.page.wait_for_url(f"**{leads}*")
            await tab.shown()
    await press(tab, "g", "s")
    await tab.page.wait_for_selector("#content .editor")
    await tab.shown()
    await press(tab, "/")
    await tab.page.keyboard.type("SELECT 40 + 2 AS answer")
    await press(tab, "Control+Enter")
    await tab.page.wait_for_selector(".grid tbody td:has-text('42')")
    await press(tab, "Tab", "g", "r")
    await tab.page.wait_for_selector(".run-row")
    assert tab.page.url.endswith("/runs")


@pytest.mark.thorough(quick="test_a_run_is_read_by_keys")
async def test_a_result_is_changed_by_keys(tab: Tab, runs: Runs):
    """From a call of the run to a fork with another result, and two runs compared."""
    del runs
    await tab.open("/runs/order-17")
    await tab.page.wait_for_selector("#where")
    await press(tab, "/")
    await tab.page.keyboard.type("find_order")
    await press(tab, "Enter", "Enter", "Escape", "Enter")  # after its declaration
    await tab.until("document.activeElement.id === 'event'")
    await tab.until("document.querySelector('#event').innerText.includes('Change the result')")
    await tab_to(tab, "Change the result")
    await press(tab, "Enter")
    await tab.page.wait_for_selector("#content h1:text-is('Change a value and go on')")
    await tab.shown()
    await tab_to(tab, "New result")
    await press(tab, "Control+a")
    await tab.page.keyboard.type('{"state": "by keys"}')
    await tab_to(tab, "Have a worker run it")
    await press(tab, "Space")
    await tab_to(tab, "Make the fork")
    await press(tab, "Enter")
    await tab.page.wait_for_url("**fork=*")
    await press(tab, "g", "d")
    await tab.page.wait_for_selector("#content h1:text-is('Compare two runs')")
    await tab.shown()
    await press(tab, "/")
    await tab.page.keyboard.type("shared")
    await press(tab, "Tab")
    await tab.page.keyboard.type("order-17")
    await tab_to(tab, "Compare")
    await press(tab, "Enter")
    await tab.page.wait_for_url("**/runs/shared/diff/order-17*")
    await tab.shown()
    assert "First difference" in await tab.text()


@pytest.mark.thorough(quick="test_each_view_is_reached_and_its_list_opened_by_keys")
async def test_a_doubt_is_settled_by_keys(tab: Tab, record: hansard.Record, runs: Runs):
    """From any view to the inbox, to the call, its reason and the answer; then a binary search."""
    del runs
    run = await asyncio.to_thread(in_doubt, record, "by keys")
    await tab.open("/runs")
    await press(tab, "g", "i")
    await tab.page.wait_for_selector("#content h1:text-is('Inbox')")
    await tab.shown()
    of_run = f"document.activeElement.innerText.includes('{run[-8:]}')"
    for _ in range(TABS_MAX):
        await press(tab, "j")
        if await tab.page.evaluate(of_run):
            break
    assert await tab.page.evaluate(of_run)
    await tab_to(tab, "Reason")
    await tab.page.keyboard.type("the outbox is empty")
    await tab_to(tab, "It did not happen")
    await press(tab, "Enter")
    await tab.until(f"!document.querySelector('#content').innerText.includes('{run[-8:]}')")
    settled = (await asyncio.to_thread(record.state, run)).agent("sender").steps.values()
    assert [step.status.value for step in settled] == ["not_done"]
    await tab.open("/runs/order-17/bisect")
    await press(tab, "/")
    await tab.page.keyboard.type("/life/board/order 17")
    await press(tab, "Tab")
    await tab.page.keyboard.type("is missing")
    await tab_to(tab, "Search")
    await press(tab, "Enter")
    await tab.until("document.querySelector('#content').innerText.includes('fails first after')")
