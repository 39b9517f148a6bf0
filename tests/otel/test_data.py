"""Real traces: Langfuse's equal their chat form, and all go out and come in again equal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hansard import AsyncRecord, testing
from hansard.agents.exchange.files import Bad
from hansard.agents.workspace import read_lives
from hansard.domain.agent import MessageAdded
from hansard.ext.otel import export, files, messages
from hansard.ext.otel.observed import observations, run_of_trace
from hansard.ext.otel.spans import Span, from_document
from hansard.inspect import trace as traces
from hansard.inspect.trace import Payloads
from tests.conftest import NO_REAL_DATA, REAL_DATA

DATA = REAL_DATA / "otel-genai" / "dev"

pytestmark = [pytest.mark.real, pytest.mark.skipif(not DATA.exists(), reason=NO_REAL_DATA)]

LANGFUSE = sorted((DATA / "langfuse-framework-traces").glob("*.trace.json"))
OPENINFERENCE = DATA / "openinference-fixtures"
OPENAI = DATA / "openai_v2_spans.generated.jsonl"


class Watcher:
    """A watcher of an import that keeps what is bad."""

    def __init__(self) -> None:
        self.bads: list[Bad] = []

    def read(self, count: int) -> None:
        """Do nothing."""

    def bad(self, bad: Bad) -> None:
        """Keep it."""
        self.bads.append(bad)


def spans_of(path: Path) -> list[Span]:
    """Return the spans of a document, all of which are read."""
    made = list(from_document(json.loads(path.read_text())))
    assert not [each for each in made if isinstance(each, str)]
    return [each for each in made if isinstance(each, Span)]


def stated(path: Path) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Yield the messages of each observation and side for which Langfuse states a chat form."""
    chat = json.loads(path.with_name(path.name.replace(".trace.", ".chatml.")).read_text())
    for name, sides in chat.items():
        for side, form in sides.items():
            if form and form["success"] and all("role" in each for each in form["data"]):
                yield name, side, form["data"]


def compared(message: dict[str, Any]) -> dict[str, Any]:
    """Return role, content and calls of a message.

    The form that Langfuse states differs in notation alone: Gemini's role `model`, a list of one
    text, a message's `text` among its other fields, JSON that is decoded.
    """
    content = message.get("content", message.get("json", {}).get("text", ""))
    if isinstance(content, list) and [each.get("type") for each in content] == ["text"]:
        content = content[0]["text"]
    if isinstance(content, str) and content[:1] in ("{", "["):
        content = json.loads(content)
    calls = [
        (each.get("id") or "", each["name"], json.loads(each["arguments"]))
        for each in message.get("tool_calls") or ()
    ]
    role = "assistant" if message["role"] == "model" else message["role"]
    return {
        "role": role,
        "content": content,
        "calls": calls,
        "answers": message.get("tool_call_id"),
    }


@pytest.mark.parametrize("path", LANGFUSE, ids=lambda path: path.name.partition(".")[0])
def test_traces_of_langfuse_equal_their_chat_form(path: Path):
    """Role, content, calls and their ids of each message are those that Langfuse states."""
    spans = {span.id: span for span in spans_of(path)}
    count = 0
    for name, side, expected in stated(path):
        read = messages.inputs if side == "input" else messages.outputs
        made = [compared(each) for each in read(spans[name].attributes)]
        theirs = [compared(each) for each in expected]
        if path.name.startswith("google-adk"):  # a result of a tool has the role tool here
            for ours, other in zip(made, theirs, strict=True):
                other["role"] = "tool" if ours["role"] == "tool" else other["role"]
        assert made == theirs, (name, side)
        count += 1
    assert count or path.name.startswith("agno"), "no observation was compared"


