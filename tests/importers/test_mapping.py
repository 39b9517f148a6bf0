"""The mapping of each part of a chat to events."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import decode

from hansard.bus.commits import encode
from hansard.bus.log import COMMIT_BYTES_MAX
from hansard.domain import agent as agents
from hansard.domain import run as runs
from hansard.domain import values
from hansard.domain.agent import AgentLeft, MessageAdded, SessionBegan
from hansard.domain.decider import fold
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.events import Actor
from hansard.domain.run import (
    AgentJoined,
    RunAssigned,
    RunCompleted,
    RunFailed,
    RunScored,
    RunStarted,
)
from hansard.domain.steps import StepCompleted, StepFailed, StepRequested, ToolDeclared
from hansard.ext.importers.chat import ImportDefaults
from tests.domain import strategies
from tests.importers.support import (
    answer,
    asks,
    bare,
    call,
    chat,
    events,
    made,
    of_type,
    rederived,
    says,
)

MAIN = "agent/assistant/assistant"


def test_each_message_is_one_commit_in_its_order():
    """The life begins, the agent begins, then a commit a message, then both end."""
    out = made(
        chat(
            says("system", "be kind"),
            says("user", "where is it?"),
            asks(call("c1", "find", '{"order": 17}'), call("c2", "look")),
            answer("c1", "on its way"),
            answer("c2", "nothing"),
            says("assistant", "On its way."),
            outcome={"reward": 1},
        )
    )
    assert [
        (str(append.stream), [recorded.type for recorded in append.commit.events])
        for append in out.appends
    ] == [
        ("life", ["run.started.v1", "run.agent_joined.v1"]),
        (MAIN, ["agent.session_began.v1"]),
        (MAIN, ["message.added.v1"]),
        (MAIN, ["message.added.v1"]),
        (
            MAIN,
            [
                "message.added.v1",
                "tool.declared.v1",
                "step.requested.v1",
                "tool.declared.v1",
                "step.requested.v1",
            ],
        ),
        (MAIN, ["step.completed.v1", "message.added.v1"]),
        (MAIN, ["step.completed.v1", "message.added.v1"]),
        (MAIN, ["message.added.v1"]),
        (MAIN, ["agent.left.v1"]),
        ("life", ["run.scored.v1", "run.completed.v1"]),
    ]
    assert (out.tally.messages, out.tally.calls, out.tally.events) == (6, 2, 18)
    assert {append.commit.actor for append in out.appends} == {Actor("import", ("assistant",))}


def test_a_step_is_the_call_and_its_result():
    """Tool, arguments, the model's id for it, the result as it is, and which message answers it."""
    out = made(chat(asks(call("c1", "find", '{"order": 17}')), answer("c1", {"at": [1, None]})))
    [step] = of_type(out, StepRequested)
    assert (step.step, step.tool, step.call_id, step.effects) == (1, "find", "c1", "once")
    assert decode(step.arguments) == {"order": 17}
    [done] = of_type(out, StepCompleted)
    assert decode(done.result) == {"at": [1, None]}
    assert of_type(out, MessageAdded)[1].step == done.step == 1
    assert of_type(out, MessageAdded)[0].step is None


def test_what_is_not_mapped_stays_with_the_message():
    """Each unmapped field of a message, nulls included, stays in its `fields`."""
    more: dict[str, Any] = {
        "refusal": None,
        "annotations": [],
        "name": "ann",
        "x": {"y": [1.5, "é"]},
    }
    user_message = says("user", [{"type": "text", "text": "hi"}], **more)
    out = made(
        chat({**user_message, "timestamp": "2026-01-01T00:00:00", "cost": 1, "usage": {"a": 1}})
    )
    [message] = of_type(out, MessageAdded)
    assert decode(message.fields) == more
    assert decode(message.content) == user_message["content"]
    assert message.tokens is None


