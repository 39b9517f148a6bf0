"""PydanticAI 2.68: an agent's calls are steps, recorded, killed, resumed and replayed."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from tests.frameworks.killing import is_killed, lines, program, rows
from tests.integrations.packages import forked_with
from tests.late import LATE

if LATE:
    from pydantic_ai import Agent, ModelRetry
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import DeltaToolCall, FunctionModel
    from pydantic_ai.toolsets import FunctionToolset

    from hansard.ext.frameworks.pydantic_ai import HansardDurability

pytestmark = pytest.mark.later


SERVER = """
from pathlib import Path
from mcp.server import MCPServer

server = MCPServer("counter")

@server.tool()
def count(by: int) -> int:
    with Path("counted").open("a") as file:
        file.write(f"{by}\\n")
    return by + 1

server.run("stdio")
"""


@pytest.fixture(scope="module", autouse=True)
def _packages() -> Iterator[None]:
    """Fork the programs from a process that has imported the package."""
    with forked_with("pydantic_ai.models.function", "hansard.ext.frameworks.pydantic_ai"):
        yield


def returned(messages) -> list:
    """Return what the tools returned so far."""
    return [p.content for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]


class World:
    """Counts of what really ran."""

    def __init__(self, *calls: ToolCallPart, rounds: int = 1) -> None:
        self.ran: Counter[str] = Counter()
        self.calls = calls
        self.rounds = rounds

    def answer(self, messages, info) -> ModelResponse:
        """Call the tools in the first rounds, then repeat what they returned."""
        self.ran["model"] += 1
        if sum(isinstance(m, ModelResponse) for m in messages) < self.rounds:
            return ModelResponse(parts=list(self.calls))
        return ModelResponse(parts=[TextPart(str(returned(messages)))])

    async def stream(self, messages, info):
        """Stream the same answer."""
        for index, part in enumerate(self.answer(messages, info).parts):
            if isinstance(part, TextPart):
                for word in part.content.split():
                    yield f"{word} "
            elif isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(name=part.tool_name, json_args=part.args_as_json_str())}

    @property
    def model(self) -> FunctionModel:
        """The model that answers by hand."""
        return FunctionModel(self.answer, stream_function=self.stream)


async def played(data_dir, workspace, agent, modes=(None, "strict"), **options):
    """Run an agent once for each mode, in one run; return its outputs."""
    outputs = []
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for mode in modes:
            async with record.run("w", run="r", mode=mode):
                outputs.append((await agent.run("Go.", **options)).output)
    return outputs


@pytest.mark.slow
async def test_a_mail_whose_outcome_is_unknown_is_not_sent_again(
    data_dir: Path, workspace: str, tmp_path: Path
):
    """Killed inside parallel calls: both are in doubt, and the settled results are used."""
    run = program("pydantic_agent.py", data_dir, workspace, tmp_path)
    assert is_killed(await asyncio.to_thread(run, "run", "tool", "async"))
    [sent] = lines(tmp_path, "mails")
    stopped = await asyncio.to_thread(run, "run", "", "async")
    assert "InDoubt" in stopped.stderr
    assert lines(tmp_path, "mails") == [sent]
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for step in (2, 3):
            await record.settle("r", f"agent#{step}", "happened", result="settled")
    resumed = await asyncio.to_thread(run, "run", "", "async")
    assert resumed.stdout == '["settled", "settled"]', resumed.stderr
    assert lines(tmp_path, "mails") == [sent]


async def test_kinds_effects_and_tokens_are_on_record(data_dir: Path, workspace: str):
    """Effects come from the tool's metadata, then from the capability, then they are `once`."""
    world = World(*(ToolCallPart(name, {"n": 1}) for name in ("pay", "look", "read")))
    tools = FunctionToolset(id="t")

    @tools.tool_plain
    def pay(n: int) -> int:
        return n

    @tools.tool_plain
    async def look(n: int) -> list[int]:
        return [n]

    @tools.tool_plain(metadata={"hansard": {"effects": "idempotent"}})
    def read(n: int) -> dict[str, int]:
        return {"pydantic_ai": n}

    durable = HansardDurability(pure=["look", "read"])
    agent = Agent(world.model, name="a", toolsets=[tools], capabilities=[durable])
    [first, second] = await played(data_dir, workspace, agent)
    assert first == second == "[1, [1], {'pydantic_ai': 1}]"
    assert world.ran["model"] == 2
    steps = "SELECT tool, kind, effects, result FROM steps WHERE kind = 'tool' ORDER BY step"
    assert [row[:3] for row in await rows(data_dir, workspace, steps)] == [
        ("pay", "tool", "once"),
        ("look", "tool", "pure"),
        ("read", "tool", "idempotent"),
    ]
    figures = "SELECT tool, arguments->>'model' LIKE 'function:%', input_tokens > 0 FROM steps "
    assert (
        await rows(data_dir, workspace, figures + "WHERE kind = 'model'")
        == [("function.request", True, True)] * 2
    )


