"""The restricted logins of an embedded server, their permissions, and their transfer to the server.

    access.lock   flock, held by a process that updates `access.json` from the record
    access.json   the restricted logins that the server should have
    access.conf   the users of the account, which `nats.conf` includes: written from `access.json`
                  before each start and each reload of the server

A reload is requested over a connection that was open when `access.conf` was written. A server that
has read an older one thus cannot answer it: a server that starts meanwhile is another connection.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import msgspec

from hansard.broker import process as server_process
from hansard.broker.files import Credentials, ServerFiles, locked
from hansard.bus import subjects
from hansard.bus.file_lock import replace_private
from hansard.domain.ids import is_public_key, workspace_name

CONNECTION_TYPES = ("STANDARD",)
"""No leaf node, no MQTT, no web socket, even if the server listens for them."""

ENTRIES_MAX = 10_000
"""Logins whose lines are cached: each change writes all lines."""

RELOAD_POLL_S = 0.05
"""Pause between two attempts to reload a restarting server, in seconds."""


class BrokerUser(msgspec.Struct, frozen=True):
    """A restricted login as the broker has it. `nkey` is its public key (U...)."""

    nkey: str
    workspace: str
    role: str
    principal: str
    inbox: str


class Permissions(msgspec.Struct, frozen=True):
    """Subjects that a login may publish and subscribe to. All others are denied."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


class NotReloaded(Exception):
    """The server does not have the logins yet; it reads them at its next start."""


def permissions(workspace: str, role: str, principal: str, inbox: str) -> Permissions:
    """Return the permissions of a restricted login. Raises BadName, and ValueError for an invalid
    inbox.
    """
    if not subjects.is_inbox(inbox):
        message = f"{inbox!r:.80} is not an inbox of `hansard.bus.subjects.restricted_inbox`"
        raise ValueError(message)
    return Permissions(
        publish=(f"{subjects.requests(workspace_name(workspace), role, principal)}.>",),
        subscribe=(f"{inbox}.>",),
    )


@functools.lru_cache(ENTRIES_MAX)
def entry(user: BrokerUser) -> str:
    """Return a login as one line of a server's configuration, for the `users` of its account."""
    may = permissions(user.workspace, user.role, user.principal, user.inbox)
    return (
        f"{{ nkey: {server_process.quoted(user.nkey)}, permissions: {{ "
        f"publish: {{ allow: [{_list(may.publish)}] }}, "
        f"subscribe: {{ allow: [{_list(may.subscribe)}] }} }}, "
        f"allowed_connection_types: [{_list(CONNECTION_TYPES)}] }}"
    )


def _list(words: Iterable[str]) -> str:
    return ", ".join(server_process.quoted(word) for word in words)


def render(credentials: Credentials, users: Iterable[BrokerUser]) -> bytes:
    """Return the content of the file of the account's users. Logins that would prevent the server's
    start are left out.
    """
    entries = server_process.logins(credentials)
    items: set[str] = set()
    for user in users:
        if user.nkey not in items and is_public_key(user.nkey):
            items.add(user.nkey)
            entries.append(entry(user))
    lines = "".join(f"  {each}\n" for each in entries)
    return f"# Written by hansard; changes are lost.\nusers: [\n{lines}]\n".encode()


def write(place: ServerFiles, credentials: Credentials) -> None:
    """Write `access.conf` from what is on disk. Raises OSError."""
    replace_private(place.root / "access.conf", render(credentials, read(place)))


def read(place: ServerFiles) -> list[BrokerUser]:
    """Return the restricted logins; none if the file is missing or cannot be read: deny by
    default.
    """
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(place.access.read_bytes(), type=list[BrokerUser])
    return []


@contextlib.contextmanager
def changing(
    data_dir: Path, timeout_s: float
) -> Generator[Callable[[str, list[BrokerUser]], bool]]:
    """Hold the lock on the logins; yield a function that replaces those of one workspace.

    That function returns whether something changed, once the running server has it. It writes
    first, so that the next start of a server completes a killed change. Raises NotReloaded,
    OSError.
    """
    place = ServerFiles(data_dir.resolve())
    deadline = time.monotonic() + timeout_s
    with locked(place.access_lock, deadline) as held:
        if not held:
            message = f"another process has held {str(place.access_lock)!r} for {timeout_s:.0f} s"
            raise NotReloaded(message)
        yield lambda workspace, users: _replace(place, workspace, users, deadline)


def _replace(place: ServerFiles, workspace: str, users: list[BrokerUser], deadline: float) -> bool:
    before = read(place)
    after = [user for user in before if user.workspace != workspace]
    after += [user for user in users if user.workspace == workspace]
    after.sort(key=lambda user: (user.workspace, user.nkey))
    if after != before:
        replace_private(place.access, msgspec.json.format(msgspec.json.encode(after), indent=1))
    _have_reloaded(place, deadline)  # even if unchanged: a killed call may lack it
    return after != before


def _have_reloaded(place: ServerFiles, deadline: float) -> None:
    while True:
        credentials = place.read_credentials()
        try:
            port, name, login = credentials.port, credentials.name, credentials.system
            with server_process.connect(port, name, login) as server:
                write(place, credentials)
                server_process.reload(server)
        except (ConnectionError, TimeoutError) as error:
            if time.monotonic() >= deadline:
                message = f"the server on {str(place.root)!r} did not reload: {error}"
                raise NotReloaded(message) from error
            time.sleep(RELOAD_POLL_S)
        else:
            return
