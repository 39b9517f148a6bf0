"""The call in a request, its identity, and the facts of its answer: bodies made by hand."""

import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.ext.models.providers import (
    PROVIDERS,
    Message,
    Operation,
    Reading,
    ToolCall,
    identity,
    operation_of,
    provider_of,
)

CHAT = Operation("openai", "chat.completions")
RESPONSES = Operation("openai", "responses")
MESSAGES = Operation("anthropic", "messages")
CONTENT = Operation("google", "generate_content", "gemini-2.5-flash")

JSON = (("Content-Type", "application/json"),)
SSE = (("content-type", "text/event-stream; charset=utf-8"),)


def facts(operation, request, status, headers, body, size=None):
    """Return the facts of a call, its answer read at once or in pieces of a size."""
    try:
        query = json.loads(request)
    except ValueError:
        query = None
    reading = Reading(operation, query, status, headers)
    size = size or max(len(body), 1)
    for begin in range(0, len(body), size):
        reading.add(body[begin : begin + size])
    return reading.facts()


def encoded(value):
    """Return a value as the body of a request."""
    return json.dumps(value).encode()


def events(*values):
    """Return values as server-sent events, each with its type as name if it has one."""
    return b"".join(
        (f"event: {each['type']}\n".encode() if "type" in each else b"")
        + b"data: "
        + encoded(each)
        + b"\n\n"
        for each in values
    )


# ---------------------------------------------------------------- which call it is


@pytest.mark.parametrize(
    ("host", "path", "name", "model"),
    [
        ("api.openai.com", "/v1/chat/completions", "openai.chat.completions", ""),
        ("eu.api.openai.com", "/v1/responses", "openai.responses", ""),
        ("api.openai.com", "/v1/embeddings?x=1", "openai.embeddings", ""),
        ("api.openai.com", "/v1/completions", "openai.completions", ""),
        ("x.openai.azure.com", "/openai/deployments/d/chat/completions",
         "openai.chat.completions", ""),
        ("api.anthropic.com", "/v1/messages", "anthropic.messages", ""),
        ("api.anthropic.com", "/v1/messages/count_tokens", "anthropic.count_tokens", ""),
        ("generativelanguage.googleapis.com", "/v1beta/models/gemini-2.5-pro:generateContent",
         "google.generate_content", "gemini-2.5-pro"),
        ("generativelanguage.googleapis.com", "/v1beta/models/g:streamGenerateContent",
         "google.generate_content", "g"),
        ("generativelanguage.googleapis.com", "/v1beta/openai/chat/completions",
         "google.chat.completions", ""),
        ("europe-west1-aiplatform.googleapis.com".replace("europe-west1-", "eu."),
         "/v1/projects/p/locations/l/publishers/google/models/g:generateContent",
         "vertex.generate_content", "g"),
        ("api.groq.com", "/openai/v1/chat/completions", "groq.chat.completions", ""),
    ],
)  # fmt: skip
def test_a_host_and_a_path_name_the_call(host, path, name, model):
    """A known host and path are an operation of a provider; Google's path names the model."""
    provider = provider_of(host)
    assert provider is not None
    operation = operation_of(provider.name, "POST", path)
    assert operation is not None
    assert (operation.name, operation.model) == (name, model)
    assert operation.stream is ("stream" in path)


def test_other_requests_are_no_model_call():
    """Other hosts, methods and paths have no operation."""
    assert provider_of("api.openai.com.example.org") is None
    assert operation_of("openai", "GET", "/v1/chat/completions") is None
    assert operation_of("openai", "POST", "/v1/files") is None
    assert operation_of("nobody", "POST", "/v1/chat/completions") is None


def test_names_and_variables_of_providers_are_unique():
    """No two providers share a name or a variable, and each serves the host of its base URL."""
    names = [each.name for each in PROVIDERS]
    variables = [name for each in PROVIDERS for name in each.variables]
    assert len({*names}) == len(names)
    assert len({*variables}) == len(variables)
    assert all(provider_of(each.base.split("/")[2]) is each for each in PROVIDERS)


