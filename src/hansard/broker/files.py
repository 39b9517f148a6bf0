"""The data directory of an embedded server: its files, and the fact that each one proves.

    join.lock         flock, held by a process that joins and by the supervisor that decides to stop
    store.lock        flock, held by the supervisor and, inherited, by its nats-server: free only
                      when both have ended, so that no two servers ever open one store
    users             FIFO, read by the supervisor; each user holds its write end open
    state.json        the ServerInfo while the server answers; proves nothing without the FIFO
    credentials.json  server name, logins and last port; outlive the server
    nats.conf         the server's configuration, written at each start
    access.*          its restricted logins: see `hansard.broker.logins`
    server.log        output of supervisor and server; server.log.1 is the previous one
    server.error      reason why the last supervisor gave up
    server.obstacle   reason why the running server cannot write: of fixed size from the start, and
                      overwritten in place, since on a full disk no file can be created or grow
    nats/             the JetStream store
    .gitignore        so that git never includes any of it

A FIFO rather than a socket, because a socket's path is limited to about 100 bytes. All files are
0600.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import secrets
import select
import stat
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hansard.bus.file_lock import PRIVATE_DIR, PRIVATE_FILE, release, replace_private, take_by

LOCK_POLL_S = 0.01
"""Pause between two attempts to take a lock, in seconds."""

LOG_BYTES_MAX = 8 * 1024 * 1024
"""Size in bytes from which the log is moved to an old log; one old log is kept."""

TAIL_BYTES_MAX = 4096
TAIL_LINES_MAX = 20
"""Lines of the log that an error quotes."""

GITIGNORE = b"# The record of a workspace, with its logins: never to be committed.\n*\n"

OBSTACLE_BYTES = 4096

METADATA = ("meta.inf", "meta.sum")
"""Files that identify a stream to nats-server: its configuration, and a checksum of that. Both are
written when the stream is created.
"""

SYNCED_AFTER_S = 120.0
"""Age in seconds from which an unchanged file is known to be on disk: Linux writes it after 30 s.
"""


_T = TypeVar("_T")


class Durability(enum.Enum):
    """Guarantee of an ack of the embedded server."""

    STRICT = "strict"
    """On disk: the server syncs before it acks (`sync_interval: always`)."""

    RELAXED = "relaxed"
    """In the operating system; on disk about 14 ms later (`sync_interval: 10ms`)."""


class Login(msgspec.Struct, frozen=True):
    """A user of the server. Its representation does not show the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(user={self.user!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("user", self.user)]


class ServerInfo(msgspec.Struct, frozen=True):
    """A running embedded server. `server_pid` changes when the supervisor restarts it."""

    url: str
    durability: Durability
    admin: Login
    runtime: Login
    system: Login
    server_pid: int
    supervisor_pid: int
    version: str


class Credentials(msgspec.Struct, frozen=True):
    """State that outlives a server: its name, its logins and its last port (0: none yet)."""

    name: str
    admin: Login
    runtime: Login
    system: Login
    port: int = 0


class _File:
    """The path of a file or folder in the data directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, files: ServerFiles, _: type) -> Path:
        return files.root / self._name


class ServerFiles:
    """The files of one data directory. Methods raise OSError as the file system does."""

    def __init__(self, root: Path) -> None:
        self.root = root

    join_lock = _File("join.lock")
    """Lock held by a process that starts or joins a server."""
    store_lock = _File("store.lock")
    """Lock held by the process that has the store open."""
    users = _File("users")
    """The FIFO whose write end each user holds open."""
    state = _File("state.json")
    """State that the supervisor wrote last."""
    config = _File("nats.conf")
    """The server's configuration."""
    access = _File("access.json")
    """The restricted logins."""
    access_lock = _File("access.lock")
    """Lock held while the restricted logins change."""
    log = _File("server.log")
    """Output of the server and its supervisor."""
    error = _File("server.error")
    """Reason why the last supervisor gave up."""
    obstacle = _File("server.obstacle")
    """Reason why the server cannot write."""
    copied = _File("copy.json")
    """Mark of a private copy, naming its origin: `hansard.broker.private_copy`."""
    store = _File("nats")
    """JetStream's own folder."""
    credentials = _File("credentials.json")
    """The logins, which outlive a server."""

    def stream(self, name: str) -> Path:
        """Return the folder of one of our account's streams, as nats-server lays them out."""
        return self.store / "jetstream" / "HANSARD" / "streams" / name

    def sync_metadata(self, name: str) -> None:
        """Sync a stream's new metadata, and the folders above it: under `relaxed` the server syncs
        only messages.
        """
        folder = self.stream(name)
        try:
            changed_s = (folder / METADATA[0]).stat().st_mtime
        except FileNotFoundError:
            return  # removed while the server runs: the next start reports it missing
        if time.time() - changed_s > SYNCED_AFTER_S:
            return
        above = [each for each in folder.parents if each.is_relative_to(self.root)]
        for path in (*(folder / each for each in METADATA), folder / "msgs", folder, *above):
            sync(path)
        with contextlib.suppress(PermissionError):  # no permission to open it
            sync(self.root.parent)

    def write_metadata(self, name: str, content: Mapping[str, bytes]) -> None:
        """Replace a stream's metadata on disk. Only while no server runs."""
        folder = self.stream(name)
        for each in METADATA:
            replace_private(folder / each, content[each])
        sync(folder)

    def create(self) -> None:
        """Create the directory, readable by its owner only.

        An existing one gets that mode if it is empty or already ours; the mode of a directory with
        other content is not changed.
        """
        self.root.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
        if not self.root.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(self.root))
        is_open = stat.S_IMODE(self.root.stat().st_mode) & ~PRIVATE_DIR
        if is_open and (self.join_lock.exists() or not any(self.root.iterdir())):
            self.root.chmod(PRIVATE_DIR)
        ignored = self.root / ".gitignore"
        if not ignored.exists():
            replace_private(ignored, GITIGNORE)

    # ------------------------------------------------------------ users

    def enter(self) -> int | None:
        """Open a write end of the FIFO: its holder is a user. None if no supervisor reads it.

        Raises FileExistsError if the path holds another kind of file.
        """
        try:
            fd = os.open(self.users, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise FileExistsError(errno.EEXIST, "not a FIFO", str(self.users))

    def receive(self) -> int:
        """Open the read end of the FIFO, created if absent: from now on processes can enter.

        Its POLLHUP means that there is no user. Linux reports it only after a first writer has
        opened and closed the FIFO, so this function does that once.
        """
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self.users, PRIVATE_FILE)
        fd = os.open(self.users, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileExistsError(errno.EEXIST, "not a FIFO", str(self.users))
        os.close(os.open(self.users, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        return fd

    # ------------------------------------------------------------ state

    def read_state(self) -> ServerInfo | None:
        """Return the state that the supervisor wrote last. Raises msgspec.DecodeError for another
        version's.
        """
        return _read(self.state, ServerInfo)

    def write_state(self, info: ServerInfo) -> None:
        """Write the state for the users."""
        replace_private(self.state, msgspec.json.encode(info))

    def write_error(self, text: str) -> None:
        """Write the reason why the supervisor gives up."""
        replace_private(self.error, text.encode(errors="surrogateescape"))

    def read_error(self) -> str | None:
        """Return why the last supervisor gave up; None if it did not."""
        try:
            return self.error.read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return None

    def write_obstacle(self, text: str = "") -> None:
        """Record why the server cannot write; empty if it can. Needs no disk space after the first
        call.
        """
        content = text.encode(errors="replace")[:OBSTACLE_BYTES].ljust(OBSTACLE_BYTES)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.obstacle, flags, PRIVATE_FILE)
        try:
            os.pwrite(fd, content, 0)
        finally:
            os.close(fd)

    def read_obstacle(self) -> str:
        """Return why the server cannot write; empty if no obstacle is known."""
        try:
            return self.obstacle.read_bytes().decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def read_credentials(self) -> Credentials:
        """Return the logins of this directory; create them if none can be read."""
        with contextlib.suppress(msgspec.DecodeError):
            credentials = _read(self.credentials, Credentials)
            if credentials is not None:
                return credentials
        admin, runtime, system = (
            Login(user, secrets.token_hex(24)) for user in ("admin", "runtime", "system")
        )
        created = Credentials(f"hansard-{secrets.token_hex(8)}", admin, runtime, system)
        self.write_credentials(created)
        return created

    def write_credentials(self, credentials: Credentials) -> None:
        """Write the logins of this directory."""
        replace_private(self.credentials, msgspec.json.encode(credentials))

    # ------------------------------------------------------------ log

    def put_log_aside(self) -> bool:
        """Copy a long log to `server.log.1` and empty it; return whether that was done.

        Processes that have it open continue in the same file, at its new end. A line written during
        the copy is lost.
        """
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > LOG_BYTES_MAX:
                replace_private(self.log.with_name("server.log.1"), self.log.read_bytes())
                os.truncate(self.log, 0)
                return True
        return False

    def open_log(self) -> int:
        """Open the log for appending, after moving a long one."""
        self.put_log_aside()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self.log, flags, PRIVATE_FILE)

    def log_tail(self, since: int = 0) -> str:
        """Return the last lines of the log, none from before byte `since`."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(min(since, size), size - TAIL_BYTES_MAX))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-TAIL_LINES_MAX:])


def sync(path: Path) -> None:
    """Sync a file or folder to disk, if the file system can sync folders."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)


def hung_up(fd: int) -> bool:
    """Return whether the FIFO's other side is closed: no user for a read end, no reader for a write
    end.
    """
    poll = select.poll()  # select.select refuses descriptors over 1023
    poll.register(fd, 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


@contextlib.contextmanager
def locked(path: Path, deadline: float) -> Generator[bool, None, None]:
    """Acquire a lock file before the deadline (time.monotonic) and hold it; yield whether it was
    acquired.

    Tries at least once.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        yield take_by(deadline, fd, LOCK_POLL_S)
    finally:
        release(fd)


def _read(path: Path, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
