"""A TCP relay before a nats-server that repeats an acknowledgement and drops the next publish.

Around an election a server acknowledges one entry twice. The relay does the same on purpose: after
`arm`, the next publish to a stream is acknowledged; the one after it, over the same connection,
never arrives, and when it is sent the earlier acknowledgement is sent once more. A client that
takes that for the answer believes a message to be stored that is not.
"""

import contextlib
import enum
import socket
import threading
from collections.abc import Callable, Iterator

import msgspec

READ_BYTES = 64 * 1024
PAYLOADS = (b"PUB", b"HPUB", b"MSG", b"HMSG")


class Repeat(enum.Enum):
    """Place where the second copy of an acknowledgement arrives."""

    SAME_SUBJECT = "on its own reply subject"
    NEXT_SUBJECT = "on the reply subject of the dropped publish"


class _Armed(msgspec.Struct):
    prefix: bytes
    repeat: Repeat


class AckRelay:
    """Listens on `port`, and connects each client to the server. `dropped` counts publishes."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.dropped = 0
        self._armed: _Armed | None = None
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = [self._listening]
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, prefix: str, repeat: Repeat) -> None:
        """Repeat the next acknowledgement of a publish to a subject with this prefix."""
        with self._lock:
            self._armed = _Armed(prefix.encode(), repeat)

    def close(self) -> None:
        """End all connections."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def take_armed(self, subject: bytes) -> _Armed | None:
        """Return the repeat armed for a subject, once."""
        with self._lock:
            armed = self._armed
            if armed is None or not subject.startswith(armed.prefix):
                return None
            self._armed = None
            return armed

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += [client, server]
                _Connection(self, client, server).start()


class _Connection:
    def __init__(self, relay: AckRelay, client: socket.socket, server: socket.socket) -> None:
        self._relay = relay
        self._client, self._server = client, server
        self._subjects: dict[bytes, bytes] = {}
        self._dropping: _Armed | None = None
        self._ack = b""

    def start(self) -> None:
        for pump in (self._up, self._down):
            threading.Thread(target=self._guarded, args=[pump], daemon=True).start()

    def _guarded(self, pump: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            pump()
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _up(self) -> None:
        for words, frame in _frames(self._client):
            expects_ack = words[0] in (b"PUB", b"HPUB") and len(words) == _with_reply(words)
            if expects_ack:
                subject, reply = words[1], words[2]
                self._subjects[reply] = subject
                armed = self._dropping
                if armed is not None and subject.startswith(armed.prefix):
                    self._dropping = None
                    self._relay.dropped += 1
                    word, own, rest = self._ack.split(b" ", 2)
                    again = reply if armed.repeat is Repeat.NEXT_SUBJECT else own
                    self._client.sendall(b" ".join([word, again, rest]))
                    continue
            self._server.sendall(frame)

    def _down(self) -> None:
        for words, frame in _frames(self._server):
            subject = self._subjects.pop(words[1], b"") if words[0] == b"MSG" else b""
            armed = self._relay.take_armed(subject) if b'"seq":' in frame and subject else None
            if armed is not None:
                self._ack, self._dropping = frame, armed
            self._client.sendall(frame)


def _with_reply(words: list[bytes]) -> int:
    """Return the number of words in a publish's first line if it names a reply subject."""
    return 4 if words[0] == b"PUB" else 5


def _frames(source: socket.socket) -> Iterator[tuple[list[bytes], bytes]]:
    """Whole protocol messages as they arrive: the words of the first line, and all bytes."""
    data = b""
    while part := source.recv(READ_BYTES):
        data += part
        while (end := data.find(b"\r\n")) >= 0:
            words, size = data[:end].split(), end + 2
            if words and words[0] in PAYLOADS:
                size += int(words[-1]) + 2
            if len(data) < size:
                break
            yield words or [b""], data[:size]
            data = data[size:]
