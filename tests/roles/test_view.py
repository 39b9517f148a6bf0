"""A role's view does not depend on hidden events or values."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain import values
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical
from hansard.domain.ids import AgentStream, RunStream, StreamId
from hansard.domain.roles import check
from hansard.domain.roles.authorize import CALLS, holds_values, kinds_of
from hansard.domain.roles.model import Mask, Masking, RoleDefined, RoleRule
from hansard.domain.roles.view import (
    Facts,
    ShownEvent,
    UnjudgedEvent,
    explain,
    facts,
    judge,
    served,
    shown,
    view,
)
from tests.domain import strategies

KEY = bytes(range(32))
AT = datetime(2026, 11, 21, tzinfo=UTC)
ROSTER = {"ada": "writer", "bob": "reader", "eve": "auditor"}
LABELS = {"team": "finance"}

SOME = RoleDefined(
    sees=(
        RoleRule("mine", roles=("writer",)),
        RoleRule("failures", ("step.failed",), roles=("reader",), fields=("step", "error.type")),
        RoleRule("decisions", ("decision.made", "agent.handed_off"), ("reader",)),
        RoleRule("findings", keys=("findings/**",), labels={"team": "fin*"}),
    ),
    masks=(
        Mask("results", ("step.completed", "step.failed"), ("result.a", "error"), Masking.DROP),
        Mask("contents", ("message.added",), ("content",), Masking.HASH),
        Mask("why", ("decision.made",), ("selected", "because"), Masking.TRUNCATE, 3),
    ),
)
check.check(SOME)


def bytes_of(lines: list[tuple[int, ShownEvent]]) -> bytes:
    """Return the lines shown to a role as bytes."""
    return msgspec.json.encode(lines)


def happened(
    tag: str, data: Any, number: int = 0, stream: StreamId | None = None, **more: Any
) -> UnjudgedEvent:
    """Return an event, by default of ada's stream."""
    where = stream if stream is not None else AgentStream("r", "writer", "ada")
    raw = data if isinstance(data, bytes) else msgspec.json.encode(data)
    source = facts(tag, where, more.pop("actor", "ada"), ROSTER, LABELS)
    return UnjudgedEvent(
        facts=source, id=f"e{number}", commit=f"c{number}", at=AT, data=msgspec.Raw(raw), **more
    )


# ---------------------------------------------------------------- events


def test_references_to_what_is_not_seen_are_left_out():
    """Steps count from 1 as they come into sight; inputs and steps not seen are not named."""
    rules = RoleDefined(sees=(RoleRule("r", ("step.failed", "decision.made")),))
    failed = {"step": 17, "error": {"type": "E", "message": ""}, "digest": "d"}
    decision = {
        "question": "?",
        "selected": "a",
        "fingerprint": "f",
        "scope": "/0.1",
        "inputs": ["e1", "e2", "c1", "c2", "e9"],
        "after": [16, 17, 18],
    }
    events = [
        happened("step.failed.v1", failed, 1),
        happened("step.completed.v1", {"step": 18, "result": 1, "digest": "d"}, 2),
        happened("decision.made.v1", decision, 3),
    ]
    [(_, first), (number, second)] = view(rules, events)
    assert json.loads(bytes(first.data)) == failed | {"step": 1}
    assert number == 2
    assert json.loads(bytes(second.data)) == {
        "question": "?",
        "selected": "a",
        "inputs": ["e1", "c1"],
        "after": [1],
    }


def test_who_sees_everything_sees_the_record_as_it_is():
    """No byte is changed for a role of all kinds without masks; not of unknown or sealed data."""
    rules = RoleDefined(sees=(RoleRule("all", ("**",)),), clearance="secret")
    raw = b'{"step": 17,"fingerprint":"f", "x":1.0e2}'
    events = [
        happened("step.failed.v1", raw, 1),
        happened("x.y.v9", raw, 2),
        happened("step.failed.v1", b'"c2VhbGVk"', 3, sealed=True),
    ]
    assert [bytes(line.data) for _, line in view(rules, events)] == [raw, raw, b'"c2VhbGVk"']
    masks = (Mask("m", ("step.completed",), ("result",)),)
    less = msgspec.structs.replace(rules, masks=masks)
    assert [bytes(line.data) for _, line in view(less, events)] == [b'{"step":1}']


