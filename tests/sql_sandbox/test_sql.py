"""`hansard sql`: formats, source of the query, stderr, and the role that answers."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import structlog
from pyarrow import csv, ipc, parquet

import hansard
from hansard.projections import snapshots as published
from hansard.projections.table_files import TableFiles, WriteLock
from tests.cli.support import WORKSPACE, Call, Ran, environment, make_runs, ran

WAIT_S = 60.0
EVERY_TYPE = """
    SELECT 1 AS i, 1 AS i, 1.5::DECIMAL(9, 2) AS d, 'nan'::DOUBLE AS f, 'a"b,c' AS s, NULL AS n,
    true AS b, '{"x": 1}'::JSON AS j, {'x': 1, 'y': ['a']} AS st, MAP {'k': 1} AS m, [1, 2] AS l,
    '\\x00\\xFF'::BLOB AS bl, uuid() AS u, DATE '2026-01-02' AS da, TIME '10:11:12' AS t,
    TIMESTAMP '2026-01-02 03:04:05.678' AS ts, TIMESTAMP_NS '2026-01-02 03:04:05.123456789' AS ns,
    TIMESTAMPTZ '2026-01-02 03:04:05+02' AS tz, INTERVAL '1 day' AS iv,
    1234567890123456789012345678901::HUGEINT AS h
"""


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory."""
    return tmp_path_factory.mktemp("sql") / "data"


@pytest.fixture(scope="session")
def record(home: Path) -> Iterator[hansard.Record]:
    """Yield a workspace with runs, held open so that its broker stays."""
    with hansard.connect(WORKSPACE, data_dir=home) as opened:
        make_runs(opened)
        yield opened


@pytest.fixture
def ask(
    home: Path,
    record: hansard.Record,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Call]:
    """`hansard sql ...`, in this process; its stdout as latin-1, byte for byte."""
    variables = environment(home)
    for name in os.environ.keys() - variables.keys():
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        return ran(capfdbinary, monkeypatch, ["sql", *arguments], "latin-1")

    yield run
    structlog.reset_defaults()


@pytest.mark.slow
def test_it_answers_as_of_the_head(ask: Call, record: hansard.Record):
    """Commits before the query are in the answer, and stderr states the position."""
    before = ask("SELECT count(*) AS runs FROM runs", "--json")
    assert before.code == 0, before.err
    with record.run("one more", agent="a", role="r"):
        pass
    after = ask("SELECT count(*) AS runs, max(last_position) AS head FROM runs", "--json")
    [line] = after.lines
    assert line["runs"] == before.lines[0]["runs"] + 1
    assert after.err == f"as of position {line['head']}: 1 row\n"


