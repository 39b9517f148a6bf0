"""Authentication by token: from the current record, deny by default, no reason given."""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

import hansard
from hansard.agents.access import principals, roles
from hansard.agents.access.principals import (
    OPERATIONS_MAX,
    OTHER,
    AccessDenied,
    Authenticator,
    Denials,
)
from hansard.agents.workspace import Workspace
from hansard.broker.lease import peek
from hansard.bus import subjects
from hansard.bus.commits import revive_all
from hansard.bus.log import Append
from hansard.domain import access, principal
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.events import Event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.principal import PrincipalKind, TokenIssued, TokenRevoked
from hansard.domain.roles.model import RoleDefined, RoleRule
from tests.access.support import eventually

pytestmark = pytest.mark.later

RULES = RoleDefined(sees=(RoleRule("own", roles=("writer",)),))
BACK_S_MAX = 60.0
"""For a server that is restarted, and a follower that connects to it again."""

AT_ONCE_S = 15.0
"""Timeout for a busy machine, in seconds; a revocation takes milliseconds."""


@asynccontextmanager
async def _opened(name: str, data_dir: Path) -> AsyncIterator[Workspace]:
    async with hansard.connect_async(name, data_dir=data_dir) as record:
        await roles.apply(record.workspace, "writer", RULES)
        yield record.workspace


@pytest.fixture
async def workspace(data_dir: Path, workspace: str):
    """Yield a workspace with a role `writer`."""
    async with _opened(workspace, data_dir) as opened:
        yield opened


@pytest.fixture
async def alone(tmp_path: Path):
    """Yield such a workspace on a broker of its own."""
    async with _opened("lab", tmp_path / "data") as opened:
        yield opened


async def _ada(workspace: Workspace, **more) -> principals.NewToken:
    await principals.register(workspace, "ada")
    return await principals.issue(workspace, "ada", "writer", **more)


async def _denied(
    keeper: Authenticator, token: str, name: str = "ada", role: str = "writer"
) -> str:
    """Return the recorded reason of a denial, which must follow within `AT_ONCE_S`."""
    await eventually(lambda: _why_not(keeper, token, name, role), AT_ONCE_S)
    with pytest.raises(AccessDenied) as caught:
        keeper.check(token, name, role)
    assert str(caught.value) == AccessDenied.TEXT
    return caught.value.reason


def _why_not(
    keeper: Authenticator, token: str, name: str = "ada", role: str = "writer"
) -> str | None:
    try:
        keeper.check(token, name, role)
    except AccessDenied as denied:
        return denied.reason
    return None


async def test_a_valid_token_says_who_and_in_which_role(workspace):
    """A valid token identifies its holder, and the agent's writes name that holder."""
    ada = await _ada(workspace, expires_s=60)
    async with await Authenticator.open(workspace) as keeper:
        who = keeper.check(ada.token, "ada", "writer")
    assert (who.name, who.kind, who.role) == ("ada", PrincipalKind.AGENT, "writer")
    assert who.token_id == ada.id
    assert (who.actor_chain, who.inbox) == (("ada",), f"_INBOX_{ada.id}")
    left = who.expires - workspace.clock.now()
    assert timedelta(seconds=30) < left <= timedelta(seconds=60)


async def test_what_is_issued_and_revoked_while_it_runs_counts_at_once(workspace):
    """A new token opens, a revoked one does not any more, without a restart."""
    async with await Authenticator.open(workspace) as keeper:
        assert "no such principal" in await _denied(keeper, principals.new_token().token)
        ada = await _ada(workspace)
        await eventually(lambda: _why_not(keeper, ada.token) is None, AT_ONCE_S)
        assert await principals.revoke(workspace, "ada", ada.id, reason="lost")
        assert "revoked" in await _denied(keeper, ada.token)
        assert not await principals.revoke(workspace, "ada", ada.id)
        other = await principals.issue(workspace, "ada", "writer")
        async with await Authenticator.open(workspace) as fresh:
            assert fresh.check(other.token, "ada", "writer").token_id == other.id
            assert "revoked" in await _denied(fresh, ada.token)


async def test_a_broker_that_was_killed_is_followed_again(alone, tmp_path):
    """After a broker restart, a running gatekeeper still sees new revocations."""
    ada = await _ada(alone)
    async with await Authenticator.open(alone) as keeper:
        keeper.check(ada.token, "ada", "writer")
        info = peek(tmp_path / "data")
        assert info is not None
        os.kill(info.server_pid, signal.SIGKILL)
        assert await principals.revoke(alone, "ada", ada.id)
        await eventually(lambda: _why_not(keeper, ada.token), BACK_S_MAX)
        assert "revoked" in await _denied(keeper, ada.token)


async def test_an_expired_token_is_over_at_its_moment(workspace):
    """Without any event, in a gatekeeper that runs."""
    ada = await _ada(workspace, expires_s=0.3)
    async with await Authenticator.open(workspace) as keeper:
        assert keeper.check(ada.token, "ada", "writer").name == "ada"
        assert "expired" in await _denied(keeper, ada.token)


