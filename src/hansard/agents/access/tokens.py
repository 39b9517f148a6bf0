"""Tokens: what is handed over once, and what of it is on record.

A token's text is `hsd_<id>_<secret>`: its id is public, its secret has 256 random bits, and the
record holds the secret's SHA-256 only. So much randomness needs no salt and no slow digest.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b32encode
from typing import Any

import msgspec

SECRET_BYTES = 32
_TOKEN = re.compile(r"hsd_(?P<id>[0-9a-f]{32})_(?P<secret>[a-z2-7]{52})")
_ID = re.compile(r"[0-9a-f]{32}")
_NOTHING = "0" * 64
"""What a secret is compared with where there is no token: no text is known to have this digest."""


class Issued(msgspec.Struct, frozen=True):
    """A new token: its public id, and the text to hand over once. It is nowhere on record."""

    id: str
    token: str

    @property
    def digest(self) -> str:
        """What is on record of it."""
        return digest_of(self.token.rpartition("_")[2])

    def __repr__(self) -> str:
        return f"Issued(id={self.id!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("id", self.id)]


def new_token() -> Issued:
    """A token that is not issued yet."""
    token_id = secrets.token_hex(16)
    secret = b32encode(secrets.token_bytes(SECRET_BYTES)).decode().rstrip("=").lower()
    return Issued(token_id, f"hsd_{token_id}_{secret}")


def digest_of(secret: str) -> str:
    """What is on record of a secret: its SHA-256, in hex."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_id(text: str) -> bool:
    """Whether that looks like the public id of a token."""
    return _ID.fullmatch(text) is not None


def parsed(token: str) -> tuple[str, str] | None:
    """A token's id and secret; None for a text that is no token."""
    found = _TOKEN.fullmatch(token)
    return (found["id"], found["secret"]) if found is not None else None


def matches(secret: str, digest: str | None) -> bool:
    """Whether a secret has a digest, in a time that tells nothing of either. None matches none."""
    given, wanted = digest_of(secret).encode(), (digest or _NOTHING).encode()
    return hmac.compare_digest(given, wanted) and digest is not None
