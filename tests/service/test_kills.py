"""Whoever is killed, at whatever moment: each effect is made once, and nothing said is lost."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hansard.bus.portal import portal
from hansard.domain.steps import Verdict
from tests.service.support import House

WORKER = Path(__file__).parent / "programs" / "worker.py"
LINES = 40
GONE, DOUBT = 4, 3


def work(house: House, file: Path, run: str) -> subprocess.Popen[str]:
    """The worker, begun."""
    return subprocess.Popen(
        [sys.executable, str(WORKER), run, str(file), str(LINES)],
        env={**os.environ, "HANSARD_CREDENTIALS": str(house.login())},
        stdout=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def up(house: House) -> Iterator[subprocess.Popen[str]]:
    """`hansard up`, which serves; killed at the end if it is still there. Nobody reads the commits
    that it prints: it serves all the same.
    """
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "hansard", "up", "--json"),
            *("--data-dir", str(house.data_dir), "--workspace", house.workspace),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert '"kind":"up"' in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def settle(house: House, run: str, said: str, file: Path) -> None:
    """What a person does about a doubt: look, and say what is so."""
    _, step, tool = said.split()[:3]
    assert tool == "send", said  # nothing else may be in doubt
    with house.trusted() as record:
        view = record.state(run)
        line = int(bytes(view.agent("ada").steps[int(step)].arguments).split(b":")[1].rstrip(b"}"))
        happened = str(line) in file.read_text().split() if file.exists() else False
        verdict = Verdict.HAPPENED if happened else Verdict.DID_NOT_HAPPEN
        more = {"result": line} if happened else {}
        record.settle(run, f"ada#{step}", verdict.value, **more)


def ended(house: House, process: subprocess.Popen[str], run: str, file: Path) -> str | None:
    """What a worker printed, a doubt settled; None where it has to be begun again."""
    said, _ = process.communicate(timeout=60)
    if process.returncode == 0:
        return said
    if process.returncode == DOUBT:
        settle(house, run, said, file)
    else:
        assert process.returncode in (GONE, -signal.SIGKILL), said
    return None


def check(house: House, run: str, file: Path, said: str) -> None:
    """Each line once, each count right, and a record that is whole."""
    assert sorted(map(int, file.read_text().split())) == list(range(LINES))
    assert said.split() == ["done", str(LINES), str(len(range(0, LINES, 7)))]
    with house.trusted() as record:
        state = record.state(run).agent("ada")
        sends = [step for step in state.steps.values() if step.tool == "send"]
        assert {step.status.value for step in sends} == {"completed"}
        assert len(sends) == LINES
        assert len(portal().run(record.workspace.log.read_run(run))) > LINES


@pytest.mark.long
def test_client_killed(house: House, tmp_path: Path, rounds: Callable[[int, int], int]) -> None:
    """A client killed at random moments is begun again and does the rest, each effect once."""
    for number in range(rounds(2, 40) // 2):
        seed = random.randrange(2**32)
        chance = random.Random(seed)
        run, file = f"r{number}", tmp_path / f"sent-{number}"
        kills = 4
        while True:
            process = work(house, file, run)
            if kills:
                kills -= 1
                time.sleep(chance.uniform(0.4, 1.1))
                process.kill()
            said = ended(house, process, run, file)
            if said is not None:
                break
        check(house, run, file, said)


@pytest.mark.long
def test_service_killed(other: House, tmp_path: Path, rounds: Callable[[int, int], int]) -> None:
    """A service killed at random moments: its clients are told so at once, and go on with the next
    one, each effect once.
    """
    for number in range(rounds(2, 20) // 2):
        chance = random.Random(random.randrange(2**32))
        run, file = f"r{number}", tmp_path / f"sent-{number}"
        for kill in range(100):
            with up(other) as service:
                process = work(other, file, run)
                if kill < 2:
                    time.sleep(chance.uniform(0.5, 1.0))
                    service.kill()
                    service.wait()
                said = ended(other, process, run, file)
            if said is not None:
                break
        else:
            pytest.fail("it never came to its end")
        check(other, run, file, said)
