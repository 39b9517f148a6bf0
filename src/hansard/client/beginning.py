"""A session that opens what it stands on: a workspace and a run, by the settings and what it is
given. Whoever has a record asks that one instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from hansard.agents import opening as agents
from hansard.agents.flow import Unbroken
from hansard.agents.opening import Opened
from hansard.agents.workspace import Workspace
from hansard.bus.portal import portal, refuse_in_loop
from hansard.client.ended import ended
from hansard.client.options import (
    BeginOptions,
    Defaults,
    SessionOptions,
    program_name,
    wanted,
)
from hansard.client.protocol.errors import NotOffered
from hansard.domain.choices import check_options

INSTEAD = (
    "these settings name a restricted agent's credentials, with which record.run(...) of "
    "hansard.connect() gives its session; or unset HANSARD_CREDENTIALS"
)

RULES = ("gate", "redact", "secrets", "settle")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is to begin with. Raises BadOption for an option that there is not."""

    workflow: str | None
    agent: str | None
    role: str | None
    workspace: str | None
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_options("Session", self.options, SessionOptions.__annotations__)

    async def open(
        self, post: Callable[[Callable[[], None]], None], pending: Callable[[], Any]
    ) -> tuple[Workspace, Opened, str | None]:
        """The workspace, the session in it, and where its end is told. Raises as `connect` and
        `record.run`, and NotOffered.
        """
        from hansard.client import opening  # noqa: PLC0415 -- who tests in memory needs no broker

        begins = {key: self.options[key] for key in self.options if key in _BEGINS}
        rules = {key: self.options[key] for key in RULES if self.options.get(key) is not None}
        given = {key: self.options[key] for key in self.options if key in _SETTINGS}
        if given.get("nats") is not None:
            given["nats_url"] = given["nats"]
        given.pop("nats", None)
        settings = opening.settings_of({**given, "workspace": self.workspace})
        if settings.credentials is not None:
            raise NotOffered("hansard.Session", INSTEAD)
        defaults = Defaults.of(settings, rules)
        asked = wanted(defaults, self.workflow, begins, program_name())
        agent, role = defaults.acting(self.agent, self.role)
        workspace = await opening.open_workspace(settings)
        try:
            opened = await agents.open_agent(workspace, agent, role, asked, post, pending)
        except BaseException:
            await workspace.close()
            raise
        return workspace, opened, settings.report


_BEGINS = frozenset(BeginOptions.__annotations__)
_SETTINGS = frozenset(SessionOptions.__annotations__) - _BEGINS - {*RULES}


async def _end(
    workspace: Workspace, opened: Opened, report: str | None, error: BaseException | None
) -> None:
    """End the session, and let go of the workspace."""
    try:
        await ended(workspace, opened, report, error)
    finally:
        await workspace.close()


def begun(asked: Asked) -> tuple[Any, ...]:
    """What a session of the sync client is made of, once it is open. Raises SyncInLoop, and as
    `Asked.open`.
    """
    refuse_in_loop()
    gateway = portal()
    workspace, opened, report = gateway.run(asked.open(gateway.post, gateway.future))
    return opened.engine, opened.arm, gateway, partial(_end, workspace, opened, report)


async def begun_async(asked: Asked) -> tuple[Any, ...]:
    """What a session of the async client is made of, once it is open. Raises as `Asked.open`."""
    workspace, opened, report = await asked.open(lambda call: call(), Unbroken)
    return opened.engine, opened.arm, partial(_end, workspace, opened, report)
