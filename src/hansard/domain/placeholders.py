"""Personal and secret values found in texts, and their placeholders.

A placeholder is a kind and a keyed digest of the value, `<EMAIL_3f9a2b7c11d0>`: equal values have
equal placeholders, and without the key nobody can test a guess. A text that already looks like a
placeholder is replaced, too, so that restoring always gives the original text.

Detected are: e-mail addresses; phone numbers (8 to 15 digits; with `+`, a leading 0, or as in North
America); card numbers (Luhn, ISO/IEC 7812-1); IBANs (ISO 13616, modulo 97); and keys: those of
known forms, private keys, JSON web tokens, and values assigned to a name such as `api_key`. No
detector is complete: names of people, for example, need a detector that is passed in.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping

from hansard.domain.errors import BadValue

KEY_BYTES_MIN = 16
"""Shortest key of the digests."""

DIGEST_CHARACTERS = 12
"""Characters of a placeholder's digest, hexadecimal: 48 bits. A second value with the same digest
gets another."""

TEXT = "TEXT"
"""The kind of a text that only looks like a placeholder."""

Span = tuple[int, int, str]
"""Begin and end of a value in a text, and its kind in capital letters."""

Detector = Callable[[str], Iterable[Span]]
"""Finds values in a text."""

PLACEHOLDER = re.compile(rf"<[A-Z][A-Z0-9]{{0,19}}_[0-9a-f]{{{DIGEST_CHARACTERS}}}>")
"""Pattern of a placeholder."""

KIND = re.compile(r"[A-Z][A-Z0-9]{0,19}")
"""Pattern of a kind."""

PHONE_DIGITS = range(8, 16)
"""Number of digits of a phone number: at most 15 by ITU-T E.164."""

CARD_DIGITS = range(13, 20)
"""Number of digits of a card number."""

_LOCAL = re.compile(r"[\w.+%'-]")
_DOMAIN = re.compile(r"[\w-]{1,63}(?:\.[\w-]{1,63}){1,10}")
_PHONE = re.compile(r"(?<![\w+:.])(?:\+|\(?0|00)[\d ()./-]{6,22}\d(?![\w])")
_NORTH_AMERICAN = re.compile(r"(?<![\w-])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?![\w-])")
_CARD = re.compile(r"(?<![\w-])\d(?:[ -]?\d){12,18}(?![\w-])")
_IBAN = re.compile(r"(?<!\w)[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]){11,30}(?!\w)")
_KEYS = re.compile(
    r"""
      (?<![\w-])(?:
        sk-[\w-]{16,200} | (?:sk|pk|rk)_(?:live|test)_\w{16,200} | whsec_[\w+/=]{16,200}
      | gh[pousr]_\w{20,255} | github_pat_\w{20,255} | glpat-[\w-]{20,255}
      | xox[abeoprs]-[\w-]{10,255} | (?:AKIA|ASIA)[0-9A-Z]{16} | AIza[\w-]{35}
      | hf_\w{20,255} | npm_\w{20,255} | pyp[i]-[\w-]{20,255} | SG\.[\w-]{16,64}\.[\w-]{16,64}
      | eyJ[\w-]{8,4000}\.[\w-]{4,8000}\.[\w-]{4,4000}
      )(?!\w)
    | -----BEGIN\ [A-Z ]{0,40}PRIVATE\ KEY-----[\s\S]{1,20000}?-----END\ [A-Z ]{0,40}KEY-----
    """,
    re.VERBOSE,
)
_ASSIGNED = re.compile(
    r"""(?i)
    (?: (?:api[_-]?key|access[_-]?key|secret[_-]?key|auth[_-]?token|access[_-]?token|password|passwd
          |client[_-]?secret)["']?\s{0,3}[:=]\s{0,3}["']?
      | \bbearer\s{1,3}
    )([^\s"',;<>]{8,500})""",
    re.VERBOSE,
)


def emails(text: str) -> Iterator[Span]:
    """Find e-mail addresses. Each `@` is examined once, in both directions."""
    done = 0
    at = text.find("@")
    while at >= 0:
        begin = at
        while begin > done and _LOCAL.match(text[begin - 1]):
            begin -= 1
        domain = _DOMAIN.match(text, at + 1)
        end = domain.end() if domain is not None else at + 1
        while end > at + 1 and not text[end - 1].isalnum():
            end -= 1
        if begin < at and "." in text[at + 1 : end]:
            yield begin, end, "EMAIL"
            done = end
        else:
            done = at + 1
        at = text.find("@", done)


def phones(text: str) -> Iterator[Span]:
    """Find phone numbers."""
    for pattern in (_PHONE, _NORTH_AMERICAN):
        for match in pattern.finditer(text):
            if sum(map(str.isdigit, match[0])) in PHONE_DIGITS:
                yield (*match.span(), "PHONE")


def cards(text: str) -> Iterator[Span]:
    """Find card numbers with a valid check digit."""
    for match in _CARD.finditer(text):
        digits = [int(each) for each in match[0] if each.isdigit()]
        if len(digits) in CARD_DIGITS and is_luhn(digits):
            yield (*match.span(), "CARD")


def is_luhn(digits: list[int]) -> bool:
    """Return whether the last digit checks the others."""
    doubled = [2 * each - 9 * (each > 4) for each in digits[-2::-2]]  # noqa: PLR2004 -- the digit sum of its double
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def ibans(text: str) -> Iterator[Span]:
    """Find IBANs with valid check digits: the longest at each start."""
    for match in _IBAN.finditer(text):
        end = match.end()
        while end - match.start() >= 15:  # noqa: PLR2004 -- the shortest one, Norway's
            if text[end - 1] != " " and is_iban(text[match.start() : end]):
                yield match.start(), end, "IBAN"
                break
            end -= 1


def is_iban(text: str) -> bool:
    """Return whether the check digits of an IBAN are valid."""
    plain = text.replace(" ", "").upper()
    moved = plain[4:] + plain[:4]
    return plain.isascii() and int("".join(str(int(each, 36)) for each in moved)) % 97 == 1


def keys(text: str) -> Iterator[Span]:
    """Find keys, tokens and passwords."""
    for match in _KEYS.finditer(text):
        yield (*match.span(), "KEY")
    for match in _ASSIGNED.finditer(text):
        yield (*match.span(1), "KEY")


DETECTORS: Mapping[str, Detector] = {
    "email": emails,
    "phone": phones,
    "card": cards,
    "iban": ibans,
    "key": keys,
}
"""The default detectors, by name."""


def spans(text: str, detectors: Iterable[Detector]) -> list[Span]:
    """Return the values found in a text, in order.

    Overlapping values are merged into one, of the kind of the first, or of the longest of those
    that begin together. Raises BadValue for a span of a detector that is outside the text.
    """
    spans = [(*each.span(), TEXT) for each in PLACEHOLDER.finditer(text)]
    for detector in detectors:
        for begin, end, kind in detector(text):
            if not (0 <= begin < end <= len(text) and KIND.fullmatch(kind)):
                fact = f"a detector gave {(begin, end, kind)!r:.80} of {len(text):,} characters"
                remedy = "give begin, end and a kind such as 'NAME': capital letters and digits"
                raise BadValue("placeholders", fact, remedy)
            spans.append((begin, end, kind))
    merged: list[Span] = []
    for begin, end, kind in sorted(spans, key=lambda each: (each[0], -each[1], each[2])):
        if merged and begin < merged[-1][1]:
            first = merged[-1]
            merged[-1] = (first[0], max(first[1], end), first[2])
        else:
            merged.append((begin, end, kind))
    return merged


def key_of_run(key: bytes, run: str) -> bytes:
    """Derive the key of a run's placeholders: equal values in two runs cannot be linked."""
    return hmac.digest(key, run.encode(), "sha256")


def placeholder(key: bytes, kind: str, value: str, known: Mapping[str, str]) -> str:
    """Return a value's placeholder, different from those of all other known values."""
    attempt = 0
    while True:
        text = f"{kind}\0{value}\0{attempt or ''}".encode("utf-8", "surrogatepass")
        digest = hmac.digest(key, text, "sha256").hex()[:DIGEST_CHARACTERS]
        made = f"<{kind}_{digest}>"
        if known.get(made, value) == value:
            return made
        attempt += 1


def hidden(
    text: str, key: bytes, detectors: Iterable[Detector], known: MutableMapping[str, str]
) -> tuple[str, list[str]]:
    """Return a text with placeholders for the values found in it, and their kinds.

    Adds each placeholder and its value to `known`.
    """
    parts: list[str] = []
    kinds: list[str] = []
    done = 0
    for begin, end, kind in spans(text, detectors):
        value = text[begin:end]
        made = placeholder(key, kind, value, known)
        known[made] = value
        parts += [text[done:begin], made]
        kinds.append(kind)
        done = end
    return ("".join([*parts, text[done:]]), kinds) if kinds else (text, kinds)


def put_back(text: str, known: Mapping[str, str]) -> str:
    """Return a text with its placeholders replaced by their values; unknown ones stay."""
    return PLACEHOLDER.sub(lambda found: known.get(found[0], found[0]), text)
