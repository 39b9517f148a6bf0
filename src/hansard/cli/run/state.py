"""Command `hansard run state`: a run's whole state at a point, or changes between two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from rich.text import Text

from hansard.cli import output, state_lines
from hansard.cli.common import Agent, At, Commands, Run, option
from hansard.cli.opening import reading_run
from hansard.cli.output import Part
from hansard.domain.choices import counted
from hansard.domain.errors import CallerError
from hansard.inspect import state as reads
from hansard.inspect.state import Data, Difference

app = Commands()


class TwoPoints(CallerError):
    """Error: both a state at one point and a difference of two points were requested."""

    def __init__(self) -> None:
        super().__init__("--at and --diff exclude each other: give both points to --diff")


@app.command()
async def state(
    which: Run,
    at: At = None,
    diff: Annotated[
        tuple[str, str] | None, option("Changes between two points; 'now' is the newest.", "P Q")
    ] = None,
    agent: Agent = None,
) -> None:
    """Show a run's whole state at a point, or changes between two."""
    if at is not None and diff is not None:
        raise TwoPoints
    async with reading_run(which) as (workspace, run):
        if diff is None:
            output.show(await reads.state(workspace, run, at, agent), _state)
        else:
            found = await reads.difference(workspace, run, diff, agent)
            output.show(found, _difference)


def _state(data: Data) -> Iterator[Part]:
    yield f"run {data.run} as of position {data.position}"
    yield ""
    yield output.Lines(list(state_lines.state(data)))


def _difference(found: Difference) -> Iterator[Part]:
    where = f"position {found.before} to position {found.after}"
    yield f"run {found.run}, {where}: {counted(len(found.changes), 'difference')}"
    yield output.Lines(list(state_lines.differences(found.changes)) or [Text()])
