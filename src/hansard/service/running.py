"""The parts that `hansard up` runs: the service, the watch, projectors, daily reflection.

Also the check whether a service runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from hansard.agents.access.principals import Authenticator, Denials
from hansard.agents.workspace import Workspace, read_lives
from hansard.broker import private_copy
from hansard.broker.lease import peek
from hansard.bus import errors, subjects
from hansard.bus.clock import Slices
from hansard.bus.errors import ArchiveUnavailable, BusError, StoreGone, Unreachable
from hansard.bus.file_lock import release, take
from hansard.bus.jetstream.client import BrokerOptions, Requests
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.jetstream.wire import NoAnswer, NoResponders
from hansard.bus.loggers import logger, unexpected
from hansard.bus.marks import Known, Mark
from hansard.bus.recheck import Compared
from hansard.client.credentials import syncing_broker
from hansard.client.opening import (
    Broker,
    alongside,
    beginning,
    broker_of,
    check_data_dir,
    data_dir_of,
    raw_of,
    reading,
)
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue, Corrupt, HansardError
from hansard.domain.memory.files import ORG, space_name
from hansard.inspect import status as watches
from hansard.inspect.status import (
    COMPARE_S,
    PAGE_MESSAGES,
    READ_PAUSE,
    BrokerStatus,
    NamedWorkspace,
    Status,
    Watch,
    Watched,
    status_of,
    workspace_status,
)
from hansard.operations.protocol import wire
from hansard.projections import snapshots as published
from hansard.projections.errors import Held, NoRoom
from hansard.projections.rows import Batch, Problem
from hansard.projections.runner import Projector
from hansard.projections.table_files import TableFiles
from hansard.service.server import NOBODY, Service
from hansard.service.sharing import Sharing
from hansard.service.workspace_requests import RoleTables
from hansard.settings import Settings

# The watch of `hansard up` over the logs: reports a damaged or forged one while it runs.
#
# Three things are compared (periods and shares are in `hansard.inspect.status`):
#
# * every 5 s the first and last position, the number of messages and the message at the mark, as on
# every opening (`hansard.bus.jetstream.log`);
# * all messages, from the first to the last, with the rolling digests of the mark and of the
# published tables: continuously, for a hundredth of the time;
# * each projected commit, with its subject and its stream: one that does not fit is quarantined.
#
# A finding is logged as an error (`log damaged`), printed on the terminal, shown by
# `hansard status` and makes `hansard health` exit with 1.

Tell = Callable[[str], None]

_GONE = (
    "its log does not hold {many:,} of the commits that the published tables were made of, up to "
    "position {position:,}: see 'hansard check' and docs/backup.md"
)

_log = logger(__name__)


def _ended(task: asyncio.Task[None]) -> None:
    """Log why the watch of a workspace, or of all, has ended."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("watch ended", **unexpected(error))


