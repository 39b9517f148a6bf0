"""One nats-server process: its configuration, port, start, first answer and end."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from hansard.broker.files import PRIVATE_FILE, Credentials, Durability, Login, ServerFiles
from hansard.broker.lease import BadDataDir, ServerError
from hansard.bus.errors import ReadOnly
from hansard.bus.file_lock import release, take

# ------------------------------ private copies of data directories that cannot be written
#
# A server writes where it reads: its store recovers itself, and its mark moves on. So a read-only
# data directory is copied into a temporary folder (mode 0700, in TMPDIR), to be read alone:
#
# copy.json         the data directory that it is a copy of
# copy.lock         flock, held by the process that made it until its end
#
# The last user removes it: the supervisor of its server, or the process that made it, whichever
# ends later. The next process that makes one removes what a kill of both left. It makes no hard
# links, since a server that writes a file in place would write the original.

FOLDERS = ("marks", "projections", "nats")
"""What is copied, in this order: the log last, so that nothing knows more than it does, also where
somebody writes meanwhile. The files beside them are the server's own, and are made again.
"""

PREFIX = "hansard-read-only-"
LOCK = "copy.lock"

ROOM_BYTES_MIN = 64 * 1024 * 1024
"""What is to be left free beside a copy: its server and its tables grow a little."""

UNLOCKED_S = 60.0
"""A folder without a lock is half made; after so long nobody makes it any more."""

MIB = 1024 * 1024


class NotCopied(ServerError):
    """A data directory that cannot be written, and of which no private copy can be made."""

    def __init__(self, data_dir: Path, fact: str) -> None:
        super().__init__(
            f"the data directory {str(data_dir)!r} cannot be written, and to be read it needs a "
            f"private copy, which cannot be made ({fact}): make room, name another folder for "
            "temporary files (TMPDIR), or give back the rights to write"
        )
        self.data_dir = data_dir


class _Copy(msgspec.Struct, frozen=True):
    of: str


def origin(data_dir: Path) -> str | None:
    """What a data directory is a private copy of; None where it is none."""
    try:
        return msgspec.json.decode(ServerFiles(data_dir).copied.read_bytes(), type=_Copy).of
    except (OSError, msgspec.DecodeError):
        return None


def refuse(data_dir: Path) -> None:
    """Raise ReadOnly where a data directory is a private copy."""
    of = origin(data_dir)
    if of is not None:
        raise ReadOnly(of)


def readable(data_dir: Path, tell: Callable[[str], None]) -> Path:
    """The data directory itself where it can be written or holds no record; else a private copy,
    made once a process, and told. Raises NotCopied, BadDataDir (it cannot be read).
    """
    folder = Path(os.path.realpath(data_dir))
    try:
        if not (folder / "nats").is_dir() or writable(folder):
            return data_dir
    except PermissionError as error:
        raise BadDataDir(folder, error) from error
    with _making:
        made = _made.get((os.getpid(), folder))
        if made is None:
            try:
                made = _make(folder, tell)
            except PermissionError as error:
                raise BadDataDir(folder, error) from error
            except OSError as error:
                raise NotCopied(folder, str(error)) from error
            _made[os.getpid(), folder] = made
    return made


def writable(folder: Path) -> bool:
    """Whether a data directory can be written by this process, as the system says it."""
    folders = [folder, *(path for name in FOLDERS if (path := folder / name).exists())]
    files = [path for name in ("join.lock", "store.lock") if (path := folder / name).exists()]
    effective = os.access in os.supports_effective_ids
    return all(
        os.access(path, mode, effective_ids=effective)
        for paths, mode in ((folders, os.R_OK | os.W_OK | os.X_OK), (files, os.R_OK | os.W_OK))
        for path in paths
    )


_made: dict[tuple[int, Path], Path] = {}
_making = threading.Lock()


def _make(folder: Path, tell: Callable[[str], None]) -> Path:
    """Copy what is read of a data directory. Raises OSError, NotCopied."""
    temporary = Path(tempfile.gettempdir())
    _sweep(temporary)
    files = list(_files(folder))
    size = sum(length for _, length in files)
    found = os.statvfs(temporary)
    free = found.f_bavail * found.f_frsize
    if size + ROOM_BYTES_MIN > free:
        room = f"it needs {(size + ROOM_BYTES_MIN) // MIB:,} MiB"
        raise NotCopied(folder, f"{room}, {str(temporary)!r} has {free // MIB:,} MiB free")
    copy = Path(tempfile.mkdtemp(prefix=PREFIX, dir=temporary))
    lock = os.open(copy / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    take(lock)
    atexit.register(_leave, os.getpid(), copy, lock)
    tell(
        f"read-only: {str(folder)!r} cannot be written; working on a private copy of "
        f"{-(-size // MIB):,} MiB at {str(copy)!r}, which goes away by itself"
    )
    for path, _ in files:
        _copy(folder / path, copy / path)
    (copy / "nats").mkdir(exist_ok=True)
    ServerFiles(copy).copied.write_bytes(msgspec.json.encode(_Copy(str(folder))))
    return copy


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """The regular files to copy, with their sizes. Raises OSError where a folder cannot be read."""

    def unreadable(error: OSError) -> None:
        if error.errno != errno.ENOENT:  # somebody removed it meanwhile
            raise error

    for name in FOLDERS:
        for within, folders, names in os.walk(folder / name, onerror=unreadable):
            folders[:] = [each for each in folders if not each.startswith(".")]
            for each in names:
                path = Path(within, each)
                with contextlib.suppress(FileNotFoundError):
                    found = path.lstat()
                    if stat.S_ISREG(found.st_mode):
                        yield path.relative_to(folder), found.st_size


def _copy(source: Path, target: Path) -> None:
    """Copy one file; nothing where it was removed meanwhile."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(source, target)
        target.chmod(PRIVATE_FILE)


