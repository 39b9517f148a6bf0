"""Conversations: turns and context over several runs."""

from __future__ import annotations

from typing import Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive, revive_all
from hansard.bus.log import Stored
from hansard.domain import values
from hansard.domain.agent import MessageAdded
from hansard.domain.brief import Brief
from hansard.domain.conversation import KIND, RunJoined
from hansard.domain.ids import WorkspaceStream
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
    """

    id: str
    runs: list[str]
    messages: list[dict[str, Any]]
    total_tokens: int

    @property
    def turns(self) -> int:
        """How many messages came from the user."""
        return sum(message["role"] == "user" for message in self.messages)


async def conversation(workspace: Workspace, name: str, before: str | None = None) -> Conversation:
    """A conversation by its id, up to before a run of it; an unknown one is empty."""
    found = await _runs(workspace, name)
    if before in found:
        found = found[: found.index(before)]
    messages: list[dict[str, Any]] = []
    tokens = 0
    for run in found:
        for message in _added(await workspace.states.history(run)):
            messages.append(await provider_form(workspace, message))
            tokens += message.tokens or 0
    return Conversation(name, found, messages, tokens)


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


async def provider_form(workspace: Workspace, message: MessageAdded) -> dict[str, Any]:
    """A recorded message as it is sent to a model: role, content, and what else was given."""
    content = await fetched(workspace, message.content)
    fields = await fetched(workspace, message.fields)
    return {"role": message.role, "content": content, **(fields or {})}


async def fetched(workspace: Workspace, raw: msgspec.Raw) -> Any:
    """The value behind a recorded payload, large parts fetched from the blobs."""
    fetch = references.unpack(raw)
    try:
        wanted = next(fetch)
        while True:
            wanted = fetch.send(await workspace.blobs.get(*wanted))
    except StopIteration as stop:
        return values.revive(stop.value)
