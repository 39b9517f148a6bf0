"""A broker and real runs on it, made once, and the command line over them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import hansard
from tests.cli.support import WORKSPACE, Call, Ran, Runs, environment, make_runs, ran
from tests.faults import _warm as warm
from tests.projections.query_cache import tables_stay_open

__all__ = ["tables_stay_open"]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the data directory that all tests share."""
    return tmp_path_factory.mktemp("cli") / "data"


@pytest.fixture(scope="session")
def record(home: Path) -> Iterator[hansard.Record]:
    """Yield the workspace that all tests share, held open so that its broker stays."""
    with hansard.connect(workspace=WORKSPACE, data_dir=home) as opened:
        yield opened


@pytest.fixture(scope="session")
def runs(record: hansard.Record) -> Runs:
    """Return the runs that every test reads and none writes to."""
    return make_runs(record)


@pytest.fixture
def call(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    """Run the command line in this process: `call("runs", "--json")`."""

    def run(*arguments: str, workspace: str = WORKSPACE) -> Ran:
        monkeypatch.setenv("HANSARD_DATA_DIR", str(home))
        monkeypatch.setenv("HANSARD_WORKSPACE", workspace)
        return ran(capsys, monkeypatch, arguments)

    yield run
    structlog.reset_defaults()


@pytest.fixture
def shell(home: Path) -> Call:
    """Run the command line in a process of its own."""

    def run(*arguments: str, stdin: str | None = None, **env: str) -> Ran:
        command, settings = ["-m", "hansard", *arguments], environment(home, **env)
        if stdin is None:
            done = warm.run(command, cwd=Path.cwd(), env=settings, timeout=170)
        else:
            done = subprocess.run(
                [sys.executable, *command],
                env=settings,
                capture_output=True,
                text=True,
                timeout=170,
                check=False,
                input=stdin,
            )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
