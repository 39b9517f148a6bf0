"""Delegation chains: recorded, in the file's terms, and over once one link is revoked."""

import signal
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.agents.access import principals, roles
from hansard.agents.access.principals import AccessDenied, Authenticator
from hansard.agents.workspace import Workspace
from hansard.broker import access
from hansard.bus.errors import NotFound
from hansard.bus.log import Append
from hansard.domain import principal
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.ids import WorkspaceStream
from hansard.domain.principal import PrincipalKind
from hansard.domain.roles.model import RoleDefined, RoleRule
from tests.access.desk import HANSARD, PROGRAM, Desk
from tests.access.support import Held, eventually

RULES = RoleDefined(sees=(RoleRule("own", roles=("writer",)),))
CHAIN = ("alice", "lead")
AT_ONCE_S = 15.0
"""Timeout for a busy machine, in seconds; the change itself takes milliseconds."""


@pytest.fixture
async def workspace(data_dir: Path, workspace: str):
    """Open a workspace with a role `writer`, alice and lead, who never log in, and an agent ada."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        await roles.apply(record.workspace, "writer", RULES)
        for name in CHAIN:
            await principals.register(record.workspace, name, PrincipalKind.PERSON)
        await principals.register(record.workspace, "ada")
        yield record.workspace


async def _issue(workspace: Workspace, *chain: str, **more) -> principals.NewToken:
    return await principals.issue(workspace, "ada", "writer", on_behalf_of=chain, **more)


def _why_not(keeper: Authenticator, token: principals.NewToken) -> str:
    try:
        keeper.check(token.token, "ada", "writer")
    except AccessDenied as denied:
        return (
            denied.reason if str(denied) == AccessDenied.TEXT else f"not the common text: {denied}"
        )
    return ""


# ---------------------------------------------------------------- issued and checked


async def test_a_token_says_for_whom(workspace: Workspace):
    """The chain in its holder's writes begins with the holder's own name."""
    ada, plain = await _issue(workspace, *CHAIN), await _issue(workspace)
    async with await Authenticator.open(workspace) as keeper:
        who = keeper.check(ada.token, "ada", "writer")
        assert (who.on_behalf_of, who.actor_chain) == (CHAIN, ("ada", "alice", "lead"))
        assert (who.actor.agent, who.actor.on_behalf_of) == ("ada", who.actor_chain)
        assert keeper.check(plain.token, "ada", "writer").actor_chain == ("ada",)
        assert keeper.admits(who)
        await principals.revoke(workspace, "ada", ada.id)
        await eventually(lambda: not keeper.admits(who), AT_ONCE_S)
        assert _why_not(keeper, plain) == ""


async def test_nobody_acts_for_who_is_not_known(workspace: Workspace):
    """The error names the unknown principal and how to register it; nothing is recorded."""
    with pytest.raises(Refused, match=r"'zoe' is not a registered.*principals register NAME") as no:
        await _issue(workspace, "alice", "zoe")
    assert "hansard credentials" in str(no.value)
    odd = {
        ("alice", "ada"): BadValue,
        ("alice", "lead", "alice"): BadValue,
        tuple(f"p{n}" for n in range(9)): BadValue,
        ("",): BadName,
        ("a\x00b",): BadName,
    }
    for chain, kind in odd.items():
        with pytest.raises(kind, match="on_behalf_of"):
            await _issue(workspace, *chain)
    assert (await principals.read(workspace, "ada")).version == 1


async def test_a_token_is_issued_once_in_its_terms(workspace: Workspace):
    """Again for the same it is the same; for others it is refused."""
    token = principals.new_token()
    for _ in range(2):
        assert await _issue(workspace, *CHAIN, token=token) is token
    assert (await principals.read(workspace, "ada")).version == 2
    for other in ((), ("alice",), ("lead", "alice")):
        with pytest.raises(Refused, match="with other terms"):
            await _issue(workspace, *other, token=token)


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize(
    ("chain", "why"),
    [
        (("zoe",), "it acts for 'zoe', which is not registered"),
        (("alice", "zoe"), "it acts for 'zoe', which is not registered"),
        (("alice", "alice"), "whom it acts for is not as it may be"),
        (("ada",), "whom it acts for is not as it may be"),
        (("a\x00b",), "whom it acts for is not as it may be"),
        (tuple(f"p{n}" for n in range(1_000)), "whom it acts for is not as it may be"),
    ],
)
async def test_a_chain_written_past_the_rules_lets_nobody_in(workspace, chain, why):
    """A chain that a trusted writer stored against the rules is refused when it is used."""
    good = await _issue(workspace)
    issued = (await principals.read(workspace, "ada")).tokens[good.id].issued
    bad = msgspec.structs.replace(issued, token="d" * 32, on_behalf_of=chain)
    stream = WorkspaceStream(principal.KIND, "ada")
    await workspace.log.append(Append(stream, workspace.commit(3, "x", [bad])))
    shown = principals.NewToken("d" * 32, good.token.replace(good.id, "d" * 32))
    async with await Authenticator.open(workspace) as keeper:
        assert _why_not(keeper, shown) == why
        assert _why_not(keeper, good) == ""


async def test_who_cannot_be_read_is_acted_for_by_nobody(workspace: Workspace):
    """A broken record of the chain's last principal denies access at once and names it."""
    ada, plain = await _issue(workspace, *CHAIN), await _issue(workspace)
    broken = principal.TokenRevoked(token="f" * 32)
    async with await Authenticator.open(workspace) as keeper:
        who = keeper.check(ada.token, "ada", "writer")
        commit = workspace.commit(2, "x", [broken])
        await workspace.log.append(Append(WorkspaceStream(principal.KIND, "lead"), commit))
        await eventually(lambda: _why_not(keeper, ada), AT_ONCE_S)
        assert _why_not(keeper, ada) == "it acts for 'lead', whose record cannot be read"
        assert not keeper.admits(who)
        assert _why_not(keeper, plain) == ""


