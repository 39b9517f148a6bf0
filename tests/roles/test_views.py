"""`session.view`: the events that a session's role may see, as a recorded step that replays."""

import asyncio
import functools
import json
import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.agents.access import roles
from hansard.agents.errors import ViewDiffers
from hansard.domain.access import SEEN_BYTES_MAX, key_of, ranges, versions
from hansard.domain.ids import KeyStream
from hansard.domain.roles import check as role_file
from hansard.domain.roles.model import RoleDefined, RoleRule
from tests.agents.twins import Lab, twins
from tests.audit.support import Audited
from tests.faults._warm import python
from tests.requests import counted
from tests.roles.test_record import EXAMPLE, KEY, team

pytestmark = pytest.mark.later

READER = RoleDefined(
    sees=(
        RoleRule("messages", ("message.*",), roles=("writer",)),
        RoleRule("joined", ("run.*",)),
        RoleRule("keys", keys=("shared/*",)),
    )
)


async def viewed(session, at=None, key=None):
    """Return a view of either client's session."""
    view = session.raw.view(at, key=key)
    return await view if session.is_async else view


def as_bytes(view) -> bytes:
    """All of a view as bytes."""
    return msgspec.json.encode(view)


async def play(record, **options):
    """Play two agents: a writer of messages and values, and a reader of three views."""
    views_seen = []
    async with record.run(run="r", agent="ada", role="writer", **options) as session:
        await session.message("user", "hello")
        board = session.raw.board
        for key, value in (("shared/a", 1), ("mine", 2)):
            done = board.put(key, value, expected="any")
            if session.is_async:
                await done
    async with record.run(run="r", agent="rex", role="reader", **options) as session:
        views_seen.append(await viewed(session))
        views_seen.append(await viewed(session))
        views_seen.append(await viewed(session, at="ada@2"))
    return views_seen


@twins
async def test_a_view_is_what_its_role_may_see(lab: Lab):
    """A view has its own numbers and state, and each view is recorded once as served."""
    async with lab.connect() as record:
        await record.roles.apply("reader", READER)
        first, second, third = await play(record)
        kinds = [line.type.removesuffix(".v1") for _, line in first.events]
        assert kinds == [
            "run.started",
            "run.agent_joined",
            "message.added",
            "board.put",
            "run.agent_left",
            "run.completed",
            "run.agent_joined",
            "run.resumed",
        ]
        assert [number for number, _ in first.events] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert (first.run, first.role) == ("r", "reader")
        state = first.state
        assert state.run["status"] == "open"
        assert {name: agent.role for name, agent in state.agents.items()} == {
            "ada": "writer",
            "rex": "reader",
        }
        assert {key: entry.value for key, entry in state.board.items()} == {"shared/a": 1}
        assert state.context == {"ada": [{"role": "user", "content": "hello"}]}
        assert as_bytes(second) == as_bytes(first)
        assert len(third.events) < len(first.events)
        stream = KeyStream("r", key_of("reader"))
        stored = [each for each in await record.commits("r") if each.stream == stream]
        events = [msgspec.json.decode(each.commit.events[0].data) for each in stored]
        assert [event["events"] for event in events] == [8, 8, len(third.events)]
        assert [event["digest"] for event in events] == [
            view.digest for view in (first, second, third)
        ]
        assert {(event["role"], event["agent"]) for event in events} == {("reader", "rex")}
        assert "view" not in str(state.board)


@twins
@pytest.mark.parametrize("mode", ["strict", "offline", None])
async def test_a_replayed_view_is_derived_again(lab: Lab, mode):
    """Each mode replays a view as it was served, and writes nothing."""
    async with lab.connect() as record:
        await record.roles.apply("reader", READER)
        first = [as_bytes(each) for each in await play(record)]
        await record.roles.apply("reader", RoleDefined(sees=(RoleRule("none", ("price.*",)),)))
        async with record.run(run="r", agent="eve", role="writer") as session:
            await session.message("user", "later")
        before = await record.commits("r")
        again = [as_bytes(each) for each in await play(record, mode=mode)]
        assert again == first
        after = await record.commits("r")
        served = [each for each in after if str(each.stream) == "board/view reader"]
        assert served == [each for each in before if str(each.stream) == "board/view reader"]


