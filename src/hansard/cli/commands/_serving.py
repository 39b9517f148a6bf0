"""The service of `hansard up`, and whether one runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from hansard.bus import subjects
from hansard.bus.errors import BusError
from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.jetstream.requests import NoAnswer, NoResponders, Requests
from hansard.cli.commands._access import telling
from hansard.cli.commands._role_answers import ask_as
from hansard.cli.opening import Options
from hansard.client.connect import Broker, open_workspace
from hansard.client.protocol import wire
from hansard.client.tables import told
from hansard.domain.errors import BadValue, HansardError
from hansard.inspect.answer import SqlAnswer
from hansard.projections.sql_sandbox.limits import Limits
from hansard.service.running import serving
from hansard.service.server import NOBODY
from hansard.service.workspace_requests import Asker

PING_S = 1.0
LIMITS = Limits(bytes_max=256 * 1024)
"""Of an answer to a restricted agent: it is one message."""


@contextlib.asynccontextmanager
async def served(
    options: Options, broker: Broker, tell: Callable[[str], None]
) -> AsyncGenerator[bool, None]:
    """Serve a workspace's restricted agents for as long as the block runs; whether they are. Why
    they cannot be is told, and stops nothing else.
    """

    async def answer(asker: Asker, statement: str, parameters: Sequence[object]) -> SqlAnswer:
        who, carried = asker.who, asker.carried
        found = await ask_as(
            options,
            who.role,
            statement,
            LIMITS,
            by=who.actor,
            carried=carried,
            parameters=parameters,
        )
        if found.cut is not None:
            fact = f"the answer has more {found.cut} than one message holds"
            raise BadValue("sql", fact, "ask for less at once: aggregate it, or give a LIMIT")
        return told(found)

    settings = options.settings()
    async with contextlib.AsyncExitStack() as stack:
        try:
            workspace = await open_workspace(settings)
            stack.push_async_callback(workspace.close)
            await stack.enter_async_context(telling(settings, workspace))
            await stack.enter_async_context(serving(workspace, broker.runtime, sql=answer))
        except HansardError as error:
            tell(f"restricted agents are not served: {error}")
            yield False
        else:
            yield True


async def is_served(runtime: BrokerOptions, workspace: str) -> bool:
    """Whether a service answers restricted agents of a workspace. Raises Unreachable."""
    inbox = subjects.restricted_inbox(NOBODY)
    requests = await Requests.open(msgspec.structs.replace(runtime, inbox_prefix=inbox))
    try:
        await requests.ask(wire.opening(workspace, "-", "-", "ping"), b"", PING_S)
    except (NoResponders, NoAnswer, BusError):
        return False
    finally:
        await requests.close()
    return True
