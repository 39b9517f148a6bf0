"""Move amounts between keys, one transaction each; can block around one kind of append.

Keys and amount follow from the agent's name and the number of the transfer alone, so that a process
that resumes after a kill gets the same answers as the first one.
"""

import random

import hansard
from hansard.domain.board import BoardConflict
from tests.faults._held import EndlessLog
from tests.faults._inside import Inside, run_program

ACCOUNTS = ("a", "b", "c")


def transfer(session: hansard.Session, number: int) -> None:
    """Make one transfer, retrying after each conflict."""
    chance = random.Random(f"{session.agent} {number}")
    giver, taker = chance.sample(ACCOUNTS, 2)
    amount = chance.randint(1, 9)
    while True:
        try:
            with session.board.transaction() as tx:
                tx.put(giver, tx.get(giver) - amount)
                tx.put(taker, tx.get(taker) + amount)
                tx.append("ledger", [session.agent, number])
        except BoardConflict:
            continue
        return


def main(inside: Inside) -> int:
    """Return the number of transfers, those of earlier processes included."""
    settings = inside.job.settings
    with hansard.connect(workspace=inside.job.workspace) as record:
        record.workspace.log = EndlessLog(record.workspace.log, inside, "board.put.v1")
        place = {"run": inside.job.run, "agent": settings["agent"], "role": "clerk"}
        with record.run("team", **place) as session:
            inside.world.note("began", agent=settings["agent"])
            for number in range(settings["count"]):
                transfer(session, number)
                inside.world.note("done", agent=settings["agent"], number=number)
    return int(settings["count"])


if __name__ == "__main__":
    run_program(main)
