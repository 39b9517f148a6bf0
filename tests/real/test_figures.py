"""Published figures, out of SQL alone: files imported, projected, and asked with the macros.

What the sources publish stands here as numbers; nothing is computed in Python but the rounding to
the digits that were published.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hansard.client.opening import reading_raw
from hansard.projections.rebuild import rebuild
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles as Tables
from tests.real import support
from tests.real.converters import bfcl, game24, mcpmark

pytestmark = pytest.mark.real

OPUS, SONNET = "button-claude-opus-4-6", "claude-sonnet-4-5"
TOOLS, PRECONDITIONS = "tool-calling", "with-preconditions"


@contextlib.contextmanager
def projected(place: support.Place) -> Iterator[Store]:
    """The tables of all that was imported."""
    tables = Tables.of(place.home, support.WORKSPACE)

    async def work() -> None:
        async with reading_raw(place.settings) as raw:
            await rebuild(raw, tables, lambda _done, _total: None)

    asyncio.run(work())
    store = Store(tables.path, read_only=True)
    try:
        assert store.all("SELECT count(*) FROM problems") == [(0,)]
        yield store
    finally:
        store.close()


@pytest.fixture(scope="module")
def taus(real_data: Path, tmp_path_factory) -> Iterator[Store]:
    """tau-bench and tau2-bench."""
    with support.opened(tmp_path_factory.mktemp("taus")) as place:
        tau, tau2 = real_data / "tau-bench" / "dev", real_data / "tau2-bench" / "dev"
        for format_, file, experiment, arm in (
            ("tau-bench", tau / "gpt-4o-airline.json", "airline", "gpt-4o"),
            ("tau-bench", tau / "agentverify_tool-calling_retail0-99.json", "retail", TOOLS),
            (
                "tau-bench",
                tau / "agentverify_tool-calling-with-preconditions_retail0-99.json",
                "retail",
                PRECONDITIONS,
            ),
            ("tau2-bench", tau2 / "airline_button-claude-opus-4-6_distyl.json", "tau2", OPUS),
            ("tau2-bench", tau2 / "airline_claude-sonnet-4-5_aide.json", "tau2", SONNET),
        ):
            place.imported(format_, file, experiment, arm)
        with projected(place) as store:
            yield store


@pytest.mark.thorough(
    quick="tests/real/test_tau_bench.py::test_the_published_airline_figures_come_out_of_the_record"
)
def test_pass_hat_k_of_gpt_4o_on_airline(taus: Store):
    """tau-bench's table: pass^1 to pass^4 are 0.4200, 0.2733, 0.2200, 0.2000."""
    found = taus.all("SELECT k, tasks, round(pass_hat_k, 4) FROM pass_curves('airline') ORDER BY k")
    assert found == [(1, 50, 0.4200), (2, 50, 0.2733), (3, 50, 0.2200), (4, 50, 0.2000)]


@pytest.mark.thorough(
    quick="tests/real/test_tau_bench.py::test_the_published_airline_figures_come_out_of_the_record"
)
def test_two_ways_to_prompt_on_retail_cannot_be_told_apart(taus: Store):
    """0.73 against 0.70 of 100 tasks; only one of both succeeds on 14 and 11; p = 0.69."""
    found = taus.all(
        "SELECT arm, baseline, base_mean, arm_mean, wins, losses, round(mcnemar_p, 2), verdict, "
        "tasks, unmatched, base_missing + arm_missing FROM comparisons('retail', against := $1) "
        'WHERE "default"',
        [TOOLS],
    )
    assert found == [(PRECONDITIONS, TOOLS, 0.73, 0.70, 11, 14, 0.69, "cannot tell", 100, 0, 0)]
    other = taus.all(
        "SELECT wins, losses, round(mcnemar_p, 2), verdict "
        "FROM comparisons('retail', against := $1) "
        'WHERE "default"',
        [PRECONDITIONS],
    )
    assert other == [(14, 11, 0.69, "cannot tell")]


