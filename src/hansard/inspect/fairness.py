"""What a probe's forks decided: pairs, noise, and how the decisions differ, all of it from SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from hansard.inspect.answer import Answer
from hansard.projections.reader import Reader

Row = dict[str, Any]


class LeftOut(msgspec.Struct, frozen=True):
    """A run that was asked for and not forked, and why."""

    run: str
    why: str


class Unrun(msgspec.Struct, frozen=True):
    """A fork whose program did not end well: its exit code, and its last line."""

    run: str
    fork: str
    value: str
    code: int
    said: str


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, and what was done for it.

    Attributes:
        probe: Its id.
        path: The path of the value.
        values: The values, the first of which the others are compared with.
        runs: The runs that were forked.
        left_out: Those that were asked for and were not, with the reasons.
        forks: How many forks the probe has of these runs.
        before: How many of them were done before.
        ran: How many were run now.
        live: Whether calls of a model ran that the record does not answer.
        tools: The calls that gave the value, each with how many runs it gave it in.
        beside: Where an equal value stands beside it, which was not swapped: paths, and in how many
            runs.
        failures: Forks whose program did not end well.
    """

    probe: str
    path: str
    values: list[str]
    runs: list[str]
    left_out: list[LeftOut]
    forks: int
    before: int
    ran: int
    live: bool
    tools: dict[str, int]
    beside: dict[str, int]
    failures: list[Unrun]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """How the pairs are to be compared.

    Attributes:
        question: Only decisions on questions that begin so, as one; None for each question apart.
        alpha: The chance of a false alarm that is accepted.
        margin: A smaller share of runs that are decided otherwise is no difference that matters;
            None where nobody named one.
        score_margin: The same of the mean difference of a score.
    """

    question: str | None = None
    alpha: float = 0.05
    margin: float | None = None
    score_margin: float | None = None


class Fairness(Answer):
    """What a probe comes to: what was done, how many pairs count, how the decisions differ."""

    probed: Probed
    asked: Asked
    position: int
    noise: Row
    summary: list[Row]
    comparisons: list[Row]
    pairs: list[Row]

    @property
    def unanswered(self) -> Counter[str]:
        """Why pairs count for nothing, and how many."""
        return Counter(row["unanswered"] for row in self.pairs if row["unanswered"])

    @property
    def changed(self) -> list[Row]:
        """The pairs that decided differently."""
        return [row for row in self.pairs if row["unanswered"] is None and row["changed"]]

    @property
    def differs(self) -> bool:
        """Whether the decisions of all runs differ by the value, as far as can be told."""
        return any(row["verdict"] == "differs" for row in self.comparisons if not row["slice"])

    def lines(self) -> Iterator[Row]:
        """What was done first, then row by row."""
        told = msgspec.to_builtins(self.probed) | msgspec.to_builtins(self.asked)
        yield {"kind": "probe", "position": self.position, **told}
        yield {"kind": "noise", **self.noise}
        for kind, rows in (
            ("summary", self.summary),
            ("comparison", self.comparisons),
            ("pair", self.pairs),
        ):
            for row in rows:
                yield {"kind": kind, **row}


_NOISE = "FROM probe_noise($1, of_runs := $2, of_question := $3, at_alpha := $4)"
_SUMMARY = """
    FROM probe_summary($1, of_runs := $2, of_question := $3, at_alpha := $4)
    ORDER BY agent, question, value
"""
_COMPARISONS = """
    FROM probe_comparisons($1, of_runs := $2, of_question := $3, at_alpha := $4,
        decision_margin := $5, score_margin := $6)
    ORDER BY agent, question, slice, measure = 'score', option, value
"""
_PAIRS = """
    FROM probe_pairs($1, of_runs := $2, of_question := $3)
    ORDER BY agent, question, value, parent
"""


def fairness(reader: Reader, probed: Probed, asked: Asked) -> Fairness:
    """What the forks of a probe decided, of the runs that were asked for."""
    given: Sequence[Any] = (probed.probe, probed.runs, asked.question)
    [noise] = reader.rows(_NOISE, [*given, asked.alpha])
    return Fairness(
        probed=probed,
        asked=asked,
        position=reader.position,
        noise=noise,
        summary=reader.rows(_SUMMARY, [*given, asked.alpha]),
        comparisons=reader.rows(
            _COMPARISONS, [*given, asked.alpha, asked.margin, asked.score_margin]
        ),
        pairs=reader.rows(_PAIRS, given),
    )