@twins
async def test_a_fork_gives_the_view_that_its_parent_was_served(lab: Lab):
    """A fork returns the view that its parent was served; its next view is in its own stream."""
    async with lab.connect() as record:
        await record.roles.apply("reader", READER)
        first = (await play(record))[0]
        fork = record.raw.fork("r")
        fork = await fork if asyncio.iscoroutine(fork) else fork
        async with record.run(run=fork, agent="rex", role="reader") as session:
            assert as_bytes(await viewed(session)) == as_bytes(first)
            for _ in range(2):
                await viewed(session, at="ada@2" if _ else None)
            new = await viewed(session)
        assert {line.run for _, line in new.events} == {fork}
        stream = KeyStream(fork, key_of("reader"))
        own = [each for each in await record.commits(fork) if each.stream == stream]
        assert [each.commit.version for each in own] == [4]


@twins
async def test_a_view_that_is_not_what_was_served_is_an_error(lab: Lab):
    """A view that differs from the one served is an error.

    Another key of hashed values: the error has both digests. A wrong key length fails before the
    read.
    """
    async with lab.connect() as record:
        await record.roles.apply("analyzer", role_file.parse(EXAMPLE.read_text())["analyzer"])

        async def look(key, **options):
            async with record.run(run="r", agent="a", role="analyzer", **options) as session:
                return await viewed(session, key=key)

        async with record.run(run="r", agent="res", role="researcher") as session:

            @session.tool(effects="pure")
            async def find(what: str) -> dict[str, object]:
                return {"title": what, "reviewer": {"name": "somebody"}}

            await find("x")
        with pytest.raises(hansard.BadValue, match="key of hashed values: it has 5 bytes"):
            await look(b"short")
        served = await look(KEY)
        assert "$hash" in as_bytes(served).decode()
        assert "somebody" not in as_bytes(served).decode()
        assert as_bytes(await look(KEY, mode="strict")) == as_bytes(served)
        with pytest.raises(ViewDiffers, match=r"on record are .* events with digest") as differs:
            await look(KEY[::-1], mode="strict")
        assert differs.value.recorded == (len(served.events), served.digest)
        assert differs.value.now[0] == len(served.events)


@twins
async def test_a_role_without_rules_is_shown_nothing(lab: Lab):
    """An empty view is served and recorded, with no rules."""
    async with lab.connect() as record, record.run(run="r", agent="a", role="nobody") as session:
        view = await viewed(session)
        assert (view.events, view.digest) == ([], "")
        [one] = await record.io(roles.on_record(record.raw.workspace.states, "r", "nobody"))
        assert (one.event.rules, one.event.events, one.event.seen) == ("", 0, {})


@pytest.mark.slow
def test_agents_of_one_role_at_once_lose_no_view(record):
    """Eight threads' worth of sessions race for one stream: every view is on record, once."""
    record.roles.apply("reader", READER)
    with record.run("w", run="r", agent="ada", role="writer") as session:
        session.message("user", "hello")

    def look(number: int) -> None:
        with record.run(run="r", agent=f"rex{number}", role="reader") as session:
            for _ in range(5):
                session.view()

    async def race() -> None:
        await asyncio.gather(*(asyncio.to_thread(look, number) for number in range(8)))

    asyncio.run(race())
    summaries = record._portal.run(roles.on_record(record.workspace.states, "r", "reader"))
    assert sorted(each.event.agent for each in summaries) == sorted(
        f"rex{number}" for number in range(8) for _ in range(5)
    )
    assert [each.stored.commit.version for each in summaries] == list(range(1, 41))


