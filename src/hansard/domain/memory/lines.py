"""The texts of files: changed lines between two texts, the version that added each line, and the
text after a file's changes.

Lines are compared by `difflib`, whose blocks are mostly, but not always, those of git.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, TypeVar

import msgspec

from hansard.domain import payload
from hansard.domain.errors import Corrupt
from hansard.domain.memory.files import FileChange, FileOp, digest_of

COMPARED_MAX = 9_000_000
"""Largest product of both sides' numbers of lines, between the first and the last difference, that
is compared (3,000 lines with 3,000: about a second at worst, since difflib takes quadratic time).
Above it all lines between are one changed block."""

Mark = TypeVar("Mark")


class Block(msgspec.Struct, frozen=True):
    """Lines `start` to `end` of the earlier text became `new_start` to `new_end` of the later; from
    0, ends excluded.
    """

    start: int
    end: int
    new_start: int
    new_end: int


def split(text: str) -> list[str]:
    """Split a text into lines, each with its newline; a rest without one is a line, too."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def diff(before: Sequence[str], after: Sequence[str]) -> list[Block]:
    """Return the changed blocks of lines, in order; none touch each other."""
    shared = min(len(before), len(after))
    head = next((at for at in range(shared) if before[at] != after[at]), shared)
    most = shared - head
    tail = next((at for at in range(most) if before[-1 - at] != after[-1 - at]), most)
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if len(old) * len(new) > COMPARED_MAX:
        return [Block(head, head + len(old), head, head + len(new))]
    return [
        Block(head + start, head + end, head + new_start, head + new_end)
        for kind, start, end, new_start, new_end in SequenceMatcher(None, old, new).get_opcodes()
        if kind != "equal"
    ]


def blame(versions: Iterable[tuple[Mark, str]]) -> list[tuple[Mark, str]]:
    """Return the lines of the newest version, each with the mark of the version that added it;
    versions are given oldest first.
    """
    marks: list[Mark] = []
    before: list[str] = []
    for mark, text in versions:
        after = split(text)
        new_marks: list[Mark] = []
        done = 0
        for block in diff(before, after):
            new_marks += marks[done : block.start]
            new_marks += [mark] * (block.new_end - block.new_start)
            done = block.end
        marks, before = [*new_marks, *marks[done:]], after
    return list(zip(marks, before, strict=True))


def merged(base: str, one: str, other: str) -> str | None:
    """Return a text with the changes from `base` to `one` and to `other`, by lines; None where both
    changed the same lines, or inserted at the same place, differently.
    """
    old, mine, theirs = split(base), split(one), split(other)
    blocks = sorted(
        [
            *(
                (block.start, block.end, mine[block.new_start : block.new_end])
                for block in diff(old, mine)
            ),
            *(
                (block.start, block.end, theirs[block.new_start : block.new_end])
                for block in diff(old, theirs)
            ),
        ],
        key=lambda block: (block[0], block[1]),
    )
    result: list[str] = []
    at = 0
    before: tuple[int, int, list[str]] | None = None
    for block in blocks:
        start, end, new = block
        if block == before:  # both did the same
            continue
        if start < at or (before is not None and start == end == before[0] == before[1]):
            return None
        result += [*old[at:start], *new]
        at, before = end, block
    return "".join([*result, *old[at:]])


CONTEXT = 3
"""Unchanged lines shown around a change."""


def unified(path: str, before: str | None, after: str | None, was: str = "") -> str:
    """Return the unified diff of a file; None: the file does not exist. Empty where nothing
    changed.
    """
    old, new = split(before or ""), split(after or "")
    blocks = diff(old, new)
    if before is not None and after is not None and not blocks and not was:
        return ""
    heads = [
        f"--- {quoted(f'a/{was or path}', end=True) if before is not None else '/dev/null'}\n",
        f"+++ {quoted(f'b/{path}', end=True) if after is not None else '/dev/null'}\n",
    ]
    return "".join(
        [*heads, *(line for group in _groups(blocks) for line in _hunk(old, new, group))]
    )


def quoted(name: str, *, end: bool = False) -> str:
    """Return a file's name as a header of git's format has it; `end`: up to the end of its line."""
    if '"' in name:
        name = '"{}"'.format(name.replace('"', '\\"'))
    return f"{name}\t" if end and " " in name else name


