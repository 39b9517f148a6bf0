"""Registers an experiment, then does runs of it; may stop for ever around one kind of append."""

from typing import Any

import hansard
from tests.faults._held import EndlessLog
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> list[str]:
    """Do all runs and return each one's arm."""
    arms = []
    with hansard.connect(workspace=inside.job.workspace) as record:
        record.workspace.log = EndlessLog(record.workspace.log, inside)
        record.experiments.register(
            "greeting", hansard.experiments.plan(arms=["plain", "bold"], metrics=["reward"])
        )
        inside.world.note("registered")
        for n in range(inside.job.settings["runs"]):
            place: dict[str, Any] = {"experiment": "greeting", "task": f"t-{n}", "trial": 0}
            with record.run("w", run=f"run-{n}", **place) as session:
                assert session.arm is not None
                inside.world.note("exposed", run=session.run, arm=session.arm.name)
                arms.append(session.arm.name)
    return arms


if __name__ == "__main__":
    run_program(main)
