"""Tree of Thoughts, Game of 24: three ways to prompt, the same 100 puzzles."""

import itertools
from statistics import fmean

import pytest
import scipy  # type: ignore[import-untyped]  # untyped; `stats` loads where first used

from tests.real import support
from tests.real.converters import game24

pytestmark = pytest.mark.real

ARMS = {
    "io": "gpt-4_0.7_naive_standard_sample_100_start900_end1000.json",
    "cot": "gpt-4_0.7_naive_cot_sample_100_start900_end1000.json",
    "tot": "gpt-4_0.7_propose1_value3_greedy5_start900_end1000.json",
}
SAMPLES = {"io": 100, "cot": 100, "tot": 5}
"""Answers a puzzle, by arm."""


@pytest.fixture(scope="module")
def imported(real_data, tmp_path_factory):
    """Return the place of the three imported arms, the reports, and the recorded lives by arm."""
    folder = tmp_path_factory.mktemp("game24")
    with support.opened(folder / "data") as place:
        reports = {}
        for arm, name in ARMS.items():
            file = folder / f"{arm}.jsonl"
            source = real_data / "tree-of-thought" / "dev" / "game24" / name
            support.write(file, game24.convert(source))
            reports[arm] = place.imported("chat-jsonl", file, "game24", arm)
        lives = place.lives()
        yield (
            place,
            reports,
            {arm: [each for each in lives if support.assigned(each).arm == arm] for arm in ARMS},
        )


def _mean(lives, metric):
    return fmean(life.state.scores[metric] for life in lives)


@pytest.mark.thorough
def test_every_arm_has_the_same_100_puzzles(imported):
    """100 puzzles an arm, the same ones, each with all its samples as messages."""
    _, reports, lives = imported
    tasks = {str(number) for number in range(900, 1000)}
    for arm, arm_lives in lives.items():
        assert {life.state.assigned.task for life in arm_lives} == tasks
        assert reports[arm]["runs"] == len(arm_lives) == 100
        assert reports[arm]["messages"] == 100 * SAMPLES[arm]
        assert {life.state.scores["samples"] for life in arm_lives} == {SAMPLES[arm]}


@pytest.mark.thorough(
    quick="real/test_tau_bench.py::test_the_published_airline_figures_come_out_of_the_record"
)
def test_the_published_success_comes_out_of_the_record(imported):
    """7.3 and 4.0 percent of samples are right; 33, 49 and 69 puzzles are solved."""
    _, _, lives = imported
    samples = {arm: 100 * _mean(arm_lives, "accuracy") for arm, arm_lives in lives.items()}
    solved = {arm: 100 * _mean(arm_lives, "solved") for arm, arm_lives in lives.items()}
    assert (round(samples["io"], 1), round(samples["cot"], 1)) == (7.3, 4.0)
    assert {arm: round(share, 9) for arm, share in solved.items()} == {
        "io": 33,
        "cot": 49,
        "tot": 69,
    }


@pytest.mark.thorough(quick="real/test_tau2_bench.py::test_the_agents_cost_is_that_of_its_messages")
def test_a_case_costs_what_was_published(imported):
    """A case costs 0.138, 0.470 and 0.745 dollars, and none is negative or far off."""
    _, _, lives = imported
    cost = {arm: round(_mean(arm_lives, "cost"), 3) for arm, arm_lives in lives.items()}
    assert cost == {"io": 0.138, "cot": 0.470, "tot": 0.745}
    for arm, arm_lives in lives.items():
        each = [life.state.scores["cost"] for life in arm_lives]
        assert min(each) > 0.3 * cost[arm], arm
        assert max(each) < 3 * cost[arm], arm


@pytest.mark.thorough(
    quick="statistics/test_paired.py::test_ranks_are_what_scipy_and_holm_leave_open"
)
def test_the_three_ways_are_ranked(imported):
    """The three ways rank 69, 49 and 33 of 100, apart by Holm's paired t as in scipy."""
    place, _, lives = imported
    solved = {
        arm: [
            score
            for _, score in sorted((each.state.assigned.task, _solved(each)) for each in arm_lives)
        ]
        for arm, arm_lives in lives.items()
    }
    pairs = list(itertools.combinations(ARMS, 2))
    p = sorted(scipy.stats.ttest_rel(solved[x], solved[y]).pvalue for x, y in pairs)
    holm = list(itertools.accumulate((p * n for p, n in zip(p, (3, 2, 1), strict=True)), max))
    command = (
        "compare",
        "game24",
        "--metric",
        "solved",
        "--higher-is-better",
        "solved",
        "--all-pairs",
    )
    lines = place.call(*command, "--json").lines
    rows = [each for each in lines if each["kind"] == "comparison" and each["part"] == "judged"]
    shown = sorted((each for each in rows if each["default"]), key=lambda each: each["p"])
    assert [each["holm_p"] for each in shown] == pytest.approx(holm, rel=1e-6)
    assert holm[-1] < 0.05
    ranked = [each for each in lines if each["kind"] == "ranking"]
    assert [(each["arm"], each["rank_low"], each["rank_high"]) for each in ranked] == [
        *(("tot", 1, 1), ("cot", 2, 2), ("io", 3, 3))
    ]
    assert {each["family"] for each in ranked} == {3}
    text = place.call(*command, "--show", "summary,ranking").out
    assert "Ranks by solved, 1 is the best: tot 1, cot 2, io 3." in text
    assert "cannot tell" not in text


def _solved(life):
    return life.state.scores["solved"]
