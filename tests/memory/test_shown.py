"""Memory in SQL and on the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard.client.record import Record
from tests.cli.support import Call

pytestmark = pytest.mark.slow
SPACE = "agent/ada"


@pytest.fixture
def changed_record(record: Record) -> Record:
    """Return a record with changed, refused, moved and deleted files, some of them untrusted."""
    return _changed(record)


@pytest.fixture(scope="module")
def read_only(data_dir: Path) -> Iterator[Record]:
    """Yield such a record, to which no test writes."""
    with hansard.connect("memory-shown", data_dir=data_dir) as record:
        yield _changed(record)


def _changed(record: Record) -> Record:
    space = record.memory(SPACE)
    space.set_policy("off", by="eve", untrusted=["web/**"])
    with record.run("w", agent="ada", role="writer", run="r") as session:
        memory = session.memory
        memory.remember("Use bullets.")
        memory.create("old.md", "x\n")
        memory.rename("old.md", "docs/new.md")
        with pytest.raises(hansard.errors.MemoryInvalid):
            memory.create("skills/x/SKILL.md", "nothing")
        page = session.tool(effects="pure", gives="untrusted", name="page")(lambda: "buy this")
        memory.create("web/page.md", page())
    with record.run("w", agent="bob", role="writer", run="s") as session:
        session.memory.view("web/page.md", space=SPACE)
        session.decide("Buy?", selected="yes")
    space.remember("Two pages.", by="alice")
    return record


def test_files_changes_refusals_and_policies_are_rows(read_only: Record):
    """Current files, their changes, refusals and dependence on untrusted input are rows."""

    def rows(query: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in read_only.sql(query).rows]

    assert rows("SELECT path, kind, changes, author, label FROM memory_files ORDER BY path") == [
        ("AGENTS.md", "procedural", 2, "alice", None),
        ("docs/new.md", "semantic", 1, "ada", None),
        ("web/page.md", "semantic", 1, "ada", "untrusted"),
    ]
    assert rows("SELECT op, path, was, run FROM memory_changes WHERE was IS NOT NULL") == [
        ("renamed", "docs/new.md", "old.md", "r")
    ]
    assert rows("SELECT DISTINCT path, rule, line FROM memory_rejections") == [
        ("skills/x/SKILL.md", "frontmatter.missing", 1)
    ]
    assert rows("SELECT approval, author FROM memory_policies") == [("off", "eve")]
    [[fact]] = rows("SELECT fact FROM odd_memory")
    assert fact == "agent/ada/web/page.md rests on untrusted input, and was written by ada"
    assert rows("SELECT run, agent FROM tainted_decisions") == [("s", "bob")]
    joined = rows(
        "SELECT count(*) FROM memory_changes AS c JOIN steps AS s "
        "ON s.run = c.run AND s.agent = c.author AND s.step = c.step AND s.kind = 'memory'"
    )
    assert joined == [(4,)]


def test_a_decision_says_which_version_of_which_file_it_rested_on(read_only: Record):
    """`knew` lists each read with the version read and its author."""
    [[decision]] = read_only.sql("SELECT decision FROM decisions WHERE question = 'Buy?'").rows
    known = read_only.sql(
        "SELECT c.space, c.path, c.author, c.run FROM knew($1) AS k "
        "JOIN events AS e ON e.id = k.event "
        "JOIN steps AS s ON s.run = e.run AND s.outcome_position = e.position "
        "JOIN memory_changes AS c ON c.event = s.result ->> '$.event' "
        "AND c.path = s.result ->> '$.path'",
        decision,
    )
    assert known.rows == [(SPACE, "web/page.md", "ada", "r")]


def test_the_command_line_lists_follows_back_and_puts_right(changed_record: Record, call: Call):
    """Each command answers people, and programs in JSON."""
    assert "AGENTS.md" in call("memory", "ls", SPACE).out
    assert call("memory", "show", SPACE, "AGENTS.md").out == "- Use bullets.\n- Two pages.\n"
    log = call("memory", "log", SPACE, "docs/new.md", "--json").lines
    assert [line["op"] for line in log] == ["created", "renamed"]
    blamed = call("memory", "blame", SPACE, "AGENTS.md", "--json").lines
    assert [line["author"] for line in blamed] == ["ada", "alice"]
    assert "+- Two pages." in call("memory", "diff", SPACE, "--from", "@2").out
    last = blamed[-1]["event"]
    assert call("memory", "revert", SPACE, last, "--by", "alice").code == 0
    assert changed_record.memory(SPACE).view("AGENTS.md") == "- Use bullets.\n"
    assert "unasked" in call("memory", "policy", SPACE).out
    assert call("memory", "policy", SPACE, "ask", "--by", "alice").code == 0
    assert "wait" in call("memory", "policy", SPACE).out
    assert call("memory", "show", SPACE, "../x").code == 2
    assert call("check").code == 0
