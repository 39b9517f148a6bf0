"""Authenticates tokens against the current state of the record.

Follows the principals and the roles. If it cannot (records written by a newer version, or damaged
ones), it denies access.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
from base64 import b32encode
from datetime import datetime
from typing import Any, Self

import msgspec

from hansard.agents.access.carried import AccumulatedLabel
from hansard.agents.workspace import Workspace
from hansard.bus import subjects
from hansard.bus.commits import revive_all
from hansard.bus.log import AtPosition, EventLog, Kind, Stored
from hansard.domain import principal
from hansard.domain.errors import HansardError
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.domain.principal import PrincipalKind, PrincipalState, Token, expiry
from hansard.domain.roles import check as role
from hansard.domain.roles import model as role_events
from hansard.domain.roles.check import RoleState

SECRET_BYTES = 32
_TOKEN = re.compile(r"hsd_(?P<id>[0-9a-f]{32})_(?P<secret>[a-z2-7]{52})")
_ID = re.compile(r"[0-9a-f]{32}")
_NOTHING = "0" * 64
"""Compared with a secret if there is no token: no text is known to have this digest."""


class NewToken(msgspec.Struct, frozen=True):
    """A new token: its public id, and the text to hand over once, which is never recorded."""

    id: str
    token: str

    @property
    def digest(self) -> str:
        """Digest of the secret, as recorded."""
        return digest_of(self.token.rpartition("_")[2])

    def __repr__(self) -> str:
        return f"Issued(id={self.id!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("id", self.id)]


def new_token() -> NewToken:
    """Create a token that is not issued yet."""
    token_id = secrets.token_hex(16)
    secret = b32encode(secrets.token_bytes(SECRET_BYTES)).decode().rstrip("=").lower()
    return NewToken(token_id, f"hsd_{token_id}_{secret}")


def digest_of(secret: str) -> str:
    """Return the recorded form of a secret: its SHA-256, in hex."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_id(text: str) -> bool:
    """Return whether a text has the form of a token's public id."""
    return _ID.fullmatch(text) is not None


def parse(token: str) -> tuple[str, str] | None:
    """Return a token's id and secret; None for a text that is no token."""
    found = _TOKEN.fullmatch(token)
    return (found["id"], found["secret"]) if found is not None else None


def matches(secret: str, digest: str | None) -> bool:
    """Return whether a secret has a digest, in constant time. None matches no secret."""
    actual, target = digest_of(secret).encode(), (digest or _NOTHING).encode()
    return hmac.compare_digest(actual, target) and digest is not None


