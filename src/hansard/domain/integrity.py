"""Checks of commits: types of events in their streams, data of their types, authorship.

Agents that are trusted with the broker write to it themselves, and the server checks nothing but
versions. So a reader compares each commit with its subject and with the agents of the run:

* a stream holds only events of its kind's types, with data of their types (`foreign`, `broken`);
* an agent's stream holds the agent's own writes, under its current epoch; of others only events
  that settle its steps or lower its label, and those that an import wrote on its behalf;
* an agent joins a run itself, in one role, and its stream is that of this role;
* shared state, tasks and messages are written by an agent of the run, with its role; only the agent
  itself claims a task for it or is served a view;
* changes of a program's own aggregates, or of memory, are written by an agent of the step's run, in
  one transaction with the step;
* an answer is offered to later runs by the agent whose step it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, assert_never, get_args

import msgspec

from hansard.domain import (
    access,
    actions,
    aggregate_types,
    approval,
    board,
    conversation,
    decider,
    experiment,
    ids,
    principal,
    prompt,
    reuse,
    team,
)
from hansard.domain.access import ViewServed
from hansard.domain.agent import AgentEvent, SessionBegan
from hansard.domain.aggregate_types import KIND
from hansard.domain.approval import KEY as APPROVALS
from hansard.domain.board import VIEWS
from hansard.domain.decider import TAG
from hansard.domain.errors import BadValue
from hansard.domain.events import REGISTRY, UPCASTERS, Commit, Event, Recorded
from hansard.domain.experience import experience as kept_experiences
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream, run_of
from hansard.domain.memory import files as memory_events
from hansard.domain.memory.files import KIND as MEMORY
from hansard.domain.reuse import KIND as REUSE
from hansard.domain.reuse import STALE, AnswerOffered, AnswersInvalidated
from hansard.domain.roles import model as role_events
from hansard.domain.run import (
    FORK_DEPTH_MAX,
    IMPORT_KIND,
    AgentJoined,
    ImportEnded,
    RunAgentLeft,
    RunEvent,
    RunForked,
    RunResumed,
    RunStarted,
)
from hansard.domain.steps import IMPORTER, StepSettled
from hansard.domain.team import MAIL_KEY as MAIL
from hansard.domain.team import TASKS_KEY as TASKS
from hansard.domain.team import MailSent, TaskClaimed, TaskReopened

# Event types by kind of stream: every type that this version knows.

_BELONGS: dict[type[StreamId], frozenset[Any]] = {
    RunStream: frozenset(get_args(RunEvent)),
    AgentStream: frozenset(get_args(AgentEvent)),
    KeyStream: frozenset(
        {
            approval.Reserved,
            approval.Spent,
            team.MailSent,
            decider.LabelDeclassified,
            access.ViewServed,
            *get_args(approval.ApprovalEvent),
            *get_args(board.BoardEvent),
            *get_args(team.TaskEvent),
        }
    ),
}

_LASTING: dict[str, frozenset[Any]] = {
    access.KIND: frozenset({access.AccessRefused}),
    actions.KIND: frozenset(get_args(actions.ActionsEvent)),
    kept_experiences.KIND: frozenset(get_args(kept_experiences.ExperienceEvent)),
    aggregate_types.KIND: frozenset({aggregate_types.AggregateChanged}),
    aggregate_types.FOLLOWER: frozenset({aggregate_types.AggregateFollowed}),
    conversation.KIND: frozenset({conversation.RunJoined}),
    experiment.KIND: frozenset(get_args(experiment.ExperimentEvent)),
    IMPORT_KIND: frozenset({ImportEnded}),
    memory_events.KIND: frozenset(get_args(memory_events.MemoryEvent)),
    experiment.PRICE_KIND: frozenset({experiment.PriceStated}),
    principal.KIND: frozenset(get_args(principal.PrincipalEvent)),
    prompt.KIND: frozenset(get_args(prompt.PromptEvent)),
    access.QUERY_KIND: frozenset({access.QueryAnswered}),
    reuse.KIND: frozenset(get_args(reuse.ReuseEvent)),
    role_events.KIND: frozenset(get_args(role_events.RoleEvent)),
}


def register(kind: str, events: Iterable[type[Event]]) -> None:
    """Let streams of a new kind hold events. Raises BadName, and BadValue for a known kind."""
    if ids.name("kind", kind) in _LASTING:
        raise BadValue("kind", f"streams of kind {kind!r} exist already", "choose another name")
    _LASTING[kind] = frozenset(events)


def may_hold(stream: StreamId, kind: type[Event]) -> bool:
    """Return whether a stream may hold events of a type."""
    if isinstance(stream, WorkspaceStream):
        return kind in _LASTING.get(stream.kind, ())
    return kind in _BELONGS[type(stream)]


# The check of a commit's content: events of types that the stream may hold, with data of their
# type.

# The members of a run: its agents, the role of each, and the current epoch of each.
#
# They are learned from a run's own commits alone. An agent has the role in which it joined first,
# for the whole run. A fork has the agents that had joined its parent up to the cut; versions of a
# life continue over a fork, so that the cut of any generation compares directly with the version
# of a join.

MEMBERSHIP_TAGS = frozenset({RunStarted.tag, RunForked.tag, AgentJoined.tag, SessionBegan.tag})
"""Events of run membership: those of its life, and the starts of its agents' sessions."""

