"""A message of the log as the commit that it is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from hansard.bus.codec import decode
from hansard.bus.validation.check import RawMessage
from hansard.domain.errors import Corrupt
from hansard.domain.ids import run_of
from hansard.inspect.answer import Answer


class LoggedCommit(msgspec.Struct, tag_field="kind", tag="commit", kw_only=True):
    """A commit in short. `time` is the log's."""

    workspace: str
    position: int
    time: str
    run: str | None
    stream: str
    version: int
    commit: str
    actor: str
    epoch: int
    events: list[str]


class CorruptLine(msgspec.Struct, tag_field="kind", tag="corrupt", kw_only=True):
    """A message that is no commit, and why."""

    workspace: str
    position: int
    subject: str
    fact: str


class Logged(Answer):
    """A message of the log: its commit, or the error that it is none."""

    position: int
    time: datetime
    line: LoggedCommit | CorruptLine
    error: Corrupt | None = None

    def lines(self) -> Iterable[LoggedCommit | CorruptLine]:
        """The commit, or why it is none."""
        return (self.line,)


def logged(workspace: str, message: RawMessage) -> Logged:
    """A message in short."""
    seconds, ns = divmod(message.stamp, 1_000_000_000)
    time = datetime.fromtimestamp(seconds, UTC).replace(microsecond=ns // 1_000)
    position = message.position
    try:
        stream, commit = decode(message.subject, message.body)
    except Corrupt as error:
        corrupt = CorruptLine(
            workspace=workspace, position=position, subject=message.subject, fact=error.fact
        )
        return Logged(position, time, corrupt, error)
    line = LoggedCommit(
        workspace=workspace,
        position=position,
        time=time.isoformat(),
        run=run_of(stream),
        stream=str(stream),
        version=commit.version,
        commit=commit.id,
        actor=commit.actor.agent,
        epoch=commit.epoch,
        events=[event.type for event in commit.events],
    )
    return Logged(position, time, line)
