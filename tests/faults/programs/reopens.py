"""An agent fails a task, reopens it and does it; it is stopped where its job says."""

from typing import Any

import hansard
from tests.faults._held import EndlessLog
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> list[Any]:
    """Return whether the task was reopened, and the number of the claim that completed it."""
    with hansard.connect(workspace=inside.job.workspace) as record:
        record.workspace.log = EndlessLog(record.workspace.log, inside)
        with record.run("w", run=inside.job.run, agent="w0", role="worker") as session:
            session.team.add("one")
            first = session.team.claim(lease_s=600)
            assert first is not None
            session.team.fail(first, "not possible")
            reopened = session.team.reopen("t1", "it is")
            task = session.team.claim(lease_s=600)
            assert task is not None
            session.team.complete(task)
            return [reopened, task.number]


if __name__ == "__main__":
    run_program(main)