@pytest.mark.parametrize(
    ("fields", "usage", "kept"),
    [
        pytest.param({}, {}, False, id="nothing"),
        pytest.param({"usage": None, "cost": None}, {}, False, id="null"),
        pytest.param(
            {"usage": {"prompt_tokens": 61, "completion_tokens": 12, "total_tokens": 73}},
            {"input_tokens": 61, "output_tokens": 12, "total_tokens": 73},
            False,
            id="openai",
        ),
        pytest.param({"cost": 0.25}, {"cost": 0.25}, False, id="cost"),
        pytest.param({"cost": 0}, {"cost": 0}, False, id="free"),
        pytest.param(
            {"usage": {"a": {"b": {"c": 1.5}, "d": None}, "e": None}},
            {"a.b.c": 1.5},
            False,
            id="nested",
        ),
        pytest.param(
            {"usage": {"n": 1, "service_tier": "standard"}}, {"n": 1}, True, id="a text in it"
        ),
        pytest.param({"usage": {"n": True, "m": [1]}}, {}, True, id="no numbers"),
        pytest.param({"usage": {"n": 2**60}}, {}, True, id="an integer JSON does not keep"),
        pytest.param(
            {"usage": {"prompt_tokens": 1, "input_tokens": 2}},
            {"input_tokens": 1},
            True,
            id="two names for one thing",
        ),
        pytest.param(
            {"usage": {"cost": 1}, "cost": 2}, {"cost": 2}, True, id="two costs that differ"
        ),
        pytest.param({"usage": {str(n): n for n in range(1_000)}}, {}, True, id="too many"),
    ],
)
def test_usage_is_numbers_by_name(fields, usage, kept):
    """Missing usage stays missing; usage that is not only numbers is also kept verbatim."""
    [message] = of_type(made(chat(says("assistant", "hi", **fields))), MessageAdded)
    assert message.usage == usage
    assert values.load(message.fields) == ({"usage": fields["usage"]} if kept else None)


