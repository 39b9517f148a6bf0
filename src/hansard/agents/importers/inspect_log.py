"""Logs of Inspect (inspect_ai), read as chats: each sample of each epoch is a run.

A log is one JSON document, or a ZIP archive (`.eval`) with an entry for each sample, which newer
versions compress with Zstandard. The messages are the sample's final ones; times, tokens and costs
come from its model and tool events.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import msgspec

from hansard.agents.importers.chat import (
    TOOL,
    ChatRun,
    Ending,
    ImportDefaults,
    Whole,
    converted,
    labels_of,
    metrics,
)

INSPECT = "inspect"

VERSION_MAX = 3
"""Newest log version that can be read; Inspect writes 2, and for a while wrote 3."""

VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Values of Inspect's grades: correct, incorrect, partial, no answer."""

_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}

_ATTACHMENT = "attachment://"


class _Score(msgspec.Struct, frozen=True):
    value: Any = None


class _Error(msgspec.Struct, frozen=True):
    message: str


class _Limit(msgspec.Struct, frozen=True):
    type: str
    limit: float | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: dict[str, Any]


class _Output(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None


class _Event(msgspec.Struct, frozen=True):
    """The fields of a model or tool event that the importer interprets."""

    timestamp: str | None = None
    completed: str | None = None
    id: Any = None
    output: Any = None


class _Sample(msgspec.Struct, frozen=True):
    """A sample of one epoch."""

    id: str | int
    epoch: Whole = 1
    messages: list[dict[str, Any]] = []
    scores: dict[str, _Score] | None = None
    metadata: dict[str, Any] = {}
    events: list[dict[str, Any]] = []
    store: dict[str, Any] = {}
    attachments: dict[str, str] = {}
    uuid: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    error: _Error | None = None
    error_retries: list[Any] | None = None
    limit: _Limit | None = None


class _Dataset(msgspec.Struct, frozen=True):
    name: str | None = None


class _Eval(msgspec.Struct, frozen=True):
    """Header of a log, common to all its samples."""

    task: str
    model: str
    eval_id: str | None = None
    run_id: str | None = None
    task_version: str | int | None = None
    dataset: _Dataset | None = None
    solver: str | None = None


class Log(msgspec.Struct, frozen=True):
    """A log without its samples."""

    eval: _Eval
    version: int = 2

    def __post_init__(self) -> None:
        """Reject a version of the format that is not known. Raises ValueError."""
        if self.version > VERSION_MAX:
            fact = f"version {self.version} of the format is not known"
            raise ValueError(f"{fact}: convert the log with 'inspect log convert'")


def from_sample(raw: Any, defaults: ImportDefaults, log: Log) -> ChatRun:
    """Convert a decoded sample. Raises ValidationError, CallerError."""
    sample = msgspec.convert(raw, _Sample)
    calls = _Calls(sample.events, sample.attachments)
    messages = [calls.message(message) for message in sample.messages]
    left_out = calls.left_out()
    left_out["final state of the solver (store)"] += bool(sample.store)
    left_out["attempt before a retry"] += len(sample.error_retries or ())
    numbers = _numbers(sample.scores or {}, left_out)
    source = log.eval
    dataset = source.dataset.name if source.dataset is not None else None
    labels = {
        **labels_of(sample.metadata),
        "eval_id": source.eval_id,
        "eval_run": source.run_id,
        "task_version": str(source.task_version) if source.task_version is not None else None,
        "dataset": dataset,
        "solver": source.solver,
        "limit": sample.limit.type if sample.limit is not None else None,
    }
    record = {
        "workflow": source.task,
        "run": sample.uuid or f"{source.eval_id or source.run_id}/{sample.id}/{sample.epoch}",
        "task": sample.id,
        "trial": sample.epoch,
        "model": source.model,
        "labels": {name: text for name, text in labels.items() if text},
        "messages": messages,
    }
    details = {
        name: raw[name]
        for name in ("target", "scores", "model_usage", "total_time", "working_time", "error")
        if raw.get(name)
    }
    return converted(
        INSPECT,
        record,
        defaults,
        began_at=sample.started_at,
        ending=Ending(
            metrics=metrics(numbers, "scores"),
            details=details,
            error=sample.error.message if sample.error is not None else None,
            at=sample.completed_at,
        ),
        left_out=dict(+left_out),
    )


class _Calls:
    """Model and tool events of a sample, by the messages that they belong to."""

    def __init__(self, events: list[dict[str, Any]], attachments: dict[str, str]) -> None:
        self._attachments = attachments
        self._models: dict[str, deque[tuple[_Event, _Output]]] = {}
        self._tools: dict[str, str | None] = {}
        self._others = 0
        for raw in events:
            kind = raw.get("event")
            if kind not in ("model", "tool"):
                self._others += 1
                continue
            event = msgspec.convert(raw, _Event)
            if kind == "tool":
                self._tools[str(event.id)] = event.completed or event.timestamp
            else:
                output = msgspec.convert(event.output or {}, _Output)
                choice = output.choices[0].message if output.choices else {}
                self._models.setdefault(self._key(choice), deque()).append((event, output))

    def _key(self, message: dict[str, Any]) -> str:
        """Return a message's key: its id, or its content if an older version wrote none."""
        if message.get("id") is not None:
            return str(message["id"])
        plain = _attached([message.get("content"), message.get("tool_calls")], self._attachments)
        return msgspec.json.encode(plain).decode()

    def message(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Convert a message to chat-jsonl."""
        made = _attached(raw, self._attachments)
        if made.get("role") == "assistant" and (calls := self._models.get(self._key(raw))):
            event, output = calls.popleft()
            made["timestamp"] = event.completed or event.timestamp
            usage = output.usage
            if usage:
                made["usage"] = {name: n for name, n in usage.items() if name != "total_cost"}
                made["cost"] = usage.get("total_cost")
        if made.get("tool_calls"):
            made["tool_calls"] = [_call(call) for call in made["tool_calls"]]
        if made.get("role") == TOOL:
            made["timestamp"] = self._tools.get(str(made.get("tool_call_id")))
            error = made.pop("error", None)
            if error is not None:
                made |= {"error": True, "tool_error": error}
                text = error.get("message") if isinstance(error, dict) else error
                made["content"] = made.get("content") or text
        made["message_id"] = made.pop("id", None)
        return {name: value for name, value in made.items() if value is not None}

    def left_out(self) -> Counter[str]:
        """Count the events that belong to no message."""
        return Counter(
            {
                "call of a model without its answer among the messages": sum(
                    map(len, self._models.values())
                ),
                "event besides calls of models and tools": self._others,
            }
        )


def _call(call: Any) -> Any:
    """Convert a tool call; its `function` is the tool's name."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), str):
        return call
    return {"name": call["function"], **{key: v for key, v in call.items() if key != "function"}}


def _attached(value: Any, attachments: dict[str, str]) -> Any:
    """Replace references to attachments in a value by their texts."""
    if isinstance(value, dict):
        return {name: _attached(each, attachments) for name, each in value.items()}
    if isinstance(value, list):
        return [_attached(each, attachments) for each in value]
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    return value


def _numbers(scores: dict[str, _Score], left_out: Counter[str]) -> dict[str, float]:
    """Return scores as numbers, valued as Inspect does; an object or list yields one for each
    part.
    """
    numbers: dict[str, float] = {}
    for name, score in scores.items():
        value = score.value
        parts = {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {}
        if isinstance(value, list):
            parts = {f"{name}.{number}": v for number, v in enumerate(value)}
        for part, each in (parts or {name: value}).items():
            number = _number(each)
            if number is None:
                left_out["score without a number, kept in the details"] += 1
            else:
                numbers[part] = number
    return numbers


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        if value in VALUES:
            return VALUES[value]
        try:
            return _WORDS[value.lower()] if value.lower() in _WORDS else float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) else None
