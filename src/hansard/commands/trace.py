"""`hansard run trace`: the steps of a run, in order, each under the step around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hansard.agents import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.log import Stored
from hansard.bus.states import fold_agent
from hansard.commands import _show
from hansard.commands._open import Options, find_run, reading
from hansard.commands._snapshots import Fetcher
from hansard.domain.agent import AgentState
from hansard.domain.ids import AgentStream
from hansard.domain.steps import Step

COLUMNS = (
    _show.Column("step", whole=True),
    _show.Column("tool"),
    _show.Column("arguments"),
    _show.Column("result"),
    _show.Column("tries", right=True),
    _show.Column("took", right=True),
    _show.Column("status", whole=True),
    _show.Column("settled"),
)


class Line(msgspec.Struct):
    """A step with where it stands: how deep, and the commit of its intent."""

    agent: str
    state: AgentState
    step: Step
    depth: int
    stored: Stored


async def trace(options: Options, run: str, at: str | None, *, full: bool, json: bool) -> int:
    """Print the steps of a run. Raises NotFound, BadName, UnknownEvent, Corrupt."""
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        up_to = await workspace.points.up_to(run, at)
        lines = steps_of(await workspace.states.history(run, up_to))
        shown = [(line, await _values(workspace, line, full=full)) for line in lines]
    if json:
        for line, (arguments, result) in shown:
            _show.emit(_object(run, line, arguments, result))
        return 0
    if not shown:
        _show.hint(f"run {run} has no steps at this point")
        return 0
    if full:
        for line, found in shown:
            _block(line, *found)
        return 0
    rows = [row for line, found in shown for row in _rows(line, *found)]
    _show.write(_show.table(COLUMNS, rows))
    return 0


def steps_of(history: list[Stored]) -> list[Line]:
    """Every agent's steps in the order of their intents, children after their parents."""
    by_agent: dict[str, list[Stored]] = {}
    for stored in history:
        if isinstance(stored.stream, AgentStream):
            by_agent.setdefault(stored.stream.agent, []).append(stored)
    lines: list[Line] = []
    for agent, commits in by_agent.items():
        state = fold_agent(commits)
        of_version = {
            version: stored
            for stored in commits
            for version in range(stored.commit.version, stored.commit.last_version + 1)
        }
        lines += [
            Line(agent, state, step, 0, of_version[step.version]) for step in state.steps.values()
        ]
    lines.sort(key=lambda line: (line.stored.position, line.step.version))
    return list(_nested(lines))


def _nested(lines: list[Line]) -> Iterator[Line]:
    children: dict[tuple[str, int | None], list[Line]] = {}
    for line in lines:
        parent = line.step.parent if line.step.parent in line.state.steps else None
        children.setdefault((line.agent, parent), []).append(line)
    roots = [line for (_, parent), found in children.items() if parent is None for line in found]
    roots.sort(key=lambda line: (line.stored.position, line.step.version))
    waiting = list(reversed(roots))
    while waiting:
        line = waiting.pop()
        yield line
        for child in reversed(children.get((line.agent, line.step.number), ())):
            child.depth = line.depth + 1
            waiting.append(child)


async def _values(workspace: Workspace, line: Line, *, full: bool) -> tuple[Any, Any]:
    """A step's arguments and result as recorded, or with what is kept elsewhere put in."""
    step = line.step
    if not full:
        items = [_show.recorded(item) for item in step.items]
        result = items if step.streamed else _show.recorded(step.result)
        return _show.recorded(step.arguments), result
    fetch = Fetcher(workspace)
    arguments = await fetch(payloads.unpack_arguments(step, line.state, {}))
    if step.streamed:
        return arguments, [await fetch(payloads.unpack(item)) for item in step.items]
    return arguments, await fetch(payloads.unpack(step.result))


def _object(run: str, line: Line, arguments: Any, result: Any) -> dict[str, Any]:
    step = line.step
    return {
        "run": run,
        "agent": line.agent,
        "role": line.state.role,
        "step": step.number,
        "parent": step.parent,
        "depth": line.depth,
        "position": line.stored.position,
        "time": line.stored.time.isoformat(),
        "kind": step.kind,
        "tool": step.tool,
        "effects": step.effects.value,
        "arguments": arguments,
        "status": step.status.value,
        "result": result,
        "error": step.error,
        "rule": step.rule or None,
        "attempts": [
            {"attempt": a.attempt, "error": a.error, "retry_in_ms": a.retry_in_ms}
            for a in step.attempts
        ],
        "duration_ms": step.duration_ms,
        "usage": step.usage,
        "after": step.after,
        "scope": step.scope,
        "reused": step.reused,
        "verdict": step.verdict,
        "settled_by": step.settled_by or None,
        "key": step.key,
        "fingerprint": step.fingerprint,
    }


def _settled(step: Step) -> str:
    told = f"{step.verdict.value} by {step.settled_by}" if step.verdict is not None else ""
    return told if step.reused is None else f"{told} outcome of step {step.reused}".strip()


def _block(line: Line, arguments: Any, result: Any) -> None:
    """A step with nothing cut, a line for each part of it."""
    step = line.step
    indent = "  " * line.depth
    head = (f"{line.agent}#{step.number}", step.tool, step.status.value, _settled(step))
    _show.write(indent + "  ".join(part for part in head if part))
    parts = [("arguments", _show.preview(arguments, None))]
    parts += [
        (f"attempt {tried.attempt}", _show.failure_text(tried.error)) for tried in step.attempts
    ]
    parts.append(("result", _show.result_preview(step, result, None)))
    for name, text in parts:
        if text:
            _show.write(f"{indent}  {name}  {text}")


def _rows(line: Line, arguments: Any, result: Any) -> Iterator[list[Any]]:
    step = line.step
    indent = "  " * (line.depth - 1) + "└ " if line.depth else ""
    yield [
        f"{line.agent}#{step.number}",
        indent + step.tool,
        _show.arguments_preview(arguments),
        _show.result_preview(step, result),
        str(step.attempt) if step.attempts else "",
        _show.duration(step.duration_ms),
        _show.status_cell(step.status.value),
        _settled(step),
    ]
    for tried in step.attempts:
        why = _show.cut(_show.failure_text(tried.error))
        note = _show.cell(f"{'  ' * line.depth}  attempt {tried.attempt}", "dim")
        yield ["", note, "", _show.cell(why, "dim"), "", "", _show.cell("retried", "dim"), ""]