class Watcher:
    """Watches every workspace of a broker. `keep` one while `hansard up` runs."""

    def __init__(self, broker: Broker, data_dir: Path, tell: Tell) -> None:
        self._broker = broker
        self._data_dir = data_dir
        self._tell = tell
        self._watch = Watch(os.getpid(), datetime.now(UTC))
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @contextlib.asynccontextmanager
    async def keep(self) -> AsyncGenerator[None]:
        """Write findings to the file while the block runs, unless another process does."""
        keeping = asyncio.ensure_future(self._keep())
        keeping.add_done_callback(_ended)
        try:
            yield
        finally:
            tasks = [keeping, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def workspace(self, name: str) -> None:
        """Watch one more workspace."""
        if name not in self._tasks:
            self._watch.workspaces[name] = Watched()
            self._tasks[name] = asyncio.ensure_future(self._one(name))
            self._tasks[name].add_done_callback(_ended)

    def problems(self, name: str, problems: list[Problem]) -> None:
        """Add the quarantined commits of a projected batch to the findings."""
        for each in problems:
            self._find(
                name,
                f"position {each.position} ({each.subject}) was not written by Hansard: "
                f"{each.reason}. It is ignored; check who else has the broker's login",
            )

    def _find(self, name: str, fact: str) -> None:
        if self._watch.workspaces.setdefault(name, Watched()).find(fact):
            _log.error("log damaged", workspace=name, fact=fact)
            self._tell(f"workspace {name!r}: {fact}")

    async def _keep(self) -> None:
        """Write the file while no other process does, and remove it at the end."""
        path = watches.path_of(self._data_dir)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        path.parent.mkdir(exist_ok=True, mode=0o700)
        lock = os.open(path.with_suffix(".lock"), flags, 0o600)
        mine = False
        try:
            while True:
                mine = mine or take(lock)
                self._watch.looked = datetime.now(UTC)
                if mine:
                    with contextlib.suppress(OSError):  # a full disk: the file goes stale
                        watches.write(self._data_dir, self._watch)
                await asyncio.sleep(COMPARE_S / 5)
        finally:
            if mine:
                path.unlink(missing_ok=True)
            release(lock)

    async def _one(self, name: str) -> None:
        """Watch one workspace, until cancelled."""
        one = self._watch.workspaces[name]
        while True:
            # The broker is away: `hansard health` reports a log not compared for long.
            with contextlib.suppress(BusError):
                async with raw_of(self._broker.runtime, name, damaged=True) as raw:
                    try:
                        async with asyncio.TaskGroup() as group:
                            group.create_task(self._compare(raw, one))
                            group.create_task(self._read(raw, one))
                    except* BusError:
                        pass
            await asyncio.sleep(COMPARE_S)

    async def _compare(self, raw: RawWorkspace, one: Watched) -> None:
        """Compare the log with its mark, every few seconds."""
        while True:
            try:
                await raw.refuse_loss()
            except Corrupt as error:
                self._find(raw.workspace, error.fact)
            extent = await raw.extent()
            current = published.newest(TableFiles.of(self._data_dir, raw.workspace))
            if current is not None and (gone := extent.gone_since(current)):
                self._find(raw.workspace, _GONE.format(many=gone, position=current.position))
            one.position = extent.last
            one.compared = datetime.now(UTC)
            await asyncio.sleep(COMPARE_S)

    async def _read(self, raw: RawWorkspace, one: Watched) -> None:
        """Read the whole log repeatedly; log once that its archive is unavailable."""
        unavailable = ""
        while True:
            began_s = time.monotonic()
            try:
                await self._read_once(raw, one)
            except ArchiveUnavailable as error:  # no damage: read again once it is back
                if str(error) != unavailable:
                    _log.warning("log not read whole", workspace=raw.workspace, fact=str(error))
                unavailable = str(error)
            except BusError:
                raise
            except HansardError as error:
                self._find(raw.workspace, str(error))
            else:
                unavailable = ""
                one.read_whole = datetime.now(UTC)
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(COMPARE_S, took_s))

    async def _read_once(self, raw: RawWorkspace, one: Watched) -> None:
        """Read all messages once, and compare them with their digests."""
        name = raw.workspace
        known = self._known(name)
        extent = await raw.extent()

        def count(kind: str, fact: str, where: Mapping[str, object], *, wrong: bool = True) -> None:
            del where
            if wrong and kind != "loss":  # `_compare` reports those
                self._find(name, fact)

        compared, at, unread = Compared(known, count), 0, 0
        while at < extent.last:
            began_s = time.monotonic()
            page = await raw.page(at, PAGE_MESSAGES)
            async with Slices() as slices:
                for message in page:
                    if message.position > extent.last:
                        break
                    unread += message.position - at - 1
                    if message.position != at + 1 and unread > extent.missing:
                        self._unreadable(name, at + 1, message.position - 1)
                    at = message.position
                    compared.message(at, message.subject, message.body)
                    if slices.over:
                        await slices.pause()
            if not page or page[-1].position >= extent.last:
                break
            one.read = at
            await asyncio.sleep(READ_PAUSE * (time.monotonic() - began_s))
        if extent.last - at + unread > extent.missing:
            self._unreadable(name, at + 1, extent.last)
        compared.end(extent.last)
        one.read = extent.last

    def _unreadable(self, name: str, first: int, last: int) -> None:
        where = f"position {first}" if first == last else f"positions {first} to {last}"
        self._find(
            name,
            f"{where} cannot be read: a block on the broker's disk is damaged or gone. Restore the "
            "broker's files from a backup (see docs/backup.md)",
        )

    def _known(self, name: str) -> list[Known]:
        """Return what the broker's mark and the published tables hold about the log."""
        known: list[Known] = []
        witness = self._broker.runtime.witness
        kept = witness.kept(name) if witness is not None else None
        if kept is not None and kept.lost is None:
            known.append(Known("the broker's mark", kept.mark))
        current = published.newest(TableFiles.of(self._data_dir, name))
        if current is not None and current.position:
            mark = Mark(
                subjects.log_stream(name),
                current.position,
                current.messages,
                current.position,
                current.chain or "",
            )
            known.append(Known("the published tables", mark))
        return known


