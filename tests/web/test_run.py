"""All runs, and one run: what they show is what the API and the record state."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

import hansard
from benchmarks.bench_view import RUN as MANY
from benchmarks.bench_view import appends
from tests.browser.test_axe import axe, checked
from tests.cli.support import WORKSPACE, Runs
from tests.web.support import DESK, PHONE, PICTURES, TOO_WIDE, Tab, Tabs

__all__ = ["axe"]

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

POINTS = 3
LIST_HEIGHT = "parseFloat(document.querySelector('.vsize').style.height)"
LARGE = 3_000
"""Events of a run that is not read at once."""

PANELS = ("trace", "chat", "state", "board", "tasks", "changes")


async def _at(tab: Tab, address: str) -> None:
    """Wait until the panels show a point."""
    await tab.until(f"document.querySelector('#where strong')?.textContent === {address!r}")
    await tab.until(
        f"document.querySelector('#asof')?.textContent === {f'at {address}'!r}"
        " && !document.querySelector('.run-view [aria-busy=true], .run-view .note.waiting')"
    )


async def _go(tab: Tab, run: str, address: str) -> None:
    await tab.open(f"/runs/{run}", at=address)
    await _at(tab, address)


async def _shown(tab: Tab) -> dict[str, Any]:
    """Return the figures of the state panel."""
    figures: dict[str, Any] = await tab.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("#now .agent")].map((row) => [
             row.dataset.agent, {
               version: Number(row.querySelector("[data-field=version]").textContent),
               steps: Object.fromEntries([...row.querySelectorAll(".tally")].map((each) =>
                 [each.dataset.status, parseInt(each.textContent.replaceAll(",", ""), 10)])),
             }]))"""
    )
    return figures


async def test_all_runs_are_those_of_the_command(tab: Tab, runs: Runs):
    """The list has each run; filters of text and status are part of the address."""
    await tab.open("/runs")
    names = {line["run"] for line in tab.site.lines("runs", "--limit", "0")}
    await tab.until("document.querySelectorAll('.run-row').length > 3")
    hrefs = await tab.page.eval_on_selector_all(".run-row", "all => all.map((row) => row.href)")
    assert {href.rpartition("/")[2] for href in hrefs} <= names
    assert f"{len(names)} runs" in await tab.text(".view-head")
    await tab.page.fill("input[type=search]", runs.team)
    await tab.until("document.querySelectorAll('.run-row').length === 1")
    await tab.page.wait_for_url(f"**/runs?text={runs.team}")
    await tab.page.select_option("select", "failed")
    await tab.page.wait_for_selector(".empty")
    assert f"No run matches status failed, text {runs.team}" in await tab.text()


@pytest.mark.thorough(
    quick="web/test_views.py::test_a_list_of_runs_keeps_its_length_when_it_is_read_again"
)
async def test_a_run_that_begins_is_listed_at_once(tab: Tab, record: hansard.Record):
    """The list follows the record, without a reload."""
    await tab.open("/runs")
    await tab.page.wait_for_selector(".live.live")

    def work() -> None:
        with record.run("begins", run="begins-now", agent="ada", role="r"):
            pass

    await asyncio.to_thread(work)
    await tab.page.wait_for_selector(".run-row[href$=begins-now]")
    assert "begins" in await tab.text(".run-row[href$=begins-now]")


async def test_a_point_is_that_of_the_api(tab: Tab, runs: Runs):
    """At random commits, figures of agents equal the API's, which equal the command's."""
    for run in (runs.team, "shared"):
        rows = (await tab.api(f"/runs/{run}/outline", limit="50000"))["rows"]
        places = sorted(set(rows["position"]))
        for position in random.Random(7).sample(places, POINTS):
            index = max(
                i for p, i in zip(rows["position"], rows["index"], strict=True) if p == position
            )
            address = f"{position}.{index}"
            await _go(tab, run, address)
            answer = await tab.api(f"/runs/{run}", at=address)
            expected = {
                each["agent"]: {
                    "version": each["version"],
                    "steps": {name: size for name, size in each["steps"].items() if size},
                }
                for each in answer["agents"]
            }
            assert await _shown(tab) == expected, (run, address)
            shown = tab.site.lines("run", "show", run, "--at", str(position))
            versions = {each["agent"]: each["version"] for each in shown if each["kind"] == "agent"}
            assert versions == {name: each["version"] for name, each in expected.items()}


async def test_a_run_is_followed_while_it_goes_on(tab: Tab, record: hansard.Record):
    """The intent is shown before its outcome; followed, the point stays at the newest event.

    Panels then read the run as of now, and not once more at the point.
    """
    go_on, seen = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        with record.run("slow", run="goes-on", agent="ada", role="r") as session:

            @session.tool(effects="idempotent")
            def wait(name: str) -> str:
                loop.call_soon_threadsafe(seen.set)
                asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)
                return name

            wait("first")
            session.message("user", "after the first")

    working = asyncio.create_task(asyncio.to_thread(work))
    await seen.wait()
    await tab.open("/runs/goes-on")
    await tab.page.wait_for_selector("#tree .row.step .pill.requested")
    await tab.page.wait_for_selector(".live.live")
    await tab.page.keyboard.press("f")
    await tab.page.wait_for_selector("#follow[aria-pressed=true]")
    addresses: list[str] = []
    tab.page.on("request", lambda request: addresses.append(request.url))
    go_on.set()
    await tab.page.wait_for_selector("#tree .row.step .pill.completed")
    await tab.page.wait_for_selector("#tree .row.message:has-text('after the first')")
    await tab.page.wait_for_selector("#tree .row.run.current")
    await working
    size = len((await tab.api("/runs/goes-on/outline"))["rows"]["position"])
    await tab.until(f"document.querySelector('#where').textContent.includes('of {size}')")
    assert f"event {size} of {size}" in await tab.text("#where")
    version = (await tab.api("/runs/goes-on"))["agents"][0]["version"]
    shown = "document.querySelector('#now [data-field=version]')?.textContent"
    await tab.until(f"{shown} === '{version}'")
    assert not [each for each in addresses if "at=" in each]