# ---------------------------------------------------------------- its end


def remove_unused(copy: Path) -> None:
    """Remove a private copy that nobody uses; called by its supervisor, which ends, too."""
    if origin(copy) is not None and _free(copy / LOCK) and _free(ServerFiles(copy).store_lock):
        shutil.rmtree(copy, ignore_errors=True)


def _leave(pid: int, copy: Path, lock: int) -> None:
    """At the end of the process that made a copy: remove it, unless its server's supervisor is
    still there, which does it then.
    """
    if os.getpid() != pid:  # a forked child: it is its parent's
        return
    os.close(lock)
    if _free(ServerFiles(copy).store_lock):
        shutil.rmtree(copy, ignore_errors=True)


def _sweep(temporary: Path) -> None:
    """Remove what killed processes left."""
    for copy in temporary.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = copy.lstat()
            if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
                continue
            begun = (copy / LOCK).exists() or time.time() - found.st_mtime > UNLOCKED_S
            if begun and _free(copy / LOCK) and _free(ServerFiles(copy).store_lock):
                shutil.rmtree(copy, ignore_errors=True)


def _free(lock: Path) -> bool:
    """Whether nobody holds a lock file, or there is none."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        return take(fd)
    finally:
        release(fd)


HOST = "127.0.0.1"

PORT_MIN, PORT_MAX = 20_000, 29_999
"""Below what systems hand out to outgoing connections (Linux from 32768, macOS from 49152).

