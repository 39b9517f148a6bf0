"""Traces as observed runs: what spans state of calls, mapped to commits as an import does.

Each span of a model or a tool is a step with its times; the messages of a model's call that its
agent has not had yet are messages of the agent. A span is exported when it ends, so nothing of such
a run is an intent, and nothing of it can be replayed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from hansard.agents.steps import payloads
from hansard.bus.log import Append
from hansard.domain import values
from hansard.domain.errors import BadValue
from hansard.domain.ids import uuid8
from hansard.domain.run import OBSERVED, RunStarted
from hansard.domain.steps import IMPORTER, Effects, Failure
from hansard.ext.importers.chat import (
    AGENT,
    LABEL_LENGTH_MAX,
    SOURCE,
    SOURCE_RUN,
    Message,
    RunBuilder,
    text_of,
)
from hansard.ext.otel import aliases, messages
from hansard.ext.otel.messages import Chat
from hansard.ext.otel.spans import Log, Span, decoded, decoded_as

OTLP = "otlp"
"""Label `source` of an observed run."""

NAME_LENGTH_MAX = 200
"""Longest name of an agent, tool or workflow that is made of a span, in characters."""

ENDS, STARTS, ENDS_AT_ONCE = 0, 1, 2
"""Order of what happens at the same time: a call that ends then precedes one that starts."""


_LANGFUSE = "langfuse.observation"
"""Prefix of the input and output of an observation of Langfuse, of a model or a tool."""


class Observation(msgspec.Struct):
    """A call that a span states.

    Attributes:
        span: The span.
        kind: `model` or `tool`.
        agent: The agent that made it.
        role: The agent's role.
        tool: The name of the step.
        arguments: What the call was made with.
        result: What it returned.
        effects: Its effects, if they are known.
        call_id: The model's id of a tool's call.
        usage: Its tokens and costs.
        inputs: Messages that a model was given.
        outputs: Messages that it answered with.
    """

    span: Span
    kind: str
    agent: str
    role: str
    tool: str
    arguments: dict[str, Any]
    result: Any
    effects: Effects
    call_id: str | None
    usage: dict[str, float]
    inputs: list[Chat]
    outputs: list[Chat]

    @property
    def error(self) -> Failure | None:
        """The error that it ended with."""
        if not self.span.failed:
            return None
        name = aliases.read(self.span.attributes, "error_type")
        text = self.span.message
        for mark in self.span.events:
            if mark.name == "exception":
                name = name or mark.attributes.get("exception.type")
                text = text or str(mark.attributes.get("exception.message", ""))
        failure = values.recordable(text or "the span has the status error", None)
        return Failure(_name(name or "Error"), failure, module=IMPORTER)


def observations(spans: Iterable[Span], logs: Iterable[Log] = ()) -> list[Observation]:
    """Return the calls of a trace's spans, in order of their start.

    A model's span inside another model's span is the same call seen by a second instrumentation:
    the outer one counts.
    """
    by_id = {span.id: span for span in spans}
    marks: dict[str, list[Any]] = {}
    for log in logs:
        marks.setdefault(log.span, []).append(log.mark)
    kinds = {name: aliases.kind_of(span.attributes, span.name) for name, span in by_id.items()}
    built = []
    for span in sorted(by_id.values(), key=_order):
        kind = kinds[span.id]
        above = _above(span, by_id)
        if kind == "model" and any(kinds[each.id] == "model" for each in above):
            continue
        if kind in ("model", "tool"):
            call = _observation(span, kind, above, [*span.events, *marks.get(span.id, ())])
            if call is not None:
                built.append(call)
    return built


def _order(span: Span) -> tuple[int, int, str]:
    """Return the key by which spans are in order: of equal starts, a run's own steps by number."""
    step = span.attributes.get("hansard.step")
    return int(span.started_ns), step if isinstance(step, int) else 0, span.id


def _above(span: Span, by_id: dict[str, Span]) -> list[Span]:
    """Return the spans around a span, the nearest first; a circle is cut."""
    above, known, parent = [], {span.id}, span.parent
    while parent in by_id and parent not in known:
        known.add(parent)
        above.append(by_id[parent])
        parent = by_id[parent].parent
    return above


def _observation(span: Span, kind: str, above: list[Span], marks: list[Any]) -> Observation | None:
    attributes = span.attributes
    inputs = messages.inputs(attributes, marks) if kind == "model" else []
    outputs = messages.outputs(attributes, marks) if kind == "model" else []
    usage = _usage(attributes)
    own = _own(attributes)
    if own is not None:
        tool, arguments, result = own
    elif kind == "model":
        if not (inputs or outputs or usage or span.failed):
            return None  # a part of a call, such as its end, that some frameworks export apart
        tool, arguments, result = _of_model(attributes, inputs, outputs)
    else:
        tool, arguments, result = _of_tool(span)
    agent, role = _agent(span, above)
    try:
        effects = Effects(attributes.get("hansard.effects", ""))
    except ValueError:
        effects = Effects.IDEMPOTENT if kind == "model" else Effects.ONCE
    call_id = aliases.read(attributes, "call_id")
    return Observation(
        span=span,
        kind=str(attributes.get("hansard.kind", kind)),
        agent=agent,
        role=role,
        tool=_name(tool),
        arguments=arguments,
        result=result,
        effects=effects,
        call_id=_name(call_id) if isinstance(call_id, str) and call_id else None,
        usage=usage,
        inputs=inputs,
        outputs=outputs,
    )