@pytest.mark.thorough(
    quick="tests/real/test_tau2_bench.py::test_the_published_claim_comes_out_of_the_record"
)
def test_success_and_cost_of_two_systems_on_tau2(taus: Store):
    """76.0 and 72.0 percent, at 0.41363 and 0.28886496 dollars a task."""
    success = taus.all(
        "SELECT arm, round(100 * mean, 9) FROM arm_summary('tau2', only_metric := 'reward') "
        "ORDER BY arm"
    )
    assert success == [(OPUS, 76.0), (SONNET, 72.0)]
    for asked in (
        "SELECT arm, mean FROM arm_summary('tau2', only_metric := 'agent_cost')",
        "SELECT arm, mean FROM arm_summary('tau2', only_metric := 'cost')",  # of its messages
        "SELECT arm, favg(cost) FROM trial_runs WHERE experiment = 'tau2' GROUP BY arm",
    ):
        assert dict(taus.all(asked)) == {
            OPUS: pytest.approx(0.41363, abs=5.1e-6),
            SONNET: pytest.approx(0.28886496, abs=5.1e-9),
        }
    users = taus.all(
        "SELECT count(*) FROM trial_runs AS t JOIN outcomes AS o ON o.run = t.run "
        "WHERE o.metric = 'user_cost' AND abs(o.value - t.user_cost) > 1e-9"
    )
    assert users == [(0,)]  # what the source claims for the simulated user is its messages' sum


@pytest.mark.thorough(quick="tests/statistics/test_laws.py::test_of_several_metrics_none_is_chosen")
def test_of_what_tau2_measures_nothing_is_chosen_silently(taus: Store):
    """Its files score four metrics, and no plan names one: all four stand there, of known
    direction, with a difference, and none with a verdict; each has one as soon as it is named.
    """
    rows = taus.rows("FROM comparisons('tau2') WHERE \"default\" ORDER BY metric")
    found = {row["metric"]: (row["better"], row["verdict"]) for row in rows}
    none = "no metric named"
    assert found == {
        "agent_cost": ("lower", none),
        "duration": ("lower", none),
        "reward": ("higher", none),
        "user_cost": ("lower", none),
    }
    for metric in found:
        [row] = taus.rows(f"FROM comparisons('tau2', only_metric := '{metric}') WHERE \"default\"")
        assert row["verdict"] in {"better", "worse", "cannot tell"}


@pytest.mark.thorough(
    quick="tests/real/test_tau2_bench.py::test_the_agents_cost_is_that_of_its_messages"
)
def test_the_agents_cost_is_that_of_its_messages_in_every_run(taus: Store):
    """What a source claims for the agent is the sum over its messages, in 100 of 100 runs."""
    found = taus.all(
        """
        SELECT count(*), count(*) FILTER (abs(o.value - m.cost) < 1e-12), sum(m.messages)
        FROM outcomes AS o
        JOIN runs AS r ON r.run = o.run AND r.experiment = 'tau2'
        JOIN (
            SELECT run, fsum(cost ORDER BY version) AS cost, count(*) AS messages
            FROM messages WHERE message_role = 'assistant' GROUP BY run
        ) AS m ON m.run = o.run
        WHERE o.metric = 'agent_cost'
        """
    )
    assert found == [(100, 100, 474 + 517)]


@pytest.fixture(scope="module")
def puzzles(real_data: Path, tmp_path_factory) -> Iterator[Store]:
    """Game of 24 under three prompts."""
    folder = tmp_path_factory.mktemp("puzzles")
    names = {
        "io": "gpt-4_0.7_naive_standard_sample_100_start900_end1000.json",
        "cot": "gpt-4_0.7_naive_cot_sample_100_start900_end1000.json",
        "tot": "gpt-4_0.7_propose1_value3_greedy5_start900_end1000.json",
    }
    with support.opened(folder / "data") as place:
        for arm, name in names.items():
            source = real_data / "tree-of-thought" / "dev" / "game24" / name
            support.write(folder / f"{arm}.jsonl", game24.convert(source))
            place.imported("chat-jsonl", folder / f"{arm}.jsonl", "game24", arm)
        with projected(place) as store:
            yield store


@pytest.fixture(scope="module")
def functions(real_data: Path, tmp_path_factory) -> Iterator[Store]:
    """BFCL's pair."""
    folder = tmp_path_factory.mktemp("functions")
    with support.opened(folder / "data") as place:
        for arm, model in {"prompt": "gpt-4o-2024-05-13", "fc": "gpt-4o-2024-05-13-FC"}.items():
            cases = bfcl.convert(real_data / "bfcl" / "dev", model)
            support.write(folder / f"{arm}.jsonl", cases)
            place.imported("chat-jsonl", folder / f"{arm}.jsonl", "bfcl", arm)
        with projected(place) as store:
            yield store


