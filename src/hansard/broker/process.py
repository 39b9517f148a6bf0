"""One nats-server process: its configuration, port, start, first response and end."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from hansard.broker.files import Credentials, Durability, Login, ServerFiles

HOST = "127.0.0.1"

PORT_MIN, PORT_MAX = 20_000, 29_999
"""Below the ports that systems assign to outgoing connections (Linux from 32768, macOS from 49152).

In that range, a client that retries while the server is down could be assigned the server's port,
connect to itself, and so block the server's restart.
"""

PORT_TRIES_MAX = 50

SYNC_INTERVALS = {Durability.STRICT: "always", Durability.RELAXED: '"10ms"'}

RUNTIME_DENIED = tuple(
    f"$JS.API.STREAM.{verb}.>"
    for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "RESTORE", "SNAPSHOT")
)
"""Denied requests, since events are never deleted or changed: `UPDATE` with a small `max_msgs`
would delete them too.
"""

PROBE_TIMEOUT_S = 1.0
"""Timeout for one step of a probe, in seconds: the server answers at once or does not listen yet.
"""

RELOAD_TIMEOUT_S = 10.0
"""Timeout for a reload, in seconds: it takes milliseconds unless the machine is overloaded."""

LINE_BYTES_MAX = 64 * 1024
OUTPUT_BYTES_MAX = 64 * 1024
_OBSTACLE = re.compile(rb"\[ERR\] (.*(?:critical write error: |will be DISABLED).*)", re.IGNORECASE)

TERM_S = 1.2
"""Time from SIGTERM to SIGKILL in seconds: less than two seconds including the supervisor's grace
period. An interrupted write is on disk or unacknowledged either way; a clean end makes the next
start faster.
"""

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15

_CONFIG = Path(__file__).with_name("server.conf").read_text("utf-8")
"""The configuration of the server, with the places of its settings."""


def config(
    place: ServerFiles, credentials: Credentials, durability: Durability, port: int
) -> bytes:
    """Return the server's configuration file."""
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
    """Return the account's own users, as entries of its configuration."""
    admin, runtime = _quoted_login(credentials.admin), _quoted_login(credentials.runtime)
    denied = ", ".join(quoted(subject) for subject in RUNTIME_DENIED)
    limits = f"permissions: {{ publish: {{ deny: [{denied}] }} }}"
    return [
        f"{{ user: {admin.user}, password: {admin.password} }}",
        f"{{ user: {runtime.user}, password: {runtime.password}, {limits} }}",
    ]


def quoted(text: str) -> str:
    r"""Return a string of the configuration: bytes other than plain ASCII are written as `\xHH`.

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
    """Return the preferred port if it is free (0: none), else another free one."""
    candidates = [preferred] if preferred else []
    candidates += random.SystemRandom().sample(range(PORT_MIN, PORT_MAX + 1), PORT_TRIES_MAX)
    for port in (*candidates, 0):
        with socket.socket() as probe_socket:
            # As the server does: lingering connections of its predecessor do not count.
            probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe_socket.bind((HOST, port))
            except OSError:
                continue
            bound: int = probe_socket.getsockname()[1]
            return bound
    raise OSError(f"no free port on {HOST}")


def launch(binary: Path, place: ServerFiles, lock_fd: int) -> subprocess.Popen[bytes]:
    """Start the server. It inherits only the store's lock; its output is read from `stderr`, which
    does not block.

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
    """Return the descriptor of the server's output."""
    if process.stderr is None:
        raise AssertionError("it was made with stderr=PIPE")
    return process.stderr.fileno()


def read_output(process: subprocess.Popen[bytes]) -> bytes:
    """Return the server's output since the last call, without waiting."""
    text = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(output(process), OUTPUT_BYTES_MAX):
            text += part
    return text


def obstacle(lines: bytes) -> str:
    """Return why the server cannot write, if its output tells: the last of the lines that do.

    After such an error nats-server stores nothing more on that stream, or at all, until it is
    restarted, and does not answer either.
    """
    errors = _OBSTACLE.findall(lines)
    return errors[-1].decode(errors="replace").strip() if errors else ""


