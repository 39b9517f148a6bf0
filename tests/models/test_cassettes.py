"""All recorded exchanges of the real data: sent by the real SDKs, recorded, replayed offline."""

from __future__ import annotations

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

import hansard
from hansard.ext.models.proxy import ModelProxy, base_urls
from tests.late import LATE
from tests.models.cassettes import Recorded, RecordedProvider, recorded

if LATE:
    import openai

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning"),  # of google-genai
]

KEY = "sk-a-key-of-the-test-0123456789abcdef"

EXPECTED = {
    "openai.chat.completions": 116,
    "openai.responses": 41,
    "openai.embeddings": 15,
    "cerebras.chat.completions": 4,
    "google.chat.completions": 2,
    "google.generate_content": 2,
}
"""Exchanges of the real data, by operation."""


class Clients:
    """The SDKs' clients that reach a proxy by its base URLs."""

    def __init__(self, proxy: str) -> None:
        urls = base_urls(proxy)
        from google import genai  # noqa: PLC0415 -- takes seconds

        bases = {
            "openai": urls["OPENAI_BASE_URL"] + "/v1",
            "cerebras": urls["CEREBRAS_BASE_URL"] + "/v1",
            "google": urls["GOOGLE_GEMINI_BASE_URL"] + "/v1beta/openai",
        }
        self._openai = {
            name: openai.AsyncOpenAI(api_key=KEY, base_url=base, max_retries=0)
            for name, base in bases.items()
        }
        self._google = genai.Client(
            api_key=KEY, http_options={"base_url": urls["GOOGLE_GEMINI_BASE_URL"]}
        )

    async def send(self, exchange: Recorded) -> Any:
        """Send a recorded request; return the answer, the chunks of one, or an error's text."""
        kind = exchange.operation.kind
        if kind == "generate_content":
            answer = await self._google.aio.models.generate_content(
                model=exchange.operation.model, contents=exchange.request["contents"]
            )
            return answer.model_dump(exclude={"sdk_http_response"})
        client = self._openai[exchange.provider]
        create: Any = {
            "chat.completions": client.chat.completions.create,
            "responses": client.responses.create,
            "embeddings": client.embeddings.create,
        }[kind]
        try:
            answer = await create(**exchange.request)
            if not exchange.request.get("stream"):
                return answer.to_dict(warnings=False)
            return [chunk.to_dict(warnings=False) async for chunk in answer]
        except openai.APIStatusError as error:
            return error.status_code, str(error)

    async def aclose(self) -> None:
        """Close the clients."""
        await self._google.aio.aclose()
        for each in self._openai.values():
            await each.close()


async def _sent(
    record: Any, exchanges: Iterable[Recorded], provider: RecordedProvider, **options: Any
) -> tuple[list[Any], ModelProxy]:
    """Send the exchanges through a proxy; return the answers, and the proxy."""
    answers = []
    upstreams = dict.fromkeys(("openai", "cerebras", "google"), f"{provider.url}")
    async with record.run("cassettes", agent="models", **options) as session:
        proxy = ModelProxy(session, upstreams)
        async with proxy.serving() as url, contextlib.aclosing(Clients(url)) as clients:
            for exchange in exchanges:
                provider.next = exchange
                answers.append(await clients.send(exchange))
    return answers, proxy


def _usage(exchange: Recorded) -> dict[str, int]:
    """Return the tokens that a recorded response states, read without the code under test."""
    counts: dict[str, int] = {}
    names = {
        "prompt_tokens": "input_tokens", "input_tokens": "input_tokens",
        "promptTokenCount": "input_tokens", "completion_tokens": "output_tokens",
        "output_tokens": "output_tokens", "candidatesTokenCount": "output_tokens",
    }  # fmt: skip
    lines = exchange.text.splitlines() if exchange.is_stream else [f"data: {exchange.text}"]
    for line in lines:
        if not line.startswith("data: {"):
            continue
        value = json.loads(line.removeprefix("data: "))
        value = value.get("response", value)
        used = value.get("usage") or value.get("usageMetadata") or {}
        if exchange.operation.kind == "embeddings":
            used.pop("total_tokens", None)
        for name, count in used.items():
            if name in names:
                counts[names[name]] = count
        for name in ("prompt_tokens_details", "input_tokens_details"):
            if cached := (used.get(name) or {}).get("cached_tokens"):
                counts["cached_tokens"] = cached
    return counts


@pytest.mark.parametrize(
    "every",
    [
        4,
        pytest.param(1, marks=pytest.mark.thorough(quick="test_recorded_exchanges_replay_offline")),
    ],
)
async def test_recorded_exchanges_replay_offline(real_data, tmp_path, every):
    """The SDKs' answers replay equal with the provider gone; tokens in SQL are the recorded ones;
    no stored byte has the key. In `make check` this is shown for one exchange in four.
    """
    exchanges = list(recorded(real_data / "llm-cassettes"))
    assert Counter(each.operation.name for each in exchanges) == EXPECTED
    exchanges = exchanges[::every]
    counts = Counter(each.operation.name for each in exchanges)
    assert len(counts) >= 4
    provider = RecordedProvider()
    async with hansard.connect_async("w", data_dir=tmp_path) as record:
        first, proxy = await _sent(record, exchanges, provider, run="r")
        assert proxy.report.refused == []
        assert len(provider.calls) == len(exchanges)
        assert [call for _, call in provider.calls[:3]] == [each.request for each in exchanges[:3]]
        provider.stop()
        again, offline = await _sent(record, exchanges, provider, run="r", mode="offline")
        assert again == first
        assert offline.report.refused == []
        assert offline.report.from_record == len(exchanges)

        expected: dict[str, Counter[str]] = defaultdict(Counter)
        for each in exchanges:
            expected[each.operation.name].update(_usage(each))
        answer = await record.sql(
            "SELECT concat(provider, '.', operation), count(*), sum(input_tokens), "
            "sum(output_tokens), sum(cached_tokens), count(*) FILTER (http_status <> 200), "
            "count(*) FILTER (error IS NOT NULL), count(*) FILTER (problem IS NOT NULL), "
            "count(*) FILTER (ended = 'complete') FROM model_calls GROUP BY ALL"
        )
        rows = {row[0]: row[1:] for row in answer.rows}
        assert {name: row[0] for name, row in rows.items()} == counts
        for name, row in rows.items():
            tokens = [expected[name][each] for each in ("input_tokens", "output_tokens")]
            assert [row[1], row[2] or 0] == tokens, name
            assert (row[3] or 0) == expected[name]["cached_tokens"], name
        failed = sum(each.status != 200 for each in exchanges)
        assert failed == sum(row[4] for row in rows.values())
        assert failed == sum(row[5] for row in rows.values())
        assert sum(row[6] for row in rows.values()) == 0
        assert sum(row[7] for row in rows.values()) == len(exchanges)
        messages = await record.sql(
            "SELECT message_role, count(*) FROM messages GROUP BY ALL ORDER BY ALL"
        )
        assert {"assistant", "system", "tool", "user"} <= {row[0] for row in messages.rows}
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file