@pytest.mark.parametrize(
    ("timestamp", "occurred_at"),
    [
        ("2026-03-03T19:20:24.239382", "2026-03-03T19:20:24.239382"),
        ("2026-03-03 19:20+02:00", "2026-03-03 19:20+02:00"),
        (1732159999, "1732159999"),
        (1732159999.25, "1732159999.25"),
        (None, None),
        ("", None),
    ],
)
def test_what_a_source_claims_about_time_is_occurred_at(timestamp, occurred_at):
    """A message's timestamp is the `occurred_at` of its events, first and last of its run."""
    record = chat(asks(call("c", "t"), timestamp=timestamp), answer("c", "r"), outcome={})
    out = made(record)
    claimed = [[e.occurred_at for e in append.commit.events] for append in out.appends]
    begin = [[occurred_at] * 2, [occurred_at]]
    assert claimed == [*begin, [occurred_at] * 3, [None] * 2, [None], [None]]
    assert {append.commit.at for append in out.appends} == {datetime(2026, 11, 21, 10, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("given_", "arguments"),
    [
        ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
        ({"a": 1}, {"a": 1}),
        ("[1, 2]", {"arguments": [1, 2]}),
        ("17", {"arguments": 17}),
        ("", {"arguments": ""}),
        ('{"a": 1', {"arguments": '{"a": 1'}),
        ("{'a': 1}", {"arguments": "{'a': 1}"}),
        ('{"a": NaN}', {"arguments": '{"a": NaN}'}),
        ('{"a": "\\ud800"}', {"arguments": '{"a": "\\ud800"}'}),
        ("[" * 100_000, {"arguments": "[" * 100_000}),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", None),
        (None, {"arguments": None}),
        (msgspec.UNSET, {}),
    ],
)
def test_arguments_are_the_object_they_hold(given_, arguments):
    """Arguments are a JSON object or a text of one; anything else is a single argument."""
    request = call("c", "t", given_)
    if given_ is msgspec.UNSET:
        del request["function"]["arguments"]
    out = made(chat(asks(request)))
    [step] = of_type(out, StepRequested)
    stored = decode(step.arguments)
    if "$blob" in str(stored):
        [stored] = [{"arguments": json.loads(blob)} for blob in out.blobs if blob.startswith(b'"')]
    assert stored == ({"arguments": given_} if arguments is None else arguments)
    assert not rederived(out)[0].differs


@pytest.mark.parametrize(
    "shape",
    [
        {"id": "c", "function": {"name": "t", "arguments": '{"a": 1}'}},
        {"id": "c", "name": "t", "arguments": {"a": 1}, "requestor": "assistant"},
    ],
)
def test_a_call_has_one_of_three_shapes(shape):
    """OpenAI's function calls and flat ones are the same step."""
    [step] = of_type(made(chat(asks(shape))), StepRequested)
    assert (step.tool, decode(step.arguments), step.call_id) == ("t", {"a": 1}, "c")


def test_a_tool_that_takes_a_text_is_called_with_it():
    """OpenAI's custom calls have one input, which is no JSON."""
    out = made(chat(asks({"id": "c", "type": "custom", "custom": {"name": "t", "input": "x = 1"}})))
    [step] = of_type(out, StepRequested)
    assert (step.tool, decode(step.arguments)) == ("t", {"arguments": "x = 1"})


def results(out: Any) -> list[tuple[int, Any]]:
    """Return the outcomes in order: which step, what result."""
    return [(done.step, decode(done.result)) for done in of_type(out, StepCompleted)]


def test_an_id_that_is_used_again_is_the_newest_call_without_a_result():
    """Ids need not be unique in a chat: each result goes to the newest call that has none."""
    out = made(
        chat(
            asks(call("c", "t")),
            answer("c", 1),
            asks(call("c", "t")),
            asks(call("c", "t")),
            answer("c", 3),
            answer("c", 2),
        )
    )
    assert results(out) == [(1, 1), (3, 3), (2, 2)]
    assert out.tally.unanswered == []


def test_equal_ids_in_one_message_are_answered_in_their_order():
    """Without distinct ids, results are matched to calls by their order."""
    out = made(chat(asks(call("", "t"), call("", "u")), answer("", 1), answer("", 2)))
    assert results(out) == [(1, 1), (2, 2)]


def test_a_call_without_a_result_stays_open_and_is_listed():
    """The step is there without an outcome, and the importer says so."""
    out = made(chat(asks(call("c1", "t"), call("c2", "t"), call(None, "t")), answer("c2", "r")))
    assert [call for _, call in out.tally.unanswered] == ["c1", ""]
    state = fold(agents.AgentState(), events(out, MAIN))
    assert [step.number for step in state.open_steps] == [1, 3]


def test_a_result_without_a_call_is_a_message():
    """An unrequested or second result is kept as a message without a step, and counted."""
    out = made(chat(answer("c0", "early"), asks(call("c1", "t")), answer("c1", 1), answer("c1", 2)))
    assert out.tally.unasked == 2
    assert [message.step for message in of_type(out, MessageAdded)] == [None, None, 1, None]
    assert results(out) == [(1, 1)]


def test_a_users_calls_stay_in_the_message():
    """A user's tools (tau2-bench) are not the agent's: no steps, and nobody wonders at results."""
    message = says("user", None, tool_calls=[{"id": "u1", "name": "dial", "arguments": {}}])
    out = made(chat(message, {"role": "tool", "id": "u1", "content": "ok", "requestor": "user"}))
    assert (out.tally.calls, out.tally.unasked, out.tally.unanswered) == (0, 0, [])
    assert decode(of_type(out, MessageAdded)[0].fields) == {"tool_calls": message["tool_calls"]}


def test_a_tool_that_says_error_failed():
    """`error: true` of a tool's message is a failed step; its content is still the message's."""
    out = made(chat(asks(call("c", "t")), answer("c", "no such order", error=True)))
    [failed] = of_type(out, StepFailed)
    assert (failed.step, failed.error.message, failed.safe) == (1, "no such order", False)
    assert decode(of_type(out, MessageAdded)[1].content) == "no such order"


def test_a_message_goes_to_the_agent_it_names():
    """A name in `roles` is an agent with its own stream; any other stays in the message."""
    out = made(
        chat(
            says("user", "hello", name="ann"),
            asks(call("c1", "t"), name="planner"),
            asks(call("c2", "t"), name="coder"),
            answer("c1", 1, name="coder"),
            answer("c2", 2),
            agent="lead",
            role="manager",
            roles={"planner": "plans", "coder": "writes code"},
            outcome={"error": "late"},
        )
    )
    joined = {event.agent: event.role for event in of_type(out, AgentJoined)}
    assert joined == {"lead": "manager", "planner": "plans", "coder": "writes code"}
    streams = {agent: f"agent/{role}/{agent}" for agent, role in joined.items()}
    counts = {agent: len(of_type(out, MessageAdded, name)) for agent, name in streams.items()}
    assert counts == {"lead": 1, "planner": 2, "coder": 2}
    steps = [event.step for event in of_type(out, StepRequested)]
    assert steps == [1, 1]
    assert decode(of_type(out, MessageAdded, streams["lead"])[0].fields) == {"name": "ann"}
    assert "name" not in decode(of_type(out, MessageAdded, streams["coder"])[0].fields)
    answered = of_type(out, MessageAdded, streams["planner"])[1]
    assert decode(answered.fields) == {"tool_call_id": "c1", "name": "coder"}
    assert {append.commit.actor.on_behalf_of for append in out.appends} == {
        ("lead",),
        ("planner",),
        ("coder",),
    }
    assert [event.outcome for event in of_type(out, AgentLeft)] == ["failed"] * 3


def test_an_agent_without_a_part_does_not_join():
    """An agent without messages does not join, and neither does an unneeded `assistant`."""
    record = chat(says("user", "x", name="a"), roles={"a": "r", "b": "r"})
    assert [event.agent for event in of_type(made(record), AgentJoined)] == ["a", "b"]
    record["messages"].append(says("user", "y"))
    names = [event.agent for event in of_type(made(record), AgentJoined)]
    assert names == ["assistant", "a", "b"]


def test_two_roles_for_one_agent_are_refused():
    """An agent has one role in a run."""
    with pytest.raises(BadValue, match="one role in a run"):
        made(chat(agent="a", role="x", roles={"a": "y"}))
    assert made(chat(agent="a", role="x", roles={"a": "x"})).tally.events == 3


def life(record: dict[str, Any], given_: ImportDefaults | None = None) -> runs.RunState:
    """Return a run's life, folded."""
    return fold(runs.RunState(), events(made(record, given_), "life"))


def test_the_life_says_what_the_run_was():
    """A run's stream has workflow, assignment, origin and roster."""
    state = life(chat(experiment="e", arm="a", task=7, trial=2))
    assert state.workflow == "w"
    assert state.assigned == RunAssigned(experiment="e", arm="a", task="7", trial=2)
    assert state.labels == {"source": "chat-jsonl", "source_file": "some.jsonl", "source_run": "r"}
    assert state.roster == {"assistant": "assistant"}


def test_what_is_not_known_is_not_assigned():
    """A record that names neither experiment nor task is assigned to nothing."""
    assert life({"messages": []}).assigned is None
    assert life({"messages": []}).workflow == "chat"
    assert life({"messages": [], "trial": 0}).assigned == RunAssigned(trial=0)


@pytest.mark.parametrize(
    ("outcome", "status", "scores"),
    [
        (None, "open", {}),
        ({}, "completed", {}),
        ({"error": None}, "completed", {}),
        ({"reward": 0.5, "n": 3, "won": True, "lost": False, "x": None}, "completed", None),
        ({"error": "out of time"}, "failed", {}),
        ({"error": {"agent": "x"}, "reward": 0}, "failed", {"reward": 0}),
        ({"error": ""}, "failed", {}),
    ],
)
def test_how_a_run_ended_is_what_its_outcome_says(outcome, status, scores):
    """No outcome leaves a run open, an error fails it, and the rest are metrics."""
    state = life(chat(outcome=outcome))
    assert state.status == status
    expected = {"reward": 0.5, "n": 3, "won": 1, "lost": 0} if scores is None else scores
    assert state.scores == expected
    assert [scored.by for scored in state.judged] == ["chat-jsonl"] * bool(expected)


def test_a_failed_run_says_why():
    """A failed run has the error's text, or its JSON."""
    assert of_type(made(chat(outcome={"error": "late"})), RunFailed)[0].error.message == "late"
    [failed] = of_type(made(chat(outcome={"error": {"a": [1]}})), RunFailed)
    assert failed.error.message == '{"a":[1]}'


@pytest.mark.parametrize("value", ["1.0", [1], {"a": 1}, 10**400])
def test_a_metric_is_a_finite_number(value):
    """A metric that is no finite number is refused by name."""
    with pytest.raises(BadValue, match=r"outcome\.reward"):
        made(chat(outcome={"reward": value}))


def test_ids_derive_from_the_content_alone():
    """Equal values give equal commits at any time; any other value makes another run."""
    record = chat(asks(call("c", "t")), answer("c", 1.50), trial=1, outcome={"reward": 1})
    turned = json.loads(json.dumps(dict(reversed(record.items()))).replace("1.5,", "1.50,"))
    later = made(turned, at=datetime(2027, 1, 1, tzinfo=UTC))
    assert [bare(a) for a in made(record).appends] == [bare(a) for a in later.appends]
    others = [
        {**record, "trial": 2},
        {**record, "run": "s"},
        {**record, "outcome": {"reward": 1, "x": None}},
        chat(asks(call("c", "t")), answer("c", 1.51), trial=1, outcome={"reward": 1}),
    ]
    assert len({made(each).run for each in [record, *others]}) == 5


def test_ids_never_change():
    """The ids of an import are part of the storage format."""
    out = made(chat(says("user", "hi"), experiment="é", outcome={"reward": 0.5}))
    first = out.appends[0].commit
    assert (out.run, first.id, first.events[1].id) == GOLDEN


GOLDEN = (
    "848260e2-342d-81a5-b30d-005c5ed4e3e0",
    "cbd1d152-1a83-8ab6-b2be-e5c5a3576614",
    "21939969-8b9c-8f29-af9a-1f5aed4e96f6",
)


def test_ids_are_unique():
    """No two commits and no two events of a run have one id."""
    out = made(chat(*(asks(call("c", "t")) for _ in range(50)), roles={"a": "r"}))
    commits = [append.commit for append in out.appends]
    ids = [commit.id for commit in commits] + [e.id for c in commits for e in c.events]
    assert len(set(ids)) == len(ids)


def test_large_contents_are_blobs():
    """Content over 64 KiB is one blob, shared by a tool's result and message."""
    big = "x" * 100_000
    out = made(chat(says("system", big), asks(call("c", "t")), answer("c", big, y=[big])))
    assert len(out.blobs) == 4
    assert len(set(out.blobs)) == 2
    assert max(len(encode(a.stream, a.commit)) for a in out.appends) < 10_000
    assert not rederived(out)[0].differs


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([call(f"c{n}", f"tool {n}") for n in range(500)], id="500 tools"),
        pytest.param(
            [call(f"c{n}", "t", json.dumps({"x": "y" * 60_000})) for n in range(20)],
            id="60 KB of arguments each",
        ),
        pytest.param(
            [call("c", "t", json.dumps({f"x{k}": "y" * 50_000 for k in range(9)}))] * 9,
            id="450 KB of arguments each",
        ),
    ],
)
def test_no_commit_is_too_large_whatever_the_message(calls):
    """A message with many calls is several commits of its stream, each within the log's limit."""
    out = made(chat(asks(*calls), outcome={}))
    sizes = [len(encode(append.stream, append.commit)) for append in out.appends]
    assert max(sizes) <= COMMIT_BYTES_MAX
    assert len(of_type(out, StepRequested)) == len(calls)
    check_lawful(out)


