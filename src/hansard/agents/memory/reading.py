"""Files of memory as read by people and programs: entries, versions, and the undo of a change."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from string import ascii_letters

import msgspec

from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op
from hansard.bus.errors import NotFound
from hansard.bus.log import utc
from hansard.domain.choices import Brief
from hansard.domain.label import Label, join
from hansard.domain.label import text as label_text
from hansard.domain.memory import space as spaces
from hansard.domain.memory.events import TEXT, FileChange, FileOp, MemoryChanged
from hansard.domain.memory.lines import merged, quoted, unified
from hansard.domain.memory.paths import MemoryKind
from hansard.domain.memory.space import MemoryConflict, MemoryFile, MemoryState
from hansard.state.memories import MemoryEventAt, by_of


class MemoryEntry(Brief, msgspec.Struct, frozen=True):
    """A file of memory as it was read.

    Attributes:
        space: Space of the file: `agent/<name>`, `user/<principal>` or `org`.
        path: Path from the root of the tree; of a link the file that it leads to.
        text: Content.
        digest: Digest of the text.
        version: Version of its space that changed it last.
        kind: Kind of memory: procedural, semantic or episodic.
        author: Author of the last change.
        role: Role of the author, if an agent; empty for a person.
        event: Id of the event that changed it last.
        label: Label of all sources of its text; empty for public and trusted.
        created_at: Creation time, by the log: ISO 8601 in UTC; empty for a file that is derived
            from a run's record when it is read.
        changed_at: Time of the last change, likewise.
        link: True for a symbolic link; its text is then the path that it leads to.
        binary: Size in bytes of a binary file, whose text gives only that size; 0 for a text.
        executable: True if its owner may execute it.
    """

    space: str
    path: str
    text: str
    digest: str
    version: int
    kind: MemoryKind
    author: str
    role: str
    event: str
    label: str = ""
    created_at: str = ""
    changed_at: str = ""
    link: bool = False
    binary: int = 0
    executable: bool = False


class MemoryVersion(Brief, msgspec.Struct, frozen=True):
    """A version of a file.

    Attributes:
        space: Space of the file.
        path: Path at that version.
        version: Version of the space.
        op: Operation: created, edited, renamed or deleted.
        author: Author; of an imported change the author that its source claims.
        at: Time by the log, or as the source of an imported change claims: ISO 8601.
        because: Reason.
        event: Id of the change.
        digest: Digest of its text at that version; empty if it was deleted.
        position: Position of the change in the log.
        sources: Ids of the events that the change rests on.
    """

    space: str
    path: str
    version: int
    op: str
    author: str
    at: str
    because: str
    event: str
    digest: str
    position: int
    sources: tuple[str, ...] = ()


class MemoryNews(Brief, msgspec.Struct, frozen=True):
    """A file of the system prompt that has changed since the prompt was made.

    Attributes:
        file: Space and path: `org/AGENTS.md`.
        what: `new`, `changed` or `gone`.
        author: Author of the change; empty if the file is gone.
    """

    file: str
    what: str
    author: str


def entry_of(space: str, file: MemoryFile) -> MemoryEntry:
    """Return a file in the form that readers get."""
    return MemoryEntry(
        space=space,
        path=file.path,
        text=file.shown,
        digest=file.digest,
        version=file.version,
        kind=file.kind,
        author=file.author,
        role=file.role,
        event=file.event,
        label=label_text(file.label) if file.label is not None else "",
        created_at=utc(file.created).isoformat(),
        changed_at=utc(file.changed).isoformat(),
        link=file.link,
        binary=len(file.content) if file.binary else 0,
        executable=file.executable,
    )


def patch_of(
    path: str, before: MemoryFile | None, after: MemoryFile | None, *, binary: bool = False
) -> str:
    """Return the difference of a file as `git apply` reads it; of a binary one only that there is
    one, unless `binary` is set. Raises Corrupt, Unfetched.
    """
    if (before and before.digest) == (after and after.digest):
        return ""
    if before is not None and after is not None and before.link != after.link:
        return patch_of(path, before, None, binary=binary) + patch_of(
            path, None, after, binary=binary
        )
    one, other = quoted(f"a/{path}"), quoted(f"b/{path}")
    parts = [f"diff --git {one} {other}\n"]
    if before is None or after is None:
        verb, file = ("new", after) if before is None else ("deleted", before)
        parts.append(f"{verb} file mode {_mode(file)}\n")
    elif _mode(before) != _mode(after):
        parts.append(f"old mode {_mode(before)}\nnew mode {_mode(after)}\n")
    contents = [file.content if file is not None else None for file in (before, after)]
    if not any(file is not None and file.binary for file in (before, after)):
        texts = [each.decode() if each is not None else None for each in contents]
        return "".join([*parts, unified(path, texts[0], texts[1]) if any(texts) else ""])
    if contents[0] == contents[1]:
        return "".join(parts)
    if binary:
        index = "..".join(map(_object_id, contents))
        parts += [f"index {index}\nGIT binary patch\n", *_literal(contents[1] or b"")]
    else:
        sides = (one if before is not None else "/dev/null"), (other if after else "/dev/null")
        parts.append(f"Binary files {sides[0]} and {sides[1]} differ\n")
    return "".join(parts)


def _mode(file: MemoryFile | None) -> str:
    if file is not None and file.link:
        return "120000"
    return "100755" if file is not None and file.executable else "100644"


def _object_id(content: bytes | None) -> str:
    """Return git's id of a file's content; zeros for no file."""
    header = b"blob %d\0" % len(content or b"")
    return "0" * 40 if content is None else hashlib.sha1(header + content).hexdigest()  # noqa: S324 -- git's ids are SHA-1


def _literal(content: bytes) -> Iterator[str]:
    """Yield the lines of git's form of binary content: zlib, in base 85, 52 bytes a line."""
    yield f"literal {len(content)}\n"
    packed = zlib.compress(content)
    for at in range(0, len(packed), 52):
        part = packed[at : at + 52]
        length = ascii_letters.swapcase()[len(part) - 1]
        yield f"{length}{base64.b85encode(part, pad=True).decode()}\n"
    yield "\n"


