"""The three use cases, edited in the page, run by a worker, killed, resumed, and compared."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from hansard import settings
from hansard.client.listening import Address
from hansard.client.opening import find_broker
from hansard.service.http.app import listening
from tests.actions.conftest import answered, chromium, closed
from tests.examples.support import (
    PAPER_PIPELINE,
    ROOT,
    SUPPORT_DESK,
    TRADING,
    WATCHED,
    Desk,
    UseCase,
    new_desk,
)
from tests.faults._warm import python

__all__ = ["chromium"]

TOKEN = "a-token-of-enough-characters"
WAIT_MS = 60_000.0
HEIGHT = 2_000
"""Height of the window in pixels: all rows of an example's trace are in it."""


class Change(msgspec.Struct, frozen=True):
    """An edit of a use case, where its fork is killed, and what the fork then does."""

    case: UseCase
    workflow: str
    tool: str
    """The tool whose last result is edited."""
    result: Any
    kill_at: str
    expected: str
    """Text in the last line of the fork's program."""
    runs: tuple[str, ...]
    """Tools that run in the fork; none of them has an effect."""


CHANGES = [
    Change(
        TRADING,
        "trading",
        "judge",
        {"buy": 0.1, "sell": 0.9, "hold": 0.5},
        "return limit_risk",
        "order 0: sell",
        (),
    ),
    Change(
        SUPPORT_DESK,
        "support",
        "search_documents",
        [{"document": "phone.md", "text": "Call us."}],
        "return quoting_reply",
        "not sent to customer-1",
        ("quoting_reply",),
    ),
    Change(
        PAPER_PIPELINE,
        "papers",
        "analyze",
        ["It is one.", "It is two.", "It is new."],
        "return extractive_summary",
        "It is new.",
        ("extractive_summary",),
    ),
]


class Tour(msgspec.Struct, frozen=True):
    """A change, a desk whose program has run once, and the page of that run."""

    change: Change
    desk: Desk
    page: Page

    async def fork(self) -> tuple[str, Locator]:
        """Edit the last result of the tool, as a user does; return the call and the fork's card."""
        page, change = self.page, self.change
        await page.locator("#tree .row.step", has_text=change.tool).last.click()
        await page.get_by_role("link", name="Change the result and go on").click()
        label = await page.locator("label", has=page.locator("textarea")).inner_text()
        await page.locator("textarea").fill(msgspec.json.encode(change.result).decode())
        await page.get_by_label("Reason").fill("another result")
        await expect(page.locator("tbody")).to_contain_text("edited")
        await page.get_by_role("button", name="Make the fork").click()
        step = label.removeprefix("New result of ").partition(" ")[0]
        return step, page.get_by_label("The fork")

    def hansard(self, *command: str, kill_at: str = "0") -> tuple[str, list[str]]:
        """Run a command that runs the program; return its last line, and the example's calls."""
        places = self.desk.folder / f"places-{uuid4().hex}"
        program = self.desk.folder / self.change.case.program
        # The trading example's one argument is the run, which is the fork's here.
        arguments = () if self.change.case is TRADING else self.change.case.arguments
        watched = (python(), str(WATCHED), str(program), str(places), kill_at, *arguments)
        done = subprocess.run(
            [python(), "-m", "hansard", *command, "--", *watched],
            cwd=self.desk.folder,
            env=self.desk.environment(),
            capture_output=True,
            text=True,
            timeout=170,
            check=True,
        )
        calls = [each.removeprefix("call ") for each in places.read_text().splitlines()]
        return (done.stdout or done.stderr).splitlines()[-1], calls


@pytest_asyncio.fixture(loop_scope="session")
async def tour(
    request: pytest.FixtureRequest, tmp_path: Path, data_dir: Path, chromium: Browser
) -> AsyncIterator[Tour]:
    """Yield the page of a use case that has run once."""
    change: Change = request.param
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in ("docs", "README.md"):
        (texts / name).symlink_to(ROOT / name)
    (tmp_path / "desk").mkdir()
    name = f"edited-{uuid4().hex[:12]}"
    desk = new_desk(change.case, tmp_path / "desk", texts, data_dir, name)
    assert (await asyncio.to_thread(desk.start)).returncode == 0
    config = settings.load(workspace=name, data_dir=data_dir)
    broker = await find_broker(config)
    window = await answered(
        lambda: chromium.new_context(
            viewport={"width": 1440, "height": HEIGHT},
            extra_http_headers={"authorization": f"Bearer {TOKEN}"},
        )
    )
    window.set_default_timeout(WAIT_MS)
    try:
        async with listening(config, broker, Address("127.0.0.1", 0), token=TOKEN) as url:
            page = await answered(window.new_page)
            await page.goto(f"{url}/ws/{name}/runs/{change.case.run}")
            yield Tour(change, desk, page)
            await closed(window.close)
    finally:
        await broker.release()


@pytest.mark.slow(cases=1)
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("tour", CHANGES, indirect=True, ids=lambda each: each.case.name)
async def test_edited_killed_resumed_and_compared(tour: Tour) -> None:
    """The fork ends as the edit says, differs at the edited call, and the world stays as it was."""
    change, desk, page = tour.change, tour.desk, tour.page
    expect.set_options(timeout=WAIT_MS)
    before = change.case.effects(desk.folder)
    step, fork = await tour.fork()
    await expect(fork).to_contain_text("It waits for a worker.")
    shown = await fork.get_by_text("hansard worker").inner_text()
    assert shown == f"hansard worker {change.workflow} -- COMMAND"

    worker = ("worker", change.workflow, "--once")
    await asyncio.to_thread(tour.hansard, *worker, kill_at=change.kill_at)
    await expect(fork).to_contain_text("ended with exit code 137.")
    resume = (await fork.get_by_text("hansard run resume").inner_text()).split()
    last, calls = await asyncio.to_thread(tour.hansard, *resume[1 : resume.index("--")])
    assert change.expected in last

    assert change.case.effects(desk.folder) == before
    assert tuple(each for each in calls if each in change.case.workers) == change.runs
    await fork.get_by_role("link", name="beside its parent").click()
    content = page.locator("#content")
    await expect(content).to_contain_text(f"with other results of {step}.")
    await expect(content).to_contain_text(f"First difference: {change.tool}")
    await expect(content).to_contain_text("another result")
    statuses = page.get_by_label("outcome and costs").locator("tr", has_text="status")
    await expect(statuses).to_contain_text("completedcompleted")
