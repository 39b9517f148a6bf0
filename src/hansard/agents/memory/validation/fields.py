"""What the fields of front matter are checked for, whatever the file is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

import msgspec

from hansard.agents.memory.validation.frontmatter import Fields, Items, Text, Value
from hansard.agents.memory.validation.trees import shown
from hansard.domain.memory.events import Problem


class Checked(msgspec.Struct):
    """Front matter of one file, and what was found in it so far."""

    path: str
    fields: Fields
    kind: str
    found: list[Problem] = msgspec.field(default_factory=list)

    def bad(self, field: str, rule: str, stood: str, allowed: str) -> None:
        """There is something wrong with a field."""
        line = self.fields.lines.get(field, 1)
        self.found.append(Problem(self.path, line, f"{self.kind}.{rule}", shown(stood), allowed))

    def known(self, names: Collection[str]) -> None:
        """Only these fields may be there."""
        for name in self.fields.fields:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"{near[0]!r} is near; " if near else ""
                self.bad(name, "field", name, f"{hint}one of {', '.join(sorted(names))}")

    def text(self, field: str, *, most: int, required: bool = True) -> str | None:
        """A field that holds text, not empty and of so many characters at most."""
        value = self.fields.fields.get(field)
        if value is None:
            if required:
                self.bad(field, f"{field}.missing", "nothing", f"'{field}: ...' before the text")
            return None
        if not isinstance(value, Text):
            self.bad(field, f"{field}.text", written(value), "text, in quotes if need be")
            return None
        if not value.value.strip():
            self.bad(field, f"{field}.empty", value.value, f"1 to {most:,} characters")
            return None
        if len(value.value) > most:
            self.bad(
                field,
                f"{field}.length",
                f"{len(value.value):,} characters: {value.value}",
                f"at most {most:,} characters",
            )
        return value.value

    def words(self, field: str, pattern: re.Pattern[str], separator: str, allowed: str) -> None:
        """A field that holds names, in one text or as a list."""
        value = self.fields.fields.get(field)
        words: list[tuple[str, int]] = []
        match value:
            case None:
                return
            case Text():
                words = [(word.strip(), value.line) for word in split(value.value, separator)]
            case Items():
                words = [
                    (item.value.strip() if isinstance(item, Text) else "", item.line)
                    for item in value.items
                ]
            case Fields():
                self.bad(field, f"{field}.text", written(value), allowed)
                return
        for word, line in words:
            if not pattern.fullmatch(word):
                self.found.append(
                    Problem(self.path, line, f"{self.kind}.{field}.name", shown(word), allowed)
                )


def split(value: str, separator: str) -> list[str]:
    """Names in one text; what stands in brackets belongs to its name."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(value):
        depth += (letter == "(") - (letter == ")")
        if depth <= 0 and (letter == separator or (separator == " " and letter.isspace())):
            parts.append(value[begin:at])
            begin = at + 1
    parts.append(value[begin:])
    return [part for part in parts if part.strip()] if separator == " " else parts


def written(value: Value) -> str:
    """A value in a few words."""
    match value:
        case Text():
            return value.value
        case Items():
            return f"a list of {len(value.items)}"
        case Fields():
            return f"a mapping of {', '.join(value.fields)}"
