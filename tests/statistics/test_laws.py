"""Laws of every comparison, for any rows: order, swapping, shifting, and the edges."""

import math
import random

import duckdb
import pytest

from hansard.projections.store import Store
from tests.conftest import THOROUGH
from tests.projections.support import new_store
from tests.statistics import support
from tests.statistics.support import Trial

pytestmark = pytest.mark.later

MACROS = [
    *("comparisons", "arm_summary", "pass_curves", "task_pairs", "task_scores", "trial_scores"),
    *("regressions", "sample_ratio", "accounting"),
]
METRICS = [("reward", "higher", 0.1), ("score", "higher", None), ("cost", "lower", None)]


def some(seed=1, arms="ab", tasks=12, effect=0.2):
    """Random trials: unequal, some without a value, in groups."""
    chance = random.Random(seed)
    return [
        Trial(
            arm=arm,
            task=f"t{task}",
            trial=trial,
            labels={"group": f"g{task % 6}"},
            status=chance.choice(["completed", "completed", "failed", "cancelled"]),
            scores={
                "reward": None
                if chance.random() < 0.1
                else float(chance.random() < 0.4 + effect * number),
                "score": chance.random() + effect * number,
                "cost": None if chance.random() < 0.1 else chance.random() / 3,
            },
        )
        for task in range(tasks)
        for number, arm in enumerate(arms)
        for trial in range(chance.randint(1, 3))
    ]


FEW = 16
"""Tasks of `make check`."""


def everything(store: Store, macros=MACROS):
    """Every macro's answer."""
    return {macro: support.rows_of(store, macro) for macro in macros}


def same(one, other):
    """Return whether two answers have the same bytes: `repr` includes the last digit of each
    float.
    """
    return repr(one) == repr(other)


@pytest.mark.fast(cases=1)
@pytest.mark.parametrize(
    ("threads", "tasks"),
    [(2, FEW), *(pytest.param(n, 150, marks=pytest.mark.thorough) for n in (1, 2))],
)
def test_the_order_of_rows_changes_nothing(tmp_path, threads, tasks):
    """The order of rows and the number of threads change no digit."""
    answers = []
    for seed in range(3 if tasks > FEW else 2):
        made = some(seed=3, arms="abc", tasks=tasks)
        for number, trial in enumerate(made):
            trial.run, trial.position = f"run {number * 7919 % 10_007:05d}", number + 1
        random.Random(seed).shuffle(made)
        store = new_store(tmp_path / f"{threads} {seed}.duckdb")
        store.all(f"SET threads = {threads if seed else 2}")
        for begin in range(0, len(made), 100):
            support.plant(store, made[begin : begin + 100])
        support.register(store, arms=["a", "b", "c"], metrics=METRICS, cluster="group")
        answers.append(everything(store))
        store.close()
    assert all(answers[0].values())
    assert all(same(answers[0], other) for other in answers[1:])


def scored(*values, arm="a", task="t", **more):
    """Trials of a task, one a value."""
    return [
        Trial(arm=arm, task=task, trial=number, scores={"reward": value}, **more)
        for number, value in enumerate(values)
    ]


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("name", ["o'clock \" ; --", "", "planned", "unheard of"])
def test_without_runs_there_is_nothing_to_compare(store, name):
    """An experiment registered without a run gives empty answers, an unknown one an error; what
    became of the runs of an unknown one is empty.
    """
    support.register(store, "planned", arms=["a", "b"])
    for macro in MACROS:
        if name != "planned" and macro not in ("sample_ratio", "accounting"):
            with pytest.raises(duckdb.Error, match=r"no experiment '.*': known are planned"):
                support.rows_of(store, macro, name)
            continue
        rows = support.rows_of(store, macro, name)
        assert rows == [] or (macro, name) == ("sample_ratio", "planned"), macro


