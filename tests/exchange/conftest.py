"""One broker for all tests of exports, a workspace of its own for each, and the command line."""

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

import hansard
from tests.cli.support import Call, Ran, environment, ran
from tests.exchange.support import Zoo, zoo_of

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a data directory whose broker stays up."""
    folder = tmp_path_factory.mktemp("exchange") / "data"
    with hansard.connect(workspace="held", data_dir=folder, durability="strict"):
        yield folder


@pytest.fixture
def workspace() -> str:
    """Return the name of a workspace that no other test uses; nobody has made it."""
    return f"x{next(_numbers)}"


@pytest.fixture(scope="session")
def zoo(home: Path) -> Zoo:
    """Runs of every kind, in the workspace `zoo`; no test writes there."""
    return zoo_of(home)


@pytest.fixture
def call(
    home: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    """Run the command line in this process: `call("x1", "import", "events", file)`."""

    def run(into: str, *arguments: object) -> Ran:
        argv = ["--data-dir", home, "-w", into, *arguments]
        return ran(capfdbinary, monkeypatch, argv)

    yield run
    structlog.reset_defaults()


@pytest.fixture
def start(home: Path) -> Callable[..., "subprocess.Popen[bytes]"]:
    """Start the command line as a process of its own."""

    def begin(into: str, *arguments: object, **more: object) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "hansard", "-w", into, *arguments]
        return subprocess.Popen(
            [*map(str, argv)],
            env=environment(home),
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},  # type: ignore[call-overload]  # whatever a test gives
        )

    return begin
