"""A comparison as headings, sentences, tables and plots: what all of its forms are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from hansard.domain.counted import counted
from hansard.projections.report import Part, Report

P_LEAST = 0.0001
"""Below it, a p-value is told as below it."""

LARGE = 1_000
"""From it on, numbers are told without a fraction."""

PATH_MAX = 8
"""Tools that are named of a sequence."""

LOST_UNITS_P = 0.001
"""Below this p-value of the sample-ratio check, something loses units of an arm."""


class Heading(msgspec.Struct, frozen=True):
    """A heading."""

    text: str


class Paragraph(msgspec.Struct, frozen=True):
    """A paragraph; `verdict` where it is one."""

    text: str
    verdict: str = ""


class Table(msgspec.Struct, frozen=True):
    """A table: columns (a name that begins with `>` is of numbers) and rows of texts."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class Plot(msgspec.Struct, frozen=True):
    """A picture of a part, for forms that have pictures: intervals, pairs or curves."""

    kind: str
    part: Part


Block = Heading | Paragraph | Table | Plot


def number(value: float | None, *, signed: bool = False) -> str:
    """A number for people: four digits that count."""
    if value is None:
        return ""
    sign = "+" if signed else ""
    return f"{value:{sign},.0f}" if abs(value) >= LARGE else f"{value:{sign}.4g}"


def chance(p: float | None) -> str:
    """A p-value for people."""
    if p is None:
        return "not known"
    return f"below {P_LEAST}" if p < P_LEAST else f"{p:.4f}"


