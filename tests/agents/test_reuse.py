"""Answers of earlier runs: the conditions of their reuse."""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.broker.lease import peek
from hansard.bus import subjects
from hansard.bus.commits import record as recorded
from hansard.bus.commits import revive
from hansard.bus.jetstream.client import Broker, BrokerOptions
from hansard.bus.jetstream.direct import api
from hansard.bus.portal import portal
from hansard.client.record import Record
from hansard.domain import decider, reuse
from hansard.domain.errors import BadName, BadValue
from hansard.domain.events import Actor, Commit
from hansard.domain.fingerprint import canonical
from hansard.domain.ids import WorkspaceStream
from hansard.domain.integrity import misfit
from hansard.domain.reuse import KIND, AnswerOffered, AnswersInvalidated
from hansard.domain.roles import check as role_file
from hansard.domain.steps import StepStatus
from tests.agents.twins import TwinRecord
from tests.cli.support import Call
from tests.faults.support import Child, Stage

HOUR_S = 3_600.0

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
arguments = st.dictionaries(st.sampled_from("abc"), json_values, max_size=3)
names = st.sampled_from(["", "x", "xy", "y"])
calls = st.tuples(st.sampled_from(["x", "xy"]), names, names, arguments)


def key(call) -> str:
    """Return the key of (tool, version, workflow, arguments)."""
    tool, version, workflow, arguments = call
    return reuse.key_of(tool, version, workflow, canonical(arguments))


@given(calls, calls)
def test_a_key_is_that_of_equal_calls_alone(one, other):
    """Equal tool, version, workflow and arguments have one key, and only they do."""
    assert (key(one) == key(other)) is (one == other and canonical(one[3]) == canonical(other[3]))
    turned = {name: one[3][name] for name in reversed(one[3])}
    assert key((*one[:3], turned)) == key(one)


def offered(stale=0, **fields) -> AnswerOffered:
    """Return an offer, with the stale marks of its time."""
    values: dict[str, Any] = {"key": "k0", "tool": "t0", "run": "r0", **fields}
    values |= {"role": "a", "agent": "a", "step": 1, "outcome": 2, "digest": "d"}
    return AnswerOffered(stale=stale, **values)


words = st.tuples(st.sampled_from(["tool", "run", "key"]), st.integers(0, 1))


@given(st.lists(words, max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_an_answer_counts_where_nothing_that_concerns_it_is_stale_since(declarations, seen, cut):
    """An answer counts if nothing stale since its lookup names its tool, run or key."""
    events = [AnswersInvalidated(**{kind: f"{kind[0]}{number}"}) for kind, number in declarations]
    state = decider.fold(decider.fold(reuse.Stale(), events[:cut]), events[cut:])
    assert state.version == len(events)
    since = declarations[seen:]
    assert state.holds(offered(seen)) is not any(number == 0 for _, number in since)


def test_one_thing_is_declared_stale_at_a_time():
    """None, several or an invalid name is an error that says what to name."""
    for fields in ({}, {"tool": "a", "run": "b"}):
        with pytest.raises(BadValue, match="name one tool, one run or one key"):
            reuse.decide(AnswersInvalidated(**fields))
    with pytest.raises(BadName):
        reuse.decide(AnswersInvalidated(tool="a\n"))


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"ttl_s": 0}, "seconds"),
        ({"ttl_s": float("nan")}, "seconds"),
        ({"ttl_s": True}, "seconds"),
        ({"ttl_s": "1"}, "seconds"),
        ({"ttl_s": 1, "scope": "run"}, "workflow, workspace"),
    ],
)
def test_what_is_no_time_or_scope_is_refused(options, remedy):
    """The error has the value and the accepted ones."""
    with pytest.raises(BadValue, match=remedy):
        hansard.reuse(**options)


def test_only_what_may_run_again_is_answered_by_others():
    """A tool that does something once, a generator, or no `Reuse`: refused where it is declared."""
    policy = hansard.reuse(ttl_s=1)

    def plain() -> int:
        return 1

    def items():
        yield 1

    for effects in ("once", "composite", hansard.reconcile(lambda: None)):
        with pytest.raises(hansard.ToolError, match="pure or idempotent"):
            hansard.tool(effects=effects, reuse=policy)(plain)
    with pytest.raises(hansard.ToolError, match="generator"):
        hansard.tool(effects="pure", reuse=policy)(items)
    with pytest.raises(hansard.ToolError, match=r"hansard\.reuse\(ttl_s="):
        hansard.tool(effects="pure", reuse=60)(plain)  # type: ignore[call-overload] # it is refused


