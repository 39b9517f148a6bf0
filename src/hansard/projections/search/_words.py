"""Texts for the full-text index: of an event, of a question, and of a match.

The index takes letters and digits of any script as words, ignoring case and accents. Han, kana and
hangul are written without spaces between words: each character is a word there, so that a part of a
sentence is found. They are separated in the index by U+200B, which has no width and is removed from
what is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec

from hansard.projections.errors import BadQuery

WORDS_MAX = 200
"""Most words or quoted phrases of one question; each is looked up on its own."""

QUERY_CHARACTERS_MAX = 10_000
"""Longest question, in characters."""

BESIDE_CHARACTERS_MAX = 200
"""Most characters shown of a text beside or in a match: a snippet counts words, and a word may be
long.
"""

BEGIN, END = "\ufdd0", "\ufdd1"
"""Marks around a match in the index's output: noncharacters, which no indexed text contains."""

COMMON = frozenset(
    re.findall(
        r"\S+",
        """
        a about above after all also am an and any are as at be because been before being below
        but by can could did do does doing down during each every for from further had has have
        having he her here hers him his how i if in into is it its just may me might more most
        must my no nor not now of off on once one only or other our out over own same she should
        so some such than that the their them then there these they this those through to too
        under until up us use very was we were what when where which while who whom whose why
        will with within without would you your
        """,
    )
)
"""English words without meaning for a search: they are looked up only if a question has no others.
Nearly every one of many files has them, and among few files they would rank at random.
"""

_GAP = "\u200b"
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?', re.DOTALL)
_UNSPACED = (
    "[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_BETWEEN = re.compile(f"(?<={_UNSPACED})(?=\\w)|(?<=\\w)(?={_UNSPACED})")
_LETTERS = re.compile(r"[^\W_]+")
_WORD = re.compile(r'"([^"]+)"|(\S+)')
_OUT = {0: "\ufffd", ord(BEGIN): "\ufffd", ord(END): "\ufffd", ord(_GAP): " "}


class Snippet(msgspec.Struct, frozen=True):
    """Some words around matches; `marks` are the begin and end of each match in `text`."""

    text: str
    marks: list[tuple[int, int]]


def text_of(data: str) -> str:
    """Return the texts and keys in an event's data (JSON), in their order, as `key: text; text`.

    Numbers are left out: nearly every event counts something. The data is not decoded as a whole,
    so that no depth of nesting matters.
    """
    return cleaned("".join(_parts(data)))


def _parts(data: str) -> Iterator[str]:
    for match in _STRING.finditer(data):
        text = match[1]
        if "\\" in text:
            text = _unescaped(text)
        yield text
        yield ": " if match[2] else "; "


def _unescaped(text: str) -> str:
    try:
        fields = json.loads(f'"{text}"', strict=False)
    except json.JSONDecodeError:
        return text  # no valid escape of JSON
    return fields if isinstance(fields, str) else text


def cleaned(text: str) -> str:
    """Return a text for the index: without NUL, unpaired surrogates and our own marks."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    whole = text.encode("utf-8", "replace").decode()
    return _BETWEEN.sub(_GAP, whole.translate(_OUT))


def quoted(words: str) -> str:
    """Return an FTS5 query for all of these words; a text in double quotes is one phrase.

    No operator has a meaning in it. Raises BadQuery.
    """
    _bound(words)
    phrases = [
        phrase or word for phrase, word in _WORD.findall(cleaned(words).replace("\ufffd", " "))
    ]
    if len(phrases) > WORDS_MAX:
        raise BadQuery(f"the question has {len(phrases):,} words", f"give at most {WORDS_MAX}")
    if not any(char.isalnum() for word in phrases for char in word):
        raise BadQuery(f"there is no word in {words[:60]!r}", "give letters or digits")
    return " ".join('"' + word.replace('"', '""') + '"' for word in phrases)


def any_of(words: str) -> str:
    """Return an FTS5 query for any of these words, each once; rare words rank highest.

    Only the first words of a long text count. No operator has a meaning in it. Raises BadQuery.
    """
    _bound(words)
    distinct = dict.fromkeys(_LETTERS.findall(cleaned(words).replace("\ufffd", " ").lower()))
    if not distinct:
        raise BadQuery(f"there is no word in {words[:60]!r}", "give letters or digits")
    telling = [word for word in distinct if word not in COMMON] or list(distinct)
    return " OR ".join(f'"{word}"' for word in telling[:WORDS_MAX])


def raw(query: str) -> str:
    """Return a question in FTS5's own syntax for the index. Raises BadQuery."""
    _bound(query)
    value = cleaned(query).replace("\ufffd", " ").strip()
    if not value or value.startswith("*"):  # an asterisk begins the index's own commands
        raise BadQuery(f"the query {query[:60]!r} has no terms", 'give a word, or "a phrase"')
    return value


def _bound(text: str) -> None:
    if len(text) > QUERY_CHARACTERS_MAX:
        remedy = f"give at most {QUERY_CHARACTERS_MAX:,}"
        raise BadQuery(f"the question has {len(text):,} characters", remedy)


def snippet(marked: str) -> Snippet:
    """Return a snippet without the index's marks, and with long parts shortened."""
    made, marks, at = "", [], 0
    parts = re.split(f"[{BEGIN}{END}]", marked.replace(_GAP, ""))
    for number, part in enumerate(parts):
        if number % 2:
            value = part[:BESIDE_CHARACTERS_MAX]
            marks.append((at, at + len(value)))
        else:
            value = _beside(part, first=not number, last=number + 1 == len(parts))
        made += value
        at += len(value)
    return Snippet(made, marks)


def _beside(text: str, *, first: bool, last: bool) -> str:
    """Return a text beside matches, cut if it is far from them."""
    most = BESIDE_CHARACTERS_MAX
    before = "" if first else text[:most]
    after = "" if last else text[-most:]
    if len(text) <= len(before) + len(after):
        return text
    return f"{before}…{after}"
