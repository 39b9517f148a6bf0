"""What fits: may this body stand where it stands, written by whom it says?

Agents that are trusted with the broker write to it themselves, and the server checks nothing but
versions. So a reader compares each commit with its subject and with the run's roster:

* in an agent's stream stands what that agent wrote, under the epoch that it has; of others only
  what settles its steps or declassifies what it holds, and what an import wrote on its behalf;
* an agent joins a run itself, in one role, and its stream is that of this role;
* what is written to shared state, tasks and messages is written by an agent of the roster, and
  names its role; only the agent itself claims a task for it or is served a view as it;
* events are of types that their stream may hold, and their data is what their type says.

What does not fit keeps its versions and loses its content: see `hansard.domain.quarantined`. What
a newer version of Hansard wrote is none of that, and stops a fold as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, assert_never

import msgspec

from hansard.bus import subjects
from hansard.bus.codec import UPCASTERS, decode, record, revive
from hansard.bus.log import Stored
from hansard.domain.agent import SessionBegan
from hansard.domain.approval import KEY as APPROVALS
from hansard.domain.board import VIEWS
from hansard.domain.errors import Corrupt
from hansard.domain.events import REGISTRY, Actor, Commit, Recorded
from hansard.domain.ids import AgentStream, Board, Lasting, Life, StreamId, uuid8
from hansard.domain.mail import KEY as MAIL
from hansard.domain.mail import MailSent
from hansard.domain.quarantined import TAG, Quarantined
from hansard.domain.run import AgentJoined, RunAgentLeft, RunForked, RunResumed, RunStarted
from hansard.domain.steps import StepSettled
from hansard.domain.streams import may_hold
from hansard.domain.task import KEY as TASKS
from hansard.domain.task import TaskClaimed, TaskReopened
from hansard.domain.view import ViewServed

IMPORTER = "import"
"""Who writes imported runs, on behalf of their agents."""

NOBODY = "quarantine"
"""Who wrote what is quarantined, as readers are told: whoever it names may not have."""

OUTSIDE = frozenset({SessionBegan.tag, StepSettled.tag, "label.declassified.v1"})
"""What others may write into an agent's stream: to settle a step of it one takes its next epoch."""

_FAMILIES = {
    "budget ": ("budget.",),
    TASKS: ("task.", "label."),
    MAIL: ("mail.", "label."),
    APPROVALS: ("approval.",),
    VIEWS: ("view.",),
}
"""The families of events that reserved keys hold, by what the keys begin with."""

_RESERVED = tuple(_FAMILIES)
_BEGAN = SessionBegan.tag
_SHARED = ("board.", "label.")
_TAKES_PART = frozenset({AgentJoined.tag, RunResumed.tag, RunAgentLeft.tag})
_BEGINS = frozenset({RunStarted.tag, RunForked.tag})
_OF_AGENTS = ("board.", "task.", "mail.")
_BY_ANYBODY = frozenset({TaskReopened.tag})
"""Of those the ones that whoever may say so writes, though no agent of the run."""

_SAYS_WHO = ("board.", TaskClaimed.tag, MailSent.tag)
"""Kinds that say their writer's role; a claim says who claims, and the role whose work it is."""


class StandIn(Commit, frozen=True, kw_only=True):
    """What readers are given in the place of a commit that does not fit. No body decodes to one."""


class Members(msgspec.Struct):
    """What is known of a run: the role of each agent, and its epoch as of what was read last.
    `whole` says that no agent is missing.
    """

    roles: dict[str, str] = {}
    epochs: dict[str, int] = {}
    whole: bool = False


class _Claims(msgspec.Struct):
    """What the data of some events says of who wrote them."""

    agent: str = ""
    role: str = ""
    sender_role: str = ""
    epoch: int = 0
    purpose: str = "run"
    parent: str = ""


_claims = msgspec.json.Decoder(_Claims)
_decoders: dict[tuple[object, str], msgspec.json.Decoder[Any]] = {}
"""By kind of stream and tag, of what may stand there."""


