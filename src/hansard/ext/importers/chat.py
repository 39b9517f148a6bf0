"""The chat-jsonl format: one run a line, as a chat in the form of OpenAI's API.

`docs/chat-jsonl.md` describes it. Every other chat format is converted to a `ChatRun`, so that
there is one mapping to events, below.

Long because the format and its mapping to events define each other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from hansard._version import PROTOCOL_VERSION, SERVER_VERSION
from hansard.agents.exchange.files import Tally
from hansard.agents.steps import payloads
from hansard.agents.steps.failures import failure_digest
from hansard.agents.steps.payloads import EVENT_BYTES_MAX
from hansard.agents.steps.scope import Scope
from hansard.bus.log import Append
from hansard.domain import ids, values
from hansard.domain.agent import AgentLeft, MessageAdded, SessionBegan
from hansard.domain.choices import claimed_time, nearest
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.events import Actor, Commit, Event, Recorded
from hansard.domain.fingerprint import (
    UNORDERED,
    call_base,
    call_key,
    canonical,
    digest,
    fact_base,
    fact_fingerprint,
    fingerprint,
)
from hansard.domain.ids import AgentStream, RunStream, StreamId, uuid8
from hansard.domain.run import (
    AgentJoined,
    RunAssigned,
    RunCompleted,
    RunFailed,
    RunScored,
    RunStarted,
)
from hansard.domain.steps import (
    IMPORTER,
    NULL,
    Effects,
    Failure,
    StepCompleted,
    StepFailed,
    StepRequested,
    ToolDeclared,
)
from hansard.domain.values import SAFE_INT, recordable

CHAT_JSONL = "chat-jsonl"

AGENT = "assistant"
"""Default agent, and its role, of a record that names none."""

MODEL = "model"
"""Label for the model that a record names."""

SOURCE, SOURCE_RUN = "source", "source_run"
"""Labels for an imported run's format, and for its name in the source."""

CLAIM, CLAIM_OF_MEAN, MEANS = "claim: ", "claim of the mean: ", "means"
"""Label prefixes of a metric that the source claims for the run and for its arm's mean, and the
record field that holds the claimed means."""

TOOL = "tool"
"""Role of a message that answers a call."""

LABEL_LENGTH_MAX = 1_000
"""Longest label made from an extra field of a record, in characters; a longer one is left out."""

WORKFLOW = "chat"
"""Default workflow of a record that names none."""

METRICS_MAX = 1_000
"""Largest number of metrics in one outcome; they share one event."""


Whole = Annotated[int, msgspec.Meta(ge=-values.SAFE_INT, le=values.SAFE_INT)]
"""An integer that JSON represents exactly."""


class ImportDefaults(msgspec.Struct, frozen=True):
    """Experiment and arm for every record that names none."""

    experiment: str | None = None
    arm: str | None = None

    def __post_init__(self) -> None:
        """Raise BadName for a name that cannot be recorded."""
        for kind in self.__struct_fields__:
            if getattr(self, kind) is not None:
                ids.name(kind, getattr(self, kind))

    def beside(self, raw: Any) -> dict[str, Any]:
        """Combine a record with the importer's defaults."""
        fields = msgspec.to_builtins(self)
        return {"record": raw, **{name: text for name, text in fields.items() if text}}


class Function(msgspec.Struct, frozen=True):
    """Name and arguments of a function call; the arguments are JSON text."""

    name: str
    arguments: Any = msgspec.UNSET


class Custom(msgspec.Struct, frozen=True):
    """Name and input of a call to a tool that takes one text."""

    name: str
    input: Any = msgspec.UNSET


class ToolCall(msgspec.Struct, frozen=True):
    """A call requested by a model: `function`, `custom`, or `name` and `arguments` directly."""

    id: str | None = None
    function: Function | None = None
    custom: Custom | None = None
    name: str | None = None
    arguments: Any = msgspec.UNSET

    @property
    def tool(self) -> str | None:
        """The tool's name."""
        if self.function is not None:
            return self.function.name
        return self.custom.name if self.custom is not None else self.name

    @property
    def raw_arguments(self) -> Any:
        """The arguments, unconverted; UNSET if there are none."""
        if self.function is not None:
            return self.function.arguments
        return self.custom.input if self.custom is not None else self.arguments