async def test_a_role_that_is_withdrawn_lets_nobody_in(workspace):
    """And one that was never defined gets no token."""
    ada = await _ada(workspace)
    async with await Authenticator.open(workspace) as keeper:
        keeper.check(ada.token, "ada", "writer")
        await roles.withdraw(workspace, "writer")
        assert "no rules" in await _denied(keeper, ada.token)
    with pytest.raises(Refused, match=r"'writer' has no rules.*hansard roles apply"):
        await principals.issue(workspace, "ada", "writer")
    with pytest.raises(Refused, match="'ghost' has no rules"):
        await principals.issue(workspace, "ada", "ghost")


async def test_every_wrong_token_gets_the_same_words(workspace):
    """The reason is in the record alone."""
    ada = await _ada(workspace)
    await principals.register(workspace, "bob", PrincipalKind.PERSON)
    bob = await principals.issue(workspace, "bob", "writer")
    await roles.apply(workspace, "reader", RULES)
    crossed = f"hsd_{ada.id}_{bob.token.rpartition('_')[2]}"
    async with await Authenticator.open(workspace) as keeper:
        assert keeper.check(bob.token, "bob", "writer").kind is PrincipalKind.PERSON
        reasons = [
            await _denied(keeper, *arguments)
            for arguments in [
                (ada.token, "nobody", "writer"),
                (bob.token, "ada", "writer"),
                (crossed, "ada", "writer"),
                (ada.token, "ada", "reader"),
                (ada.token, "ada", "ghost"),
                ("", "ada", "writer"),
                ("hsd_" + "0" * 32 + "_" + "a" * 52, "ada", "writer"),
                (ada.token + "\n", "ada", "writer"),
                (ada.token.upper(), "ada", "writer"),
                (f"hsd_{ada.id}_{ada.digest}", "ada", "writer"),
                ("\ud800" * 9, "ada", "writer"),
            ]
        ]
        assert keeper.is_inbox_of("ada", subjects.restricted_inbox(ada.id))
        assert not keeper.is_inbox_of("ada", subjects.restricted_inbox(bob.id))
        assert not keeper.is_inbox_of("nobody", subjects.restricted_inbox(ada.id))
    assert reasons[:5] == [
        "there is no such principal",
        "it has no such token",
        "the token's secret is another one",
        "the token is of another role",
        "the token is of another role",
    ]
    assert set(reasons[5:]) == {"it has no such token"}


async def test_a_token_of_another_workspace_opens_nothing(workspace, data_dir):
    """The same names, the same server, another workspace."""
    async with _opened(f"other-{uuid4().hex}", data_dir) as other:
        theirs = await _ada(other)
    await _ada(workspace)
    async with await Authenticator.open(workspace) as keeper:
        assert await _denied(keeper, theirs.token) == "it has no such token"


async def test_no_secret_is_anywhere_on_disk(alone, tmp_path):
    """The log has the digest; the secret is in none of the broker's files, nor in its repr."""
    ada = await _ada(alone)
    await principals.revoke(alone, "ada", ada.id, reason="to have it in more places")
    secret = ada.token.rpartition("_")[2]
    counts = {"secret": 0, "digest": 0}
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file():
            raw = path.read_bytes()
            counts["secret"] += secret.encode() in raw
            counts["digest"] += hashlib.sha256(secret.encode()).hexdigest().encode() in raw
    assert counts["secret"] == 0
    assert counts["digest"] >= 1
    assert secret not in repr(ada) + str(ada) + str(list(ada.__rich_repr__()))
    assert len(secret) * 5 >= 256


async def test_two_tokens_have_nothing_in_common(workspace):
    """Ids and secrets are random; a token issued twice is on record once."""
    made = [principals.new_token() for _ in range(200)]
    assert len({each.id for each in made} | {each.token[-52:] for each in made}) == 400
    await principals.register(workspace, "ada")
    for _ in range(2):
        again = await principals.issue(workspace, "ada", "writer", token=made[0])
        assert again is made[0]
    assert (await principals.read(workspace, "ada")).version == 2


async def test_what_is_written_past_the_rules_lets_nobody_in(workspace):
    """A trusted writer's broken events make that principal one without access, and no other."""
    ada = await _ada(workspace)
    await principals.register(workspace, "bob")
    bob = await principals.issue(workspace, "bob", "writer")
    broken: list[Event] = [
        TokenRevoked(token="f" * 32),
        TokenIssued(token="e" * 32, digest="ü", role="writer", expires="tomorrow"),
    ]
    async with await Authenticator.open(workspace) as keeper:
        for event in reversed(broken):
            last = await workspace.log.last(WorkspaceStream(principal.KIND, "ada"))
            assert last is not None
            commit = workspace.commit(last.commit.last_version + 1, "x", [event])
            await workspace.log.append(Append(WorkspaceStream(principal.KIND, "ada"), commit))
        assert "cannot be read" in await _denied(keeper, ada.token)
        assert keeper.check(bob.token, "bob", "writer").name == "bob"
    with pytest.raises(AccessDenied):
        keeper.check(bob.token, "bob", "writer")  # it is closed


