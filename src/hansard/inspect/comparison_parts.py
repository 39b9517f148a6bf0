"""A comparison as headings, sentences, tables and plots: what all of its forms are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hansard.domain.counted import counted, listed
from hansard.inspect.blocks import Heading, Paragraph, Table
from hansard.projections.report import Part, Report

P_LEAST = 0.0001
"""Below it, a p-value is told as below it."""

LARGE = 1_000
"""From it on, numbers are told without a fraction."""

PATH_MAX = 8
"""Tools that are named of a sequence."""

NO_VERDICT = "no metric named"
"""The verdict of what was scored beside others, and nothing names."""

LOST_UNITS_P = 0.001
"""Below this p-value of the sample-ratio check, something loses units of an arm."""


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
    yield Paragraph(
        f"{plan['standing'][:1].upper()}{plan['standing'][1:]}. "
        f"{counted(plan['runs'], 'run')}, as of position {report.position} "
        f"({report.digest[:16]}). Baseline {report.baseline}. {_looks(report)} "
        f"Alpha {plan['alpha']:g}, intervals of {confidence}. {_missing(report)}"
    )
    yield from _failures(report)
    unnamed = [part.metric for part in report.judged if not part.named]
    if unnamed:
        yield Paragraph(
            f"No verdict is given: {counted(len(unnamed), 'metric')} were scored "
            f"({listed(unnamed)}), and nothing says which of them decides. --metric NAME names it, "
            "or a plan.",
            NO_VERDICT,
        )
    for part in report.judged:
        yield from _judged(part, by=asked.by)
    yield from _beside(report.beside)
    yield from _accounts(report)
    yield from _regressions(report)
    yield from _paths(report)


def _missing(report: Report) -> str:
    """What a trial without a value counts as, and who says so."""
    how = report.question.missing
    said = ", as asked," if how is not None else ""
    counted_as = how or report.plan["missing"]
    if counted_as == "failure":
        return (
            f"A trial without a value counts{said} as a failure; one that has a value, as it was "
            "scored."
        )
    if counted_as == "worst-case":
        return (
            f"The worst case{said}: trials without a value, those that did not end as completed "
            "(though they were scored) and tasks that one arm lacks count as the worst under an "
            f"arm and as the best under {report.baseline}."
        )
    return (
        f"Left out{said} are trials without a value and those that did not end as completed, "
        "though they were scored."
    )


def _failures(report: Report) -> Iterator[Block]:
    """Arms that end their runs as completed less often than the baseline, or more often."""
    found = [
        row
        for part in (*report.judged, *report.beside)
        if part.metric == "completion"
        for row in part.comparisons
        if row["default"] and not row["slice"]
    ]
    for row in found:
        if row["p"] is None or row["p"] > row["alpha"] or not row["difference"]:
            continue
        yield Paragraph(
            f"Failures are unevenly spread: of {row['baseline']} {number(row['base_mean'])} of the "
            f"runs ended as completed, of {row['arm']} {number(row['arm_mean'])} (p "
            f"{chance(row['p'])}). What leaving them out would change stands below each verdict.",
            "cannot tell",
        )


def _looks(report: Report) -> str:
    """When it may be looked at, and whether that is now."""
    plan = report.plan
    if plan["stop"] == "sequential":
        return "It may be looked at at any time."
    once = "the intervals hold for one look, and how often it was looked at is not on record."
    if plan["planned"] is None:
        return f"No size was planned: {once}"
    lacking = any(not row["units"] for row in report.ratio)  # an arm of the plan without a run
    have = 0 if lacking else min((row["tasks"] for row in report.accounts), default=0)
    tasks = counted(plan["planned"], "task")
    if have < plan["planned"]:
        return (
            f"An early look: {have:,} of {tasks} planned for each arm are there, and the intervals "
            "hold for one look at the planned size."
        )
    runs, wanted = min(row["runs"] for row in report.accounts), have * (plan["trials"] or 0)
    if runs < wanted:
        return (
            f"An early look: {runs:,} of {counted(wanted, 'trial')} planned for each arm are "
            "there, and the intervals hold for one look at the planned size."
        )
    if have > plan["planned"]:
        return f"Past its planned size of {tasks} ({have:,} are there): {once}"
    return f"At its planned size, {tasks}: {once}"


def _direction(part: Part) -> str:
    """Which direction is the good one, and who says so."""
    if part.better is None:
        return (
            "direction not stated: no plan says which is better, --lower-is-better or "
            "--higher-is-better does"
        )
    return f"{part.better} is better, says {part.stated_by}"


def _judged(part: Part, by: str | None) -> Iterator[Block]:
    yield Heading(f"{part.metric} ({_direction(part)})")
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
    sides = f"{row['arm']} against {row['baseline']}{where}"
    if row["verdict"] == NO_VERDICT:
        yield Paragraph(f"{sides}: {_difference(row)}{_exact(row)}{_reach(row)}")
    else:
        yield Paragraph(f"{sides}: {row['verdict']}{_decides(row)}", row["verdict"])
        yield Paragraph(_difference(row) + _exact(row) + _reach(row))
    for other in others:
        same = all(row[name] == other[name] for name in ("difference", "se", "tasks"))
        if not same:
            how = "left out" if other["counting"] == "excluded" else "counted as failures"
            verdict = "" if other["verdict"] == NO_VERDICT else f"{other['verdict']}, "
            shown = interval(other["low"], other["high"], signed=True)
            yield Paragraph(
                f"With {_lacking(row)} {how} instead: {verdict}difference "
                f"{number(other['difference'], signed=True) or 'not known'}, "
                f"{'interval ' + shown if shown else 'no interval'}, "
                f"{counted(other['tasks'], 'task')}."
            )


def _decides(row: dict[str, Any]) -> str:
    """The number that decides, where it does; and why it does where the interval says otherwise."""
    if row["verdict"] not in {"better", "worse", "cannot tell"}:
        return ""
    if row["holm_p"] is None:
        return ": no p can be had of so few"
    over = f" over {counted(row['family'], 'comparison')}" if row["family"] > 1 else ""
    p = f"{'Holm' + chr(39) + 's ' if over else ''}p {chance(row['holm_p'])}{over}"
    if row["verdict"] != "cannot tell":
        return f", by {p}"
    if row["low"] is not None and (row["low"] > 0 or row["high"] < 0):
        return f": its interval excludes 0, but {p} is above {row['alpha']:g}"
    return f": {p} is above {row['alpha']:g}"


def _lacking(row: dict[str, Any]) -> str:
    missing = row["base_missing"] + row["arm_missing"]
    parts = [f"{counted(missing, 'trial')} without a value"] if missing else []
    if row["unended_valued"]:
        parts.append(
            f"{counted(row['unended_valued'], 'trial')} that did not end as completed (though "
            "scored)"
        )
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
    else:
        shown += f", no interval ({_no_interval(row)})"
    family = f", Holm over {row['family']}: {chance(row['holm_p'])}" if row["family"] > 1 else ""
    looked = row["always_p"] if row["stop"] == "sequential" else row["p"]
    return (
        f"{shown}; p {chance(looked)}{family}; {row['design']}, {counted(row['tasks'], 'task')}, "
        f"{counted(row['clusters'], 'cluster')}. "
    )


def _no_interval(row: dict[str, Any]) -> str:
    if row["se"] == 0:
        return "all tasks differ by the same, so nothing can be said of their spread"
    return f"{counted(row['clusters'] or 0, 'cluster')}: too few for a spread"


def _exact(row: dict[str, Any]) -> str:
    if row["mcnemar_p"] is None:
        return ""
    name = "exact McNemar" if row["single"] else "exact sign test of tasks"
    sides = f"{row['above']:,} higher, {row['below']:,} lower"
    if row["wins"] is not None:
        sides = f"{row['wins']:,} won, {row['losses']:,} lost"
    return f"Tasks: {sides}, {row['ties']:,} even; {name} p {chance(row['mcnemar_p'])}. "


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
    columns = {
        "judged": "judged",
        "never_judged": "never judged",
        "errored": "errored",
        "timed_out": "timed out",
        "cancelled": "cancelled",
        "open": "crashed or at work",
        "scored_all_the_same": "scored all the same",
        "tasks_lacking": "tasks lacking",
    }
    rows = [
        (
            row["arm"],
            *(f"{row[name]:,}" for name in ("runs", "tasks")),
            *(f"{row[name]:,}" for name in columns),
        )
        for row in report.accounts
    ]
    yield Table(("arm", ">runs", ">tasks", *(f">{name}" for name in columns.values())), rows)
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
