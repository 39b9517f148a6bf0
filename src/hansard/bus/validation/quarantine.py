"""What stands in the place of a commit that does not fit (`hansard.domain.integrity`).

It keeps its versions and loses its content: see `hansard.domain.quarantined`. What a newer version
of Hansard wrote fits, and stops a fold as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from hansard.bus import subjects
from hansard.bus.codec import decode, record, revive
from hansard.bus.log import Stored
from hansard.domain.agent import SessionBegan
from hansard.domain.errors import Corrupt
from hansard.domain.events import Actor, Commit
from hansard.domain.ids import AgentStream, StreamId, uuid8
from hansard.domain.integrity import authorship
from hansard.domain.quarantined import TAG, Quarantined

NOBODY = "quarantine"
"""Who wrote what is quarantined, as readers are told: whoever it names may not have."""


class StandIn(Commit, frozen=True, kw_only=True):
    """What readers are given in the place of a commit that does not fit. No body decodes to one."""


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
    judges it again. Raises Corrupt for what is no commit.
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
    found: list[Stored] = []
    for stored in commits:
        commit = stored.commit
        why = "" if isinstance(commit, StandIn) else authorship.of_epoch(stream, commit, epoch)
        if not why and any(recorded.type == SessionBegan.tag for recorded in commit.events):
            epoch = commit.epoch
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