class Message(msgspec.Struct, frozen=True):
    """The fields of a message that the importer interprets; all others are kept unchanged."""

    role: str
    content: Any = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    id: Any = None
    error: Any = None
    timestamp: str | int | float | None = None
    usage: dict[str, Any] | None = None
    cost: float | None = None

    @property
    def answers(self) -> str | None:
        """Id of the call that a tool's message answers."""
        if self.tool_call_id is not None:
            return self.tool_call_id
        return self.id if isinstance(self.id, str) else None

    @property
    def occurred_at(self) -> str | None:
        """Time of the message, as the source writes it."""
        return str(self.timestamp) if self.timestamp not in (None, "") else None


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of chat-jsonl."""

    messages: list[Message]
    run: str | int | None = None
    workflow: str | None = None
    experiment: str | None = None
    arm: str | None = None
    task: str | int | None = None
    trial: Whole | None = None
    agent: str | None = None
    role: str | None = None
    roles: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    model: str | None = None
    claims: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None


class Ending(msgspec.Struct, frozen=True):
    """Outcome of a run as the source states it: finite numbers by metric, further details, the
    error that ended it, and its time.
    """

    metrics: dict[str, float] = {}
    details: Any = None
    error: str | None = None
    at: str | None = None


class ChatRun(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded run of any chat format, ready to be mapped.

    The run's ids derive from `content`. `messages` and `raw_messages` are the same messages, parsed
    and unparsed. `agent` is None if the record names none, `ending` if the source does not state
    how the run ended. `effects` holds the effect policies of tools that are not `ONCE`. `assumed`
    lists the assumptions made while reading the format, each with its message's number.
    """

    format: str
    content: Any
    workflow: str
    experiment: str = ""
    arm: str = ""
    task: str = ""
    trial: int | None = None
    agent: str | None = None
    role: str | None = None
    roles: dict[str, str] = {}
    labels: dict[str, str] = {}
    began_at: str | None = None
    messages: list[Message]
    raw_messages: list[dict[str, Any]]
    ending: Ending | None = None
    effects: Mapping[str, Effects] = {}
    assumed: list[tuple[str, int]] = []
    left_out: dict[str, int] = {}


def from_chat(raw: Any, defaults: ImportDefaults) -> ChatRun:
    """Convert a decoded line of chat-jsonl. Raises ValidationError, CallerError."""
    record = msgspec.convert(raw, Record)
    _check_times(record.messages)
    messages = [
        msgspec.structs.replace(message, error=True)
        if message.role == TOOL and message.error is not True and says_error(stated)
        else message
        for message, stated in zip(record.messages, raw["messages"], strict=True)
    ]
    filled = {
        "experiment": filled_in("experiment", record.experiment, defaults.experiment),
        "arm": filled_in("arm", record.arm, defaults.arm),
    }
    fields = {name: value for name, value in filled.items() if value}
    return ChatRun(
        format=CHAT_JSONL,
        content={**raw, **fields},
        workflow=record.workflow or WORKFLOW,
        experiment=filled["experiment"],
        arm=filled["arm"],
        task=str(record.task) if record.task is not None else "",
        trial=record.trial,
        agent=record.agent,
        role=record.role,
        roles=record.roles or {},
        labels=_labels(record),
        began_at=messages[0].occurred_at if messages else None,
        messages=messages,
        raw_messages=raw["messages"],
        ending=_ending(record.outcome, messages) if record.outcome is not None else None,
    )


def converted(
    format_: str,
    record: dict[str, Any],
    defaults: ImportDefaults,
    *,
    began_at: str | None = None,
    ending: Ending | None = None,
    left_out: dict[str, int],
) -> ChatRun:
    """Convert a chat-jsonl record that was made from a run of another format.

    `ending` and `left_out` supply what such a record cannot express. Raises ValidationError,
    CallerError.
    """
    chat = from_chat(record, defaults)
    for time in (began_at, ending.at if ending is not None else None):
        if time is not None and claimed_time(time) is None:
            raise BadValue("time of the run", f"{time!r:.80} is not a time", "give ISO 8601")
    return msgspec.structs.replace(
        chat,
        format=format_,
        began_at=began_at or chat.began_at,
        content={**chat.content, **({"ending": msgspec.to_builtins(ending)} if ending else {})},
        ending=ending,
        left_out=left_out,
    )


def labels_of(stated: dict[str, Any], known: Collection[str] = ()) -> dict[str, str]:
    """Return a record's extra fields as labels: texts unchanged, all else as JSON. Labels that are
    too long are left out.
    """
    labels: dict[str, str] = {}
    for name, value in stated.items():
        if name in known or value is None:
            continue
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text) <= LABEL_LENGTH_MAX:
            labels[name] = text
    return labels


def says_error(stated: dict[str, Any]) -> bool:
    """Return whether a tool's message is marked as failed: by `error`, by `isError` (MCP; in the
    message or its content), or by `is_error` (Anthropic).
    """
    content = stated.get("content")
    inside = content.get("isError") if isinstance(content, dict) else None
    return any(
        each is True
        for each in (stated.get("error"), stated.get("isError"), stated.get("is_error"), inside)
    )