# ---------------------------------------------------------------- identity


def test_nulls_and_random_keys_are_no_part_of_the_identity():
    """Nulls at any depth and the random keys of each dialect are left out, and only those."""
    plain = {"model": "m", "messages": [{"role": "user", "content": "x"}], "seed": 0}
    noisy = {
        **plain,
        "messages": [{"role": "user", "content": "x", "async_": None}],
        "prompt_cache_key": "agents-sdk:run:0b1c",
        "stop": None,
    }
    assert identity(CHAT, encoded(noisy)) == identity(CHAT, encoded(plain)) == plain
    assert identity(CHAT, encoded({**plain, "seed": 1})) != plain
    assert identity(CHAT, encoded({**plain, "stop": [None]})) == {**plain, "stop": [None]}
    claude = {"model": "m", "metadata": {"user_id": "user_1_session_2"}, "messages": []}
    assert identity(MESSAGES, encoded(claude)) == {"model": "m", "messages": []}
    assert identity(CHAT, encoded(claude)) == claude


CALLS = {
    CHAT: lambda a, b: {
        "messages": [
            {"role": "assistant", "tool_calls": [
                {"id": a, "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": b, "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": a, "content": "1"},
            {"role": "tool", "tool_call_id": b, "content": "2"}]},
    RESPONSES: lambda a, b: {
        "input": [
            {"type": "function_call", "id": "fc" + a, "call_id": a, "name": "f",
             "arguments": "{}"},
            {"type": "function_call", "id": "fc" + b, "call_id": b, "name": "g",
             "arguments": "{}"},
            {"type": "function_call_output", "call_id": a, "output": "1"},
            {"type": "function_call_output", "call_id": b, "output": "2"}]},
    MESSAGES: lambda a, b: {
        "messages": [
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": a, "name": "f", "input": {"id": "own"}},
                {"type": "tool_use", "id": b, "name": "g", "input": {"tool_use_id": "own"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": a, "content": "1"},
                {"type": "tool_result", "tool_use_id": b, "content": "2"}]}]},
    CONTENT: lambda a, b: {
        "contents": [
            {"role": "model", "parts": [
                {"functionCall": {"id": a, "name": "f", "args": {"id": "own"}}},
                {"functionCall": {"id": b, "name": "g", "args": {}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": a, "name": "f", "response": {"id": "own"}}},
                {"functionResponse": {"id": b, "name": "g", "response": {}}}]}]},
}  # fmt: skip


@pytest.mark.parametrize("operation", CALLS, ids=lambda each: each.name)
def test_ids_of_tool_calls_count_by_their_order(operation):
    """Other ids are the same request; answers that swap their calls are another one."""
    build = CALLS[operation]
    first = identity(operation, encoded(build("call_a", "call_b")))
    assert first == identity(operation, encoded(build("call_y", "call_x")))
    swapped = json.dumps(build("call_a", "call_b"))
    head, _, tail = swapped.rpartition("call_a")  # the result of the first call ...
    swapped = head + "call_b" + tail.replace("call_b", "call_a", 1)  # ... goes to the second
    assert first != identity(operation, swapped.encode())
    assert "call_" not in json.dumps(first).replace("tool_call_id", "").replace("call_id", "") \
        .replace("tool_calls", "").replace("function_call", "")  # fmt: skip
    assert json.dumps(first).count("own") == json.dumps(build("", "")).count("own")


def test_a_rule_leaves_out_the_field_that_it_names():
    """A rule is a JSON pointer, with `*` for any item, for all operations or for one."""
    body = {"messages": [{"content": "a", "name": "n"}, {"content": "b", "name": "m"}], "user": "u"}
    assert identity(CHAT, encoded(body), ["/messages/*/name", "/user"]) == {
        "messages": [{"content": "a"}, {"content": "b"}]
    }
    assert identity(CHAT, encoded(body), ["openai.responses/user"]) == body
    assert "user" not in identity(CHAT, encoded(body), ["openai.chat.completions/user"])
    assert identity(CHAT, encoded(body), ["/messages/7/name", "/none/at/all"]) == body


def test_a_body_that_is_no_json_is_its_digest():
    """Bytes that are no JSON are identified by their digest and size."""
    one, other = identity(CHAT, b"\xff\x00"), identity(CHAT, b"\xff\x01")
    assert one != other
    assert one["size"] == 2


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "type", "messages", "input", "tool_calls", "content", "call_id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON_VALUES, st.binary(max_size=20))
def test_any_body_has_an_identity_and_facts(value, junk):
    """An identity is its own identity, and no body makes `facts` raise."""
    for operation in CALLS:
        once = identity(operation, encoded(value))
        if isinstance(value, dict):
            assert identity(operation, encoded(once)) == once
        for body in (encoded(value), events({"type": "x", "response": value}), junk):
            for headers in (JSON, SSE, (*SSE, ("content-encoding", "gzip"))):
                whole = facts(operation, encoded(value), 200, headers, body)
                assert whole.status == 200
                assert facts(operation, encoded(value), 200, headers, body, size=3) == whole


# ---------------------------------------------------------------- facts


def test_a_streamed_chat_is_put_together():
    """Texts and pieces of tool calls are joined by choice and index; the usage comes last."""
    chunks = events(
        {"id": "c1", "model": "gpt-9", "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": "He"}}]},
        {"choices": [{"index": 0, "delta": {"content": "llo"}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": "t1", "type": "function",
             "function": {"name": "mail", "arguments": ""}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "function": {"arguments": '{"to": '}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "function": {"arguments": '"a"}'}}]}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {
            "prompt_tokens": 5, "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 3}}},
    ) + b"data: [DONE]\n\n"  # fmt: skip
    report = facts(CHAT, encoded({"model": "gpt", "stream": True}), 200, SSE, chunks)
    assert report.usage == {
        "input_tokens": 5, "output_tokens": 7, "cached_tokens": 2, "reasoning_tokens": 3,
    }  # fmt: skip
    assert (report.model, report.finish_reason, report.problem) == ("gpt-9", "tool_calls", "")
    assert report.tool_calls == (ToolCall("t1", "mail", {"to": "a"}),)
    assert report.messages_out[0].content == "Hello"
    cut = facts(CHAT, b"{}", 200, SSE, chunks[:-400])
    assert cut.messages_out[0].content == "Hello"
    assert cut.usage == {}


def test_a_streamed_message_of_anthropic_is_put_together():
    """Deltas are joined by block; input tokens include those of the cache."""
    stream = events(
        {"type": "message_start", "message": {
            "id": "m1", "model": "claude-9", "role": "assistant", "content": [],
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 4,
                      "cache_creation_input_tokens": 2, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_start", "index": 1, "content_block": {
            "type": "tool_use", "id": "t1", "name": "mail", "input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": {
            "type": "input_json_delta", "partial_json": '{"to":'}},
        {"type": "content_block_delta", "index": 1, "delta": {
            "type": "input_json_delta", "partial_json": '"a"}'}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"},
         "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )  # fmt: skip
    query = {"model": "claude", "system": [{"type": "text", "text": "Be brief."}], "messages": [
        {"role": "user", "content": "x"}]}  # fmt: skip
    report = facts(MESSAGES, encoded(query), 200, SSE, stream)
    assert report.usage == {"input_tokens": 16, "output_tokens": 9, "cached_tokens": 4}
    assert (report.model, report.finish_reason) == ("claude-9", "tool_use")
    assert report.tool_calls == (ToolCall("t1", "mail", {"to": "a"}),)
    assert report.messages_in == (Message("system", "Be brief."), Message("user", "x"))
    assert report.messages_out[0].content == [
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t1", "name": "mail", "input": {"to": "a"}},
    ]
    error = events({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}})
    assert facts(MESSAGES, b"{}", 200, SSE, error).error == "Busy"


@pytest.mark.parametrize("form", ["sse", "list"])
def test_a_streamed_answer_of_google_is_put_together(form):
    """Both forms of a stream give the same facts; thoughts count as output."""
    chunks = [
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "He"}]}}],
         "modelVersion": "gemini-9"},
        {"candidates": [{"content": {"role": "model", "parts": [
            {"text": "llo"}, {"functionCall": {"name": "mail", "args": {"to": "a"}}}]},
            "finishReason": "STOP"}],
         "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7,
                           "thoughtsTokenCount": 2, "cachedContentTokenCount": 1}},
    ]  # fmt: skip
    body, headers = (events(*chunks), SSE) if form == "sse" else (encoded(chunks), JSON)
    report = facts(CONTENT, b"{}", 200, headers, body)
    assert report.usage == {
        "input_tokens": 5, "output_tokens": 9, "cached_tokens": 1, "reasoning_tokens": 2,
    }  # fmt: skip
    assert (report.model, report.finish_reason) == ("gemini-9", "STOP")
    assert report.tool_calls == (ToolCall("", "mail", {"to": "a"}),)
    assert report.messages_out[0].content[0] == {"text": "Hello"}


