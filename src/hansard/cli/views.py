"""Commands `hansard roles view` and `hansard knew`: the view of a role, and of an agent that
decided.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from hansard.agents.access.views import View
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.cli import output, state_lines
from hansard.cli.common import At, Commands, Run, argument, flag, option
from hansard.cli.opening import address_of, reading, reading_run
from hansard.cli.output import Column, Hint, Part
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.inspect import roles as role_views
from hansard.inspect.find import find_run
from hansard.inspect.roles import Knowledge, Moment, RoleView
from hansard.inspect.trace import recorded

app = Commands()

HashKey = Annotated[
    Path | None, option("File of 32 or more secret bytes, for masks that hash.", "FILE")
]

EVENTS_SHOWN_MAX = 50
"""Most events of a view shown, the newest; `--json` has all."""

KEY_BYTES_MAX = 4_096
"""Longest file with a key for hashed values, in bytes."""

EVENTS = (
    Column("", lambda row: str(row[0]), right=True),
    Column("event", lambda row: row[1].type.rpartition(".")[0], whole=True),
    Column("agent", lambda row: row[1].agent, short=True),
    Column("key", lambda row: row[1].key, short=True),
    Column("data", lambda row: output.preview(recorded(row[1].data))),
)


@app.command()
async def view(
    role: Annotated[str, argument("ROLE", "The role.")],
    which: Run,
    at: At = None,
    key: HashKey = None,
    by: Annotated[str, option("The reader.", "NAME", show_default=False)] = OS_USER,
    follow: Annotated[bool, flag("--follow", "Then show each change.")] = False,
) -> None:
    """Show what a role may see of a run.

    Now, or at a point by the rules of that time. Events have the role's own numbers. Each use of
    this command is recorded.
    """
    secret = _key(key)
    if follow and at is not None:
        raise BadValue("--follow", f"--at {at}", "the past does not change: give one of them")
    async with reading_run(which) as (workspace, run):
        if not follow:
            found = await role_views.role_view(workspace, role, run, at, by, secret)
            output.show(found, _render)
            return
        changes = role_views.follow_view(workspace, role, run, by, secret)
        async with contextlib.aclosing(changes):
            async for change in changes:
                output.show(change, _render)
                sys.stdout.flush()


def _render(served: RoleView) -> Iterator[Part]:
    made, found = served.made, served.made.view
    yield f"run {found.run} as role {found.role} sees it: {counted(len(found.events), 'event')}"
    yield ""
    yield from _events(found, served.known)
    if not made.rules:
        yield Hint(
            f"role {found.role!r} has no rules there, and sees nothing: see 'hansard roles apply'"
        )
    yield Hint(f"as of position {made.position}, digest {found.digest or 'of nothing'}")


def _key(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(KEY_BYTES_MAX)
    except OSError as error:
        raise BadValue("key", str(error), "give a file of 32 secret bytes or more") from error


def _events(found: View, known: int = 0) -> Iterator[Part]:
    shown = found.events[known:][-EVENTS_SHOWN_MAX:]
    if shown:
        yield output.listing(EVENTS, shown)
    more = len(found.events) - known - len(shown)
    if more > 0:
        yield f"and {more:,} earlier: --json has them"
    for name, entry in found.state.board.items():
        note = "" if entry.is_whole else " (part of it is hidden)"
        yield f"key {name}: {output.preview(entry.value)}{note}"


@app.command()
async def knew(
    moment: Annotated[
        str,
        argument(
            "DECISION|EVENT|RUN[@POINT]",
            "An event's id or its address (position.index): the agent before it. A run's id, or "
            "'last': before its newest decision, or else at its end. With a point of the run "
            "(last@1234): the agent that acted last.",
        ),
    ],
    role: Annotated[
        str | None, option("As this role sees it, not the agent's own.", "ROLE")
    ] = None,
    rules: Annotated[
        str | None,
        option("Use the role's rules at a position, a time or 'now' [at the decision].", "POINT"),
    ] = None,
    key: HashKey = None,
) -> None:
    """Show what an agent knew when it decided.

    Shows its state, and what its role could see; the events have the role's own numbers. Also lists
    the views that the agent had been given.
    """
    secret = _key(key)
    async with reading() as workspace:
        where = await _moment(workspace, moment, role)
        found = await role_views.knew(workspace, where, rules, secret)
    output.show(found, _render_knowledge)


async def _moment(workspace: Workspace, text: str, role: str | None) -> Moment:
    run, is_point, point = text.partition("@")
    if is_point:
        return await role_views.at_point(workspace, await find_run(workspace, run), point, role)
    if text == "last" or text in await workspace.log.runs():
        run = await find_run(workspace, text)
        return await role_views.before_newest_decision(workspace, run, role)
    return await role_views.before_event(workspace, text, await address_of(text), role)


def _render_knowledge(found: Knowledge) -> Iterator[Part]:
    where, view = found.where, found.made.view
    what = f"{where.event.type} at {where.address}" if where.event is not None else "that point"
    shown = found.made.rules and f"{counted(len(view.events), 'event')} of the run"
    rows: list[tuple[str, object]] = [
        ("run", where.run),
        ("agent", where.agent),
        ("role", where.role),
        ("before", what),
        ("visible to its role", shown or "not limited: the role had no rules then"),
        ("views it was given", f"{len(found.before):,}" if found.before else "none"),
    ]
    yield output.pairs(rows)
    yield ""
    if found.data is not None:
        yield output.Lines(list(state_lines.agent(where.agent, found.data)))
        yield ""
    yield from _events(view)
    digest = f", digest {view.digest}" if view.digest else ""
    yield Hint(f"as of position {where.position}{digest}")