class AccessDenied(HansardError):
    """A token that gives no access. The text is the same for every reason.

    `reason` is for the record. `known` is the principal's name if that is registered, so that a
    stranger's claim names no stream.
    """

    TEXT = "access denied: request new credentials from their issuer"

    def __init__(self, reason: str, principal: str, role: str, *, known: bool = False) -> None:
        super().__init__(self.TEXT)
        self.reason = reason
        self.principal = principal
        self.role = role
        self.known = known


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Holder of a valid token with its role and expiry (UTC; None: never).

    `on_behalf_of`: the principals that it acts for, nearest first.
    """

    name: str
    kind: PrincipalKind
    role: str
    token_id: str
    expires: datetime | None = None
    on_behalf_of: tuple[str, ...] = ()

    @property
    def inbox(self) -> str:
        """Prefix of the subjects on which it may receive replies; see `bus.access.may_answer`."""
        return subjects.restricted_inbox(self.token_id)

    @property
    def actor_chain(self) -> tuple[str, ...]:
        """Principals that its agents act for: `Actor.on_behalf_of`, nearest first."""
        return (self.name, *self.on_behalf_of)

    @property
    def actor(self) -> Actor:
        """Actor of its writes outside of sessions."""
        return Actor(self.name, self.actor_chain)


class Authenticator:
    """Create it with `open`, and end it with `close` or as an `async with`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._principals: dict[str, PrincipalState | None] = {}
        self._roles: dict[str, RoleState | None] = {}
        self._lost: str | None = None
        self._following: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, workspace: Workspace) -> Self:
        """Read the principals and roles, and follow their changes. Raises Unreachable, Corrupt."""
        made = cls(workspace)
        head = await workspace.log.head()
        for kind in (principal.KIND, role_events.KIND):
            for stored in await workspace.log.read_kind(kind, AtPosition(head)):
                made._take(stored)
            task = asyncio.create_task(made._follow(kind, head))
            made._following.append(task)
        return made

    async def close(self) -> None:
        """Stop following; all access is denied from now on."""
        self._lost = "it is closed"
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def check(self, token: str, name: str, role: str) -> Principal:
        """Return the holder of a token as principal `name` in `role`. Raises AccessDenied.

        Sends no request. A revocation applies once it is read here, milliseconds after it is
        recorded; an expiry applies by this process's clock.
        """
        state = self._principals.get(name)
        parsed = parse(token)
        token_id, secret = parsed if parsed is not None else ("", "")
        found = state.tokens.get(token_id) if state is not None else None
        proven = matches(secret, found.issued.digest if found is not None else None)
        reason = self._why_not(name, role, found, proven=proven)
        if reason is not None or state is None or state.kind is None or found is None:
            raise AccessDenied(
                reason or "it is not registered", name, role, known=name in self._principals
            )
        return Principal(
            name=name,
            kind=state.kind,
            role=role,
            token_id=token_id,
            expires=expiry(found.issued),
            on_behalf_of=found.issued.on_behalf_of,
        )

    def admits(self, who: Principal) -> bool:
        """Return whether the token of an admitted principal is still valid."""
        state = self._principals.get(who.name)
        found = state.tokens.get(who.token_id) if state is not None else None
        return self._why_not(who.name, who.role, found, proven=True) is None

    def carried(self, who: Principal, log: EventLog) -> AccumulatedLabel:
        """Return the accumulated label of an admitted principal, and a log that writes under it."""
        known = self._principals.get(who.name) or principal.initial()
        return AccumulatedLabel(log, known, who.actor, who.role)

    def lowered(self, name: str) -> int:
        """Return the version of the event that last lowered a principal's label; 0 for none."""
        state = self._principals.get(name)
        return state.lowered if state is not None else 0

    def rules_version(self, role: str) -> int:
        """Return the version of a role's rules; it changes whenever they do."""
        state = self._roles.get(role)
        return state.version if state is not None else 0

    def is_inbox_of(self, name: str, inbox: str) -> bool:
        """Return whether a principal was ever issued the token of an inbox: refusals may be sent
        there.
        """
        state = self._principals.get(name)
        issued = state.tokens if state is not None else {}
        return any(subjects.restricted_inbox(token_id) == inbox for token_id in issued)

    def _why_not(
        self, name: str, role: str, known_token: Token | None, *, proven: bool
    ) -> str | None:
        """Return why a token gives no access; None if it does."""
        if self._lost is not None:
            return f"the principals and roles cannot be read: {self._lost}"
        if name not in self._principals:
            return "there is no such principal"
        if self._principals[name] is None:
            return "its record cannot be read"
        if known_token is None:
            return "it has no such token"
        if not proven:
            return "the token's secret is another one"
        if known_token.revoked:
            return "the token is revoked"
        if not self._in_time(known_token):
            return "the token has expired"
        if known_token.issued.role != role:
            return "the token is of another role"
        broken = self._why_not_for(name, known_token.issued.on_behalf_of)
        if broken is not None:
            return broken
        rules = self._roles.get(role)
        if rules is None or rules.rules is None:
            return "the role has no rules"
        return None

    def _why_not_for(self, name: str, on_behalf_of: tuple[str, ...]) -> str | None:
        """Return why a principal may not act for others; None if it may. Each must be
        registered.
        """
        try:
            chain = principal.chain(on_behalf_of, name)
        except HansardError:  # written by other means
            return "whom it acts for is not as it may be"
        for each in chain:
            state = self._principals.get(each, principal.initial())
            if state is None:
                return f"it acts for {each!r:.80}, whose record cannot be read"
            if state.kind is None:
                return f"it acts for {each!r:.80}, which is not registered"
        return None

    def _in_time(self, known_token: Token) -> bool:
        try:
            return known_token.is_valid(self._workspace.clock.now())
        except HansardError:  # written by other means: counts as expired
            return False

    async def _follow(self, kind: str, after: int) -> None:
        commits = self._workspace.log.follow(after, of=Kind(kind))
        try:
            async with contextlib.aclosing(commits) as news:  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
                async for stored in news:
                    self._take(stored)
        except Exception as error:  # noqa: BLE001 -- any error: deny all access from here on
            self._lost = str(error) or repr(error)
        else:
            self._lost = "the log is not followed any more"

    def _take(self, stored: Stored) -> None:
        """Fold a commit; one that cannot be read makes its principal or role one without access."""
        if not isinstance(stored.stream, WorkspaceStream):
            return
        name = stored.stream.id
        try:
            events = revive_all([stored.commit])
            if stored.stream.kind == principal.KIND:
                before = self._principals.get(name, principal.initial())
                self._principals[name] = principal.fold(before, events) if before else None
            else:
                known = self._roles.get(name, role.initial())
                self._roles[name] = role.fold(known, events) if known else None
        except HansardError:
            if stored.stream.kind == principal.KIND:
                self._principals[name] = None
            else:
                self._roles[name] = None
