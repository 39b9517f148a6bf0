"""Files of memory as people and programs read them: entries, versions, what undoes a change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from hansard.domain.memory.lines import merged
from hansard.domain.memory.paths import MemoryKind
from hansard.domain.memory.space import MemoryConflict, MemoryFile, MemoryState
from hansard.state.memories import MemoryEventAt, by_of


class MemoryEntry(Brief, msgspec.Struct, frozen=True):
    """A file of memory as it was read.

    Attributes:
        space: Whose it is: `agent/<name>`, `user/<principal>` or `org`.
        path: From the root of the tree; of a link the file that it leads to.
        text: What it holds.
        digest: Of its text.
        version: The version of its space that changed it last.
        kind: How to act, what is known, or what happened.
        author: Who changed it last.
        role: That agent's role; empty for a person.
        event: The id of the event that changed it last.
        label: Of all that its text comes from; empty for public and trusted.
        created_at: When it came to be, by the log's time: ISO 8601 in UTC; empty for what is made
            of a run's record when it is read.
        changed_at: When it was changed last, likewise.
        link: Whether it is a symbolic link; its text is then the path that it leads to.
        binary: How many bytes a binary file has, whose text says no more than that; 0 for a text.
        executable: Whether its owner may execute it.
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
        space: Whose it is.
        path: The path that it had then.
        version: The version of its space.
        op: What happened: created, edited, renamed or deleted.
        author: Who did it; of an imported change the author that its source claims.
        at: When, by the log's time, or as the source of an imported change claims: ISO 8601.
        because: Why.
        event: The id of the change.
        digest: Of its text then; empty where it was deleted.
        position: Where the change stands in the log.
        sources: The ids of the events that the change rests on.
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
    """A file that the system prompt tells of, and that has changed since.

    Attributes:
        file: Its space and path: `org/AGENTS.md`.
        what: `new`, `changed` or `gone`.
        author: Who changed it; empty where it is gone.
    """

    file: str
    what: str
    author: str


def entry_of(space: str, file: MemoryFile) -> MemoryEntry:
    """A file as it is given to who reads it."""
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


def versions_of(
    space: str, history: Iterable[MemoryEventAt], path: str | None
) -> list[MemoryVersion]:
    """The versions of a file, through its renames, the oldest first; those of all without one."""
    found: list[MemoryVersion] = []
    target = path
    for each in reversed(list(history)):
        if not isinstance(each.event, MemoryChanged):
            continue
        for file in each.event.files:
            if path is not None and file.path != target:
                continue
            found.append(
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
    return found[::-1]


def files_of(
    history: Iterable[MemoryEventAt], path: str, shown: Sequence[MemoryEventAt] | None = None
) -> list[tuple[MemoryEventAt, MemoryFile | None]]:
    """The versions of a file, through its renames, each with the change that brought it; the
    oldest first. shown: the changes as they may be told; as they stand without.
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
    """What undoes a change of a space.

    Attributes:
        space: Whose.
        files: Each file that was changed, with what it was before (None where it was created), and
            what the change made of it (None where it was deleted).
    """

    space: str
    files: tuple[tuple[FileChange, MemoryFile | None, MemoryFile | None], ...]

    @property
    def label(self) -> Label | None:
        """Of all texts that it brings back. What stands tells less: of a file that was deleted,
        there is nothing that still has its label.
        """
        return join(*(stood.label for _, stood, _ in self.files if stood is not None)).stored

    @property
    def read(self) -> list[MemoryFile | None]:
        """The files whose texts it goes by."""
        return [file for _, stood, made in self.files for file in (stood, made)]

    def ops(self, state: MemoryState) -> list[Op]:
        """The operations that undo it where the space stands so. What was changed since in other
        lines stays.

        Raises MemoryConflict where a file was changed since in the same lines, moved, deleted or
        made again; it has the text that was to come back, so only who is cleared for `label` may
        be told.
        """
        ops: list[Op] = []
        for file, stood, made in self.files:
            current = state.files.get(file.path)
            text = _without(stood, made, current)
            if text is None and (current is None or current.digest != file.after or stood):
                mine = stood.text if stood is not None else ""
                raise MemoryConflict(self.space, file.path, file.after, mine, current)
            ops += _undone(stood, file.path, text)
        return ops


def undo_of(space: str, history: Sequence[MemoryEventAt], target: str) -> Undo:
    """What undoes a change, named by its version ('@3'), or the id of its event or commit. Raises
    NotFound.
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
    stood: MemoryFile | None, made: MemoryFile | None, current: MemoryFile | None
) -> str | None:
    """The text of a file without a change that made one of what stood; None where it goes, or
    where that cannot be said.
    """
    if stood is None:
        return None
    if (made and made.digest) == (current and current.digest):
        return stood.text
    if made is None or current is None or not made.form == current.form == TEXT:
        return None
    return merged(made.text, stood.text, current.text)


def _undone(stood: MemoryFile | None, path: str, text: str | None) -> list[Op]:
    """What brings a file back to what stood; nothing stood: it goes."""
    if stood is None or text is None:
        return [drafts.delete(path)]
    moved = [drafts.rename(path, stood.path)] if stood.path != path else []
    return [*moved, drafts.restored(stood.path, text, stood.form)]