def versions_of(
    space: str, history: Iterable[MemoryEventAt], path: str | None
) -> list[MemoryVersion]:
    """Return the versions of a file across renames, oldest first; those of all files without a
    path.
    """
    versions: list[MemoryVersion] = []
    target = path
    for each in reversed(list(history)):
        if not isinstance(each.event, MemoryChanged):
            continue
        for file in each.event.files:
            if path is not None and file.path != target:
                continue
            versions.append(
                MemoryVersion(
                    space=space,
                    path=file.path,
                    version=each.version,
                    op=file.op.value,
                    author=each.author,
                    at=each.at,
                    because=each.event.because,
                    event=each.id,
                    digest=file.after,
                    position=each.stored.position,
                    sources=each.event.sources,
                )
            )
            if file.was:
                target = file.was
                break
    return versions[::-1]


def files_of(
    history: Iterable[MemoryEventAt], path: str, shown: Sequence[MemoryEventAt] | None = None
) -> list[tuple[MemoryEventAt, MemoryFile | None]]:
    """Return the versions of a file across renames, oldest first, each with the change that made
    it. shown: the changes as the reader may see them; `history` if not given.
    """
    events = list(history)
    fields = {each.id: each for each in (events if shown is None else shown)}
    names: dict[int, str] = {}
    target = path
    for each in reversed(fields.values()):
        if isinstance(each.event, MemoryChanged):
            found = next((file for file in each.event.files if file.path == target), None)
            if found is not None:
                names[each.version] = target
                target = found.was or target
    state, versions = spaces.initial(), list[tuple[MemoryEventAt, MemoryFile | None]]()
    for each in events:
        spaces.evolve(state, each.event, by_of(each.stored, each.id))
        named = names.get(each.version)
        if named is not None:
            versions.append((fields[each.id], state.files.get(named)))
    return versions


class Undo(msgspec.Struct, frozen=True):
    """Inverse of a change of a space.

    Attributes:
        space: Name of the space.
        files: Each changed file before the change (None if the change created it) and after it
            (None if the change deleted it).
    """

    space: str
    files: tuple[tuple[FileChange, MemoryFile | None, MemoryFile | None], ...]

    @property
    def label(self) -> Label | None:
        """Label of all texts that the undo restores. The current files do not suffice: a deleted
        file no longer carries its label.
        """
        return join(
            *(previous.label for _, previous, _ in self.files if previous is not None)
        ).stored

    @property
    def read(self) -> list[MemoryFile | None]:
        """Files whose texts the undo needs."""
        return [file for _, previous, made in self.files for file in (previous, made)]

    def ops(self, state: MemoryState) -> list[Op]:
        """Return the operations that undo the change on the current space. Later changes of other
        lines are kept.

        Raises MemoryConflict if a file has since been changed in the same lines, moved, deleted or
        created again. The error holds the text to restore, so it may only go to readers cleared for
        `label`.
        """
        ops: list[Op] = []
        for file, previous, made in self.files:
            current = state.files.get(file.path)
            text = _without(previous, made, current)
            if text is None and (current is None or current.digest != file.after or previous):
                mine = previous.text if previous is not None else ""
                raise MemoryConflict(self.space, file.path, file.after, mine, current)
            ops += _undone(previous, file.path, text)
        return ops


def undo_of(space: str, history: Sequence[MemoryEventAt], target: str) -> Undo:
    """Return the inverse of a change, named by its version ('@3'), or the id of its event or
    commit. Raises NotFound.
    """
    before = spaces.initial()
    for each in history:
        if target not in (f"@{each.version}", each.id, each.stored.commit.id):
            spaces.evolve(before, each.event, by_of(each.stored, each.id))
            continue
        if not isinstance(each.event, MemoryChanged):
            break
        after = spaces.fold(before, [each.event], by_of(each.stored, each.id))
        files = tuple(
            (
                file,
                before.files.get(file.was or file.path) if file.op is not FileOp.CREATED else None,
                after.files.get(file.path),
            )
            for file in each.event.files
        )
        return Undo(space, files)
    raise NotFound(f"change {target!r} of {space}", "see 'hansard memory log'")


def _without(
    previous: MemoryFile | None, made: MemoryFile | None, current: MemoryFile | None
) -> str | None:
    """Return a file's current text without the change from `previous` to `made`; None if the file
    goes, or if the texts cannot be merged.
    """
    if previous is None:
        return None
    if (made and made.digest) == (current and current.digest):
        return previous.text
    if made is None or current is None or not made.form == current.form == TEXT:
        return None
    return merged(made.text, previous.text, current.text)


def _undone(previous: MemoryFile | None, path: str, text: str | None) -> list[Op]:
    """Return the operations that restore a file to its previous state; without one it is
    deleted.
    """
    if previous is None or text is None:
        return [drafts.delete(path)]
    moved = [drafts.rename(path, previous.path)] if previous.path != path else []
    return [*moved, drafts.restore(previous.path, text, previous.form)]
