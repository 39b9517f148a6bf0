"""The check that a commit's author may write it to its stream.

Agents that are trusted with the broker write to it themselves, and the server checks nothing but
versions. So a reader compares each commit with its subject and with the agents of the run:

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
from typing import assert_never

import msgspec

from hansard.domain.access import ViewServed
from hansard.domain.agent import SessionBegan
from hansard.domain.aggregate_types import KIND
from hansard.domain.board import VIEWS
from hansard.domain.events import REGISTRY, Commit, Recorded
from hansard.domain.ids import (
    AgentStream,
    KeyStream,
    RunStream,
    StreamId,
    WorkspaceStream,
    run_of,
)
from hansard.domain.integrity import content
from hansard.domain.integrity.content import Members, MembershipEvent, broken, families, membership
from hansard.domain.memory.events import KIND as MEMORY
from hansard.domain.reuse import KIND as REUSE
from hansard.domain.reuse import STALE, AnswerOffered, AnswersInvalidated
from hansard.domain.run import FORK_DEPTH_MAX, AgentJoined, RunAgentLeft, RunResumed
from hansard.domain.steps import StepSettled
from hansard.domain.team import MailSent, TaskClaimed, TaskReopened

IMPORTER = "import"
"""The writer of imported runs, on behalf of their agents."""

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
            fork = content.learn(members, each)
            if fork is not None:
                parent = self._known.get(fork.parent)
                if parent is None:
                    parent = self._begun(fork.parent, depth=depth + 1)
                members.take_over(parent, fork.cut)