# The projectors of `hansard up`: one per workspace, each into its own file.

TAKE_OVER_S = 1.0
"""Seconds between two attempts while another process projects: it may end."""


TRY_AGAIN_S = 1.0
"""Seconds between two checks for room on the disk."""

TELL_AGAIN_S = 10.0
"""Seconds of success after which the same obstacle is reported again."""

LOOK_S = 2.0
"""Seconds between two checks for new workspaces."""


@contextlib.asynccontextmanager
async def projecting(
    settings: Settings,
    mine: str | None,
    broker: Broker,
    tell: Callable[[str], None],
    stop: asyncio.Event,
    watcher: Watcher,
) -> AsyncGenerator[None]:
    """Keep the tables of every workspace up to date while the block runs, and watch each.

    `mine` is projected first. If one cannot be projected that is reported and stops nothing else;
    an unexpected error sets `stop` and is raised. Raises BadValue.
    """
    if settings.share_tables and not settings.archive:
        fact = "HANSARD_ARCHIVE is not set, through which tables are shared"
        raise BadValue("HANSARD_SHARE_TABLES", fact, "set it, or leave both out")
    async with alongside(_project_all(settings, mine, broker, tell, watcher)) as task:
        task.add_done_callback(lambda done: stop.set() if _failed(done) else None)
        yield


def _failed(done: asyncio.Future[None]) -> bool:
    return not done.cancelled() and done.exception() is not None


async def _project_all(
    settings: Settings,
    mine: str | None,
    broker: Broker,
    tell: Callable[[str], None],
    watcher: Watcher,
) -> None:
    """Start a projector for each workspace, present or new."""
    folder = data_dir_of(settings)
    async with asyncio.TaskGroup() as group:
        begun: set[str] = set()
        looked = workspaces(settings, mine, broker, tell)
        async with contextlib.aclosing(looked):
            async for names in looked:
                for name in sorted(names - begun):
                    watcher.workspace(name)
                    place = TableFiles.of(folder, name)
                    archive = settings.archive if settings.share_tables else None
                    group.create_task(_project(place, name, broker, tell, watcher, archive))
                begun |= names


async def workspaces(
    settings: Settings, mine: str | None, broker: Broker, tell: Callable[[str], None]
) -> AsyncGenerator[set[str], None]:
    """Yield the names of the workspaces, periodically; the requested one first."""
    if mine is not None:
        yield {mine}
    while True:
        try:
            async with raw_of(broker.runtime, settings.workspace, damaged=True) as raw:
                while True:
                    yield set(await raw.workspaces())
                    await asyncio.sleep(LOOK_S)
        except (Unreachable, NoAnswer):  # it may be back later
            await asyncio.sleep(LOOK_S)
        except HansardError as error:
            tell(f"stopped looking for new workspaces: {error}")
            return


