"""A service with all that it needs: who may enter, where refusals go, what answers in SQL; and
whether one runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec

from hansard.agents.access.authenticator import Authenticator
from hansard.agents.access.denials import Denials
from hansard.agents.workspace import Workspace
from hansard.bus import subjects
from hansard.bus.errors import BusError
from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.jetstream.requests import NoAnswer, NoResponders, Requests
from hansard.client.credentials import telling
from hansard.client.opening import Broker, open_workspace
from hansard.client.protocol import wire
from hansard.client.role_answers import ask_as, read_as
from hansard.client.sql_answer import SqlAnswer
from hansard.client.tables import told
from hansard.domain.choices import NOTHING
from hansard.domain.errors import BadValue, HansardError
from hansard.projections.reader import Reader
from hansard.projections.sql_sandbox.limits import Limits
from hansard.service.server import NOBODY, Service
from hansard.service.workspace_requests import Asker, R, RoleTables
from hansard.settings import Settings

PING_S = 5.0
"""How long a service on a busy machine may take to say that it is there."""

LIMITS = Limits(bytes_max=256 * 1024)
"""Of an answer to a restricted agent: it is one message."""


class Tables:
    """Answers from the tables of roles, which stand where a data directory is; `workspace` is
    theirs, if it is open.
    """

    def __init__(self, settings: Settings, workspace: Workspace | None = None) -> None:
        self._settings = settings
        self._workspace = workspace

    async def ask(
        self,
        asker: Asker,
        statement: str,
        parameters: Sequence[object],
        tables: Mapping[str, bytes] = NOTHING,
    ) -> SqlAnswer:
        """The answer to a statement in SQL. Raises BadValue where it is too long for a message."""
        who, carried = asker.who, asker.carried
        found = await ask_as(
            self._settings,
            who.role,
            statement,
            LIMITS,
            by=who.actor,
            carried=carried,
            parameters=parameters,
            tables=tables,
            within=self._workspace,
        )
        if found.cut is not None:
            fact = f"the answer has more {found.cut} than one message holds"
            raise BadValue("sql", fact, "ask for less at once: aggregate it, or give a LIMIT")
        return told(found)

    async def read(self, asker: Asker, asked: str, reads: Callable[[Reader], R]) -> R:
        """What one of our own reads finds."""
        who, carried = asker.who, asker.carried
        return await read_as(
            self._settings,
            who.role,
            asked,
            reads,
            by=who.actor,
            carried=carried,
            within=self._workspace,
        )


@contextlib.asynccontextmanager
async def serving(
    workspace: Workspace,
    options: BrokerOptions,
    *,
    tables: RoleTables | None = None,
    quiet_s: float = wire.QUIET_S_MAX,
) -> AsyncGenerator[Service, None]:
    """Serve a workspace's restricted agents for as long as the block runs.

    Raises Unreachable, Corrupt (who may enter cannot be read).
    """
    async with Denials(workspace) as denials, await Authenticator.open(workspace) as authenticator:
        service = await Service.open(workspace, options, authenticator, denials, tables, quiet_s)
        try:
            yield service
        finally:
            await service.close()


@contextlib.asynccontextmanager
async def served(
    settings: Settings, broker: Broker, tell: Callable[[str], None]
) -> AsyncGenerator[bool, None]:
    """Serve a workspace's restricted agents for as long as the block runs; whether they are. Why
    they cannot be is told, and stops nothing else.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            workspace = await open_workspace(settings)
            stack.push_async_callback(workspace.close)
            await stack.enter_async_context(telling(settings, workspace))
            await stack.enter_async_context(
                serving(workspace, broker.runtime, tables=Tables(settings, workspace))
            )
        except HansardError as error:
            tell(f"restricted agents are not served: {error}")
            yield False
        else:
            yield True


async def is_served(runtime: BrokerOptions, workspace: str) -> bool | None:
    """Whether a service answers restricted agents of a workspace; None where one is there and says
    nothing for PING_S. Raises Unreachable.
    """
    inbox = subjects.restricted_inbox(NOBODY)
    requests = await Requests.open(msgspec.structs.replace(runtime, inbox_prefix=inbox))
    try:
        await requests.ask(wire.opening(workspace, "-", "-", "ping"), b"", PING_S)
    except NoResponders:
        return False
    except NoAnswer:
        return None
    except BusError:
        return False
    finally:
        await requests.close()
    return True
