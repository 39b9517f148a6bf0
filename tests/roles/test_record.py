"""Recorded roles: applied once, with races, read at any point; and their views of a team."""

import asyncio
import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.access import roles
from hansard.bus.clock import OS_USER
from hansard.bus.commits import revive_all
from hansard.bus.log import Append, AtPosition
from hansard.domain.events import Recorded
from hansard.domain.ids import KeyStream, WorkspaceStream
from hansard.domain.roles import check as role_file
from hansard.domain.roles.model import RoleDefined, RoleRule
from tests.agents.twins import Lab, twins
from tests.cli.support import ran
from tests.faults._held import HeldLog

pytestmark = pytest.mark.later

EXAMPLE = Path(__file__).parents[2] / "examples" / "roles.toml"
KEY = bytes(range(32))
SECRET = "swordfish"


def rules(*kinds: str, about: str = "") -> RoleDefined:
    """Return a role that sees these kinds."""
    return RoleDefined(sees=(RoleRule("r", kinds),), about=about)


@twins
async def test_the_same_rules_again_change_nothing(lab: Lab):
    """The same rules applied again change nothing; other rules replace them, with their author.

    Broken rules are refused before a write.
    """
    async with lab.connect(redact={"key": SECRET}) as record:
        assert await record.roles.apply("writer", rules("step.*"), by="ada") is True
        assert await record.roles.apply("writer", rules("step.*")) is False
        assert await record.roles.apply("writer", rules("run.*", about=f"no {SECRET}")) is True
        with pytest.raises(hansard.BadValue, match=r"rule 'r': 'step\.x' is no kind"):
            await record.roles.apply("writer", rules("step.x"))
        with pytest.raises(hansard.errors.BadName, match="role name"):
            await record.roles.apply("", rules("step.*"))
        stored = await record.io(record.raw.workspace.log.read(WorkspaceStream("role", "writer")))
        assert [item.commit.actor.agent for item in stored] == ["ada", OS_USER]
        assert [event.tag for event in revive_all(item.commit for item in stored)] == [
            "role.defined.v1",
            "role.defined.v1",
        ]
        assert not any(SECRET.encode() in item.body for item in stored)


@pytest.mark.parametrize("same", [True, False])
def test_who_applies_second_sees_who_was_first(data_dir, workspace, same):
    """Both clients read an empty role; the later one finds the same rules, or replaces them."""

    async def race():
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as late,
            hansard.connect_async(workspace, data_dir=data_dir) as early,
        ):
            held = HeldLog(late.workspace.log, "role.defined.v1")
            late.workspace.log = held
            other = rules("step.*" if same else "run.*")
            task = asyncio.create_task(late.roles.apply("writer", other))
            await asyncio.wait_for(held.reached.wait(), 10)
            assert await early.roles.apply("writer", rules("step.*"))
            held.release.set()
            assert await task is not same
            stored = await roles.read(early.workspace, "writer")
            assert (stored.version, stored.rules) == (1 if same else 2, other)

    asyncio.run(race())


@twins
async def test_what_a_role_could_see_at_a_position_has_an_answer(lab: Lab):
    """Before it was defined, under each set of rules, and after it was withdrawn."""
    async with lab.connect() as record:
        workspace = record.raw.workspace
        points = [await record.io(workspace.log.head())]
        for definition in (rules("step.*"), rules("run.*")):
            await record.roles.apply("writer", definition)
            points.append(await record.io(workspace.log.head()))
        await record.io(roles.withdraw(workspace, "writer", reason="done"))
        points.append(await record.io(workspace.log.head()))
        answers = [
            (await record.io(roles.read(workspace, "writer", AtPosition(each)))).rules
            for each in points
        ]
        assert answers == [None, rules("step.*"), rules("run.*"), None]
        with pytest.raises(hansard.errors.Refused, match="role 'else': it is not defined"):
            await record.io(roles.withdraw(workspace, "else"))


# ---------------------------------------------------------------- a team


def team(record: hansard.Record) -> str:
    """Record a run of three agents, each of which hides a secret in its work; return its id."""
    with record.run("papers", agent="r1", role="researcher", labels={"team": "x"}) as session:
        run: str = session.run

        @session.tool(effects="pure")
        def search_web(query: str) -> list[dict[str, object]]:
            return [{"title": query, "reviewer": {"name": f"{SECRET} of reviewer"}}]

        search_web("events")
        session.message("user", f"{SECRET} of message")
        session.hand_off("analyzer", {"paper": "p1"})
    with record.run(run=run, agent="a1", role="analyzer") as session:

        @session.tool(effects="pure")
        def score(paper: str) -> str:
            return f"{SECRET} of score: {paper}"

        score("p1")
        session.decide("which?", selected="p1", reason=f"{'x' * 80}{SECRET} of reason")
        session.hand_off("writer", {"paper": "p1"})
    with record.run(run=run, agent="w1", role="writer") as session:
        session.message("assistant", "report")
    return run


