"""Conversations: turns and context across several runs."""

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
    """Content of a conversation.

    `messages` are all its messages in the provider's form, in the order of the record, ready to be
    sent again together with the next one. `turns` counts the user's messages.

    Attributes:
        id: The conversation's id.
        runs: Its runs, oldest first.
        messages: All its messages, in the provider's form.
        total_tokens: Sum over the messages whose tokens were counted.
        window: The context to continue with: the messages, with summaries in place of those that
            were compacted.
    """

    id: str
    runs: list[str]
    messages: list[dict[str, Any]]
    total_tokens: int
    window: list[dict[str, Any]] = []

    @property
    def turns(self) -> int:
        """Number of messages from the user."""
        return sum(message["role"] == "user" for message in self.messages)


async def conversation(workspace: Workspace, name: str, before: str | None = None) -> Conversation:
    """Return a conversation by its id, up to before a run of it; an unknown one is empty."""
    runs = await _runs(workspace, name)
    if before in runs:
        runs = runs[: runs.index(before)]
    facts = [each for run in runs for each in placed(await workspace.states.history(run))]
    forms = {each.id: await provider_form(workspace, each.fact) for each in facts}
    added = [each for each in facts if isinstance(each.fact, MessageAdded)]
    return Conversation(
        name,
        runs,
        [forms[each.id] for each in added],
        sum(each.fact.tokens or 0 for each in added),
        [forms[each.id] for each in window_after(facts)],
    )


class PlacedFact(msgspec.Struct, frozen=True):
    """A message or a summary, with its event's id and position."""

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
        """The event's address: position and index."""
        return f"{self.position}.{self.index}"


def placed(commits: list[Stored]) -> list[PlacedFact]:
    """Return the messages and summaries of a run, from all agents, in the order of the record."""
    facts: list[PlacedFact] = []
    for stored in commits:
        stream = stored.stream
        if not isinstance(stream, AgentStream):
            continue
        for index, recorded in enumerate(stored.commit.events):
            if recorded.type in (MessageAdded.tag, ContextCompacted.tag):
                event = revive(recorded)
                if isinstance(event, MessageAdded | ContextCompacted):
                    facts.append(
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
    return facts


def window_after(facts: list[PlacedFact]) -> list[PlacedFact]:
    """Return the window that results from messages and summaries.

    Each summary, oldest first, replaces what it summarises. A summary is ignored unless all that it
    summarises is still in the window.
    """
    window = [each for each in facts if isinstance(each.fact, MessageAdded)]
    for summary in sorted(facts, key=lambda each: (each.position, each.index)):
        if isinstance(summary.fact, ContextCompacted):
            replaced_ids = frozenset(summary.fact.stands_for)
            if replaced_ids and replaced_ids <= {each.id for each in window}:
                window = replaced(window, functools.partial(_in, replaced_ids), summary)
    return window


def _in(replaced_ids: frozenset[str], each: PlacedFact) -> bool:
    return each.id in replaced_ids


async def earlier_facts(workspace: Workspace, name: str, run: str) -> list[PlacedFact]:
    """Return the messages and summaries of earlier runs of a conversation, as recorded when this
    run began. A fork's are its first parent's.
    """
    return placed(await earlier_commits(workspace, name, run))


async def earlier_commits(workspace: Workspace, name: str, run: str) -> list[Stored]:
    """Return the commits of the conversation's earlier runs, as of the start of this run."""
    stored = await workspace.log.read(WorkspaceStream(KIND, name))
    joined = {event.run: each.position for each, event in _joins(stored)}
    while run not in joined:
        forked = await workspace.states.forked(run)
        if forked is None:
            return []
        run = forked.parent
    begun = AtPosition(joined[run])
    commits: list[Stored] = []
    for each in joined:
        if each == run:
            break
        commits += await workspace.states.history(each, begun)
    return commits


def _joins(stored: list[Stored]) -> Iterator[tuple[Stored, RunJoined]]:
    for each in stored:
        for event in revive_all([each.commit]):
            if isinstance(event, RunJoined):
                yield each, event


async def turns(workspace: Workspace, name: str, run: str) -> int:
    """Count the user's messages in the conversation's earlier runs."""
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
    """Return a run's messages, from all agents, in the order of the record."""
    messages = []
    for stored in commits:
        for recorded in stored.commit.events:
            if recorded.type == MessageAdded.tag:
                event = revive(recorded)
                if isinstance(event, MessageAdded):
                    messages.append(event)
    return messages


async def provider_form(
    workspace: Workspace, message: MessageAdded | ContextCompacted
) -> dict[str, Any]:
    """Return a recorded message as sent to a model: role, content, and its other fields."""
    if isinstance(message, ContextCompacted):
        return {"role": message.role, "content": await fetched(workspace, message.summary)}
    content = await fetched(workspace, message.content)
    fields = await fetched(workspace, message.fields)
    return {"role": message.role, "content": content, **(fields or {})}


async def fetched(workspace: Workspace, raw: msgspec.Raw) -> Any:
    """Return the value of a recorded payload, with large parts fetched from the blob store."""
    plain = await drive_fetch(references.unpack(raw), workspace.blobs.get)
    return values.revive(plain)
