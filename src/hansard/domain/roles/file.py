"""Roles as people write them: a TOML file of roles, and a role as such a file. Text in, text out.

    [roles.researcher]
    about = "Finds papers."

    [[roles.researcher.sees]]
    name = "own work"
    roles = ["researcher"]

    [roles.researcher.may]
    tools = ["search_*"]

Reading is strict: what is not known is an error that names what is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hansard.domain import ids, toml
from hansard.domain.errors import BadValue
from hansard.domain.roles import check as role_check
from hansard.domain.roles.model import Mask, Masking, May, RoleDefined, RoleRule

_ROLES = "roles"


def parse(text: str, where: str = "roles") -> dict[str, RoleDefined]:
    """The roles of a file by name, checked. Raises BadValue, BadName; errors begin with `where`."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        remedy = 'quote names with characters other than A-Z a-z 0-9 _ -, as in [roles."研究员"]'
        raise BadValue(where, f"it is no TOML: {error}", remedy) from error
    for name in found:
        if name != _ROLES:
            remedy = "it has tables [roles.NAME] alone"
            raise BadValue(where, f"it has a field {name!r:.80}", remedy)
    named = found.get(_ROLES)
    if not isinstance(named, Mapping) or not named:
        raise BadValue(where, "it has no roles", "begin one with [roles.NAME]")
    return {
        ids.name("role", name): rules(fields, f"role {name!r}") for name, fields in named.items()
    }


def rules(fields: Any, where: str = "the role") -> RoleDefined:
    """A role's rules from plain tables: `{"sees": [{"name": ..., "kinds": [...]}], "may": {...}}`.

    Raises BadValue and BadName, which name the rule, the value and the remedy.
    """
    told = _known(fields, RoleDefined, where)
    shaped: dict[str, Any] = dict(told)
    for name, cls in (("sees", RoleRule), ("masks", Mask)):
        parts = told.get(name, [])
        if not isinstance(parts, list | tuple):
            fact = f"it is {parts!r:.80}"
            raise BadValue(f"{name} of {where}", fact, f"give tables [[roles.NAME.{name}]]")
        shaped[name] = [
            _known(part, cls, f"{name} {number} of {where}") for number, part in enumerate(parts, 1)
        ]
    shaped["may"] = _known(told.get("may", {}), May, f"may of {where}")
    try:
        made = msgspec.convert(shaped, RoleDefined)
    except msgspec.ValidationError as error:
        hows = ", ".join(how.value for how in Masking)
        remedy = (
            "matchers, fields and tools are lists of texts, labels a table, "
            f"about and clearance texts; how is {hows}"
        )
        raise BadValue(where, str(error), remedy) from error
    try:
        role_check.check(made)
    except BadValue as error:
        raise BadValue(f"{where}: {error.where}", error.fact, error.remedy) from error
    return made


def _known(fields: Any, cls: type[msgspec.Struct], where: str) -> dict[str, Any]:
    known = ", ".join(cls.__struct_fields__)
    if not isinstance(fields, Mapping):
        raise BadValue(where, f"it is {fields!r:.80}", f"give a table with some of: {known}")
    for name in fields:
        if name not in cls.__struct_fields__:
            raise BadValue(where, f"it has no field {name!r:.80}", f"its fields are: {known}")
    return dict(fields)


def write(roles: Mapping[str, RoleDefined]) -> str:
    """Roles as the text of a file that reads back as the same."""
    return "\n".join(line for name, each in roles.items() for line in _role(name, each))


def _role(name: str, role: RoleDefined) -> Iterator[str]:
    head = f"{_ROLES}.{toml.key(name)}"
    yield f"[{head}]"
    if role.about:
        yield f"about = {toml.text(role.about)}"
    if role.clearance:
        yield f"clearance = {toml.text(role.clearance)}"
    yield ""
    for kind, parts in (("sees", role.sees), ("masks", role.masks)):
        for part in parts:
            yield f"[[{head}.{kind}]]"
            yield from _pairs(part)
    yield f"[{head}.may]"
    yield from _pairs(role.may)


def _pairs(part: RoleRule | Mask | May) -> Iterator[str]:
    for field in part.__struct_fields__:
        value = getattr(part, field)
        if value not in (None, (), False):
            yield f"{field} = {_value(value)}"
    yield ""


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return toml.text(value)
        case dict():
            inside = ", ".join(f"{toml.key(name)} = {toml.text(it)}" for name, it in value.items())
            return f"{{{inside}}}"
        case _:
            return f"[{', '.join(toml.text(item) for item in value)}]"
