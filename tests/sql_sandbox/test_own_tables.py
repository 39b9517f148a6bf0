"""Tables of an analyst's own, joined with the record's inside a closed sandbox."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, feather, ipc, parquet

import hansard
from hansard.bus.portal import portal
from hansard.operations.protocol.wire import Failed
from hansard.operations.session import OPERATIONS
from hansard.projections.sql_sandbox import answer as given
from tests.agents.twins import Lab, twins
from tests.service.support import ALL, Served

pytestmark = pytest.mark.later

COSTS = {"run": ["r", "s"], "cost": [1.5, 2.5], "note": ["<a>", None]}
ROWS = [{"run": "r", "cost": 1.5, "note": "<a>"}, {"run": "s", "cost": 2.5}]
JOINED = "SELECT mine.cost, mine.note FROM runs JOIN mine USING (run)"

FEW = """
[roles.few]
sees = [{ name = "messages", kinds = ["message.*"] }]
may = { query = true }
"""


def files(folder: Path) -> list[Path]:
    """Write the same table in each format that can be read."""
    table = pa.table(COSTS)
    parquet.write_table(table, folder / "a.parquet")
    csv.write_csv(table, folder / "b.csv")
    feather.write_feather(table, str(folder / "c.feather"))
    with ipc.new_stream(str(folder / "d.arrow"), table.schema) as writer:
        writer.write_table(table)
    (folder / "e.json").write_text(json.dumps(ROWS, indent=1))
    (folder / "f.ndjson").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    (folder / "g.jsonl").write_text(json.dumps(ROWS[0]))
    return sorted(folder.iterdir())


@pytest.mark.slow(cases=1)
@twins
async def test_whatever_an_analyst_has_is_joined(lab: Lab, tmp_path: Path):
    """Frames, tables, rows, files and earlier answers, for one question."""
    # Imported where they are used: every worker of the tests imports this module.
    import pandas as pd  # type: ignore[import-untyped] # noqa: PLC0415 -- it has no types
    import polars as pl  # noqa: PLC0415 -- see above

    frames: list[Any] = [pa.table(COSTS), pd.DataFrame(COSTS), pl.DataFrame(COSTS), ROWS, COSTS]
    frames += [pd.DataFrame(COSTS).set_index("run"), *files(tmp_path)]
    async with lab.connect() as record:
        async with record.run("w", run="r"):
            pass
        values = "SELECT 'r' AS run, 1.5::DOUBLE AS cost, '<a>' AS note"
        frames.append(await record.sql(values))
        for frame in frames:
            answer = await record.sql(JOINED, tables={"mine": frame})
            assert answer.rows == [(1.5, "<a>")], type(frame)
        two = "SELECT $1 || a.x || b.x FROM a, b"
        tables = {"a": [{"x": "1"}], "b": [{"x": "2"}]}
        assert (await record.sql(two, "0", tables=tables)).rows == [("012",)]
        with pytest.raises(hansard.errors.QueryFailed, match="mine does not exist"):
            await record.sql(JOINED)


@pytest.mark.fast(cases=1, slow=0)
@twins
async def test_what_cannot_be_taken_says_why(lab: Lab):
    """A reserved name, a non-table and an excess are refused with the reason."""
    taken: dict[str, Any] = {
        "a table of the record": {"runs": ROWS},
        "a table of the record; ": {"STEPS": ROWS},
        "a view of the record": {"Savings": ROWS},
        "a view of the record; ": {"duckdb_tables": ROWS},
        "a word of SQL": {"select": ROWS},
        "is no name": {'a"; DROP': ROWS},
        "have the same name": {"a": ROWS, "A": ROWS},
        "there are 17": {f"t{n}": ROWS for n in range(17)},
        "is not a table": {"mine": 3},
        "not every row is a dict": {"mine": [1]},
        "the columns of 'mine' are none": {"mine": []},
        "the columns of 'mine' are a, A": {"mine": [{"a": 1, "A": 2}]},
        "is unknown": {"mine": "costs.xlsx"},
        "No such file": {"mine": "nowhere.csv"},
        "has no names": [ROWS],
    }
    async with lab.connect() as record:
        for reason, tables in taken.items():
            with pytest.raises(hansard.BadValue, match=reason):
                await record.sql("SELECT 1", tables=tables)
        with pytest.raises(hansard.BadValue, match="come to 101 bytes as Arrow, the most is 100"):
            given.check({"mine": b"x" * 101}, 100)
        assert (await record.sql("SELECT count(*) FROM runs")).rows == [(0,)]


@pytest.mark.fast(cases=1, slow=0)
@twins
async def test_the_sandbox_stays_closed(lab: Lab, tmp_path: Path):
    """With a table of one's own no file is opened, and nothing is written."""
    [path, *_] = files(tmp_path)
    async with lab.connect() as record:
        for sql in (f"FROM '{path}', mine", f"FROM read_parquet('{path}'), mine", "FROM frame"):
            frame = [{"a": 1}]
            with pytest.raises(hansard.errors.QueryFailed):
                await record.sql(sql, tables={"mine": frame})
        with pytest.raises(hansard.errors.NotAllowed):
            await record.sql("DROP VIEW mine", tables={"mine": ROWS})


