"""Command `hansard run trace`: a run's steps as a tree, with attempts and times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from rich.text import Text

from hansard.bus.times import Clock, EventTime, imported
from hansard.cli import output
from hansard.cli.common import At, Commands, Run, flag
from hansard.cli.opening import reading_run
from hansard.cli.output import Hint, Part
from hansard.domain.ids import run_of
from hansard.domain.steps import Step
from hansard.inspect import trace as reads
from hansard.inspect import trace as tree
from hansard.inspect.answer import plain_text, withheld_text
from hansard.inspect.trace import AgentHistory, Payloads, Trace, WholeStep, recorded

app = Commands()


@app.command()
async def trace(
    which: Run,
    at: At = None,
    full: Annotated[bool, flag("--full", "Show values in full; fetch large ones.")] = False,
) -> None:
    """List the steps of a run, nested as they ran."""
    async with reading_run(which) as (workspace, run):
        history = await workspace.states.history(run, await workspace.points.up_to(run, at))
        found = reads.trace(run, history)
        if not full:
            output.show(found, _render)
            return
        fetch = Payloads(workspace)
        output.show([], lambda _: _heading(found))
        async for step in found.whole(fetch):
            output.hint_erased(fetch)
            output.show(step, lambda step: _block(found, step))


def _render(found: Trace) -> Iterator[Part]:
    yield from _heading(found)
    if found.steps:
        yield ""
        yield _tree_of(found)


def _heading(traced: Trace) -> Iterator[Part]:
    """Yield the run, and the origin of its offsets: one line for each clock in use."""
    if not traced.steps:
        yield Hint(f"run {traced.run} has no steps at this point")
        return
    yield f"run {traced.run}"
    used = [
        agent.events[step.version].time for agent in traced.agents.values() for step in agent.steps
    ]
    kinds = {found.kind for found in used}
    for kind, began in traced.beginning.first.items():
        if kind in kinds:
            yield f"+0.000 s is {output.event_time(began)}, {output.CLOCKS[began.clock]}"
    yield from output.imported(imported(used))


def _tree_of(traced: Trace) -> output.Lines:
    """Build one table of all agents' trees: times on the left, outcomes on the right."""
    found = [row for agent in traced.agents.values() for row in _agent_rows(traced, agent)]
    columns = [
        output.Column("step", whole=True),
        output.Column("began", right=True),
        output.Column("clock", whole=True),
        output.Column("took", right=True),
        output.Column("call"),
        output.Column("outcome"),
        output.Column("recorded in", whole=True),
    ]
    ours = {
        "began": {""},
        "took": {""},
        "clock": {"", Clock.LOG.value, Clock.IMPORT.value},
        "recorded in": {"", traced.run},
    }
    shown = [
        index
        for index, column in enumerate(columns)
        if column.name not in ours or any(str(row[index]) not in ours[column.name] for row in found)
    ]
    return output.table(
        [columns[index] for index in shown], [[row[index] for index in shown] for row in found]
    )


def _agent_rows(traced: Trace, agent: AgentHistory) -> Iterator[list[Text | str]]:
    steps = agent.state.steps
    if not steps:
        return
    count = f"{len(steps):,} step{'s' if len(steps) > 1 else ''}"
    yield _row(call=output.cell(f"{agent.name} ({agent.state.role}), {count}", "bold"))
    for row in tree.rows(tree.tree(steps.values())):
        if row.step is None:
            yield _row(call=_guided(row.guides, row.label, "bold"))
            continue
        yield _step_row(traced, agent, row, row.step)
        yield from _attempt_rows(traced, agent, row, row.step)
        yield from _change_rows(row, row.step)


def _row(**cells: Text | str) -> list[Text | str]:
    return [
        cells.get(name, "")
        for name in ("step", "began", "clock", "took", "call", "outcome", "recorded")
    ]