def test_one_arm_is_compared_with_nothing(store):
    """A single arm has a summary, and no comparison."""
    support.plant(store, scored(1, 0) + scored(1, 1, task="u"))
    assert support.compared(store) == []
    [row] = support.rows_of(store, "arm_summary")
    assert (row["tasks"], row["trials"], row["mean"]) == (2, 4, 0.75)


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize(
    "made",
    [
        pytest.param(scored(1) + scored(0, arm="b"), id="one task"),
        pytest.param(
            [
                trial
                for task in "uvwxyz"
                for arm in "ab"
                for trial in scored(
                    float(arm == "a" or task == "u"), arm=arm, task=task, labels={"group": "g"}
                )
            ],
            id="one cluster",
        ),
    ],
)
def test_one_task_or_cluster_tells_nothing(store, made):
    """A single one has no standard error: the verdict is "cannot tell", without numbers."""
    support.plant(store, made)
    support.register(store, cluster="group")
    row = support.default(support.compared(store))
    assert row["difference"] < 0
    assert row["verdict"] == "cannot tell"
    assert [row[name] for name in ("se", "low", "p", "holm_p", "always_p", "detectable")] == [
        None
    ] * 6


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize(("lacking", "against"), [("a", "b"), ("b", "a"), ("a", "a")])
def test_an_arm_without_runs_neither_wins_nor_loses(store, lacking, against):
    """A planned arm that has no run yet is no arm that failed everywhere."""
    support.plant(store, [each for each in some() if each.arm != lacking])
    support.register(store, arms=["a", "b"])
    rows = support.compared(store, against=against)
    assert {row["verdict"] for row in rows} <= {"cannot tell"}
    assert [row for row in rows if row["p"] is not None] == []


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("value", [0.0, 1.0, pytest.param(0.5, marks=pytest.mark.thorough)])
def test_where_all_is_tied_nothing_differs(store, value):
    """All failures, all successes: a difference of 0, p of 1, no interval of width 0."""
    support.plant(
        store, [t for a in "ab" for k in range(9) for t in scored(value, arm=a, task=f"t{k}")]
    )
    row = support.default(support.compared(store))
    assert (row["difference"], row["p"], row["always_p"], row["ties"]) == (0, 1, 1, 9)
    assert (row["verdict"], row["low"], row["mcnemar_p"]) == ("cannot tell", None, 1)


@pytest.mark.slow
def test_a_difference_without_spread_is_judged_by_its_signs(store):
    """A constant difference is judged by the exact sign test, whatever its unit."""
    for name, unit in (("small", 1e-12), ("large", 1e12)):
        support.plant(
            store,
            [
                Trial(
                    experiment=name, arm=arm, task=f"t{k}", scores={"reward": (k * 0.1 + d) * unit}
                )
                for arm, d in (("a", 0.0), ("b", 0.3))
                for k in range(7)
            ],
        )
        row = support.default(support.compared(store, name))
        assert row["p"] == pytest.approx(2 / 2**7)
        assert (row["wins"], row["low"], row["verdict"]) == (7, None, "better")


def test_no_outcome_at_all_is_the_status(store):
    """Without an outcome the status counts; an open run counts as neither."""
    statuses = ["completed", "failed", "cancelled", "open"]
    support.plant(
        store, [Trial(arm=a, task=f"t{n}", status=s) for a in "ab" for n, s in enumerate(statuses)]
    )
    values = {row["status"]: row["value"] for row in support.rows_of(store, "trial_scores")}
    assert values == {"completed": 1.0, "failed": 0.0, "cancelled": 0.0, "open": None}
    for row in support.rows_of(store, "arm_summary"):
        assert (row["metric"], row["mean"], row["missing"], row["open"]) == (
            "completion",
            1 / 3,
            0,
            1,
        )


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, pytest.param(-math.inf, marks=pytest.mark.thorough)]
)
def test_a_value_that_is_no_number_is_missing(store, value):
    """NaN or infinite: no value, counted as missing, and the others are as without it."""
    support.plant(
        store,
        [
            t
            for a in "ab"
            for k in range(5)
            for t in scored(float(k % 2 == (a == "b")), 1.0, arm=a, task=f"t{k}")
        ],
    )
    run_ = store.all("SELECT min(run) FROM runs")[0][0]
    support.outcomes(store, [(run_, "reward", value, 10**6)])
    rows = support.rows_of(store, "trial_scores")
    assert [row["value"] for row in rows if row["run"] == run_] == [None]
    row = support.default(support.compared(store))
    assert row["base_missing"] == 1
    assert all(
        row[name] is None or math.isfinite(row[name]) for name in ("difference", "se", "p", "low")
    )
    assert store.all("SELECT count(*) FROM trial_runs WHERE success IS NULL") == [(1,)]


