"""A broker with a workspace for each test, and the command line over it."""

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import hansard
from hansard.cli import main
from tests.cli.support import Call, Ran

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
    home: Path,
    workspace: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Call]:
    """Run `hansard search` in this process: `call("refund", "--json")`."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["hansard", "search", *arguments])
        monkeypatch.setenv("HANSARD_DATA_DIR", str(home))
        monkeypatch.setenv("HANSARD_WORKSPACE", workspace)
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        code = left.value.code
        return Ran(code if isinstance(code, int) else 0, told.out, told.err)

    yield run
    structlog.reset_defaults()
