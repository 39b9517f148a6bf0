"""The check of a commit's content: events of types that the stream may hold, with data of their
type.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from hansard.domain.agent import SessionBegan
from hansard.domain.approval import KEY as APPROVALS
from hansard.domain.board import VIEWS
from hansard.domain.decider import TAG
from hansard.domain.events import REGISTRY, UPCASTERS, Commit
from hansard.domain.ids import AgentStream, RunStream, StreamId, WorkspaceStream
from hansard.domain.run import AgentJoined, RunForked, RunStarted
from hansard.domain.streams import may_hold
from hansard.domain.team import MAIL_KEY as MAIL
from hansard.domain.team import TASKS_KEY as TASKS

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
_BEGAN = msgspec.json.Decoder(SessionBegan)


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
        began = _BEGAN.decode(change.data)
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
    return next(found for begin, found in _FAMILIES.items() if key.startswith(begin))


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
