"""`hansard conversation show`: what continues over several runs, as it stood at a point."""

from __future__ import annotations

from collections.abc import Iterator

from hansard.cli import output
from hansard.cli.commands import _messages, _times
from hansard.cli.opening import Options, reading
from hansard.cli.output import Column, Part
from hansard.domain.counted import counted
from hansard.inspect import conversation as reads
from hansard.inspect.conversation import Conversation, RunPart
from hansard.inspect.payloads import Payloads

RUNS = (
    Column("run", whole=True),
    Column("workflow"),
    Column("status", lambda run: output.status_cell(run.status)),
    Column("began", lambda run: _times.shown(run.began), whole=True),
    Column("messages", _messages.total_text),
)


async def show(options: Options, conversation: str, at: str | None, *, json: bool) -> int:
    """Print a conversation's runs and messages, large ones fetched.

    Raises NotFound, BadName, UnknownEvent, Corrupt.
    """
    async with reading(options) as workspace:
        found = await reads.conversation(workspace, conversation, at)
        for error in found.left_out:
            output.hint(f"a run of the conversation is left out: {error}")
        output.show(found, _people, json=json)
        fetch = Payloads(workspace)
        for part in found.parts:
            output.show(part, _heading, json=json)
            async for message in found.messages(part, fetch):
                output.hint_erased(fetch)
                output.show(message, _messages.apart, json=json)
    return 0


def _people(found: Conversation) -> Iterator[Part]:
    told = found.told
    said = f"{_messages.total_text(told)}, {counted(told.turns, 'turn')}"
    yield f"conversation {told.conversation} as of position {told.position}: {said}"
    yield from _times.imported(found.imported) or [""]
    yield output.listing(RUNS, [part.line for part in found.parts])


def _heading(part: RunPart) -> Iterator[Part]:
    yield ""
    title = f"run {part.line.run}, {counted(len(part.said), 'message')}"
    yield output.Lines([output.cell(title, "bold")])
