"""A space of memory without a session: read, changed and undone, as `hansard memory` does. No
approval is requested; all checks apply. An untrusted caller has a `VisibilityFilter`: it reads what
its role may see, and makes the changes that its role may make without approval.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from hansard.agents.errors import Blocked
from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op, apply_ops
from hansard.agents.memory.reading import (
    MemoryEntry,
    MemoryVersion,
    entry_of,
    files_of,
    patch_of,
    undo_of,
)
from hansard.agents.memory.sight import EVERYTHING, VisibilityFilter
from hansard.agents.memory.write import Validate, check_change, find_problems, pack
from hansard.agents.steps.scope import guard_secrets
from hansard.agents.workspace import Workspace, transact
from hansard.bus.errors import BusError, NotFound, TooLarge
from hansard.bus.log import Append, Stored
from hansard.bus.loggers import logger
from hansard.domain import ids
from hansard.domain.choices import Brief, counted
from hansard.domain.errors import BadValue, HansardError, Refused
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
from hansard.domain.memory.lines import blame
from hansard.domain.memory.space import MemoryFile, MemoryInvalid, MemoryState
from hansard.state.memories import Memories, MemoryEventAt

FLUSH_S = 60.0
"""Default timeout of `flush`, in seconds."""

QUEUED_MAX = 1_000
"""Most queued changes of a space."""

RETRY_S = 1.0
"""Wait between two attempts to send a queued change while the log is unreachable, in seconds."""

TRIES_MAX = 1_000
"""Most lost races of one change; each one means that another writer succeeded."""

_log = logger(__name__)

Decide = Callable[[MemoryState], Awaitable[Append | None]]


class BlamedLine(Brief, msgspec.Struct, frozen=True):
    """A line of a file, and the change that added it.

    Attributes:
        line: Number, from 1.
        text: The line, without its end.
        version: Version of the space that added it.
        author: Author; of an imported change the author that its source claims.
        at: Time by the log, or as the source of an imported change claims: ISO 8601.
        event: Id of the change.
        because: Reason.
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
    """One space of a workspace. All methods except `cached` and `known` run on the bus's loop."""

    def __init__(
        self,
        workspace: Workspace,
        space: str,
        *,
        validate: Validate | None = find_problems,
        sight: VisibilityFilter = EVERYTHING,
    ) -> None:
        self._sight = sight
        self.space = space_name(space)
        self._workspace = workspace
        self._memories: Memories = workspace.memories
        self._validate = validate
        self._redaction = workspace.redaction

    # ------------------------------------------------------------ reads

    def cached(self, path: str) -> MemoryEntry | None:
        """Return a file of a followed space from memory, in any thread; None if only the log has
        it.
        """
        state = self.known()
        found = state.files.get(path) if state is not None else None
        return entry_of(self.space, found) if found is not None and not found.link else None

    def known(self) -> MemoryState | None:
        """Return the state of a followed space as read from the log; None if it is not followed. In
        any thread.
        """
        return self._memories.known(self.space)

    def queued(self) -> QueuedStore:
        """Return the same space with a queue: changes are sent in the background until the
        workspace is closed.
        """
        made = QueuedStore(self._workspace, self.space, validate=self._validate, sight=self._sight)
        self._workspace.closing.append(made.close)
        return made

    @property
    def pending(self) -> int:
        """Number of changes not yet in the log: always 0."""
        return 0

    async def flush(self, timeout_s: float = 0.0) -> None:
        """Return at once: each change is in the log when its call returns."""

    async def _history(self) -> list[MemoryEventAt]:
        return await self._memories.history(self.space)

    async def follow(self) -> None:
        """Keep the space's state in memory up to date with the log."""
        await self._memories.follow([self.space])

    async def state(self, at: object = None) -> MemoryState:
        """Return the space now or at a point; the caller loads the texts. Raises BadName,
        NotFound.
        """
        return await self._sight.at(self._memories, self.space, at)

    async def whole(self, at: object = None) -> MemoryState:
        """Return the state with the texts of all files; otherwise as `state`."""
        state = await self.state(at)
        await self._memories.load(state.files.values())
        return state

    async def entry(self, path: str, at: object = None) -> MemoryEntry:
        """Return a file. Raises NotFound, BadValue."""
        named = paths.normal(path)
        found = (await self.state(at)).file(named)
        if found is None:
            where = f"file {named!r} of {self.space}{f' at {at}' if at is not None else ''}"
            raise NotFound(where, "see 'hansard memory ls'")
        await self._memories.load([found])
        return self._entry(found)

    def _entry(self, file: MemoryFile) -> MemoryEntry:
        entry = entry_of(self.space, file)
        return msgspec.structs.replace(entry, version=0) if self._sight.is_limited else entry

    async def entries(self, at: object = None) -> list[MemoryEntry]:
        """Return all files, by path; a link's text is its target."""
        files = (await self.whole(at)).files
        return [self._entry(files[path]) for path in sorted(files)]

    async def paths(self) -> list[str]:
        """Return the paths of all files, sorted; reads no text."""
        return sorted((await self.state()).files)

    async def versions(self, path: str | None = None) -> list[MemoryVersion]:
        """Return the versions of a file, or the changes of all files, oldest first."""
        named = paths.normal(path) if path is not None else None
        history = await self._history()
        return (await self._sight.versions(self.space, history, named))[0]

    async def diff(
        self, path: str | None, before: object, after: object = None, *, binary: bool = False
    ) -> str:
        """Return the difference of a file, or of all files, between two points as `git apply` reads
        it; of binary files only that there is one, unless `binary` is set.
        """
        old, new = await self.state(before), await self.state(after)
        targets = [paths.normal(path)] if path else sorted({*old.files, *new.files})
        parts: list[str] = []
        for each in targets:
            one, other = old.files.get(each), new.files.get(each)
            if (one and one.digest) != (other and other.digest):
                await self._memories.load([one, other])
                parts.append(patch_of(each, one, other, binary=binary))
        return "".join(parts)

    async def label(self) -> Label | None:
        """Return the label of all that this reader may see of the space's changes."""
        history = await self._history()
        shown = await self._sight.history(self.space, history)
        return join(*(each.stored.commit.label for each in shown)).stored

    async def blame(self, path: str) -> list[BlamedLine]:
        """Return each line of a file with the change that added it; of a binary file one line with
        its size and the newest change. Raises NotFound.
        """
        entry = await self.entry(path)
        history = await self._history()
        shown = await self._sight.history(self.space, history)
        versions = files_of(history, entry.path, shown)
        await self._memories.load(file for _, file in versions)
        if entry.binary:
            versions = versions[-1:]
        texts = [(change, file.shown if file is not None else "") for change, file in versions]
        blamed: list[BlamedLine] = []
        for number, (change, line) in enumerate(blame(texts), 1):
            event = change.event
            blamed.append(
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
        return blamed

    # ------------------------------------------------------------ changes

    async def change(
        self,
        ops: Sequence[Op],
        by: str | Actor,
        reason: str = "",
        sources: Sequence[str] = (),
        *,
        seen: dict[str, str] | None = None,
        label: Label | None = None,
        commit: str = "",
    ) -> int:
        """Make a change; return the resulting version of the space. commit: id of its commit, if
        given.

        Raises NotFound, BadValue, MemoryConflict; MemoryInvalid, after recording the refusal.
        """

        def changes(state: MemoryState) -> Sequence[FileChange]:
            return apply_ops(self.space, state, ops, seen)

        touched = drafts.touched_paths(ops)
        return await self.change_files(
            changes, touched, by, reason, sources, label=label, commit=commit
        )

    async def has(self, commit: str) -> bool:
        """Return whether the space holds a commit with this id."""
        stored = await self._workspace.log.read(stream_of(self.space))
        return any(each.commit.id == commit for each in stored)

    async def change_files(
        self,
        changes: Callable[[MemoryState], Sequence[FileChange]],
        touched: Iterable[str],
        by: str | Actor,
        reason: str = "",
        sources: Sequence[str] = (),
        *,
        label: Label | None = None,
        occurred_at: str | None = None,
        commit: str = "",
    ) -> int:
        """Make the change computed from the current space, computed again after each lost race;
        return the resulting version of the space. `touched`: paths whose texts are needed.
        `occurred_at`: time of the original change as claimed (ISO 8601). `commit`: id of its
        commit, if given.

        Raises the errors of `changes`, BadValue, MemoryConflict; MemoryInvalid, after recording the
        refusal.
        """
        actor = Actor.of(by)
        ids.name("by", actor.agent)
        paths_touched = list(touched)

        async def decide(state: MemoryState) -> Append | None:
            seen = await self._sight.of(self.space, state)
            first = [seen.file_or_none(path) for path in paths_touched]
            files = tuple(await self._memories.using(lambda: changes(seen), first))
            self._sight.demand_changes(self.space, files)
            command = MemoryChanged(files=files, because=reason, sources=tuple(sources))
            events = await check_change(
                self._workspace,
                self._sight,
                self.space,
                state,
                command,
                state.refusals(actor.agent, ""),
                self._redaction,
                self._validate,
            )
            if not events:
                return None
            await self._demand_no_approval(state, files, label)
            stored, blobs = pack(files)
            for blob in blobs:
                await self._workspace.blobs.put(blob)
            made = msgspec.structs.replace(command, files=stored)
            append = _at(self._append(state, actor, made, label), occurred_at)
            if not commit:
                return append
            named = msgspec.structs.replace(append.commit, id=commit)
            return msgspec.structs.replace(append, commit=named)

        try:
            await self._append_decided(decide)
        except MemoryInvalid as error:
            event = MemoryRejected(problems=tuple(error.problems), because=reason)

            async def refuse(state: MemoryState) -> Append:
                return self._append(state, actor, event, label)

            await self._append_decided(refuse)
            raise
        return (await self._memories.state(self.space)).version

    async def revert(self, change: str, by: str | Actor, reason: str = "") -> int:
        """Undo a change, named by its version ('@3') or the id of its event or commit, under the
        label of the restored texts; return the resulting version of the space. Raises NotFound, and
        MemoryConflict if a file was changed since or meanwhile.
        """
        history = await self._history()
        await self._sight.demand_whole(self.space, history, change)
        undo = undo_of(self.space, history, change)
        await self._sight.demand_returned(self.space, change, undo.label)
        state = await self.state()
        return await self.change(
            await self._memories.using(lambda: undo.ops(state), undo.read),
            by,
            reason or f"revert of {change}",
            seen={path: file.digest for path, file in state.files.items()},
            label=undo.label,
        )

    async def remember(self, text: str, by: str, path: str, sources: Sequence[str] = ()) -> int:
        """Append an item to a file's list; return the resulting version of the space."""
        return await self.change([drafts.remember(path, text)], by, "to be remembered", sources)

    async def set_policy(self, policy: MemoryPolicySet, by: str) -> bool:
        """Set whether changes need approval; return False if that was already set. Raises
        BadValue.
        """
        ids.name("by", by)

        async def decide(state: MemoryState) -> Append | None:
            events = spaces.decide(self.space, state, policy)
            return self._append(state, Actor(by), policy, None) if events else None

        return await self._append_decided(decide) is not None

    async def _demand_no_approval(
        self, state: MemoryState, files: Sequence[FileChange], label: Label | None
    ) -> None:
        """Raise Blocked if an untrusted caller's change needs approval."""
        if not self._sight.is_limited:
            return
        head = await self._workspace.log.at(await self._workspace.log.head())
        changed = [path for each in files for path in (each.path, each.was) if path]
        if state.asks(head.stamp, join(self._sight.label(), label), changed):
            reason = (
                f"changes of {self.space} need approval: make it in a session, which requests it"
            )
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

    async def _append_decided(self, decide: Decide) -> Stored | None:
        """Append the decision on the current space; decide again after each lost race."""

        async def read() -> Append | None:
            return await decide(await self._memories.state(self.space))

        def same(append: Append | None) -> Append | None:
            return append

        return await transact(read, same, self._workspace.log.append, TRIES_MAX)


class _Queued(msgspec.Struct, frozen=True):
    """A queued change: the arguments of `change`, and the id of its commit."""

    arguments: tuple[Any, ...]
    options: dict[str, Any]


class QueuedStore(MemoryStore):
    """A space whose changes are sent in the background, in order, one commit each. `flush` waits
    for their acks; changes not sent when the process is killed are lost. A read waits for the
    changes queued before it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._queue: deque[_Queued] = deque()
        self._failures: list[HansardError] = []
        self._news, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._task = asyncio.create_task(self._send_all())

    @property
    def pending(self) -> int:
        """Number of changes not yet in the log."""
        return len(self._queue)

    def known(self) -> MemoryState | None:
        """Return the state as the base class does; None while changes are pending."""
        return None if self._queue else super().known()

    async def state(self, at: object = None) -> MemoryState:
        """Return the space after all queued changes are sent."""
        await self._idle.wait()
        return await super().state(at)

    async def _history(self) -> list[MemoryEventAt]:
        await self._idle.wait()
        return await super()._history()

    async def change(self, ops: Sequence[Op], by: str | Actor, *args: Any, **options: Any) -> int:
        """Queue a change; return 0, since its version is not known yet. Raises BadName, and
        BadValue if QUEUED_MAX changes are pending.
        """
        ids.name("by", Actor.of(by).agent)
        if len(self._queue) >= QUEUED_MAX:
            fact = f"{counted(len(self._queue), 'change')} wait for the log"
            raise BadValue(f"change of {self.space}", fact, "flush() first")
        options = {"commit": self._workspace.clock.new_id(), **options}
        self._queue.append(_Queued((list(ops), by, *args), options))
        self._idle.clear()
        self._news.set()
        return 0

    async def set_policy(self, policy: MemoryPolicySet, by: str) -> bool:
        """Set the policy after all queued changes are sent."""
        await self._idle.wait()
        return await super().set_policy(policy, by)

    async def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Wait until the log has every change that could be made. Raises BusError after `timeout_s`
        seconds; Refused for each change that could not be made, once.
        """
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            waits = f"{counted(self.pending, 'change')} of {self.space} not in the log"
            message = f"{waits} after {timeout_s:g} s; try again"
            raise BusError(message) from None
        failures, self._failures = self._failures, []
        if failures:
            fact = f"{counted(len(failures), 'queued change')} of {self.space} could not be made"
            message = f"{fact}: view the files and decide again; the first: {failures[0]}"
            raise Refused(message) from failures[0]

    async def close(self) -> None:
        """Send all queued changes and stop; those that could not be sent are logged."""
        try:
            await self.flush()
        except HansardError as error:
            _log.error("changes of memory are lost", space=self.space, why=str(error))
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _send_all(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._queue:
                try:
                    await self._send(self._queue[0])
                except HansardError as error:
                    self._failures.append(error)
                self._queue.popleft()
            self._idle.set()

    async def _send(self, queued: _Queued) -> None:
        """Retry until the log has the change or it cannot be made. Raises the reason why it
        cannot.
        """
        in_doubt = False
        while True:
            try:
                if not (in_doubt and await self.has(queued.options["commit"])):
                    await super().change(*queued.arguments, **queued.options)
            except (NotFound, TooLarge):
                raise
            except BusError:  # unreachable, or in doubt whether it was stored
                in_doubt = True
                await asyncio.sleep(RETRY_S)
            else:
                return


def _at(append: Append, occurred_at: str | None) -> Append:
    """Return an append with the time at which its events happened elsewhere, if claimed."""
    events = tuple(
        msgspec.structs.replace(each, occurred_at=occurred_at) for each in append.commit.events
    )
    return msgspec.structs.replace(
        append, commit=msgspec.structs.replace(append.commit, events=events)
    )
