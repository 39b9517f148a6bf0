"""`hansard board`: the keys of a run at a point, and all that was written to one."""

import msgspec
import pytest

from hansard.domain.board import BoardConflict

pytestmark = pytest.mark.slow


def _work(record):
    with record.run("team", run="r-1", agent="ada", role="writer") as session:
        board = session.board
        board.put("question", {"why": "x" * 200}, labels={"topic": "seeds"})
        for number in range(60):
            board.append("list/of \x9b31mall", number)
        board.put("large", ["y" * 100_000])
        board.put("lease", 1, ttl_s=3_600)
        with record.run("team", run="r-1", agent="bob", role="reader") as other:
            other.board.add("n", 3)
            try:
                other.board.put("question", 2, expected=0)
            except BoardConflict:
                other.board.put("question", 2, expected=1)
        board.remove("question", expected="any")


def test_the_keys_of_a_run(record, call):
    """Each key has kind, version, author, value and expiry, escaped, also at earlier points."""
    _work(record)
    ran = call("board", "r-1")
    assert ran.code == 0
    assert "\x9b" not in ran.out
    head, *lines = ran.out.splitlines()
    assert head.split() == ["key", "kind", "version", "author", "role", "value", "expires"]
    assert [line.split()[0] for line in lines] == ["large", "lease", "list/of", "n"]
    assert "as of position" in ran.err
    keys = [msgspec.json.decode(line) for line in call("board", "r-1", "--json").out.splitlines()]
    assert [(each["key"], each["kind"], each["version"]) for each in keys] == [
        ("large", "value", 1),
        ("lease", "value", 1),
        ("list/of \x9b31mall", "list", 60),
        ("n", "counter", 1),
    ]
    assert (keys[3]["author"], keys[3]["role"], keys[3]["value"]) == ("bob", "reader", 3)
    assert keys[1]["expires"] is not None
    early = call("board", "r-1", "--at", "ada@4", "--json").out.splitlines()
    assert [msgspec.json.decode(line)["key"] for line in early] == ["question"]


def test_one_key_with_its_history(record, call):
    """The full value and its writes are shown; an unknown key is an error."""
    _work(record)
    first, *writes = call("board", "r-1", "question", "--json").out.splitlines()
    assert msgspec.json.decode(first)["kind"] is None
    history = [msgspec.json.decode(line) for line in writes]
    assert [(w["version"], w["operation"], w["author"], w["role"]) for w in history] == [
        (1, "put", "ada", "writer"),
        (2, "put", "bob", "reader"),
        (3, "remove", "ada", "writer"),
    ]
    assert (history[1]["value"], history[1]["expected"]) == (2, 1)
    large = msgspec.json.decode(call("board", "r-1", "large", "--json").out.splitlines()[0])
    assert large["value"] == ["y" * 100_000]
    shown = call("board", "r-1", "list/of \x9b31mall")
    assert "\x9b" not in shown.out
    assert "the newest 50 of 60 writes" in shown.err
    assert "removed or expired" in call("board", "r-1", "question").out
    missing = call("board", "r-1", "nothing")
    assert missing.code == 2
    assert "see 'hansard board r-1'" in missing.err


def test_a_set_is_shown_by_its_members(record, call):
    """The list and the whole value of a key have the members of its set, not their encoding."""
    with record.run("team", run="r-set", agent="ada", role="writer") as session:
        session.board.include("seen", "oak")
        session.board.include("seen", "elm")
    assert '["elm","oak"]' in call("board", "r-set").out
    shown = call("board", "r-set", "seen").out
    assert '"oak"' in shown
    assert "$set" not in shown


@pytest.mark.thorough(quick="test_the_keys_of_a_run")
def test_the_state_of_a_run_has_its_keys(record, call):
    """`run show` names the keys, `run state` shows them, `--diff` shows their changes."""
    _work(record)
    assert "large, lease, list/of" in call("run", "show", "r-1").out
    state = call("run", "state", "r-1")
    assert "board: 4" in state.out
    assert "n  counter  3  bob" in state.out
    line = call("run", "state", "r-1", "--json").out.splitlines()[0]
    assert msgspec.json.decode(line)["board"]["n"]["value"] == 3
    output = call("run", "state", "r-1", "--diff", "ada@4", "now").out
    assert "- question" in output
    assert "+ lease" in output
