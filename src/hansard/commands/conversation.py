"""`hansard conversation show`: what continues over several runs, as it stood at a point."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
from rich.text import Text

from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, AtTime, Stored, UpTo
from hansard.commands import _look, _look_message, _show
from hansard.commands._look import Payloads, Told, When
from hansard.commands._look_message import Shown
from hansard.commands._open import Options, reading
from hansard.domain.agent import MessageAdded
from hansard.domain.conversation import RunJoined
from hansard.domain.counted import counted
from hansard.domain.errors import BadName
from hansard.domain.ids import AgentStream, Lasting
from hansard.domain.run import RunState

REMEDY = "see the conversations of 'hansard runs --json'"


class _Part(msgspec.Struct, frozen=True):
    """A run's part in a conversation: its messages by every agent, in the order of the record,
    each with the agent and the version at which it stands.
    """

    run: str
    life: RunState
    began: When
    said: list[tuple[AgentStream, int, Told, MessageAdded]]

    @property
    def messages(self) -> list[MessageAdded]:
        """The messages alone."""
        return [added for _, _, _, added in self.said]


async def show(options: Options, conversation: str, at: str | None, *, json: bool) -> int:
    """Print a conversation's runs and messages, large ones fetched.

    Raises NotFound, BadName, UnknownEvent, Corrupt.
    """
    async with reading(options) as workspace:
        up_to = await _point(workspace, conversation, at)
        end = await workspace.log.end(up_to)
        joined = await _joined(workspace, conversation, AtPosition(end))
        if not joined:
            what = f"conversation {conversation!r} at this point"
            raise NotFound(what, "it began later: leave out --at to see it all")
        parts = [part for run in joined if (part := await _part(workspace, run, end)) is not None]
        fetch = Payloads(workspace)
        _about(conversation, end, parts, json=json)
        index = 0
        for part in parts:
            if not json:
                title = f"run {part.run}, {counted(len(part.said), 'message')}"
                _show.write("", _show.Lines([_show.cell(title, "bold")]))
            for stream, version, told, added in part.said:
                index += 1
                shown = Shown(
                    run=part.run,
                    agent=stream.agent,
                    index=index,
                    version=version,
                    told=told,
                    added=added,
                    message=await _look_message.provider_form(added, fetch),
                )
                if json:
                    _show.emit(shown.line())
                else:
                    _show.write(Text(), shown.text())
    return 0


async def _joined(workspace: Workspace, conversation: str, up_to: UpTo) -> list[str]:
    """The runs of a conversation, in the order in which they joined."""
    stored = await workspace.log.read(Lasting("conversation", conversation), up_to=up_to)
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


async def _part(workspace: Workspace, run: str, end: int) -> _Part | None:
    """A run's messages up to a position; None, aloud, where the run is not here. Raises Corrupt."""
    try:
        view = await workspace.states.run(run, AtPosition(end))
        history = await workspace.states.history(run, AtPosition(end))
    except NotFound as error:
        _show.hint(f"a run of the conversation is left out: {error}")
        return None
    said = [found for stored in history for found in _said(stored)]
    return _Part(run, view.life, _look.began(_look.own(run, history)), said)


def _said(stored: Stored) -> list[tuple[AgentStream, int, Told, MessageAdded]]:
    """A commit's messages."""
    found = []
    for version, recorded in enumerate(stored.commit.events, stored.commit.version):
        if recorded.type == MessageAdded.tag and isinstance(stored.stream, AgentStream):
            event = revive(recorded)
            if isinstance(event, MessageAdded):
                found.append((stored.stream, version, Told(stored, recorded), event))
    return found


def _about(conversation: str, end: int, parts: list[_Part], *, json: bool) -> None:
    """The conversation in figures, and each of its runs."""
    messages = [added for part in parts for added in part.messages]
    turns = sum(added.role == "user" for added in messages)
    totals = _look_message.total(messages)
    if json:
        about: dict[str, Any] = {"kind": "conversation", "conversation": conversation}
        runs = [part.run for part in parts]
        _show.emit({**about, "position": end, "runs": runs, "turns": turns, **totals})
        for part in parts:
            _show.emit(_run_line(part))
        return
    said = f"{_look_message.total_text(totals)}, {counted(turns, 'turn')}"
    _show.write(f"conversation {conversation} as of position {end}: {said}")
    times = (told.when for part in parts for _, _, told, _ in part.said)
    _show.write(_look.imported(itertools.chain((part.began for part in parts), times)) or "")
    columns = [
        _show.Column("run", whole=True),
        _show.Column("workflow"),
        _show.Column("status"),
        _show.Column("began", whole=True),
        _show.Column("messages"),
    ]
    rows: list[list[Text | str]] = [
        [
            part.run,
            part.life.workflow,
            _show.status_cell(part.life.status.value),
            part.began.shown,
            _look_message.total_text(_look_message.total(part.messages)),
        ]
        for part in parts
    ]
    _show.write(_show.table(columns, rows))


def _run_line(part: _Part) -> dict[str, Any]:
    return {
        "kind": "run",
        "run": part.run,
        "workflow": part.life.workflow,
        "status": part.life.status.value,
        "began": part.began.data,
        **_look_message.total(part.messages),
    }
