"""Published figures from SQL alone: files imported, projected, and queried with the macros.

The published numbers are listed here; Python only rounds to the digits that were published.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hansard.client.opening import reading_raw
from hansard.projections.runner import rebuild
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles as Tables
from tests.real import support
from tests.real.converters import mcpmark

pytestmark = [pytest.mark.real, pytest.mark.thorough]

OPUS, SONNET = "button-claude-opus-4-6", "claude-sonnet-4-5"


@contextlib.contextmanager
def projected(place: support.Place) -> Iterator[Store]:
    """Yield the tables of all that was imported."""
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
    """tau2-bench."""
    folder = real_data / "tau2-bench" / "dev"
    with support.opened(tmp_path_factory.mktemp("taus")) as place:
        place.imported("tau2-bench", folder / f"airline_{OPUS}_distyl.json", "tau2", OPUS)
        place.imported("tau2-bench", folder / f"airline_{SONNET}_aide.json", "tau2", SONNET)
        with projected(place) as store:
            yield store


def test_success_and_cost_of_two_systems_on_tau2(taus: Store):
    """76.0 and 72.0 percent, at 0.41363 and 0.28886496 dollars a task."""
    success = taus.all(
        "SELECT arm, round(100 * mean, 9) FROM arm_summary('tau2', only_metric := 'reward') "
        "ORDER BY arm"
    )
    assert success == [(OPUS, 76.0), (SONNET, 72.0)]
    for query in (
        "SELECT arm, mean FROM arm_summary('tau2', only_metric := 'agent_cost')",
        "SELECT arm, mean FROM arm_summary('tau2', only_metric := 'cost')",  # of its messages
        "SELECT arm, favg(cost) FROM trial_runs WHERE experiment = 'tau2' GROUP BY arm",
    ):
        assert dict(taus.all(query)) == {
            OPUS: pytest.approx(0.41363, abs=5.1e-6),
            SONNET: pytest.approx(0.28886496, abs=5.1e-9),
        }
    users = taus.all(
        "SELECT count(*) FROM trial_runs AS t JOIN outcomes AS o ON o.run = t.run "
        "WHERE o.metric = 'user_cost' AND abs(o.value - t.user_cost) > 1e-9"
    )
    assert users == [(0,)]  # what the source claims for the simulated user is its messages' sum


@pytest.fixture(scope="module")
def models(real_data: Path, tmp_path_factory) -> Iterator[Store]:
    """MCPMark: 4,699 runs of ten models."""
    folder = tmp_path_factory.mktemp("mcpmark")
    yield from marked(folder, mcpmark.convert(archive(real_data)))


def archive(real_data: Path) -> Path:
    """MCPMark's runs."""
    return real_data / "mcpmark" / "dev" / "model_results.tar.gz"


def marked(folder: Path, chats: Iterable[dict[str, Any]]) -> Iterator[Store]:
    """Yield the tables of such runs."""
    file = folder / "chats.jsonl"
    support.write(file, chats)
    with support.opened(folder / "data") as place:
        place.imported("chat-jsonl", file, "mcpmark")
        with projected(place) as store:
            yield store


@pytest.fixture(scope="module")
def published(real_data: Path):
    """Return the summary's part over all services, by model."""
    summary = json.loads((real_data / "mcpmark" / "dev" / "summary.json").read_bytes())
    return summary["overall"]


def test_pass_of_ten_models(models: Store, published):
    """MCPMark's summary: pass@1, and of the models with four runs pass@4 and pass^4."""
    curves = models.all(
        "SELECT arm, k, tasks, round(pass_at_k, 4), round(pass_hat_k, 4) "
        "FROM pass_curves('mcpmark', only_metric := 'success')"
    )
    shares = {(arm, k): (tasks, at, hat) for arm, k, tasks, at, hat in curves}
    assert len(published) == 10
    for model, summary in published.items():
        assert shares[model, 1][:2] == (summary["total_tasks"], summary["pass@1"]["avg"]), model
        assert ((model, 4) in shares) == ("pass@4" in summary)
        if "pass@4" in summary:
            assert shares[model, 4][1:] == (summary["pass@4"], summary["pass^4"]), model


def test_the_deviation_over_runs_of_ten_models(models: Store, published):
    """The summary's deviation of pass@1 is that of a population of four whole runs."""
    deviations = models.all(
        """
        SELECT arm, round(stddev_pop(share), 4) FROM (
            SELECT arm, trial, fsum(value ORDER BY run) / count(*) AS share
            FROM trial_scores('mcpmark', only_metric := 'success') GROUP BY arm, trial
        ) GROUP BY arm
        """
    )
    assert dict(deviations) == {
        model: summary["pass@1"]["std"] for model, summary in published.items()
    }


TOTALS = {
    "execution_time_s": ("total_agent_execution_time", "avg_agent_execution_time"),
    "input_tokens": ("total_input_tokens", "avg_input_tokens"),
    "output_tokens": ("total_output_tokens", "avg_output_tokens"),
    "total_tokens": ("total_tokens", "avg_total_tokens"),
    "turns": ("total_turns", "avg_turns"),
}
"""Metrics, and how the summary calls their sum and mean."""


@pytest.mark.parametrize("metric", TOTALS)
def test_what_ten_models_used_up(models: Store, published, metric):
    """Time, tokens and turns: sums and means over all runs, as the summary has them."""
    total, mean = TOTALS[metric]
    rows = models.all(
        "SELECT arm, total, total / (trials - missing) "
        "FROM arm_summary('mcpmark', only_metric := $1)",
        [metric],
    )
    for arm, used, each in rows:
        assert used == pytest.approx(published[arm][total], rel=1e-12), arm
        assert each == pytest.approx(published[arm][mean], abs=5.1e-5), arm
    assert len(rows) == 10


@pytest.mark.parametrize("service", ["filesystem", "github", "notion", "playwright", "postgres"])
def test_pass_of_ten_models_by_service(models: Store, real_data: Path, service):
    """The summary's parts: pass@1 by service, which is the workflow of a run."""
    check_pass(models, real_data, service)


def check_pass(models: Store, real_data: Path, service: str) -> None:
    """Check that mean and deviation of each model equal the published ones."""
    summary = json.loads((real_data / "mcpmark" / "dev" / "summary.json").read_bytes())[service]
    rows = models.all(
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
    expected = {
        model: (each["pass@1"]["avg"], each["pass@1"]["std"]) for model, each in summary.items()
    }
    assert {arm: (mean, deviation) for arm, mean, deviation in rows} == expected
    assert len(expected) == 10
