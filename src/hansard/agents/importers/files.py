"""Files as records in bounded memory: JSON lines, and the parts of one JSON document."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Collection, Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec

RECORD_BYTES_MAX = 64 * 1024 * 1024
"""Longest record, in bytes: a line, an element of a document's list, an entry of an archive. Its
decoded form takes several times that. A longer one is passed over and reported.
"""

PIECE_BYTES = 1024 * 1024
"""Read at once."""

BLANKS = b" \t\r\n"
BOM = b"\xef\xbb\xbf"

_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_SURROGATE = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
"""Half a pair: text that UTF-8 cannot say."""

_NO_NUMBER = re.compile(rb"[:,\[]\s*-?(?:NaN|Infinity)\b")
"""What some programs write for a number that is none."""

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BLANK = re.compile(rb"[ \t\r\n]*+")
_TEXT = re.compile(_STRING, re.DOTALL)
_WORD = re.compile(rb'[^\s,:"\[\]{}]++(?=[\s,\]}])')
"""A number, true, false or null, up to what ends it."""
_TO_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|%b)*+[{}\[\]]' % _STRING, re.DOTALL)
"""Everything up to the next bracket that is in no string."""

_decode = msgspec.json.Decoder().decode


class NotADocument(ValueError):
    """A file that is not one JSON document of the wanted form."""


class DoubledKey(ValueError):
    """An object that has a key twice; which value counts is not known."""


class Line(msgspec.Struct, frozen=True):
    """A line by its number, without its blanks; `data` is None where it is too long."""

    number: int
    data: bytes | None
    size: int


class Span(msgspec.Struct, frozen=True):
    """Where a value is in a file, in bytes."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """The value's length in bytes."""
        return self.end - self.begin


class Outline(msgspec.Struct):
    """The parts of a document: an object's members by name, and the elements of its list.

    `elements` is None where the document has no such list.
    """

    members: dict[str, Span] = {}
    elements: list[Span] | None = None


@contextlib.contextmanager
def opened(path: Path | None) -> Generator[BinaryIO]:
    """A file, or standard input for None. Raises OSError."""
    if path is None:
        yield sys.stdin.buffer
        return
    with path.open("rb", buffering=PIECE_BYTES) as file:
        yield file


@contextlib.contextmanager
def seekable(path: Path | None) -> Generator[BinaryIO]:
    """A file that can be read twice; what cannot be is spooled to disk first, as is standard input
    (None). Raises OSError.
    """
    with contextlib.ExitStack() as stack:
        # Little is read ahead: an export that changes between its two readings is to be noticed.
        file = sys.stdin.buffer if path is None else stack.enter_context(path.open("rb"))
        regular: BinaryIO = file
        if path is None or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            regular = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, regular, PIECE_BYTES)
            regular.seek(0)
        yield regular


def head(path: Path | None) -> bytes | None:
    """The first bytes of a file; None for a named pipe, which is read only once. Raises OSError."""
    if path is not None and not path.is_file():
        return None
    with opened(path) as file:
        return bytes(file.peek(PIECE_BYTES))  # type: ignore[attr-defined]  # every binary file here is buffered


def lines(file: BinaryIO) -> Iterator[Line]:
    """The lines of a file that are not blank; a byte order mark at its begin is passed over."""
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
    """Why a record is passed over."""
    return f"{what} has {size:,} bytes, the limit is {RECORD_BYTES_MAX:,}"


def part(file: BinaryIO, span: Span) -> bytes:
    """The bytes of a value."""
    file.seek(span.begin)
    return file.read(span.size)


# ---------------------------------------------------------------- JSON


def decode(data: bytes, *, constants: bool = False) -> Any:
    """A record, decoded. With `constants` NaN and Infinity are null.

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
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise DoubledKey(f"the key {doubled!r:.80} is there twice in one object: leave one out")
    return found


def why_not_json(data: bytes, error: Exception) -> str:
    """What is wrong with a record that cannot be decoded."""
    if isinstance(error, DoubledKey):
        return str(error)
    if isinstance(error, RecursionError):
        return "it is nested too deep to be read: flatten it"
    begin = data[:4]
    if b"\x00" in begin or begin[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "it is no UTF-8 text (UTF-16, UTF-32 or binary): save it as UTF-8"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 ({error.reason}): save it as UTF-8"
    if _SURROGATE.search(data):
        return f"it is not JSON ({error}; half a surrogate pair stands in it)"
    if _NO_NUMBER.search(data):
        return f"it is not JSON ({error}; NaN and Infinity are no JSON: give null, or leave it out)"
    return f"it is not JSON ({error})"


# ---------------------------------------------------------------- documents


def outline(file: BinaryIO, lists: Collection[str] = ()) -> Outline:
    """Find the parts of a document, reading it once in pieces; what is in them is not checked.

    The list is the document itself, or the first of its members that `lists` names. Raises
    NotADocument.
    """
    scan = _Scanner(file)
    found = Outline()
    if scan.next() == b"[":
        found.elements = scan.elements()
    elif scan.next() == b"{":
        for name in scan.names():
            if name in found.members:
                raise NotADocument(f"the key {name!r:.80} is there twice: leave one out")
            if name in lists and found.elements is None and scan.next() == b"[":
                found.members[name] = Span(scan.place, scan.place)
                found.elements = scan.elements()
            else:
                found.members[name] = scan.value()
    else:
        scan.fail("it begins with neither { nor [")
    if scan.next():
        scan.fail("more follows its end")
    return found


class _Scanner:
    """Walks over JSON in pieces, keeping no more than the value of one string."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.seek(0)
        self._data = file.read(PIECE_BYTES)
        self._at = len(BOM) if self._data.startswith(BOM) else 0
        self._base = 0

    @property
    def place(self) -> int:
        """How many bytes come before what is next."""
        return self._base + self._at

    def fail(self, reason: str) -> NoReturn:
        """Raise NotADocument."""
        raise NotADocument(f"it is not JSON (byte {self.place}: {reason})")

    def next(self) -> bytes:
        """The next byte that is no blank; nothing at the end."""
        while True:
            blank = _BLANK.match(self._data, self._at)
            self._at = blank.end() if blank else self._at
            if self._at < len(self._data) or not self._more():
                return self._data[self._at : self._at + 1]

    def names(self) -> Iterator[str]:
        """The names of an object's members; each value is to be taken before the next."""
        for _ in self._items(b"}"):
            text = self._take(_TEXT, "a name in quotation marks")
            try:
                name = _decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self.fail(str(error))
            self._expect(b":")
            yield name

    def elements(self) -> list[Span]:
        """Where the elements of a list are."""
        return [self.value() for _ in self._items(b"]")]

    def value(self) -> Span:
        """Pass over the next value."""
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
        while (found := pattern.match(self._data, self._at)) is None:
            if not self._more():
                self.fail(f"expected {what}")
        self._at = found.end()
        return found[0]

    def _more(self) -> bool:
        """Read on; twice as much as is kept, so that a long text is not looked at too often."""
        kept = self._data[self._at :]
        piece = self._file.read(max(PIECE_BYTES, 2 * len(kept)))
        self._base += self._at
        self._data, self._at = kept + piece, 0
        return bool(piece)
