"""Shared parts of the tests of role permissions."""

from typing import Any

import msgspec

from hansard.domain.roles import check as role_file
from hansard.domain.roles.model import RoleDefined
from tests.agents.twins import TwinRecord, TwinSession
from tests.team.support import TwinTeam

RULES = """
[roles.writer]
[[roles.writer.sees]]
name = "its own work"
roles = ["writer"]
[[roles.writer.sees]]
name = "notes"
keys = ["notes/**"]
[[roles.writer.sees]]
name = "read alone"
keys = ["facts"]
[roles.writer.may]
tools = ["search_*"]
kinds = ["message.added", "task.claimed", "task.completed"]
keys = ["notes/*"]
"""


def rules(text: str = RULES) -> RoleDefined:
    """Return the rules of the role `writer`."""
    return role_file.parse(text)["writer"]


def board_of(session: TwinSession) -> TwinTeam:
    """Return a session's board with methods that are awaited for either client."""
    return TwinTeam(session.raw.board, is_async=session.is_async)


async def events(record: TwinRecord, run: str) -> list[tuple[str, str, Any]]:
    """(stream, tag, data) of every event of a run, in order."""
    return [
        (str(stored.stream), recorded.type, msgspec.json.decode(recorded.data))
        for stored in await record.commits(run)
        for recorded in stored.commit.events
    ]
