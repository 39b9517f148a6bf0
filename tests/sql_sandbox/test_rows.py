"""Plain and Arrow rows are the same for every DuckDB type; without pyarrow the rest works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.projections.errors import QueryFailed
from hansard.projections.snapshots import newest
from hansard.projections.sql_sandbox import rows
from hansard.projections.sql_sandbox.answer import Answer, as_json, jsonable
from hansard.projections.sql_sandbox.rows import Bounds
from hansard.projections.sql_sandbox.sandbox import Door
from hansard.projections.table_files import TableFiles
from tests.cli.support import environment

pytestmark = pytest.mark.later

VALUES = (
    "1::TINYINT",
    "255::UTINYINT",
    "9223372036854775807",
    "18446744073709551615::UBIGINT",
    "-1234567890123456789012345678901::HUGEINT",
    "1.50::DECIMAL(9, 2)",
    "1.5::FLOAT",
    "'nan'::DOUBLE",
    "'-infinity'::DOUBLE",
    "'a\"b'",
    "'' ",
    "true",
    "'\\x00\\xFF'::BLOB",
    "DATE '2026-01-02'",
    "TIME '10:11:12.5'",
    "'10:11:12+02'::TIMETZ",
    "TIMESTAMP '2026-01-02 03:04:05.678'",
    "TIMESTAMP_S '2026-01-02 03:04:05'",
    "TIMESTAMP_MS '2026-01-02 03:04:05.678'",
    "TIMESTAMP_NS '2026-01-02 03:04:05.123456789'",
    "TIMESTAMPTZ '2026-01-02 03:04:05+02'",
    "INTERVAL '1 month 2 days'",
    "'101'::BIT",
    "'b'::ENUM ('a', 'b')",
    "'{\"x\": 1}'::JSON",
    "'00000000-0000-0000-0000-00000000002a'::UUID",
    "[1, NULL, 2]",
    "[1, 2]::INTEGER[2]",
    "[INTERVAL '1 month']",
    "[TIMESTAMPTZ '2026-01-02 03:04:05+02']",
    "{'a b': 1, 'c\"d': [DATE '2026-01-02'], 'e': '101'::BIT}",
    "MAP {'key': 1, 'value': 2}",
    "MAP {[1, 2]: 'x'}",
    "[MAP {'k': {'d': 1.5::DECIMAL(4, 1)}}]",
    "union_value(num := 2)",
    "2::BIGNUM",
)
"""In SQL; each column also holds a NULL."""

WITHOUT = "import sys\nsys.modules['pyarrow'] = None\n"


async def test_both_forms_have_the_same_values(place: TableFiles):
    """Values of every type, and NULL, are the same in both forms; DuckDB's own types are text in
    both.
    """
    chosen = ", ".join(f"{value} AS v{at}" for at, value in enumerate(VALUES))
    nothing = ", ".join("NULL" for _ in VALUES)
    sql = f"SELECT {chosen} UNION ALL SELECT {nothing}"
    async with Door(place, Bounds(workers_max=1, spares=0), arrow=True) as door:
        plain, arrow = [await door.ask(sql, arrow=arrow) for arrow in (False, True)]
    assert (plain.is_arrow, arrow.is_arrow) == (False, True)
    assert plain.columns == arrow.columns
    one, other = ([jsonable(list(row)) for row in each.tuples()] for each in (plain, arrow))
    for value, here, there in zip(VALUES, one[0], other[0], strict=True):
        assert as_json(here) == as_json(there), value
    assert one[1] == other[1] == [None] * len(VALUES)
    by_text = dict(zip(VALUES, one[0], strict=True))
    assert by_text["INTERVAL '1 month 2 days'"] == "1 month 2 days"
    assert by_text["[INTERVAL '1 month']"] == ["1 month"]
    assert by_text["'101'::BIT"] == "101"
    assert by_text["MAP {[1, 2]: 'x'}"] == [[[1, 2], "x"]]


NOTHING = """
import json, sys
from pathlib import Path
from hansard.projections.sql_sandbox import worker
from hansard.projections.sql_sandbox.rows import Query
from hansard.projections.sql_sandbox.rows import Limits

class Nothing:
    def find_spec(self, name, path=None, target=None):
        raise ImportError(name)