@pytest.mark.slow(cases=1)
async def test_a_later_run_gets_the_answer_and_names_its_source(record: TwinRecord):
    """An equal call of a later run is answered and names its source, within one workflow."""
    ran: list[str] = []

    async def work(record, run, workflow="flow", mode=None):
        async with record.run(None if mode else workflow, run=run, mode=mode) as session:
            near = hansard.reuse(ttl_s=HOUR_S)
            wide = hansard.reuse(ttl_s=HOUR_S, scope="workspace")

            @session.tool(effects="pure", kind="model", reuse=near)
            async def ask(text: str, limit: int = 3) -> tuple[str, int]:
                ran.append(f"ask {run}")
                session.usage(input_tokens=10, cost=0.5)
                return text, limit

            @session.tool(effects="idempotent", reuse=wide)
            async def put(text: str) -> list[str]:
                ran.append(f"put {run}")
                return [text] * 20_000

            return await ask("x"), await ask(text="x", limit=3), len(await put("long"))

    first = await work(record, "a")
    assert first == (("x", 3), ("x", 3), 20_000)
    assert ran == ["ask a", "ask a", "put a"]  # nothing is shared within a run
    assert await work(record, "b") == first
    assert await work(record, "c", "other") == first
    assert ran[3:] == ["ask c", "ask c"]
    assert await work(record, "b") == await work(record, "b", mode="strict") == first
    assert len(ran) == 5
    steps = (await record.state("b")).agent("ada").steps
    sources = [
        (s.reused_from.run, s.reused_from.step, s.usage)
        for s in steps.values()
        if s.reused_from is not None
    ]
    assert sources == [("a", 2, {}), ("a", 2, {}), ("a", 3, {})]
    assert {s.digest for s in steps.values()} == {
        s.digest for s in (await record.state("a")).agent("ada").steps.values()
    }
    rows = await record.sql(
        "SELECT run, step, from_run, from_step, source_on_record, age_s >= 0, cost_saved "
        "FROM reused_answers ORDER BY run, step"
    )
    assert rows.rows == [
        ("b", 1, "a", 2, True, True, 0.5),
        ("b", 2, "a", 2, True, True, 0.5),
        ("b", 3, "a", 3, True, True, None),
        ("c", 3, "a", 3, True, True, None),
    ]


def once(record: Record, run: str, ran: list[str], *, stop: bool = False, **options):
    """Run `flow` with one call, which adds itself to `ran` if it runs."""
    named = {name: options.pop(name) for name in ("agent", "role") if name in options}
    gate, decides = options.pop("gate", ()), options.pop("decides", False)
    policy = options.pop("reuse", hansard.reuse(ttl_s=HOUR_S))
    arguments = options.pop("arguments", {"text": "x"})
    with record.run("flow", run=run, gate=gate, **named) as session:

        @session.tool(effects="pure", name="ask", reuse=policy, **options)
        def ask(text: object) -> object:
            ran.append(run)
            if stop:
                raise ValueError("no answer")
            return text

        answer = ask(**arguments)
        if decides:
            session.decide("which?", selected="this")
        return answer


@pytest.mark.slow
def test_what_is_stale_old_failed_or_secret_runs(record: Record):
    """Stale, old, failed, secret or differently versioned answers are not reused."""
    ran: list[str] = []
    with pytest.raises(ValueError, match="no answer"):
        once(record, "failed", ran, stop=True)
    once(record, "a", ran)
    once(record, "a2", ran)
    assert ran == ["failed", "a"]
    [(stored_key,)] = record.sql("SELECT key FROM answers").rows
    for number, what in enumerate([{"tool": "ask"}, {"run": "b0"}, {"key": stored_key}]):
        record.invalidate(**what, reason="the source changed", by="eve")
        once(record, f"b{number}", ran)
        once(record, f"c{number}", ran)
    assert ran[2:] == ["b0", "b1", "b2"]
    record.invalidate(run="a")  # no answer depends on it any more
    once(record, "d", ran)
    assert ran[5:] == []
    once(record, "e", ran, reuse=hansard.reuse(ttl_s=1e-6))
    once(record, "f", ran, reuse=None)
    once(record, "g", ran, version="2")
    assert ran[5:] == ["e", "f", "g"]
    secret = {"text": hansard.Secret("token")}
    for run in ("h", "i"):
        with record.run("flow", run=run, secrets={"token": "hunter2"}) as session:

            @session.tool(effects="pure", reuse=hansard.reuse(ttl_s=HOUR_S))
            def login(text: object) -> int:
                ran.append(session.run)
                return 1

            login(**secret)
    assert ran[8:] == ["h", "i"]
    rows = record.sql("SELECT kind, count(*) FROM odd_reuse GROUP BY kind").rows
    assert rows == [("stale answer in use", 3)]


