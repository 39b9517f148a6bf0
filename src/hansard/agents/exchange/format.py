"""The file of exported runs: JSON lines, in sections that can stand one after the other.

A section is a header, the commits in the order of the log, each after the blobs it names, and an
end. Lines are numbered from 0, each carries a digest of itself, and the end the hash of all that
came before it: so any damage is noticed, and by its line. `docs/events-jsonl.md` is the description
for people.
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
"""Raised when a reader of before could not read what is written now."""

PART_BYTES = 384 * 1024
"""Of a blob in one line; base64 makes a third more of it."""

LINE_BYTES_MAX = 4 * COMMIT_BYTES_MAX
"""Longest line, in bytes: a body grows to at most its double when it becomes a JSON text."""

DIGEST_CHARACTERS = 32
"""Of a SHA-256 in hex, at the end of a line: 128 bits against damage, not against a forger."""

HEADER_MARK = b'{"kind":"hansard-events",'
"""What a section begins with."""

_TAIL = b',"digest":"%b"}\n'
_TAIL_BYTES = len(_TAIL % (b"0" * DIGEST_CHARACTERS))
_TAIL_FORM = re.compile(rb',"digest":"[0-9a-f]{32}"}\n')


class Damaged(CallerError):
    """Something that is not as it was exported, or does not fit the workspace; nothing of its
    section was written.
    """


class Missing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run or blob that belongs to the section and is not in it, and why."""

    what: str
    why: str


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose view a section is."""

    role: str


class Header(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="hansard-events",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """The first line. `runs` are those that were asked for, `carries` all that are in the section.

    `missing` are runs that others go on from. `view` is given for what one role sees, which is no
    whole record.
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
    """A part of a blob: `part` of `parts`, from 0; `size` is that of the whole, in bytes."""

    n: int
    sha256: str
    size: int
    part: int
    parts: int
    data: bytes


class CommitLine(
    msgspec.Struct, frozen=True, tag_field="kind", tag="commit", forbid_unknown_fields=True
):
    """A commit: its stream, the exact stored text, and where it stood first."""

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
    """An event of a view. Of one of the run's life, `agent` and `role` are empty."""

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
    """The last line: how many commits (of a view: events) and blobs there were, and which blobs
    could not be read. `sha256` is that of all bytes of the section before this line.
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
    """A line as it stands in the file: its JSON with a digest of all before the digest."""
    head = _encode(line)[:-1]
    return head + _TAIL % _digest(head)


def unseal(data: bytes) -> Line:
    """A line of the file. Raises Damaged."""
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
    """The blobs that a commit's events name: size by hash."""
    return dict(found for recorded in commit.events for found in blobs_named(bytes(recorded.data)))
