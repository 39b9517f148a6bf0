"""`hansard.connect` and `connect_async`: open a record as a trusted program or restricted agent."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from hansard.agents.policy.gate import GateRule
from hansard.agents.steps.placeholders import SecretProvider
from hansard.agents.steps.recorder import Settle
from hansard.agents.steps.scope import enters
from hansard.broker import access
from hansard.broker.access import Credentials
from hansard.broker.files import Durability
from hansard.bus.portal import portal, refuse_in_loop
from hansard.client.common import AsyncCommonRecord
from hansard.client.opening import open_with_tables, settings_of
from hansard.client.options import ConnectOptions, Defaults, MoreSettings
from hansard.client.record import AsyncRecord, Record
from hansard.settings import Settings, SettingsError

if TYPE_CHECKING:  # a trusted program does not need it
    from hansard.client.restricted.record import AsyncRestrictedRecord, RestrictedRecord

R = TypeVar("R", bound=AsyncCommonRecord[Any, Any])


def _login(settings: Settings, place: Mapping[str, Any]) -> Credentials | None:
    """Return the credentials of a restricted agent; None for a trusted program.

    Raises BadCredentials, and SettingsError if they belong to another workspace than the given one.
    """
    if settings.credentials is None:
        return None
    credentials = access.load(settings.credentials)
    if place.get("workspace") not in (None, credentials.workspace):
        message = (
            f"workspace={place['workspace']!r} was given, but the credentials "
            f"{settings.credentials!r} are of {credentials.workspace!r}: give one of the two"
        )
        raise SettingsError(message)
    return credentials


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
    """Open a workspace's record for the sync client; use it in a `with` block.

    The embedded broker is started or joined, unless `nats=` or HANSARD_NATS_URL names another. With
    `credentials=` (a file of `hansard credentials`) or HANSARD_CREDENTIALS, the record is that of a
    restricted agent: it calls the service and has the same API, limited to what the role allows
    (`CommonRecord`).

    Args:
        workspace: The workspace's name; `default` if neither this nor a setting names one.
        data_dir: The folder of the embedded broker's files.
        nats: Addresses of an outside server or cluster, comma-separated.
        durability: `strict` or `relaxed`, for the embedded broker.
        gate: Rules that every call must pass: `hansard.allow`, `deny`, `ask_first`, `budget`, or a
            function.
        redact: Secrets to keep out of the record, by name: the text itself or a compiled pattern.
        secrets: The secrets' values for live calls: by name, or a function of the name.
        settle: A policy that settles calls in doubt: a function of the step that returns
            `Happened(...)`, `DID_NOT_HAPPEN`, a verdict, or None, which leaves it to a person.
        credentials: A file of `hansard credentials`, which opens the record as a restricted agent.
        **more: Any other setting (`MoreSettings`). Arguments not given are read from the settings.

    Raises:
        SyncInLoop: Inside a running event loop: use `connect_async`.
        Unreachable: No broker answers at the address.
        ServerError: The embedded broker could not be started.
        Contradiction: The workspace exists with other settings.
        SettingsError: A setting is invalid.
        Corrupt: The broker has lost something of the workspace.
    """
    refuse_in_loop()
    place = {"workspace": workspace, "data_dir": data_dir, "nats_url": nats}
    settings = settings_of(place | {"durability": durability, "credentials": credentials} | more)
    rules = {"gate": gate, "redact": redact or {}, "secrets": secrets, "settle": settle}
    defaults = Defaults.of(settings, rules)
    gateway = portal()
    login = _login(settings, place)
    if login is not None:
        from hansard.client.restricted.link import Link  # noqa: PLC0415 -- restricted agents only
        from hansard.client.restricted.record import RestrictedRecord  # noqa: PLC0415 -- restricted agents only

        return RestrictedRecord(gateway.run(Link.open(login)), gateway, defaults)
    opened, tables = gateway.run(open_with_tables(settings))
    return Record(opened, gateway, defaults, tables)


def opened(settings: Settings) -> Record:
    """Open a workspace's record for the sync client from settings. Raises as `connect`."""
    refuse_in_loop()
    gateway = portal()
    workspace, tables = gateway.run(open_with_tables(settings))
    return Record(workspace, gateway, Defaults.of(settings, {}), tables)


def opened_async(settings: Settings) -> Connecting[AsyncRecord]:
    """Open the same for the async client; `settings.credentials` are not used."""

    async def opening() -> AsyncRecord:
        workspace, tables = await open_with_tables(settings)
        return AsyncRecord(workspace, Defaults.of(settings, {}), tables)

    return Connecting(opening)


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
    """Open a workspace's record for the async client; takes the arguments of `connect`.

    Use `async with hansard.connect_async(...) as record`, or `record = await connect_async(...)`.
    """
    place = {"workspace": workspace, "data_dir": data_dir, "nats_url": nats}
    settings = settings_of(place | {"durability": durability, "credentials": credentials} | more)
    rules = {"gate": gate, "redact": redact or {}, "secrets": secrets, "settle": settle}
    defaults = Defaults.of(settings, rules)
    login = _login(settings, place)

    async def opened() -> AsyncRecord | AsyncRestrictedRecord:
        if login is not None:
            from hansard.client.restricted.link import Link  # noqa: PLC0415 -- see `connect`
            from hansard.client.restricted.record import AsyncRestrictedRecord  # noqa: PLC0415 -- see `connect`

            return AsyncRestrictedRecord(await Link.open(login), defaults)
        workspace, tables = await open_with_tables(settings)
        return AsyncRecord(workspace, defaults, tables)

    return Connecting(opened)


class Connecting(Generic[R]):
    """A record that is being opened: await it, or enter it with `async with`."""

    def __init__(self, opening: Callable[[], Awaitable[R]]) -> None:
        self._opening = opening
        self._record: R | None = None

    def __await__(self) -> Generator[Any, None, R]:
        return self._opened().__await__()

    async def _opened(self) -> R:
        self._record = await self._opening()
        return self._record

    async def __aenter__(self) -> R:
        record = await self._opened()
        enters(record)
        return record

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if self._record is not None:
            await self._record.close(error)
