"""Principals on record: registered, issued tokens, revoked, refused.

Long because registering a principal, admitting its tokens and recording its refusals share one
state.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
from base64 import b32encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import msgspec

from hansard.agents.access import roles
from hansard.agents.access.carried import AccumulatedLabel
from hansard.agents.workspace import Workspace
from hansard.broker.logins import BrokerUser
from hansard.bus import subjects
from hansard.bus.clock import OS_USER
from hansard.bus.commits import revive_all
from hansard.bus.errors import BusError, NotFound
from hansard.bus.log import (
    Append,
    AtPosition,
    EventLog,
    Expected,
    Kind,
    NotYet,
    Stored,
    VersionFree,
)
from hansard.domain import access, ids, principal
from hansard.domain.access import KIND as ACCESS_KIND
from hansard.domain.access import STRANGER, AccessRefused
from hansard.domain.decider import LabelDeclassified, fold
from hansard.domain.errors import BadName, BadValue, HansardError, Refused
from hansard.domain.events import Actor, Event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import HIGHEST, LOWEST, Label, text
from hansard.domain.principal import KIND as PRINCIPAL
from hansard.domain.principal import (
    PRINCIPALS,
    PrincipalEvent,
    PrincipalKind,
    PrincipalRegistered,
    PrincipalShown,
    PrincipalState,
    Token,
    TokenIssued,
    TokenRevoked,
    expiry,
)
from hansard.domain.roles import model as role_events
from hansard.domain.roles.check import RoleState
from hansard.state.repository import folded, transact

# Authenticates tokens against the current state of the record.
#
# Follows the principals and the roles. If it cannot (records written by a newer version, or damaged
# ones), it denies access.

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
    match = _TOKEN.fullmatch(token)
    return (match["id"], match["secret"]) if match is not None else None


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


def _principal(name: str, kind: PrincipalKind, token: Token) -> Principal:
    return Principal(
        name=name,
        kind=kind,
        role=token.issued.role,
        token_id=token.issued.token,
        expires=expiry(token.issued),
        on_behalf_of=token.issued.on_behalf_of,
    )


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
        issued_token = state.tokens.get(token_id) if state is not None else None
        proven = matches(secret, issued_token.issued.digest if issued_token is not None else None)
        reason = self._why_not(name, role, issued_token, proven=proven)
        if reason is not None or state is None or state.kind is None or issued_token is None:
            raise AccessDenied(
                reason or "it is not registered", name, role, known=name in self._principals
            )
        return _principal(name, state.kind, issued_token)

    def holder(self, token: str) -> Principal:
        """Return the holder of a token, in the token's role. Raises AccessDenied."""
        parsed = parse(token)
        name, issued_token = self._issued(parsed[0] if parsed is not None else "")
        return self.check(token, name, issued_token.issued.role if issued_token is not None else "")

    def by_token(self, token_id: str) -> Principal | None:
        """Return the principal of a token that was proven before; None if it is not valid now."""
        name, issued_token = self._issued(token_id)
        state = self._principals.get(name)
        if issued_token is None or state is None or state.kind is None:
            return None
        who = _principal(name, state.kind, issued_token)
        return who if self.admits(who) else None

    def acting(self, name: str, role: str) -> Principal | None:
        """Return a principal in a role by its newest valid token of it; None without one."""
        state = self._principals.get(name)
        tokens = [] if state is None else [*state.tokens.items()]
        valid = (self.by_token(id_) for id_, each in reversed(tokens) if each.issued.role == role)
        return next((who for who in valid if who is not None), None)

    def _issued(self, token_id: str) -> tuple[str, Token | None]:
        """Return the principal and the terms of a token's id; an empty name if there is none."""
        for name, state in self._principals.items():
            if state is not None and token_id in state.tokens:
                return name, state.tokens[token_id]
        return "", None

    def admits(self, who: Principal) -> bool:
        """Return whether the token of an admitted principal is still valid."""
        state = self._principals.get(who.name)
        token = state.tokens.get(who.token_id) if state is not None else None
        return self._why_not(who.name, who.role, token, proven=True) is None

    def carried(self, who: Principal, log: EventLog) -> AccumulatedLabel:
        """Return the accumulated label of an admitted principal, and a log that writes under it."""
        known = self._principals.get(who.name) or PrincipalState()
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
            state = self._principals.get(each, PrincipalState())
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
                before = self._principals.get(name, PrincipalState())
                self._principals[name] = fold(before, events) if before else None
            else:
                known = self._roles.get(name, RoleState())
                self._roles[name] = fold(known, events) if known else None
        except HansardError:
            if stored.stream.kind == principal.KIND:
                self._principals[name] = None
            else:
                self._roles[name] = None


EXPIRES_S_MAX = 10 * 366 * 24 * 3_600.0
"""Longest lifetime of an expiring token, in seconds: ten years."""


async def read(workspace: Workspace, name: str) -> PrincipalState:
    """Return the current state of a principal; one that is not registered has no kind. Raises
    BadName.
    """
    return await workspace.repository.read(PRINCIPALS, name)


