"""A page in a browser, as its reader sees it, and its expected content."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from playwright.async_api import BrowserContext, Page

from hansard.agents.workspace import Workspace
from hansard.bus.file_lock import write_whole
from hansard.cli.runs import default_path
from hansard.domain.agent import AgentState
from hansard.inspect import page as page_data
from hansard.state.replay import RunView
from hansard.web.pages import run_page
from tests.actions.conftest import answered

WORKSPACE = "lab"

SHOWN = """() => {
  const number = (node, name) =>
    Number((node.querySelector(`[data-field=${name}]`)?.textContent ?? "").replace(/[^0-9]/g, ""));
  const agents = {};
  for (const row of document.querySelectorAll("#now .agent")) {
    const statuses = {};
    for (const tally of row.querySelectorAll(".tally")) {
      statuses[tally.dataset.status] = parseInt(tally.textContent.replaceAll(",", ""), 10);
    }
    agents[row.dataset.agent] = {
      version: number(row, "version"),
      messages: number(row, "messages"),
      tokens: number(row, "tokens"),
      decisions: number(row, "decisions"),
      checkpoints: number(row, "checkpoints"),
      statuses,
    };
  }
  return { status: document.querySelector("#now [data-field=status]").textContent, agents };
}"""
"""Script that reads the state panel's numbers."""

LISTED = """(name) =>
  [...document.querySelectorAll(`#now [data-list=${name}] .list > *`)].map(
    (node) => (node.querySelector("summary .label, .link") ?? node).textContent
  )"""
"""Script that returns the names in one of the state panel's full lists of the agent."""


TOO_WIDE = """() => [document.scrollingElement, ...document.querySelectorAll(
    "main .panel, .body, #tree, #head, #time, #tabs")]
  .filter((node) => node.checkVisibility() && node.scrollWidth > node.clientWidth + 1)
  .map((node) => node.id || node.tagName)"""
"""Script that finds elements which scroll sideways."""


class Pages(msgspec.Struct):
    """Pages of a workspace's runs, in a folder of their own."""

    workspace: Workspace
    folder: Path

    async def of(self, run: str) -> Path:
        """Return a run's page, written as the command writes it."""
        path = self.folder / default_path(run)
        if not path.exists():
            write_whole(path, run_page(await self.data(run)))
        return path

    async def data(self, run: str) -> page_data.Page:
        """Return the data of a run's page."""
        return await page_data.gather(self.workspace, run)


class Tabs(msgspec.Struct):
    """Tabs of one window, and the unused ones."""

    window: BrowserContext
    free: list[Page]

    async def take(self, *, width: int = 1280, dark: bool = False) -> Page:
        """Return an empty tab."""

        async def tab() -> Page:
            page = self.free.pop() if self.free else await self.window.new_page()
            await page.set_viewport_size({"width": width, "height": 800})
            await page.emulate_media(media="screen", color_scheme="dark" if dark else "light")
            return page

        return await answered(tab)

    async def give_back(self, tab: Page) -> None:
        """Empty it for the next one."""
        await tab.goto("about:blank")
        self.free.append(tab)


class View:
    """An open page, its requests, and its messages."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.path = path
        self.loads = 0
        self.requests: list[str] = []
        self.refused: list[tuple[str, str | None]] = []
        self.console: list[str] = []
        self._listeners: dict[Any, Callable[[Any], Any]] = {
            "request": lambda request: self.requests.append(request.url),
            "requestfailed": lambda request: self.refused.append((request.url, request.failure)),
            "console": lambda message: self.console.append(message.text),
            "pageerror": lambda error: self.console.append(str(error)),
            "dialog": self._refuse,
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    async def _refuse(self, dialog: Any) -> None:
        self.console.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    async def open(self, at: str = "") -> None:
        """Load the page, at a point if one is given."""
        self.loads += 1
        await self.page.goto(self.path.as_uri() + (f"#at={at}" if at else ""))
        await self.page.wait_for_selector("html[data-point]")

    async def leave(self) -> None:
        """Listen no more, once all that the page did has been heard."""
        await self.page.evaluate("new Promise((done) => setTimeout(done))")
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    async def at(self) -> int:
        """Return the number of the displayed event, from 0."""
        return int(await self.page.evaluate("document.documentElement.dataset.point"))

    async def last(self) -> int:
        """Return the number of the run's last event."""
        data: str = await self.page.inner_text("#where")
        match = re.search(r"event [\d,]+ of ([\d,]+)", data)
        assert match is not None, data
        return int(match[1].replace(",", "")) - 1

    async def end(self) -> None:
        """Move to the last event."""
        await self.move(await self.last())

    async def reached(self, point: int) -> None:
        """Wait until everything is shown at a point. Raises TimeoutError."""
        await self.page.wait_for_selector(f'html[data-point="{point}"]', timeout=60_000)

    async def move(self, point: int) -> None:
        """Move the slider as a hand does, and wait until everything is shown there."""
        await self.page.evaluate(
            """(point) => {
              const slider = document.getElementById("slider");
              slider.value = String(point);
              slider.dispatchEvent(new Event("input", { bubbles: true }));
            }""",
            point,
        )
        await self.reached(point)

    async def shown(self) -> dict[str, Any]:
        """Return the state that the page shows."""
        state: dict[str, Any] = await self.page.evaluate(SHOWN)
        return state

    async def listed(self, name: str) -> list[str]:
        """Return the names in a list of the state panel."""
        names: list[str] = await self.page.evaluate(LISTED, name)
        return names

    async def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return await self.page.inner_text(selector)

    async def search(self, words: str) -> str:
        """Search for words at typing speed; return the page's text about the matches."""
        await self.page.fill("#query", "")
        await self.page.wait_for_selector("#found:empty", state="attached")
        await self.page.fill("#query", words)
        await self.page.wait_for_selector("#found:not(:empty)")
        await self.reached(int(await self.page.input_value("#slider")))
        return await self.text("#found")


Open = Callable[..., Awaitable[View]]


def expected(view: RunView) -> dict[str, Any]:
    """Return the expected text of a run's state, from the domain's own fold."""
    return {
        "status": view.life.status.value,
        "agents": {name: _agent(state) for name, state in view.agents.items()},
    }


def _agent(state: AgentState) -> dict[str, Any]:
    return {
        "version": state.version,
        "messages": len(state.messages),
        "tokens": state.total_tokens,
        "decisions": len(state.decisions),
        "checkpoints": len(state.checkpoints),
        "statuses": dict(Counter(step.status.value for step in state.steps.values())),
    }


def ends(page: page_data.Page) -> list[tuple[int, int]]:
    """Return event number and position of each commit that ends nothing but itself."""
    ends_of_commits: list[tuple[int, int]] = []
    position, number = 0, -1
    rows = page.commits
    for step, events, whole in zip(rows.position, rows.events, rows.whole, strict=True):
        position += step
        number += events
        if not whole:
            ends_of_commits.append((number, position))
    return ends_of_commits
