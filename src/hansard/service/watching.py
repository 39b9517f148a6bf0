"""The watch of `hansard up` over the logs: reports a damaged or forged one while it runs.

Three things are compared (periods and shares are in `hansard.inspect.status`):

* every 5 s the first and last position, the number of messages and the message at the mark, as on
  every opening (`hansard.bus.jetstream.log`);
* all messages, from the first to the last, with the rolling digests of the mark and of the
  published tables: continuously, for a hundredth of the time;
* each projected commit, with its subject and its stream: one that does not fit is quarantined.

A finding is logged as an error (`log damaged`), printed on the terminal, shown by `hansard status`
and makes `hansard health` exit with 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from hansard.bus import errors, subjects
from hansard.bus.clock import Slices
from hansard.bus.errors import BusError, StoreGone, Unreachable
from hansard.bus.file_lock import release, take
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.jetstream.wire import NoAnswer
from hansard.bus.loggers import logger, unexpected
from hansard.bus.marks import Known, Mark
from hansard.bus.recheck import Compared
from hansard.client.opening import Broker, data_dir_of
from hansard.domain.errors import Corrupt, HansardError
from hansard.inspect import status as watches
from hansard.inspect.status import COMPARE_S, PAGE_MESSAGES, READ_PAUSE, Watch, Watched
from hansard.projections import snapshots as published
from hansard.projections.errors import Held, NoRoom
from hansard.projections.rows import Batch, Problem
from hansard.projections.runner import Projector
from hansard.projections.table_files import TableFiles
from hansard.settings import Settings

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
                raw = await RawWorkspace.open(self._broker.runtime, name, damaged=True)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._compare(raw, one))
                        group.create_task(self._read(raw, one))
                except* BusError:
                    pass
                finally:
                    await raw.close()
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
        """Read the whole log repeatedly."""
        while True:
            began_s = time.monotonic()
            try:
                await self._read_once(raw, one)
            except BusError:
                raise
            except HansardError as error:
                self._find(raw.workspace, str(error))
            else:
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
    an unexpected error sets `stop` and is raised.
    """
    task = asyncio.ensure_future(_project_all(settings, mine, broker, tell, watcher))
    task.add_done_callback(lambda done: stop.set() if _failed(done) else None)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


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
                    group.create_task(_project(place, name, broker, tell, watcher))
                begun |= names


async def workspaces(
    settings: Settings, mine: str | None, broker: Broker, tell: Callable[[str], None]
) -> AsyncGenerator[set[str], None]:
    """Yield the names of the workspaces, periodically; the requested one first."""
    if mine is not None:
        yield {mine}
    while True:
        try:
            raw = await RawWorkspace.open(broker.runtime, settings.workspace, damaged=True)
            try:
                while True:
                    yield set(await raw.workspaces())
                    await asyncio.sleep(LOOK_S)
            finally:
                await raw.close()
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
) -> None:
    """Project; retry once an obstacle is gone: a full disk, an unreachable broker."""
    error_type: type[HansardError] | None = None
    while True:
        began_s = time.monotonic()
        try:
            await _project_once(place, workspace, broker, tell, watcher)
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
) -> None:
    def moved(batch: Batch, _head: int) -> None:
        watcher.problems(workspace, batch.problems)

    source = await RawWorkspace.open(broker.runtime, workspace)
    try:
        projector = await _taken(source, place, broker, tell)
        try:
            if projector.store.restarted:
                tell(f"rebuilding {str(place.path)!r} from the log: another schema made it")
            await projector.run(moved=moved)
        finally:
            await projector.close()
    finally:
        await source.close()


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