# ---------------------------------------------------------------- the commands


@pytest.mark.thorough(quick="test_credentials_of_other_terms_are_never_kept_in_silence")
def test_the_command_makes_them_and_tells_for_whom(desk: Desk):
    """The option is repeatable, nearest first; the output and the list show the chain."""
    for name in CHAIN:
        desk.register(name)
    line = "credentials writer --name ada -o ada.json --on-behalf-of alice --on-behalf-of lead"
    result = desk.run(HANSARD, line)
    assert result.returncode == 0, result.stderr
    assert "acts on behalf of 'alice' for 'lead'" in result.stdout
    again = desk.make(on_behalf_of=CHAIN)
    assert (again["new"], again["on_behalf_of"]) == (False, ["alice", "lead"])
    assert desk.make(name="bob")["on_behalf_of"] == []
    listed = {each["principal"]: each for each in desk.listed()}
    assert {name: each["on_behalf_of"] for name, each in listed.items()} == {
        "alice": [],
        "lead": [],
        "ada": ["alice", "lead"],
        "bob": [],
    }
    assert (listed["alice"]["kind"], listed["alice"]["token"]) == ("person", None)
    assert "alice, lead" in desk.run(HANSARD, "principals").stdout


@pytest.mark.thorough(quick="test_credentials_of_other_terms_are_never_kept_in_silence")
def test_registering_is_recorded_once_and_never_changes(desk: Desk):
    """Again changes nothing; as another kind it is refused; a login may follow."""
    line = "principals register alice --kind person --about"
    assert desk.call(f"{line} 'answers for ada'") == [
        {"principal": "alice", "kind": "person", "registered": True}
    ]
    assert not desk.call(f"{line} 'answers for ada'")[0]["registered"]
    done = desk.run(HANSARD, "principals register alice --kind service")
    assert done.returncode == 2
    assert "registered as 'person'" in done.stderr
    assert desk.run(HANSARD, "principals register stranger").returncode == 2
    desk.make(name="alice")
    (listed,) = desk.listed()
    assert (listed["kind"], listed["about"]) == ("person", "answers for ada")


def test_credentials_of_other_terms_are_never_kept_in_silence(desk: Desk):
    """Valid credentials of other terms are refused by name, unchanged; revoked, they give way."""
    for name in CHAIN:
        desk.register(name)
    first = desk.make(on_behalf_of=("alice",))
    before = desk.file.read_bytes()
    for chain in ((), ("lead",), CHAIN, ("lead", "alice")):
        message = desk.refused(on_behalf_of=chain)
        assert "credentials that act on behalf of 'alice', and" in message
        assert f"hansard principals revoke {first['token']}" in message
    assert desk.file.read_bytes() == before
    assert "'zoe' is not a registered" in desk.refused(on_behalf_of=("zoe",), output="x.json")
    assert "on_behalf_of" in desk.refused(on_behalf_of=("ada",), output="x.json")
    assert desk.valid() == [first["token"]]
    desk.revoke(first["token"])
    second = desk.make(on_behalf_of=CHAIN)
    assert second["new"]
    assert desk.valid() == [second["token"]]
    assert [path.name for path in desk.folder.glob(".*")] == []


