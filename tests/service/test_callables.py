"""Tools of every kind of callable, of a restricted agent: the service sees no difference."""

import asyncio
from typing import Any

import pytest

import hansard
from tests.agents.test_callables import CALLABLES, OPTIONS, come
from tests.agents.twins import at_once
from tests.service.support import Lab


@pytest.mark.fast(cases=1, slow=1)
@pytest.mark.parametrize("options", OPTIONS[1:], ids="-".join)
def test_every_callable_is_a_tool(lab: Lab, options: dict[str, Any]) -> None:
    """Whatever is called, with whatever option, runs once, and its result is on record."""

    async def play() -> None:
        async with lab.connect() as record, record.run(run="r") as session:
            for name, function in CALLABLES.items():
                tool = session.raw.tool(name=name, **options)(function)
                assert await come(tool(4)) == 8, name

    asyncio.run(play()) if lab.is_async else at_once(play())
    completed = [
        event
        for stored in lab.commits("r")
        for event in stored.commit.events
        if event.type == "step.completed.v1"
    ]
    assert len(completed) == len(CALLABLES)


@pytest.mark.fast(cases=1, slow=0)
def test_a_plain_body_calls_tools_as_a_plain_function_does(lab: Lab) -> None:
    """In a composite tool that is no coroutine, another tool gives its result."""

    async def play() -> None:
        async with lab.connect() as record, record.run(run="r") as session:
            part = session.raw.tool(effects="pure", name="part")(lambda x: x + 1)

            @session.raw.tool(effects="composite")
            def whole(x: int) -> int:
                return part(x) + part(x + 1)

            assert await come(whole(1)) == 5
            with pytest.raises(hansard.ToolError, match="give name="):
                session.raw.tool(CALLABLES["partial"])

    asyncio.run(play()) if lab.is_async else at_once(play())
