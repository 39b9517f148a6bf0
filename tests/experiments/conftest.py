"""The broker, the workspaces and the two clients of the agents' tests; the command line over them,
and programs to be killed.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from hansard.cli import main
from tests.agents.conftest import data_dir, lab, record, workspace
from tests.cli.support import Call, Ran
from tests.faults._broker import NatsServer
from tests.faults.support import Stage

__all__ = ["call", "data_dir", "lab", "record", "server", "stage", "workspace"]


@pytest.fixture
def call(
    data_dir: Path,
    workspace: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Call]:
    """Run the command line in this process: `call("experiment", "list", "--json")`."""

    def run(*arguments: object) -> Ran:
        given = ["--data-dir", data_dir, "-w", workspace, *arguments]
        monkeypatch.setattr(sys, "argv", ["hansard", *map(str, given)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        code = left.value.code
        return Ran(code if isinstance(code, int) else 0, told.out, told.err)

    yield run
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A strict server of its own for the programs that are killed."""
    server = NatsServer(tmp_path_factory.mktemp("server"), "strict")
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def stage(server: NatsServer, tmp_path: Path, workspace: str) -> Iterator[Stage]:
    """Programs to be killed, and what is on record of them."""
    stage = Stage(server, tmp_path, workspace)
    try:
        yield stage
    finally:
        stage.close()
