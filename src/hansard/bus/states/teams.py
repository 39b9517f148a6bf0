"""A team's tasks and messages from their commits."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hansard.bus.codec import revive
from hansard.bus.log import Stored
from hansard.domain.board import By
from hansard.domain.errors import Refused
from hansard.domain.ids import KeyStream
from hansard.domain.label import Label
from hansard.domain.quarantined import Quarantined
from hansard.domain.team import task
from hansard.domain.team.mail import KEY as MAIL_KEY
from hansard.domain.team.mail import MailSent
from hansard.domain.team.task import TeamState


class Mail(msgspec.Struct, frozen=True):
    """A message as it stands: the version of its stream, who sent it, what, and its label."""

    version: int
    sender: str
    sent: MailSent
    label: Label | None = None


def tasks_of(run: str) -> KeyStream:
    """The stream of a run's tasks."""
    return KeyStream(run, task.KEY)


def mail_of(run: str) -> KeyStream:
    """The stream of a run's messages."""
    return KeyStream(run, MAIL_KEY)


def fold_team(commits: Iterable[Stored]) -> TeamState:
    """The tasks of a run from commits of its board, by position; other keys are passed over."""
    state = task.initial()
    for stored in commits:
        if isinstance(stored.stream, KeyStream) and stored.stream.key == task.KEY:
            evolve_team(state, stored)
    return state


def evolve_team(state: TeamState, stored: Stored) -> None:
    """Fold a commit into the tasks, which the caller owns."""
    for recorded in stored.commit.events:
        by = By(stored.commit.actor.agent, stored.stamp, recorded.id, stored.commit.label)
        task.evolve(state, revive(recorded), by)


def mails(commits: Iterable[Stored]) -> list[Mail]:
    """The messages of commits, in order. Raises Refused for an event that is none."""
    found: list[Mail] = []
    for stored in commits:
        for index, recorded in enumerate(stored.commit.events):
            sent = revive(recorded)
            if isinstance(sent, Quarantined):
                continue
            if not isinstance(sent, MailSent):
                message = f"{recorded.type} is not an event of a team's mail"
                raise Refused(message)
            commit = stored.commit
            found.append(Mail(commit.version + index, commit.actor.agent, sent, commit.label))
    return found
