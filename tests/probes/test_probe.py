"""`hansard probe`: decisions of the program in forks with another value."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hansard.client.record import Record
from tests.cli.support import SRC, Call, environment
from tests.cli.test_up import ended
from tests.faults._warm import python, run

pytestmark = pytest.mark.slow

PROGRAM = '''
"""Grants by what it looks up; the second word says what it makes of a gender."""
import os, sys, time
import hansard

number, rule, *more = sys.argv[1:]
GENDERS = ["female", "male"]


@hansard.tool(effects="pure")
def customer(number: int) -> dict:
    return {"name": f"c{number}", "gender": GENDERS[number % 2], "income": number}


@hansard.tool(effects="pure", kind="model")
def opinion(prompt: str) -> str:
    """Hand-written: stands in for a model."""
    return "no" if "female" in prompt else "yes"


@hansard.tool
def mail(to: str, text: str) -> str:
    return f"{text} to {to}"


is_fork = "HANSARD_RUN" in os.environ  # a record that is opened takes it out


def decide(session):
    time.sleep(float(os.environ.get("PROBE_SLEEPS", 0)))
    person = customer(int(number))
    chosen = "approve" if person["income"] % 3 else "decline"
    if rule == "biased" and person["gender"] == "male":
        chosen = "approve"
    if rule == "model":
        chosen = {"yes": "approve", "no": "decline"}[opinion(f"Is {person['gender']} fine?")]
    if rule == "noisy" and is_fork:
        chosen = "decline" if chosen == "approve" else "approve"
    session.decide("Grant?", selected=chosen, inputs=[person],
                   threshold=0.5, alternatives=[{"id": "approve", "score": 0.6}, {"id": "decline"}])
    if rule == "mails":
        mail(person["name"], chosen)


if __name__ == "__main__":
    numbers = range(int(number)) if more else [int(number)]
    with hansard.connect() as record:
        for number in numbers:
            with record.run("grants", labels={"number": str(number)}) as session:
                decide(session)
'''

SWAP = ("--swap", "customer.gender=female,male")


class Desk:
    """A program and its runs in a workspace."""

    def __init__(self, folder: Path, data_dir: Path, workspace: str, call: Call) -> None:
        self.path = folder / "grants.py"
        self.path.write_text(PROGRAM)
        self._environment = environment(data_dir, HANSARD_WORKSPACE=workspace)
        self._call = call

    def record(self, count: int, rule: str = "fair") -> None:
        """Make runs."""
        command = [str(self.path), str(count), rule, "all"]
        made = run(command, cwd=self.path.parent, env=self._environment, timeout=60)
        assert made.returncode == 0, made.stderr

    def command(self, rule: str = "fair") -> tuple[object, ...]:
        """Return the command of a fork."""
        return ("--", python(), self.path, "{label.number}", rule)

    def probe(self, rule: str = "fair", *options: object):
        """Return a probe of all runs."""
        return self._call("probe", "all", *SWAP, "--jobs", 2, *options, *self.command(rule))

    def start(self, rule: str) -> subprocess.Popen[bytes]:
        """Start a probe as a process with visible children and slow forks."""
        arguments = ["-m", "hansard", "probe", "all", *SWAP, *self.command(rule)]
        slow = self._environment | {"PROBE_SLEEPS": "0.2", "PYTHONPATH": str(SRC)}
        return subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env=slow,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
def desk(
    tmp_path: Path, data_dir: Path, workspace: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    """Return a desk whose forks can import our package."""
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    return Desk(tmp_path, data_dir, workspace, call)


def rows(made, kind: str):
    """Return the lines of a kind."""
    return [line for line in made.lines if line["kind"] == kind]


def test_each_run_is_forked_for_each_value_and_nothing_else_changes(desk, call, record):
    """Both values are forks that reproduce the decision; runs and savings are unchanged."""
    desk.record(2)
    before = {run for run, _ in record.runs()}
    newest = call("run", "show", "last", "--json").lines[0]
    made = desk.probe("fair", "--json")
    assert made.code == 0, made.err
    [probe] = rows(made, "probe")
    assert (probe["forks"], probe["before"], probe["ran"], probe["left_out"]) == (4, 0, 4, [])
    assert probe["tools"] == {"customer.gender": 2}
    [noise] = rows(made, "noise")
    assert (noise["controls"], noise["compared"], noise["differ"]) == (2, 2, 0)
    assert [row["unanswered"] for row in rows(made, "pair")] == [None, None]
    forks = [life.forked for run, life in record.runs() if run not in before]
    swaps = [forked.swap for forked in forks if forked is not None]
    assert {swap.probe for swap in swaps if swap is not None} == {probe["probe"]}
    assert len(swaps) == 4
    listed = call("runs", "--json")
    assert {row["run"] for row in listed.lines} == before
    assert "4 forks of probes left out: --probes shows them" in listed.err
    assert len(call("runs", "--probes", "--json").lines) == 6
    assert call("run", "show", "last", "--json").lines[0]["run"] == newest["run"]
    assert not record.savings().rows
    audited = {row["run"] for row in call("audit", "--flip", 1, "--json").lines if "run" in row}
    assert audited & before
    assert audited.isdisjoint(row["run"] for row in rows(made, "pair"))
    shown = call("run", "show", rows(made, "pair")[0]["run"])
    assert 'customer.gender is "male", on record "female"' in shown.out
    kept = record.sql("SELECT count(*) FILTER (probe IS NULL), count(probe) FROM runs").rows
    assert kept == [(2, 4)]


def test_a_path_that_is_nowhere_names_the_nearest(desk: Desk, call: Call):
    """A path that does not exist names the nearest one; only call results can be swapped."""
    desk.record(2)
    wrong = call("probe", "all", "--swap", "customer.gendre=a,b", *desk.command())
    assert wrong.code == 2
    assert "the nearest: customer.gender" in wrong.err
    argument = call("probe", "all", "--swap", "number=1,2", *desk.command())
    assert "it is an argument of agent#1 customer" in argument.err
    nothing = call("probe", "all", *SWAP)
    assert "give it after '--'" in nothing.err
    nobody = call("probe", "x-*", *SWAP, *desk.command())
    assert "no run is like 'x-*'" in nobody.err


@pytest.mark.thorough(quick="statistics/test_probes.py::test_a_pair_that_does_not_count_says_why")
def test_a_run_that_the_command_cannot_be_made_for_is_left_out(desk, call, record):
    """A run for which the command cannot be built, or without such a value, is counted with the
    reason.
    """
    desk.record(1)
    with record.run("other") as session:
        session.decide("Grant?", selected="approve")
    made = desk.probe("fair", "--json")
    [probe] = rows(made, "probe")
    assert [each["why"] for each in probe["left_out"]] == [
        "no call before its decision returned customer.gender"
    ]
    lacks = call("probe", "all", *SWAP, "--", "true", "{label.nothing}")
    assert "it has no label nothing, which the command names" in lacks.err


@pytest.mark.thorough(quick="statistics/test_probes.py::test_a_pair_that_does_not_count_says_why")
def test_an_effect_that_is_withheld_after_the_decision_loses_no_pair(desk: Desk):
    """A fork's changed effect is refused; the decision recorded before it still counts."""
    desk.record(1, "mails")
    made = desk.probe("mails", "--json")
    [pair] = rows(made, "pair")
    assert pair["unanswered"] is None
    assert rows(desk.probe("mails", "--json"), "probe")[0]["ran"] == 0


