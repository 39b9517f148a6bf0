"""Each macro of statistics against scipy or exact fractions, over grids with their edges."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]  # untyped; `stats` loads where first used

from hansard.projections.store import Store
from tests.statistics import support

pytestmark = pytest.mark.later


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return the schema, and no rows."""
    made = support.opened(tmp_path_factory.mktemp("oracles"), optimized=True)
    yield made
    made.close()


def evaluate(store: Store, call: str, *columns):
    """Return the result of a macro over rows of arguments; `call` names them a, b, c ..."""
    names = "abcdef"[: len(columns)]
    parts = ", ".join(f"unnest($n{i}::DOUBLE[]) AS {name}" for i, name in enumerate(names))
    parameters = {f"n{i}": list(column) for i, column in enumerate(columns)}
    rows = store._con.execute(f"SELECT {call} FROM (SELECT {parts})", parameters).fetchall()
    return [value for (value,) in rows]


def grid(*axes):
    """Return the columns of every combination."""
    return [list(column) for column in zip(*product(*axes), strict=True)]


DFS = [0.5, 1, 1.5, 2, 3, 4, 5, 9, 19, 30, 50, 99, 99.9, 100, 101, 200, 1e3, 1e4, 1e5, 1e6, 1e9]
TAILS = [1e-300, 1e-30, 1e-12, 1e-9, 1e-6, 1e-4, 0.001, 0.005, 0.025, 0.05, 0.1, 0.3, 0.45]
SHARES = [*TAILS, 0.5, *(1 - tail for tail in TAILS if tail >= 1e-9)]


def test_normal_cdf(store):
    """P(Z <= x), to 1e-13 of itself even far out in the lower tail."""
    x = [-37, -30, -12, -9, -5, -3, -1.5, -1, -0.5, -1e-3, -1e-9, 0, 1e-9, 0.1, 1, 2, 5, 8, 9, 40]
    assert evaluate(store, "normal_cdf(a)", x) == pytest.approx(
        scipy.stats.norm.cdf(x), rel=2e-13, abs=0
    )
    ends = evaluate(store, "normal_cdf(a)", [-math.inf, math.inf, 1e300, -1e300])
    assert ends == [0.0, 1.0, 1.0, 0.0]


def test_normal_quantile(store):
    """The x with P(Z <= x) = p, and the two directions are each other's inverse."""
    quantiles = evaluate(store, "normal_quantile(a)", SHARES)
    assert quantiles == pytest.approx(scipy.stats.norm.ppf(SHARES), rel=1e-14, abs=1e-15)
    assert evaluate(store, "normal_cdf(normal_quantile(a))", SHARES) == pytest.approx(
        SHARES, rel=1e-9
    )
    assert evaluate(store, "normal_quantile(a)", [0, 1, -0.1, 1.1, math.nan]) == [
        *(-math.inf, math.inf, None, None, None)
    ]


def test_t_p(store):
    """The p-value of t is exact to 1e-12, for df of 0.5 to 1e9."""
    x = [0.1, 0.5, 0.59, 0.61, 1, 1.5, 2, 3, 5, 8, 12, 30, 100, 1e4]
    xs, dfs = grid(x, DFS)
    expected = 2 * scipy.stats.t.sf(xs, dfs)
    assert evaluate(store, "t_p(a, b)", xs, dfs) == pytest.approx(expected, rel=3e-12, abs=1e-300)
    assert evaluate(store, "t_p(-a, b)", xs, dfs) == evaluate(store, "t_p(a, b)", xs, dfs)
    small = [0.0, 1e-12, 1e-9, 1e-6, 1e-3, 0.01, 0.1, 1, 10, 1e6, 1e12]
    cauchy = [
        1 - 2 / math.pi * math.atan(x) if x < 1 else 2 / math.pi * math.atan(1 / x) for x in small
    ]
    assert evaluate(store, "t_p(a, 1)", small) == pytest.approx(cauchy, rel=1e-13, abs=0)
    two = [1 - x / math.sqrt(2 + x * x) for x in small[:8]]
    assert evaluate(store, "t_p(a, 2)", small[:8]) == pytest.approx(two, rel=1e-13, abs=0)