# ---------------------------------------------------------------- values

STEP = "step.completed.v1"


def of_result(data: Any, *masks: Mask, fields: tuple[str, ...] | None = None) -> Any:
    """Return the shown form of a completed step with this result."""
    rules = RoleDefined(sees=(RoleRule("r", ("step.completed",), fields=fields),), masks=masks)
    check.check(rules)
    completed = {
        "step": 1,
        "result": data,
        "digest": "d",
        "usage": {"output_tokens": 5},
        "items": 2,
    }
    verdict = judge(rules, Facts(tag=STEP, stream=RunStream("r")))
    return json.loads(shown(verdict, msgspec.json.encode(completed), KEY))


def hide(*paths: str, how: Masking = Masking.DROP, n: int | None = None, name: str = "m") -> Mask:
    """Return a mask of a completed step."""
    return Mask(name, ("step.completed",), paths, how, n)


values_ = strategies.json_values
prices = st.lists(st.fixed_dictionaries({"name": strategies.text}), min_size=1, max_size=3)


@given(prices, st.data(), st.sampled_from(["list", "tuple", "map", "typed"]))
def test_a_dropped_value_has_no_influence(items, data, shape):
    """A dropped value has no influence, wherever it is and whether it exists."""

    def with_prices(strategy: st.SearchStrategy[dict[str, Any]]) -> Any:
        priced: list[Any] = [{**item, **data.draw(strategy)} for item in items]
        if shape == "tuple":
            return {"items": {"$tuple": priced}}
        if shape == "typed":
            return {"$value": {"tag": "a.items.v1", "data": {"items": priced}}}
        if shape == "map":
            return {"items": {"$map": [[number, each] for number, each in enumerate(priced)]}}
        return {"items": priced}

    some = st.fixed_dictionaries({"price": values_})
    none: st.SearchStrategy[dict[str, Any]] = st.just({})
    path = "result.items.*.price" if shape == "map" else "result.items.price"
    first, second, third = (of_result(with_prices(it), hide(path)) for it in (some, some, none))
    assert first == second == third


@given(values_, values_)
def test_a_hashed_value_is_distinguishable_and_no_more(one, other):
    """Equal values have equal digests under one key, others do not; sizes and bare digests go."""
    first, second = (
        of_result({"x": it}, hide("result.x", how=Masking.HASH)) for it in (one, other)
    )
    assert (first == second) == (canonical(one) == canonical(other))
    made = hmac.new(KEY, canonical(one), hashlib.sha256).digest()[:18]
    masked = {"x": {"$hash": base64.urlsafe_b64encode(made).decode()}}
    assert first == {"step": 1, "result": masked}


@given(strategies.text, strategies.text, strategies.text)
def test_of_a_cut_text_only_what_is_left_counts(head, one, other):
    """Neither the removed part nor the fact of a cut is visible."""
    cut = hide("result", how=Masking.TRUNCATE, n=4)
    head = f"{head}1234"[:4]
    shortened = of_result(head + one, cut)
    assert shortened == of_result(head + other, cut)
    assert shortened == {"step": 1, "result": {"$cut": head}}


@given(values_.filter(lambda value: not isinstance(value, str)))
def test_what_is_no_text_cannot_be_cut(value):
    """A value that is no text is dropped by a mask that cuts."""
    assert of_result(value, hide("result", how=Masking.TRUNCATE, n=4)) == {"step": 1}


@pytest.mark.slow
@given(strategies.python_values)
def test_no_shape_hides_a_value_from_its_mask(around):
    """A planted secret under a masked name is found in every container, whatever is beside it."""
    secret = "swordfish"
    inside = {"price": secret, "beside": around}
    for held in (
        [inside],
        (inside, 1),
        {"k": inside}["k"],
        [[inside], (inside,)],
        {"price": [secret]},
    ):
        plain = values.plain({"items": held})
        for how in Masking:
            mask = hide("result.items.price", how=how, n=2 if how is Masking.TRUNCATE else None)
            assert secret not in json.dumps(of_result(plain, mask))