def _own(attributes: dict[str, Any]) -> tuple[str, dict[str, Any], Any] | None:
    """Return tool, arguments and result of a span that Hansard itself exported."""
    tool, arguments = attributes.get("hansard.tool"), decoded(attributes.get("hansard.arguments"))
    if not isinstance(tool, str) or not isinstance(arguments, dict):
        return None
    result = attributes.get("hansard.result")
    try:
        return tool, arguments, msgspec.json.decode(result) if isinstance(result, str) else None
    except msgspec.DecodeError:
        return tool, arguments, result


def _of_model(
    attributes: dict[str, Any], inputs: list[Chat], outputs: list[Chat]
) -> tuple[str, dict[str, Any], Any]:
    provider = str(aliases.read(attributes, "provider") or "model").lower()
    operation = str(aliases.read(attributes, "operation") or "chat").lower()
    arguments: dict[str, Any] = {"messages": inputs}
    model = aliases.read(attributes, "model") or aliases.read(attributes, "response_model")
    if model is not None:
        arguments["model"] = str(model)
    if tools := messages.definitions(attributes):
        arguments["tools"] = tools
    result: dict[str, Any] = {"messages": outputs}
    for name, fact in (("model", "response_model"), ("id", "response_id")):
        if (value := aliases.read(attributes, fact)) is not None:
            result[name] = value
    if (reasons := decoded(aliases.read(attributes, "finish_reasons"))) is not None:
        result["finish_reasons"] = reasons if isinstance(reasons, list) else [reasons]
    return f"{provider}.{operation}", arguments, result


def _of_tool(span: Span) -> tuple[str, dict[str, Any], Any]:
    attributes = span.attributes
    tool = aliases.read(attributes, "tool") or aliases.read(attributes, "entity") or span.name
    value = aliases.read(attributes, "tool_arguments", "input")
    arguments = decoded(attributes.get(f"{_LANGFUSE}.input") if value is None else value)
    value = aliases.read(attributes, "tool_result", "output")
    result = decoded(attributes.get(f"{_LANGFUSE}.output") if value is None else value)
    if not isinstance(arguments, dict):
        arguments = {} if arguments in (None, "") else {"arguments": arguments}
    return str(tool), arguments, result


def _usage(attributes: dict[str, Any]) -> dict[str, float]:
    built: dict[str, float] = {}
    for name in (*aliases.TOKENS, "cost"):
        value = aliases.read(attributes, name)
        if isinstance(value, str):
            value = next(iter(decoded_as(list, f"[{value}]")), None)
        if type(value) in (int, float) and 0 <= value <= values.SAFE_INT:
            built[name] = value
    return built


def _agent(span: Span, above: list[Span]) -> tuple[str, str]:
    """Return the agent of a span, and its role: the nearest that is named by it or around it."""
    for each in (span, *above):
        attributes = each.attributes
        name = aliases.read(attributes, "agent")
        if name is None and str(aliases.read(attributes, "kind")).lower() == "agent":
            name = attributes.get("traceloop.entity.name")
        if isinstance(name, str) and name and not attributes.get("hansard.run"):
            return _name(name), _name(attributes.get("hansard.role") or AGENT)
    return AGENT, AGENT


def _name(value: Any) -> str:
    """Return a value of a span as a name."""
    text = "".join(each if each.isprintable() else " " for each in str(value)).strip()
    return text[:NAME_LENGTH_MAX].encode(errors="replace").decode() or "unnamed"


# ------------------------------------------------------------ commits


class Mapped(msgspec.Struct):
    """The commits of an observed run in order, and the blobs that are stored before them.

    `new` counts the commits that were not stored before.
    """

    run: str
    appends: list[Append] = []
    blobs: list[bytes] = []
    calls: int = 0
    new: int = 0


def run_of_trace(trace: str, part: int = 1) -> str:
    """Return the id of the run of a trace, or of a later part of it."""
    return uuid8("otel", trace, str(part))


def mapped(
    trace: str, part: int, spans: Sequence[Span], logs: Sequence[Log], at: datetime
) -> Mapped:
    """Map the spans of a trace to the commits of a run. Raises CallerError."""
    return _Mapping(trace, part, spans, logs, at).all()


