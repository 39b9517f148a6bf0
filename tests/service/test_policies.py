"""A restricted agent's policy for doubt: a function of its program, called by the service."""

from collections.abc import Callable
from typing import Any

import pytest

import hansard
from hansard.domain.steps import Step, Verdict
from tests.service.scenarios import caught
from tests.service.scenarios_given import by_rule, by_waiting
from tests.service.support import House, Lab
from tests.service.test_parity import play

pytestmark = pytest.mark.later


def edited(lab: Lab, policy: Callable[[hansard.UnsettledStep], Any], first: str) -> list[Any]:
    """Return the results of a program whose first call changes each time, before one with an
    effect.
    """
    answers: list[Any] = []

    async def scenario() -> None:
        async with lab.connect(settle=policy) as record, record.run(run="r1") as session:

            @session.tool(effects="pure")
            async def draft(text: str) -> str:
                return text

            @session.tool(effects="once")
            async def send(to: str) -> str:
                return f"{first} to {to}"

            await draft(first)

            async def sent() -> None:
                answers.append(await send("eve"))

            answers.append(await caught(sent))

    play(lab, scenario())
    return answers


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize("answer", [Verdict.REUSE, Verdict.RUN_AGAIN, Verdict.HAPPENED, None])
def test_a_policy_settles_a_divergence(lab: Lab, answer: Verdict | None) -> None:
    """A policy decides a divergence, given the step's place and whether its source changed."""
    steps: list[tuple[object, ...]] = []

    def policy(step: hansard.UnsettledStep) -> Verdict | None:
        steps.append((step.run, step.agent, step.number, step.tool, step.diverged))
        assert step.source_before == step.source_now != ""
        return answer

    assert edited(lab, policy, "one") == ["one to eve", "nothing"]
    answers = edited(lab, policy, "two")
    match answer:
        case Verdict.REUSE:
            assert answers == ["one to eve", "nothing"]
        case Verdict.RUN_AGAIN:
            assert answers == ["two to eve", "nothing"]
        case _:
            assert "Diverged" in answers[0]
    assert steps == [("r1", "ada", 2, "send", True)]


def doubtful(lab: Lab, policy: Callable[[Step], Any]) -> Any:
    """Return the results of a program that is resumed with a step in doubt."""
    answers: list[Any] = []

    async def scenario() -> None:
        async with lab.connect(settle=policy) as record, record.run(run="r2") as session:

            @session.tool(effects="once")
            async def send_happened(x: int) -> object:
                raise TimeoutError

            async def sent() -> None:
                answers.append(await send_happened(3))

            answers.append(await caught(sent))

    play(lab, scenario())
    assert answers == ["builtins.TimeoutError: "]
    answers.clear()
    play(lab, scenario())
    return answers[0]


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("policy", [by_rule, by_waiting])
def test_a_policy_may_wait(lab: Lab, policy: Callable[[Step], Any]) -> None:
    """A policy may be a coroutine function, whose name is recorded with the settlement."""
    assert doubtful(lab, policy) == (1, '{"x":3}')
    with lab.house.trusted() as record:
        assert record.state("r2").agent("ada").steps[1].settled_by == f"policy:{policy.__name__}"


def test_a_role_that_may_not_settle(house: House, client: str) -> None:
    """Without `settle` a policy is not called; the refusal is on record."""
    house.apply(
        '[roles.writer]\n[[roles.writer.sees]]\nname = "own"\nroles = ["writer"]\n'
        '[roles.writer.may]\ntools = ["**"]'
    )
    house.login("ada")
    lab = Lab(house, "restricted", client)

    def policy(step: Step) -> object:
        raise AssertionError(step)

    answer = doubtful(lab, policy)
    assert answer.startswith("hansard.agents.errors.InDoubt")
    assert "settle = true in [roles.writer.may]" in answer
    tags = [event.type for stored in lab.commits("r2") for event in stored.commit.events]
    assert "agent.refused.v1" in tags
    assert "step.settled.v1" not in tags


def test_the_service_ends_while_a_policy_runs(house: House) -> None:
    """Without the policy's answer the step stays in doubt, and the next session calls the
    policy.
    """
    calls: list[int] = []

    def policy(step: Step) -> object:
        calls.append(step.number)
        if len(calls) == 1:
            house.end()
        return hansard.Happened("said")

    def resumed() -> Any:
        with house.connect(settle=policy) as record, record.run("w", run="r1") as session:

            @session.tool(effects="once")
            def send() -> str:
                raise TimeoutError

            return send()

    with pytest.raises(TimeoutError):
        resumed()
    with pytest.raises(hansard.HansardError, match="hansard up"):
        resumed()
    with house.trusted() as record:
        assert record.state("r1").agent("ada").steps[1].is_open
    house.begin()
    assert resumed() == "said"
    assert calls == [1, 1]


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.filterwarnings("ignore::hansard.errors.ToolChanged")
def test_an_edited_tool_repeats_no_effect(lab: Lab) -> None:
    """An added default changes nothing; a renamed tool stops unless it names the old one."""
    sent: list[str] = []
    answers: list[Any] = []

    def sending(session: Any, edit: str) -> Any:
        if edit == "added":

            @session.tool(effects="once")
            async def mail_letter(to: str, text: str = "hi", cc: str | None = None) -> str:
                sent.append(to)
                return f"{text} {to} {cc}"

            return mail_letter
        options = {"aliases": ["mail_letter"]} if edit == "alias" else {}

        @session.tool(effects="once", name="post_letter" if edit else "mail_letter", **options)
        async def first(to: str, text: str = "hi") -> str:
            sent.append(to)
            return f"{text} {to}"

        return first

    async def scenario(edit: str) -> None:
        async with lab.connect() as record, record.run(run="r3") as session:
            send = sending(session, edit)

            async def work() -> None:
                answers.append(await send("eve"))

            answers.append(await caught(work))

    for edit in ("", "added", "renamed", "alias"):
        answers.clear()
        play(lab, scenario(edit))
        if edit == "renamed":
            assert "Diverged" in answers[0]
        else:
            assert answers == ["hi eve", "nothing"]
    assert sent == ["eve"]
