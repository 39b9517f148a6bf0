"""Large and deep payloads stay usable on the page."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.json import encode
from playwright.async_api import Route

import hansard
from benchmarks.bench_page import _Stream
from hansard.bus.log import Append
from hansard.domain.agent import MessageAdded, SessionBegan
from hansard.domain.events import Actor
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.run import AgentJoined, RunStarted
from tests.cli.support import WORKSPACE, Runs
from tests.web.support import TOO_WIDE, Tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

BYTES = 3_000_000
DEPTH = 5_000
HELD_MS_MAX = 2_000
"""Longest time that the page may hold the browser, after it has read a payload."""

HELD = """() => {
  window.held = 0;
  let before = performance.now();
  setInterval(() => {
    window.held = Math.max(window.held, performance.now() - before);
    before = performance.now();
  }, 10);
}"""
"""Notes the longest time between two tasks of a timer."""


async def stored(home: Path, run: str, *payloads: bytes) -> None:
    """Record a run of messages whose contents are payloads in the store of blobs."""
    async with hansard.connect_async(WORKSPACE, data_dir=home) as record:
        workspace = record.workspace
        life, agent = RunStream(run), AgentStream(run, "r", "a")
        begun = SessionBegan(epoch=1, agent="a", role="r", server_version="1", protocol_version="1")
        events = []
        for payload in payloads:
            sha256 = hashlib.sha256(payload).hexdigest()
            assert await workspace.blobs.put(payload) == sha256
            content = Raw(encode({"$blob": {"sha256": sha256, "size": len(payload)}}))
            events.append(MessageAdded(role="user", content=content, fingerprint=sha256[:22]))
        await workspace.log.append_bulk(
            [
                _Stream(life, "a").commit(
                    RunStarted(workflow="large"), AgentJoined(agent="a", role="r")
                ),
                _Stream(agent, "a").commit(begun, *events),
            ]
        )


async def shown(tab: Tab, run: str, message: int) -> None:
    """Open a run at one of its messages, and show the message's payload."""
    await tab.open(f"/runs/{run}")
    row = tab.page.locator("#tree .row.message").nth(message)
    await row.click()
    await row.and_(tab.page.locator(".current")).wait_for()
    await tab.until(
        "document.querySelector('#address').textContent.startsWith("
        "document.querySelector('#where .mono').textContent)"
    )
    await tab.page.evaluate(HELD)
    await tab.page.click("#event .more >> text=Show its content")


async def test_a_context_is_read_of_agents_that_were_there(tab: Tab, runs: Runs, home: Path):
    """While the state at another point is read, no context is read there of the agents shown."""
    del runs
    await stored(home, "joined", b'"a message"')
    await tab.open("/runs/joined")
    await tab.page.wait_for_selector("#now [data-list=messages]")
    go_on, requested = asyncio.Event(), list[str]()

    async def hold(route: Route) -> None:
        await go_on.wait()
        await route.continue_()

    await tab.page.route(re.compile(r"/runs/joined\?at="), hold)
    tab.page.on("request", lambda each: requested.append(each.url))
    await tab.page.keyboard.press("Home")
    rows = (await tab.api("/runs/joined/outline"))["rows"]
    first = f"at {rows['position'][0]}.{rows['index'][0]}"
    await tab.until(f"document.querySelector('#asof').textContent === {first!r}")
    go_on.set()
    await tab.page.wait_for_selector("#now .agents .note:has-text('No agent had begun')")
    assert [url for url in requested if "/context" in url] == []


@pytest.mark.thorough(quick="test_a_context_is_read_of_agents_that_were_there")
async def test_the_agent_at_the_point_is_shown_before_the_others(tab: Tab, runs: Runs, home: Path):
    """Of a large run one agent is read first; the page states that the others are still read."""
    del runs
    async with hansard.connect_async(WORKSPACE, data_dir=home) as record:
        life, commits = _Stream(RunStream("crowd"), "a0"), list[Append]()
        commits.append(life.commit(RunStarted(workflow="large")))
        for name in ("a0", "a1"):
            life.actor = Actor(name)
            commits.append(life.commit(AgentJoined(agent=name, role="r")))
            begun = SessionBegan(
                epoch=1, agent=name, role="r", server_version="1", protocol_version="1"
            )
            message = MessageAdded(role="user", content=Raw(b'"a message"'), fingerprint="f" * 22)
            stream = _Stream(AgentStream("crowd", "r", name), name)
            commits.append(stream.commit(begun))
            commits += [stream.commit(*[message] * 500) for _ in range(6)]
        await record.workspace.log.append_bulk(commits)
    go_on = asyncio.Event()

    async def hold(route: Route) -> None:
        await go_on.wait()
        await route.continue_()

    await tab.page.route(re.compile(r"/api/.*/runs/crowd$"), hold)
    await tab.page.goto(tab.site.view("/runs/crowd"))
    await tab.page.wait_for_selector("#now .agent[data-agent=a1]")
    assert await tab.text("#now .agents .note") == "Reading the other agents…"
    go_on.set()
    await tab.page.wait_for_selector("#now .agent[data-agent=a0]")
    await tab.page.wait_for_selector("#now .agents .note", state="detached")


async def test_a_large_text_and_a_large_list_are_shown_in_parts(tab: Tab, runs: Runs, home: Path):
    """The first part is shown, and the slider still moves."""
    del runs
    line = "a line of the text, with some words in it\\n"
    text = f'"{line * (BYTES // len(line))}"'
    numbers = f"[{'12345678,' * (BYTES // 10)}0]"
    await stored(home, "large", text.encode(), numbers.encode())
    await shown(tab, "large", 0)
    await tab.page.wait_for_selector("#event pre.text", timeout=120_000)
    assert "Show all" in await tab.text("#event .more")
    assert await tab.page.evaluate("window.held") < HELD_MS_MAX
    await shown(tab, "large", 1)
    await tab.page.wait_for_selector("#event .entries", timeout=120_000)
    assert await tab.page.locator("#event .entry").count() == 100
    assert await tab.page.evaluate(TOO_WIDE) == []
    await tab.page.keyboard.press("Home")
    await tab.page.wait_for_selector("#tree .row.run.current")


async def test_a_deep_value_is_opened_level_by_level(tab: Tab, runs: Runs, home: Path):
    """JSON that is nested 5,000 times does not stop the page; each level opens."""
    del runs
    deep = b'{"a":' * DEPTH + b"[" * DEPTH + b'"the end"' + b"]" * DEPTH + b"}" * DEPTH
    await stored(home, "deep", deep + b" " * 300_000)
    await shown(tab, "deep", 0)
    for _ in range(60):
        await tab.page.locator("#event details:not([open]) > summary").first.click()
    assert await tab.page.locator("#event details[open]").count() >= 60
    assert await tab.page.evaluate("window.held") < HELD_MS_MAX
    assert await tab.page.evaluate(TOO_WIDE) == []
    await tab.page.keyboard.press("Home")
    await tab.page.wait_for_selector("#tree .row.run.current")
