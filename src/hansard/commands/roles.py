"""`hansard roles`: what roles see and may do, and why one sees an event or not."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from hansard._connect import open_workspace
from hansard.agents import roles
from hansard.agents.workspace import Workspace
from hansard.bus._commits import whole_at
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, Stored, UpTo
from hansard.commands import _show
from hansard.commands._answers import answering
from hansard.commands._open import Options, reading
from hansard.domain import ids, role_file
from hansard.domain.errors import BadName, BadValue
from hansard.domain.events import Recorded
from hansard.domain.ids import run_of
from hansard.domain.role import RoleState
from hansard.domain.role_events import KIND
from hansard.domain.role_judge import explain as explained
from hansard.domain.role_judge import judge
from hansard.domain.run import RunState

FILE_BYTES_MAX = 1024 * 1024
"""Of a file of roles: far more than the largest takes."""

REMEDY = "see 'hansard roles show'"
_POINT_REMEDY = "give a position (1234) or a time (2026-11-21T10:00:00Z)"
_EVENT_REMEDY = "give an event's id or its address (position.index)"
_ADDRESS = re.compile(r"(?P<position>[0-9]{1,18})\.(?P<index>[0-9]{1,9})")

_NAMES = """
    SELECT DISTINCT stream FROM events WHERE run IS NULL AND starts_with(stream, $1) ORDER BY 1
"""
_EVENT = "SELECT position, event_index FROM events WHERE id = $1"


async def apply(options: Options, path: Path, by: str, *, json: bool) -> int:
    """Apply the roles of a file, all of which are checked first. Raises BadValue, BadName."""
    found = role_file.parse(_text(path), str(path))
    workspace = await open_workspace(options.settings())
    try:
        for name, rules in found.items():
            is_new = await roles.apply(workspace, name, rules, by=by)
            if json:
                _show.emit({"role": name, "applied": is_new})
            else:
                said = "has these rules" if is_new else "has these rules already"
                _show.write(f"role {name} {said}")
    finally:
        await workspace.close()
    return 0


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        text = raw.decode()
    except OSError as error:
        raise BadValue("file", str(error), "give a TOML file of roles") from error
    except UnicodeDecodeError as error:
        raise BadValue(f"{path}", f"it is no UTF-8: {error}", "see docs/roles.md") from error
    if len(raw) > FILE_BYTES_MAX:
        raise BadValue("file", f"{path} has more than {FILE_BYTES_MAX:,} bytes", "cut it")
    return text


async def withdraw(options: Options, name: str, because: str, by: str, *, json: bool) -> int:
    """Take a role's rules away. Raises Refused, BadName."""
    async with reading(options) as workspace:
        is_new = await roles.withdraw(workspace, name, because=because, by=by)
    if json:
        _show.emit({"role": name, "withdrawn": is_new})
    else:
        said = "is withdrawn: it sees nothing any more" if is_new else "is withdrawn already"
        _show.write(f"role {name} {said}")
    return 0


async def show(options: Options, name: str | None, at: str | None, *, json: bool) -> int:
    """Print a role's rules at a point, as a file that can be applied; or list the roles.

    Raises NotFound where it was never defined by then, BadName.
    """
    names = [name] if name is not None else await _names(options)
    async with reading(options) as workspace:
        position = await workspace.log.end(await _up_to(workspace, at))
        found = {each: await roles.read(workspace, each, AtPosition(position)) for each in names}
    found = {each: state for each, state in found.items() if state.version}
    if name is not None and not found:
        raise NotFound(f"role {name!r} at position {position}", REMEDY)
    if json:
        for each, state in found.items():
            _show.emit(_line(each, state, position))
    elif name is None:
        _list(found, position)
    else:
        _print(name, found[name], position)
    return 0


async def _up_to(workspace: Workspace, at: str | None) -> UpTo:
    """A position or a time as the end of a read; other points are of runs. Raises BadName."""
    point: int | datetime | None = None
    if at is not None:
        try:
            point = int(at) if at.isascii() and at.isdigit() else datetime.fromisoformat(at)
        except ValueError:
            raise BadName("point", at, _POINT_REMEDY) from None
    return await workspace.points.up_to("", point)


