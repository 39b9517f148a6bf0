"""A data directory with a log of several blocks, tables and a mark, and an older copy of it."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog

import hansard
from hansard.broker import lease as server
from hansard.broker.files import ServerFiles
from hansard.bus import marks
from hansard.domain.agent import SessionBegan
from hansard.domain.events import Commit
from hansard.domain.ids import AgentStream, RunStream, StreamId
from hansard.domain.run import AgentJoined, RunStarted
from hansard.domain.steps import Effects, StepRequested
from tests.cli.planting import commit, plant
from tests.cli.support import Call, Ran, environment, make_runs, ran
from tests.damage.damages import WORKSPACE, Files
from tests.faults._warm import run

A = AgentStream("r1", "r", "a")
STEPS_OLDER, STEPS = 45, 90
STEP_BYTES = 100_000
"""Size of a step, so that the log has three blocks of 4 MB, and its older copy two."""

BOUND_S = 60.0


def stopped(home: Path) -> None:
    """Wait until no process uses a data directory."""
    assert server.is_freed(ServerFiles(home), time.monotonic() + BOUND_S)


def marked(home: Path, workspace: str, position: int) -> None:
    """Wait until the mark exists."""
    until_s = time.monotonic() + BOUND_S
    while True:
        kept = marks.read(home, workspace)
        if kept is not None and kept.mark.chained >= position:
            return
        assert time.monotonic() < until_s, kept
        time.sleep(0.02)


def steps(first: int, last: int) -> list[tuple[StreamId, Commit]]:
    """Return an agent's steps, each a commit of 100 KB."""
    return [
        (
            A,
            commit(
                1 + number,
                StepRequested(
                    step=number,
                    tool="t",
                    effects=Effects.PURE,
                    call="c",
                    fingerprint="f",
                    arguments=msgspec.Raw(b'"%b"' % os.urandom(STEP_BYTES // 2).hex().encode()),
                ),
            ),
        )
        for number in range(first, last + 1)
    ]


def begun() -> list[tuple[StreamId, Commit]]:
    """Return the run of the steps."""
    life = commit(1, RunStarted(workflow="w"), AgentJoined(agent="a", role="r"), epoch=0)
    began = SessionBegan(epoch=1, agent="a", role="r", server_version="x", protocol_version="y")
    return [(RunStream("r1"), life), (A, commit(1, began))]


def long_run(record: hansard.Record) -> None:
    """Record a run whose state is long enough for snapshots, and read the state."""
    with record.run("long", agent="a", role="r") as session:
        for number in range(210):
            session.message("user", f"{number}")
    record.state(session.run)


def tabled(home: Path) -> None:
    """Bring the tables up to the log, and wait for the mark."""
    command = ["-m", "hansard", "sql", "--format", "csv", "SELECT position FROM progress"]
    done = run(command, cwd=home, env=environment(home), timeout=BOUND_S)
    assert done.returncode == 0, done.stderr
    marked(home, WORKSPACE, int(done.stdout.split()[-1]))


def copied(source: Path, target: Path) -> None:
    """Copy an unused data directory."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("users", "state.json"))


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Make the undamaged original that every test copies and none uses."""
    folder = tmp_path_factory.mktemp("whole")
    files = Files(folder / "data", folder / "older")
    with hansard.connect(workspace=WORKSPACE, data_dir=files.home) as record:
        make_runs(record)
        long_run(record)
        plant(files.home, WORKSPACE, *begun(), *steps(1, STEPS_OLDER))
        tabled(files.home)
    stopped(files.home)
    copied(files.home, files.older)
    with hansard.connect(workspace=WORKSPACE, data_dir=files.home):
        plant(files.home, WORKSPACE, *steps(STEPS_OLDER + 1, STEPS))
        tabled(files.home)
    stopped(files.home)
    assert (len(files.blocks()), len(files.blocks(home=files.older))) == (3, 2)
    assert files.blocks("snap")[0].stat().st_size > 0
    return files


@pytest.fixture
def files(whole: Files, tmp_path: Path) -> Iterator[Files]:
    """Yield a copy to damage."""
    mine = Files(tmp_path / "data", whole.older)
    copied(whole.home, mine.home)
    yield mine
    stopped(mine.home)


@pytest.fixture
def cli(
    files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    """Yield the command line over that copy, in this process."""

    def run(*arguments: object) -> Ran:
        words = ["--data-dir", files.home, "-w", WORKSPACE, *arguments]
        return ran(capsys, monkeypatch, words)

    yield run
    structlog.reset_defaults()
