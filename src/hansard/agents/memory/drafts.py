"""Operations on files, applied in order to the current files and combined into one change.

An operation is a plain object, as a step records it: `{"op": "edit", "path": ..., "old": ...,
"new": ...}`. Each operation of a change is applied to the result of the previous one.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

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
from hansard.bus.errors import NotFound
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.domain.memory import files as paths
from hansard.domain.memory import lines, space
from hansard.domain.memory.files import LINK, TEXT, FileChange, FileForm, Problem
from hansard.domain.memory.lines import unified
from hansard.domain.memory.space import FILES_MAX, MemoryConflict, MemoryFile, MemoryState
from hansard.domain.redaction import Redaction

# Validation of a tree of memory files before it is committed: each file, and the files together.
#
# Pure.

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


Op = dict[str, Any]
"""An operation: `op`, `path` and its arguments."""

DIFF_CHARACTERS_MAX = 40_000
"""Most characters of a diff in a question; the whole text is recorded beside it."""

_REMEMBER = re.compile(r"\s*/remember\s+(\S[\s\S]{0,2000})")

SEE_LS = "see ls() for the files that there are"


def create(path: object, text: object, *, link: bool = False) -> Op:
    """Create a file or replace its text."""
    named = paths.normal(path)
    return {"op": "create", "path": named, "text": space.text_of(named, text)} | (
        {"link": True} if link else {}
    )


def restore(path: str, text: str, form: FileForm) -> Op:
    """Restore the text and form of a file."""
    return {"op": "create", "path": path, "text": text, "form": msgspec.structs.asdict(form)}


def edit(path: object, old: object, new: object) -> Op:
    """Replace a part of a file that occurs exactly once."""
    named = paths.normal(path)
    before, after = space.text_of(named, old), space.text_of(named, new)
    if not before:
        raise BadValue(f"edit of {named!r:.120}", "old is empty", "give the text to replace")
    return {"op": "edit", "path": named, "old": before, "new": after}


def insert(path: object, line: object, text: object) -> Op:
    """Insert a text after a line (0: before the first)."""
    named = paths.normal(path)
    if type(line) is not int or line < 0:
        raise BadValue(f"insert into {named!r:.120}", f"line {line!r:.40}", "give a line, from 0")
    return {"op": "insert", "path": named, "line": line, "text": space.text_of(named, text)}


def append(path: object, text: object) -> Op:
    """Append a line to a file, which is created if missing."""
    named = paths.normal(path)
    return {"op": "append", "path": named, "text": space.text_of(named, text)}


def remember(path: object, text: object) -> Op:
    """Append an item to a file's list: a text in one paragraph."""
    words = " ".join(space.text_of("text", text).split())
    if not words:
        raise BadValue("remember", "the text is empty", "give the text to remember")
    return append(path, words if words.startswith(("- ", "* ")) else f"- {words}")


def remember_command(text: str) -> str | None:
    """Return the text that a user's message asks to remember, as one line: all after a leading
    `/remember`. None if the message has no such command.
    """
    match = _REMEMBER.match(text)
    return " ".join(match[1].split()) if match is not None else None


def rename(path: object, to: object) -> Op:
    """Move a file."""
    return {"op": "rename", "path": paths.normal(path), "to": paths.normal(to)}


def delete(path: object) -> Op:
    """Delete a file."""
    return {"op": "delete", "path": paths.normal(path)}


def touched_paths(ops: Iterable[Op]) -> dict[str, None]:
    """Return the paths that operations name, in order."""
    return dict.fromkeys(path for op in ops for path in (op["path"], op.get("to")) if path)


class _Item(msgspec.Struct):
    text: str
    form: FileForm
    origin: MemoryFile | None


