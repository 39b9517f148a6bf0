"""`hansard conversation show`: what continues over several runs, as it stood at a point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from hansard.cli import messages, output, times
from hansard.cli.common import At, Json, noun, work
from hansard.cli.opening import reading
from hansard.cli.output import Column, Part
from hansard.domain.choices import counted
from hansard.inspect import messages as reads
from hansard.inspect.messages import Conversation, RunPart
from hansard.inspect.payloads import Payloads

app = noun()

RUNS = (
    Column("run", whole=True),
    Column("workflow"),
    Column("status", lambda run: output.status_cell(run.status)),
    Column("began", lambda run: times.shown(run.began), whole=True),
    Column("messages", messages.total_text),
)


@app.command()
@work
async def show(
    conversation: Annotated[str, typer.Argument(metavar="ID", help="The conversation's id.")],
    at: At = None,
    json: Json = False,
) -> None:
    """Show a conversation's runs and messages."""
    async with reading() as workspace:
        found = await reads.conversation(workspace, conversation, at)
        for error in found.left_out:
            output.hint(f"a run of the conversation is left out: {error}")
        output.show(found, _people, json=json)
        fetch = Payloads(workspace)
        for part in found.parts:
            output.show(part, _heading, json=json)
            async for message in found.messages(part, fetch):
                output.hint_erased(fetch)
                output.show(message, messages.apart, json=json)


def _people(found: Conversation) -> Iterator[Part]:
    told = found.told
    said = f"{messages.total_text(told)}, {counted(told.turns, 'turn')}"
    yield f"conversation {told.conversation} as of position {told.position}: {said}"
    yield from times.imported(found.imported) or [""]
    yield output.listing(RUNS, [part.line for part in found.parts])


def _heading(part: RunPart) -> Iterator[Part]:
    yield ""
    title = f"run {part.line.run}, {counted(len(part.said), 'message')}"
    yield output.Lines([output.cell(title, "bold")])