def _groups(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Yield groups of blocks that share a hunk, since the lines around them touch."""
    group: list[Block] = []
    for block in blocks:
        if group and block.start - group[-1].end > 2 * CONTEXT:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _hunk(old: Sequence[str], new: Sequence[str], group: Sequence[Block]) -> Iterator[str]:
    first, last = group[0], group[-1]
    begin, end = max(first.start - CONTEXT, 0), min(last.end + CONTEXT, len(old))
    new_begin = first.new_start - (first.start - begin)
    new_end = last.new_end + (end - last.end)
    yield f"@@ -{_range(begin, end)} +{_range(new_begin, new_end)} @@\n"
    at = begin
    for block in group:
        yield from map(_context, old[at : block.start])
        yield from (_line("-", line) for line in old[block.start : block.end])
        yield from (_line("+", line) for line in new[block.new_start : block.new_end])
        at = block.end
    yield from map(_context, old[at:end])


def _context(line: str) -> str:
    return _line(" ", line)


def _line(mark: str, line: str) -> str:
    return (
        f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
    )


def _range(begin: int, end: int) -> str:
    count = end - begin
    start = begin + 1 if count else begin
    return f"{start}" if count == 1 else f"{start},{count}"


Edit = list[tuple[int, int, str]]
"""A list of `[at, count, text]` in ascending order: from character `at` (a Unicode code point, from
0) of the earlier text, `count` characters became `text`. It is computed by lines (`diff`) and
narrowed to characters, so that it holds the change and not the file."""


def between(before: str, after: str) -> Edit:
    """Return the edit that makes `after` of `before`; empty where they are equal.

    The cost is that of the change, and of one comparison of the texts: only the lines between the
    first and the last difference are examined.
    """
    head, tail = _ends(before, after)
    old = split(before[head : len(before) - tail])
    new = split(after[head : len(after) - tail])
    starts = [head]
    for line in old:
        starts.append(starts[-1] + len(line))
    edit: Edit = []
    for block in diff(old, new):
        gone = "".join(old[block.start : block.end])
        outcome = "".join(new[block.new_start : block.new_end])
        edit.append(_narrowed(starts[block.start], gone, outcome))
    return edit


def _ends(before: str, after: str) -> tuple[int, int]:
    """Return the lengths of the common beginning and end of two texts, in whole lines."""
    most = min(len(before), len(after))
    head = _shared(before, after, most)
    if head < max(len(before), len(after)):
        head = before.rfind("\n", 0, head) + 1
    tail = _shared(before[::-1], after[::-1], most - head)
    begin = before.find("\n", len(before) - tail) + 1
    return head, len(before) - begin if begin else 0


def _narrowed(at: int, gone: str, changed: str) -> tuple[int, int, str]:
    """Return a replaced part without the common beginning and end of both sides."""
    most = min(len(gone), len(changed))
    head = _shared(gone, changed, most)
    tail = _shared(gone[::-1], changed[::-1], most - head)
    return at + head, len(gone) - head - tail, changed[head : len(changed) - tail]


def _shared(one: str, other: str, most: int) -> int:
    """Return the length of the common beginning of two texts, up to a bound; by bisection."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def applied(before: str, edit: Any, where: str) -> str:
    """Return the text after an edit; `where` is for the error. Raises Corrupt."""
    parts: list[str] = []
    done = 0
    for part in edit if isinstance(edit, list) else [edit]:
        match part:
            case [int(at), int(count), str(text)] if done <= at <= at + count <= len(before):
                parts += (before[done:at], text)
                done = at + count
            case _:
                raise Corrupt(where, f"its edit {part!r:.80} does not fit what it edits")
    return "".join([*parts, before[done:]])


def line_end(text: str) -> str:
    r"""Return the line end of a text: `\r\n` where it ends all of its lines, else `\n`."""
    ends = text.count("\n")
    return "\r\n" if ends and text.count("\r\n") == ends else "\n"


def with_line_end(text: str, end: str) -> str:
    r"""Return a text with other line ends; unchanged where that is `\n`."""
    return re.sub("\r?\n", end, text) if end != "\n" else text


def occurrences(text: str, old: str) -> list[tuple[int, int]]:
    r"""Return the occurrences of a part in a text, as begins and ends.

    Where the part does not occur as given, it is searched for with other line ends: models write a
    part of a `\r\n` file with `\n`.
    """
    places = [(each.start(), each.end()) for each in re.finditer(re.escape(old), text)]
    if places or "\n" not in old:
        return places
    pieces = [re.escape(piece) for piece in re.split("\r?\n", old)]
    return [(each.start(), each.end()) for each in re.finditer("\r?\n".join(pieces), text)]


def replaced(text: str, places: list[tuple[int, int]], new: str) -> str:
    """Return a text with other text at some places, in its own line ends."""
    new = with_line_end(new, line_end(text))
    parts, done = [], 0
    for begin, end in places:
        parts += [text[done:begin], new]
        done = end
    return "".join([*parts, text[done:]])


class Unfetched(Exception):
    """A text needs blobs that were not fetched yet. Never leaves the package that folds memory."""

    def __init__(self, text: FileText) -> None:
        super().__init__(text.where)
        self.text = text


Trail = tuple[int, "Trail"] | None
"""A linked list of versions, newest first: a change adds one in constant time."""


class FileText(msgspec.Struct, eq=False):
    """A file's text, derived from its changes and checked by its digest on first use.

    Attributes:
        known: The text; None until it is used.
        change: The latest change; None for a text that is not folded.
        before: The text that the change edits; None where the change has the whole text.
        depth: The number of changes since the last known text.
        trail: The versions that changed it since it was created, newest first.
        unread: The space and path of a text whose changes are not read yet; None if they are.
    """

    known: str | None = None
    change: FileChange | None = None
    before: FileText | None = None
    depth: int = 0
    trail: Trail = None
    unread: tuple[str, str] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileText)  # files of one digest have one text

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"FileText({self.known!r:.80})"

    @classmethod
    def after(cls, change: FileChange, before: FileText | None, version: int = 0) -> FileText:
        """Return the text of a file after a change at a version of its space."""
        base = None if change.op is FileOp.CREATED else before
        depth = 1 + (base.depth if base is not None and base.known is None else 0)
        trail = (version, base.trail if base is not None else None)
        return cls(change=change, before=base, depth=depth, trail=trail)

    @property
    def versions(self) -> Iterator[int]:
        """The versions that changed it since it was created, the newest first."""
        at = self.trail
        while at is not None:
            version, at = at
            yield version

    @property
    def to_read(self) -> FileText | None:
        """The text it is derived from whose changes are not read yet; None for none."""
        chain = self._underived()
        return chain[-1] if chain and chain[-1].unread is not None else None

    def read(self, path: str, changes: Mapping[tuple[int, str], FileChange]) -> None:
        """Set its changes, from those by version and path. Raises Corrupt where one is missing."""
        own: list[FileChange] = []
        for version in self.versions:
            if (version, path) not in changes:
                raise Corrupt(f"file {path!r:.80}", f"version {version} does not change it")
            own.append(changes[version, path])
            path = own[-1].was or path
        made = FileText()
        for change in reversed(own):
            made = FileText.after(change, made)
        self.change, self.before, self.depth = made.change, made.before, made.depth
        self.unread = None

    @property
    def where(self) -> str:
        """The name of the file, for errors."""
        return f"file {self.change.path if self.change is not None else ''!r:.80}"

    def blobs(self) -> Iterator[tuple[str, int]]:
        """Yield the hash and size of each blob that is needed to derive it."""
        for each in self._underived():
            if each.change is not None:
                yield from payload.blobs_named(bytes(each.change.edit))

    def text(self, fetched: Mapping[str, bytes] | None = None) -> str:
        """Return the text. Raises Unfetched where a blob is not among the fetched ones, Corrupt
        where its changes do not result in the recorded digest.
        """
        if self.known is not None:
            return self.known
        chain = self._underived()
        if chain[-1].unread is not None:
            raise Unfetched(self)
        before = chain[-1].before
        result = before.known or "" if before is not None else ""
        for each in reversed(chain):
            if each.change is not None:
                result = _result(each.change, result, self._edit(each.change, fetched or {}))
        change = self.change
        if change is not None and digest_of(result, change.form) != change.after:
            raise Corrupt(self.where, "its edits do not result in the digest on record")
        if change is not None and change.binary and not _is_base64(result):
            raise Corrupt(self.where, "its content is no base64")
        self.known, self.change, self.before, self.depth = result, None, None, 0
        return result

    def _underived(self) -> list[FileText]:
        """Return this text and those before it up to a known one, the newest first."""
        texts = [self] if self.known is None else []
        while texts and (before := texts[-1].before) is not None and before.known is None:
            texts.append(before)
        return texts

    def _edit(self, change: FileChange, fetched: Mapping[str, bytes]) -> Any:
        try:
            return _edit_in(change, fetched)
        except KeyError:
            raise Unfetched(self) from None


