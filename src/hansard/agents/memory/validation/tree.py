"""A whole tree of memory files: each by its kind, and how they stand together."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import cast

from hansard.agents.memory.validation import (
    instructions,
    json_files,
    skills,
    subagents,
    texts,
)
from hansard.agents.memory.validation.trees import Link, SpaceTree, Tree, shown
from hansard.domain.errors import BadValue
from hansard.domain.memory import paths
from hansard.domain.memory.events import Problem
from hansard.domain.memory.space import FILES_MAX, MemoryState

_SUBAGENT = re.compile(r"(.*/)?(subagents|\.claude/agents)/[^/]+\.md")
_SUBAGENT_FOLDER = re.compile(r"(.*/)?subagents/[^/]+/agent\.json")
_AGENT_FOLDER = "agent.json"

WARNINGS = frozenset({"skill.field", "subagent.field"})
"""Rules that refuse no file: a field that the format does not name is another harness's."""


UNREADABLE = frozenset({"file.size", "file.binary", "file.encoding", "path", "path.form"})
"""Rules that refuse a file whatever is asked: it cannot be kept, or be read by who needs it."""


def faults(found: Iterable[Problem], *, keep: bool = False) -> list[Problem]:
    """Those of some problems that refuse a file, with all others of that file. `keep`: only what is
    unreadable does.
    """
    found = list(found)
    paths_refused = {
        each.path
        for each in found
        if (each.rule in UNREADABLE if keep else each.rule not in WARNINGS)
    }
    return [each for each in found if each.path in paths_refused]


def problems(
    tree: Tree,
    *,
    only: Collection[str] | None = None,
    offered: Mapping[str, Collection[str]] | None = None,
) -> list[Problem]:
    """What is wrong with a tree, in the order of paths and lines; empty if it is valid.

    Args:
        tree: Each path and what stands there.
        only: The files that changed: the others are not looked at by themselves; all if None.
        offered: The tools of each MCP server, by its address or its name, as they are on record.

    Raises ExtraMissing where the extra `hansard[memory]` is not installed.
    """
    if len(tree) > FILES_MAX:
        stood = f"{len(tree):,} files"
        return [Problem(".", 0, "tree.size", stood, f"at most {FILES_MAX:,} files")]
    changed = list(tree) if only is None else [path for path in only if path in tree]
    links = {path: each.target for path, each in tree.items() if isinstance(each, Link)}
    found = _problems(tree, changed, links, paths.Names(tree), offered)
    return sorted([*found, *_twins(tree, set(changed))])


def problems_of_change(
    state: MemoryState,
    changed: Collection[str],
    offered: Mapping[str, Collection[str]] | None = None,
) -> list[Problem]:
    """The faults of the changed files of a space, and of its links. The cost does not depend on
    the other files, unless a changed file of instructions imports some: the domain has checked
    that all paths can stand beside one another. Else as `problems`.
    """
    tree = SpaceTree(state.files)
    return faults(sorted(_problems(tree, changed, state.links, state.names, offered)))


def _problems(
    tree: Tree,
    changed: Collection[str],
    links: Mapping[str, str],
    names: Container[str],
    offered: Mapping[str, Collection[str]] | None,
) -> list[Problem]:
    """What is wrong with changed files by themselves, and with all links."""
    found: list[Problem] = []
    for path, to in links.items():  # what a link leads to may be what changed
        found += _link_problems(path, to, links, names)
    for path in changed:
        if bad := list(_path_problems(path)):
            found += bad
        elif path not in links:
            found += _file_problems(path, cast("bytes", tree[path]), offered)
    return found + instructions.import_problems(tree, changed)


def _file_problems(
    path: str, content: bytes, offered: Mapping[str, Collection[str]] | None
) -> list[Problem]:
    name = path.rpartition("/")[2]
    text = texts.read(path, content)
    if isinstance(text, Problem):
        return [text] if _is_read(path, name) else []
    if name.lower() == skills.FILE.lower():
        return skills.problems(path, text)
    if name == "tools.json":
        return json_files.tools_problems(path, text, offered)
    if path == _AGENT_FOLDER or _SUBAGENT_FOLDER.fullmatch(path):
        return json_files.agent_problems(path, text, named=path == _AGENT_FOLDER)
    if _SUBAGENT.fullmatch(path):
        return subagents.problems(path, text)
    if instructions.is_instructions(path):
        return instructions.size_problems(path, content)
    return []


def _is_read(path: str, name: str) -> bool:
    """Whether a file must be text: what a harness reads by itself. Others may be binary."""
    is_agent = path == _AGENT_FOLDER or _SUBAGENT_FOLDER.fullmatch(path) is not None
    return is_agent or name == "tools.json" or name.lower().endswith(".md")


def _path_problems(path: str) -> Iterator[Problem]:
    try:
        normal = paths.normal(path)
    except BadValue as error:
        yield Problem(path, 0, "path", shown(ascii(path)), error.remedy)
        return
    if normal != path:
        yield Problem(path, 0, "path.form", shown(path), f"the path as {normal!r}")


def _link_problems(
    path: str, to: str, links: Mapping[str, str], names: Container[str]
) -> Iterator[Problem]:
    try:
        paths.target(path, to)
        at = paths.followed(path, links)
    except BadValue as error:
        yield Problem(path, 0, "link", shown(to), error.remedy)
        return
    if path == at or path.startswith(f"{at}/"):
        yield Problem(path, 0, "link", shown(to), "no folder that holds the link")
    elif at not in names:
        yield Problem(path, 0, "link.dangling", shown(to), "a file or folder that is there")


def _twins(tree: Tree, changed: set[str]) -> Iterator[Problem]:
    """Paths that are one on some machines, and files where a folder stands."""
    folded: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in sorted(tree, key=lambda path: (path in changed, path)):
        folded_path = path.casefold()
        twin = folded.setdefault(folded_path, path)
        if twin != path:
            yield Problem(path, 0, "path.twin", path, f"a name that is not {twin!r} in other case")
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            twin = folders.setdefault(folder.casefold(), folder)
            if twin != folder:
                yield Problem(
                    path, 0, "path.twin", folder, f"a folder that is not {twin!r} in other case"
                )
    for folded_path in folded.keys() & folders.keys():
        path = folded[folded_path]
        yield Problem(path, 0, "path.folder", path, "a name that no folder has")
