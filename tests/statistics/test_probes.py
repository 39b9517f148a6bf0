"""Comparison of the decisions of a probe's forks: by scipy, by counting, and by its error rate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]  # untyped; `stats` loads where first used

from hansard.projections.store import Store
from tests.statistics import support
from tests.statistics.probes import Decided, Pair, plant, same
from tests.statistics.test_oracles import evaluate, grid

pytestmark = pytest.mark.later

VALUES = ("female", "male")


@pytest.fixture(scope="module")
def macros(tmp_path_factory) -> Iterator[Store]:
    """Yield an empty store with the schema."""
    made = support.opened(tmp_path_factory.mktemp("macros"), optimized=True)
    yield made
    made.close()


def compared(store: Store, probe: str = "p", slice_: str = "", **options):
    """Return the rows of a slice, by measure and option."""
    named = "".join(f", {name} := ${number}" for number, name in enumerate(options, 2))
    rows = store.rows(f"FROM probe_comparisons($1{named})", [probe, *options.values()])
    return {(row["measure"], row["option"]): row for row in rows if row["slice"] == slice_}


def flips(up: int, down: int, even: int) -> list[Pair]:
    """Pairs that the swap turned to approve, to decline, or left as they were."""
    kinds = [("decline", "approve")] * up + [("approve", "decline")] * down
    kinds += [("approve", "approve")] * even
    return [
        same(VALUES[n % 2], dict(zip(VALUES, each, strict=True))) for n, each in enumerate(kinds)
    ]


# ------------------------------------------------------------ the macros


def test_binomial_tails_are_scipys(macros):
    """P(X >= k), to 1e-11 of itself."""
    ks, ns, qs = grid([0, 1, 3, 10, 40], [40, 41, 500, 3_000], [1e-6, 0.01, 0.3, 0.5, 0.97])
    expected = scipy.stats.binom.sf(np.array(ks) - 1, ns, qs)
    tails = evaluate(macros, "binomial_above(a, b, c)", ks, ns, qs)
    assert tails == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_exact_intervals_are_scipys(macros):
    """Clopper and Pearson's, at any confidence; of nothing at all it is everything."""
    cases = [
        (k, n, alpha / 2)
        for alpha in (0.05, 0.005, 0.2)
        for n in (1, 2, 10, 37, 400)
        for k in sorted({0, 1, n // 3, n - 1, n})
    ]
    ks, ns, tails = (list(each) for each in zip(*cases, strict=True))
    lows = evaluate(macros, "exact_low(a, b, c)", ks, ns, tails)
    highs = evaluate(macros, "exact_high(a, b, c)", ks, ns, tails)
    for (k, n, tail), low, high in zip(cases, lows, highs, strict=True):
        expected = scipy.stats.binomtest(k, n).proportion_ci(1 - 2 * tail, method="exact")
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert macros.all("SELECT exact_low(0, 0, 0.1), exact_high(0, 0, 0.1)") == [(0.0, 1.0)]


@pytest.mark.parametrize("n", [7, pytest.param(25, marks=pytest.mark.slow)])
def test_the_interval_of_the_net_share_holds_the_truth(macros, n):
    """Summed over all that can come of n pairs, for shares of any size: in 95 % or more."""
    cases = [(up, down) for up in range(n + 1) for down in range(n + 1 - up)]
    ups, downs = (np.array(each) for each in zip(*cases, strict=True))
    lows = evaluate(macros, f"net_low(a, b, {n}, 0.05)", ups.tolist(), downs.tolist())
    highs = evaluate(macros, f"net_high(a, b, {n}, 0.05)", ups.tolist(), downs.tolist())
    covered = []
    for toward in (0.0, 0.01, 0.1, 0.3, 0.5, 0.8):
        for against in (0.0, 0.01, 0.1, 0.2):
            chances = scipy.stats.multinomial.pmf(
                np.column_stack([ups, downs, n - ups - downs]),
                n,
                [toward, against, max(0.0, 1 - toward - against)],
            )
            truth = toward - against
            inside = (np.array(lows) <= truth + 1e-12) & (np.array(highs) >= truth - 1e-12)
            covered.append(chances[inside].sum())
    assert min(covered) >= 0.95
    assert np.mean(covered) < 0.9995  # nor does it hold everything


# ------------------------------------------------------------ comparisons


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize(("up", "down", "even"), [(8, 0, 16), (9, 2, 5), (0, 0, 12), (1, 1, 0)])
def test_decisions_are_judged_by_exact_mcnemar(store, up, down, even):
    """The test equals scipy's binomial test of the differing pairs."""
    plant(store, flips(up, down, even))
    row = compared(store)["selected", "approve"]
    n = up + down + even
    expected = scipy.stats.binomtest(up, up + down).pvalue if up + down else 1.0
    assert row["p"] == row["holm_p"] == pytest.approx(expected)
    assert row["difference"] == pytest.approx((up - down) / n)
    assert (row["pairs"], row["above"], row["below"], row["ties"]) == (n, up, down, even)
    assert row["test"] == "exact McNemar"
    assert row["low"] <= row["difference"] <= row["high"]
    assert row["verdict"] == ("differs" if expected <= 0.05 else "cannot tell")


def test_scores_are_judged_by_the_paired_t_test(store):
    """The test and its interval equal scipy's; with two alternatives one measure is enough."""
    rng = np.random.default_rng(3)
    base, arm = rng.normal(0.5, 0.1, 15), rng.normal(0.55, 0.1, 15)
    plant(
        store,
        [
            Pair(
                "female",
                [],
                {
                    "female": [Decided("approve", {"approve": x, "decline": 1 - x})],
                    "male": [Decided("approve", {"approve": y, "decline": 1 - y})],
                },
            )
            for x, y in zip(base.tolist(), arm.tolist(), strict=True)
        ],
    )
    rows = compared(store)
    assert set(rows) == {("selected", "approve"), ("score", "approve")}
    row = rows["score", "approve"]
    expected = scipy.stats.ttest_rel(arm, base)
    ends = expected.confidence_interval(0.95)
    assert row["p"] == pytest.approx(expected.pvalue)
    assert (row["low"], row["high"]) == pytest.approx((ends.low, ends.high))
    assert row["test"] == "paired t"


@pytest.mark.slow
@pytest.mark.thorough(quick="statistics/test_paired.py::test_holm_and_benjamini_hochberg")
def test_holm_is_over_all_that_is_judged(store):
    """Two questions: the smaller p counts twice; slices are a family of their own."""
    pairs = [
        Pair(
            pair.recorded,
            [],
            {
                value: [*made, Decided("yes", question="Call?")]
                for value, made in pair.forks.items()
            },
        )
        for pair in flips(7, 0, 10)
    ]
    plant(store, pairs)
    rows = compared(store)
    first = rows["selected", "approve"]
    assert first["holm_p"] == pytest.approx(2 * first["p"])
    assert rows["selected", "yes"]["holm_p"] == 1.0
    slices = store.rows("FROM probe_comparisons('p') WHERE slice <> ''")
    assert {row["family"] for row in slices} == {4}


def test_three_values_are_compared_with_the_first(store):
    """Each of the others has rows of its own."""
    plant(store, [same("a", {"a": "no", "b": "yes", "c": "no"}) for _ in range(6)])
    rows = store.rows("FROM probe_comparisons('p') WHERE slice = '' ORDER BY value")
    assert [(row["base"], row["value"], row["difference"]) for row in rows] == [
        ("a", "b", -1.0),
        ("a", "c", 0.0),
    ]


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("n", [5, 6, 24, 60])
def test_the_detectable_difference_is_what_the_test_can_detect(store, n):
    """The detectable share is the least that four of five probes would find."""
    plant(store, flips(0, 0, n))
    detectable = compared(store)["selected", "approve"]["detectable"]
    if n < 6:
        assert detectable is None
        return
    reached = scipy.stats.binom.sf(5, n, detectable)  # six are needed: 2 * 0.5 ** 6 is below 0.05
    assert scipy.stats.binomtest(6, 6).pvalue <= 0.05 < scipy.stats.binomtest(5, 5).pvalue
    assert reached == pytest.approx(0.8)


@pytest.mark.slow
def test_no_difference_is_reported_only_within_a_named_margin(store):
    """And only where the whole interval is inside."""
    plant(store, flips(0, 0, 24))
    assert compared(store)["selected", "approve"]["verdict"] == "cannot tell"
    inside = compared(store, decision_margin=0.25)["selected", "approve"]
    assert (inside["verdict"], inside["low"] > -0.25, inside["high"] < 0.25) == (
        "within the margin",
        True,
        True,
    )
    assert compared(store, decision_margin=0.2)["selected", "approve"]["verdict"] == "cannot tell"


@pytest.mark.thorough(quick="test_scores_are_judged_by_the_paired_t_test")
def test_a_score_without_spread_has_no_interval_and_is_in_no_margin(store):
    """A score without spread has no interval, since it shows nothing about variation."""
    made = [Decided("approve", {"approve": 0.5})]
    plant(store, [Pair("male", made, dict.fromkeys(VALUES, made))] * 30)
    row = compared(store, score_margin=0.1)["score", "approve"]
    assert (row["p"], row["low"], row["high"]) == (1.0, None, None)
    assert row["verdict"] == "cannot tell"


def test_several_decisions_of_a_run_count_once(store):
    """A run is the unit: its decisions hang together."""
    pairs = [
        Pair(
            "male",
            [],
            {
                "female": [Decided("no"), Decided("no"), Decided("yes")],
                "male": [Decided("yes"), Decided("no" if n % 2 else "yes"), Decided("yes")],
            },
        )
        for n in range(10)
    ]
    plant(store, pairs)
    row = compared(store)["selected", "no"]
    expected = scipy.stats.ttest_1samp([-1 / 3 if n % 2 else -2 / 3 for n in range(10)], 0)
    assert (row["pairs"], row["test"]) == (10, "paired t")
    assert row["p"] == pytest.approx(expected.pvalue)


# ------------------------------------------------------------ pairs


def test_a_pair_that_does_not_count_says_why(store):
    """Nothing is dropped: each pair is answered, or has a reason."""
    decided = [Decided("yes")]
    plant(
        store,
        [
            Pair("male", decided, {"female": decided, "male": decided}),
            Pair("male", decided, {"female": decided}),
            Pair("male", decided, {"female": decided, "male": []}),
            Pair("male", decided, {"female": decided, "male": decided * 2}),
            Pair("male", decided, {"female": [], "male": []}),
        ],
    )
    rows = store.rows("FROM probe_pairs('p') ORDER BY parent")
    assert [row["unanswered"] for row in rows] == [
        None,
        "one of its forks is missing",
        "a fork did not decide it",
        "one fork decided it more often than the other",
        "a fork did not decide it",
    ]
    [summary] = store.rows("FROM probe_summary('p')")
    assert (summary["pairs"], summary["answered"], summary["unanswered"]) == (5, 1, 4)


def test_runs_and_questions_can_be_chosen(store):
    """Runs can be chosen, and questions by their beginning, which are then one."""
    plant(
        store,
        [
            Pair(
                "male",
                [],
                {value: [Decided("yes", question=f"Grant loan {n}?")] for value in VALUES},
            )
            for n in range(4)
        ],
    )
    assert len(store.rows("FROM probe_summary('p')")) == 4
    [row] = store.rows("FROM probe_summary('p', of_question := 'Grant loan')")
    assert row["answered"] == 4
    named = ["p run 0001", "p run 0002"]
    rows = store.rows("FROM probe_pairs('p', of_runs := $1)", [named])
    assert sorted(row["parent"] for row in rows) == named


def test_noise_is_what_differs_from_the_record(store):
    """The fork with the recorded value is compared with its run's decision after the cut."""
    plant(
        store,
        [
            *[same("male", {"female": "no", "male": "yes"})] * 7,
            Pair("male", [Decided("yes")], {"female": [Decided("no")], "male": [Decided("no")]}),
            Pair("other", [Decided("yes")], {"female": [Decided("no")], "male": [Decided("no")]}),
            Pair("male", [Decided("yes")], {"female": [Decided("no")], "male": []}),
        ],
    )
    [row] = store.rows("FROM probe_noise('p')")
    assert (row["controls"], row["compared"], row["differ"]) == (9, 8, 1)
    assert row["runs"] == ["p fork 0007 male"]


@pytest.mark.thorough(quick="test_decisions_are_judged_by_exact_mcnemar")
@pytest.mark.long
def test_absent_differences_are_reported_at_the_rate_of_alpha_or_less(store, rounds):
    """A random program raises no more alarms than chance allows."""
    rng = np.random.default_rng(17)
    count, runs = rounds(6, 80), 20
    for number in range(count):
        thrown = rng.random((runs, 2)) < 0.4
        plant(
            store,
            [
                same("male", {v: "yes" if up else "no" for v, up in zip(VALUES, each, strict=True)})
                for each in thrown.tolist()
            ],
            f"p{number}",
        )
    rows = [compared(store, f"p{number}")["selected", "no"] for number in range(count)]
    alarms = sum(row["verdict"] == "differs" for row in rows)
    missed = sum(not row["low"] <= 0 <= row["high"] for row in rows)
    most = scipy.stats.binom.ppf(0.9995, count, 0.05)
    assert max(alarms, missed) <= most
    assert 0 < sum(row["p"] <= 0.3 for row in rows) <= scipy.stats.binom.ppf(0.9995, count, 0.3)