def _labels(record: Record) -> dict[str, str]:
    """Return a record's labels, including its model, claims and name. Raises BadName, BadValue."""
    labels = {ids.name("label", name): text for name, text in (record.labels or {}).items()}
    if record.model is not None:
        stated = labels.setdefault(MODEL, record.model)
        if stated != record.model:
            fact = f"it is {record.model!r:.80}, and the label {MODEL!r} says {stated!r:.80}"
            raise BadValue(MODEL, fact, "state the model once")
    labels |= _claims(record.claims or {})
    return labels if record.run is None else {**labels, SOURCE_RUN: str(record.run)}


def _claims(stated: dict[str, Any]) -> dict[str, str]:
    """Return claimed metrics of a run, and claimed means of its arm, as labels with JSON numbers.
    Raises BadValue.
    """
    means = stated.get(MEANS)
    if means is not None and not isinstance(means, dict):
        raise BadValue(f"claims.{MEANS}", f"{means!r:.80}", "give numbers by metric")
    of_run = metrics({name: value for name, value in stated.items() if name != MEANS}, "claims")
    of_arm = metrics(means or {}, f"claims.{MEANS}")
    claimed = {CLAIM + name: value for name, value in of_run.items()}
    claimed |= {CLAIM_OF_MEAN + name: value for name, value in of_arm.items()}
    return {name: msgspec.json.encode(value).decode() for name, value in claimed.items()}


def _check_times(messages: list[Message]) -> None:
    """Raise BadValue for an invalid time; it would be recorded with the time of the import."""
    for number, message in enumerate(messages):
        stated = message.occurred_at
        if stated is not None and claimed_time(stated) is None:
            where = f"messages[{number}].timestamp"
            remedy = "give ISO 8601, or seconds or milliseconds since 1970, or leave it out"
            raise BadValue(where, f"{stated!r:.80} is not a time", remedy)


def unknown_field(error: msgspec.ValidationError) -> str:
    """Return the valid field nearest to an unknown one in the error, as a hint; else an empty
    text.
    """
    field = str(error).partition("unknown field `")[2].partition("`")[0]
    return nearest(field, Record.__struct_fields__) if field else ""


def filled_in(what: str, stated: str | None, default: str | None) -> str:
    """Return the record's value, else the importer's. Raises BadValue if the two differ."""
    if stated and default and stated != default:
        remedy = f"leave out --{what}, or import such records apart"
        raise BadValue(what, f"it says {stated!r:.80}, not {default!r:.80}", remedy)
    return stated or default or ""


def _ending(outcome: dict[str, Any], messages: list[Message]) -> Ending:
    stated = {name: value for name, value in outcome.items() if name != "error"}
    error = outcome.get("error")
    return Ending(
        metrics=metrics(stated),
        error=text_of(error) if error is not None else None,
        at=messages[-1].occurred_at if messages else None,
    )


def metrics(stated: dict[str, Any], where: str = "outcome") -> dict[str, float]:
    """Return finite numbers by metric; true is 1, false is 0, null is missing. Raises BadValue."""
    if len(stated) > METRICS_MAX:
        raise BadValue(where, f"{len(stated):,} metrics", f"give at most {METRICS_MAX:,}")
    numbers: dict[str, float] = {}
    for name, value in stated.items():
        if value is None:
            continue
        if type(value) not in (int, float, bool) or not _is_finite(value):
            remedy = "give a finite number, true, false or null"
            raise BadValue(f"{where}.{name:.80}", f"{value!r:.80}", remedy)
        numbers[ids.name("metric", name)] = int(value) if type(value) is bool else value
    return numbers


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def text_of(value: Any) -> str:
    """Return a text unchanged, any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# Map a chat to events: the one mapping for every chat format.
#
# The run's own stream has its start and end; each agent's stream has one commit a message. A call
# is a step with the call key and fingerprint that a session would have computed: the calls of one
# message overlap, so all but the first are unordered. Ids are digests of the run's content, so
# that mapping the same chat again gives the same commits, except for `at`, the importer's clock.

# Calls in a chat: which message answers which, and the arguments.

CallIndex = tuple[int, int]
"""Position of a call: its message's number, and its index in the message; both from 0."""

USER = "user"

ARGUMENTS = "arguments"
"""Name of the single argument of a call whose arguments are not a JSON object."""

_decode = msgspec.json.Decoder().decode


class Answers(msgspec.Struct):
    """Calls and results of a chat. `of` maps a result's message to its call, `answered` holds all
    calls with a result, `unasked` the results without a call, and `matched` the results without an
    id that were matched by order with calls without one.
    """

    of: dict[int, CallIndex] = {}
    answered: set[CallIndex] = set()
    unasked: set[int] = set()
    matched: set[int] = set()


