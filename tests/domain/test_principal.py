"""Chains of principals: permission to act for others, and fixed terms of a token."""

from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain import decider, principal
from hansard.domain.errors import BadName, BadValue, HansardError, Refused
from hansard.domain.events import Event
from hansard.domain.principal import (
    CHAIN_MAX,
    PrincipalKind,
    PrincipalRegistered,
    PrincipalShown,
    Token,
    TokenIssued,
    TokenRevoked,
)
from tests.domain import strategies

names = st.sampled_from(["ada", "alice", "lead", "ü", "a/b", "*", "import"])
chains = st.lists(names | st.text(max_size=3), max_size=CHAIN_MAX + 2).map(tuple)
REGISTERED = decider.fold(
    principal.PrincipalState(), [PrincipalRegistered(kind=PrincipalKind.AGENT)]
)


def _issued(chain: tuple[str, ...]) -> TokenIssued:
    return TokenIssued(token="1" * 32, digest="2" * 64, role="writer", on_behalf_of=chain)


def _is_refused(chain: tuple[str, ...], own: str | None) -> bool:
    try:
        assert principal.chain(chain, own) == chain
    except (BadValue, BadName):
        return True
    return False


@given(chains, names)
def test_a_chain_names_each_once_and_never_its_own(chain: tuple[str, ...], own: str):
    """A chain has at most 8 names, each once and never its holder's, and only such pass."""
    refused = _is_refused(chain, own)
    plain = all(name and name.isprintable() for name in chain)
    good = len(chain) <= CHAIN_MAX and len({own, *chain}) == len(chain) + 1
    if plain:
        assert refused is not good
    if refused and len(chain) < CHAIN_MAX:
        assert _is_refused((*chain, "zoe"), own)
    if not refused:
        for cut in range(len(chain)):
            assert not _is_refused(chain[cut:], own)


@given(chains)
def test_deciding_refuses_the_same_chains(chain: tuple[str, ...]):
    """A chain refused by `chain` is recorded for no token; any other is recorded unchanged."""
    if _is_refused(chain, None):
        with pytest.raises(HansardError, match="on_behalf_of"):
            principal.decide(REGISTERED, _issued(chain))
    else:
        assert principal.decide(REGISTERED, _issued(chain)) == (_issued(chain),)


@given(chains, chains)
def test_what_a_token_is_good_for_never_changes(one: tuple[str, ...], other: tuple[str, ...]):
    """The same token for others is refused; in the same terms it adds nothing."""
    if _is_refused(one, None) or _is_refused(other, None):
        return
    state = decider.fold(REGISTERED, principal.decide(REGISTERED, _issued(one)))
    if one == other:
        assert principal.decide(state, _issued(other)) == ()
    else:
        with pytest.raises(Refused, match="with other terms"):
            principal.decide(state, _issued(other))


@given(strategies.principal_histories, st.sampled_from(["alice", "lead", "bob"]))
def test_who_acts_for_whom_is_what_was_issued(events: list[Event], name: str):
    """A revocation removes the validity, never the chain: the record keeps it."""
    state = decider.fold(principal.PrincipalState(), events)
    issued = {each.token: each for each in events if isinstance(each, TokenIssued)}
    for token_id, token in state.tokens.items():
        assert token.issued == issued[token_id]
        assert principal.acts_for(token, name) is (name in issued[token_id].on_behalf_of)


def test_a_token_is_revoked_once():
    """An existing token is revoked once; an unknown one is refused."""
    issued = decider.fold(REGISTERED, [_issued(())])
    revoked = TokenRevoked(token="1" * 32, because="it leaked")
    assert principal.decide(issued, revoked) == (revoked,)
    assert principal.decide(decider.fold(issued, [revoked]), revoked) == ()
    with pytest.raises(Refused, match="it has no token '2222"):
        principal.decide(issued, TokenRevoked(token="2" * 32))


def test_a_token_is_valid_until_it_ends_or_is_revoked():
    """At its end it is invalid; without an end it is valid until revoked."""
    ends = datetime.fromisoformat("2026-11-21T10:00:00+00:00")
    for expires, now, valid in (
        (None, ends, True),
        ("2026-11-21T10:00:00Z", ends - timedelta(microseconds=1), True),
        ("2026-11-21T10:00:00Z", ends, False),
    ):
        issued = msgspec.structs.replace(_issued(()), expires=expires)
        assert Token(issued).is_valid(now) is valid
        assert not Token(issued, revoked=True).is_valid(now)


def test_who_is_not_registered_is_shown_nothing():
    """The refusal names the remedy."""
    shown = PrincipalShown(label="confidential", role="writer")
    with pytest.raises(Refused, match="it is not registered: register it before"):
        principal.decide(principal.PrincipalState(), shown)


def test_no_chain_is_what_it_was_before():
    """A token without one is the bytes that it was when there were none."""
    plain = msgspec.json.encode(_issued(()))
    assert b"on_behalf_of" not in plain
    assert msgspec.json.decode(plain, type=TokenIssued).on_behalf_of == ()