LABELS = ['say "hi"', "a.b", "a/b", "a~b", "*", "0", "$", "it's", "ü", "$.group", '"', "[0]", ""]


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize(
    "label",
    [
        pytest.param(label, marks=pytest.mark.thorough if number % 4 else ())
        for number, label in enumerate(LABELS)
    ],
)
def test_a_label_of_any_name_slices_and_clusters(store, label):
    """A label is found by its name alone, never as a path; runs without it are (none)."""
    made = some(tasks=12)
    for number, trial in enumerate(made):
        task = int(trial.task[1:])
        trial.labels = {label: f"v{task % 3}", "a": "no", "group": "no"} if task < 9 else {"b": "x"}
        trial.position = number + 1
    support.plant(store, made)
    support.register(store, cluster=label)
    rows = [row for row in support.compared(store, by_label=label) if row["default"]]
    assert {row["slice"] for row in rows} == {"", "v0", "v1", "v2", "(none)"}
    assert {row["clusters"] for row in rows if row["slice"] == ""} == {3 + 3}
    assert {row["clusters"] for row in rows if row["slice"] == "v1"} == {1}


def test_an_empty_label_is_not_all_of_them(store):
    """An empty label value is shown with runs lacking the label, not added to the whole."""
    made = some(tasks=8)
    for trial in made:
        trial.labels = {"level": "" if trial.task == "t1" else "x"} if trial.task != "t2" else None
    support.plant(store, made)
    rows = support.rows_of(store, "arm_summary", by_label="level")
    count = {(row["slice"], row["arm"]): row["tasks"] for row in rows}
    assert count == {
        ("", "a"): 8,
        ("", "b"): 8,
        ("(none)", "a"): 2,
        ("(none)", "b"): 2,
        ("x", "a"): 6,
        ("x", "b"): 6,
    }


@pytest.mark.slow
def test_of_several_metrics_none_is_chosen(store):
    """Without a plan no metric gets a verdict until it is named."""
    support.plant(store, some(tasks=30, effect=0.5))
    rows = [row for row in support.compared(store) if row["default"]]
    assert [row["metric"] for row in rows] == ["cost", "reward", "score"]
    assert {row["verdict"] for row in rows} == {"no metric named"}
    assert all(row["difference"] is not None and row["low"] is not None for row in rows)
    [plan] = store.rows("FROM experiment_plans WHERE experiment = 'e'")
    assert plan["primary_metric"] is None
    named = support.default(support.compared(store, only_metric="reward"))
    assert (named["counted_verdict"], named["stated_by"]) == ("better", "the catalogue")


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("name", ["solved", "reward", "anything"])
def test_the_only_metric_that_was_scored_is_judged_by(store, name):
    """The metric can have any name; the completion of runs adds nothing to it."""
    made = [
        Trial(arm=arm, task=f"t{n}", status="completed", scores={name: float(arm == "b" or n > 14)})
        for arm in "ab"
        for n in range(20)
    ]
    support.plant(store, made)
    row = support.default(support.compared(store))
    assert (row["metric"], row["difference"]) == (name, 0.75)
    [plan] = store.rows("FROM experiment_plans WHERE experiment = 'e'")
    assert plan["primary_metric"] == name
    ended = support.rows_of(store, "arm_summary", only_metric="completion")
    assert [arm["mean"] for arm in ended] == [1.0, 1.0]
    assert row["verdict"] == ("direction not stated" if name == "anything" else "better")


