"""Reflexion: what an agent that remembers its failures gains from trial to trial."""

import json
from collections import Counter

import pytest

from hansard.agents.run_index import RunLife
from tests.real import support
from tests.real.converters import reflexion

pytestmark = pytest.mark.real

ALFWORLD = {
    "reflexion": "reflexion_run_logs",
    "base": "base_run_logs",
}
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
    """A workspace of its own for this data set."""
    with support.opened(tmp_path_factory.mktemp("reflexion")) as made:
        yield made


@pytest.fixture(scope="module")
def lives(place, real_data, tmp_path_factory):
    """All of it imported; the lives on record, by experiment and arm."""
    folder = tmp_path_factory.mktemp("chats")
    for arm, name in ALFWORLD.items():
        file = folder / f"{arm}.jsonl"
        support.write(file, reflexion.alfworld(real_data / "reflexion" / "dev" / "alfworld" / name))
        place.imported("chat-jsonl", file, "alfworld", arm)
    for number, name in enumerate(PROGRAMMING):
        file = folder / f"{number}.jsonl"
        source = real_data / "reflexion" / "dev" / "programming" / f"{name}.jsonl"
        support.write(file, reflexion.programming(source))
        place.imported("chat-jsonl", file, "programming", name)
    found: dict[tuple[str, str], list[RunLife]] = {}
    for life in place.lives():
        assigned = support.assigned(life)
        found.setdefault((assigned.experiment, assigned.arm), []).append(life)
    return found


def test_success_by_trial_comes_out_of_the_record(lives):
    """134 environments a trial; 84 succeed in the first, all in the fifteenth with Reflexion, 101
    in the seventh without.
    """
    for arm, wanted in SUCCESS.items():
        mine = [life.state for life in lives["alfworld", arm]]
        tried = Counter(state.assigned.trial for state in mine)
        assert tried == dict.fromkeys(range(len(wanted)), 134)
        won = Counter[int]()
        for state in mine:
            won[state.assigned.trial] += int(state.scores["success"])
        assert [won[trial] for trial in sorted(won)] == wanted


@pytest.mark.slow
def test_what_an_agent_remembers_is_its_context(place, lives, real_data):
    """A trial's memories are the messages of its run, in order and to the letter."""
    folder = real_data / "reflexion" / "dev" / "alfworld" / ALFWORLD["reflexion"]
    last = json.loads((folder / "env_results_trial_14.json").read_bytes())
    wanted = {each["name"]: each["memory"] for each in last}
    assert max(map(len, wanted.values())) > 10
    said: dict[str, list[str]] = {}
    for commit in place.stored():
        for message in commit.events("message.added.v1"):
            said.setdefault(commit.run, []).append(message["content"])
    runs = {
        life.state.assigned.task: life.run
        for life in lives["alfworld", "reflexion"]
        if life.state.assigned.trial == 14
    }
    assert {task: said.get(run, []) for task, run in runs.items()} == wanted


@pytest.mark.thorough
def test_solved_problems_come_out_of_the_record(lives):
    """Problems solved with and without reflection, in two languages."""
    solved = {
        arm: sum(life.state.scores["success"] for life in found)
        for (experiment, arm), found in lives.items()
        if experiment == "programming"
    }
    assert solved == PROGRAMMING