def test_a_response_cut_short_has_its_complete_items():
    """Of a stream without its last event, the complete items are known and no usage is."""
    item = {"type": "function_call", "id": "fc1", "call_id": "c1", "name": "f", "arguments": "{}"}
    stream = events(
        {"type": "response.created", "response": {"id": "r1", "model": "gpt-9", "output": []}},
        {"type": "response.output_item.done", "item": item},
    )
    report = facts(RESPONSES, b"{}", 200, SSE, stream + b'event: response.completed\ndata: {"re')
    assert report.tool_calls == (ToolCall("c1", "f", {}),)
    assert (report.model, report.usage) == ("gpt-9", {})


REPLY = encoded({"model": "m", "usage": {"prompt_tokens": 3}, "choices": []})


@pytest.mark.parametrize(
    ("coding", "body", "problem"),
    [
        ("gzip", gzip.compress(REPLY), ""),
        ("gzip", gzip.compress(REPLY[:9]) + gzip.compress(REPLY[9:]), ""),
        ("deflate", zlib.compress(REPLY), ""),
        ("deflate", zlib.compress(REPLY)[2:-4], ""),
        ("gzip", gzip.compress(REPLY)[:-20], "gzip data end early"),
        ("gzip", REPLY, "damaged gzip data"),
        ("secret-7", REPLY, "unknown content coding 'secret-7'"),
    ],
    ids=["gzip", "two members", "zlib", "raw deflate", "cut", "damaged", "unknown"],
)
def test_content_codings_are_undone(coding, body, problem):
    """Bodies are decompressed as far as they go; the facts say what is wrong with them."""
    headers = (*JSON, ("Content-Encoding", coding))
    report = facts(CHAT, b"{}", 200, headers, body)
    assert report.problem.startswith(problem)
    assert (report.input_tokens == 3) is (not problem)


def test_a_bomb_is_not_decompressed(monkeypatch):
    """A body that grows beyond the bound is read no further."""
    monkeypatch.setattr("hansard.ext.models.providers.DECODED_MAX", 1000)
    headers = (*JSON, ("content-encoding", "gzip"))
    report = facts(CHAT, b"{}", 200, headers, gzip.compress(b"0" * 10**6))
    assert "longer than 1000 bytes" in report.problem


def test_malformed_events_are_counted():
    """Events that are not JSON objects are counted in the problem, and the others are read."""
    body = b"data: {]\n\n" + events({"choices": [{"index": 0, "delta": {"content": "x"}}]})
    report = facts(CHAT, b"{}", 200, SSE, body)
    assert report.problem == "1 events are not JSON objects"
    assert report.messages_out[0].content == "x"
