"""tau-bench and tau2-bench: imported files against their sources and their published figures.

tau-bench: gpt-4o on 50 airline tasks, four trials each; two strategies on 100 retail tasks.
tau2-bench: two systems on the same 50 airline tasks, with times, usage and cost.
"""

import json
from inspect import Parameter, Signature
from math import fsum
from statistics import fmean

import pytest

import hansard
from tests.real import chats, parsers
from tests.real.chats import Source
from tests.real.support import WORKSPACE, opened

pytestmark = pytest.mark.real

AIRLINE, TOOLS, PRECONDITIONS = "airline", "tool-calling", "with-preconditions"
OPUS, SONNET = "button-claude-opus-4-6", "claude-sonnet-4-5"

DEV = "tau2-bench/dev"

SOURCES = [
    *(
        Source(
            "tau-bench", f"tau-bench/dev/{file}", experiment, arm, parsers.tau, parsers.tau_message
        )
        for file, experiment, arm in (
            ("gpt-4o-airline.json", "tau-airline", AIRLINE),
            ("agentverify_tool-calling_retail0-99.json", "tau-retail", TOOLS),
            (
                "agentverify_tool-calling-with-preconditions_retail0-99.json",
                "tau-retail",
                PRECONDITIONS,
            ),
        )
    ),
    *(
        Source(
            "tau2-bench", f"{DEV}/{file}", "tau2-airline", arm, parsers.tau2, parsers.tau2_message
        )
        for file, arm in (
            ("airline_button-claude-opus-4-6_distyl.json", OPUS),
            ("airline_claude-sonnet-4-5_aide.json", SONNET),
        )
    ),
]

# arm: runs, messages, calls; messages of the assistant, of users, of tools, of the system
COUNTED = {
    AIRLINE: (200, 5_308, 1_164, 2_454, 1_490, 1_164, 200),
    TOOLS: (100, 3_036, 793, 1_418, 725, 793, 100),
    PRECONDITIONS: (100, 3_258, 876, 1_529, 753, 876, 100),
    OPUS: (50, 1_196, 435, 474, 287, 435),
    SONNET: (50, 1_188, 371, 517, 300, 371),
}
NAMES = ("runs", "messages", "calls", "assistant", "user", "tool", "system")
REPEATED = {AIRLINE: 73}
"""Calls whose id occurred in the same run before."""

FAILED = {AIRLINE: 73, TOOLS: 34, PRECONDITIONS: 25, OPUS: 0, SONNET: 1}
"""Failed steps: by the convention of tau-bench; by a flag of tau2-bench."""

COST_MEAN = {OPUS: 0.41363, SONNET: 0.28886496}
"""Published dollars a task."""

CLAIMS = {
    OPUS: "submission_button-claude-opus-4-6.json",
    SONNET: "submission_claude-sonnet-4-5_aide.json",
}


@pytest.fixture(scope="module")
def imported(tmp_path_factory, real_data):
    """By arm: a workspace of its own, and the file in it."""
    with chats.by_arm(tmp_path_factory, SOURCES, real_data) as of:
        yield of


def _thorough(*arms):
    return [pytest.param(arm, marks=pytest.mark.thorough) for arm in arms]


TAU, TAU2 = [AIRLINE, *_thorough(TOOLS, PRECONDITIONS)], [OPUS, *_thorough(SONNET)]


@pytest.fixture(params=[*TAU, *TAU2])
def arm(request):
    """Each of the files in turn; those of retail have the first one's kind."""
    return request.param


@pytest.fixture
def place(imported, arm):
    """Return the workspace of the file."""
    return imported(arm)[0]


@pytest.fixture
def dataset(imported, arm):
    """Return the file's runs, in the source and on record."""
    return imported(arm)[1]


def test_counts_are_as_documented_and_parsed(dataset, arm):
    """Runs, messages by role and calls agree: documented, parsed, reported and recorded."""
    chats.check_counts(dataset, dict(zip(NAMES, COUNTED[arm], strict=False)))


def test_every_message_is_on_record(dataset, arm):
    """Each message has the role, content, calls, usage, cost and time of its source, and no other
    name or time.
    """
    chats.check_messages(dataset)
    events = [e for trial in dataset.trials for e in trial.events("message.added.v1")]
    timed = [e for e in events if e["occurred_at"] is not None or e.get("usage")]
    assert bool(timed) == (arm in CLAIMS)


def test_every_call_has_its_result_or_is_listed(dataset, arm):
    """Each call is a step with its result, though ids repeat within a run; errors are failed
    steps, which read as success before.
    """
    chats.check_calls(dataset)
    again = [
        len(ids) - len(set(ids))
        for ids in ([id_ for id_, _, _ in trial.chat.called()] for trial in dataset.trials)
    ]
    if arm in CLAIMS:
        assert dataset.report["unanswered"] == []
    else:
        assert sum(again) == REPEATED.get(arm, 0)
    failed = sum(len(trial.events("step.failed.v1")) for trial in dataset.trials)
    assert failed == FAILED[arm]


def test_a_run_says_what_it_was_a_trial_of(dataset):
    """Experiment, arm, task, trial and reward are on the run's life."""
    chats.check_assignment(dataset)


def test_a_sample_is_derived_again(place, dataset):
    """No call of a sample of runs differs when it is derived again, and none is unproven."""
    assert chats.check_replay(place, dataset) > 0


