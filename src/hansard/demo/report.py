"""The report's texts, from figures alone: no time is in them, equal figures give equal bytes."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from hansard.demo.measures import Anatomy, Measures

SUMMARY = "## Summary"
"""The heading of the one part that a model may have written."""


class Hot(Anatomy, frozen=True):
    """A function that the analyzer looked at closer, and its score under the strategy."""

    score: int

    @property
    def module(self) -> str:
        """The module it is in."""
        return self.place.partition(":")[0]


def section(heading: str, figures: Measures, hot: Sequence[Hot]) -> str:
    """What the report says of one module."""
    size = f"{figures.lines:,} lines, {figures.functions} functions, {figures.classes} classes"
    covered = f"{figures.documented} of {figures.public} public names documented"
    lines = [f"### {heading}", "", f"{size}, {figures.branches:,} branches; {covered}."]
    for found in hot:
        kinds = ", ".join(f"{count} {kind}" for kind, count in found.kinds.items())
        lines.append(
            f"- `{found.place}` scores {found.score}: {kinds or 'no branches'}; "
            f"nested {found.depth} deep, {found.parameters} parameters"
        )
    return "\n".join(lines) + "\n"


def summary(measured: Sequence[Measures], hot: Sequence[Hot]) -> str:
    """The summary that a rule writes."""
    public = sum(figures.public for figures in measured)
    documented = sum(figures.documented for figures in measured)
    lines = sum(figures.lines for figures in measured)
    functions = sum(figures.functions for figures in measured)
    return (
        f"Of {len(measured)} modules with {lines:,} lines and {functions:,} functions, "
        f"{len({found.module for found in hot})} hold the {len(hot)} functions that were looked at "
        f"closer; {documented:,} of {public:,} public names have a docstring."
    )


def assemble(leading: str, text: str, uses: dict[str, int], sections: Sequence[str]) -> str:
    """The whole report."""
    most = ", ".join(f"{name} ({count})" for name, count in uses.items())
    head = [
        f"# The standard library of Python {platform.python_version()}, measured",
        "",
        leading,
        "",
        SUMMARY,
        "",
        text,
        "",
        "## Imported most",
        "",
        most + ".",
        "",
        "## Modules",
        "",
    ]
    return "\n".join((*head, *sections))


def headline(report: str) -> str:
    """The report's leading line."""
    return report.split("\n", 3)[2]


def without_summary(report: str) -> str:
    """The report without the part that a model may have written."""
    before, _, rest = report.partition(SUMMARY)
    _, heading, after = rest.partition("\n## ")
    return before + heading + after
