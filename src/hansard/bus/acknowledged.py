"""Log lines about this process's own events, one per event once it is acknowledged.

A line is named after the event's tag without its version: `step in doubt` for `step.in_doubt.v1`.
Its fields locate the event (`docs/logs.md`); messages, arguments and results are never included.
"""

from __future__ import annotations

import logging
from typing import Any

from hansard.bus.commits import revive
from hansard.bus.log import Stored
from hansard.bus.loggers import logger
from hansard.domain.errors import HansardError
from hansard.domain.events import Commit, Recorded
from hansard.domain.ids import StreamId

_log = logger(__name__)
_enabled = logging.getLogger(__name__).isEnabledFor

AT_INFO = frozenset(
    {
        "agent.session_began.v1",
        "agent.left.v1",
        "step.in_doubt.v1",
        "step.settled.v1",
        "step.blocked.v1",
    }
)
"""Events logged at info, for operators; all others are logged at debug."""

FIELDS = ("step", "tool", "effects", "rule", "verdict", "by", "outcome", "role", "agent")
"""Event fields that may be logged: names and numbers of ours, never users' texts."""


def acknowledged(workspace: str, stored: Stored) -> None:
    """Log a commit's events. Costs one check of the level if the logger is silent."""
    if not _enabled(logging.INFO):
        return
    commit = stored.commit
    for index, recorded in enumerate(commit.events):
        level = logging.INFO if recorded.type in AT_INFO else logging.DEBUG
        if _enabled(level):
            where = {"position": f"{stored.position}.{index}", "version": commit.version + index}
            fields = _where(workspace, stored.stream, commit) | where | _of_event(recorded)
            (_log.info if level == logging.INFO else _log.debug)(named(recorded.type), **fields)


def named(tag: str) -> str:
    """Return the name of an event's log line."""
    return tag.rpartition(".v")[0].replace(".", " ").replace("_", " ")


def _where(workspace: str, stream: StreamId, commit: Commit) -> dict[str, Any]:
    fields: dict[str, Any] = {"workspace": workspace, "stream": str(stream)}
    run = getattr(stream, "run", None)
    if run is not None:
        fields["run"] = run
    fields["agent"] = getattr(stream, "agent", None) or commit.actor.agent
    if commit.actor.on_behalf_of:
        fields["principal"] = commit.actor.on_behalf_of[0]
    if commit.epoch:
        fields["epoch"] = commit.epoch
    return fields


def _of_event(recorded: Recorded) -> dict[str, Any]:
    try:
        event = revive(recorded)
    except HansardError:  # an event of a newer version: not logged
        return {}
    fields = {name: getattr(event, name, None) for name in FIELDS}
    error = getattr(event, "error", None)
    if error is not None:
        fields["error"] = getattr(error, "type", None)
    return {name: value for name, value in fields.items() if value is not None and value != ""}
