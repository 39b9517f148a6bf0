"""Runs out as `gen_ai` spans: to a collector, twice, to one that fails, and in again."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import hansard
from hansard import testing
from hansard.domain.errors import BadValue
from hansard.ext.otel import export
from hansard.ext.otel.observed import run_of_trace
from hansard.ext.otel.spans import from_json
from tests.cli.support import ran
from tests.otel.conftest import Door

pytestmark = pytest.mark.later

SECRET = "sk-of-the-collector"


class Collector(BaseHTTPRequestHandler):
    """A collector that keeps requests, and answers as its list of statuses says."""

    received: list[tuple[dict[str, str], bytes]]
    answers: list[tuple[int, bytes]]

    def do_POST(self) -> None:
        """Keep a request."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.received.append(
            ({k.lower(): v for k, v in self.headers.items()}, gzip.decompress(body))
        )
        status, answer = self.answers.pop(0) if self.answers else (200, b"{}")
        self.send_response(status)
        if status == 302:
            self.send_header("location", "http://127.0.0.1:1/")
        self.send_header("retry-after", "0")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def collector(*answers: tuple[int, bytes]) -> Iterator[tuple[str, type[Collector]]]:
    """Run a collector; yield its URL and what it received."""

    class Own(Collector):
        received: list[tuple[dict[str, str], bytes]] = []

    Own.answers = list(answers)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", Own
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def a_run(record: hansard.AsyncRecord) -> str:
    """Record a run with nested, failed, blocked and model calls."""
    async with record.run("order", agent="buyer", role="clerk") as session:

        @session.tool(kind="model", effects="idempotent", name="openai.chat.completions")
        async def complete(model: str, messages: list[dict[str, str]]) -> dict[str, Any]:
            session.usage(input_tokens=12, output_tokens=5, cached_tokens=4, reasoning_tokens=2)
            return {"choices": [{"message": {"role": "assistant", "content": f"{messages}"}}]}

        @session.tool(effects="once")
        async def pay(amount: int) -> str:
            return f"paid {amount}"

        @session.tool(effects="composite")
        async def order(amount: int) -> str:
            return await pay(amount)

        @session.tool(effects="pure", raises=(ValueError,))
        async def fail() -> None:
            raise ValueError("no stock")

        await complete("gpt-5", [{"role": "user", "content": "buy"}])
        await order(3)
        with pytest.raises(ValueError, match="no stock"):
            await fail()
        return session.run


@pytest.fixture
async def memory() -> AsyncIterator[hansard.AsyncRecord]:
    """Yield a record in memory."""
    async with testing.record_async() as made:
        yield made


async def test_a_run_is_sent_as_spans_and_twice_as_the_same(memory: hansard.AsyncRecord):
    """One span a run, agent and step, nested, with tokens and errors; the second adds none."""
    run = await a_run(memory)
    workspace = memory.workspace
    with collector() as (url, own):
        header = {"authorization": f"Bearer {SECRET}"}
        sent = [await export.send(workspace, run, url, header) for _ in range(2)]
        [(headers, first), (_, second)] = own.received
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert first == second
    spans = {
        span.attributes.get("hansard.step", span.name): span for span in from_json(first).spans
    }
    assert sent == [export.Sent(run, export.trace_of(run), len(spans))] * 2
    assert len(spans) == 6
    model, outer, inner, failed = (spans[number] for number in (1, 2, 3, 4))
    root, agent = spans["invoke_agent order"], spans["invoke_agent buyer"]
    assert [each.parent for each in (root, agent, model, outer, inner, failed)] == [
        *("", root.id, agent.id, agent.id, outer.id, agent.id)
    ]
    assert model.name == "chat gpt-5"
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }
    assert {name: model.attributes[name] for name in expected} == expected
    given = json.loads(model.attributes["gen_ai.input.messages"])
    assert given == [{"role": "user", "parts": [{"type": "text", "content": "buy"}]}]
    assert inner.attributes["gen_ai.tool.call.result"] == '"paid 3"'
    assert (failed.failed, failed.message) == (True, "no stock")
    assert failed.attributes["error.type"].endswith("ValueError")
    assert int(root.started_ns) <= int(model.started_ns) <= int(model.ended_ns)