def interval(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """An interval for people."""
    if low is None or high is None:
        return ""
    return f"{number(low, signed=signed)} .. {number(high, signed=signed)}"


def blocks(report: Report) -> Iterator[Block]:
    """The comparison from top to end."""
    plan, asked = report.plan, report.question
    yield Heading(f"Experiment {asked.experiment}")
    if plan["question"]:
        yield Paragraph(plan["question"])
    confidence = f"{100 * (1 - plan['alpha']):g} %"
    looked = "at any time" if plan["stop"] == "sequential" else "once, at its planned size"
    yield Paragraph(
        f"{plan['standing'][:1].upper()}{plan['standing'][1:]}. "
        f"{counted(plan['runs'], 'run')}, as of position {report.position} "
        f"({report.digest[:16]}). Baseline {report.baseline}. Looked at {looked}; "
        f"alpha {plan['alpha']:g}, intervals of {confidence}. A trial without a value "
        + ("counts as a failure." if plan["missing"] == "failure" else "is left out.")
    )
    for part in report.judged:
        yield from _judged(part, by=asked.by)
    yield from _beside(report.beside)
    yield from _accounts(report)
    yield from _regressions(report)
    yield from _paths(report)


def _judged(part: Part, by: str | None) -> Iterator[Block]:
    yield Heading(f"{part.metric} ({part.better} is better)")
    yield _arms(part, by)
    yield Plot("intervals", part)
    for row in part.comparisons:
        if row["default"]:
            others = [
                each
                for each in part.comparisons
                if (each["slice"], each["arm"]) == (row["slice"], row["arm"])
                and not each["default"]
            ]
            yield from _verdict(row, others, by)
    yield Plot("pairs", part)
    if any(row["k"] > 1 for row in part.curves):
        yield from _curves(part, by)
        yield Plot("curves", part)


def _arms(part: Part, by: str | None) -> Table:
    rows = []
    for arm in part.arms:
        low, high, kind = arm["low"], arm["high"], "t"
        if arm["wilson_low"] is not None:
            low, high, kind = arm["wilson_low"], arm["wilson_high"], "Wilson"
        rows.append(
            (
                *_slice(arm, by),
                arm["arm"],
                f"{arm['tasks']:,}",
                f"{arm['trials']:,}",
                f"{arm['missing']:,}",
                number(arm["mean"]),
                f"{interval(low, high)} {kind}" if low is not None else "",
                number(arm["p50"]),
                number(arm["p95"]),
                number(arm["p99"]),
            )
        )
    names = ("arm", ">tasks", ">trials", ">missing", ">mean", "interval", ">p50", ">p95", ">p99")
    return Table((*_slice_column(by), *names), rows)


def _slice_column(by: str | None) -> tuple[str, ...]:
    return () if by is None else (by,)


def _slice(row: dict[str, Any], by: str | None) -> tuple[str, ...]:
    return () if by is None else (row["slice"] or "(all)",)


def _verdict(
    row: dict[str, Any], others: list[dict[str, Any]], by: str | None
) -> Iterator[Paragraph]:
    where = f" where {by} is {row['slice']}" if row["slice"] else ""
    yield Paragraph(
        f"{row['arm']} against {row['baseline']}{where}: {row['verdict']}", row["verdict"]
    )
    yield Paragraph(_difference(row) + _exact(row) + _reach(row))
    for other in others:
        same = all(row[name] == other[name] for name in ("difference", "se", "tasks"))
        if not same:
            how = "left out" if other["counting"] == "excluded" else "counted as failures"
            yield Paragraph(
                f"With {_lacking(row)} {how} instead: {other['verdict']}, difference "
                f"{number(other['difference'], signed=True)}, interval "
                f"{interval(other['low'], other['high'], signed=True)}, "
                f"{counted(other['tasks'], 'task')}."
            )


def _lacking(row: dict[str, Any]) -> str:
    missing = row["base_missing"] + row["arm_missing"]
    parts = [f"{counted(missing, 'trial')} without a value"] if missing else []
    if row["unmatched"]:
        parts.append(f"{counted(row['unmatched'], 'task')} that one arm does not have")
    return " and ".join(parts) or "what is missing"


def _difference(row: dict[str, Any]) -> str:
    if row["difference"] is None:
        return "No task has a value in both arms. "
    shown = f"Difference {number(row['difference'], signed=True)}"
    if row["low"] is not None:
        always = interval(row["always_low"], row["always_high"], signed=True)
        shown += (
            f", interval {interval(row['low'], row['high'], signed=True)} (at any look "
            f"{always or 'not known of so few clusters'})"
        )
    family = f", Holm over {row['family']}: {chance(row['holm_p'])}" if row["family"] > 1 else ""
    looked = row["always_p"] if row["stop"] == "sequential" else row["p"]
    return (
        f"{shown}; p {chance(looked)}{family}; {row['design']}, {counted(row['tasks'], 'task')}, "
        f"{counted(row['clusters'], 'cluster')}. "
    )


def _exact(row: dict[str, Any]) -> str:
    if row["mcnemar_p"] is None:
        return ""
    name = "exact McNemar" if row["binary"] else "exact sign test"
    return (
        f"Tasks: {row['wins']:,} won, {row['losses']:,} lost, {row['ties']:,} even; {name} p "
        f"{chance(row['mcnemar_p'])}. "
    )


def _reach(row: dict[str, Any]) -> str:
    if row["detectable"] is None:
        return ""
    shown = f"With power 0.8 it would have found {number(row['detectable'])}"
    if row["tasks_required"] is not None:
        shown += (
            f"; to find {number(row['smallest'])}, the least that matters, takes "
            f"{counted(row['tasks_required'], 'task')}"
        )
    return shown + "."


def _curves(part: Part, by: str | None) -> Iterator[Block]:
    rows = [
        (
            *_slice(row, by),
            row["arm"],
            str(row["k"]),
            f"{row['pass_at_k']:.4f}",
            interval(row["pass_at_k_low"], row["pass_at_k_high"]),
            f"{row['pass_hat_k']:.4f}",
            interval(row["pass_hat_k_low"], row["pass_hat_k_high"]),
        )
        for row in part.curves
    ]
    names = ("arm", ">k", ">pass@k", "interval", ">pass^k", "interval")
    yield Paragraph("pass@k: one of k trials succeeds; pass^k: all of them do.")
    yield Table((*_slice_column(by), *names), rows)


def _beside(parts: list[Part]) -> Iterator[Block]:
    if not parts:
        return
    yield Heading("Beside it (no verdict)")
    rows = []
    for part in parts:
        beside = {row["arm"]: row for row in part.comparisons if row["default"]}
        for arm in part.arms:
            found = beside.get(arm["arm"])
            rows.append(
                (
                    part.metric,
                    arm["arm"],
                    f"{arm['missing']:,}",
                    number(arm["mean"]),
                    number(arm["p50"]),
                    number(arm["p95"]),
                    number(arm["p99"]),
                    number(found["difference"], signed=True) if found else "",
                    interval(found["low"], found["high"], signed=True) if found else "",
                )
            )
    names = ("metric", "arm", ">missing", ">mean", ">p50", ">p95", ">p99", ">difference")
    yield Table((*names, "interval"), rows)


def _accounts(report: Report) -> Iterator[Block]:
    yield Heading("What became of the runs")
    names = ("completed", "failed", "cancelled", "open", "unjudged", "tasks_lacking")
    rows = [
        (row["arm"], f"{row['runs']:,}", f"{row['tasks']:,}", *(f"{row[name]:,}" for name in names))
        for row in report.accounts
    ]
    shown = (*names[:-1], "tasks lacking")
    yield Table(("arm", ">runs", ">tasks", *(f">{name}" for name in shown)), rows)
    if report.ratio and report.ratio[0]["p"] is not None:
        units = ", ".join(
            f"{row['arm']} {row['units']:,} of {number(row['expected'])}" for row in report.ratio
        )
        p = report.ratio[0]["p"]
        warning = (
            ": far from what was to be expected, so look for what loses units before you read any "
            "difference"
            if p < LOST_UNITS_P
            else ""
        )
        how = "by hash" if report.ratio[0]["randomised"] else "not assigned by hash"
        yield Paragraph(f"Sample ratio ({how}): {units}; p {chance(p)}{warning}.")


def _regressions(report: Report) -> Iterator[Block]:
    if not report.regressions:
        return
    yield Heading("Tasks that went worse")
    rows = [
        (
            row["metric"],
            row["arm"],
            row["task"],
            number(row["base_score"]),
            number(row["arm_score"]),
            " ".join(row["base_runs"][:1]),
            " ".join(row["arm_runs"][:1]),
        )
        for row in report.regressions
    ]
    names = ("metric", "arm", "task", ">baseline", ">arm", "run of the baseline", "run of the arm")
    yield Table(names, rows)
    yield Paragraph("What they did otherwise: hansard run diff RUN RUN")


def _paths(report: Report) -> Iterator[Block]:
    if not report.tools:
        return
    yield Heading("Which tools they chose")
    rows = [
        (
            row["tool"],
            row["arm"],
            f"{row['calls']:,}",
            f"{row['runs_with_it']:,} of {row['runs']:,}",
            f"{row['errors']:,}",
            number(row["success_with"]),
            number(row["success_without"]),
        )
        for row in report.tools
    ]
    names = (">calls", ">runs with it", ">errors", ">success with it", ">without it")
    yield Table(("tool", "arm", *names), rows)
    yield Paragraph("What goes with success need not lead to it. The commonest paths:")
    paths = [
        (
            row["arm"],
            row["role"] or "",
            f"{row['runs']:,}",
            number(row["success_rate"]),
            _path(row["sequence"]),
        )
        for row in report.sequences
    ]
    yield Table(("arm", "role", ">runs", ">success", "tools"), paths)


def _path(tools: list[str]) -> str:
    shown = " > ".join(tools[:PATH_MAX]) or "(none)"
    return f"{shown} > {len(tools) - PATH_MAX} more" if len(tools) > PATH_MAX else shown