@pytest.mark.parametrize(
    "value",
    [
        '{"price": "swordfish"}',
        {"$blob": {"sha256": "swordfish", "size": 9}},
        {"$bytes": "swordfish"},
        ["swordfish"],
        {"$tuple": ["swordfish"]},
        {"$map": [[{"$tuple": [1]}, "swordfish"]]},
        {"$append": {"to": 1, "count": 3, "digest": "swordfish", "items": ["swordfish"]}},
        {"$unknown": "swordfish"},
        {"$value": {"tag": "a.frame.v1", "data": {"arrow": {"$bytes": "swordfish"}}}},
    ],
)
@pytest.mark.parametrize("how", list(Masking))
def test_a_mask_that_cannot_go_in_masks_the_whole(value, how):
    """A text may be JSON and a blob may hold the value: opaque values are masked whole."""
    mask = hide("result.price", how=how, n=5 if how is Masking.TRUNCATE else None)
    shown_text = json.dumps(of_result(value, mask))
    assert "sword" not in shown_text


def test_what_holds_nothing_masked_stays():
    """Numbers, truth and null cannot hold a field."""
    for value in (1, 2.5, True, None, [1, None], {"other": "x"}):
        assert of_result(value, hide("result.price"))["result"] == value


def test_the_strictest_mask_wins():
    """Dropped before hashed before cut, the shorter cut; the inner before the outer."""
    cut3, cut5 = (hide("result.x", how=Masking.TRUNCATE, n=n, name=f"c{n}") for n in (3, 5))
    hashed, dropped = hide("result.x", how=Masking.HASH, name="h"), hide("result.x", name="d")
    value = {"x": "abcdefg", "y": 1}
    assert of_result(value, cut5, cut3)["result"] == {"x": {"$cut": "abc"}, "y": 1}
    assert list(of_result(value, cut5, hashed)["result"]["x"]) == ["$hash"]
    assert of_result(value, cut5, hashed, dropped)["result"] == {"y": 1}
    around = hide("result", how=Masking.HASH, name="around")
    one, other = (of_result({"x": x, "y": 1}, around, dropped) for x in ("a", "b"))
    assert one == other
    assert one != of_result({"x": "a", "y": 2}, around, dropped)


def test_fields_show_what_is_under_them():
    """Fields apply inside lists, item by item; items without any of them are left out and not
    counted.
    """
    items = [{"a": {"b": 1, "c": 2}}, {"d": 3}, "text", 4, {"a": "no b"}]
    result = of_result({"items": items, "z": 1}, fields=("result.items.a.b", "step"))
    assert result == {"step": 1, "result": {"items": [{"a": {"b": 1}}]}}
    assert of_result("text", fields=("result.items.a.b", "step")) == {"step": 1}
    assert of_result({"a.b": 1, "a": {"b": 2}}, fields=("result.a\\.b",)) == {"result": {"a.b": 1}}
    assert of_result({"xa": 1, "b": 2}, fields=("result.*a",)) == {"result": {"xa": 1}}


def test_sizes_go_with_what_they_measure_unless_they_are_named():
    """A role for costs sees usage without the result; a masked value's digest is always hidden."""
    assert of_result("x", fields=("usage", "step")) == {"step": 1, "usage": {"output_tokens": 5}}
    assert of_result("x", hide("result")) == {"step": 1}
    assert of_result({"x": 1}, hide("result.x")) == {"step": 1, "result": {}}
    whole = of_result("x")
    assert (whole["digest"], whole["items"]) == ("d", 2)


def test_what_is_shown_whole_keeps_its_bytes():
    """Numbers are not read and written again; only a growing list's reference is taken out."""
    rules = RoleDefined(sees=(RoleRule("r", ("step.*",)),))
    data = b'{"step":1,"result":{"a":1.50,"b":1e2, "c":12345678901234567890123},"fingerprint":"f"}'
    verdict = judge(rules, Facts(tag=STEP, stream=RunStream("r")))
    assert shown(verdict, data) == data.replace(b',"fingerprint":"f"', b"")
    grown = b'{"arguments":{"m":{"$append":{"to":9,"count":4,"digest":"d","items":[5]}}}}'
    verdict = judge(rules, Facts(tag="step.requested.v1", stream=RunStream("r")))
    assert shown(verdict, grown) == b'{"arguments":{"m":{"$append":{"items":[5]}}}}'


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"null", b"\xff", b'{"result":'])
def test_data_that_cannot_be_read_is_not_shown(data):
    """Unreadable data is hidden, since its masked parts are unknown."""
    verdict = judge(SOME, Facts(tag=STEP, stream=RunStream("r"), role="writer"))
    assert shown(verdict, data, KEY) == b"{}"


