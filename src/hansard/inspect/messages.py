"""Messages as they are on record: in their provider's form, with what they used up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hansard.domain.agent import AgentState, MessageAdded
from hansard.inspect.agent_histories import StoredEvent
from hansard.inspect.payloads import Payloads
from hansard.inspect.times import Clock


class Message(msgspec.Struct, tag_field="kind", tag="message", kw_only=True):
    """A message whole, and where it stands. `index` counts the window from 1; `at` is None where
    nobody knows.
    """

    run: str
    agent: str
    index: int
    role: str
    message: dict[str, Any]
    tokens: int | None
    usage: dict[str, float]
    occurred_at: str | None
    at: str | None
    clock: Clock
    version: int
    position: int
    step: int | None


class Totals(msgspec.Struct):
    """How many messages, their tokens (None where none were told) and what they used up."""

    messages: int
    tokens: int | None
    usage: dict[str, float]


async def message(
    run: str,
    agent: str,
    index: int,
    version: int,
    stored: StoredEvent,
    added: MessageAdded,
    fetch: Payloads,
) -> Message:
    """A message of the record. Raises Corrupt."""
    time = stored.time.time
    return Message(
        run=run,
        agent=agent,
        index=index,
        role=added.role,
        message=await provider_form(added, fetch),
        tokens=added.tokens,
        usage=added.usage,
        occurred_at=stored.event.occurred_at,
        at=time.at,
        clock=time.clock,
        version=version,
        position=stored.stored.position,
        step=added.step,
    )


def window(state: AgentState) -> list[tuple[int, MessageAdded]]:
    """An agent's messages with their versions, in order."""
    return [
        (noted.version, noted.fact) for noted in state.facts if isinstance(noted.fact, MessageAdded)
    ]


async def provider_form(added: MessageAdded, fetch: Payloads) -> dict[str, Any]:
    """A message as it is sent to a model, large parts fetched; what JSON has no word for stays
    tagged. Raises Corrupt.
    """
    content, fields = await fetch.value(added.content), await fetch.value(added.fields)
    if fields is None:
        return {"role": added.role, "content": content}
    if isinstance(fields, dict) and not any(name.startswith("$") for name in fields):
        return {"role": added.role, "content": content, **fields}
    return {"role": added.role, "content": content, "fields": fields}


def total(messages: Iterable[MessageAdded]) -> Totals:
    """What messages come to."""
    found = list(messages)
    tokens = [message.tokens for message in found if message.tokens is not None]
    usage = summed([message.usage for message in found])
    return Totals(len(found), sum(tokens) if tokens else None, usage)


def summed(usages: Sequence[dict[str, float]]) -> dict[str, float]:
    """Usage by name, summed without rounding on the way; in the order of the names."""
    names = sorted({name for usage in usages for name in usage})
    return {name: _sum([usage.get(name, 0.0) for usage in usages]) for name in names}


def _sum(amounts: list[float]) -> float:
    try:
        return math.fsum(amounts)
    except OverflowError:
        return sum(amounts)
