"""The composition root: settings in, an open workspace out. Nothing else reads the environment."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

import msgspec

from hansard import settings as configuration
from hansard.agents.policy.gate import GateRule
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.recorder import Settle
from hansard.agents.steps.secrets import SecretProvider
from hansard.agents.workspace import Workspace
from hansard.bus import access
from hansard.bus.access import Credentials
from hansard.bus.clock import Clock
from hansard.bus.jetstream import BrokerOptions, JetStreamLog, open_log
from hansard.bus.jetstream.durability import outside_durability
from hansard.bus.loggers import logger
from hansard.bus.marks import Witness
from hansard.bus.portal import portal, refuse_in_loop
from hansard.bus.server import private_copy
from hansard.bus.server.hosting import Host
from hansard.bus.server.lease import Durability, Login
from hansard.client.common import (
    AsyncCommonRecord,
    ConnectOptions,
    Defaults,
    MoreSettings,
    Tables,
)
from hansard.client.record import AsyncRecord, OpenTables
from hansard.client.record_sync import Record
from hansard.domain.choices import chosen
from hansard.settings import Settings, SettingsError

if TYPE_CHECKING:  # a trusted program never needs it
    from hansard.client.restricted.record import AsyncRestrictedRecord
    from hansard.client.restricted.record_sync import RestrictedRecord

_log = logger(__name__)

R = TypeVar("R", bound=AsyncCommonRecord)

OUTSIDE_CONNECT_TIMEOUT_S = 3.0
"""How long the first connect to a server that is not ours may take: it is there, or it is not."""


def readable(settings: Settings, tell: Callable[[str], None]) -> Settings:
    """The settings, with a private copy of the data directory where that cannot be written, which
    is told. Raises NotCopied, BadDataDir.
    """
    if settings.nats_url is not None or settings.credentials is not None:
        return settings
    folder = Path(settings.data_dir)
    found = private_copy.readable(folder, tell)
    return settings if found == folder else msgspec.structs.replace(settings, data_dir=found)


class Broker(msgspec.Struct):
    """A broker to talk to: how to reach it, what is known of its durability, how to let go."""

    runtime: BrokerOptions
    admin: BrokerOptions | None
    durability: str
    release: Callable[[], Awaitable[None]]
    witness: Witness | None = None
    """What the data directory of an embedded one knows apart from it."""


async def find_broker(settings: Settings) -> Broker:
    """The outside broker that the settings name, else the embedded one, started or joined.

    Raises SettingsError where replicas are asked of the embedded one.
    """
    if settings.nats_url:
        return await _outside(settings)
    if (settings.nats_replicas or 1) > 1:
        message = (
            f"{settings.nats_replicas} replicas were asked for, but the embedded broker is one "
            "server: name a cluster (HANSARD_NATS_URL, --nats) or ask for no replicas"
        )
        raise SettingsError(message)
    asked = settings.durability
    wanted = chosen(Durability, asked, "durability") if asked else None
    host = await Host.open(Path(settings.data_dir), wanted)

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
            copy_of=private_copy.origin(Path(settings.data_dir)),
        )

    info = host.info
    return Broker(
        options(info.runtime),
        options(info.admin),
        info.durability.value,
        release,
        Witness.of(settings.data_dir),
    )


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
        )

    async def release() -> None:
        return None

    return Broker(options, None, await outside_durability(system), release)


async def open_workspace(settings: Settings) -> Workspace:
    """A workspace, open. Raises Unreachable, Contradiction, ServerError, BadName, and Corrupt where
    the server has lost something of it.
    """
    opened, _ = await _opened(settings)
    return opened


async def _opened(settings: Settings) -> tuple[Workspace, OpenTables]:
    broker = await find_broker(settings)
    try:
        log = await open_log(
            broker.runtime,
            settings.workspace,
            broker.durability,
            admin=broker.admin,
            screened=True,
            replicas=settings.nats_replicas,
            witness=broker.witness,
        )
    except BaseException:
        await broker.release()
        raise

    def tables() -> Tables:
        from hansard.client import tables  # noqa: PLC0415 -- it takes long, and not all ask in SQL

        folder = Path(settings.data_dir).absolute()
        return tables.Tables(settings.workspace, folder, broker.runtime)

    return _workspace(log, broker, _command(settings)), tables


def _command(settings: Settings) -> str:
    """How a person reaches the workspace from a shell; without what a password may stand in."""
    words = ["hansard", "--workspace", settings.workspace]
    if settings.nats_url and "@" not in settings.nats_url:
        words += ["--nats", settings.nats_url]
    elif not settings.nats_url and settings.data_dir != Settings().data_dir:
        words += ["--data-dir", os.fspath(settings.data_dir)]
    return shlex.join(words)


def _workspace(log: JetStreamLog, broker: Broker, command: str) -> Workspace:
    async def close() -> None:
        await log.close()
        await broker.release()

    return Workspace(log, log.blobs, Clock(), close, snapshots=log.snapshots, command=command)


def _settings(given: dict[str, Any]) -> Settings:
    if given.get("credentials") is not None:
        given = {**given, "credentials": os.fspath(given["credentials"])}
    return readable(configuration.load(os.environ, **given), _log.warning)


def _login(settings: Settings, given: Mapping[str, Any]) -> Credentials | None:
    """The credentials of a restricted agent; None for a trusted program.

    Raises BadCredentials, SettingsError where they are of another workspace than was given.
    """
    if settings.credentials is None:
        return None
    found = access.load(settings.credentials)
    if given.get("workspace") not in (None, found.workspace):
        message = (
            f"workspace={given['workspace']!r} was given, but the credentials "
            f"{settings.credentials!r} are of {found.workspace!r}: give one of the two"
        )
        raise SettingsError(message)
    return found


def _defaults(settings: Settings, given: dict[str, Any]) -> Defaults:
    mode = chosen(Mode, settings.mode, "mode") if settings.mode else None
    return Defaults(run=settings.run, mode=mode, **given)


@overload
def connect(
    workspace: str | None = None,
    *,
    credentials: str | os.PathLike[str],
    **options: Unpack[ConnectOptions],
) -> RestrictedRecord: ...
@overload
def connect(
    workspace: str | None = None, *, credentials: None = None, **options: Unpack[ConnectOptions]
) -> Record: ...
def connect(  # noqa: PLR0913 -- each is a setting of its own
    workspace: str | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    nats: str | None = None,
    durability: Durability | str | None = None,
    gate: Sequence[GateRule] = (),
    redact: Mapping[str, Any] | None = None,
    secrets: SecretProvider | None = None,
    settle: Settle | None = None,
    credentials: str | os.PathLike[str] | None = None,
    **more: Unpack[MoreSettings],
) -> Record | RestrictedRecord:
    """Open a workspace's record for the sync client; use it in a `with`.

    The embedded broker is started, or joined, unless `nats=` or HANSARD_NATS_URL names another.
    With `credentials=` (a file of `hansard credentials`) or HANSARD_CREDENTIALS it is the service
    that is asked, by a restricted agent: the same API, for what its role may do (`CommonRecord`).

    Args:
        workspace: Which one; `default` if neither this nor a setting says.
        data_dir: Where the embedded broker keeps its files.
        nats: Addresses of an outside server or cluster, comma-separated.
        durability: `strict` or `relaxed`, for the embedded broker.
        gate: Rules that every call must pass: `hansard.allow`, `deny`, `ask_first`, `budget`, or
            a function.
        redact: Secrets to keep out of the record, by name: the text itself or a compiled pattern.
        secrets: Gives them back to live calls: by name, or a function of the name.
        settle: A policy that settles doubt: a function of the step, which gives `Happened(...)`,
            `DID_NOT_HAPPEN`, a verdict, or None, which leaves it to a person.
        credentials: A file of `hansard credentials`: the record is then a restricted agent's.
        **more: Any other setting (`MoreSettings`). What is not given comes from the settings.

    Raises:
        SyncInLoop: Inside a running event loop: use `connect_async`.
        Unreachable: No broker answers at the address.
        ServerError: The embedded broker could not be started.
        Contradiction: It stands with other settings.
        SettingsError: A setting cannot be taken.
        Corrupt: The broker has lost something of the workspace.
    """
    refuse_in_loop()
    given = {"workspace": workspace, "data_dir": data_dir, "nats_url": nats}
    settings = _settings(given | {"durability": durability, "credentials": credentials} | more)
    rules = {"gate": gate, "redact": redact or {}, "secrets": secrets, "settle": settle}
    gateway = portal()
    login = _login(settings, given)
    if login is not None:
        from hansard.client.restricted.link import Link  # noqa: PLC0415 -- a trusted program never needs it
        from hansard.client.restricted.record_sync import RestrictedRecord  # noqa: PLC0415 -- a trusted program never needs it

        return RestrictedRecord(gateway.run(Link.open(login)), gateway, _defaults(settings, rules))
    opened, tables = gateway.run(_opened(settings))
    return Record(opened, gateway, _defaults(settings, rules), tables)


@overload
def connect_async(
    workspace: str | None = None,
    *,
    credentials: str | os.PathLike[str],
    **options: Unpack[ConnectOptions],
) -> Connecting[AsyncRestrictedRecord]: ...
@overload
def connect_async(
    workspace: str | None = None, *, credentials: None = None, **options: Unpack[ConnectOptions]
) -> Connecting[AsyncRecord]: ...
def connect_async(  # noqa: PLR0913 -- each is a setting of its own
    workspace: str | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    nats: str | None = None,
    durability: Durability | str | None = None,
    gate: Sequence[GateRule] = (),
    redact: Mapping[str, Any] | None = None,
    secrets: SecretProvider | None = None,
    settle: Settle | None = None,
    credentials: str | os.PathLike[str] | None = None,
    **more: Unpack[MoreSettings],
) -> Connecting[Any]:
    """Open a workspace's record for the async client; takes what `connect` takes.

    `async with hansard.connect_async(...) as record`, or `record = await connect_async(...)`.
    """
    given = {"workspace": workspace, "data_dir": data_dir, "nats_url": nats}
    settings = _settings(given | {"durability": durability, "credentials": credentials} | more)
    rules = {"gate": gate, "redact": redact or {}, "secrets": secrets, "settle": settle}
    defaults = _defaults(settings, rules)
    login = _login(settings, given)

    async def opened() -> AsyncRecord | AsyncRestrictedRecord:
        if login is not None:
            from hansard.client.restricted.link import Link  # noqa: PLC0415 -- see `connect`
            from hansard.client.restricted.record import AsyncRestrictedRecord  # noqa: PLC0415 -- see `connect`

            return AsyncRestrictedRecord(await Link.open(login), defaults)
        workspace, tables = await _opened(settings)
        return AsyncRecord(workspace, defaults, tables)

    return Connecting(opened)


class Connecting(Generic[R]):
    """A record that is about to be opened: await it, or enter it with `async with`."""

    def __init__(self, opening: Callable[[], Awaitable[R]]) -> None:
        self._opening = opening
        self._record: R | None = None

    def __await__(self) -> Generator[Any, None, R]:
        return self._opened().__await__()

    async def _opened(self) -> R:
        self._record = await self._opening()
        return self._record

    async def __aenter__(self) -> R:
        return await self._opened()

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if self._record is not None:
            await self._record.close(error)