def test_a_hash_needs_a_key_whatever_the_data():
    """A missing key fails before the first event, so that the error reveals none."""
    for key, message in [(None, "none is given"), (b"short", "it has 5 bytes")]:
        with pytest.raises(BadValue, match=message):
            view(SOME, [], key)
    verdict = judge(SOME, Facts(tag="message.added.v1", stream=RunStream("r"), role="writer"))
    with pytest.raises(BadValue, match="none is given"):
        shown(verdict, b"{}")


def test_bytes_are_stable():
    """The bytes of a view never change: golden lines and their digest."""
    events = [
        happened(STEP, {"step": 4, "result": {"a": 1, "b": 2}, "digest": "d"}, 1),
        happened(
            "decision.made.v1",
            {"question": "?", "selected": "abcd", "fingerprint": "f"},
            2,
            AgentStream("r", "reader", "bob"),
            run="r",
        ),
    ]
    lines = list(view(SOME, events, KEY))
    assert bytes_of(lines) == (
        b'[[1,{"type":"step.completed.v1","id":"e1","at":"2026-11-21T00:00:00Z","role":"writer",'
        b'"agent":"ada","data":{"step":1,"result":{"b":2}}}],[2,{"type":"decision.made.v1",'
        b'"id":"e2","at":"2026-11-21T00:00:00Z","run":"r","role":"reader","agent":"bob","data":'
        b'{"question":"?","selected":{"$cut":"abc"}}}]]'
    )
    assert served(lines) == served(iter(lines))
    assert served(lines).events == 2
    assert served(lines).digest == "ZrNUawROjfNf1oMVuJyxk-ps"


# ---------------------------------------------------------------- calls in exchanges with models

CALL = Mask("calls", ("step.requested",), ("arguments.password",))
RESULT = Mask("results", ("step.completed",), ("result.password",))
TEXT = '{"user": "ada", "password": "hunter2"}'
VALUE = json.loads(TEXT)

ASKED = {
    "chat": {"tool_calls": [{"id": "1", "type": "function", "function": {"arguments": TEXT}}]},
    "chat, in parts": {
        "delta": {"tool_calls": [{"function": {"arguments": '"password": "hunter'}}]}
    },
    "messages": {"content": [{"type": "tool_use", "id": "1", "name": "login", "input": VALUE}]},
    "messages, in parts": {"delta": {"type": "input_json_delta", "partial_json": '"hunter2"'}},
    "responses": [{"type": "function_call", "call_id": "1", "name": "login", "arguments": TEXT}],
    "responses, in parts": {"type": "response.function_call_arguments.delta", "delta": "hunter2"},
    "google": {"parts": [{"functionCall": {"name": "login", "args": VALUE}}]},
    "bedrock": {"toolUse": {"toolUseId": "1", "name": "login", "input": VALUE}},
    "langchain": {"kwargs": {"tool_calls": [{"name": "login", "args": VALUE, "id": "1"}]}},
    "pydantic": {"parts": [{"part_kind": "tool-call", "tool_name": "login", "args": VALUE}]},
    "facts": {"end": {"facts": {"tool_calls": [{"name": "login", "arguments": VALUE}]}}},
    "as transferred": {"chunk": {"data": "hunter2", "ms": [1]}},
    "by reference": {"messages": {"$parts": {"size": 9, "of": ["hunter2"]}}},
    "typed": {"$value": {"tag": "a.call.v1", "data": {"name": "login", "args": VALUE}}},
}
SENT = {
    "chat": {"role": "tool", "tool_call_id": "1", "content": TEXT},
    "chat, no JSON": {"role": "tool", "tool_call_id": "1", "content": "password: hunter2"},
    "messages": {
        "type": "tool_result",
        "tool_use_id": "1",
        "content": [{"type": "text", "text": TEXT}],
    },
    "responses": {"type": "function_call_output", "call_id": "1", "output": TEXT},
    "google": {"functionResponse": {"name": "login", "response": VALUE}},
    "google, wrapped": {"functionResponse": {"name": "login", "response": {"result": VALUE}}},
    "bedrock": {"toolResult": {"toolUseId": "1", "content": [{"json": VALUE}, {"text": TEXT}]}},
    "mcp": {"type": "tool_result", "content": json.dumps({"content": [{"text": TEXT}]})},
    "as transferred": {"chunk": {"base64": "aHVudGVyMg==hunter2", "ms": [1], "sizes": []}},
}


