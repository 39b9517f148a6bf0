"""How the numbers of a comparison are said, and which number decides."""

from __future__ import annotations

from typing import Any

from hansard.domain.counted import counted
from hansard.projections.report import Report

P_LEAST = 0.0001
"""Below it, a p-value is told as below it."""

LARGE = 1_000
"""From it on, numbers are told without a fraction."""

NO_VERDICT = "no metric named"
"""The verdict of what was scored beside others, and nothing names."""

LOST_UNITS_P = 0.001
"""Below this p-value of the sample-ratio check, something loses units of an arm."""


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


def looks(report: Report) -> str:
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


def decides(row: dict[str, Any]) -> str:
    """The number that decides, where it does; and why it does where the interval says otherwise."""
    if row["verdict"] not in {"better", "worse", "cannot tell"}:
        return ""
    if row["holm_p"] is None:
        return ": no p can be had of so few"
    over = f" over {counted(row['family'], 'comparison')}" if row["family"] > 1 else ""
    p = f"{'Holm' + chr(39) + 's ' if over else ''}p {chance(row['holm_p'])}{over}"
    if row["verdict"] != "cannot tell":
        return f", by {p}"
    low, high = decisive(row)
    if low is not None and (low > 0 or high < 0):
        return f": its interval excludes 0, but {p} is above {row['alpha']:g}"
    return f": {p} is above {row['alpha']:g}"


def decisive(row: dict[str, Any]) -> tuple[Any, Any]:
    """The interval that belongs to the p which decides: of a sequential plan, at any look."""
    which = "always_" if row["stop"] == "sequential" else ""
    return row[f"{which}low"], row[f"{which}high"]


def ranks(row: dict[str, Any]) -> str:
    """The ranks that an arm can have."""
    low, high = row["rank_low"], row["rank_high"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
