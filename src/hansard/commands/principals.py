"""`hansard principals`: who may log in, in which role, until when; and taking that away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hansard.agents import principals as recorded
from hansard.agents.workspace import Workspace
from hansard.commands import _show
from hansard.commands._access import tell_broker
from hansard.commands._open import Options, reading
from hansard.domain.principal import PrincipalKind, PrincipalState, Token

COLUMNS = (
    _show.Column("principal", whole=True),
    _show.Column("kind"),
    _show.Column("role", whole=True),
    _show.Column("on behalf of"),
    _show.Column("token", whole=True),
    _show.Column("standing", whole=True),
    _show.Column("carries", whole=True),
    _show.Column("expires"),
    _show.Column("because"),
)
VALID, EXPIRED, REVOKED = "valid", "expired", "revoked"
_STYLES = {VALID: "green", EXPIRED: "yellow", REVOKED: "red"}


async def principals(options: Options, *, json: bool) -> int:
    """List every principal with its tokens and the label that it carries. Raises NotFound,
    UnknownEvent, Corrupt.
    """
    async with reading(options) as workspace:
        rows = list(_rows(workspace, await recorded.known(workspace)))
    if json:
        for row in rows:
            _show.emit(row)
    else:
        _show.write(_show.table(COLUMNS, [_cells(row) for row in rows]))
    return 0


def _rows(workspace: Workspace, found: dict[str, PrincipalState]) -> Iterator[dict[str, Any]]:
    for name, state in found.items():
        own = {
            "principal": name,
            "kind": state.kind,
            "about": state.about,
            "carries": str(state.carries),
        }
        none = {
            "role": None,
            "on_behalf_of": (),
            "token": None,
            "standing": None,
            "expires": None,
            "because": "",
        }
        if not state.tokens:
            yield own | none
        for token in state.tokens.values():
            yield own | {
                "role": token.issued.role,
                "on_behalf_of": token.issued.on_behalf_of,
                "token": token.issued.token,
                "standing": _standing(workspace, token),
                "expires": token.issued.expires,
                "because": token.because,
            }


def _standing(workspace: Workspace, token: Token) -> str:
    if token.revoked:
        return REVOKED
    return VALID if token.is_valid(workspace.clock.now()) else EXPIRED


def _cells(row: dict[str, Any]) -> list[Any]:
    standing = row["standing"] or ""
    return [
        row["principal"],
        row["kind"] or "",
        row["role"] or "",
        ", ".join(row["on_behalf_of"]),
        row["token"] or "none",
        _show.cell(standing, _STYLES.get(standing, "")),
        row["carries"],
        row["expires"] or ("never" if row["token"] else ""),
        _show.cut(row["because"]),
    ]


async def register(
    options: Options, name: str, kind: str, about: str, by: str, *, json: bool
) -> int:
    """Register a principal that needs no credentials of its own: others act on behalf of it.

    Raises Refused (it is registered as another kind), BadName.
    """
    async with reading(options) as workspace:
        is_new = await recorded.register(workspace, name, PrincipalKind(kind), about=about, by=by)
    if json:
        _show.emit({"principal": name, "kind": kind, "registered": is_new})
    else:
        _show.write(f"principal {name} ({kind}) is registered{'' if is_new else ' already'}")
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
        if json:
            _show.emit({"principal": each.principal, "token": each.token, "revoked": each.is_new})
        else:
            said = "is revoked" if each.is_new else "is revoked already"
            _show.write(f"token {each.token} of {each.principal} {said}")
    if not told and not json:
        _show.hint("the broker is not ours: take these logins out of its configuration, too")
    return 0
