"""Fingerprints of calls: the rule by which two calls are the same call.

Values are digested in their RFC 8785 form (JSON Canonicalization Scheme). A digest is the first 18
bytes of a SHA-256 over length-prefixed parts, in unpadded base64url: 24 characters.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from typing import Any

import msgspec

DIGEST_BYTES = 18
"""Bytes kept of each SHA-256: 144 bits, 24 characters, so that a step stays under 1 KiB of
overhead. A collision takes some 2**72 tries."""

_URL_SAFE = bytes.maketrans(b"+/", b"-_")

_sorted = msgspec.json.Encoder(order="sorted")
_EXPONENT_MIN, _EXPONENT_MAX = -7, 21
_SCALARS = {str, int, bool, type(None)}


def digest(*parts: bytes) -> str:
    """Return the digest of some parts; their boundaries count."""
    state = hashlib.sha256()
    for part in parts:
        state.update(b"%d:" % len(part))
        state.update(part)
    return _kept(state.digest())


def _kept(hashed: bytes) -> str:
    return b2a_base64(hashed[:DIGEST_BYTES], newline=False).translate(_URL_SAFE).decode()


def canonical(value: Any) -> bytes:
    """Write a plain JSON value in RFC 8785 form. It must hold no NaN, infinity or lone
    surrogate.
    """
    if _is_simple(value):
        return _sorted.encode(value)
    return _write(value)


def _is_simple(value: Any) -> bool:
    """Return whether sorted keys and msgspec's numbers already give the RFC's form."""
    kind = type(value)
    if kind is dict:
        return all(key.isascii() and _is_simple(item) for key, item in value.items())
    if kind is list:
        return all(map(_is_simple, value))
    return kind is not float


def _write(value: Any) -> bytes:
    if type(value) in _SCALARS:
        return _sorted.encode(value)
    match value:
        case float():
            return number(value).encode()
        case list():
            return b"[" + b",".join([_write(item) for item in value]) + b"]"
        case dict():
            ascii_only = all(map(str.isascii, value))
            keys = sorted(value) if ascii_only else sorted(value, key=_utf_16)
            inside = [_sorted.encode(key) + b":" + _write(value[key]) for key in keys]
            return b"{" + b",".join(inside) + b"}"
        case int() | str():
            return _sorted.encode(value)
        case _:
            message = f"{type(value).__name__} is not a JSON value"
            raise TypeError(message)


def _utf_16(key: str) -> bytes:
    return key.encode("utf-16-be")


def number(value: float) -> str:
    """Write a finite double as ECMAScript does (ECMA-262, Number::toString, radix 10)."""
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if len(digits) <= point <= _EXPONENT_MAX:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= _EXPONENT_MAX:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if _EXPONENT_MIN < point - 1 < 0:
        return f"{sign}0.{'0' * -point}{digits}"
    power = point - 1
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if power > 0 else '-'}{abs(power)}"


def call_base(tool: str, version: str, agent: str, scope: str, arguments: bytes) -> str:
    """Return the digest that equal calls in one scope share; `arguments` in RFC 8785 form."""
    a, b, c, d = tool.encode(), version.encode(), agent.encode(), scope.encode()
    names = (len(a), a, len(b), b, len(c), c, len(d), d)
    state = hashlib.sha256(b"%d:%b%d:%b%d:%b%d:%b%d:" % (*names, len(arguments)))
    state.update(arguments)
    return _kept(state.digest())


def call_key(base: str, occurrence: int) -> str:
    """Return the call key: the base and the occurrence index in the scope, from 0."""
    return _tagged(b"call", base.encode(), b"%d" % occurrence)


UNORDERED = "unordered"
"""Replaces the predecessor of a call that overlapped others of its scope: only arguments count."""


def fingerprint(call: str, head: str) -> str:
    """Return the fingerprint: the call key and the digest of the predecessor's result."""
    return _tagged(b"step", call.encode(), head.encode())


def _tagged(tag: bytes, one: bytes, other: bytes) -> str:
    """Return the digest of three short parts, at three quarters of the cost: every call takes
    several.
    """
    text = b"%d:%b%d:%b%d:%b" % (len(tag), tag, len(one), one, len(other), other)
    return _kept(hashlib.sha256(text).digest())


def fact_base(kind: str, scope: str, content: bytes) -> str:
    """Return the digest that equal facts in one scope share; `content` in RFC 8785 form."""
    return digest(kind.encode(), scope.encode(), content)


def fact_fingerprint(base: str, occurrence: int, head: str) -> str:
    """Return a fact's fingerprint: its base, occurrence index in the scope, and predecessor."""
    return digest(base.encode(), b"%d" % occurrence, head.encode())


def joined(head: str, children: list[str]) -> str:
    """Return the head of a scope after joining its child scopes in their spawn order."""
    return digest(b"join", head.encode(), *(child.encode() for child in children))
