"""Formats of single memory files, each checked: encoding, front matter, skills, subagents,
`tools.json` and `agent.json`. A problem has path, line, rule, actual value and allowed values.

Pure; needs the extra `hansard[memory]`.

Long because each format has its own rules.
"""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain.errors import import_extra
from hansard.domain.memory.files import Problem
from hansard.domain.memory.space import FILE_BYTES_MAX, MemoryFile

# Front matter is read as a stream of YAML events, bounded in depth and number, so that nothing is
# expanded: anchors, aliases and tags are refused. Every scalar is text, as in the reference
# validator of the Agent Skills specification.

ACTUAL_CHARS_MAX = 80
"""Most characters shown of an invalid value: enough to find it, too few to fill a context window.
"""


class Executable(bytes):
    """Content of a file that its owner may execute; equal only to content that is executable
    too.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Executable) and bytes.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = bytes.__hash__


class Link(msgspec.Struct, frozen=True):
    """A symbolic link in a folder; its target is relative to the link's folder."""

    target: str


Tree = Mapping[str, bytes | Link]
"""A folder: the content at each relative path, with `/` between the path's parts."""


class SpaceTree(Mapping[str, bytes | Link]):
    """Tree of a space's files, each encoded on access."""

    def __init__(self, files: Mapping[str, MemoryFile]) -> None:
        self._files = files

    def __getitem__(self, path: str) -> bytes | Link:
        file = self._files[path]
        if file.link:
            return Link(file.text)
        return Executable(file.content) if file.executable else file.content

    def __contains__(self, path: object) -> bool:
        return path in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def of_space(files: Mapping[str, MemoryFile]) -> dict[str, bytes | Link]:
    """Return the tree of a space's files, in memory."""
    return dict(SpaceTree(files))


_PACKAGES = {"yaml": "PyYAML", "frontmatter": "python-frontmatter", "markdown_it": "markdown-it-py"}


def library(name: str) -> Any:
    """Import a module of the extra. Raises ExtraMissing."""
    top = name.partition(".")[0]
    return import_extra(name, "checking memory files", _PACKAGES.get(top, top), "memory")


def shorten(value: str) -> str:
    """Return an invalid value, shortened to one line."""
    line = " ".join(value.split())
    return line if len(line) <= ACTUAL_CHARS_MAX else f"{line[: ACTUAL_CHARS_MAX - 3]}..."


_OTHER_ENCODINGS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))


