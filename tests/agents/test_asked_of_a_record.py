"""What a record answers itself: SQL, a role's view, and a file of roles applied."""

from pathlib import Path

import pytest

import hansard
from hansard import testing
from tests.agents.twins import Lab, twins

ROLES = """
[roles.reader]
[[roles.reader.sees]]
name = "messages"
kinds = ["message.*"]
"""


@twins
async def test_sql_has_what_was_written_before_it_was_asked(lab: Lab):
    """Rows, the columns' names, and the position of the log that all of it has been read to."""
    async with lab.connect() as record, record.run("w", run="r") as session:
        await session.message("user", "hello", tokens=2)
        found = await record.sql(
            "SELECT message_role, tokens FROM messages WHERE message_role = ?", "user"
        )
        assert found.columns == ["message_role", "tokens"]
        assert found.rows == [("user", 2)]
        assert found.dicts() == [{"message_role": "user", "tokens": 2}]
        await session.message("assistant", "hi")
        later = await record.sql("SELECT count(*) FROM messages")
        assert later.rows == [(2,)]
        assert later.position > found.position
        assert later.cut is None


@twins
async def test_sql_takes_parameters_of_every_plain_kind(lab: Lab):
    """A parameter is never part of the statement; what is no plain value is refused."""
    async with lab.connect() as record:
        hostile = "'; DROP TABLE events; --"
        found = await record.sql(
            "SELECT $1 AS a, $2 + 1 AS b, $3 AS c, $4 AS d", hostile, 1, None, [1]
        )
        assert found.rows == [(hostile, 2, None, [1])]
        for bad in (object(), float("nan"), 2**64, b"x"):
            with pytest.raises(hansard.BadValue, match="parameter"):
                await record.sql("SELECT ?", bad)
        with pytest.raises(hansard.NotAllowed, match="parameters have"):
            await record.sql("SELECT ?", "x" * 200_000)


@twins
async def test_sql_that_cannot_be_answered_says_why(lab: Lab):
    """What DuckDB says of a statement, and that one which writes is none."""
    async with lab.connect() as record:
        with pytest.raises(hansard.QueryFailed, match="nowhere"):
            await record.sql("SELECT * FROM nowhere")
        with pytest.raises(hansard.SqlError):
            await record.sql("DROP TABLE events")
        assert (await record.sql("SELECT 1 AS one")).rows == [(1,)]


@twins
async def test_more_rows_than_an_answer_holds_are_told(lab: Lab):
    """An answer that was cut says so."""
    async with lab.connect() as record:
        found = await record.sql("SELECT * FROM range(10_001)")
        assert (len(found.rows), found.cut) == (10_000, "rows")


@twins
async def test_a_file_of_roles_is_applied_and_a_role_viewed(lab: Lab, tmp_path: Path):
    """Of each role it is said whether that is new; a view shows what the role sees, on record."""
    file = tmp_path / "roles.toml"
    file.write_text(ROLES, encoding="utf-8")
    async with lab.connect() as record:
        assert await record.apply_roles(file) == {"reader": True}
        assert await record.apply_roles(str(file)) == {"reader": False}
        async with record.run("w", run="r") as session:
            await session.message("user", "hello")
        seen = await record.view("r", role="reader", by="ann")
        assert [shown.type for _, shown in seen.events] == ["message.added.v1"]
        served = await record.sql("SELECT count(*) FROM views_served WHERE run = 'r'")
        assert served.rows == [(1,)]
        with pytest.raises(hansard.BadValue, match="role="):
            await record.view("r")


@twins
async def test_a_broken_file_of_roles_changes_no_role(lab: Lab, tmp_path: Path):
    """All of a file is checked before any of it is applied."""
    file = tmp_path / "roles.toml"
    file.write_text(ROLES + "[roles.writer]\nsees = 5\n", encoding="utf-8")
    async with lab.connect() as record:
        with pytest.raises(hansard.BadValue):
            await record.apply_roles(file)
        with pytest.raises(hansard.BadValue, match="give a TOML file"):
            await record.apply_roles(tmp_path / "none.toml")
        file.write_text(ROLES, encoding="utf-8")
        assert await record.apply_roles(file) == {"reader": True}


def test_a_record_in_memory_has_no_tables():
    """It says what has."""
    with testing.record() as record, pytest.raises(hansard.Refused, match="connect to a workspace"):
        record.sql("SELECT 1")
