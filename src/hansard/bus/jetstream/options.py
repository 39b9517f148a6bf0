"""Options of a connection to a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from hansard.bus.errors import NotWritable, StoreGone
from hansard.bus.marks import Witness

REQUEST_TIMEOUT_S = 5.0
"""Longest wait for the answer to one request, in seconds: a busy disk may take a second, and an
answer may be lost.
"""

APPEND_TIMEOUT_S = 30.0
"""Longest time that an append is retried before its outcome counts as unknown, in seconds: a
broker's restart fits.
"""

CONNECT_TIMEOUT_S = 10.0
"""Longest time of the first connect, in seconds."""


DISK_WAIT_S = 600.0
"""Longest time that a write waits while the embedded server's disk is known to refuse writes, in
seconds: long enough for an operator to free some space.
"""


class Host(Protocol):
    """The supervisor of an embedded server that does not answer: `hansard.broker.hosting.Host`."""

    def hold(self, stream: str) -> None:
        """Sync a stream's metadata to disk, and let `check` watch the stream's files. Raises as
        that.
        """

    def check(self, stream: str) -> None:
        """Raise StoreGone or NotWritable if the files are gone or the disk refuses writes."""

    def obstacle(self) -> NotWritable | StoreGone | None:
        """Return the current obstacle, if any."""
        ...

    def look(self) -> NotWritable | None:
        """Check the disk itself, if no obstacle was reported."""
        ...

    async def heal(self) -> str:
        """Return its URL, restarting it if no process keeps it running."""
        ...


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Address of a broker, and the login. Times in seconds.

    Set `user` and `password`, or a credentials file, or an nkey seed (a file, or as text in
    `nkey`), or nothing. The TLS files are PEM paths; `tls_ca` alone verifies the server against
    that authority. `host` is set for the embedded server; `witness` is the evidence of the logs in
    its data directory; `copy_of` is the data directory of which its own is a private copy: nothing
    is recorded then.
    """

    urls: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    user: str | None = None
    password: str | None = None
    credentials: Path | None = None
    nkey_seed: Path | None = None
    nkey: str | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_hostname: str | None = None
    name: str = "hansard"
    inbox_prefix: str = "_INBOX"
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    request_timeout_s: float = REQUEST_TIMEOUT_S
    append_timeout_s: float = APPEND_TIMEOUT_S
    disk_wait_s: float = DISK_WAIT_S
    host: Host | None = None
    witness: Witness | None = None
    copy_of: str | None = None

    def __repr__(self) -> str:
        return f"BrokerOptions(urls={self.urls!r}, user={self.user!r}, name={self.name!r})"
