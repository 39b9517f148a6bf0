"""A real service with real data, and a browser that is logged in to it."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

import hansard
from tests.actions.conftest import chromium, closed
from tests.cli.support import WORKSPACE, Runs, environment
from tests.faults._warm import python
from tests.web.data import Examples, fill, run_examples, waiting_calls
from tests.web.support import Site, Tab, Tabs

__all__ = ["chromium"]

WAITING = 3
"""Calls that wait for an approval while the tests run."""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory of the folder's tests."""
    return tmp_path_factory.mktemp("web") / "data"


@pytest.fixture(scope="session")
def record(home: Path) -> Iterator[hansard.Record]:
    """Yield the trusted record of the workspace that the page shows."""
    with hansard.connect(workspace=WORKSPACE, data_dir=home) as opened:
        yield opened


@pytest.fixture(scope="session")
def runs(record: hansard.Record, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Yield the ids of recorded runs; some calls wait for an approval meanwhile."""
    made = fill(record, tmp_path_factory.mktemp("roles"))
    with waiting_calls(record, WAITING):
        yield made


@pytest.fixture(scope="session")
def examples(
    record: hansard.Record, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Examples:
    """Return the runs of the examples."""
    del record  # it holds the broker
    return run_examples(home, WORKSPACE, tmp_path_factory.mktemp("examples"))


@pytest.fixture(scope="session")
def site(home: Path, runs: Runs) -> Iterator[Site]:
    """Yield the service's address, from `hansard up --http 0` as a process of its own."""
    del runs
    command = [python(), "-m", "hansard", "up", "--http", "0", "--json"]
    with subprocess.Popen(
        command, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            first: dict[str, Any] = json.loads(process.stdout.readline())
            made = Site(first["http"], home)
            made.project()
            yield made
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=30)
            process.kill()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def tabs(chromium: Browser, site: Site) -> AsyncIterator[Tabs]:
    """Yield windows that are logged in by a link of `hansard login`."""
    made = Tabs(chromium, site)
    yield made
    await closed(made.close)


@pytest_asyncio.fixture(loop_scope="session")
async def tab(tabs: Tabs) -> AsyncIterator[Tab]:
    """Yield a tab at a desk; messages of its console fail the test."""
    opened = await tabs.open()
    yield opened
    await closed(opened.close)
    assert opened.console == []