async def test_a_large_run_is_read_from_its_end(tab: Tab, record: hansard.Record, home: Path):
    """The rows at the point are shown first; then all, whose first words are read when needed."""
    del record  # it holds the broker
    async with hansard.connect_async(WORKSPACE, data_dir=home) as opened:
        await opened.workspace.log.append_bulk(appends(LARGE))
    path = f"/runs/{MANY}"
    whole = await tab.api(f"{path}/outline", limit="50000")
    rows = whole["rows"]
    first: dict[int, str] = {}
    for number, text in enumerate(rows["text"]):
        first.setdefault(rows["position"][number], text)
    assert len(rows["text"]) > LARGE
    await tab.open(path)
    await tab.page.wait_for_selector(".live.live")
    size = f"{len(rows['text']):,}"
    assert f"event {size} of {size}" in await tab.text("#where")
    await tab.until(
        "[...document.querySelectorAll('#tree .row .gist')].every((gist) => gist.textContent)"
    )
    await tab.page.keyboard.press("Home")
    await tab.page.wait_for_selector("#tree .row.run.current:has-text('many events')")
    middle = rows["position"][len(rows["text"]) // 2]
    await tab.page.fill("#query", first[middle].partition("query=")[2].rstrip(")"))
    await tab.page.press("#query", "Enter")
    await tab.until("document.querySelector('#found').textContent.includes('1 of ')")
    await tab.until(f"document.querySelector('#where .mono').textContent === '{middle}.0'")


async def test_two_pins_show_what_changed(tab: Tab):
    """`[` pins a point; the changes are those of the API between the two."""
    rows = (await tab.api("/runs/shared/outline", limit="50000"))["rows"]
    first, last = rows["position"][0], f"{rows['position'][-1]}.{rows['index'][-1]}"
    await _go(tab, "shared", f"{first}.0")
    await tab.page.keyboard.press("[")
    await tab.page.wait_for_selector("#changes:has-text('The pin is at this point')")
    await tab.page.keyboard.press("End")
    await tab.page.wait_for_selector("#changes .change")
    changes = await tab.api("/runs/shared/changes", since=f"{first}.0", to=last)
    await tab.until("!document.querySelector('#changes-now[aria-busy=true]')")
    listed = await tab.page.locator("#changes .change").count()
    assert listed == min(200, len(changes["changes"]))
    await tab.page.wait_for_url(f"**pin={first}.0*")


@pytest.mark.thorough(quick="web/test_axe_views.py::test_some_views_break_no_rule")
@pytest.mark.parametrize("width", [DESK, PHONE])
@pytest.mark.parametrize("dark", [False, True])
async def test_every_panel_fits_and_is_accessible(
    tabs: Tabs, axe: str, runs: Runs, width: int, dark: bool
):
    """No panel scrolls sideways at either width, and axe finds nothing in it."""
    tab = await tabs.open(width, dark=dark, bypass_csp=True)
    try:
        await tab.open("/runs")
        await tab.page.wait_for_selector(".run-row")
        assert await tab.page.evaluate(TOO_WIDE) == []
        assert await checked(tab.page, axe) == []
        for run in (runs.team, runs.doubt, "shared"):
            for panel in PANELS if run == "shared" else PANELS[:1]:
                side = "left" if width == PHONE or panel in PANELS[:2] else "right"
                if panel in (PANELS[0], PANELS[-1]):
                    await tab.open(f"/runs/{run}", **{side: panel})
                else:
                    await tab.page.click(f"[role=tab][id$=-{panel}]")
                await tab.page.wait_for_selector(f"#{panel}")
                await tab.shown()
                assert await tab.page.evaluate(TOO_WIDE) == [], (run, panel)
                within = "" if panel == PANELS[0] else f"#{panel}"
                assert await checked(tab.page, axe, within) == [], (run, panel)
                if PICTURES:
                    name = f"run-{run[-6:]}-{panel}-{width}-{'dark' if dark else 'light'}.png"
                    await tab.page.screenshot(path=Path(PICTURES) / name)
    finally:
        await tab.close()


@pytest.mark.thorough(quick="web/test_views.py::test_views_open_without_a_message_and_fit")
async def test_a_printout_has_each_row_and_no_controls(tab: Tab, runs: Runs):
    """On paper the lists are whole, panels stand below each other, and nothing is cut sideways."""
    del runs
    for address, row, height in (("/runs", ".run-row", 54), ("/runs/shared", "#tree .row", 30)):
        await tab.open(address)
        await tab.page.wait_for_selector(row)
        await tab.shown()
        pixels = await tab.page.evaluate(
            "parseFloat(document.querySelector('.vsize').style.height)"
        )
        await tab.page.emulate_media(media="print")
        await tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        await tab.until(f"document.querySelectorAll('{row}').length === {pixels / height}")
        assert await tab.page.locator(".note.waiting").count() == 0
        assert not await tab.page.is_visible("#top nav")
        assert await tab.page.evaluate(TOO_WIDE) == []
        assert len(await tab.page.pdf()) > 10_000
        if PICTURES:
            picture = Path(PICTURES) / f"print{address.replace('/', '-')}.png"
            await tab.page.screenshot(path=picture, full_page=True)
        await tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
        await tab.page.emulate_media(media="screen")