def shown(record: hansard.Record, role: str, run: str, at: object = None) -> list[dict[str, Any]]:
    """Return a role's view as plain values, with its numbers."""
    derived = record._portal.run(roles.derive(record.workspace.states, role, run, at, KEY))
    lines = derived.view.events
    assert [number for number, _ in lines] == list(range(1, len(lines) + 1))
    return [json.loads(msgspec.json.encode(line)) for _, line in lines]


def test_each_role_of_the_example_sees_its_part_of_a_team(record):
    """Each role sees its own work and the findings of others for it, cut and hashed by its rules.

    The auditor sees all.
    """
    for name, definition in role_file.parse(EXAMPLE.read_text()).items():
        record.roles.apply(name, definition)
    run = team(record)
    seen = {
        role: shown(record, role, run)
        for role in ("researcher", "analyzer", "writer", "auditor", "nobody")
    }
    kinds = {
        role: [(line.get("agent"), str(line["type"]).removesuffix(".v1")) for line in lines]
        for role, lines in seen.items()
    }
    assert kinds["nobody"] == []
    assert {agent for agent, _ in kinds["writer"]} == {"r1", "a1", "w1"}
    others = [kind for agent, kind in kinds["writer"] if agent in {"r1", "a1"}]
    assert "decision.made" in others
    assert not any(kind.startswith(("step.", "message.")) for kind in others)
    assert ("r1", "step.completed") in kinds["analyzer"]
    assert ("r1", "message.added") not in kinds["analyzer"]
    assert all(agent == "r1" or kind.startswith("run.") for agent, kind in kinds["researcher"])

    texts = {role: json.dumps(lines) for role, lines in seen.items()}
    places = {
        place: {role for role, text in texts.items() if f"{SECRET} of {place}" in text}
        for place in ("reviewer", "message", "score", "reason")
    }
    assert places == {
        "reviewer": {"researcher", "auditor"},
        "message": {"researcher", "auditor"},
        "score": {"analyzer", "auditor"},
        "reason": {"analyzer", "auditor"},
    }
    assert "$hash" in texts["analyzer"]
    history = record._portal.run(record.workspace.states.history(run))
    assert len(seen["auditor"]) == sum(len(stored.commit.events) for stored in history)


def test_a_view_of_the_past_is_by_the_rules_of_then(record):
    """A view of the past uses the rules of that time; later events change nothing."""
    record.roles.apply("reader", rules("message.*"))
    run = team(record)
    before = record._portal.run(record.workspace.log.head())
    first = shown(record, "reader", run)
    assert {line["type"] for line in first} == {"message.added.v1"}
    record.roles.apply("reader", rules("decision.*"))
    with record.run(run=run, agent="w2", role="writer") as session:
        session.message("user", "more")
    assert shown(record, "reader", run, before) == first
    assert {line["type"] for line in shown(record, "reader", run)} == {"decision.made.v1"}


def test_a_fork_is_one_view(record):
    """A fork's view includes its parent's events before the cut, with steps numbered through."""
    record.roles.apply("reader", rules("step.*"))
    run = team(record)
    fork = record.fork(run, labels={"team": "y"})
    parent, child = (shown(record, "reader", each) for each in (run, fork))
    assert parent
    assert [line | {"run": ""} for line in child] == [line | {"run": ""} for line in parent]
    assert {line["run"] for line in child} == {fork}


def test_the_roster_names_who_wrote_to_the_board(record):
    """A key's author counts by the roster; an unknown name has no role."""
    run = team(record)
    log = record.workspace.log
    roles = {"a1": "analyzer", "r1": "researcher", "analyzer": "analyzer"}
    for number, (actor, key) in enumerate(
        [("a1", "scores/1"), ("r1", "scores/2"), ("analyzer", "scores/3"), ("a1", "scores-old/4")]
    ):
        commit = record.workspace.commit(1, actor, [])
        data = msgspec.Raw(b'{"amount":1,"role":"%s"}' % roles[actor].encode())
        event = Recorded("board.added.v1", f"b{number}", data)
        commit = msgspec.structs.replace(commit, events=(event,))
        record._portal.run(log.append(Append(KeyStream(run, key), commit)))
    only = RoleDefined(sees=(RoleRule("r", roles=("analyzer",), keys=("scores/*",)),))
    record.roles.apply("reader", only)
    lines = shown(record, "reader", run)
    assert [(line["id"], line["key"], line["agent"]) for line in lines] == [
        ("b0", "scores/1", "a1")
    ]
    assert lines[0]["data"]["amount"] == 1


# ------------------------------------------------------------ `hansard roles`


