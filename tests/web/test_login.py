"""A browser logs in by a link and out again, as the operator and as a role."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

import hansard
from tests.browser.test_axe import axe, checked
from tests.cli.support import WORKSPACE
from tests.web.support import Site

__all__ = ["axe"]

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

PICTURES = os.environ.get("HANSARD_PICTURES")
"""Folder for a picture of each page, if it is set."""


async def test_a_browser_logs_in_and_out(chromium: Browser, site: Site, axe: str) -> None:
    """By keyboard alone, without a message of its console, and without a violation of axe."""
    window = await chromium.new_context(viewport={"width": 360, "height": 640})
    page = await window.new_page()
    console: list[str] = []
    page.on("console", lambda message: console.append(message.text))

    async def press() -> None:
        await page.wait_for_selector("button:focus")  # the browser moves the focus after the load
        await page.keyboard.press("Enter")

    async def look(name: str) -> None:
        if PICTURES:
            await page.screenshot(path=Path(PICTURES) / f"login-{name}.png")

    await page.goto(site.view("/runs"))
    assert await page.inner_text("h1") == "You are not logged in"
    await look("needed")
    assert not [text for text in console if "404" in text]  # each page names its icon
    console.clear()  # the browser reports the status 401 there
    link = site.lines("login", "--next", f"/ws/{WORKSPACE}/inbox?x=1")[0]["url"]
    await page.goto(link)
    await look("form")
    await press()
    await page.wait_for_url(site.view("/inbox", x="1"))
    await page.wait_for_selector("#content h1")
    assert await page.evaluate("document.cookie") == ""
    await page.goto(f"{site.url}/logout")
    assert "logged in as the operator" in await page.inner_text("main")
    await look("out")
    await press()
    await page.wait_for_selector("h1:has-text('logged out')")
    assert console == []
    await page.goto(link)
    await page.click("button")
    await page.wait_for_selector("h1:has-text('does not work')")
    await look("used")
    await window.close()
    await _check(chromium, axe, [site.view("/runs"), link])


async def test_a_role_is_shown_what_it_may_use(
    chromium: Browser, site: Site, record: hansard.Record, tmp_path: Path
):
    """No link of its view of a run leads to a refusal; those of the operator are never there."""
    await asyncio.to_thread(_decide, record)
    file = tmp_path / "reviewer.json"
    made = site.command(
        "credentials", "reviewer", "--name", "rita", "--output", str(file), "--http", site.url
    )
    assert made.returncode == 0, made.stderr
    link = site.lines("login", "--credentials", str(file), "--next", f"/ws/{WORKSPACE}/runs")
    async with await chromium.new_context() as window:
        page = await window.new_page()
        await page.goto(link[0]["url"])
        await page.click("button")
        await page.wait_for_selector(".run-row")
        names = await page.locator("nav[aria-label=Views] a").all_inner_texts()
        assert {"Runs", "Inbox", "Audit"} < set(names)
        assert not {"Search", "Memory", "Diff"} & set(names)
        await page.goto(site.view("/runs/shared"))
        await page.wait_for_selector("#event .what")
        await page.wait_for_selector(".questions a:has-text('audit')")
        questions = await page.locator(".questions a").all_inner_texts()
        assert questions == ["decisions", "audit"]
        assert await page.locator("#content a", has_text="go on").count() == 0
        raw = await page.locator("#address a", has_text="raw").get_attribute("href")
        event = await (await page.request.get(f"{site.url}{raw}")).json()
        assert raw == f"/api/v1/{WORKSPACE}/runs/shared/events/{event['number']}.0"
        assert "body" not in event
        answer = await page.locator("#state .as-of a").first.get_attribute("href")
        assert (await page.request.get(f"{site.url}{answer}")).ok
        await page.goto(site.view("/inbox"))
        await page.wait_for_selector("h2#approvals")
        assert await page.locator("h2").all_inner_texts() == ["0 approvals"]
        await page.goto(site.view("/runs/decided"))
        await page.wait_for_selector("#state [data-list=messages] .message")
        fields = page.locator("#state [data-agent=ada] [data-field]")
        assert await fields.all_inner_texts() == ["2 messages", "1 decision"]
        decisions = await page.locator("#state [data-list=decisions] .list").inner_text()
        assert all(each in decisions for each in ("which page?", "the first"))
        heading = await page.locator("#address").inner_text()
        assert heading.split(maxsplit=1)[1].startswith("life"), "the event is the run's, unnumbered"


def _decide(record: hansard.Record) -> None:
    """Record a run with two messages and a decision."""
    with record.run("choices", run="decided", agent="ada", role="researcher") as session:
        session.message("user", "Which page?")
        session.decide("which page?", selected="the first")
        session.message("assistant", "The first.")


async def _check(chromium: Browser, axe: str, addresses: list[str]) -> None:
    """Check pages of the login for violations of accessibility."""
    for scheme in ("light", "dark"):
        window = await chromium.new_context(bypass_csp=True, color_scheme=scheme)
        page: Page = await window.new_page()
        for address in addresses:
            await page.goto(address)
            assert await checked(page, axe) == [], (address, scheme)
        await window.close()
