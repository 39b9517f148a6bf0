"""A space's tree as the files that each harness expects, and folders on disk as trees.

    harness       instructions          skills               subagents
    agents-md     AGENTS.md, nested     unchanged            unchanged
    claude-code   CLAUDE.md -> AGENTS   .claude/skills/      .claude/agents/NAME.md
    deepagents    AGENTS.md             skills/              subagents/NAME/ (agent.json, AGENTS.md)
    opencode      AGENTS.md             .opencode/skills/    .opencode/agents/NAME.md
    codex         AGENTS.md             .agents/skills/      .codex/agents/NAME.toml

A space's tree is made of *units*: some files of the space, and the files exported for them. On
import, an unchanged unit maps back to the very files that it was exported from. New and changed
files are mapped by name; a file without an exact inverse keeps its path. Files that a folder does
not show (`is_left_out`, missing settings of the harness) count as unchanged. Nothing is
lost in either direction; whatever a harness cannot express is reported.

Long because each harness has its own form of a subagent, to be written and read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import re
import shutil
import stat
import tomllib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.memory.formats import (
    Executable,
    Items,
    Link,
    Text,
    Tool,
    Tree,
    Value,
    front_matter,
    split,
    subagent_problems,
    tools_of,
)
from hansard.bus import file_lock
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.memory import files
from hansard.domain.memory.files import AGENTS, SKILLS, SUBAGENTS, TOOLS, Problem
from hansard.domain.memory.space import BINARY_BYTES_MAX, FILES_MAX

# Folders on disk as trees, and trees as folders: read without following links, written atomically.
#
# A folder is written beside its path and renamed to it: killed at any point, it exists whole or not
# at all.

TREE_BYTES_MAX = 1 << 28
"""Most bytes of a folder: a quarter of a gigabyte, since all of it is held in memory."""

DEPTH_MAX = 64
NAMES_LEFT_OUT = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
"""Names that no harness treats as memory."""

MARK = ".hansard-checkout.json"
"""File of a checkout that names its source; no file of a space is written at its path."""

PARTIAL = ".hansard-partial"
"""Suffix of a file or folder that is not complete yet."""


class BadFolder(CallerError):
    """A folder that cannot be read as memory, or cannot be written; nothing was changed.

    Attributes:
        path: Path of the folder.
        remedy: Action for the caller.
    """

    def __init__(self, path: Path | str, fact: str, remedy: str) -> None:
        super().__init__(f"{path} {fact}: {remedy}")
        self.path = path
        self.remedy = remedy


def is_mark(path: str) -> bool:
    """Return whether a path is that of a checkout's mark, or below it."""
    return path.partition("/")[0].casefold() == MARK


def is_left_out(path: str) -> bool:
    """Return whether `read` skips a path: its absence from a folder means nothing."""
    names = path.split("/")
    return is_mark(path) or any(n in NAMES_LEFT_OUT or n.endswith(PARTIAL) for n in names)


def read(
    folder: Path, *, leave_out: Collection[str] = (), unread: list[str] | None = None
) -> dict[str, bytes | Link]:
    """Read a folder, links as links, except for paths in `leave_out` and those that `is_left_out`
    names. Raises BadFolder. With `unread`, a file that cannot be read adds a sentence to it instead
    of raising.
    """
    if not folder.is_dir():
        raise BadFolder(folder, "is no folder", "name one that is there")
    tree: dict[str, bytes | Link] = {}
    size = 0
    waiting: list[tuple[Path, str]] = [(folder, "")]
    while waiting:
        at, above = waiting.pop()
        if above.count("/") > DEPTH_MAX:
            raise BadFolder(at, f"is deeper than {DEPTH_MAX} folders", "name one inside it")
        try:
            entries = sorted(os.scandir(at), key=lambda entry: entry.name)
        except OSError as error:
            raise BadFolder(
                at, f"cannot be read ({error.strerror})", "give it to yourself"
            ) from error
        for entry in entries:
            path = above + entry.name
            if path in leave_out or is_left_out(path):
                continue
            if entry.is_symlink():
                tree[path] = Link(str(Path(entry.path).readlink()))
            elif entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), f"{path}/"))
            else:
                try:
                    content = tree[path] = content_of(Path(entry.path))
                except BadFolder as error:
                    if unread is None:
                        raise
                    unread.append(str(error))
                else:
                    size += len(content)
            if len(tree) > FILES_MAX or size > TREE_BYTES_MAX:
                raise BadFolder(
                    folder,
                    f"holds more than {FILES_MAX:,} files or {TREE_BYTES_MAX:,} bytes",
                    "name the folder of memory alone",
                )
    return tree