def test_t_cdf(store):
    """P(T <= x), both sides; with endless df it is the normal one."""
    xs, dfs = grid([-50, -8, -2.5, -1, -0.2, 0, 0.2, 1, 2.5, 8, 50], DFS)
    assert evaluate(store, "t_cdf(a, b)", xs, dfs) == pytest.approx(
        scipy.stats.t.cdf(xs, dfs), rel=2e-12
    )
    xs = [-9, -2, 0, 1, 3]
    assert evaluate(store, "t_cdf(a, 'inf')", xs) == pytest.approx(
        scipy.stats.norm.cdf(xs), rel=1e-12
    )
    assert evaluate(store, "t_cdf(a, 3)", [-math.inf, math.inf]) == [0.0, 1.0]


@pytest.mark.slow
def test_t_quantile(store):
    """The x with P(T <= x) = p, from df = 0.5 to 1e9 and p from 1e-300 on; by scipy, and back."""
    ps, dfs = grid([p for p in SHARES if p >= 1e-30], [df for df in DFS if df >= 1])
    quantiles = evaluate(store, "t_quantile(a, b)", ps, dfs)
    assert quantiles == pytest.approx(scipy.stats.t.ppf(ps, dfs), rel=1e-9, abs=1e-12)
    ps, dfs = grid(SHARES, DFS)
    back = evaluate(store, "t_cdf(t_quantile(a, b), b)", ps, dfs)
    keep = [i for i, (p, df) in enumerate(zip(ps, dfs, strict=True)) if p > 1e-30 or df > 3]
    assert [back[i] for i in keep] == pytest.approx([ps[i] for i in keep], rel=3e-11)
    ends = evaluate(store, "t_quantile(a, 4)", [0, 0.5, 1, -0.5, 1.5, math.nan])
    assert ends == [-math.inf, 0.0, math.inf, None, None, None]


def test_t_quantile_has_its_closed_forms(store):
    """For one and two degrees of freedom the quantile is known exactly."""
    ps = [p for p in SHARES if 1e-30 <= p < 0.5]
    one = [-1 / math.tan(math.pi * p) for p in ps]
    assert evaluate(store, "t_quantile(a, 1)", ps) == pytest.approx(one, rel=1e-12)
    two = [(2 * p - 1) / math.sqrt(2 * p * (1 - p)) for p in ps]
    assert evaluate(store, "t_quantile(a, 2)", ps) == pytest.approx(two, rel=1e-12)


def test_chi_square_p(store):
    """P(X >= x), for odd and even df, equals that of scipy's test of frequencies."""
    xs, dfs = grid([1e-9, 0.1, 1, 3.84, 10, 50, 200, 1000], [1, 2, 3, 4, 5, 10, 31, 100, 501])
    expected = scipy.stats.chi2.sf(xs, dfs)
    assert evaluate(store, "chi_square_p(a, b)", xs, dfs) == pytest.approx(
        expected, rel=1e-10, abs=1e-300
    )
    result = scipy.stats.chisquare([48, 31, 21], [40, 40, 20])
    assert evaluate(store, "chi_square_p(a, 2)", [result.statistic]) == [
        pytest.approx(result.pvalue)
    ]
    ends = evaluate(
        store, "chi_square_p(a, b)", [0, -3, math.inf, 1, 1, math.nan], [1, 1, 2, 0, -2, 1]
    )
    assert ends == [1.0, 1.0, 0.0, None, None, None]


