"""What an answer says to people, as headings, sentences and tables: every form of it (the terminal,
a notebook, a page) is made of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Heading(msgspec.Struct, frozen=True):
    """A heading."""

    text: str


class Paragraph(msgspec.Struct, frozen=True):
    """A paragraph; `verdict` where it is one; `brief` where it is a line among others."""

    text: str
    verdict: str = ""
    brief: bool = False


class Table(msgspec.Struct, frozen=True):
    """A table: columns (a name that begins with `>` is of numbers) and rows of texts. Over it
    stands its title; `left_out` says what is not among the rows, and whether that is before them.
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    title: str = ""
    left_out: str = ""
    left_out_before: bool = False


Said = Heading | Paragraph | Table
"""What any answer is made of; a comparison has plots, too."""
