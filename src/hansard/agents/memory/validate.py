"""Validation of a tree of memory files before it is committed: each file, and the files together.

Pure.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import cast

from hansard.agents.memory import formats
from hansard.agents.memory.formats import (
    SKILL,
    Link,
    SpaceTree,
    Tree,
    library,
    shorten,
    skill_problems,
    subagent_problems,
    text_in,
)
from hansard.domain.errors import BadValue
from hansard.domain.memory import paths
from hansard.domain.memory.events import Problem
from hansard.domain.memory.space import FILES_MAX, MemoryState

FILES = ("AGENTS.md", "CLAUDE.md")
BYTES_MAX = 1 << 16
"""Most bytes of instructions, which are loaded at each start. Codex stops reading at 32 KiB; the
longest of 67 real files tried had 23 KB.
"""

_IMPORT = re.compile(r"(?<!\S)@(\S+)")
_ENDS = ".,;:!?)]}'\""
_CACHED = 4_096

Edge = tuple[str, int, str]
"""A file, the line in it, and the file that it imports there."""


def is_instructions(path: str) -> bool:
    """Return whether a file is loaded as instructions."""
    return path.rpartition("/")[2] in FILES


def size_problems(path: str, content: bytes) -> list[Problem]:
    """Return a problem if instructions are too long."""
    if len(content) <= BYTES_MAX:
        return []
    return [
        Problem(
            path,
            content.count(b"\n", 0, BYTES_MAX) + 1,
            "instructions.size",
            f"{len(content):,} bytes",
            f"at most {BYTES_MAX:,} bytes: move rarely needed parts to a skill",
        )
    ]


def import_problems(tree: Tree, changed: Collection[str]) -> list[Problem]:
    """Return problems of imports that lead out of the tree or form a cycle; none if no changed file
    imports any.
    """
    if not any(_imports_of(tree, path) for path in changed):
        return []
    edges: list[Edge] = []
    problems_found: list[Problem] = []
    waiting = deque(sorted(filter(is_instructions, tree)))
    seen = set(waiting)
    while waiting:
        path = waiting.popleft()
        for line, each_text in _imports_of(tree, path):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), each_text))
            if each_text.startswith("~") or (
                target.startswith("..") and not each_text.startswith("/")
            ):
                problems_found.append(
                    Problem(
                        path,
                        line,
                        "import.outside",
                        shorten(f"@{each_text}"),
                        "a file of this tree",
                    )
                )
            elif target in tree:
                edges.append((path, line, target))
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
    return problems_found + [
        Problem(path, line, "import.circle", f"@{target}", "no import of what imports this file")
        for path, line, target in _on_circles(edges)
    ]


def _imports_of(tree: Tree, path: str) -> tuple[tuple[int, str], ...]:
    content = tree.get(path)
    if content is None or isinstance(content, Link) or b"@" not in content:
        return ()
    return _imports(content) if len(content) <= BYTES_MAX else ()


@functools.lru_cache(_CACHED)
def _imports(content: bytes) -> tuple[tuple[int, str], ...]:
    text = text_in("", content)
    if isinstance(text, Problem) or not _IMPORT.search(text):
        return ()
    parser = library("markdown_it").MarkdownIt("commonmark")
    imports: list[tuple[int, str]] = []
    for block in parser.parse(text):
        if block.type != "inline" or not block.map:
            continue
        line = block.map[0] + 1
        for part in block.children or ():
            if part.type in {"softbreak", "hardbreak"}:
                line += 1
            elif part.type == "code_inline":
                line += part.content.count("\n")
            elif part.type == "text":
                imports += [
                    (line, parts[1].rstrip(_ENDS)) for parts in _IMPORT.finditer(part.content)
                ]
    return tuple((line, parts) for line, parts in imports if parts)


def _on_circles(edges: list[Edge]) -> Iterator[Edge]:
    """Yield the imports on cycles: both ends are in one component (Kosaraju)."""
    forward: dict[str, list[str]] = {}
    backward: dict[str, list[str]] = {}
    for path, _, target in edges:
        forward.setdefault(path, []).append(target)
        backward.setdefault(target, []).append(path)
    component: dict[str, int] = {}
    for number, path in enumerate(reversed(_left_in_order(forward))):
        waiting = [path]
        while waiting:
            at = waiting.pop()
            if at not in component:
                component[at] = number
                waiting += backward.get(at, ())
    for path, line, target in edges:
        if component[path] == component[target]:
            yield path, line, target


def _left_in_order(forward: dict[str, list[str]]) -> list[str]:
    """Return all files, each after those that it leads to."""
    order: list[str] = []
    seen: set[str] = set()
    for root, targets in forward.items():
        if root in seen:
            continue
        seen.add(root)
        waiting = [(root, iter(targets))]
        while waiting:
            path, onward = waiting[-1]
            further = next((at for at in onward if at not in seen), None)
            if further is None:
                order.append(path)
                waiting.pop()
            else:
                seen.add(further)
                waiting.append((further, iter(forward.get(further, ()))))
    return order


_SUBAGENT = re.compile(r"(.*/)?(subagents|\.claude/agents)/[^/]+\.md")
_SUBAGENT_FOLDER = re.compile(r"(.*/)?subagents/[^/]+/agent\.json")
_AGENT_FOLDER = "agent.json"

WARNINGS = frozenset({"skill.field", "subagent.field"})
"""Rules that refuse no file: a field that the format does not name belongs to another harness."""


UNREADABLE = frozenset({"file.size", "file.binary", "file.encoding", "path", "path.form"})
"""Rules that always refuse a file: it cannot be stored, or not be read by its consumers."""


def faults(all_problems: Iterable[Problem], *, keep: bool = False) -> list[Problem]:
    """Return the problems of each file that has one that refuses it. `keep`: only unreadable files
    are refused.
    """
    all_problems = list(all_problems)
    paths_refused = {
        each.path
        for each in all_problems
        if (each.rule in UNREADABLE if keep else each.rule not in WARNINGS)
    }
    return [each for each in all_problems if each.path in paths_refused]


def problems(
    tree: Tree,
    *,
    only: Collection[str] | None = None,
    offered: Mapping[str, Collection[str]] | None = None,
) -> list[Problem]:
    """Return the problems of a tree, ordered by path and line; empty if it is valid.

    Args:
        tree: Content at each path.
        only: Changed files; others are not checked by themselves. None checks all.
        offered: Recorded tools of each MCP server, by its address or its name.

    Raises ExtraMissing if the extra `hansard[memory]` is not installed.
    """
    if len(tree) > FILES_MAX:
        actual = f"{len(tree):,} files"
        return [Problem(".", 0, "tree.size", actual, f"at most {FILES_MAX:,} files")]
    changed = list(tree) if only is None else [path for path in only if path in tree]
    links = {path: each.target for path, each in tree.items() if isinstance(each, Link)}
    names = paths.Names(tree)
    listed = _problems(tree, changed, links, names, offered)
    twins = _twins(tree, set(changed)) if names.has_twins(tree) else ()
    return sorted([*listed, *twins])


def problems_of_change(
    state: MemoryState,
    changed: Collection[str],
    offered: Mapping[str, Collection[str]] | None = None,
    *,
    keep: bool = False,
) -> list[Problem]:
    """Return the faults of the changed files of a space, and of its links. The cost does not depend
    on the other files unless a changed file of instructions has imports: the domain has already
    checked that all paths are compatible. Otherwise as `problems`.
    """
    tree = SpaceTree(state.files)
    names: Container[str] = state.names if state.links else ()
    listed = _problems(tree, changed, state.links, names, offered)
    return faults(sorted(listed), keep=keep)


def _problems(
    tree: Tree,
    changed: Collection[str],
    links: Mapping[str, str],
    names: Container[str],
    offered: Mapping[str, Collection[str]] | None,
) -> list[Problem]:
    """Return the problems of changed files by themselves, and of all links."""
    problems_found: list[Problem] = []
    for path, to in links.items():  # the target of a link may have changed
        problems_found += _link_problems(path, to, links, names)
    for path in changed:
        if bad := list(_path_problems(path)):
            problems_found += bad
        elif path not in links:
            problems_found += _file_problems(path, cast("bytes", tree[path]), offered)
    return problems_found + import_problems(tree, changed)


def _file_problems(
    path: str, content: bytes, offered: Mapping[str, Collection[str]] | None
) -> list[Problem]:
    name = path.rpartition("/")[2]
    text = text_in(path, content)
    if isinstance(text, Problem):
        return [text] if _is_read(path, name) else []
    if name.lower() == SKILL.lower():
        return skill_problems(path, text)
    if name == "tools.json":
        return formats.tools_problems(path, text, offered)
    if path == _AGENT_FOLDER or _SUBAGENT_FOLDER.fullmatch(path):
        return formats.agent_problems(path, text, named=path == _AGENT_FOLDER)
    if _SUBAGENT.fullmatch(path):
        return subagent_problems(path, text)
    if is_instructions(path):
        return size_problems(path, content)
    return []


def _is_read(path: str, name: str) -> bool:
    """Return whether a file must be text, because a harness reads it by itself. Others may be
    binary.
    """
    is_agent = path == _AGENT_FOLDER or _SUBAGENT_FOLDER.fullmatch(path) is not None
    return is_agent or name == "tools.json" or name.lower().endswith(".md")


def _path_problems(path: str) -> Iterator[Problem]:
    try:
        normal = paths.normal(path)
    except BadValue as error:
        yield Problem(path, 0, "path", shorten(ascii(path)), error.remedy)
        return
    if normal != path:
        yield Problem(path, 0, "path.form", shorten(path), f"the path as {normal!r}")


def _link_problems(
    path: str, to: str, links: Mapping[str, str], names: Container[str]
) -> Iterator[Problem]:
    try:
        paths.target(path, to)
        at = paths.followed(path, links)
    except BadValue as error:
        yield Problem(path, 0, "link", shorten(to), error.remedy)
        return
    if path == at or path.startswith(f"{at}/"):
        yield Problem(path, 0, "link", shorten(to), "no folder that holds the link")
    elif at not in names:
        yield Problem(path, 0, "link.dangling", shorten(to), "a file or folder that is there")


def _twins(tree: Tree, changed: set[str]) -> Iterator[Problem]:
    """Yield problems of paths that cannot be beside another on some machines: a changed one comes
    after those that are there.
    """
    names, files = paths.Names(), set[str]()
    for path in sorted(tree, key=lambda path: (path in changed, path)):
        other, why = names.twin(path, files)
        if other:
            rule = "path.folder" if f"{path}/".startswith(f"{other}/") else "path.twin"
            yield Problem(path, 0, rule, path, f"another name: {other!r} is there, and {why}")
        names.add(path)
        files.add(path)
