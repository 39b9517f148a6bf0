"""Command `hansard run replay`: run a command against the record, or re-derive the record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from rich.text import Text

from hansard.cli import output, processes
from hansard.cli.common import Command, Commands, Run, flag
from hansard.cli.opening import reading_run
from hansard.cli.output import Column, Part
from hansard.domain.choices import counted
from hansard.inspect import rederive as reads
from hansard.inspect.rederive import CheckedCall, Replayed
from hansard.inspect.trace import Line
from hansard.state.replay import RunView

app = Commands()


@app.command()
async def replay(
    which: Run,
    command: Command = None,
    offline: Annotated[bool, flag("--offline", "With a command: allow changed tools too.")] = False,
) -> int:
    """Replay a run without running tools.

    With a command, that program runs against the record: each call is answered from it; a call that
    is not on record is an error, and so is a program that makes fewer calls. Without a command,
    every call is derived again from the recorded arguments and results and compared; exits with 1
    if one differs.
    """
    if command:
        mode = "offline" if offline else "strict"
        ran = await processes.run(which, command, mode)
        code = ran.code
        if mode == "strict" and ran.without_report:
            agents = ", ".join(_calls_of(ran.view, agent) for agent in ran.without_report)
            output.hint(f"not equal to the record: no session was replayed to its end of {agents}")
            code = code or 1
        output.hint(f"{mode} replay ended with exit code {code}; nothing was recorded")
        output.hint(f"the replay saved: {ran.saved.line()}")
        return code
    async with reading_run(which) as (workspace, run):
        found = await reads.replay(workspace, run)
    output.show(found, _render)
    return 1 if found.summary.differ else 0


def _calls_of(view: RunView, agent: str) -> str:
    calls = counted(len(view.agents[agent].steps), "call")
    return f"{agent} ({calls} on record)"


def _call(row: tuple[Line, CheckedCall]) -> str:
    line = row[0]
    return ("  " * (line.depth - 1) + "└ " if line.depth else "") + line.step.tool


def _render_call(row: tuple[Line, CheckedCall]) -> Text:
    checked = row[1]
    if checked.differs:
        return output.cell("; ".join(checked.differs), "bold red")
    if checked.unproven:
        return output.cell("; ".join(checked.unproven), "yellow")
    return output.cell("as recorded", "green")


COLUMNS = (
    Column("step", lambda row: f"{row[0].agent}#{row[0].step.number}", whole=True),
    Column("tool", _call),
    Column("arguments", lambda row: output.arguments_preview(row[1].arguments)),
    Column("result", lambda row: output.result_preview(row[0].step, row[1].result)),
    Column("status", lambda row: output.status_cell(row[0].step.status.value), whole=True),
    Column("re-derived", _render_call, whole=True),
)


def _render(found: Replayed) -> Iterator[Part]:
    if found.calls:
        yield output.listing(COLUMNS, found.calls)
    tally = found.summary
    text = f"{counted(tally.calls, 'call')} from the record, 0 tools run"
    if tally.differ:
        text += f"; {tally.differ} differ from what is recorded of them"
    if tally.unproven:
        text += f"; {tally.unproven} could not be re-derived"
    if not tally.differ and not tally.unproven:
        text += "; every fingerprint and digest is as recorded"
    yield text
