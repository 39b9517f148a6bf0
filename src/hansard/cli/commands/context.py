"""`hansard run context`: the context windows of a run's agents as they stood at a point."""

from __future__ import annotations

from collections.abc import Iterator

from hansard.cli import output
from hansard.cli.commands import _messages, _times
from hansard.cli.opening import Options, find_run, reading
from hansard.cli.output import Part
from hansard.inspect.context import AgentContext, Contexts, contexts
from hansard.inspect.payloads import Payloads


async def context(
    options: Options, run: str, at: str | None, agent: str | None, *, json: bool
) -> int:
    """Print the messages of each agent in order, large ones fetched, and what they used up.

    Raises NotFound, BadName, UnknownEvent, Corrupt.
    """
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        found = await contexts(workspace, run, await workspace.points.up_to(run, at), agent)
        fetch = Payloads(workspace)
        output.show(found, _heading, json=json)
        for each in found.agents:
            output.show(found.context(each), _context, json=json)
            async for message in found.messages(each, fetch):
                output.hint_erased(fetch)
                output.show(message, _messages.apart, json=json)
    if not found.agents:
        output.hint(f"run {run} had no agents at this point")
    return 0


def _heading(found: Contexts) -> list[Part]:
    return [f"run {found.run} as of position {found.position}", *_times.imported(found.imported)]


def _context(found: AgentContext) -> Iterator[Part]:
    yield ""
    said = f"{found.agent} ({found.role}): {_messages.total_text(found)}"
    yield output.Lines([output.cell(said, "bold")])
