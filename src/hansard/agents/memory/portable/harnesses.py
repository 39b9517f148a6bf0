"""Where each harness looks for instructions, skills and subagents, as pure mappings of trees.

    harness       instructions          skills               subagents
    agents-md     AGENTS.md, nested     as they stand        as they stand
    claude-code   CLAUDE.md -> AGENTS   .claude/skills/      .claude/agents/NAME.md
    deepagents    AGENTS.md             skills/              subagents/NAME/ (agent.json, AGENTS.md)
    opencode      AGENTS.md             .opencode/skills/    .opencode/agents/NAME.md
    codex         AGENTS.md             .agents/skills/      .codex/agents/NAME.toml

A space's tree is made of *units*: some files of the space, and what a harness is given of them.
Importing takes a unit that is as it was made back to the very files that it was made of; what is
new or changed is mapped by name alone, and stays where it stands if there is no exact way back.
What a folder does not show (`folders.is_left_out`, settings of the harness that are missing) is
taken to be as it was made. So nothing is
lost in either direction, whatever a harness cannot say; what it cannot is told.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from hansard.agents.memory.portable import folders, subagent_forms
from hansard.agents.memory.portable.subagent_forms import Subagent
from hansard.agents.memory.validation.json_files import tools_of
from hansard.agents.memory.validation.trees import Link, Tree
from hansard.domain.memory import paths

AGENTS, CLAUDE, TOOLS = "AGENTS.md", "CLAUDE.md", "tools.json"


class Harness(StrEnum):
    """Whose folder it is."""

    AGENTS_MD = "agents-md"
    CLAUDE_CODE = "claude-code"
    DEEPAGENTS = "deepagents"
    OPENCODE = "opencode"
    CODEX = "codex"


class Exported(msgspec.Struct, frozen=True):
    """A harness's folder.

    Attributes:
        tree: What stands in it.
        notes: What the space says and the harness has no word for, a sentence each.
    """

    tree: Tree
    notes: list[str]


class _Unit(msgspec.Struct, frozen=True):
    of: dict[str, bytes | Link]
    made: dict[str, bytes | Link]


_SKILLS = {
    Harness.CLAUDE_CODE: ".claude/skills/",
    Harness.OPENCODE: ".opencode/skills/",
    Harness.CODEX: ".agents/skills/",
}
_SUBAGENTS = {
    Harness.CLAUDE_CODE: (".claude/agents/", ".md"),
    Harness.OPENCODE: (".opencode/agents/", ".md"),
    Harness.CODEX: (".codex/agents/", ".toml"),
}
_SKILL = re.compile(r"skills/[^/]+/.+")
_SUBAGENT = re.compile(r"subagents/([^/]+)\.md")
_SUBAGENT_FOLDER = re.compile(r"subagents/([^/]+)/(agent\.json|AGENTS\.md)")


def exported(space: Tree, harness: Harness, *, settings: bool = False) -> Exported:
    """A space's tree as a harness has it; files that configure the harness itself only with
    `settings`. Raises ExtraMissing.
    """
    notes: list[str] = []
    tree: dict[str, bytes | Link] = {}
    for unit in _units(space, harness, notes):
        tree |= unit.made
    for path in () if settings else sorted(filter(paths.configures_harness, tree)):
        del tree[path]
        notes.append(f"{path} configures the harness and is left out: export it with --settings")
    return Exported(tree, notes)


def imported(folder: Tree, harness: Harness, space: Tree | None = None) -> Tree:
    """The tree of a space that has a harness's folder; `space` is what it has now, if it has
    anything: what is as it was exported is left as it stands there. Raises ExtraMissing.
    """
    found: dict[str, bytes | Link] = {}
    rest = dict(folder)
    for unit in _units(space or {}, harness, []):
        if all(
            folders.is_left_out(path)
            or folder.get(path) == made
            or (path not in folder and paths.configures_harness(path))
            for path, made in unit.made.items()
        ):
            found |= unit.of
            for path in unit.made:
                rest.pop(path, None)
    for path in sorted(rest):
        for new, content in _back(path, rest, folder, harness).items():
            found.setdefault(new, content)
    return found


# ------------------------------------------------------------------ from a space to a harness


def _units(space: Tree, harness: Harness, notes: list[str]) -> Iterator[_Unit]:
    """What a harness is given, and of what. Nothing takes the place of a file that is there."""
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
    if folders.is_mark(path):
        notes.append(f"{path}: a checkout's own mark has that name; it stays in the space alone")
        return _Unit({path: content}, {})
    same = _Unit({path: content}, {path: content})
    skills = _SKILLS.get(harness)
    if skills is not None and _SKILL.fullmatch(path):
        return _Unit({path: content}, {skills + path.removeprefix("skills/"): content})
    named = _SUBAGENT.fullmatch(path)
    if named is not None and isinstance(content, bytes) and harness is not Harness.AGENTS_MD:
        return _subagent_unit(path, named[1], content, harness, notes) or same
    in_folder = _SUBAGENT_FOLDER.fullmatch(path)
    if in_folder is not None and harness in _SUBAGENTS:
        subagent = _in_folder(space, in_folder[1])
        if subagent is not None:
            return _folder_unit(space, subagent, harness, notes) if path.endswith(".json") else None
    if harness is Harness.CLAUDE_CODE and path.rpartition("/")[2] in {AGENTS, CLAUDE}:
        return _claude_unit(space, path, content)
    return same


def _in_folder(space: Tree, name: str) -> Subagent | None:
    """A subagent that has a folder, in deepagents' form."""
    agent = space.get(f"subagents/{name}/agent.json")
    instructions = space.get(f"subagents/{name}/{AGENTS}")
    if not isinstance(agent, bytes) or not isinstance(instructions, bytes):
        return None
    return subagent_forms.from_deepagents(name, agent, instructions)


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
    """A subagent in the form of a harness that has one file for each."""
    said: list[str] = []
    match harness:
        case Harness.OPENCODE:
            said, text = subagent_forms.opencode(subagent)
        case Harness.CODEX:
            said, text = subagent_forms.codex(subagent)
        case _:
            text = subagent_forms.claude_code(subagent)
    notes += [f"{path}: {each}" for each in said]
    where, suffix = _SUBAGENTS[harness]
    return {f"{where}{subagent.name}{suffix}": text}


