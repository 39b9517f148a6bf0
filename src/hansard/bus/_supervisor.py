"""The supervisor of the embedded broker: `python -m hansard.bus._supervisor DIR DURABILITY BINARY`.

Starts nats-server, restarts it on the same port when it dies, and stops it when the last user is
gone. Users hold the write end of a FIFO; its read end hangs up when there is none. A lock file
settles the race between the last one leaving and the next one coming.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from hansard.bus.server import Durability, Login, Paths, ServerInfo

GRACE_S = 0.5
"""How long the last user may be gone before the broker stops: a quick next one finds it running."""

TICK_MS = 100
"""How often the broker's process is looked at."""

FIRST_USER_S = 30.0
"""How long the supervisor waits for the user that started it."""

READY_S = 25.0
"""How long nats-server may take to answer: opening a store of ten million commits fits."""

STOP_S = 1.0
"""How long nats-server may take to stop before it is killed: all it had acknowledged is safe."""

RESTARTS_MAX, RESTARTS_WINDOW_S = 5, 60.0
"""More deaths than this in that time, and the supervisor gives up."""

SYNC_INTERVAL = {Durability.STRICT: "always", Durability.RELAXED: "10ms"}
"""`strict`: fsync before each acknowledgement. `relaxed`: at most about 14 ms unsynced."""

PR_SET_PDEATHSIG = 1

DENIED = tuple(
    f"$JS.API.STREAM.{verb}.>"
    for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "RESTORE", "SNAPSHOT")
)
"""What the runtime user may not ask: it appends and reads, it never changes a stream."""


class Logins(msgspec.Struct):
    """What survives a restart: generated passwords, and the port clients know."""

    admin: Login
    runtime: Login
    system: Login
    port: int = 0


