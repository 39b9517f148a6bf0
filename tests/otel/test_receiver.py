"""OTLP/HTTP in: forms, retries, late spans, what is refused, and the runs that follow."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import zlib
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
import pytest

import hansard
from hansard import settings
from hansard.client.listening import Address
from hansard.client.opening import find_broker
from hansard.domain.errors import Refused
from hansard.ext.otel import receiver, record
from hansard.ext.otel.observed import run_of_trace
from hansard.ext.otel.spans import from_json, from_protobuf
from hansard.service.http.app import listening
from tests.cli.support import ran
from tests.cli.test_up import up
from tests.faults._warm import python
from tests.otel.conftest import Door

pytestmark = pytest.mark.later

TRACE = "5b8efff798038103d269b633813fc60c"
START_NS = 1_700_000_000_000_000_000


def value(plain: Any) -> dict[str, Any]:
    """Return a value in OTLP's JSON."""
    match plain:
        case bool():
            return {"boolValue": plain}
        case int():
            return {"intValue": str(plain)}
        case float():
            return {"doubleValue": plain}
        case list():
            return {"arrayValue": {"values": [value(each) for each in plain]}}
        case dict():
            pairs = [{"key": key, "value": value(each)} for key, each in plain.items()]
            return {"kvlistValue": {"values": pairs}}
        case _:
            return {"stringValue": plain}


def span(number: int, name: str, parent: int = 0, **more: Any) -> dict[str, Any]:
    """Return a span in OTLP's JSON; its number gives its id and times."""
    attributes = more.pop("attributes", {})
    return {
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": name,
        "startTimeUnixNano": str(START_NS + number * 1_000_000_000),
        "endTimeUnixNano": str(START_NS + (number + 1) * 1_000_000_000),
        "attributes": [{"key": key, "value": value(each)} for key, each in attributes.items()],
        **more,
    }


def request(*spans: dict[str, Any]) -> dict[str, Any]:
    """Return an export request."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    scope = {"scope": {"name": "test"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


ROOT = span(
    1,
    "invoke_agent buyer",
    attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "buyer"},
)
MODEL = span(
    2,
    "chat gpt-5",
    1,
    attributes={
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.input.messages": json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": "buy"}]}]
        ),
        "gen_ai.output.messages": json.dumps(
            [
                {
                    "role": "assistant",
                    "parts": [
                        {"type": "tool_call", "id": "c1", "name": "pay", "arguments": {"sum": 3}}
                    ],
                }
            ]
        ),
    },
)
TOOL = span(
    3,
    "execute_tool pay",
    1,
    attributes={
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "pay",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": {"sum": 3},
        "gen_ai.tool.call.result": "paid",
    },
)
FAILED = span(
    4,
    "execute_tool ship",
    1,
    status={"code": 2, "message": "no stock"},
    attributes={
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "ship",
        "error.type": "OutOfStock",
    },
)


async def run_of(door: Door, part: int = 1) -> str:
    """Wait for the run of the trace."""
    return await door.ended(run_of_trace(TRACE, part))


async def test_spans_become_an_observed_run(door: Door):
    """Calls are steps with tokens, errors and times; the messages are the agent's."""
    answer = await door.post(request(MODEL, TOOL, FAILED, ROOT))
    assert (answer.status_code, answer.json()) == (200, {})
    run = await run_of(door)
    assert await door.rows(
        "SELECT agent, step, kind, tool, status, error_type, input_tokens, output_tokens, "
        "duration_ms FROM steps ORDER BY step"
    ) == [
        ("buyer", 1, "model", "openai.chat", "completed", None, 12.0, 5.0, 1000.0),
        ("buyer", 2, "tool", "pay", "completed", None, None, None, 1000.0),
        ("buyer", 3, "tool", "ship", "failed", "OutOfStock", None, None, 1000.0),
    ]
    assert await door.rows("SELECT message_role, text FROM messages ORDER BY version") == [
        ("user", "buy"),
        ("assistant", ""),
    ]
    assert await door.rows(
        "SELECT workflow, labels->>'source', labels->>'service', observed FROM runs "
        f"WHERE run = '{run}'"
    ) == [("buyer", "otlp", "shop", True)]
    assert await door.rows("SELECT model, input_tokens, cached_tokens FROM model_calls") == [
        ("gpt-5", 12, 4)
    ]


