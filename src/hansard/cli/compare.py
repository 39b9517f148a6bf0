"""Command `hansard compare`: compare the arms of an experiment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hansard.bus.file_lock import write_whole
from hansard.cli import output as _show
from hansard.cli.common import Commands, flag, option
from hansard.cli.opening import answering
from hansard.cli.output import Bytes, Column, Hint, Lines, Part
from hansard.inspect import comparison_parts as reads
from hansard.inspect.answer import plain_text
from hansard.inspect.comparison_parts import (
    SECTIONS,
    Heading,
    Paragraph,
    Plot,
    Table,
    blocks,
    sections,
)
from hansard.projections.report import Question, Report, task_labels

app = Commands()

NO_PICTURES = (
    "the page has no pictures: matplotlib, which draws them, is not installed: "
    "pip install 'hansard[plots]'"
)

VERDICT_STYLES = {"better": "bold green", "worse": "bold red", "": ""}
"""Colours of verdicts; any other verdict withholds a judgement, and is yellow."""


AllPairs = Annotated[
    bool, flag("--all-pairs", "Compare all pairs of arms, and rank them; Holm over all pairs.")
]
Lower = Annotated[
    list[str] | None, option("Lower is better. Repeatable.", "METRIC", "--lower-is-better")
]
Higher = Annotated[
    list[str] | None, option("Higher is better. Repeatable.", "METRIC", "--higher-is-better")
]
Missing = Annotated[
    Literal["failure", "excluded", "worst-case"] | None,
    option(
        "How a trial without a value counts [the plan's, else failure]. excluded leaves out those"
        " that did not end as completed, too; worst-case counts all of them as the worst under an"
        " arm and as the best under the baseline."
    ),
]
Show = Annotated[
    str | None,
    option(
        f"Only these sections, of {', '.join(SECTIONS)} [all]. --json has all of them.",
        "SECTION,...",
    ),
]


Labels = Sequence[dict[str, Any]]
"""Labels by which the tasks of a page can be filtered, as `task_labels` returns them."""


@app.command()
async def compare(
    experiment: Annotated[str, typer.Argument(help="The experiment's name.")],
    metric: Annotated[str | None, option("Judge by this metric instead of the plan's.")] = None,
    baseline: Annotated[str | None, option("Compare with this arm [the first one].", "ARM")] = None,
    all_pairs: AllPairs = False,
    by: Annotated[str | None, option("Also by each value of a label of runs.", "LABEL")] = None,
    lower: Lower = None,
    higher: Higher = None,
    missing: Missing = None,
    show: Show = None,
    form: Annotated[
        Literal["table", "markdown", "html"], option("Output format.", None, "--format", "-f")
    ] = "table",
    output: Annotated[
        Path | None, option("The file to write [stdout].", None, "--output", "-o")
    ] = None,
) -> None:
    """Compare the arms of an experiment.

    The metrics of the plan are judged. Without a plan, the only scored metric is judged; if several
    were scored, choose one with --metric, since no verdict is given without it. Completion (how
    runs ended) is reported beside. Which direction is better comes from the plan, from
    --lower-is-better and --higher-is-better, or from the table metric_catalogue; if none states it,
    the report has the difference and its interval, but no verdict.

    Trials are paired by task, with clustered standard errors, exact McNemar, intervals that hold at
    one look and at any look, and Holm's correction over all that is judged; slices (--by) are
    corrected separately. The verdict is 'better', 'worse' or 'cannot tell', or it names the
    obstacle: not finished, depends on crashes or missing values, impossible values. A trial without
    a value counts as a failure unless the plan says otherwise; the report shows how the result
    changes if such trials are left out. Tasks that only one arm has are left out and listed, unless
    the plan states the number of tasks. The report begins with a summary of ten lines. The same log
    and the same options give the same bytes.
    """
    target = sections(show)
    question = Question(
        experiment=experiment,
        metric=metric,
        baseline=baseline,
        by=by,
        lower=tuple(lower or ()),
        higher=tuple(higher or ()),
        missing=missing,
        all_pairs=all_pairs,
    )
    async with answering() as answers:
        found = await asyncio.to_thread(reads.compare, answers, question)
        labels: Labels = ()
        if form == "html":
            labels = await asyncio.to_thread(task_labels, answers, experiment)
    _show.show(found, lambda found: _render(found.report, target, form, output, labels))


def _render(
    made: Report, show: Collection[str], form: str, output: Path | None, labels: Labels
) -> Iterator[Part]:
    if form == "table" and output is None:
        yield from table(made, show)
        return
    data = page(made, show, labels) if form == "html" else _FORMS[form](made, show)
    if output is None:
        yield Bytes(data)
    else:
        write_whole(output, data)
        yield Hint(f"wrote {output}")
    if form == "html":
        from hansard.web.pages import installed_draw

        yield from [] if installed_draw() else [Hint(NO_PICTURES)]


def table(made: Report, show: Collection[str] = SECTIONS) -> Iterator[Part]:
    """Yield a comparison as tables."""
    for place, block in enumerate(blocks(made, show)):
        match block:
            case Heading():
                yield from [""] if place else []
                yield _show.styled(block.text, "bold")
            case Paragraph():
                yield from [""] if block.verdict and not block.brief else []
                yield _show.styled(block.text, VERDICT_STYLES.get(block.verdict, "bold yellow"))
            case Table():
                yield _grid(block)
            case Plot():
                pass


def _grid(block: Table) -> Lines:
    columns = [
        Column(name.removeprefix(">"), right=name.startswith(">"), whole=True)
        for name in block.columns
    ]
    return _show.table(columns, block.rows)


def _text(made: Report, show: Collection[str]) -> bytes:
    lines: list[str] = []
    for block in blocks(made, show):
        match block:
            case Heading() | Paragraph():
                lines.append(plain_text(block.text))
            case Table():
                lines += [line.plain.rstrip() for line in _grid(block).lines]
            case Plot():
                pass
    return ("\n".join(lines) + "\n").encode()


def markdown(made: Report, show: Collection[str]) -> bytes:
    """Render the comparison as Markdown, with tables in GitHub's syntax."""
    lines: list[str] = []
    level = 1
    for block in blocks(made, show):
        match block:
            case Heading():
                lines += [*_gap(lines), "#" * level + " " + _marked(block.text), ""]
                level = 2
            case Paragraph():
                text = _marked(block.text)
                line = f"**{text}**" if block.verdict else text
                lines += [f"* {line}"] if block.brief else [*_gap(lines), line, ""]
            case Table():
                names = [_marked(name.removeprefix(">")) for name in block.columns]
                rules = ["---:" if name.startswith(">") else "---" for name in block.columns]
                rows = [names, rules, *([_marked(each) for each in row] for row in block.rows)]
                lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
            case Plot():
                pass
    return "\n".join(lines).rstrip().encode() + b"\n"


def _gap(lines: list[str]) -> list[str]:
    """Return an empty line unless the lines already end with one."""
    return [""] if lines and lines[-1] else []


_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#~&"})


def _marked(text: str) -> str:
    """Escape a text so that Markdown shows it literally."""
    return plain_text(text).translate(_MARKS)


def page(made: Report, show: Collection[str], labels: Labels = ()) -> bytes:
    """Render the comparison as one HTML file that makes no network requests.

    Without matplotlib it has no pictures.
    """
    from hansard.web.pages import comparison_page, installed_draw

    return comparison_page(made, installed_draw(), show, labels)


_FORMS: dict[str, Callable[[Report, Collection[str]], bytes]] = {
    "table": _text,
    "markdown": markdown,
}
