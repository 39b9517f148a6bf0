"""Seeded changes to real files of memory: some break a rule, the others break none."""

import json
import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

SKILL, SUBAGENT, TOOLS, AGENTS = "skill", "subagent", "tools", "agents"


class Mutation(NamedTuple):
    """A changed file and its expected findings, none where it stays valid."""

    name: str
    path: str
    content: bytes
    line: int | None
    rule: str | None


Breaks = Callable[[random.Random, str, str], tuple[str, int, str] | None]
Keeps = Callable[[random.Random, str, str], str | None]


def line_of(text: str, field: str) -> int | None:
    """Return the line of a front matter field."""
    front = text.split("\n---", 1)[0]
    match = re.search(rf"^{field}:", front, re.MULTILINE)
    return None if match is None else text.count("\n", 0, match.start()) + 1


def replaced(text: str, line: int, new: str | list[str]) -> str:
    """Return a text with another line in place of one and of its value's further lines."""
    lines = text.split("\n")
    end = line
    while end < len(lines) and (lines[end].startswith((" ", "\t")) or not lines[end].strip()):
        end += 1
    lines[line - 1 : end] = [new] if isinstance(new, str) else new
    return "\n".join(lines)


def inserted(text: str, line: int, new: str) -> str:
    """Return a text with a line inserted under this number."""
    lines = text.split("\n")
    lines.insert(line - 1, new)
    return "\n".join(lines)


def _set(field: str, value: Callable[[random.Random, str], str], rule: str) -> Breaks:
    """Another value of a field, by the name of the file's folder."""

    def breaks(draw: random.Random, path: str, text: str) -> tuple[str, int, str] | None:
        line = line_of(text, field)
        new = f"{field}: {value(draw, path.split('/')[-2])}"
        return None if line is None else (replaced(text, line, new), line, rule)

    return breaks


_named = partial(_set, "name")


def _described(value: Callable[[random.Random], str], rule: str) -> Breaks:
    return _set("description", lambda draw, _: value(draw), rule)


def _added(new: Callable[[random.Random], str], rule: str) -> Breaks:
    """Return a mutation that adds a line after the opening mark."""

    def breaks(draw: random.Random, path: str, text: str) -> tuple[str, int, str] | None:
        line = new(draw)
        is_there = line_of(text, line.partition(":")[0].strip())
        return None if is_there else (inserted(text, 2, line), 2, rule)

    return breaks


def _without(field: str, rule: str) -> Breaks:
    def breaks(draw: random.Random, path: str, text: str) -> tuple[str, int, str] | None:
        line = line_of(text, field)
        return None if line is None else (replaced(text, line, []), 1, rule)

    return breaks


def _doubled(draw: random.Random, path: str, text: str) -> tuple[str, int, str] | None:
    field = draw.choice(["name", "description"])
    first = line_of(text, field)
    end = text.count("\n", 0, text.index("\n---", 3)) + 2
    if first is None:
        return None
    return inserted(text, end, f"{field}: again"), end, "yaml.duplicate-key"


def _unopened(draw: random.Random, path: str, text: str) -> tuple[str, int, str]:
    return text.split("\n", 1)[1], 1, "frontmatter.missing"


def _unclosed(draw: random.Random, path: str, text: str) -> tuple[str, int, str]:
    front = text[3:].split("\n---", 1)[0]
    return f"---{front}\n\nThe text begins here.\n", 1, "frontmatter.unclosed"


def _anywhere(bad: bytes, rule: str) -> Breaks:
    def breaks(draw: random.Random, path: str, text: str) -> tuple[str, int, str]:
        lines = text.split("\n")
        at = draw.randrange(len(lines))
        lines[at] += bad.decode("latin-1")
        return "\n".join(lines), at + 1, rule

    return breaks


_EXTRA = ["version: 1.0", "tags: some", "author: me", "nmae: x", "argument-hint: file", "Name: x"]

