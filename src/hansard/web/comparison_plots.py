"""Figures of a comparison, drawn by matplotlib."""

from __future__ import annotations

from collections import Counter
from typing import Any

from matplotlib.figure import Figure

from hansard.projections.report import Part

WIDTH_IN = 7.0
ROW_IN = 0.45
SQUARE_IN = 4.2
COLOUR, LIGHT, NEUTRAL = "#1f4e79", "#9dbcd8", "#666666"
LINES = ("#1f4e79", "#b35900", "#2e7d32", "#7b1fa2", "#5d4037", "#00838f")


def _intervals(part: Part) -> Figure | None:
    """Plot each difference with its interval for a single look, and the wider one valid at any
    look.
    """
    rows = [row for row in part.comparisons if row["default"] and row["low"] is not None]
    if not rows:
        return None
    figure = Figure(figsize=(WIDTH_IN, 1.1 + ROW_IN * len(rows)))
    axes = figure.subplots()
    for place, row in enumerate(reversed(rows)):
        if row["always_low"] is not None:
            axes.plot([row["always_low"], row["always_high"]], [place] * 2, color=LIGHT, lw=6)
        axes.plot([row["low"], row["high"]], [place] * 2, color=COLOUR, lw=2.5)
        axes.plot([row["difference"]], [place], "o", color=COLOUR, ms=6)
    axes.axvline(0, color=NEUTRAL, lw=1, ls="--")
    axes.set_yticks(range(len(rows)), _names(rows[::-1]))
    axes.set_ylim(-0.6, len(rows) - 0.4)
    bases = {row["baseline"] for row in rows}
    other = _plain(rows[0]["baseline"]) if len(bases) == 1 else "the baseline arm"
    axes.set_xlabel(f"difference of {_plain(part.metric)} to {other}")
    return figure


def _names(rows: list[dict[str, Any]]) -> list[str]:
    """Return the row labels: the arm, its baseline if several are used, and the slice."""
    several = len({row["baseline"] for row in rows}) > 1
    against = [f" against {row['baseline']}" if several else "" for row in rows]
    slices = [f" ({row['slice']})" if row["slice"] else "" for row in rows]
    return [
        _plain(row["arm"] + beside + where)
        for row, beside, where in zip(rows, against, slices, strict=True)
    ]


def _plain(text: str) -> str:
    """Escape a text so that no character begins a formula."""
    return text.replace("\\", "\\\\").replace("$", r"\$")


def _pairs(part: Part) -> Figure | None:
    """Plot each task's score under the baseline and under an arm; areas show numbers of tasks."""
    arms = list(dict.fromkeys(row["arm"] for row in part.pairs))
    if not arms:
        return None
    figure = Figure(figsize=(SQUARE_IN, SQUARE_IN))
    axes = figure.subplots()
    scores = [score for row in part.pairs for score in (row["base_score"], row["arm_score"])]
    axes.axline((0, 0), slope=1, color=NEUTRAL, lw=1, ls="--")
    for arm, colour in zip(arms, LINES, strict=False):
        met = Counter(
            (row["base_score"], row["arm_score"]) for row in part.pairs if row["arm"] == arm
        )
        places, counts = list(met), list(met.values())
        axes.scatter(
            [x for x, _ in places],
            [y for _, y in places],
            s=[18.0 * count for count in counts],
            color=colour,
            alpha=0.5,
            label=_plain(arm),
        )
    edge = (max(scores) - min(scores) or 1) * 0.12
    axes.set_xlim(min(scores) - edge, max(scores) + edge)
    axes.set_ylim(min(scores) - edge, max(scores) + edge)
    axes.set_xlabel(f"{_plain(part.metric)} of a task, baseline")
    axes.set_ylabel(f"{_plain(part.metric)} of a task, arm")
    axes.legend(loc="best", markerscale=0.5)
    return figure


def _curves(part: Part) -> Figure | None:
    """Plot pass^k by k with its interval, one line per arm."""
    rows = [row for row in part.curves if not row["slice"]]
    if not rows:
        return None
    figure = Figure(figsize=(WIDTH_IN, SQUARE_IN))
    axes = figure.subplots()
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    for arm, colour in zip(arms, LINES, strict=False):
        mine = [row for row in rows if row["arm"] == arm]
        ks = [row["k"] for row in mine]
        axes.plot(ks, [row["pass_hat_k"] for row in mine], "o-", color=colour, label=_plain(arm))
        if all(row["pass_hat_k_low"] is not None for row in mine):
            lows = [row["pass_hat_k_low"] for row in mine]
            highs = [row["pass_hat_k_high"] for row in mine]
            axes.fill_between(ks, lows, highs, color=colour, alpha=0.15)
    axes.set_xticks(sorted({row["k"] for row in rows}))
    axes.set_ylim(0, 1)
    axes.set_xlabel("k")
    axes.set_ylabel("pass^k")
    axes.legend(loc="best")
    return figure


FIGURES = {"intervals": _intervals, "pairs": _pairs, "curves": _curves}
"""Functions that draw a part, by kind of plot; None if there is nothing to draw."""
