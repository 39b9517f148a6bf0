"""At any kill each effect is made once, and no stated fact is lost."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hansard.bus.portal import portal
from hansard.domain.steps import Verdict
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import ServiceGone
from tests.faults._whole import holes, repeats, torn
from tests.service._nursery import Nursery
from tests.service.programs import small
from tests.service.support import House

pytestmark = pytest.mark.slow

WORKER = Path(__file__).parent / "programs" / "worker.py"
LINES = 40
GONE, DOUBT = 4, 3
NOTICED_S = 20.0
"""So soon it is noticed that a service is gone; waiting for an answer for ever is far more."""


def work(house: House, file: Path, run: str) -> subprocess.Popen[str]:
    """Start the worker."""
    return subprocess.Popen(
        [sys.executable, str(WORKER), run, str(file), str(LINES)],
        env={**os.environ, "HANSARD_CREDENTIALS": str(house.login())},
        stdout=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def up(house: House) -> Iterator[subprocess.Popen[str]]:
    """Run `hansard up`, with its output ignored; kill it at the end."""
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


def settle(house: House, run: str, output: str, file: Path) -> None:
    """Settle a doubt as a person does: look at the file, and state the outcome."""
    _, step, tool = output.split()[:3]
    assert tool == "send", output  # nothing else may be in doubt
    with house.trusted() as record:
        view = record.state(run)
        line = int(bytes(view.agent("ada").steps[int(step)].arguments).split(b":")[1].rstrip(b"}"))
        happened = str(line) in file.read_text().split() if file.exists() else False
        verdict = Verdict.HAPPENED if happened else Verdict.DID_NOT_HAPPEN
        more = {"result": line} if happened else {}
        record.settle(run, f"ada#{step}", verdict.value, **more)


def ended(house: House, process: subprocess.Popen[str], run: str, file: Path) -> str | None:
    """Return a worker's output, with doubts settled; None if it has to be restarted."""
    output, _ = process.communicate(timeout=170)
    if process.returncode == 0:
        return output
    if process.returncode == DOUBT:
        settle(house, run, output, file)
    else:
        assert process.returncode in (GONE, -signal.SIGKILL), output
    return None


def check(house: House, run: str, file: Path, output: str) -> None:
    """Each line once, each count right, and a record that is whole."""
    assert sorted(map(int, file.read_text().split())) == list(range(LINES))
    assert output.split() == ["done", str(LINES), str(len(range(0, LINES, 7)))]
    with house.trusted() as record:
        state = record.state(run).agent("ada")
        sends = [step for step in state.steps.values() if step.tool == "send"]
        assert {step.status.value for step in sends} == {"completed"}
        assert len(sends) == LINES
        assert len(portal().run(record.workspace.log.read_run(run))) > LINES


@pytest.mark.long
@pytest.mark.thorough  # point by point below
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
            output = ended(house, process, run, file)
            if output is not None:
                break
        check(house, run, file, output)


@pytest.mark.long
@pytest.mark.thorough  # point by point below
def test_service_killed(other: House, tmp_path: Path, rounds: Callable[[int, int], int]) -> None:
    """After kills of the service its clients go on, each effect once."""
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
                output = ended(other, process, run, file)
            if output is not None:
                break
        else:
            pytest.fail("it never reached its end")
        check(other, run, file, output)


# ------------------------------------------------------------ point by point


@pytest.fixture
def nursery(house: House, tmp_path: Path) -> Iterator[Nursery]:
    """Yield a starter of services and clients of the workspace."""
    made = Nursery(house, tmp_path)
    yield made
    made.close()