async def test_an_expiry_that_is_no_time_is_over(workspace):
    """An expiry that cannot be parsed counts as expired."""
    ada = await _ada(workspace)
    state = await principals.read(workspace, "ada")
    odd = msgspec.structs.replace(state.tokens[ada.id].issued, expires="tomorrow")
    with pytest.raises(BadValue, match="'tomorrow' is no time"):
        principal.Token(odd).is_valid(workspace.clock.now())
    later = TokenIssued(token="d" * 32, digest=ada.digest, role="writer", expires="tomorrow")
    stream = WorkspaceStream(principal.KIND, "ada")
    await workspace.log.append(Append(stream, workspace.commit(3, "x", [later])))
    async with await Authenticator.open(workspace) as keeper:
        token = ada.token.replace(ada.id, "d" * 32)
        assert "expired" in await _denied(keeper, token)


@pytest.mark.fast(cases=3, slow=0)
@pytest.mark.parametrize(
    "name", ["", "a\x00b", "\ud800", "x" * 129, "ü" * 60, "stranger", "0" * 32]
)
async def test_a_reserved_name_is_refused(workspace, name):
    """A principal's name is one subject token, and neither a token's id nor the strangers'."""
    with pytest.raises(BadName):
        await principals.register(workspace, name)


async def test_what_is_wrong_is_refused_before_it_is_on_record(workspace):
    """Kinds never change; lives are bounded; keys are keys; unknown tokens are not revoked."""
    await principals.register(workspace, "ada", about="writes")
    with pytest.raises(Refused, match="registered as 'agent'"):
        await principals.register(workspace, "ada", PrincipalKind.PERSON)
    with pytest.raises(Refused, match="not registered"):
        await principals.issue(workspace, "bob", "writer")
    with pytest.raises(Refused, match="has no token"):
        await principals.revoke(workspace, "ada", "f" * 32)
    odd: list[Any] = [0, -1, float("nan"), float("inf"), 1e12, True, "60"]
    for life in odd:
        with pytest.raises(BadValue, match="expires_s"):
            await principals.issue(workspace, "ada", "writer", expires_s=life)
    flipped = "UDQJDHYIXVCL3UNF2W3HRV6VOM6GJNEN7UCLR46AMRE6VCUEV5QT4OAS"
    for nkey in (flipped, "U" * 56, "U\n{evil}", "x"):
        with pytest.raises(BadValue, match="no public user key"):
            await principals.issue(workspace, "ada", "writer", nkey=nkey)
    assert (await principals.read(workspace, "ada")).tokens == {}


# ---------------------------------------------------------------- refusals on record


async def _refusals(workspace: Workspace, who: str) -> list[access.AccessRefused]:
    stored = await workspace.log.read(WorkspaceStream(access.KIND, who))
    return [
        each
        for each in revive_all(s.commit for s in stored)
        if isinstance(each, access.AccessRefused)
    ]


async def test_a_flood_of_refusals_is_two_events(workspace):
    """The first is written at once; the others of the minute are one event with their number."""
    await _ada(workspace)
    async with Denials(workspace) as denials:
        denied = AccessDenied("the token is revoked", "ada", "writer", known=True)
        for _ in range(500):
            await denials.note(denied, "open")
        assert [each.count for each in await _refusals(workspace, "ada")] == [1]
    refusals = await _refusals(workspace, "ada")
    assert [each.count for each in refusals] == [1, 499]
    assert (refusals[1].principal, refusals[1].role, refusals[1].operation) == (
        "ada",
        "writer",
        "open",
    )
    assert refusals[1].because == "the token is revoked"


async def test_what_was_counted_is_written_when_its_time_is_over(workspace):
    """The count is written after its interval, even without a further refusal."""
    async with Denials(workspace, window_s=0.2) as denials:
        denied = AccessDenied("it expired", "ada", "writer", known=True)
        for _ in range(3):
            await denials.note(denied, "open")
        stream = workspace.log.follow(of=WorkspaceStream(access.KIND, "ada"))
        async with asyncio.timeout(60):
            assert [(await anext(stream)).commit.version for _ in range(2)] == [1, 2]
        await stream.aclose()
        await asyncio.sleep(0.5)
        await denials.note(denied, "open")
    assert [each.count for each in await _refusals(workspace, "ada")] == [1, 2, 1]


async def test_a_stranger_s_words_make_no_stream_and_few_events(workspace):
    """Whatever names and operations it thinks of, and however long they are."""
    async with Denials(workspace) as denials:
        for number in range(OPERATIONS_MAX * 3):
            name = f"\ud800{number}" + "x" * 5_000
            denied = AccessDenied("there is no such principal", name, name)
            await denials.note(denied, f"operation {number}")
    refusals = await _refusals(workspace, access.STRANGER)
    assert len(refusals) <= OPERATIONS_MAX + 2
    assert sum(each.count for each in refusals) == OPERATIONS_MAX * 3
    assert refusals[-1].operation == OTHER
    assert max(len(each.principal) for each in refusals) < 300
    stored = await workspace.log.read_kind(access.KIND)
    assert {each.stream for each in stored} == {WorkspaceStream(access.KIND, access.STRANGER)}
