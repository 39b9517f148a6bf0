"""`hansard sql --role`: permission to query, answers, and hostile queries."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hansard.domain.roles import check as role_file
from hansard.projections.errors import SqlError, TooCostly
from hansard.projections.sql_sandbox.rows import Bounds
from hansard.projections.table_files import role_place
from tests.conftest import ROUNDS, ROUNDS_THOROUGH
from tests.roles.planted import RULES, SECRETS, bring, planted, whole_tables
from tests.roles.test_record import SECRET, team
from tests.sql_sandbox.conftest import Asker
from tests.sql_sandbox.test_hostile import CORPUS, COSTLY_S, LEAKS, LIMITS, sql_of, state

pytestmark = pytest.mark.later

ROLES = """
[roles.reader]
[[roles.reader.sees]]
name = "decisions"
kinds = ["decision.made"]
fields = ["question", "selected"]
[roles.reader.may]
query = true

[roles.silent]
[[roles.silent.sees]]
name = "everything"
kinds = ["**"]
"""
GRANTED = role_file.parse(ROLES)

SAMPLE = sorted(CORPUS) if ROUNDS >= ROUNDS_THOROUGH else sorted(CORPUS)[:: len(CORPUS) // 12]


@pytest.fixture
def roles(call, record, tmp_path) -> str:
    """Return a run, and the two roles; the run's id."""
    path = tmp_path / "roles.toml"
    path.write_text(ROLES)
    assert call("roles", "apply", path).code == 0
    return team(record)


@pytest.mark.slow
def test_a_role_is_answered_from_what_it_sees(call, record, roles):
    """By its own positions, up to date, and in the words of everybody's tables."""
    output = call("sql", "SELECT question, selected, because FROM decisions", "--role", "reader")
    assert output.code == 0, output.err
    assert output.out.splitlines()[1].split() == ["which?", "p1"]
    assert output.err == "as of position 1: 1 row\n"
    tables = ("steps", "messages", "handoffs", "usage", "runs", "problems")
    counts = ", ".join(f"(SELECT count(*) FROM {table}) AS {table}" for table in tables)
    counted = call("sql", f"SELECT {counts}", "--role", "reader", "--json")
    assert (counted.code, counted.lines) == (0, [dict.fromkeys(tables, 0)])
    rows = call("sql", "FROM events", "--role", "reader", "--json")
    assert SECRET not in rows.out
    with record.run(run=roles, agent="a2", role="analyzer") as session:
        session.decide("and?", selected="p2")
    again = call("sql", "SELECT max(position) AS p, count(*) AS n FROM events", "--role", "reader")
    assert again.out.split()[-2:] == ["2", "2"]
    assert again.err == "as of position 2: 1 row\n"


@pytest.mark.slow
def test_what_others_do_is_not_revealed(call, record, roles):
    """Answer and stderr keep the same bytes after others did hidden work."""
    command = ("sql", "SUMMARIZE events", "--role", "reader", "--json")
    before = call(*command)
    with record.run("others", agent="x", role="researcher") as session:
        session.message("user", "unseen")
    after = call(*command)
    assert (after.code, after.out, after.err) == (before.code, before.out, before.err)
    wrong = call("sql", "FROM no_such_table", "--role", "reader")
    assert (wrong.code, wrong.out) == (2, "")
    assert SECRET not in wrong.err


@pytest.mark.slow
def test_who_may_not_ask(call, roles, data_dir, workspace):
    """A refused role learns the missing permission; unknown and withdrawn roles get one answer, no
    file.
    """
    refused = call("sql", "SELECT 1", "--role", "silent")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: role silent does not allow query 'sql': ")
    assert "ask for: query = true in [roles.silent.may]" in refused.err
    unknown = call("sql", "SELECT 1", "--role", "nobody")
    assert "role 'nobody' was not found" in unknown.err
    folder = role_place(data_dir, workspace, "reader").path.parent
    assert [path.name for path in folder.glob("*.duckdb")] == []
    assert call("sql", "SELECT 1", "--role", "reader").code == 0
    assert [path.name for path in folder.glob("*.duckdb")] == ["reader.duckdb"]
    assert call("roles", "withdraw", "reader").code == 0
    for _ in range(2):
        gone = call("sql", "SELECT 1", "--role", "reader")
        assert (gone.code, gone.out) == (unknown.code, unknown.out)
        assert gone.err == unknown.err.replace("nobody", "reader")
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in left} <= {".lock"}


