"""Principals on record: registered, issued tokens, revoked. See
`hansard.agents.access.authenticator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from hansard.agents.access import authenticator as tokens
from hansard.agents.access import roles
from hansard.agents.access.authenticator import NewToken
from hansard.agents.workspace import Workspace
from hansard.broker.logins import BrokerUser
from hansard.bus import subjects
from hansard.bus.clock import OS_USER
from hansard.bus.commits import revive_all
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.domain import access, ids, principal
from hansard.domain.decider import LabelDeclassified
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.events import Event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import LOWEST, Label, text
from hansard.domain.principal import (
    KIND,
    PrincipalEvent,
    PrincipalKind,
    PrincipalRegistered,
    PrincipalShown,
    PrincipalState,
    TokenIssued,
    TokenRevoked,
)

EXPIRES_S_MAX = 10 * 366 * 24 * 3_600.0
"""Longest lifetime of an expiring token, in seconds: ten years."""


async def read(workspace: Workspace, name: str) -> PrincipalState:
    """Return the current state of a principal; one that is not registered has no kind. Raises
    BadName.
    """
    return _folded(await workspace.log.read(WorkspaceStream(KIND, ids.name("principal", name))))


async def known(workspace: Workspace) -> dict[str, PrincipalState]:
    """Return every principal by name, in order of registration."""
    return {
        name: _folded(stored)
        for name, stored in _by_name(await workspace.log.read_kind(KIND)).items()
    }


def _by_name(commits: Iterable[Stored]) -> dict[str, list[Stored]]:
    by_name: dict[str, list[Stored]] = {}
    for stored in commits:
        if isinstance(stored.stream, WorkspaceStream):
            by_name.setdefault(stored.stream.id, []).append(stored)
    return by_name


def _folded(stored: Iterable[Stored]) -> PrincipalState:
    return principal.fold(principal.initial(), revive_all(item.commit for item in stored))


async def register(
    workspace: Workspace,
    name: str,
    kind: PrincipalKind = PrincipalKind.AGENT,
    *,
    about: str = "",
    by: str = OS_USER,
) -> bool:
    """Register a principal; return False if already registered. Raises Refused, BadName."""
    addressable("principal", name)
    if name == access.STRANGER or tokens.is_id(name):
        raise BadName("principal", name, "choose another name, this one is reserved")
    return await _tell(workspace, name, PrincipalRegistered(kind=kind, about=about), by)


def addressable(kind: str, name: str) -> str:
    """Return a name that fits into a subject unchanged, which identifies the sender. Raises
    BadName.
    """
    if subjects.token(ids.name(kind, name)).startswith("=="):
        raise BadName(kind, name[:40] + "...", "it is too long for a subject, choose a shorter one")
    return name


async def issue(
    workspace: Workspace,
    name: str,
    role: str,
    *,
    expires_s: float | None = None,
    nkey: str = "",
    on_behalf_of: tuple[str, ...] = (),
    by: str = OS_USER,
    token: NewToken | None = None,
) -> NewToken:
    """Issue a token of a role to a principal; return its text, which is never recorded.

    expires_s: lifetime from now, in seconds; None: until it is revoked. nkey: the public key of its
    holder's broker login. on_behalf_of: the principals that its holder acts for, nearest first;
    each must be registered. token: one made by `authenticator.new_token`, issued at most once;
    issuing it again in the same terms changes nothing. Raises Refused, BadName, BadValue.
    """
    addressable("role", role)
    new_token = token if token is not None else tokens.new_token()
    state = await read(workspace, name)
    issued = state.tokens[new_token.id].issued if new_token.id in state.tokens else None
    terms = (new_token.digest, role, on_behalf_of)
    if issued is not None and (issued.digest, issued.role, issued.on_behalf_of) == terms:
        return new_token
    await usable_role(workspace, role)
    await usable_chain(workspace, name, on_behalf_of)
    event = TokenIssued(
        token=new_token.id,
        digest=new_token.digest,
        role=role,
        expires=_ends(workspace.clock.now(), expires_s),
        nkey=nkey,
        on_behalf_of=on_behalf_of,
    )
    await _tell(workspace, name, event, by)
    return new_token


async def usable_chain(workspace: Workspace, name: str, on_behalf_of: tuple[str, ...]) -> None:
    """Raise Refused if a principal to act for is not registered, and BadName or BadValue for an
    invalid chain.
    """
    for each in principal.chain(on_behalf_of, name):
        if (await read(workspace, each)).kind is None:
            message = (
                f"{each!r:.80} is not a registered principal: register it first "
                "('hansard principals register NAME --kind person', or 'hansard credentials')"
            )
            raise Refused(message)


async def usable_role(workspace: Workspace, role: str) -> None:
    """Raise Refused for a role without rules, as its holder could do nothing, and BadName."""
    if (await roles.read(workspace, role)).rules is None:
        message = (
            f"role {role!r} has no rules: apply some first ('hansard roles apply FILE.toml'), "
            "without them it sees nothing and may do nothing"
        )
        raise Refused(message)


def _ends(now: datetime, expires_s: float | None) -> str | None:
    if expires_s is None:
        return None
    if type(expires_s) not in (int, float) or not 0 < expires_s <= EXPIRES_S_MAX:
        remedy = f"give seconds, more than 0 and at most {EXPIRES_S_MAX:,.0f}, or None"
        raise BadValue("expires_s", f"{expires_s!r:.40}", remedy)
    ends = now.astimezone(UTC) + timedelta(seconds=expires_s)
    return ends.isoformat().replace("+00:00", "Z")


async def revoke(
    workspace: Workspace,
    name: str,
    token_id: str,
    *,
    reason: str = "",
    by: str = OS_USER,
) -> bool:
    """Revoke a token; return False if already revoked. Raises Refused, BadName."""
    return await _tell(workspace, name, TokenRevoked(token=token_id, because=reason), by)


async def lower(workspace: Workspace, name: str, to: Label, approver: str, reason: str) -> Label:
    """Lower the accumulated label of a principal; return the previous label. Its open sessions end,
    as they may still write what they were shown. Raises Refused if that would not lower it or the
    principal is not registered; Conflict after 50 lost races.
    """
    before = LOWEST

    def next_append(stored: list[Stored]) -> Sequence[Event]:
        nonlocal before
        state = _folded(stored)
        before = state.carries
        command = LabelDeclassified(
            to=text(to), approver=approver, because=reason, before=str(before)
        )
        return principal.decide(state, command)

    stream = WorkspaceStream(KIND, ids.name("principal", name))
    await workspace.record_lasting(stream, approver, next_append, label=to.stored)
    return before


class RevokedToken(msgspec.Struct, frozen=True):
    """A revoked token with its principal; `is_new`: this call revoked it."""

    principal: str
    token: str
    is_new: bool


async def revoke_all(
    workspace: Workspace, which: str, *, reason: str = "", by: str = OS_USER
) -> list[RevokedToken]:
    """Revoke a token by its id; or, by a principal's name, all of its tokens and those of
    principals that act on its behalf. Each revocation is a separate event: after an interruption,
    the same call revokes the rest.

    Raises NotFound.
    """
    found = await known(workspace)
    ending: list[tuple[str, str, str]] = []
    for name, state in found.items():
        for token_id, token in state.tokens.items():
            if which in (name, token_id):
                ending.append((name, token_id, reason))
            elif principal.acts_for(token, which):
                why = f"it acts on behalf of {which}" + (f": {reason}" if reason else "")
                ending.append((name, token_id, why))
    if not ending:
        fact = "which has no tokens, and no principal acts for it" if which in found else "or token"
        raise NotFound(f"principal {which!r}, {fact},", "see 'hansard principals'")
    return [
        RevokedToken(name, token, await revoke(workspace, name, token, reason=why, by=by))
        for name, token, why in ending
    ]


async def _tell(workspace: Workspace, name: str, event: PrincipalEvent, by: str) -> bool:
    match event:
        case PrincipalRegistered():
            event = msgspec.structs.replace(event, about=workspace.text(event.about))
        case TokenRevoked():
            event = msgspec.structs.replace(event, because=workspace.text(event.because))
        case TokenIssued() | PrincipalShown() | LabelDeclassified():
            pass  # no text to redact, recorded by `carried`, or redacted before

    stream = WorkspaceStream(KIND, ids.name("principal", name))
    return await workspace.record_lasting(
        stream, by, lambda record: principal.decide(_folded(record), event)
    )


async def broker_users(workspace: Workspace) -> list[BrokerUser]:
    """Return the logins for the broker: the holders of currently valid tokens."""
    now = workspace.clock.now()
    return [
        BrokerUser(
            nkey=token.issued.nkey,
            workspace=workspace.log.workspace,
            role=token.issued.role,
            principal=name,
            inbox=subjects.restricted_inbox(token.issued.token),
        )
        for name, state in (await known(workspace)).items()
        for token in state.tokens.values()
        if token.issued.nkey and token.is_valid(now)
    ]
