"""OTLP out: a run as `gen_ai` spans, to any collector over OTLP/HTTP in JSON.

Ids derive from the run, its agents and its steps: sending a run twice sends the same spans. A span
has the attributes of the newest GenAI conventions, and those of Hansard (`hansard.*`) from which
the same calls are read again when the span comes in.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import tenacity

from hansard._version import __version__
from hansard.agents.workspace import Workspace
from hansard.bus.errors import BusError
from hansard.bus.log import Stored
from hansard.bus.reads import time_of
from hansard.domain.errors import BadValue, import_extra
from hansard.domain.ids import AgentStream
from hansard.domain.run import RunStatus
from hansard.domain.steps import KINDS_IN_RECORD, StepStatus
from hansard.ext.otel import aliases, messages
from hansard.ext.otel.spans import Span, decoded_as, iso_ns, pieces
from hansard.inspect import trace as traces
from hansard.inspect.trace import Payloads, TracedStep

BATCH_SPANS_MAX, BATCH_BYTES_MAX = 512, 4 * 1024 * 1024
"""Most spans and bytes of JSON in one request, whichever is reached first."""

SEND_S = 30.0
"""Longest wait for an answer of a collector, in seconds."""

TRIES_MAX, PAUSE_S_MAX = 5, 30.0
"""Most tries of one request, and the longest pause before the next, in seconds."""

RETRIED = (429, 502, 503, 504)
"""Statuses after which the protocol has a client send the same request again."""

INTERNAL, CLIENT = 1, 3
"""Kinds of spans in OTLP."""

_OPERATIONS = {
    "openai.chat.completions": ("openai", "chat"),
    "openai.responses": ("openai", "chat"),
    "openai.embeddings": ("openai", "embeddings"),
    "anthropic.messages": ("anthropic", "chat"),
    "google.generate_content": ("gcp.gemini", "generate_content"),
}
"""Provider and operation in the conventions' words, by the name of a step of a model."""


class NotSent(BusError):
    """A collector did not accept spans.

    State: the spans of earlier requests were accepted; sending all again changes nothing.
    Remedy: follow the reason in the message, then send the run again.
    """


class Sent(msgspec.Struct):
    """Result of sending a run: its trace, and the number of its spans."""

    run: str
    trace: str
    spans: int


def trace_of(run: str) -> str:
    """Return the id of the trace of a run."""
    return hashlib.sha256(f"hansard trace\0{run}".encode()).hexdigest()[:32]


