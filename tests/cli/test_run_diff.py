"""`run diff`: two runs side by side, live ones and forks."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import wait_none

import hansard
from hansard.bus.log import Stored, UpTo
from hansard.inspect import run_diff as alignment
from hansard.inspect.run_diff import RunComparison, run_diff
from tests.cli.support import Call, Ran, Runs

pytestmark = pytest.mark.later


def made(record: hansard.Record, **how: Any) -> str:
    """Record a run of one agent: searches, reads, decides, mails; `how` changes parts of it."""
    agent, tries = how.get("agent", "ada"), iter(range(how.get("failures", 0)))
    where = {"run": how["run"]} if "run" in how else {"workflow": "work"}
    with record.run(**where, agent=agent, role=how.get("role", "writer")) as session:

        @session.tool(effects="pure")
        def search(query: str) -> list[str]:
            return [query, how.get("found", "paper")]

        @session.tool(effects="idempotent", attempts=5, wait=wait_none())
        def read(name: str, page: int = 1) -> str:
            if next(tries, None) is not None:
                raise ValueError("not yet")
            session.usage(input_tokens=how.get("tokens", 10), cost=0.5)
            return name.upper()

        @session.tool(effects="once")
        def mail(to: str) -> str:
            return "sent"

        @session.tool(effects="pure")
        def chat(messages: list[Any]) -> int:
            return len(messages)

        search(how.get("query", "event sourcing"))
        for name in how.get("names", ["a", "b"]):
            read(name)
        chat_log = [{"role": "user", "content": "hello " * 200}]
        for _ in range(how.get("chats", 2)):
            chat_log.append({"role": "assistant", "content": f"{chat(list(chat_log))}"})
        session.decide(
            "send it?",
            selected=how.get("selected", "yes"),
            alternatives=[{"id": "yes", "score": how.get("score", 0.9)}, "no"],
            threshold=0.5,
        )
        if how.get("selected", "yes") == "yes":
            mail("x@example.org")
    return session.run


def compared(call: Call, *arguments: str, **more: Any) -> tuple[Ran, dict[str, Any], list[Any]]:
    """Return the result of `run diff --json`: the command, its last line, and the moves."""
    result = call("run", "diff", *arguments, "--json", **more)
    *lines, last = result.lines
    assert [line["kind"] for line in lines[:3]] == ["run", "run", "comparability"]
    assert {line["kind"] for line in lines[3:]} <= {"move"}
    assert (result.code, last["equal"]) in {(0, True), (1, False)}
    return result, last, lines[3:]


def test_a_run_equals_itself_and_its_like(call: Call, record: hansard.Record):
    """Same calls, results and decisions: 0; ids, times, keys and usage do not matter."""
    a, b = made(record), made(record, tokens=99)
    for other, shared in ((a, 7), (b, 0)):
        result, last, moves = compared(call, a, other)
        assert result.code == 0
        assert (last["counts"]["same"], last["shared"], last["parts"]) == (7, shared, None)
        assert {move["what"] for move in moves} == {"same"}
    text = call("run", "diff", a, b)
    assert text.code == 0
    assert "equal: calls, results, decisions, messages, status and scores" in text.out
    assert "= 7 entries the same" in text.out


@pytest.mark.parametrize(
    ("how", "what", "place", "sides"),
    [
        ({"found": "book"}, "result", "ada#1", ('"paper"', '"book"')),
        ({"query": "replay"}, "arguments", "ada#1", ('"event sourcing"', '"replay"')),
        ({"names": ["a", "c"]}, "arguments", "ada#3", ('name="b"', 'name="c"')),
        ({"names": ["a", "b", "c"]}, "only_b", "ada#4", ("", 'name="c"')),
        ({"names": ["a"]}, "only_a", "ada#3", ('name="b"', "")),
        ({"names": ["b", "a"]}, "moved", "ada#3", ('name="b"', 'name="b"')),
        ({"selected": "no"}, "result", "ada@", ("yes", "no")),
        ({"score": 0.4}, "result", "ada@", ("yes", "yes")),
        ({"chats": 3}, "only_b", "ada#6", ("", "messages=")),
    ],
)
def test_where_they_part_both_sides_are_shown(call, record, how, what, place, sides):
    """The first difference, of which kind it is, with both sides; for programs and for people."""
    a, b = made(record), made(record, **how)
    result, last, _ = compared(call, a, b)
    parts = last["parts"]
    assert result.code == 1
    first = {side["place"] for side in (parts["a"], parts["b"]) if side is not None}
    assert parts["what"] == what
    assert any(each.startswith(place) for each in first)
    text = call("run", "diff", a, b)
    assert text.code == 1
    shown = text.out.split("first difference\n")[1].split("\n\n")[0]
    for letter, side in zip("AB", sides, strict=True):
        if side:
            assert any(
                line.strip().startswith(f"{letter} ") and side in line
                for line in shown.splitlines()
            )
        elif what.startswith("only"):
            assert f"      {letter} " not in shown


def test_what_each_cost_is_shown(call: Call, record: hansard.Record):
    """Steps, attempts, usage as recorded and summed, duration: of each side."""
    a, b = made(record), made(record, failures=3, tokens=7, names=["a", "b", "c"])
    result, _, _ = compared(call, a, b)
    first, second = result.lines[:2]
    assert (first["run"], first["steps"], first["attempts"], first["decisions"]) == (a, 6, 6, 1)
    assert first["usage"] == first["own_usage"] == {"cost": 1.0, "input_tokens": 20.0}
    assert (second["steps"], second["attempts"]) == (7, 10)
    assert second["usage"] == {"cost": 1.5, "input_tokens": 21.0}
    assert first["duration_ms"] > 0
    [line] = [line for line in call("run", "diff", a, b).out.splitlines() if "attempts" in line]
    assert line.split() == ["attempts", "6", "10"]


def test_a_fork_shows_what_it_shares(call: Call, record: hansard.Record):
    """Before the cut both sides are one event; shared usage is not counted for the fork."""
    parent = made(record)
    [line] = [m for m in compared(call, parent, parent)[2] if m["a"].get("step") == 2]
    version = line["a"]["version"] + 1
    fork = record.fork(parent, at=f"ada@{version}", effects="live")
    made(record, run=fork, names=["a", "elsewhere"], tokens=1)
    result, last, moves = compared(call, parent, fork)
    assert [move["what"] for move in moves[:3]] == ["same", "same", "arguments"]
    assert [move["shared"] for move in moves[:3]] == [True, True, False]
    assert (last["shared"], result.lines[1]["forked_from"]) == (2, parent)
    assert (moves[2]["b"]["recorded_in"], moves[0]["b"]["recorded_in"]) == (fork, parent)
    assert result.lines[1]["usage"] == {"cost": 1.0, "input_tokens": 11.0}
    assert result.lines[1]["own_usage"] == {"cost": 0.5, "input_tokens": 1.0}
    text = call("run", "diff", parent, fork).out
    assert f"B is a fork of run {parent}" in text
    assert "they share 2 entries" in text
    assert "cost in itself" in text


def test_agents_are_matched_by_name_then_by_role(call: Call, record: hansard.Record, runs: Runs):
    """Another name in the same role is matched; another role is unmatched: a difference."""
    a, b = made(record), made(record, agent="bob")
    _, last, _ = compared(call, a, b)
    assert (last["equal"], last["agents"]) == (True, [{"a": "ada", "b": "bob"}])
    _, last, moves = compared(call, a, made(record, agent="bob", role="critic"))
    assert last["agents"] == [{"a": "ada", "b": None}, {"a": None, "b": "bob"}]
    assert Counter(move["what"] for move in moves) == {"only_a": 7, "only_b": 7}
    _, last, _ = compared(call, runs.team, runs.forked)
    assert {"a": "writer", "b": None} in last["agents"]
    assert "agent writer (writer), only in A" in call("run", "diff", runs.team, runs.forked).out


def test_branches_side_by_side_have_no_order(call: Call, record: hansard.Record):
    """The same calls in a gather's branches are equal in any order of completion."""

    def work(order: list[int], *, gather: bool) -> str:
        with record.run("gathered", agent="ada", role="r") as session:

            @session.tool(effects="pure")
            def leaf(n: int) -> int:
                return n

            if gather:
                session.gather(*[lambda n=n: leaf(n) for n in order])
            else:
                for n in order:
                    leaf(n)
        return session.run

    _, last, _ = compared(call, work([1, 2, 3], gather=True), work([3, 1, 2], gather=True))
    assert last["equal"]
    _, last, _ = compared(call, work([1, 2, 3], gather=False), work([3, 1, 2], gather=False))
    assert (last["equal"], last["counts"]["moved"], last["counts"]["same"]) == (False, 1, 2)