@pytest.mark.fast(cases=1, slow=9)
@pytest.mark.parametrize(
    ("directions", "verdict", "stated_by"),
    [
        (None, "direction not stated", None),
        ('{"execution_time": "lower"}', "worse", "who asks"),
        ('{"execution_time": "higher"}', "better", "who asks"),
        ('{"other": "higher"}', "direction not stated", None),
    ],
)
def test_a_direction_is_never_guessed(store, directions, verdict, stated_by):
    """A metric without a direction has no verdict, wins or worst value."""
    chance = random.Random(4)
    made = [
        Trial(
            arm=arm,
            task=f"t{n}",
            scores={"execution_time": None if n == 3 else chance.random() + 643 * (arm == "b")},
        )
        for arm in "ab"
        for n in range(20)
    ]
    support.plant(store, made)
    row = support.default(support.compared(store, directions=directions))
    assert (row["verdict"], row["stated_by"]) == (verdict, stated_by)
    assert row["low"] < row["difference"] < row["high"]
    assert (row["above"], row["below"]) == (19, 0)
    assert (row["wins"], row["losses"]) == {
        "better": (19, 0),
        "worse": (0, 19),
        "direction not stated": (None, None),
    }[verdict]
    worse = support.rows_of(store, "regressions", directions=directions)
    assert len(worse) == {"worse": 19}.get(verdict, 0)
    assert all(each["worse_by"] > 0 and each["base_runs"] and each["arm_runs"] for each in worse)


def test_the_plan_s_direction_is_the_one(store):
    """The plan's direction overrides those of the catalogue and of the query."""
    support.plant(store, some(tasks=30, effect=0.5))
    support.register(store, arms=["a", "b"], metrics=[("reward", "lower", None)])
    row = support.default(
        support.compared(store, only_metric="reward", directions='{"reward": "higher"}')
    )
    verdict = (row["better"], row["counted_verdict"], row["stated_by"])
    assert verdict == ("lower", "worse", "its plan")


def crashing(store):
    """Two equal arms, of which one crashes far more often and is scored 0 then."""
    chance = random.Random(2)
    made = []
    for arm, crashes in (("a", 34), ("b", 5)):
        down = set(chance.sample(range(60), crashes))
        for n in range(60):
            solved = float(n % 5 > 0)
            made.append(
                Trial(
                    arm=arm,
                    task=f"t{n}",
                    status="failed" if n in down else "completed",
                    scores={"reward": 0.0 if n in down else solved},
                )
            )
    support.plant(store, made)


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("counting", [None, "failure", "excluded"])
def test_a_scored_crash_is_distinguished_from_a_failure(store, counting):
    """Both countings of a scored crash are shown, whichever is requested."""
    crashing(store)
    rows = support.compared(store, counted_as=counting)
    by = {row["counting"]: row for row in rows}
    assert by["failure"]["counted_verdict"] == "better"
    assert (by["excluded"]["counted_verdict"], by["excluded"]["difference"]) == ("cannot tell", 0)
    assert {row["verdict"] for row in rows} == {"depends on crashes"}
    assert by["excluded"]["tasks"] == 60 - len({*range(60)} - _both(store))
    assert {row["unended_valued"] for row in rows} == {39}
    assert by[counting or "failure"]["default"]
    arms = support.rows_of(store, "arm_summary", counted_as=counting)
    means = {"a": 0.8, "b": 0.8} if counting == "excluded" else {"a": 22 / 60, "b": 44 / 60}
    means_by_arm = {arm["arm"]: arm["mean"] for arm in arms}
    assert means_by_arm == pytest.approx(means, abs=0.05)
    ranks = store.rows("FROM ranking('e', counted_as := $1)", [counting or "failure"])
    assert {(row["rank_low"], row["rank_high"]) for row in ranks} == {(1, 2)}


def _both(store):
    """Return the tasks whose runs completed under both arms."""
    rows = store.all(
        "SELECT task FROM runs WHERE status = 'completed' GROUP BY task HAVING count(*) = 2"
    )
    return {int(task[1:]) for (task,) in rows}


