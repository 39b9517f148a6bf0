"""The composition of the service: authentication, refusals, role tables, daily reflection.

Also the check whether a service runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from hansard.agents.access.principals import Authenticator, Denials
from hansard.agents.workspace import Workspace, read_lives
from hansard.broker import private_copy
from hansard.broker.lease import peek
from hansard.bus import subjects
from hansard.bus.errors import BusError
from hansard.bus.jetstream.client import BrokerOptions, Requests
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.jetstream.wire import NoAnswer, NoResponders
from hansard.client.credentials import syncing_broker
from hansard.client.opening import (
    Broker,
    check_data_dir,
    data_dir_of,
    find_broker,
    open_workspace,
    reading,
)
from hansard.client.role_answers import ask_as, read_as
from hansard.client.tables import program_answer
from hansard.domain.choices import NOTHING, counted
from hansard.domain.errors import BadValue, Corrupt, HansardError
from hansard.domain.memory.events import ORG, space_name
from hansard.inspect import status as watches
from hansard.inspect.status import (
    BrokerStatus,
    NamedWorkspace,
    Status,
    status_of,
    workspace_status,
)
from hansard.operations.protocol import wire
from hansard.operations.sql_answer import SqlAnswer
from hansard.projections.snapshots import Reader
from hansard.projections.sql_sandbox.rows import Limits
from hansard.projections.table_files import TableFiles
from hansard.service.server import NOBODY, Service
from hansard.service.workspace_requests import Asker, R, RoleTables
from hansard.settings import Settings

# The daily reflection of `hansard up`: at a time of day, on each configured space.
#
# It runs in a separate process, `hansard memory reflect`: a user's function cannot block this one.
# If it is killed at any point, each run is still reflected on once.

ROUNDS_MAX = 100
"""Most processes of one day and space, each with one reflection's number of runs."""

SHOWN_CHARACTERS_MAX = 400
"""Most characters of a failed reflection's output that are reported."""

_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


class Daily(msgspec.Struct, frozen=True):
    """The schedule of the daily reflection.

    Attributes:
        hour: The hour of the day, in UTC.
        minute: The minute.
        spaces: The memory spaces, in order.
        function: The function that proposes, as `module:function`; None for requests of users.
        ask: Instead, the function that calls a model with our prompt, as `module:function`.
    """

    hour: int
    minute: int
    spaces: tuple[str, ...]
    function: str | None = None
    ask: str | None = None

    @property
    def options(self) -> list[str]:
        """The options of `hansard memory reflect`."""
        flags = {"--with": self.function, "--ask": self.ask}
        return [word for name, value in flags.items() if value for word in (name, value)]

    def __str__(self) -> str:
        by = f", with {self.function}" if self.function else ""
        by += f", asking {self.ask}" if self.ask else ""
        return f"daily at {self.hour:02}:{self.minute:02} UTC on {', '.join(self.spaces)}{by}"

    def last(self, now: datetime) -> datetime:
        """Return the latest moment at which it was due."""
        due = now.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
        return due if due <= now else due - timedelta(days=1)


def daily(settings: Settings) -> Daily | None:
    """Return the schedule in the settings; None without a time. Raises BadValue, BadName."""
    if settings.reflect_at is None:
        return None
    time = _TIME.fullmatch(settings.reflect_at)
    if time is None:
        remedy = "give a time of day in UTC, such as 03:00"
        raise BadValue("HANSARD_REFLECT_AT", f"{settings.reflect_at!r:.40}", remedy)
    if settings.reflect_with and settings.reflect_ask:
        fact = "HANSARD_REFLECT_WITH is set, too"
        raise BadValue("HANSARD_REFLECT_ASK", fact, "set one of them")
    names = [each.strip() for each in (settings.reflect_spaces or ORG).split(",")]
    spaces = tuple(space_name(each) for each in names if each)
    return Daily(int(time[1]), int(time[2]), spaces, settings.reflect_with, settings.reflect_ask)


@contextlib.asynccontextmanager
async def reflecting(
    settings: Settings, command: Sequence[str], tell: Callable[[str], None]
) -> AsyncGenerator[None]:
    """Reflect daily while the block runs, if the settings say so. Failures are reported only.

    Args:
        settings: The settings of the workspace.
        command: The command line of `hansard` with its global options, without the command's name.
        tell: Called with each result and failure, as text.

    Raises BadValue, BadName for invalid settings.
    """
    plan = daily(settings)
    task = asyncio.ensure_future(_daily(plan, command, tell)) if plan is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait({task})


async def _daily(plan: Daily, command: Sequence[str], tell: Callable[[str], None]) -> None:
    """Reflect at the start if a time was missed, then each day."""
    done: datetime | None = None
    while True:
        due = plan.last(datetime.now(UTC))
        if done is None or due > done:
            for space in plan.spaces:
                await _reflect(plan, space, command, tell)
            done = due
        wait = due + timedelta(days=1) - datetime.now(UTC)
        await asyncio.sleep(max(wait.total_seconds(), 1.0))


