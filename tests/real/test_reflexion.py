"""Reflexion: gains of an agent with a memory of failures, from trial to trial."""

import json
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from hansard.agents.workspace import RunLife
from tests.real import support
from tests.real.converters import reflexion

pytestmark = pytest.mark.real

ALFWORLD = {"reflexion": "reflexion_run_logs", "base": "base_run_logs"}
SUCCESS = {
    "reflexion": [84, 103, 111, 113, 117, 118, 123, 126, 128, 129, 130, 130, 131, 133, 134],
    "base": [84, 94, 97, 98, 100, 101, 101],
}
"""Environments of 134 in which each trial succeeded."""

PROGRAMMING = {
    "reflexion_mbpp_py/mbpp-py._reflexion_5_gpt-4_pass_at_k_1_py": 306,
    "simple_mbpp_py/mbpp-py._simple_1_gpt-4_pass_at_k_1_py": 318,
    "reflexion_humaneval_rs_hard50/humaneval-rs._reflexion_5_gpt-4_pass_at_k_1_rs": 34,
    "simple_humaneval_rs_hard50/humaneval-rs._simple_1_gpt-4_pass_at_k_1_rs": 30,
}
"""Problems solved of 397 in Python, 50 in Rust."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a workspace of its own for this data set."""
    with support.opened(tmp_path_factory.mktemp("reflexion")) as made:
        yield made


Lives = Callable[[str, str], list[RunLife]]


@pytest.fixture(scope="module")
def lives(place, real_data, tmp_path_factory) -> Lives:
    """Return a function that gives the recorded lives of an arm, imported on first use."""
    folder = tmp_path_factory.mktemp("chats")

    @cache
    def of(experiment: str, arm: str) -> list[RunLife]:
        source = real_data / "reflexion" / "dev" / experiment
        if experiment == "alfworld":
            chats = reflexion.alfworld(source / ALFWORLD[arm])
        else:
            chats = reflexion.programming(source / f"{arm}.jsonl")
        file = folder / f"{experiment}-{arm.replace('/', '-')}.jsonl"
        support.write(file, chats)
        place.imported("chat-jsonl", file, experiment, arm)
        assigned_lives = [(support.assigned(life), life) for life in place.lives()]
        return [
            life
            for assignment, life in assigned_lives
            if (assignment.experiment, assignment.arm) == (experiment, arm)
        ]

    return of


@pytest.mark.thorough(
    quick="real/test_tau_bench.py::test_the_published_airline_figures_come_out_of_the_record"
)
@pytest.mark.parametrize("arm", SUCCESS)
def test_success_by_trial_comes_out_of_the_record(lives, arm):
    """84 of 134 environments succeed at first, all by trial 15, 101 without Reflexion."""
    expected = SUCCESS[arm]
    mine = [life.state for life in lives("alfworld", arm)]
    tried = Counter(state.assigned.trial for state in mine)
    assert tried == dict.fromkeys(range(len(expected)), 134)
    won = Counter[int]()
    for state in mine:
        won[state.assigned.trial] += int(state.scores["success"])
    assert [won[trial] for trial in sorted(won)] == expected


@pytest.mark.thorough(quick="real/test_tau_bench.py::test_every_message_is_on_record")
def test_what_an_agent_remembers_is_its_context(place, lives, real_data):
    """A trial's memories are the messages of its run, in order and to the letter."""
    folder = real_data / "reflexion" / "dev" / "alfworld" / ALFWORLD["reflexion"]
    last = json.loads((folder / "env_results_trial_14.json").read_bytes())
    expected = {each["name"]: each["memory"] for each in last}
    assert max(map(len, expected.values())) > 10
    mine = lives("alfworld", "reflexion")
    memories: dict[str, list[str]] = {}
    for commit in place.stored():
        for message in commit.events("message.added.v1"):
            memories.setdefault(commit.run, []).append(message["content"])
    runs = {life.state.assigned.task: life.run for life in mine if life.state.assigned.trial == 14}
    assert {task: memories.get(run, []) for task, run in runs.items()} == expected


@pytest.mark.thorough
def test_solved_problems_come_out_of_the_record(lives):
    """Problems solved with and without reflection, in two languages."""
    solved = {
        arm: sum(life.state.scores["success"] for life in lives("programming", arm))
        for arm in PROGRAMMING
    }
    assert solved == PROGRAMMING