async def test_a_span_that_is_sent_again_counts_once(door: Door):
    """Retries of an exporter, also while the first is under way, add nothing."""
    await asyncio.gather(*(door.post(request(MODEL, TOOL, ROOT)) for _ in range(4)))
    await run_of(door)
    assert (await door.post(request(TOOL))).json() == {}
    await asyncio.sleep(0.3)
    assert await door.rows("SELECT count(*) FROM spans") == [(3,)]
    assert await door.rows("SELECT count(*) FROM steps") == [(2,)]
    assert await door.rows("SELECT count(*) FROM runs") == [(1,)]


async def test_spans_in_any_order_give_one_run_and_late_ones_its_next_part(door: Door):
    """The order of arrival does not matter; a span after the run is in the trace's next run."""
    for each in (TOOL, ROOT, MODEL):
        await door.post(request(each))
    await run_of(door)
    assert await door.rows("SELECT tool FROM steps ORDER BY step") == [("openai.chat",), ("pay",)]
    await door.post(request(FAILED))
    later = await run_of(door, 2)
    assert await door.rows(f"SELECT tool FROM steps WHERE run = '{later}'") == [("ship",)]
    assert await door.rows("SELECT spans, waiting, parts, len(runs) FROM traces") == [(4, 0, 2, 2)]


