"""A real browser, and pages of ours that it opens from disk."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Playwright, async_playwright

from benchmarks.bench_page import ARGUMENTS
from hansard.ext.browser import browser as looking
from hansard.ext.browser.chromium import program

POLL_S = 0.25
"""Seconds between two polls of an awaited page: each poll is work of three processes."""


@pytest.fixture(scope="module", autouse=True)
def seldom_looked_at() -> Iterator[None]:
    """Poll awaited pages less often, with the same timeout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looking, "POLL_S", POLL_S)
        yield


ANSWER_S, ANSWERS = 60.0, 3
"""Longest wait for an answer of the driver or its browser, in seconds, and most requests for it."""

T = TypeVar("T")


async def answered(ask: Callable[[], Awaitable[T]], within_s: float = ANSWER_S) -> T:
    """Return an answer of the driver or its browser; ask again if there is none in time.

    Neither bounds its start, nor that of a window or page: a lost answer would hold a whole check.
    """
    for _ in range(ANSWERS - 1):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                return await ask()
    async with asyncio.timeout(within_s):
        return await ask()


async def closed(close: Callable[[], Awaitable[None]]) -> None:
    """Close something of the browser; a lost answer is not waited for, as the process ends it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            await close()


_OPENED = pytest.StashKey[Browser]()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium(request: pytest.FixtureRequest) -> AsyncIterator[Browser]:
    """Yield the process's one browser; without one its tests are skipped with a reason."""
    stash = request.config.stash
    if _OPENED in stash:  # another folder's fixture, which ends after this one
        yield stash[_OPENED]
        return
    executable = program()
    if executable is None:
        message = "no chromium or google-chrome on PATH, and HANSARD_BROWSER is not set"
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(message)
        pytest.skip(message)

    async def launch() -> tuple[Playwright, Browser]:
        player = await async_playwright().start()
        return player, await player.chromium.launch(
            executable_path=executable, args=list(ARGUMENTS)
        )

    player, opened = await answered(launch)
    stash[_OPENED] = opened
    yield opened
    del stash[_OPENED]
    await closed(opened.close)
    await closed(player.stop)


@pytest_asyncio.fixture(loop_scope="session")
async def page(chromium: Browser) -> AsyncIterator[Page]:
    """Yield a page of a context of its own."""
    context = await answered(chromium.new_context)
    yield await answered(context.new_page)
    await closed(context.close)


@pytest.fixture
def site(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that writes a page and returns its address."""

    def write(body: str, name: str = "page.html") -> str:
        path = tmp_path / name
        path.write_text(f"<!doctype html><meta charset=utf-8><title>t</title>{body}")
        return path.as_uri()

    return write
