"""Ctrl-C in `hansard prompt`: it ends at once, and costs no answer that was paid for."""

import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

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