def answers(messages: list[Message]) -> Answers:
    """Match each tool's message with its call: of equal ids, with the newest call without a result.

    Equal ids in one message are matched in order, and so are calls without an id with the results
    without one that directly follow. The calls of a user, who has tools of their own in tau2-bench,
    are not steps; their results match no step.
    """
    result = Answers()
    waiting: dict[str, list[deque[CallIndex | None]]] = {}
    nameless = deque[CallIndex]()
    for number, message in enumerate(messages):
        if message.role != TOOL:
            request = message.tool_calls if message.role != USER else None
            nameless = deque((number, n) for n, call in enumerate(request or ()) if call.id is None)
        elif message.answers is None and nameless:
            result.of[number] = nameless.popleft()
            result.answered.add(result.of[number])
            result.matched.add(number)
            continue
        if message.tool_calls:
            fresh: dict[str, deque[CallIndex | None]] = {}
            for index, call in enumerate(message.tool_calls):
                if call.id is not None:
                    place = None if message.role == USER else (number, index)
                    fresh.setdefault(call.id, deque()).append(place)
            for call_id, places in fresh.items():
                waiting.setdefault(call_id, []).append(places)
        if message.role == TOOL:
            groups = waiting.get(message.answers or "")
            if not groups:
                result.unasked.add(number)
                continue
            answered = groups[-1].popleft()
            if not groups[-1]:
                groups.pop()
            if answered is not None:
                result.of[number] = answered
                result.answered.add(answered)
    return result


def is_object(value: Any) -> bool:
    """Return whether a call's arguments are a JSON object, or a text that holds one."""
    if isinstance(value, str):
        try:
            value = _decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
    return isinstance(value, dict)


