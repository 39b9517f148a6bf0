"""Programs that give their session more: budgets, a policy for doubt, a place in an experiment."""

from typing import Any

import hansard
from tests.agents.twins import TwinSession
from tests.service.scenarios import Odd, caught, give


async def budgets(session: TwinSession, answers: list[Any]) -> None:
    """Use up a budget until it refuses; usage of a failed call counts."""

    @session.tool(effects="once")
    async def send(to: str) -> str:
        session.usage(cost=2.5)
        return f"sent to {to}"

    @session.tool(effects="once", safe_errors=(Odd,))
    async def paid(x: int) -> int:
        session.usage(cost=x)
        raise Odd(x)

    @session.tool(effects="pure")
    async def count(n: int) -> Any:
        for i in range(n):
            session.usage(items=1)
            yield i

    for to in ("ada", "boss", "bob", "cyd", "dan", "eve"):
        answers.append(await caught(lambda to=to: give(lambda _: send(to), answers)))
    answers.append(await caught(lambda: paid(3)))

    async def take() -> None:
        async for item in count(3):
            answers.append(item)

    for _ in range(3):
        answers.append(await caught(take))


async def settled(session: TwinSession, answers: list[Any]) -> None:
    """Doubt that the program's own policy settles, or leaves to a person."""
    for kind in ("happened", "did_not_happen", "odd", "unsure", "unrecordable"):

        @session.tool(effects="once", name=f"send_{kind}")
        async def send(x: Any) -> object:
            raise TimeoutError("no answer")

        answers.append(await caught(lambda send=send: send((1, "x"))))
        answers.append(await caught(lambda send=send: give(lambda _: send((1, "x")), answers)))


def by_rule(step: Any) -> Any:
    """Settle a doubt by the step's own tool and arguments."""
    match step.tool:
        case "send_happened":
            return hansard.Happened((step.number, bytes(step.arguments).decode()))
        case "send_did_not_happen":
            return hansard.DID_NOT_HAPPEN
        case "send_odd":
            raise Odd(step.tool)
        case "send_unrecordable":
            return hansard.Happened(object())
        case _:
            return None


async def by_waiting(step: Any) -> Any:
    """Settle a doubt the same way, as a coroutine function."""
    return by_rule(step)


async def placed(session: TwinSession, answers: list[Any]) -> None:
    """Begin a run of an experiment, which returns the agent's arm."""
    arm = session.arm
    answers.append((arm.name, arm.prompt, arm.model, arm.parameters))
    await session.message("user", f"as {arm.name}")


WITH_OPTIONS = {function.__name__: function for function in (budgets, settled, placed)}