_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    kind.tag: msgspec.json.Decoder(kind) for kind in (RunStarted, RunForked, AgentJoined)
}
_FORKED = msgspec.json.Decoder(RunForked)
_BEGAN_DECODER = msgspec.json.Decoder(SessionBegan)


class Members(msgspec.Struct):
    """The known members of a run: the role of each agent, the version of the life at which it
    joined, and its latest epoch. `whole` is true if no agent is missing.
    """

    roles: dict[str, str] = {}
    joined: dict[str, int] = {}
    epochs: dict[str, int] = {}
    whole: bool = False

    def anywhere(self) -> Members:
        """Return the part that is independent of the position in the run: all but the epochs."""
        return Members(dict(self.roles), dict(self.joined), {}, self.whole)

    def join(self, agent: str, role: str, version: int) -> None:
        """Record that an agent joined at a version of the life; a second time changes nothing."""
        if agent not in self.roles:
            self.roles[agent] = role
            self.joined[agent] = version

    def take_over(self, parent: Members, cut: int) -> None:
        """Add the agents that had joined a fork's parent up to a version of its life."""
        for agent, version in parent.joined.items():
            if version <= cut:
                self.join(agent, parent.roles[agent], version)
        self.whole = parent.whole

    def add(self, other: Members) -> None:
        """Add further known members of the same run."""
        for agent, version in other.joined.items():
            self.join(agent, other.roles[agent], version)
        self.whole = self.whole or other.whole


class MembershipEvent(msgspec.Struct, frozen=True):
    """A membership event as it is stored: one of `MEMBERSHIP_TAGS`, at a version of its stream,
    with its data as JSON.
    """

    version: int
    tag: str
    data: bytes | str


class Fork(msgspec.Struct, frozen=True):
    """A fork's origin: its parent, up to a version of the parent's life."""

    parent: str
    cut: int


def learn(members: Members, change: MembershipEvent) -> Fork | None:
    """Apply a membership event; return the run's origin if the event is a fork.

    Raises msgspec.DecodeError for data that does not match the tag.
    """
    if change.tag == SessionBegan.tag:
        began = _BEGAN_DECODER.decode(change.data)
        members.epochs[began.agent] = began.epoch
        return None
    event = _DECODERS[change.tag].decode(change.data)
    match event:
        case AgentJoined():
            members.join(event.agent, event.role, change.version)
        case RunForked():
            return _fork(event)
        case _:
            members.whole = True
    return None


def membership(stream: StreamId, commit: Commit) -> Iterable[MembershipEvent]:
    """Yield the membership events of a commit."""
    if type(stream) is not RunStream and type(stream) is not AgentStream:
        return
    for version, recorded in enumerate(commit.events, commit.version):
        if recorded.type in MEMBERSHIP_TAGS:
            yield MembershipEvent(version, recorded.type, bytes(recorded.data))


def fork_of(commit: Commit) -> Fork | None:
    """Return the origin of a run from a commit of its life; None where it has none."""
    for recorded in commit.events:
        if recorded.type == RunForked.tag:
            try:
                return _fork(_FORKED.decode(recorded.data))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return None


def _fork(event: RunForked) -> Fork:
    return Fork(event.parent, event.at.get(str(RunStream(event.parent)), 0))


