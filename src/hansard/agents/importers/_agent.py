"""One agent's messages and calls as the commits of its stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hansard.agents.importers import calls, usage
from hansard.agents.importers._streams import Stream
from hansard.agents.importers.chat import Message, ToolCall, text_of
from hansard.agents.steps import payloads
from hansard.agents.steps.failures import failure_digest
from hansard.agents.steps.scope import Scope
from hansard.domain import ids, values
from hansard.domain.agent import MessageAdded
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
from hansard.domain.values import recordable

_MAPPED = {"role", "content", "timestamp", "cost"}
"""What of a message never stays in its fields."""


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
        used = usage.of(message)
        plain = _plain(message, said, used, routed=routed)
        self._message(message, plain, used, None)
        told = zip(message.tool_calls or (), answered, strict=False)
        asked = [self._call(call, message.occurred_at) for call, _ in told]
        self._scope.open -= answered.count(False)
        return asked

    def answered(self, step: Asked, message: Message, said: dict[str, Any]) -> None:
        """A tool's message: the outcome of a step, and the message itself."""
        used = usage.of(message)
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

    def _message(
        self, message: Message, plain: list[Any], used: usage.Used, step: int | None
    ) -> None:
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


def _plain(message: Message, said: dict[str, Any], used: usage.Used, *, routed: bool) -> list[Any]:
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
