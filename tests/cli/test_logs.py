"""Format of log lines by destination: a terminal, a file or pipe, a service's collector."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard import testing
from hansard.bus.loggers import unexpected
from tests.cli.support import environment
from tests.faults._warm import run

SECRET = "the words of somebody"
LINE = "from hansard.bus.loggers import logger; logger('hansard.x').warning('it is so', run='r')"
PLAIN = "from hansard import logging; logging.setup(); "
SERVICE = "from hansard import logging; logging.setup(service=True); "
OWN = "import structlog; structlog.configure(processors=[lambda *_: {}]); "


def _at_a_terminal(home: Path, code: str) -> str:
    """Return a program's output with a terminal as stderr."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", code], env=environment(home), check=True, stderr=theirs
        )
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def _piped(home: Path, code: str) -> str:
    child = run(["-c", code], cwd=home, env=environment(home), timeout=60)
    assert child.returncode == 0, child.stderr
    return child.stderr


@pytest.mark.slow
def test_a_terminal_has_lines_for_people_and_all_else_has_json(tmp_path: Path):
    """In colours at a terminal; one object a line through a pipe, and of a service at both."""
    shown = _at_a_terminal(tmp_path, PLAIN + LINE)
    assert "it is so" in shown
    assert "\x1b[" in shown
    assert "{" not in shown
    for output in (
        _piped(tmp_path, PLAIN + LINE),
        _piped(tmp_path, SERVICE + LINE),
        _at_a_terminal(tmp_path, SERVICE + LINE),
    ):
        [line] = output.splitlines()
        entry = json.loads(line)
        assert (entry["event"], entry["level"], entry["run"]) == ("it is so", "warning", "r")
        assert entry["timestamp"]


@pytest.mark.slow
def test_a_program_that_configured_structlog_is_left_alone(tmp_path: Path):
    """No handler is set: the line goes where the program's configuration sends it."""
    own = "import logging as l; l.basicConfig(format='mine %(message)s %(run)s'); "
    assert _piped(tmp_path, own + OWN + PLAIN + LINE) == "mine it is so r\n"


def test_a_fault_is_reported_by_its_type_and_place_alone():
    """The message and the traceback's lines may hold user data."""
    known: dict[str, int] = {}
    with pytest.raises(KeyError) as raised:
        known[SECRET]
    fields = unexpected(raised.value)
    assert fields["error"] == "KeyError"
    assert fields["where"].startswith("test_logs.py:")
    assert SECRET not in repr(fields)


def test_a_line_of_a_session_names_its_run_and_agent(caplog: pytest.LogCaptureFixture):
    """It has the fields of its session without being handed them."""
    with testing.record() as record, record.run("w", agent="ada", role="reader") as session:

        @session.tool(effects="pure")
        def lines() -> Iterator[int]:
            try:
                yield 1
                yield 2
            finally:
                raise OSError("the file is gone")

        items = iter(lines())
        next(items)
    [line] = [each for each in caplog.records if "half-read stream" in each.getMessage()]
    fields = line.__dict__
    assert (fields["run"], fields["agent"], fields["role"]) == (session.run, "ada", "reader")