BREAK_SKILL: list[Breaks] = [
    _named(lambda draw, name: name.upper(), "skill.name.case"),
    _named(lambda draw, name: f"{name}-", "skill.name.edge"),
    _named(lambda draw, name: f"{name}--x", "skill.name.hyphens"),
    _named(lambda draw, name: f"{name} {draw.choice('_!/+.')}", "skill.name.characters"),
    _named(lambda draw, name: f"other-{draw.randrange(1000)}", "skill.name.folder"),
    _named(lambda draw, name: "x" * draw.randrange(65, 300), "skill.name.length"),
    _named(lambda draw, name: "", "skill.name.empty"),
    _named(lambda draw, name: "\n  - x", "skill.name.text"),
    _described(lambda draw: "x" * draw.randrange(1025, 5000), "skill.description.length"),
    _described(lambda draw: draw.choice(["''", '""', "", "   "]), "skill.description.empty"),
    _described(lambda draw: "use it: when it helps", "yaml.syntax"),
    _described(lambda draw: "'it isn't closed", "yaml.syntax"),
    _described(lambda draw: "[a, b]", "yaml.flow"),
    _described(lambda draw: "{a: b}", "yaml.flow"),
    _described(lambda draw: "&x text", "yaml.anchor"),
    _described(lambda draw: "*x", "yaml.alias"),
    _described(lambda draw: "!!str text", "yaml.tag"),
    _added(lambda draw: draw.choice(_EXTRA), "skill.field"),
    _added(
        lambda draw: f"compatibility: {'x' * draw.randrange(501, 900)}",
        "skill.compatibility.length",
    ),
    _added(lambda draw: "\tname2: x", "yaml.syntax"),
    _without("name", "skill.name.missing"),
    _without("description", "skill.description.missing"),
    _doubled,
    _unopened,
    _unclosed,
    _anywhere(b"\0", "file.binary"),
    _anywhere(b"\xe9\xff", "file.encoding"),
]

BREAK_SUBAGENT: list[Breaks] = [
    _added(lambda draw: "model: gpt 4 turbo", "subagent.model.name"),
    _added(lambda draw: "tools: Read, , Grep", "subagent.tools.name"),
    _added(lambda draw: "tools: Read Grep", "subagent.tools.name"),
    _added(lambda draw: "tool: Read", "subagent.field"),
    _added(lambda draw: "model: [a, b]", "subagent.model.text"),
    _named(lambda draw, name: "Two Words", "subagent.name.characters"),
    _without("description", "subagent.description.missing"),
    _unopened,
    _unclosed,
]


def _tools(change: Callable[[dict], object], mark: str, rule: str) -> Breaks:
    """Return a JSON mutation whose finding is at the line of `mark`."""

    def breaks(draw: random.Random, path: str, text: str) -> tuple[str, int, str]:
        value = json.loads(text)
        change(value)
        new = json.dumps(value, indent=2)
        return new, new[: new.index(mark)].count("\n") + 1, rule

    return breaks


def _tool(mark: str, rule: str, **fields: object) -> Breaks:
    """Return a mutation of the first tool's fields."""
    return _tools(lambda value: value["tools"][0].update(fields), mark, rule)


def _all(mark: str, rule: str, **fields: object) -> Breaks:
    """Return a mutation of the file's fields."""
    return _tools(lambda value: value.update(fields), mark, rule)


def _cut(draw: random.Random, path: str, text: str) -> tuple[str, int, str]:
    end = len(text.rstrip()) - 1
    return text[:end], text.count("\n", 0, end) + 1, "json.syntax"


def _key_twice(draw: random.Random, path: str, text: str) -> tuple[str, int, str]:
    line = text.strip().partition('"interrupt_config"')[0].count("\n") + 2
    return '{"interrupt_config": {},\n' + text.strip()[1:], line, "json.duplicate-key"


BREAK_TOOLS: list[Breaks] = [
    _tools(lambda value: value["tools"][0].pop("name"), "{\n      ", "tools.required"),
    _tool('"nmae"', "tools.additionalProperties", nmae=1),
    _tool('"name"', "tools.type", name=7),
    _tool('"mcp_server_url"', "tools.pattern", mcp_server_url="ftp://x"),
    _all('"servers"', "tools.additionalProperties", servers=[]),
    _all('"tools"', "tools.type", tools={}),
    _all('"https://x::other"', "tools.interrupt", interrupt_config={"https://x::other": True}),
    _cut,
    _key_twice,
    _anywhere(b"\0", "file.binary"),
]

BREAK_AGENTS: list[Breaks] = [
    _anywhere(b"\0", "file.binary"),
    _anywhere(b"\xff", "file.encoding"),
    lambda draw, path, text: (f"\n\nSee @{path.split('/')[-1]} first.\n{text}", 3, "import.circle"),
    lambda draw, path, text: (
        f"\n@../{'../' * path.count('/')}secret.md\n\n{text}",
        2,
        "import.outside",
    ),
    lambda draw, path, text: (f"a\n@~/notes.md\n\n{text}", 2, "import.outside"),
    lambda draw, path, text: (
        (line := "x" * 127 + "\n") * 600 + text,
        (1 << 16) // len(line) + 1,
        "instructions.size",
    ),
]


def _end_of_front(text: str) -> int:
    return text.count("\n", 0, text.index("\n---", 3)) + 2


def _kept(new: Callable[[random.Random], str]) -> Keeps:
    """Another description."""

    def keeps(draw: random.Random, path: str, text: str) -> str | None:
        line = line_of(text, "description")
        return None if line is None else replaced(text, line, new(draw))

    return keeps


