"""The composition root: takes settings, returns an open workspace. Nothing else reads the
environment.

A caller that only reads creates nothing: no data directory, no workspace. A mistyped name is an
error, not an empty result.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from hansard import settings as configuration
from hansard.agents.workspace import Workspace
from hansard.broker import private_copy
from hansard.broker.files import Durability, Login
from hansard.broker.lease import Host
from hansard.bus import archive
from hansard.bus.clock import Clock, demand_real_clock
from hansard.bus.errors import NotFound
from hansard.bus.jetstream import BrokerOptions, JetStreamLog, open_log
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.jetstream.streams import outside_durability
from hansard.bus.loggers import logger
from hansard.bus.marks import Witness
from hansard.client import unfinished
from hansard.domain.choices import chosen
from hansard.domain.redaction import Redaction
from hansard.operations.sql_answer import OpenTables, Tables
from hansard.projections.table_files import role_place
from hansard.settings import Settings, SettingsError

_log = logger(__name__)

Tell = Callable[[str], None]

OUTSIDE_CONNECT_TIMEOUT_S = 3.0
"""Seconds that the first connect to an outside server may take."""


def settings_of(options: Mapping[str, Any]) -> Settings:
    """Return the settings: arguments first, then the environment, then `hansard.toml`.

    Raises SettingsError, NotCopied, BadDataDir, and Refused if a process that continues a run names
    another one.
    """
    fields = dict(options)
    if fields.get("credentials") is not None:
        fields["credentials"] = os.fspath(fields["credentials"])
    environment = configuration.of_this_program(os.environ)
    from hansard.client.options import hide_if_uncaught, show_own_frames  # noqa: PLC0415 -- they import the engine of steps

    hide_if_uncaught()
    configuration.demand_continued(fields.get("run"))
    settings = configuration.load(environment, **fields)
    show_own_frames(shown=settings.debug)
    return readable(settings, _log.warning)


def readable(settings: Settings, tell: Callable[[str], None]) -> Settings:
    """Return the settings, with a private copy of the data directory if it is not writable.

    `tell` is called with a notice of the copy. Raises NotCopied, BadDataDir.
    """
    if settings.nats_url is not None or settings.credentials is not None:
        return settings
    folder = Path(settings.data_dir)
    copy = private_copy.readable(folder, tell)
    return settings if copy == folder else msgspec.structs.replace(settings, data_dir=copy)


class Broker(msgspec.Struct):
    """A broker: its connection options, its durability, and the function that releases it."""

    runtime: BrokerOptions
    admin: BrokerOptions | None
    durability: str
    release: Callable[[], Awaitable[None]]


async def find_broker(settings: Settings) -> Broker:
    """Return the outside broker that the settings name, else the embedded one, started or joined.

    Raises MockedClock, and SettingsError if replicas are requested of the embedded one.
    """
    demand_real_clock()
    mib, folder = archive.MIB, data_dir_of(settings) / "archive-cache"
    sizes = settings.archive_memory_mb * mib, settings.archive_disk_mb * mib
    archive.configure(archive.Caches(folder, *sizes))
    if settings.nats_url:
        return await _outside(settings)
    if (settings.nats_replicas or 1) > 1:
        message = (
            f"{settings.nats_replicas} replicas requested, but the embedded broker is one server: "
            "name a cluster (HANSARD_NATS_URL, --nats) or request no replicas"
        )
        raise SettingsError(message)
    request = settings.durability
    target = chosen(Durability, request, "durability") if request else None
    host = await Host.open(Path(settings.data_dir), target)

    async def release() -> None:
        host.close()

    def options(login: Login) -> BrokerOptions:
        return BrokerOptions(
            urls=(host.info.url,),
            user=login.user,
            password=login.password,
            name="hansard",
            disk_wait_s=settings.disk_wait_s,
            host=host,
            witness=Witness.of(settings.data_dir),
            copy_of=private_copy.origin(Path(settings.data_dir)),
        )

    info = host.info
    return Broker(options(info.runtime), options(info.admin), info.durability.value, release)


async def _outside(settings: Settings) -> Broker:
    options = BrokerOptions(
        urls=tuple(url.strip() for url in (settings.nats_url or "").split(",") if url.strip()),
        user=settings.nats_user,
        password=settings.nats_password,
        credentials=Path(settings.nats_creds) if settings.nats_creds else None,
        nkey_seed=Path(settings.nats_nkey) if settings.nats_nkey else None,
        tls_ca=Path(settings.nats_ca) if settings.nats_ca else None,
        tls_cert=Path(settings.nats_cert) if settings.nats_cert else None,
        tls_key=Path(settings.nats_key) if settings.nats_key else None,
        connect_timeout_s=OUTSIDE_CONNECT_TIMEOUT_S,
        domain=settings.nats_domain or "",
    )
    system: BrokerOptions | None = None
    if settings.nats_system_user or settings.nats_system_creds:
        creds = settings.nats_system_creds
        system = msgspec.structs.replace(
            options,
            user=settings.nats_system_user,
            password=settings.nats_system_password,
            credentials=Path(creds) if creds else None,
            nkey_seed=None,
            name="hansard system",
            domain="",
        )

    async def release() -> None:
        return None

    return Broker(options, None, await outside_durability(system), release)


async def open_workspace(settings: Settings) -> Workspace:
    """Open a workspace.

    Raises Unreachable, Contradiction, ServerError, BadName, and Corrupt if the server has lost
    something of it.
    """
    opened, _ = await open_with_tables(settings)
    return opened


async def open_with_tables(
    settings: Settings, *, only_read: bool = False, tell: Tell | None = None
) -> tuple[Workspace, OpenTables]:
    """Open a workspace; return it and the function that opens its tables.

    With `only_read` it uses one connection, and the workspace must exist; of a region's copy,
    `tell` is called with its lag. Raises as
    `open_workspace`, with `only_read` also NotFound.
    """
    redact = configuration.secrets(settings)
    Redaction.of(redact)
    broker = await find_broker(settings)

    try:
        log = await open_log(
            broker.runtime,
            settings.workspace,
            broker.durability,
            admin=broker.admin,
            screened=True,
            replicas=settings.nats_replicas,
            reading=partial(check_workspace, tell=tell) if only_read else None,
        )
    except BaseException:
        await broker.release()
        raise

    def tables() -> Tables:
        from hansard.client import tables  # noqa: PLC0415 -- slow to import, and needed only for SQL

        folder = Path(settings.data_dir).absolute()
        return tables.Tables(settings.workspace, folder, broker.runtime)

    opened = _workspace(log, broker, settings)
    return opened.redacting(redact), tables


def _command(settings: Settings) -> str:
    """Return the shell command that reaches the workspace, without anything that may hold a
    password.
    """
    words = ["hansard", "--workspace", settings.workspace]
    if settings.nats_url and "@" not in settings.nats_url:
        words += ["--nats", settings.nats_url]
    elif not settings.nats_url and settings.data_dir != Settings().data_dir:
        words += ["--data-dir", os.fspath(settings.data_dir)]
    return shlex.join(words)


def _workspace(log: JetStreamLog, broker: Broker, settings: Settings) -> Workspace:
    async def close() -> None:
        await log.close()
        await broker.release()

    async def open_other(name: str) -> Workspace:
        other = msgspec.structs.replace(settings, workspace=name)
        return (await open_with_tables(other, only_read=True))[0]

    made = Workspace(
        log,
        log.blobs,
        Clock(),
        close,
        snapshots=log.snapshots,
        command=_command(settings),
        hold=partial(unfinished.hold, settings),
        open_other=open_other,
    )
    made.states.hash_key = lambda role: role_place(
        data_dir_of(settings), settings.workspace, role
    ).hash_key()
    return made


def data_dir_of(settings: Settings) -> Path:
    """Return the absolute path of the embedded broker's folder."""
    return Path(settings.data_dir).absolute()


