"""A broker that all tests of imports share, and the command line over it."""

import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

import hansard
from tests.cli.support import Call, Ran, environment, ran
from tests.faults._warm import python


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a data directory whose broker stays up."""
    folder = tmp_path_factory.mktemp("imports") / "data"
    with hansard.connect(workspace="held", data_dir=folder, durability="strict"):
        yield folder


_numbers = itertools.count(1)


@pytest.fixture
def workspace() -> str:
    """Return the name of a workspace that no other test uses; nobody has made it."""
    return f"i{next(_numbers)}"


@pytest.fixture
def bring_in(
    home: Path, workspace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    """Run `hansard import` in this process: `bring_in("chat-jsonl", file)`."""

    def run(*arguments: object, command: str = "import", into: str = workspace) -> Ran:
        argv = ["--data-dir", home, "-w", into, command, *arguments]
        return ran(capsys, monkeypatch, argv)

    yield run
    structlog.reset_defaults()


@pytest.fixture
def start(home: Path, workspace: str) -> Callable[..., "subprocess.Popen[bytes]"]:
    """Start the command line as a process of its own."""

    def begin(*arguments: object, **more: object) -> "subprocess.Popen[bytes]":
        argv = ["-w", workspace, *arguments]
        return subprocess.Popen(
            [python(), "-m", "hansard", *map(str, argv)],
            env=environment(home),
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},  # type: ignore[call-overload]  # whatever a test gives
        )

    return begin
