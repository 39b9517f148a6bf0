"""Texts with half of a surrogate pair, as models and files give them: recorded and replayed."""

import pytest

from tests.agents.twins import Lab, twins

ODD = "caf\u00e9 \ud83d half an emoji, \\ud83d in letters"


@twins
@pytest.mark.parametrize("effects", ["pure", "idempotent", "once"])
async def test_an_answer_with_half_a_pair_is_paid_for_once(lab: Lab, effects):
    """In a text, a key, and an exception; as an argument it is one call with itself alone."""
    asked = []
    async with lab.connect() as record:
        for mode in (None, "resume", "strict"):
            options = {"mode": mode} if mode == "strict" else {}
            async with record.run(run="r", **options) as session:

                @session.tool(effects=effects, kind="model")
                async def ask(question: str) -> object:
                    asked.append(question)
                    if question == "refuse":
                        raise ValueError(ODD)
                    return {"text": ODD, ODD: [ODD]}

                for question in (ODD, "\ud83d", "plain"):
                    assert await ask(question) == {"text": ODD, ODD: [ODD]}
                with pytest.raises(ValueError, match="half an emoji"):
                    await ask("refuse")
                await ask("after")
        steps = await record.steps("r")
    assert asked == [ODD, "\ud83d", "plain", "refuse", "after"]
    assert "caf\u00e9 \\\\ud83d half" in bytes(steps[0].result).decode()


@twins
async def test_what_a_session_states_may_hold_half_a_pair(lab: Lab):
    """Messages, checkpoints and the board return it unchanged; in a decision it is escaped."""
    async with lab.connect() as record:
        for _ in range(2):
            async with record.run(run="r") as session:
                await session.message("assistant", ODD)
                await session.message("user", [{"type": "text", "text": ODD}])
                await session.checkpoint("c", at=ODD)
                await session.decide("which?", selected=ODD, because=ODD)
                assert [each["content"] for each in await session.window()] == [
                    ODD,
                    [{"type": "text", "text": ODD}],
                ]
                assert await session.checkpoint_data("c") == {"at": ODD}
        state = (await record.state("r")).agent("ada")
    [decided] = [each.fact for each in state.facts if each.fact.tag == "decision.made.v1"]
    assert decided.because.startswith("caf\u00e9 \\ud83d half")