def test_what_ran_while_it_was_declared_stale_is_stale(record: Record):
    """The answer of a call in flight at the declaration is not reused by a later run."""
    ran: list[str] = []
    for run in ("a", "b", "c"):
        with record.run("flow", run=run) as session:

            @session.tool(effects="pure", reuse=hansard.reuse(ttl_s=HOUR_S))
            def read() -> str:
                if not ran:
                    record.invalidate(tool="read")
                ran.append(session.run)
                return ran[-1]

            assert read() == ("a" if run == "a" else "b")
    assert ran == ["a", "b"]


def test_what_must_be_passed_to_run_is_passed_to_be_answered(record: Record):
    """The gate and budgets refuse an answered call as any other, and count it."""
    ran: list[str] = []
    once(record, "a", ran)
    with pytest.raises(hansard.Blocked, match="no asking"):
        once(record, "b", ran, gate=[hansard.deny("ask", name="no asking", reason="closed")])
    budget = hansard.budget("one", limit=1, unit="calls", tool="ask")
    once(record, "c", ran, gate=[budget])
    with pytest.raises(hansard.Blocked, match="one"):
        once(record, "c", ran, gate=[budget], arguments={"text": "another"})
    assert ran == ["a"]


def test_a_reused_answer_is_one_call_of_a_budget(record: Record):
    """It counts as exactly one: the rest of its reservation is free again."""
    ran: list[str] = []
    texts = [{"text": text} for text in "xyz"]
    for each in texts:
        once(record, f"a-{each['text']}", ran, arguments=each)
    gate = [hansard.budget("two", limit=2, unit="calls", tool="ask")]
    for each in texts[:2]:
        assert once(record, "b", ran, gate=gate, arguments=each) == each["text"]
    with pytest.raises(hansard.Blocked, match="two"):
        once(record, "b", ran, gate=gate, arguments=texts[2])
    assert ran == ["a-x", "a-y", "a-z"]


def test_an_answer_of_another_source_is_none(record: Record):
    """A tool of the same name and version whose source is another one runs."""
    ran: list[str] = []
    once(record, "a", ran)
    with record.run("flow", run="b") as session:

        @session.tool(effects="pure", name="ask", reuse=hansard.reuse(ttl_s=HOUR_S))
        def other(text: object) -> object:
            ran.append("other")
            return text

        assert other("x") == "x"
    assert ran == ["a", "other"]


def source(record: Record, run: str, agent: str) -> str:
    """Return the run whose answer an agent's first call reused."""
    origin = record.state(run).agent(agent).steps[1].reused_from
    assert origin is not None
    return origin.run


ROLES = """
[roles.sees]
sees = [{ name = "all", kinds = ["**"] }]
may = { tools = ["**"] }
[roles.blind]
sees = [{ name = "own", kinds = ["**"], roles = ["blind"] }]
may = { tools = ["**"], kinds = ["reuse.offered"] }
[roles.masked]
sees = [{ name = "all", kinds = ["**"] }]
masks = [{ name = "results", kinds = ["step.completed"], fields = ["result.deep"], how = "drop" }]
may = { tools = ["**"] }
"""


