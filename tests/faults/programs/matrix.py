"""Three steps: look, act (under one of the effects policies), look at the result."""

from typing import Any

import hansard
from tests.faults._inside import Inside, Point, run_program


def main(inside: Inside) -> list[Any]:
    """Do the agent's work; return its three results."""
    settings = inside.job.settings
    policy = settings["policy"]
    world, stops = inside.world, inside.stops

    def body(word: str, key: str | None) -> dict[str, str]:
        if policy == "pure":
            stops.here(Point.AFTER_INTENT, "act")
        stops.hold(Point.AFTER_INTENT, "act")
        world.effect("act", word, key)
        stops.here(Point.AFTER_EFFECT, "act")
        return {"did": word}

    def ask(word: str) -> Any:
        world.note("questions", word=word)
        if world.read(tool="act", word=word):
            return hansard.Happened({"did": word})
        return hansard.DID_NOT_HAPPEN

    def act_with_key(word: str, key: str | None = None) -> dict[str, str]:
        return body(word, key)

    def act(word: str) -> dict[str, str]:
        return body(word, None)

    with (
        inside.connect() as record,
        record.run("kill-matrix", run=inside.job.run, agent="worker", role="worker") as session,
    ):

        @session.tool(effects="pure")
        def look(word: str) -> str:
            world.note("bodies", tool="look", word=word)
            return word.upper()

        @session.tool
        def part(word: str) -> str:
            world.effect("part", word)
            return word

        def act_in_parts(word: str) -> dict[str, str]:
            stops.hold(Point.AFTER_INTENT, "act")
            parts = part(f"{word} 1") + ", " + part(f"{word} 2")
            stops.here(Point.AFTER_EFFECT, "act")
            return {"did": parts}

        tool: Any
        match policy:
            case "idempotent":
                tool = session.tool(effects=policy, name="act", key_argument="key")(act_with_key)
            case "reconcile":
                tool = session.tool(effects=hansard.reconcile(ask))(act)
            case "composite":
                tool = session.tool(effects=policy, name="act")(act_in_parts)
            case _:
                tool = session.tool(effects=policy, timeout_s=settings.get("timeout_s"))(act)
        if inside.job.point and settings.get("here", True):
            inside.until_here(session)
        before = look("letter")
        done = tool(before)
        return [before, done, look(str(done["did"]))]


if __name__ == "__main__":
    run_program(main)