def test_errors_and_doubts_are_results(call: Call, runs: Runs):
    """A doubt that was settled differs from one that was not."""
    _, last, [move] = compared(call, runs.doubt, runs.settled)
    assert (move["what"], move["a"]["status"]) == ("result", "in_doubt")
    assert move["b"]["status"] == "completed"
    assert last["parts"] == {k: v for k, v in move.items() if k != "kind"}


@pytest.mark.thorough(quick="cli/test_looking_hostile.py::test_people_see_no_control_character")
def test_what_is_recorded_cannot_move_the_cursor(call: Call, record: hansard.Record):
    """Names, arguments, results and decisions are shown escaped."""

    def work(text: str) -> str:
        with record.run("hostile", agent="a\u202e", role="r\u2066") as session:

            @session.tool(name="t\u202e", effects="pure")
            def tool(x: str) -> str:
                return x

            tool("\x1b]0;title\x07 same")
            tool(text)
            session.decide("q\x1b[0m", selected=text, alternatives=[text])
        return session.run

    result = call("run", "diff", work("\x1b[1m one"), work("\u202e two"))
    assert result.code == 1
    assert not {"\x1b", "\x07", "\u202e", "\u2066"} & set(result.out)
    assert r"t\u202e, different arguments" in result.out


async def test_both_sides_are_as_of_one_position(data_dir, workspace, monkeypatch):
    """Both runs continue equally between the reads: at the reported position they are equal."""
    async with (
        hansard.connect_async(workspace, data_dir=data_dir) as record,
        record.run("w", agent="a", role="r") as one,
        record.run("w", agent="a", role="r") as other,
    ):
        looked = []
        for session in (one, other):

            @session.tool(effects="pure")
            async def look(at: int) -> int:
                return at

            looked.append(look)
        states = record.workspace.states
        read = states.history

        async def history(run: str, up_to: UpTo = None) -> list[Stored]:
            commits = await read(run, up_to)
            for look in looked:
                await look(1)
            return commits

        for look in looked:
            await look(0)
        head = await record.workspace.log.head()
        monkeypatch.setattr(states, "history", history)
        *_, report = (await run_diff(record.workspace, one.run, other.run)).lines()
    assert isinstance(report, RunComparison)
    assert (report.equal, report.position) == (True, head)


