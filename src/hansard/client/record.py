"""The record: begins, joins, resumes, replays and forks runs.

Its operations are written once, for both clients (`hansard.operations`). Here is the part that
differs: sessions, blocks, and functions of the program that an operation calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, Unpack, overload

from hansard.agents import runs as opening
from hansard.agents.artifacts.versions import label_of_runs
from hansard.agents.errors import ToolError
from hansard.agents.memory.store import MemoryStore
from hansard.agents.memory.twins import AsyncMemorySpace, MemorySpace
from hansard.agents.steps.scope import ambient, guard_secrets, kept
from hansard.agents.workspace import Workspace
from hansard.bus.portal import Portal
from hansard.client.beginning import end_session
from hansard.client.common import AsyncCommonRecord, CommonRecord
from hansard.client.options import Defaults, RunOptions, session_options
from hansard.client.session import (
    AsyncCommonSession,
    AsyncSession,
    CommonSession,
    Session,
    SessionRankers,
    async_session_of,
)
from hansard.client.session import opened as made
from hansard.domain.choices import NOTHING, first
from hansard.domain.errors import Refused
from hansard.domain.label import Label
from hansard.domain.memory.files import ORG
from hansard.domain.run import ForkEffects
from hansard.domain.snapshot import Snapshot
from hansard.inspect import state as snapshots
from hansard.inspect.answer import Answer
from hansard.inspect.experience import ExperienceIndex
from hansard.operations.declare import Context, TrustedAsync, TrustedSync
from hansard.operations.sql_answer import OpenTables, SqlAnswer, Tables
from hansard.projections.snapshots import Reader

A = TypeVar("A")
R = TypeVar("R", bound=Answer)


def sessions() -> list[CommonSession | AsyncCommonSession]:
    """Return the open sessions of this process that `record.open` returned, the oldest first.

    A call of a `@hansard.tool` outside any block goes to such a session if there is exactly one.
    """
    return kept()


S = TypeVar("S", bound=CommonSession | AsyncCommonSession)


@overload
def current_session() -> CommonSession: ...
@overload
def current_session(kind: type[S]) -> S: ...
def current_session(kind: type[Any] = CommonSession) -> Any:
    """Return the session to which a call of a `@hansard.tool` would go here.

    It is that of the innermost block, else the only one that `record.open` opened.

    Args:
        kind: The class that the caller relies on, such as `hansard.AsyncSession`.

    Raises:
        ToolError: No session is current, several are open outside any block, or the current one is
            not of this class.
    """
    session = ambient("hansard.current_session()")
    if not isinstance(session, kind):
        message = (
            f"the current session is a {type(session).__name__}, not a {kind.__name__}: call "
            f"hansard.current_session(hansard.{type(session).__name__})"
        )
        raise ToolError(message)
    return session


class LocalContext(Context):
    """A trusted program's workspace, tables and applications."""

    def __init__(
        self,
        workspace: Workspace,
        tables: OpenTables | None,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.workspace = workspace
        self.redaction = workspace.redaction
        self.open_tables = tables
        self._loop = loop
        self._tables: Tables | None = None
        self._native_place: Any = None

    def read(self, reads: Callable[[Reader], R], what: str, *words: object) -> Awaitable[R]:
        """Run a read of our own, on tables of the whole record."""
        del what, words
        return self.opened_tables().read(reads)

    def ask(
        self,
        what: str,
        statement: str,
        parameters: Sequence[object],
        tables: Mapping[str, Any] = NOTHING,
    ) -> Awaitable[SqlAnswer]:
        """Answer an SQL statement, from tables of the whole record."""
        del what
        return self.opened_tables().ask(statement, tuple(parameters), tables)

    async def label_of_runs(self, runs: Sequence[str]) -> Label | None:
        """Return the join of the runs' labels."""
        return await label_of_runs(self.workspace, runs)

    def experience_index(self) -> contextlib.AbstractContextManager[ExperienceIndex]:
        """Return the index of the last search, which the next one updates."""
        return contextlib.nullcontext(self._experience_index)

    def opened_tables(self) -> Tables:
        """Return the tables; open them at the first query. Raises Refused if there are none."""
        if self._tables is None:
            if self.open_tables is None:
                message = (
                    "a record in memory has no SQL tables: connect to a workspace with a broker"
                )
                raise Refused(message)
            self._tables = self.open_tables()
        return self._tables

    @functools.cached_property
    def _experience_index(self) -> ExperienceIndex:
        """The index of the last search for experiences; the next search updates it."""
        from hansard.projections.file_search import FileWords  # noqa: PLC0415 -- takes sqlite

        return ExperienceIndex(FileWords())

    async def close(self) -> None:
        """Close the tables, the applications and the workspace."""
        if "_experience_index" in self.__dict__:
            self._experience_index.close()
        if self._native_place is not None:
            from hansard.state import native  # noqa: PLC0415 -- it is loaded already

            native.close_place(self._native_place)
        try:
            if self._tables is not None:
                await self._tables.close()
        finally:
            await self.workspace.close()

    def environment(self) -> dict[str, str]:
        """Return environment variables that connect `eventsourcing` applications."""
        from hansard.state import native  # noqa: PLC0415 -- most programs need no library

        if self._native_place is None:
            log, blobs = self.workspace.log, self.workspace.blobs
            self._native_place = native.Place(
                log, blobs, self.workspace.clock, self._loop or asyncio.get_running_loop()
            )
        return native.environment_of(self._native_place)


class _Trusted:
    """The parts that the trusted records of both clients share."""

    workspace: Workspace
    _local: LocalContext
    _defaults: Defaults

    def application_env(self) -> dict[str, str]:
        """Return environment variables that connect `eventsourcing` applications to this record.

        For code that creates applications itself, such as `SingleThreadedRunner(system,
        env=record.application_env())`. They are valid in this process, while the record is open.
        """
        return self._local.environment()

    def application(
        self, cls: Callable[[dict[str, str]], A], *, env: Mapping[str, str] = NOTHING
    ) -> A:
        """Create an application of the `eventsourcing` library on this record.

        Its events go to the same streams as those of sessions, under the same names and tags,
        without a step.

        The library blocks, so its calls must be made where no event loop runs; with the async
        client in a thread, `await asyncio.to_thread(app.open_account, "ada")`. Otherwise they raise
        `SyncInLoop`.

        Args:
            cls: The application's class. Its aggregates must be declared
                (`hansard.aggregate_type`).
            env: Further variables of the library: `AGGREGATES` names the aggregates that its
                notification log contains; all declared ones by default.
        """
        return cls({**env, **self.application_env()})

    def _place(self) -> str:
        return self.workspace.command

    def _brief(self) -> dict[str, Any]:
        log = self.workspace.log
        return {
            "workspace": log.workspace,
            "durability": log.durability,
            "sessions": first(kept(self), lambda each: f"{each.agent} in run {each.run}"),
        }


@guard_secrets("record")
class AsyncRecord(_Trusted, AsyncCommonRecord[AsyncSession, TrustedAsync]):
    """A workspace's record for the async client. Returned by `hansard.connect_async`.

    A method that writes returns once the write is acknowledged.
    """

    def __init__(
        self, workspace: Workspace, defaults: Defaults, tables: OpenTables | None = None
    ) -> None:
        self.workspace = workspace.redacting(defaults.redact)
        self._local = LocalContext(self.workspace, tables, None)
        super().__init__(self._local)
        self._defaults = defaults

    async def _disconnect(self) -> None:
        await self._local.close()

    async def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncSession:
        request = session_options(self._defaults, workflow, options)
        acting = self._defaults.acting(agent, role)
        opened = await opening.open_agent_here(self.workspace, *acting, request)
        ending = partial(end_session, self.workspace, opened, self._defaults.report)
        return async_session_of(opened.engine, opened.arm, ending)

    def memory(self, space: str = ORG) -> AsyncMemorySpace:
        """Return a memory space: its files, for trusted people and programs.

        Args:
            space: `agent/<name>`, `user/<principal>` or `org`.

        Raises:
            BadName: The space's name is none of these.
        """
        return AsyncMemorySpace(MemoryStore(self.workspace, space), SessionRankers())

    def _blocking(self, portal: Portal) -> Record:
        """Return this record for code in a thread, over the same loop."""
        return Record(self.workspace, portal, self._defaults, self._local.open_tables)

    @contextlib.asynccontextmanager
    async def replay_from(
        self,
        snapshot: str | Snapshot,
        *,
        effects: ForkEffects | str = ForkEffects.SHADOW,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[AsyncSession, None]:
        """Open a session that continues from a snapshot, as its agent.

        From the agent's newest snapshot (no call began or ended after it) the run is resumed; from
        an older one it is forked, and `session.run` is the fork's id.

        Args:
            snapshot: The snapshot, or its id; `run=` then names its run (see `snapshot`).
            effects: The treatment of tools with effects in a fork: see `fork`.
            **options: See `RunOptions`.

        Raises:
            NotFound: No snapshot has this id.
        """
        origin = snapshot
        if not isinstance(origin, Snapshot):
            origin = await self.snapshot(origin, run=options.get("run"))
        named: Any = dict(options)
        named["run"] = origin.run
        if not await snapshots.is_newest(self.workspace, origin):
            named["run"] = await self.fork(origin.run, at=origin.snapshot_id, effects=effects)
        async with self.run(agent=origin.agent, role=origin.role, **named) as session:
            yield session


@guard_secrets("record")
class Record(_Trusted, CommonRecord[Session, TrustedSync]):
    """A workspace's record for the sync client. Returned by `hansard.connect`.

    A method that writes returns once the write is acknowledged.
    """

    _portal: Portal

    def __init__(
        self,
        workspace: Workspace,
        portal: Portal,
        defaults: Defaults,
        tables: OpenTables | None = None,
    ) -> None:
        self.workspace = workspace.redacting(defaults.redact)
        self._local = LocalContext(self.workspace, tables, portal.loop)
        super().__init__(self._local, portal)
        self._defaults = defaults

    def _disconnect(self) -> None:
        self._portal.release(self._local.close())

    def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> Session:
        begin = opening.open_agent(
            self.workspace,
            *self._defaults.acting(agent, role),
            session_options(self._defaults, workflow, options),
            self._portal.post,
            self._portal.future,
        )
        opened = self._portal.run(begin)
        ending = partial(end_session, self.workspace, opened, self._defaults.report)
        return made(opened.engine, opened.arm, self._portal, ending)

    def memory(self, space: str = ORG) -> MemorySpace:
        """Return a memory space: its files, for trusted people and programs.

        Args:
            space: `agent/<name>`, `user/<principal>` or `org`.

        Raises:
            BadName: The space's name is none of these.
        """
        return MemorySpace(MemoryStore(self.workspace, space), SessionRankers(), self._portal)

    @contextlib.contextmanager
    def replay_from(
        self,
        snapshot: str | Snapshot,
        *,
        effects: ForkEffects | str = ForkEffects.SHADOW,
        **options: Unpack[RunOptions],
    ) -> Generator[Session, None, None]:
        """Open a session that continues from a snapshot, as its agent.

        From the agent's newest snapshot (no call began or ended after it) the run is resumed; from
        an older one it is forked, and `session.run` is the fork's id.

        Args:
            snapshot: The snapshot, or its id; `run=` then names its run (see `snapshot`).
            effects: The treatment of tools with effects in a fork: see `fork`.
            **options: See `RunOptions`.

        Raises:
            NotFound: No snapshot has this id.
        """
        origin = snapshot
        if not isinstance(origin, Snapshot):
            origin = self.snapshot(origin, run=options.get("run"))
        named: Any = dict(options)
        named["run"] = origin.run
        if not self._portal.run(snapshots.is_newest(self.workspace, origin)):
            named["run"] = self.fork(origin.run, at=origin.snapshot_id, effects=effects)
        with self.run(agent=origin.agent, role=origin.role, **named) as session:
            yield session