async def known(workspace: Workspace) -> dict[str, PrincipalState]:
    """Return every principal by name, in order of registration."""
    return await workspace.repository.read_all(PRINCIPALS)


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
    if name == access.STRANGER or is_id(name):
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
    issued_token = token if token is not None else new_token()
    state = await read(workspace, name)
    issued = state.tokens[issued_token.id].issued if issued_token.id in state.tokens else None
    terms = (issued_token.digest, role, on_behalf_of)
    if issued is not None and (issued.digest, issued.role, issued.on_behalf_of) == terms:
        return issued_token
    await usable_role(workspace, role)
    await usable_chain(workspace, name, on_behalf_of)
    event = TokenIssued(
        token=issued_token.id,
        digest=issued_token.digest,
        role=role,
        expires=_ends(workspace.clock.now(), expires_s),
        nkey=nkey,
        on_behalf_of=on_behalf_of,
    )
    await _tell(workspace, name, event, by)
    return issued_token


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
    workspace: Workspace, name: str, token_id: str, *, reason: str = "", by: str = OS_USER
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
        state = folded(PRINCIPALS, stored)
        before = state.carries
        command = LabelDeclassified(
            to=text(to), approver=approver, because=reason, before=str(before)
        )
        return principal.decide(state, command)

    stream = PRINCIPALS.stream(name)
    await workspace.repository.record(stream, approver, next_append, label=to.stored)
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
    states = await known(workspace)
    ending: list[tuple[str, str, str]] = []
    for name, state in states.items():
        for token_id, token in state.tokens.items():
            if which in (name, token_id):
                ending.append((name, token_id, reason))
            elif principal.acts_for(token, which):
                why = f"it acts on behalf of {which}" + (f": {reason}" if reason else "")
                ending.append((name, token_id, why))
    if not ending:
        fact = (
            "which has no tokens, and no principal acts for it" if which in states else "or token"
        )
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
    return await workspace.repository.decide(PRINCIPALS, name, event, by)


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


# Record of refused access, at most one event a minute for each principal and operation.
#
# The first refusal is written at once; further ones within the minute are counted and written as
# one event when it ends. Repeated refusals thus cost a bounded number of events.

WINDOW_S = 60.0
"""Time during which further refusals are only counted, in seconds."""

OPERATIONS_MAX = 64
"""Most operations that are counted separately for one principal; further ones count as `OTHER`."""

OTHER = "other"
TEXT_LENGTH_MAX = 200
"""Most characters of each claimed text, as it is written by a stranger."""

BY = "service"


class _Counted(msgspec.Struct):
    """Refusals since the last event: their number, and the newest claim."""

    ends_s: float
    count: int = 0
    last: AccessRefused | None = None


class Denials:
    """Records refusals. Use it in an `async with`, or close it, which writes the pending counts.

    window_s: how long refusals are counted before they are written, in seconds.
    """

    def __init__(self, workspace: Workspace, *, window_s: float = WINDOW_S) -> None:
        self._workspace = workspace
        self._window_s = window_s
        self._counted: dict[tuple[str, str], _Counted] = {}
        self._writing = asyncio.Lock()
        self._flushing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def note(self, denied: AccessDenied, operation: str) -> None:
        """Record a refusal, now or with the others of its minute. Raises BusError."""
        who = denied.principal if denied.known else STRANGER
        what = _clean(operation)
        known = sum(principal == who for principal, _ in self._counted)
        if (who, what) not in self._counted and known >= OPERATIONS_MAX:
            what = OTHER
        event = AccessRefused(
            principal=_clean(denied.principal),
            role=_clean(denied.role),
            operation=what,
            because=denied.reason,
        )
        counted = self._counted.get((who, what))
        if counted is None:
            self._counted[who, what] = _Counted(self._now() + self._window_s)
            if self._flushing is None or self._flushing.done():
                self._flushing = asyncio.create_task(self._flush())
            await self._write(who, event)
        else:
            counted.count += 1
            counted.last = event

    async def close(self) -> None:
        """Write the pending counts."""
        self._closing.set()  # not cancelled: an interrupted write might be made twice
        if self._flushing is not None:
            await self._flushing
        for (who, _), counted in self._counted.items():
            await self._write_counted(who, counted)
        self._counted.clear()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _flush(self) -> None:
        """Write each minute's count when it ends; return when none is left."""
        while self._counted and not self._closing.is_set():
            ends_s = min(counted.ends_s for counted in self._counted.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, ends_s - self._now())):
                    await self._closing.wait()
            for (who, what), counted in list(self._counted.items()):
                if counted.ends_s > self._now():
                    continue
                if counted.count == 0:
                    del self._counted[who, what]
                    continue
                counted.ends_s = self._now() + self._window_s
                with contextlib.suppress(BusError):  # stays counted for the next one
                    await self._write_counted(who, counted)

    async def _write_counted(self, who: str, counted: _Counted) -> None:
        if counted.last is None or not counted.count:
            return
        count = counted.count
        await self._write(who, msgspec.structs.replace(counted.last, count=count))
        counted.count -= count

    async def _write(self, who: str, event: AccessRefused) -> None:
        stream = WorkspaceStream(ACCESS_KIND, who)

        async def read() -> tuple[int, tuple[Label | None, Expected]]:
            last = await self._workspace.log.last(stream)
            return (last.commit.last_version if last is not None else 0), await self._under(who)

        def next_append(current: tuple[int, tuple[Label | None, Expected]]) -> Append:
            version, (label, expected) = current
            commit = self._workspace.commit(version + 1, BY, [event], label=label)
            return Append(stream, commit, expected)

        async with self._writing:
            await transact(read, next_append, self._workspace.log.append)

    async def _under(self, who: str) -> tuple[Label | None, Expected]:
        """Return the label of a refusal's event, and the condition that the principal's label is
        unchanged: the event holds the principal's own words. A stranger has no label.
        """
        if who == STRANGER:
            return None, VersionFree()
        try:
            state = await read(self._workspace, who)
        except HansardError:  # an unreadable label may be the highest
            return HIGHEST, VersionFree()
        return state.carries.stored, NotYet(WorkspaceStream(PRINCIPAL, who), state.version + 1)


def _clean(text: str) -> str:
    """Return a claimed text as it may be recorded: short, and valid UTF-8."""
    return text[:TEXT_LENGTH_MAX].encode(errors="backslashreplace").decode()
