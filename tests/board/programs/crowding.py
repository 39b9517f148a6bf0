"""Several agents of one process write the same keys at once, each in a thread of its own."""

from concurrent.futures import ThreadPoolExecutor

import hansard
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> dict[str, list[int]]:
    """Return the counter's answers to each agent, those in earlier processes included."""
    settings = inside.job.settings
    names = [f"{settings['agent']}-{number}" for number in range(settings["agents"])]
    with hansard.connect(workspace=inside.job.workspace) as record:

        def work(name: str) -> list[int]:
            totals: list[int] = []
            with record.run("team", run=inside.job.run, agent=name, role="clerk") as session:
                inside.world.note("began", agent=name)
                for number in range(settings["count"]):
                    totals.append(session.board.add("hits"))
                    session.board.append("log", [name, number, totals[-1]])
                    inside.world.note("done", agent=name, number=number, told=totals[-1])
            return totals

        with ThreadPoolExecutor(len(names)) as pool:
            return dict(zip(names, pool.map(work, names), strict=True))


if __name__ == "__main__":
    run_program(main)