def text_in(path: str, content: bytes) -> str | Problem:
    """Return a file's text, or the problem that it has none."""
    if len(content) > FILE_BYTES_MAX:
        return Problem(
            path,
            1,
            "file.size",
            f"{len(content):,} bytes",
            f"at most {FILE_BYTES_MAX:,} bytes a file: split it",
        )
    for mark, name in _OTHER_ENCODINGS:
        if content.startswith(mark):
            return Problem(path, 1, "file.encoding", name, "save it as UTF-8")
    nul = content.find(b"\0")
    if nul >= 0:
        return Problem(
            path,
            _line(content, nul),
            "file.binary",
            f"a NUL byte at {nul:,}",
            "text alone: name a binary file by its address instead",
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        return Problem(
            path,
            _line(content, error.start),
            "file.encoding",
            shorten(f"byte 0x{content[error.start]:02x} at {error.start:,}"),
            "save it as UTF-8",
        )


def _line(content: bytes, at: int) -> int:
    return content.count(b"\n", 0, at) + 1


def line_at(text: str, at: int) -> int:
    """Return the line of a character, from 1."""
    return text.count("\n", 0, at) + 1


CHARS_MAX = 1 << 16
"""Most characters of front matter: each harness loads it at start, for every skill and subagent."""

DEPTH_MAX = 8
VALUES_MAX = 2_000
"""Most values of front matter; hand-written ones have three levels and some ten values."""

MARK = "---"
SYNTAX = "YAML as in 'name: value', two spaces deeper for what belongs to it"
QUOTE = "one 'name: value' a line; put quotes around a value that holds ': ' or begins oddly"


class Text(msgspec.Struct, frozen=True):
    """A scalar, verbatim."""

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
    """Front matter of a file, and the text after it."""

    fields: Fields
    body: str


class _Bad(Exception):
    """Leaves the reader with a problem; caught in this module."""

    def __init__(self, line: int, rule: str, actual: str, allowed: str) -> None:
        super().__init__(rule)
        self.problem = (line, rule, shorten(actual), allowed)


def front_matter(path: str, text: str, *, flow: bool) -> FrontMatter | Problem:
    """Parse a file's front matter and text; `flow` allows `[a, b]` and `{a: b}`."""
    handler = library("frontmatter.default_handlers").YAMLHandler()
    begins = handler.FM_BOUNDARY.match(text)
    if begins is None:
        first = text.partition("\n")[0]
        return Problem(
            path, 1, "frontmatter.missing", shorten(first), f"{MARK!r} alone, then 'name: ...'"
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
        return Problem(path, *bad.problem)
    return FrontMatter(fields, body)


class _Reader:
    """Builds values from the events of a YAML stream."""

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
            actual = self._root.value if isinstance(self._root, Text) else "a list"
            line = self._root.line if self._root is not None else 1
            raise _Bad(line, "frontmatter.fields", actual if self._root else "", SYNTAX)
        return self._root

    def _line(self, mark: Any) -> int:
        return line_at(self._text, self._start + mark.index)

    def _syntax(self, error: Any) -> _Bad:
        mark = error.problem_mark
        if error.context_mark is not None and "end of stream" in (error.problem or ""):
            mark = error.context_mark
        line = self._line(mark)
        actual = self._text.split("\n")[line - 1]
        return _Bad(line, "yaml.syntax", actual, QUOTE)

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
            actual = self._text.split("\n")[line - 1]
            raise _Bad(
                line, "yaml.flow", actual, "quotes around it, or a line a value under the name"
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
                        f"each name once; it is in line {within.lines[value.value]}, too",
                    )
                within.lines[value.value] = line
                within.fields[value.value] = value  # until its value is read
                self._open[-1] = (within, value.value)
                return
            else:
                within.fields[key] = value
                self._open[-1] = (within, None)
        if not isinstance(value, Text):
            self._open.append((value, None))


class Checked(msgspec.Struct):
    """Front matter of one file, and its problems so far."""

    path: str
    fields: Fields
    kind: str
    problems: list[Problem] = msgspec.field(default_factory=list)

    def bad(self, field: str, rule: str, actual: str, allowed: str) -> None:
        """Add a problem of a field."""
        line = self.fields.lines.get(field, 1)
        self.problems.append(
            Problem(self.path, line, f"{self.kind}.{rule}", shorten(actual), allowed)
        )

    def known(self, names: Collection[str]) -> None:
        """Add problems for all fields except these."""
        for name in self.fields.fields:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"{near[0]!r} is near; " if near else ""
                self.bad(name, "field", name, f"{hint}one of {', '.join(sorted(names))}")

    def text(self, field: str, *, most: int, required: bool = True) -> str | None:
        """Return the text of a field, not empty and at most `most` characters long."""
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
        """Check a field that holds names, in one text or as a list."""
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
                self.problems.append(
                    Problem(self.path, line, f"{self.kind}.{field}.name", shorten(word), allowed)
                )


def split(value: str, separator: str) -> list[str]:
    """Split names in one text; text in brackets belongs to its name."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(value):
        depth += (letter == "(") - (letter == ")")
        if depth <= 0 and (letter == separator or (separator == " " and letter.isspace())):
            parts.append(value[begin:at])
            begin = at + 1
    parts.append(value[begin:])
    return [part for part in parts if part.strip()] if separator == " " else parts


def written(value: Value) -> str:
    """Describe a value in a few words."""
    match value:
        case Text():
            return value.value
        case Items():
            return f"a list of {len(value.items)}"
        case Fields():
            return f"a mapping of {', '.join(value.fields)}"


# SKILL.md by agentskills.io/specification. The verdicts are those of its reference validator,
# skills-ref 0.1.1, and two rules of the specification that it does not check: `metadata` is a
# mapping of texts, `compatibility` is not empty.

SKILL = "SKILL.md"
NAME_CHARS_MAX = 64
SKILL_DESCRIPTION_CHARS_MAX = 1024
COMPATIBILITY_CHARS_MAX = 500
LICENSE_CHARS_MAX = CHARS_MAX
SKILL_FIELDS = ("allowed-tools", "compatibility", "description", "license", "metadata", "name")


def skill_problems(path: str, text: str) -> list[Problem]:
    """Return the problems of a SKILL.md, including its folder's name."""
    front = front_matter(path, text, flow=False)
    if isinstance(front, Problem):
        return [front]
    checked = Checked(path, front.fields, "skill")
    checked.known(SKILL_FIELDS)
    name = checked.text("name", most=CHARS_MAX)
    if name is not None:
        _name(checked, unicodedata.normalize("NFKC", name.strip()))
    checked.text("description", most=SKILL_DESCRIPTION_CHARS_MAX)
    checked.text("compatibility", most=COMPATIBILITY_CHARS_MAX, required=False)
    checked.text("license", most=LICENSE_CHARS_MAX, required=False)
    _others(checked)
    return checked.problems


def _name(checked: Checked, name: str) -> None:
    def bad(rule: str, allowed: str) -> None:
        checked.bad("name", f"name.{rule}", name, allowed)

    if len(name) > NAME_CHARS_MAX:
        bad("length", f"at most {NAME_CHARS_MAX} characters; it has {len(name)}")
    if name != name.lower():
        bad("case", f"lower case: {name.lower()!r}")
    if name.startswith("-") or name.endswith("-"):
        bad("edge", "a letter or digit at either end")
    if "--" in name:
        bad("hyphens", "one hyphen between two words")
    if not all(letter.isalnum() or letter == "-" for letter in name):
        bad("characters", "letters, digits and hyphens alone")
    folder = unicodedata.normalize("NFKC", "/".join(checked.path.split("/")[-2:-1]))
    if folder != name:
        bad("folder", f"the name of its folder, {folder!r}; or move it to 'skills/{name}/{SKILL}'")


def _others(checked: Checked) -> None:
    tools = checked.fields.fields.get("allowed-tools")
    if isinstance(tools, Fields) or (
        isinstance(tools, Items) and not all(isinstance(tool, Text) for tool in tools.items)
    ):
        checked.bad(
            "allowed-tools", "allowed-tools.text", written(tools), "names with a space between them"
        )
    metadata = checked.fields.fields.get("metadata")
    is_empty = isinstance(metadata, Text) and not metadata.value
    if metadata is not None and not isinstance(metadata, Fields) and not is_empty:
        checked.bad(
            "metadata", "metadata.fields", written(metadata), "a line 'name: value' for each"
        )


# Subagents in Claude Code's form: code.claude.com/docs/en/sub-agents.

SUBAGENT_DESCRIPTION_CHARS_MAX = 16_384
MODEL_CHARS_MAX = 128
SUBAGENT_FIELDS = (
    *("name", "description", "tools", "disallowedTools", "model", "permissionMode", "maxTurns"),
    *("skills", "mcpServers", "hooks", "memory", "background", "effort", "isolation", "color"),
    "initialPrompt",
)

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TOOL = re.compile(r"\*|[A-Za-z_][A-Za-z0-9_.*-]*(\([^()]*(\([^()]*\)[^()]*)*\))?")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*(\[[a-z0-9]+\])?")
TOOLS = "names of tools with a comma between them, as 'Read, Grep, mcp__server__tool'"


def subagent_problems(path: str, text: str) -> list[Problem]:
    """Return the problems of a subagent's file."""
    front = front_matter(path, text, flow=True)
    if isinstance(front, Problem):
        return [front]
    checked = Checked(path, front.fields, "subagent")
    checked.known(SUBAGENT_FIELDS)
    name = checked.text("name", most=NAME_CHARS_MAX)
    if name is not None and not _NAME.fullmatch(name):
        checked.bad(
            "name", "name.characters", name, "lower case letters, digits, a hyphen between words"
        )
    checked.text("description", most=SUBAGENT_DESCRIPTION_CHARS_MAX)
    model = checked.text("model", most=MODEL_CHARS_MAX, required=False)
    if model is not None and not _MODEL.fullmatch(model):
        checked.bad(
            "model", "model.name", model, "sonnet, opus, haiku, inherit, or a model's full name"
        )
    for field in ("tools", "disallowedTools"):
        checked.words(field, _TOOL, ",", TOOLS)
    return checked.problems


JSON_DEPTH_MAX = 32
"""Most levels of nesting; these files have four."""

SCHEMAS: Mapping[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
"""JSON Schemas of `tools.json` and `agent.json`."""

_ALLOWED = {
    "type": "a value of type {0}",
    "required": "all of {0}",
    "additionalProperties": "no other names",
    "pattern": "what matches {0}",
    "minLength": "at least {0} character",
    "not": "one of 'model' and 'model_id'",
}

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')

Place = tuple[str | int, ...]


class Tool(msgspec.Struct, frozen=True):
    """A tool of an MCP server that an agent may have.

    Attributes:
        name: Name on its server.
        mcp_server_url: Address of the server.
        mcp_server_name: Name of the server; empty if not set.
        display_name: Name shown to people; empty if not set.
        interrupt: True if each call needs a person's approval.
    """

    name: str
    mcp_server_url: str
    mcp_server_name: str = ""
    display_name: str = ""
    interrupt: bool = False

    @property
    def key(self) -> str:
        """Key of the tool in `interrupt_config`."""
        return interrupt_key(self.mcp_server_url, self.name, self.mcp_server_name)


def interrupt_key(url: str, name: str, server: str) -> str:
    """Return the key of a tool in `interrupt_config`."""
    return "::".join(part for part in (url, name, server) if part)


class Read(msgspec.Struct, frozen=True):
    """Value of a JSON file, and the line at which each part of it begins."""

    value: Any
    lines: Mapping[Place, int]


def tools_of(text: str) -> list[Tool]:
    """Return the tools named in a valid `tools.json`."""
    value = json.loads(text)
    question = value.get("interrupt_config", {})
    tools = [msgspec.convert(tool, Tool) for tool in value["tools"]]
    return [
        msgspec.structs.replace(tool, interrupt=bool(question.get(tool.key, False)))
        for tool in tools
    ]


def tools_problems(
    path: str, text: str, offered: Mapping[str, Collection[str]] | None
) -> list[Problem]:
    """Return the problems of a `tools.json`. `offered`: the recorded tools of each server, by its
    address or name; tools of other servers are not checked.
    """
    read = _read(path, text, SCHEMAS["tools"], "tools")
    if not isinstance(read, Read):
        return read
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for at, tool in enumerate(read.value["tools"]):
        line = read.lines["tools", at, "name"]
        url, name = tool["mcp_server_url"], tool["name"]
        key = interrupt_key(url, name, tool.get("mcp_server_name", ""))
        if key in seen:
            problems.append(
                Problem(path, line, "tools.twice", name, f"once; it is in line {seen[key]}, too")
            )
        seen.setdefault(key, line)
        has = (
            None if offered is None else offered.get(url, offered.get(tool.get("mcp_server_name")))
        )
        if has is not None and name not in has:
            some = ", ".join(sorted(has)[:10]) or "it has none"
            problems.append(
                Problem(path, line, "tools.offered", name, f"a tool that {url} has: {some}")
            )
    for key in read.value.get("interrupt_config", {}):
        if key not in seen:
            line = read.lines["interrupt_config", key]
            some = shorten(", ".join(seen)) or "there are none"
            problems.append(
                Problem(path, line, "tools.interrupt", shorten(key), f"a tool named above: {some}")
            )
    return problems


def agent_problems(path: str, text: str, *, named: bool) -> list[Problem]:
    """Return the problems of an `agent.json`; `named`: it must have a name."""
    schema = SCHEMAS["agent"] | ({"required": ["name"]} if named else {})
    read = _read(path, text, schema, "agent")
    return [] if isinstance(read, Read) else read


def _read(path: str, text: str, schema: Mapping[str, Any], kind: str) -> Read | list[Problem]:
    lines: dict[Place, int] = {}
    twice: list[Problem] = []
    try:
        for place, line in _places(text):
            if place in lines:
                name = shorten(str(place[-1]))
                twice.append(Problem(path, line, "json.duplicate-key", name, "each name once"))
            lines[place] = line
        value = json.loads(text, parse_constant=_no_constant)
    except _Bad as deep:
        return [Problem(path, *deep.problem)]
    except json.JSONDecodeError as error:
        actual = text.split("\n")[error.lineno - 1]
        return [Problem(path, error.lineno, "json.syntax", shorten(actual), f"JSON: {error.msg}")]
    except ValueError as error:
        return [Problem(path, 1, "json.number", shorten(str(error)), "a number of JSON")]
    if twice:
        return twice[:1]
    checker = library("jsonschema").Draft202012Validator(schema)
    bad = [_problem_of(path, kind, lines, error) for error in checker.iter_errors(value)]
    return sorted(bad) if bad else Read(value, lines)


def _problem_of(path: str, kind: str, lines: Mapping[Place, int], error: Any) -> Problem:
    place: Place = tuple(error.absolute_path)
    rule, target, actual = error.validator, error.validator_value, json.dumps(error.instance)
    if rule == "additionalProperties":
        known = error.schema.get("properties", {})
        actual = next(name for name in error.instance if name not in known)
        place = (*place, actual)
        allowed = f"one of {', '.join(known)}"
    else:
        text = " or ".join(target) if isinstance(target, list) else str(target)
        if rule == "required":
            text = ", ".join(target)
        allowed = _ALLOWED[rule].format(text)
    return Problem(path, lines.get(place, 1), f"{kind}.{rule}", shorten(actual), allowed)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _places(text: str) -> Iterator[tuple[Place, int]]:
    """Yield the path and line of each value of a JSON text; a member's line is that of its name.

    Accepts invalid JSON too; the result is then meaningless. Raises _Bad.
    """
    path: list[str | int] = []
    kinds: list[str] = []
    expects_key = False
    line, last = 1, 0
    yield (), 1
    for token in _TOKEN.finditer(text):
        line, last = line + text.count("\n", last, token.start()), token.start()
        word = token[0]
        if word in "}]":
            if kinds:
                kinds.pop()
                path.pop()
            expects_key = False
        elif word == ",":
            expects_key = bool(kinds) and kinds[-1] == "{"
            if kinds and kinds[-1] == "[":
                path[-1] = int(path[-1]) + 1
        elif word == ":":
            expects_key = False
        elif expects_key and word.startswith('"'):
            path[-1] = _unquoted(word)
            yield tuple(path), line
        else:
            if kinds and kinds[-1] == "[":
                yield tuple(path), line
            if word in "{[":
                kinds.append(word)
                path.append(0 if word == "[" else "")
                expects_key = word == "{"
                if len(kinds) > JSON_DEPTH_MAX:
                    most = f"at most {JSON_DEPTH_MAX} levels"
                    raise _Bad(line, "json.depth", "deeper", most)


def _unquoted(word: str) -> str:
    try:
        return str(json.loads(word))
    except ValueError:
        return word
