"""Command `hansard principals`: principals, their roles and tokens, and their revocation."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hansard.agents.access import principals as recorded
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import By, Commands, Json, Reason, argument, do, option
from hansard.cli.opening import reading, settings
from hansard.cli.output import Column
from hansard.client.credentials import sync_broker
from hansard.domain.principal import PrincipalKind
from hansard.inspect.roles import Standing, list_logins

app = Commands(
    name="principals",
    help="List principals and their tokens; revoke access.",
    invoke_without_command=True,
)

Kind = Literal["agent", "person", "service"]

_STYLES = {Standing.VALID: "green", Standing.EXPIRED: "yellow", Standing.REVOKED: "red"}

COLUMNS = (
    Column("principal", whole=True),
    Column("kind"),
    Column("role", whole=True),
    Column("on behalf of"),
    Column("token", lambda login: login.token or "none", whole=True),
    Column("standing", whole=True, styles=_STYLES),
    Column("carries", whole=True),
    Column("expires", lambda login: login.expires or ("never" if login.token else "")),
    Column("because", short=True),
)


@app.callback()
def principals(context: typer.Context, json: Json = False) -> None:
    """List principals with their tokens, validity, and the label carried between runs."""
    if context.invoked_subcommand is None:
        do(_list_principals, json=json)


async def _list_principals() -> None:
    async with reading() as workspace:
        found = await list_logins(workspace)
    output.show(found, lambda logins: [output.listing(COLUMNS, logins)])


@app.command()
async def register(
    name: Annotated[str, argument("NAME", "Name of the principal.")],
    kind: Annotated[Kind, option("Kind of principal; it cannot be changed.")] = "person",
    about: Annotated[str, option("For the record.", "TEXT")] = "",
    by: By = OS_USER,
) -> None:
    """Register a principal that does not log in, so that others can act on behalf of it.

    A principal that gets credentials is registered with the first of them.
    """
    async with reading() as workspace:
        is_new = await recorded.register(workspace, name, PrincipalKind(kind), about=about, by=by)
    fields = {"principal": name, "kind": kind, "registered": is_new}
    text = f"principal {name} ({kind}) is registered{'' if is_new else ' already'}"
    output.show(fields, text)


@app.command()
async def revoke(
    which: Annotated[str, argument("TOKEN|NAME", "A token's id, or a principal.")],
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Revoke tokens immediately and for good; logins that use one are disconnected.

    Given a principal, revoke all of its tokens and all tokens that act on behalf of it.
    """
    async with reading() as workspace:
        ended = await recorded.revoke_all(workspace, which, reason=reason, by=by)
        report = await sync_broker(settings(), workspace)
    for each in ended:
        done = {"principal": each.principal, "token": each.token, "revoked": each.is_new}
        text = f"token {each.token} of {each.principal} is revoked"
        output.show(done, text if each.is_new else f"{text} already")
    outside = "the broker is not ours: take these logins out of its configuration, too"
    output.show([], lambda _: [] if report else [output.Hint(outside)])