@pytest.mark.slow
def test_rules_of_now(call, tmp_path, roles):
    """Other rules hold from the next question on, for all that was recorded before, too."""
    assert call("sql", "FROM messages", "--role", "reader", "--json").lines == []
    path = tmp_path / "roles.toml"
    fields = 'fields = ["question", "selected"]\n'
    path.write_text(ROLES.replace("decision.made", "message.added").replace(fields, ""))
    assert call("roles", "apply", path).code == 0
    output = call("sql", "SELECT agent, text FROM messages", "--role", "reader", "--json")
    assert [line["agent"] for line in output.lines] == ["r1", "w1"]
    assert call("sql", "FROM decisions", "--role", "reader", "--json").lines == []


@pytest.mark.slow
def test_a_table_of_one_s_own_is_joined_with_what_the_role_sees(call, roles, tmp_path):
    """The join uses only rows that the role may see, whatever else the own table contains."""
    mine = tmp_path / "mine.csv"
    mine.write_text(f"run\n{roles}\n")
    there = {"decisions": 1, "messages": 0, "steps": 0}
    counts = (f"(SELECT count(*) FROM mine JOIN {t} USING (run)) AS {t}" for t in there)
    command = ("sql", f"SELECT {', '.join(counts)}", "--role", "reader", "--json")
    output = call(*command, "--with", f"mine={mine}")
    assert (output.code, output.lines) == (0, [there]), output.err


def test_a_position_of_the_workspace_is_not_for_a_role(call, roles):
    """A role does not learn a workspace position, which would reveal the length of the log."""
    output = call("sql", "SELECT 1", "--role", "reader", "--wait-for", "999999")
    assert (output.code, output.out) == (2, "")
    assert "--wait-for names a position of the workspace" in output.err


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """Yield an asker of a role's tables, with those of the workspace and of another role beside
    them.
    """
    home: Path = tmp_path_factory.mktemp("hostile")
    (home / "projections").mkdir()
    whole_tables(planted(), home / "projections" / "lab.duckdb").close()
    bring(planted(), home, GRANTED["silent"], "silent")
    made = Asker(bring(planted(), home, RULES), Bounds(workers_max=1, spares=0))
    yield made
    made.close()


@pytest.mark.fast(cases=1, slow=1)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_hostile_statement_is_contained(name: str, asker: Asker):
    """A hostile statement is contained, and no answer or error holds data hidden from the role."""
    hostile = CORPUS[name]
    limits = LIMITS
    if hostile["outcome"] in {"stopped", "any"}:
        limits = msgspec.structs.replace(LIMITS, wall_s=COSTLY_S)
    sql, before = sql_of(hostile), state(asker.place)
    try:
        answer = asker.ask(sql, limits)
    except SqlError as error:
        outcome, text = ("stopped" if isinstance(error, TooCostly) else "error"), str(error)
    else:
        outcome, text = "answer", str(answer.columns) + str(list(answer.tuples()))
    assert hostile["outcome"] in {outcome, "any"}, text[:500]
    leaked = LEAKS.search(text.replace(sql, ""))
    assert leaked is None or leaked[0] in sql, text[:500]
    assert not [each for each in SECRETS if f"~{each}~" in text]
    assert state(asker.place) == before
    assert list(asker.ask("SELECT count(*) FROM decisions").tuples()) == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH '../../../lab.duckdb' AS w",
        "ATTACH '{home}/lab.duckdb' AS w (READ_ONLY)",
        "FROM read_blob('{home}/**')",
        "FROM glob('/**')",
        "FROM read_text('{home}/roles/lab/writer.feed')",
        "FROM read_blob('/../../writer.feed')",
        "FROM '{home}/roles/lab/silent.duckdb'",
    ],
)
def test_nothing_else_is_within_reach(sql: str, asker: Asker):
    """A query reaches neither the workspace's tables, nor another role's, nor intermediate
    files.
    """
    home = asker.place.path.parents[2]
    assert (home / "lab.duckdb").exists()
    assert asker.place.path.with_suffix(".feed").exists()
    with pytest.raises(SqlError) as refused:
        asker.ask(sql.format(home=home))
    assert not [each for each in SECRETS if f"~{each}~" in str(refused.value)]