async def _names(options: Options) -> list[str]:
    head = f"{KIND}/"
    async with answering(options) as answers:
        streams = [stream.removeprefix(head) for (stream,) in answers.all(_NAMES, [head])]
    return [stream.replace("%2F", "/").replace("%25", "%") for stream in streams]


def _standing(state: RoleState) -> str:
    return "defined" if state.rules is not None else "withdrawn"


def _line(name: str, state: RoleState, position: int) -> dict[str, Any]:
    return {
        "role": name,
        "standing": _standing(state),
        "version": state.version,
        "rules": state.rules,
        "because": state.withdrawn.because if state.withdrawn is not None else None,
        "position": position,
    }


def _list(found: dict[str, RoleState], position: int) -> None:
    columns = [_show.Column("role", whole=True), _show.Column("standing")]
    columns += [_show.Column(name, right=True) for name in ("version", "rules", "masks")]
    columns.append(_show.Column("about"))
    rows = [
        [
            name,
            _standing(state),
            f"{state.version:,}",
            f"{len(state.rules.sees):,}" if state.rules is not None else "",
            f"{len(state.rules.masks):,}" if state.rules is not None else "",
            _show.cut(state.rules.about) if state.rules is not None else "",
        ]
        for name, state in found.items()
    ]
    _show.write(_show.table(columns, rows))
    _show.hint(f"as of position {position}")


def _print(name: str, state: RoleState, position: int) -> None:
    _show.hint(f"version {state.version}, as of position {position}")
    if state.rules is None:
        why = state.withdrawn.because if state.withdrawn is not None else ""
        _show.write(f"# role {name} is withdrawn{f': {why}' if why else ''}")
        return
    _show.write(role_file.write({name: state.rules}).rstrip("\n"))


# ---------------------------------------------------------------- explain


async def explain(options: Options, name: str, event: str, at: str | None, *, json: bool) -> int:
    """Print whether a role sees an event, which rule decided, and what each other rule lacked.

    Raises NotFound, BadName, Corrupt, UnknownEvent.
    """
    ids.name("role", name)
    position, index = await address_of(options, event)
    async with reading(options) as workspace:
        state = await roles.read(workspace, name, await _up_to(workspace, at))
        stored = await workspace.log.at(position)
        if index >= len(stored.commit.events):
            raise NotFound(f"event {event!r}", _EVENT_REMEDY)
        recorded = stored.commit.events[index]
        life = await _life(workspace, stored)
    facts = roles.facts_of(stored, recorded, life, _fields(recorded))
    verdict = judge(state.rules, facts)
    why = explained(state.rules, facts)
    if json:
        told = {
            "role": name,
            "event": recorded.id,
            "address": f"{position}.{index}",
            "type": recorded.type,
            "seen": verdict.visible,
            "rule": verdict.rule or None,
            "rules": verdict.rules,
            "fields": verdict.fields,
            "masks": [mask.name for mask in verdict.masks],
            "whole": verdict.whole,
            "why": why,
        }
        _show.emit(told)
    else:
        run = run_of(stored.stream)
        where = f"{stored.stream} of run {run}" if run is not None else f"{stored.stream}"
        _show.write(f"role {name}, event {position}.{index}: {recorded.type} in {where}", *why)
    return 0


async def address_of(options: Options, text: str) -> tuple[int, int]:
    """Where an event stands, from its address or its id. Raises NotFound."""
    address = _ADDRESS.fullmatch(text)
    if address is not None:
        return int(address["position"]), int(address["index"])
    async with answering(options) as answers:
        found = answers.all(_EVENT, [text])
    if not found:
        raise NotFound(f"event {text!r}", _EVENT_REMEDY)
    position, index = found[0]
    return position, index


async def _life(workspace: Workspace, stored: Stored) -> RunState:
    """The life of the run an event is in, as of its commit; an empty one outside of runs."""
    run = run_of(stored.stream)
    if run is None:
        return RunState()
    try:
        life, _ = await workspace.states.vector(run, AtPosition(whole_at(stored)))
    except NotFound:  # nothing is on record of the run but this
        return RunState()
    return life


def _fields(recorded: Recorded) -> tuple[str, ...]:
    """The keys of an event's data."""
    told = msgspec.json.decode(recorded.data)
    return tuple(told) if isinstance(told, dict) else ()
