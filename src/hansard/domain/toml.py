"""Texts and keys as TOML (v1.0.0) has them, for what people are to paste into a file."""

from __future__ import annotations

import string

import msgspec

_BARE = frozenset(string.ascii_letters + string.digits + "_-")


def text(value: str) -> str:
    """A text as a basic string: JSON's escapes are TOML's, but for DEL."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007F")


def key(name: str) -> str:
    """A name as a key: bare where it may be."""
    return name if name and set(name) <= _BARE else text(name)