def _claimed(recorded: Recorded) -> _Claims | None:
    """What an event claims; None where it cannot be read, and that is another fault."""
    try:
        return _claims.decode(recorded.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# ---------------------------------------------------------------- what fits


def misfit(stream: StreamId, commit: Commit, members: Members | None = None) -> str:
    """Why a commit does not fit where it stands; nothing where it does. Without the run's members
    it is compared with its subject alone.
    """
    match stream:
        case AgentStream():
            return _of_agent(stream, commit, members)
        case Life():
            return _of_life(commit)
        case Board():
            return _of_board(stream, commit, members)
        case Lasting():
            return ""
        case _:
            assert_never(stream)


def goes_on(stream: StreamId, commit: Commit, members: Members) -> bool:
    """Whether a commit is what most are: of an agent that is known, in its stream, under its epoch,
    and no new session. Then it fits, and there is nothing to learn from it.
    """
    if type(stream) is not AgentStream:
        return False
    agent = stream.agent
    if commit.actor.agent != agent or members.roles.get(agent) != stream.role:
        return False
    if members.epochs.get(agent) != commit.epoch:
        return False
    for recorded in commit.events:  # noqa: SIM110 -- `all` costs twice as much, for each commit
        if recorded.type == _BEGAN:
            return False
    return True


def _of_agent(stream: AgentStream, commit: Commit, members: Members | None) -> str:
    agent, actor = stream.agent, commit.actor.agent
    outside = actor != agent
    if outside:
        if actor == IMPORTER:
            if commit.actor.on_behalf_of != (agent,):
                return f"it is an import on behalf of others, in the stream of agent {agent!r}"
            outside = False
        elif any(recorded.type not in OUTSIDE for recorded in commit.events):
            return f"{actor!r} wrote it, in the stream of agent {agent!r}"
    if members is not None:
        role = members.roles.get(agent)
        if role is None and members.whole:
            return f"agent {agent!r} never joined the run"
        if role is not None and role != stream.role:
            return f"agent {agent!r} is a {role!r} in this run, not a {stream.role!r}"
    return _of_epoch(stream, commit, members, outside=outside)


def _of_epoch(
    stream: AgentStream, commit: Commit, members: Members | None, *, outside: bool
) -> str:
    epoch = members.epochs.get(stream.agent) if members is not None else None
    began = False
    for recorded in commit.events:
        if recorded.type != SessionBegan.tag:
            continue
        said = _claimed(recorded)
        if said is None:
            continue
        began = True
        if (said.agent, said.role) != (stream.agent, stream.role):
            return f"it begins a session of agent {said.agent!r} as {said.role!r}"
        if said.epoch != commit.epoch or (epoch is not None and said.epoch != epoch + 1):
            return f"it begins epoch {said.epoch} under epoch {commit.epoch}, after {epoch}"
        if outside and said.purpose == "run":
            return f"{commit.actor.agent!r} begins a session of agent {stream.agent!r}"
    if not began and not outside and epoch is not None and commit.epoch != epoch:
        return f"it is of epoch {commit.epoch}, while the agent's is {epoch}"
    return ""


def _of_life(commit: Commit) -> str:
    actor = commit.actor.agent
    for recorded in commit.events:
        if recorded.type in _TAKES_PART and actor != IMPORTER:
            said = _claimed(recorded)
            if said is not None and said.agent != actor:
                part = "leaves" if recorded.type == RunAgentLeft.tag else "takes part"
                return f"{actor!r} says that agent {said.agent!r} {part}"
    return ""


def _of_board(stream: Board, commit: Commit, members: Members | None) -> str:
    actor = commit.actor.agent
    role = members.roles.get(actor) if members is not None else None
    whole = members is not None and members.whole
    families = _families(stream.key)
    for recorded in commit.events:
        tag = recorded.type
        if tag in REGISTRY and not tag.startswith(families):
            return f"a {tag} does not belong under key {stream.key!r}"
        if tag == ViewServed.tag:
            why = _of_view(stream, actor, role, recorded, whole=whole)
            if why:
                return why
        if not tag.startswith(_OF_AGENTS) or tag in _BY_ANYBODY:
            continue
        if role is None and whole:
            return f"{actor!r} wrote it, who is no agent of the run"
        if not tag.startswith(_SAYS_WHO):
            continue
        said = _claimed(recorded)
        if said is None:
            continue
        if tag == TaskClaimed.tag:
            if said.agent != actor:
                return f"{actor!r} claims a task for agent {said.agent!r}"
            continue
        told = said.sender_role if tag == MailSent.tag else said.role
        if role is not None and told != role:
            return f"{actor!r} wrote it as {told!r}, and is a {role!r} in this run"
    return ""


def _of_view(
    stream: Board, actor: str, role: str | None, recorded: Recorded, *, whole: bool
) -> str:
    said = _claimed(recorded)
    if said is None:
        return ""
    if stream.key != f"{VIEWS}{said.role}":
        return f"it tells of a view of role {said.role!r}, under key {stream.key!r}"
    if not said.agent:
        return ""
    if said.agent != actor:
        return f"{actor!r} says that agent {said.agent!r} was served a view"
    if (role is None and whole) or (role is not None and role != said.role):
        return f"{actor!r} says that it was served a view as {said.role!r}"
    return ""


def is_of_agents(commit: Commit) -> bool:
    """Whether a commit to shared state must be by an agent of the roster."""
    return any(recorded.type.startswith((*_OF_AGENTS, "view.")) for recorded in commit.events)


def foreign(stream: StreamId, commit: Commit) -> str:
    """Which event is of a type that the stream may not hold, in words; nothing where none is."""
    for recorded in commit.events:
        if recorded.type == TAG:
            return f"{TAG} is never stored"
        kind = REGISTRY.get(recorded.type)
        if kind is not None and recorded.type not in UPCASTERS and not may_hold(stream, kind):
            return f"a {recorded.type} does not belong into stream {stream}"
    return ""


def broken(stream: StreamId, commit: Commit) -> str:
    """Why the events of a commit cannot be what they say; nothing where they can. Decodes each."""
    where = stream.kind if type(stream) is Lasting else type(stream)
    for recorded in commit.events:
        tag = recorded.type
        decoder = _decoders.get((where, tag))
        if decoder is None:
            why = foreign(stream, commit)
            if why:
                return why
            kind = REGISTRY.get(tag)
            if kind is None or tag in UPCASTERS:
                continue
            decoder = _decoders[where, tag] = msgspec.json.Decoder(kind)
        if recorded.enc is None:
            try:
                decoder.decode(recorded.data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                return f"its data is not a {tag} ({error})"
    return ""


def _families(key: str) -> tuple[str, ...]:
    """The families of events that a key holds."""
    if not key.startswith(_RESERVED):
        return _SHARED
    return next(families for begin, families in _FAMILIES.items() if key.startswith(begin))


# ---------------------------------------------------------------- what is known of a run


def parent_of(commit: Commit) -> str:
    """The run that a life's commit says the run is a fork of; nothing where it says none."""
    parent = ""
    for recorded in commit.events:
        if recorded.type == RunForked.tag:
            said = _claimed(recorded)
            parent = said.parent if said is not None and said.parent else parent
    return parent


def learn(members: Members, stream: StreamId, commit: Commit) -> str:
    """Take in what a commit that fits says of who is in the run; the parent that a fork names."""
    parent = ""
    if type(stream) is Life:
        for recorded in commit.events:
            tag = recorded.type
            if tag in _BEGINS or tag == AgentJoined.tag:
                said = _claimed(recorded)
                if said is None:
                    continue
                if tag == AgentJoined.tag:
                    members.roles.setdefault(said.agent, said.role)
                else:
                    members.whole = members.whole or tag == RunStarted.tag
                    parent = said.parent or parent
    elif type(stream) is AgentStream:
        for recorded in commit.events:
            if recorded.type == SessionBegan.tag:
                members.epochs[stream.agent] = commit.epoch
    return parent


def inherit(members: Members, parent: Members | None) -> None:
    """A fork's agents are its parent's, too."""
    if parent is not None:
        members.roles = {**parent.roles, **members.roles}
        members.whole = parent.whole


# ---------------------------------------------------------------- what stands in its place


def stand_in(subject: str, version: int, count: int, stamp: int, reason: str) -> StandIn:
    """A commit of `count` events from `version` on that says nothing but why it is here."""
    event = record(Quarantined(reason=reason), "")
    return StandIn(
        id=uuid8(TAG, subject),
        version=version,
        at=datetime.fromtimestamp(stamp // 1_000_000_000, UTC),
        actor=Actor(NOBODY),
        events=tuple(
            msgspec.structs.replace(event, id=uuid8(TAG, subject, str(index)))
            for index in range(count)
        ),
    )


def replaced(workspace: str, stored: Stored, why: str) -> Stored:
    """A commit as read, with a stand-in for what it says."""
    commit = stored.commit
    subject = subjects.subject(workspace, stored.stream, commit.version)
    other = stand_in(subject, commit.version, len(commit.events), stored.stamp, why)
    return msgspec.structs.replace(stored, commit=other)


def as_it_stands(workspace: str, stored: Stored) -> Stored:
    """A commit as its body says, whether it fits or not, for a copy of the record: who reads that
    judges it anew. Raises Corrupt for what is no commit.
    """
    if not isinstance(stored.commit, StandIn):
        return stored
    subject = subjects.subject(workspace, stored.stream, stored.commit.version)
    _, commit = decode(subject, stored.body)
    return msgspec.structs.replace(stored, commit=commit)


def under(
    workspace: str, stream: AgentStream, commits: Sequence[Stored], epoch: int
) -> list[Stored]:
    """What follows in an agent's stream on a state of some epoch, less what is of another one."""
    members = Members(epochs={stream.agent: epoch})
    found: list[Stored] = []
    for stored in commits:
        here = not isinstance(stored.commit, StandIn)
        outside = stored.commit.actor.agent not in (stream.agent, IMPORTER)
        why = _of_epoch(stream, stored.commit, members, outside=outside) if here else ""
        if not why:
            learn(members, stream, stored.commit)
        found.append(replaced(workspace, stored, why) if why else stored)
    return found


def read(subject: str, body: bytes, stamp: int) -> tuple[StreamId, Commit]:
    """As `decode`, with a stand-in for a body that is no commit of its subject. Raises Corrupt
    where the subject is no stream's.
    """
    try:
        stream, commit = decode(subject, body)
    except Corrupt as error:
        stream, version = subjects.parse(subject)
        return stream, stand_in(subject, version, 1, stamp, error.fact)
    return stream, commit


def reason(commit: Commit) -> str:
    """Why a commit stands in for one that does not fit; nothing where it is none."""
    if not isinstance(commit, StandIn):
        return ""
    event = revive(commit.events[0])
    return event.reason if isinstance(event, Quarantined) else ""
