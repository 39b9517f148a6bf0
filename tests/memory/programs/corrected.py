"""Remember corrections one by one; may stop around an append, by number."""

from tests.aggregates.programs.trading import numbered
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> str:
    """Return the instructions at the end."""
    settings = inside.job.settings
    space = f"agent/{settings['agent']}"
    with numbered(inside) as record:
        place = {"run": inside.job.run, "agent": settings["agent"], "role": "assistant"}
        with record.run("minutes", **place) as session:
            for number in range(settings["corrections"]):
                session.memory.remember(f"correction {number}", space=space)
            session.memory.edit("AGENTS.md", "correction 0", "correction zero", space=space)
            return session.memory.view("AGENTS.md", space=space)


if __name__ == "__main__":
    run_program(main)
