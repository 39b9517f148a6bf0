"""Runs commands in one process: JSON lists on stdin, JSON results on stdout; `kill` kills it."""

import contextlib
import io
import json
import os
import signal
import sys

from hansard.cli import run_line


def run(arguments: list[str]) -> dict[str, object]:
    """Run one command and return its output."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    sys.argv = ["hansard", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run_line()
        except SystemExit as left:
            code = left.code
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


for line in sys.stdin:
    given = json.loads(line)
    if given == ["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.write(json.dumps(run(given)) + "\n")
    sys.stdout.flush()
