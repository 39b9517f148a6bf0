"""`hansard run state`: the whole state of a run at a point, or what changed between two."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from hansard.cli import output
from hansard.cli.commands import _look_state
from hansard.cli.opening import Options, find_run, reading
from hansard.cli.output import Part
from hansard.domain.counted import counted
from hansard.domain.errors import CallerError
from hansard.inspect import state as reads
from hansard.inspect.state import Data, Difference


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
            output.show(await reads.state(workspace, run, at, agent), _state, json=json)
        else:
            found = await reads.difference(workspace, run, diff, agent)
            output.show(found, _difference, json=json)
    return 0


def _state(data: Data) -> Iterator[Part]:
    yield f"run {data.run} as of position {data.position}"
    yield ""
    yield output.Lines(list(_look_state.state(data)))


def _difference(found: Difference) -> Iterator[Part]:
    where = f"position {found.before} to position {found.after}"
    yield f"run {found.run}, {where}: {counted(len(found.changes), 'difference')}"
    yield output.Lines(list(_look_state.differences(found.changes)) or [Text()])