def arguments(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments by name, as plain values.

    Arguments that are neither a JSON object nor a text that holds one become the single argument
    `arguments`, unchanged.
    """
    raw = call.raw_arguments
    if raw is msgspec.UNSET:
        return {}
    if isinstance(raw, str):
        try:
            value = _decode(raw)
            plain = values.plain(value, "arguments")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadValue):
            return {ARGUMENTS: raw}
    else:
        value, plain = raw, values.plain(raw, "arguments")
    return plain if isinstance(value, dict) else {ARGUMENTS: plain}


# One agent's messages and calls as the commits of its stream.

_MAPPED = {"role", "content", "timestamp", "cost"}
"""Keys of a message that are never kept among its fields."""


USAGE_NAMES = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
"""Recorded names of usage numbers whose names differ between sources."""

USAGE_NUMBERS_MAX = 200
"""Largest number of usage numbers of one message; they share its event. If there are more, the
usage stays a field, unchanged."""

COMMIT_EVENTS_BYTES_MAX = 192 * 1024
"""Largest size of a commit's events, in bytes; more go into the next commit. A commit may have 256
KiB: the rest is for its envelope, which may repeat a name of 1,000 characters several times."""

ENVELOPE_BYTES = 200
"""Bytes counted for each event besides its data: tag, id, and their names."""

TIMESTAMP_LENGTH_MAX = 200
"""Longest timestamp, in characters; it is stored unchanged with each event of its message."""

_encoder = msgspec.json.Encoder()


class Stream:
    """Builds one stream's commits in order; each goes to `out` when it is complete.

    `version` is that of the newest event; `bytes` is the approximate size of all events.
    """

    def __init__(
        self, run: str, stream: StreamId, actor: Actor, epoch: int, at: datetime, out: list[Append]
    ) -> None:
        self.version = 0
        self.bytes = 0
        self._run = run
        self._stream = stream
        self._name = str(stream)
        self._actor = actor
        self._epoch = epoch
        self._at = at
        self._out = out
        self._events: list[Recorded] = []
        self._bytes = 0
        self._first = 1

    def add(self, event: Event, occurred_at: str | None = None) -> None:
        """Add an event to the commit that is being built. Raises BadValue."""
        data = _encoder.encode(event)
        if len(data) > EVENT_BYTES_MAX:
            remedy = f"keep them under {EVENT_BYTES_MAX:,} in all"
            raise BadValue(event.tag, f"{len(data):,} bytes of texts", remedy)
        size = len(data) + ENVELOPE_BYTES
        if occurred_at is not None:
            if len(occurred_at) > TIMESTAMP_LENGTH_MAX:
                remedy = f"use at most {TIMESTAMP_LENGTH_MAX}"
                raise BadValue("timestamp", f"{len(occurred_at):,} characters", remedy)
            size += len(_encoder.encode(occurred_at))
        if self._events and self._bytes + size > COMMIT_EVENTS_BYTES_MAX:
            self.commit()
        self.version += 1
        index = str(len(self._events))
        event_id = uuid8(self._run, self._name, str(self._first), index)
        self._events.append(Recorded(event.tag, event_id, msgspec.Raw(data), None, occurred_at))
        self._bytes += size
        self.bytes += size

    def commit(self) -> None:
        """Complete the commit of the events added since the last one."""
        if not self._events:
            return
        commit = Commit(
            id=uuid8(self._run, self._name, str(self._first)),
            version=self._first,
            at=self._at,
            actor=self._actor,
            epoch=self._epoch,
            events=tuple(self._events),
        )
        self._out.append(Append(self._stream, commit))
        self._first = self.version + 1
        self._events = []
        self._bytes = 0


class StepReference(msgspec.Struct, frozen=True):
    """A call that became a step."""

    number: int
    unordered: bool


class Agent:
    """State of one agent during mapping: its stream, and the causal chain of its calls.

    `blobs` collects payloads that must be stored before the commits. `effects` holds the effect
    policies of tools that are not `ONCE`. `shared` are the texts that arguments may refer to; None
    records all in full.
    """

    shared: payloads.Shared | None = None

    def __init__(
        self, name: str, stream: Stream, blobs: list[bytes], effects: Mapping[str, Effects]
    ) -> None:
        self.stream = stream
        self._effects = effects
        self._name = name
        self._blobs = blobs
        self._scope = Scope(self, "", "", (), None)
        self._steps = 0
        self._tools: set[str] = set()

    def add_request(
        self, message: Message, fields: dict[str, Any], answered: list[bool], *, routed: bool
    ) -> list[StepReference]:
        """Add a message and its first `len(answered)` calls; `answered` marks those with a result.

        The calls overlap; one without a result counts as open until the end of its message.
        `routed` is true if the message's name is its agent's.
        """
        used = _used(message)
        plain = _plain(message, fields, used, routed=routed)
        self._message(message, plain, used, None)
        pairs = zip(message.tool_calls or (), answered, strict=False)
        request = [self._call(call, message.occurred_at) for call, _ in pairs]
        self._scope.open -= answered.count(False)
        return request

    def add_result(self, step: StepReference, message: Message, fields: dict[str, Any]) -> None:
        """Add a tool's message: the outcome of its step, and the message itself."""
        used = _used(message)
        plain = _plain(message, fields, used, routed=False)
        content = plain[1]
        error: Failure | None = None
        if message.error is True:
            error = Failure("ToolError", recordable(text_of(content), None), module=IMPORTER)
        self.add_outcome(step, content, error, message.occurred_at)
        self._message(message, plain, used, step.number)

    def add_message(self, message: Message, fields: dict[str, Any]) -> None:
        """Add a message; its calls, if it has any, are not steps."""
        used = _used(message)
        self._message(message, _plain(message, fields, used, routed=False), used, None)

    def add_call(
        self,
        tool: str,
        plain: dict[str, Any],
        occurred_at: str | None,
        *,
        call_id: str | None = None,
        kind: str = "tool",
        effects: Effects | None = None,
    ) -> StepReference:
        """Add a call with its arguments; it overlaps those without an outcome yet."""
        scope = self._scope
        tool = ids.name("tool", tool)
        effects = effects or self._effects.get(tool, Effects.ONCE)
        base = call_base(tool, "", self._name, scope.path, canonical(plain))
        key = call_key(base, scope.occurrence(base))
        unordered = scope.open > 0
        scope.open += 1
        self._steps += 1
        if tool not in self._tools:
            self._tools.add(tool)
            self.stream.add(ToolDeclared(tool=tool, effects=effects), occurred_at)
        packed = payloads.pack_arguments(plain, tool, self.shared)
        self._blobs += packed.blobs
        request = StepRequested(
            step=self._steps,
            tool=tool,
            effects=effects,
            arguments=packed.raw,
            call=key,
            fingerprint=fingerprint(key, UNORDERED if unordered else scope.head),
            after=scope.after,
            unordered=unordered,
            kind=kind,
            call_id=ids.name("call id", call_id) if call_id else None,
        )
        self.stream.add(request, occurred_at)
        if self.shared is not None:
            self.shared.learn(self._steps, packed.learned)
        return StepReference(self._steps, unordered)

    def add_outcome(
        self,
        step: StepReference,
        content: Any,
        error: Failure | None,
        occurred_at: str | None,
        usage: dict[str, float] | None = None,
        duration_ms: float = 0.0,
    ) -> None:
        """Add the outcome of a call: its error, else its result as a plain value."""
        more: dict[str, Any] = {"usage": usage or {}, "duration_ms": duration_ms}
        if error is not None:
            result = failure_digest(error)
            failed = StepFailed(step=step.number, error=error, digest=result, **more)
            self.stream.add(failed, occurred_at)
        else:
            result = digest(canonical(content))
            raw = self._packed(content, "content")
            done = StepCompleted(step=step.number, result=raw, digest=result, **more)
            self.stream.add(done, occurred_at)
        self._scope.open -= 1
        if not step.unordered:
            self._scope.go_on(result, (step.number,))

    # ------------------------------------------------------------ events

    def _message(self, message: Message, plain: list[Any], used: Used, step: int | None) -> None:
        base = fact_base("message", self._scope.path, canonical(plain))
        head = UNORDERED if self._scope.open else self._scope.head
        fields = plain[3]
        added = MessageAdded(
            role=ids.name("message role", message.role),
            content=self._packed(plain[1], "content"),
            fingerprint=fact_fingerprint(base, self._scope.occurrence(base), head),
            fields=self._packed(fields, "fields") if fields else NULL,
            step=step,
            usage=used.numbers,
        )
        self.stream.add(added, message.occurred_at)

    def _call(self, call: ToolCall, occurred_at: str | None) -> StepReference:
        return self.add_call(call.tool or "", arguments(call), occurred_at, call_id=call.id)

    def _packed(self, plain: Any, where: str) -> msgspec.Raw:
        packed = payloads.pack(plain, where)
        self._blobs += packed.blobs
        return packed.raw


def _plain(message: Message, raw: dict[str, Any], used: Used, *, routed: bool) -> list[Any]:
    """Return the values that a session's message fingerprint covers: role, content, tokens and
    fields.
    """
    fields = {
        key: value
        for key, value in raw.items()
        if key not in _MAPPED
        and not (key == "usage" and used.whole)
        and not (key == "name" and routed)
    }
    plain: list[Any] = values.plain([message.role, message.content, None, fields], "message")
    return plain


class Used(msgspec.Struct, frozen=True):
    """Usage numbers by name; `whole` is true if they are all of the source's usage data."""

    numbers: dict[str, float]
    whole: bool


def _used(message: Message) -> Used:
    """Return a message's usage: nested numbers under dotted names, and its cost in US dollars.

    Null values are missing.
    """
    numbers: dict[str, float] = {}
    whole = message.usage is None or _flatten(message.usage, "", numbers)
    if len(numbers) > USAGE_NUMBERS_MAX:
        numbers, whole = {}, False
    if message.cost is not None:
        whole = whole and numbers.get("cost", message.cost) == message.cost
        numbers["cost"] = message.cost
    return Used(numbers, whole)


def _flatten(usage: dict[str, Any], prefix: str, numbers: dict[str, float]) -> bool:
    whole = True
    for key, value in usage.items():
        name = prefix + (USAGE_NAMES.get(key, key) if not prefix else key)
        if isinstance(value, dict):
            whole = _flatten(value, f"{name}.", numbers) and whole
        elif type(value) in (int, float) and abs(value) <= SAFE_INT:
            whole = numbers.setdefault(name, value) == value and whole
        elif value is not None:
            whole = False
    return whole


# Kinds of assumptions about what a source does not state.

MATCHED = "results without an id"
NO_ZONE = "times without a zone"
UNITS = "numbers as times"
CONVENTION = "errors by convention"
UNPARSED = "arguments that are no object"
FILLED = "changes as texts filled in"
FRAMES = "frames by their place"
KEYS = "keys without an element"
NOT_DONE = "steps that no replay does"
MASKED = "values of fields called a password"

WORDS = {
    MATCHED: ("result without an id taken for the call before", "give it a tool_call_id"),
    NO_ZONE: ("time without a zone read as UTC", "give it one, such as Z or +01:00"),
    UNITS: ("number read as a time, its unit by its size", "give ISO 8601 with a zone"),
    CONVENTION: ("result read as failed by the source's convention", 'give it "error": true'),
    FILLED: (
        "change of an element without a stated role, taken for a text filled in",
        "record it with aria selectors that name the role",
    ),
    FRAMES: ("frame taken by its place on the page", "record it in the page itself"),
    KEYS: ("key taken to go to the element of the step before", "click its element first"),
    NOT_DONE: ("step that no replay does, kept as a message", "take it out of the file"),
    MASKED: (
        "value of a field that is called a password left out, a secret by name",
        "take the value out of the file",
    ),
    UNPARSED: ("call with arguments that are no JSON object, kept as they are", "give one"),
}
"""Description of each kind of assumption, and the remedy if nothing may be assumed."""


class Assumed(msgspec.Struct):
    """Count of one kind of assumption, and its first message's number from 0 (None: the run
    itself).
    """

    count: int
    first: int | None


def of(chat: ChatRun, answers: Answers) -> dict[str, Assumed]:
    """Return all assumptions about a run, by kind."""
    kinds: dict[str, Assumed] = {}
    for kind, number in _each(chat, answers):
        value = kinds.setdefault(kind, Assumed(0, number))
        value.count += 1
    return kinds


def _each(chat: ChatRun, answers: Answers) -> Iterator[tuple[str, int | None]]:
    if chat.format != CHAT_JSONL:  # there, a run's times are its messages'
        for each_text in (chat.began_at, chat.ending.at if chat.ending is not None else None):
            if each_text is not None and (kind := _of_time(each_text)) is not None:
                yield kind, None
    yield from chat.assumed
    for number, (message, item) in enumerate(zip(chat.messages, chat.raw_messages, strict=True)):
        if number in answers.matched:
            yield MATCHED, number
        if message.occurred_at is not None and (kind := _of_time(message.occurred_at)) is not None:
            yield kind, number
        if message.error is True and not says_error(item):
            yield CONVENTION, number
        if message.role != USER:
            for call in message.tool_calls or ():
                if _is_unparsed(call.raw_arguments):
                    yield UNPARSED, number


def _of_time(text: str) -> str | None:
    try:
        return NO_ZONE if datetime.fromisoformat(text).tzinfo is None else None
    except ValueError:
        return UNITS


def _is_unparsed(value: Any) -> bool:
    return value is not msgspec.UNSET and not is_object(value)


MAPPING = "1"
"""Version of the mapping; part of every id, so that a changed mapping gives other runs."""

EPOCH = 1
"""Epoch of every imported agent; a process that resumes the run takes the next."""


class RunBuilder:
    """Builds the commits of another system's run: those of its life, and its agents' streams.

    Args:
        run: The run's id.
        main: The agent that begins it.
        at: The present time.
        appends: Takes the commits.
        blobs: Takes the payloads to store before them.
    """

    def __init__(
        self, run: str, main: str, at: datetime, appends: list[Append], blobs: list[bytes]
    ) -> None:
        self.streams: list[Stream] = []
        self.agents: dict[str, Agent] = {}
        self._run, self._at, self._appends, self._blobs = run, at, appends, blobs
        self.life = self._stream(RunStream(run), main, 0)

    def _stream(self, stream: StreamId, agent: str, epoch: int) -> Stream:
        actor = Actor(IMPORTER, (agent,))
        builder = Stream(self._run, stream, actor, epoch, self._at, self._appends)
        self.streams.append(builder)
        return builder

    def begin(
        self, roster: Mapping[str, str], occurred_at: str | None, effects: Mapping[str, Effects]
    ) -> None:
        """Have agents join the run, whose first events are in `life`, by their roles."""
        for agent, role in roster.items():
            self.life.add(AgentJoined(agent=agent, role=role), occurred_at)
        self.life.commit()
        for agent, role in roster.items():
            stream = self._stream(AgentStream(self._run, role, agent), agent, EPOCH)
            began = SessionBegan(
                epoch=EPOCH,
                agent=agent,
                role=role,
                server_version=SERVER_VERSION,
                protocol_version=PROTOCOL_VERSION,
            )
            stream.add(began, occurred_at)
            stream.commit()
            self.agents[agent] = Agent(agent, stream, self._blobs, effects)

    def end(self, error: Failure | None, occurred_at: str | None) -> None:
        """End the run and its agents, as failed if there is an error."""
        outcome = "completed" if error is None else "failed"
        for agent in self.agents.values():
            agent.stream.add(AgentLeft(outcome=outcome, error=error), occurred_at)
            agent.stream.commit()
        self.life.add(RunFailed(error=error) if error is not None else RunCompleted(), occurred_at)
        self.life.commit()


class Mapped(msgspec.Struct):
    """A run's commits in order, and the blobs that must be stored before them.

    `size` is the approximate total in bytes; `assumed` holds assumptions about what the source does
    not state.
    """

    run: str
    tally: Tally
    appends: list[Append] = []
    blobs: list[bytes] = []
    size: int = 0
    assumed: dict[str, Assumed] = {}


def run_id(chat: ChatRun) -> str:
    """Return the run's id: a digest of its content, its format and the mapping's version."""
    return ids.uuid8("import", f"{chat.format}/{MAPPING}", canonical(chat.content).decode())


def mapped(chat: ChatRun, run: str, source: str, at: datetime) -> Mapped:
    """Map a chat to the commits of a run; `source` is the file's name, recorded as a label.

    Raises CallerError, which names the message that cannot be mapped.
    """
    return _Mapping(chat, run, at).all(source)


class _Mapping:
    def __init__(self, chat: ChatRun, run: str, at: datetime) -> None:
        self._chat = chat
        self._at = at
        self._out = Mapped(run, Tally(runs=1, messages=len(chat.messages)))
        self._main = chat.agent or AGENT
        self._answers = answers(chat.messages)
        self._steps: dict[CallIndex, StepReference] = {}
        self._builder = RunBuilder(run, self._main, at, self._out.appends, self._out.blobs)
        self._agents = self._builder.agents

    def all(self, source: str) -> Mapped:
        chat, out = self._chat, self._out
        routes: list[str] = []
        for number, message in enumerate(chat.messages):
            routes.append(self._route(number, message, routes))
        roster = self._roster(routes)
        self._begin(self._builder.life, roster, source)
        for number, agent in enumerate(routes):
            try:
                self._message(number, self._agents[agent])
            except CallerError as error:
                reason = f"messages[{number}]: {error}"
                raise CallerError(reason) from error
        if chat.ending is not None:
            self._end(self._builder.life, chat.ending)
        out.assumed = of(chat, self._answers)
        out.size = sum(map(len, out.blobs)) + sum(stream.bytes for stream in self._builder.streams)
        tally = out.tally
        tally.unasked = len(self._answers.unasked)
        tally.assumed = {kind: each.count for kind, each in out.assumed.items()}
        tally.left_out = dict(chat.left_out)
        tally.events = sum(stream.version for stream in self._builder.streams)
        tally.commits, tally.blobs = len(out.appends), len(out.blobs)
        return out

    # ------------------------------------------------------------ agents

    def _route(self, number: int, message: Message, routes: list[str]) -> str:
        """Return the agent whose stream a message goes to: the named one, the caller, else the
        run's own.
        """
        if message.role == TOOL:
            place = self._answers.of.get(number)
            return routes[place[0]] if place is not None else self._main
        is_agent = message.name is not None and message.name in self._chat.roles
        return message.name if is_agent and message.name else self._main

    def _roster(self, routes: list[str]) -> dict[str, str]:
        """Return the role of each agent, the run's own agent first if it takes part. Raises
        CallerError.
        """
        roles = self._chat.roles
        roster: dict[str, str] = {}
        if self._chat.agent is not None or not roles or self._main in routes:
            roster[self._main] = self._chat.role or roles.get(self._main) or AGENT
        for agent, role in roles.items():
            if roster.setdefault(agent, role) != role:
                fact = f"agent {agent!r} is {roster[agent]!r} by role and {role!r} by roles"
                raise BadValue("roles", fact, "an agent has one role in a run")
        for agent, role in roster.items():
            ids.name("agent", agent)
            ids.name("role", role)
        return roster

    # ------------------------------------------------------------ the run

    def _begin(self, life: Stream, roster: dict[str, str], source: str) -> None:
        chat = self._chat
        labels = {**chat.labels, SOURCE: chat.format, "source_file": source}
        started = RunStarted(workflow=ids.name("workflow", chat.workflow), labels=labels)
        life.add(started, chat.began_at)
        assigned = RunAssigned(
            experiment=_name_or_nothing("experiment", chat.experiment),
            arm=_name_or_nothing("arm", chat.arm),
            task=_name_or_nothing("task", chat.task),
            trial=chat.trial,
        )
        if assigned != RunAssigned():
            life.add(assigned)
        self._builder.begin(roster, chat.began_at, chat.effects)

    def _end(self, life: Stream, ending: Ending) -> None:
        error: Failure | None = None
        if ending.error is not None:
            error = Failure("Error", recordable(ending.error, None), module=IMPORTER)
        if ending.metrics or ending.details is not None:
            packed = payloads.pack(values.plain(ending.details, "details"), "details")
            self._out.blobs += packed.blobs
            details = packed.raw if ending.details is not None else NULL
            by = self._chat.format
            life.add(RunScored(metrics=ending.metrics, by=by, details=details), ending.at)
        self._builder.end(error, ending.at)

    # ------------------------------------------------------------ messages

    def _message(self, number: int, agent: Agent) -> None:
        message, content = self._chat.messages[number], self._chat.raw_messages[number]
        place = self._answers.of.get(number)
        if place is not None:
            agent.add_result(self._steps[place], message, content)
        else:
            routed = message.role != TOOL and message.name in self._chat.roles
            asks = message.tool_calls if message.role != USER else None
            places = [(number, index) for index in range(len(asks or ()))]
            answered = [place in self._answers.answered for place in places]
            request = agent.add_request(message, content, answered, routed=routed)
            self._steps.update(zip(places, request, strict=True))
            self._count(asks or [], answered)
        agent.stream.commit()

    def _count(self, asks: list[Any], answered: list[bool]) -> None:
        tally = self._out.tally
        tally.calls += len(asks)
        tally.unanswered += [
            (self._out.run, call.id or "")
            for call, has in zip(asks, answered, strict=True)
            if not has
        ]


def _name_or_nothing(kind: str, text: str) -> str:
    return ids.name(kind, text) if text else ""