def test_how_runs_ended_is_distinguished(store):
    """Each run is counted under one kind of end."""
    kinds: list[tuple[str, dict[str, float | None], str | None]] = [
        ("completed", {"reward": 1.0}, None),
        ("completed", {}, None),
        ("failed", {}, "ValueError"),
        ("failed", {"reward": 0.0}, "RuntimeError"),
        ("failed", {}, "TimeoutError"),
        ("failed", {}, "ReadTimeout"),
        ("cancelled", {}, None),
        ("open", {"reward": 0.0}, None),
    ]
    made = [
        Trial(arm="a", task=f"t{n}", status=status, scores=scores, run=f"r{n}")
        for n, (status, scores, _) in enumerate(kinds)
    ]
    support.plant(store, made)
    for n, (_, _, error) in enumerate(kinds):
        store.all("UPDATE runs SET error_type = $1 WHERE run = $2", [error, f"r{n}"])
    [row] = support.rows_of(store, "accounting")
    names = ("judged", "never_judged", "errored", "timed_out", "cancelled", "open")
    assert [row[name] for name in names] == [1, 1, 2, 2, 1, 1]
    assert sum(row[name] for name in names) == row["runs"] == len(kinds)
    assert row["scored_all_the_same"] == 2


def test_success_is_not_that_a_run_ended(store):
    """Where any run was judged, an unjudged run is no success, though it completed."""
    made = [
        Trial(arm=a, task=f"t{n}", scores={"reward": 0.0} if n else {})
        for a in "ab"
        for n in (0, 1)
    ]
    support.plant(store, made)
    rows = store.rows("SELECT task, success, completion FROM trial_runs ORDER BY task, arm")
    assert [(row["success"], row["completion"]) for row in rows] == [
        (None, 1),
        (None, 1),
        (0, 1),
        (0, 1),
    ]


def test_a_metric_nobody_judged_says_so(store):
    """All trials miss it: no mean, no verdict, and how many."""
    support.plant(store, some())
    support.register(store, arms=["a", "b"], metrics=[("unknown_cost", None, None)])
    rows = support.compared(store, only_metric="unknown_cost")
    assert {row["verdict"] for row in rows} == {"direction not stated"}
    assert {row["difference"] for row in rows} == {None}
    assert all(row["base_missing"] == row["base_trials"] > 0 for row in rows)
    assert {
        row["mean"] for row in support.rows_of(store, "arm_summary", only_metric="unknown_cost")
    } == {None}


def test_a_missing_cost_is_no_cost(store):
    """A trial without a value is left out and counted, even where less is better."""
    made = [
        Trial(arm=a, task=f"t{k}", trial=n, scores={"cost": 1.0 + k if n else None})
        for a in "ab"
        for k in range(4)
        for n in (0, 1)
    ]
    made += [Trial(arm="a", task="only a", scores={"cost": 0.1})]
    support.plant(store, made)
    for row in support.compared(store, only_metric="cost"):
        assert (row["tasks"], row["difference"], row["base_missing"], row["arm_missing"]) == (
            4,
            0,
            4,
            4,
        )
        assert (row["better"], row["unmatched"]) == ("lower", 1)


@pytest.mark.slow
def test_a_fork_counts_where_it_was_assigned_itself(store):
    """A fork has its parent's experiment by inheritance and is no trial for that."""
    counting = MACROS if THOROUGH else ["comparisons", "trial_scores", "accounting"]
    made = support.plant(store, some())
    before = everything(store, counting)
    support.plant(
        store,
        [Trial(arm="a", task="t1", parent=made[0].run, scores={"reward": 1.0}, run="zz fork")],
    )
    assert same(before, everything(store, counting))
    store.all(
        "INSERT INTO assignments BY NAME SELECT 'zz fork' AS run, 'e' AS experiment, 'a' AS arm, "
        "1 AS version, 1 AS position, TIMESTAMP '2026-01-01' AS happened_at"
    )
    [a, _] = support.rows_of(store, "accounting")
    assert a["runs"] == before["accounting"][0]["runs"] + 1