KILLED = """
import sys
import hansard
with hansard.connect(sys.argv[1], data_dir=sys.argv[2]) as record:
    with record.run(run="r", agent="rex", role="reader") as session:
        for number in range(200):
            session.view()
            print(number, flush=True)
"""


@pytest.mark.slow
def test_a_kill_leaves_the_outcome_and_the_summary_or_none(record, data_dir, workspace, rounds):
    """A kill at any point leaves both outcome and summary, or none; a resume returns the served
    view.
    """
    record.roles.apply("reader", READER)

    def served():
        return record._portal.run(roles.on_record(record.workspace.states, "r", "reader"))

    with record.run("w", run="r", agent="ada", role="writer") as session:
        session.message("user", "hello")
    for number in range(rounds(2, 20)):
        child = subprocess.Popen(
            [python(), "-c", KILLED, workspace, data_dir],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(hansard.__file__).parents[1])},
        )
        assert child.stdout is not None
        for _ in range(3 + 2 * number):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        summaries, state = served(), record.state("r").agent("rex")
        while summaries != served():  # the killed program's last commit arrived in between
            summaries, state = served(), record.state("r").agent("rex")
        done = [step for step in state.steps.values() if step.status.value == "completed"]
        told_of = [msgspec.json.decode(step.result)["served"] for step in done]
        assert told_of == [each.id for each in summaries]
        assert len(done) >= 3 + 2 * number


# ---------------------------------------------------------------- what was served, in words


def test_ranges_name_versions():
    """Ranges convert both ways; too many are refused with the remedy."""
    places = [("a", 1), ("b", 4), ("a", 2), ("a", 3), ("b", 6), ("b", 7), ("b", 9)]
    told_of = ranges(places)
    assert told_of == {"a": "1-3", "b": "4,6-7,9"}
    assert [(name, n) for name in "ab" for n in versions(told_of[name])] == sorted(places)
    assert ranges([]) == {}
    many = SEEN_BYTES_MAX // 2
    with pytest.raises(hansard.BadValue, match="let the role see whole streams"):
        ranges(("a", 2 * n) for n in range(many))


def test_a_person_looks_and_that_is_on_record(call, record):
    """`hansard roles view` shows a view and records its reader; the role sees no record of it."""
    call("roles", "apply", EXAMPLE)
    run = team(record)
    lines = call("roles", "view", "writer", run, "--by", "audrey", "--json").lines
    head, state, *events = lines
    assert [line["number"] for line in events] == list(range(1, head["events"] + 1))
    assert state["agents"]["a1"]["decisions"] == 1
    assert (
        call("roles", "view", "writer", run, "--by", "audrey", "--json").lines[0]["digest"]
        == (head["digest"])
    )
    looks = record._portal.run(roles.on_record(record.workspace.states, run, "writer"))
    assert [(each.event.agent, each.stored.commit.actor.agent) for each in looks] == [
        ("", "audrey"),
        ("", "audrey"),
    ]
    shown = call("roles", "view", "writer", run)
    assert "decision.made" in shown.out
    assert "as of position" in shown.err
    nobody = call("roles", "view", "nobody", run)
    assert (nobody.code, "has no rules there" in nobody.err) == (0, True)
    assert call("roles", "view", "writer", "no-such-run").code == 2
    first, again = (call("roles", "view", "analyzer", run, "--json") for _ in range(2))
    assert "$hash" in first.out
    assert first.lines[0]["digest"] == again.lines[0]["digest"]


def test_a_hash_s_key_comes_from_a_file(call, record, tmp_path):
    """The key of hashed values is the bytes of a file, unchanged."""
    call("roles", "apply", EXAMPLE)
    run = team(record)
    path = tmp_path / "key"
    path.write_bytes(KEY)
    told_of = call("roles", "view", "analyzer", run, "--key", path, "--json")
    assert "$hash" in told_of.out
    missing = call("roles", "view", "analyzer", run, "--key", tmp_path / "none")
    assert (missing.code, "No such file" in missing.err) == (2, True)


