"""Commands `hansard run show`, `context` and `left`: state, context windows, calls sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from rich.text import Text

from hansard.bus.times import Clock
from hansard.cli import messages, output
from hansard.cli.common import Agent, At, Commands, Run, flag
from hansard.cli.opening import gone, reading_run
from hansard.cli.output import Column, Hint, Part
from hansard.domain.choices import counted, listed
from hansard.domain.errors import BadValue
from hansard.domain.run import Swap
from hansard.inspect import run as reads
from hansard.inspect.run import OpenStep, RunAgent, RunReport, RunState, Unreadable
from hansard.inspect.state import (
    AgentContext,
    Compacted,
    Contexts,
    Message,
    Summary,
    Totals,
    as_json,
    contexts,
)
from hansard.inspect.trace import Egress, Payloads, recorded, what_left

app = Commands()

KEYS_SHOWN_MAX = 200
"""Most characters of shared keys' names; `hansard board` has all."""


@app.command()
async def show(
    which: Run,
    at: At = None,
    agent: Agent = None,
    snapshot: Annotated[
        bool, flag("--snapshot", "One snapshot per agent, in the exchange format.")
    ] = False,
    snapshots: Annotated[
        bool, flag("--snapshots", "The chain of snapshots: request, around each call, final.")
    ] = False,
) -> None:
    """Show the state of a run, now or at any point."""
    async with reading_run(which) as (workspace, run):
        found = await reads.show(workspace, run, at, agent)
        if isinstance(found, RunReport) and at is None:
            found.run.gone = await gone(workspace, found.run)
        if isinstance(found, Unreadable):
            output.show(found, _unreadable)
            output.hint(str(found.error))
        elif snapshot or snapshots:
            made = reads.agent_snapshots(workspace, found, chained=snapshots)
            async for each in made:
                output.show(as_json(each), _snapshot)
        else:
            output.show(found, _render)


def _unreadable(found: Unreadable) -> list[Part]:
    """Render nothing: the answer is only for programs."""
    raise found.error


def _snapshot(made: dict[str, Any]) -> list[Part]:
    return [msgspec.json.format(msgspec.json.encode(made), indent=2).decode()]


def _render(found: RunReport) -> Iterator[Part]:
    run, forked = found.run, found.run.forked
    open_steps = [step for agent in found.agents for step in agent.open_steps]
    settled = run.error is not None and run.error.type == "InDoubt" and not open_steps
    rows: list[tuple[str, object]] = [
        ("run", run.run),
        ("workflow", run.workflow),
        ("status", output.status_cell(run.status)),
        ("at work", _at_work(run)),
        ("error", run.error.text if run.error is not None else None),
        ("now", f"settled; continue with: hansard run resume {run.run} -- COMMAND" * settled),
        ("program", run.program),
        ("conversation", run.conversation),
        ("assigned", _arm_text(run)),
        ("scores", ", ".join(f"{name} {output.number(n)}" for name, n in run.scores.items())),
        ("judged by", ", ".join(dict.fromkeys(each.by for each in run.judged))),
        ("labels", ", ".join(f"{key}={value}" for key, value in run.labels.items())),
        ("fork of", forked and f"{forked.parent} (effects {forked.effects.value})"),
        ("probe", forked and forked.swap and _swap_text(forked.swap)),
        ("shared keys", output.cut(", ".join(run.keys), KEYS_SHOWN_MAX)),
        *_when(found),
    ]
    yield output.pairs(rows)
    if found.agents:
        yield ""
        yield output.listing(AGENTS, found.agents)
    checkpoints = [
        (agent.agent, name, data)
        for agent in found.agents
        for name, data in agent.checkpoints.items()
    ]
    decisions = [(agent.agent, made) for agent in found.agents for made in agent.decisions]
    misfits = "quarantined: written to this run by an unauthorised writer"
    tables: list[tuple[str, tuple[Column, ...], list[Any]]] = [
        ("open steps", OPEN_STEPS, open_steps),
        ("checkpoints", CHECKPOINTS, checkpoints),
        ("decisions", DECISIONS, decisions),
        (misfits, MISFITS, found.quarantined),
    ]
    for title, columns, things in tables:
        if things:
            yield ""
            yield Text(title, style="bold")
            yield output.listing(columns, things)
    if open_steps:
        yield Hint(
            "an open step's effect may or may not have happened: look, then say so with\n"
            f"  hansard run settle {run.run} STEP --happened RESULT or --did-not-happen"
        )


def _swap_text(swap: Swap) -> str:
    before, after = bytes(swap.before).decode(), bytes(swap.after).decode()
    return f"{swap.probe} ({swap.path} is {after}, on record {before})"


def _at_work(run: RunState) -> str:
    """Return the agents that an open run waits for, and the state of their processes."""
    rest = [name for name in run.at_work if name not in run.gone]
    last = datetime.fromisoformat(run.time)
    remedy = f"resume it, or end it: hansard run finish {run.run} [--failed REASON]"
    items = []
    if run.gone:
        items.append(f"no process of {listed(run.gone)} since {output.moment(last)}; {remedy}")
    if rest:
        age = output.duration((datetime.now(UTC) - last).total_seconds() * 1_000)
        killed = f"; if it was killed, {remedy}" if not run.gone else ""
        items.append(f"{listed(rest)} (last event {age} ago{killed})")
    return "; ".join(reversed(items))