def test_what_a_run_took_is_the_same_by_view_and_by_macro(store):
    """trial_runs and the metric latency_ms agree, for runs of our own and imported ones."""
    labels = [None, {"source": "x"}]
    support.plant(
        store, [Trial(arm=a, task=f"t{n}", labels=labels[n % 2]) for a in "ab" for n in range(6)]
    )
    store.all("UPDATE runs SET ended_at = started_at + INTERVAL 5 SECOND WHERE task <> 't4'")
    store.all(
        "INSERT INTO events BY NAME SELECT unnest([1, 2]) AS version, first_position AS position, "
        "0 AS event_index, run || version AS id, 'message.added.v1' AS type, "
        "'agent/a/a' AS stream, run, started_at + to_seconds(3 * version) AS happened_at, "
        "started_at AS logged_at, started_at AS written_at, 'then' AS occurred_at, 'x' AS actor, "
        "0 AS epoch, run AS commit_id, '{}' AS data FROM runs WHERE task IN ('t1', 't3')"
    )
    by_view = dict(store.all("SELECT run, latency_ms FROM trial_runs"))
    rows = support.rows_of(store, "trial_scores", only_metric="latency_ms")
    assert {row["run"]: row["value"] for row in rows} == by_view
    assert set(by_view.values()) == {5_000.0, 3_000.0, None}


@pytest.mark.thorough(quick="test_the_worst_case_of_a_metric_that_is_no_share")
def test_the_worst_case_is_against_the_arm_and_for_the_baseline(store):
    """Worst case counts missing trials as 0 in the arm and 1 in the baseline."""
    made = [
        Trial(arm=arm, task=f"t{n}", scores={"reward": float(arm == "b")})
        for arm in "ab"
        for n in range(20)
    ]
    made[0].status = "failed"  # a, t0: counts as 1
    made[1].scores = {}  # a, t1: counts as 1
    made[22].status, made[23].scores = "failed", {}  # b, t2 and t3: count as 0
    support.plant(store, [each for each in made if (each.arm, each.task) != ("b", "t4")])
    rows = support.compared(store, counted_as="worst-case")
    by = {row["counting"]: row for row in rows}
    assert by.keys() == {"failure", "excluded", "worst-case"}
    row = support.default(rows)
    assert row["counting"] == "worst-case"
    assert (row["base_mean"], row["arm_mean"], row["tasks"]) == (2 / 20, 17 / 20, 20)
    means = {
        arm["arm"]: arm["mean"]
        for arm in support.rows_of(store, "arm_summary", counted_as="worst-case")
    }
    assert means == {"a": 2 / 20, "b": 17 / 19}
    [curve, _] = support.rows_of(store, "pass_curves", counted_as="worst-case")
    assert (curve["arm"], curve["pass_at_k"]) == ("a", pytest.approx(2 / 20))
    # The other way round b is the baseline, and its missing trials count as 1.
    [swapped] = [
        row
        for row in support.compared(store, counted_as="worst-case", against="b")
        if row["default"]
    ]
    assert (swapped["base_mean"], swapped["arm_mean"]) == (1, 0)


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize(
    ("better", "base", "arm"),
    [("higher", (3 + 5) / 2, (0 + 2) / 2), ("lower", (3 + 2) / 2, (5 + 2) / 2), (None, 3, 2)],
)
def test_the_worst_case_of_a_metric_that_is_no_share(store, better, base, arm):
    """Worst cases are the observed extremes, and none without a direction."""
    scores = {"a": (3.0, None), "b": (2.0, None), "c": (5.0, 4.0)}
    support.plant(
        store,
        [
            Trial(arm=name, task="t", trial=n, scores={"depth": value})
            for name, values in scores.items()
            for n, value in enumerate(values)
        ],
    )
    directions = f'{{"depth": "{better}"}}' if better else None
    rows = support.compared(store, directions=directions, counted_as="worst-case")
    [row] = [row for row in rows if row["default"] and row["arm"] == "b"]
    assert (row["base_mean"], row["arm_mean"]) == (base, arm)


def test_percentiles_stand_only_where_there_are_any(store):
    """Not of a metric that is 0 or 1, nor of one that is everywhere the same."""
    support.plant(
        store,
        [
            Trial(
                arm=arm,
                task=f"t{n}",
                scores={"reward": float(n % 2), "same": 7.0, "depth": float(n)},
            )
            for arm in "ab"
            for n in range(5)
        ],
    )
    medians = {row["metric"]: row["p50"] for row in support.rows_of(store, "arm_summary")}
    assert medians == {"reward": None, "same": None, "depth": 2}