def by_arm(store: Store, experiment: str, metric: str, digits: int) -> dict[str, float]:
    """The mean over tasks, rounded to the digits that were published."""
    found = store.all(
        f"SELECT arm, round(mean, {digits}) FROM arm_summary($1, only_metric := $2)",
        [experiment, metric],
    )
    return dict(found)


@pytest.mark.thorough(
    quick="tests/real/test_tau_bench.py::test_the_published_airline_figures_come_out_of_the_record"
)
def test_three_ways_to_prompt_for_24(puzzles: Store):
    """Tree of Thoughts: 7.3 and 4.0 percent of samples are right, 69 of 100 puzzles are solved by
    ToT; a case costs 0.138, 0.470 and 0.745 dollars.
    """
    accuracy, solved = (by_arm(puzzles, "game24", name, 3) for name in ("accuracy", "solved"))
    assert (accuracy["io"], accuracy["cot"]) == (0.073, 0.040)
    assert solved == {"io": 0.33, "cot": 0.49, "tot": 0.69}
    assert by_arm(puzzles, "game24", "cost", 3) == {"io": 0.138, "cot": 0.470, "tot": 0.745}


@pytest.mark.thorough(
    quick="tests/statistics/test_paired.py::test_ranks_are_what_scipy_and_holm_leave_open"
)
def test_tree_of_thoughts_is_better_and_dearer(puzzles: Store):
    """Beside IO, over the same 100 puzzles: told apart, both ways."""
    for metric, verdict in (("solved", "better"), ("cost", "worse")):
        found = puzzles.all(
            "SELECT verdict, tasks, unmatched FROM comparisons('game24', only_metric := $1, "
            "against := 'io') WHERE arm = 'tot' AND \"default\"",
            [metric],
        )
        assert found == [(verdict, 100, 0)]


@pytest.mark.thorough(
    quick="tests/real/test_tau_bench.py::test_the_published_airline_figures_come_out_of_the_record"
)
def test_two_ways_to_call_functions(functions: Store, real_data: Path):
    """BFCL's overall accuracy, 80.53 and 83.00: the share of right cases of 1,700, as published."""
    with (real_data / "bfcl" / "dev" / "data.csv").open(encoding="utf-8", newline="") as file:
        table = {row["Model"]: row["Overall Acc"].rstrip("%") for row in csv.DictReader(file)}
    found = functions.all(
        "SELECT arm, tasks, round(100 * mean, 2) FROM arm_summary('bfcl', only_metric := 'valid') "
        "ORDER BY arm DESC"
    )
    assert found == [("prompt", 1_700, 80.53), ("fc", 1_700, 83.00)]
    assert [float(table[f"GPT-4o-2024-05-13 ({name})"]) for name in ("Prompt", "FC")] == [
        *(80.53, 83.00)
    ]


@pytest.fixture(scope="module")
def models(real_data: Path, tmp_path_factory) -> Iterator[Store]:
    """MCPMark: 4,699 runs of ten models."""
    folder = tmp_path_factory.mktemp("mcpmark")
    yield from marked(folder, mcpmark.convert(archive(real_data)))


@pytest.fixture(scope="module")
def one_service(real_data: Path, tmp_path_factory) -> Iterator[Store]:
    """MCPMark's runs with the smallest service."""
    folder = tmp_path_factory.mktemp("mcpmark")
    chats = mcpmark.convert(archive(real_data))
    yield from marked(folder, (chat for chat in chats if chat["workflow"] == SERVICE))


SERVICE = "postgres"


def archive(real_data: Path) -> Path:
    """MCPMark's runs."""
    return real_data / "mcpmark" / "dev" / "model_results.tar.gz"


def marked(folder: Path, chats: Iterable[dict[str, Any]]) -> Iterator[Store]:
    """The tables of such runs."""
    file = folder / "chats.jsonl"
    support.write(file, chats)
    with support.opened(folder / "data") as place:
        place.imported("chat-jsonl", file, "mcpmark")
        with projected(place) as store:
            yield store


