"""What a comparison comes to, in ten lines at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hansard.domain.counted import counted, listed
from hansard.inspect.comparison import Paragraph
from hansard.inspect.comparison_words import (
    LOST_UNITS_P,
    NO_VERDICT,
    chance,
    decides,
    decisive,
    interval,
    looks,
    number,
    ranks,
)
from hansard.projections.report import Part, Report

VERDICTS_MAX = 3
"""Verdicts that are told each by itself; more are counted."""

NAMED_MAX = 3
"""Arms and metrics that a line names; of more it says how many."""

PAIR = 2
"""Arms that one comparison is all about."""

RANKED_MAX = 6
"""Arms that the line of ranks names."""

_ENDED_OTHERWISE = ("errored", "timed_out", "cancelled")


def summary(report: Report, following: Sequence[str]) -> Iterator[Paragraph]:
    """At most nine paragraphs: warnings, the verdict with the number that decides, sizes, failures,
    and which sections follow.
    """
    yield from _warnings(report)
    named = [part for part in report.judged if part.named]
    if named:
        yield from _verdicts(named[0])
        yield from _ranked(report, named[0].metric)
        yield from _others(named[1:])
    else:
        metrics = [part.metric for part in report.judged]
        yield Paragraph(
            f"No verdict is given: {counted(len(metrics), 'metric')} were scored "
            f"({_few(metrics)}), and nothing says which of them decides. --metric NAME names it, "
            "or a plan.",
            NO_VERDICT,
            brief=True,
        )
    tasks = max((row["tasks"] for row in report.accounts), default=0)
    yield Paragraph(
        f"{counted(report.plan['runs'], 'run')} of {counted(len(report.accounts), 'arm')}, "
        f"{counted(tasks, 'task')}; {report.plan['standing']}. {looks(report)}",
        brief=True,
    )
    yield Paragraph(_failed(report), brief=True)
    if following:
        yield Paragraph(
            f"Sections below: {', '.join(following)}. Choose with --show NAME,...", brief=True
        )


def uneven(report: Report) -> list[dict[str, Any]]:
    """The arms that end their runs as completed less often than the baseline, or more often."""
    return [
        row
        for part in (*report.judged, *report.beside)
        if part.metric == "completion"
        for row in part.comparisons
        if row["default"] and not row["slice"]
        if row["p"] is not None and row["p"] <= row["alpha"] and row["difference"]
    ]


def uneven_in_words(report: Report, row: dict[str, Any]) -> str:
    """How many of the runs of two arms ended as completed."""
    runs = {
        each["arm"]: f"{each['completed']:,} of {counted(each['runs'], 'run')}"
        for each in report.accounts
    }
    return (
        f"Failures are unevenly spread: {runs[row['baseline']]} of {row['baseline']} ended as "
        f"completed, {runs[row['arm']]} of {row['arm']} (p {chance(row['p'])})"
    )


def _warnings(report: Report) -> Iterator[Paragraph]:
    """What is to be known before any verdict: at most two."""
    found = uneven(report)
    if found:
        more = f", and {len(found) - 1:,} more such" if len(found) > 1 else ""
        yield Paragraph(f"{uneven_in_words(report, found[0])}{more}.", "cannot tell", brief=True)
    p = report.ratio[0]["p"] if report.ratio else None
    if p is not None and p < LOST_UNITS_P:
        yield Paragraph(
            f"Units are lost: the arms do not have as many as they were to have (p {chance(p)}).",
            "cannot tell",
            brief=True,
        )


def _verdicts(part: Part) -> Iterator[Paragraph]:
    """Each by itself where they are few; counted where they are many."""
    rows = [row for row in part.comparisons if not row["slice"]]
    shown = [row for row in rows if row["default"]]
    if not shown:
        yield Paragraph(f"There is no verdict by {part.metric}: only one arm has runs.", brief=True)
    if len(shown) <= VERDICTS_MAX:
        for row in shown:
            yield Paragraph(
                f"{row['arm']} against {row['baseline']}: {row['verdict']}"
                f"{decides(row, part.otherwise(row))}; {part.metric} {_size(row)}.",
                row["verdict"],
                brief=True,
            )
    else:
        by = dict.fromkeys(row["verdict"] for row in shown)
        each = [f"{_count(shown, verdict)} {verdict}" for verdict in by]
        yield Paragraph(
            f"{counted(len(shown), 'comparison')} by {part.metric}: {', '.join(each)}, by Holm's p "
            f"over {shown[0]['family']:,} at {shown[0]['alpha']:g}.",
            "cannot tell" if len(by) > 1 else shown[0]["verdict"],
            brief=True,
        )


def _size(row: dict[str, Any]) -> str:
    if row["difference"] is None:
        return "has no task with a value in both arms"
    shown = interval(*decisive(row), signed=True)
    left_out = row["unmatched"] - row["filled"]
    unmatched = f"; {counted(left_out, 'task')} of one arm only left out" if left_out else ""
    return f"{number(row['difference'], signed=True)}, {shown or 'no interval'}{unmatched}"


def _ranked(report: Report, metric: str) -> Iterator[Paragraph]:
    """The arms by their ranks, or how to have them."""
    rows = [row for row in report.ranking if row["metric"] == metric]
    if rows:
        said = [f"{row['arm']} {ranks(row)}" for row in rows[:RANKED_MAX]]
        said += [f"{len(rows) - RANKED_MAX:,} more"] if len(rows) > RANKED_MAX else []
        yield Paragraph(f"Ranks by {metric}, 1 is the best: {', '.join(said)}.", brief=True)
    elif len(report.accounts) > PAIR and not report.question.all_pairs:
        yield Paragraph(
            f"Only {report.baseline} was compared with each: --all-pairs ranks the arms.",
            brief=True,
        )


def _others(parts: list[Part]) -> Iterator[Paragraph]:
    """The plan's other metrics, counted."""
    if not parts:
        return
    said = []
    for part in parts[:NAMED_MAX]:
        rows = [row for row in part.comparisons if row["default"] and not row["slice"]]
        by = dict.fromkeys(row["verdict"] for row in rows)
        each = ", ".join(f"{_count(rows, verdict)} {verdict}" for verdict in by)
        said.append(f"{part.metric} ({each})")
    more = len(parts) - len(said)
    said += [f"{more:,} more"] if more else []
    yield Paragraph(f"Also judged: {listed(said)}.", brief=True)