async def test_compressed_and_protobuf_requests_give_the_same_spans(door: Door):
    """JSON, gzip, deflate and protobuf are four forms of one request."""
    from google.protobuf import json_format  # noqa: PLC0415 -- slow to import
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as proto  # noqa: PLC0415 -- slow to import

    raw = json.dumps(request(MODEL, TOOL)).encode()
    packed = proto.ExportTraceServiceRequest()
    for_proto = request(MODEL, TOOL)
    for group in for_proto["resourceSpans"]:
        for each in group["scopeSpans"][0]["spans"]:
            for name in ("traceId", "spanId", "parentSpanId"):
                each[name] = base64.b64encode(bytes.fromhex(each[name])).decode()
    json_format.ParseDict(for_proto, packed)
    protobuf = packed.SerializeToString()
    await door.post(raw)
    rows = await door.rows("SELECT * EXCLUDE (position, arrived_at) FROM spans ORDER BY span")
    for body, headers in (
        (gzip.compress(raw), {"content_encoding": "gzip"}),
        (zlib.compress(raw), {"content_encoding": "deflate"}),
        (protobuf, {"content_type": "application/x-protobuf"}),
        (
            gzip.compress(protobuf),
            {"content_type": "application/x-protobuf", "content_encoding": "gzip"},
        ),
    ):
        answer = await door.post(body, **headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == headers.get("content_type", "application/json")
    assert await door.rows("SELECT count(*) FROM spans") == [(2,)]
    assert from_protobuf(protobuf, logs=False).spans == from_json(raw).spans
    assert len(rows) == 2


async def test_refused_spans_are_counted_and_the_rest_is_kept(door: Door):
    """A malformed span is a partial success; a request that is none is 400 with the reason."""
    zero = {**TOOL, "spanId": "0" * 16}
    words = {**TOOL, "traceId": "not hexadecimal"}
    late = {**TOOL, "startTimeUnixNano": "yesterday"}
    answer = (await door.post(request(zero, MODEL, words, late))).json()["partialSuccess"]
    assert answer["rejectedSpans"] == "3"
    assert "spanId '0000000000000000' is not hexadecimal" in answer["errorMessage"]
    assert await door.rows("SELECT name FROM spans") == [("chat gpt-5",)]
    for body, headers, status, fact in (
        (b"{", {}, 400, "no OTLP request"),
        (b"[" * 100_000, {}, 400, "no OTLP request"),
        (b"\xff\xfe", {}, 400, "no OTLP request"),
        (b"{}", {"content_type": "text/plain"}, 415, "application/x-protobuf"),
        (b"{}", {"content_encoding": "br"}, 400, "send gzip, deflate or none"),
        (b"{}", {"content_encoding": "gzip"}, 400, "not valid gzip"),
        (gzip.compress(b"{}" * 99)[:-9], {"content_encoding": "gzip"}, 400, "cut off"),
        (b"\xff\xff\xff", {"content_type": "application/x-protobuf"}, 400, "no Export"),
    ):
        answer = await door.post(body, **headers)
        assert (answer.status_code, fact in answer.text) == (status, True), answer.text
    assert (await door.post(b"{}")).json() == {}


async def test_hostile_values_are_kept_or_refused_but_never_break_the_door(
    door: Door, monkeypatch: pytest.MonkeyPatch
):
    """Deep, huge, and special values; a bomb of compressed zeros."""
    deep: dict[str, Any] = {"stringValue": "x"}
    for _ in range(200):
        deep = {"arrayValue": {"values": [deep]}}
    odd = span(
        7,
        "odd\x00name",
        1,
        attributes={
            "$blob": "no reference",
            "nested": {"$blob": {"sha256": "0" * 64, "size": 1}},
            "big": 2**63,
            "large": "x" * 300_000,
            "lone": 1e308,
        },
    )
    odd["attributes"].append({"key": "deep", "value": deep})
    odd["attributes"].append({"key": "none"})
    odd["attributes"].append({"key": "nan", "value": {"doubleValue": "NaN"}})
    answer = await door.post(request(odd, ROOT))
    assert answer.status_code == 200, answer.text
    await asyncio.sleep(0.3)
    assert await door.rows("SELECT count(*) FROM spans") == [
        (2 - ("partialSuccess" in answer.json()),)
    ]
    monkeypatch.setattr(receiver, "UNPACKED_BYTES_MAX", 1_000_000)
    bomb = gzip.compress(b" " * 2_000_000)
    refused = await door.post(bomb, content_encoding="gzip")
    assert (refused.status_code, "1,000,000 bytes unpacked" in refused.text) == (400, True)


async def test_a_span_with_many_and_with_large_values_is_kept_whole(door: Door):
    """Whatever its attributes, events and resource sum up to, it is one event, read as it was."""
    sizes = {"few": 1, "middle": 40, "many": 3_000}
    for number, (name, count) in enumerate(sizes.items(), 2):
        attributes: dict[str, Any] = {
            f"{name} {each}": "x" * 4_000 for each in range(min(count, 400))
        }
        attributes |= {f"{name} {each}": each for each in range(400, count)}
        event = {"name": "e", "attributes": [{"key": "k", "value": value("y" * 150_000)}]}
        big = span(number, name, 1, attributes=attributes, events=[event] * min(count, 3))
        answer = await door.post(request(big))
        assert answer.json() == {}, answer.text
    stored = {
        each.name: each for each in (await record.read_trace(door.record.workspace, TRACE)).spans
    }
    for name, count in sizes.items():
        assert len(stored[name].attributes) == count
        assert len(stored[name].events) == min(count, 3)
        assert stored[name].resource == {"service.name": "shop"}


async def test_secrets_are_replaced_in_spans_and_runs(
    broker_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    """A secret of the settings is in no stored byte, also where it is in a large text."""
    secret = "sk-" + "s3cr3t" * 4
    monkeypatch.setenv("THE_KEY", secret)
    config = settings.load(
        workspace=f"lab-{uuid4().hex[:12]}", data_dir=broker_dir, redact="the_key=THE_KEY"
    )
    broker = await find_broker(config)
    small = span(3, "small", 1, attributes={"gen_ai.tool.name": "t", "header": f"Bearer {secret}"})
    large = span(4, "large", 1, attributes={"text": "x" * 100_000 + secret})
    async with (
        listening(config, broker, Address("127.0.0.1", 0)) as url,
        httpx2.AsyncClient(base_url=url) as http,
    ):
        body = json.dumps(request(small, large, ROOT)).encode()
        answer = await http.post(
            "/v1/traces", content=body, headers={"content-type": "application/json"}
        )
        assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"
        assert "too large to replace it" in answer.text
    async with hansard.connect_async(config.workspace, data_dir=broker_dir) as opened:
        assert len(await opened.runs()) == 1
        head = await opened.workspace.log.head()
        history = opened.workspace.log.follow(0, until=head)
        stored = [msgspec.json.encode(each.commit) async for each in history]
    assert stored
    assert not [each for each in stored if secret.encode() in each]
    await broker.release()


async def test_log_records_of_a_span_are_its_messages(door: Door):
    """Messages as log records (the conventions up to 1.36) belong to the span that they name."""
    old = span(
        2,
        "chat old",
        1,
        attributes={
            "gen_ai.system": "openai",
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "old",
        },
    )
    ids = {"traceId": TRACE, "spanId": old["spanId"]}
    records = [
        {**ids, "eventName": "gen_ai.user.message", "body": value({"content": "hi"})},
        {
            **ids,
            "eventName": "gen_ai.choice",
            "body": value({"index": 0, "finish_reason": "stop", "message": {"content": "hello"}}),
        },
        {"eventName": "other"},
    ]
    answer = await door.post(
        {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}, "/v1/logs"
    )
    assert answer.json()["partialSuccess"]["rejectedLogRecords"] == "1"
    await door.post(request(old, ROOT))
    await run_of(door)
    [(arguments, result)] = await door.rows("SELECT arguments, result FROM steps")
    assert json.loads(arguments)["messages"] == [{"role": "user", "content": "hi"}]
    assert json.loads(result)["messages"] == [{"role": "assistant", "content": "hello"}]


async def test_an_observed_run_is_neither_resumed_nor_replayed(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Commands and sessions refuse in words that say why; the page and `run show` name it. A call
    that failed leaves no doubt to settle.
    """
    await door.post(request(MODEL, TOOL, FAILED, ROOT))
    run = await run_of(door)
    for mode in (None, "strict", "offline"):
        with pytest.raises(Refused, match="observed from outside"):
            async with door.record.run(run=run, agent="buyer", role="assistant", mode=mode):
                pass

    def refused(*arguments: str) -> bool:
        result = ran(capsys, monkeypatch, [*door.place, *arguments])
        return result.code == 2 and "neither resumed nor replayed" in result.err

    for command in (
        ("run", "replay", run),
        ("run", "replay", run, "--", "true"),
        ("run", "resume", run),
        ("run", "resume", run, "--", "true"),
        ("run", "fork", run),
        ("replay", run, "--", "true"),
        ("run", "settle", run, "buyer#3", "--did-not-happen"),
        ("run", "finish", run),
        ("run", "finish", run, "--failed", "no stock"),
        ("run", "cancel", run),
        ("run", "reopen", run, "task"),
    ):
        assert await asyncio.to_thread(refused, *command), command
    shown = await asyncio.to_thread(ran, capsys, monkeypatch, [*door.place, "run", "show", run])
    assert "observed" in shown.out
    assert "doubt" not in shown.out
    listing = [*door.place, "runs", "--json"]
    listed = await asyncio.to_thread(ran, capsys, monkeypatch, listing)
    first = json.loads(listed.out.splitlines()[0])
    assert (first["run"], first["failed_steps"], first["in_doubt_steps"]) == (run, 1, 0)
    audited = await asyncio.to_thread(ran, capsys, monkeypatch, [*door.place, "audit"])
    assert run[:8] not in audited.out
    assert not await door.rows("FROM orphan_intents")


async def test_a_trace_that_waits_becomes_a_run_after_a_restart(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """What an earlier process left: spans that are no run, and a run that was only decided."""
    other = json.loads(json.dumps(request(MODEL, ROOT)).replace(TRACE, "c" * 32))
    read = from_json(json.dumps(request(MODEL, TOOL)).encode())
    await record.record_spans(door.record.workspace, read.spans)
    await record._decided(door.record.workspace, TRACE)  # as if it was killed before the run
    await record.record_spans(door.record.workspace, from_json(json.dumps(other).encode()).spans)
    assert await door.rows("SELECT waiting, parts FROM traces ORDER BY trace") == [(2, 1), (2, 0)]
    assert await door.rows("SELECT run FROM runs") == []
    settled = await asyncio.to_thread(
        ran, capsys, monkeypatch, [*door.place, "otel", "settle", "--json"]
    )
    assert settled.code == 0
    runs = {run_of_trace(TRACE), run_of_trace("c" * 32)}
    assert {run for (run,) in await door.rows("SELECT run FROM runs")} == runs
    assert await door.rows("SELECT sum(waiting) FROM traces") == [(0,)]
    assert await door.record.noun(record.Traces).settle() == []


async def test_traces_that_wait_become_runs_when_the_listener_ends(
    broker_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    """A clean end does what waits, so that a restart has nothing left to do."""
    config = settings.load(workspace=f"lab-{uuid4().hex[:12]}", data_dir=broker_dir)
    broker = await find_broker(config)
    monkeypatch.setattr(receiver, "ROOT_QUIET_S", 60.0)
    async with (
        listening(config, broker, Address("127.0.0.1", 0)) as url,
        httpx2.AsyncClient(base_url=url) as http,
    ):
        body = json.dumps(request(MODEL, ROOT)).encode()
        await http.post("/v1/traces", content=body, headers={"content-type": "application/json"})
    async with hansard.connect_async(config.workspace, data_dir=broker_dir) as opened:
        [run] = await opened.runs()
    assert run[0] == run_of_trace(TRACE)
    await broker.release()


@pytest.mark.slow
def test_an_answered_span_survives_a_kill(tmp_path: Path):
    """`hansard up` is killed after its answer: the span is on record, and becomes a run."""
    home = tmp_path / "data"
    with up(home, "--json", "--http", "0", program=python()) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["http"]
        headers = {"content-type": "application/json"}
        body = json.dumps(request(MODEL, ROOT))
        assert httpx2.post(f"{url}/v1/traces", content=body, headers=headers).status_code == 200
        process.kill()
        process.wait()
    with hansard.connect("lab", data_dir=home) as opened:
        assert opened.sql("SELECT spans, waiting FROM traces").rows == [(2, 2)]
        assert opened.noun(record.Traces).settle() == [run_of_trace(TRACE)]
        assert opened.sql("SELECT observed FROM runs").rows == [(True,)]


@pytest.mark.slow
async def test_the_exporter_of_the_opentelemetry_sdk_is_understood(door: Door):
    """Spans of the real SDK, batched, in protobuf and compressed, are calls with their error."""
    exporters = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    http = pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")

    def program() -> str:
        endpoint = f"{door.url}/v1/traces"
        exporter = exporters.OTLPSpanExporter(endpoint, compression=http.Compression.Gzip)
        provider = sdk.TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(export.BatchSpanProcessor(exporter))
        tracer = provider.get_tracer("program")
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "buyer"}
        model: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 7}
        model |= {"gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5"}
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay"}
        with tracer.start_as_current_span("invoke_agent buyer", attributes=agent) as root:
            with tracer.start_as_current_span("chat gpt-5", attributes=model):
                pass
            with (
                contextlib.suppress(ValueError),
                tracer.start_as_current_span("execute_tool pay", attributes=tool),
            ):
                raise ValueError("no money")
        provider.shutdown()
        return f"{root.get_span_context().trace_id:032x}"

    run = await door.ended(run_of_trace(await asyncio.to_thread(program)))
    assert await door.rows(
        "SELECT agent, tool, status, error_type, error, input_tokens FROM steps "
        f"WHERE run = '{run}' ORDER BY step"
    ) == [
        ("buyer", "openai.chat", "completed", None, None, 7.0),
        ("buyer", "pay", "failed", "ValueError", "ValueError: no money", None),
    ]