@pytest.fixture(scope="module")
def published(real_data: Path):
    """The summary's part over all services, by model."""
    said = json.loads((real_data / "mcpmark" / "dev" / "summary.json").read_bytes())
    return said["overall"]


@pytest.mark.thorough
def test_pass_of_ten_models(models: Store, published):
    """MCPMark's summary: pass@1, and of the models with four runs pass@4 and pass^4."""
    curves = models.all(
        "SELECT arm, k, tasks, round(pass_at_k, 4), round(pass_hat_k, 4) "
        "FROM pass_curves('mcpmark', only_metric := 'success')"
    )
    found = {(arm, k): (tasks, at, hat) for arm, k, tasks, at, hat in curves}
    assert len(published) == 10
    for model, said in published.items():
        assert found[model, 1][:2] == (said["total_tasks"], said["pass@1"]["avg"]), model
        assert ((model, 4) in found) == ("pass@4" in said)
        if "pass@4" in said:
            assert found[model, 4][1:] == (said["pass@4"], said["pass^4"]), model


@pytest.mark.thorough
def test_the_deviation_over_runs_of_ten_models(models: Store, published):
    """The summary's deviation of pass@1 is that of a population of four whole runs."""
    found = models.all(
        """
        SELECT arm, round(stddev_pop(share), 4) FROM (
            SELECT arm, trial, fsum(value ORDER BY run) / count(*) AS share
            FROM trial_scores('mcpmark', only_metric := 'success') GROUP BY arm, trial
        ) GROUP BY arm
        """
    )
    assert dict(found) == {model: said["pass@1"]["std"] for model, said in published.items()}


TOTALS = {
    "execution_time_s": ("total_agent_execution_time", "avg_agent_execution_time"),
    "input_tokens": ("total_input_tokens", "avg_input_tokens"),
    "output_tokens": ("total_output_tokens", "avg_output_tokens"),
    "total_tokens": ("total_tokens", "avg_total_tokens"),
    "turns": ("total_turns", "avg_turns"),
}
"""Metrics, and how the summary calls their sum and mean."""


@pytest.mark.thorough
@pytest.mark.parametrize("metric", TOTALS)
def test_what_ten_models_used_up(models: Store, published, metric):
    """Time, tokens and turns: sums and means over all runs, as the summary has them."""
    total, mean = TOTALS[metric]
    found = models.all(
        "SELECT arm, total, total / (trials - missing) "
        "FROM arm_summary('mcpmark', only_metric := $1)",
        [metric],
    )
    for arm, came, each in found:
        assert came == pytest.approx(published[arm][total], rel=1e-12), arm
        assert each == pytest.approx(published[arm][mean], abs=5.1e-5), arm
    assert len(found) == 10


@pytest.mark.thorough
@pytest.mark.parametrize("service", ["filesystem", "github", "notion", "playwright", "postgres"])
def test_pass_of_ten_models_by_service(models: Store, real_data: Path, service):
    """The summary's parts: pass@1 by service, which is the workflow of a run."""
    check_pass(models, real_data, service)


@pytest.mark.thorough(
    quick="tests/statistics/test_oracles.py::test_pass_at_k_and_pass_hat_k_are_exact_shares"
)
def test_pass_of_ten_models_with_one_service(one_service: Store, real_data: Path):
    """The same where no other service was imported."""
    check_pass(one_service, real_data, SERVICE)


def check_pass(models: Store, real_data: Path, service: str) -> None:
    """Mean and deviation of each model are those that were published."""
    said = json.loads((real_data / "mcpmark" / "dev" / "summary.json").read_bytes())[service]
    found = models.all(
        """
        SELECT arm, round(fsum(share ORDER BY trial) / count(*), 4), round(stddev_pop(share), 4)
        FROM (
            SELECT s.arm, s.trial, fsum(s.value ORDER BY s.run) / count(*) AS share
            FROM trial_scores('mcpmark', only_metric := 'success') AS s
            JOIN runs AS r ON r.run = s.run AND r.workflow = $1
            GROUP BY s.arm, s.trial
        )
        GROUP BY arm
        """,
        [service],
    )
    wanted = {model: (each["pass@1"]["avg"], each["pass@1"]["std"]) for model, each in said.items()}
    assert {arm: (mean, deviation) for arm, mean, deviation in found} == wanted
    assert len(wanted) == 10
