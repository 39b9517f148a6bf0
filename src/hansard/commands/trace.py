"""`hansard run trace`: the steps of a run as a tree, with their attempts and times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.text import Text

from hansard.agents import payloads
from hansard.bus.log import Stored
from hansard.commands import _look, _show, _tree
from hansard.commands._look import Agent, Beginning, Clock, Payloads, When
from hansard.commands._open import Options, find_run, reading
from hansard.domain.agent import AgentState
from hansard.domain.ids import run_of
from hansard.domain.steps import Step


class Line(msgspec.Struct):
    """A step with where it stands: how deep, and the commit of its intent."""

    agent: str
    state: AgentState
    step: Step
    depth: int
    stored: Stored


class _Run(msgspec.Struct, frozen=True):
    """A run as it is traced."""

    run: str
    history: list[Stored]
    agents: dict[str, Agent]
    beginning: Beginning

    def when(self, agent: str, version: int | None) -> When | None:
        """When a version of an agent was; None where there is none."""
        return self.agents[agent].told[version].when if version is not None else None

    def began(self, agent: str, step: Step) -> When:
        """When a step began: what is recorded together with its outcome was so long before it."""
        told = self.agents[agent].told
        intent, outcome = told[step.version], told.get(step.outcome_version or 0)
        found = intent.when
        if outcome is None or outcome.stored is not intent.stored:
            return found
        return _look.earlier(found, step.duration_ms)


async def trace(options: Options, run: str, at: str | None, *, full: bool, json: bool) -> int:
    """Print the steps of a run. Raises NotFound, BadName, UnknownEvent, Corrupt."""
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        history = await workspace.states.history(run, await workspace.points.up_to(run, at))
        agents = _look.by_agent(history)
        told = _Run(run, history, agents, Beginning(history))
        lines = _lines(agents)
        if not json:
            if not lines:
                _show.hint(f"run {run} has no steps at this point")
                return 0
            _show.write(*_heading(told))
        if not json and not full:
            _show.write("", _tree_of(told))
            return 0
        whole = _Whole(Payloads(workspace)) if full else None
        for line in lines:
            found = await whole.values(line) if whole is not None else _raw(line.step)
            if json:
                _show.emit(_object(told, line, *found))
            else:
                _block(told, line, *found)
    return 0


def steps_of(history: list[Stored]) -> list[Line]:
    """Every agent's steps in the order of their intents, children after their parents."""
    return _lines(_look.by_agent(history))