async def test_a_streamed_answer_reaches_the_handler_once(data_dir: Path, workspace: str):
    """The handler gets the model's events while it streams, and none in a replay."""
    world = World(ToolCallPart("pay", {"n": 1}), ToolCallPart("pay", {"n": 2}))
    events: list[str] = []

    async def handle(ctx, stream):
        events.extend([type(event).__name__ async for event in stream])

    async def pay(n: int) -> int:
        world.ran["pay"] += 1
        await asyncio.sleep(0.01 * (3 - n))  # the first call ends last
        return n

    durable = HansardDurability(event_stream_handler=handle)
    agent = Agent(world.model, name="a", tools=[pay], capabilities=[durable])
    [first, second] = await played(data_dir, workspace, agent)
    assert first.strip() == second.strip() == "[1, 2]"
    assert world.ran == {"model": 2, "pay": 2}
    assert events.count("FunctionToolResultEvent") == 2
    assert events.count("PartDeltaEvent") >= 1


async def test_a_retry_and_an_error_are_replayed(data_dir: Path, workspace: str):
    """A call to be retried is an answer; another error ends the run, and a replay, equally."""
    world = World(ToolCallPart("flaky", {}), rounds=2)

    def flaky() -> int:
        world.ran["flaky"] += 1
        if world.ran["flaky"] == 1:
            raise ModelRetry("once more")
        raise KeyError("broken")

    agent = Agent(world.model, name="a", tools=[flaky], capabilities=[HansardDurability()])
    for mode in (None, "strict"):
        with pytest.raises(KeyError, match="broken"):
            await played(data_dir, workspace, agent, [mode])
    assert world.ran == {"model": 2, "flaky": 2}


async def test_a_tool_of_an_mcp_server_runs_once(data_dir: Path, workspace: str, tmp_path: Path):
    """A replay starts no server: its tools, instructions and results are on record."""
    (tmp_path / "server.py").write_text(SERVER)
    from pydantic_ai.mcp import MCPToolset  # noqa: PLC0415 -- takes seconds

    started = {"command": sys.executable, "args": ["server.py"], "cwd": str(tmp_path)}
    config = {"mcpServers": {"counter": started}}
    world = World(ToolCallPart("count", {"by": 4}))
    agent = Agent(
        world.model,
        name="a",
        toolsets=[MCPToolset(config, id="counter", init_timeout=60)],
        capabilities=[HansardDurability()],
    )
    [first] = await played(data_dir, workspace, agent, [None])
    (tmp_path / "server.py").unlink()
    [second] = await played(data_dir, workspace, agent, ["strict"])
    assert first == second
    assert lines(tmp_path, "counted") == ["4"]
    assert world.ran == {"model": 2}


