"""Replies of real models, as the SDKs of openai and anthropic make objects of them."""

import collections
import json
from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any

import pytest
import yaml

from hansard import testing
from hansard.domain import values
from tests.conftest import THOROUGH

pytestmark = pytest.mark.real

KINDS = {
    "chat": ("openai", "openai.types.chat:ChatCompletion"),
    "responses": ("openai", "openai.types.responses:Response"),
    "messages": ("anthropic", "anthropic.types:Message"),
}
"""SDK and class of each kind; they are imported by the test, since that takes seconds."""

BY_HAND = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "model": "by-hand",
    "stop_reason": "tool_use",
    "content": [
        {"type": "text", "text": "hi"},
        {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": 1}},
        {"type": "of_a_newer_version", "what": {"x": [1]}},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 2, "more": None},
}
"""A reply of the messages API, written by hand: the recordings have none."""


def memory() -> Any:
    """Return a record in memory."""
    return testing.record()


def _replies(folder: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON replies of recorded requests, errors included, each with its kind."""
    yield "messages", BY_HAND
    for path in sorted(folder.rglob("*.yaml")):
        for each in yaml.load(path.read_text(), yaml.CSafeLoader)["interactions"]:
            last = str(each["request"].get("uri", "")).partition("?")[0].rpartition("/")[2]
            kind = {"completions": "chat"}.get(last, last)
            body = each["response"].get("parsed_body") or each["response"].get("body") or {}
            body = body.get("string", body) if isinstance(body, dict) else body
            try:
                reply = json.loads(body) if isinstance(body, str | bytes) else body
            except ValueError:  # a stream, or packed
                continue
            if isinstance(reply, dict) and kind in KINDS:
                yield kind, reply


def _made(kind: str, reply: dict[str, Any]) -> Any:
    """Build the reply object that the SDK's client would build."""
    sdk, name = KINDS[kind]
    made = resolve_name(f"{sdk}._models").construct_type(type_=resolve_name(name), value=reply)
    made._request_id = "req_1"
    return made


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of unknown parts
def test_an_sdk_s_reply_comes_back_as_it_was(real_data):
    """Each SDK reply replays as the same object, without a second request.

    In `make check` these are openai's responses and one chat in four, which are quicker to import.
    """
    found = list(_replies(real_data / "llm-cassettes" / "dev"))
    of = {name: [each for each in found if each[0] == name] for name in KINDS}
    chosen = found if THOROUGH else of["chat"][::4] + of["responses"]
    replies = [(kind, _made(kind, reply)) for kind, reply in chosen]
    kinds = {kind: KINDS[kind] for kind, _ in replies}
    requested = []
    with memory() as record:
        for options in ({}, {"mode": "strict"}):
            with record.run(None if options else "w", run="r", **options) as session:
                tools = {}
                for kind, (_, class_name) in kinds.items():
                    cls = resolve_name(class_name)
                    for returns in (cls, Any):

                        def ask(number):  # annotated below
                            requested.append(number)
                            return replies[number][1]

                        ask.__annotations__["return"] = returns
                        name = f"{kind}.{'model' if returns is cls else 'any'}"
                        tools[name] = session.tool(effects="once", kind="model", name=name)(ask)
                for number, (kind, original) in enumerate(replies):
                    for how in ("model", "any"):
                        back = tools[f"{kind}.{how}"](number)
                        assert values.same(back, original)
                        assert back.to_dict() == original.to_dict()
                        assert back._request_id == "req_1"
    assert len(requested) == 2 * len(replies)
    assert len(kinds) == (3 if THOROUGH else 2)
    count = collections.Counter(kind for kind, _ in found)
    assert count["chat"] > 50
    assert count["responses"] >= 5
