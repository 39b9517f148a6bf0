"""A broker with a workspace for each test, and the command line over it."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import hansard
from tests.agents.forked import processes_are_forked
from tests.cli.support import Call, Ran, ran

__all__ = ["processes_are_forked"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory that all tests share, its broker held."""
    made = tmp_path_factory.mktemp("search") / "data"
    with hansard.connect("held", data_dir=made):
        yield made


@pytest.fixture
def workspace(home: Path) -> str:
    """A workspace that nobody has used."""
    name = f"s{next(_numbers)}-{os.getpid()}"
    hansard.connect(name, data_dir=home).close()
    return name


@pytest.fixture
def call(
    home: Path, workspace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    """Run `hansard search` in this process: `call("refund", "--json")`."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setenv("HANSARD_DATA_DIR", str(home))
        monkeypatch.setenv("HANSARD_WORKSPACE", workspace)
        return ran(capsys, monkeypatch, ["search", *arguments])

    yield run
    structlog.reset_defaults()
