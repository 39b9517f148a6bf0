"""tau2-bench: two systems on the same 50 airline tasks, with times, usage and cost."""

import json
from math import fsum
from statistics import fmean

import pytest

from tests.real import chats, parsers
from tests.real.chats import Source
from tests.real.support import opened

pytestmark = pytest.mark.real

OPUS, SONNET = "button-claude-opus-4-6", "claude-sonnet-4-5"

SOURCES = [
    Source("tau2-bench", file, "tau2-airline", arm, parsers.tau2, parsers.tau2_message)
    for file, arm in (
        ("airline_button-claude-opus-4-6_distyl.json", OPUS),
        ("airline_claude-sonnet-4-5_aide.json", SONNET),
    )
]

COUNTS = {
    OPUS: {"runs": 50, "messages": 1_196, "calls": 435, "assistant": 474, "user": 287, "tool": 435},
    SONNET: {
        "runs": 50,
        "messages": 1_188,
        "calls": 371,
        "assistant": 517,
        "user": 300,
        "tool": 371,
    },
}

COST_MEAN = {OPUS: 0.41363, SONNET: 0.28886496}
"""Published dollars a task."""

CLAIMS = {
    OPUS: "submission_button-claude-opus-4-6.json",
    SONNET: "submission_claude-sonnet-4-5_aide.json",
}


@pytest.fixture(scope="module")
def folder(real_data):
    """Return the folder of the files."""
    return real_data / "tau2-bench" / "dev"


@pytest.fixture(scope="module")
def imported(tmp_path_factory, folder):
    """By arm: a workspace of its own, and the file in it."""
    with chats.by_arm(tmp_path_factory, SOURCES, folder) as of:
        yield of


@pytest.fixture(params=[OPUS, pytest.param(SONNET, marks=pytest.mark.thorough)])
def _each(request, imported):
    return imported(request.param)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("arm", "submitted", "contradicted"),
    [(OPUS, OPUS, set()), (SONNET, SONNET, set()), (SONNET, OPUS, {"cost", "pass_1"})],
)
def test_the_audit_reads_what_a_submission_claims(
    tmp_path_factory, folder, arm, submitted, contradicted
):
    """The audit confirms each system's submission and contradicts the other's."""
    [source] = [source for source in SOURCES if source.arm == arm]
    with opened(tmp_path_factory.mktemp("claims")) as place:
        options = ("--experiment", "e", "--arm", arm)
        files = (str(folder / source.file), str(folder / CLAIMS[submitted]))
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


@pytest.fixture
def place(_each):
    """Return the workspace of the file."""
    return _each[0]


@pytest.fixture
def dataset(_each):
    """Each of the files in turn."""
    return _each[1]


def test_counts_are_as_parsed(dataset):
    """Runs, messages by role and calls agree: counted beforehand, parsed, reported and recorded."""
    chats.check_counts(dataset, COUNTS[dataset.source.arm])


def test_every_message_is_on_record(dataset):
    """Each message has the role, content, calls, usage, cost and time of its source."""
    chats.check_messages(dataset)


def test_every_call_has_its_result(dataset):
    """Each call is a step with its result; one error of the source is a failed step."""
    chats.check_calls(dataset)
    assert dataset.report["unanswered"] == []
    failed = sum(len(trial.events("step.failed.v1")) for trial in dataset.trials)
    assert failed == (1 if dataset.source.arm == SONNET else 0)


def test_a_run_says_what_it_was_a_trial_of(dataset):
    """Experiment, arm, task, trial and reward are on the run's life."""
    chats.check_assignment(dataset)


@pytest.mark.slow
def test_any_point_is_the_prefix_of_the_source(place, dataset):
    """At 20 random positions of each file the run and its context equal the parser's."""
    for trial, position in chats.random_points(dataset):
        chats.check_show(place, trial, position)
        chats.check_context(place, dataset, trial, position)


def test_a_sample_is_derived_again(place, dataset):
    """No call of a sample of runs differs when it is derived again, and none is unproven."""
    assert chats.check_replay(place, dataset) > 0


@pytest.mark.slow
def test_importing_again_changes_nothing(place, dataset, folder):
    """The second import of a file finds all of it and appends nothing."""
    chats.check_again(place, dataset, folder)


def test_nothing_is_wrong_with_the_whole(place):
    """The recheck of the workspace finds nothing."""
    chats.check_whole(place)


def _cost(trial):
    """Return the recorded cost of the assistant's messages of a run."""
    messages = trial.events("message.added.v1")
    return fsum(each["usage"]["cost"] for each in messages if each["role"] == "assistant")


def test_the_agents_cost_is_that_of_its_messages(dataset):
    """The claimed agent cost is the sum over its messages, and its mean is as published."""
    costs = [_cost(trial) for trial in dataset.trials]
    assert costs == [pytest.approx(trial.chat.agent_cost, abs=1e-12) for trial in dataset.trials]
    scored = [trial.life.state.scores["agent_cost"] for trial in dataset.trials]
    assert costs == [pytest.approx(cost, abs=1e-12) for cost in scored]
    assert fmean(costs) == pytest.approx(COST_MEAN[dataset.source.arm], abs=5.1e-6)


@pytest.mark.slow
def test_the_published_claim_comes_out_of_the_record(dataset, folder):
    """pass^1 of 76.0 and 72.0 percent, and the mean cost, as each submission claims them."""
    claim = json.loads((folder / CLAIMS[dataset.source.arm]).read_bytes())["results"]["airline"]
    lives = [trial.life for trial in dataset.trials]
    assert round(100 * chats.pass_hat(lives, 1), 9) == claim["pass_1"]
    assert claim["pass_1"] == {OPUS: 76.0, SONNET: 72.0}[dataset.source.arm]
    assert fmean(_cost(trial) for trial in dataset.trials) == pytest.approx(claim["cost"], abs=5e-5)
