"""`hansard principals`: who may log in, in which role, until when; and taking that away."""

from __future__ import annotations

from hansard.agents.access import principals as recorded
from hansard.cli import output
from hansard.cli.commands._access import tell_broker
from hansard.cli.opening import Options, reading
from hansard.cli.output import Column
from hansard.domain.principal import PrincipalKind
from hansard.inspect.principals import Standing, list_logins

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


async def principals(options: Options, *, json: bool) -> int:
    """List every principal with its tokens and the label that it carries. Raises NotFound,
    UnknownEvent, Corrupt.
    """
    async with reading(options) as workspace:
        found = await list_logins(workspace)
    output.show(found, lambda logins: [output.listing(COLUMNS, logins)], json=json)
    return 0


async def register(
    options: Options, name: str, kind: str, about: str, by: str, *, json: bool
) -> int:
    """Register a principal that needs no credentials of its own: others act on behalf of it.

    Raises Refused (it is registered as another kind), BadName.
    """
    async with reading(options) as workspace:
        is_new = await recorded.register(workspace, name, PrincipalKind(kind), about=about, by=by)
    told = {"principal": name, "kind": kind, "registered": is_new}
    said = f"principal {name} ({kind}) is registered{'' if is_new else ' already'}"
    output.show(told, said, json=json)
    return 0


async def revoke(options: Options, which: str, because: str, by: str, *, json: bool) -> int:
    """Revoke a token by its id, or by a principal's name all of its own and all of those who act
    on behalf of it; their connections end.

    Raises NotFound, AccessNotTold (it is revoked then: the service refuses it already).
    """
    async with reading(options) as workspace:
        ended = await recorded.revoke_all(workspace, which, because=because, by=by)
        told = await tell_broker(options.settings(), workspace)
    for each in ended:
        revoked = {"principal": each.principal, "token": each.token, "revoked": each.is_new}
        said = f"token {each.token} of {each.principal} is revoked"
        output.show(revoked, said if each.is_new else f"{said} already", json=json)
    outside = "the broker is not ours: take these logins out of its configuration, too"
    output.show([], lambda _: [] if told else [output.Hint(outside)], json=json)
    return 0
