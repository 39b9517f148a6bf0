"""The chat-jsonl format: one run a line, as a chat in the form of OpenAI's API.

`docs/chat-jsonl.md` describes it. Every other chat format is converted to a `ChatRun`, so that
there is one mapping to events (`hansard.agents.importers.mapping`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Annotated, Any

import msgspec

from hansard.domain import ids, values
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue
from hansard.domain.steps import Effects
from hansard.domain.times import claimed_time

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
