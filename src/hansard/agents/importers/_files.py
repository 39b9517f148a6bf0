"""Files as records: JSON lines in bounded memory, and one JSON document without a copy of it."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

LINE_BYTES_MAX = 64 * 1024 * 1024
"""Longest line that is read as a record, in bytes; its decoded form takes several times that. What
is longer is read to its end in pieces and reported.
"""

DOCUMENT_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""Largest file that is one JSON document, in bytes. It is mapped, not read: what it takes is the
kernel's page cache, and an offset for each of its records.
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

Document = memoryview
"""The bytes of a whole file, less its byte order mark."""


class NotADocument(ValueError):
    """A file that is not one JSON document of the wanted form."""


class Line(msgspec.Struct, frozen=True):
    """A line by its number, without its blanks; `data` is None where it is too long."""

    number: int
    data: bytes | None
    size: int


@contextlib.contextmanager
def opened(path: Path | None) -> Generator[BinaryIO]:
    """A file, or standard input for None. Raises OSError."""
    if path is None:
        yield sys.stdin.buffer
        return
    with path.open("rb", buffering=PIECE_BYTES) as file:
        yield file


def lines(file: BinaryIO) -> Iterator[Line]:
    """The lines of a file that are not blank; a byte order mark at its begin is passed over."""
    number = 0
    while data := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        size = len(data)
        if size > LINE_BYTES_MAX and not data.endswith(b"\n"):
            while more := file.readline(PIECE_BYTES):
                size += len(more)
                if more.endswith(b"\n"):
                    break
            yield Line(number, None, size)
            continue
        if number == 1:
            data = data.removeprefix(BOM)
        yield Line(number, data.strip(BLANKS), size)


@contextlib.contextmanager
def document(path: Path | None) -> Generator[Document]:
    """A file's bytes without a copy of them; what is no regular file is spooled to disk first.

    Raises NotADocument for a size over the bound, OSError.
    """
    with opened(path) as file, contextlib.ExitStack() as stack:
        regular = file
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            regular = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, regular, PIECE_BYTES)
            regular.flush()
        size = os.fstat(regular.fileno()).st_size
        if size > DOCUMENT_BYTES_MAX:
            fact = f"the file has {size:,} bytes, the limit is {DOCUMENT_BYTES_MAX:,}: split it"
            raise NotADocument(fact)
        if not size:
            yield memoryview(b"")
            return
        # Never closed by hand: records may point into it as long as they live.
        mapped = memoryview(mmap.mmap(regular.fileno(), 0, access=mmap.ACCESS_READ))
        yield mapped[len(BOM) :] if bytes(mapped[: len(BOM)]) == BOM else mapped


def why_not_json(data: bytes | Document | msgspec.Raw, error: Exception) -> str:
    """What is wrong with a record that cannot be decoded."""
    if isinstance(error, RecursionError):
        return "it is nested too deep to be read: flatten it"
    whole = memoryview(data)
    head = bytes(whole[:4])
    if b"\x00" in head or head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "it is no UTF-8 text (UTF-16, UTF-32 or binary): save it as UTF-8"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 ({error.reason}): save it as UTF-8"
    if _SURROGATE.search(whole):
        return f"it is not JSON ({error}; half a surrogate pair stands in it)"
    if _NO_NUMBER.search(whole):
        return f"it is not JSON ({error}; NaN and Infinity are no JSON: give null, or leave it out)"
    return f"it is not JSON ({error})"
