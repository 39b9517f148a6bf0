"""A workspace for each test, and `hansard search` over it."""

from functools import partial
from pathlib import Path

import pytest

import hansard
from tests.cli.support import Call


@pytest.fixture
def home(data_dir: Path) -> Path:
    """Return the data directory of the broker."""
    return data_dir


@pytest.fixture
def workspace(home: Path, workspace: str) -> str:
    """Return an existing, unused workspace."""
    hansard.connect(workspace, data_dir=home).close()
    return workspace


@pytest.fixture
def call(call: Call) -> Call:
    """Run `hansard search` in this process: `call("refund", "--json")`."""
    return partial(call, "search")
