"""Files of instructions (AGENTS.md, CLAUDE.md): how long they are, and what they import.

An import is `@path` in the text, outside code, relative to the file that it stands in, as Claude
Code reads it. What names no file of the tree is no import: people and packages are written so, too.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections import deque
from collections.abc import Collection, Iterator

from hansard.agents.memory.validation import texts
from hansard.agents.memory.validation.trees import Link, Tree, library, shown
from hansard.domain.memory.events import Problem

FILES = ("AGENTS.md", "CLAUDE.md")
BYTES_MAX = 1 << 16
"""Loaded at each start, before any work. Codex stops reading at 32 KiB; the longest of the 67 real
files that this was tried on has 23 KB.
"""

_IMPORT = re.compile(r"(?<!\S)@(\S+)")
_ENDS = ".,;:!?)]}'\""
_CACHED = 4_096

Edge = tuple[str, int, str]
"""A file, the line in it, and the file that it imports there."""


def is_instructions(path: str) -> bool:
    """Whether a file is loaded as instructions."""
    return path.rpartition("/")[2] in FILES


def size_problems(path: str, content: bytes) -> list[Problem]:
    """Whether instructions are too long."""
    if len(content) <= BYTES_MAX:
        return []
    return [
        Problem(
            path,
            content.count(b"\n", 0, BYTES_MAX) + 1,
            "instructions.size",
            f"{len(content):,} bytes",
            f"at most {BYTES_MAX:,} bytes: move what is seldom needed to a skill",
        )
    ]


def import_problems(tree: Tree, changed: Collection[str]) -> list[Problem]:
    """Imports that lead out of the tree, and those that close a circle; nothing where none of the
    changed files imports any.
    """
    if not any(_imports_of(tree, path) for path in changed):
        return []
    edges: list[Edge] = []
    found: list[Problem] = []
    waiting = deque(sorted(filter(is_instructions, tree)))
    seen = set(waiting)
    while waiting:
        path = waiting.popleft()
        for line, said in _imports_of(tree, path):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), said))
            if said.startswith("~") or (target.startswith("..") and not said.startswith("/")):
                found.append(
                    Problem(path, line, "import.outside", shown(f"@{said}"), "a file of this tree")
                )
            elif target in tree:
                edges.append((path, line, target))
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
    return found + [
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
    text = texts.read("", content)
    if isinstance(text, Problem) or not _IMPORT.search(text):
        return ()
    parser = library("markdown_it").MarkdownIt("commonmark")
    found: list[tuple[int, str]] = []
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
                found += [(line, said[1].rstrip(_ENDS)) for said in _IMPORT.finditer(part.content)]
    return tuple((line, said) for line, said in found if said)


def _on_circles(edges: list[Edge]) -> Iterator[Edge]:
    """The imports that lead back to where they stand: both ends are in one component (Kosaraju)."""
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
    """All files, each after those that it leads to."""
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
