"""Values that are nobody's business but ours, found in texts, and what stands in their place.

A placeholder is a kind and a keyed digest of the value, `<EMAIL_3f9a2b7c11d0>`: equal values have
equal ones, and without the key nobody can try which value it is. A text that looks like one already
is replaced itself, so that what is put back is what was there, whatever it was.

What is found: e-mail addresses; phone numbers (8 to 15 digits; with `+`, a leading 0, or as in
North America); card numbers (Luhn, ISO/IEC 7812-1); IBANs (ISO 13616, modulo 97); and keys: those
of known forms, private keys, JSON web tokens, and what is assigned to a name such as `api_key`. No
detector finds all there is: names of people, for one, take one that is passed in.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping

from hansard.domain.errors import BadValue

KEY_BYTES_MIN = 16
"""Shortest key of the digests."""

DIGEST_CHARACTERS = 12
"""Of a placeholder's digest, hexadecimal: 48 bits. A second value with the same gets another."""

TEXT = "TEXT"
"""The kind of what only looks like a placeholder."""

Span = tuple[int, int, str]
"""Where a value begins and ends in a text, and its kind in capital letters."""

Detector = Callable[[str], Iterable[Span]]
"""Finds values in a text."""

PLACEHOLDER = re.compile(rf"<[A-Z][A-Z0-9]{{0,19}}_[0-9a-f]{{{DIGEST_CHARACTERS}}}>")
"""What a placeholder looks like."""

KIND = re.compile(r"[A-Z][A-Z0-9]{0,19}")
"""What a kind is called."""

PHONE_DIGITS = range(8, 16)
"""How many digits a phone number has: at most 15 by ITU-T E.164."""

CARD_DIGITS = range(13, 20)
"""How many digits a card number has."""

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
    """E-mail addresses. Each `@` is looked at once, to both sides."""
    done = 0
    at = text.find("@")
    while at >= 0:
        begin = at
        while begin > done and _LOCAL.match(text[begin - 1]):
            begin -= 1
        found = _DOMAIN.match(text, at + 1)
        end = found.end() if found is not None else at + 1
        while end > at + 1 and not text[end - 1].isalnum():
            end -= 1
        if begin < at and "." in text[at + 1 : end]:
            yield begin, end, "EMAIL"
            done = end
        else:
            done = at + 1
        at = text.find("@", done)


def phones(text: str) -> Iterator[Span]:
    """Phone numbers."""
    for pattern in (_PHONE, _NORTH_AMERICAN):
        for found in pattern.finditer(text):
            if sum(map(str.isdigit, found[0])) in PHONE_DIGITS:
                yield (*found.span(), "PHONE")


def cards(text: str) -> Iterator[Span]:
    """Card numbers whose check digit is right."""
    for found in _CARD.finditer(text):
        digits = [int(each) for each in found[0] if each.isdigit()]
        if len(digits) in CARD_DIGITS and is_luhn(digits):
            yield (*found.span(), "CARD")


def is_luhn(digits: list[int]) -> bool:
    """Whether the last digit checks the others."""
    doubled = [2 * each - 9 * (each > 4) for each in digits[-2::-2]]  # noqa: PLR2004 -- the digit sum of its double
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def ibans(text: str) -> Iterator[Span]:
    """IBANs whose check digits are right: the longest one from each begin on."""
    for found in _IBAN.finditer(text):
        end = found.end()
        while end - found.start() >= 15:  # noqa: PLR2004 -- the shortest one, Norway's
            if text[end - 1] != " " and is_iban(text[found.start() : end]):
                yield found.start(), end, "IBAN"
                break
            end -= 1


def is_iban(text: str) -> bool:
    """Whether the check digits of an account number are right."""
    plain = text.replace(" ", "").upper()
    moved = plain[4:] + plain[:4]
    return plain.isascii() and int("".join(str(int(each, 36)) for each in moved)) % 97 == 1


def keys(text: str) -> Iterator[Span]:
    """Keys, tokens and passwords."""
    for found in _KEYS.finditer(text):
        yield (*found.span(), "KEY")
    for found in _ASSIGNED.finditer(text):
        yield (*found.span(1), "KEY")


DETECTORS: Mapping[str, Detector] = {
    "email": emails,
    "phone": phones,
    "card": cards,
    "iban": ibans,
    "key": keys,
}
"""What is looked for if nothing else is asked for."""


def spans(text: str, detectors: Iterable[Detector]) -> list[Span]:
    """What is found in a text, in order. Those that overlap are one, of the kind of the first, of
    equals of the longest. Raises BadValue for what a detector gives that is no part of the text.
    """
    found = [(*each.span(), TEXT) for each in PLACEHOLDER.finditer(text)]
    for detector in detectors:
        for begin, end, kind in detector(text):
            if not (0 <= begin < end <= len(text) and KIND.fullmatch(kind)):
                fact = f"a detector gave {(begin, end, kind)!r:.80} of {len(text):,} characters"
                remedy = "give begin, end and a kind such as 'NAME': capital letters and digits"
                raise BadValue("placeholders", fact, remedy)
            found.append((begin, end, kind))
    merged: list[Span] = []
    for begin, end, kind in sorted(found, key=lambda each: (each[0], -each[1], each[2])):
        if merged and begin < merged[-1][1]:
            first = merged[-1]
            merged[-1] = (first[0], max(first[1], end), first[2])
        else:
            merged.append((begin, end, kind))
    return merged


def key_of_run(key: bytes, run: str) -> bytes:
    """The key of a run's placeholders: of a value in two runs nobody can tell that it is one."""
    return hmac.digest(key, run.encode(), "sha256")


def placeholder(key: bytes, kind: str, value: str, known: Mapping[str, str]) -> str:
    """What stands for a value: no other's among those known, by placeholder."""
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
    """A text with placeholders for what is found in it, and the kinds of these; `known` learns
    which value each stands for.
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
    """A text with the values that its placeholders stand for; those not known stay."""
    return PLACEHOLDER.sub(lambda found: known.get(found[0], found[0]), text)