def test_binomial_p_and_mcnemar_p(store):
    """The exact two-sided test of a fair coin; McNemar's is the same of the discordant pairs."""
    pairs = [(k, n) for n in (1, 2, 3, 5, 10, 25, 60, 200, 1001) for k in {0, 1, n // 3, n // 2, n}]
    ks, ns = [list(column) for column in zip(*pairs, strict=True)]
    expected = [scipy.stats.binomtest(k, n).pvalue for k, n in pairs]
    assert evaluate(store, "binomial_p(a, b)", ks, ns) == pytest.approx(expected, rel=1e-10)
    rest = [n - k for k, n in pairs]
    assert evaluate(store, "mcnemar_p(a, b)", ks, rest) == pytest.approx(expected, rel=1e-10)
    assert evaluate(store, "mcnemar_p(a, b)", [14], [11]) == [pytest.approx(0.6900380253791809)]
    assert evaluate(store, "binomial_p(a, b)", [0, 3, -1, 0], [0, 2, 4, -1]) == [
        1.0,
        None,
        None,
        None,
    ]
    assert evaluate(store, "mcnemar_p(a, b)", [-1, 0], [4, 0]) == [None, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.01, 1e-6])
def test_wilson(store, alpha):
    """Both ends of Wilson's interval; at 0 and n successes one end is exactly 0 and 1."""
    pairs = [(k, n) for n in (1, 2, 5, 20, 100, 10_000) for k in {0, 1, n // 3, n - 1, n}]
    ks, ns = [list(column) for column in zip(*pairs, strict=True)]
    expected = [
        scipy.stats.binomtest(k, n).proportion_ci(confidence_level=1 - alpha, method="wilson")
        for k, n in pairs
    ]
    low = evaluate(store, f"wilson_low(a, b, alpha := {alpha})", ks, ns)
    high = evaluate(store, f"wilson_high(a, b, alpha := {alpha})", ks, ns)
    assert low == pytest.approx([each.low for each in expected], rel=1e-9, abs=1e-14)
    assert high == pytest.approx([each.high for each in expected], rel=1e-9, abs=1e-14)
    assert {value for value, k in zip(low, ks, strict=True) if k == 0} == {0.0}
    assert {value for value, k, n in zip(high, ks, ns, strict=True) if k == n} == {1.0}


def test_wilson_of_nothing(store):
    """No trials, or more successes than trials, have no interval."""
    none = evaluate(store, "wilson_low(a, b)", [0, 3, -1, 1], [0, 2, 5, -1])
    none += evaluate(store, "wilson_high(a, b)", [0, 3, -1, 1], [0, 2, 5, -1])
    assert none == [None] * 8


def test_pass_at_k_and_pass_hat_k_are_exact_shares(store):
    """1 - C(n - c, k) / C(n, k) and C(c, k) / C(n, k), as fractions, for every c and k."""
    rows = [
        (c, n, k)
        for n in (1, 2, 4, 8, 13, 200)
        for c in {0, 1, n // 2, n - 1, n}
        for k in range(1, n + 1)
    ]
    at = [1 - Fraction(math.comb(n - c, k), math.comb(n, k)) for c, n, k in rows]
    hat = [Fraction(math.comb(c, k), math.comb(n, k)) for c, n, k in rows]
    columns = [list(column) for column in zip(*rows, strict=True)]
    shares = evaluate(store, "pass_at_k(a, b, c)", *columns)
    assert shares == pytest.approx([float(each) for each in at], rel=1e-13, abs=1e-15)
    shares = evaluate(store, "pass_hat_k(a, b, c)", *columns)
    assert shares == pytest.approx([float(each) for each in hat], rel=1e-12, abs=0)


def test_pass_of_more_than_there_is(store):
    """More trials than there were, none, or more successes than trials give no result."""
    columns = ([2, 2, 0, 5, -1], [4, 4, 0, 4, 4], [5, 0, 1, 1, 1])
    assert evaluate(store, "pass_at_k(a, b, c)", *columns) == [None] * 5
    assert evaluate(store, "pass_hat_k(a, b, c)", *columns) == [None] * 5


def one_over_mixture(estimate, se, n, rho2):
    """Return the density of the mean at 0 over that under a normal prior of variance rho2 n
    se^2.
    """
    under = scipy.stats.norm.logpdf(estimate, scale=se * math.sqrt(1 + n * rho2))
    return math.exp(min(0.0, scipy.stats.norm.logpdf(estimate, scale=se) - under))


def test_the_always_valid_p_is_one_over_the_mixtures_ratio(store):
    """P is 1 / likelihood ratio of the normal mixture; the half width is where p is alpha."""
    columns = grid([0.0, 0.01, 0.1, 0.5], [0.01, 0.1], [2, 10, 400], [0.001, 0.05, 1])
    expected = [one_over_mixture(*row) for row in zip(*columns, strict=True)]
    assert evaluate(store, "always_valid_p(a, b, c, d)", *columns) == pytest.approx(
        expected, rel=1e-9
    )
    _, ses, ns, rhos = columns
    for alpha in (0.2, 0.05, 0.001):
        half = evaluate(store, f"always_valid_half(a, b, {alpha}, c)", ses, ns, rhos)
        at_half = evaluate(store, "always_valid_p(a, b, c, d)", half, ses, ns, rhos)
        assert at_half == pytest.approx([alpha] * len(half), rel=1e-9)


def test_the_mixture_is_best_near_the_size_it_is_made_for(store):
    """rho2 for n units makes the interval at n as short as any rho2 does, to a percent."""
    for n, alpha in ((20, 0.05), (400, 0.05), (100, 0.01)):
        [rho2] = evaluate(store, "always_valid_rho2(a, b)", [alpha], [n])
        others = [rho2 * factor for factor in np.geomspace(0.05, 20, 200)]
        halves = evaluate(store, f"always_valid_half(1, {n}, {alpha}, a)", others)
        [half] = evaluate(store, f"always_valid_half(1, {n}, {alpha}, a)", [rho2])
        assert half <= min(halves) * 1.01


def test_what_is_detectable_is_detected_with_that_power(store):
    """The detectable effect is found with its power, and units grow with its square."""
    detectable = evaluate(store, "smallest_detectable(a, b)", [0.1, 2], [9, 99])
    expected = [
        (scipy.stats.t.ppf(0.975, df) + scipy.stats.t.ppf(0.8, df)) * se
        for se, df in ((0.1, 9), (2, 99))
    ]
    assert detectable == pytest.approx(expected, rel=1e-9)
    z = scipy.stats.norm.ppf(0.975) + scipy.stats.norm.ppf(0.8)
    [units] = evaluate(store, "units_required(a, b, c)", [0.04], [100], [0.05])
    assert units == math.ceil((z * 0.04 / 0.05) ** 2 * 100)
    power = scipy.stats.norm.cdf(
        0.05 / (0.04 * math.sqrt(100 / units)) - scipy.stats.norm.ppf(0.975)
    )
    assert power == pytest.approx(0.8, abs=0.002)
    assert (
        evaluate(store, "units_required(a, b, c)", [1, -1, 1], [9, 9, 0], [0, 1, 1]) == [None] * 3
    )


CALLS = {
    "normal_cdf(a)": 1,
    "normal_quantile(a)": 1,
    "t_cdf(a, b)": 2,
    "t_p(a, b)": 2,
    "t_quantile(a, b)": 2,
    "chi_square_p(a, b)": 2,
    "binomial_p(a, b)": 2,
    "mcnemar_p(a, b)": 2,
    "wilson_low(a, b)": 2,
    "wilson_high(a, b)": 2,
    "pass_at_k(a, b, c)": 3,
    "pass_hat_k(a, b, c)": 3,
    "always_valid_rho2(a, b)": 2,
    "always_valid_half(a, b, c, d)": 4,
    "always_valid_p(a, b, c, d)": 4,
    "smallest_detectable(a, b)": 2,
    "units_required(a, b, c)": 3,
}


@pytest.mark.parametrize(("call", "count"), CALLS.items())
def test_null_in_is_null_out_and_nonsense_is_no_error(store, call, count):
    """Any argument that is NULL makes the answer NULL, and no argument raises."""
    for place in range(count):
        row = [[0.5 if index != place else None] for index in range(count)]
        assert evaluate(store, call, *row) == [None], place
    wild = [-1e300, -2, -1, 0, 0.5, 1, 2, 7, 1e300, math.inf, -math.inf, math.nan]
    if call.startswith(("chi", "bin", "mcn", "pass")):  # of counts, which are whole and bounded
        wild = [-2, -1, 0, 1, 2, 7, 50]
    columns = grid(*[wild] * min(count, 3), *[[0.5]] * (count - 3))
    results = evaluate(store, call, *columns)
    assert len(results) == len(columns[0])