In that range, a client that retries while the server is down could be given the server's port as
its own and so connect to itself, and the server could not come back.
"""

PORT_TRIES_MAX = 50

SYNC_INTERVALS = {Durability.STRICT: "always", Durability.RELAXED: '"10ms"'}

RUNTIME_DENIED = tuple(
    f"$JS.API.STREAM.{verb}.>"
    for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "RESTORE", "SNAPSHOT")
)
"""Events are never deleted or changed: `UPDATE` with a small `max_msgs` would delete them, too."""

PROBE_TIMEOUT_S = 1.0
"""For one step of a probe: the server answers at once or does not listen yet."""

RELOAD_TIMEOUT_S = 10.0
"""For a reload: it takes milliseconds, on a machine that is not overloaded."""

PROBE_BYTES_MAX = 64 * 1024
OUTPUT_BYTES_MAX = 64 * 1024
_OBSTACLE = re.compile(rb"\[ERR\] (.*(?:critical write error: |will be DISABLED).*)", re.IGNORECASE)

TERM_S = 1.2
"""From SIGTERM to SIGKILL: together with the supervisor's grace less than two seconds. An ended
write is on disk or unacknowledged either way; a clean end makes the next start quicker."""

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

_CONFIG = """\
# Written by hansard at each start of the server; changes are lost.
server_name: {name}
host: {host}
port: {port}
max_payload: 1MB
jetstream {{
  store_dir: {store}
  sync_interval: {sync_interval}
  max_file: 1PB  # the disk is the limit; the default is three quarters of what is free at the start
}}
system_account: SYS
accounts {{
  SYS {{ users: [ {{ user: {system.user}, password: {system.password} }} ] }}
  HANSARD {{
    jetstream: enabled
    include "access.conf"
  }}
}}
"""


def config(
    place: ServerFiles, credentials: Credentials, durability: Durability, port: int
) -> bytes:
    """The server's configuration file."""
    return os.fsencode(
        _CONFIG.format(
            name=quoted(credentials.name),
            host=quoted(HOST),
            port=port,
            store=quoted(str(place.store)),
            sync_interval=SYNC_INTERVALS[durability],
            system=_quoted_login(credentials.system),
        )
    )


def logins(credentials: Credentials) -> list[str]:
    """The account's own users, as entries of its configuration."""
    admin, runtime = _quoted_login(credentials.admin), _quoted_login(credentials.runtime)
    denied = ", ".join(quoted(subject) for subject in RUNTIME_DENIED)
    limits = f"permissions: {{ publish: {{ deny: [{denied}] }} }}"
    return [
        f"{{ user: {admin.user}, password: {admin.password} }}",
        f"{{ user: {runtime.user}, password: {runtime.password}, {limits} }}",
    ]


def quoted(text: str) -> str:
    r"""A string of the configuration: what is not plain ASCII goes in as `\xHH`, byte by byte.

    Unquoted, `$X` would be a variable and `#` a comment. The grammar is nats-server's conf/lex.go.
    """
    if text.isascii() and text.isprintable() and not {'"', "\\"} & set(text):
        return f'"{text}"'
    plain = range(0x20, 0x7F)
    escaped = (
        chr(byte) if byte in plain and byte not in b'"\\' else f"\\x{byte:02x}"
        for byte in os.fsencode(text)
    )
    return '"' + "".join(escaped) + '"'


def _quoted_login(login: Login) -> Login:
    return Login(quoted(login.user), quoted(login.password))


def free_port(preferred: int) -> int:
    """The preferred port if it is free (0: none), else another that is."""
    candidates = [preferred] if preferred else []
    candidates += random.SystemRandom().sample(range(PORT_MIN, PORT_MAX + 1), PORT_TRIES_MAX)
    for port in (*candidates, 0):
        with socket.socket() as probe_socket:
            # As the server does: connections of its predecessor that linger do not count.
            probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe_socket.bind((HOST, port))
            except OSError:
                continue
            bound: int = probe_socket.getsockname()[1]
            return bound
    raise OSError(f"no free port on {HOST}")


def launch(binary: Path, place: ServerFiles, lock_fd: int) -> subprocess.Popen[bytes]:
    """Start the server. It inherits the store's lock and nothing else; what it says comes through
    its `stderr`, which does not block.

    Raises OSError if the binary cannot be run.
    """
    process = subprocess.Popen(  # noqa: S603 -- the binary that `join` found
        [binary, "-c", place.config],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        pass_fds=(lock_fd,),
        preexec_fn=_die_with_parent(),  # noqa: PLW1509 -- the supervisor has one thread
    )
    os.set_blocking(output(process), False)
    return process


def output(process: subprocess.Popen[bytes]) -> int:
    """The descriptor of what the server says."""
    if process.stderr is None:
        raise AssertionError("it was made with stderr=PIPE")
    return process.stderr.fileno()


def read_output(process: subprocess.Popen[bytes]) -> bytes:
    """What the server has said since the last call, without waiting."""
    found = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(output(process), OUTPUT_BYTES_MAX):
            found += part
    return found


def obstacle(lines: bytes) -> str:
    """Why the server cannot write, if it says so: the last of the lines that do.

    After such an error nats-server stores nothing more on that stream, or at all, until it is
    started again, and does not answer either.
    """
    found = _OBSTACLE.findall(lines)
    return found[-1].decode(errors="replace").strip() if found else ""


