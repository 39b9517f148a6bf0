"""A space of memory without a session: read, changed and undone, as `hansard memory` does. Nobody
is asked, and all is checked as ever. Who is not trusted with it has a `Sight`: it reads what its
role sees, and changes what it may where nobody is to be asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from hansard.agents.errors import Blocked
from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op, worked_out
from hansard.agents.memory.reading import (
    MemoryEntry,
    MemoryVersion,
    entry_of,
    texts_of,
    undo_of,
)
from hansard.agents.memory.sight import EVERYTHING, Sight
from hansard.agents.memory.write import Validate, checked, packed, validated
from hansard.agents.steps.scope import guard_secrets
from hansard.agents.transact import transact
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.bus.log import Append, Stored
from hansard.domain import ids
from hansard.domain.choices import Brief
from hansard.domain.events import Actor
from hansard.domain.label import Label, join
from hansard.domain.memory import paths
from hansard.domain.memory import space as spaces
from hansard.domain.memory.events import (
    FileChange,
    MemoryChanged,
    MemoryPolicySet,
    MemoryRejected,
    space_name,
    stream_of,
)
from hansard.domain.memory.lines import blame, unified
from hansard.domain.memory.space import MemoryFile, MemoryInvalid, MemoryState
from hansard.state.memories import Memories

TRIES_MAX = 1_000
"""Most lost races of one change; each one lost means that somebody else got through."""

Decide = Callable[[MemoryState], Awaitable[Append | None]]


class BlamedLine(Brief, msgspec.Struct, frozen=True):
    """A line of a file, and the change that brought it.

    Attributes:
        line: From 1.
        text: The line, without its end.
        version: The version of the space that brought it.
        author: Who did; of an imported change the author that its source claims.
        at: When, by the log's time, or as the source of an imported change claims: ISO 8601.
        event: The id of the change.
        because: Why.
    """

    line: int
    text: str
    version: int
    author: str
    at: str
    event: str
    because: str


@guard_secrets("memory")
class MemoryStore:
    """One space of a workspace. Everything but `cached` runs on the bus's loop."""

    def __init__(
        self,
        workspace: Workspace,
        space: str,
        *,
        validate: Validate | None = validated,
        sight: Sight = EVERYTHING,
    ) -> None:
        self._sight = sight
        self.space = space_name(space)
        self._workspace = workspace
        self._memories: Memories = workspace.memories
        self._validate = validate
        self._redaction = workspace.redaction

    # ------------------------------------------------------------ reads

    def cached(self, path: str) -> MemoryEntry | None:
        """A file of a space that is followed, from memory, in any thread; None where only the log
        can tell.
        """
        state = self._memories.known(self.space)
        found = state.files.get(path) if state is not None else None
        return entry_of(self.space, found) if found is not None and not found.link else None

    def known(self) -> MemoryState | None:
        """The space as the log has told it, where it is followed; None else. In any thread."""
        return self._memories.known(self.space)

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have something done before the workspace is closed."""
        self._workspace.closing.append(close)

    @property
    def pending(self) -> int:
        """How many changes wait to go to the log: none."""
        return 0

    async def flush(self, timeout_s: float = 0.0) -> None:
        """Each change is in the log when it is acknowledged."""

    async def follow(self) -> None:
        """Keep the space at what the log tells, as it comes by."""
        await self._memories.follow([self.space])

    async def state(self, at: object = None) -> MemoryState:
        """The space as it stands, or stood at a point. Raises BadName, NotFound."""
        return await self._sight.at(self._memories, self.space, at)

    async def entry(self, path: str, at: object = None) -> MemoryEntry:
        """A file. Raises NotFound, BadValue."""
        named = paths.normal(path)
        found = (await self.state(at)).file(named)
        if found is None:
            where = f"file {named!r} of {self.space}{f' at {at}' if at is not None else ''}"
            raise NotFound(where, "see 'hansard memory ls'")
        return self._entry(found)

    def _entry(self, file: MemoryFile) -> MemoryEntry:
        entry = entry_of(self.space, file)
        return msgspec.structs.replace(entry, version=0) if self._sight.is_limited else entry

    async def entries(self, at: object = None) -> list[MemoryEntry]:
        """All files, by path; a link's text is what it leads to."""
        files = (await self.state(at)).files
        return [self._entry(files[path]) for path in sorted(files)]

    async def versions(self, path: str | None = None) -> list[MemoryVersion]:
        """The versions of a file, or the changes of all of them, the oldest first."""
        named = paths.normal(path) if path is not None else None
        history = await self._memories.history(self.space)
        return (await self._sight.versions(self.space, history, named))[0]

    async def diff(self, path: str | None, before: object, after: object = None) -> str:
        """What became of a file, or of all, between two points: git's unified format."""
        old, new = await self.state(before), await self.state(after)
        wanted = [paths.normal(path)] if path else sorted({*old.files, *new.files})
        parts: list[str] = []
        for each in wanted:
            one, other = old.files.get(each), new.files.get(each)
            if (one and one.digest) != (other and other.digest):
                texts = (one.shown if one else None, other.shown if other else None)
                parts.append(unified(each, *texts))
                if one and other and one.executable != other.executable:
                    now = "is executable" if other.executable else "is not executable any more"
                    parts.append(f"{each} {now}\n")
        return "".join(parts)

    async def label(self) -> Label | None:
        """Of all that is told of the space's changes."""
        history = await self._memories.history(self.space)
        shown = await self._sight.history(self.space, history)
        return join(*(each.stored.commit.label for each in shown)).stored

    async def blame(self, path: str) -> list[BlamedLine]:
        """The change that brought each line of a file. Raises NotFound."""
        entry = await self.entry(path)
        history = await self._memories.history(self.space)
        shown = await self._sight.history(self.space, history)
        found: list[BlamedLine] = []
        for number, (change, line) in enumerate(blame(texts_of(history, entry.path, shown)), 1):
            event = change.event
            found.append(
                BlamedLine(
                    line=number,
                    text=line.removesuffix("\n"),
                    version=0 if self._sight.is_limited else change.version,
                    author=change.author,
                    at=change.at,
                    event=change.id,
                    because=event.because if isinstance(event, MemoryChanged) else "",
                )
            )
        return found

    # ------------------------------------------------------------ changes

    async def change(
        self,
        ops: Sequence[Op],
        by: str | Actor,
        because: str = "",
        sources: Sequence[str] = (),
        *,
        seen: dict[str, str] | None = None,
        label: Label | None = None,
        commit: str = "",
    ) -> int:
        """Make a change; the version that the space is at. commit: the id of its commit, if given.

        Raises NotFound, BadValue, MemoryConflict; MemoryInvalid, which is on record then.
        """

        def files_of(state: MemoryState) -> Sequence[FileChange]:
            return worked_out(self.space, state, ops, seen)

        return await self.change_files(files_of, by, because, sources, label=label, commit=commit)

    async def has(self, commit: str) -> bool:
        """Whether a commit of this id stands in the space."""
        stored = await self._workspace.log.read(stream_of(self.space))
        return any(each.commit.id == commit for each in stored)

    async def change_files(
        self,
        files_of: Callable[[MemoryState], Sequence[FileChange]],
        by: str | Actor,
        because: str = "",
        sources: Sequence[str] = (),
        *,
        label: Label | None = None,
        occurred_at: str | None = None,
        commit: str = "",
    ) -> int:
        """Make the change that follows from the space now, worked out again after each lost
        race; the version that the space is at. `occurred_at`: when it was made elsewhere, as that
        claims (ISO 8601). `commit`: the id of its commit, if given.

        Raises what `files_of` raises, BadValue, MemoryConflict; MemoryInvalid, which is on record
        then.
        """
        actor = Actor.of(by)
        ids.name("by", actor.agent)

        async def decide(state: MemoryState) -> Append | None:
            seen = await self._sight.of(self.space, state)
            files = tuple(files_of(seen))
            self._sight.demand_changes(self.space, files)
            wanted = MemoryChanged(files=files, because=because, sources=tuple(sources))
            events = await checked(
                self._workspace,
                self._sight,
                self.space,
                state,
                wanted,
                state.refusals(actor.agent, ""),
                self._redaction,
                self._validate,
            )
            if not events:
                return None
            await self._demand_unasked(state, files, label)
            stored, blobs = packed(files)
            for blob in blobs:
                await self._workspace.blobs.put(blob)
            made = msgspec.structs.replace(wanted, files=stored)
            append = _at(self._append(state, actor, made, label), occurred_at)
            if not commit:
                return append
            named = msgspec.structs.replace(append.commit, id=commit)
            return msgspec.structs.replace(append, commit=named)

        try:
            await self._through(decide)
        except MemoryInvalid as error:
            event = MemoryRejected(problems=tuple(error.problems), because=because)

            async def refuse(state: MemoryState) -> Append:
                return self._append(state, actor, event, label)

            await self._through(refuse)
            raise
        return (await self._memories.state(self.space)).version

    async def revert(self, change: str, by: str | Actor, because: str = "") -> int:
        """Undo a change, by its version ('@3') or the id of its event or commit, under the label of
        what it brings back; the version that the space is at. Raises NotFound, MemoryConflict
        where a file was changed since, or meanwhile.
        """
        history = await self._memories.history(self.space)
        await self._sight.demand_whole(self.space, history, change)
        undo = undo_of(self.space, history, change)
        await self._sight.demand_returned(self.space, change, undo.label)
        state = await self.state()
        return await self.change(
            undo.ops(state),
            by,
            because or f"revert of {change}",
            seen={path: file.digest for path, file in state.files.items()},
            label=undo.label,
        )

    async def remember(self, text: str, by: str, path: str, sources: Sequence[str] = ()) -> int:
        """Add an item to a file's list; the version that the space is at."""
        return await self.change([drafts.remembered(path, text)], by, "to be remembered", sources)

    async def set_policy(self, policy: MemoryPolicySet, by: str) -> bool:
        """Say whether changes are asked about; False where that is so already. Raises BadValue."""
        ids.name("by", by)

        async def decide(state: MemoryState) -> Append | None:
            events = spaces.decide(self.space, state, policy)
            return self._append(state, Actor(by), policy, None) if events else None

        return await self._through(decide) is not None

    async def _demand_unasked(
        self, state: MemoryState, files: Sequence[FileChange], label: Label | None
    ) -> None:
        """Raise Blocked where a change of somebody who is not trusted is to be asked about."""
        if not self._sight.is_limited:
            return
        head = await self._workspace.log.at(await self._workspace.log.head())
        changed = [path for each in files for path in (each.path, each.was) if path]
        if state.asks(head.stamp, join(self._sight.label(), label), changed):
            reason = f"changes of {self.space} are asked about: make it in a session, which asks"
            raise Blocked("memory", reason, "record.memory")

    def _append(
        self,
        state: MemoryState,
        actor: Actor,
        event: MemoryChanged | MemoryRejected | MemoryPolicySet,
        label: Label | None,
    ) -> Append:
        commit = self._workspace.commit(state.version + 1, actor, [event], label=label)
        return Append(stream_of(self.space), commit)

    async def _through(self, decide: Decide) -> Stored | None:
        """Append what is decided by the space as it stands, again after each lost race."""

        async def read() -> Append | None:
            return await decide(await self._memories.state(self.space))

        def same(append: Append | None) -> Append | None:
            return append

        return await transact(read, same, self._workspace.log.append, TRIES_MAX)


def _at(append: Append, occurred_at: str | None) -> Append:
    """An append whose events happened elsewhere, when that claims."""
    events = tuple(
        msgspec.structs.replace(each, occurred_at=occurred_at) for each in append.commit.events
    )
    return msgspec.structs.replace(
        append, commit=msgspec.structs.replace(append.commit, events=events)
    )
