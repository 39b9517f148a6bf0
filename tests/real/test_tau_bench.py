"""tau-bench: gpt-4o on 50 airline tasks, four trials each; two strategies on 100 retail tasks."""

from inspect import Parameter, Signature

import pytest

import hansard
from tests.real import chats, parsers, support
from tests.real.chats import Source

pytestmark = pytest.mark.real

AIRLINE, TOOLS, PRECONDITIONS = "airline", "tool-calling", "with-preconditions"

SOURCES = [
    Source("tau-bench", file, experiment, arm, parsers.tau, parsers.tau_message)
    for file, experiment, arm in (
        ("gpt-4o-airline.json", "tau-airline", AIRLINE),
        ("agentverify_tool-calling_retail0-99.json", "tau-retail", TOOLS),
        (
            "agentverify_tool-calling-with-preconditions_retail0-99.json",
            "tau-retail",
            PRECONDITIONS,
        ),
    )
]

COUNTS = {
    AIRLINE: {
        "runs": 200,
        "messages": 5_308,
        "calls": 1_164,
        "assistant": 2_454,
        "user": 1_490,
        "tool": 1_164,
        "system": 200,
    },
    TOOLS: {
        "runs": 100,
        "messages": 3_036,
        "calls": 793,
        "assistant": 1_418,
        "user": 725,
        "tool": 793,
        "system": 100,
    },
    PRECONDITIONS: {
        "runs": 100,
        "messages": 3_258,
        "calls": 876,
        "assistant": 1_529,
        "user": 753,
        "tool": 876,
        "system": 100,
    },
}


@pytest.fixture(scope="module")
def folder(real_data):
    """Return the folder of the files."""
    return real_data / "tau-bench" / "dev"


@pytest.fixture(scope="module")
def imported(tmp_path_factory, folder):
    """By arm: a workspace of its own, and the file in it."""
    with chats.by_arm(tmp_path_factory, SOURCES, folder) as of:
        yield of


@pytest.fixture(
    params=[
        AIRLINE,
        pytest.param(TOOLS, marks=pytest.mark.thorough),
        pytest.param(PRECONDITIONS, marks=pytest.mark.thorough),
    ]
)
def _each(request, imported):
    return imported(request.param)


@pytest.fixture
def place(_each):
    """Return the workspace of the file."""
    return _each[0]


@pytest.fixture
def dataset(_each):
    """Return each of the files in turn; those of retail have the first one's kind."""
    return _each[1]


def test_counts_are_as_documented(dataset):
    """Runs, messages by role and calls agree: documented, parsed, reported and recorded."""
    chats.check_counts(dataset, COUNTS[dataset.source.arm])


def test_every_message_is_on_record(dataset):
    """Each message has exactly the role, content, name and calls of its source."""
    chats.check_messages(dataset)
    events = [e for trial in dataset.trials for e in trial.events("message.added.v1")]
    assert not [e for e in events if e["occurred_at"] is not None or e.get("usage")]


def test_every_call_has_its_result_or_is_listed(dataset):
    """Each call is a step with its result, though ids repeat within a run."""
    chats.check_calls(dataset)
    again = [
        len(ids) - len(set(ids))
        for ids in ([id_ for id_, _, _ in trial.chat.called()] for trial in dataset.trials)
    ]
    assert sum(again) == (73 if dataset.source.arm == AIRLINE else 0)


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


def test_an_imported_run_answers_a_program(place, dataset):
    """A strict replay of an imported run gives its results and runs no tool."""
    ran: list[object] = []
    with hansard.connect(support.WORKSPACE, data_dir=place.home) as record:
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


def test_errors_of_tools_are_failed_steps(dataset):
    """By the convention of tau-bench: they read as success before."""
    failed = sum(len(trial.events("step.failed.v1")) for trial in dataset.trials)
    assert failed == {AIRLINE: 73, TOOLS: 34, PRECONDITIONS: 25}[dataset.source.arm]
