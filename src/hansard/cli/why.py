"""`hansard why`: everything about one decision, or the decisions of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hansard.cli import output
from hansard.cli.answers import answering
from hansard.cli.common import Json, noun, work
from hansard.cli.output import Column, Hint, Part
from hansard.domain.counted import counted
from hansard.inspect import why as reads
from hansard.inspect.why import Decisions, Explained
from hansard.web.pages import decision_page

app = noun()

CUT_CHARACTERS = 120
"""Of a text in a decision's tables."""

DECISIONS = (
    Column("at", lambda row: row["address"], whole=True),
    Column("agent", lambda row: row["agent"]),
    Column("question", lambda row: row["question"], short=True),
    Column("selected", lambda row: row["selected"], short=True),
    Column(
        "margin", lambda row: "" if row["margin"] is None else f"{row['margin']:+g}", right=True
    ),
)


class Page(msgspec.Struct, tag_field="kind", tag="page", kw_only=True):
    """A decision's page, and where it is."""

    decision: str
    path: str
    bytes: int
    position: int


@app.command()
@work
async def why(
    decision: Annotated[
        str,
        typer.Argument(
            metavar="DECISION",
            help="An event's id or a prefix no other has, its address (position.index), or a run: "
            "its decisions are listed.",
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one HTML file instead; '-' is stdout."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--all", help="List all of what is many, as --json and --html do.")
    ] = False,
    json: Json = False,
) -> None:
    """Show why something was decided.

    What was asked and chosen, from which inputs, what its agent had been given by then, what else
    could have been chosen and how near it was, what the gate said, under which versions of prompts,
    models and tools, who acted, and what came of it.
    """
    output.check_one_answer(html, json=json)
    async with answering() as answers:
        found = reads.why(answers, decision)
    if isinstance(found, Decisions):
        output.show(found, _list, json=json)
    elif html is None:
        output.show(found, lambda found: _people(found, whole=whole), json=json)
    else:
        data = decision_page(found.told, found.position)
        told = Page(
            decision=found.decision, path=str(html), bytes=len(data), position=found.position
        )
        output.page(data, html, told, json=json)


def _list(found: Decisions) -> Iterator[Part]:
    if found.rows:
        yield output.listing(DECISIONS, found.rows)
        yield ""
        yield Hint(f"one of them: hansard why {found.rows[0]['address']}")
    count = counted(len(found.rows), "decision")
    yield f"{count} of run {found.run}, as of position {found.position}"


def _people(found: Explained, *, whole: bool) -> Iterator[Part]:
    told = found.told
    yield output.styled(f"{told.question}  {told.selected}", "bold")
    yield "\n".join(told.sentences)
    for part in told.parts:
        yield ""
        yield part.title
        columns = [
            Column(name, whole=number + 1 == len(part.columns))
            for number, name in enumerate(part.columns)
        ]
        shown, _, word = (part.rows, [], "") if whole else part.folded()
        rows = [[output.cut(text, CUT_CHARACTERS) for text in row] for row in shown]
        more = [f"{word}; --all lists them"] if word else []
        yield from more if part.fold == "newest" else []
        yield output.table(columns, rows)
        yield from [] if part.fold == "newest" else more
    yield ""
    yield f"as of position {found.position}"
    at = told.address.partition(".")[0]
    yield Hint(f"the run as it stood then: hansard run show {told.run} --at {at}")
