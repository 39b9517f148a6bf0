"""How to reach a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from hansard.bus.errors import NotWritable, StoreGone
from hansard.bus.marks import Witness

REQUEST_TIMEOUT_S = 5.0
"""How long one request waits for its answer: a busy disk may take a second, a lost answer none."""

APPEND_TIMEOUT_S = 30.0
"""How long an append is sent again before it is given up as unknown: a broker's restart fits."""

CONNECT_TIMEOUT_S = 10.0
"""How long the first connect may take."""


DISK_WAIT_S = 600.0
"""How long a write waits where it is known that the embedded server's disk takes nothing: somebody
has to be told, and make room."""


class Host(Protocol):
    """What one may ask of an embedded server that does not answer:
    `hansard.broker.hosting.Host`.
    """

    def hold(self, stream: str) -> None:
        """Have a stream's metadata on the disk, and `check` see whether the stream's files are
        still there. Raises as that.
        """

    def check(self, stream: str) -> None:
        """Raise StoreGone, NotWritable unless they are."""

    def obstacle(self) -> NotWritable | StoreGone | None:
        """What hinders it now."""
        ...

    def look(self) -> NotWritable | None:
        """What the disk itself tells, where nobody says that it hinders."""
        ...

    async def heal(self) -> str:
        """Return its URL; start it again where nobody keeps it running."""
        ...


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a broker and as whom. Times in seconds.

    Give `user` and `password`, or a credentials file, or an nkey seed (a file, or as text in
    `nkey`), or nothing. The TLS files are PEM paths; `tls_ca` alone checks the server against that
    authority. `host` is the embedded server, where it is that one; `witness` what its data
    directory knows of the logs; `copy_of` the data directory that its own is a private copy of:
    nothing is recorded then.
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
