"""Wire format of the broker's messages, and the private errors of this package.

Formats: ADR-8 (push and heartbeats), ADR-31 (Direct Get) and ADR-50 (atomic batch) of the NATS
architecture notes, checked against nats-server 2.15.1.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Protocol

import msgspec

from hansard.bus.errors import BusError
from hansard.bus.log import Origin
from hansard.bus.sources import Message
from hansard.domain.errors import Corrupt

EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST = "Nats-Expected-Last-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
ORIGIN = "Hansard-Origin"
"""Header with the origin of a copied commit, as one line of JSON."""

HEADER_LINE = b"NATS/1.0\r\n"


def block(headers: dict[str, str]) -> bytes:
    """Render headers as sent over the wire. Ours are tokens and subjects: nothing to escape."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return HEADER_LINE + lines.encode() + b"\r\n"


FIRST = block({EXPECTED_SEQUENCE: "0"})
"""The header of an ordinary commit: its subject has no message yet."""

SEALED = 10109
"""`err_code` for: this generation of the log accepts no message any more."""

TOO_LARGE = 10054
"""`err_code` for: larger than the stream's limit. Only the guard of a deleted generation has one
(`streams.guard_config`); it is sealed a moment after it was made.
"""

STORE_FAILED = 10077
LOST_RACE = frozenset({10071, 10164})
"""`err_code`s for: another message exists, or a condition does not hold."""

UNFINISHED = frozenset({10176, 10210})
"""`err_code`s for a batch that the server did not receive whole, or had no room for."""


_STATUS = re.compile(rb"NATS/1\.0 (\d{3})(?: ([^\r]*))?\r\n")
_STORED = re.compile(
    rb"\r\nNats-Subject: ([^\r]+)\r\nNats-Sequence: (\d+)\r\nNats-Time-Stamp: ([^\r]+)\r\n"
)
_SECONDS_KEPT_MAX = 1_024
_seconds: dict[bytes, int] = {}
_ORIGIN = ORIGIN.encode()
_origin = msgspec.json.Decoder(Origin)


class Receiver(Protocol):
    """Receives messages on an inbox, inline in the client's read loop. Neither method raises."""

    def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """Receive one message, in order of arrival."""

    def lost(self, error: BusError) -> None:
        """Handle a broken connection: an answer in flight may never arrive."""


class NoAnswer(BusError):
    """The broker did not answer in time, or the connection broke: the outcome is unknown."""


class NotSent(NoAnswer):
    """There was no connection: nothing was sent."""


class NoResponders(NotSent):
    """Nothing was stored, without a responder: JetStream is off, or no stream has the subject."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"there is no responder on {subject!r}: JetStream is not enabled for this account, "
            "or the workspace's streams were not created; start the server with JetStream"
        )
        self.subject = subject


class TooMany(BusError):
    """A wildcard read matched more than 1,024 subjects."""


class Rejected(BusError):
    """JetStream refused a message; nothing of it was stored."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"JetStream answered {code}, {description}")
        self.code = code
        self.description = description

    @property
    def lost_race(self) -> bool:
        """True if it means a conflict. 10077 is any failure to store, also a full disk."""
        if self.code == STORE_FAILED:
            return "per subject" in self.description
        return self.code in LOST_RACE

    @property
    def passing(self) -> bool:
        """True if the same message may be sent again: a batch with a gap, too many batches at once,
        or a lost race with no visible winner.
        """
        return self.lost_race or self.code in UNFINISHED


class Sealed(Rejected):
    """The open generation was sealed, and the next one is not open yet."""

    def __init__(self) -> None:
        super().__init__(
            SEALED,
            "the newest generation of the log is sealed, and the next one was not opened: its roll "
            "was interrupted; finish it with 'hansard tiers roll'",
        )


class Reply:
    """Receives the answer to one request."""

    __slots__ = ("future", "subject")

    def __init__(self, subject: str, future: asyncio.Future[tuple[bytes, bytes]]) -> None:
        self.subject = subject
        self.future = future

    def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:  # noqa: ARG002 -- a Receiver
        """Receive the answer."""
        if not self.future.done():
            self.future.set_result((headers, data))

    def lost(self, error: BusError) -> None:
        """Fail, if no answer arrived before."""
        if not self.future.done():
            self.future.set_exception(error)

    def expire(self) -> None:
        """Cancel the wait."""
        self.lost(NoAnswer(f"no answer on {self.subject!r} in time"))


class ApiError(msgspec.Struct):
    """The error of a JetStream answer."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct):
    """JetStream's answer to a publish; of an atomic batch, `seq` is that of its last message."""

    seq: int = 0
    count: int = 0
    batch: str = ""
    domain: str = ""
    error: ApiError | None = None


