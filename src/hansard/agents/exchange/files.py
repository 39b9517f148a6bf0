"""Files of records, read in bounded memory, and the progress and result of an import.

JSON lines, and parts of one JSON document.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol

import msgspec

from hansard.domain.errors import CallerError

RECORD_BYTES_MAX = 64 * 1024 * 1024
"""Longest record, in bytes: a line, an element of a document's list, an entry of an archive. Its
decoded form takes several times that. A longer record is skipped and reported."""

PIECE_BYTES = 1024 * 1024
"""Bytes of one read."""

HEAD_BYTES = 256 * 1024
"""Bytes at the start of a file by which its format is recognised."""

BLANKS = b" \t\r\n"
BOM = b"\xef\xbb\xbf"

_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_SURROGATE = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
"""Half of a surrogate pair, which UTF-8 cannot encode."""

_NO_NUMBER = re.compile(rb"[:,\[]\s*-?(?:NaN|Infinity)\b")
"""Non-standard number constants that some programs write."""

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BLANK = re.compile(rb"[ \t\r\n]*+")
_TEXT = re.compile(_STRING, re.DOTALL)
_WORD = re.compile(rb'[^\s,:"\[\]{}]++(?=[\s,\]}])')
"""A number, true, false or null, up to its terminator."""
_TO_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|%b)*+[{}\[\]]' % _STRING, re.DOTALL)
"""Everything up to the next bracket outside a string."""

_decode = msgspec.json.Decoder().decode


class NotADocument(ValueError):
    """Raised for a file that is not one JSON document of the expected form."""


class DoubledKey(ValueError):
    """Raised for an object with a duplicate key; which value counts is undefined."""


class Line(msgspec.Struct, frozen=True):
    """A line, stripped, with its number and size in bytes; `data` is None if it is too long."""

    number: int
    data: bytes | None
    size: int


class Span(msgspec.Struct, frozen=True):
    """Position of a value in a file, in bytes."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """The value's length in bytes."""
        return self.end - self.begin


class Outline(msgspec.Struct):
    """Parts of a document: an object's members by name, and the elements of its list.

    `elements` is None if the document has no such list.
    """

    members: dict[str, Span] = {}
    elements: list[Span] | None = None


@contextlib.contextmanager
def opened(path: Path | None) -> Generator[BinaryIO]:
    """Open a file, or standard input for None. Raises OSError."""
    if path is None:
        yield sys.stdin.buffer
        return
    with path.open("rb", buffering=PIECE_BYTES) as file:
        yield file


@contextlib.contextmanager
def seekable(path: Path | None) -> Generator[BinaryIO]:
    """Open a file that can be read twice; standard input (None) and pipes are spooled to disk
    first. Raises OSError.
    """
    with contextlib.ExitStack() as stack:
        # A small read-ahead, so that an export that changes between the two passes is noticed.
        file = sys.stdin.buffer if path is None else stack.enter_context(path.open("rb"))
        regular: BinaryIO = file
        if path is None or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            regular = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, regular, PIECE_BYTES)
            regular.seek(0)
        yield regular


def head(path: Path | None) -> bytes | None:
    """Return a file's first bytes; None for a named pipe, which can be read only once. Raises
    OSError.
    """
    if path is not None and not path.is_file():
        return None
    with opened(path) as file:
        return bytes(file.peek(PIECE_BYTES))  # type: ignore[attr-defined]  # every binary file here is buffered


def lines(file: BinaryIO) -> Iterator[Line]:
    """Yield a file's lines, without a byte order mark at its start. `data` is empty for a blank
    line.
    """
    number = 0
    while data := file.readline(RECORD_BYTES_MAX + 1):
        number += 1
        size = len(data)
        if size > RECORD_BYTES_MAX and not data.endswith(b"\n"):
            while more := file.readline(PIECE_BYTES):
                size += len(more)
                if more.endswith(b"\n"):
                    break
            yield Line(number, None, size)
            continue
        if number == 1:
            data = data.removeprefix(BOM)
        yield Line(number, data.strip(BLANKS), size)


def too_long(what: str, size: int) -> str:
    """Return the reason that a record is skipped."""
    return f"{what} has {size:,} bytes, the limit is {RECORD_BYTES_MAX:,}"


def part(file: BinaryIO, span: Span) -> bytes:
    """Read the bytes of a value."""
    file.seek(span.begin)
    return file.read(span.size)


# ---------------------------------------------------------------- JSON


def decode(data: bytes, *, constants: bool = False) -> Any:
    """Decode a record. With `constants`, NaN and Infinity are null.

    Raises DoubledKey, DecodeError, RecursionError, UnicodeDecodeError.
    """
    try:
        value = _decode(data)
    except msgspec.DecodeError:
        if not constants or not _NO_NUMBER.search(data):
            raise
        return json.loads(data, object_pairs_hook=_object, parse_constant=lambda _: None)
    json.loads(data, object_pairs_hook=_object)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise DoubledKey(f"the key {doubled!r:.80} is there twice in one object: leave one out")
    return members


