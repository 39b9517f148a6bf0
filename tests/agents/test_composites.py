"""Composite tools: entered again, their children answered; no calls inside other tools."""

import pytest

import hansard
from tests.agents.twins import Lab, TwinRecord


async def test_a_composite_is_entered_and_its_children_are_answered(lab: Lab):
    """A cut-off composite runs its body again with replayed children; a finished one does not."""
    ran: list[str] = []
    async with lab.connect() as record:
        for attempt in (1, 2, 3):
            try:
                async with record.run(run="r") as session:

                    @session.tool(effects="once")
                    async def leaf(x: int) -> int:
                        ran.append(f"leaf {x}")
                        return x * 10

                    @session.tool(effects="composite")
                    async def middle(x: int) -> int:
                        ran.append(f"middle {x}")
                        return await leaf(x) + 1

                    @session.tool(effects="composite")
                    async def top(attempt: None = None) -> list[int]:
                        ran.append("top")
                        results = [await middle(1), await leaf(1), await leaf(1)]
                        if ran.count("top") == 1:
                            raise KeyboardInterrupt
                        return [*results, await middle(2)]

                    assert await top() == [11, 10, 10, 21]
            except KeyboardInterrupt:
                assert attempt == 1
        steps = await record.steps("r")
    once = ["top", "middle 1", "leaf 1", "leaf 1", "leaf 1"]
    assert ran == [*once, "top", "middle 2", "leaf 2"]
    by_number = {step.number: step for step in steps}
    parents = [step.parent and by_number[step.parent].tool for step in steps]
    assert [step.tool for step in steps] == [
        "top", "middle", "leaf", "leaf", "leaf", "middle", "leaf",
    ]  # fmt: skip
    assert parents == [None, "top", "middle", "top", "top", "top", "middle"]


async def test_a_call_inside_another_tool_is_refused(lab: Lab):
    """A tool that is not composite cannot call tools: refused with the remedy, nothing runs."""
    async with lab.connect() as record, record.run() as session:

        @session.tool(effects="pure")
        async def inner() -> int:
            raise AssertionError

        @session.tool(effects="pure")
        async def outer() -> int:
            return await inner()

        with pytest.raises(hansard.ToolError, match="declare the outer tool with effects='comp"):
            await outer()
        [step] = session.state.steps.values()
        assert (step.tool, step.status) == ("outer", "failed")


async def test_doubt_inside_a_composite_is_not_the_composite_s_own(record: TwinRecord):
    """A child that stops for a person's decision leaves the composite open, not failed."""

    async def work(record):
        async with record.run(run="r") as session:

            @session.tool(effects="once")
            async def leaf() -> int:
                raise TimeoutError

            @session.tool(effects="composite")
            async def top() -> int:
                return await leaf()

            return await top()

    for error in (TimeoutError, hansard.InDoubt):
        with pytest.raises(error):
            await work(record)
    await record.settle("r", "2", "happened", result=5)
    assert await work(record) == 5
