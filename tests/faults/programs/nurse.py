"""Imports what programs import, and forks them; see tests/faults/_warm.py."""

from __future__ import annotations

import contextlib
import fcntl
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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.faults._ending import ends_early

IMPORTED = (
    "duckdb",
    "eventsourcing.application",
    "hansard.agents.aggregates",
    "hansard.cli",
    "hansard.bus.jetstream",
    "hansard.bus.portal",
    "hansard.state.native",
    "hansard.client.connect",
    "hansard.client.record",
    "tests.faults._inside",
)
"""Modules that programs import, or begin to import when they connect; none starts a thread."""

OF_MCP = (
    "hansard.cli.mcp",
    "hansard.service.mcp.server",
    "mcp.server.mcpserver",
    "anyio._backends._asyncio",
    "nanoarrow",
)
"""Modules that MCP clients and servers import besides, twice as much as all else; imported at the
first request for a command or program with `mcp` in its name.
"""

JOB_BYTES_MAX = 1 << 20
FDS_MAX = 16
"""Largest number of descriptors: three of an owner's job (report of its end, stdout, stderr), or
all that a stub was started with.
"""

BEYOND = 200
"""Lowest descriptor for a child's temporary copies, while it puts its own into place."""


class Nurse:
    """Fork what its owner and the stubs request, and report how each ends."""

    def __init__(self, line: socket.socket, door: socket.socket) -> None:
        self._line = line
        self._door = door
        self._stubs: dict[socket.socket, int] = {}
        self._owners: dict[int, int] = {}
        self._theirs: list[tuple[int, int | None]] = []
        self._has_mcp = False
        self._woken, wake = socket.socketpair()
        self._woken.setblocking(False)
        wake.setblocking(False)
        self._wake = wake
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def work(self) -> dict[str, Any]:
        """Return, in a child, its job. The nurse ends when its owner can send no more."""
        with selectors.DefaultSelector() as selector:
            for one in (self._line, self._woken, self._door):
                selector.register(one, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        self._reap()
                        continue
                    asking: Any = key.fileobj
                    if asking is self._door:
                        stub, _ = self._door.accept()
                        selector.register(stub, selectors.EVENT_READ)
                        continue
                    request, fds = _request(asking)
                    if not request and asking is self._line:
                        os._exit(0)  # an ordinary exit would report frozen objects as leaks
                    if not request:
                        selector.unregister(asking)
                        self._end(asking)
                        continue
                    job: dict[str, Any] = json.loads(request)
                    if not self._has_mcp and any("mcp" in part for part in job["command"]):
                        have(OF_MCP)
                        self._has_mcp = True
                    if self._fork(fds, job.get("fds", [None, 1, 2]), asking):
                        return job

    def _fork(self, fds: list[int], numbers: list[int | None], asking: socket.socket) -> bool:
        """Fork; return True in the child, which has its own output and nothing of the nurse."""
        stub = asking is not self._line
        owner = os.dup(asking.fileno()) if stub else fds[0]
        if pid := os.fork():
            with contextlib.suppress(OSError):  # a stub was killed: its end is heard of next
                os.write(owner, b"%d" % pid)
            self._owners[pid] = owner
            if stub:
                self._stubs[asking] = pid
            for one in fds if stub else fds[1:]:
                os.close(one)
            return False
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        beyond = [fcntl.fcntl(one, fcntl.F_DUPFD, BEYOND) for one in fds]
        for one in {*fds, owner, *self._owners.values()}:
            os.close(one)
        for each in {self._line, self._door, self._woken, self._wake, asking, *self._stubs}:
            each.close()
        self._theirs = list(zip(beyond, numbers, strict=True))
        return True

    def take(self) -> None:
        """Take over, in a child, the descriptors of its request."""
        for one, number in self._theirs:
            if number is not None:
                os.dup2(one, number)
            os.close(one)
        # A stream checks at creation whether it can seek; a pipe in place of a file cannot.
        sys.stdout = open(1, "w", encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115 -- it stays open

    def _end(self, stub: socket.socket) -> None:
        """Forget a stub that was killed or has received its program's end."""
        stub.close()
        pid = self._stubs.pop(stub, 0)
        if pid in self._owners:  # not yet reaped: the number is its own
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                owner = self._owners.pop(pid)
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    os.write(owner, b"%d" % os.waitstatus_to_exitcode(status))
                os.close(owner)


def _request(asking: socket.socket) -> tuple[bytes, list[int]]:
    """Return a request and its descriptors, empty if the sender is gone."""
    try:
        request, fds, _, _ = socket.recv_fds(asking, JOB_BYTES_MAX, FDS_MAX)
    except ConnectionError:
        return b"", []
    return request, fds


def become(job: dict[str, Any]) -> None:
    """Become the requested program, as `python PROGRAM ARGUMENTS`, `-m MODULE` or `-c TEXT`."""
    program, *arguments = job["command"]
    os.chdir(job["cwd"])
    mine = os.environ["PYTHONPATH"].split(os.pathsep)
    os.environ.clear()
    os.environ.update(job["env"])
    theirs = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    sys.path[: 1 + len(mine)] = [str(Path(program).resolve().parent), *theirs]
    gc.unfreeze()  # which DuckDB's binding tells of as of a leak
    end_of = ends_early  # what this module calls its own is gone in a moment
    main = sys.modules["__main__"].__dict__
    named: dict[str, Any] = {}
    run: Callable[[], object]
    match program:
        case "-m":
            sys.path[0] = str(Path.cwd())
            sys.argv = arguments
            module = functools.partial(runpy.run_module, arguments[0], run_name="__main__")
            run = functools.partial(module, alter_sys=True)
        case "-c":
            sys.path[0] = ""
            sys.argv = ["-c", *arguments[1:]]
            code = compile(arguments[0], "<string>", "exec", dont_inherit=True)
            run = functools.partial(exec, code, main)
        case _:
            sys.argv = job["command"]
            path = Path.cwd() / program
            code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
            run = functools.partial(exec, code, main)
            named = {"__file__": str(path), "__doc__": None}
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    main |= named
    end_of(run)


def have(names: Iterable[str]) -> None:
    """Import the modules, and freeze all objects, since forks share them."""
    for each in names:
        importlib.import_module(each)
    assert len(list(Path("/proc/self/task").iterdir())) == 1
    gc.collect()
    gc.freeze()


have((*IMPORTED, *sys.argv[3:]))
line, door = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:3])
nurse = Nurse(line, door)
job = nurse.work()
nurse.take()
become(job)
