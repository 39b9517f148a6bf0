"""Has all imported that programs import, and forks them; see tests/faults/_warm.py."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

IMPORTED = (
    "duckdb",
    "eventsourcing.application",
    "hansard.agents.aggregates.declare",
    "hansard.cli",
    "hansard.bus.jetstream",
    "hansard.bus.portal",
    "hansard.bus.recorder",
    "hansard.client.connect",
    "hansard.client.record_sync",
    "tests.faults._inside",
)
"""What programs import, or begin to import when they connect; none of it starts a thread."""

JOB_BYTES_MAX = 1 << 20
FDS = 3  # where to tell its end, its stdout, its stderr


class Nurse:
    """Forks what it is asked for, and tells how each ended."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._told: dict[int, int] = {}
        self._woken, wake = socket.socketpair()
        self._woken.setblocking(False)
        wake.setblocking(False)
        self._wake = wake
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def work(self) -> dict[str, Any] | None:
        """In a child: what it is to do. In the nurse: None, when nobody can ask any more."""
        with selectors.DefaultSelector() as selector:
            for one in (self._line, self._woken):
                selector.register(one, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        self._reap()
                        continue
                    said, fds, _, _ = socket.recv_fds(self._line, JOB_BYTES_MAX, FDS)
                    if not said:
                        return None
                    if self._fork(fds):
                        job: dict[str, Any] = json.loads(said)
                        return job

    def _fork(self, fds: list[int]) -> bool:
        """Whether this is the child, which has its own output by now, and nothing of the nurse."""
        told, out, err = fds
        if pid := os.fork():
            os.write(told, b"%d" % pid)
            self._told[pid] = told
            os.close(out)
            os.close(err)
            return False
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for one in (*fds, *self._told.values()):
            os.close(one)
        for each in (self._line, self._woken, self._wake):
            each.close()
        return True

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                told = self._told.pop(pid)
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
                os.close(told)


def become(job: dict[str, Any]) -> None:
    """Be what is asked for, as `python PROGRAM ARGUMENTS` or `python -m MODULE ARGUMENTS` is."""
    program, *arguments = job["command"]
    os.chdir(job["cwd"])
    mine = os.environ["PYTHONPATH"].split(os.pathsep)
    os.environ.clear()
    os.environ.update(job["env"])
    theirs = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[: 1 + len(mine)] = [str(Path(program).resolve().parent), *theirs]
    gc.unfreeze()  # which DuckDB's binding tells of as of a leak
    main = sys.modules["__main__"].__dict__
    run: Callable[[], object]
    if module := program == "-m":
        sys.path[0] = str(Path.cwd())
        sys.argv = arguments
        run = functools.partial(runpy.run_module, arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = job["command"]
        program = str(Path.cwd() / program)
        code = compile(Path(program).read_bytes(), program, "exec", dont_inherit=True)
        run = functools.partial(exec, code, main)
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    main |= {} if module else {"__file__": program, "__doc__": None}
    run()


for each in IMPORTED:
    importlib.import_module(each)
assert len(list(Path("/proc/self/task").iterdir())) == 1
gc.collect()
gc.freeze()
asked = Nurse(socket.socket(fileno=int(sys.argv[1]))).work()
if asked is not None:
    become(asked)