PART = '{"password": "hunter2'
ASKED_ELSEWHERE: list[Any] = [
    # OpenAI: custom tools, parsed answers, helpers of streams, remote tools
    {"tool_calls": [{"type": "custom", "custom": {"name": "login", "input": "hunter2"}}]},
    {"function": {"name": "login", "arguments": "{}", "parsed_arguments": VALUE}},
    {"type": "tool_calls.function.arguments.delta", "arguments_delta": "hunter2"},
    {"type": "response.function_call_arguments.delta", "snapshot": PART},
    {"type": "response.mcp_call_arguments.delta", "delta": "hunter2"},
    # Anthropic, Google and Cohere
    {"type": "input_json", "partial_json": "", "snapshot": VALUE},
    {"functionCall": {"partialArgs": [{"jsonPath": "$.password", "stringValue": "hunter2"}]}},
    {"tool_calls": [{"name": "login", "parameters": VALUE}]},
    # Frameworks: pydantic-ai, the AI SDK, LangChain, DSPy
    {"delta": {"part_delta_kind": "tool_call", "args_delta": PART}},
    {"type": "tool-input-delta", "inputTextDelta": PART},
    {"event": "on_tool_start", "name": "login", "data": {"input": VALUE}},
    {"tool": "login", "tool_input": PART},
    {"tool_name_0": "login", "tool_args_0": VALUE},
    # Python's types, and JSON in a text
    {"tool_calls": {"$tuple": [{"name": "login", "args": PART}]}},
    {"$value": {"tag": "a.ToolCall.v1", "data": {"args": PART}}},
    {"body": json.dumps({"messages": [{"function_call": {"arguments": TEXT}}]})},
    {"body": "[info] data: " + json.dumps({"function_call": {"arguments": TEXT}}) + "\n\n"},
    {"name": "login", "arguments": json.dumps(TEXT)},
]
SENT_ELSEWHERE: list[Any] = [
    {"type": "mcp_call", "arguments": "{}", "output": TEXT},
    {"type": "mcp_tool_result", "content": [], "structuredContent": VALUE},
    {"type": "tool_result", "content": [{"source": {"type": "text", "data": TEXT}}]},
    {"functionResponse": {"response": {}, "parts": [{"text": TEXT}]}},
    {"delta": {"toolResult": [{"text": TEXT}]}},
    {"tool_results": [{"call": {"name": "login"}, "outputs": [VALUE]}]},
    {"type": "tool", "content": "x", "tool_call_id": "1", "artifact": VALUE},
    {"type": "tool-result", "output": {"type": "text", "value": "hunter2"}},
    {"type": "function_result", "items": [{"type": "text", "text": TEXT}]},
    {"part_kind": "tool-return", "return_value": VALUE},
    {"event": "on_tool_end", "name": "login", "data": {"output": VALUE}},
    {"role": "tool", "content": {"$tuple": [{"type": "text", "text": TEXT}]}},
    {"$value": {"tag": "a.ToolMessage.v1", "data": {"content": TEXT}}},
    {"body": json.dumps({"messages": [{"role": "tool", "content": TEXT}]})},
]


def of_exchange(mask: Mask, tag: str, data: Any) -> str:
    """Return an event of ada's as a role with a mask is shown it."""
    rules = RoleDefined(sees=(RoleRule("all", ("**",)),), masks=(mask,), clearance="secret")
    check.check(rules)
    made = happened(tag, data)
    return shown(judge(rules, made.facts), bytes(made.data), KEY).decode()