path, position, statement, parameters = json.loads(sys.argv[1])
engine = worker._Engine(arrow=False)
sys.meta_path.insert(0, Nothing())
query = Query("", position, statement, Limits(), parameters)
result, body = engine.answer(query, Path(path), {}, None)
sys.stdout.write(f"{result.wrong} {result.rows} {result.text}")
"""


def test_an_answer_imports_nothing(place: TableFiles):
    """A worker answers values of any type, with parameters, without access to files or imports."""
    generation = newest(place)
    assert generation is not None
    chosen = ", ".join(f"{value} AS v{at}" for at, value in enumerate(VALUES))
    statement = f"SELECT {chosen}, ?, ?, ?, ? ORDER BY 1"
    parameters = ["x", 1.5, None, [1]]
    arguments = json.dumps([str(generation.path), generation.position, statement, parameters])
    done = subprocess.run(
        [sys.executable, "-c", NOTHING, arguments], check=False, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("None 1 ", "")


async def test_what_leaves_as_text_keeps_order_names_and_parameters(place: TableFiles):
    """A query whose result is cast to text keeps its order, equal column names and parameters."""
    sql = "SELECT i, INTERVAL (i) DAY AS i, ? AS p FROM range(3000) t(i) ORDER BY i DESC -- end"
    async with Door(place, Bounds(workers_max=1, spares=0)) as door:
        answer = await door.ask(sql, parameters=["x"])
        assert answer.columns == ["i", "i_1", "p"]
        assert answer.numeric == [True, False, False]
        assert [row[0] for row in answer.tuples()] == [*range(2999, -1, -1)]
        assert next(answer.tuples()) == (2999, "2999 days", "x")


@pytest.mark.parametrize("end", [";", " ; -- that's it;", ";\n/* the end; */", " -- x;\n;"])
async def test_a_statement_may_end_as_it_likes(place: TableFiles, end: str):
    """A statement may end with a semicolon, comments, or both; those inside of literals are
    kept.
    """
    async with Door(place, Bounds(workers_max=1, spares=0)) as door:
        answer = await door.ask(f"SELECT INTERVAL 1 DAY AS \"é;\", ';' AS s /* ; */{end}")
        assert list(answer.tuples()) == [("1 day", ";")]


@pytest.mark.parametrize("cut", [1, 5, 20, -1])
def test_a_body_that_is_cut_is_no_answer(cut: int):
    """A truncated body is an error: a worker's output is read as untrusted."""
    batch = rows.Batch([(1, "a"), (2, "b")], rows.makes([]))
    whole = rows.body([rows.Column("i", "BIGINT"), rows.Column("s", "VARCHAR")], [batch])
    assert list(Answer(1, whole, 2).tuples()) == [(1, "a"), (2, "b")]
    with pytest.raises(QueryFailed, match="answer is invalid"):
        list(Answer(1, whole[:cut], 2).tuples())


@pytest.mark.slow
def test_what_needs_no_pyarrow_does_without(tmp_path: Path):
    """Without pyarrow all but Arrow works, and the error names the extra."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(WITHOUT)
    (tmp_path / "t.csv").write_text("a\n1\n")
    variables = environment(tmp_path / "data", HANSARD_WORKSPACE="w") | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "path"), *sys.path[:1]])
    }
    code = """
import hansard, json
with hansard.connect("w") as record:
    with record.run("w", run="r", agent="a", role="a") as session:
        session.message("user", "hello")
    found = record.sql("SELECT run, count(*) AS n FROM messages GROUP BY run")
    print(json.dumps(found.dicts()))
    for ask in (found.arrow, lambda: record.sql("SELECT 1", tables={"t": [{"a": 1}]})):
        try:
            ask()
        except hansard.errors.NotInstalled as error:
            print(error)
"""
    written = tmp_path / "x.csv"
    commands = [
        ["--json"],
        ["-o", str(written)],
        ["--format", "arrow"],
        ["-o", str(tmp_path / "x.parquet")],
        ["--with", f"t={tmp_path / 't.csv'}"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", code + COMMANDS, json.dumps(commands)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows, *refused, summary = done.stdout.splitlines()
    assert rows == '[{"run": "r", "n": 1}]'
    assert ["pip install '.[arrow]'" in line for line in refused] == [True, True]
    messages, kept, *others = json.loads(summary)
    assert json.loads(messages[1])["run"] == "r"
    assert kept[0] == 0
    assert written.read_text().startswith('"run","at"\n"r",')
    for code, out, err in others[:2]:
        assert (code, out) == (2, "")
        assert "takes pyarrow, which is not installed: pip install '.[arrow]'" in err
    code, _, err = others[2]
    assert code == 2
    assert "'.[arrow]'" in err


COMMANDS = """
    import contextlib, io, sys
    from hansard.cli import main
    outputs = []
    commands = json.loads(sys.argv[1])
    for more in commands:
        sys.argv[:] = ["hansard", "sql", "SELECT run, now() AS at FROM runs", *more]
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            try:
                code = main()
            except SystemExit as left:
                code = left.code
        outputs.append((code or 0, out.getvalue(), err.getvalue()))
    print(json.dumps(outputs))
"""
"""Program of commands in one process while its broker is up: exit code and output of each."""
