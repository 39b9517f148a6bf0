"""Worker that completes tasks of its role until none is left, and notes each outside."""

import time

import hansard
from tests.faults._held import EndlessLog
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> list[str]:
    """Return the tasks that this agent did, in order."""
    settings = inside.job.settings
    done: list[str] = []
    with hansard.connect(workspace=inside.job.workspace) as record:
        record.workspace.log = EndlessLog(record.workspace.log, inside)
        place = {"run": inside.job.run, "agent": settings["agent"], "role": "worker"}
        with record.run("w", **place) as session:
            while True:
                with session.team.claimed(lease_s=settings["lease_s"], timeout_s=None) as task:
                    if task is None:
                        return done
                    inside.world.note("began", task=task.id, number=task.number)
                    time.sleep(settings["work_s"])
                    task.result = {"square": task.what**2}
                inside.world.note("done", task=task.id, number=task.number)
                done.append(task.id)


if __name__ == "__main__":
    run_program(main)