@pytest.mark.parametrize("name", ["generateText", "generateObject", "streamText"])
def test_fixtures_of_openinference_are_calls_with_their_tokens(name: str):
    """Spans of Vercel's AI SDK: only the inner span is the call; its tokens count once."""
    inner = "doStream" if name == "streamText" else "doGenerate"
    prefix = "openinference-vercel__test____fixtures____v6-spans__ai"
    spans = spans_of(OPENINFERENCE / f"{prefix}-{name}-{inner}.json")
    outer = spans_of(OPENINFERENCE / f"{prefix}-{name}.json")
    assert observations(outer) == []
    calls = observations(spans)
    assert len(calls) == len(spans)
    for call in calls:
        attributes = call.span.attributes
        assert call.usage["input_tokens"] == attributes["gen_ai.usage.input_tokens"]
        assert call.usage["output_tokens"] == attributes["gen_ai.usage.output_tokens"]
        assert call.tool == "openai.responses.chat"
        assert call.inputs[-1]["role"] == "user"
        [answer] = call.outputs
        text = attributes.get("ai.response.text", attributes.get("ai.response.object"))
        assert (answer["role"], answer["content"]) == ("assistant", text)


def test_spans_of_the_openai_instrumentation_are_calls():
    """Each span of the instrumentation is one call, with its messages, tokens and error."""
    spans = [
        next(iter(from_document(json.loads(line)))) for line in OPENAI.read_text().splitlines()
    ]
    assert all(isinstance(each, Span) for each in spans)
    read = [each for each in spans if isinstance(each, Span)]
    calls = [call for span in read for call in observations([span])]
    assert len(calls) == len(read) == 54
    assert {call.kind for call in calls} == {"model"}
    for call in calls:
        attributes = call.span.attributes
        assert call.usage.get("input_tokens") == attributes.get("gen_ai.usage.input_tokens")
        sent = attributes.get("gen_ai.input.messages")
        assert len(call.inputs) == len(json.loads(sent) if sent else [])
        if call.span.failed:
            assert call.error is not None
            assert call.error.type == attributes["error.type"]


@pytest.mark.parametrize("path", [*LANGFUSE, OPENAI], ids=lambda path: path.name.partition(".")[0])
async def test_traces_go_out_and_come_in_again_equal(path: Path, tmp_path: Path):
    """A run of a file's trace, sent as spans and received again, has equal calls and messages."""
    async with testing.record_async() as first, testing.record_async() as second:
        tally = await files.take(first.workspace, path, Watcher())
        assert tally.runs
        assert (await files.take(first.workspace, path, Watcher())).new == 0
        for run in [each.run for each in await read_lives(first.workspace.log)]:
            sent = [each async for each in export.spans_of(first.workspace, run)]
            again = [each async for each in export.spans_of(first.workspace, run)]
            assert sent == again
            exported = tmp_path / f"{run}.json"
            exported.write_bytes(export.to_json(sent))
            watcher = Watcher()
            await files.take(second.workspace, exported, watcher)
            assert watcher.bads == []
            back = run_of_trace(export.trace_of(run))
            assert await content(second, back) == await content(first, run)


async def content(record: AsyncRecord, run: str) -> dict[str, Any]:
    """Return what a run holds of each agent: its calls with their times, and its messages."""
    view = await record.workspace.states.run(run)
    history = await record.workspace.states.history(run)
    made: dict[str, Any] = {"workflow": view.life.workflow, "status": view.life.status}
    names = (
        *("agent", "role", "step", "kind", "tool", "call_id", "effects", "arguments", "status"),
        *("result", "error", "usage", "duration_ms", "began", "ended", "unordered"),
    )
    async for each in traces.trace(run, history).whole(Payloads(record.workspace)):
        step = each.traced
        made[f"{step.agent} {step.step}"] = [getattr(step, name) for name in names]
    for agent, state in view.agents.items():
        made[f"messages of {agent}"] = [
            (fact.fact.role, bytes(fact.fact.content), bytes(fact.fact.fields))
            for fact in state.facts
            if isinstance(fact.fact, MessageAdded)
        ]
    return made
