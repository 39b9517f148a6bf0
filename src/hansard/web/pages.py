"""Pages, each one self-contained file without any request.

Templates are filled in by jinja2: recorded text is never markup, and unprintable characters are
escaped; `safe` marks only our own files and hashes. The content security policy allows the one
style and the one script by their hashes, and no request of any kind. Equal data gives equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.bus import subjects
from hansard.inspect.answer import plain_text
from hansard.inspect.audit import DecisionText
from hansard.inspect.comparison_parts import (
    SECTIONS,
    Heading,
    Paragraph,
    Plot,
    Table,
    blocks,
    interval,
    number,
)
from hansard.inspect.page import Page
from hansard.projections.report import Part, Report

if TYPE_CHECKING:
    import jinja2

Draw = Callable[[str, Part, Part | None], bytes | None]
"""Return a plot of a part as SVG, or of it and the part of the costs; None if there is nothing."""

COST = "cost"
"""Metric on the other axis of the plot of costs, and that plot's kind."""

TASKS_MAX = 2_000
"""Most tasks of each metric that a page lists; `task_pairs` has them all."""

VALUES_MAX = 50
"""Most values of a label that can be used as a filter: with more it identifies single runs."""

ALTS = {
    "intervals": "differences to the baseline with their intervals; the table has the numbers",
    "pairs": "each task's score under the baseline and under the arms",
    "curves": "pass^k by k, one line an arm; the table has the numbers",
    COST: "what each arm costs against how good it is, with intervals",
}

_KINDS = {Heading: "heading", Paragraph: "paragraph", Table: "table"}
"""Template names of the blocks of a comparison, except plots."""

_ESCAPES = (
    (b"<", rb"\u003c"),
    (b">", rb"\u003e"),
    (b"&", rb"\u0026"),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
)
"""Characters that could end a script element or a line of script; in JSON they occur only in texts.
"""

_DATA = "<!--data-->"
"""Place of the run's data, which is too large for a template; no filled-in value contains this
text.
"""


class Picture(msgspec.Struct, frozen=True):
    """A plot of a comparison: its description, and its SVG in base64."""

    alt: str
    data: str


def run_page(page: Page) -> bytes:
    """Return the page of a run, with its data and script."""
    filled = _page("run.html", built(".css"), built(".js"), run=page.run, data=_DATA)
    before, _, after = filled.partition(_DATA.encode())
    return before + data_of(page) + after


def decision_page(facts: DecisionText, position: int) -> bytes:
    """Return the page of a decision, without a script: long parts are collapsed."""
    return _page("decision.html", asset("why.css"), facts=facts, position=position)


class Tasks(msgspec.Struct, frozen=True):
    """Tasks of a metric under the baseline and an arm, with the runs of both; `more`: number left
    out.
    """

    metric: str
    baseline: str
    rows: list[dict[str, Any]]
    more: int
    better: str | None

    def how(self, row: dict[str, Any]) -> str:
        """Return whether a task went better or worse; empty if unknown."""
        if self.better is None or not row["difference"]:
            return ""
        return "better" if (row["difference"] > 0) == (self.better == "higher") else "worse"


def installed_draw() -> Draw | None:
    """Import the function that draws, which takes 0.5 s; None if matplotlib is not installed."""
    try:
        from hansard.web.comparison_plots import draw  # noqa: PLC0415 -- only a page needs it
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        return None
    return draw


def comparison_page(
    report: Report,
    draw: Draw | None,
    show: Collection[str] = tuple(SECTIONS),
    labels: Sequence[dict[str, Any]] = (),
) -> bytes:
    """Return the page of a comparison, without plots if `draw` is None. `labels`, as from
    `task_labels`, filter its tasks.
    """
    parts: list[tuple[str, Any]] = []
    for block in blocks(report, show):
        if not isinstance(block, Plot):
            parts.append((_KINDS[type(block)], block))
        elif draw is not None:
            parts.append(("picture", _picture(block, draw)))
            if block.kind == "intervals":
                parts.append(("picture", _costs(report, block.part, draw)))
    if "tasks" in show:
        parts += [("tasks", each) for each in _tasks(report)]
    return _page(
        "comparison.html",
        asset("comparison.css"),
        f'(() => {{\n"use strict";\n{asset("comparison.js")}}})();\n',
        pictures=True,
        experiment=report.question.experiment,
        blocks=parts,
        filters=_filters(labels) if "tasks" in show else {},
        numbers=_numbers(labels),
    )


def _filters(labels: Sequence[dict[str, Any]]) -> dict[str, list[tuple[int, str]]]:
    """Return the numbered values of each label that tells tasks apart."""
    filters: dict[str, list[tuple[int, str]]] = {}
    for place, row in enumerate(labels):
        filters.setdefault(row["label"], []).append((place, row["value"]))
    return {name: values for name, values in filters.items() if 1 < len(values) <= VALUES_MAX}


