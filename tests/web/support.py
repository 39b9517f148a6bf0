"""Tabs of a browser that is logged in to the service, and the API as programs use it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page

from tests.actions.conftest import answered
from tests.cli.support import WORKSPACE, environment
from tests.faults._warm import python

DESK, PHONE = 1440, 360
"""Widths of a window, in pixels."""

HEIGHT = 900

PICTURES = os.environ.get("HANSARD_PICTURES")
"""Folder for pictures, if it is set."""

WAIT_S = 30.0
"""Longest wait for a change of the page, in seconds."""

PROJECTS_MAX = 6
"""Queries that wait for the first tables."""

TOO_WIDE = """() => [document.scrollingElement, document.querySelector("#content")]
  .filter((node) => node && node.scrollWidth > node.clientWidth + 1)
  .map((node) => node.id || node.tagName)"""
"""Script that names what scrolls sideways."""


class Site(msgspec.Struct, frozen=True):
    """A running service and the data directory that it serves."""

    url: str
    home: Path

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `hansard` on the same record."""
        return subprocess.run(
            [python(), "-m", "hansard", *arguments],
            env=environment(self.home),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command with `--json`; return its lines."""
        done = self.command(*arguments, "--json")
        assert done.stdout, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def project(self) -> None:
        """Wait for the first tables, which may take longer than one query waits."""
        answers = (self.command("sql", "SELECT 1") for _ in range(PROJECTS_MAX))
        assert any(answer.returncode == 0 for answer in answers), "the tables are not projected"

    def view(self, path: str, /, **query: str) -> str:
        """Return the address of a view."""
        return f"{self.url}/ws/{WORKSPACE}{path}" + (f"?{urlencode(query)}" if query else "")


class Tab:
    """A tab, and the messages of its console."""

    def __init__(self, page: Page, site: Site) -> None:
        self.page = page
        self.site = site
        self.console: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.console.append(str(error)))

    def _note(self, message: ConsoleMessage) -> None:
        self.console.append(f"{message.text} {message.location['url']}")

    async def open(self, path: str, /, **query: str) -> None:
        """Open a view, and wait until its answers are shown."""
        await self.page.goto(self.site.view(path, **query))
        await self.shown()

    async def shown(self) -> None:
        """Wait until no part of the view waits for an answer."""
        await self.page.wait_for_selector("#content h1")
        await self.page.wait_for_selector("#content .note.waiting", state="detached")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true. The page's policy lets no tool evaluate it inside."""
        end_s = time.monotonic() + WAIT_S
        while not await self.page.evaluate(expression):
            assert time.monotonic() < end_s, expression
            await asyncio.sleep(0.02)

    async def text(self, selector: str = "#content") -> str:
        """Return the visible text of an element."""
        return await self.page.inner_text(selector)

    async def api(self, path: str, /, **query: str) -> Any:
        """Return the JSON of a read, with the tab's login."""
        address = f"{self.site.url}/api/v1/{WORKSPACE}{path}"
        address += f"?{urlencode(query)}" if query else ""
        answer = await self.page.request.get(address)
        assert answer.ok, await answer.text()
        return await answer.json()

    async def close(self) -> None:
        """Close the tab."""
        await self.page.close()


class Tabs:
    """Windows that share one login."""

    def __init__(self, browser: Browser, site: Site) -> None:
        self._browser = browser
        self._site = site
        self._windows: dict[tuple[int, bool, bool], BrowserContext] = {}
        self._state: Any = None

    async def open(self, width: int = DESK, *, dark: bool = False, bypass_csp: bool = False) -> Tab:
        """Open an empty tab. Neither a login nor a page has a bound of its own."""
        made = partial(self._page, width, dark=dark, bypass_csp=bypass_csp)
        return Tab(await answered(made), self._site)

    async def _page(self, width: int, *, dark: bool, bypass_csp: bool) -> Page:
        key = width, dark, bypass_csp
        if key not in self._windows:
            window = await self._browser.new_context(
                color_scheme="dark" if dark else "light",
                bypass_csp=bypass_csp,
                storage_state=self._state,
                viewport={"width": width, "height": HEIGHT},
            )
            if self._state is None:
                await self._log_in(window)
                self._state = await window.storage_state()
            self._windows[key] = window
        return await self._windows[key].new_page()

    async def _log_in(self, window: BrowserContext) -> None:
        """Open the link that `hansard login` prints."""
        done = self._site.command("login")
        page = await window.new_page()
        await page.goto(done.stdout.strip())
        await page.click("button")
        await page.wait_for_selector("#app")
        await page.close()

    async def close(self) -> None:
        """Close the windows."""
        for window in self._windows.values():
            await window.close()
