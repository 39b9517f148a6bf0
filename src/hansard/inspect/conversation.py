"""What continues over several runs, as it stood at a point."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, AtTime, Stored, UpTo
from hansard.bus.times import EventTime, Time, began, imported, own
from hansard.domain.agent import MessageAdded
from hansard.domain.conversation import RunJoined
from hansard.domain.errors import BadName
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.inspect.answer import Answer
from hansard.inspect.messages import Message, message, total
from hansard.inspect.payloads import Payloads
from hansard.inspect.trace import StoredEvent

REMEDY = "see the conversations of 'hansard runs --json'"

Said = tuple[AgentStream, int, StoredEvent, MessageAdded]
"""A message with the agent and the version at which it stands."""


class InFigures(msgspec.Struct, tag_field="kind", tag="conversation", kw_only=True):
    """A conversation in figures; `turns` are messages of the user's."""

    conversation: str
    position: int
    runs: list[str]
    turns: int
    messages: int
    tokens: int | None
    usage: dict[str, float]


class ConversationRun(msgspec.Struct, tag_field="kind", tag="run", kw_only=True):
    """A run of a conversation, with what its messages come to."""

    run: str
    workflow: str
    status: str
    began: Time
    messages: int
    tokens: int | None
    usage: dict[str, float]


class RunPart(Answer):
    """A run's messages by every agent, in the order of the record, each to be told by itself."""

    line: ConversationRun
    began: EventTime
    said: list[Said]

    def lines(self) -> Iterable[object]:
        """Nothing but what is told of each message."""
        return ()


class Conversation(Answer, kw_only=True):
    """A conversation and its runs; the messages are told one by one.

    `imported` where nobody knows when they were, `left_out` why a run of it is not here.
    """

    told: InFigures
    parts: list[RunPart]
    imported: EventTime | None
    left_out: list[str]

    def lines(self) -> Iterable[InFigures | ConversationRun]:
        """The conversation, then each run."""
        return (self.told, *(part.line for part in self.parts))

    async def messages(self, part: RunPart, fetch: Payloads) -> AsyncIterator[Message]:
        """A run's messages, large ones fetched; numbered over the whole conversation."""
        before = self.parts[: self.parts.index(part)]
        first = 1 + sum(len(each.said) for each in before)
        for index, (stream, version, stored, added) in enumerate(part.said, first):
            yield await message(part.line.run, stream.agent, index, version, stored, added, fetch)


async def conversation(workspace: Workspace, name: str, at: str | None) -> Conversation:
    """A conversation at a point. Raises NotFound, BadName, UnknownEvent, Corrupt."""
    end = await workspace.log.end(await _point(workspace, name, at))
    joined = await _joined(workspace, name, AtPosition(end))
    if not joined:
        what = f"conversation {name!r} at this point"
        raise NotFound(what, "it began later: leave out --at to see it all")
    parts: list[RunPart] = []
    left_out: list[str] = []
    for run in joined:
        try:
            parts.append(await _part(workspace, run, end))
        except NotFound as error:
            left_out.append(str(error))
    messages = [added for part in parts for _, _, _, added in part.said]
    figures = InFigures(
        conversation=name,
        position=end,
        runs=[part.line.run for part in parts],
        turns=sum(added.role == "user" for added in messages),
        **msgspec.structs.asdict(total(messages)),
    )
    times = [part.began for part in parts]
    times += [stored.time for part in parts for _, _, stored, _ in part.said]
    return Conversation(told=figures, parts=parts, imported=imported(times), left_out=left_out)


async def _joined(workspace: Workspace, conversation: str, up_to: UpTo) -> list[str]:
    """The runs of a conversation, in the order in which they joined."""
    stored = await workspace.log.read(WorkspaceStream("conversation", conversation), up_to=up_to)
    events = [revive(recorded) for commit in stored for recorded in commit.commit.events]
    return [event.run for event in events if isinstance(event, RunJoined)]


async def _point(workspace: Workspace, conversation: str, at: str | None) -> UpTo:
    """Where to read up to: the point in whichever of the conversation's runs has it.

    Raises NotFound, and BadName where several runs have it, each elsewhere.
    """
    runs = await _joined(workspace, conversation, None)
    if not runs:
        raise NotFound(f"conversation {conversation!r}", REMEDY)
    found: list[AtPosition | AtTime | None] = []
    absent: NotFound | None = None
    for run in runs:
        try:
            found.append(await workspace.points.up_to(run, at))
        except NotFound as error:
            absent = error
    places = list(dict.fromkeys(found))
    if not places:
        raise absent or NotFound(f"conversation {conversation!r}", REMEDY)
    if len(places) > 1:
        remedy = "several of its runs have it: give a position, a time or an id"
        raise BadName("point", at, remedy)
    return places[0]


async def _part(workspace: Workspace, run: str, end: int) -> RunPart:
    """A run's messages up to a position. Raises NotFound, Corrupt."""
    view = await workspace.states.run(run, AtPosition(end))
    history = await workspace.states.history(run, AtPosition(end))
    said = [found for stored in history for found in _said(stored)]
    first = began(own(run, history))
    line = ConversationRun(
        run=run,
        workflow=view.life.workflow,
        status=view.life.status.value,
        began=first.time,
        **msgspec.structs.asdict(total(added for _, _, _, added in said)),
    )
    return RunPart(line=line, began=first, said=said)


def _said(stored: Stored) -> list[Said]:
    """A commit's messages."""
    found: list[Said] = []
    for version, recorded in enumerate(stored.commit.events, stored.commit.version):
        if recorded.type == MessageAdded.tag and isinstance(stored.stream, AgentStream):
            event = revive(recorded)
            if isinstance(event, MessageAdded):
                found.append((stored.stream, version, StoredEvent(stored, recorded), event))
    return found
