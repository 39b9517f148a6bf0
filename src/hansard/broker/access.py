"""What a restricted login may do at the broker, and the file that its holder logs in with.

A restricted login publishes requests to the service under its own name and reads its own inbox:
nothing else, so that whatever it learns, a role's rules were asked for it. What the subjects are
does not depend on what a name looks like: each name is one token of `hansard.bus.subjects`.

    BusError
    ├── BadCredentials      the caller: a file of credentials that cannot be used
    └── AccessNotSynced       the world: the embedded server does not know yet whom to let in
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
import stat
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import msgspec

from hansard.broker import process as server_process
from hansard.broker.files import Credentials as ServerCredentials
from hansard.broker.files import ServerFiles, locked
from hansard.bus import subjects
from hansard.bus.errors import BusError
from hansard.bus.jetstream.options import BrokerOptions
from hansard.domain.errors import BadName
from hansard.domain.ids import workspace_name
from hansard.domain.nkeys import is_public_key

# ---------------------------------------- the restricted logins of an embedded server
#
# access.lock   flock, held by a process that brings `access.json` up to the record
# access.json   the restricted logins that the server is to know
# access.conf   the users of the account, which `nats.conf` includes: written from `access.json`
#               before each start and each reload of the server
#
# A reload is requested over a connection that was there when `access.conf` was written. So a server
# that has read an older one cannot answer it: one that starts meanwhile is another connection.

CONNECTION_TYPES = ("STANDARD",)
"""No leaf node, no MQTT, no web socket, whatever else the server listens for."""

ENTRIES_MAX = 10_000
"""Logins whose lines are kept: all are written again for each that changes."""

RELOAD_POLL_S = 0.05
"""Pause between two tries to have a server reload that is being restarted."""


class BrokerUser(msgspec.Struct, frozen=True):
    """A restricted login as the broker knows it. `nkey` is its public key (U...)."""

    nkey: str
    workspace: str
    role: str
    principal: str
    inbox: str


class Permissions(msgspec.Struct, frozen=True):
    """The subjects that a login may publish and subscribe to. All others are denied."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


class NotReloaded(Exception):
    """The server does not know the logins yet; it will when it is started again."""


def permissions(workspace: str, role: str, principal: str, inbox: str) -> Permissions:
    """What a restricted login may do. Raises BadName, ValueError for an inbox that is none."""
    if not subjects.is_inbox(inbox):
        message = f"{inbox!r:.80} is not an inbox of `hansard.bus.subjects.restricted_inbox`"
        raise ValueError(message)
    return Permissions(
        publish=(f"{subjects.requests(workspace_name(workspace), role, principal)}.>",),
        subscribe=(f"{inbox}.>",),
    )


@functools.lru_cache(ENTRIES_MAX)
def entry(user: BrokerUser) -> str:
    """A login as one line of a server's configuration, for the `users` of its account."""
    may = permissions(user.workspace, user.role, user.principal, user.inbox)
    return (
        f"{{ nkey: {server_process.quoted(user.nkey)}, permissions: {{ "
        f"publish: {{ allow: [{_list(may.publish)}] }}, "
        f"subscribe: {{ allow: [{_list(may.subscribe)}] }} }}, "
        f"allowed_connection_types: [{_list(CONNECTION_TYPES)}] }}"
    )


def _list(words: Iterable[str]) -> str:
    return ", ".join(server_process.quoted(word) for word in words)


def render(credentials: ServerCredentials, users: Iterable[BrokerUser]) -> bytes:
    """The file of the account's users. One that the server could not start with is left out."""
    entries = server_process.logins(credentials)
    items: set[str] = set()
    for user in users:
        if user.nkey not in items and is_public_key(user.nkey):
            items.add(user.nkey)
            entries.append(entry(user))
    lines = "".join(f"  {each}\n" for each in entries)
    return f"# Written by hansard; changes are lost.\nusers: [\n{lines}]\n".encode()


def write(place: ServerFiles, credentials: ServerCredentials) -> None:
    """Write `access.conf` from what is on disk. Raises OSError."""
    place.write_access_config(render(credentials, read(place)))


def read(place: ServerFiles) -> list[BrokerUser]:
    """The restricted logins; none where the file is missing or cannot be read: deny by default."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(place.access.read_bytes(), type=list[BrokerUser])
    return []


@contextlib.contextmanager
def changing(
    data_dir: Path, timeout_s: float
) -> Generator[Callable[[str, list[BrokerUser]], bool]]:
    """Hold the right to change the logins; gives what replaces those of one workspace.

    That function answers whether something changed, and returns when the running server knows.
    It writes first, so that the next start of a server mends what a kill leaves. Raises
    NotReloaded, OSError.
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
        place.write_access(msgspec.json.format(msgspec.json.encode(after), indent=1))
    _have_reloaded(place, deadline)  # also where nothing changed: a kill may have come before it
    return after != before


def _have_reloaded(place: ServerFiles, deadline: float) -> None:
    while True:
        credentials = place.read_credentials()
        try:
            with server_process.asking(
                credentials.port, credentials.name, credentials.system
            ) as reload:
                write(place, credentials)
                reload()
        except (ConnectionError, TimeoutError) as error:
            if time.monotonic() >= deadline:
                message = f"the server on {str(place.root)!r} did not reload: {error}"
                raise NotReloaded(message) from error
            time.sleep(RELOAD_POLL_S)
        else:
            return