@pytest.mark.slow
def test_apply_and_show(call):
    """A new workspace works; the same rules change nothing; the shown rules can be applied
    again.
    """
    made = call("roles", "apply", EXAMPLE, "--json")
    names = ["researcher", "analyzer", "writer", "auditor"]
    assert [(line["role"], line["applied"]) for line in made.lines] == [
        (name, True) for name in names
    ]
    uncovered = {line["role"]: line["uncovered"] for line in made.lines}
    assert "agent.handed_off: payload" in uncovered["analyzer"]  # masks results of calls
    assert uncovered["researcher"] == []
    again = call("roles", "apply", EXAMPLE)
    assert again.code == 0
    assert again.out.count("has these rules already") == 4
    output = call("roles", "show", "analyzer")
    assert (
        role_file.parse(output.out)["analyzer"] == role_file.parse(EXAMPLE.read_text())["analyzer"]
    )
    assert "version 1, as of position" in output.err
    assert "; ".join(uncovered["analyzer"]) in " ".join(output.err.split())
    [line] = call("roles", "show", "auditor", "--json").lines
    assert line["rules"]["sees"] == [{"name": "everything", "kinds": ["**"]}]
    assert (line["standing"], line["version"], line["position"]) == ("defined", 1, 4)
    listed = call("roles", "show", "--json").lines
    assert [line["role"] for line in listed] == sorted(names)
    assert "Reads what the researcher found." in call("roles", "show").out


@pytest.mark.slow
def test_show_at_a_point(call, record):
    """A role is shown as of a position or time; a later one is not found."""
    call("roles", "apply", EXAMPLE)
    assert [line["role"] for line in call("roles", "show", "--at", "1", "--json").lines] == [
        "researcher"
    ]
    early = call("roles", "show", "writer", "--at", "2")
    assert (early.code, early.out) == (2, "")
    assert "role 'writer' at position 2 was not found: see 'hansard roles show'" in early.err
    now = datetime.now(UTC).isoformat()
    assert call("roles", "show", "writer", "--at", now).code == 0
    future = call("roles", "show", "writer", "--at", "2200-01-01T00:00:00Z")
    assert "time 2200-01-01T00:00:00Z was not found: the record ends at position" in future.err
    wrong = call("roles", "show", "writer", "--at", "w@1")
    assert "point name 'w@1' is not valid: give a position (1234) or a time" in wrong.err


def test_withdraw(call):
    """Once; with why; it is shown as withdrawn and sees nothing."""
    call("roles", "apply", EXAMPLE)
    [withdrawn] = call("roles", "withdraw", "writer", "--reason", "done", "--json").lines
    assert (withdrawn["name"], withdrawn["result"]) == ("writer", True)
    assert "is withdrawn already" in call("roles", "withdraw", "writer").out
    assert call("roles", "show", "writer").out == "# role writer is withdrawn: done\n"
    assert tomllib.loads(call("roles", "show", "writer").out) == {}
    assert call("roles", "withdraw", "nobody").code == 2


@pytest.mark.slow
def test_explain(call, record):
    """By address and by id: the deciding rule, the missing parts of each other rule, the visible
    parts.
    """
    call("roles", "apply", EXAMPLE)
    run = team(record)
    history = record._portal.run(record.workspace.states.history(run))
    [(position, index, event)] = [
        (stored.position, index, event)
        for stored in history
        for index, event in enumerate(stored.commit.events)
        if event.type == "decision.made.v1"
    ]
    other = "rule 'what was handed over'"
    output = call("roles", "explain", "writer", f"{position}.{index}")
    head, *why = output.out.splitlines()
    assert head.endswith(f"decision.made.v1 in agent/analyzer/a1 of run {run}")
    assert why == [
        "seen: rule 'what was decided' matches",
        "rule 'its own work' does not match: roles: 'analyzer' is none of 'writer'",
        f"{other} does not match: kinds: decision.made.v1 is none of 'agent.handed_off'",
        "shown: question, selected, because",
        "not shown, since it reveals other events or fields: fingerprint",
        "mask 'reasons in short': truncate to 80 because",
    ]
    by_id = call("roles", "explain", "researcher", event.id, "--json").lines
    assert [(line["seen"], line["rule"], line["address"]) for line in by_id] == [
        (False, None, f"{position}.{index}")
    ]
    begun = call("roles", "explain", "analyzer", f"{history[0].position}.0", "--json").lines
    assert begun[0]["seen"] is False
    [joined] = call("roles", "explain", "researcher", f"{history[0].position}.1", "--json").lines
    assert (joined["type"], joined["rule"]) == ("run.agent_joined.v1", "its own work")
    before = call("roles", "explain", "writer", event.id, "--at", "1", "--json").lines
    assert before[0]["why"] == [
        "not seen: the role has no rules, and only events that a rule allows are seen"
    ]


