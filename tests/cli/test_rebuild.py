"""`hansard rebuild`, and the reports of `status` and `up` about the tables."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import pytest

import hansard
from hansard.projections.table_files import TableFiles, WriteLock
from tests.cli.support import WORKSPACE, Call, Ran
from tests.cli.test_up import a_run, up
from tests.faults._warm import python

pytestmark = pytest.mark.slow


@pytest.mark.thorough
def test_rebuild_makes_the_tables_and_compares_them(home, runs, call, shell):
    """--verify reports a missing row with 1 and its table; a broken file is rebuilt."""
    place = TableFiles.of(home, WORKSPACE)
    made = call("rebuild", "--json")
    assert (made.code, made.err) == (0, "")
    *tables, last = made.lines
    rows = {line["table"]: line["rows"] for line in tables}
    assert rows["runs"] >= 5
    assert last["position"] > 40
    again = call("rebuild")
    assert again.code == 0
    assert f"made {place.path} up to position {last['position']}" in again.out
    assert call("rebuild", "--verify").out.endswith("are equal to the log\n")
    with duckdb.connect(place.path) as con:
        con.execute("DELETE FROM steps WHERE run = $1 AND step = 1", [runs.team])
    compared = call("rebuild", "--verify", "--json")
    assert (compared.code, compared.lines[-1]["differing"]) == (1, ["steps"])
    assert {line["table"] for line in compared.lines[:-1] if not line["equal"]} == {"steps"}
    assert "differ from the log: steps" in call("rebuild", "--verify").out
    place.path.write_bytes(b"damaged" * 1_000)
    assert call("rebuild", "--verify").code == 2
    assert shell("rebuild").code == 0
    assert call("rebuild", "--verify").code == 0
    place.path.unlink()
    nothing = call("rebuild", "--verify")
    assert (nothing.code, nothing.out) == (2, "")
    assert "there is no such file" in nothing.err


SMALL = "rebuilt"
Small = Callable[..., Ran]


@pytest.fixture
def small(home: Path, record: hansard.Record, call: Call) -> Small:
    """Return the command line over a workspace of one run, whose tables are soon made."""
    a_run(home, SMALL)
    return partial(call, workspace=SMALL)


def test_rebuild_is_refused_while_somebody_projects(home: Path, small: Small):
    """The process is named, and nothing is touched."""
    small("rebuild")
    place = TableFiles.of(home, SMALL)
    hold = WriteLock(place)
    for arguments in (["rebuild"], ["rebuild", "--verify"]):
        refused = small(*arguments)
        assert (refused.code, refused.out) == (2, "")
        assert f"process {os.getpid()} already projects into" in refused.err
    hold.close()
    assert small("rebuild", "--verify").code == 0


def test_a_reader_rebuilds_tables_of_another_schema(home: Path, small: Small):
    """An older schema is rebuilt with a note, once; --verify refuses to replace it."""
    small("rebuild")
    with duckdb.connect(TableFiles.of(home, SMALL).path) as con:
        con.execute("UPDATE schema_version SET digest = 'other'")
    refused = small("rebuild", "--verify")
    assert (refused.code, "another version of Hansard made it" in refused.err) == (2, True)
    a_run(home, SMALL)
    answer = small("sql", "SELECT count(*) AS runs FROM runs", "--json")
    assert "rebuilding" in answer.err
    assert "from the log: another schema made it" in answer.err
    again = small("sql", "SELECT count(*) AS runs FROM runs", "--json")
    assert "rebuilding" not in again.err
    assert answer.lines[0] == again.lines[0]
    assert small("rebuild", "--verify").code == 0


def test_status_says_how_far_the_tables_are(home: Path, small: Small):
    """Status has position, lag and projector, for people and for programs."""
    small("rebuild")
    status = small("status", "--json").lines[1]
    position = status["position"]
    assert status["projection"] == {
        "position": position,
        "behind": 0,
        "running": False,
        "pid": None,
        "delay_ms": None,
    }
    assert f"position {position}, up to date (no process projects" in small("status").out
    TableFiles.of(home, SMALL).path.unlink()
    assert small("status", "--json").lines[1]["projection"]["behind"] == position


def test_up_goes_on_where_it_cannot_project(tmp_path: Path):
    """An unusable file is reported with the remedy; the log is kept and shown."""
    home = tmp_path / "data"
    place = TableFiles.of(home, "lab")
    place.path.parent.mkdir(parents=True, mode=0o700)
    place.path.parent.parent.chmod(0o700)
    place.path.write_bytes(b"no database" * 1_000)
    with up(home, "--json", "--durability", "relaxed", program=python()) as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [line["kind"] for line in lines] == ["up", "projector"]
        assert "make it again with 'hansard rebuild'" in lines[1]["fact"]
        a_run(home, "lab")
        assert json.loads(process.stdout.readline())["kind"] == "commit"
