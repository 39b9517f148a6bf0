"""Commands `hansard roles` and `credentials`: rules of roles, and logins for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from hansard.agents.access import roles
from hansard.bus.clock import OS_USER
from hansard.bus.errors import NotFound
from hansard.cli import output
from hansard.cli import output as _show
from hansard.cli.common import By, Commands, Reason, argument, option
from hansard.cli.opening import address_of, answering, beginning, reading, settings
from hansard.cli.output import Column, Hint, Part
from hansard.client.credentials import CreatedCredentials, CredentialsRequest, acting_for, make
from hansard.domain import ids
from hansard.domain.ids import run_of
from hansard.domain.roles import check as role_file
from hansard.inspect import roles as reads
from hansard.inspect.find import role_names
from hansard.inspect.roles import RoleExplanation, Roles

app = Commands()

Role = Annotated[str, argument("ROLE", "The role.")]
RoleAt = Annotated[
    str | None,
    option("The rules as of a position (1234) or a time (2026-11-21T10:00:00Z).", "POINT"),
]

REMEDY = "see 'hansard roles show'"


@app.command()
async def apply(
    file: Annotated[Path, argument("FILE.toml", "Roles and their rules.")], by: By = OS_USER
) -> None:
    """Set the rules of roles from a file.

    Each role of the file gets exactly the rules there. All rules are checked before the first role
    is changed. Applying the same file again changes nothing; roles that are not in the file stay as
    they are.
    """
    found = roles.read_file(file)
    async with beginning() as workspace:
        for name, is_new in (await roles.apply_all(workspace, found, by=by)).items():
            text = f"role {name} has these rules{'' if is_new else ' already'}"
            output.show({"role": name, "applied": is_new}, text)


@app.command()
async def withdraw(role: Role, reason: Reason = "", by: By = OS_USER) -> None:
    """Withdraw a role's rules.

    From now on the role sees nothing and may do nothing.
    """
    async with reading() as workspace:
        is_new = await roles.withdraw(workspace, role, reason=reason, by=by)
    text = "is withdrawn: it sees nothing any more" if is_new else "is withdrawn already"
    output.show({"role": role, "withdrawn": is_new}, f"role {role} {text}")


@app.command()
async def show(
    role: Annotated[str | None, argument("[ROLE]", "Role to print [list all roles].")] = None,
    at: RoleAt = None,
) -> None:
    """Print a role's rules as a file, or list the roles.

    The file can be applied again.
    """
    names = [role] if role is not None else []
    if role is None:
        async with answering() as reader:
            names = role_names(reader)
    async with reading() as workspace:
        found = await reads.read_roles(workspace, names, at)
    if role is not None and not found.roles:
        raise NotFound(f"role {role!r} at position {found.position}", REMEDY)
    output.show(found, _list if role is None else _rules)


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
    """Yield each role as a file that can be applied."""
    for role in found.roles:
        yield Hint(f"version {role.version}, as of position {found.position}")
        yield _file(role)


def _file(role: reads.Role) -> str:
    if role.rules is None:
        return f"# role {role.role} is withdrawn{f': {role.because}' if role.because else ''}"
    return role_file.write({role.role: role.rules}).rstrip("\n")


# ---------------------------------------------------------------- explain


@app.command()
async def explain(
    role: Role,
    event: Annotated[str, argument("EVENT", "An event's id, or its address (position.index).")],
    at: RoleAt = None,
) -> None:
    """Explain why a role may or may not see an event.

    Names the rule that lets it, and the unmet condition of every other rule.
    """
    ids.name("role", role)
    address = await address_of(event)
    async with reading() as workspace:
        found = await reads.explain(workspace, role, address, at)
    output.show(found, _render_explanation)


def _render_explanation(found: RoleExplanation) -> list[Part]:
    facts, run = found.explanation, run_of(found.stream)
    where = f"{found.stream} of run {run}" if run is not None else f"{found.stream}"
    return [f"role {facts.role}, event {facts.address}: {facts.type} in {where}", *facts.why]


@app.command()
async def credentials(
    role: Annotated[str, argument("ROLE", "The role; it must have rules.")],
    name: Annotated[str | None, option("Principal of the login [the role's name].", "NAME")] = None,
    kind: Annotated[
        Literal["agent", "person", "service"] | None, option("Kind of a new principal [agent].")
    ] = None,
    expires: Annotated[str, option("Validity: 12h, 30d, 8w, never.", "LIFE")] = "30d",
    output: Annotated[
        Path | None, option("File to write [hansard-NAME.json].", "FILE", "--output", "-o")
    ] = None,
    about: Annotated[str, option("For the record.", "TEXT")] = "",
    on_behalf_of: Annotated[
        list[str] | None, option("Principal it acts for, the nearest first. Repeatable.", "NAME")
    ] = None,
    by: By = OS_USER,
) -> None:
    """Create a login that reaches the service in one role.

    It reaches nothing else. The file is private to its owner. If run again after an error or a
    crash, the command completes its work; existing valid credentials are kept.
    """
    target = CredentialsRequest(
        role=role,
        name=name,
        kind=kind,
        expires=expires,
        output=output,
        about=about,
        by=by,
        on_behalf_of=tuple(on_behalf_of or ()),
    )
    _print_credentials(await make(settings(), target))


def _print_credentials(made: CreatedCredentials) -> None:
    _show.show(made, _render)


def _render(report: CreatedCredentials) -> Iterator[Part]:
    text = "are in" if report.new else "are there already, in"
    yield f"credentials of principal {report.principal}, role {report.role}, {text}:"
    yield f"  {report.file}"
    if report.on_behalf_of:
        yield f"acts {acting_for(report.on_behalf_of)}"
    yield f"valid until {report.expires or 'they are revoked'}; token {report.token}"
    if report.broker_entry is None:
        yield Hint(
            "anyone who has the file can log in with it: it is neither shown again nor recorded"
        )
        return
    yield Hint("the broker is external: add this to the users of its account, and reload it")
    yield report.broker_entry