def _step_row(traced: Trace, agent: AgentHistory, row: tree.Row, step: Step) -> list[Text | str]:
    event, began = agent.events[step.version], traced.began(agent.name, step)
    call = _guided(row.guides, f"{row.label} · " if row.label else "", "bold")
    call.append("∥ " if step.unordered else "")
    call.append(output.cut(step.tool), style="cyan")
    call.append(f"  {output.arguments_preview(recorded(step.arguments))}".rstrip())
    return _row(
        step=f"{agent.name}#{step.number}",
        began=_began(traced, began),
        clock=began.clock.value,
        took=output.duration(step.duration_ms),
        call=call,
        outcome=_outcome(step),
        recorded=run_of(event.stored.stream) or "",
    )


def _attempt_rows(
    traced: Trace, agent: AgentHistory, row: tree.Row, step: Step
) -> Iterator[list[Text | str]]:
    for tried, version in traced.attempts(agent.name, step):
        guides = row.under + ("│  " if row.holds else "   ")
        event = agent.events[version]
        why = output.cut(tried.error.text)
        again = f", again after {output.duration(tried.retry_in_ms)}" if tried.retry_in_ms else ""
        yield _row(
            clock=event.time.clock.value,
            took=output.duration(tried.duration_ms),
            call=_guided(guides, f"attempt {tried.attempt} failed{again}", "dim"),
            outcome=output.cell(why, "dim"),
        )


def _change_rows(row: tree.Row, step: Step) -> Iterator[list[Text | str]]:
    """Yield the changes of each aggregate that a save caused."""
    for change in reads.changes_of(step):
        guides = row.under + ("│  " if row.holds else "   ")
        text = f"{change.event}  {change.aggregate} {change.id}@{change.version}"
        yield _row(
            call=_guided(guides, output.cut(text), ""),
            outcome=output.cell(output.preview(change.state), "dim"),
        )


def _guided(guides: str, text: str, style: str) -> Text:
    made = Text(guides, style="dim")
    return Text.assemble(made, (plain_text(text), style))


def _began(traced: Trace, when: EventTime) -> str:
    offset_ms = traced.beginning.offset_ms(when)
    if offset_ms is not None:
        return output.offset(offset_ms)
    return output.cut(when.at) if when.is_known else ""


def _outcome(step: Step) -> Text:
    """Render a step's outcome; its status unless it simply completed."""
    status = step.status.value
    made = Text() if status == "completed" else output.status_cell(status)
    items = [recorded(item) for item in step.items[: output.PREVIEW_CHARACTERS]]
    result = output.result_preview(step, items if step.streamed else recorded(step.result))
    for part in (result, _settlement_text(step)):
        if part:
            made.append("  " if made else "").append(part)
    return made


def _settlement_text(step: Step) -> str:
    late = "after its agent had left" if step.late else ""
    return ", ".join(part for part in (_verdict(step), late, withheld_text(step)) if part)


def _verdict(step: Step) -> str:
    text = f"{step.verdict.value} by {step.settled_by}" if step.verdict is not None else ""
    if step.reused_from is not None:
        source = step.reused_from
        return f"{text} answer of {source.agent}#{source.step} of run {source.run}".strip()
    return text if step.reused is None else f"{text} outcome of step {step.reused}".strip()


def _block(found: Trace, whole: WholeStep) -> Iterator[Part]:
    """Yield a step in full, one line for each part."""
    line, step, value = whole.line, whole.line.step, whole.traced
    indent = "  " * min(line.depth, tree.GUIDES_MAX)
    began = found.began(line.agent, step)
    head = (
        f"{line.agent}#{step.number}",
        step.tool,
        step.status.value,
        _settlement_text(step),
        f"in {value.branch}" if value.branch else "",
        f"began {_began(found, began)} ({began.clock.value})" if began.is_known else "",
        f"took {output.duration(step.duration_ms)}" if step.duration_ms else "",
    )
    yield ""
    yield indent + "  ".join(part for part in head if part)
    parts = [("arguments", output.preview(value.arguments, None))]
    parts += [(f"attempt {tried.attempt}", tried.error.text) for tried in step.attempts]
    parts.append(("would do", plain_text(step.would)))
    parts.append(("result", output.result_preview(step, value.result, None)))
    for name, text in parts:
        if text:
            yield f"{indent}  {name}  {text}"
