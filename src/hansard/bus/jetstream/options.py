"""How to reach a broker."""

from __future__ import annotations

from pathlib import Path

import msgspec

REQUEST_TIMEOUT_S = 5.0
"""How long one request waits for its answer: a busy disk may take a second, a lost answer none."""

APPEND_TIMEOUT_S = 30.0
"""How long an append is sent again before it is given up as unknown: a broker's restart fits."""

CONNECT_TIMEOUT_S = 10.0
"""How long the first connect may take."""


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a broker and as whom. Times in seconds.

    Give `user` and `password`, or a credentials file, or an nkey seed (a file, or as text in
    `nkey`), or nothing. The TLS files are PEM paths; `tls_ca` alone checks the server against that
    authority.
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

    def __repr__(self) -> str:
        return f"BrokerOptions(urls={self.urls!r}, user={self.user!r}, name={self.name!r})"
