"""Services of `hansard up`: SQL of a role's own tables, and the status of it."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from hansard.broker.lease import join
from tests.cli.support import ran
from tests.faults._warm import python
from tests.service.support import House
from tests.service.test_kills import up

pytestmark = pytest.mark.thorough

Status = Callable[[], dict[str, Any]]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a record of its own, as `hansard up` projects the workspaces of all other tests."""
    folder = tmp_path_factory.mktemp("broker")
    with join(folder):
        yield folder


@pytest.fixture
def status(
    other: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Status]:
    """Yield a function that returns `hansard status --json` of the workspace."""
    where = ("--data-dir", other.data_dir, "--workspace", other.workspace)

    def workspace_status() -> dict[str, Any]:
        lines = ran(capsys, monkeypatch, ["status", "--json", *where]).lines
        return next(line for line in lines if line["kind"] == "workspace")

    yield workspace_status
    structlog.reset_defaults()


@pytest.mark.thorough(quick="service/test_fairness.py::test_a_service_that_hangs_is_reported")
def test_the_status_says_whether_a_service_answers(other: House, status: Status) -> None:
    """A service that does not answer is distinguished from an absent one."""
    with other.trusted():
        assert status()["served"] is False
        with up(other) as process:
            assert status()["served"] is True
            process.send_signal(signal.SIGSTOP)
            assert status()["served"] is None
            process.send_signal(signal.SIGCONT)
            assert status()["served"] is True
        assert status()["served"] is False


LEFT = """
import os, sys, hansard
record = hansard.connect(credentials=sys.argv[1])
record.open("w", run="left-open")
os._exit(0)
"""


def test_a_session_that_a_client_left_is_not_of_the_service(
    other: House, capfd: pytest.CaptureFixture[str]
) -> None:
    """A service that stops does not warn of the sessions of its clients, which may resume them."""
    with other.trusted(), up(other) as process:
        subprocess.run([python(), "-c", LEFT, str(other.login())], check=True, timeout=120)
        process.terminate()
        assert process.wait(60) == 0
    assert "never closed" not in capfd.readouterr().err
