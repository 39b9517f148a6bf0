"""Program that sends a message after a grant; can block at an append."""

import hansard
from tests.faults._held import EndlessLog
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> list[str]:
    """Return the sent messages."""
    settings = inside.job.settings
    rules = [hansard.ask_first("send_*", timeout_s=60)]
    with hansard.connect(workspace=inside.job.workspace, gate=rules) as record:
        log = record.workspace.log = EndlessLog(record.workspace.log, inside)
        record.workspace.states.log = log
        with record.run("post", run=inside.job.run, agent="ada", role="writer") as session:
            named = "key" if settings["effects"] == "idempotent" else None

            @session.tool(effects=settings["effects"], key_argument=named)
            def send_mail(to: str, key: str = "") -> str:
                inside.world.effect("send_mail", to, key)
                return f"sent to {to}"

            return [send_mail("bob")]


if __name__ == "__main__":
    run_program(main)