_ack = msgspec.json.Decoder(Ack)


def acknowledged(data: bytes, above: int = 0, domain: str | None = None) -> Ack:
    """Return the acknowledgement in the answer to a publish.

    `above` is a position that the stream had reached before the publish was sent; `domain` is its
    JetStream domain, if known. Raises Rejected; NoAnswer where the answer is no acknowledgement,
    none of a message sent since, or one of a stream with the same subjects in another region.
    """
    try:
        ack = _ack.decode(data)
    except msgspec.DecodeError as error:
        raise NoAnswer(f"not an acknowledgement: {data[:80]!r}") from error
    if ack.error is not None:
        if ack.error.err_code in (SEALED, TOO_LARGE):
            raise Sealed
        raise Rejected(ack.error.err_code or ack.error.code, ack.error.description)
    first = ack.seq - (ack.count or 1) + 1
    if first <= above:
        raise NoAnswer(f"position {first} was acknowledged, and the stream was at {above} before")
    if domain is not None and ack.domain != domain:
        raise NoAnswer(f"region {ack.domain!r} acknowledged it, and the stream is in {domain!r}")
    return ack


def status(headers: bytes) -> tuple[int, str]:
    """Parse the status code and text of a status message; (0, "") for a message with content."""
    if headers[8:9] != b" ":
        return 0, ""
    match = _STATUS.match(headers)
    if match is None:
        return 0, ""
    return int(match.group(1)), (match.group(2) or b"").decode("utf-8", "replace")


def header(headers: bytes, name: bytes) -> bytes:
    """Return the last value of a header; b"" if there is none. The server's own come last."""
    start = headers.rfind(b"\r\n" + name + b":")
    if start < 0:
        return b""
    start += len(name) + 3
    return headers[start : headers.find(b"\r\n", start)].strip()


def stamp_ns(text: bytes) -> int:
    """Parse `2026-01-31T12:00:00.123456789Z` to ns since 1970. Trailing zeros may be missing. The
    part up to the second is cached: messages of one read mostly share it, which makes this 0.3 us
    instead of 1.5 us.
    """
    seconds = _seconds.get(text[:19])
    if seconds is None:
        if len(_seconds) >= _SECONDS_KEPT_MAX:
            _seconds.clear()
        moment = datetime.fromisoformat(text[:19].decode() + "+00:00")
        seconds = _seconds[text[:19]] = int(moment.timestamp()) * 1_000_000_000
    if text[-1:] != b"Z":
        message = f"{text!r} is not a time in UTC"
        raise ValueError(message)
    return seconds + int(text[20:-1].ljust(9, b"0"))


def stored(headers: bytes, data: bytes) -> Message:
    """Parse the stored message of a Direct Get answer. Raises Corrupt if the headers do not
    identify it.

    A writer's own headers come first, so the server's are searched from the last `Nats-Stream` on.
    """
    match = _STORED.search(headers, headers.rfind(b"\r\nNats-Stream: "))
    if match is None:
        raise Corrupt("a Direct Get answer", f"its headers are {headers[:200]!r}")
    subject, position, stamp = match.groups()
    return Message(int(position), stamp_ns(stamp), subject.decode(), data, origin(headers))


def origin(headers: bytes) -> Origin | None:
    """Parse a copied commit's origin; None for any other message. Raises Corrupt."""
    if _ORIGIN not in headers:
        return None
    header_text = header(headers, _ORIGIN)
    try:
        return _origin.decode(header_text)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"header {ORIGIN}", f"{header_text[:80]!r} is not an origin ({error})"
        ) from error


def rendered(headers: dict[str, str]) -> bytes:
    """Render parsed headers as on the wire, for the case that nats-py's parser cannot be bypassed.

    Its keys for the status line are `Status` and `Description`.
    """
    rest = dict(headers)
    line = " ".join(filter(None, ["NATS/1.0", rest.pop("Status", ""), rest.pop("Description", "")]))
    return line.encode() + b"\r\n" + block(rest)[len(HEADER_LINE) :]


def parsed(headers: bytes) -> dict[str, str]:
    """Parse rendered headers to the dict that nats-py's public `publish` takes; the inverse of
    `block`.
    """
    lines = headers.decode().split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines if line)


def command(subject: str, reply: str, headers: bytes, payload: bytes) -> bytes:
    """Return the bytes of one publish (PUB, or HPUB with headers)."""
    if not headers:
        return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
        subject.encode(),
        reply.encode(),
        len(headers),
        len(headers) + len(payload),
        headers,
        payload,
    )
