"""File format of exported runs: JSON lines, in sections that can be concatenated.

A section is a header, the commits in the order of the log, each after the blobs it names, and an
end. Lines are numbered from 0; each carries a digest of itself, and the end the hash of all lines
before it, so any damage is detected and located by line. `docs/events-jsonl.md` documents the
format.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from hansard.bus.log import COMMIT_BYTES_MAX, Origin
from hansard.domain.errors import CallerError
from hansard.domain.events import Commit
from hansard.domain.ids import StreamId
from hansard.domain.payload.references import blobs_named

FORMAT = 1
"""Format version; raised when an older reader could not read the output."""

PART_BYTES = 384 * 1024
"""Bytes of a blob in one line, before base64, which adds a third."""

LINE_BYTES_MAX = 4 * COMMIT_BYTES_MAX
"""Longest line, in bytes: a body at most doubles in size as a JSON text."""

DIGEST_CHARACTERS = 32
"""Hex digits of the SHA-256 at the end of a line: 128 bits against damage, not against forgery."""

HEADER_MARK = b'{"kind":"hansard-events",'
"""Prefix of a section's first line."""

_TAIL = b',"digest":"%b"}\n'
_TAIL_BYTES = len(_TAIL % (b"0" * DIGEST_CHARACTERS))
_TAIL_FORM = re.compile(rb',"digest":"[0-9a-f]{32}"}\n')


class Damaged(CallerError):
    """Raised for data that differs from what was exported, or does not fit the workspace; nothing
    of its section was written.
    """


class Missing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run or blob that belongs to the section but is not in it, and the reason."""

    what: str
    why: str


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The role whose view a section holds."""

    role: str


class Header(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="hansard-events",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """First line of a section. `runs` are the requested runs, `carries` all runs in the section.

    `missing` lists runs that others build on. `view` is set for the view of one role, which is not
    a complete record.
    """

    n: int
    format: int
    runs: list[str]
    carries: list[str]
    missing: list[Missing]
    view: View | None = None


class BlobLine(
    msgspec.Struct, frozen=True, tag_field="kind", tag="blob", forbid_unknown_fields=True
):
    """A part of a blob: `part` of `parts`, from 0; `size` is the whole blob's, in bytes."""

    n: int
    sha256: str
    size: int
    part: int
    parts: int
    data: bytes


class CommitLine(
    msgspec.Struct, frozen=True, tag_field="kind", tag="commit", forbid_unknown_fields=True
):
    """A commit: its stream, the exact stored text, and its original position."""

    n: int
    stream: StreamId
    version: int
    body: str
    origin: Origin


class SeenLine(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="event",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """An event of a view. For an event of the run's own stream, `agent` and `role` are empty."""

    n: int
    run: str
    agent: str
    role: str
    type: str
    id: str
    data: msgspec.Raw
    at: str
    occurred_at: str | None = None


class End(msgspec.Struct, frozen=True, tag_field="kind", tag="end", forbid_unknown_fields=True):
    """Last line: the counts of commits (of a view: events) and blobs, and the blobs that could not
    be read. `sha256` covers all bytes of the section before this line.
    """

    n: int
    commits: int
    blobs: int
    missing: list[Missing]
    sha256: str


Line = Header | BlobLine | CommitLine | SeenLine | End

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def seal(line: Line) -> bytes:
    """Encode a line for the file: its JSON, with a digest of all that precedes the digest."""
    head = _encode(line)[:-1]
    return head + _TAIL % _digest(head)


def unseal(data: bytes) -> Line:
    """Decode a line of the file. Raises Damaged."""
    head, tail = data[:-_TAIL_BYTES], data[-_TAIL_BYTES:]
    if not data.endswith(b"\n"):
        raise Damaged("the line is cut off: the file is not whole; export it again")
    if data.endswith(b"\r\n"):
        raise Damaged("the line ends as on Windows: the file was changed; copy it as it is")
    if not _TAIL_FORM.fullmatch(tail):
        raise Damaged("it is not a line of 'hansard export', or its end is damaged")
    if tail != _TAIL % _digest(head):
        raise Damaged("the line is damaged: its digest is another; export it again")
    try:
        return _decoder.decode(head + b"}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(
            f"it is not a line that this version can read ({error}): upgrade hansard"
        ) from error
    except RecursionError as error:
        raise Damaged("it is nested too deep to be a line of 'hansard export'") from error


def _digest(head: bytes) -> bytes:
    return hashlib.sha256(head).hexdigest()[:DIGEST_CHARACTERS].encode()


def blobs_of(commit: Commit) -> dict[str, int]:
    """Return the blobs that a commit's events name: size by hash."""
    return dict(found for recorded in commit.events for found in blobs_named(bytes(recorded.data)))
