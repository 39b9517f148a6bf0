"""`hansard run context`: the context windows of a run's agents as they stood at a point."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from hansard.cli import messages, output, times
from hansard.cli.common import Agent, At, Json, Run, noun, work
from hansard.cli.opening import reading_run
from hansard.cli.output import Part
from hansard.inspect.context import AgentContext, Contexts, contexts
from hansard.inspect.payloads import Payloads

app = noun()


@app.command()
@work
async def context(
    which: Run,
    at: At = None,
    agent: Agent = None,
    every: Annotated[
        bool, typer.Option("--all", help="After a summary all that it stands for, whole.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the context window of a run's agents as it stood at a point."""
    async with reading_run(which) as (workspace, run):
        found = await contexts(workspace, run, await workspace.points.up_to(run, at), agent)
        fetch = Payloads(workspace)
        output.show(found, _heading, json=json)
        for each in found.agents:
            output.show(found.context(each), _context, json=json)
            async for part in found.messages(each, fetch, every=every):
                output.hint_erased(fetch)
                output.show(part, partial(messages.part, every=every), json=json)
    if not found.agents:
        output.hint(f"run {run} had no agents at this point")


def _heading(found: Contexts) -> list[Part]:
    return [f"run {found.run} as of position {found.position}", *times.imported(found.imported)]


def _context(found: AgentContext) -> Iterator[Part]:
    yield ""
    said = f"{found.agent} ({found.role}): {messages.total_text(found)}"
    yield output.Lines([output.cell(said, "bold")])
