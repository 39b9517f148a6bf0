"""A role's tables hold nothing above its clearance, and nothing above it influences them."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from hansard.domain.label import LOWEST
from hansard.domain.roles import check as role_file
from hansard.projections.table_files import role_place
from tests.conftest import ROUNDS
from tests.fixtures import together
from tests.labels.support import history, read_secret

pytestmark = pytest.mark.slow

PLANTED = "PLANTED-7f3a9c"
ROLES = """
[roles.reader]
clearance = "internal"
sees = [{ name = "all", kinds = ["**"] }]
may = { query = true }
[roles.cleared]
clearance = "secret"
sees = [{ name = "all", kinds = ["**"] }]
may = { query = true }
"""
TABLES = ("events", "steps", "board_writes", "tasks")


@pytest.fixture
def world(record):
    """Record an agent's public statements, then `internal` ones, then those after a secret."""

    def make(run: str, *, secrets: bool) -> None:
        with together(record, run=run, ada="researcher", bob="analyzer") as (ada, bob):
            bob.message("user", "in the open")
            ada.message("user", "for us", label="internal")
            ada.decide("first?", selected="yes")
            if secrets:
                read_secret(ada, PLANTED)
                ada.board.put(f"k {PLANTED}", PLANTED)
                ada.decide(f"{PLANTED}?", selected=PLANTED)
                ada.team.add(PLANTED)
                ada.team.send(PLANTED, agent="bob")
                ada.message("assistant", PLANTED)
            bob.decide("last?", selected="no")

    for name, rules in role_file.parse(ROLES).items():
        record.roles.apply(name, rules)
    return make


def test_no_byte_of_a_roles_tables_has_what_is_labelled_higher(world, call, data_dir, workspace):
    """A role's tables and answers contain no byte above its clearance."""
    world("r", secrets=True)
    rows = " UNION ALL ".join(
        f"SELECT to_json(t)::VARCHAR AS told FROM {each} t" for each in TABLES
    )
    answers = {
        role: call("sql", rows, "--role", role, "--json").out for role in ("reader", "cleared")
    }
    assert PLANTED not in answers["reader"]
    assert PLANTED in answers["cleared"]
    assert "first?" in answers["reader"]
    place = role_place(data_dir, workspace, "reader")
    files = [path for path in place.path.parent.rglob("*") if "reader" in str(path)]
    contents = [path.read_bytes() for path in files if path.is_file()]
    assert contents
    assert not any(PLANTED.encode() in data for data in contents)
    output = call(
        "sql", "SELECT DISTINCT confidentiality FROM labels", "--role", "reader", "--json"
    )
    assert output.lines == [{"confidentiality": "internal"}]


@pytest.mark.thorough
def test_what_is_labelled_higher_counts_for_nothing(world, call):
    """Runs that differ in secrets alone look alike to a reader, numbers and gaps included."""
    world("plain", secrets=False)
    world("full", secrets=True)

    def visible_rows(run: str) -> list[list[dict]]:
        answers = []
        for table, order in (("events", "version"), ("messages", "version"), ("decisions", "ALL")):
            sql = f"FROM {table} WHERE run = '{run}' AND agent = 'bob' ORDER BY {order}"
            output = call("sql", sql, "--role", "reader", "--json")
            assert output.code == 0, output.err
            answers.append(
                [{k: v for k, v in each.items() if not _moves(k)} for each in output.lines]
            )
        return answers

    plain, full = visible_rows("plain"), visible_rows("full")
    assert plain == full
    assert [each["question"] for each in full[2]] == ["last?"]
    assert [each["version"] for each in full[0]] == list(range(1, len(full[0]) + 1))


def _moves(column: str) -> bool:
    """Return whether a column is a time, an id or a position, which differ from run to run."""
    return column.endswith(("_at", "id", "decision", "position", "run"))


# ------------------------------------------------------------ kills


PROGRAM = """
import sys
import hansard

with hansard.connect(sys.argv[1], data_dir=sys.argv[2]) as record:
    with record.run("w", run="r", agent="ada", role="researcher") as ada:
        @ada.tool(effects="pure", gives="secret")
        def read(n):
            return n
        @ada.tool(effects="idempotent")  # killed in its middle, a `once` tool would be in doubt
        def note(n):
            return n
        for n in range(100_000):
            print(n, flush=True)
            if n == 3:
                read(n)
            ada.board.append("found", n)
            note(n)
            ada.board.add("count", n)
            ada.decide(f"{n}?", selected="yes")
"""


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("round_", range(min(ROUNDS, 3)))
def test_after_a_kill_no_commit_is_labelled_too_low(record, data_dir, workspace, round_):
    """After two kills the agent writes under the label of what it was shown."""
    rng = random.Random(round_)
    for turns in (rng.randrange(2, 8), rng.randrange(5, 12)):
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, workspace, str(data_dir)], stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            for turn in range(turns):
                assert child.stdout.readline() == b"%d\n" % turn
            time.sleep(rng.uniform(0, 0.05))
            os.kill(child.pid, signal.SIGKILL)
    shown = LOWEST
    secrets = 0
    for stored in history(record, "r"):
        label = stored.commit.label or LOWEST
        if stored.commit.actor.agent == "ada":
            assert label == shown.join(label), stored
            shown = label
            secrets += label != LOWEST
    assert secrets > 0
    assert record.state("r").agents["ada"].label == "secret"
    with record.run("w", run="r", agent="bob", role="analyzer") as bob:
        bob.board.get("count")
        assert str(bob.label) == "secret"