@pytest.mark.parametrize("how", list(Masking))
@pytest.mark.parametrize(
    ("mask", "exchange"),
    [
        *(pytest.param(CALL, each, id=f"asked for: {name}") for name, each in ASKED.items()),
        *(pytest.param(RESULT, each, id=f"sent: {name}") for name, each in SENT.items()),
    ],
)
def test_a_mask_of_a_call_holds_in_exchanges_with_models(mask, exchange, how):
    """In requests, answers and messages; in arguments and results that are JSON, only the masked
    field is.
    """
    cuts = how is Masking.TRUNCATE
    mask = msgspec.structs.replace(mask, how=how, characters=3 if cuts else None)
    text = json.dumps(exchange)
    for tag, data in (
        ("step.requested.v1", {"step": 1, "arguments": {"body": {"messages": [exchange]}}}),
        ("step.completed.v1", {"step": 1, "result": exchange, "digest": "of hunter2"}),
        ("step.yielded.v1", {"step": 1, "index": 0, "items": [exchange]}),
        ("message.added.v1", {"role": "assistant", "content": [exchange], "fields": exchange}),
        ("checkpoint.saved.v1", {"name": "state", "data": {"messages": [exchange]}}),
        ("agent.handed_off.v1", {"to": "bob", "payload": {"history": [exchange]}}),
        ("board.put.v1", {"value": [exchange]}),
    ):
        shown_text = of_exchange(mask, tag, data)
        assert "hunter2" not in shown_text, tag
        if "ada" in text:
            assert "ada" in shown_text, tag


@pytest.mark.parametrize(("mask", "exchanges"), [(CALL, ASKED_ELSEWHERE), (RESULT, SENT_ELSEWHERE)])
def test_a_mask_of_a_call_holds_in_forms_of_other_libraries(mask, exchanges):
    """Of parts of streams, parsed answers, Python's types, and in JSON within a text's line."""
    for exchange in exchanges:
        data = {"name": "state", "data": {"messages": [exchange]}}
        assert "hunter2" not in of_exchange(mask, "checkpoint.saved.v1", data), exchange


def test_an_exchange_without_masked_values_is_shown_as_it_is():
    """Definitions of tools, texts, and calls and results that have other fields."""
    fields = {"type": "object", "properties": {"password": {"type": "string"}}}
    function = {"name": "login", "description": "Log in.", "parameters": fields}
    asked = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a {b} [c]\n"}]},
        {"role": "assistant", "content": "the answer", "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": "1", "content": '{"user":"ada","text":"kept"}'},
        {"role": "tool", "tool_call_id": "1", "content": [{"user": "ada", "groups": ["a", "b"]}]},
    ]
    tools = [{"type": "function", "function": function}, {"name": "f", "input_schema": fields}]
    body = {"model": "m", "tools": tools, "messages": messages, "metadata": {"user": "ada"}}
    data = {"name": "state", "data": body}
    for mask in (CALL, RESULT):
        assert json.loads(of_exchange(mask, "checkpoint.saved.v1", data))["data"] == body


def test_an_escaped_name_is_the_same_name():
    """The extended step and the count of a prompt stay hidden, however their bytes are written."""
    rules = RoleDefined(sees=(RoleRule("words", ("message.added",), fields=("content",)),))
    made = happened("message.added.v1", {"role": "user", "content": []})
    escaped = rb'{"content":{"\u0024append":{"step":7,"count":9,"digest":"d","items":[1]}}}'
    made_visible = json.loads(shown(judge(rules, made.facts), escaped, KEY))
    assert made_visible == {"content": {"$append": {"items": [1]}}}


def test_a_content_by_reference_is_hidden_whatever_other_masks_apply():
    """The value that masks of calls have dropped is not masked a second time."""
    hashes = Mask("words", ("message.added",), ("content.words",), how=Masking.HASH)
    rules = RoleDefined(sees=(RoleRule("all", ("**",)),), masks=(CALL, hashes), clearance="secret")
    made = happened("message.added.v1", {"role": "user", "content": {"$blob": {"size": 3}}})
    assert json.loads(shown(judge(rules, made.facts), bytes(made.data), KEY)) == {"role": "user"}