def _program(session, chat, ran):
    """Run the agent that made these calls as a program; each tool would note its execution."""
    results = []
    for _, name, raw_arguments in chat.called():
        arguments = chats.named(raw_arguments)

        def tool(**arguments):
            ran.append(arguments)

        tool.__name__ = name
        tool.__signature__ = Signature([Parameter(n, Parameter.KEYWORD_ONLY) for n in arguments])  # type: ignore[attr-defined] # inspect looks for it
        try:
            results.append(session.tool(tool)(**arguments))
        except hansard.errors.RecordedFailure as failed:  # by the convention of its tools
            results.append(failed.message)
    return results


@pytest.mark.parametrize("arm", TAU)
def test_an_imported_run_answers_a_program(place, dataset):
    """A strict replay of an imported run gives its results and runs no tool."""
    ran: list[object] = []
    with hansard.connect(WORKSPACE, data_dir=place.home) as record:
        for trial in chats.sample(dataset):
            run = record.run(
                "tau-bench", run=trial.life.run, agent="assistant", role="assistant", mode="strict"
            )
            with run as session:
                results = _program(session, trial.chat, ran)
            expected = [
                message.content for message in trial.chat.messages if message.role == "tool"
            ]
            assert results == expected, chats.hint(trial)
    assert ran == []


@pytest.mark.slow
def test_the_published_airline_figures_come_out_of_the_record(imported):
    """pass^1 to pass^4 of gpt-4o over 50 tasks: 0.42, 0.2733, 0.22, 0.20."""
    lives = [trial.life for trial in imported(AIRLINE)[1].trials]
    rates = [round(chats.pass_hat(lives, k), 4) for k in (1, 2, 3, 4)]
    assert rates == [0.4200, 0.2733, 0.2200, 0.2000]


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("arm", "submitted", "contradicted"),
    [(OPUS, OPUS, set()), (SONNET, SONNET, set()), (SONNET, OPUS, {"cost", "pass_1"})],
)
def test_the_audit_reads_what_a_submission_claims(
    tmp_path_factory, real_data, arm, submitted, contradicted
):
    """The audit confirms each system's submission and contradicts the other's."""
    [source] = [source for source in SOURCES if source.arm == arm]
    with opened(tmp_path_factory.mktemp("claims")) as place:
        options = ("--experiment", "e", "--arm", arm)
        files = (str(real_data / source.file), str(real_data / DEV / CLAIMS[submitted]))
        done = place.call("import", "tau2-bench", *files, *options)
        assert done.code == 0, done.err
        *rows, summary = place.call("audit", "--kind", "scores", "--json").lines
    assert {row["what"] for row in rows} == ({"claimed mean"} if contradicted else set())
    named = {
        metric
        for metric in ("pass_1", "cost")
        for row in rows
        if f"{metric} of airline" in row["fact"]
    }
    assert named == contradicted
    blind = [row["why_not"] for row in summary["looked"] if row["what"] == "claimed means"]
    assert any("pass_1 of retail" in (why_not or "") for why_not in blind)


@pytest.mark.slow
@pytest.mark.parametrize("arm", TAU2)
def test_any_point_is_the_prefix_of_the_source(place, dataset):
    """At 20 random positions of each file the run and its context equal the parser's."""
    for trial, position in chats.random_points(dataset):
        chats.check_show(place, trial, position)
        chats.check_context(place, dataset, trial, position)


@pytest.mark.slow
@pytest.mark.parametrize("arm", TAU2)
def test_importing_again_changes_nothing(place, dataset, real_data):
    """The second import of a file finds all of it and appends nothing."""
    chats.check_again(place, dataset, real_data)


@pytest.mark.parametrize("arm", TAU2)
def test_nothing_is_wrong_with_the_whole(place):
    """The recheck of the workspace finds nothing."""
    chats.check_whole(place)


def _cost(trial):
    """Return the recorded cost of the assistant's messages of a run."""
    messages = trial.events("message.added.v1")
    return fsum(each["usage"]["cost"] for each in messages if each["role"] == "assistant")


@pytest.mark.parametrize("arm", TAU2)
def test_the_agents_cost_is_that_of_its_messages(dataset):
    """The claimed agent cost is the sum over its messages, and its mean is as published."""
    costs = [_cost(trial) for trial in dataset.trials]
    assert costs == [pytest.approx(trial.chat.agent_cost, abs=1e-12) for trial in dataset.trials]
    scored = [trial.life.state.scores["agent_cost"] for trial in dataset.trials]
    assert costs == [pytest.approx(cost, abs=1e-12) for cost in scored]
    assert fmean(costs) == pytest.approx(COST_MEAN[dataset.source.arm], abs=5.1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("arm", TAU2)
def test_the_published_claim_comes_out_of_the_record(dataset, real_data):
    """pass^1 of 76.0 and 72.0 percent, and the mean cost, as each submission claims them."""
    claim = json.loads((real_data / DEV / CLAIMS[dataset.source.arm]).read_bytes())
    claim = claim["results"]["airline"]
    lives = [trial.life for trial in dataset.trials]
    assert round(100 * chats.pass_hat(lives, 1), 9) == claim["pass_1"]
    assert claim["pass_1"] == {OPUS: 76.0, SONNET: 72.0}[dataset.source.arm]
    assert fmean(_cost(trial) for trial in dataset.trials) == pytest.approx(claim["cost"], abs=5e-5)
