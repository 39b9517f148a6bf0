"""Runs of six shapes, each faulty or honest: they differ in the fault alone."""

import random
import signal
import subprocess
import threading
from pathlib import Path

import msgspec
from tenacity import wait_none

import hansard
from hansard.domain.experiment import ExperimentRegistered, Metric, PlannedArm
from tests.audit.support import Audited
from tests.cli.support import environment
from tests.faults._warm import python
from tests.real.support import write

HERE = Path(__file__).parent
SEED = 20_261_121
CALLS = 4
TASKS = 5


def plant(place: Audited, folder: Path, *, honest: bool) -> dict[str, str]:
    """Make the six runs; return each one's subject, by run."""
    seeded = random.Random(SEED)
    with hansard.connect(place.workspace, data_dir=place.home) as record:
        made = {
            "intent": _intent(place, record, honest=honest),
            "storm": _storm(record, honest=honest),
            "flip": _flip(record, seeded, honest=honest),
            "cost": _cost(record, seeded, honest=honest),
            "late": _late(record, honest=honest),
            "spread": _spread(place, record, folder, seeded, honest=honest),
        }
    return {run: about for about, run in made.items()}


def _intent(place: Audited, record: hansard.Record, *, honest: bool) -> str:
    if not honest:
        kill(place, "mail-1")
        return "mail-1"
    with record.run("mailing", run="mail-1", agent="sender", role="sender") as session:

        @session.tool
        def send(to: str) -> str:
            return to

        send("x@example.org")
    return "mail-1"


def _late(record: hansard.Record, *, honest: bool) -> str:
    """Make a call that continues in a thread after its session's block."""
    began, go = threading.Event(), threading.Event()
    with record.run("posting", run="post-1", agent="poster", role="poster") as session:

        @session.tool
        def post(to: str) -> str:
            began.set()
            assert go.wait(30)
            return to

        thread = session.thread(post, "x@example.org")
        assert began.wait(30)
        if honest:
            go.set()
            thread.result()
    go.set()
    thread.wait()
    return "post-1"


def kill(place: Audited, run: str) -> None:
    """Begin a run, and kill its process in the middle of a call."""
    program = [python(), str(HERE / "killed.py"), str(place.home), place.workspace, run]
    with subprocess.Popen(
        program, env=environment(place.home), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def _storm(record: hansard.Record, *, honest: bool) -> str:
    fails = iter(range(0 if honest else 5))
    with record.run("fetching", run="fetch-1", agent="reader", role="reader") as session:

        @session.tool(effects="idempotent", attempts=6, wait=wait_none())
        def fetch(url: str) -> str:
            if next(fails, None) is not None:
                raise ConnectionRefusedError("503 Service Unavailable")
            return url

        fetch("https://example.org/a")
    return "fetch-1"


def _flip(record: hansard.Record, seeded: random.Random, *, honest: bool) -> str:
    threshold = round(seeded.uniform(0.5, 0.8), 2)
    with record.run("choosing", run="choice-1", agent="chooser", role="chooser") as session:
        session.decide(
            "Publish?",
            selected="yes",
            alternatives=[
                {"id": "yes", "score": threshold + (0.1 if honest else 0.004)},
                {"id": "no", "score": threshold - 0.2, "rejected_because": "it is too low"},
            ],
            threshold=threshold,
        )
    return "choice-1"


def _cost(record: hansard.Record, seeded: random.Random, *, honest: bool) -> str:
    costs = [round(seeded.uniform(0.001, 0.02), 6) for _ in range(CALLS)]
    with record.run("asking", run="ask-1", agent="asker", role="asker") as session:

        @session.tool(effects="pure", kind="model")
        def ask(number: int) -> int:
            session.usage(input_tokens=100.0 * number, output_tokens=10, cost=costs[number])
            return number

        for number in range(CALLS):
            ask(number)
    claimed = sum(costs if honest else costs[1:])
    record.experiments.score("ask-1", {"total_cost": claimed}, by="biller")
    return "ask-1"


def _spread(
    place: Audited, record: hansard.Record, folder: Path, seeded: random.Random, *, honest: bool
) -> str:
    """Make one trial per task, as planned, from an import whose source states the times."""
    plan = ExperimentRegistered(
        arms=(PlannedArm("short"), PlannedArm("long")),
        metrics=(Metric("reward"),),
        planned=TASKS,
        trials=1,
    )
    assert record.experiments.register("once", plan)
    minutes = sorted(seeded.uniform(0, 60) for _ in range(TASKS))
    days = [0, 0, 0, 0, 0] if honest else [0, 0, 3, 0, 0]
    file = folder / f"{place.workspace}.jsonl"
    write(
        file,
        (
            {
                "run": task,
                "task": task,
                "trial": 0,
                "messages": [
                    {
                        "role": "user",
                        "content": f"do {task}",
                        "timestamp": f"2026-03-{2 + days[task]:02}T10:{int(at):02}:00Z",
                    }
                ],
                "outcome": {"reward": 1.0},
            }
            for task, at in enumerate(minutes)
        ),
    )
    done = place.call(
        *("import", "chat-jsonl", str(file), "--experiment", "once", "--arm", "short", "--json")
    )
    assert done.code == 0, done.err
    return str(place.value("SELECT run FROM runs WHERE experiment = 'once' AND task = '2'"))


class Planted(msgspec.Struct, frozen=True):
    """A workspace with the six shapes, and the subject of each run."""

    place: Audited
    about: dict[str, str]
