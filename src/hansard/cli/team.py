"""Commands `hansard team` and `board`: a run's agents, tasks and shared state."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from datetime import UTC
from typing import Annotated, Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.cli import output
from hansard.cli.common import At, Commands, Run, argument, flag
from hansard.cli.opening import reading_run
from hansard.cli.output import Hint, Part
from hansard.cli.processes import termination_event, until
from hansard.domain.choices import counted
from hansard.inspect import run as reads
from hansard.inspect.answer import plain_text
from hansard.inspect.run import (
    Change,
    Key,
    KeyHistory,
    Keys,
    Member,
    Task,
    Team,
    Write,
    follow_team,
    key_history,
    keys,
)
from hansard.inspect.trace import Payloads, recorded

app = Commands()

_STYLES = {
    "done": "green",
    "failed": "red",
    "blocked": "red",
    "expired": "bold yellow",
    "claimed": "yellow",
}

AGENTS = output.columns(
    "agent! role status! task=tasks last_action=last~ position>", styles={"status": output.STYLES}
)


def _lease_text(task: Task) -> str:
    return f"{task.lease_left_s:,.0f} s" if task.lease_left_s is not None else ""


def _whose(task: Task) -> str:
    return task.agent or (f"role {task.role}" if task.role else "")


def _waits(task: Task) -> str:
    failed = [f"{name} (never)" for name in task.blocked_by]
    rest = [name for name in task.waits_for if name not in task.blocked_by]
    return ", ".join([*failed, *rest])


TASKS = output.columns(
    "task=id! title~ status! for who=holder claim> lease_left> waits_for",
    for_=_whose,
    claim=lambda task: str(task.number or ""),
    lease_left=_lease_text,
    waits_for=_waits,
    styles={"status": _STYLES},
)


@app.command()
async def team(
    which: Run,
    at: At = None,
    follow: Annotated[
        bool, flag("--follow", "Then show each change until all tasks are done.")
    ] = False,
) -> None:
    """Show a run's agents and tasks.

    Shows who holds which task, which tasks wait, and whose lease runs out.
    """
    async with reading_run(which) as (workspace, run):
        current = await reads.team(workspace, run, await workspace.points.up_to(run, at))
        output.show(current, _render(current))
        sys.stdout.flush()
        if follow:
            with termination_event() as stop:
                await until(stop, _follow(workspace, current))


async def _follow(workspace: Workspace, current: Team) -> None:
    async with contextlib.aclosing(follow_team(workspace, current)) as changes:
        async for change in changes:
            output.show(change, _render_change(change))
            sys.stdout.flush()


def _render(report: Team) -> Iterator[Part]:
    yield output.listing(AGENTS, report.members.values())
    if report.tasks:
        yield ""
        yield output.listing(TASKS, report.tasks.values())
    sys.stdout.flush()
    counts = f"{counted(len(report.members), 'agent')} and {counted(len(report.tasks), 'task')}"
    yield Hint(f"{counts} of run {report.run} as of position {report.position}")


def _render_change(change: Change) -> Iterator[Part]:
    for row in change.changed:
        at = f"{change.time.astimezone(UTC):%H:%M:%SZ}  {change.position:>8}"
        yield f"{at}  {_sentence(row)}"


def _sentence(row: Member | Task) -> str:
    if isinstance(row, Member):
        parts = [f"agent {row.agent} ({row.role}) {row.status}"]
        parts += [f"at {', '.join(row.tasks)}"] if row.tasks else []
        parts += [f"last: {row.last}"] if row.last else []
    else:
        parts = [f"task {row.id} {row.status}", output.cut(row.title)]
        parts += [f"by {row.holder} (claim {row.number})"] if row.holder else []
        parts += [f"for {_whose(row)}"] if _whose(row) else []
        parts += [f"waits for {_waits(row)}"] if _waits(row) else []
        parts += [output.cut(row.error)] if row.error else []
    return "  ".join(plain_text(part) for part in parts)


HISTORY_SHOWN_MAX = 50
"""Most writes of a key shown, the newest; `--json` has all."""


@app.command()
async def board(
    which: Run,
    key: Annotated[
        str | None, argument("[KEY]", "Show this key in full, with its writes [all keys].")
    ] = None,
    at: At = None,
) -> None:
    """Show the state that a run's agents share.

    Now, or at any point (--at).
    """
    async with reading_run(which) as (workspace, run):
        up_to = await workspace.points.up_to(run, at)
        if key is None:
            listing = await keys(workspace, run, up_to)
            output.show(listing, _list(listing))
            return
        fetch = Payloads(workspace)
        history = await key_history(workspace, run, key, up_to, fetch)
    output.hint_erased(fetch)
    output.show(history, _key(history))


def _members(value: Any) -> Any:
    """Return the members of a recorded set, which its kind names, and any other value unchanged."""
    return value["$set"] if isinstance(value, dict) and value.keys() == {"$set"} else value


def _value(write: Write) -> str:
    """Render a written value in short."""
    if isinstance(write.value, msgspec.Raw):
        return output.preview(recorded(write.value))
    return "" if write.value in (None, msgspec.UNSET) else str(write.value)


KEYS = output.columns(
    "key! kind version> author~ role~ value expires",
    value=lambda key: output.preview(_members(key.value)),
    expires=lambda key: output.time(key.expires),
)
WRITES = output.columns(
    "version> operation! author~ role~ value position> time!",
    value=_value,
    time=lambda write: output.time(write.time),
)


def _list(listing: Keys) -> Iterator[Part]:
    if listing.keys:
        yield output.listing(KEYS, listing.keys)
    total = counted(len(listing.keys), "key")
    yield Hint(f"{total} of run {listing.run} as of position {listing.position}")


def _key(history: KeyHistory) -> Iterator[Part]:
    now = history.now
    rows: list[tuple[str, object]] = [("key", now.key), ("run", now.run)]
    if isinstance(now, Key):
        labels = ", ".join(f"{name}={text}" for name, text in now.labels.items())
        rows += [("holds", now.kind), ("version", now.version)]
        rows += [("written by", f"{now.author} ({now.role})"), ("labels", labels)]
        rows += [("expires", output.time(now.expires))]
    else:
        rows.append(("holds", "nothing: removed or expired"))
    yield output.pairs([*rows, ("as of", f"position {now.position}")])
    if isinstance(now, Key):
        yield ""
        yield msgspec.json.format(msgspec.json.encode(_members(now.value)), indent=2).decode()
    yield ""
    yield output.listing(WRITES, history.writes[-HISTORY_SHOWN_MAX:])
    if len(history.writes) > HISTORY_SHOWN_MAX:
        count = counted(len(history.writes), "write")
        yield Hint(f"the newest {HISTORY_SHOWN_MAX} of {count}: --json has all")