def test_a_name_that_cannot_be_one_is_refused_with_its_place():
    """The reason says which message it is about."""
    record = chat(says("user", "x"), asks(call("c", "a\x00b")))
    with pytest.raises(CallerError, match=r"messages\[1\]: tool name 'a\\x00b' is not valid"):
        made(record)


def check_lawful(out: Any) -> None:
    """Contiguous versions in every stream, events that fold, and calls that derive again."""
    versions: dict[str, int] = {}
    for append in out.appends:
        name = str(append.stream)
        assert append.commit.version == versions.get(name, 0) + 1
        versions[name] = append.commit.last_version
        assert len(encode(append.stream, append.commit)) <= COMMIT_BYTES_MAX
    for name, version in versions.items():
        if name == "life":
            assert fold(runs.RunState(), events(out, name)).version == version
        else:
            check_agent(events(out, name))
    checked = rederived(out)
    assert len(checked) == out.tally.calls
    assert [each for each in checked if each.differs or each.unproven] == []


def check_agent(recorded_events: list[Any]) -> None:
    """Check that the domain's rules accept every event as news of a session."""
    state = agents.AgentState()
    for event in recorded_events:
        match event:
            case SessionBegan():
                news: Any = [event]
            case ToolDeclared():
                news = agents.decide(state, agents.Declare(event))
            case MessageAdded():
                news = agents.decide(state, agents.Note(event))
            case AgentLeft():
                news = agents.decide(state, agents.Leave(event.outcome, event.error))
            case _:
                news = agents.decide(state, agents.Tell(event))
        assert list(news) == [event]
        state = fold(state, [event])