def check_data_dir(settings: Settings) -> None:
    """Raise NotFound if the embedded broker's folder is missing and no other broker is named."""
    folder = data_dir_of(settings)
    if settings.nats_url is None and not folder.is_dir():
        remedy = "give --data-dir or --nats, or begin a record with 'hansard up' or connect()"
        raise NotFound(f"data directory {str(folder)!r}", remedy)


async def check_workspace(raw: RawWorkspace, tell: Tell | None = None) -> None:
    """Raise NotFound if the broker has no such workspace, Corrupt if it once had it. Of a region's
    copy, `tell` is called with its lag.
    """
    if raw.home and tell is not None:
        tell(str(await raw.lag()))
    names = await raw.workspaces()
    if raw.workspace not in names:
        await raw.refuse_loss()
        known = ", ".join(names) or "none yet"
        remedy = f"there are: {known}; 'hansard up -w NAME' creates one"
        raise NotFound(f"workspace {raw.workspace!r}", remedy)


@contextlib.asynccontextmanager
async def alongside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[asyncio.Task[None]]:
    """Run work while the block runs, and cancel it at the end. Raises the error of the work."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


@contextlib.asynccontextmanager
async def broker_of(settings: Settings) -> AsyncGenerator[Broker]:
    """Find the broker for the block, and release it. Raises as `find_broker`."""
    broker = await find_broker(settings)
    try:
        yield broker
    finally:
        await broker.release()


@contextlib.asynccontextmanager
async def raw_of(
    options: BrokerOptions, workspace: str, *, damaged: bool = False
) -> AsyncGenerator[RawWorkspace]:
    """Open a workspace for the block, without decoding. Raises as `RawWorkspace.open`."""
    raw = await RawWorkspace.open(options, workspace, damaged=damaged)
    try:
        yield raw
    finally:
        await raw.close()


@contextlib.asynccontextmanager
async def reading_raw(
    settings: Settings, *, damaged: bool = False, tell: Tell | None = None
) -> AsyncGenerator[RawWorkspace]:
    """Open an existing workspace without decoding its events; `tell` as in `open_with_tables`.

    Raises NotFound, Unreachable, ServerError, BadName, and Corrupt if the broker lost something of
    it; with `damaged` only if all of it is lost.
    """
    check_data_dir(settings)
    async with (
        broker_of(settings) as broker,
        raw_of(broker.runtime, settings.workspace, damaged=damaged) as raw,
    ):
        await check_workspace(raw, tell)
        yield raw


@contextlib.asynccontextmanager
async def reading(settings: Settings, tell: Tell | None = None) -> AsyncGenerator[Workspace]:
    """Open an existing workspace. Raises as `reading_raw`, and Contradiction."""
    check_data_dir(settings)
    workspace, _ = await open_with_tables(settings, only_read=True, tell=tell)
    try:
        yield workspace
    finally:
        await workspace.close()


@contextlib.asynccontextmanager
async def beginning(settings: Settings) -> AsyncGenerator[Workspace]:
    """Open a workspace, creating it if it does not exist. Raises as `open_workspace`."""
    workspace = await open_workspace(settings)
    try:
        yield workspace
    finally:
        await workspace.close()