def _die_with_parent() -> Callable[[], None] | None:
    """Return the function that the child runs before exec so that it never outlives the supervisor;
    Linux only.

    It uses SIGKILL, because no process is left to check that a gentler signal is obeyed.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        if os.getppid() != parent:  # it died before the call above
            os.kill(os.getpid(), signal.SIGKILL)

    return arrange


def name_process(name: str) -> None:
    """Set the name shown by `ps -o comm`; Linux only."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server: cleanly if it is fast enough, else by a kill."""
    process.terminate()
    try:
        process.wait(TERM_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def probe(port: int, name: str, login: Login) -> str | None:
    """Return the version of the server of that name once it accepts the login with JetStream on, or
    None.

    The name tells it from another process that took the port.
    """
    try:
        with connect(port, name, login) as server:
            info = server.info
            return str(info.get("version", "")) if info.get("jetstream") is True else None
    except OSError:
        return None


def reload(server: Connection) -> None:
    """Make a server reload its configuration; return when it has done so. Connections of users that
    still exist with the same permissions are kept. Raises ConnectionError, TimeoutError.
    """
    server.socket.settimeout(RELOAD_TIMEOUT_S)
    inbox = server.ask(f"$SYS.REQ.SERVER.{server.info['server_id']}.RELOAD")
    answer: dict[str, Any] = msgspec.json.decode(server.answer(inbox)[1])
    if "error" in answer:
        raise ConnectionError(str(answer["error"].get("description", "it refused")))


class Connection:
    """A user's plain connection to the server: one request at a time. Raises OSError."""

    def __init__(self, connection: socket.socket, file: BinaryIO) -> None:
        self.socket = connection
        self._file = file
        self._numbers = itertools.count(1)
        self.info: dict[str, Any] = {}
        """The server's first message."""

    def greet(self, port: int, name: str, login: Login) -> None:
        """Log in at the server of that name."""
        try:
            self.info = msgspec.json.decode(self._line().removeprefix(b"INFO "))
        except msgspec.DecodeError as error:
            raise ConnectionError(f"no NATS server answers on port {port}") from error
        if self.info.get("server_name") != name:
            raise ConnectionError(f"another server answers on port {port}")
        hello = {"user": login.user, "pass": login.password, "verbose": False, "headers": True}
        head = b"CONNECT " + msgspec.json.encode(hello)
        self.socket.sendall(head + b"\r\nSUB _INBOX.plain.* 1\r\nPING\r\n")
        while (line := self._line()) != b"PONG":
            if not line.startswith((b"INFO ", b"PING")):
                raise ConnectionError(f"the server answered {line[:200].decode(errors='replace')}")

    def ask(self, subject: str, data: bytes = b"") -> bytes:
        """Send a request; return the inbox of its answers."""
        inbox = b"_INBOX.plain.%d" % next(self._numbers)
        self.socket.sendall(b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), inbox, len(data), data))
        return inbox

    def answer(self, inbox: bytes) -> tuple[bytes, bytes]:
        """Return the next message for a request: its headers and body; messages of other requests
        are skipped.
        """
        while True:
            line = self._line()
            if line.startswith((b"HMSG ", b"MSG ")):
                words = line.split()
                size = int(words[-1])
                headed = int(words[-2]) if words[0] == b"HMSG" else 0
                payload = self._file.read(size + 2)
                if len(payload) < size + 2:
                    raise ConnectionError("the server ended the connection")
                if words[1] == inbox:
                    return payload[:headed], payload[headed:size]
            elif line == b"PING":
                self.socket.sendall(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise ConnectionError(line.decode(errors="replace"))

    def _line(self) -> bytes:
        line = self._file.readline(LINE_BYTES_MAX)
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server ended the connection")
        return line[:-2]


@contextlib.contextmanager
def connect(port: int, name: str, login: Login) -> Generator[Connection]:
    """Connect as a user of the server of that name. Raises OSError."""
    with (
        socket.create_connection((HOST, port), PROBE_TIMEOUT_S) as connection,
        connection.makefile("rb") as file,
    ):
        server = Connection(connection, file)
        server.greet(port, name, login)
        yield server


def is_ours(pid: int, place: ServerFiles) -> bool:
    """Return whether that process is a nats-server run with this place's configuration."""
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:  # no such process, or not Linux
        text = subprocess.run(command, capture_output=True, check=False).stdout  # noqa: S603 -- fixed arguments
    return b"nats-server" in text and os.fsencode(place.config) in text
