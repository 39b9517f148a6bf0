"""`hansard roles`: what roles see and may do, and why one sees an event or not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from hansard.agents.access import roles
from hansard.bus.errors import NotFound
from hansard.cli import output
from hansard.cli.commands._answers import answering
from hansard.cli.opening import Options, reading
from hansard.cli.output import Column, Hint, Part
from hansard.client.connect import open_workspace
from hansard.domain import ids
from hansard.domain.ids import run_of
from hansard.domain.roles import file as role_file
from hansard.domain.roles.model import KIND
from hansard.inspect import roles as reads
from hansard.inspect.roles import EVENT_REMEDY, Explained, Role, Roles, read_roles

REMEDY = "see 'hansard roles show'"
_ADDRESS = re.compile(r"(?P<position>[0-9]{1,18})\.(?P<index>[0-9]{1,9})")

_NAMES = """
    SELECT DISTINCT stream FROM events WHERE run IS NULL AND starts_with(stream, $1) ORDER BY 1
"""
_EVENT = "SELECT position, event_index FROM events WHERE id = $1"


async def apply(options: Options, path: Path, by: str, *, json: bool) -> int:
    """Apply the roles of a file, all of which are checked first. Raises BadValue, BadName."""
    found = roles.read_file(path)
    workspace = await open_workspace(options.settings())
    try:
        for name, is_new in (await roles.apply_all(workspace, found, by=by)).items():
            said = f"role {name} has these rules{'' if is_new else ' already'}"
            output.show({"role": name, "applied": is_new}, said, json=json)
    finally:
        await workspace.close()
    return 0


async def withdraw(options: Options, name: str, because: str, by: str, *, json: bool) -> int:
    """Take a role's rules away. Raises Refused, BadName."""
    async with reading(options) as workspace:
        is_new = await roles.withdraw(workspace, name, because=because, by=by)
    said = "is withdrawn: it sees nothing any more" if is_new else "is withdrawn already"
    output.show({"role": name, "withdrawn": is_new}, f"role {name} {said}", json=json)
    return 0


async def show(options: Options, name: str | None, at: str | None, *, json: bool) -> int:
    """Print a role's rules at a point, as a file that can be applied; or list the roles.

    Raises NotFound where it was never defined by then, BadName.
    """
    names = [name] if name is not None else await _names(options)
    async with reading(options) as workspace:
        found = await read_roles(workspace, names, at)
    if name is not None and not found.roles:
        raise NotFound(f"role {name!r} at position {found.position}", REMEDY)
    output.show(found, _list if name is None else _rules, json=json)
    return 0


async def _names(options: Options) -> list[str]:
    head = f"{KIND}/"
    async with answering(options) as answers:
        streams = [stream.removeprefix(head) for (stream,) in answers.all(_NAMES, [head])]
    return [stream.replace("%2F", "/").replace("%25", "%") for stream in streams]


LIST = (
    Column("role", whole=True),
    Column("standing"),
    Column("version", right=True),
    Column("rules", lambda role: len(role.rules.sees) if role.rules else None, right=True),
    Column("masks", lambda role: len(role.rules.masks) if role.rules else None, right=True),
    Column("about", lambda role: role.rules.about if role.rules else None, short=True),
)


def _list(found: Roles) -> list[Part]:
    return [output.listing(LIST, found.roles), Hint(f"as of position {found.position}")]


def _rules(found: Roles) -> Iterator[Part]:
    """Each role as a file that can be applied."""
    for role in found.roles:
        yield Hint(f"version {role.version}, as of position {found.position}")
        yield _file(role)


def _file(role: Role) -> str:
    if role.rules is None:
        return f"# role {role.role} is withdrawn{f': {role.because}' if role.because else ''}"
    return role_file.write({role.role: role.rules}).rstrip("\n")


# ---------------------------------------------------------------- explain


async def explain(options: Options, name: str, event: str, at: str | None, *, json: bool) -> int:
    """Print whether a role sees an event, which rule decided, and what each other rule lacked.

    Raises NotFound, BadName, Corrupt, UnknownEvent.
    """
    ids.name("role", name)
    address = await address_of(options, event)
    async with reading(options) as workspace:
        found = await reads.explain(workspace, name, address, at)
    output.show(found, _why, json=json)
    return 0


def _why(found: Explained) -> list[Part]:
    told, run = found.told, run_of(found.stream)
    where = f"{found.stream} of run {run}" if run is not None else f"{found.stream}"
    return [f"role {told.role}, event {told.address}: {told.type} in {where}", *told.why]


async def address_of(options: Options, text: str) -> tuple[int, int]:
    """Where an event stands, from its address or its id. Raises NotFound."""
    address = _ADDRESS.fullmatch(text)
    if address is not None:
        return int(address["position"]), int(address["index"])
    async with answering(options) as answers:
        found = answers.all(_EVENT, [text])
    if not found:
        raise NotFound(f"event {text!r}", EVENT_REMEDY)
    position, index = found[0]
    return position, index
