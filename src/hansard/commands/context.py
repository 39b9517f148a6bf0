"""`hansard run context`: the context windows of a run's agents as they stood at a point."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from rich.text import Text

from hansard.commands import _look, _look_message, _show
from hansard.commands._look import Agent, Payloads, When
from hansard.commands._look_message import Shown
from hansard.commands._open import Options, find_run, reading


async def context(
    options: Options, run: str, at: str | None, agent: str | None, *, json: bool
) -> int:
    """Print the messages of each agent in order, large ones fetched, and what they used up.

    Raises NotFound, BadName, UnknownEvent, Corrupt.
    """
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        up_to = await workspace.points.up_to(run, at)
        view, agents = await _look.agents_at(workspace, run, up_to, agent)
        fetch = Payloads(workspace)
        if not json:
            _show.write(f"run {run} as of position {view.position}")
            imported = _look.imported(_times(agents))
            if imported is not None:
                _show.write(imported)
        for each in agents:
            state = each.state
            totals = _look_message.total(state.messages)
            if json:
                about = {"kind": "context", "run": run, "agent": each.name, "role": state.role}
                where = {"version": state.version, "position": view.position}
                _show.emit({**about, **where, **totals})
            else:
                said = f"{each.name} ({state.role}): {_look_message.total_text(totals)}"
                _show.write("", _show.Lines([_show.cell(said, "bold")]))
            async for shown in _messages(run, each, fetch):
                if json:
                    _show.emit(shown.line())
                else:
                    _show.write(Text(), shown.text())
    if not agents:
        _show.hint(f"run {run} had no agents at this point")
    return 0


def _times(agents: list[Agent]) -> Iterator[When]:
    """When each message was."""
    for agent in agents:
        for version, _ in _look_message.window(agent.state):
            yield agent.told[version].when


async def _messages(run: str, agent: Agent, fetch: Payloads) -> AsyncIterator[Shown]:
    """An agent's messages one by one, so that one large content at a time is held."""
    for index, (version, added) in enumerate(_look_message.window(agent.state), 1):
        yield Shown(
            run=run,
            agent=agent.name,
            index=index,
            version=version,
            told=agent.told[version],
            added=added,
            message=await _look_message.provider_form(added, fetch),
        )