@pytest.mark.parametrize("event", ["nothing", "1.7", "999999.0"])
def test_an_event_that_is_not_there(call, event):
    """An unknown event is refused, with the valid form."""
    call("roles", "apply", EXAMPLE)
    output = call("roles", "explain", "writer", event)
    assert (output.code, output.out) == (2, "")
    assert "was not found" in output.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[roles.a]\nx = 1", "role 'a': it has no field 'x'"),
        (b"\xff", "it is no UTF-8"),
        (b"#" * (1024 * 1024 + 1), "more than 1,048,576 bytes"),
        (
            b'[roles.good.may]\n[[roles.bad.sees]]\nname="n"',
            "role 'bad': rule 'n': it has no match",
        ),
    ],
)
def test_a_broken_file_changes_nothing(call, tmp_path, text, message):
    """No role of it is applied, though another may be in order."""
    path = tmp_path / "roles.toml"
    path.write_bytes(text)
    output = call("roles", "apply", path)
    assert (output.code, output.out) == (2, "")
    assert message in output.err
    assert call("roles", "show", "good").code == 2
    assert "No such file" in call("roles", "apply", tmp_path / "absent").err


# ------------------------------------------------------------ summaries


ROLES = """
[roles.watcher]
clearance = "secret"
sees = [{ name = "all that is written", kinds = ["**"] }]
may = { query = true }
[[roles.watcher.masks]]
name = "not what is said"
kinds = ["message.added"]
fields = ["content"]
how = "drop"
[[roles.watcher.masks]]
name = "nor what calls are given and return"
kinds = ["step.*"]
fields = ["arguments", "result"]
how = "drop"
[roles.auditor]
clearance = "secret"
sees = [{ name = "all", kinds = ["**"] }]
may = { query = true }
[roles.writer]
may = { kinds = ["**"], tools = ["**"] }
"""
UNSAYABLE = "the unsayable words"


def brief(messages: list[dict[str, str]]) -> str:
    """Return a summary by a rule in place of a model; it repeats the messages."""
    return messages[0]["content"]


def test_only_who_sees_the_whole_record_sees_the_summary(data_dir, workspace, tmp_path):
    """The watcher sees that messages were compacted, but not which; the auditor sees the
    summary.
    """
    file = tmp_path / "roles.toml"
    file.write_text(ROLES)
    with hansard.connect(workspace, data_dir=data_dir) as record:
        with record.run("w", run="r", agent="ada", role="writer") as session:
            session.message("user", UNSAYABLE)
            session.message("user", "and more than that")
            session.compact(brief, keep=1)
            session.decide("Go?", selected="yes")
        record.roles.apply_file(str(file))
        with record.run(run="r", agent="wat", role="watcher") as session:
            shown = msgspec.json.encode(session.view().events).decode()
        assert "context.compacted.v1" in shown
        for word in (UNSAYABLE, "stands_for", "digest", "kept", "versions"):
            assert word not in shown.partition("context.compacted.v1")[2].partition("}")[0]
        assert UNSAYABLE not in shown
        with record.run(run="r", agent="aud", role="auditor") as session:
            assert msgspec.json.encode(session.view().events).decode().count(UNSAYABLE) > 1


@pytest.mark.thorough(quick="test_only_who_sees_the_whole_record_sees_the_summary")
def test_a_roles_tables_have_the_summary_without_its_words(
    data_dir: Path, workspace: str, tmp_path: Path, capsys, monkeypatch
):
    """The role's own file has the row, without its words, ids and figures."""
    file = tmp_path / "roles.toml"
    file.write_text(ROLES)
    with hansard.connect(workspace, data_dir=data_dir) as record:
        with record.run("w", run="r", agent="ada", role="writer") as session:
            session.message("user", UNSAYABLE, tokens=9)
            session.message("user", "and more than that", tokens=9)
            session.compact(brief, keep=1, count=lambda _: 9)
        record.roles.apply_file(str(file))
    monkeypatch.setenv("HANSARD_DATA_DIR", str(data_dir))
    monkeypatch.setenv("HANSARD_WORKSPACE", workspace)

    def rows_of(role: str, question: str) -> list[dict[str, Any]]:
        done = ran(capsys, monkeypatch, ["sql", question, "--role", role, "--by", "me", "--json"])
        assert done.code == 0, done.err
        return [line for line in done.lines if "text" in line or "event" in line]

    question = "SELECT text, messages, stands_for, digest, tokens_before FROM compactions"
    [blind] = rows_of("watcher", question)
    assert not any(blind.values())
    [whole] = rows_of("auditor", question)
    assert (whole["text"], whole["messages"], whole["tokens_before"]) == (UNSAYABLE, 1, 18)
    assert rows_of("watcher", "SELECT event FROM compacted") == []