def _lines(agents: dict[str, Agent]) -> list[Line]:
    lines = [
        Line(agent.name, agent.state, step, 0, agent.told[step.version].stored)
        for agent in agents.values()
        for step in agent.state.steps.values()
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


class _Whole:
    """Steps' values with what is kept elsewhere put in."""

    def __init__(self, fetch: Payloads) -> None:
        self._fetch = fetch
        self._readers: dict[str, payloads.Reader] = {}

    async def values(self, line: Line) -> tuple[Any, Any]:
        """A step's arguments and its result, or its items. Raises Corrupt."""
        step, state = line.step, line.state
        reader = self._readers.get(line.agent)
        if reader is None:
            reader = self._readers[line.agent] = payloads.Reader(lambda: state)
        arguments = await self._fetch.get(reader.arguments(step), step.arguments)
        if step.streamed:
            return arguments, [await self._fetch.value(item) for item in step.items]
        return arguments, await self._fetch.get(reader.result(step), step.result)


def _raw(step: Step) -> tuple[Any, Any]:
    """A step's arguments and its result, or its items, as they are recorded."""
    return step.arguments, step.items if step.streamed else step.result


# ---------------------------------------------------------------- for programs


def _object(told: _Run, line: Line, arguments: Any, result: Any) -> dict[str, Any]:
    step = line.step
    return {
        "run": told.run,
        "recorded_in": run_of(line.stored.stream),
        "agent": line.agent,
        "role": line.state.role,
        "step": step.number,
        "parent": step.parent,
        "depth": line.depth,
        "branch": _tree.branch(step) or None,
        "unordered": step.unordered,
        "position": line.stored.position,
        "time": line.stored.time.isoformat(),
        "began": _time(told, told.began(line.agent, step)),
        "ended": _time(told, told.when(line.agent, step.outcome_version)),
        "kind": step.kind,
        "tool": step.tool,
        "call_id": step.call_id,
        "effects": step.effects.value,
        "arguments": arguments,
        "status": step.status.value,
        "late": step.late,
        "result": result,
        "error": step.error,
        "rule": step.rule or None,
        "attempts": [
            {
                "attempt": tried.attempt,
                "error": tried.error,
                "duration_ms": tried.duration_ms or None,
                "retry_in_ms": tried.retry_in_ms,
                "ended": _time(told, told.when(line.agent, version)),
            }
            for tried, version in _attempts(told, line.agent, step)
        ],
        "duration_ms": step.duration_ms or None,
        "usage": step.usage,
        "after": step.after,
        "scope": step.scope,
        "reused": step.reused,
        "verdict": step.verdict,
        "settled_by": step.settled_by or None,
        "key": step.key,
        "fingerprint": step.fingerprint,
    }


def _attempts(told: _Run, agent: str, step: Step) -> Iterator[tuple[Any, int]]:
    """A step's failed attempts with the versions at which they failed."""
    versions = told.agents[agent].attempted.get(step.number, ())
    return zip(step.attempts, versions, strict=True)


def _time(told: _Run, when: When | None) -> dict[str, Any] | None:
    if when is None:
        return None
    return {**when.data, "offset_ms": told.beginning.offset_ms(when)}


# ---------------------------------------------------------------- for people


def _heading(told: _Run) -> Iterator[str]:
    """The run, and what its times are counted from: a line for each kind of time in use."""
    yield f"run {told.run}"
    used = [
        agent.told[step.version].when
        for agent in told.agents.values()
        for step in agent.state.steps.values()
    ]
    kinds = {_look.kind(found) for found in used}
    for kind, began in told.beginning.first.items():
        if kind in kinds:
            yield f"+0.000 s is {began.text}, {_look.CLOCKS[began.clock]}"
    imported = _look.imported(used)
    if imported is not None:
        yield imported


def _tree_of(told: _Run) -> _show.Lines:
    """Every agent's tree in one table: times on the left, outcomes on the right."""
    found = [row for agent in told.agents.values() for row in _agent_rows(told, agent)]
    columns = [
        _show.Column("step", whole=True),
        _show.Column("began", right=True),
        _show.Column("clock", whole=True),
        _show.Column("took", right=True),
        _show.Column("call"),
        _show.Column("outcome"),
        _show.Column("recorded in", whole=True),
    ]
    ours = {
        "began": {""},
        "took": {""},
        "clock": {"", Clock.LOG.value, Clock.IMPORT.value},
        "recorded in": {"", told.run},
    }
    shown = [
        index
        for index, column in enumerate(columns)
        if column.name not in ours or any(str(row[index]) not in ours[column.name] for row in found)
    ]
    return _show.table(
        [columns[index] for index in shown], [[row[index] for index in shown] for row in found]
    )


def _agent_rows(told: _Run, agent: Agent) -> Iterator[list[Text | str]]:
    steps = agent.state.steps
    if not steps:
        return
    count = f"{len(steps):,} step{'s' if len(steps) > 1 else ''}"
    yield _row(call=_show.cell(f"{agent.name} ({agent.state.role}), {count}", "bold"))
    for row in _tree.rows(_tree.tree(steps.values())):
        if row.step is None:
            yield _row(call=_guided(row.guides, row.label, "bold"))
            continue
        yield _step_row(told, agent, row, row.step)
        yield from _attempt_rows(told, agent, row, row.step)


def _row(**cells: Text | str) -> list[Text | str]:
    return [
        cells.get(name, "")
        for name in ("step", "began", "clock", "took", "call", "outcome", "recorded")
    ]


def _step_row(told: _Run, agent: Agent, row: _tree.Row, step: Step) -> list[Text | str]:
    event, began = agent.told[step.version], told.began(agent.name, step)
    call = _guided(row.guides, f"{row.label} · " if row.label else "", "bold")
    call.append("∥ " if step.unordered else "")
    call.append(_show.cut(step.tool), style="cyan")
    call.append(f"  {_show.arguments_preview(_show.recorded(step.arguments))}".rstrip())
    return _row(
        step=f"{agent.name}#{step.number}",
        began=_began(told, began),
        clock=began.clock.value,
        took=_show.duration(step.duration_ms),
        call=call,
        outcome=_outcome(step),
        recorded=run_of(event.stored.stream) or "",
    )


def _attempt_rows(
    told: _Run, agent: Agent, row: _tree.Row, step: Step
) -> Iterator[list[Text | str]]:
    for tried, version in _attempts(told, agent.name, step):
        guides = row.under + ("│  " if row.holds else "   ")
        event = agent.told[version]
        why = _show.cut(_show.failure_text(tried.error))
        again = f", again after {_show.duration(tried.retry_in_ms)}" if tried.retry_in_ms else ""
        yield _row(
            clock=event.when.clock.value,
            took=_show.duration(tried.duration_ms),
            call=_guided(guides, f"attempt {tried.attempt} failed{again}", "dim"),
            outcome=_show.cell(why, "dim"),
        )


def _guided(guides: str, text: str, style: str) -> Text:
    made = Text(guides, style="dim")
    return Text.assemble(made, (_show.plain_text(text), style))


def _began(told: _Run, when: When) -> str:
    offset_ms = told.beginning.offset_ms(when)
    if offset_ms is not None:
        return _look.offset(offset_ms)
    return _show.cut(when.at) if when.is_known else ""


def _outcome(step: Step) -> Text:
    """What came of a step; its status where it is not simply completed."""
    status = step.status.value
    made = Text() if status == "completed" else _show.status_cell(status)
    items = [_show.recorded(item) for item in step.items[: _show.PREVIEW_CHARACTERS]]
    result = _show.result_preview(step, items if step.streamed else _show.recorded(step.result))
    for part in (result, _settled(step)):
        if part:
            made.append("  " if made else "").append(part)
    return made


def _settled(step: Step) -> str:
    late = "after its agent had left" if step.late else ""
    return ", ".join(part for part in (_verdict(step), late) if part)


def _verdict(step: Step) -> str:
    told = f"{step.verdict.value} by {step.settled_by}" if step.verdict is not None else ""
    return told if step.reused is None else f"{told} outcome of step {step.reused}".strip()


def _block(told: _Run, line: Line, arguments: Any, result: Any) -> None:
    """A step with nothing cut, a line for each part of it."""
    step = line.step
    indent = "  " * min(line.depth, _tree.GUIDES_MAX)
    where = _tree.branch(step)
    began = told.began(line.agent, step)
    head = (
        f"{line.agent}#{step.number}",
        step.tool,
        step.status.value,
        _settled(step),
        f"in {where}" if where else "",
        f"began {_began(told, began)} ({began.clock.value})" if began.is_known else "",
        f"took {_show.duration(step.duration_ms)}" if step.duration_ms else "",
    )
    _show.write("", indent + "  ".join(part for part in head if part))
    parts = [("arguments", _show.preview(arguments, None))]
    parts += [
        (f"attempt {tried.attempt}", _show.failure_text(tried.error)) for tried in step.attempts
    ]
    parts.append(("result", _show.result_preview(step, result, None)))
    for name, text in parts:
        if text:
            _show.write(f"{indent}  {name}  {text}")