def _count(rows: list[dict[str, Any]], verdict: str) -> int:
    return sum(row["verdict"] == verdict for row in rows)


def _failed(report: Report) -> str:
    """Which arms have runs that failed, are open or were never judged, and trials that are there
    twice; the most first.
    """
    failed = _arms_with(report, *_ENDED_OTHERWISE)
    opened = _arms_with(report, "open")
    if failed:
        facts = [f"Did not end as completed: {failed}"]
    else:
        facts = ["No run failed" if opened else "All runs ended as completed"]
    facts += [f"not finished: {opened}"] if opened else []
    unjudged = sum(row["never_judged"] for row in report.accounts)
    facts += [f"{counted(unjudged, 'completed run')} never judged"] if unjudged else []
    twice = sum(row["trials_twice"] for row in report.accounts)
    if twice:
        arms = _few([row["arm"] for row in report.accounts if row["trials_twice"]])
        facts.append(f"{counted(twice, 'trial')} recorded more than once (of {arms}), each counted")
    return f"{'; '.join(facts)}."


def _arms_with(report: Report, *names: str) -> str:
    """The arms with such runs, and how many of all, the most first."""
    numbers = [(sum(row[name] for name in names), row) for row in report.accounts]
    found = sorted((each for each in numbers if each[0]), key=lambda each: -each[0])
    named = [f"{row['arm']} {number:,} of {row['runs']:,}" for number, row in found]
    return _few(named) if named else ""


def _few(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return listed([*names[:NAMED_MAX], f"{more:,} more"] if more > 0 else names)
