"""JSON with comments and trailing commas, changed in place: what is not changed keeps its bytes."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

INDENT = "  "
"""Of a file that has none of its own."""

_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
_SPACE = re.compile(r"\s*")
_decoder = json.JSONDecoder()


class _Member(NamedTuple):
    """A member of an object, by its places in the text."""

    key: str
    begin: int
    value: int
    end: int


def parse(text: str) -> Any:
    """Parse a text. Raises ValueError."""
    return json.loads(_plain(text))


def changed(text: str, told: dict[str, Any]) -> str:
    """Return the text of an object changed to say `told`. Raises ValueError."""
    return _changed(text, (), parse(text), told)


def _changed(text: str, path: tuple[str, ...], before: dict[str, Any], told: dict[str, Any]) -> str:
    for key in [key for key in before if key not in told]:
        text = _removed(text, path, key)
    for key, value in told.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and _is_appended(old, value):
            text = _changed(text, (*path, key), old, value)
        elif key not in before or old != value:
            text = _put(text, path, key, value)
    return text


def _is_appended(before: dict[str, Any], told: dict[str, Any]) -> bool:
    """Return whether members were only changed, removed, or added at the end."""
    kept = [key for key in before if key in told]
    return [*told][: len(kept)] == kept


def _plain(text: str) -> str:
    """Blank out comments and trailing commas; every other character keeps its place."""

    def blank(found: re.Match[str]) -> str:
        return found[1] or re.sub(r"[^\n]", " ", found[0])

    return _TRAILING.sub(blank, _COMMENT.sub(blank, text))


def _members(plain: str, path: tuple[str, ...]) -> tuple[int, list[_Member], int]:
    """Return the place after an object's `{`, its members, and the place of its `}`."""
    at = _skip(plain, 0)
    for key in path:
        _, members, _ = _members_at(plain, at)
        at = next(each.value for each in members if each.key == key)
    return _members_at(plain, at)


def _members_at(plain: str, at: int) -> tuple[int, list[_Member], int]:
    begin, found = at + 1, list[_Member]()
    at = _skip(plain, begin)
    while plain[at] != "}":
        key, after = _decoder.raw_decode(plain, at)
        value = _skip(plain, _skip(plain, after) + 1)
        _, end = _decoder.raw_decode(plain, value)
        found.append(_Member(key, at, value, end))
        at = _skip(plain, end)
        if plain[at] == ",":
            at = _skip(plain, at + 1)
    return begin, found, at


def _skip(plain: str, at: int) -> int:
    found = _SPACE.match(plain, at)
    return at if found is None else found.end()


def _put(text: str, path: tuple[str, ...], key: str, value: Any) -> str:
    plain = _plain(text)
    begin, members, close = _members(plain, path)
    same = next((each for each in members if each.key == key), None)
    unit = _unit(text)
    inline = bool(text) and "\n" not in text.strip()
    margin = "" if inline else unit * (len(path) + 1)
    if members and not inline:
        margin = _margin(text, members[0].begin)
    shown = json.dumps(value, ensure_ascii=False, indent=None if inline else unit)
    shown = shown.replace("\n", "\n" + margin)
    if same is not None:
        return text[: same.value] + shown + text[same.end :]
    member = f"{json.dumps(key, ensure_ascii=False)}: {shown}"
    if members:
        at = members[-1].end
        after = text[at:close]
        comma = plain[at:close].find(",")  # trailing ones are blank in it
        trailing = _trailing_comma(after) if comma < 0 else comma
        between = " " if inline else f"\n{margin}"
        if trailing >= 0:
            at += trailing + 1
            return text[:at] + between + member + "," + text[at:]
        return text[:at] + "," + between + member + text[at:]
    if inline:
        return text[:begin] + member + text[close:]
    outer = unit * len(path)
    rest = text[begin:close].rstrip()
    return text[:begin] + rest + f"\n{margin}{member}\n{outer}" + text[close:]


def _removed(text: str, path: tuple[str, ...], key: str) -> str:
    begin, members, close = _members(_plain(text), path)
    number = next(n for n, each in enumerate(members) if each.key == key)
    this = members[number]
    if number + 1 < len(members):
        return text[: this.begin] + text[members[number + 1].begin :]
    if number:
        return text[: members[number - 1].end] + text[this.end :]
    tail = _trailing_comma(text[this.end : close])
    return text[:begin].rstrip() + text[this.end + tail + 1 : close].strip() + text[close:]


def _trailing_comma(text: str) -> int:
    """Return the place of a comma outside of comments; -1 where there is none."""
    return _COMMENT.sub(lambda found: " " * len(found[0]), text).find(",")


def _margin(text: str, at: int) -> str:
    """Return the white space that the line at a place begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str) -> str:
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else INDENT