def _arm_text(run: RunState) -> str:
    assignment = run.assigned
    if assignment is None:
        return ""
    parts = {
        "experiment": assignment.experiment,
        "arm": assignment.arm,
        "task": assignment.task,
        "trial": assignment.trial,
    }
    return ", ".join(f"{name} {part}" for name, part in parts.items() if part not in ("", None))


def _when(found: RunReport) -> list[tuple[str, str]]:
    """Return when the run began and when its newest event happened, each with its clock.

    The log's own time is shown with the position.
    """
    run, origin = found.run, found.run.origin
    stored = f"{output.moment(datetime.fromisoformat(run.time))}, "
    copied = f"log {origin.log}, position {origin.position}, {origin.at}" if origin else ""
    return [
        ("started", output.shown_time(run.began)),
        ("last", output.shown_time(run.last) if run.last.clock is not Clock.LOG else ""),
        ("imported", output.event_time(found.imported) if found.imported is not None else ""),
        ("copied from", copied),
        ("as of", f"{'' if found.imported else stored}position {run.position}"),
    ]


def _steps(agent: RunAgent) -> str:
    return ", ".join(f"{count} {status}" for status, count in agent.steps.items()) or "0"


def _context(agent: RunAgent) -> str:
    return messages.count_text(Totals(agent.messages, agent.context_tokens, {}))


def _why(step: OpenStep) -> str:
    return step.error.text if step.error is not None else ""


AGENTS = (
    Column("agent", whole=True),
    Column("role"),
    Column("version", lambda agent: str(agent.version), right=True),
    Column("epoch", lambda agent: str(agent.epoch), right=True),
    Column("steps", _steps),
    Column("context", _context, right=True),
    Column("session", lambda agent: agent.left or "open"),
)
OPEN_STEPS = (
    Column("step", whole=True),
    Column("tool"),
    Column("arguments", lambda step: output.arguments_preview(recorded(step.arguments))),
    Column("effects"),
    Column("status", lambda step: output.status_cell(step.status), whole=True),
    Column("why", _why, short=True),
)
CHECKPOINTS = (
    Column("agent", lambda row: row[0]),
    Column("checkpoint", lambda row: row[1]),
    Column("data", lambda row: output.preview(recorded(row[2]))),
)
DECISIONS = (
    Column("agent", lambda row: row[0]),
    Column("question", lambda row: row[1].question, short=True),
    Column("selected", lambda row: row[1].selected, short=True),
    Column("confidence", lambda row: _number(row[1].confidence)),
    Column("threshold", lambda row: _number(row[1].threshold)),
    Column("because", lambda row: row[1].because, short=True),
)
MISFITS = (
    Column("position", lambda each: str(each.position)),
    Column("stream"),
    Column("version", lambda each: str(each.version)),
    Column("why", lambda each: each.reason, short=True),
)


def _number(amount: float | None) -> str:
    return "" if amount is None else f"{amount:g}"


@app.command()
async def context(
    which: Run,
    at: At = None,
    agent: Agent = None,
    every: Annotated[bool, flag("--all", "Show the messages behind each summary in full.")] = False,
    team: Annotated[bool, flag("--team", "All agents' messages, in the record's order.")] = False,
) -> None:
    """Show the context window of a run's agents at a point.

    Agents are shown one by one; with --team, all messages as one conversation, each with its agent.
    """
    if team and agent is not None:
        raise BadValue("--team", f"agent {agent!r:.80} is given too", "leave one of them out")
    async with reading_run(which) as (workspace, run):
        found = await contexts(workspace, run, await workspace.points.up_to(run, at), agent)
        fetch = Payloads(workspace)
        output.show(found, _heading)
        for each in found.agents:
            output.show(found.context(each), _window)
            if not team:
                await _write(found.messages(each, fetch, every=every), fetch, every)
        if team:
            await _write(found.team(fetch, every=every), fetch, every)
    if not found.agents:
        output.hint(f"run {run} had no agents at this point")


async def _write(
    report: AsyncIterator[Message | Summary | Compacted], fetch: Payloads, every: bool
) -> None:
    async for part in report:
        output.hint_erased(fetch)
        output.show(part, partial(messages.part, every=every))


def _heading(found: Contexts) -> list[Part]:
    return [f"run {found.run} as of position {found.position}", *output.imported(found.imported)]


def _window(found: AgentContext) -> Iterator[Part]:
    yield ""
    text = f"{found.agent} ({found.role}): {messages.total_text(found)}"
    yield output.Lines([output.cell(text, "bold")])


COLUMNS = (
    Column("step", lambda row: f"{row.agent}#{row.step}"),
    Column("to", lambda row: row.destination),
    Column("kind"),
    Column("tool"),
    Column("status"),
    Column("secrets", lambda row: ", ".join(row.secrets)),
    Column("given", lambda row: msgspec.json.encode(row.arguments).decode()),
)


@app.command()
async def left(which: Run) -> None:
    """Show what a run sent to models, pages and tools, in order.

    Lists each call that was made or may have been made (status `requested` or `in_doubt`) with its
    recorded arguments; a secret is shown by its name.
    """
    async with reading_run(which) as (workspace, run):
        fetch = Payloads(workspace)
        found = Egress(run=run, sent=await what_left(workspace, run, fetch))
        output.hint_erased(fetch)
    output.show(found, _render_calls)


def _render_calls(found: Egress) -> Iterator[Part]:
    if found.sent:
        yield output.listing(COLUMNS, found.sent)
    places = len({each.destination for each in found.sent})
    yield f"{counted(len(found.sent), 'call')} to {counted(places, 'place')} left run {found.run}"
