"""The YAML before a Markdown file's text, with the line of each value.

Read as a stream of events and bounded in depth and number, so that nothing is expanded: anchors,
aliases and tags are refused where they stand. Every scalar is text, as the Agent Skills
specification's reference validator has it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hansard.agents.memory.validation.texts import line_at
from hansard.agents.memory.validation.trees import library, shown
from hansard.domain.memory.events import Problem

CHARS_MAX = 1 << 16
"""Of front matter: each harness loads it at start, for every skill and subagent."""

DEPTH_MAX = 8
VALUES_MAX = 2_000
"""What a person writes has three levels and some ten values."""

MARK = "---"
SYNTAX = "YAML as in 'name: value', two spaces deeper for what belongs to it"
QUOTE = "one 'name: value' a line; put quotes around a value that holds ': ' or begins oddly"


class Text(msgspec.Struct, frozen=True):
    """A scalar, as it is written."""

    value: str
    line: int


class Items(msgspec.Struct, frozen=True):
    """A list."""

    items: list[Value]
    line: int


class Fields(msgspec.Struct, frozen=True):
    """A mapping, with the line of each key."""

    fields: dict[str, Value]
    lines: dict[str, int]
    line: int


Value = Text | Items | Fields


class FrontMatter(msgspec.Struct, frozen=True):
    """What stands before the text, and the text."""

    fields: Fields
    body: str


class _Bad(Exception):
    """Leaves the reader with a problem; caught in this module."""

    def __init__(self, line: int, rule: str, stood: str, allowed: str) -> None:
        super().__init__(rule)
        self.found = (line, rule, shown(stood), allowed)


def read(path: str, text: str, *, flow: bool) -> FrontMatter | Problem:
    """A file's front matter and text; `flow` allows `[a, b]` and `{a: b}`."""
    handler = library("frontmatter.default_handlers").YAMLHandler()
    begins = handler.FM_BOUNDARY.match(text)
    if begins is None:
        first = text.partition("\n")[0]
        return Problem(
            path, 1, "frontmatter.missing", shown(first), f"{MARK!r} alone, then 'name: ...'"
        )
    try:
        front, body = handler.split(text)
    except ValueError:
        return Problem(
            path, 1, "frontmatter.unclosed", MARK, f"a second {MARK!r} alone after the last field"
        )
    if len(front) > CHARS_MAX:
        return Problem(
            path,
            1,
            "frontmatter.size",
            f"{len(front):,} characters",
            f"at most {CHARS_MAX:,} characters: the text belongs after the second {MARK!r}",
        )
    try:
        fields = _Reader(text, begins.end(), flow=flow).read(front)
    except _Bad as bad:
        return Problem(path, *bad.found)
    return FrontMatter(fields, body)


class _Reader:
    """Makes values of the events of a YAML stream."""

    def __init__(self, text: str, start: int, *, flow: bool) -> None:
        self._text = text
        self._start = start
        self._flow = flow
        self._open: list[tuple[Items | Fields, str | None]] = []
        self._values = 0
        self._root: Value | None = None

    def read(self, front: str) -> Fields:
        yaml = library("yaml")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            for event in yaml.parse(front, Loader=loader):
                self._take(yaml, event)
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from error
        except yaml.reader.ReaderError as error:
            at = len(front.encode()[: error.position].decode(errors="ignore"))
            raise _Bad(
                line_at(self._text, self._start + at),
                "yaml.character",
                repr(front[at : at + 1]),
                "no control characters",
            ) from error
        if not isinstance(self._root, Fields):
            stood = self._root.value if isinstance(self._root, Text) else "a list"
            line = self._root.line if self._root is not None else 1
            raise _Bad(line, "frontmatter.fields", stood if self._root else "", SYNTAX)
        return self._root

    def _line(self, mark: Any) -> int:
        return line_at(self._text, self._start + mark.index)

    def _syntax(self, error: Any) -> _Bad:
        mark = error.problem_mark
        if error.context_mark is not None and "end of stream" in (error.problem or ""):
            mark = error.context_mark
        line = self._line(mark)
        stood = self._text.split("\n")[line - 1]
        return _Bad(line, "yaml.syntax", stood, QUOTE)

    def _take(self, yaml: Any, event: Any) -> None:
        line = self._line(event.start_mark)
        events = yaml.events
        match event:
            case events.AliasEvent():
                raise _Bad(line, "yaml.alias", f"*{event.anchor}", "the value itself, written out")
            case events.ScalarEvent():
                self._check(event, line, flow=False)
                self._put(Text(event.value, line), line)
            case events.SequenceStartEvent():
                self._check(event, line, flow=event.flow_style)
                self._put(Items([], line), line)
            case events.MappingStartEvent():
                self._check(event, line, flow=event.flow_style)
                self._put(Fields({}, {}, line), line)
            case events.SequenceEndEvent() | events.MappingEndEvent():
                self._open.pop()
            case events.DocumentStartEvent() if self._root is not None:
                raise _Bad(line, "yaml.documents", MARK, "one document")
            case _:
                pass

    def _check(self, event: Any, line: int, *, flow: bool) -> None:
        if event.anchor is not None:
            raise _Bad(line, "yaml.anchor", f"&{event.anchor}", "no anchors: write values out")
        if event.tag is not None:
            raise _Bad(line, "yaml.tag", event.tag, "no tags: every value is text")
        if flow and not self._flow:
            stood = self._text.split("\n")[line - 1]
            raise _Bad(
                line, "yaml.flow", stood, "quotes around it, or a line a value under the name"
            )
        self._values += 1
        if self._values > VALUES_MAX:
            raise _Bad(
                line, "yaml.size", f"more than {VALUES_MAX:,} values", f"at most {VALUES_MAX:,}"
            )
        if len(self._open) >= DEPTH_MAX:
            raise _Bad(
                line, "yaml.depth", f"more than {DEPTH_MAX} levels", f"at most {DEPTH_MAX} levels"
            )

    def _put(self, value: Value, line: int) -> None:
        if not self._open:
            self._root = value
        else:
            within, key = self._open[-1]
            if isinstance(within, Items):
                within.items.append(value)
            elif key is None:
                if not isinstance(value, Text):
                    raise _Bad(line, "yaml.key", "a list or mapping as a name", "text as a name")
                if value.value in within.fields:
                    raise _Bad(
                        line,
                        "yaml.duplicate-key",
                        value.value,
                        f"each name once: it stands in line {within.lines[value.value]}, too",
                    )
                within.lines[value.value] = line
                within.fields[value.value] = value  # until its value comes: a key is known at once
                self._open[-1] = (within, value.value)
                return
            else:
                within.fields[key] = value
                self._open[-1] = (within, None)
        if not isinstance(value, Text):
            self._open.append((value, None))