ids = st.sampled_from(["c1", "c2", "", None])
contents = strategies.json_values
tool_calls = st.builds(
    call, ids, st.sampled_from(["t", "u"]), st.one_of(contents, contents.map(json.dumps))
)
messages = st.one_of(
    st.builds(says, st.sampled_from(["user", "system"]), contents),
    st.builds(lambda content, name: says("user", content, name=name), contents, st.just("a")),
    st.builds(lambda calls: asks(*calls), st.lists(tool_calls, max_size=3)),
    st.builds(lambda calls: asks(*calls, name="a"), st.lists(tool_calls, max_size=3)),
    st.builds(answer, ids, contents),
    st.builds(lambda id_, content: answer(id_, content, error=True), ids, contents),
)


@pytest.mark.slow
@given(st.lists(messages, max_size=12), st.booleans())
def test_any_chat_is_what_sessions_could_have_recorded(chat_messages, ended):
    """Any chat folds by the domain's rules, and each of its calls derives again."""
    record = chat(*chat_messages, roles={"a": "r"}, **({"outcome": {}} if ended else {}))
    out = made(record)
    check_lawful(out)
    assert len(of_type(out, MessageAdded)) == len(chat_messages)
    assert len(of_type(out, StepRequested)) == out.tally.calls
    done = len(of_type(out, StepCompleted)) + len(of_type(out, StepFailed))
    assert done + len(out.tally.unanswered) == out.tally.calls
    assert bool(of_type(out, RunCompleted)) == ended
    assert len(of_type(out, RunStarted)) == 1
    assert of_type(out, RunScored) == []
