"""Conversations: turns and context over several runs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.commits import drive_fetch, revive, revive_all
from hansard.bus.log import AtPosition, Stored
from hansard.domain import values
from hansard.domain.agent import MessageAdded
from hansard.domain.choices import Brief
from hansard.domain.conversation import KIND, ContextCompacted, RunJoined, replaced
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.domain.label import Label
from hansard.domain.payload import references


class Conversation(Brief, msgspec.Struct, frozen=True):
    """What a conversation held so far.

    `messages` are all its messages in the provider's form, in the order of the record: ready to
    be sent again with what comes next. `turns` counts the user's.

    Attributes:
        id: The conversation's id.
        runs: Its runs, the oldest first.
        messages: All its messages, in the provider's form.
        total_tokens: Of the messages whose tokens were counted.
        window: What is sent to a model to go on: the messages, and summaries in the place of those
            that were compacted.
    """

    id: str
    runs: list[str]
    messages: list[dict[str, Any]]
    total_tokens: int
    window: list[dict[str, Any]] = []

    @property
    def turns(self) -> int:
        """How many messages came from the user."""
        return sum(message["role"] == "user" for message in self.messages)


async def conversation(workspace: Workspace, name: str, before: str | None = None) -> Conversation:
    """A conversation by its id, up to before a run of it; an unknown one is empty."""
    found = await _runs(workspace, name)
    if before in found:
        found = found[: found.index(before)]
    facts = [each for run in found for each in placed(await workspace.states.history(run))]
    forms = {each.id: await provider_form(workspace, each.fact) for each in facts}
    added = [each for each in facts if isinstance(each.fact, MessageAdded)]
    return Conversation(
        name,
        found,
        [forms[each.id] for each in added],
        sum(each.fact.tokens or 0 for each in added),
        [forms[each.id] for each in standing(facts)],
    )


class PlacedFact(msgspec.Struct, frozen=True):
    """A message or a summary, by the id of its event, and where it stands."""

    id: str
    run: str
    agent: str
    version: int
    position: int
    index: int
    fact: MessageAdded | ContextCompacted
    label: Label | None = None

    @property
    def address(self) -> str:
        """Its event's, as everywhere."""
        return f"{self.position}.{self.index}"


def placed(commits: list[Stored]) -> list[PlacedFact]:
    """The messages and summaries of a run, by every agent, in the order of the record."""
    found: list[PlacedFact] = []
    for stored in commits:
        stream = stored.stream
        if not isinstance(stream, AgentStream):
            continue
        for index, recorded in enumerate(stored.commit.events):
            if recorded.type in (MessageAdded.tag, ContextCompacted.tag):
                event = revive(recorded)
                if isinstance(event, MessageAdded | ContextCompacted):
                    found.append(
                        PlacedFact(
                            recorded.id,
                            stream.run,
                            stream.agent,
                            stored.commit.version + index,
                            stored.position,
                            index,
                            event,
                            stored.commit.label,
                        )
                    )
    return found


def standing(facts: list[PlacedFact]) -> list[PlacedFact]:
    """The window that messages and summaries come to: each summary in the place of what it stands
    for, the earliest first. One that stands for what is not there, or for what another one stands
    for, changes nothing: whatever it stands for is there itself, or in that other one.
    """
    window = [each for each in facts if isinstance(each.fact, MessageAdded)]
    for summary in sorted(facts, key=lambda each: (each.position, each.index)):
        if isinstance(summary.fact, ContextCompacted):
            gone = frozenset(summary.fact.stands_for)
            if gone and gone <= {each.id for each in window}:
                window = replaced(window, functools.partial(_in, gone), summary)
    return window


def _in(gone: frozenset[str], each: PlacedFact) -> bool:
    return each.id in gone


async def earlier(workspace: Workspace, name: str, run: str) -> list[PlacedFact]:
    """What a conversation held when a run of it began: messages and summaries of the runs before
    it, as far as they were on record by then. A fork's is its first parent's.
    """
    return placed(await earlier_commits(workspace, name, run))


async def earlier_commits(workspace: Workspace, name: str, run: str) -> list[Stored]:
    """The commits of the runs of a conversation before one, up to where that began."""
    stored = await workspace.log.read(WorkspaceStream(KIND, name))
    joined = {event.run: each.position for each, event in _joins(stored)}
    while run not in joined:
        forked = await workspace.states.forked(run)
        if forked is None:
            return []
        run = forked.parent
    begun = AtPosition(joined[run])
    found: list[Stored] = []
    for each in joined:
        if each == run:
            break
        found += await workspace.states.history(each, begun)
    return found


def _joins(stored: list[Stored]) -> Iterator[tuple[Stored, RunJoined]]:
    for each in stored:
        for event in revive_all([each.commit]):
            if isinstance(event, RunJoined):
                yield each, event


async def turns(workspace: Workspace, name: str, run: str) -> int:
    """How many messages the user had written before a run of the conversation."""
    count = 0
    for earlier in await _runs(workspace, name):
        if earlier == run:
            break
        added = _added(await workspace.states.history(earlier))
        count += sum(message.role == "user" for message in added)
    return count


async def _runs(workspace: Workspace, name: str) -> list[str]:
    stored = await workspace.log.read(WorkspaceStream(KIND, name))
    events = revive_all(item.commit for item in stored)
    return [event.run for event in events if isinstance(event, RunJoined)]


def _added(commits: list[Stored]) -> list[MessageAdded]:
    """A run's messages by every agent, in the order of the record."""
    found = []
    for stored in commits:
        for recorded in stored.commit.events:
            if recorded.type == MessageAdded.tag:
                event = revive(recorded)
                if isinstance(event, MessageAdded):
                    found.append(event)
    return found


async def provider_form(
    workspace: Workspace, message: MessageAdded | ContextCompacted
) -> dict[str, Any]:
    """A recorded message as it is sent to a model: role, content, and what else was given."""
    if isinstance(message, ContextCompacted):
        return {"role": message.role, "content": await fetched(workspace, message.summary)}
    content = await fetched(workspace, message.content)
    fields = await fetched(workspace, message.fields)
    return {"role": message.role, "content": content, **(fields or {})}


async def fetched(workspace: Workspace, raw: msgspec.Raw) -> Any:
    """The value behind a recorded payload, large parts fetched from the blobs."""
    plain = await drive_fetch(references.unpack(raw), workspace.blobs.get)
    return values.revive(plain)
