"""Program that repeats calls of an earlier run and makes a new one; can stop at one append, by
number.
"""

import hansard
from tests.aggregates.programs.trading import numbered
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> list[str]:
    """Return the answers."""
    job = inside.job
    with numbered(inside) as record, record.run(job.settings["workflow"], run=job.run) as session:

        @session.tool(effects="idempotent", reuse=hansard.reuse(ttl_s=3_600))
        def ask(text: str) -> str:
            inside.world.note("ran", text=text)
            return text.upper()

        return [ask(text) for text in job.settings["texts"]]


if __name__ == "__main__":
    run_program(main)
