"""`hansard run replay`: with a command, run it against the record; without one, re-derive it."""

from __future__ import annotations

from typing import Any

import msgspec

from hansard.commands import _child, _show
from hansard.commands._open import Options, find_run, reading
from hansard.commands._rederive import Checked, Rederiver
from hansard.commands._snapshots import Fetcher
from hansard.commands.trace import Line, steps_of
from hansard.domain.ids import AgentStream

COLUMNS = (
    _show.Column("step", whole=True),
    _show.Column("tool"),
    _show.Column("arguments"),
    _show.Column("result"),
    _show.Column("status", whole=True),
    _show.Column("re-derived", whole=True),
)


class Tally(msgspec.Struct):
    """How many calls there are, and how they came out."""

    calls: int = 0
    differ: int = 0
    unproven: int = 0


async def replay(
    options: Options, run: str, command: list[str], *, offline: bool, json: bool
) -> int:
    """Replay a run; 1 where a digest or fingerprint differs, else the command's exit code."""
    if command:
        mode = "offline" if offline else "strict"
        code = await _child.run(options, run, command, mode)
        _show.hint(f"{mode} replay ended with exit code {code}; nothing was recorded")
        return code
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        history = await workspace.states.history(run)
        fetch = Fetcher(workspace)
        agents: dict[str, Rederiver] = {}
        for stored in history:
            if isinstance(stored.stream, AgentStream):
                name = stored.stream.agent
                if name not in agents:
                    agents[name] = Rederiver(name, fetch)
                await agents[name].take([stored])
    tally = Tally()
    lines = [(line, agents[line.agent].checked[line.step.number]) for line in steps_of(history)]
    for _, checked in lines:
        tally.calls += 1
        tally.differ += bool(checked.differs)
        tally.unproven += bool(checked.unproven and not checked.differs)
    if json:
        for line, checked in lines:
            _show.emit(_object(run, line, checked))
        _show.emit({"kind": "summary", "run": run, "tools_run": 0, **msgspec.to_builtins(tally)})
    else:
        _print(lines, tally)
    return 1 if tally.differ else 0


def _object(run: str, line: Line, checked: Checked) -> dict[str, Any]:
    return {
        "kind": "call",
        "run": run,
        "agent": line.agent,
        "step": line.step.number,
        "tool": line.step.tool,
        "arguments": checked.arguments,
        "status": line.step.status.value,
        "result": checked.result,
        "error": line.step.error,
        "differs": checked.differs,
        "unproven": checked.unproven,
    }


def _print(lines: list[tuple[Line, Checked]], tally: Tally) -> None:
    if lines:
        _show.write(_show.table(COLUMNS, [_row(line, checked) for line, checked in lines]))
    said = f"{tally.calls} calls from the record, 0 tools run"
    if tally.differ:
        said += f"; {tally.differ} differ from what is recorded of them"
    if tally.unproven:
        said += f"; {tally.unproven} could not be re-derived"
    if not tally.differ and not tally.unproven:
        said += "; every fingerprint and digest is as recorded"
    _show.write(said)


def _row(line: Line, checked: Checked) -> list[Any]:
    indent = "  " * (line.depth - 1) + "└ " if line.depth else ""
    said = _show.cell("as recorded", "green")
    if checked.unproven:
        said = _show.cell("; ".join(checked.unproven), "yellow")
    if checked.differs:
        said = _show.cell("; ".join(checked.differs), "bold red")
    return [
        f"{line.agent}#{line.step.number}",
        indent + line.step.tool,
        _show.arguments_preview(checked.arguments),
        _show.result_preview(line.step, checked.result),
        _show.status_cell(line.step.status.value),
        said,
    ]
