"""Messages as they are on record: in their provider's form, with what they used up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hansard.bus.commits import revive
from hansard.bus.log import Stored
from hansard.bus.times import Clock
from hansard.domain.agent import AgentState, MessageAdded
from hansard.domain.conversation import ContextCompacted
from hansard.domain.ids import AgentStream
from hansard.inspect.payloads import Payloads
from hansard.inspect.trace import StoredEvent


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


class Summary(msgspec.Struct, tag_field="kind", tag="summary", kw_only=True):
    """A summary in the place of messages that were compacted: so many, whose events stand from the
    `first` address to the `last`. `tokens` are its own, and those of the window before and after it
    where they are known.
    """

    run: str
    agent: str
    index: int
    role: str
    message: dict[str, Any]
    messages: int
    first: str | None
    last: str | None
    tokens: int | None
    tokens_before: int | None
    tokens_after: int | None
    at: str | None
    clock: Clock
    version: int
    position: int
    step: int | None


class Compacted(msgspec.Struct, tag_field="kind", tag="compacted", kw_only=True):
    """What a summary stands for: a message, or a summary of before, whole. `summary` is the version
    of the summary, `index` counts what it stands for from 1.
    """

    summary: int
    said: Message | Summary


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


class ToldFact(msgspec.Struct, frozen=True):
    """A message or a summary, and where it stands."""

    run: str
    agent: str
    version: int
    address: str
    stored: StoredEvent
    fact: MessageAdded | ContextCompacted


def told_facts(commits: Iterable[Stored]) -> dict[str, ToldFact]:
    """The messages and summaries of commits, by the ids of their events."""
    found: dict[str, ToldFact] = {}
    for stored in commits:
        stream = stored.stream
        for index, recorded in enumerate(stored.commit.events):
            if recorded.type in (MessageAdded.tag, ContextCompacted.tag):
                event = revive(recorded)
                if isinstance(stream, AgentStream) and isinstance(
                    event, MessageAdded | ContextCompacted
                ):
                    found[recorded.id] = ToldFact(
                        stream.run,
                        stream.agent,
                        stored.commit.version + index,
                        f"{stored.position}.{index}",
                        StoredEvent(stored, recorded),
                        event,
                    )
    return found


async def summary(
    told: ToldFact,
    fact: ContextCompacted,
    index: int,
    known: Mapping[str, ToldFact],
    fetch: Payloads,
) -> Summary:
    """A summary of the record; `known` are the facts that it may stand for. Raises Corrupt."""
    time = told.stored.time.time
    places = [known[each].address for each in fact.stands_for if each in known]
    return Summary(
        run=told.run,
        agent=told.agent,
        index=index,
        role=fact.role,
        message={"role": fact.role, "content": await fetch.value(fact.summary)},
        messages=len(fact.stands_for),
        first=places[0] if places else None,
        last=places[-1] if places else None,
        tokens=fact.tokens,
        tokens_before=fact.tokens_before,
        tokens_after=fact.tokens_after,
        at=time.at,
        clock=time.clock,
        version=told.version,
        position=told.stored.stored.position,
        step=fact.step,
    )


async def said(
    told: ToldFact, index: int, known: Mapping[str, ToldFact], fetch: Payloads
) -> Message | Summary:
    """A message or a summary of the record. Raises Corrupt."""
    if isinstance(told.fact, ContextCompacted):
        return await summary(told, told.fact, index, known, fetch)
    return await message(told.run, told.agent, index, told.version, told.stored, told.fact, fetch)


def window(state: AgentState) -> list[tuple[int, MessageAdded]]:
    """An agent's messages with their versions, in order, those that were compacted, too."""
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


def window_total(state: AgentState) -> Totals:
    """What an agent's window comes to, a summary as the message that it is."""
    facts = [noted.fact for noted in state.window]
    found = total(fact for fact in facts if isinstance(fact, MessageAdded))
    for fact in facts:
        if isinstance(fact, ContextCompacted):
            found.messages += 1
            if fact.tokens is not None:
                found.tokens = (found.tokens or 0) + fact.tokens
    return found


def summed(usages: Sequence[dict[str, float]]) -> dict[str, float]:
    """Usage by name, summed without rounding on the way; in the order of the names."""
    names = sorted({name for usage in usages for name in usage})
    return {name: _sum([usage.get(name, 0.0) for usage in usages]) for name in names}


def _sum(amounts: list[float]) -> float:
    try:
        return math.fsum(amounts)
    except OverflowError:
        return sum(amounts)
