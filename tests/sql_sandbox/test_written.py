"""`hansard sql -o FILE`: an answer of any size, streamed to the file, whole or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, ipc, parquet

import hansard
from tests.cli.support import environment

pytestmark = pytest.mark.slow

ROWS = """
    SELECT range AS n, CASE WHEN range % 3 > 0 THEN 't' || range END AS text, [range] AS many,
        repeat('x', 200) AS wide FROM range(60_000)
"""
"""Several chunks, and in Parquet a part of a row group."""

MIB = 2**20
GROWN_MIB_MAX = 64
"""Largest growth of memory for any size: some chunks, and the allocators' reserve."""


@pytest.fixture
def record(data_dir: Path, workspace: str) -> None:
    """Return a workspace with a run."""
    with hansard.connect(workspace, data_dir=data_dir) as opened, opened.run("w", run="r"):
        pass


def read(path: Path) -> Any:
    """Return a file as a table."""
    match path.suffix:
        case ".arrow":
            return ipc.open_stream(path.read_bytes()).read_all()
        case ".parquet":
            return parquet.read_table(path)
        case ".csv":
            return csv.read_csv(path)
        case _:
            return pa.Table.from_pylist(
                [json.loads(line) for line in path.read_text().splitlines()]
            )


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("ending", ["arrow", "parquet", "csv", "ndjson"])
@pytest.mark.usefixtures("record")
def test_all_of_an_answer_is_written(call: Any, tmp_path: Path, ending: str):
    """All rows are written in order, with position and completeness in the metadata."""
    path = tmp_path / f"all.{ending}"
    result = call("sql", ROWS, "-o", str(path))
    assert result.code == 0, result.err
    assert "60,000 rows" in result.err
    table = read(path)
    assert table.column("n").to_pylist() == list(range(60_000))
    text = table.column("text").to_pylist()
    assert (text[0] or None, text[59_999 - 1], table.num_columns) == (None, "t59998", 4)
    if ending in {"arrow", "parquet"}:
        assert table.column("many")[7].as_py() == [7]
        meta = table.schema.metadata
        assert (meta[b"hansard.cut"], meta[b"hansard.position"].isdigit()) == (b"no", True)
    empty = call("sql", "SELECT 1 AS one WHERE false", "-o", str(path))
    assert (empty.code, "0 rows" in empty.err) == (0, True), empty.err
    if ending != "ndjson":
        assert (read(path).column_names, read(path).num_rows) == (["one"], 0)


@pytest.mark.usefixtures("record")
def test_what_is_not_whole_is_not_written(call: Any, tmp_path: Path):
    """A result that is cut, failed or too slow leaves the old file, and no other file beside it."""
    path = tmp_path / "kept.arrow"
    path.write_text("as it was")
    halfway = (
        "SELECT CASE WHEN range = 500_000 THEN error('late') ELSE range END FROM range(1_000_000)"
    )
    for arguments, code, why in (
        (("SELECT * FROM range(50_000)", "--rows", "10"), 4, "nothing is written"),
        ((halfway,), 2, "late"),
        (("SELECT * FROM range(10_000_000_000)", "--timeout", "0.2"), 2, "0.2 s"),
    ):
        result = call("sql", *arguments, "-o", str(path))
        assert (result.code, why in result.err) == (code, True), result
        assert path.read_text() == "as it was"
    assert [each.name for each in tmp_path.iterdir()] == ["kept.arrow"]


@pytest.mark.usefixtures("record")
def test_a_role_is_written_what_it_sees_once_that_is_on_record(call, data_dir, workspace, tmp_path):
    """With --role the file appears once the answer is recorded, with its rows."""
    roles = tmp_path / "roles.toml"
    roles.write_text(
        '[roles.few]\n[[roles.few.sees]]\nname = "m"\nkinds = ["message.*"]\n'
        "[roles.few.may]\nquery = true\n"
    )
    with hansard.connect(workspace, data_dir=data_dir) as record:
        record.roles.apply_file(roles)
    path = tmp_path / "few.parquet"
    result = call("sql", "SELECT count(*) AS runs FROM runs", "--role", "few", "-o", str(path))
    assert result.code == 0, result.err
    assert read(path).to_pylist() == [{"runs": 0}]
    with hansard.connect(workspace, data_dir=data_dir) as record:
        statement = "SELECT data->>'rows' FROM events WHERE type = 'query.answered.v1'"
        assert record.sql(statement).rows == [("1",)]


def peak_mib(data_dir: Path, workspace: str, count: int, path: Path) -> float:
    """Return the peak memory of any process of a command, in MiB."""
    question = f"SELECT range AS n FROM range({count})"
    arguments = ["--data-dir", str(data_dir), "-w", workspace, "sql", question, "-o", str(path)]
    with subprocess.Popen(
        [sys.executable, "-m", "hansard", *arguments],
        env=environment(data_dir),
        stderr=subprocess.DEVNULL,
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert path.stat().st_size > 8 * count
    return used.ru_maxrss / 1_024


@pytest.mark.thorough(quick="test_all_of_an_answer_is_written")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere ru_maxrss has another unit")
@pytest.mark.parametrize(
    "size_mib", [96, pytest.param(1_100, marks=pytest.mark.thorough)], ids=["96", "more-than-1024"]
)
@pytest.mark.usefixtures("record")
def test_memory_does_not_grow_with_what_is_written(data_dir, workspace, tmp_path, size_mib):
    """The peak of the command and its worker stays near that of one row."""
    path = tmp_path / "large.arrow"
    least = peak_mib(data_dir, workspace, 1, path)
    most = peak_mib(data_dir, workspace, size_mib * MIB // 8, path)
    path.unlink()
    assert most - least < GROWN_MIB_MAX, (least, most)
