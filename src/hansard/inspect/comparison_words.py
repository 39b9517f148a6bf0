"""How the numbers of a comparison are said, and which number decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hansard.domain.counted import counted, listed
from hansard.projections.report import Report

P_LEAST = 0.0001
"""Below it, a p-value is told as below it."""

LARGE = 1_000
"""From it on, numbers are told without a fraction."""

NO_VERDICT = "no metric named"
"""The verdict of what was scored beside others, and nothing names."""

WAYS = {"failure": "counted as failures", "excluded": "left out", "worst-case": "worst case"}
"""How each way of counting what is missing is named in a sentence."""

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
        return "The intervals are valid at any number of analyses."
    once = "the intervals are valid for one analysis, and how many were made is not recorded."
    if plan["planned"] is None:
        return f"No size was planned: {once}"
    lacking = any(not row["units"] for row in report.ratio)  # an arm of the plan without a run
    have = 0 if lacking else min((row["tasks"] for row in report.accounts), default=0)
    tasks = counted(plan["planned"], "task")
    if have < plan["planned"]:
        return (
            f"An interim analysis: {have:,} of {tasks} planned for each arm are there, and the "
            "intervals are valid for one analysis at the planned size."
        )
    runs, wanted = min(row["runs"] for row in report.accounts), have * (plan["trials"] or 0)
    if runs < wanted:
        return (
            f"An interim analysis: {runs:,} of {counted(wanted, 'trial')} planned for each arm are "
            "there, and the intervals are valid for one analysis at the planned size."
        )
    if have > plan["planned"]:
        return f"Past its planned size of {tasks} ({have:,} are there): {once}"
    return f"At its planned size, {tasks}: {once}"


def decides(row: dict[str, Any], others: Sequence[dict[str, Any]] = ()) -> str:
    """The number that decides and the test that it comes from, or why there is no verdict.

    Args:
        row: A row of the macro `comparisons`.
        others: The same two arms by the other ways of counting what is missing.
    """
    verdict = row["verdict"]
    if verdict == "not finished":
        open_runs = {row["baseline"]: row["base_open"], row["arm"]: row["arm_open"]}
        named = [f"{counted(runs, 'run')} of {arm}" for arm, runs in open_runs.items() if runs]
        return f": {listed(named)} still open: end, resume or settle them"
    if verdict.startswith("depends on "):
        ways = {each["counting"]: each["counted_verdict"] for each in (row, *others)}
        return f" ({', '.join(f'{WAYS[name]}: {found}' for name, found in ways.items())})"
    if row["problem"] is not None:
        return f": {row['problem']}"
    if verdict not in {"better", "worse", "cannot tell"}:
        return ""
    if row["holm_p"] is None:
        return ": too few tasks for a p-value"
    over = f" over {counted(row['family'], 'comparison')}" if row["family"] > 1 else ""
    p = f"{'Holm' + chr(39) + 's ' if over else ''}p {chance(row['holm_p'])}{over}"
    low, high = decisive(row)
    if verdict != "cannot tell":
        shown = f", by {p} ({row['test']})"
    elif low is not None and (low > 0 or high < 0):
        shown = f": its interval excludes 0, but {p} is above {row['alpha']:g} ({row['test']})"
    else:
        shown = f": {p} is above {row['alpha']:g} ({row['test']})"
    return shown + disagreement(row)


def disagreement(row: dict[str, Any]) -> str:
    """The exact test where it and the one that decides are on two sides of alpha."""
    if not row["tests_disagree"]:
        return ""
    return f"; the {exact_test(row)} disagrees, with p {chance(row['mcnemar_p'])}"


def exact_test(row: dict[str, Any]) -> str:
    """The name of the exact test of the tasks that were won and lost."""
    return "exact McNemar test" if row["single"] else "exact sign test of tasks"


def decisive(row: dict[str, Any]) -> tuple[Any, Any]:
    """The interval that belongs to the p which decides: of a sequential plan, at any look."""
    which = "always_" if row["stop"] == "sequential" else ""
    return row[f"{which}low"], row[f"{which}high"]


def ranks(row: dict[str, Any]) -> str:
    """The ranks that an arm can have."""
    low, high = row["rank_low"], row["rank_high"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
