"""An agent that is recorded in production and replayed on a laptop.

argv: a file to which each effect adds a line, the number of items, and the item at which to die:
after its first call, or inside of it for a negative number; 0: at none.
Prints its result.
"""

import json
import os
import sys
from pathlib import Path

import hansard

effects, count, dies_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


def happened(what: str) -> None:
    """Something was done to the world."""
    with effects.open("a") as file:
        file.write(what + "\n")


def secret(name: str) -> str:
    """Production's provider of secrets; the laptop has none."""
    return os.environ["THE_SECRET"]


provider = secret if "THE_SECRET" in os.environ else None

with (
    hansard.connect(secrets=provider) as record,
    record.run("pipeline", agent="worker", role="worker") as session,
):

    @session.tool(effects="idempotent")
    def fetch(n: int, key: object) -> dict[str, object]:
        """Large enough for a blob."""
        happened(f"fetch {n}")
        if n == -dies_at:
            os._exit(9)
        return {"n": n, "text": "x" * 70_000, "ids": (n, n + 1)}

    @session.tool(effects="pure")
    def count_words(text: str) -> int:
        """Called inside another."""
        happened("count")
        return len(text)

    @session.tool(effects="composite")
    def analyze(page: dict[str, object]) -> int:
        """A call with calls in it."""
        return int(count_words(str(page["text"]))) + int(count_words(str(page["n"])))

    @session.tool(effects="idempotent")
    def publish(totals: list[int]) -> str:
        """The last effect."""
        happened("publish")
        return f"published {sum(totals)}"

    totals = []
    for n in range(1, count + 1):
        page = fetch(n, hansard.Secret("api"))
        if n == dies_at:
            os._exit(9)
        totals.append(analyze(page))
        session.checkpoint("analyzed", n=n)
    branches = session.gather(*(lambda n=n: count_words("y" * n) for n in range(3)))
    sys.stdout.write(json.dumps([totals, branches, publish(totals)]) + "\n")
