"""`hansard run fork --replace`: another result of a step, from a file or stdin; kills meanwhile."""

import io
import json
import signal
from pathlib import Path

import pytest

import hansard
from tests.cli.support import WORKSPACE, Call, environment
from tests.faults._warm import run as started
from tests.faults.programs import edited_fork

pytestmark = pytest.mark.later


def played(record, run=None, mode=None):
    """Look an order up, and pay it back if it is lost; return the run and what was done."""
    done: list[str] = []
    options = {"run": run, "mode": mode}
    with record.run("refunds", agent="clerk", role="responder", **options) as session:

        @session.tool(effects="pure")
        def find_order(number: int) -> dict:
            done.append("found")
            return {"number": number, "state": "lost"}

        @session.tool(effects="once", shadow=lambda number: f"would pay {number}")
        def refund(number: int) -> str:
            done.append("paid")
            return f"paid {number}"

        order = find_order(17)
        if order["state"] == "lost":
            done.append(refund(17))
        return session.run, done


def test_a_step_is_replaced_from_a_file(record, call: Call, tmp_path: Path):
    """The fork goes on from the file's result; show and SQL have the author and the reason."""
    run, done = played(record)
    assert done == ["found", "paid", "paid 17"]
    file = tmp_path / "order.json"
    file.write_text('{"number": 17, "state": "delivered"}')
    replace = ("--replace", f"clerk#1={file}", "--by", "eve", "--reason", "it was there")
    made = call("run", "fork", run, *replace)
    fork = made.out.strip()
    assert "edited: clerk#1; calls that depend on it run, others are answered" in made.err
    assert "effects=models: calls of models run" in made.err
    assert played(record, fork) == (fork, [])
    shown = call("run", "show", fork).out
    assert "clerk#1 find_order is" in shown
    assert "by eve: it was there" in shown
    assert "result edited by eve (it was there)" in call("run", "trace", fork).out
    compared = call("run", "diff", run, fork)
    edits = 'clerk#1 find_order is {"number":17,"state":"delivered"} by eve: it was there'
    assert f"B is a fork of run {run} with edits: {edits}" in compared.out
    lines = call("run", "diff", run, fork, "--json").lines
    sides = {line["side"]: line for line in lines if line["kind"] == "run"}
    assert (sides["a"]["edits"], sides["b"]["edits"]) == ([], ["clerk#1"])
    answer = record.sql("SELECT effects, edits, withheld_edit FROM forks WHERE run = ?", fork)
    [(effects, edits, withheld)] = answer.rows
    [edit] = json.loads(edits)
    assert (effects, withheld, edit["by"], edit["tool"]) == ("models", 0, "eve", "find_order")
    assert edit["result"] == {"number": 17, "state": "delivered"}
    assert record.sql("SELECT edits FROM forks WHERE run = ?", record.fork(run)).rows == [(None,)]


def test_an_edited_fork_is_exported_whole_and_passes_the_check(
    record, call: Call, tmp_path: Path, data_dir: Path, home: Path
):
    """A large edited result is in the export; imported elsewhere, the fork goes on from it."""
    run, _ = played(record)
    order = {"number": 17, "state": "delivered", "remarks": "x" * 200_000}
    fork = record.fork(run, edits=[hansard.replace("clerk#1", result=order)])
    played(record, fork)
    file = tmp_path / "fork.ndjson"
    assert call("export", fork, "--output", str(file)).code == 0
    assert call("check").code == 0
    with hansard.connect("other", data_dir=data_dir) as other:
        other_home = ("--data-dir", str(data_dir), "-w", "other")
        assert call(*other_home, "import", str(file)).code == 0
        assert played(other, fork, mode="strict") == (fork, [])
        second = other.fork(fork, at="life@3")
        assert played(other, second) == (second, [])


def test_two_steps_are_replaced_one_from_stdin(record, shell, tmp_path: Path):
    """Texts that are no JSON are texts; --json names the edited steps."""
    run, _ = played(record)
    file = tmp_path / "order.json"
    file.write_text('{"number": 17, "state": "lost"}')
    replace = ("--replace", f"clerk#1={file}", "--replace", "clerk#2=-", "--json")
    made = shell("run", "fork", run, *replace, stdin="bank is closed")
    [line] = made.lines
    assert (line["edits"], line["effects"]) == (["clerk#1", "clerk#2"], "models")
    assert played(record, line["run"]) == (line["run"], ["bank is closed"])
    [(how,)] = record.sql(
        "SELECT withheld FROM steps WHERE run = ? AND tool = 'refund'", line["run"]
    ).rows
    assert how == "edit"


@pytest.mark.parametrize(
    ("replace", "why"),
    [
        ("clerk#1", "give STEP=FILE, such as agent#3=result.json"),
        ("clerk#1=/nowhere.json", "/nowhere.json cannot be read"),
        ("clerk#9=-", "step 9 of 'clerk'"),
    ],
)
def test_an_edit_that_cannot_be_read_says_why(record, call: Call, monkeypatch, replace, why):
    """The command ends with 2 and makes no fork."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    run, _ = played(record)
    before = len(record.runs())
    result = call("run", "fork", run, "--replace", replace)
    assert (result.code, why in result.err) == (2, True), result.err
    assert len(record.runs()) == before


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("kill", ["before blob", "after blob", "before append", "after append"])
def test_a_kill_while_a_fork_is_made_leaves_none_or_a_whole_one(record, home, kill: str):
    """After a SIGKILL there is no fork, or one that goes on from the edit."""
    run, _ = played(record)
    before = {run for run, _ in record.runs()}
    arguments = ["-m", edited_fork.__name__, str(home), WORKSPACE, run, kill]
    root = Path(__file__).parents[2]
    killed = started(arguments, cwd=root, env=environment(home), timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    forks = [run for run, _ in record.runs() if run not in before]
    assert len(forks) == (kill == "after append")
    for fork in forks:
        assert played(record, fork) == (fork, [])
        assert len(record.state(fork).life.forked.edits[0].result) < 1_000
