"""A loop that chooses its checkpoints, killed around a checkpoint that states its choice."""

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from tests.agents.test_restart import environment
from tests.faults import _warm

pytestmark = pytest.mark.later

PROGRAM = """
import os, signal, sys
import hansard
from hansard.agents.annotations.statements import Annotations

saves, record_now = [], Annotations.checkpoint

def checkpoint(self, name, data):
    saves.append(data["done"])
    if sys.argv[1:] == ["before", str(len(saves))]:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from record_now(self, name, data)
    if sys.argv[1:] == ["after", str(len(saves))]:
        os.kill(os.getpid(), signal.SIGKILL)

Annotations.checkpoint = checkpoint

@hansard.tool(effects="once")
def send(n: int) -> int:
    with open("sent", "a") as file:
        file.write(f"{n}\\n")
    return n * n

with hansard.Session("squares", run="r") as session:
    loop = session.resumable(range(6), every="auto")
    for n in loop:
        loop.results.append(send(n))
    print(loop.results)
"""


def test_a_kill_around_a_choice_leaves_a_resumable_run(tmp_path: Path):
    """Killed before and after the first checkpoints, it loses no result, and repeats no effect.
    Each restart counts the kills on record.
    """
    (tmp_path / "squares.py").write_text(PROGRAM)
    env = environment(tmp_path)
    for at in (["before", "1"], ["after", "1"], ["before", "2"]):
        killed = _warm.run(["squares.py", *at], cwd=tmp_path, env=env, timeout=60)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = _warm.run(["squares.py"], cwd=tmp_path, env=env, timeout=60)
    assert done.stdout.splitlines() == ["[0, 1, 4, 9, 16, 25]"], done.stderr
    assert (tmp_path / "sent").read_text().split() == ["0", "1", "2", "3", "4", "5"]
    with hansard.connect(data_dir=tmp_path / "record") as record:
        state = record.state("r").agents["agent"]
    facts: list[Any] = [noted.fact for noted in state.facts]
    saved = [msgspec.json.decode(fact.data) for fact in facts]
    assert [data["done"] for data in saved[:3]] == [1, 2, 3]
    assert saved[-1]["done"] == 6
    assert (saved[-1]["auto"]["failures"], saved[-1]["auto"]["sessions"]) == (3, 3)
