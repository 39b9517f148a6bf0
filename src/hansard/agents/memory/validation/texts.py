"""Bytes that are to be text: their size, their encoding, and nothing but text."""

from __future__ import annotations

from hansard.agents.memory.validation.trees import shown
from hansard.domain.memory.events import Problem
from hansard.domain.memory.space import FILE_BYTES_MAX

_OTHER_ENCODINGS = (
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def read(path: str, content: bytes) -> str | Problem:
    """A file's text, or why it has none."""
    if len(content) > FILE_BYTES_MAX:
        return Problem(
            path,
            1,
            "file.size",
            f"{len(content):,} bytes",
            f"at most {FILE_BYTES_MAX:,} bytes a file: split it",
        )
    for mark, name in _OTHER_ENCODINGS:
        if content.startswith(mark):
            return Problem(path, 1, "file.encoding", name, "save it as UTF-8")
    nul = content.find(b"\0")
    if nul >= 0:
        return Problem(
            path,
            _line(content, nul),
            "file.binary",
            f"a NUL byte at {nul:,}",
            "text alone: name a binary file by its address instead",
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        return Problem(
            path,
            _line(content, error.start),
            "file.encoding",
            shown(f"byte 0x{content[error.start]:02x} at {error.start:,}"),
            "save it as UTF-8",
        )


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1


def line_at(text: str, at: int) -> int:
    """In which line a character stands, from 1."""
    return text.count("\n", 0, at) + 1
