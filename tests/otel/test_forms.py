"""The table of names and what is read by it, without a broker: laws on any input."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.steps import IMPORTER
from hansard.ext.otel import aliases, messages
from hansard.ext.otel.observed import mapped, observations
from hansard.ext.otel.spans import Span, Unreadable, from_document, from_json

NAMES = sorted({alias.name for some in aliases.TABLE.values() for alias in some})
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
"""Numbers as the door reads them: any other becomes a text."""

PLAIN = st.recursive(
    NUMBERS | st.none() | st.booleans() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "parts", "type", "message", "tool_calls", "id"])
            | st.text(max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
VALUES = PLAIN | PLAIN.map(json.dumps)
KEYS = st.sampled_from(NAMES).map(lambda name: name.replace("*", "0.message.role"))
ATTRIBUTES = st.dictionaries(KEYS, VALUES, max_size=6)


def test_each_name_belongs_to_a_convention_and_to_one_fact():
    """A name that stood for two facts would be read wrongly by one of them."""
    every = [alias for some in aliases.TABLE.values() for alias in some]
    assert {alias.convention for alias in every} == set(aliases.CONVENTIONS)
    assert len({alias.name for alias in every}) == len(every)


@given(st.lists(ATTRIBUTES, min_size=1, max_size=4), st.data())
def test_any_attributes_give_a_run_or_none_but_no_error(some: list[Any], data: st.DataObject):
    """Whatever a span's attributes hold, its trace is mapped: each call has a start and an end."""
    names = [f"{number + 1:016x}" for number in range(len(some))]
    spans = [
        Span(
            trace="1" * 32,
            id=name,
            name="s",
            parent=data.draw(st.sampled_from(["", *names])),
            started_ns=str(data.draw(st.integers(0, 10))),
            ended_ns=str(data.draw(st.integers(0, 10))),
            attributes=attributes,
            failed=data.draw(st.booleans()),
        )
        for name, attributes in zip(names, some, strict=True)
    ]
    calls = observations(spans)
    made = mapped("1" * 32, 1, spans, [], datetime(2026, 1, 1, tzinfo=UTC))
    events = [event.type for append in made.appends for event in append.commit.events]
    ended = events.count("step.completed.v1") + events.count("step.failed.v1")
    assert events.count("step.requested.v1") == ended == len(calls)
    assert {append.commit.actor.agent for append in made.appends} == {IMPORTER}


@given(st.binary(max_size=200) | PLAIN.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_request_or_refused(data: bytes):
    """A request that is none has a reason; nothing else is raised."""
    with contextlib.suppress(Unreadable):
        assert from_json(data).spans == []


@given(PLAIN)
def test_any_document_has_spans_or_reasons(value: Any):
    """Each part of a document is a span or the reason why it is none."""
    assert all(isinstance(each, Span | str) for each in from_document(value))


@given(VALUES)
def test_messages_have_a_role_and_a_content(value: Any):
    """Messages of any value are chat messages, and each has a form since 1.37."""
    made = messages.messages(value)
    assert all(isinstance(each["role"], str) and "content" in each for each in made)
    sent = [messages.parts(each) for each in made]
    assert all(set(each) == {"role", "parts"} for each in sent)


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"gen_ai.operation.name": "chat"}, "model"),
        ({"gen_ai.operation.name": "execute_tool"}, "tool"),
        ({"gen_ai.operation.name": "invoke_agent"}, "agent"),
        ({"gen_ai.operation.name": "create_agent"}, ""),
        ({"openinference.span.kind": "LLM"}, "model"),
        ({"openinference.span.kind": "TOOL"}, "tool"),
        ({"openinference.span.kind": "CHAIN"}, ""),
        ({"traceloop.span.kind": "tool"}, "tool"),
        ({"llm.request.type": "chat"}, "model"),
        ({"ai.operationId": "ai.generateText.doGenerate"}, "model"),
        ({"ai.operationId": "ai.toolCall"}, "tool"),
        ({"http.request.method": "GET"}, ""),
    ],
)
def test_the_kind_of_a_span_follows_from_any_convention(attributes: dict[str, str], kind: str):
    """Calls of models and tools, agents, and structure."""
    assert aliases.kind_of(attributes) == kind


def test_flattened_messages_of_two_conventions_are_one_form():
    """OpenInference and OpenLLMetry flatten messages over attributes; order is by number."""
    call = {"id": "c1", "name": "pay", "arguments": '{"sum": 3}'}
    openinference = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "buy",
        **{f"llm.input_messages.{n}.message.role": "user" for n in range(1, 12)},
        **{f"llm.input_messages.{n}.message.content": str(n) for n in range(1, 12)},
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": call["id"],
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": call["name"],
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": call[
            "arguments"
        ],
    }
    openllmetry = {
        **{f"gen_ai.prompt.{n}.role": "user" for n in range(12)},
        **{f"gen_ai.prompt.{n}.content": str(n) if n else "buy" for n in range(12)},
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.tool_calls.0.id": call["id"],
        "gen_ai.completion.0.tool_calls.0.name": call["name"],
        "gen_ai.completion.0.tool_calls.0.arguments": call["arguments"],
    }
    for attributes in (openinference, openllmetry):
        assert [each["content"] for each in messages.inputs(attributes)] == [
            *("buy", *map(str, range(1, 12)))
        ]
        assert messages.outputs(attributes) == [
            {"role": "assistant", "content": "", "tool_calls": [call]}
        ]
