"""A chat as events: the one mapping of every chat format.

A run's life begins and ends it; each agent's stream has one commit a message. A call is a step
with the call key and fingerprint that a session would have given it: the calls of one message
overlap, so all but the first are unordered. Ids are digests of the run's content, so that the same
chat gives the same commits whenever it is mapped; only `at`, the importer's clock, is its own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from hansard._version import PROTOCOL_VERSION, SERVER_VERSION
from hansard.agents.importers import assumed, calls
from hansard.agents.importers._agent import Agent, Asked, Stream
from hansard.agents.importers.assumed import Assumed
from hansard.agents.importers.chat import AGENT, SOURCE, TOOL, ChatRun, Ending, Message
from hansard.agents.steps import payloads
from hansard.bus.log import Append
from hansard.domain import ids, values
from hansard.domain.agent import AgentLeft, SessionBegan
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.events import Actor
from hansard.domain.fingerprint import canonical
from hansard.domain.ids import AgentStream, RunStream, StreamId
from hansard.domain.integrity.authorship import IMPORTER
from hansard.domain.run import (
    AgentJoined,
    RunAssigned,
    RunCompleted,
    RunFailed,
    RunScored,
    RunStarted,
)
from hansard.domain.steps import NULL, Failure
from hansard.domain.values import recordable

MAPPING = "1"
"""Part of every id: another mapping of the same content makes other runs."""

EPOCH = 1
"""Of every imported agent; who resumes the run takes the next."""


class InMessage(CallerError):
    """A message that cannot be mapped; nothing of its run was written."""

    def __init__(self, number: int, error: CallerError) -> None:
        super().__init__(f"messages[{number}]: {error}")
        self.number = number


class Mapped(msgspec.Struct):
    """A run's commits in order, and the blobs that must be stored before them.

    `size` is about what all of it takes, in bytes; `unanswered` are the ids of calls; `assumed` is
    what the source does not say, `left_out` what of it was not taken over.
    """

    run: str
    appends: list[Append] = []
    blobs: list[bytes] = []
    size: int = 0
    events: int = 0
    messages: int = 0
    calls: int = 0
    unanswered: list[str] = []
    unasked: int = 0
    assumed: dict[str, Assumed] = {}
    left_out: dict[str, int] = {}


def run_id(chat: ChatRun) -> str:
    """The run's id: a digest of its content, and of how it is read."""
    return ids.uuid8("import", f"{chat.format}/{MAPPING}", canonical(chat.content).decode())


def mapped(chat: ChatRun, run: str, source: str, at: datetime) -> Mapped:
    """A chat as the commits of a run; `source` is the file's name, for people.

    Raises CallerError; InMessage where it is about a message.
    """
    return _Mapping(chat, run, at).all(source)


