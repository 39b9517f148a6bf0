"""The end of a forked program; see tests/faults/_warm.py."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable


def ends_early(run: Callable[[], object]) -> None:
    """Run a program to its end, as its process does: its threads, what it has to do at exit, what
    it wrote. What the interpreter does after that, taking each module and object apart, is most of
    what a fork costs. It is left out, but where the program fails or ends with a text; and
    `make test-full` forks none.
    """
    code = 0
    try:
        run()
    except SystemExit as left:
        if not isinstance(left.code, int | None):
            raise
        code = left.code or 0
    threading._shutdown()  # type: ignore[attr-defined]  # no stub has it
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody reads it, or it is closed: the interpreter's to tell
        raise SystemExit(code) from None
    os._exit(code & 0xFF)
