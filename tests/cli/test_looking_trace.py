"""`run trace` over real runs: nesting, branches side by side, attempts, several agents, forks."""

import re

import pytest
from tenacity import wait_none

import hansard
from tests.cli.support import Call, Runs


@pytest.fixture(scope="module")
def tree(record: hansard.Record) -> str:
    """Return a run of composites in branches in a composite, a retry inside, and a failure."""
    tries = iter(range(9))
    with record.run("tree", agent="lead", role="lead") as session:

        @session.tool(effects="pure")
        def leaf(n: int) -> int:
            return n

        @session.tool(effects="idempotent", attempts=3, wait=wait_none())
        def shaky(n: int) -> int:
            if next(tries) < 2:
                raise ValueError(f"not yet, {n}")
            return n

        @session.tool(effects="composite")
        def inner(n: int) -> list[int]:
            return list(session.gather(lambda: leaf(n), lambda: shaky(n + 1)))

        @session.tool(effects="composite")
        def outer(n: int) -> int:
            session.gather(lambda: inner(n), lambda: (leaf(n * 10), leaf(n * 11)))
            return n

        leaf(0)
        outer(5)
        leaf(9)
        return session.run


def shape(text: str) -> list[str]:
    """Return the tree alone, without the columns beside it and without arguments."""
    branches = [re.search(r"[├└│].*", line) for line in text.splitlines()]
    return [re.split(r"(?<=\w)  ", each[0])[0] for each in branches if each is not None]


def test_the_tree_has_the_shape_of_the_calls(call: Call, tree: str):
    """Calls are inside their caller, branches under one node, attempts under their step."""
    assert shape(trace_text(call, tree)) == [
        "├─ leaf",
        "├─ outer",
        "│  └─ ∥ 2 branches",
        "│     ├─ branch 1 · inner",
        "│     │  └─ ∥ 2 branches",
        "│     │     ├─ branch 1 · leaf",
        "│     │     └─ branch 2 · shaky",
        "│     │           attempt 1 failed",
        "│     │           attempt 2 failed",
        "│     └─ branch 2",
        "│        ├─ leaf",
        "│        └─ leaf",
        "└─ leaf",
    ]


def trace_text(call: Call, run: str, *more: str) -> str:
    """Return the trace for people."""
    shown = call("run", "trace", run, *more)
    assert shown.code == 0, shown.err
    return shown.out


def test_json_tells_the_same_tree(call: Call, tree: str):
    """Each line parses; parents precede children, one level up, in their branch."""
    steps = call("run", "trace", tree, "--json").lines
    by_number = {step["step"]: step for step in steps}
    assert [(step["tool"], step["depth"]) for step in steps if step["depth"] == 0] == [
        ("leaf", 0),
        ("outer", 0),
        ("leaf", 0),
    ]
    for index, step in enumerate(steps):
        parent = by_number.get(step["parent"])
        assert step["depth"] == (0 if parent is None else parent["depth"] + 1)
        assert parent is None or steps.index(parent) < index
    branches = {(step["tool"], step["arguments"]["n"]): step["branch"] for step in steps}
    assert branches["inner", 5] != branches["leaf", 50] == branches["leaf", 55]
    assert branches["leaf", 0] is branches["outer", 5] is None
    [shaky] = [step for step in steps if step["tool"] == "shaky"]
    assert [tried["attempt"] for tried in shaky["attempts"]] == [1, 2]
    assert shaky["status"] == "completed"


def test_times_are_the_logs_and_in_order(call: Call, tree: str):
    """A step begins after the run, ends after it began, and inside the step around it."""
    steps = call("run", "trace", tree, "--json").lines
    by_number = {step["step"]: step for step in steps}
    for step in steps:
        began, ended = step["began"], step["ended"]
        assert began["clock"] == ended["clock"] == "log"
        assert 0 <= began["offset_ms"] <= ended["offset_ms"]
        assert began["at"] <= ended["at"]
        if step["parent"] is not None:
            outer = by_number[step["parent"]]
            assert outer["began"]["offset_ms"] <= ended["offset_ms"] <= outer["ended"]["offset_ms"]
    assert "the log's time" in trace_text(call, tree)


def test_whole_values_keep_the_order(call: Call, tree: str):
    """`--full` shows the same steps in the same order as `--json`."""
    steps = call("run", "trace", tree, "--json").lines
    named = re.findall(r"lead#(\d+)  ", trace_text(call, tree, "--full"))
    assert [int(number) for number in named] == [step["step"] for step in steps]


def test_agents_have_a_tree_each(call: Call, runs: Runs):
    """Each agent has its own tree, with its role and count."""
    text = trace_text(call, runs.team)
    assert text.index("researcher_1 (researcher), 13 steps") < text.index("writer (writer), 1 step")
    assert text.index("writer (writer)") < text.index("writer#1")


def test_a_forks_trace_says_where_a_step_is_recorded(call: Call, runs: Runs):
    """Steps that a fork took over are marked as its parent's."""
    steps = call("run", "trace", runs.forked, "--json").lines
    assert {step["recorded_in"] for step in steps} == {runs.team}
    assert {step["run"] for step in steps} == {runs.forked}
    assert runs.team in trace_text(call, runs.forked)
    assert "recorded in" not in trace_text(call, runs.team)


def test_a_point_inside_the_tree_leaves_calls_open(call: Call, tree: str):
    """A call without an outcome yet is open; a call not yet begun is absent."""
    steps = call("run", "trace", tree, "--json").lines
    [shaky] = [step for step in steps if step["tool"] == "shaky"]
    cut = call("run", "trace", tree, "--at", str(shaky["position"]), "--json").lines
    open_steps = {step["tool"] for step in cut if step["status"] == "requested"}
    assert {"outer", "inner", "shaky"} <= open_steps
    assert all(step["ended"] is None for step in cut if step["status"] == "requested")
    assert {step["step"] for step in cut} < {step["step"] for step in steps}
    text = trace_text(call, tree, "--at", str(shaky["position"]))
    assert "requested, in doubt or under way" in text
    doubtful = {step["tool"] for step in cut if step["in_doubt"]}
    assert "shaky" in doubtful <= open_steps
    assert not any(step["in_doubt"] for step in steps)