class _Mapping:
    def __init__(self, chat: ChatRun, run: str, at: datetime) -> None:
        self._chat = chat
        self._at = at
        self._out = Mapped(run, messages=len(chat.messages))
        self._main = chat.agent or AGENT
        self._answers = calls.answers(chat.messages)
        self._steps: dict[calls.CallIndex, Asked] = {}
        self._agents: dict[str, Agent] = {}
        self._streams: list[Stream] = []

    def all(self, source: str) -> Mapped:
        chat, out = self._chat, self._out
        routes: list[str] = []
        for number, message in enumerate(chat.messages):
            routes.append(self._route(number, message, routes))
        roster = self._roster(routes)
        life = self._stream(RunStream(out.run), self._main, 0)
        self._begin(life, roster, source)
        for number, agent in enumerate(routes):
            try:
                self._message(number, self._agents[agent])
            except CallerError as error:
                raise InMessage(number, error) from error
        if chat.ending is not None:
            self._end(life, chat.ending)
        out.unasked = len(self._answers.unasked)
        out.left_out = chat.left_out
        out.assumed = assumed.of(chat, self._answers)
        out.size = sum(map(len, out.blobs)) + sum(stream.bytes for stream in self._streams)
        out.events = sum(stream.version for stream in self._streams)
        return out

    # ------------------------------------------------------------ who

    def _route(self, number: int, message: Message, routes: list[str]) -> str:
        """Whose stream a message goes to: who is named, who asked, else the run's agent."""
        if message.role == TOOL:
            place = self._answers.of.get(number)
            return routes[place[0]] if place is not None else self._main
        is_agent = message.name is not None and message.name in self._chat.roles
        return message.name if is_agent and message.name else self._main

    def _roster(self, routes: list[str]) -> dict[str, str]:
        """Every agent with its role, the run's own first, if it has a part. Raises CallerError."""
        roles = self._chat.roles
        roster: dict[str, str] = {}
        if self._chat.agent is not None or not roles or self._main in routes:
            roster[self._main] = self._chat.role or roles.get(self._main) or AGENT
        for agent, role in roles.items():
            if roster.setdefault(agent, role) != role:
                fact = f"agent {agent!r} is {roster[agent]!r} by role and {role!r} by roles"
                raise BadValue("roles", fact, "an agent has one role in a run")
        for agent, role in roster.items():
            ids.name("agent", agent)
            ids.name("role", role)
        return roster

    def _stream(self, stream: StreamId, agent: str, epoch: int) -> Stream:
        actor = Actor(IMPORTER, (agent,))
        made = Stream(self._out.run, stream, actor, epoch, self._at, self._out.appends)
        self._streams.append(made)
        return made

    # ------------------------------------------------------------ the run

    def _begin(self, life: Stream, roster: dict[str, str], source: str) -> None:
        chat = self._chat
        labels = {**chat.labels, SOURCE: chat.format, "source_file": source}
        started = RunStarted(workflow=ids.name("workflow", chat.workflow), labels=labels)
        life.add(started, chat.began_at)
        assigned = RunAssigned(
            experiment=_name_or_nothing("experiment", chat.experiment),
            arm=_name_or_nothing("arm", chat.arm),
            task=_name_or_nothing("task", chat.task),
            trial=chat.trial,
        )
        if assigned != RunAssigned():
            life.add(assigned)
        for agent, role in roster.items():
            life.add(AgentJoined(agent=agent, role=role), chat.began_at)
        life.commit()
        for agent, role in roster.items():
            stream = self._stream(AgentStream(self._out.run, role, agent), agent, EPOCH)
            began = SessionBegan(
                epoch=EPOCH,
                agent=agent,
                role=role,
                server_version=SERVER_VERSION,
                protocol_version=PROTOCOL_VERSION,
            )
            stream.add(began, chat.began_at)
            stream.commit()
            self._agents[agent] = Agent(agent, stream, self._out.blobs, chat.effects)

    def _end(self, life: Stream, ending: Ending) -> None:
        error: Failure | None = None
        if ending.error is not None:
            error = Failure("Error", recordable(ending.error, None), module=IMPORTER)
        outcome = "completed" if error is None else "failed"
        for agent in self._agents.values():
            agent.stream.add(AgentLeft(outcome=outcome, error=error), ending.at)
            agent.stream.commit()
        if ending.metrics or ending.details is not None:
            packed = payloads.pack(values.plain(ending.details, "details"), "details")
            self._out.blobs += packed.blobs
            details = packed.raw if ending.details is not None else NULL
            by = self._chat.format
            life.add(RunScored(metrics=ending.metrics, by=by, details=details), ending.at)
        life.add(RunFailed(error=error) if error is not None else RunCompleted(), ending.at)
        life.commit()

    # ------------------------------------------------------------ messages

    def _message(self, number: int, agent: Agent) -> None:
        message, said = self._chat.messages[number], self._chat.said[number]
        place = self._answers.of.get(number)
        if place is not None:
            agent.answered(self._steps[place], message, said)
        else:
            routed = message.role != TOOL and message.name in self._chat.roles
            asks = message.tool_calls if message.role != calls.USER else None
            places = [(number, index) for index in range(len(asks or ()))]
            answered = [place in self._answers.answered for place in places]
            asked = agent.asked(message, said, answered, routed=routed)
            self._steps.update(zip(places, asked, strict=True))
            self._count(asks or [], answered)
        agent.stream.commit()

    def _count(self, asks: list[Any], answered: list[bool]) -> None:
        self._out.calls += len(asks)
        missing = [call.id or "" for call, has in zip(asks, answered, strict=True) if not has]
        self._out.unanswered += missing


def _name_or_nothing(kind: str, text: str) -> str:
    return ids.name(kind, text) if text else ""
