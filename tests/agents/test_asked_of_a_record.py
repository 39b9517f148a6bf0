"""Queries of a record: SQL, a role's view, and a file of roles applied."""

import io
import sys
from decimal import Decimal
from pathlib import Path

import pytest
import rich.console

import hansard
from hansard import testing
from hansard.agents.workspace import Workspace
from hansard.inspect.run_diff import ComparedRun, run_diff
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.later

ROLES = """
[roles.reader]
sees = [{ name = "messages", kinds = ["message.*"] }]
"""


@pytest.mark.fast(cases=1, slow=0)
async def test_sql_has_what_was_written_before_the_query(lab: Lab):
    """The answer has rows, column names, and the log position that was read completely."""
    async with lab.connect() as record, record.run("w", run="r") as session:
        await session.message("user", "hello", tokens=2)
        answer = await record.sql(
            "SELECT message_role, tokens FROM messages WHERE message_role = ?", "user"
        )
        assert (answer.columns, answer.rows) == (["message_role", "tokens"], [("user", 2)])
        assert answer.dicts() == [{"message_role": "user", "tokens": 2}]
        await session.message("assistant", "hi")
        later = await record.sql("SELECT count(*) FROM messages")
        assert later.rows == [(2,)]
        assert later.position > answer.position
        assert later.cut is None


@pytest.mark.slow(cases=1)
async def test_sql_takes_parameters_of_every_plain_kind(record: TwinRecord):
    """A parameter is never part of the statement; a value that is not plain is refused."""
    hostile = "'; DROP TABLE events; --"
    answer = await record.sql(
        "SELECT $1 AS a, $2 + 1 AS b, $3 AS c, $4 AS d", hostile, 1, None, [1]
    )
    assert answer.rows == [(hostile, 2, None, [1])]
    for bad in (object(), float("nan"), 2**64, b"x"):
        with pytest.raises(hansard.BadValue, match="parameter"):
            await record.sql("SELECT ?", bad)
    with pytest.raises(hansard.errors.NotAllowed, match="parameters have"):
        await record.sql("SELECT ?", "x" * 200_000)


@pytest.mark.slow(cases=1)
async def test_sql_that_cannot_be_answered_says_why(record: TwinRecord):
    """The error has DuckDB's message, and rejects a statement that writes."""
    with pytest.raises(hansard.errors.QueryFailed, match="nowhere"):
        await record.sql("SELECT * FROM nowhere")
    with pytest.raises(hansard.errors.SqlError):
        await record.sql("DROP TABLE events")
    assert (await record.sql("SELECT 1 AS one")).rows == [(1,)]


@pytest.mark.fast(cases=1, slow=0)
async def test_a_truncated_answer_is_marked(record: TwinRecord):
    """A truncated answer is marked as truncated."""
    answer = await record.sql("SELECT * FROM range(10_001)")
    assert (len(answer.rows), answer.cut) == (10_000, "rows")
    for form in (answer.arrow, answer.df, answer.pl):
        with pytest.warns(
            hansard.errors.AnswerCut, match="the first 10,000 rows, and there are more"
        ):
            assert form().shape == (10_000, 1)


TYPED = """
    SELECT 7 AS i, 1.5::DECIMAL(9, 2) AS d, TIMESTAMP '2026-01-02 03:04:05' AS at, '<b>&' AS s,
        [1, 2] AS l
"""


@pytest.mark.slow(cases=1)
async def test_an_answer_converts_to_the_tables_of_analysts(lab: Lab):
    """An answer is Arrow with DuckDB's types, pandas, polars, and a notebook or terminal table."""
    async with lab.connect() as record:
        answer = await record.sql(TYPED)
    table = answer.arrow()
    assert [str(field.type) for field in table.schema] == [
        *("int32", "decimal128(9, 2)", "timestamp[us]", "string", "list<l: int32>")
    ]
    assert table.schema.metadata == {
        b"hansard.position": str(answer.position).encode(),
        b"hansard.cut": b"no",
    }
    frame = answer.df()
    assert (list(frame.columns), frame["i"][0], frame["at"].dtype.kind) == (answer.columns, 7, "M")
    polars = answer.pl()
    assert (polars.columns, polars["d"][0]) == (answer.columns, Decimal("1.50"))
    shown = answer._repr_html_()
    assert "<td>&lt;b&gt;&amp;</td>" in shown
    assert f"<p>1 row, as of position {answer.position}</p>" in shown
    output = io.StringIO()
    rich.console.Console(file=output, width=100).print(answer)
    assert "2026-01-02" in output.getvalue()
    assert "1 row, as of position" in output.getvalue()


def test_a_restricted_agents_answer_is_a_table_too():
    """A restricted agent's answer is a table whose types are those of the values."""
    answer = hansard.types.SqlAnswer(["n", "s"], [(1, "a"), (None, "\x1b[31m")] * 15, 9, "rows")
    with pytest.warns(hansard.errors.AnswerCut):
        table = answer.arrow()
    assert [str(field.type) for field in table.schema] == ["int64", "string"]
    assert table.schema.metadata[b"hansard.cut"] == b"rows"
    assert (
        "30 rows, the first 20 shown, as of position 9, and there are more" in answer._repr_html_()
    )
    output = io.StringIO()
    rich.console.Console(file=output, width=100).print(answer)
    assert "\x1b" not in output.getvalue()


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch):
    """The error names the package to install, and the way that needs none."""
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(
        hansard.errors.NotInstalled, match="pip install polars, or take arrow"
    ) as raised:
        hansard.types.SqlAnswer(["n"], [(1,)], 9).pl()
    assert raised.value.package == "polars"


async def durations(workspace: Workspace) -> list[float | None]:
    """Return how long run r took, as each side of a comparison states it."""
    sides = (await run_diff(workspace, "r", "r")).lines()
    return [each.duration_ms for each in sides if isinstance(each, ComparedRun)]


@pytest.mark.slow(cases=1)
async def test_a_file_of_roles_is_applied_and_a_role_viewed(lab: Lab, tmp_path: Path):
    """Each applied role is reported as new or not; a view shows what the role sees, on record."""
    file = tmp_path / "roles.toml"
    file.write_text(ROLES, encoding="utf-8")
    async with lab.connect() as record:
        assert await record.roles.apply_file(file) == {"reader": True}
        assert await record.roles.apply_file(str(file)) == {"reader": False}
        async with record.run("w", run="r") as session:
            await session.message("user", "hello")
        before = await durations(record.workspace)
        seen = await record.roles.view("r", role="reader", by="ann")
        assert [shown.type for _, shown in seen.events] == ["message.added.v1"]
        served = await record.sql("SELECT count(*) FROM views_served WHERE run = 'r'")
        assert served.rows == [(1,)]
        assert await durations(record.workspace) == before, "a view is no work of the run"
        with pytest.raises(hansard.BadValue, match="role="):
            await record.roles.view("r")


def test_a_record_in_memory_has_no_tables():
    """A record in memory has no tables, and the error names a record that has."""
    with (
        testing.record() as record,
        pytest.raises(hansard.errors.Refused, match="connect to a workspace"),
    ):
        record.sql("SELECT 1")