@pytest.mark.slow
def test_a_role_gets_what_it_sees_whole_and_of_the_rest_no_hint(record: Record):
    """A role gets only answers that it sees whole, and otherwise no trace that one exists."""
    for name, rules in role_file.parse(ROLES).items():
        record.roles.apply(name, rules)
    ran: list[str] = []
    once(record, "a", ran)
    for role in ("blind", "masked"):
        once(record, f"{role}-1", ran, agent=role, role=role)
        state = record.state(f"{role}-1").agent(role)
        once(record, f"{role}-0", ran, agent=role, role=role, arguments={"text": "unheard"})
        alone = record.state(f"{role}-0").agent(role)
        assert [msgspec.structs.asdict(s).keys() for s in state.steps.values()] == [
            msgspec.structs.asdict(s).keys() for s in alone.steps.values()
        ]
        assert all(s.reused_from is None for s in state.steps.values())
        assert state.version == alone.version
    assert ran == ["a", "blind-1", "blind-0", "masked-1", "masked-0"]
    once(record, "blind-2", ran, agent="blind", role="blind")
    once(record, "sees-1", ran, agent="sees", role="sees")
    assert ran[5:] == []  # of its own role's run, and of all runs
    sources = [
        source(record, run, name) for run, name in (("blind-2", "blind"), ("sees-1", "sees"))
    ]
    assert sources == ["blind-1", "blind-1"]
    rows = record.sql("SELECT DISTINCT role FROM offered_answers ORDER BY 1").rows
    assert rows == [("agent",), ("blind",)]
    plan = {"text": "plan"}
    once(record, "s", ran, arguments=plan, gives="secret untrusted")
    once(record, "t", ran, arguments=plan, gives="secret untrusted")
    assert source(record, "t", "agent") == "s"
    assert record.state("t").agent("agent").label == "secret untrusted"
    once(record, "u", ran, agent="sees", role="sees", arguments=plan)
    assert ran[5:] == ["s", "u"]
    assert record.state("u").agent("sees").label == ""


async def erase(data_dir: Path, workspace: str, sha256: str) -> None:
    """Erase a blob, as an administrator can."""
    info = peek(data_dir)
    assert info is not None
    login = BrokerOptions(urls=(info.url,), user=info.admin.user, password=info.admin.password)
    admin = await Broker.open(login)
    purge = {"filter": f"{subjects.blob_subject(workspace, sha256, 0).rpartition('.')[0]}.*"}
    await api(admin, f"STREAM.PURGE.{subjects.blob_stream(workspace)}", purge)
    await admin.close()


def test_an_answer_whose_bytes_were_erased_is_none(record: Record, workspace: str, data_dir: Path):
    """A large answer whose blob was erased is lost in every run that has it: the call runs."""
    ran: list[str] = []
    large = {"text": "x" * 100_000}
    once(record, "a", ran, arguments=large)
    once(record, "b", ran, arguments=large)
    assert ran == ["a"]
    step = record.state("a").agent("agent").steps[1]
    [sha256] = re.findall(rb'"sha256":"([0-9a-f]{64})"', bytes(step.result))
    record._portal.run(erase(data_dir, workspace, sha256.decode()))
    once(record, "c", ran, arguments=large)
    assert ran == ["a", "c"]


def test_an_offer_is_its_agent_s_own_and_under_its_key():
    """An offer of another agent's answer, or under another key, does not fit its place."""

    def why(actor: str, stream: WorkspaceStream, event) -> str:
        at = datetime(2026, 11, 24, tzinfo=UTC)
        commit = Commit(
            id="c", version=1, at=at, actor=Actor(actor), events=(recorded(event, "e"),)
        )
        return misfit(stream, commit)

    mine = WorkspaceStream(reuse.KIND, "k0")
    assert why("a", mine, offered()) == ""
    assert "offers an answer of agent 'a'" in why("eve", mine, offered())
    assert "offers an answer to key 'k0'" in why("a", WorkspaceStream(reuse.KIND, "k1"), offered())
    assert "does not belong" in why("a", reuse.STALE, offered())
    assert "does not belong" in why("a", mine, AnswersInvalidated(tool="t0"))
    assert why("eve", reuse.STALE, AnswersInvalidated(tool="t0")) == ""


@pytest.mark.thorough(quick="test_what_is_stale_old_failed_or_secret_runs")
def test_the_command_lists_answers_and_declares_them_stale(record: Record, call: Call):
    """`hansard reuse list`, `used` and `invalidate`, for people and as JSON."""
    ran: list[str] = []
    once(record, "a", ran)
    once(record, "b", ran, decides=True)
    [answer, last] = call("reuse", "list", "--json").lines
    assert (answer["tool"], answer["run"], answer["times"], answer["stale_since"]) == (
        "ask", "a", 1, None,
    )  # fmt: skip
    assert last["count"] == 1
    assert last["position"] > 0
    [used, total] = call("reuse", "used", "--json").lines
    assert (used["run"], used["from_run"], used["source_on_record"]) == ("b", "a", True)
    assert (total["calls"], total["cost_saved"]) == (1, None)
    assert "1 call answered by earlier runs" in call("reuse", "used", "--run", "b").out
    assert "no call of tool 'none' was given" in call("reuse", "used", "--tool", "none").out
    output = call("reuse", "invalidate", "--key", answer["key"], "--reason", "new index")
    assert "are stale" in output.out
    assert call("reuse", "invalidate").code == 2
    assert "1 answer," in call("reuse", "list").out
    [answer, _] = call("reuse", "list", "--json").lines
    assert answer["stale_because"] == "new index"
    assert "answer of agent#1 of run a" in call("run", "trace", "b").out
    [(decision,)] = record.sql("SELECT decision FROM decisions").rows
    assert "answer of agent#1 of run a" in call("why", decision).out
    assert "answer of agent#1 of run a" in call("trail", "b").out
    once(record, "c", ran)
    assert ran == ["a", "c"]


