"""Who may log in: principals, their tokens, and the label that each carries."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hansard.agents.access import principals as recorded
from hansard.agents.workspace import Workspace
from hansard.domain.principal import PrincipalKind, Token


class Standing(StrEnum):
    """Whether a token is good for anything."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Login(msgspec.Struct, kw_only=True):
    """A token of a principal; one without tokens is told once, without what is a token's."""

    principal: str
    kind: PrincipalKind | None
    about: str
    carries: str
    role: str | None = None
    on_behalf_of: tuple[str, ...] = ()
    token: str | None = None
    standing: Standing | None = None
    expires: str | None = None
    because: str = ""


async def list_logins(workspace: Workspace) -> list[Login]:
    """Every principal with its tokens. Raises UnknownEvent, Corrupt."""
    found: list[Login] = []
    for name, state in (await recorded.known(workspace)).items():
        own = Login(principal=name, kind=state.kind, about=state.about, carries=str(state.carries))
        found += [_login(workspace, own, token) for token in state.tokens.values()] or [own]
    return found


def _login(workspace: Workspace, own: Login, token: Token) -> Login:
    issued = token.issued
    valid = Standing.VALID if token.is_valid(workspace.clock.now()) else Standing.EXPIRED
    return msgspec.structs.replace(
        own,
        role=issued.role,
        on_behalf_of=issued.on_behalf_of,
        token=issued.token,
        standing=Standing.REVOKED if token.revoked else valid,
        expires=issued.expires,
        because=token.because,
    )
