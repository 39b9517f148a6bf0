"""Logs of Inspect (inspect_ai), as chats: each sample of each epoch is a run.

A log is one JSON document, or a ZIP archive (`.eval`) with an entry for each sample, compressed
with Zstandard by newer versions. The messages are those that the sample ended with; the times,
tokens and costs of its model and tool calls come from its events.
"""

from __future__ import annotations

import sys
import zipfile
import zlib
from collections import Counter, deque
from typing import Any, BinaryIO

import msgspec

from hansard.agents.importers import files
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
from hansard.agents.memory.search import ExtraMissing, imported

INSPECT = "inspect"

ZSTANDARD = 93
"""The number of the compression in a ZIP archive; `zipfile` knows it from Python 3.14 on."""

VERSION_MAX = 3
"""Newest version of a log that is understood; Inspect writes 2, and wrote 3 for a while."""

ENTRIES_MAX = 1_000_000
"""Most entries of an archive; their names are in memory at once."""

VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""What Inspect counts its grades as: correct, incorrect, partial, no answer."""

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
    """What is understood of a call of a model or tool; other events have other fields."""

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
    """What a log says of all its samples."""

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
        """Refuse what a newer version of Inspect may mean otherwise. Raises ValueError."""
        if self.version > VERSION_MAX:
            fact = f"version {self.version} of the format is not known"
            raise ValueError(f"{fact}: convert the log with 'inspect log convert'")


class Archive:
    """A log that is a ZIP archive; one entry at a time is in memory.

    Raises NotADocument where it cannot be read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._broken: tuple[type[Exception], ...] = (
            *(zipfile.BadZipFile, zlib.error, EOFError, OSError),
            *(NotImplementedError, RuntimeError, ValueError),  # of an entry that is encrypted
        )
        try:
            self._zip: zipfile.ZipFile = zipfile.ZipFile(file)
            methods = {entry.compress_type for entry in self._zip.infolist()}
            if ZSTANDARD in methods and sys.version_info < (3, 14):
                what = "a .eval file of this version of Inspect"
                name = "backports.zstd"
                module = imported(f"{name}.zipfile", what, name, "inspect")
                zstd_error = imported(name, what, name, "inspect").ZstdError
                self._broken += (module.BadZipFile, zstd_error)
                self._zip = module.ZipFile(file)
        except ExtraMissing as error:
            raise files.NotADocument(str(error)) from error
        except self._broken as error:
            reason = f"it is no whole ZIP archive ({error}): copy it again"
            raise files.NotADocument(reason) from error
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}
        if len(self._entries) > ENTRIES_MAX:
            fact = f"the archive has {len(self._entries):,} entries, the limit is {ENTRIES_MAX:,}"
            raise files.NotADocument(fact)

    def log(self) -> Log:
        """What the log says of all its samples."""
        for name in ("header.json", "_journal/start.json"):
            if name in self._entries:
                try:
                    return msgspec.convert(files.decode(self.read(name), constants=True), Log)
                except (msgspec.DecodeError, ValueError, RecursionError) as error:
                    raise files.NotADocument(f"entry {name!r}: {error}") from error
        raise files.NotADocument("it is no log of Inspect: it has no entry header.json")

    def samples(self) -> list[tuple[str, int]]:
        """The entries that are samples, and their compressed length in bytes."""
        return [
            (name, entry.compress_size)
            for name, entry in self._entries.items()
            if name.startswith("samples/") and name.endswith(".json")
        ]

    def read(self, name: str) -> bytes:
        """An entry. Raises NotADocument."""
        size = self._entries[name].file_size
        if size > files.RECORD_BYTES_MAX:
            raise files.NotADocument(files.too_long("it", size))
        try:
            return self._zip.read(self._entries[name])
        except self._broken as error:
            raise files.NotADocument(f"it cannot be read ({error}): copy the log again") from error


def is_archive(head: bytes) -> bool:
    """Whether the begin of a ZIP archive is that of a log."""
    name = head[30:][: int.from_bytes(head[26:28], "little")]
    return name.startswith((b"_journal/", b"samples/")) or name in (
        b"header.json",
        b"summaries.json",
    )


def from_sample(raw: Any, given: ImportDefaults, log: Log) -> ChatRun:
    """A sample, decoded, as a run. Raises ValidationError, CallerError."""
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
        given,
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
    """The calls of a sample's events, by the messages that they are about."""

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
        """What a message is known by: its id, which older versions did not write, else its text."""
        if message.get("id") is not None:
            return str(message["id"])
        plain = _attached([message.get("content"), message.get("tool_calls")], self._attachments)
        return msgspec.json.encode(plain).decode()

    def message(self, raw: dict[str, Any]) -> dict[str, Any]:
        """A message in the form of chat-jsonl."""
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
        """What of the events is in no message."""
        return Counter(
            {
                "call of a model without its answer among the messages": sum(
                    map(len, self._models.values())
                ),
                "event besides calls of models and tools": self._others,
            }
        )


def _call(call: Any) -> Any:
    """A tool call: Inspect's `function` is its name."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), str):
        return call
    return {"name": call["function"], **{key: v for key, v in call.items() if key != "function"}}


def _attached(value: Any, attachments: dict[str, str]) -> Any:
    """A value with the texts that it refers to."""
    if isinstance(value, dict):
        return {name: _attached(each, attachments) for name, each in value.items()}
    if isinstance(value, list):
        return [_attached(each, attachments) for each in value]
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    return value


def _numbers(scores: dict[str, _Score], left_out: Counter[str]) -> dict[str, float]:
    """Scores as numbers, the way Inspect counts them; of an object each part of it."""
    found: dict[str, float] = {}
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
                found[part] = number
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        if value in VALUES:
            return VALUES[value]
        try:
            return _WORDS[value.lower()] if value.lower() in _WORDS else float(value)
        except ValueError:
            return None
    return value if isinstance(value, int | float) else None