def _edit_in(change: FileChange, fetched: Mapping[str, bytes]) -> Any:
    return payload.run_fetch(payload.unpack(change.edit), lambda sha256, _: fetched[sha256])


def in_full(change: FileChange, fetched: Mapping[str, bytes]) -> FileChange:
    """Return a change with its edit in full, from blobs that were fetched."""
    edit = msgspec.Raw(msgspec.json.encode(_edit_in(change, fetched)))
    return msgspec.structs.replace(change, edit=edit)


def _result(change: FileChange, before: str, edit: Any) -> str:
    """Return the text of a file after a resolved edit of a text. Raises Corrupt where it does not
    fit.
    """
    where = f"file {change.path!r:.80}"
    if change.op is FileOp.CREATED:
        if not isinstance(edit, str):
            raise Corrupt(where, f"its text is {edit!r:.40}")
        return edit
    return before if edit is None else applied(before, edit, where)


def size_after(change: FileChange, before: int) -> int:
    """Return the largest possible size of a text after a change, without the text itself: a text in
    a blob counts by the bytes of its JSON.
    """
    size = sum(each for _, each in payload.blobs_named(bytes(change.edit)))
    if change.op is FileOp.CREATED:
        return size or len(bytes(change.edit))
    if size:
        return before + size
    match msgspec.json.decode(change.edit):
        case list(parts):
            return before + sum(_growth(part) for part in parts)
        case _:
            return before


def _growth(part: Any) -> int:
    match part:
        case [int(_), int(count), str(text)]:
            return len(text) - count
        case _:
            return 0


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
