"""The arms of an experiment beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from hansard.inspect.answer import Answer
from hansard.projections.reader import Reader
from hansard.projections.report import Question, Report, report


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


Row = dict[str, Any]
"""A line of the report."""


class Comparison(Answer):
    """What is to be said of an experiment."""

    report: Report

    def lines(self) -> Iterator[Row]:
        """First what was asked and as of when, then row by row."""
        made = self.report
        asked = msgspec.structs.asdict(made.question)
        yield {
            "kind": "report",
            "position": made.position,
            "digest": made.digest,
            **asked,
            "baseline": made.baseline,
            "plan": made.plan,
        }
        for place, parts in (("judged", made.judged), ("beside", made.beside)):
            for part in parts:
                yield from _rows("arm", part.arms, part=place)
                yield from _rows("comparison", part.comparisons, part=place)
                yield from _rows("curve", part.curves, part=place)
        yield from _rows("ranking", made.ranking)
        yield from _rows("sample_ratio", made.ratio)
        yield from _rows("accounting", made.accounts)
        yield from _rows("regression", made.regressions)
        yield from _rows("unmatched", made.unmatched)
        yield from _rows("tool", made.tools)
        yield from _rows("sequence", made.sequences)
        yield from _rows("odd_time", made.times)


def _rows(kind: str, rows: list[Row], **where: str) -> Iterator[Row]:
    return ({"kind": kind, **where, **row} for row in rows)


def compare(answers: Reader, question: Question) -> Comparison:
    """The comparison. Raises Unknown."""
    return Comparison(report(answers, question))
