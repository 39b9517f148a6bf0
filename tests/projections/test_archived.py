"""Rows of the tables in an archive: as Parquet, and as one view with the live tables."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pytest

from hansard.bus.archive import archive_at
from hansard.bus.sources import Archived
from hansard.projections.archived import query, store_tables, stored_tables, years
from hansard.projections.errors import Behind
from hansard.projections.store import Store
from tests.projections.conftest import Story
from tests.projections.support import WORKSPACE, fill

pytestmark = pytest.mark.slow


def _generation(number: int, first: int, last: int) -> Archived:
    return Archived(number, first, last, last - first + 1, "", "")


async def test_the_archive_and_the_live_tables_are_one_view(story: Story, tmp_path: Path) -> None:
    """Each table has the same rows over the archive's Parquet and the tables after it as the live
    tables have alone, although runs go on over the ends of generations; without the live tables,
    those of the runs that ended before. Another engine reads the same files.
    """
    archive = archive_at(WORKSPACE, str(tmp_path / "archive"))
    ends: list[int] = []
    first = 1
    for number, share in enumerate((1 / 3, 2 / 3)):
        store = Store(tmp_path / f"{number}.duckdb")
        fill(store, story.messages[: int(len(story.messages) * share)])
        end = store.position  # whole transactions only
        ends.append(end)
        generation = _generation(number, first, end)
        stored = await store_tables(archive, store, generation)
        assert await store_tables(archive, store, generation) == stored
        with pytest.raises(Behind):
            await store_tables(archive, store, _generation(number, first, end + 1))
        store.close()
        first = end + 1
    live = Store(tmp_path / "live.duckdb")
    fill(live, story.messages)
    tables = sorted((await stored_tables(archive))[0].tables)
    expected = {name: live.all(f"SELECT * FROM {name} ORDER BY ALL") for name in tables}
    early = live.all(f"SELECT run FROM runs WHERE last_position <= {ends[-1]} ORDER BY run")
    live.close()
    assert len(tables) > 50
    async with years(archive, tmp_path / "live.duckdb") as con:
        for name in tables:
            rows = con.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall()
            assert rows == expected[name], name
    async with years(archive, None) as con:
        names = con.execute("SELECT run FROM runs ORDER BY run").fetchall()
        assert set(early) <= set(names)
        events = con.execute("SELECT count(*), max(position) FROM events").fetchone()
        assert events == (sum(row[0] <= ends[-1] for row in expected["events"]), ends[-1])
    files = f"{tmp_path}/archive/{WORKSPACE}/tables/events/*.parquet"
    assert pl.scan_parquet(files).select("position").collect()["position"].max() == ends[-1]
    with duckdb.connect() as con:
        assert con.execute(f"SELECT max(position) FROM '{files}'").fetchall() == [(ends[-1],)]
    lacks = "FROM archive_lacks"
    assert (await query(archive, None, lacks))[1:] == ([], [])
    (tmp_path / "archive" / WORKSPACE / "tables" / f"{ends[0]:020d}.json").unlink()
    for tables_of in (None, tmp_path / "live.duckdb"):
        gap = [(1, ends[0])]
        assert (await query(archive, tables_of, lacks))[1:] == (gap, gap)
