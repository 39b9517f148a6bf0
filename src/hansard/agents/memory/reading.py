"""Files of memory as read by people, programs and roles: entries, versions, the undo of a change,
files that are derived from runs, and the filter by role.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from string import ascii_letters
from typing import Any

import msgspec

from hansard.agents.access.roles import DerivedView, derive_from, hash_key
from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op
from hansard.agents.policy.permits import FREE, Permit, changes_file, refused, sees_file
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, utc
from hansard.domain.choices import Brief
from hansard.domain.decider import evolve, fold
from hansard.domain.errors import BadValue
from hansard.domain.label import Confidentiality, Label, join
from hansard.domain.label import text as label_text
from hansard.domain.memory import space as spaces
from hansard.domain.memory.files import (
    RUNS,
    TEXT,
    FileChange,
    FileOp,
    MemoryChanged,
    MemoryKind,
    digest_of,
)
from hansard.domain.memory.lines import FileText, merged, quoted, unified
from hansard.domain.memory.space import MemoryConflict, MemoryFile, MemoryState
from hansard.domain.roles.model import RoleDefined, RoleRule
from hansard.domain.roles.view import Line, ShownState
from hansard.state.aggregates import point_in
from hansard.state.memories import Memories, MemoryEventAt, by_of
from hansard.state.replay import States

# Events of runs as files: `runs/RUN/summary.md` and others, derived from the log on each read and
# limited to events that the reader's role may see.

FILES = ("decisions.md", "messages.md", "state.json", "summary.md", "trace.txt")
"""The files of a run."""

RUNS_MAX = 500
"""Most runs whose files are listed or searched at once: each run is read whole."""

ALL = RoleDefined(sees=(RoleRule("all", kinds=("**",)),), clearance=Confidentiality.SECRET.value)
"""Rules of a role without a definition: it sees everything."""


def run_of(path: str) -> tuple[str, str] | None:
    """Return the run and the file name in a path below `runs`; None for another path."""
    match path.split("/"):
        case [folder, run, name] if folder == RUNS and name in FILES:
            return run, name
        case _:
            return None


async def derive(states: States, role: str, rules: RoleDefined | None, run: str) -> DerivedView:
    """Derive the part of a run that a role may see now. Raises NotFound if there is no such run or
    the role may see nothing of it.
    """
    position = await states.log.end(None)
    history = await states.history(run, AtPosition(position))
    key = hash_key(states, role, rules, None)
    derived = derive_from(role, run, history, rules, "", position, key)
    if not derived.view.events:
        raise NotFound(f"run {run}", "see 'hansard runs'")
    return derived


def are_in(pattern: str) -> bool:
    """Return whether a folder or glob names files of runs: it begins with their folder."""
    return pattern.partition("/")[0] == RUNS


async def files(
    states: States, role: str, rules: RoleDefined | None, is_wanted: Callable[[str], bool]
) -> list[MemoryFile]:
    """Return the files of all runs whose path matches, limited to what a role may see. Raises
    BadValue for too many runs.
    """
    runs: dict[str, list[str]] = {}
    for run in sorted(await states.log.runs()):
        names = [name for name in FILES if is_wanted(f"{RUNS}/{run}/{name}")]
        if names and "/" not in run:
            runs[run] = names
    if len(runs) > RUNS_MAX:
        fact = f"files of {len(runs):,} runs match, the limit is {RUNS_MAX}"
        raise BadValue(f"{RUNS}/", fact, f"name fewer, such as '{RUNS}/{next(iter(runs))}/**'")
    listed_files: list[MemoryFile] = []
    for run, names in runs.items():
        try:
            made = await derive(states, role, rules, run)
        except NotFound:
            continue
        for name in names:
            path = f"{RUNS}/{run}/{name}"
            text = text_of(name, run, made.view.events, made.view.state)
            digest = digest_of(text)
            listed_files.append(
                MemoryFile(
                    path=path,
                    body=FileText(text),
                    digest=digest,
                    version=0,
                    label=made.label,
                    size=len(text),
                )
            )
    return listed_files


def text_of(name: str, run: str, lines: Iterable[Line], state: ShownState) -> str:
    """Return the text of a file."""
    match name:
        case "summary.md":
            parts = _summary(run, state)
        case "messages.md":
            parts = _messages(state)
        case "decisions.md":
            parts = _decisions(lines)
        case "trace.txt":
            parts = _trace(lines)
        case _:
            text = msgspec.json.format(msgspec.json.encode(state, order="deterministic"), indent=2)
            return text.decode() + "\n"
    return "".join(f"{part}\n" for part in parts)


def _summary(run: str, state: ShownState) -> Iterator[str]:
    yield f"# Run {run}"
    yield ""
    for name in ("workflow", "status"):
        if state.run.get(name):
            yield f"- {name}: {state.run[name]}"
    for name, agent in sorted(state.agents.items()):
        outcome = agent.outcome or "at work"
        yield (
            f"- agent {name} ({agent.role}): {outcome}, steps {agent.steps}, "
            f"decisions {agent.decisions}"
        )
    for key in sorted(state.board):
        yield f"- shared state {key}: {state.board[key].kind}"


def _messages(state: ShownState) -> Iterator[str]:
    for agent, messages in sorted(state.context.items()):
        yield f"# {agent}"
        for message in messages:
            content = message.get("content")
            yield f"\n## {message.get('role', '')}\n"
            yield content if isinstance(content, str) else _words(content)


def _decisions(lines: Iterable[Line]) -> Iterator[str]:
    yield "# Decisions"
    for _, line in lines:
        if line.type.rpartition(".")[0] != "decision.made":
            continue
        value = _data(line.data)
        because = f": {value['because']}" if value.get("because") else ""
        yield f"- {line.agent}: {value.get('question', '')} {value.get('selected', '')}{because}"


def _trace(lines: Iterable[Line]) -> Iterator[str]:
    for number, line in lines:
        value = _data(line.data)
        step = f" #{value['step']}" if "step" in value else ""
        tool = f" {value['tool']}" if isinstance(value.get("tool"), str) else ""
        yield f"{number} {line.agent or '-'} {line.type}{step}{tool}"


def _data(raw: msgspec.Raw) -> dict[str, Any]:
    fields = msgspec.json.decode(raw)
    return fields if isinstance(fields, dict) else {}


def _words(value: object) -> str:
    return msgspec.json.encode(value).decode()


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
    versions = [
        MemoryVersion(
            space=space,
            path=file.path,
            version=each.version,
            op=file.op.value,
            author=each.author,
            at=each.at,
            because=event.because,
            event=each.id,
            digest=file.after,
            position=each.stored.position,
            sources=event.sources,
        )
        for each, event, file in _changes_of(history, path)
    ]
    return versions[::-1]


def _changes_of(
    history: Iterable[MemoryEventAt], path: str | None
) -> Iterator[tuple[MemoryEventAt, MemoryChanged, FileChange]]:
    """Yield the changes of a file across renames, newest first; of all files without a path."""
    target = path
    for each in reversed(list(history)):
        event = each.event
        if not isinstance(event, MemoryChanged):
            continue
        for file in event.files:
            if path is None or file.path == target:
                yield each, event, file
                if path is not None:
                    target = file.was or target
                    break


def files_of(
    history: Iterable[MemoryEventAt], path: str, shown: Sequence[MemoryEventAt] | None = None
) -> list[tuple[MemoryEventAt, MemoryFile | None]]:
    """Return the versions of a file across renames, oldest first, each with the change that made
    it. shown: the changes as the reader may see them; `history` if not given.
    """
    events = list(history)
    fields = {each.id: each for each in (events if shown is None else shown)}
    names = {each.version: file.path for each, _, file in _changes_of(fields.values(), path)}
    state, versions = spaces.MemoryState(), list[tuple[MemoryEventAt, MemoryFile | None]]()
    for each in events:
        evolve(state, each.event, by_of(each.stored, each.id))
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
    before = spaces.MemoryState()
    for each in history:
        if target not in (f"@{each.version}", each.id, each.stored.commit.id):
            evolve(before, each.event, by_of(each.stored, each.id))
            continue
        if not isinstance(each.event, MemoryChanged):
            break
        after = fold(before, [each.event], by_of(each.stored, each.id))
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


# Filter of memory by role. Files that a role may not see are removed from the state before
# anything is read, searched, changed or checked, so that no listing, count or error depends on
# them.

SEE_HISTORY = "give the id of a change that history() shows, or a time"


class VisibilityFilter:
    """View of memory for one role in a session or a request. Used on the bus's loop."""

    def __init__(
        self,
        permit: Permit,
        cleared: Callable[[], Awaitable[Confidentiality]],
        label: Callable[[], Label | None] = lambda: None,
    ) -> None:
        """Create a filter. cleared: returns the role's current clearance. label: returns the label
        of all that the writer of a change was shown.
        """
        self.permit = permit
        self._cleared = cleared
        self.label = label
        self._last: dict[str, tuple[MemoryState, Confidentiality, MemoryState]] = {}

    @property
    def is_limited(self) -> bool:
        """True if there may be files that the role must not know of, as it has rules."""
        return self.permit.enforced

    def sees(self, space: str, path: str) -> bool:
        """Return whether the role sees all changes of a file."""
        return self.permit.ask(sees_file(space, path)).allowed

    async def of(self, space: str, state: MemoryState) -> MemoryState:
        """Return a space as the role sees it: without files that it may not see or is not cleared
        for. The result must not be modified.
        """
        if not self.is_limited:
            return state
        cleared = Confidentiality.SECRET
        if any(file.label is not None for file in state.files.values()):
            cleared = await self._cleared()
        known = self._last.get(space)
        if known is not None and known[0] is state and known[1] is cleared:
            return known[2]
        seen = state.limited_to(
            msgspec.structs.replace(file, version=0)  # hides how much others wrote
            for path, file in state.files.items()
            if _flows(file.label, cleared) and self.sees(space, path)
        )
        self._last[space] = state, cleared, seen
        return seen

    async def at(self, memories: Memories, space: str, at: object) -> MemoryState:
        """Return a space as the role sees it, now or at a point. Raises BadName, NotFound, and
        BadValue for a version or a position, which would reveal how much others wrote.
        """
        if self.is_limited and at is not None:
            to, up_to, version_wanted = point_in(at)
            if to is not None or isinstance(up_to, AtPosition):
                raise BadValue("at", f"{at!r:.80} counts what others wrote, too", SEE_HISTORY)
            if version_wanted:
                await self._demand_any(space, await memories.history(space), version_wanted)
        return await self.of(space, await memories.at(space, at))

    async def _demand_any(self, space: str, history: Sequence[MemoryEventAt], target: str) -> None:
        """Raise NotFound for a change of which the role may see no file."""
        for each in await self.history(space, history):
            files = each.event.files if isinstance(each.event, MemoryChanged) else ()
            if files and target in (each.id, each.stored.commit.id):
                return
        raise NotFound(f"change {target} of {space}", SEE_HISTORY)

    def demand_changes(self, space: str, changes: Iterable[FileChange]) -> None:
        """Raise RoleRefused for a change of a file that the role may not change, after links are
        resolved.
        """
        for each in changes:
            for path in (each.path, each.was):
                refusal = self.permit.refusal(changes_file(space, path)) if path else None
                if refusal is not None:
                    raise refused(refusal)

    async def versions(
        self, space: str, history: Sequence[MemoryEventAt], path: str | None
    ) -> tuple[list[MemoryVersion], Label | None]:
        """Return the versions of a file, or of all files, that the role may see, and their
        label.
        """
        shown = await self.history(space, history)
        listed = versions_of(space, shown, path)
        events = {each.event for each in listed}
        label = join(*(each.stored.commit.label for each in shown if each.id in events)).stored
        if self.is_limited:
            listed = [msgspec.structs.replace(each, version=0, position=0) for each in listed]
        return listed, label

    async def history(self, space: str, history: Sequence[MemoryEventAt]) -> list[MemoryEventAt]:
        """Return the changes of a space that the role may see, reduced to the visible parts."""
        cleared = Confidentiality.SECRET
        if any(each.stored.commit.label is not None for each in history):
            cleared = await self._cleared()
        may = [each for each in history if _flows(each.stored.commit.label, cleared)]
        return [self._visible_part(space, each) for each in may] if self.is_limited else may

    def _visible_part(self, space: str, each: MemoryEventAt) -> MemoryEventAt:
        """Remove the files that the role does not see from a change. If any is removed, reason and
        sources go too, as they also describe the removed ones.
        """
        if not isinstance(each.event, MemoryChanged):
            return each
        files = tuple(
            self._without(space, file) for file in each.event.files if self.sees(space, file.path)
        )
        if files == each.event.files:
            return each
        event = msgspec.structs.replace(each.event, files=files, because="", sources=())
        return msgspec.structs.replace(each, event=event)

    def _without(self, space: str, file: FileChange) -> FileChange:
        """Remove the old path of a moved file if the role does not see that path."""
        if not file.was or self.sees(space, file.was):
            return file
        return msgspec.structs.replace(file, op=FileOp.CREATED, was="", before="")

    async def demand_whole(self, space: str, history: Sequence[MemoryEventAt], target: str) -> None:
        """Raise NotFound for a change that the role may not see completely, and for one named by
        its version, which would reveal how much others wrote.
        """
        if not self.is_limited:
            return
        previous = {each.id: each.event for each in history}
        for each in await self.history(space, history):
            if target in (each.id, each.stored.commit.id) and each.event is previous[each.id]:
                return
        raise _no_change(space, target)

    async def demand_returned(self, space: str, target: str, label: Label | None) -> None:
        """Raise NotFound, as for a missing change, if its undo would restore a text that the role
        is not cleared for.
        """
        if self.is_limited and label is not None and not _flows(label, await self._cleared()):
            raise _no_change(space, target)


async def _all() -> Confidentiality:
    return Confidentiality.SECRET


def _no_change(space: str, target: str) -> NotFound:
    return NotFound(f"change {target!r:.80} of {space}", SEE_HISTORY)


EVERYTHING = VisibilityFilter(FREE, _all)
"""Filter that shows everything, for trusted readers."""


def _flows(label: Label | None, cleared: Confidentiality) -> bool:
    return label is None or label.flows_to(cleared)
