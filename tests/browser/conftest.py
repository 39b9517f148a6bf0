"""A real browser with its network cut, real runs, and their pages on disk."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

import hansard
from tests.actions.conftest import answered, chromium
from tests.browser.support import WORKSPACE, Open, Pages, Tabs, View
from tests.cli.conftest import home, record, runs

__all__ = ["chromium", "home", "record", "runs"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pages(
    home: Path, record: hansard.Record, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pages]:
    """Yield the same workspace, to write pages of its runs."""
    async with hansard.connect_async(workspace=WORKSPACE, data_dir=home) as opened:
        yield Pages(opened.workspace, tmp_path_factory.mktemp("pages"))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def tabs(chromium: Browser) -> Tabs:
    """Tabs of one window whose network is cut; they are kept, because each is a process."""
    return Tabs(await answered(partial(chromium.new_context, offline=True)), [])


@pytest_asyncio.fixture(loop_scope="session")
async def view(tabs: Tabs) -> AsyncIterator[Open]:
    """Yield a function that opens pages offline; requests, output and errors fail the test."""
    opened: list[View] = []

    async def open_page(path: Path, at: str = "", *, width: int = 1280, dark: bool = False) -> View:
        made = View(await tabs.take(width=width, dark=dark), path)
        opened.append(made)
        await made.open(at)
        return made

    yield open_page
    for each in opened:
        await each.leave()
        await tabs.give_back(each.page)
        assert each.requests == [path_uri(each.path)] * each.loads
        assert each.console == []


def path_uri(path: Path) -> str:
    """Return a file's address."""
    return path.as_uri()
