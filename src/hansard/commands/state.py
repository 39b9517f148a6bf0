"""`hansard run state`: the whole state of a run at a point, or what changed between two."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from hansard.agents.workspace import Workspace
from hansard.bus.states import RunView
from hansard.commands import _diff, _look_state, _show
from hansard.commands._diff import Change
from hansard.commands._open import Options, find_run, reading
from hansard.domain.counted import counted
from hansard.domain.errors import CallerError

NOW = "now"
"""The point that is the newest one."""


class TwoPoints(CallerError):
    """A state at one point and a difference of two were asked for at once."""

    def __init__(self) -> None:
        super().__init__("--at and --diff ask for two things: give the points to --diff alone")


async def state(
    options: Options,
    run: str,
    at: str | None,
    diff: tuple[str, str] | None,
    agent: str | None,
    *,
    json: bool,
) -> int:
    """Print a run's state at a point, or what is different at a second one, which may be earlier.

    Raises TwoPoints, NotFound, BadName, UnknownEvent, Corrupt.
    """
    if at is not None and diff is not None:
        raise TwoPoints
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        if diff is None:
            _state(await _view(workspace, run, at), agent, json=json)
        else:
            await _difference(workspace, run, diff, agent, json=json)
    return 0


async def _view(workspace: Workspace, run: str, at: str | None) -> RunView:
    point = None if at == NOW else at
    return await workspace.states.run(run, await workspace.points.up_to(run, point))


def _state(view: RunView, agent: str | None, *, json: bool) -> None:
    data = _diff.data(view, agent)
    if json:
        _show.emit({"kind": "run", "run": view.run, "position": view.position, **data.life})
        for name, told in data.agents.items():
            _show.emit({"kind": "agent", "run": view.run, "agent": name, **told})
        return
    _show.write(f"run {view.run} as of position {view.position}", "")
    _show.write(_show.Lines(list(_look_state.state(data))))


async def _difference(
    workspace: Workspace, run: str, points: tuple[str, str], agent: str | None, *, json: bool
) -> None:
    before, after = [await _view(workspace, run, point) for point in points]
    if agent is not None:
        if agent not in before.agents:
            after.agent(agent)  # who is at neither point is told
        for view in (before, after):
            view.agents = {name: told for name, told in view.agents.items() if name == agent}
    found = list(_diff.changes(_diff.data(before), _diff.data(after)))
    if json:
        for change in found:
            _show.emit(_line(run, change))
        return
    where = f"position {before.position} to position {after.position}"
    count = f"{counted(len(found), 'difference')}"
    _show.write(f"run {run}, {where}: {count}")
    _show.write(_show.Lines(list(_look_state.differences(found)) or [Text()]))


def _line(run: str, change: Change) -> dict[str, Any]:
    return {
        "run": run,
        "agent": change.agent,
        "path": change.path,
        "change": change.what.value,
        "before": change.before,
        "after": change.after,
    }
