"""Limits of the process: an error names the limit that was reached and how to raise it."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hansard
from hansard.cli import reached_limit
from tests.cli.support import environment

pytestmark = pytest.mark.slow


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("files", [8, 10])
@pytest.mark.parametrize("arguments", [("runs",), ("sql", "SELECT 1")], ids=str)
def test_too_many_open_files_names_the_limit(home, record, files, arguments):
    """The cause is no broken file, whichever file was the one too many."""
    with hansard.connect("limits", data_dir=home) as own, own.run("w"):
        pass
    command = shlex.join([sys.executable, "-m", "hansard", *arguments])
    ended = subprocess.run(
        ["sh", "-c", f"ulimit -n {files}; {command}"],
        env={**environment(home), "HANSARD_WORKSPACE": "limits"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("error: too many open files: ")
    assert f"the limit is {files} (ulimit -n)" in ended.stderr
    assert "rebuild" not in ended.stderr


def test_a_question_is_answered_under_low_hard_limits(home: Path, record: hansard.Record) -> None:
    """The worker that answers lowers limits of its own, and never asks for more than it may."""
    with hansard.connect("limits", data_dir=home) as own, own.run("w"):
        pass
    command = shlex.join([sys.executable, "-m", "hansard", "sql", "SELECT 1 AS one"])
    ended = subprocess.run(
        ["sh", "-c", f"ulimit -n 40; {command}"],
        env={**environment(home), "HANSARD_WORKSPACE": "limits"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["one", "1"]), ended.stderr


def test_a_server_without_memory_is_reported_in_two_lines(tmp_path: Path) -> None:
    """The trace of its runtime stays in the log; the error names the limit."""
    command = shlex.join([sys.executable, "-m", "hansard", "runs"])
    ended = subprocess.run(
        ["sh", "-c", f"ulimit -v 300000; {command}"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "nats-server got no memory" in ended.stderr
    assert "ulimit -v" in ended.stderr
    assert len(ended.stderr.splitlines()) == 2


def test_a_limit_is_recognised_by_the_error_that_it_caused() -> None:
    """Memory and threads are recognised; a lock that another process holds is no limit."""
    assert "ulimit -v" in (reached_limit(MemoryError()) or "")
    assert "ulimit -u" in (reached_limit(RuntimeError("can't start new thread")) or "")
    assert reached_limit(BlockingIOError(11, "Resource temporarily unavailable")) is None
    assert reached_limit(RuntimeError("another")) is None