def content_of(path: Path) -> bytes:
    """Return the content of a regular file. Raises BadFolder for a device, which may never end, and
    for a file that is too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadFolder(path, f"cannot be read ({error.strerror})", "leave it out") from error
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise BadFolder(path, "is no regular file", "leave it out")
        content = file.read(BINARY_BYTES_MAX + 1)
    if len(content) > BINARY_BYTES_MAX:
        raise BadFolder(
            path, f"has more than {BINARY_BYTES_MAX:,} bytes", "split it, or leave it out"
        )
    return Executable(content) if info.st_mode & stat.S_IXUSR else content


def put(place: Path, content: bytes) -> None:
    """Write a new file to disk, with its executable bit. Raises OSError."""
    mode = 0o777 if isinstance(content, Executable) else 0o666
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def write(folder: Path, tree: Tree) -> None:
    """Write a tree to a folder that is missing or empty. Blocks.

    Removes what a killed writer left beside it. Raises BadFolder.
    """
    folder = folder.absolute()
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise BadFolder(folder, "is there and not empty", "name a folder that is not there")
    partial = folder.with_name(f".{folder.name}{PARTIAL}")
    try:
        with _claimed(partial):
            _fill(partial, tree)
            partial.rename(folder)
            sync(folder.parent)
    except OSError as error:
        raise BadFolder(
            folder, f"cannot be written ({error.strerror})", "name another place, or make room"
        ) from error


@contextlib.contextmanager
def _claimed(partial: Path) -> Generator[None]:
    """Create a folder that no other process writes; delete it on an error."""
    partial.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not file_lock.take(descriptor):
            raise BadFolder(partial, "is being written by another process", "wait for it")
        for left in partial.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        try:
            yield
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    finally:
        file_lock.release(descriptor)


def sync(folder: Path) -> None:
    """Sync a folder's renamed entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fill(folder: Path, tree: Tree) -> None:
    for path, content in tree.items():
        if isinstance(content, Link):
            continue
        place = folder / path
        if ".." in place.parts or not place.is_relative_to(folder):
            raise OSError(errno.EPERM, f"{path} leads out of the folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        put(place, content)
    for path, content in tree.items():  # after the files: nothing is written through a link
        if isinstance(content, Link):
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(content.target)


# Subagents. A space has them in Claude Code's form: Markdown with front matter. The others are read
# and written: deepagents (`agent.json` and `AGENTS.md` in a folder), OpenCode (Markdown, ordered
# `permissions`), Codex (TOML, `developer_instructions`).

SHORT_NAMES = {"sonnet", "opus", "haiku", "fable"}
"""Short model names that only Claude Code knows."""

_ACTIONS = {
    "Read": "read",
    "Grep": "grep",
    "Glob": "glob",
    "Bash": "shell",
    "Edit": "edit",
    "Write": "edit",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "WebFetch": "webfetch",
    "WebSearch": "websearch",
    "Agent": "subagent",
    "Task": "subagent",
    "Skill": "skill",
}
_WRITES = {"Bash", "Edit", "Write", "MultiEdit", "NotebookEdit"}
_FIELDS = {"name", "description", "tools", "model"}


class Subagent(msgspec.Struct, frozen=True):
    """A subagent, independent of the format.

    Attributes:
        name: Name.
        description: When to delegate work to it.
        instructions: System prompt, verbatim.
        tools: Tools it may use, by Claude Code's names; None for all tools of its parent.
        model: Model, verbatim; None for its parent's.
        others: Further fields of Claude Code, which no other format has.
    """

    name: str
    description: str
    instructions: str
    tools: list[str] | None = None
    model: str | None = None
    others: list[str] = []


def subagent_in(path: str, content: bytes) -> Subagent | None:
    """Parse a subagent in Claude Code's format; None if it is not valid."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    front = front_matter(path, text, flow=True)
    if isinstance(front, Problem) or subagent_problems(path, text):
        return None
    has = front.fields.fields
    tools = has.get("tools")
    named: list[str] | None = None
    match tools:
        case Text() if tools.value.strip():
            named = [word.strip() for word in split(tools.value, ",")]
        case Items():
            named = [item.value for item in tools.items if isinstance(item, Text)]
        case _:
            pass
    return Subagent(
        name=_text(has, "name") or "",
        description=_text(has, "description") or "",
        instructions=front.body.removeprefix("\n"),
        tools=named,
        model=_text(has, "model"),
        others=[name for name in has if name not in _FIELDS],
    )


def _text(has: dict[str, Value], name: str) -> str | None:
    value = has.get(name)
    return value.value if isinstance(value, Text) and value.value else None


def _quoted(value: str) -> str:
    """Quote a text so that YAML, JSON and TOML all read it."""
    return json.dumps(value, ensure_ascii=False)


def claude_code(subagent: Subagent) -> tuple[list[str], bytes]:
    """Return no notes, as nothing is left out, and the file in Claude Code's format."""
    lines = [f"name: {subagent.name}", f"description: {_quoted(subagent.description)}"]
    if subagent.tools is not None:
        lines.append(f"tools: {', '.join(subagent.tools)}")
    if subagent.model is not None:
        lines.append(f"model: {subagent.model}")
    return [], _marked(lines, subagent.instructions)


def _marked(lines: list[str], text: str) -> bytes:
    front = "\n".join(lines)
    return f"---\n{front}\n---\n{text}".encode()


def _qualified_model(subagent: Subagent, separator: str, notes: list[str]) -> str | None:
    """Return the subagent's model with its provider, or None if only Claude Code knows it; add a
    note then.
    """
    model = subagent.model
    if model is None or model == "inherit":
        return None
    if model in SHORT_NAMES:
        notes.append(f"only Claude Code knows the model {model!r}: it has its parent's")
        return None
    provider, has_provider, name = model.replace("/", ":", 1).partition(":")
    return f"{provider}{separator}{name}" if has_provider else model


def model_of(subagent: Subagent) -> str | None:
    """Return the subagent's model as `provider:model`; None for its parent's."""
    return _qualified_model(subagent, ":", [])


def _others(subagent: Subagent) -> list[str]:
    return [f"only Claude Code has {name!r}" for name in subagent.others]


def deepagents(subagent: Subagent) -> tuple[list[str], bytes, bytes]:
    """Return notes on the fields left out, `agent.json` and `AGENTS.md`."""
    notes = _others(subagent)
    agent = {"description": subagent.description}
    model = _qualified_model(subagent, ":", notes)
    if model is not None:
        agent["model"] = model
    if subagent.tools is not None:
        notes.append("deepagents names tools in tools.json: it has its parent's")
    return notes, f"{json.dumps(agent, indent=2)}\n".encode(), subagent.instructions.encode()


def opencode(subagent: Subagent) -> tuple[list[str], bytes]:
    """Return notes on the fields left out, and the file; tools that it may not use are denied."""
    notes = _others(subagent)
    lines = [f"description: {_quoted(subagent.description)}", "mode: subagent"]
    model = _qualified_model(subagent, "/", notes)
    if model is not None:
        lines.append(f"model: {model}")
    if subagent.tools is not None:
        lines += ["permissions:", *_rule("*", "deny")]
        for action in _actions(subagent.tools, notes):
            lines += _rule(action, "allow")
    return notes, _marked(lines, subagent.instructions)


def _rule(action: str, effect: str) -> list[str]:
    return [f"  - action: {_quoted(action)}", '    resource: "*"', f"    effect: {effect}"]


def _actions(tools: list[str], notes: list[str]) -> list[str]:
    actions: list[str] = []
    for tool in tools:
        name, has_pattern, _ = tool.partition("(")
        action = _ACTIONS.get(name)
        if name.startswith("mcp__"):
            action = name.removeprefix("mcp__").replace("__", "_", 1)
        if action is None or has_pattern:
            notes.append(f"OpenCode has no word for the tool {tool!r}: it stays denied")
        elif action not in actions:
            actions.append(action)
    return actions


def codex(subagent: Subagent) -> tuple[list[str], bytes]:
    """Return notes on the fields left out, and the file; a subagent without write tools gets a
    read-only sandbox.
    """
    notes = _others(subagent)
    lines = [f"name = {_toml(subagent.name)}", f"description = {_toml(subagent.description)}"]
    model = _qualified_model(subagent, "/", notes)
    if model is not None:
        lines.append(f"model = {_toml(model)}")
    if subagent.tools is not None:
        writes = {tool.partition("(")[0] for tool in subagent.tools} & _WRITES
        notes.append("Codex has no list of tools for one agent")
        if not writes:
            lines.append('sandbox_mode = "read-only"')
    lines.append(f"developer_instructions = {_toml_lines(subagent.instructions)}")
    return notes, "".join(f"{line}\n" for line in lines).encode()


def _toml(value: str) -> str:
    return _quoted(value).replace("\x7f", "\\u007f")


def _toml_lines(value: str) -> str:
    escaped = "\n".join(_toml(line)[1:-1] for line in value.split("\n"))
    return f'"""\n{escaped}"""'


def from_deepagents(name: str, agent: bytes, instructions: bytes) -> Subagent | None:
    """Parse a subagent in deepagents' format; None if it is not valid."""
    try:
        value = json.loads(agent)
        return Subagent(
            name=name,
            description=value.get("description") or name,
            instructions=instructions.decode(),
            model=value.get("model") or value.get("model_id"),
        )
    except (ValueError, AttributeError, msgspec.ValidationError):
        return None


def from_codex(stem: str, content: bytes) -> Subagent | None:
    """Parse a subagent in Codex's format; None if Claude Code's format cannot express it."""
    try:
        value = tomllib.loads(content.decode())
        return Subagent(
            name=_same(value["name"], stem),
            description=value["description"],
            instructions=value["developer_instructions"],
            model=value.get("model"),
        )
    except (ValueError, LookupError):
        return None


def from_opencode(stem: str, content: bytes) -> Subagent | None:
    """Parse a subagent in OpenCode's format; None if Claude Code's format cannot express it."""
    try:
        front = front_matter(stem, content.decode(), flow=True)
    except UnicodeDecodeError:
        return None
    if isinstance(front, Problem):
        return None
    has = front.fields.fields
    if not has.keys() <= {"description", "mode", "model"}:
        return None
    return Subagent(
        name=stem,
        description=_text(has, "description") or "",
        instructions=front.body.removeprefix("\n"),
        model=_text(has, "model"),
    )


def _same(name: str, stem: str) -> str:
    if name != stem:
        raise ValueError(name)
    return name


# An agent that is a folder, in deepagents' form: `agent.json`, `AGENTS.md`, `tools.json`, `skills/`
# and of each subagent the same in `subagents/NAME/`, or one file `subagents/NAME.md`.

AGENT = "agent.json"


class AgentFiles(msgspec.Struct, frozen=True):
    """Settings of an agent, read from its files.

    Attributes:
        name: Name; empty if not set.
        description: When a subagent is given work.
        model: As `provider:model`; None for its parent's, or the one passed by the caller.
        instructions: System prompt of a subagent; an agent's own is its AGENTS.md, as memory.
        tools: Tools of MCP servers that it may use, and no others.
        skills: Folder of its skills; empty if it has none.
        subagents: Its subagents.
    """

    name: str
    description: str = ""
    model: str | None = None
    instructions: str = ""
    tools: list[Tool] = []
    skills: str = ""
    subagents: list[AgentFiles] = []

    @property
    def all_tools(self) -> list[Tool]:
        """Its own tools and those of its subagents, without duplicates."""
        of_all = [self.tools, *(each.tools for each in self.subagents)]
        return list(dict.fromkeys(tool for tools in of_all for tool in tools))


def is_agent_setting(path: str) -> bool:
    """Return whether a file holds settings of the agent that are read before it starts."""
    parts = path.split("/")
    if parts[0] != SUBAGENTS:
        return path in {AGENT, TOOLS}
    return len(parts) == 2 or (len(parts) == 3 and parts[2] in {AGENT, TOOLS, AGENTS})  # noqa: PLR2004 -- subagents/NAME/FILE


def agent_in(texts: Mapping[str, str], paths: list[str]) -> AgentFiles:
    """Build an agent from the texts that `is_agent_setting` selects, and the paths of all files.

    Raises BadValue for tools of two servers with one name.
    """
    fields = json.loads(texts.get(AGENT, "{}"))
    own = _tools(texts, TOOLS)
    names = {path.split("/")[1] for path in texts if path.startswith(f"{SUBAGENTS}/")}
    subagents = [_subagent(texts, paths, name, own) for name in sorted(names)]
    agent = AgentFiles(
        name=fields.get("name", ""),
        description=fields.get("description", ""),
        model=_model(fields),
        tools=own,
        skills=_skills(paths, ""),
        subagents=[each for each in subagents if each is not None],
    )
    servers: dict[str, str] = {}
    for tool in agent.all_tools:
        other = servers.setdefault(tool.name, tool.mcp_server_url)
        if other != tool.mcp_server_url:
            fact = f"{tool.name!r} is of {other} and of {tool.mcp_server_url}"
            raise BadValue(
                "tools.json", fact, "name tools of different names: a model has one each"
            )
    return agent


def _tools(texts: Mapping[str, str], path: str) -> list[Tool]:
    return tools_of(texts[path]) if path in texts else []


def _model(fields: dict[str, Any]) -> str | None:
    model: str | None = fields.get("model") or fields.get("model_id")
    return model


def _skills(paths: list[str], folder: str) -> str:
    within = f"{folder}{SKILLS}/"
    return within if any(path.startswith(within) for path in paths) else ""


def _subagent(
    texts: Mapping[str, str], paths: list[str], name: str, own: list[Tool]
) -> AgentFiles | None:
    """Parse a subagent in either format; None for a file that holds none."""
    folder = f"{SUBAGENTS}/{name}/"
    if f"{folder}{AGENT}" in texts:
        fields = json.loads(texts[f"{folder}{AGENT}"])
        return AgentFiles(
            name=name,
            description=fields.get("description") or name,
            model=_model(fields),
            instructions=texts.get(f"{folder}{AGENTS}", ""),
            tools=_tools(texts, f"{folder}{TOOLS}"),
            skills=_skills(paths, folder),
        )
    path = f"{SUBAGENTS}/{name}"
    definition = subagent_in(path, texts[path].encode()) if name.endswith(".md") else None
    if definition is None:
        return None
    return AgentFiles(
        name=definition.name,
        description=definition.description,
        model=model_of(definition),
        instructions=definition.instructions,
        tools=own
        if definition.tools is None
        else [each for each in own if _named(each, definition.tools)],
    )


def _named(tool: Tool, names: list[str]) -> bool:
    """Return whether a subagent names a tool of its parent, by its name or as
    `mcp__SERVER__TOOL`.
    """
    return tool.name in names or f"mcp__{tool.mcp_server_name}__{tool.name}" in names


CLAUDE = "CLAUDE.md"


class Harness(StrEnum):
    """Program whose format a folder has."""

    AGENTS_MD = "agents-md"
    CLAUDE_CODE = "claude-code"
    DEEPAGENTS = "deepagents"
    OPENCODE = "opencode"
    CODEX = "codex"


class HarnessFolder(msgspec.Struct, frozen=True):
    """A folder in the format of a harness.

    Attributes:
        tree: Content of the folder.
        notes: Settings of the space that the harness cannot express, a sentence each.
    """

    tree: Tree
    notes: list[str]


class _Unit(msgspec.Struct, frozen=True):
    of: dict[str, bytes | Link]
    made: dict[str, bytes | Link]


class _Form(msgspec.Struct, frozen=True):
    """Folders of a harness's skills and subagents, and functions to write a subagent and to read it
    back (None: unchanged).
    """

    skills: str
    subagents: str
    suffix: str
    write: Callable[[Subagent], tuple[list[str], bytes]]
    read: Callable[[str, bytes], Subagent | None] | None = None


_FORMS = {
    Harness.CLAUDE_CODE: _Form(".claude/skills/", ".claude/agents/", ".md", claude_code),
    Harness.OPENCODE: _Form(
        ".opencode/skills/", ".opencode/agents/", ".md", opencode, from_opencode
    ),
    Harness.CODEX: _Form(".agents/skills/", ".codex/agents/", ".toml", codex, from_codex),
}
_SKILL = re.compile(r"skills/[^/]+/.+")
_SUBAGENT = re.compile(r"subagents/([^/]+)\.md")
_SUBAGENT_FOLDER = re.compile(r"subagents/([^/]+)/(agent\.json|AGENTS\.md)")


def export(space: Tree, harness: Harness, *, settings: bool = False) -> HarnessFolder:
    """Export a space's tree in the format of a harness; files that configure the harness itself
    only with `settings`. Raises ExtraMissing.
    """
    notes: list[str] = []
    tree: dict[str, bytes | Link] = {}
    for unit in _units(space, harness, notes):
        tree |= unit.made
    for path in () if settings else sorted(filter(files.configures_harness, tree)):
        del tree[path]
        notes.append(f"{path} configures the harness and is left out: export it with --settings")
    return HarnessFolder(tree, notes)


def import_tree(folder: Tree, harness: Harness, space: Tree | None = None) -> Tree:
    """Import a harness's folder into a space's tree. `space` is the current tree, if any: exported
    files that are unchanged keep their content there. Raises ExtraMissing.
    """
    result: dict[str, bytes | Link] = {}
    rest = dict(folder)
    for unit in _units(space or {}, harness, []):
        if all(
            is_left_out(path)
            or folder.get(path) == made
            or (path not in folder and files.configures_harness(path))
            for path, made in unit.made.items()
        ):
            result |= unit.of
            for path in unit.made:
                rest.pop(path, None)
    for path in sorted(rest):
        for new, content in _back(path, rest, folder, harness).items():
            result.setdefault(new, content)
    return result


# ------------------------------------------------------------------ from a space to a harness


def _units(space: Tree, harness: Harness, notes: list[str]) -> Iterator[_Unit]:
    """Yield the units of a space for a harness. No unit replaces a file of the space."""
    taken = set(space)
    for path, content in sorted(space.items()):
        unit = _unit(space, path, content, harness, notes)
        if unit is None:
            continue
        if any(made in taken and made not in unit.of for made in unit.made):
            same = {source: space[source] for source in unit.of}
            unit = _Unit(same, same)
        taken |= set(unit.made)
        yield unit
    for path, content in _helpers(space, harness, notes).items():
        if path not in taken:
            yield _Unit({}, {path: content})


def _unit(
    space: Tree, path: str, content: bytes | Link, harness: Harness, notes: list[str]
) -> _Unit | None:
    if is_mark(path):
        notes.append(f"{path}: a checkout's own mark has that name; it stays in the space alone")
        return _Unit({path: content}, {})
    same = _Unit({path: content}, {path: content})
    form = _FORMS.get(harness)
    if form is not None and _SKILL.fullmatch(path):
        return _Unit({path: content}, {form.skills + path.removeprefix("skills/"): content})
    named = _SUBAGENT.fullmatch(path)
    if named is not None and isinstance(content, bytes) and harness is not Harness.AGENTS_MD:
        return _subagent_unit(path, named[1], content, harness, notes) or same
    in_folder = _SUBAGENT_FOLDER.fullmatch(path)
    if in_folder is not None and form is not None:
        subagent = _in_folder(space, in_folder[1])
        if subagent is not None:
            return _folder_unit(space, subagent, harness, notes) if path.endswith(".json") else None
    if harness is Harness.CLAUDE_CODE and path.rpartition("/")[2] in {AGENTS, CLAUDE}:
        return _claude_unit(space, path, content)
    return same


def _in_folder(space: Tree, name: str) -> Subagent | None:
    """Return a subagent that has a folder, in deepagents' format."""
    agent = space.get(f"subagents/{name}/agent.json")
    instructions = space.get(f"subagents/{name}/{AGENTS}")
    if not isinstance(agent, bytes) or not isinstance(instructions, bytes):
        return None
    return from_deepagents(name, agent, instructions)


def _folder_unit(space: Tree, subagent: Subagent, harness: Harness, notes: list[str]) -> _Unit:
    folder = f"subagents/{subagent.name}"
    of = {path: space[path] for path in (f"{folder}/agent.json", f"{folder}/{AGENTS}")}
    notes += [
        f"{path}: only deepagents gives a subagent files of its own; it stays as it is"
        for path in space
        if path.startswith(f"{folder}/") and path not in of
    ]
    return _Unit(of, _formed(folder, subagent, harness, notes))


def _formed(
    path: str, subagent: Subagent, harness: Harness, notes: list[str]
) -> dict[str, bytes | Link]:
    """Return a subagent in the format of a harness that has one file per subagent."""
    form = _FORMS[harness]
    statement, text = form.write(subagent)
    notes += [f"{path}: {each}" for each in statement]
    return {f"{form.subagents}{subagent.name}{form.suffix}": text}


def _subagent_unit(
    path: str, stem: str, content: bytes, harness: Harness, notes: list[str]
) -> _Unit | None:
    """Return the unit of a subagent; None if the file is not in Claude Code's format."""
    if harness is Harness.CLAUDE_CODE:
        return _Unit({path: content}, {f".claude/agents/{stem}.md": content})
    subagent = subagent_in(path, content)
    if subagent is None:
        notes.append(
            f"{path} is no subagent and stays as it is: 'hansard memory validate' says why"
        )
        return None
    if harness is not Harness.DEEPAGENTS:
        return _Unit({path: content}, _formed(path, subagent, harness, notes))
    text, agent, instructions = deepagents(subagent)
    notes += [f"{path}: {each}" for each in text]
    folder = f"subagents/{subagent.name}"
    made: dict[str, bytes | Link] = {
        f"{folder}/agent.json": agent,
        f"{folder}/{AGENTS}": instructions,
    }
    return _Unit({path: content}, made)


def _claude_unit(space: Tree, path: str, content: bytes | Link) -> _Unit | None:
    """Return the unit of CLAUDE.md, which Claude Code reads: in a folder with only one of CLAUDE.md
    and AGENTS.md, the other is a link to it.
    """
    folder = posixpath.dirname(path)
    other = posixpath.join(folder, AGENTS)
    if path.endswith(CLAUDE) and space.get(other) == Link(CLAUDE):
        return _Unit({path: content, other: Link(CLAUDE)}, {path: content})
    if (
        path.endswith(AGENTS)
        and content == Link(CLAUDE)
        and posixpath.join(folder, CLAUDE) in space
    ):
        return None
    return _Unit({path: content}, {path: content})


def _helpers(space: Tree, harness: Harness, notes: list[str]) -> dict[str, bytes | Link]:
    """Return additional files that a harness needs and a space does not."""
    made: dict[str, bytes | Link] = {}
    if harness is Harness.CLAUDE_CODE:
        for path, content in space.items():
            folder, _, name = path.rpartition("/")
            is_subagent = _SUBAGENT_FOLDER.fullmatch(path) is not None
            if name == AGENTS and content != Link(CLAUDE) and not is_subagent:
                made[posixpath.join(folder, CLAUDE)] = Link(AGENTS)
    tools = space.get(TOOLS)
    if isinstance(tools, bytes):
        made |= _tool_settings(tools, harness, notes)
    return made


def _tool_settings(content: bytes, harness: Harness, notes: list[str]) -> dict[str, bytes | Link]:
    """Return the harness's settings of MCP servers, and of their tools where it supports that."""
    try:
        tools = tools_of(content.decode())
    except (ValueError, LookupError, TypeError, AttributeError, msgspec.ValidationError):
        notes.append(f"{TOOLS} is not valid: 'hansard memory validate' says why")
        return {}
    servers: dict[str, tuple[str, list[str]]] = {}
    for tool in tools:
        name = tool.mcp_server_name or re.sub(r"\W+", "-", tool.mcp_server_url.split("//")[-1])
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")
        servers.setdefault(name, (tool.mcp_server_url, []))[1].append(tool.name)
    if not servers:
        return {}
    match harness:
        case Harness.CLAUDE_CODE:
            notes.append(
                f"{TOOLS}: .mcp.json names its servers; Claude Code offers all their tools"
            )
            named = {name: {"type": "http", "url": url} for name, (url, _) in servers.items()}
            return {".mcp.json": f"{json.dumps({'mcpServers': named}, indent=2)}\n".encode()}
        case Harness.CODEX:
            lines = [
                f"[mcp_servers.{name}]\nurl = {json.dumps(url)}\n"
                f"enabled_tools = {json.dumps(has)}\n"
                for name, (url, has) in servers.items()
            ]
            return {".codex/config.toml": "\n".join(lines).encode()}
        case Harness.OPENCODE:
            notes.append(f"{TOOLS}: name its servers in opencode.json, which is yours")
            return {}
        case Harness.AGENTS_MD | Harness.DEEPAGENTS:
            return {}


# ------------------------------------------------------------------ and back


def _back(path: str, rest: Tree, folder: Tree, harness: Harness) -> dict[str, bytes | Link]:
    """Map a file of a harness's folder to its files in a space; to itself if there is no exact
    inverse.
    """
    content = rest[path]
    same: dict[str, bytes | Link] = {path: content}
    form = _FORMS.get(harness)
    if form is None:
        return same
    if path.startswith(form.skills):
        new = f"skills/{path.removeprefix(form.skills)}"
        return same if new in folder or not _SKILL.fullmatch(new) else {new: content}
    if harness is Harness.CLAUDE_CODE and path.rpartition("/")[2] == CLAUDE:
        other = posixpath.join(posixpath.dirname(path), AGENTS)
        if other not in folder:
            return {path: content, other: Link(CLAUDE)}
        return {} if content == Link(AGENTS) else same
    stem = path.removeprefix(form.subagents).removesuffix(form.suffix)
    if path != f"{form.subagents}{stem}{form.suffix}" or "/" in stem:
        return same
    new = f"subagents/{stem}.md"
    back = _subagent_back(stem, content, form)
    return same if back is None or new in folder else {new: back}


def _subagent_back(stem: str, content: bytes | Link, form: _Form) -> bytes | Link | None:
    """Convert a subagent's file to the space's format; None if exporting the result would give a
    different file.
    """
    if form.read is None:
        return content
    subagent = form.read(stem, content) if isinstance(content, bytes) else None
    if subagent is None or form.write(subagent)[1] != content:
        return None
    return claude_code(subagent)[1]