class _Mapping:
    def __init__(
        self, trace: str, part: int, spans: Sequence[Span], logs: Sequence[Log], at: datetime
    ) -> None:
        self._trace, self._part, self._at = trace, part, at
        self._spans = sorted(spans, key=_order)
        self._calls = observations(spans, logs)
        self.out = Mapped(run_of_trace(trace, part), calls=len(self._calls))
        self._known: dict[str, Counter[str]] = {}

    def all(self) -> Mapped:
        roots = [span for span in self._spans if not span.parent]
        first = min((int(span.started_ns) for span in self._spans), default=0)
        last = max((int(span.ended_ns) for span in self._spans), default=0)
        roles: dict[str, str] = {}
        for call in self._calls:
            roles.setdefault(call.agent, call.role)
        main, out = next(iter(roles), AGENT), self.out
        builder = RunBuilder(out.run, main, self._at, out.appends, out.blobs)
        labels = self._labels(roots)
        started = RunStarted(workflow=self._workflow(roots), labels=labels)
        builder.life.add(started, time_of(first))
        builder.begin(roles, time_of(first), {})
        self._agents = builder.agents
        for name, agent in self._agents.items():
            agent.shared = payloads.Shared()
            self._known[name] = Counter()
        self._steps()
        failed = next((span for span in roots if span.failed), None)
        error = None
        if failed is not None:
            text = values.recordable(failed.message or "the root span has the status error", None)
            error = Failure("Error", text, module=IMPORTER)
        builder.end(error, time_of(last))
        return self.out

    def _labels(self, roots: list[Span]) -> dict[str, str]:
        labels = {SOURCE: OTLP, SOURCE_RUN: self._trace, OBSERVED: "true"}
        labels["alias_table"] = aliases.VERSION
        if self._part > 1:
            labels["part"] = str(self._part)
        if not roots:
            labels["incomplete"] = "its root span has not arrived"
        for name, fact in (("conversation", "conversation"), ("model", "model")):
            stated = (aliases.read(span.attributes, fact) for span in self._spans)
            value = next((each for each in stated if isinstance(each, str)), None)
            if value:
                labels[name] = value
        services = (span.resource.get("service.name") for span in self._spans)
        if service := next((str(each) for each in services if each), ""):
            labels["service"] = service
        return {name: text[:LABEL_LENGTH_MAX] for name, text in labels.items()}

    def _workflow(self, roots: list[Span]) -> str:
        stated = [aliases.read(span.attributes, "workflow") for span in (*roots, *self._spans)]
        for root in roots[:1]:
            stated += [aliases.read(root.attributes, "agent"), root.name or "unnamed"]
        return next((_name(each) for each in stated if isinstance(each, str) and each), OTLP)

    def _steps(self) -> None:
        """Add starts and ends of calls, in the order of their times in each agent's stream."""
        moments: list[tuple[int, int, int]] = []
        for index, call in enumerate(self._calls):
            start, end = int(call.span.started_ns), int(call.span.ended_ns)
            moments.append((start, STARTS, index))
            moments.append((max(start, end), ENDS if end > start else ENDS_AT_ONCE, index))
        begun: dict[int, Any] = {}
        for time_ns, phase, index in sorted(moments):
            call, at = self._calls[index], time_of(time_ns)
            agent = self._agents[call.agent]
            if phase == STARTS:
                self._messages(call, call.inputs, at)
                arguments = values.plain(call.arguments, "arguments")
                begun[index] = agent.add_call(
                    call.tool,
                    arguments if isinstance(arguments, dict) else {},
                    at,
                    call_id=call.call_id,
                    kind=call.kind,
                    effects=call.effects,
                )
            else:
                took_ms = max(0, int(call.span.ended_ns) - int(call.span.started_ns)) / 1e6
                result = values.plain(call.result, "result")
                agent.add_outcome(begun[index], result, call.error, at, call.usage, took_ms)
                self._messages(call, call.outputs, at)
            agent.stream.commit()

    def _messages(self, call: Observation, some: list[Chat], at: str) -> None:
        """Add the messages that the agent has not had yet; each call repeats those before it."""
        known, now = self._known[call.agent], Counter[str]()
        agent = self._agents[call.agent]
        for each in some:
            text = text_of(each)
            mark = hashlib.sha256(text.encode()).hexdigest()
            now[mark] += 1
            if now[mark] <= known[mark]:
                continue
            known[mark] = now[mark]
            fields = {key: value for key, value in each.items() if key not in ("role", "content")}
            message = Message(role=_name(each["role"]), content=each.get("content"), timestamp=at)
            agent.add_message(message, fields)


def time_of(time_ns: int) -> str:
    """Return a time in nanoseconds since 1970 as ISO 8601 in UTC, to the microsecond."""
    try:
        whole = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        raise BadValue("time of a span", f"{time_ns} ns", "give nanoseconds since 1970") from None
    return whole.replace(microsecond=time_ns // 1_000 % 1_000_000).isoformat()