def talked(record: hansard.Record, answer: str, **how: Any) -> str:
    """Return a run whose agent talks with a user, calls one tool and ends."""
    asks = {"id": how.get("id", "c1"), "type": "function", "function": {"name": "look"}}
    with record.run("w", agent="ada", role="r") as session:

        @session.tool(effects="pure")
        def look(x: int) -> int:
            return x

        session.message("user", "Is it safe?")
        session.message("assistant", None, fields={"tool_calls": [asks]})
        look(1)
        session.message("tool", "1", fields={"tool_call_id": asks["id"]})
        session.message("assistant", answer)
        if how.get("fails"):
            raise ValueError(how["fails"])
    record.experiments.score(session.run, {"reward": how.get("reward", 1.0)}, by="judge")
    return session.run


def test_runs_that_say_the_opposite_are_not_equal(call: Call, record: hansard.Record):
    """Messages with different texts differ; ids that a provider draws do not."""
    a, b, c = (talked(record, "yes"), talked(record, "no"), talked(record, "yes", id="c2"))
    _, last, _ = compared(call, a, b)
    assert (last["parts"]["what"], last["ended_alike"]) == ("text", True)
    assert (last["parts"]["a"]["content"], last["parts"]["b"]["content"]) == ("yes", "no")
    text = call("run", "diff", a, b).out
    assert "assistant message, different text" in text
    same, last, _ = compared(call, a, c)
    assert (same.code, last["counts"]["text"]) == (0, 0)