@pytest.mark.slow
def test_what_a_kill_left_for_others_is_revoked(desk: Desk):
    """A begun file in other terms is not gone on with, and its token is worth nothing."""
    desk.register("alice")
    line = "credentials writer --name ada --output ada.json"
    killed = desk.run([str(PROGRAM), "before finish"], line)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (left,) = desk.valid()
    made = desk.make(on_behalf_of=("alice",))
    assert left != made["token"]
    assert desk.valid() == [made["token"]]
    assert desk.make(on_behalf_of=("alice",))["token"] == made["token"]


# ---------------------------------------------------------------- revoked


def _team(desk: Desk) -> dict[str, str]:
    """Return five logins: for alice, for alice last of all, alice's own, and two that stay."""
    for name in CHAIN:
        desk.register(name)
    chains = {"ada": CHAIN, "bob": ("lead", "alice"), "alice": (), "cyd": ("lead",), "dan": ()}
    return {
        name: desk.make(name=name, on_behalf_of=chain)["token"] for name, chain in chains.items()
    }


async def test_who_is_revoked_takes_along_all_who_act_for_them(desk: Desk):
    """Each agent in the chain gets a revocation of its own with the reason; no other does."""
    made = _team(desk)
    by_name = {name: access.load(desk.folder / f"{name}.json") for name in made}
    with Held(by_name["ada"]) as ada, Held(by_name["cyd"]) as cyd:
        revoked = desk.revoke("alice")
        assert {each["principal"] for each in revoked} == {"ada", "alice", "bob"}
        assert all(each["revoked"] for each in revoked)
        assert not ada.is_in()
        assert cyd.is_in()
    assert {name for name in made if await desk.admits(by_name[name])} == {"cyd", "dan"}
    because = {each["principal"]: each["because"] for each in desk.listed() if each["token"]}
    assert because == {
        "alice": "lost",
        "ada": "it acts on behalf of alice: lost",
        "bob": "it acts on behalf of alice: lost",
        "cyd": "",
        "dan": "",
    }
    again = desk.revoke("alice")
    assert len(again) == 3
    assert not any(each["revoked"] for each in again)
    desk.register("zoe")
    with pytest.raises(NotFound, match="no principal acts for it"):
        desk.revoke("zoe")


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    "kill", ["before revoke", "after revoke", "before access", "after access", "after config"]
)
async def test_a_revocation_that_was_killed_is_finished_by_the_next(desk: Desk, kill: str):
    """The same command again revokes the rest, and records each revocation once."""
    made = _team(desk)
    line = "principals revoke alice --reason lost"
    done = desk.run([str(PROGRAM), kill], line)
    assert done.returncode == -signal.SIGKILL, done.stderr
    on_record = {"before revoke": 0, "after revoke": 1}.get(kill, 3)
    assert len(desk.valid()) == len(made) - on_record
    revoked = desk.call(line)
    assert sum(each["revoked"] for each in revoked) == 3 - on_record
    assert set(desk.valid()) == {made["cyd"], made["dan"]}
    for name in ("ada", "bob", "alice"):
        credentials = access.load(desk.folder / f"{name}.json")
        assert not desk.opens(credentials)
        assert not await desk.admits(credentials)
    assert desk.opens(access.load(desk.folder / "cyd.json"))


# ---------------------------------------------------------------- in SQL


@pytest.mark.slow
def test_the_tables_tell_for_whom(desk: Desk):
    """`tokens` has the chain, and why it ended."""
    desk.work("roles", "apply", desk.folder / "roles.toml")
    made = _team(desk)
    desk.revoke("alice")
    rows = desk.call(
        'sql "SELECT principal, on_behalf_of, standing, because FROM tokens ORDER BY ALL"'
    )
    assert len(rows) == len(made)
    by_name = {row["principal"]: row for row in rows}
    assert (by_name["bob"]["on_behalf_of"], by_name["dan"]["on_behalf_of"]) == (
        ["lead", "alice"],
        [],
    )
    assert {name for name, row in by_name.items() if row["standing"] == "revoked"} == {
        "ada",
        "alice",
        "bob",
    }
    assert by_name["ada"]["because"] == "it acts on behalf of alice: lost"
