"""Real answers of OpenAI, from a local server: a hand-off and three tools, streamed, replayed."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

import hansard
from tests.late import LATE

if LATE:
    from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from hansard.ext.frameworks.openai_agents import recorded
    from hansard.ext.frameworks.pydantic_ai import HansardDurability

    set_tracing_disabled(disabled=True)


pytestmark = [
    pytest.mark.real,
    pytest.mark.thorough(
        quick="frameworks/test_openai_agents.py::test_a_streamed_answer_is_replayed_event_by_event"
    ),
]


CASSETTES = (
    "llm-cassettes/dev/openllmetry-openai-agents/opentelemetry-instrumentation-openai-agents/"
    "tests/cassettes"
)
WORKFLOW = "test_complete_handoff_with_tools/test_router_analytics_complete_workflow.yaml"
CITY = "test_openai_agents/test_tool_call_and_result_attributes.yaml"
RAN: list[str] = []


class Provider(ThreadingHTTPServer):
    """Gives the recorded answers in their order, once each."""

    def __init__(self, answers: list[bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.left = list(answers)
        self.client = AsyncOpenAI(
            api_key="none", base_url=f"http://127.0.0.1:{self.server_port}", max_retries=0
        )


class Answering(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        """Answer with the next stream."""
        self.rfile.read(int(self.headers["Content-Length"]))
        body = self.server.left.pop(0)
        self.send_response(200)
        if body.startswith(b"event:"):
            self.send_header("Content-Type", "text/event-stream")
        else:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def recorded_answers(real_data: Path, name: str) -> list[bytes]:
    """Return the answers of a recording: streams as text, others compressed."""
    cassette = yaml.safe_load((real_data / CASSETTES / name).read_text())
    bodies = [each["response"]["body"]["string"] for each in cassette["interactions"]]
    return [body.encode() if isinstance(body, str) else body for body in bodies if body]


@pytest.fixture
def answers(request: pytest.FixtureRequest, real_data: Path) -> list[bytes]:
    """Return the answers of the recording that the test is about."""
    return recorded_answers(real_data, getattr(request, "param", WORKFLOW))


@pytest.fixture
def provider(answers: list[bytes]) -> Iterator[Provider]:
    """Yield a server that has each answer once."""
    server = Provider(answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    RAN.clear()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def tokens(answers: list[bytes]) -> tuple[int, int]:
    """Return the tokens that the recorded answers report."""
    usages = []
    for each in answers:
        if each.startswith(b"event:"):
            data = [line[6:] for line in each.splitlines() if line.startswith(b"data: ")]
            ends = [json.loads(line) for line in data if b'"type":"response.completed"' in line]
            usages += [end["response"]["usage"] for end in ends]
        else:
            usages.append(json.loads(gzip.decompress(each))["usage"])
    return sum(u["input_tokens"] for u in usages), sum(u["output_tokens"] for u in usages)


def analyze_data(data_request: str) -> str:
    """Analyze data."""
    RAN.append("analyze")
    return f"Analyzed: {data_request}"


def process_results(analysis_data: str) -> str:
    """Process results."""
    RAN.append("process")
    return f"Processed: {analysis_data}"


def generate_report(processed_data: str) -> str:
    """Generate a report."""
    RAN.append("report")
    return f"Report: {processed_data}"


TOOLS = [analyze_data, process_results, generate_report]
SUMS = "SELECT sum(input_tokens)::INT, sum(output_tokens)::INT FROM steps WHERE kind = 'model'"


async def test_streams_of_the_openai_agents_sdk(
    data_dir: Path, workspace: str, answers: list[bytes], provider: Provider
):
    """A replay has the events, results and token sums on record, and sends no request."""
    model = OpenAIResponsesModel("gpt-4o", provider.client)
    tools = [function_tool(each) for each in TOOLS]
    analytics = Agent("Analytics Agent", model=model, tools=tools)
    agent = recorded(Agent("Router", model=model, handoffs=[analytics]))
    seen = []
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for mode in (None, "strict"):
            async with record.run("w", run="r", mode=mode):
                result = Runner.run_streamed(agent, "Analyze the sales of last quarter.")
                events = [each async for each in result.stream_events()]
                raw = [each.data for each in events if each.type == "raw_response_event"]
                seen.append((result.final_output, [each.model_dump() for each in raw]))
        sums = [tuple(row) for row in (await record.sql(SUMS)).rows]
    assert provider.left == []
    assert seen[0] == seen[1]
    assert RAN == ["analyze", "process", "report"]
    assert sums == [tokens(answers)]
    await provider.client.close()


async def test_streams_of_pydantic_ai(
    data_dir: Path, workspace: str, answers: list[bytes], provider: Provider
):
    """The same answers without the hand-off, with an event handler: heard once, replayed."""
    del provider.left[0]
    model = PydanticModel("gpt-4o", provider=OpenAIProvider(openai_client=provider.client))
    heard = []

    async def hear(ctx: Any, stream: Any) -> None:
        heard.extend([type(event).__name__ async for event in stream])

    durable = HansardDurability(event_stream_handler=hear)
    agent = PydanticAgent(model, name="a", tools=TOOLS, capabilities=[durable])
    outputs, counts = [], []
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for mode in (None, "strict"):
            async with record.run("w", run="r", mode=mode):
                outputs.append((await agent.run("Analyze the sales of last quarter.")).output)
            counts.append(len(heard))
        sums = [tuple(row) for row in (await record.sql(SUMS)).rows]
    assert provider.left == []
    assert outputs[0] == outputs[1]
    assert counts[0] == counts[1] > 20
    assert RAN == ["analyze", "process", "report"]
    assert sums == [tokens(answers[1:])]
    await provider.client.close()


@pytest.mark.parametrize("answers", [CITY], indirect=True)
async def test_answers_without_a_stream(
    data_dir: Path, workspace: str, answers: list[bytes], provider: Provider
):
    """Two runs of an agent with a tool, from compressed answers."""

    def get_city_info(city_name: str) -> str:
        RAN.append(city_name)
        return f"{city_name} is a city."

    model = OpenAIResponsesModel("gpt-4o", provider.client)
    agent = recorded(Agent("City", model=model, tools=[function_tool(get_city_info)]))
    outputs = []
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for mode in (None, "strict"):
            async with record.run("w", run="r", mode=mode):
                for _ in range(2):
                    result = await Runner.run(agent, "London?")
                    outputs.append((result.final_output, result.to_input_list()))
        sums = [tuple(row) for row in (await record.sql(SUMS)).rows]
    assert provider.left == []
    assert outputs[:2] == outputs[2:]
    assert RAN == ["London"] * 2
    assert sums == [tokens(answers)]
    await provider.client.close()