async def test_a_span_of_a_call_that_is_sent_again_begins_with_its_last_attempt(
    memory: hansard.AsyncRecord,
):
    """The time in which no process was at work is no part of it."""

    async def program(*, is_stopped: bool) -> None:
        async with memory.run("w", run="r", agent="a") as session:

            @session.tool(effects="idempotent")
            async def look() -> str:
                if is_stopped:
                    raise asyncio.CancelledError
                return "ok"

            await look()

    with pytest.raises(asyncio.CancelledError):
        await program(is_stopped=True)
    await asyncio.sleep(0.5)
    await program(is_stopped=False)
    [span] = [
        each
        async for each in export.spans_of(memory.workspace, "r")
        if "hansard.step" in each.attributes
    ]
    assert 0 <= int(span.ended_ns) - int(span.started_ns) < 400_000_000
    assert span.attributes["hansard.attempt"] == 2


async def test_a_recorded_run_comes_in_again_with_equal_calls(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """`hansard export RUN --otlp URL` to another listener: each call is the same, observed."""
    run = await a_run(door.record)
    command = [*door.place, "export", run, "--otlp", door.url]
    for _ in range(2):
        result = await asyncio.to_thread(ran, capsys, monkeypatch, command)
        assert (result.code, "6 spans as trace" in result.err) == (0, True), result.err
    back = await door.ended(run_of_trace(export.trace_of(run)))
    columns = (
        "agent, role, step, tool, kind, effects, status, arguments, result, error, "
        "input_tokens, output_tokens, "
        "CAST(usage->'cached_tokens' AS DOUBLE), CAST(usage->'reasoning_tokens' AS DOUBLE), "
        "replace(error_type, 'builtins.', '') AS error_type"
    )
    own, again = [
        await door.rows(f"SELECT {columns} FROM steps WHERE run = '{name}' ORDER BY step")
        for name in (run, back)
    ]
    assert len(own) == 4
    assert again == own
    flags = await door.rows("SELECT run, observed FROM runs")
    assert dict(flags) == {run: False, back: True}


async def test_without_content_no_argument_result_or_message_is_sent(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """`--no-content` leaves names, models, tokens and times; `-` writes instead of sending."""
    run = await a_run(door.record)
    command = [*door.place, "export", run, "--otlp", "-", "--no-content"]
    result = await asyncio.to_thread(ran, capsys, monkeypatch, command)
    assert "gen_ai.usage.input_tokens" in result.out
    for content in ("paid", 'buy"', "gen_ai.input.messages", "hansard.arguments"):
        assert content not in result.out, content


@pytest.mark.parametrize(
    ("answers", "requests", "words"),
    [
        ([(503, b""), (429, b"")], 3, ""),
        ([(400, b"bad span")], 1, "HTTP 400 (bad span)"),
        ([(302, b"")], 1, "HTTP 302"),
        ([(503, b"")] * 9, export.TRIES_MAX, "after 5 tries: HTTP 503"),
        (
            [(200, b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "why"}}')],
            1,
            "2 spans: why",
        ),
    ],
)
async def test_a_collector_that_does_not_accept_spans_is_named_with_its_reason(
    memory: hansard.AsyncRecord, answers: list[tuple[int, bytes]], requests: int, words: str
):
    """Only statuses of the protocol are tried again, a bounded number of times."""
    run = await a_run(memory)
    with collector(*answers) as (url, own):
        if words:
            with pytest.raises(export.NotSent) as error:
                await export.send(memory.workspace, run, url)
            assert words in str(error.value)
        else:
            await export.send(memory.workspace, run, url)
        assert len(own.received) == requests


def test_an_address_that_is_none_is_refused():
    """The remedy is in the message; a path of one's own is kept."""
    with pytest.raises(BadValue, match="http://HOST:4318"):
        export.endpoint("localhost:4318")
    assert export.endpoint("http://h:4318/") == "http://h:4318/v1/traces"
    assert export.endpoint("https://h/otel/v1/traces") == "https://h/otel/v1/traces"