@pytest.mark.thorough(
    quick="roles/test_ask.py::test_a_table_of_one_s_own_is_joined_with_what_the_role_sees"
)
def test_a_role_sees_no_more_by_a_table_of_its_own(data_dir: Path, tmp_path: Path) -> None:
    """A role joins its own table with what it sees; bad bytes and long ones are refused."""
    house = Served(data_dir, "tables", tmp_path)
    house.apply(ALL + FEW)
    house.begin()
    try:
        for name, role in (("ada", "writer"), ("bob", "few")):
            house.login(name, role)
        with house.connect("ada", "writer") as record, record.run("w", run="r"):
            pass
        import polars as pl  # noqa: PLC0415 -- see above

        frame = pl.DataFrame({"run": ["r"], "cost": [1.5], "note": ["x"]})
        with house.connect("ada", "writer") as record:
            assert record.sql(JOINED, tables={"mine": frame}).rows == [(1.5, "x")]
            with pytest.raises(hansard.BadValue, match="a table of the record"):
                record.sql("SELECT 1", tables={"runs": frame})
            with pytest.raises(hansard.BadValue, match="the most is 524,288"):
                record.sql("SELECT 1", tables={"mine": {"x": list(range(100_000))}})
        with house.connect("bob", "few") as record:
            assert record.sql(JOINED, tables={"mine": frame}).rows == []
            assert record.sql("SELECT count(*) FROM mine", tables={"mine": frame}).rows == [(1,)]
        with house.link("ada", "writer") as link:
            for name, data in (("mine", b"\xff" * 1_000), ("a b", b""), ("runs", b"")):
                request = OPERATIONS["record.sql"].request("SELECT 1", [], {name: data})
                answer: Any = portal().run(link.outside("sql", request))
                assert isinstance(answer, Failed)
                assert answer.fault.type == "BadValue"
        with house.trusted() as record:
            statement = "SELECT DISTINCT data->>'statement' FROM events WHERE type LIKE 'query.%'"
            assert len(record.sql(statement).rows) == 2
    finally:
        house.end()


@twins
async def test_numbers_are_numbers_of_any_library(lab: Lab):
    """NaN, infinities and numpy or pandas scalars are numbers; others are refused."""
    import numpy as np  # noqa: PLC0415 -- see above
    import pandas as pd  # noqa: PLC0415 -- see above

    async with lab.connect() as record:
        statement = (
            "SELECT 'nan'::DOUBLE, 'inf'::DOUBLE, ['-inf'::DOUBLE], {'a': 'inf'::FLOAT}, 'nan'"
        )
        [[nan, *others]] = (await record.sql(statement)).rows
        assert nan != nan  # noqa: PLR0124 -- only NaN is unequal to itself
        assert others == [math.inf, [-math.inf], {"a": math.inf}, "nan"]
        stamp = pd.Timestamp("2026-01-01T02:00:00.123456789Z")
        for given_, expected in [
            (np.int64(5), 5),
            (np.float32(1.5), 1.5),
            (np.bool_(True), True),
            (np.str_("x"), "x"),
            (np.array([1, 2]), [1, 2]),
            ([np.int8(1), None], [1, None]),
            (pd.Series(["a", "b"]), ["a", "b"]),
            (pd.NaT, None),
            (pd.NA, None),
        ]:
            assert (await record.sql("SELECT $1", given_)).rows == [(expected,)], repr(given_)
        times = await record.sql("SELECT $1::TIMESTAMPTZ::VARCHAR, $2::DATE", stamp, stamp)
        assert times.rows[0][0].startswith("2026-01-01 02:00:00.123456")
        day = np.datetime64("2026-01-01")
        assert (await record.sql("SELECT $1::DATE::VARCHAR", day)).rows == [("2026-01-01",)]
        for wrong in (math.nan, np.float64("inf"), pd.Timedelta("1s"), np.complex64(1j)):
            with pytest.raises(hansard.BadValue, match="a parameter of SQL"):
                await record.sql("SELECT $1", wrong)