async def test_the_clock_and_ids_of_a_run_are_those_on_record(data_dir: Path, workspace: str):
    """A resumed run has its first start, by which its timeout counts, and the same run id."""
    world = World(rounds=0)
    starts: list = []

    async def instructions(ctx) -> str:
        starts.append((ctx.run_id, ctx.conversation_id, ctx.deadline))
        return "Be brief."

    agent = Agent(
        world.model, name="a", instructions=instructions, capabilities=[HansardDurability()]
    )
    await played(data_dir, workspace, agent, [None, None], timeout=60.0)
    assert starts[0] == starts[1]
    assert starts[0][0] == "r:agent:a:1"
    assert world.ran == {"model": 1}


async def test_an_agent_in_a_tool_is_part_of_that_tool_or_has_steps(data_dir: Path, workspace: str):
    """A composite tool's agent has steps of its own; in another tool it is part of the call."""
    world = World(ToolCallPart("ask", {}), ToolCallPart("delegate", {}))
    inner = Agent(World(rounds=0).model, name="inner", capabilities=[HansardDurability()])

    async def ask() -> str:
        return (await inner.run("What?")).output

    async def delegate() -> str:
        return (await inner.run("What?")).output

    durable = HansardDurability(composite=["delegate"])
    agent = Agent(world.model, name="a", tools=[ask, delegate], capabilities=[durable])
    await played(data_dir, workspace, agent)
    parents = "SELECT tool, parent_step FROM steps WHERE parent_step IS NOT NULL"
    [(tool, parent)] = await rows(data_dir, workspace, parents)
    assert tool == "function.request"
    assert await rows(data_dir, workspace, f"SELECT tool FROM steps WHERE step = {parent}") == [
        ("delegate",)
    ]


async def test_a_gate_refuses_a_tool_by_its_name(data_dir: Path, workspace: str):
    """Rules of the gate apply to an agent's tools as to any tool."""
    world = World(ToolCallPart("pay", {"n": 1}))
    agent = Agent(world.model, name="a", tools=[lambda: None], capabilities=[HansardDurability()])

    @agent.tool_plain
    def pay(n: int) -> int:
        world.ran["pay"] += 1
        return n

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        with pytest.raises(hansard.errors.Blocked):
            async with record.run("w", gate=[hansard.deny("pay")]):
                await agent.run("Go.")
    assert world.ran["pay"] == 0


async def test_outside_a_session_the_agent_runs_unrecorded():
    """The capability changes nothing where no session is current."""
    world = World(rounds=0)
    agent = Agent(world.model, name="a", capabilities=[HansardDurability()])
    assert (await agent.run("Go.")).output == "[]"


async def test_an_unknown_option_of_a_tool_is_named(data_dir: Path, workspace: str):
    """A misspelt option in a tool's metadata is an error, and nothing runs."""
    world = World(ToolCallPart("pay", {}))
    tools = FunctionToolset(id="t")

    @tools.tool_plain(metadata={"hansard": {"effect": "pure"}})
    def pay() -> None:
        world.ran["pay"] += 1

    agent = Agent(world.model, name="a", toolsets=[tools], capabilities=[HansardDurability()])
    with pytest.raises(hansard.errors.BadOption, match="effects"):
        await played(data_dir, workspace, agent, [None])
    assert world.ran["pay"] == 0


def test_a_session_without_a_block_records_parallel_tools(data_dir: Path, workspace: str):
    """As in a notebook's cells: the session of the sync client is found without a `with`."""
    world = World(ToolCallPart("pay", {"n": 1}), ToolCallPart("pay", {"n": 2}))

    async def pay(n: int) -> int:
        world.ran["pay"] += 1
        return n

    agent = Agent(world.model, name="a", tools=[pay], capabilities=[HansardDurability()])
    outputs = []
    with hansard.connect(workspace, data_dir=data_dir) as record:
        for mode in (None, "strict"):
            session = record.open("w", run="r", mode=mode)
            outputs.append(agent.run_sync("Go.").output)
            session.close()
    assert outputs == ["[1, 2]"] * 2
    assert world.ran == {"model": 2, "pay": 2}
