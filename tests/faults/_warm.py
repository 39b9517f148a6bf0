"""Programs as forks of a process that has imported what they import.

A Python process costs half a second of CPU before it does anything, and kill tests start hundreds.
A forked program is an ordinary process: it has its own session, folder, environment and output, is
killed by SIGKILL, and holds nothing of another program. Two processes fork in turn, so that a
program and its successor differ in hash seeds, as processes do. `make test-full` starts each one
without a fork.

Programs start others by `python`, a replacement for `sys.executable` in commands: a stub that
requests a fork and passes everything on, signals and SIGKILL included.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).parents[2]
NURSE = Path(__file__).with_name("programs") / "nurse.py"
ROUNDS_AFRESH = 100
"""Number of rounds from which each program is a process of its own, without a fork."""

STUB = Path(__file__).with_name("programs") / "stub.py"
CHUNK = 65_536


class Process(Protocol):
    """Interface of a running program that tests use, as of `subprocess.Popen` and `Forked`."""

    pid: int
    returncode: Any

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        ...

    def communicate(self, *, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Wait until nobody writes for it any more, and for its end; what it wrote."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send it a signal."""
        ...


class Forked:
    """A program that was forked; as `subprocess.Popen` with pipes."""

    def __init__(self, owner: socket.socket, out: int, err: int) -> None:
        self.returncode: int | None = None
        self._owner = owner
        self._written = {out: bytearray(), err: bytearray()}
        self._open = [out, err]
        self.pid = int(owner.recv(32))

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            self._owner.settimeout(timeout)
            try:
                status = self._owner.recv(32)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from None
            assert status, "who forked it has ended"
            self.returncode = int(status)
            self._owner.close()
        return self.returncode

    def communicate(self, *, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Wait until nobody writes for it any more, and for its end; what it wrote."""
        until = None if timeout is None else time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for pipe in self._open:
                selector.register(pipe, selectors.EVENT_READ)
            while self._open:
                left = None if until is None else until - time.monotonic()
                ready = [] if left is not None and left <= 0 else selector.select(left)
                if not ready:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
                for key, _ in ready:
                    self._read(selector, key.fd)
        self.wait(None if until is None else max(0.0, until - time.monotonic()))
        out, err = self._written.values()
        return bytes(out), bytes(err)

    def _read(self, selector: selectors.BaseSelector, pipe: int) -> None:
        if chunk := os.read(pipe, CHUNK):
            self._written[pipe] += chunk
            return
        selector.unregister(pipe)
        self._open.remove(pipe)
        os.close(pipe)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, sig: int) -> None:
        """Send it a signal."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)


class Nurse:
    """The outside of a process that forks."""

    def __init__(self, *imported: str) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door = f"hansard-tests-{secrets.token_hex(8)}"
        door.bind(f"\0{self.door}")
        door.listen()
        with theirs, door:
            fds = [theirs.fileno(), door.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, str(NURSE), *map(str, fds), *imported],
                env={"PATH": os.environ.get("PATH", ""), **paths()},
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                start_new_session=True,
            )

    def fork(self, command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Forked:
        """Fork a Python program with its arguments."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        job = json.dumps({"command": list(command), "cwd": str(cwd), "env": dict(env)})
        try:
            socket.send_fds(self._line, [job.encode()], [theirs.fileno(), its_out, its_err])
        finally:
            theirs.close()
            os.close(its_out)
            os.close(its_err)
        return Forked(mine, out, err)

    def close(self) -> None:
        """End it: it leaves when nobody can ask it any more."""
        self._line.close()
        self._process.wait()


def paths() -> dict[str, str]:
    """Return the environment by which a program finds the package and these helpers."""
    return {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONWARNINGS": "error"}


def _none_is_forked() -> bool:
    thorough = int(os.environ.get("ROUNDS", "1")) >= ROUNDS_AFRESH
    return thorough or sys.platform != "linux"  # whose sockets keep messages apart


@functools.cache
def _nurse(*imported: str) -> Nurse:
    nurse = Nurse(*imported)
    atexit.register(nurse.close)
    return nurse


@functools.cache
def python(*imported: str) -> str:
    """Return the replacement for `sys.executable` in a command that is started by a program under
    test or by a client that takes a command.

    The process is a stub; the program runs in a fork, in a session of its own, that has also
    imported these packages. Not for programs that inspect their parent, their terminal or
    descriptors beyond the first three.
    """
    if _none_is_forked():
        return sys.executable
    nurse = _nurse(*imported)
    folder = tempfile.TemporaryDirectory(prefix="hansard-tests-")
    atexit.register(folder.cleanup)
    for name, arguments in (("python", ""), ("hansard", "-m hansard ")):
        script = Path(folder.name, name)
        stub = f"{sys.executable} -IS {STUB} {nurse.door}"
        script.write_text(f'#!/bin/sh\nexec {stub} {arguments}"$@"\n')
        script.chmod(0o700)
    return str(Path(folder.name, "python"))


def commands() -> str:
    """For PATH: where `python` and `hansard` are those, and then what is installed."""
    return f"{Path(python()).parent}{os.pathsep}{Path(sys.executable).parent}"


_turns: Iterator[Nurse] | None = None


def start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], *, afresh: bool = False
) -> Process:
    """Start a Python program in a session of its own, without input; `afresh`: not forked."""
    global _turns  # noqa: PLW0603 -- one pair of them a process, begun where they are first needed
    if afresh or _none_is_forked():
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    if _turns is None:
        other = Nurse()
        atexit.register(other.close)
        _turns = itertools.cycle([_nurse(), other])
    return next(_turns).fork(command, cwd, env)


def run(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a Python program, or `-m` and a module, with arguments to its end."""
    process = start(command, cwd, env)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(
        list(command), process.returncode, out.decode(), err.decode()
    )