def _subagent_unit(
    path: str, stem: str, content: bytes, harness: Harness, notes: list[str]
) -> _Unit | None:
    """A subagent in the harness's form; None where the file is none in Claude Code's form."""
    if harness is Harness.CLAUDE_CODE:
        return _Unit({path: content}, {f".claude/agents/{stem}.md": content})
    subagent = subagent_forms.read(path, content)
    if subagent is None:
        notes.append(
            f"{path} is no subagent and stays as it is: 'hansard memory validate' says why"
        )
        return None
    if harness is not Harness.DEEPAGENTS:
        return _Unit({path: content}, _formed(path, subagent, harness, notes))
    said, agent, instructions = subagent_forms.deepagents(subagent)
    notes += [f"{path}: {each}" for each in said]
    folder = f"subagents/{subagent.name}"
    made: dict[str, bytes | Link] = {
        f"{folder}/agent.json": agent,
        f"{folder}/{AGENTS}": instructions,
    }
    return _Unit({path: content}, made)


def _claude_unit(space: Tree, path: str, content: bytes | Link) -> _Unit | None:
    """Claude Code reads CLAUDE.md: a folder that has one of the two has the other as a link."""
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
    """What a harness needs beside, and a space does not."""
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
    """Where a harness is told of MCP servers, and of their tools where it can be."""
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
    """What a file of a harness's folder is in a space; itself, if there is no exact way back."""
    content = rest[path]
    same: dict[str, bytes | Link] = {path: content}
    skills = _SKILLS.get(harness)
    if skills is not None and path.startswith(skills):
        new = f"skills/{path.removeprefix(skills)}"
        return same if new in folder or not _SKILL.fullmatch(new) else {new: content}
    if harness is Harness.CLAUDE_CODE and path.rpartition("/")[2] == CLAUDE:
        other = posixpath.join(posixpath.dirname(path), AGENTS)
        if other not in folder:
            return {path: content, other: Link(CLAUDE)}
        return {} if content == Link(AGENTS) else same
    where, suffix = _SUBAGENTS.get(harness, ("", ""))
    stem = path.removeprefix(where).removesuffix(suffix)
    if not where or path != f"{where}{stem}{suffix}" or "/" in stem:
        return same
    new = f"subagents/{stem}.md"
    back = _subagent_back(stem, content, harness)
    return same if back is None or new in folder else {new: back}


def _subagent_back(stem: str, content: bytes | Link, harness: Harness) -> bytes | Link | None:
    if harness is Harness.CLAUDE_CODE:
        return content
    if isinstance(content, Link):
        return None
    is_codex = harness is Harness.CODEX
    read = subagent_forms.from_codex if is_codex else subagent_forms.from_opencode
    write = subagent_forms.codex if is_codex else subagent_forms.opencode
    subagent: Subagent | None = read(stem, content)
    if subagent is None or write(subagent)[1] != content:
        return None
    return subagent_forms.claude_code(subagent)
