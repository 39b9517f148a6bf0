"""One agent's messages and calls as the commits of its stream."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from hansard.agents.importers import calls
from hansard.agents.importers.chat import Message, ToolCall, text_of
from hansard.agents.steps import payloads
from hansard.agents.steps.failures import failure_digest
from hansard.agents.steps.payloads import EVENT_BYTES_MAX
from hansard.agents.steps.scope import Scope
from hansard.bus.log import Append
from hansard.domain import ids, values
from hansard.domain.agent import MessageAdded
from hansard.domain.errors import BadValue
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
from hansard.domain.ids import StreamId, uuid8
from hansard.domain.integrity.authorship import IMPORTER
from hansard.domain.steps import (
    NULL,
    Effects,
    Failure,
    StepCompleted,
    StepFailed,
    StepRequested,
    ToolDeclared,
)
from hansard.domain.values import SAFE_INT, recordable

_MAPPED = {"role", "content", "timestamp", "cost"}
"""What of a message never stays in its fields."""


USAGE_NAMES = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
"""What some sources call what is recorded under one name."""

USAGE_NUMBERS_MAX = 200
"""Most numbers of one message: they stand in its event. What has more is kept as it is."""

COMMIT_EVENTS_BYTES_MAX = 192 * 1024
"""Events of one commit, in bytes; more go into the next. A commit may have 256 KiB: the rest is
for its envelope, in which a name of 1,000 characters may stand several times."""

ENVELOPE_BYTES = 200
"""Counted for each event beside its data: its tag, its id, and their names."""

TIMESTAMP_LENGTH_MAX = 200
"""Longest timestamp, in characters: it is kept as it is beside each event of its message."""

_encoder = msgspec.json.Encoder()


class Stream:
    """Makes one stream's commits in order; each goes to `out` when it is complete.

    `version` is that of the newest event, `bytes` about what all of it takes.
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
        """Add an event to the commit that is being made. Raises BadValue."""
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
        """What was added since the last one is a commit."""
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


class Asked(msgspec.Struct, frozen=True):
    """A call that became a step."""

    number: int
    unordered: bool


class Agent:
    """One agent as it is mapped: its stream, and the chain that its calls stand in.

    `blobs` takes what must be stored before the commits; `effects` are those of tools that are not
    done once.
    """

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

    def asked(
        self,
        message: Message,
        said: dict[str, Any],
        answered: list[bool],
        *,
        routed: bool,
    ) -> list[Asked]:
        """A message and as many of its calls as `answered` is long, which says what has a result.

        The calls overlap; one that is never answered counts as open to the end of its message.
        `routed` says that the message's name is that of its agent.
        """
        used = _used(message)
        plain = _plain(message, said, used, routed=routed)
        self._message(message, plain, used, None)
        told = zip(message.tool_calls or (), answered, strict=False)
        asked = [self._call(call, message.occurred_at) for call, _ in told]
        self._scope.open -= answered.count(False)
        return asked

    def answered(self, step: Asked, message: Message, said: dict[str, Any]) -> None:
        """A tool's message: the outcome of a step, and the message itself."""
        used = _used(message)
        plain = _plain(message, said, used, routed=False)
        content = plain[1]
        if message.error is True:
            error = Failure("ToolError", recordable(text_of(content), None), module=IMPORTER)
            result = failure_digest(error)
            failed = StepFailed(step=step.number, error=error, digest=result)
            self.stream.add(failed, message.occurred_at)
        else:
            result = digest(canonical(content))
            raw = self._packed(content, "content")
            done = StepCompleted(step=step.number, result=raw, digest=result)
            self.stream.add(done, message.occurred_at)
        self._scope.open -= 1
        if not step.unordered:
            self._scope.go_on(result, (step.number,))
        self._message(message, plain, used, step.number)

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

    def _call(self, call: ToolCall, occurred_at: str | None) -> Asked:
        scope = self._scope
        tool = ids.name("tool", call.tool)
        given = calls.arguments(call)
        effects = self._effects.get(tool, Effects.ONCE)
        base = call_base(tool, "", self._name, scope.path, canonical(given))
        key = call_key(base, scope.occurrence(base))
        unordered = scope.open > 0
        scope.open += 1
        self._steps += 1
        if tool not in self._tools:
            self._tools.add(tool)
            self.stream.add(ToolDeclared(tool=tool, effects=effects), occurred_at)
        packed = payloads.pack_arguments(given)
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
            call_id=ids.name("call id", call.id) if call.id else None,
        )
        self.stream.add(request, occurred_at)
        return Asked(self._steps, unordered)

    def _packed(self, plain: Any, where: str) -> msgspec.Raw:
        packed = payloads.pack(plain, where)
        self._blobs += packed.blobs
        return packed.raw


def _plain(message: Message, said: dict[str, Any], used: Used, *, routed: bool) -> list[Any]:
    """What a session's message is fingerprinted by: role, content, tokens and fields."""
    fields = {
        key: value
        for key, value in said.items()
        if key not in _MAPPED
        and not (key == "usage" and used.whole)
        and not (key == "name" and routed)
    }
    plain: list[Any] = values.plain([message.role, message.content, None, fields], "message")
    return plain


class Used(msgspec.Struct, frozen=True):
    """Numbers by name, and whether they are all that the source says of usage."""

    numbers: dict[str, float]
    whole: bool


def _used(message: Message) -> Used:
    """What a message used up: nested numbers under names with dots, and its cost (US dollars).

    What is null is missing.
    """
    found: dict[str, float] = {}
    whole = message.usage is None or _flatten(message.usage, "", found)
    if len(found) > USAGE_NUMBERS_MAX:
        found, whole = {}, False
    if message.cost is not None:
        whole = whole and found.get("cost", message.cost) == message.cost
        found["cost"] = message.cost
    return Used(found, whole)


def _flatten(usage: dict[str, Any], prefix: str, found: dict[str, float]) -> bool:
    whole = True
    for key, value in usage.items():
        name = prefix + (USAGE_NAMES.get(key, key) if not prefix else key)
        if isinstance(value, dict):
            whole = _flatten(value, f"{name}.", found) and whole
        elif type(value) in (int, float) and abs(value) <= SAFE_INT:
            whole = found.setdefault(name, value) == value and whole
        elif value is not None:
            whole = False
    return whole
