"""`hansard compare`: the arms of an experiment beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hansard.bus.file_lock import write_whole
from hansard.cli import output as _show
from hansard.cli.common import Json, noun, work
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

app = noun()

NO_PICTURES = (
    "the page has no pictures: matplotlib, which draws them, is not installed: "
    "pip install 'hansard[plots]'"
)

VERDICT_STYLES = {"better": "bold green", "worse": "bold red", "": ""}
"""Any other verdict withholds one, and is yellow."""


AllPairs = Annotated[
    bool,
    typer.Option(
        "--all-pairs", help="Each arm with each other one, and a ranking; Holm's is over all pairs."
    ),
]
Lower = Annotated[
    list[str] | None,
    typer.Option("--lower-is-better", metavar="METRIC", help="Less of it is better. Repeatable."),
]
Higher = Annotated[
    list[str] | None,
    typer.Option("--higher-is-better", metavar="METRIC", help="More of it is better. Repeatable."),
]
Missing = Annotated[
    Literal["failure", "excluded", "worst-case"] | None,
    typer.Option(
        help="What a trial without a value counts as [the plan's, else failure]. excluded "
        "leaves out those that did not end as completed, too; worst-case counts all of them "
        "as the worst under an arm and as the best under the baseline."
    ),
]
Show = Annotated[
    str | None,
    typer.Option(
        metavar="SECTION,...",
        help=f"Only these sections, of {', '.join(SECTIONS)} [all]. --json has all of them.",
    ),
]


Labels = Sequence[dict[str, Any]]
"""What a page's tasks can be filtered by, as `task_labels` gives it."""


@app.command()
@work
async def compare(  # noqa: PLR0913, PLR0917 -- the command's options are its parameters
    experiment: Annotated[str, typer.Argument(help="The experiment's name.")],
    metric: Annotated[
        str | None, typer.Option(help="Judge by this metric instead of the plan's.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="ARM", help="Compare with this arm [the first one].")
    ] = None,
    all_pairs: AllPairs = False,
    by: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Also for each value of a label of runs.")
    ] = None,
    lower: Lower = None,
    higher: Higher = None,
    missing: Missing = None,
    show: Show = None,
    form: Annotated[
        Literal["table", "markdown", "html"],
        typer.Option("--format", "-f", help="How it is written."),
    ] = "table",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write [stdout].")
    ] = None,
    json: Json = False,
) -> None:
    """Compare the arms of an experiment.

    Judged is by the plan's metrics; without a plan by the one that was scored, and where
    several were, no verdict is given until --metric names one. That a run ended is its
    completion, which stands beside. Which direction is better comes from the plan, from
    --lower-is-better and --higher-is-better, or from the table metric_catalogue; where none
    says it, there is a difference with its interval, and no verdict.

    Paired by task, with clustered standard errors, exact McNemar, intervals that hold at one
    look and at any look, and Holm's correction over all that is judged; slices (--by) have a
    correction of their own. The verdict is better, worse or cannot tell; or it says what is
    lacking: not finished, depends on crashes or missing values, impossible values. Trials without
    a value count as failures unless the plan says otherwise, and what leaving them out would
    change is shown. Tasks that only one arm has are left out and listed, unless the plan says how
    many there were to be. A summary of ten lines comes first. Equal log and question give equal
    bytes.
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
    _show.show(found, lambda found: _people(found.report, target, form, output, labels), json=json)


def _people(
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
    """A comparison as tables."""
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
    """The comparison as Markdown, tables as GitHub writes them."""
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
    """An empty line where there is none before."""
    return [""] if lines and lines[-1] else []


_MARKS = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>|#~&"})


def _marked(text: str) -> str:
    """A text that Markdown shows as it is."""
    return plain_text(text).translate(_MARKS)


def page(made: Report, show: Collection[str], labels: Labels = ()) -> bytes:
    """The comparison as one HTML file that asks nobody for anything; without matplotlib it has no
    pictures.
    """
    from hansard.web.pages import comparison_page, installed_draw

    return comparison_page(made, installed_draw(), show, labels)


_FORMS: dict[str, Callable[[Report, Collection[str]], bytes]] = {
    "table": _text,
    "markdown": markdown,
}
