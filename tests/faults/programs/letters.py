"""Four steps, with constants at the top for a test to edit between a kill and its resume."""

from typing import Any

import hansard
from tests.faults._inside import Inside, run_program

LIMIT = 2
CHOICE = 0
TITLE = "Report"


def main(inside: Inside) -> list[Any]:
    """Do the agent's work; return its four results."""
    world, policy = inside.world, inside.job.settings["policy"]

    def was_sent(to: str) -> Any:
        if world.read(tool="send", word=to):
            return hansard.Happened(f"letter to {to}")
        return hansard.DID_NOT_HAPPEN

    def send_with_key(to: str, key: str = "") -> str:
        world.effect("send", to, key)
        return f"letter to {to}"

    def send(to: str) -> str:
        world.effect("send", to)
        return f"letter to {to}"

    with (
        inside.connect() as record,
        record.run("letters", run=inside.job.run, agent="writer", role="writer") as session,
    ):

        @session.tool(effects="pure")
        def search(limit: int) -> list[str]:
            world.note("bodies", tool="search")
            return [f"paper {number}" for number in range(limit)]

        @session.tool(effects="pure")
        def choose(papers: list[str], choice: int) -> str:
            world.note("bodies", tool="choose")
            return papers[choice]

        @session.tool
        def publish(title: str) -> str:
            world.effect("publish", title)
            return f"published {title}"

        tool: Any
        match policy:
            case "idempotent":
                declare = session.tool(effects=policy, name="send", key_argument="key")
                tool = declare(send_with_key)
            case "reconcile":
                tool = session.tool(effects=hansard.reconcile(was_sent))(send)
            case _:
                tool = session.tool(effects=policy)(send)
        papers = search(LIMIT)
        best = choose(papers, CHOICE)
        return [papers, best, tool("the board"), publish(TITLE)]


if __name__ == "__main__":
    run_program(main)