def _die_with_parent() -> Callable[[], None] | None:
    """What the child does before exec so that it never outlives the supervisor; Linux only.

    SIGKILL, because nobody is left to see to it that a gentler signal is obeyed.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        if os.getppid() != parent:  # it died before we asked
            os.kill(os.getpid(), signal.SIGKILL)

    return arrange


def name_process(name: str) -> None:
    """Set what `ps -o comm` shows; Linux only."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server: cleanly if it hurries, in any case for certain."""
    process.terminate()
    try:
        process.wait(TERM_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def probe(port: int, name: str, login: Login) -> str | None:
    """The version of the server of that name once it lets the login in with JetStream on, or None.

    The name tells it from a stranger who took the port.
    """
    try:
        with entered(port, name, login) as (_, greeting):
            return str(greeting.get("version", "")) if greeting.get("jetstream") is True else None
    except OSError:
        return None


@contextlib.contextmanager
def asking(port: int, name: str, login: Login) -> Generator[Callable[[], None]]:
    """A connection to the server of that name; gives what has it reload its configuration.

    That returns when the server has done so. Connections of users that are still there, with what
    they may do as before, are kept. Raises ConnectionError, TimeoutError.
    """
    with entered(port, name, login) as (connection, greeting):

        def reload() -> None:
            connection.settimeout(RELOAD_TIMEOUT_S)
            subject = f"$SYS.REQ.SERVER.{greeting['server_id']}.RELOAD"
            connection.sendall(f"SUB here 1\r\nPUB {subject} here 0\r\n\r\n".encode())
            value = _answer(connection, b"MSG ")
            size = int(value.rpartition(b" ")[2])
            if size > PROBE_BYTES_MAX:
                raise ConnectionError(f"an answer of {size:,} bytes")
            body = b""
            while len(body) < size and (part := connection.recv(size - len(body))):
                body += part
            answer: dict[str, Any] = msgspec.json.decode(body)
            if "error" in answer:
                raise ConnectionError(str(answer["error"].get("description", "it refused")))

        yield reload


@contextlib.contextmanager
def entered(
    port: int, name: str, login: Login, *, headers: bool = False
) -> Generator[tuple[socket.socket, dict[str, Any]]]:
    """A connection as a user of the server of that name, and what it said of itself.

    With `headers` answers come with theirs. Raises OSError.
    """
    with socket.create_connection((HOST, port), PROBE_TIMEOUT_S) as connection:
        info = _line(connection)
        try:
            fields = msgspec.json.decode(info.removeprefix(b"INFO "), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ConnectionError(f"no NATS server answers on port {port}") from error
        if fields.get("server_name") != name:
            raise ConnectionError(f"another server answers on port {port}")
        hello = {"user": login.user, "pass": login.password, "verbose": False, "headers": headers}
        connection.sendall(b"CONNECT " + msgspec.json.encode(hello) + b"\r\nPING\r\n")
        _answer(connection, b"PONG")
        yield connection, fields


def _answer(connection: socket.socket, word: bytes) -> bytes:
    """The next line, but for what a server tells unasked. Raises ConnectionError for another."""
    line = _line(connection)
    while line.startswith((b"INFO ", b"PING")):
        line = _line(connection)
    if not line.startswith(word):
        raise ConnectionError(f"the server answered {line[:200].decode(errors='replace')!r}")
    return line


def _line(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\r\n"):
        ahead = connection.recv(PROBE_BYTES_MAX, socket.MSG_PEEK)  # no byte more than the line goes
        if not ahead or len(received) > PROBE_BYTES_MAX:
            raise ConnectionError("the line did not end")
        received += connection.recv(ahead.find(b"\n") + 1 or len(ahead))
    return received[:-2]


def is_ours(pid: int, place: ServerFiles) -> bool:
    """Whether that process is a nats-server run with this place's configuration."""
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:  # no such process, or no Linux
        text = subprocess.run(command, capture_output=True, check=False).stdout  # noqa: S603 -- words of our own
    return b"nats-server" in text and os.fsencode(place.config) in text