def why_not_json(data: bytes, error: Exception) -> str:
    """Return the reason that a record cannot be decoded."""
    if isinstance(error, DoubledKey):
        return str(error)
    if isinstance(error, RecursionError):
        return "it is nested too deep to be read: flatten it"
    begin = data[:4]
    if b"\x00" in begin or begin[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "it is not UTF-8 text (UTF-16, UTF-32 or binary): save it as UTF-8"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 ({error.reason}): save it as UTF-8"
    if _SURROGATE.search(data):
        return f"it is not JSON ({error}; it contains half a surrogate pair)"
    if _NO_NUMBER.search(data):
        return f"it is not JSON ({error}; NaN and Infinity are not JSON: use null, or leave it out)"
    return f"it is not JSON ({error})"


# ---------------------------------------------------------------- documents


def outline(file: BinaryIO, lists: Collection[str] = ()) -> Outline:
    """Locate the parts of a document, reading it once in pieces; their contents are not checked.

    The list is the document itself, or its first member that `lists` names. Raises NotADocument.
    """
    scan = _Scanner(file)
    parts = Outline()
    if scan.next() == b"[":
        parts.elements = scan.elements()
    elif scan.next() == b"{":
        for name in scan.names():
            if name in parts.members:
                raise NotADocument(f"the key {name!r:.80} is there twice: leave one out")
            if name in lists and parts.elements is None and scan.next() == b"[":
                parts.members[name] = Span(scan.place, scan.place)
                parts.elements = scan.elements()
            else:
                parts.members[name] = scan.value()
    else:
        scan.fail("it begins with neither { nor [")
    if scan.next():
        scan.fail("more follows its end")
    return parts


class _Scanner:
    """Scans JSON in pieces, keeping at most one string in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.seek(0)
        self._data = file.read(PIECE_BYTES)
        self._at = len(BOM) if self._data.startswith(BOM) else 0
        self._base = 0

    @property
    def place(self) -> int:
        """Offset of the next byte in the file."""
        return self._base + self._at

    def fail(self, reason: str) -> NoReturn:
        """Raise NotADocument with the current offset."""
        raise NotADocument(f"it is not JSON (byte {self.place}: {reason})")

    def next(self) -> bytes:
        """Return the next byte that is not a blank, without consuming it; empty at the end."""
        while True:
            blank = _BLANK.match(self._data, self._at)
            self._at = blank.end() if blank else self._at
            if self._at < len(self._data) or not self._more():
                return self._data[self._at : self._at + 1]

    def names(self) -> Iterator[str]:
        """Yield the names of an object's members; the caller consumes each value before the
        next.
        """
        for _ in self._items(b"}"):
            text = self._take(_TEXT, "a name in quotation marks")
            try:
                name = _decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self.fail(str(error))
            self._expect(b":")
            yield name

    def elements(self) -> list[Span]:
        """Return the positions of a list's elements."""
        return [self.value() for _ in self._items(b"]")]

    def value(self) -> Span:
        """Skip the next value and return its position."""
        kind = self.next()
        begin = self.place
        if kind == b'"':
            self._take(_TEXT, "the end of a text")
        elif kind not in (b"{", b"["):
            self._take(_WORD, "a value")
        else:
            depth = 0
            while True:
                bracket = self._take(_TO_BRACKET, "the end of a list or object")[-1:]
                depth += 1 if bracket in b"{[" else -1
                if not depth:
                    break
        return Span(begin, self.place)

    def _items(self, closing: bytes) -> Iterator[None]:
        self._at += 1
        if self.next() != closing:
            yield
            while self.next() == b",":
                self._at += 1
                yield
        self._expect(closing)

    def _expect(self, mark: bytes) -> None:
        if self.next() != mark:
            self.fail(f"expected {mark.decode()!r}" if self._data[self._at :] else "truncated")
        self._at += 1

    def _take(self, pattern: re.Pattern[bytes], what: str) -> bytes:
        self.next()
        while (match := pattern.match(self._data, self._at)) is None:
            if not self._more():
                self.fail(f"expected {what}")
        self._at = match.end()
        return match[0]

    def _more(self) -> bool:
        """Read on by at least twice the kept bytes, so that a long text is scanned few times."""
        kept = self._data[self._at :]
        piece = self._file.read(max(PIECE_BYTES, 2 * len(kept)))
        self._base += self._at
        self._data, self._at = kept + piece, 0
        return bool(piece)


# ---------------------------------------------------------------- progress and result of an import


class Tally(msgspec.Struct):
    """Counts of an import.

    `runs`, `messages`, `calls`, `commits` and `events` count what was read and is now recorded;
    `new` counts the commits that were not recorded before. `duplicates` are records already read in
    the same import. `unanswered` holds tool calls without a result in the source, as run and call
    id; `unasked` counts results without a call; `claims` counts the figures that submissions claim.
    `assumed` counts assumptions about what the source does not state, by kind;
    `left_out` counts what was not imported. `absent` holds
    the hashes of large payloads that the source could not read either.
    """

    runs: int = 0
    messages: int = 0
    calls: int = 0
    commits: int = 0
    events: int = 0
    new: int = 0
    bad: int = 0
    blobs: int = 0
    duplicates: int = 0
    unasked: int = 0
    claims: int = 0
    assumed: dict[str, int] = {}
    left_out: dict[str, int] = {}
    unanswered: list[tuple[str, str]] = []
    absent: list[str] = []

    def add(self, other: Tally) -> None:
        """Add the counts of another part of the same import."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                setattr(self, name, dict(Counter(mine) + Counter(theirs)))
            else:
                setattr(self, name, mine + theirs)


class Bad(msgspec.Struct, frozen=True, tag_field="kind", tag="bad"):
    """A record that was not imported. `line` counts from 1; in a file that is one JSON document it
    counts the document's records.
    """

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class BadRecord(CallerError):
    """Raised for a record that cannot be imported; nothing of it was written. `tally` counts what
    was read of the file before it, where the importer provides that.
    """

    def __init__(self, bad: Bad) -> None:
        super().__init__(str(bad))
        self.bad = bad
        self.tally = Tally(bad=1)


class Watcher(Protocol):
    """Receives an import's progress. Neither method raises, unless the import is to stop."""

    def read(self, count: int) -> None:
        """Report that `count` more bytes of the input were read."""

    def bad(self, bad: Bad) -> None:
        """Report that a record was skipped; raises BadRecord if the import is strict."""
