"""Fourteen steps of every kind, so that a kill at a random moment finds each of them open."""

from collections.abc import Iterator
from typing import Any

from tenacity import wait_none

import hansard
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> dict[str, Any]:
    """Do the agent's work; the result does not depend on the number of kills."""
    world = inside.world

    def was_filed(word: str) -> Any:
        if world.read(tool="file", word=word):
            return hansard.Happened(f"filed {word}")
        return hansard.DID_NOT_HAPPEN

    with (
        inside.connect() as record,
        record.run("mixed", run=inside.job.run, agent="worker", role="worker") as session,
    ):
        look = session.tool(effects="pure", name="look")(lambda word: f"saw {word}")

        @session.tool(effects="idempotent", key_argument="key")
        def put(word: str, key: str = "") -> str:
            world.effect("put", word, key)
            return f"put {word}"

        @session.tool(effects=hansard.reconcile(was_filed))
        def file(word: str) -> str:
            world.effect("file", word)
            return f"filed {word}"

        @session.tool
        def send(word: str) -> str:
            world.effect("send", word)
            return f"sent {word}"

        @session.tool(effects="composite")
        def campaign(word: str) -> list[str]:
            return [send(f"{word} {number}") for number in (1, 2)]

        @session.tool(attempts=20, wait=wait_none())
        def moody(word: str) -> str:
            if not world.read("moods", word=word):
                world.note("moods", word=word)
                raise hansard.errors.NotDone(word)
            world.effect("send", word)
            return f"sent {word} at last"

        @session.tool(effects="pure")
        def count(limit: int) -> Iterator[int]:
            yield from range(limit)

        seen = look("desk")
        stored = put("note")
        session.checkpoint("stored", note=stored)
        filed = file("form")
        sent = send("letter")
        session.decide("Whom to write to?", selected="all", alternatives=["all", "nobody"])
        many = campaign("leaflet")
        late = moody("parcel")
        numbers = list(count(4))
        both = session.gather(lambda: send("left"), lambda: put("right"))
        session.message("user", sent, tokens=3)
        session.resource("file:///desk")
        last = send(f"summary of {len(many)}")
        checkpoint = session.checkpoint_data("stored")
    return {
        "seen": [seen, stored, filed, sent, many, late, numbers, both, last],
        "checkpoint": checkpoint,
    }


if __name__ == "__main__":
    run_program(main)