_FAMILIES = {
    "budget ": ("budget.",),
    TASKS: ("task.", "label."),
    MAIL: ("mail.", "label."),
    APPROVALS: ("approval.",),
    VIEWS: ("view.",),
}
"""The families of events that reserved keys hold, by the keys' prefixes."""

_RESERVED = tuple(_FAMILIES)
_SHARED = ("board.", "label.")

_decoders: dict[tuple[object, str], msgspec.json.Decoder[Any]] = {}
"""Decoders of permitted events, by kind of stream and tag."""


def families(key: str) -> tuple[str, ...]:
    """Return the tag prefixes of the events that a key of shared state holds."""
    if not key.startswith(_RESERVED):
        return _SHARED
    return next(prefixes for begin, prefixes in _FAMILIES.items() if key.startswith(begin))


def foreign(stream: StreamId, commit: Commit) -> str:
    """Return the first event of a type that the stream may not hold, in words; empty for none."""
    for recorded in commit.events:
        if recorded.type == TAG:
            return f"{TAG} is never stored"
        kind = REGISTRY.get(recorded.type)
        if kind is not None and recorded.type not in UPCASTERS and not may_hold(stream, kind):
            return f"a {recorded.type} does not belong into stream {stream}"
    return ""


def broken(stream: StreamId, commit: Commit) -> str:
    """Return the reason why events of a commit are invalid; empty for valid ones. Decodes each."""
    where = stream.kind if type(stream) is WorkspaceStream else type(stream)
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


OUTSIDE = frozenset({SessionBegan.tag, StepSettled.tag, "label.declassified.v1"})
"""Events that others may write into an agent's stream: to settle a step takes its next epoch."""

_BY_STEPS = (KIND, MEMORY)
"""Kinds of streams that outlive runs and are written by steps."""

_BEGAN = SessionBegan.tag
_TAKES_PART = frozenset({AgentJoined.tag, RunResumed.tag, RunAgentLeft.tag})
_OF_AGENTS = ("board.", "task.", "mail.")
_BY_ANYBODY = frozenset({TaskReopened.tag})
"""Those of them that an authorized writer may write without being an agent of the run."""

_SAYS_WHO = ("board.", TaskClaimed.tag, MailSent.tag)
"""Kinds with their writer's role; a claim has the claimant and the role whose work it is."""


class _Claims(msgspec.Struct):
    """The fields of an event's data that claim its writer."""

    agent: str = ""
    role: str = ""
    sender_role: str = ""
    epoch: int = 0
    purpose: str = "run"
    aggregate: str = ""
    run: str = ""
    step: int = 0


class _Offer(msgspec.Struct):
    """The fields of an offer's data that claim its owner and its key."""

    agent: str = ""
    key: str = ""


_offers = msgspec.json.Decoder(_Offer)
_claims = msgspec.json.Decoder(_Claims)