def main(arguments: list[str]) -> int:
    """Run until the last user is gone. 0: stopped in order; 1: given up; 3: another one runs."""
    root, durability, binary = arguments
    paths = Paths(Path(root))
    owner = os.open(paths.owner, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 3
    supervisor = Supervisor(paths, Durability(durability), binary)
    signal.signal(signal.SIGTERM, supervisor.on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return supervisor.run()
    finally:
        supervisor.stop()
        os.close(owner)


class Supervisor:
    """One broker and its users."""

    def __init__(self, paths: Paths, durability: Durability, binary: str) -> None:
        self._paths = paths
        self._durability = durability
        self._binary = binary
        self._server: subprocess.Popen[bytes] | None = None
        self._deaths: deque[float] = deque()
        self._stopping = False
        self._logins = _logins(paths)

    def on_signal(self, *_: object) -> None:
        """Asked to stop."""
        self._stopping = True

    def run(self) -> int:
        """Watch users and server."""
        _stop_leftover(self._paths)
        users = self._open_users()
        self._start()
        poller = select.poll()
        poller.register(users, select.POLLIN)
        first = time.monotonic() + FIRST_USER_S
        gone_since: float | None = None
        while not self._stopping:
            if not self._keep_running():
                return 1
            events = dict(poller.poll(TICK_MS)).get(users, 0)
            now = time.monotonic()
            if events & select.POLLIN:
                os.read(users, 4_096)
                first = float("inf")
            if events & select.POLLHUP:
                gone_since = now if gone_since is None else gone_since
                if now - gone_since >= GRACE_S and self._leave(poller, users):
                    return 0
                time.sleep(TICK_MS / 2_000)
            else:
                gone_since = None
                if now > first:
                    return 0
        return 0

    def _open_users(self) -> int:
        self._paths.users.unlink(missing_ok=True)
        os.mkfifo(self._paths.users, 0o600)
        return os.open(self._paths.users, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _leave(self, poller: select.poll, users: int) -> bool:
        """Stop, unless somebody is joining right now."""
        lock = os.open(self._paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        try:
            if not dict(poller.poll(0)).get(users, 0) & select.POLLHUP:
                return False
            self.stop()
            return True
        finally:
            os.close(lock)

    def _keep_running(self) -> bool:
        server = self._server
        if server is None or server.poll() is None:
            return True
        now = time.monotonic()
        self._deaths.append(now)
        while self._deaths and self._deaths[0] < now - RESTARTS_WINDOW_S:
            self._deaths.popleft()
        print(f"nats-server ended with {server.returncode}", file=sys.stderr, flush=True)
        if len(self._deaths) > RESTARTS_MAX:
            return False
        self._start()
        return True

    def _start(self) -> None:
        port = self._logins.port if _is_free(self._logins.port) else _free_port()
        self._logins.port = port
        _write(self._paths.logins, msgspec.json.encode(self._logins))
        _write(self._paths.config, msgspec.json.encode(self._config(port)))
        self._server = subprocess.Popen(  # noqa: S603 -- the binary that `join` found
            [self._binary, "-c", str(self._paths.config)],
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 -- this process has one thread
        )
        version = self._await_ready(port)
        if version is None:
            return
        info = ServerInfo(
            f"nats://127.0.0.1:{port}",
            self._durability,
            self._logins.admin,
            self._logins.runtime,
            self._logins.system,
            self._server.pid,
            os.getpid(),
            version,
        )
        _write(self._paths.state, msgspec.json.encode(info))

    def _config(self, port: int) -> dict[str, Any]:
        """nats-server reads JSON as a form of its own configuration."""
        logins = self._logins
        runtime = {"publish": {"deny": list(DENIED)}}
        return {
            "host": "127.0.0.1",
            "port": port,
            "server_name": f"hansard-{logins.admin.password[:8]}",
            "jetstream": {
                "store_dir": str(self._paths.store),
                "sync_interval": SYNC_INTERVAL[self._durability],
            },
            "accounts": {
                "HANSARD": {
                    "jetstream": "enabled",
                    "users": [
                        msgspec.to_builtins(logins.admin),
                        msgspec.to_builtins(logins.runtime) | {"permissions": runtime},
                    ],
                },
                "SYS": {"users": [msgspec.to_builtins(logins.system)]},
            },
            "system_account": "SYS",
        }

    def _await_ready(self, port: int) -> str | None:
        """The server's version once it answers as it should; None where it died instead."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and not self._stopping:
            if self._server is None or self._server.poll() is not None:
                return None
            version = _ask(port, self._logins.runtime)
            if version is not None:
                return version
            time.sleep(0.02)
        return None

    def stop(self) -> None:
        """Stop the server, and take away what says that it runs. Safe to call again."""
        self._paths.state.unlink(missing_ok=True)
        self._paths.users.unlink(missing_ok=True)
        server, self._server = self._server, None
        if server is None or server.poll() is not None:
            return
        server.terminate()
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _die_with_parent() -> None:
    """Have the kernel end nats-server when this supervisor is killed (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _logins(paths: Paths) -> Logins:
    try:
        return msgspec.json.decode(paths.logins.read_bytes(), type=Logins)
    except FileNotFoundError:
        return Logins(_new_login("admin"), _new_login("runtime"), _new_login("system"))


def _new_login(user: str) -> Login:
    return Login(user, secrets.token_urlsafe(24))


def _write(path: Path, data: bytes) -> None:
    """Replace a file whole, readable by this user only."""
    new = path.with_suffix(path.suffix + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _is_free(port: int) -> bool:
    if not port:
        return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _ask(port: int, login: Login) -> str | None:
    """The version of a server that answers, knows the login and has JetStream on."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            reader = connection.makefile("rb")
            info = msgspec.json.decode(reader.readline().removeprefix(b"INFO "))
            hello = {"verbose": False, "pedantic": False, "user": login.user, "pass": login.password}
            connection.sendall(b"CONNECT " + msgspec.json.encode(hello) + b"\r\nPING\r\n")
            answer = reader.readline()
    except (OSError, msgspec.DecodeError):
        return None
    if answer.strip() != b"PONG" or not info.get("jetstream"):
        return None
    version: str = info["version"]
    return version


def _stop_leftover(paths: Paths) -> None:
    """Stop a server whose supervisor was killed where the kernel did not do so."""
    try:
        info = msgspec.json.decode(paths.state.read_bytes(), type=ServerInfo)
    except (FileNotFoundError, msgspec.DecodeError):
        return
    paths.state.unlink(missing_ok=True)
    said = subprocess.run(  # noqa: S603 -- a fixed command
        ["/bin/ps", "-o", "command=", "-p", str(info.server_pid)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    if str(paths.config) in said:
        with contextlib.suppress(ProcessLookupError):
            os.kill(info.server_pid, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