@pytest.fixture(scope="module")
def decided(data_dir):
    """Yield a record, its tables, a run that looks twice, and its decision."""
    place = Audited(data_dir, f"decided-{os.getpid()}")
    with hansard.connect(place.workspace, data_dir=data_dir) as record:
        record.roles.apply_file(EXAMPLE)
        run = team(record)
        with record.run(run=run, agent="w2", role="writer") as session:
            draft = session.tool(effects="pure", name="draft")(lambda text: text.upper())
            draft("a")
            session.view()
            session.decide("publish?", selected="yes")
            draft("b")
            session.view()
        decision = place.value("SELECT decision FROM decisions WHERE question = 'publish?'")
        yield record, place, run, decision


@pytest.mark.slow
def test_who_saw_an_event_and_what_a_decision_knew_are_sql(decided):
    """The tables list exactly the events that the views named, and the results of the role's own
    steps.
    """
    record, place, run, decision = decided
    rows = place.rows("FROM knew($1)", decision)
    states = record.workspace.states
    first, second = record._portal.run(roles.on_record(states, run, "writer"))
    shown = record._portal.run(roles.derive_again(states, first))
    assert {row["event"] for row in rows if row["how"] == "shown"} == {
        line.id for _, line in shown.view.events
    }
    own = [row["type"] for row in rows if row["how"] == "received" and row["agent"] == "w2"]
    assert own == ["step.completed.v1", "step.completed.v1"]
    assert all(row["view"] == first.id for row in rows if row["how"] == "shown")
    [line] = [line for _, line in shown.view.events if line.type == "decision.made.v1"]
    saw = place.rows("FROM who_saw($1)", line.id)
    assert [(row["view"], row["agent"], row["rules"]) for row in saw] == [
        (each.id, "w2", each.event.rules) for each in (first, second)
    ]
    assert [row["view"] for row in place.rows("FROM who_saw($1)", decision)] == [second.id]
    assert place.rows("FROM who_saw('nothing')") == []
    told_of = place.rows("SELECT * FROM views_served ORDER BY position")
    assert [row["events"] for row in told_of] == [each.event.events for each in (first, second)]
    words = place.value("SELECT any_value(words) FROM history WHERE what = 'was shown'")
    assert words.startswith("as writer, events: ")


@pytest.mark.thorough(quick="test_who_saw_an_event_and_what_a_decision_knew_are_sql")
def test_a_fork_knew_what_its_parent_was_shown(decided):
    """Views and outcomes before the cut count; those after it do not."""
    record, place, run, decision = decided
    fork = record.fork(run, at=decision)
    with record.run(run=fork, agent="w2", role="writer") as session:
        session.decide("again?", selected="no")
    later = place.value("SELECT decision FROM decisions WHERE question = 'again?'")
    parents = {(row["event"], row["how"]) for row in place.rows("FROM knew($1)", decision)}
    assert {(row["event"], row["how"]) for row in place.rows("FROM knew($1)", later)} == parents
    [first, *_] = place.rows("SELECT * FROM views_served ORDER BY position")
    event = next(iter(sorted(event for event, how in parents if how == "shown")))
    assert first["view"] in {row["view"] for row in place.rows("FROM who_saw($1)", event)}