def span_of(run: str, *place: object) -> str:
    """Return the id of a span of a run: of the run itself, an agent or a step."""
    text = "\0".join(["hansard span", run, *map(str, place)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def spans_of(workspace: Workspace, run: str, *, content: bool = True) -> AsyncIterator[Span]:
    """Yield the spans of a run: its own, its agents' and those of its steps.

    Args:
        workspace: The open workspace.
        run: The run's id.
        content: Whether arguments, results and messages are sent.

    Raises NotFound, UnknownEvent, Corrupt.
    """
    view = await workspace.states.run(run)
    history = await workspace.states.history(run)
    traced = traces.trace(run, history)
    steps = [each.traced async for each in traced.whole(Payloads(workspace))]
    times = _all_times(history)
    life = view.life
    failed = life.status is RunStatus.FAILED
    attributes = {
        "hansard.run": run,
        "hansard.workspace": workspace.log.workspace,
        "hansard.status": life.status.value,
        **({"gen_ai.conversation.id": life.conversation_id} if life.conversation_id else {}),
        **{f"hansard.label.{name}": text for name, text in life.labels.items()},
    }
    root = _agent(run, life.workflow, times[""], attributes)
    message = life.error.message if failed and life.error is not None else ""
    yield msgspec.structs.replace(root, id=span_of(run), parent="", failed=failed, message=message)
    for agent, role in life.roster.items():
        yield _agent(run, agent, times.get(agent) or times[""], {"hansard.role": role})
    for step in steps:
        yield _step(run, step, content=content)


def _agent(run: str, name: str, times: list[int], attributes: dict[str, Any]) -> Span:
    """Return the span of an agent."""
    return Span(
        trace=trace_of(run),
        id=span_of(run, name),
        name=f"invoke_agent {name}",
        parent=span_of(run),
        started_ns=str(min(times, default=0)),
        ended_ns=str(max(times, default=0)),
        kind=INTERNAL,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            **attributes,
        },
        resource=RESOURCE,
        scope="hansard",
    )


RESOURCE = {"service.name": "hansard", "service.version": __version__}


def _times(step: TracedStep) -> list[int]:
    """Return start and end of a step's last attempt: what lies between two may be a dead process's
    time.
    """
    began = step.began.at if step.began is not None and step.began.at else step.time
    ended = step.ended.at if step.ended is not None and step.ended.at else began
    start = max(0, iso_ns(began))
    for each in step.attempts[-1:]:
        if each.ended is not None and each.ended.at:
            start = max(start, iso_ns(each.ended.at) + int((each.retry_in_ms or 0) * 1_000_000))
    return [start, max(start, iso_ns(ended))]


def _all_times(history: Iterable[Stored]) -> dict[str, list[int]]:
    """Return the times of the events of each agent, and of all under an empty name."""
    built: dict[str, list[int]] = {"": []}
    for stored in history:
        for each in stored.commit.events:
            time_ns = max(0, iso_ns(time_of(stored, each).time.at or stored.time.isoformat()))
            built[""].append(time_ns)
            if isinstance(stored.stream, AgentStream):
                built.setdefault(stored.stream.agent, []).append(time_ns)
    return built


def _step(run: str, step: TracedStep, *, content: bool) -> Span:
    """Return the span of a step."""
    is_model = step.kind == "model"
    provider, operation = _operation(step.tool)
    facts = _facts(step.result)
    arguments = step.arguments if isinstance(step.arguments, dict) else {}
    model = facts.get("model") or arguments.get("model")
    attributes: dict[str, Any] = {
        "hansard.tool": step.tool,
        "hansard.kind": "tool" if step.kind in KINDS_IN_RECORD else step.kind,
        "hansard.effects": step.effects,
        "hansard.step": step.step,
        "hansard.status": step.status,
    }
    if is_model:
        attributes |= {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider}
        if isinstance(model, str):
            attributes["gen_ai.request.model"] = model
        attributes |= _of_usage(step.usage)
    else:
        attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": step.tool}
    if step.attempts:
        attributes["hansard.attempt"] = len(step.attempts) + 1
    if step.call_id:
        attributes["gen_ai.tool.call.id"] = step.call_id
    if content:
        attributes |= _content(step, arguments, facts, is_model=is_model)
    failure, message = _failure(step)
    if failure:
        attributes["error.type"] = failure
    started_ns, ended_ns = _times(step)
    parent = span_of(run, step.agent, step.parent) if step.parent else span_of(run, step.agent)
    return Span(
        trace=trace_of(run),
        id=span_of(run, step.agent, step.step),
        name=f"{operation} {model or step.tool}" if is_model else f"execute_tool {step.tool}",
        parent=parent,
        started_ns=str(started_ns),
        ended_ns=str(ended_ns),
        failed=bool(failure),
        message=message,
        kind=CLIENT if is_model else INTERNAL,
        attributes=attributes,
        resource=RESOURCE,
        scope="hansard",
    )


def _operation(tool: str) -> tuple[str, str]:
    if tool in _OPERATIONS:
        return _OPERATIONS[tool]
    provider, _, operation = tool.rpartition(".")
    return provider or "unknown", operation or "chat"


def _failure(step: TracedStep) -> tuple[str, str]:
    """Return the type and the text of what a step ended with instead of a result, if any."""
    if step.error is not None:
        return step.error.type, step.error.message
    match step.status:
        case StepStatus.IN_DOUBT.value | StepStatus.REQUESTED.value:
            return "in_doubt", "it is unknown whether the call had its effect"
        case StepStatus.BLOCKED.value:
            return "blocked", f"refused by rule {step.rule!r}"
        case _:
            return "", ""


def _of_usage(usage: Mapping[str, float]) -> dict[str, Any]:
    names = {fact: aliases.TABLE[fact][0].name for fact in aliases.TOKENS}
    names["cost"] = "operation.cost"
    return {
        names[fact]: int(value) if float(value).is_integer() and fact != "cost" else value
        for fact, value in usage.items()
        if fact in names
    }


def _facts(result: Any) -> dict[str, Any]:
    """Return the typed facts that a recorded HTTP exchange ends with."""
    last = result[-1] if isinstance(result, list) and result else None
    end = last.get("end") if isinstance(last, dict) else None
    facts = end.get("facts") if isinstance(end, dict) else None
    return facts if isinstance(facts, dict) else {}


def _content(
    step: TracedStep, arguments: dict[str, Any], facts: dict[str, Any], *, is_model: bool
) -> dict[str, Any]:
    built: dict[str, Any] = {"hansard.arguments": _text(arguments)}
    if step.status == StepStatus.COMPLETED.value:
        built["hansard.result"] = _text(step.result)
    if not is_model:
        built["gen_ai.tool.call.arguments"] = built["hansard.arguments"]
        if "hansard.result" in built:
            built["gen_ai.tool.call.result"] = built["hansard.result"]
        return built
    prompt = facts.get("messages_in") or arguments.get("messages") or arguments.get("body")
    reply = facts.get("messages_out") or _answered(step.result)
    for name, value, role in (
        ("gen_ai.input.messages", prompt, "user"),
        ("gen_ai.output.messages", reply, "assistant"),
    ):
        if value is not None:
            built[name] = _text([messages.parts(each) for each in messages.messages(value, role)])
    return built


def _answered(result: Any) -> Any:
    """Return the messages of a model's result; None for items of a stream."""
    if isinstance(result, dict) and isinstance(result.get("messages"), list):
        return result["messages"]
    if isinstance(result, list):
        is_chat = all(isinstance(each, dict) and "role" in each for each in result)
        return result if is_chat else None
    return result


def _text(value: Any) -> str:
    return msgspec.json.encode(_unescaped(value)).decode()


def _unescaped(plain: Any) -> Any:
    """Return plain values with objects whose names begin with `$` as they were before recording."""
    if isinstance(plain, list):
        return [_unescaped(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    pairs = plain.get("$map") if len(plain) == 1 else None
    if isinstance(pairs, list) and all(
        isinstance(pair, list) and len(pair) == PAIR and isinstance(pair[0], str) for pair in pairs
    ):
        return {name: _unescaped(value) for name, value in pairs}
    return {name: _unescaped(value) for name, value in plain.items()}


PAIR = 2
"""Length of a name with its value."""


# ------------------------------------------------------------ OTLP in JSON


def to_json(spans: Iterable[Span]) -> bytes:
    """Return spans of one resource as an export request."""
    listed = list(spans)
    resource = {"attributes": _pairs(listed[0].resource if listed else RESOURCE)}
    scope = {"scope": {"name": "hansard", "version": __version__}, "spans": [*map(_span, listed)]}
    return msgspec.json.encode({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})


def _span(span: Span) -> dict[str, Any]:
    status = {"code": 2, "message": span.message} if span.failed else {"code": 0}
    return {
        "traceId": span.trace,
        "spanId": span.id,
        "parentSpanId": span.parent,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": span.started_ns,
        "endTimeUnixNano": span.ended_ns,
        "attributes": _pairs(span.attributes),
        "status": status,
    }


def _pairs(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: str | float) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}


def batches(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """Yield spans in groups for one request each."""
    return pieces(spans, BATCH_BYTES_MAX, BATCH_SPANS_MAX)


# ------------------------------------------------------------ sending


async def send(
    workspace: Workspace,
    run: str,
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    content: bool = True,
) -> Sent:
    """Send the spans of a run to a collector.

    Args:
        workspace: The open workspace.
        run: The run's id.
        url: The collector's address; `/v1/traces` is added unless it ends so.
        headers: Headers of each request, such as `authorization`.
        content: Whether arguments, results and messages are sent.

    Raises BadValue for the address, NotSent, and as `spans_of`.
    """
    address = endpoint(url)
    spans = [span async for span in spans_of(workspace, run, content=content)]
    for group in batches(spans):
        await asyncio.to_thread(_post, address, to_json(group), headers or {})
    return Sent(run, trace_of(run), len(spans))


def endpoint(url: str) -> str:
    """Return the address of a collector's traces. Raises BadValue."""
    if not url.startswith(("http://", "https://")) or any(each.isspace() for each in url):
        raise BadValue("--otlp", f"{url!r:.80}", "give http://HOST:4318, or - for stdout")
    return url if url.rstrip("/").endswith("/v1/traces") else f"{url.rstrip('/')}/v1/traces"


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a request; again if the protocol says so. Raises NotSent, ExtraMissing.

    Redirects are not followed: they would carry the headers, and so a token, to another host.
    """
    http: Any = import_extra("httpx2", "sending spans", "httpx2", "otel")
    fixed = {"content-type": "application/json", "content-encoding": "gzip"}
    packed = gzip.compress(body)

    def is_passing(error: BaseException) -> bool:
        if isinstance(error, http.HTTPStatusError):
            return error.response.status_code in RETRIED
        return isinstance(error, http.TransportError)

    def pause_s(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        headers = error.response.headers if isinstance(error, http.HTTPStatusError) else {}
        stated = headers.get("retry-after", "")
        return min(float(stated), PAUSE_S_MAX) if stated.isdigit() else _backoff(state)

    def post() -> bytes:
        answer = http.post(url, content=packed, headers={**headers, **fixed}, timeout=SEND_S)
        return bytes(answer.raise_for_status().content)

    tries = tenacity.stop_after_attempt(TRIES_MAX)
    retry = tenacity.retry_if_exception(is_passing)
    retrying = tenacity.Retrying(retry=retry, stop=tries, wait=pause_s, reraise=True)
    try:
        _accepted(url, retrying(post))
    except (http.HTTPError, http.InvalidURL, ValueError) as error:
        why = str(error)
        if isinstance(error, http.HTTPStatusError):
            why = f"HTTP {error.response.status_code} ({error.response.text[:400]})"
        count = retrying.statistics["attempt_number"]
        raise NotSent(f"{url} did not accept the spans after {count} tries: {why}") from error


_backoff = tenacity.wait_exponential(max=PAUSE_S_MAX)


def _accepted(url: str, answer: bytes) -> None:
    """Raise NotSent if a collector refused a part of a request."""
    stated = decoded_as(dict, answer.decode(errors="replace")).get("partialSuccess")
    partial = decoded_as(dict, stated)
    refused = partial.get("rejectedSpans", 0)
    if str(refused) not in ("0", ""):
        raise NotSent(f"{url} refused {refused} spans: {partial.get('errorMessage', 'no reason')}")