def _more(field: str, value: str) -> Keeps:
    """Return a mutation that adds an unused field at the end of the front matter."""

    def keeps(draw: random.Random, path: str, text: str) -> str | None:
        has = line_of(text, field)
        return None if has else inserted(text, _end_of_front(text), f"{field}:{value}")

    return keeps


KEEP_FRONT: list[Keeps] = [
    lambda draw, path, text: text + "\n---\nname: none of the front matter\n",
    lambda draw, path, text: text + "\n```yaml\na: &x [*x]\n```\n",
    lambda draw, path, text: inserted(text, 2, "# a comment: with a colon"),
    lambda draw, path, text: inserted(text, _end_of_front(text), ""),
    lambda draw, path, text: text + "é 漢字 🙂 \u2028 @nobody\n",
    lambda draw, path, text: re.sub(
        r"^name: *(\S+)$", r'"name": "\1"', text, count=1, flags=re.MULTILINE
    ),
    lambda draw, path, text: text.rstrip("\n"),
]

KEEP_SKILL: list[Keeps] = [
    *KEEP_FRONT,
    _more("license", " 'MIT: see LICENSE'"),
    _more("compatibility", f" {'x' * 500}"),
    _more("allowed-tools", " Bash(git:*) Read"),
    _more("metadata", "\n  version: 1.0\n  author: me"),
    _kept(lambda draw: f"description: {'x' * 1024}"),
    _kept(lambda draw: "description: >-\n  use it: when\n  it helps"),
]

KEEP_SUBAGENT: list[Keeps] = [
    *KEEP_FRONT,
    lambda draw, path, text: inserted(text, 2, "model: inherit"),
    lambda draw, path, text: inserted(text, 2, "model: claude-opus-5[1m]"),
    lambda draw, path, text: inserted(text, 2, "tools: [Read, 'Bash(git log:*)', mcp__a__b]"),
    lambda draw, path, text: inserted(text, 2, "tools: Read, Bash(git add, git log), Agent(a, b)"),
]

KEEP_TOOLS: list[Keeps] = [
    lambda draw, path, text: json.dumps(json.loads(text)),
    lambda draw, path, text: json.dumps(
        json.loads(text), indent=draw.randrange(1, 9), ensure_ascii=True
    ),
    lambda draw, path, text: text.replace("{", "{\n\n", 1),
]

KEEP_AGENTS: list[Keeps] = [
    lambda draw, path, text: (
        f"`@{path.split('/')[-1]}` and\n\n```\n@{path.split('/')[-1]}\n```\n{text}"
    ),
    lambda draw, path, text: f"mail a@{path.split('/')[-1]} or @someone, @org/package\n\n{text}",
    lambda draw, path, text: text.replace("\n", "\r\n"),
    lambda draw, path, text: "",
    lambda draw, path, text: "\ufeff" + text,
]

BREAK = {SKILL: BREAK_SKILL, SUBAGENT: BREAK_SUBAGENT, TOOLS: BREAK_TOOLS, AGENTS: BREAK_AGENTS}
KEEP = {SKILL: KEEP_SKILL, SUBAGENT: KEEP_SUBAGENT, TOOLS: KEEP_TOOLS, AGENTS: KEEP_AGENTS}


def mutations(seed: int, files: dict[str, dict[str, bytes]], number: int) -> Iterator[Mutation]:
    """Yield equal numbers of breaking and harmless mutations of valid files, by kind."""
    for make in (_broken, _changed):
        draw = random.Random(seed)
        kinds = BREAK if make is _broken else KEEP
        every = [(kind, at) for kind, ways in kinds.items() for at in range(len(ways))]
        made = 0
        for number_tried in range(10 * number):
            kind, at = every[number_tried % len(every)]
            path = draw.choice(sorted(files[kind]))
            mutation = make(draw, kind, at, path, files[kind][path].decode())
            if mutation is not None and made < number:
                made += 1
                yield mutation


def _broken(draw: random.Random, kind: str, at: int, path: str, text: str) -> Mutation | None:
    change = BREAK[kind][at](draw, path, text)
    if change is None:
        return None
    new, line, rule = change
    content = new.encode()
    if rule == "file.encoding":
        content = content.replace("\xe9\xff".encode(), b"\xe9\xff").replace(
            "\xff".encode(), b"\xff"
        )
    return Mutation(f"{kind} {at} {path}", path, content, line, rule)


def _changed(draw: random.Random, kind: str, at: int, path: str, text: str) -> Mutation | None:
    new = KEEP[kind][at](draw, path, text)
    return None if new is None else Mutation(f"{kind} {at} {path}", path, new.encode(), None, None)