@pytest.mark.slow
def test_knew_takes_a_run_as_its_newest_decision_or_else_its_end(data_dir, call):
    """`last` and a run's id name what `why` would list; a run without a decision has its end."""
    workspace = f"knew-{os.getpid()}"
    call = functools.partial(call, "-w", workspace)
    with hansard.connect(workspace, data_dir=data_dir) as record:
        with record.run("r", run="undecided", agent="ann") as session:
            session.message("user", "hello")
        end = call("knew", "last", "--json").lines[0]
        assert (end["run"], end["agent"], end["type"]) == ("undecided", "ann", None)
        with record.run("r", run="twice", agent="ann") as session:
            session.decide("first?", selected="yes")
            session.decide("second?", selected="no")
            session.message("user", "bye")
    assert "run undecided has no decision: this is its last agent" in call("knew", "undecided").err
    for name in ("last", "twice"):
        lines = call("knew", name, "--json").lines
        hint = f"the newest of 2 decisions, at {lines[0]['address']}: 'hansard why twice' lists"
        assert hint in call("knew", name).err
        assert "decisions, at" not in call("knew", lines[0]["address"]).err
        assert (lines[0]["run"], lines[0]["type"]) == ("twice", "decision.made.v1")
        [agent] = [line for line in lines if line["kind"] == "agent"]
        assert len(agent["decisions"]) == 1


@pytest.mark.slow
def test_knew_tells_the_state_and_the_view_before_a_decision(decided, call):
    """By id, by address and by a point of the run; as another role; by other rules."""
    _, place, run, decision = decided
    call = functools.partial(call, "-w", place.workspace)
    lines = call("knew", decision, "--json").lines
    kinds = {
        kind: [each for each in lines if each["kind"] == kind]
        for kind in ("knew", "agent", "served", "state", "event")
    }
    [head], [agent], [served] = kinds["knew"], kinds["agent"], kinds["served"]
    assert (head["agent"], head["role"], head["type"]) == ("w2", "writer", "decision.made.v1")
    assert [step["tool"] for step in agent["steps"].values()] == ["draft", "view"]
    assert agent["decisions"] == {}
    assert len(kinds["event"]) == head["events"]
    assert decision not in [event["id"] for event in kinds["event"]]
    assert served["events"] <= head["events"]
    assert call("knew", head["address"], "--json").lines == lines
    after = call("knew", f"{run}@{int(head['position']) + 1}", "--json").lines
    assert (after[0]["agent"], after[0]["events"]) == ("w2", head["events"] + 1)
    other = call("knew", decision, "--role", "nobody", "--json").lines
    assert (other[0]["role"], other[0]["events"], other[0]["rules"]) == ("nobody", 0, None)
    assert "agent" not in [line["kind"] for line in other]  # that of its own role: unmasked
    unmasked = call("knew", decision, "--role", "nobody")
    assert "no mask is applied; to use its rules of today: --rules now" in unmasked.err
    none = call("knew", decision, "--rules", "0", "--json").lines
    assert (none[0]["events"], none[0]["rules"]) == (0, None)
    assert call("knew", decision, "--rules", "now", "--json").lines[0]["events"] == head["events"]
    assert call("knew", run, "--json").lines == lines
    text = call("knew", decision)
    assert "decision.made.v1 at" in text.out
    assert "draft" in text.out
    assert json.dumps(decision) not in text.out


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nothing", "event 'nothing' was not found"),
        ("1.0", "belongs to no run"),
        ("last@0", "was not found"),
    ],
)
def test_what_knew_cannot_tell(decided, call, reference, message):
    """A question that `knew` cannot answer is refused with the reason and the remedy."""
    output = call("-w", decided[1].workspace, "knew", reference)
    assert (output.code, output.out) == (2, "")
    assert message in output.err


async def test_who_was_shown_a_view_before_is_not_looked_up(data_dir: Path, workspace: str):
    """A person is in no run: a view asks for the same, however often others were served before."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        await record.roles.apply("reader", READER)
        async with record.run("papers", agent="ada", role="writer") as session:
            await session.message("user", "hello")
        subject_counts: list[int] = []
        for number in range(4):
            with counted(record.workspace.log) as counting:
                await record.roles.view(session.run, role="reader", by=f"person {number}")
            subject_counts.append(len(counting.subjects))
        assert subject_counts == [6] * 4
