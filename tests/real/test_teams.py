"""Real teams, imported: the view of each role, and an agent's knowledge at its mistake."""

import asyncio
import json

import msgspec
import pytest

from hansard.agents.access import roles as views
from hansard.agents.access.roles import View
from hansard.client.opening import reading
from hansard.domain.roles import check as role_file
from hansard.domain.roles.model import RoleDefined, RoleRule
from tests.real import support
from tests.real.converters import who_and_when

pytestmark = pytest.mark.real

MISTAKEN_LABELS = {"Algorithm-Generated/15": ("Verification_Expert", "Boggle_Board_Expert")}
"""Cases where the source blames an agent other than the author of the message at that step."""


def alone(role: str) -> RoleDefined:
    """Return rules by which a role sees its own work alone."""
    return RoleDefined(sees=(RoleRule("its own work", roles=(role,)),))


class Team(msgspec.Struct):
    """An imported run: id, source name, roster, and messages with their addresses."""

    run: str
    name: str
    roster: dict[str, str]
    labels: dict[str, str]
    step: int | None
    messages: list[tuple[str, str, dict[str, object]]]


def teams(place, runs, folder, make) -> list[Team]:
    """Apply the roles, then record the runs: a view is decided by the rules of its time."""
    roles = sorted({role for run in runs for role in run["roles"].values()})
    file = folder / "roles.toml"
    file.write_text(role_file.write({role: make(role) for role in roles}), encoding="utf-8")
    source = folder / "chats.jsonl"
    support.write(source, runs)
    assert place.call("roles", "apply", str(file)).code == 0
    place.imported("chat-jsonl", source, "teams", "as-recorded")
    messages: dict[str, list[tuple[str, str, dict[str, object]]]] = {}
    for commit in place.stored():
        for index, event in enumerate(json.loads(commit.body)["events"]):
            if event["type"] == "message.added.v1":
                where = f"{commit.position}.{index}"
                messages.setdefault(commit.run, []).append((commit.agent, where, event["data"]))
    return [
        Team(
            life.run,
            life.state.labels["source_run"],
            life.state.roster,
            life.state.labels,
            int(life.state.scores["mistake_step"]) if life.state.scores else None,
            messages[life.run],
        )
        for life in place.lives()
    ]


def views_of(place, recorded_teams: list[Team]) -> dict[tuple[str, str], View]:
    """Return the view of every role of every run."""

    async def work() -> dict[tuple[str, str], View]:
        async with reading(place.settings) as workspace:
            return {
                (team.name, role): (await views.derive(workspace.states, role, team.run)).view
                for team in recorded_teams
                for role in sorted(set(team.roster.values()))
            }

    return asyncio.run(work())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a workspace with the failed runs of Who&When."""
    with support.opened(tmp_path_factory.mktemp("teams")) as made:
        yield made


@pytest.fixture(scope="module")
def failed(place, real_data, tmp_path_factory):
    """Return the 61 failed teams; each role sees its own work alone."""
    runs = list(who_and_when.convert(real_data / "who-and-when" / "dev"))
    return teams(place, runs, tmp_path_factory.mktemp("roles"), alone)


@pytest.fixture(scope="module")
def seen(place, failed):
    """Return the visible events of each role of each team."""
    return views_of(place, failed)


@pytest.fixture(scope="module")
def few(real_data, tmp_path_factory):
    """Return every fourth team, with the visible events of each role."""
    runs = list(who_and_when.convert(real_data / "who-and-when" / "dev"))[::4]
    with support.opened(tmp_path_factory.mktemp("few")) as made:
        sampled = teams(made, runs, tmp_path_factory.mktemp("few-roles"), alone)
        yield sampled, views_of(made, sampled)


@pytest.mark.slow
def test_each_role_sees_the_messages_of_its_agents_and_no_others(few):
    """Each role of every run sees exactly its agents' messages, in order."""
    sampled, seen = few
    assert len(sampled) == 16
    assert len(seen) > 40
    _assert_each_sees_its_own(sampled, seen)


@pytest.mark.thorough(quick="test_each_role_sees_the_messages_of_its_agents_and_no_others")
def test_each_role_of_every_team_sees_its_own(failed, seen):
    """Every role of every team sees all of its own events."""
    assert len(failed) == 61
    assert len(seen) > 150
    _assert_each_sees_its_own(failed, seen)


def _assert_each_sees_its_own(recorded_teams, seen):
    for team in recorded_teams:
        for role in set(team.roster.values()):
            view = seen[team.name, role]
            agents = {name for name, its in team.roster.items() if its == role}
            own = [data["content"] for who, _, data in team.messages if who in agents]
            shown = [
                json.loads(bytes(line.data))["content"]
                for _, line in view.events
                if line.type == "message.added.v1"
            ]
            assert shown == own, (team.name, role)
            assert {line.agent for _, line in view.events} <= {*agents, ""}
            assert set(view.state.agents) <= agents
            contents = [each["content"] for who in view.state.context.values() for each in who]
            assert sorted(map(str, contents)) == sorted(map(str, own))
    numbers = [number for view in seen.values() for number, _ in view.events]
    assert numbers == [n for view in seen.values() for n in range(1, len(view.events) + 1)]


@pytest.mark.thorough(
    quick="roles/test_views.py::test_knew_tells_the_state_and_the_view_before_a_decision"
)
def test_what_the_agent_knew_that_made_the_mistake(place, failed, seen):
    """`hansard knew` names the blamed agent, and its state and view end at that step."""
    differ = {}
    for team in failed:
        actor, address, _ = team.messages[team.step]
        output = place.call("knew", address, "--json")
        assert output.code == 0, output.err
        head, agent, *rest = output.lines
        assert (head["kind"], agent["kind"]) == ("knew", "agent")
        assert (head["agent"], head["role"]) == (actor, team.roster[actor])
        if actor != team.labels["mistake_agent"]:
            differ[team.name] = (actor, team.labels["mistake_agent"])
        own = [data["content"] for who, _, data in team.messages[: team.step] if who == actor]
        assert [each["content"] for each in agent["messages"].values()] == own, team.name
        events = [line for line in rest if line["kind"] == "event"]
        assert len(events) == head["events"]
        whole = seen[team.name, head["role"]].events
        assert [line["id"] for line in events] == [line.id for _, line in whole[: len(events)]]
        assert address not in output.out.replace(f'"address":"{address}"', "")
    assert differ == MISTAKEN_LABELS
