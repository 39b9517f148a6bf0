"""A principal: an agent, a person or a service that may log in. One stream each; it outlives runs.

Its tokens are on record as digests only: the holder of a token's secret can prove possession, a
reader of the record cannot. A token is of one role, may expire, and may be revoked for good. Its
holder may act for other principals; the token is then valid only while all of them are unchanged.

The label of everything its holder was shown is on record here, too: it accumulates over runs,
processes and tokens until it is declassified. It belongs to this principal alone: the principals it
acts for were not shown the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, assert_never

import msgspec

from hansard.domain import decider, ids, values
from hansard.domain.decider import By, Decider, LabelDeclassified, State
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event
from hansard.domain.label import Label, join, parse, raised, text

KIND = "principal"
"""The kind of its stream; its id is the principal's name."""

TOKENS_MAX = 10_000
"""Most tokens ever issued to one principal: its stream is read as a whole."""

CHAIN_MAX = 8
"""Most principals that one acts for: each of its commits names them all."""

_ID = re.compile(r"[0-9a-f]{32}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class PrincipalKind(StrEnum):
    """The kind of a principal."""

    AGENT = "agent"
    PERSON = "person"
    SERVICE = "service"


@event("principal.registered.v1")
class PrincipalRegistered(Event, frozen=True, kw_only=True):
    """The principal exists from here on; its kind never changes."""

    kind: PrincipalKind
    about: str = ""


@event("principal.token_issued.v1")
class TokenIssued(Event, frozen=True, kw_only=True):
    """The holder of the secret whose SHA-256 is `digest` (hex) may act in `role`.

    `token` is its public id (32 hex digits). `expires` is RFC 3339 in UTC; None: it does not
    expire. `nkey` is the public key by which the broker knows the holder; empty where it does not.
    `on_behalf_of` are the principals that the holder acts for, the nearest first.
    """

    token: str
    digest: str
    role: str
    expires: str | None = None
    nkey: str = ""
    on_behalf_of: tuple[str, ...] = ()


@event("principal.token_revoked.v1")
class TokenRevoked(Event, frozen=True, kw_only=True):
    """The token is invalid from here on."""

    token: str
    because: str = ""


@event("principal.shown.v1")
class PrincipalShown(Event, frozen=True, kw_only=True):
    """The principal carries `label` (`hansard.domain.label`) from here on: the join of all that its
    holder was shown, including what is shown as soon as this is on record.

    `role` is the role it acts in, `run` the run where it is shown the content; empty outside of
    any.
    """

    label: str
    role: str
    run: str = ""


PrincipalEvent = (
    PrincipalRegistered | TokenIssued | TokenRevoked | PrincipalShown | LabelDeclassified
)


class Token(msgspec.Struct, frozen=True):
    """A token on record. `revoked` is true if it was revoked, `because` is the reason."""

    issued: TokenIssued
    revoked: bool = False
    because: str = ""

    def is_valid(self, now: datetime) -> bool:
        """Return whether the token is neither revoked nor expired."""
        ends = expiry(self.issued)
        return not self.revoked and (ends is None or now < ends)


class PrincipalState(State):
    """A principal at a version; `kind` is None before it is registered. Tokens by their id.

    `label` is the label it carries, in the form that states keep; `lowered` is the version of the
    event that lowered it last, 0 for none.
    """

    noun: ClassVar[str] = "a principal"

    kind: PrincipalKind | None = None
    about: str = ""
    tokens: dict[str, Token] = msgspec.field(default_factory=dict)
    label: str = ""
    lowered: int = 0

    @property
    def carries(self) -> Label:
        """The label that the principal carries."""
        return parse(self.label)

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        match event:
            case PrincipalRegistered():
                self.kind, self.about = event.kind, event.about
            case TokenIssued():
                self.tokens[event.token] = Token(event)
            case TokenRevoked():
                token = self.tokens.get(event.token)
                if token is None:
                    message = f"token {event.token!r:.80} is revoked, but was never issued"
                    raise Refused(message)
                self.tokens[event.token] = Token(token.issued, revoked=True, because=event.because)
            case PrincipalShown():
                self.label = raised(self.label, parse(event.label))
            case LabelDeclassified():
                self.label = text(decider.label_after(event))
                self.lowered = self.version
            case _:
                super()._evolve(event, by)


def decide(state: PrincipalState, event: PrincipalEvent) -> Sequence[PrincipalEvent]:
    """Return the events of a statement about a principal; none where it already holds.

    Raises Refused, BadValue, BadName.
    """
    match event:
        case PrincipalRegistered():
            values.demand_text(event.about, "about")
            if state.kind is None:
                return (event,)
            if state.kind is not event.kind:
                message = (
                    f"it is registered as {state.kind.value!r}, which never changes, "
                    f"not as {event.kind.value!r}: give another name"
                )
                raise Refused(message)
            return ()
        case TokenIssued():
            return _issue(state, event)
        case TokenRevoked():
            values.demand_text(event.because, "reason")
            token = state.tokens.get(event.token)
            if token is None:
                message = f"it has no token {event.token!r:.80}: see 'hansard principals'"
                raise Refused(message)
            return () if token.revoked else (event,)
        case PrincipalShown():
            return _show(state, event)
        case LabelDeclassified():
            _demand_registered(state, "nothing is shown to it, so it carries no label")
            return (
                decider.lowered(
                    state.carries, decider.label_after(event), event.approver, event.because
                ),
            )
        case _:
            assert_never(event)


PRINCIPALS = Decider(kind=KIND, initial=PrincipalState, decide=decide)


def _show(state: PrincipalState, event: PrincipalShown) -> Sequence[PrincipalEvent]:
    """Return the event that raises the principal's label; none where it is already as high."""
    ids.name("role", event.role)
    shown = parse(event.label)
    _demand_registered(state, "register it before it is shown anything")
    carried = join(state.carries, shown)
    if carried == state.carries:
        return ()
    return (msgspec.structs.replace(event, label=text(carried)),)


def _demand_registered(state: PrincipalState, remedy: str) -> None:
    if state.kind is None:
        message = f"it is not registered: {remedy}"
        raise Refused(message)


def _issue(state: PrincipalState, event: TokenIssued) -> Sequence[PrincipalEvent]:
    ids.name("role", event.role)
    if not _ID.fullmatch(event.token):
        raise BadValue("token", f"{event.token!r:.80} is no token id", "give 32 hex digits")
    if not _DIGEST.fullmatch(event.digest):
        raise BadValue("digest", f"{event.digest!r:.80} is no SHA-256", "give 64 hex digits")
    if event.nkey and not ids.is_public_key(event.nkey):
        raise BadValue("nkey", f"{event.nkey!r:.80} is no public user key", "give one, U...")
    expiry(event)
    chain(event.on_behalf_of)
    _demand_registered(state, "register it before it is issued a token")
    token = state.tokens.get(event.token)
    if token is not None:
        if token.issued == event:
            return ()
        message = f"token {event.token} is issued already, with other terms: take another id"
        raise Refused(message)
    if len(state.tokens) >= TOKENS_MAX:
        message = f"it was issued {TOKENS_MAX:,} tokens, the most there are: take another name"
        raise Refused(message)
    return (event,)


def chain(names: tuple[str, ...], own: str | None = None) -> tuple[str, ...]:
    """Return the principals that one acts for, the nearest first, checked for the record.

    own: the name of the principal that acts for them. Raises BadValue where a name is repeated, is
    its own, or there are more than 8, and BadName for an invalid name.
    """
    if len(names) > CHAIN_MAX:
        fact = f"{len(names):,} principals, and the most are {CHAIN_MAX}"
        raise BadValue("on_behalf_of", fact, "name those who answer for it")
    for index, name in enumerate(names):
        ids.name("on_behalf_of", name)
        if name == own:
            raise BadValue("on_behalf_of", f"{name!r:.80} is its own name", "leave it out")
        if name in names[:index]:
            raise BadValue("on_behalf_of", f"{name!r:.80} is named twice", "name each once")
    return names


def acts_for(token: Token, name: str) -> bool:
    """Return whether the holder of a token acts for a principal."""
    return name in token.issued.on_behalf_of


def expiry(event: TokenIssued) -> datetime | None:
    """Return the time when a token expires, in UTC; None: never. Raises BadValue for any other
    text.
    """
    if event.expires is None:
        return None
    remedy = "give a time in UTC, such as 2026-12-21T00:00:00Z"
    try:
        ends = datetime.fromisoformat(event.expires)
    except ValueError:
        raise BadValue("expires", f"{event.expires!r:.80} is no time", remedy) from None
    if ends.utcoffset() != timedelta(0):
        raise BadValue("expires", f"{event.expires!r:.80} is not in UTC", remedy)
    return ends
