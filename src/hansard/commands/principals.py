"""`hansard principals`: who may log in, in which role, until when; and taking that away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hansard.agents import principals as recorded
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.commands import _show
from hansard.commands._access import tell_broker
from hansard.commands._open import Options, reading
from hansard.domain.principal import PrincipalState, Token

COLUMNS = (
    _show.Column("principal", whole=True),
    _show.Column("kind"),
    _show.Column("role", whole=True),
    _show.Column("token", whole=True),
    _show.Column("standing", whole=True),
    _show.Column("expires"),
    _show.Column("because"),
)
VALID, EXPIRED, REVOKED = "valid", "expired", "revoked"
_STYLES = {VALID: "green", EXPIRED: "yellow", REVOKED: "red"}


async def principals(options: Options, *, json: bool) -> int:
    """List every principal with its tokens. Raises NotFound, UnknownEvent, Corrupt."""
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
        own = {"principal": name, "kind": state.kind, "about": state.about}
        none = {"role": None, "token": None, "standing": None, "expires": None, "because": ""}
        if not state.tokens:
            yield own | none
        for token in state.tokens.values():
            yield own | {
                "role": token.issued.role,
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
        row["token"] or "none",
        _show.cell(standing, _STYLES.get(standing, "")),
        row["expires"] or ("never" if row["token"] else ""),
        _show.cut(row["because"]),
    ]


async def revoke(options: Options, which: str, because: str, by: str, *, json: bool) -> int:
    """Revoke a token by its id, or all tokens of a principal by its name; its connections end.

    Raises NotFound, AccessNotTold (it is revoked then: the service refuses it already).
    """
    async with reading(options) as workspace:
        found = _tokens(which, await recorded.known(workspace))
        done = [
            (name, token, await recorded.revoke(workspace, name, token, because=because, by=by))
            for name, token in found
        ]
        told = await tell_broker(options.settings(), workspace)
    for name, token, is_new in done:
        if json:
            _show.emit({"principal": name, "token": token, "revoked": is_new})
        else:
            said = "is revoked" if is_new else "is revoked already"
            _show.write(f"token {token} of {name} {said}")
    if not told and not json:
        _show.hint("the broker is not ours: take these logins out of its configuration, too")
    return 0


def _tokens(which: str, found: dict[str, PrincipalState]) -> list[tuple[str, str]]:
    """The tokens that an id or a name stands for. Raises NotFound."""
    tokens = [(name, token) for name, state in found.items() for token in state.tokens]
    chosen = [each for each in tokens if which in each]
    if not chosen:
        fact = "which has no tokens" if which in found else "or token"
        raise NotFound(f"principal {which!r}, {fact},", "see 'hansard principals'")
    return chosen