FILE_BYTES_MAX = 64 * 1024
"""Of a file of credentials: far more than the longest names take."""

TELL_TIMEOUT_S = 30.0
"""How long to wait for other processes that change the logins, and for a server that restarts."""

OTHERS = 0o077
"""The bits of a mode that let somebody else in."""


class BadCredentials(BusError):
    """A file of credentials that cannot be used; nothing was sent anywhere."""

    def __init__(self, path: Path, fact: str, remedy: str) -> None:
        super().__init__(f"the credentials {str(path)!r} cannot be used ({fact}): {remedy}")
        self.path = path


class AccessNotSynced(BusError):
    """The embedded server does not know yet whom to let in. Doing it again mends that."""

    def __init__(self, data_dir: Path, fact: object) -> None:
        super().__init__(
            f"the server on {str(data_dir)!r} could not be told whom to let in ({fact}): "
            "run the command again"
        )
        self.data_dir = data_dir


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a restricted agent logs in with. Its representation does not show the secrets.

    `token` proves to the service who asks; `nkey_seed` to the broker who connects, which then lets
    the holder read under `inbox` and nowhere else.
    """

    url: str
    workspace: str
    role: str
    principal: str
    token: str
    nkey_seed: str
    inbox: str

    def __repr__(self) -> str:
        who = f"principal={self.principal!r}, role={self.role!r}, workspace={self.workspace!r}"
        return f"Credentials({who}, url={self.url!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        names = ("principal", "role", "workspace", "url")
        return [(name, getattr(self, name)) for name in names]

    def options(self) -> BrokerOptions:
        """How to reach the broker with them."""
        return BrokerOptions(
            urls=tuple(url.strip() for url in self.url.split(",") if url.strip()),
            nkey=self.nkey_seed,
            inbox_prefix=self.inbox,
            name=f"hansard {self.principal}"[:80],
        )


async def tell_server(
    data_dir: Path,
    workspace: str,
    users: Callable[[], Awaitable[list[BrokerUser]]],
    *,
    timeout_s: float = TELL_TIMEOUT_S,
) -> bool:
    """Have an embedded server know a workspace's restricted logins, and no others of it.

    `users` is asked while no other process changes them, so that the newest answer stands. Returns
    whether something changed, when the running server goes by it; whoever was taken out is
    disconnected then, and nobody else is. Raises AccessNotSynced, and what `users` raises.
    """
    loop = asyncio.get_running_loop()

    async def call() -> list[BrokerUser]:
        return await users()

    def tell() -> bool:
        # In one thread from lock to unlock: a caller that is cancelled leaves no lock behind.
        with changing(data_dir, timeout_s) as replace:
            found = asyncio.run_coroutine_threadsafe(call(), loop).result(timeout_s)
            return replace(workspace, found)

    try:
        return await asyncio.to_thread(tell)
    except (NotReloaded, OSError) as error:
        raise AccessNotSynced(data_dir, error) from error


def may_answer(inbox: str, reply: str) -> bool:
    """Whether the service may answer there: the broker does not check where a request wants its
    answer sent, and the service may publish anywhere.
    """
    rest = reply.removeprefix(f"{inbox}.")
    parts = rest.split(".")
    return (
        subjects.is_inbox(inbox)
        and rest != reply
        and all(part and part not in {"*", ">"} for part in parts)
        and reply.isascii()
        and reply.isprintable()
        and " " not in reply
    )


def load(path: str | os.PathLike[str]) -> Credentials:
    """Credentials from the file that `hansard credentials` wrote. Raises BadCredentials."""
    place = Path(path)
    again = "make new ones with 'hansard credentials'"
    try:
        with place.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadCredentials(place, error.strerror or str(error), "give their path") from error
    if stat.S_IMODE(mode) & OTHERS:
        fact = f"others may read or write them, mode {stat.S_IMODE(mode):o}"
        raise BadCredentials(place, fact, f"revoke them, {again}, and keep those at mode 600")
    if len(raw) > FILE_BYTES_MAX:
        raise BadCredentials(place, f"more than {FILE_BYTES_MAX:,} bytes", again)
    try:
        found = msgspec.json.decode(raw, type=Credentials)
        permissions(found.workspace, found.role, found.principal, found.inbox)
        public_key(found.nkey_seed)
    except (msgspec.DecodeError, RecursionError, ValueError, BadName) as error:
        # Its own words may quote a part of a secret.
        raise BadCredentials(place, "it is no whole file of credentials", again) from error
    return found


def new_seed() -> str:
    """A new secret key for a broker login (SU...): an Ed25519 seed in the form of NATS nkeys."""
    import nkeys  # noqa: PLC0415 -- with its cryptography, only where there are keys

    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return bytes(seed).decode()


def public_key(seed: str) -> str:
    """The public key (U...) of a seed. Raises ValueError for a text that is none."""
    import nkeys  # noqa: PLC0415 -- with its cryptography, only where there are keys

    try:
        public: Any = nkeys.from_seed(bytearray(seed.encode())).public_key
    except (nkeys.NkeysError, ValueError) as error:
        message = "that is no seed of a broker login"  # its own words may quote the secret
        raise ValueError(message) from error
    return bytes(public).decode()


def encode(credentials: Credentials) -> bytes:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(credentials), indent=2) + b"\n"
