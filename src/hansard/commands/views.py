"""`hansard roles view` and `hansard knew`: what a role may see, and what an agent knew when it
decided.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from hansard.agents import views
from hansard.agents.views import Derived, OnRecord, View
from hansard.agents.workspace import Workspace
from hansard.bus._commits import until, whole_at
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, Stored
from hansard.commands import _diff, _look_state, _show
from hansard.commands._open import Options, find_run, reading
from hansard.commands.roles import address_of
from hansard.domain.counted import counted
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Recorded
from hansard.domain.ids import AgentStream, run_of
from hansard.domain.role_state import Line
from hansard.domain.run import RunState

EVENTS_SHOWN_MAX = 50
"""Events of a view that people are shown, the newest; `--json` has all."""

KEY_BYTES_MAX = 4_096
"""Longest key of hashed values that is read from a file."""

NOW = "now"
"""The rules as they stand, whenever the event was."""


async def view(
    options: Options,
    role: str,
    run: str,
    at: str | None,
    key: Path | None,
    by: str,
    *,
    follow: bool,
    json: bool,
) -> int:
    """Print what a role may see of a run at a point, or now and after each change until it is
    interrupted; put on record each time that it was looked at.

    Raises NotFound, BadName, BadValue (a mask needs the key; a point cannot be followed),
    UnknownEvent.
    """
    secret = _key(key)
    if follow and at is not None:
        raise BadValue("--follow", f"--at {at}", "the past does not change: give one of them")
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        if not follow:
            _told(await views.serve(workspace, role, run, at, by=by, key=secret), 0, json=json)
            return 0
        before: list[Line] = []
        async with contextlib.aclosing(
            views.follow(workspace, role, run, by=by, key=secret)
        ) as found:
            async for made in found:
                _told(made, _same(before, made.view.events), json=json)
                sys.stdout.flush()
                before = made.view.events
    return 0


def _same(before: Sequence[Line], now: Sequence[Line]) -> int:
    """How many lines at the beginning are what they were: other rules change them."""
    pairs = zip(before, now, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), len(before))


def _told(made: Derived, known: int, *, json: bool) -> None:
    """Print a view, less the lines that were printed before."""
    found = made.view
    if json:
        _show.emit({"kind": "view", **_summary(made), "position": made.position})
        _emit(found, known)
        return
    _show.write(
        f"run {found.run} as role {found.role} sees it: {counted(len(found.events), 'event')}", ""
    )
    _print(found, known)
    if not made.rules:
        hint = (
            f"role {found.role!r} has no rules there, and sees nothing: see 'hansard roles apply'"
        )
        _show.hint(hint)
    _show.hint(f"as of position {made.position}, digest {found.digest or 'of nothing'}")


def _key(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(KEY_BYTES_MAX)
    except OSError as error:
        raise BadValue("key", str(error), "give a file of 32 secret bytes or more") from error


def _summary(made: Derived) -> dict[str, Any]:
    found = made.view
    return {
        "run": found.run,
        "role": found.role,
        "events": len(found.events),
        "digest": found.digest,
        "upto": made.at,
        "rules": made.rules or None,
    }


def _emit(found: View, known: int = 0) -> None:
    _show.emit({"kind": "state", "run": found.run, "role": found.role, **_plain(found.state)})
    for number, line in found.events[known:]:
        _show.emit({"kind": "event", "number": number, **_plain(line)})


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    told: dict[str, Any] = _show.recorded(msgspec.Raw(msgspec.json.encode(record)))
    return told


def _print(found: View, known: int = 0) -> None:
    columns = [_show.Column("", right=True), _show.Column("event", whole=True)]
    columns += [_show.Column("agent"), _show.Column("key"), _show.Column("data")]
    rows = [
        [
            f"{number}",
            line.type.rpartition(".")[0],
            _show.cut(line.agent),
            _show.cut(line.key),
            _show.preview(_show.recorded(line.data)),
        ]
        for number, line in found.events[known:][-EVENTS_SHOWN_MAX:]
    ]
    if rows:
        _show.write(_show.table(columns, rows))
    more = len(found.events) - known - len(rows)
    if more > 0:
        _show.write(f"and {more:,} earlier: --json has them")
    for name, entry in found.state.board.items():
        note = "" if entry.is_whole else " (part of it is hidden)"
        _show.write(f"key {name}: {_show.preview(entry.value)}{note}")


# ---------------------------------------------------------------- knew


class Moment(msgspec.Struct, frozen=True):
    """A point of a run at which an agent stood: its history up to there, and the version of the
    agent's stream. `event` is what it did next, where that was asked for.
    """

    run: str
    agent: str
    role: str
    version: int
    history: Sequence[Stored]
    position: int
    event: Recorded | None = None
    address: str = ""


async def knew(
    options: Options,
    text: str,
    role: str | None,
    rules_at: str | None,
    key: Path | None,
    *,
    json: bool,
) -> int:
    """Print the state of an agent before it decided, and what its role could see then.

    Raises NotFound, Refused (no agent's event), BadName, BadValue, UnknownEvent, Corrupt.
    """
    secret = _key(key)
    async with reading(options) as workspace:
        where = await _moment(options, workspace, text, role)
        rules, said_by = await views.rules_at(
            workspace.states, where.role, await _rules_end(workspace, rules_at, where.position)
        )
        made = views.shown(
            where.role, where.run, where.history, rules, said_by, where.position, secret
        )
        data = await _state(workspace, where)
        found = await views.on_record(
            workspace.states, where.run, where.role, AtPosition(where.position)
        )
    before = [each for each in found if each.event.agent == where.agent]
    if json:
        _emit_knew(where, made, data, before)
    else:
        _print_knew(where, made, data, before)
    return 0


async def _rules_end(workspace: Workspace, at: str | None, position: int) -> AtPosition:
    """Up to where a role's rules are read: as they stood then, if nothing else is said."""
    if at is None:
        return AtPosition(position)
    point = None if at == NOW else at
    return AtPosition(await workspace.log.end(await workspace.points.up_to("", point)))


async def _moment(options: Options, workspace: Workspace, text: str, role: str | None) -> Moment:
    run, is_point, point = text.partition("@")
    if is_point:
        return await _at_point(workspace, await find_run(workspace, run), point, role)
    position, index = await address_of(options, text)
    stored = await workspace.log.at(position)
    if index >= len(stored.commit.events):
        raise NotFound(f"event {text!r}", "give an event's id or its address (position.index)")
    found = run_of(stored.stream)
    if found is None:
        message = f"event {text} stands in no run: give a decision or another event of an agent"
        raise Refused(message)
    history = await workspace.states.history(found, AtPosition(whole_at(stored)))
    told = [each for each in history if each.position < position]
    if index:  # what it did in the same commit before
        commit = msgspec.structs.replace(stored.commit, events=stored.commit.events[:index])
        told.append(msgspec.structs.replace(stored, commit=commit))
    if not told:
        raise NotFound(f"run {found} before event {text}", "it is the first: give a later one")
    agent, own = await _author(workspace, found, stored)
    version = stored.commit.version + index - 1
    if not isinstance(stored.stream, AgentStream):
        version = _version(told, agent)
    return Moment(
        found,
        agent,
        role or own,
        version,
        told,
        position - 1,
        stored.commit.events[index],
        f"{position}.{index}",
    )


async def _author(workspace: Workspace, run: str, stored: Stored) -> tuple[str, str]:
    """The agent that wrote a commit, and its role. Raises Refused."""
    if isinstance(stored.stream, AgentStream):
        return stored.stream.agent, stored.stream.role
    actor = stored.commit.actor.agent
    life: RunState = await workspace.states.life(run)
    if actor not in life.roster:
        known = ", ".join(sorted(life.roster)) or "none"
        message = f"{actor!r} is no agent of run {run}: give an event of one of its agents: {known}"
        raise Refused(message)
    return actor, life.roster[actor]


def _version(history: Sequence[Stored], agent: str) -> int:
    own = [s for s in history if isinstance(s.stream, AgentStream) and s.stream.agent == agent]
    return own[-1].commit.last_version if own else 0


async def _at_point(workspace: Workspace, run: str, point: str, role: str | None) -> Moment:
    """The agent that acted last, of a role where one is given."""
    position = await workspace.log.end(await workspace.points.up_to(run, point))
    history = until(await workspace.states.history(run, AtPosition(position)), position)
    for stored in reversed(history):
        stream = stored.stream
        if isinstance(stream, AgentStream) and role in (None, stream.role):
            version = stored.commit.last_version
            return Moment(run, stream.agent, stream.role, version, history, position)
    if role is None:
        raise NotFound(f"an agent of run {run} at {point}", "give a later point")
    return Moment(run, "", role, 0, history, position)


async def _state(workspace: Workspace, where: Moment) -> dict[str, Any] | None:
    """The agent's state, as data; None before its first event."""
    if not where.version:
        return None
    life = await workspace.states.life(where.run)
    stream = AgentStream(where.run, life.roster[where.agent], where.agent)
    return _diff.agent(await workspace.states.agent(stream, where.version))


def _emit_knew(
    where: Moment, made: Derived, data: dict[str, Any] | None, before: list[OnRecord]
) -> None:
    told = {
        "kind": "knew",
        **_summary(made),
        "agent": where.agent or None,
        "event": where.event.id if where.event is not None else None,
        "address": where.address or None,
        "type": where.event.type if where.event is not None else None,
        "position": where.position,
        "served": len(before),
    }
    _show.emit(told)
    if data is not None:
        _show.emit({"kind": "agent", "run": where.run, "agent": where.agent, **data})
    for each in before:
        event = _plain(each.event)
        _show.emit({"kind": "served", "view": each.id, "position": each.stored.position, **event})
    _emit(made.view)


def _print_knew(
    where: Moment, made: Derived, data: dict[str, Any] | None, before: list[OnRecord]
) -> None:
    what = f"{where.event.type} at {where.address}" if where.event is not None else "that point"
    shown = made.rules and f"{counted(len(made.view.events), 'event')} of the run"
    rows: list[tuple[str, object]] = [
        ("run", where.run),
        ("agent", where.agent),
        ("role", where.role),
        ("before", what),
        ("its role could see", shown or "nothing: it had no rules by then"),
        ("views served to it", f"{len(before):,}" if before else "none"),
    ]
    _show.write(_show.pairs(rows), "")
    if data is not None:
        _show.write(_show.Lines(list(_look_state.agent(where.agent, data))), "")
    _print(made.view)
    _show.hint(f"as of position {where.position}, digest {made.view.digest or 'of nothing'}")
