"""Lines of an exported file, in bounded memory, from a file that can be read twice."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from hansard.agents.exchange.format import HEADER_MARK, LINE_BYTES_MAX, Damaged, Line, unseal
from hansard.agents.importers.sources import EVENTS, looks_like

PIECE_BYTES = 1024 * 1024
"""Read at once of what is not kept."""


@contextlib.contextmanager
def seekable(path: Path | None) -> Generator[BinaryIO]:
    """A file that can be read twice; what cannot be is spooled to disk first, as is standard input
    (None). Raises OSError.
    """
    with contextlib.ExitStack() as stack:
        file: BinaryIO = sys.stdin.buffer if path is None else stack.enter_context(path.open("rb"))
        if path is None or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            spool = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, spool, PIECE_BYTES)
            spool.seek(0)
            file = spool
        yield file


class Lines:
    """Reads lines. `number` counts them from 1, `size` is that of the newest in bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self.number = 0
        self.size = 0
        self._file = file
        self._begin = 0

    @property
    def offset(self) -> int:
        """How many bytes come before the next line."""
        return self._file.tell()

    def next(self) -> tuple[bytes, Line] | None:
        """The next line with its bytes; None at the end of the file. Raises Damaged."""
        data = self._read()
        if not data:
            return None
        if self.size > LINE_BYTES_MAX:
            limit = f"{LINE_BYTES_MAX:,}"
            raise Damaged(
                f"the line has {self.size:,} bytes, and none of an export has over {limit}"
            )
        return data, unseal(data)

    def back(self) -> None:
        """Have the newest line come again."""
        if self.size:
            self._file.seek(self._begin)
            self.number -= 1

    def is_at_header(self) -> bool:
        """Whether the newest line begins a section."""
        here = self._file.tell()
        self._file.seek(self._begin)
        found = self._file.read(len(HEADER_MARK)) == HEADER_MARK
        self._file.seek(here)
        return found

    def to_header(self) -> None:
        """Go to where the next section begins, or to the end."""
        while self._read():
            if self.is_at_header():
                self.back()
                return

    def is_at_end(self) -> bool:
        """Whether another section or nothing comes next. Else the next line is the newest."""
        if self._read() and not self.is_at_header():
            return False
        self.back()
        return True

    def hint(self) -> str:
        """What the file may be, where already its first line is none of an export."""
        if self.number != 1:
            return ""
        self._file.seek(0)
        other = looks_like(self._file.read(PIECE_BYTES))
        self._file.seek(self._begin + self.size)
        return (
            f"; it looks like {other}: use 'hansard import {other}'"
            if other not in (None, EVENTS)
            else ""
        )

    def tell(self) -> tuple[int, int]:
        """A place to come back to."""
        return self.offset, self.number

    def seek(self, place: tuple[int, int]) -> None:
        """Go back to a place."""
        self._file.seek(place[0])
        self.number = place[1]

    def _read(self) -> bytes:
        """The next line, of which no more is kept than a line may have and a byte."""
        self._begin = self._file.tell()
        data = self._file.readline(LINE_BYTES_MAX + 1)
        self.size = len(data)
        self.number += bool(data)
        more = data
        while len(data) > LINE_BYTES_MAX and more and not more.endswith(b"\n"):
            more = self._file.readline(PIECE_BYTES)
            self.size += len(more)
        return data