@pytest.mark.thorough(quick="statistics/test_probes.py::test_a_pair_that_does_not_count_says_why")
def test_a_program_that_fails_is_counted(desk: Desk, call: Call):
    """A program that does not join its forks is counted, and its last output is shown."""
    desk.record(1)
    code = "import sys; sys.exit('no such thing')"
    made = call("probe", "all", *SWAP, "--", python(), "-c", code)
    assert "not answered: 1 pair: the program did not take part in a fork" in made.out
    assert "ended with exit code 1, such as" in made.err
    assert "no such thing" in made.err
    absent = call("probe", "all", *SWAP, "--", "no-such-program")
    assert "cannot be run" in absent.err


@pytest.mark.thorough  # the kill is the quicker case
def test_another_program_is_another_probe(desk: Desk):
    """A file that the command names and that has changed makes another one; --again does, too."""
    desk.record(1)
    first = rows(desk.probe("fair", "--json"), "probe")[0]
    same = rows(desk.probe("fair", "--json"), "probe")[0]
    assert (same["probe"], same["before"]) == (first["probe"], 2)
    desk.path.write_text(PROGRAM + "# edited\n")
    edited = rows(desk.probe("fair", "--json"), "probe")[0]
    assert (edited["probe"] != first["probe"], edited["before"]) == (True, 0)
    repeated = rows(desk.probe("fair", "--json", "--again"), "probe")[0]
    assert (repeated["probe"] not in (first["probe"], edited["probe"]), repeated["before"]) == (
        True,
        0,
    )


def test_a_probe_that_is_killed_goes_on_where_it_was(desk: Desk, record: Record):
    """A restarted probe repeats nothing, and reports how much was already done."""
    desk.record(3)
    first = desk.start("fair")

    def completed() -> list[tuple[str, int]]:
        return [
            (run, life.version)
            for run, life in record.runs(status="completed")
            if life.forked is not None
        ]

    until = time.monotonic() + 120
    while len(completed()) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGSTOP)  # it starts no program more
    running = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    for pid in map(int, running):  # not ours to end; it ends by itself
        while not ended(pid):
            assert time.monotonic() < until, pid
            time.sleep(0.05)
    there = completed()
    assert 2 <= len(there) < 6
    made = desk.probe("fair", "--json")
    [probe] = rows(made, "probe")
    assert (probe["before"], probe["ran"]) == (len(there), 6 - len(there))
    assert [row["unanswered"] for row in rows(made, "pair")] == [None] * 3
    assert set(there) <= set(completed())  # not a word was added to them


def test_a_fork_is_no_run_to_probe(desk: Desk, call: Call, record: Record):
    """A fork is refused as a run to probe, and the error says that it is a fork."""
    desk.record(1)
    [(run, _)] = record.runs()
    child = record.fork(run)
    made = call("probe", child, *SWAP, *desk.command())
    assert "is a fork; give the run that it is a fork of" in made.err
