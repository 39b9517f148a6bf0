"""Imported and projected runs of others: published counts, and the domain's fold."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

import hansard
from hansard.bus.jetstream.log import RawWorkspace
from hansard.projections.runner import rebuild, verify
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles
from tests.cli.planting import options
from tests.cli.support import environment
from tests.projections.support import check_agent, check_facts, check_life, check_steps

pytestmark = pytest.mark.thorough

RUNS_CHECKED = 25


def _shell(home: Path, workspace: str, *arguments: str) -> None:

    done = subprocess.run(
        [sys.executable, "-m", "hansard", "-w", workspace, *arguments],
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr[-2_000:]


@pytest.mark.real
def test_tau_bench_is_projected(home: Path, record: hansard.Record, real_data: Path):
    """200 published airline runs project as they fold, with a success of 0.42."""
    workspace = "tau"
    [file] = sorted((real_data / "tau-bench").rglob("gpt-4o-airline.json"))
    with hansard.connect(workspace, data_dir=home) as opened:
        _shell(home, workspace, "import", "tau-bench", str(file))
        place = TableFiles.of(home, workspace)

        async def project() -> list[str]:
            raw = await RawWorkspace.open(options(home), workspace)
            try:
                await rebuild(raw, place, lambda _done, _total: None)
                return (await verify(raw, place, lambda _done, _total: None)).differing
            finally:
                await raw.close()

        assert asyncio.run(project()) == []
        store = Store(place.path, read_only=True)
        count = lambda sql: store.all(sql)[0][0]  # noqa: E731 -- a word for what follows
        assert count("SELECT count(*) FROM problems") == 0
        assert count("SELECT count(*) FROM events WHERE known_as IS NULL") == 0
        assert count("SELECT count(*) FROM runs") == 200
        assert count("SELECT count(DISTINCT task) FROM runs") == 50
        assert count("SELECT count(*) FROM messages") == 5_308
        by_role = dict(store.all("SELECT message_role, count(*) FROM messages GROUP BY ALL"))
        assert by_role == {"assistant": 2_454, "user": 1_490, "tool": 1_164, "system": 200}
        assert count("SELECT fsum(value) FROM outcomes WHERE metric = 'reward'") / 200 == 0.42
        runs = [run for (run,) in store.all("SELECT run FROM runs ORDER BY run")]
        for run in random.Random(7).sample(runs, RUNS_CHECKED):
            view = opened.state(run)
            check_life(store, run, view.life)
            for state in view.agents.values():
                check_agent(store, run, state)
                check_steps(store, run, state)
                check_facts(store, run, state)
        store.close()
