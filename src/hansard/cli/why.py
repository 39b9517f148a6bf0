"""Command `hansard why`: one decision in full, or the decisions of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from hansard.cli import output
from hansard.cli.common import Commands, argument, flag, option
from hansard.cli.opening import answering
from hansard.cli.output import Column, Hint, Part
from hansard.inspect import audit as reads
from hansard.inspect.audit import DecisionFacts, Decisions
from hansard.inspect.comparison_parts import Heading, Paragraph, Table
from hansard.web.pages import decision_page

app = Commands()

CUT_CHARACTERS = 120
"""Most characters of a text in a decision's tables."""

SHORT = {"question", "selected"}
"""Columns of decisions that are cut to a preview."""


class Page(msgspec.Struct, tag_field="kind", tag="page", kw_only=True):
    """Path of a decision's page."""

    decision: str
    path: str
    bytes: int
    position: int


@app.command()
async def why(
    decision: Annotated[
        str,
        argument(
            "DECISION",
            "An event's id or a unique prefix, its address (position.index), or a run: its only "
            "decision, or the list of its decisions.",
        ),
    ],
    html: Annotated[
        Path | None, option("Write one HTML file instead; '-' is stdout.", "FILE")
    ] = None,
    whole: Annotated[
        bool, flag("--all", "List everything in full, as --json and --html do.")
    ] = False,
) -> None:
    """Show why a decision was made.

    Shows the question and the choice, the inputs, the agent's context at that point, the
    alternatives and how close they were, the verdict of the gate, the versions of prompts, models
    and tools, the principal that acted, and the consequences.
    """
    output.check_one_answer(html)
    async with answering() as answers:
        found = reads.why(answers, decision)
        if isinstance(found, Decisions) and len(found.rows) == 1:
            found = reads.why(answers, found.rows[0]["decision"])
    if isinstance(found, Decisions):
        output.show(found, _list)
    elif html is None:
        output.show(found, lambda found: _render(found, whole=whole))
    else:
        data = decision_page(reads.decision_text(found), found.position)
        report = Page(
            decision=found.decision, path=str(html), bytes=len(data), position=found.position
        )
        output.page(data, html, report)


def _list(found: Decisions) -> Iterator[Part]:
    for block in reads.blocks(found):
        match block:
            case Table():
                short = [name in SHORT for name in block.columns]
                rows = [
                    [
                        output.cut(text) if cut else text
                        for text, cut in zip(row, short, strict=True)
                    ]
                    for row in block.rows
                ]
                yield output.table(_columns(block, whole=0), rows)
                yield ""
                yield Hint(f"one of them: hansard why {found.rows[0]['address']}")
            case Heading() | Paragraph():
                yield block.text


def _render(found: DecisionFacts, *, whole: bool) -> Iterator[Part]:
    after_table = False
    for block in reads.blocks(found, whole=whole):
        match block:
            case Heading():
                yield output.styled(block.text, "bold")
            case Paragraph():
                yield from [""] if after_table else []
                yield block.text
            case Table():
                after_table = True
                yield ""
                yield block.title
                more = [f"{block.left_out}; --all lists them"] if block.left_out else []
                rows = [[output.cut(text, CUT_CHARACTERS) for text in row] for row in block.rows]
                yield from more if block.left_out_before else []
                yield output.table(_columns(block, whole=len(block.columns) - 1), rows)
                yield from [] if block.left_out_before else more
    value = reads.decision_text(found)
    at = value.address.partition(".")[0]
    yield Hint(f"the run at that point: hansard run show {value.run} --at {at}")


def _columns(block: Table, whole: int) -> list[Column]:
    """Return the columns of a block, one of which is never cut."""
    return [
        Column(name.removeprefix(">"), right=name.startswith(">"), whole=place == whole)
        for place, name in enumerate(block.columns)
    ]