def _numbers(labels: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the numbers of the label values of each task's runs."""
    numbers: dict[str, list[str]] = {}
    for place, row in enumerate(labels):
        for task in row["tasks"]:
            numbers.setdefault(task, []).append(str(place))
    return {task: " ".join(places) for task, places in numbers.items()}


def page_name(run: str) -> str:
    """Return the default file name of `hansard run html RUN`."""
    return f"{subjects.token(run)}.html"


def _tasks(report: Report) -> list[Tasks]:
    return [
        Tasks(
            part.metric,
            report.baseline,
            part.pairs[:TASKS_MAX],
            len(part.pairs[TASKS_MAX:]),
            part.better,
        )
        for part in report.judged
        if part.pairs
    ]


def _picture(plot: Plot, draw: Draw) -> Picture | None:
    return _as_picture(
        f"{ALTS[plot.kind]}{_alternative_text(plot)}", draw(plot.kind, plot.part, None)
    )


def _alternative_text(plot: Plot) -> str:
    """Return the alternative text of a plot of differences."""
    if plot.kind != "intervals":
        return ""
    rows = [row for row in plot.part.comparisons if row["default"] and row["low"] is not None]
    several = len({row["baseline"] for row in rows}) > 1
    parts = [
        f"{row['arm']}{' against ' + row['baseline'] if several else ''}: "
        f"{number(row['difference'], signed=True)}, "
        f"{interval(row['low'], row['high'], signed=True)}"
        for row in rows
        if not row["slice"]
    ]
    return ": " + "; ".join(parts) if parts else ""


def _costs(report: Report, part: Part, draw: Draw) -> Picture | None:
    """Return the plot of the arms' costs against this metric, unless it is the cost itself."""
    cost = next((each for each in report.beside if each.metric == COST), None)
    if cost is None or part.metric == COST:
        return None
    costs = {arm["arm"]: arm["mean"] for arm in cost.arms if not arm["slice"]}
    parts = [
        f"{arm['arm']}: {part.metric} {number(arm['mean'])}, cost {number(costs[arm['arm']])}"
        for arm in part.arms
        if not arm["slice"] and arm["mean"] is not None and costs.get(arm["arm"]) is not None
    ]
    return _as_picture(f"{ALTS[COST]}: {'; '.join(parts)}", draw(COST, part, cost))


def _as_picture(alt: str, drawn: bytes | None) -> Picture | None:
    if drawn is None:
        return None
    styled = drawn.replace(b"</style>", f"{asset('plots.css')}</style>".encode(), 1)
    return Picture(alt, base64.b64encode(styled).decode())


def data_of(page: Page) -> bytes:
    """Return a run's data as JSON, escaped so that it contains no markup."""
    made = msgspec.json.encode(page)
    for char, escaped in _ESCAPES:
        made = made.replace(char, escaped)
    return made


def built(suffix: str) -> str:
    """Return the part of the built page that shows the data inside its file (`web/build.mjs`)."""
    folder = resources.files("hansard.web").joinpath("static", "assets")
    names = (each.name for each in folder.iterdir())
    [name] = [name for name in names if name.startswith("core-") and name.endswith(suffix)]
    return asset(f"assets/{name}")


def asset(name: str) -> str:
    """Return a static file."""
    return resources.files("hansard.web").joinpath("static", name).read_text(encoding="utf-8")


def _page(
    template: str, style: str, script: str = "", *, pictures: bool = False, **values: Any
) -> bytes:
    page_template = _environment().get_template(template)
    policy = _policy(style, script, pictures=pictures)
    return page_template.render(policy=policy, style=style, script=script, **values).encode()


def _policy(style: str, script: str, *, pictures: bool) -> str:
    """Return the content security policy: the style and the script by their hashes, nothing
    else.
    """
    parts = ["default-src 'none'"]
    parts += [f"script-src '{_hash(script)}'"] if script else []
    parts += [f"style-src '{_hash(style)}'"]
    parts += ["img-src data:"] if pictures else []
    parts += ["base-uri 'none'", "form-action 'none'"]
    parts += ["require-trusted-types-for 'script'", "trusted-types 'none'"] if script else []
    return "; ".join(parts)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 -- slow to load, and few commands make a page

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("hansard.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"inline": plain_text, "page_name": page_name, "figure": number}
    return made


def _shown(value: Any) -> Any:
    """Escape unprintable characters of recorded text; `safe` values are unchanged."""
    return plain_text(value, lines=True) if type(value) is str else value