@pytest.mark.slow
def test_it_is_a_program(home: Path, record: hansard.Record):
    """As a program it takes the query on stdin and writes the answer to stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "hansard", "sql", "--json"],
        env=environment(home),
        input=b"SELECT 1 AS x",
        capture_output=True,
        timeout=170,
        check=True,
    )
    assert done.stdout == b'{"x":1}\n'
    assert done.stderr.startswith(b"as of position ")


@pytest.mark.slow
def test_people_get_a_table(ask: Call):
    """Numbers to the right, nothing for NULL, no quotes."""
    result = ask(
        "SELECT 'ab' AS name, 5 AS number, NULL AS nothing UNION ALL SELECT 'c', 1234, 'x'"
    )
    assert result.out.splitlines() == ["name  number  nothing", "ab         5", "c       1234  x"]


@pytest.mark.slow
def test_every_type_goes_into_every_format(ask: Call, tmp_path: Path):
    """Columns of one name are distinguished; a type that a format lacks is text."""
    first = ask(EVERY_TYPE, "--format", "ndjson")
    position = int(first.err.removeprefix("as of position ").partition(":")[0])
    [row] = first.lines
    assert row | {"u": ""} == {
        "i": 1,
        "i_1": 1,
        "d": 1.5,
        "f": "nan",
        "s": 'a"b,c',
        "n": None,
        "b": True,
        "j": '{"x": 1}',
        "st": {"x": 1, "y": ["a"]},
        "m": [["k", 1]],
        "l": [1, 2],
        "bl": "00ff",
        "u": "",
        "da": "2026-01-02",
        "t": "10:11:12",
        "ts": "2026-01-02T03:04:05.678000",
        "ns": "2026-01-02T03:04:05.123456",
        "tz": "2026-01-02T01:04:05Z",
        "iv": row["iv"],
        "h": 1234567890123456789012345678901,
    }
    for name in ("x.csv", "x.parquet", "x.arrow", "x.ndjson", "x.txt"):
        result = ask(EVERY_TYPE, "-o", str(tmp_path / name))
        assert (result.code, result.out) == (0, ""), result.err
    assert json.loads((tmp_path / "x.ndjson").read_text())["l"] == [1, 2]
    read = csv.read_csv(tmp_path / "x.csv")
    assert read.column_names[:3] == ["i", "i_1", "d"]
    assert (read["s"][0].as_py(), read["l"][0].as_py()) == ('a"b,c', "[1,2]")
    stored = parquet.read_table(tmp_path / "x.parquet")
    assert stored["st"].to_pylist() == [{"x": 1, "y": ["a"]}]
    assert stored.schema.metadata[b"hansard.position"] == b"%d" % position
    with ipc.open_stream((tmp_path / "x.arrow").read_bytes()) as stream:
        arrow = stream.read_all()
    assert arrow.schema.metadata[b"hansard.position"] == b"%d" % position
    assert arrow.schema.metadata[b"hansard.cut"] == b"no"
    assert arrow["ts"].type == pa.timestamp("us")
    assert (tmp_path / "x.txt").read_text().splitlines()[0].startswith("i  i_1")


@pytest.mark.slow
def test_a_question_comes_from_anywhere(ask: Call, tmp_path: Path):
    """The query is an argument, a file or a pipe; two at once, or none, is an error."""
    file = tmp_path / "q.sql"
    file.write_text("SELECT 3 AS x")
    assert ask("-f", str(file), "--json").lines == [{"x": 3}]
    assert ask("-", "--json", stdin="SELECT 4 AS x;").lines == [{"x": 4}]
    assert ask("--json", stdin="SELECT 5 AS x -- at the end").lines == [{"x": 5}]
    both = ask("SELECT 1", "-f", str(file))
    assert (both.code, both.out) == (2, "")
    assert "two queries" in both.err
    assert "cannot be read" in ask("-f", str(tmp_path / "none.sql")).err
    assert "these are 0" in ask(stdin="").err


@pytest.mark.slow
def test_a_cut_answer_says_so(ask: Call):
    """A cut answer has a note with the remedy, and an exit code of its own."""
    result = ask("SELECT i FROM range(100) t(i)", "--rows", "3", "--json")
    assert result.code == 4
    assert [line["i"] for line in result.lines] == [0, 1, 2]
    assert result.err.endswith(": 3 rows, and there are more: give --rows (now 3)\n")
    whole = ask("SELECT i FROM range(3) t(i)", "--rows", "3", "--json")
    assert (whole.code, whole.err.endswith(": 3 rows\n")) == (0, True)


@pytest.mark.thorough
def test_what_cannot_be_answered_is_an_error(ask: Call):
    """With 2, in one line, and nothing on stdout."""
    for arguments, fact in (
        (["DROP TABLE runs"], "give one statement that reads"),
        (["SELECT nonsense FROM runs"], "nonsense"),
        (["SELECT count(*) FROM range(1e9::BIGINT) a, range(1000) b", "--timeout", "0.5"], "0.5 s"),
        (["SELECT 1", "--role", "auditor"], "role 'auditor' was not found"),
        (["SELECT 170141183460469231731687303715884105727 AS h", "--format", "arrow"], "cast it"),
        (["SELECT 1", "--json", "--format", "csv"], "--json is --format ndjson"),
        (["SELECT 1", "--wait-for", "999999"], "position 999999 was not projected within 10 s"),
    ):
        result = ask(*arguments)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("error: ")
        assert fact in result.err


def test_a_mistyped_name_makes_nothing(home: Path, ask: Call, tmp_path: Path):
    """A missing workspace or data directory is not created."""
    result = ask("SELECT 1", "-w", "nowhere")
    assert (result.code, result.out) == (2, "")
    assert "workspace 'nowhere' was not found" in result.err
    assert not TableFiles.of(home, "nowhere").published.exists()
    absent = tmp_path / "absent"
    assert ask("SELECT 1", "--data-dir", str(absent)).code == 2
    assert not absent.exists()


@pytest.mark.thorough
def test_it_answers_while_another_process_projects(home: Path, ask: Call, record: hansard.Record):
    """Answers come from the tables of `hansard up`; without further publications there is an
    error.
    """
    up = subprocess.Popen(
        [sys.executable, "-m", "hansard", "up"], env=environment(home), stderr=subprocess.DEVNULL
    )
    try:
        place = TableFiles.of(home, WORKSPACE)
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            status = place.status()
            if status is not None and status.running and status.pid == up.pid:
                break
            time.sleep(0.02)
        for number in range(3):
            with record.run(f"meanwhile {number}", agent="a", role="r"):
                pass
            statement = f"SELECT count(*) AS c FROM runs WHERE workflow = 'meanwhile {number}'"
            result = ask(statement, "--json")
            assert result.lines == [{"c": 1}], result.err
            assert result.err.startswith("as of position ")
        status = place.status()
        assert status is not None
        assert status.pid == up.pid
        assert status.published == status.position > 0
        done = subprocess.run(
            [sys.executable, "-m", "hansard", "status", "--json"],
            env=environment(home),
            capture_output=True,
            check=True,
        )
        published_status = json.loads(done.stdout.splitlines()[1])["published"]
        assert (published_status["position"], published_status["behind"]) == (status.position, 0)
        assert 0 < published_status["delay_ms"] < WAIT_S * 1_000
    finally:
        up.terminate()
        up.wait()
    generation = published.newest(place)
    assert generation is not None
    hold = WriteLock(place)
    with record.run("unseen", agent="a", role="r"):
        pass
    result = ask("SELECT count(*) AS c FROM runs WHERE workflow = 'unseen'", "--json")
    hold.close()
    assert result.code != 0
    assert not result.out
    assert f"was not projected within 10 s, the tables are at {generation.position}" in result.err


@pytest.mark.slow
def test_without_a_broker_the_existing_tables_answer(home: Path, ask: Call):
    """The answer is as of the last publication, and stderr has the reason."""
    assert ask("SELECT 1").code == 0
    away = "nats://127.0.0.1:9"
    result = ask("SELECT count(*) > 0 AS some FROM runs", "--json", "--nats", away)
    assert result.lines == [{"some": True}]
    assert "answered from the existing tables, since the log cannot be read" in result.err
