"""Microsoft Agent Framework 1.23: its middleware makes model and tool calls steps."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel

import hansard
from tests.frameworks.killing import rows
from tests.late import LATE

if LATE:
    from agent_framework import (
        Agent,
        BaseChatClient,
        ChatMiddlewareLayer,
        ChatResponse,
        ChatResponseUpdate,
        Content,
        FunctionInvocationLayer,
        Message,
        MiddlewareFailure,
        ResponseStream,
        UsageDetails,
    )

    from hansard.ext.frameworks.agent_framework import recorded

    USAGE = UsageDetails(input_token_count=5, output_token_count=2, reasoning_output_token_count=1)

    class Answers(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
        """A client that answers by hand: calls in the first round, then what they returned."""

        def __init__(self, *calls: Content) -> None:
            super().__init__()
            self.calls = calls
            self.count = 0

        def _inner_get_response(self, *, messages, stream, options, **more):
            results = [
                c.result for m in messages for c in m.contents if c.type == "function_result"
            ]
            waits = self.calls and not results
            contents = list(self.calls) if waits else [Content.from_text(str(results))]

            async def updates():
                self.count += 1
                for content in (*contents, Content.from_usage(USAGE)):
                    yield ChatResponseUpdate(contents=[content], role="assistant", message_id="m")

            async def response():
                self.count += 1
                return ChatResponse(
                    messages=[Message("assistant", contents)],
                    usage_details=USAGE,
                    additional_properties={"note": 1},
                )

            if stream:
                return ResponseStream(updates(), finalizer=ChatResponse.from_updates)
            return response()


pytestmark = pytest.mark.later


def without_ids(value):
    """Return a value without the ids that the framework draws for each call."""
    if isinstance(value, list):
        return [without_ids(each) for each in value]
    if isinstance(value, dict):
        return {name: without_ids(each) for name, each in value.items() if name != "id"}
    return value


def calling(*names: str) -> Answers:
    """Return a client that calls tools without arguments, in parallel."""
    return Answers(
        *(Content.from_function_call(call_id=name, name=name, arguments={}) for name in names)
    )


async def played(data_dir, workspace, agent, *modes, stream=False, **options):
    """Run an agent once for each mode, in one run; return its responses."""
    responses = []
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for mode in modes or (None, "strict"):
            async with record.run("w", run="r", mode=mode):
                if stream:
                    going = agent.run("Go.", stream=True, **options)
                    seen = [without_ids(update.to_dict()) async for update in going]
                    responses.append((seen, (await going.get_final_response()).text))
                else:
                    responses.append(await agent.run("Go.", **options))
    return responses


async def test_parallel_tools_kinds_and_tokens_are_on_record(data_dir: Path, workspace: str):
    """Effects are those given, else `once`; a text is recorded as such."""
    ran = []

    def pay() -> str:
        ran.append("pay")
        return "paid"

    async def look() -> list[Content]:
        ran.append("look")
        await asyncio.sleep(0.01)
        return [Content.from_text("a"), Content.from_data(b"\0\1", "image/png")]

    client = calling("look", "pay")
    agent = Agent(client, tools=[pay, look], middleware=recorded(pure=["look"]))
    first, second = await played(data_dir, workspace, agent)
    assert without_ids(first.to_dict()) == without_ids(second.to_dict())
    assert sorted(ran) == ["look", "pay"]
    assert client.count == 2
    steps = "SELECT tool, kind, effects, input_tokens FROM steps ORDER BY kind, tool, step"
    assert await rows(data_dir, workspace, steps) == [
        ("Answers.chat", "model", "idempotent", 5),
        ("Answers.chat", "model", "idempotent", 5),
        ("look", "tool", "pure", None),
        ("pay", "tool", "once", None),
    ]
    paid = "SELECT result::VARCHAR FROM steps WHERE tool = 'pay'"
    assert await rows(data_dir, workspace, paid) == [('"paid"',)]


async def test_a_streamed_answer_is_replayed_update_by_update(data_dir: Path, workspace: str):
    """The updates of a streamed run are the same in a replay, and no client is called."""
    client = calling("pay")
    agent = Agent(client, tools=[pay_nothing], middleware=recorded(pure=["pay"]))
    first, second = await played(data_dir, workspace, agent, stream=True)
    assert first == second
    assert len(first[0]) > 3
    assert client.count == 2
    tokens = (
        "SELECT input_tokens, (usage->>'reasoning_tokens')::INT FROM steps WHERE kind = 'model'"
    )
    assert await rows(data_dir, workspace, tokens) == [(5, 1)] * 2


def pay_nothing() -> str:
    """Pay nothing."""
    return "nothing"


pay_nothing.__name__ = "pay"


async def test_a_tool_that_raises_is_replayed_as_the_same_result(data_dir: Path, workspace: str):
    """The framework makes its error a result; the record has the failure."""
    ran = []

    def pay() -> str:
        ran.append(1)
        raise KeyError("broken")

    agent = Agent(calling("pay"), tools=[pay], middleware=recorded())
    first, second = await played(data_dir, workspace, agent)
    assert without_ids(first.to_dict()) == without_ids(second.to_dict())
    assert ran == [1]
    states = "SELECT tool, status FROM steps WHERE kind = 'tool'"
    assert await rows(data_dir, workspace, states) == [("pay", "failed")]


async def test_structured_output_is_replayed(data_dir: Path, workspace: str):
    """A response format is applied to a recorded response, too."""

    class Answer(BaseModel):
        n: int

    class Structured(Answers):
        async def _inner_get_response(self, *, messages, stream, options, **more):
            self.count += 1
            return ChatResponse(messages=[Message("assistant", ['{"n": 3}'])])

    client = Structured()
    agent = Agent(client, middleware=recorded())
    format_ = {"response_format": Answer}
    first, second = await played(data_dir, workspace, agent, options=format_)
    assert first.value == second.value == Answer(n=3)
    assert client.count == 1


async def test_a_gate_ends_the_run(data_dir: Path, workspace: str):
    """A refusal is no result for the model: it ends the agent's run, and nothing ran."""
    ran = []

    def pay() -> None:
        ran.append(1)

    agent = Agent(calling("pay"), tools=[pay], middleware=recorded())
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        with pytest.raises(MiddlewareFailure, match="pay"):
            async with record.run("w", gate=[hansard.deny("pay")]):
                await agent.run("Go.")
    assert ran == []


async def test_outside_a_session_an_agent_runs_unrecorded():
    """The middleware changes nothing where no session is current."""
    agent = Agent(calling("pay"), tools=[pay_nothing], middleware=recorded())
    assert (await agent.run("Go.")).text == "['nothing']"


async def test_a_client_is_recorded_without_an_agent(data_dir: Path, workspace: str):
    """The middleware of a call works as that of an agent; further properties are kept."""
    client = calling()
    responses = []
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for mode in (None, "strict"):
            async with record.run("w", run="r", mode=mode):
                options: dict = {"middleware": recorded()}
                message = Message("user", ["Go."])
                responses.append(await client.get_response([message], client_kwargs=options))
    assert client.count == 1
    assert [each.additional_properties for each in responses] == [{"note": 1}] * 2
    assert responses[0].to_dict() == responses[1].to_dict()