async def _reflect(
    plan: Daily, space: str, command: Sequence[str], tell: Callable[[str], None]
) -> None:
    """Reflect until no run is left, or it fails."""
    runs = proposals = 0
    for _ in range(ROUNDS_MAX):
        question = [*command, "memory", "reflect", space, *plan.options, "--json"]
        code, out, err = await _ran(question)
        if code:
            why = " ".join(err.split())[-SHOWN_CHARACTERS_MAX:] or f"exit code {code}"
            tell(f"reflection on {space} failed: {why}")
            return
        fields = msgspec.json.decode(out)
        runs += len(fields["runs"])
        proposals += len(fields["proposals"])
        if not fields["left"]:
            break
    if runs:
        tell(
            f"{space}: reflected on {counted(runs, 'run')}, {counted(proposals, 'proposal')}: "
            f"see 'hansard memory proposals {space}'"
        )


async def _ran(command: Sequence[str]) -> tuple[int, bytes, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        out, err = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    return process.returncode or 0, out, err.decode(errors="replace")


PING_S = 5.0
"""Seconds that a service on a busy machine may take to answer a ping."""

LIMITS = Limits(bytes_max=256 * 1024)
"""Limits of an answer to a restricted agent: it is one message."""


class Tables:
    """Queries on the tables of roles, in the data directory; `workspace` is the open one."""

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
        """Answer an SQL statement. Raises BadValue if the answer is too long for a message."""
        who, carried = asker.who, asker.carried
        answer = await ask_as(
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
        if answer.cut is not None:
            fact = f"the answer has more {answer.cut} than one message holds"
            raise BadValue("sql", fact, "aggregate, or use LIMIT")
        return program_answer(answer)

    async def read(self, asker: Asker, question: str, reads: Callable[[Reader], R]) -> R:
        """Run one of our own reads."""
        who, carried = asker.who, asker.carried
        return await read_as(
            self._settings,
            who.role,
            question,
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
    """Serve a workspace's restricted agents while the block runs.

    Raises Unreachable, Corrupt (the principals cannot be read).
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
    """Serve a workspace's restricted agents while the block runs; yield whether it succeeds.

    A failure is reported, and stops nothing else.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            workspace = await open_workspace(settings)
            stack.push_async_callback(workspace.close)
            await stack.enter_async_context(syncing_broker(settings, workspace))
            await stack.enter_async_context(
                serving(workspace, broker.runtime, tables=Tables(settings, workspace))
            )
        except HansardError as error:
            tell(f"restricted agents are not served: {error}")
            yield False
        else:
            yield True


async def is_served(runtime: BrokerOptions, workspace: str) -> bool | None:
    """Return whether a service answers restricted agents; None if one is silent for PING_S.

    Raises Unreachable.
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


# The status of the broker and a workspace.


async def read_status(settings: Settings, *, start: bool) -> Status:
    """Return the status of broker and workspace; start no broker unless `start` is true.

    Raises NotFound (no data directory), Unreachable, ServerError, BadName.
    """
    folder = data_dir_of(settings)
    if settings.nats_url is None and not start and private_copy.origin(folder) is None:
        check_data_dir(settings)
        if peek(folder) is None:
            return Status(broker=BrokerStatus(running=False, embedded=True, data_dir=str(folder)))
    broker = await find_broker(settings)
    try:
        raw = await RawWorkspace.open(broker.runtime, settings.workspace, damaged=True)
        try:
            status = broker_status(settings, broker)
            status.version = status.version or raw.server_version
            workspaces = await raw.workspaces()
            figures = await raw.figures()
        finally:
            await raw.close()
        held = NamedWorkspace(workspace=settings.workspace)
        if settings.workspace in workspaces:
            place = TableFiles.of(folder, settings.workspace)
            served = await is_served(broker.runtime, settings.workspace)
            request = settings.nats_replicas or 1
            lives, damage = [], []
            try:
                async with reading(settings) as workspace:
                    lives = await read_lives(workspace.log)
            except Corrupt as error:
                damage.append(str(error))
            held = workspace_status(
                settings.workspace, lives, place, figures, replicas=request, served=served
            )
            held.reflects = str(daily(settings) or "")
            held.damage = damage + _findings(folder, settings.workspace)
    finally:
        await broker.release()
    return Status(broker=status, workspace=held, workspaces=workspaces)


def _findings(folder: Path, workspace: str) -> list[str]:
    """Return the findings of a 'hansard up' that watches a workspace's log."""
    watch = watches.read(folder)
    if watch is None or watch.stale() is not None or workspace not in watch.workspaces:
        return []
    return [each.fact for each in watch.workspaces[workspace].findings]


def broker_status(settings: Settings, broker: Broker) -> BrokerStatus:
    """Return the status of a running broker."""
    folder = data_dir_of(settings) if settings.nats_url is None else None
    return status_of(broker.runtime.urls, broker.durability, folder)
