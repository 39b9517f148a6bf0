"""Lines of an exported file, in bounded memory, from a file that can be read twice."""

from __future__ import annotations

from typing import BinaryIO

from hansard.agents.exchange.format import HEADER_MARK, LINE_BYTES_MAX, Damaged, Line, unseal
from hansard.agents.importers.sources import EVENTS, HEAD_BYTES, hint_of

PIECE_BYTES = 1024 * 1024
"""Read at once of what is not kept."""


LinePosition = tuple[int, int, bool]
"""Bytes and lines before the next line, and whether the newest of them was ended."""


class Lines:
    """Reads lines. `number` counts them from 1, `size` is that of the newest in bytes.

    A header that stands after a line that was cut off begins a line of its own, with the number of
    that line: so it is where a file that is not whole was followed by another one.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.number = 0
        self.size = 0
        self._file = file
        self._ended = True
        self._glued = False
        self._newest: LinePosition = (0, 0, True)

    @property
    def offset(self) -> int:
        """How many bytes come before the next line."""
        return self._file.tell()

    def next(self) -> tuple[bytes, Line] | None:
        """The next line with its bytes; None at the end of the file. Raises Damaged."""
        data = self._read()
        if not data:
            return None
        if self._glued:
            raise Damaged(
                "it is cut off, or no line of an export: the header of an export stands in the "
                "same line after it"
            )
        if self.size > LINE_BYTES_MAX:
            limit = f"{LINE_BYTES_MAX:,}"
            raise Damaged(
                f"the line has {self.size:,} bytes, and none of an export has over {limit}"
            )
        return data, unseal(data)

    def back(self) -> None:
        """Have the newest line come again."""
        if self.size:
            self.seek(self._newest)

    def is_at_header(self) -> bool:
        """Whether the newest line begins a section."""
        here = self._file.tell()
        self._file.seek(self._newest[0])
        found = self._file.read(len(HEADER_MARK)) == HEADER_MARK
        self._file.seek(here)
        return found

    def to_header(self) -> None:
        """Go to where the next section begins, or to the end."""
        while self._read():
            if self.is_at_header():
                self.back()
                return

    def hint(self) -> str:
        """What the file may be, where already its first line is none of an export."""
        if self.number != 1:
            return ""
        self._file.seek(0)
        hint = hint_of(self._file.read(HEAD_BYTES), EVENTS)
        self._file.seek(self._newest[0] + self.size)
        return hint

    def tell(self) -> LinePosition:
        """A place to come back to."""
        return self.offset, self.number, self._ended

    def seek(self, place: LinePosition) -> None:
        """Go back to a place."""
        offset, self.number, self._ended = place
        self._file.seek(offset)

    def _read(self) -> bytes:
        """The next line, of which not much more is kept than a line may have."""
        self._newest = self.tell()
        data = self._file.readline(LINE_BYTES_MAX + len(HEADER_MARK) + 1)
        glued = data.find(HEADER_MARK, 1)
        self._glued = glued > 0
        if self._glued:
            data = data[:glued]
            self._file.seek(self._newest[0] + glued)
        self.size = len(data)
        self.number += bool(data) and self._ended
        more = data
        while len(data) > LINE_BYTES_MAX and more and not more.endswith(b"\n"):
            more = self._file.readline(PIECE_BYTES)
            self.size += len(more)
        self._ended = more.endswith(b"\n") or not data
        return data