@pytest.mark.thorough(quick="test_a_later_run_gets_the_answer_and_names_its_source")
def test_a_reused_answer_lasts_without_its_source_run(record, call, workspace, tmp_path):
    """Copied alone, the run derives and forks; the audit reports its source as missing."""
    ran: list[str] = []
    large = {"text": "x" * 100_000}
    once(record, "a", ran, arguments=large)
    once(record, "b", ran, arguments=large)
    file = tmp_path / "b.jsonl"
    assert call("export", "b", "-o", file).code == 0
    other = f"{workspace}-other"
    assert call("-w", other, "import", "events", file).code == 0
    replayed = call("-w", other, "run", "replay", "b")
    assert replayed.code == 0, replayed.out
    assert record.state("b").agent("agent").steps[1].digest == (
        record.state("a").agent("agent").steps[1].digest
    )
    facts = call("-w", other, "sql", "SELECT kind, run FROM odd_reuse", "--json").lines
    assert [(each["kind"], each["run"]) for each in facts[:1]] == [("source not on record", "b")]
    assert call("-w", other, "check").code == 0
    assert ran == ["a"]


REUSING = Path(__file__).with_name("programs") / "reusing.py"
BEGUN_S_MAX = 60.0


def offers(stage: Stage, workflow: str) -> list[AnswerOffered]:
    """Return the answers offered by the runs of a workflow."""
    commits = portal().run(stage.record.workspace.log.read_kind(KIND))
    events = [revive(recorded) for stored in commits for recorded in stored.commit.events]
    return [
        each for each in events if isinstance(each, AnswerOffered) and each.workflow == workflow
    ]


def stopped(child: Child) -> bool:
    """Return whether a program stopped at its append; it has ended if it makes fewer."""
    deadline = time.monotonic() + BEGUN_S_MAX
    while not Path(child.job.marker).exists() and child.process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return child.process.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("when", ["after", pytest.param("before", marks=pytest.mark.thorough)])
def test_killed_at_each_append_an_answer_is_reused_whole_and_offered_once(
    stage: Stage, rounds: Callable[[int, int], int], when: str
):
    """Killed around each append, an answered call never runs and an offer is made once or never."""
    stride = 1 if rounds(1, 2) > 1 else 2  # `make check` kills at every other append
    number = 1
    while True:
        flow = f"{when}-{number}"
        stage.begin(f"seed-{flow}")
        assert stage.go_on(REUSING, workflow=flow, texts=["one"]).results == ["ONE"]
        stage.begin(f"run-{flow}")
        arguments: dict[str, Any] = {"workflow": flow, "texts": ["one", "two"]}
        child = stage.start(REUSING, number=number, when=when, **arguments)
        if not stopped(child):
            assert child.end().error == ""
            break
        child.kill()
        offered_answers = offers(stage, flow)
        state = stage.record.state(f"run-{flow}") if stage.commits() else None
        for each in offered_answers:
            if each.run == f"run-{flow}":
                assert state is not None
                step = state.agent("agent").steps[each.step]
                assert (step.status, step.digest) == (StepStatus.COMPLETED, each.digest)
        assert stage.go_on(REUSING, **arguments).results == ["ONE", "TWO"]
        steps = stage.view().agent("agent").steps
        assert [step.reused_from is not None for step in steps.values()] == [True, False]
        assert not stage.world.read("ran", text="one")
        assert 1 <= len(stage.world.read("ran", text="two")) <= 2
        mine = [each.run for each in offers(stage, flow)]
        assert mine.count(f"run-{flow}") <= 1
        stage.begin(f"later-{flow}")
        assert stage.go_on(REUSING, **arguments).results == ["ONE", "TWO"]
        ran = len(stage.world.read("ran", text="two"))
        assert ran == (0 if f"run-{flow}" in mine else 1)
        number += stride
    assert number > 5
