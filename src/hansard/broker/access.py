"""Permissions of a restricted login at the broker, and its credentials file.

A restricted login may publish requests to the service under its own name and read its own inbox,
and nothing else, so that a role's rules apply to everything it reads. The form of a name does not
affect the subjects: each name is one token of `hansard.bus.subjects`.

    BusError
    ├── BadCredentials      the caller: a credentials file that cannot be used
    └── AccessNotSynced     the world: the embedded server does not have the current logins yet
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from hansard.broker.logins import BrokerUser, NotReloaded, changing, permissions
from hansard.bus import subjects
from hansard.bus.errors import BusError
from hansard.bus.jetstream.client import BrokerOptions
from hansard.domain.errors import BadName

FILE_BYTES_MAX = 64 * 1024
"""Most bytes of a credentials file: far more than the longest names need."""

SYNC_TIMEOUT_S = 30.0
"""Timeout for other processes that change the logins, and for a restarting server, in seconds."""

OTHERS = 0o077
"""Mode bits that give access to other users."""


class BadCredentials(BusError):
    """A file of credentials cannot be used.

    State: nothing was sent.
    Remedy: create the file again with `hansard credentials`, and keep it private (mode 600).
    """

    def __init__(self, path: Path, fact: str, remedy: str) -> None:
        super().__init__(f"the credentials {str(path)!r} cannot be used ({fact}): {remedy}")
        self.path = path


class AccessNotSynced(BusError):
    """The embedded server does not have the current logins yet. A retry repairs that."""

    def __init__(self, data_dir: Path, fact: object) -> None:
        super().__init__(
            f"the server on {str(data_dir)!r} could not be given the logins ({fact}): "
            "run the command again"
        )
        self.data_dir = data_dir


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials of a restricted agent. The representation does not show the secrets.

    `token` authenticates the sender to the service; `nkey_seed` authenticates the connection to the
    broker, which lets the holder read only under `inbox`.
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

    @property
    def is_http(self) -> bool:
        """True if they are for the service over HTTP, not for the broker."""
        return self.url.startswith(("http://", "https://"))

    def options(self) -> BrokerOptions:
        """Return the options to connect to the broker with these credentials."""
        return BrokerOptions(
            urls=tuple(url.strip() for url in self.url.split(",") if url.strip()),
            nkey=self.nkey_seed,
            inbox_prefix=self.inbox,
            name=f"hansard {self.principal}"[:80],
        )


async def sync_logins(
    data_dir: Path,
    workspace: str,
    users: Callable[[], Awaitable[list[BrokerUser]]],
    *,
    timeout_s: float = SYNC_TIMEOUT_S,
) -> bool:
    """Replace a workspace's restricted logins at an embedded server.

    `users` is called while no other process changes the logins, so that the newest result is kept.
    Returns whether something changed, once the running server uses it. Connections of removed
    logins are closed, others are kept. Raises AccessNotSynced, and the errors of `users`.
    """
    loop = asyncio.get_running_loop()

    async def call() -> list[BrokerUser]:
        return await users()

    def tell() -> bool:
        # In one thread from lock to unlock: a cancelled caller leaves no lock behind.
        with changing(data_dir, timeout_s) as replace:
            logins = asyncio.run_coroutine_threadsafe(call(), loop).result(timeout_s)
            return replace(workspace, logins)

    try:
        return await asyncio.to_thread(tell)
    except (NotReloaded, OSError) as error:
        raise AccessNotSynced(data_dir, error) from error


def may_answer(inbox: str, reply: str) -> bool:
    """Return whether the service may reply to a subject: the broker does not check the reply
    subject of a request, and the service may publish anywhere.
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
    """Return the credentials in a file that `hansard credentials` wrote. Raises BadCredentials."""
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
        credentials = msgspec.json.decode(raw, type=Credentials)
        permissions(
            credentials.workspace, credentials.role, credentials.principal, credentials.inbox
        )
        public_key(credentials.nkey_seed)
    except (msgspec.DecodeError, RecursionError, ValueError, BadName) as error:
        # The original error may quote a part of a secret.
        raise BadCredentials(place, "it is not a complete credentials file", again) from error
    return credentials


def new_seed() -> str:
    """Return a new secret key of a broker login (SU...): an Ed25519 seed in the format of NATS
    nkeys.
    """
    import nkeys  # noqa: PLC0415 -- imports cryptography, needed only with keys

    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return bytes(seed).decode()


def public_key(seed: str) -> str:
    """Return the public key (U...) of a seed. Raises ValueError for an invalid seed."""
    import nkeys  # noqa: PLC0415 -- imports cryptography, needed only with keys

    try:
        public: Any = nkeys.from_seed(bytearray(seed.encode())).public_key
    except (nkeys.NkeysError, ValueError) as error:
        message = "not a seed of a broker login"  # the original error may quote the secret
        raise ValueError(message) from error
    return bytes(public).decode()


def encode(credentials: Credentials) -> bytes:
    """Return the content of a credentials file."""
    return msgspec.json.format(msgspec.json.encode(credentials), indent=2) + b"\n"