def _claimed(recorded: Recorded) -> _Claims | None:
    """Return an event's claims; None where it cannot be read, which is another fault."""
    try:
        return _claims.decode(recorded.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def misfit(stream: StreamId, commit: Commit, members: Members | None = None) -> str:
    """Return the reason why a commit does not fit its stream; empty where it does.

    Without the run's members it is compared with its subject alone.
    """
    match stream:
        case AgentStream():
            return _of_agent(stream, commit, members)
        case RunStream():
            return _of_life(commit)
        case KeyStream():
            return _of_board(stream, commit, members)
        case WorkspaceStream():
            if stream.kind == REUSE:
                return _of_offers(stream, commit)
            return _of_steps(commit, members) if stream.kind in _BY_STEPS else ""
        case _:
            assert_never(stream)


def run_of_commit(stream: StreamId, commit: Commit) -> str | None:
    """Return the run whose agents a commit is checked against.

    That is the run of its stream, or of the step that it claims changed an aggregate or memory;
    None where there is none.
    """
    if type(stream) is not WorkspaceStream:
        return run_of(stream)
    if stream.kind not in _BY_STEPS:
        return None
    claim = _claimed(commit.events[0])
    return (claim.run or None) if claim is not None else None


def is_ordinary(stream: StreamId, commit: Commit, members: Members) -> bool:
    """Return whether a commit is the common case: by a known agent, in its stream, under its epoch,
    and no new session. Then it fits, and changes no membership.
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
    if actor not in (agent, IMPORTER):
        if any(recorded.type not in OUTSIDE for recorded in commit.events):
            return f"{actor!r} wrote it, in the stream of agent {agent!r}"
    elif actor != agent and commit.actor.on_behalf_of != (agent,):
        return f"it is an import on behalf of others, in the stream of agent {agent!r}"
    if members is not None:
        role = members.roles.get(agent)
        if role is None and members.whole:
            return f"agent {agent!r} never joined the run"
        if role is not None and role != stream.role:
            return f"agent {agent!r} is a {role!r} in this run, not a {stream.role!r}"
    return of_epoch(stream, commit, members.epochs.get(agent) if members is not None else None)


def of_epoch(stream: AgentStream, commit: Commit, epoch: int | None) -> str:
    """Return the reason as `misfit`, for the epoch of a commit alone; None: the agent's epoch is
    unknown.
    """
    outside = commit.actor.agent not in (stream.agent, IMPORTER)
    began = False
    for recorded in commit.events:
        if recorded.type != _BEGAN:
            continue
        claim = _claimed(recorded)
        if claim is None:
            continue
        began = True
        if (claim.agent, claim.role) != (stream.agent, stream.role):
            return f"it begins a session of agent {claim.agent!r} as {claim.role!r}"
        if claim.epoch != commit.epoch or (epoch is not None and claim.epoch != epoch + 1):
            return f"it begins epoch {claim.epoch} under epoch {commit.epoch}, after {epoch}"
        if outside and claim.purpose == "run":
            return f"{commit.actor.agent!r} begins a session of agent {stream.agent!r}"
    if not began and not outside and epoch is not None and commit.epoch != epoch:
        return f"it is of epoch {commit.epoch}, while the agent's is {epoch}"
    return ""


def _of_life(commit: Commit) -> str:
    actor = commit.actor.agent
    for recorded in commit.events:
        if recorded.type in _TAKES_PART and actor != IMPORTER:
            claim = _claimed(recorded)
            if claim is not None and claim.agent != actor:
                part = "leaves" if recorded.type == RunAgentLeft.tag else "takes part"
                return f"{actor!r} says that agent {claim.agent!r} {part}"
    return ""


def _of_board(stream: KeyStream, commit: Commit, members: Members | None) -> str:
    actor = commit.actor.agent
    role = members.roles.get(actor) if members is not None else None
    whole = members is not None and members.whole
    held = families(stream.key)
    for recorded in commit.events:
        tag = recorded.type
        if tag in REGISTRY and not tag.startswith(held):
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
        claim = _claimed(recorded)
        if claim is None:
            continue
        if tag == TaskClaimed.tag:
            if claim.agent != actor:
                return f"{actor!r} claims a task for agent {claim.agent!r}"
            continue
        value = claim.sender_role if tag == MailSent.tag else claim.role
        if role is not None and value != role:
            return f"{actor!r} wrote it as {value!r}, and is a {role!r} in this run"
    return ""


def _of_view(
    stream: KeyStream, actor: str, role: str | None, recorded: Recorded, *, whole: bool
) -> str:
    claim = _claimed(recorded)
    if claim is None:
        return ""
    if stream.key != f"{VIEWS}{claim.role}":
        return f"it is a view of role {claim.role!r}, under key {stream.key!r}"
    if not claim.agent:
        return ""
    if claim.agent != actor:
        return f"{actor!r} says that agent {claim.agent!r} was served a view"
    if (role is None and whole) or (role is not None and role != claim.role):
        return f"{actor!r} says that it was served a view as {claim.role!r}"
    return ""


def _of_steps(commit: Commit, members: Members | None) -> str:
    items = [_claimed(recorded) for recorded in commit.events]
    parts = {(one.aggregate, one.run, one.step) for one in items if one is not None}
    if len(parts) > 1:
        return "its events are of several aggregates or steps"
    actor = commit.actor.agent
    for _, run, step in parts:
        if bool(run) != bool(step):
            return f"it is of step {step} of run {run!r}: one of them is missing"
        if not run:
            continue
        if commit.tx is None:
            return f"it claims step {step} of run {run!r}, and is in no transaction with it"
        if members is not None and members.whole and actor not in members.roles:
            return f"{actor!r} wrote it, who is no agent of run {run!r}"
    for one in items:
        role = members.roles.get(actor) if members is not None and one is not None else None
        if one is not None and one.role and role is not None and one.role != role:
            return f"{actor!r} wrote it as {one.role!r}, and is a {role!r} in run {one.run!r}"
    return ""


def _of_offers(stream: WorkspaceStream, commit: Commit) -> str:
    """Check that an agent offers its own answers only, each under its key."""
    for recorded in commit.events:
        if (recorded.type == AnswersInvalidated.tag) != (stream == STALE):
            return f"a {recorded.type} does not belong into stream {stream}"
        if recorded.type != AnswerOffered.tag:
            continue
        try:
            claim = _offers.decode(recorded.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # it cannot be read, and that is another fault
        if claim.agent != commit.actor.agent:
            return f"{commit.actor.agent!r} offers an answer of agent {claim.agent!r}"
        if claim.key != stream.id:
            return f"it offers an answer to key {claim.key!r:.80}, in stream {stream}"
    return ""


def is_of_agents(commit: Commit) -> bool:
    """Return whether a commit to shared state must be by an agent of the roster.

    A served view must be only where it names its agent: a person is in no run.
    """
    return any(
        recorded.type.startswith(_OF_AGENTS)
        or (recorded.type == ViewServed.tag and _names_agent(recorded))
        for recorded in commit.events
    )


def _names_agent(recorded: Recorded) -> bool:
    claim = _claimed(recorded)
    return claim is not None and bool(claim.agent)


# The one fold over a log's commits, in order: the agents of each run, and the commits that do not
# fit.
#
# A reader from the start of the log needs nothing else. A reader that continues from a position, or
# reads some streams only, gives the earlier membership events (`Past`).

RUNS_MAX = 65_536
"""Most runs whose members are kept in memory, some 50 MB. Others are loaded again, without the
newest commits: epochs and missing agents are then not checked."""

Past = Callable[[str], Iterable[MembershipEvent]]
"""Returns the membership events of a run in the part of the log that was read before, in order."""


def _nothing(_run: str) -> Iterable[MembershipEvent]:
    return ()


class Fold:
    """Finds the commits that do not fit, given every commit in the order of the log."""

    def __init__(self, past: Past = _nothing, known: dict[str, Members] | None = None) -> None:
        """Start from the members in `known`, if given; the dict is kept up to date."""
        self._past = past
        self._known = {} if known is None else known
        self._bounded = known is None
        self._full = False

    def misfit(self, stream: StreamId, commit: Commit) -> str:
        """Return the reason why a commit does not fit; empty where it does, and then its membership
        events are applied.
        """
        run = run_of_commit(stream, commit)
        if run is None:
            return misfit(stream, commit)
        members = self._known.get(run)
        if members is None:
            members = self._begun(run, new=type(stream) is RunStream and commit.version == 1)
        if is_ordinary(stream, commit, members):
            return ""
        why = misfit(stream, commit, members)
        if not why:
            self.learn(run, stream, commit)
        return why

    def learn(self, run: str, stream: StreamId, commit: Commit) -> None:
        """Apply the membership events of a commit that fits; none where an event's data does not
        match its type, since then the whole commit is invalid.
        """
        items = list(membership(stream, commit))
        if items and not broken(stream, commit):
            self._learn(self.members(run), items, 0)

    def members(self, run: str) -> Members:
        """Return the members of a run, as far as it was read."""
        members = self._known.get(run)
        return self._begun(run) if members is None else members

    def _begun(self, run: str, *, new: bool = False, depth: int = 0) -> Members:
        members = self._known[run] = Members()
        if not new and depth <= FORK_DEPTH_MAX:
            self._learn(members, self._past(run), depth)
            if self._full:
                members.epochs, members.whole = {}, False
        if self._bounded and len(self._known) > RUNS_MAX:
            self._full = True
            del self._known[next(iter(self._known))]
        return members

    def _learn(self, members: Members, items: Iterable[MembershipEvent], depth: int) -> None:
        for each in items:
            fork = learn(members, each)
            if fork is not None:
                parent = self._known.get(fork.parent)
                if parent is None:
                    parent = self._begun(fork.parent, depth=depth + 1)
                members.take_over(parent, fork.cut)