def test_runs_that_end_differently_are_not_equal(call: Call, record: hansard.Record):
    """Status, error and scores are compared, too, and shown for both runs."""
    a, b = talked(record, "yes"), talked(record, "yes", reward=0.0)
    with pytest.raises(ValueError, match="refused"):
        talked(record, "yes", fails="refused")
    failed = record.runs()[0][0]
    for other, shown in ((b, "completed, reward 0"), (failed, "failed, ValueError: refused")):
        _, last, _ = compared(call, a, other)
        assert (last["parts"], last["ended_alike"], last["equal"]) == (None, False, False)
        text = call("run", "diff", a, other).out
        assert "they ended differently" in text
        assert f"B {shown}" in text


def test_the_costs_of_a_simulated_user_are_apart(call: Call, tmp_path: Path):
    """Tokens and cost of messages with the role `user` are the simulated user's, not the run's."""
    messages = [
        {"role": "user", "content": "Is it safe?", "cost": 0.25},
        {"role": "assistant", "content": "yes", "cost": 3.0},
    ]
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"messages": messages, "outcome": {"reward": 1}}))
    assert call("import", "chat-jsonl", path).code == 0
    a = call("runs", "--json").lines[0]["run"]
    result, _, _ = compared(call, a, a)
    assert result.lines[0]["usage"] == {"cost": 3.0}
    assert result.lines[0]["user_usage"] == {"cost": 0.25}
    assert "cost of the simulated user" in call("run", "diff", a, a).out


def test_what_is_not_there_is_an_error(call: Call, runs: Runs):
    """An unknown run, or one too many."""
    result = call("run", "diff", runs.team, "nobody")
    assert (result.code, result.out) == (2, "")
    assert "nobody" in result.err


# ---------------------------------------------------------------- alignment

letters = st.lists(st.sampled_from("abcd"), max_size=60)


@given(letters, letters, st.integers(2, 70))
def test_matches_are_equal_and_in_order(a: list[str], b: list[str], window: int):
    """Whatever the window: matched places are equal, rise in both, and include both equal ends."""
    before = alignment.WINDOW_MOVES
    alignment.WINDOW_MOVES = window
    try:
        matches = alignment.matched(a, b)
    finally:
        alignment.WINDOW_MOVES = before
    assert all(a[i] == b[j] for i, j in matches)
    assert all(i < k and j < n for (i, j), (k, n) in itertools.pairwise(matches))
    if a == b:
        assert len(matches) == len(a)
    if a and b and a[0] == b[0]:
        assert matches[0] == (0, 0)


@given(letters, letters)
def test_every_move_is_shown_once_in_the_order_of_both(a: list[str], b: list[str]):
    """Each move is in one pair; unmoved ones keep their order; equal lists are all same."""
    sides = [[move(name, n) for n, name in enumerate(side)] for side in (a, b)]
    pairs = alignment.aligned(*sides)
    assert [pair.a for pair in pairs if pair.a] == sides[0]
    told_b = [pair.b for pair in pairs if pair.b]
    assert sorted(told_b, key=lambda each: each.version) == sides[1]
    in_line = [pair.b for pair in pairs if pair.b and pair.what is not alignment.Match.MOVED]
    assert in_line == sorted(in_line, key=lambda each: each.version)
    left = Counter(a) - Counter(b)
    assert Counter(pair.a.call for pair in pairs if pair.what == "only_a" and pair.a) <= left
    if a == b:
        assert {pair.what for pair in pairs} <= {alignment.Match.SAME}


def move(call: str, version: int) -> alignment.Move:
    """Return a move of some call."""
    name = "x" if call in "ab" else "y"
    return alignment.Move("ada", name, call, "came", version, version, "r")


def test_long_paths_are_aligned_in_bounded_time():
    """Ten thousand calls of which a tenth was left out: all that both have is found."""
    a = [f"call {n % 700} {n}" for n in range(10_000)]
    b = [each for n, each in enumerate(a) if n % 10]
    assert len(alignment.matched(a, b)) == len(b)
