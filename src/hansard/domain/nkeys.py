"""Public keys of logins, in the form of NATS (nkeys)."""

from __future__ import annotations

import base64
import binascii
import re

_USER_KEY = re.compile(r"U[A-Z2-7]{55}")
_USER = 20 << 3


def is_public_key(text: str) -> bool:
    """Return whether a text is a user's public key: base32 of a prefix byte, 32 bytes of Ed25519
    and a CRC-16, low byte first.
    """
    if not _USER_KEY.fullmatch(text):
        return False
    raw = base64.b32decode(text)
    return raw[0] == _USER and binascii.crc_hqx(raw[:-2], 0) == raw[-2] | raw[-1] << 8
