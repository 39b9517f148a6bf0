"""Ctrl-C in `hansard prompt`: it ends at once, and costs no answer that was paid for."""

import itertools
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import hansard
from tests.cli.killed import killed_at, was_killed
from tests.cli.support import environment
from tests.faults._warm import python

pytestmark = pytest.mark.slow

PROGRAM = """
import time
from pathlib import Path

FOLDER = Path({folder!r})
tasks = {{f"t{{number}}": number for number in range(12)}}


def evaluate(text, task):
    if len(list(FOLDER.glob("asked-*"))) == {stop} and not (FOLDER / "stopped").exists():
        (FOLDER / "stopped").touch()
        {action}
    name = f"asked-{{time.monotonic_ns()}}"
    (FOLDER / name).write_text(f"{{text}} {{task}}")
    return float(str(text).count("!") * 6 > task)


def propose(text, results):
    return text + "!" if len(text) < 3 else text
"""
"""Scores without a model; each evaluation is noted as a file."""


class Optimizing:
    """The command in a process of its own, for a prompt whose alias is at version 1."""

    def __init__(self, record, data_dir: Path, workspace: str, folder: Path, **program) -> None:
        self.record, self.folder = record, folder
        record.prompts.add("p", "x")
        record.prompts.alias("p@1", "production", reason="the first one")
        file = folder / "program.py"
        file.write_text(PROGRAM.format(folder=str(folder), **program), encoding="utf-8")
        self.environment = environment(data_dir) | {"HANSARD_WORKSPACE": workspace}
        self.command = [python(), "-m", "hansard", "prompt", "optimize", "p@production"]
        self.command += [str(file), "--budget", "60"]

    def start(self) -> subprocess.Popen[str]:
        """Start the command."""
        return subprocess.Popen(
            self.command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def evaluations(self) -> Counter[str]:
        """Return how often each text and task were evaluated."""
        return Counter(file.read_text() for file in self.folder.glob("asked-*"))

    def alias(self) -> int:
        """Return the version that the alias names."""
        return self.record.prompts.get("p@production").version


def until(holds) -> None:
    """Wait for a condition, a minute at most."""
    limit = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("stop", [3, 15], ids=["in the search", "in the comparison"])
def test_an_interrupt_ends_an_optimization_at_once(record, data_dir, workspace, tmp_path, stop):
    """An interrupt ends an optimisation within seconds; resumed it pays for nothing twice."""
    optimizing = Optimizing(
        record, data_dir, workspace, tmp_path, stop=stop, action="time.sleep(600)"
    )
    child = optimizing.start()
    until((tmp_path / "stopped").exists)
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    try:
        out, err = child.communicate(timeout=20)
    finally:
        child.kill()
    assert time.monotonic() - began < 10
    assert (child.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert optimizing.alias() == 1
    assert optimizing.evaluations().total() == stop
    again = optimizing.start()
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert max(optimizing.evaluations().values()) == 1
    assert optimizing.alias() == 3


# ------------------------------------------------------------ kills


OPTIMIZER = Path(__file__).with_name("programs") / "small_optimizer.py"
LAST = 240
"""Points at which it may be killed; beyond them it is done."""


@pytest.mark.long
def test_a_killed_promotion_moves_the_alias_once(
    call, record, data_dir, workspace, rounds, evidence
):
    """Or not at all; run again it is moved once, with its reason."""
    chance = random.Random(os.environ["SEED"])
    killed = killed_at(data_dir, workspace)
    record.prompts.add("rag", "Version 1.")
    record.prompts.alias("rag@1", "production", reason="the first one")
    kills, kills_min, versions = 0, rounds(quick=1, full=50), itertools.count(2)
    while kills < kills_min:  # a point may lie past the end
        number = next(versions)
        record.prompts.add("rag", f"Version {number}.")
        command = ("prompt", "promote", f"rag@{number}", "--reason", f"round {number}")
        kills += killed(chance.randrange(1, 4), *command)
        assert record.prompts.get("rag@production").version in {number - 1, number}
        call(*command)
        assert record.prompts.get("rag@production").version == number
        moves = [each for each in record.prompts.log("rag").moves if each.version == number]
        assert [each.because for each in moves] == [f"round {number}"]
    evidence.record("prompts.promote.kills", kills=kills, rounds=next(versions) - 2)


@pytest.mark.thorough(
    quick="prompts/test_interrupts.py::test_an_interrupt_ends_an_optimization_at_once"
)
@pytest.mark.long
def test_a_killed_optimisation_is_gone_on_with(record, data_dir, workspace, rounds, evidence):
    """A killed optimisation resumes to the result of an undisturbed one."""
    chance = random.Random(os.environ["SEED"])
    program = OPTIMIZER.read_text(encoding="utf-8")

    def come_to(name: str, point: int) -> bool:
        return was_killed(data_dir, point, program, name, data_dir)

    def state_of(name: str) -> object:
        with hansard.connect(name, data_dir=data_dir) as opened:
            log = opened.prompts.log("p")
            return (
                [(each.version, each.parents, each.aliases) for each in log.versions],
                [(each.alias, each.version) for each in log.moves],
                opened.sql(
                    "SELECT status, count(*), (SELECT count(*) FROM outcomes), "
                    "(SELECT count(DISTINCT run) FROM outcomes) FROM runs GROUP BY 1"
                ).rows,
            )

    assert not come_to(workspace, 0)
    whole = state_of(workspace)
    kills = 0
    for number in range(rounds(quick=1, full=50)):
        name = f"{workspace}-{number}"
        while come_to(name, chance.randrange(2, LAST)):
            kills += 1
            if chance.random() < 0.5:  # as often as not nobody kills it the next time
                assert not come_to(name, 0)
                break
        assert state_of(name) == whole
    evidence.record("prompts.optimize.kills", kills=kills, rounds=rounds(quick=1, full=50))