def some(points: int, rounds: Callable[[int, int], int], quick: int) -> list[int]:
    """All points of a thorough run; of a quick one some, in even steps from a random one."""
    step = max(1, points // rounds(quick, points))
    return list(range(random.randrange(step), points, step))


def went_on(house: House, run: str, file: Path, answers: list[Any], ended: list[Any]) -> list[Any]:
    """Continue to the end, settling doubts; return all results."""
    for _ in range(5):
        if ended[0] == "ended":
            return answers
        if ended[0] == "doubt":
            settle_small(house, run, ended, file)
        before, answers = answers, []
        with house.connect() as record:
            ended = small.attempt(record, run, file, answers)
        assert answers[: len(before)] == before[: len(answers)]
        assert ended[0] != "gone", ended
    pytest.fail(f"{run} never reached its end")


def settle_small(house: House, run: str, ended: list[Any], file: Path) -> None:
    """Settle a doubt of the small program."""
    _, step, tool = ended
    assert tool == "send"
    with house.trusted() as record:
        line = bytes(record.state(run).agent("ada").steps[step].arguments).split(b":")[1][:1]
        if file.exists() and line.decode() in file.read_text().split():
            record.settle(run, f"ada#{step}", "happened", result=f"sent {line.decode()}")
        else:
            record.settle(run, f"ada#{step}", "did_not_happen")


def check_small(house: House, run: str, file: Path, answers: list[Any]) -> None:
    """Each effect once, nothing half-written, nothing in doubt, and a record that is whole."""
    assert answers == small.ENDED
    assert file.read_text().split() == ["1", "2"]
    with house.trusted() as record:
        view = record.state(run)
        commits = portal().run(record.workspace.log.read_run(run))
    assert (holes(commits), repeats(commits), torn(commits)) == ([], [], [])
    assert {name: view.boards[name].plain for name in ("n", "x")} == {"n": 2, "x": 1}
    assert list(view.boards["ones"].plain) == [1]
    steps = list(view.agent("ada").steps.values())
    assert {step.status.value for step in steps} == {"completed"}
    kinds = Counter(event.type for stored in commits for event in stored.commit.events)
    assert (kinds["task.added.v1"], kinds["task.completed.v1"]) == (1, 1)
    assert kinds["message.added.v1"] == 2
    assert Counter(step.tool for step in steps)["send"] == 2


@pytest.mark.long
@pytest.mark.thorough  # point by point below
def test_service_killed_at_each_point(house, nursery, tmp_path, rounds, evidence, monkeypatch):
    """After a kill at each point, clients learn it at once and go on with the next service."""
    house.end()  # others serve
    monkeypatch.setattr(wire, "BEAT_S", 0.05)
    file = tmp_path / "whole"
    answers: list[Any] = []
    with nursery.service() as service, house.connect() as record:
        assert small.attempt(record, "whole", file, answers) == ["ended"]
    check_small(house, "whole", file, answers)
    points = service.reached()
    kills = some(len(points), rounds, 12)
    for dies in kills:
        run, file, answers = f"k{dies}", tmp_path / f"sent-{dies}", []
        with nursery.service(dies), house.connect() as record:
            began = time.monotonic()
            ended = small.attempt(record, run, file, answers)
            took_s = time.monotonic() - began
        assert ended[0] in {"gone", "ended"}, (points[dies], ended)
        if ended[0] == "gone":
            assert ended[1] == "ServiceGone", (points[dies], ended)
            assert "resume the run" in ended[2]
        assert took_s < NOTICED_S, points[dies]
        with nursery.service():
            answers = went_on(house, run, file, answers, ended)
        check_small(house, run, file, answers)
    evidence.record("service.killed", points=len(points), kills=len(kills), lost=0, doubled=0)


@pytest.mark.long
@pytest.mark.thorough  # point by point below
def test_client_killed_at_each_point(house, nursery, tmp_path, rounds, evidence):
    """After a kill at each point, a restarted client resumes at once."""
    whole = nursery.client("whole", tmp_path / "whole")
    assert whole.ended() == (0, ["ended"])
    points = whole.reached()
    kills = some(len(points), rounds, 12)
    for dies in kills:
        run, file = f"k{dies}", tmp_path / f"sent-{dies}"
        killed = nursery.client(run, file, dies)
        assert killed.ended() == (-signal.SIGKILL, None), points[dies]
        answers = went_on(house, run, file, [], ["killed"])
        check_small(house, run, file, answers)
    evidence.record("service.client_killed", points=len(points), kills=len(kills))


def test_service_killed_while_a_client_waits(house: House, nursery: Nursery) -> None:
    """A client that waits for others learns of the service's end as soon as any other client."""
    house.end()
    with nursery.service() as service, house.connect() as record:
        with record.run("w", run="r1") as session:
            session.message("user", "first")
        timer = threading.Timer(0.3, os.kill, (service.pid, signal.SIGKILL))
        began = time.monotonic()
        with pytest.raises(ServiceGone, match="resume the run"), record.run(run="r1") as session:
            timer.start()
            session.wait_for(key="never", timeout_s=600)
        timer.join()
        assert time.monotonic() - began < NOTICED_S


def test_service_sleeps(house, nursery, tmp_path, monkeypatch):
    """A stopped service counts as gone, and serves again when it wakes."""
    house.end()
    monkeypatch.setattr(wire, "BEAT_S", 0.05)
    monkeypatch.setattr(wire, "QUIET_S_MAX", 0.5)
    file, write = tmp_path / "sent", small.write
    answers: list[Any] = []
    with nursery.service() as service:

        def sleeps(file: Path, line: str) -> None:
            write(file, line)
            os.kill(service.pid, signal.SIGSTOP)

        with monkeypatch.context() as patch, house.connect() as record:
            patch.setattr(small, "write", sleeps)
            ended = small.attempt(record, "r1", file, answers)
        assert ended[:2] == ["gone", "ServiceGone"]
        os.kill(service.pid, signal.SIGCONT)
        answers = went_on(house, "r1", file, answers, ended)
    check_small(house, "r1", file, answers)
