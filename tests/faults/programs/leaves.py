"""One agent of a run does a call and leaves; it is stopped where its job says."""

import hansard
from tests.faults._held import EndlessLog
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> list[str]:
    """Return the result of its call."""
    settings = inside.job.settings
    with hansard.connect(workspace=inside.job.workspace) as record:
        record.workspace.log = EndlessLog(record.workspace.log, inside)
        place = {"run": inside.job.run, "agent": settings["agent"], "role": "worker"}
        with record.run("w", **place) as session:

            @session.tool
            def send(to: str) -> str:
                inside.world.note("sent", to=to)
                return f"sent to {to}"

            return [send("eve")]


if __name__ == "__main__":
    run_program(main)