class FileDraft:
    """Files of a space after some operations."""

    def __init__(self, name: str, state: MemoryState) -> None:
        self._name = name
        self._state = state
        self._items: dict[str, _Item | None] = {}
        """Files in use, with their current content; None for no file."""
        self._touched: dict[str, None] = {}
        self.created: set[str] = set()
        """Paths whose whole text is replaced."""
        self.only_appended: set[str] = set()
        """Paths that only get lines appended, whatever their text."""

    def work(self, ops: Iterable[Op]) -> None:
        """Apply operations. Raises NotFound, BadValue, MemoryConflict."""
        for op in ops:
            self._work(op)

    def _work(self, op: Op) -> None:
        path: str = op["path"]
        match op["op"]:
            case "rename":
                self._rename(path, op["to"])
            case "delete":
                self._item(path)
                self._items[path] = None
                self._touch(path)
            case "create":
                form = FileForm(**op["form"]) if "form" in op else None
                self._create(path, op["text"], LINK if op.get("link") else form)
            case "append":
                at = self._end_of(path)
                before = self._text(at) if self.item(at) is not None else ""
                end = lines.line_end(before)
                joint = "" if not before or before.endswith("\n") else end
                text = lines.with_line_end(op["text"], end)
                line = text if text.endswith("\n") else text + end
                alone = at not in self._touched or at in self.only_appended
                self._put(at, before + joint + line)
                if alone:
                    self.only_appended.add(at)
            case "edit":
                self._edit(self._end_of(path), op["old"], op["new"])
            case "insert":
                self._insert(self._end_of(path), op["line"], op["text"])
            case other:
                raise BadValue("change", f"an operation {other!r:.40}", "use one that there is")

    def _end_of(self, path: str) -> str:
        at_path = self.item(path)
        if at_path is not None and not at_path.form.link:
            return path
        links = dict(self._state.links)
        for at, item in self._items.items():
            links.pop(at, None)
            if item is not None and item.form.link:
                links[at] = item.text
        return paths.followed(path, links)

    def item(self, path: str) -> _Item | None:
        """Return the file at a path after the operations so far; None if there is none."""
        if path not in self._items:
            previous = self._state.files.get(path)
            self._items[path] = (
                _Item(previous.text, previous.form, previous) if previous is not None else None
            )
        return self._items[path]

    def _item(self, path: str) -> _Item:
        item = self.item(path)
        if item is None:
            raise NotFound(f"file {path!r} of {self._name}", SEE_LS)
        return item

    def _text(self, path: str) -> str:
        """Return the text of a file. Raises NotFound, and BadValue for a binary file."""
        item = self._item(path)
        if item.form.binary:
            fact = "it is binary, and has no text to edit"
            raise BadValue(f"file {path!r:.120}", fact, "create it again as a text, or leave it")
        return item.text

    def _create(self, path: str, text: str, form: FileForm | None) -> None:
        """Put a file; without a form it is a text and keeps the executable bit of the previous
        file.
        """
        at = path if form is not None else self._end_of(path)
        item = self.item(at)
        if form is None:
            form = FileForm(executable=item is not None and item.form.executable)
        origin = item.origin if item is not None else None
        if item is None and not self._moved(at):  # deleted and created again: an edit
            origin = self._state.files.get(at)
        self._items[at] = _Item(text, form, origin)
        self._touch(at)
        self.created.add(at)

    def _moved(self, path: str) -> bool:
        """Return whether the stored file of this path has been moved to another path."""
        return any(
            item is not None and item.origin is not None and item.origin.path == path and at != path
            for at, item in self._items.items()
        )

    def _put(self, path: str, text: str) -> None:
        item = self.item(path)
        if item is None:
            self._create(path, text, TEXT)
        else:
            item.text = text
        self._touch(path)

    def _edit(self, path: str, old: str, new: str) -> None:
        text = self._text(path)
        places = lines.occurrences(text, old)
        if len(places) != 1:
            times = f"{counted(len(places), 'time')}" if places else "not at all"
            remedy = "view it and give a part that occurs once"
            raise BadValue(f"edit of {path!r:.120}", f"{old!r:.120} occurs {times}", remedy)
        self._put(path, lines.replaced(text, places, new))

    def _insert(self, path: str, line: int, text: str) -> None:
        whole = self._text(path)
        text_lines, end = lines.split(whole), lines.line_end(whole)
        text = lines.with_line_end(text, end)
        if line > len(text_lines):
            fact = f"it has {counted(len(text_lines), 'line')}, not {line}"
            raise BadValue(f"insert into {path!r:.120}", fact, "view it and give one of its lines")
        if text_lines and line and not text_lines[line - 1].endswith("\n"):
            text_lines[line - 1] += end
        news = text if text.endswith("\n") or line == len(text_lines) else text + end
        self._put(path, "".join([*text_lines[:line], news, *text_lines[line:]]))

    def _rename(self, path: str, to: str) -> None:
        item = self._item(path)
        other = self.item(to)
        if other is not None and to != path:
            raise MemoryConflict(self._name, to, "", item.text, self._state.files.get(to))
        self._items[path] = None
        self._items[to] = item
        self._touch(path)
        self._touch(to)

    def _touch(self, path: str) -> None:
        self._touched[path] = None
        self.only_appended.discard(path)

    def changes(self) -> tuple[FileChange, ...]:
        """Return the combined change of each file."""
        kept = {
            id(item.origin) for item in self._items.values() if item is not None and item.origin
        }
        changes: list[FileChange] = []
        for path in self._touched:
            item, previous = self.item(path), self._state.files.get(path)
            if item is not None:
                change = space.change_of(path, item.origin, item.text, item.form)
            elif previous is not None and id(previous) not in kept:
                change = space.change_of(path, previous, None)
            else:
                continue
            if change is not None:
                changes.append(change)
        return tuple(changes)


def apply_ops(
    name: str, state: MemoryState, ops: Sequence[Op], seen: Mapping[str, str] | None
) -> tuple[FileChange, ...]:
    """Apply operations to the current files and return the resulting change; empty for none.

    seen: the digests of files as their writer read them, by path (empty: no file). Raises
    MemoryConflict if a file's digest differs, or if a file is created over one that its writer
    never read. None skips this check. Appended lines depend on no text, so they commute and are not
    checked. Also raises NotFound and BadValue.
    """
    draft = FileDraft(name, state)
    draft.work(ops)
    changes = draft.changes()
    for change in changes:
        if change.path in draft.only_appended:
            continue
        path = change.was or change.path
        none = "" if change.path in draft.created else None
        expected = seen.get(path, none) if seen is not None else None
        if expected is not None and expected != change.before:
            previous = state.files.get(path)
            raise MemoryConflict(name, change.path, expected, _text(draft, change.path), previous)
    return changes


def _text(draft: FileDraft, path: str) -> str:
    item = draft.item(path)
    return item.text if item is not None else ""


def render_diff(
    state: MemoryState, changes: Iterable[FileChange], redaction: Redaction | None = None
) -> str:
    """Return a change for display: a unified diff without secrets, cut to DIFF_CHARACTERS_MAX."""

    def clean(text: str | None) -> str | None:
        return text if text is None or redaction is None else redaction.text(text)

    parts: list[str] = []
    for change in changes:
        previous = state.files.get(change.was or change.path) if change.before else None
        after = space.text_after(change, previous) if change.after else None
        if after is not None:
            after = space.shown(after, change.form) + "\n" * change.link
        before = previous.shown if previous is not None else None
        parts.append(unified(change.path, clean(before), clean(after), change.was))
    text = "".join(parts)
    more = len(text) - DIFF_CHARACTERS_MAX
    return text if more <= 0 else f"{text[:DIFF_CHARACTERS_MAX]}\n({more:,} characters more)\n"
