"""Shared fixtures: a broker, fresh workspaces, both clients, the command line, programs to kill."""

import contextlib
import inspect
import itertools
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

import hansard
from hansard.broker.lease import join
from hansard.client.record import Record
from tests.agents.forked import forked
from tests.agents.twins import Lab, is_scenario, twins
from tests.cli.support import Call, Ran, ran
from tests.faults._broker import NatsServer
from tests.faults.support import Stage
from tests.folders import BROKERS, remove_later
from tests.late import run_late

STREAMS_MAX = 100
"""Streams after which a broker is replaced: mostly two a workspace."""

_numbers = itertools.count(1)


class _Brokers:
    """One broker at a time, replaced once it holds many streams, which make it slow."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._open = contextlib.ExitStack()
        self._folder: Path | None = None

    def folder(self) -> Path:
        """Return the data directory of one that has room."""
        if self._folder is None or _streams(self._folder) > STREAMS_MAX:
            self.close()
            self._folder = self._factory.mktemp(BROKERS)
            self._open.enter_context(join(self._folder))
        return self._folder

    def close(self) -> None:
        """Stop using it; it stays while resources that a test left open stay."""
        self._open.close()
        if self._folder is not None:
            remove_later(self._folder)


@contextlib.contextmanager
def together(record: Record, run: str = "r", **roles: str) -> Iterator[tuple[Any, ...]]:
    """Sessions of several agents in one run, by their names and roles."""
    with contextlib.ExitStack() as stack:
        yield tuple(
            stack.enter_context(record.run("w", run=run, agent=agent, role=role))
            for agent, role in roles.items()
        )


def _streams(folder: Path) -> int:
    return sum(1 for _ in folder.glob("nats/jetstream/*/streams/*"))


@pytest.fixture(scope="module", autouse=True)
def _late_imports(request: pytest.FixtureRequest) -> None:
    """Run what collection skips of the file; see `tests.late`."""
    if hasattr(request.module, "LATE"):
        run_late(request.module)


AFRESH = {"bus", "faults", "sql_sandbox"}
"""Folders whose tests show workers and supervisors as processes of their own."""


@pytest.fixture(scope="module", autouse=True)
def _processes_are_forked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fork the processes that the package starts, except in the folders `AFRESH`."""
    folders = {*request.path.relative_to(Path(__file__).parent).parts}
    with contextlib.nullcontext() if AFRESH & folders else forked():
        yield


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Have each async test that takes a `lab: Lab` or a `record: TwinRecord` played with either
    client.
    """
    if not isinstance(collector, pytest.Module):
        return
    try:
        module = collector.obj
    except (Exception, pytest.skip.Exception):  # noqa: BLE001 -- reported when it is imported again
        for name, loaded in [*sys.modules.items()]:
            if getattr(loaded, "__file__", None) == str(collector.path):
                del sys.modules[name]
        return
    # Other folders have a `Lab` of their own.
    has_twins = getattr(module, "Lab", None) is Lab or hasattr(module, "TwinRecord")
    for name, test in [*vars(module).items()] if has_twins else ():
        if name.startswith("test") and inspect.iscoroutinefunction(test) and is_scenario(test):
            setattr(module, name, twins(test))


@pytest.fixture(scope="session")
def _brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Brokers]:
    brokers = _Brokers(tmp_path_factory)
    yield brokers
    brokers.close()
    logging.disable()  # the connections that tests left open, as a kill would, lose it now


@pytest.fixture(scope="module")
def data_dir(_brokers: _Brokers) -> Path:
    """Return the data directory of a server that stays up until the last test of the file is
    done.
    """
    return _brokers.folder()


@pytest.fixture
def workspace() -> str:
    """Return the name of a workspace that nobody has used."""
    return f"lab-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(params=["sync", "async"])
def lab(request: pytest.FixtureRequest, data_dir: Path, workspace: str) -> Lab:
    """Return a fresh workspace, for each of the two clients."""
    return Lab(request.param, data_dir, workspace)


@pytest.fixture
def record(data_dir: Path, workspace: str) -> Iterator[Record]:
    """Yield a fresh workspace, opened by the sync client."""
    with hansard.connect(workspace, data_dir=data_dir) as opened:
        yield opened


@pytest.fixture
def call(
    data_dir: Path,
    workspace: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Call]:
    """Run the command line in this process: `call("experiment", "list", "--json")`."""

    def run(*arguments: object) -> Ran:
        words = ["--data-dir", data_dir, "-w", workspace, *arguments]
        return ran(capsys, monkeypatch, words)

    yield run
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """Yield a strict server, for the programs that are killed, which no test may kill."""
    server = NatsServer(tmp_path_factory.mktemp("server"), "strict")
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def stage(server: NatsServer, tmp_path: Path, workspace: str) -> Iterator[Stage]:
    """Return the stage for programs to be killed and resumed: their world and their record."""
    stage = Stage(server, tmp_path, workspace)
    try:
        yield stage
    finally:
        stage.close()
