"""PydanticAI 2.68: what its other durable operations do is the same in a resumed and a strict run.

The package ships no tests of durable execution, in its wheel or its source distribution; these are
the operations of its interface, each with the package's own test model.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.late import LATE

if LATE:
    from pydantic_ai import (
        Agent,
        ApprovalRequired,
        DeferredToolRequests,
        DeferredToolResults,
        FunctionToolset,
        RunContext,
    )
    from pydantic_ai.capabilities import AbstractCapability, LocalWorkspace, durable_operation
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.toolsets import DynamicToolset

    from hansard.ext.frameworks.pydantic_ai import HansardDurability

pytestmark = pytest.mark.later


class Bench:
    """One agent's parts, and counts of what really ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran: Counter[str] = Counter()

    def agent(self, *capabilities: Any, text: str | None = None, **options: Any) -> Agent[Any, Any]:
        """Return a recorded agent with the package's test model, which calls each tool once."""
        durable = HansardDurability(models=options.pop("models", None))
        model = TestModel(custom_output_text=text)
        return Agent(model, name="a", capabilities=[*capabilities, durable], **options)

    async def capability(self) -> Any:
        """An operation of a capability is a step."""
        seen = []

        class Fetches(AbstractCapability[Any]):
            id = "fetches"

            @durable_operation("fetch")
            async def fetch(this, ctx: RunContext[Any], n: int) -> int:  # noqa: N805 -- `self` is the bench here
                self.ran["fetch"] += 1
                return n + 1

            async def before_run(this, ctx: RunContext[Any]) -> None:  # noqa: N805 -- `self` is the bench here
                seen.append(await this.fetch(ctx, 3))

        return (await self.agent(Fetches()).run("Go.")).output, seen

    async def dynamic(self) -> Any:
        """Discovery of a dynamic toolset, and its tools' calls, are steps."""

        def tools(ctx: RunContext[Any]) -> FunctionToolset[Any]:
            self.ran["resolved"] += 1
            return FunctionToolset(tools=[double])

        def double(x: int) -> int:
            self.ran["double"] += 1
            return 2 * x

        return (await self.agent(toolsets=[DynamicToolset(tools, id="d")]).run("Go.")).output

    async def workspace(self) -> Any:
        """A workspace's calls are steps outside of tools; in a tool they are part of its call."""
        agent = self.agent(LocalWorkspace(self.folder))

        @agent.tool
        async def probe(ctx: RunContext[Any]) -> str:
            self.ran["probe"] += 1
            await ctx.workspace.write_text("note.txt", "hello")
            return await ctx.workspace.read_text("note.txt")

        result = await agent.run("Go.")
        text = await result.workspace.read_text("note.txt")
        (self.folder / "note.txt").unlink(missing_ok=True)
        return result.output, text

    async def approval(self) -> Any:
        """A call that needs an approval is a result; the approved call is the next step."""
        agent = self.agent(output_type=[str, DeferredToolRequests])

        @agent.tool
        def pay(ctx: RunContext[Any], n: int) -> int:
            if not ctx.tool_call_approved:
                raise ApprovalRequired
            self.ran["pay"] += 1
            return n

        first = await agent.run("Go.")
        granted: dict[str, Any] = {call.tool_call_id: True for call in first.output.approvals}
        second = await agent.run(
            message_history=first.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals=granted),
        )
        return len(granted), second.output

    async def models(self) -> Any:
        """Another model of a run answers under its own name."""

        def answer(messages: Any, info: Any) -> ModelResponse:
            self.ran["other"] += 1
            return ModelResponse(parts=[TextPart("other")])

        other = FunctionModel(answer)
        agent = self.agent(models={"other": other}, text="first")
        runs = [await agent.run("Go."), await agent.run("Go.", model=other)]
        return [each.output for each in runs]

    async def stream(self) -> Any:
        """A streamed run has the same text; events of its model come in one piece."""
        async with self.agent(text="a b c").run_stream("Go.") as result:
            return [each async for each in result.stream_text()]

    async def history(self) -> Any:
        """A run continues with the messages of another; the times in them count for nothing."""
        agent = self.agent(text="yes")
        first = await agent.run("Go.")
        return len((await agent.run("Again.", message_history=first.all_messages())).all_messages())

    async def concurrent(self) -> Any:
        """Runs at the same time, in a bare gather, get their own answers."""
        agent = self.agent(text="yes")
        runs = await asyncio.gather(*(agent.run(f"Go {number}.") for number in range(5)))
        return [getattr(each.all_messages()[0].parts[0], "content", "") for each in runs]


OPERATIONS = [name for name in vars(Bench) if not name.startswith("_") and name != "agent"]


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_operation_is_the_same_when_it_is_replayed(
    data_dir: Path, workspace: str, tmp_path: Path, operation: str
):
    """Nothing runs in a resumed run that is complete, nor in a strict replay."""
    bench = Bench(tmp_path)
    results, counts = [], []
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for mode in (None, None, "strict"):
            async with record.run("w", run="r", mode=mode):
                results.append(await getattr(bench, operation)())
            counts.append(dict(bench.ran))
    assert results == results[:1] * 3
    assert counts == counts[:1] * 3


async def test_tools_of_a_single_run_are_refused(data_dir: Path, workspace: str):
    """Tools that are given to `run` would bypass the record: PydanticAI refuses them."""
    agent = Bench(Path()).agent()
    late = FunctionToolset(tools=[lambda: 1], id="late")
    with pytest.raises(UserError, match="'late' cannot be added at runtime with Hansard"):
        async with hansard.connect_async(workspace, data_dir=data_dir) as record, record.run("w"):
            await agent.run("Go.", toolsets=[late])
