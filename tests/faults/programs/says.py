"""A statement about a run from outside; stopped where its job says."""

import hansard
from tests.faults._held import EndlessLog
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> bool:
    """Return whether the statement was new."""
    say, run = inside.job.settings["say"], inside.job.run
    with hansard.connect(workspace=inside.job.workspace) as record:
        record.workspace.log = EndlessLog(record.workspace.log, inside)
        if say == "reopen":
            return record.reopen(run, "t1", by="paula")
        return record.finish(run, by="paula") if say == "finish" else record.cancel(run, by="paula")


if __name__ == "__main__":
    run_program(main)
