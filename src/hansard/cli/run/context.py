"""`hansard run context`: the context windows of a run's agents as they stood at a point."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated

import typer

from hansard.cli import messages, output, times
from hansard.cli.common import Agent, At, Json, Run, noun, work
from hansard.cli.opening import reading_run
from hansard.cli.output import Part
from hansard.domain.errors import BadValue
from hansard.inspect.messages import AgentContext, Compacted, Contexts, Message, Summary, contexts
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
    team: Annotated[
        bool, typer.Option("--team", help="All agents' messages as one, in the record's order.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the context window of a run's agents at a point.

    Agent by agent; with --team as one conversation, each message with its agent.
    """
    if team and agent is not None:
        raise BadValue("--team", f"agent {agent!r:.80} is asked for", "leave one of them out")
    async with reading_run(which) as (workspace, run):
        found = await contexts(workspace, run, await workspace.points.up_to(run, at), agent)
        fetch = Payloads(workspace)
        output.show(found, _heading, json=json)
        for each in found.agents:
            output.show(found.context(each), _context, json=json)
            if not team:
                await _show(found.messages(each, fetch, every=every), fetch, every, json)
        if team:
            await _show(found.team(fetch, every=every), fetch, every, json)
    if not found.agents:
        output.hint(f"run {run} had no agents at this point")


async def _show(
    told: AsyncIterator[Message | Summary | Compacted], fetch: Payloads, every: bool, json: bool
) -> None:
    async for part in told:
        output.hint_erased(fetch)
        output.show(part, partial(messages.part, every=every), json=json)


def _heading(found: Contexts) -> list[Part]:
    return [f"run {found.run} as of position {found.position}", *times.imported(found.imported)]


def _context(found: AgentContext) -> Iterator[Part]:
    yield ""
    said = f"{found.agent} ({found.role}): {messages.total_text(found)}"
    yield output.Lines([output.cell(said, "bold")])