def test_a_masked_result_is_masked_in_items_and_messages():
    """A stream's items and the message that gives a result to a model are that result."""
    items = of_exchange(RESULT, "step.yielded.v1", {"step": 1, "index": 0, "items": [VALUE]})
    assert json.loads(items)["items"] == [{"user": "ada"}]
    sent = {"role": "tool", "content": TEXT, "fields": {"tool_call_id": "1"}}
    message = json.loads(of_exchange(RESULT, "message.added.v1", sent))
    assert json.loads(message["content"]) == {"user": "ada"}
    said = {"role": "user", "content": TEXT}
    assert json.loads(of_exchange(RESULT, "message.added.v1", said)) == said
    whole = msgspec.structs.replace(RESULT, fields=("result",))
    assert "content" not in json.loads(of_exchange(whole, "message.added.v1", sent))


def test_a_hash_of_a_call_is_the_same_in_the_exchange():
    """Equal arguments have equal hashes, in the request of a model and in the call."""
    mask = msgspec.structs.replace(CALL, how=Masking.HASH)
    call = json.loads(of_exchange(mask, "step.requested.v1", {"step": 1, "arguments": VALUE}))
    answer = {"step": 2, "result": ASKED["chat"]}
    [asked] = json.loads(of_exchange(mask, "step.completed.v1", answer))["result"]["tool_calls"]
    assert json.loads(asked["function"]["arguments"]) == call["arguments"]


def test_arguments_that_only_look_like_a_call_stay():
    """A tool's own arguments are masked by their path alone."""
    plain = {"name": "ada", "input": "text", "content": "text", "args": "text"}
    made = of_exchange(CALL, "step.requested.v1", {"step": 1, "arguments": plain})
    assert json.loads(made) == {"step": 1, "arguments": plain}


ABOUT_CALLS = [tag for tag in kinds_of(CALLS) if holds_values(tag, "error")]


@pytest.mark.parametrize("path", ["error", "*", "error.cause", "error.exceptions"])
@pytest.mark.parametrize("kind", ABOUT_CALLS)
def test_a_mask_of_errors_holds_in_every_kind_with_them(kind, path):
    """An error's type leads back to itself: its cause is an error, too."""
    cause = {"type": "F", "message": "secret"}
    error = {"type": "E", "message": "m", "cause": cause, "exceptions": [cause]}
    left = 1 if "." in path else 0
    for tag in ABOUT_CALLS:
        seen = of_exchange(Mask("errors", (kind,), (path,)), tag, {"error": error})
        assert seen.count("secret") == left, (tag, seen)


def test_what_masks_of_calls_do_not_cover_is_listed():
    """Fields that the role sees, and that no mask hides as a whole; none without such a mask."""
    sees = (RoleRule("r", ("step.*", "board.put", "message.added"), fields=None),)
    rules = RoleDefined(sees=sees, masks=(CALL,))
    calls = [
        "step.completed: result",
        "step.requested: arguments",
        "step.settled: result",
        "step.yielded: items",
    ]
    errors = [f"step.{tag}: error" for tag in ("attempted", "failed", "in_doubt")]
    others = ["board.put: value", "message.added: content, fields"]
    assert check.uncovered(rules) == sorted([*others, *calls, *errors])
    more = (
        Mask("errors", ("step.failed",), ("error",)),  # holds in all kinds with it
        Mask("values", ("board.*",), ("value",)),
        Mask("calls", ("step.*",), ("arguments", "result", "items")),
    )
    rules = RoleDefined(sees=sees, masks=(CALL, *more))
    assert check.uncovered(rules) == ["message.added: content, fields"]
    of_one = Mask("calls", ("step.*",), ("arguments", "result", "items"), roles=("writer",))
    rules = RoleDefined(sees=sees, masks=(CALL, *more[:2], of_one))
    assert check.uncovered(rules) == ["message.added: content, fields", *calls]
    assert check.uncovered(RoleDefined(sees=sees)) == []


def test_explain_names_fields_that_may_repeat_a_masked_value():
    """The arguments of another call, too, as long as no mask hides them as a whole."""
    rules = RoleDefined(sees=(RoleRule("all", ("**",)),), masks=(CALL,))
    event = msgspec.structs.replace(
        happened("step.requested.v1", {}).facts, fields=("step", "arguments")
    )
    line = "not masked as a whole, and may repeat a masked value: arguments"
    assert line in explain(rules, event)
    whole = Mask("whole", ("step.requested",), ("arguments",))
    assert line not in explain(RoleDefined(sees=rules.sees, masks=(CALL, whole)), event)
