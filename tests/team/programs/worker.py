"""Does tasks of its role until none is left; notes in the world what it did."""

import contextlib
import time
from collections.abc import Iterator

import hansard
from tests.experiments.programs.assigner import Holding
from tests.faults._inside import Inside, run_program


@contextlib.contextmanager
def _held(record: hansard.Record, inside: Inside) -> Iterator[None]:
    """Where a test wants to kill at an append of some event, stop for ever around it."""
    if "tag" in inside.job.settings:
        record.workspace.log = Holding(record.workspace.log, inside)
    yield


def main(inside: Inside) -> list[str]:
    """The tasks that this agent did, in order."""
    settings = inside.job.settings
    done: list[str] = []
    with (
        hansard.connect(workspace=inside.job.workspace) as record,
        _held(record, inside),
        record.run("w", run=inside.job.run, agent=settings["agent"], role="worker") as session,
    ):
        while True:
            with session.team.claimed(lease=settings["lease_s"], timeout=None) as task:
                if task is None:
                    return done
                inside.world.note("began", task=task.id, number=task.number)
                time.sleep(settings["work_s"])
                task.result = {"square": task.what**2}
            inside.world.note("done", task=task.id, number=task.number)
            done.append(task.id)


if __name__ == "__main__":
    run_program(main)