async def _project(
    place: TableFiles,
    workspace: str,
    broker: Broker,
    tell: Callable[[str], None],
    watcher: Watcher,
    archive: str | None,
) -> None:
    """Project; retry once an obstacle is gone: a full disk, an unreachable broker."""
    error_type: type[HansardError] | None = None
    while True:
        began_s = time.monotonic()
        try:
            await _project_once(place, workspace, broker, tell, watcher, archive)
        except (NoRoom, Unreachable, NoAnswer) as error:
            if type(error) is not error_type or time.monotonic() - began_s > TELL_AGAIN_S:
                tell(f"workspace {workspace!r} is not projected for now: {error}")
            error_type = type(error)
        except HansardError as error:
            tell(f"workspace {workspace!r} is not projected: {error}")
            return
        await _has_room(place)


async def _project_once(
    place: TableFiles,
    workspace: str,
    broker: Broker,
    tell: Callable[[str], None],
    watcher: Watcher,
    archive: str | None,
) -> None:
    """Project until it fails; with an archive, while this process has the workspace's lease."""

    def moved(batch: Batch, _head: int) -> None:
        watcher.problems(workspace, batch.problems)

    async with contextlib.AsyncExitStack() as stack:
        source = await stack.enter_async_context(raw_of(broker.runtime, workspace))
        sharing: Sharing | None = None
        if archive is not None:
            sharing = await Sharing.open(broker.runtime, workspace, archive, place)
            stack.push_async_callback(sharing.close)
            await sharing.wait()
        projector = await _taken(source, place, broker, tell)
        stack.push_async_callback(projector.close)
        if projector.store.restarted:
            tell(f"rebuilding {str(place.path)!r} from the log: another schema made it")
        running = projector.run(moved=moved)
        await (running if sharing is None else sharing.run(running))


async def _has_room(place: TableFiles) -> None:
    """Wait at least once, and until there is room to project."""
    while True:
        await asyncio.sleep(TRY_AGAIN_S)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(errors.try_room, place.path.parent.parent)
            return


async def _taken(
    source: RawWorkspace, place: TableFiles, broker: Broker, tell: Callable[[str], None]
) -> Projector:
    """Open the projector as soon as no other process has it.

    Raises StoreGone: tables are not written where a data directory was removed.
    """
    other: int | None = None
    value = False
    while True:
        gone = broker.runtime.host.obstacle() if broker.runtime.host is not None else None
        if isinstance(gone, StoreGone):
            raise gone
        try:
            projector = await Projector.open(source, place)
        except Held as error:
            if not value:
                tell(f"{error}; this one takes over when that one is gone")
            value, other = True, error.pid
        else:
            if value:
                who = f"process {other}" if other else "the other process"
                tell(f"{who} projects into {str(place.path)!r} no more: this one does now")
            return projector
        await asyncio.sleep(TAKE_OVER_S)


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
    async with contextlib.nullcontext() if plan is None else alongside(_daily(plan, command, tell)):
        yield


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
            workspace = await stack.enter_async_context(beginning(settings))
            await stack.enter_async_context(syncing_broker(settings, workspace))
            await stack.enter_async_context(
                serving(workspace, broker.runtime, tables=RoleTables(settings, workspace))
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
    async with broker_of(settings) as broker:
        async with raw_of(broker.runtime, settings.workspace, damaged=True) as raw:
            status = broker_status(settings, broker)
            status.version = status.version or raw.server_version
            workspaces = await raw.workspaces()
            figures = await raw.figures()
        held = NamedWorkspace(workspace=settings.workspace)
        if settings.workspace in workspaces:
            place = TableFiles.of(folder, settings.workspace)
            served = await is_served(broker.runtime, settings.workspace)
            request = settings.nats_replicas or 1
            lives, damage, unavailable = [], [], ""
            try:
                async with reading(settings) as workspace:
                    lives = await read_lives(workspace.log)
            except Corrupt as error:
                damage.append(str(error))
            except ArchiveUnavailable as error:
                unavailable = str(error)
            held = workspace_status(
                settings.workspace, lives, place, figures, replicas=request, served=served
            )
            held.reflects = str(daily(settings) or "")
            held.unavailable = unavailable
            held.damage = damage + _findings(folder, settings.workspace)
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
