"""`session.memory` and `record.memory(space)`, for both clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, Unpack

from hansard.agents.board import OfAgent
from hansard.agents.flow import on_portal, portal_block, sync, sync_block
from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op
from hansard.agents.memory.operations import MemoryFlows
from hansard.agents.memory.reading import MemoryEntry, MemoryNews, MemoryVersion
from hansard.agents.memory.search import (
    Embedder,
    Rankers,
    SearchOptions,
    SearchResult,
    grep,
    paths_matching,
    search,
)
from hansard.agents.memory.store import FLUSH_S, BlamedLine, MemoryStore, QueuedStore
from hansard.agents.steps.scope import errors_without_secrets
from hansard.bus.portal import Portal
from hansard.domain.choices import Brief, check_options
from hansard.domain.errors import BadValue
from hansard.domain.memory import files
from hansard.domain.memory.files import AGENTS, MemoryApproval, MemoryPolicySet


class MemoryChange:
    """Changes of several files, combined into one at the end of the block; its methods are plain
    calls in both clients.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        """Operations so far, in order."""

    def create(self, path: str, text: str, *, link: bool = False) -> None:
        """Create or replace a file; `link`: create a symbolic link to the path in `text`."""
        self.ops.append(drafts.create(path, text, link=link))

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a part of a file that occurs exactly once."""
        self.ops.append(drafts.edit(path, old, new))

    def insert(self, path: str, line: int, text: str) -> None:
        """Insert a text after a line (0: before the first)."""
        self.ops.append(drafts.insert(path, line, text))

    def append(self, path: str, text: str) -> None:
        """Append a line to a file, which is created if missing."""
        self.ops.append(drafts.append(path, text))

    def rename(self, path: str, to: str) -> None:
        """Move a file."""
        self.ops.append(drafts.rename(path, to))

    def delete(self, path: str) -> None:
        """Delete a file."""
        self.ops.append(drafts.delete(path))


class AsyncMemory(OfAgent[MemoryFlows]):
    """Files that outlive runs, as this agent sees them: its own, those of the user it acts for, and
    the shared ones; of files with the same path the nearest.

    Each call is a step. A change waits for a person's approval unless the space's policy allows it.
    It is made completely or not at all, and only if each file is as this session last read it.
    """

    async def view(self, path: str, *, space: str | None = None, at: object = None) -> str:
        """Return a file's text.

        Args:
            path: Path from the root of the tree.
            space: Name of the space; default: the nearest that has the file.
            at: Point: a version ('@3'), a position, a time, or the id of a change; default: now.

        Raises:
            NotFound: There is no such file.
            BadValue: The path is not inside the tree.
        """
        entry: MemoryEntry = await self._drive(self._flows.view(path, space, at))
        return entry.text

    async def entry(self, path: str, *, space: str | None = None, at: object = None) -> MemoryEntry:
        """Return a file with its space, digest, version, author and label. Raises as `view`."""
        file: MemoryEntry = await self._drive(self._flows.view(path, space, at))
        return file

    async def create(
        self,
        path: str,
        text: str,
        *,
        reason: str = "",
        space: str | None = None,
        sources: Sequence[str] = (),
        link: bool = False,
    ) -> None:
        """Create or replace a file. An existing file must be as this session last read it.

        Args:
            path: Path from the root of the tree.
            text: New content; of a link the path that it leads to.
            reason: Reason.
            space: Name of the space; default: that of the visible file, else the agent's own.
            sources: Ids of the events that the change rests on.
            link: Create a symbolic link.

        Raises:
            MemoryConflict: The file differs from what this session read.
            MemoryInvalid: The file is not valid; the refusal is recorded.
            Blocked: The approval was denied or timed out.
            BadValue: The path or the text is invalid.
        """
        await self._change([drafts.create(path, text, link=link)], reason, space, sources)

    async def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        reason: str = "",
        space: str | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        """Replace a part of a file that occurs exactly once. Raises as `create`."""
        await self._change([drafts.edit(path, old, new)], reason, space, sources)

    async def insert(
        self,
        path: str,
        line: int,
        text: str,
        *,
        reason: str = "",
        space: str | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        """Insert a text after a line (0: before the first). Raises as `create`."""
        await self._change([drafts.insert(path, line, text)], reason, space, sources)

    async def rename(
        self, path: str, to: str, *, reason: str = "", space: str | None = None
    ) -> None:
        """Move a file of memory. Raises as `create`."""
        await self._change([drafts.rename(path, to)], reason, space, ())

    async def delete(self, path: str, *, reason: str = "", space: str | None = None) -> None:
        """Delete a file of memory. Raises as `create`."""
        await self._change([drafts.delete(path)], reason, space, ())

    async def remember(
        self,
        text: str,
        *,
        path: str = AGENTS,
        space: str | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        """Add a line to a file, by default to the instructions.

        Args:
            text: The line; `- ` is prepended unless it is already a list item.
            path: Path of the file, which is created if missing.
            space: Name of the space; default: that of the visible file, else the agent's own.
            sources: Ids of the events that the line rests on, such as that of a user's message.

        Raises:
            BadValue: The text is empty, or the path is invalid.
            MemoryConflict, MemoryInvalid, Blocked: As `create`.
        """
        await self._change([drafts.remember(path, text)], "to be remembered", space, sources)

    async def command(self, text: str, *, path: str = AGENTS, space: str | None = None) -> str:
        """Run the memory command in a user's message: `/remember TEXT` adds a line as `remember`
        does, with that message as its source.

        Record the message first: `session.message("user", message)`. Commands in a page, a tool's
        result or a model's text are refused.

        Args:
            text: The user's message, as recorded.
            path: Path of the file that gets the line.
            space: Name of the space; default: that of the visible file, else the agent's own.

        Returns:
            The remembered text; empty if the message holds no command.

        Raises:
            BadValue: No user's message in this run has this text.
            MemoryConflict, MemoryInvalid, Blocked: As `create`.
        """
        return await self._drive(self._flows.command(text, path, space))

    async def prompt(
        self, *, budget: int | None = None, count: Callable[[str], int] | None = None
    ) -> str:
        """Return the memory block of the system prompt: every AGENTS.md, nearest last, and the
        names and descriptions of skills. The files and versions used are recorded.

        Args:
            budget: Most characters, or units of `count`; None for no limit. The farthest
                instructions are cut first.
            count: Returns the size of a text, such as its number of tokens for your model; default:
                characters (an English token has about four).

        Raises:
            BadValue: The budget is too small.
        """
        return await self._drive(self._flows.prompt(budget, count))

    async def news(self) -> list[MemoryNews]:
        """Return the changes of the files of `prompt` since the last call of `prompt` or `news`.
        Call it before a turn of a resumed session and pass the result to the model.
        """
        return await self._drive(self._flows.news())

    async def ls(self, folder: str = "") -> list[str]:
        """Return the paths under a folder, sorted; `runs` also lists those of past runs."""
        return await self._drive(self._flows.ls(folder))

    async def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern such as `skills/**`, sorted. A pattern that begins
        with `runs/` matches files of past runs, at most 500 runs at once.
        """
        return await self._drive(self._flows.glob(pattern))

    async def grep(self, pattern: str, *, glob: str = "") -> list[tuple[str, int, str]]:
        """Return the lines that match a regular expression in RE2's syntax: path, line from 1,
        text. A `glob` that begins with `runs/` searches past runs.
        """
        hits = await self._drive(self._flows.grep(pattern, glob))
        return [(path, line, text) for path, line, text in hits]

    async def search(
        self, question: str, *, embedder: Embedder | None = None, **options: Unpack[SearchOptions]
    ) -> SearchResult:
        """Return the files that match a question and that this agent may see, best first.

        Args:
            question: Words in any order, or a sentence.
            embedder: Computes vectors, such as `hansard.memory.StaticVectors()`.
            **options: See `SearchOptions`.

        Raises:
            BadValue: The question has no words, there is no embedder to rank by meaning, or no such
                kind.
            BadOption: There is no such option.
        """
        check_options("memory.search", options, SearchOptions.__annotations__)
        return await self._drive(self._flows.search(question, embedder, **options))

    async def history(self, path: str, *, space: str | None = None) -> list[MemoryVersion]:
        """Return the versions of a file across renames, oldest first."""
        return await self._drive(self._flows.history(path, space))

    async def revert(self, change: str, *, reason: str = "", space: str | None = None) -> None:
        """Undo a change, all of its files or none.

        Args:
            change: Id of its event or commit, or its version of the space ('@3').
            reason: Reason.
            space: Name of the space; default: the agent's own.

        Raises:
            NotFound: There is no such change.
            MemoryConflict: One of its files was changed since.
            Blocked: The approval was denied or timed out.
        """
        await self._drive(self._flows.revert(change, reason, space))

    @contextlib.asynccontextmanager
    async def change(
        self, reason: str, *, space: str | None = None, sources: Sequence[str] = ()
    ) -> AsyncGenerator[MemoryChange]:
        """Change several files at once: the calls in the block become one change, made at its end.
        A block that raises changes nothing. Arguments and errors as `create`.
        """
        request = MemoryChange()
        yield request
        if request.ops:
            await self._change(request.ops, reason, space, sources)

    async def _change(
        self, ops: Sequence[Op], reason: str, space: str | None, sources: Sequence[str]
    ) -> dict[str, Any]:
        made: dict[str, Any] = await self._drive(self._flows.change(ops, reason, space, sources))
        return made


class Memory(OfAgent[MemoryFlows]):
    """Files that outlive runs, for the sync client: the methods of `AsyncMemory`."""

    view = sync(AsyncMemory.view)
    entry = sync(AsyncMemory.entry)
    create = sync(AsyncMemory.create)
    edit = sync(AsyncMemory.edit)
    insert = sync(AsyncMemory.insert)
    rename = sync(AsyncMemory.rename)
    delete = sync(AsyncMemory.delete)
    remember = sync(AsyncMemory.remember)
    command = sync(AsyncMemory.command)
    prompt = sync(AsyncMemory.prompt)
    news = sync(AsyncMemory.news)
    ls = sync(AsyncMemory.ls)
    glob = sync(AsyncMemory.glob)
    grep = sync(AsyncMemory.grep)
    search = sync(AsyncMemory.search)
    history = sync(AsyncMemory.history)
    revert = sync(AsyncMemory.revert)
    change = sync_block(AsyncMemory.change)
    _change = AsyncMemory._change  # noqa: SLF001 -- its own twin


def awaited(memory: Memory) -> AsyncMemory:
    """Return the memory with awaitable methods, none of which waits: for `hansard.agents.flow`."""
    return AsyncMemory(memory._flows, memory._drive)  # noqa: SLF001 -- of the same module


# `record.memory(space)` of both clients.

SpaceRankers = Callable[[Embedder | None], Rankers]
"""Return rankers by words, and with an embedder also by meaning."""


class SpaceStore(Protocol):
    """Store of a space: the log, or the service. Documented in `hansard.agents.memory.store`."""

    space: str

    @property
    def pending(self) -> int: ...  # noqa: D102 -- see `store`
    async def flush(self, timeout_s: float = ...) -> None: ...  # noqa: D102 -- see `store`
    def cached(self, path: str) -> MemoryEntry | None: ...  # noqa: D102 -- see `store`
    async def follow(self) -> None: ...  # noqa: D102 -- see `store`
    async def entry(self, path: str, at: object = None) -> MemoryEntry: ...  # noqa: D102 -- see `store`
    async def entries(self, at: object = None) -> list[MemoryEntry]: ...  # noqa: D102 -- see `store`
    async def paths(self) -> list[str]: ...  # noqa: D102 -- see `store`
    async def versions(self, path: str | None = None) -> list[MemoryVersion]: ...  # noqa: D102 -- see `store`
    async def diff(self, path: str | None, before: object, after: object = None) -> str: ...  # noqa: D102 -- see `store`
    async def blame(self, path: str) -> list[BlamedLine]: ...  # noqa: D102 -- see `store`
    async def change(  # noqa: D102 -- see `store`
        self, ops: Sequence[Op], by: Any, reason: str = "", sources: Sequence[str] = ()
    ) -> int: ...
    async def remember(  # noqa: D102 -- see `store`
        self, text: str, by: str, path: str, sources: Sequence[str] = ()
    ) -> int: ...
    async def revert(self, change: str, by: Any, reason: str = "") -> int: ...  # noqa: D102 -- see `store`
    async def set_policy(self, policy: MemoryPolicySet, by: str) -> bool: ...  # noqa: D102 -- see `store`


def texts_of(entries: Iterable[MemoryEntry]) -> dict[str, str]:
    """Return the texts of files by path, without links."""
    return {each.path: each.text for each in entries if not each.link}


class _Space(Brief):
    """Base of both clients; the sync one waits for the bus's loop in another thread."""

    def __init__(
        self, store: SpaceStore, rankers: SpaceRankers, portal: Portal | None = None
    ) -> None:
        self._store = store
        self._rankers = rankers
        self._portal = portal
        self.space = store.space
        """Name of the space."""

    def _brief(self) -> dict[str, str]:
        return {"space": self.space}


class AsyncMemorySpace(_Space):
    """A space of memory for trusted people and programs. Changes need no approval; all checks
    apply.
    """

    async def view(self, path: str, *, at: object = None) -> str:
        """Return a file's text; from memory if the space is followed.

        Args:
            path: Path from the root of the tree.
            at: Point: a version ('@3'), a position, a time, or the id of a change; default: now.

        Raises:
            NotFound: There is no such file, or point.
            BadValue: The path is not inside the tree.
        """
        entry = self._store.cached(path) if at is None else None
        if entry is None:
            entry = await self._store.entry(path, at)
        return entry.text

    async def entry(self, path: str, *, at: object = None) -> MemoryEntry:
        """Return a file with its digest, version, author and label. Raises as `view`."""
        file = self._store.cached(path) if at is None else None
        return file if file is not None else await self._store.entry(path, at)

    async def entries(self, *, at: object = None) -> list[MemoryEntry]:
        """Return all files, by path."""
        return await self._store.entries(at)

    async def ls(self, folder: str = "") -> list[str]:
        """Return the paths under a folder, sorted."""
        within = f"{files.normal(folder.rstrip('/'))}/" if folder.strip("/.") else ""
        return [path for path in await self._store.paths() if path.startswith(within)]

    async def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern such as `skills/**`, sorted."""
        return paths_matching(await self._store.paths(), pattern).paths

    async def grep(self, pattern: str, *, glob: str = "") -> list[tuple[str, int, str]]:
        """Return the lines that match a regular expression in RE2's syntax: path, line from 1,
        text.
        """
        lines = grep(texts_of(await self._store.entries()), pattern, glob=glob)
        return [(line.path, line.line, line.text) for line in lines.lines]

    async def search(
        self, question: str, *, embedder: Embedder | None = None, **options: Unpack[SearchOptions]
    ) -> SearchResult:
        """Return the files of the space that match a question, best first; as a session's
        `search`.
        """
        check_options("memory.search", options, SearchOptions.__annotations__)
        ranked, texts = self._rankers(embedder), texts_of(await self._store.entries())
        with errors_without_secrets(self._store):
            return search(texts, question, ranked, **options)

    async def follow(self) -> None:
        """Keep the space in memory, up to date with the log: reads then need no request."""
        await self._store.follow()

    async def behind(self) -> None:
        """Send later changes in the background, in order: a change returns 0 at once, and `flush`
        waits until the log has them. Closing the record flushes. Changes that were not flushed are
        lost if the process is killed. Reads wait for the changes queued before them.

        Raises:
            BadValue: Changes are already sent in the background, or the service makes them.
        """
        if not isinstance(self._store, MemoryStore) or isinstance(self._store, QueuedStore):
            fact = "its changes are sent in the background already, or by the service"
            raise BadValue("behind", fact, "open the space again, in a trusted program")
        self._store = self._store.queued()

    @property
    def pending(self) -> int:
        """Number of changes not yet in the log: 0 unless `behind`."""
        return self._store.pending

    async def flush(self, *, timeout_s: float = FLUSH_S) -> None:
        """Wait until the log has every change that could be made.

        Args:
            timeout_s: Timeout in seconds.

        Raises:
            BusError: The log does not have all of them yet.
            Refused: A change could not be made after changes of others; raised once per change.
        """
        await self._store.flush(timeout_s)

    async def history(self, path: str | None = None) -> list[MemoryVersion]:
        """Return the versions of a file across renames, or the changes of all files, oldest
        first.
        """
        return await self._store.versions(path)

    async def diff(self, path: str | None = None, *, before: object, after: object = None) -> str:
        """Return the difference of a file, or of all files, between two points in git's unified
        format.
        """
        return await self._store.diff(path, before, after)

    async def blame(self, path: str) -> list[BlamedLine]:
        """Return each line of a file with the change that added it, as git's `blame` does."""
        return await self._store.blame(path)

    async def create(self, path: str, text: str, *, by: str, reason: str = "") -> int:
        """Create or replace a file without a check of its current text; return the space's version.

        Args:
            path: Path from the root of the tree.
            text: New content.
            by: Person or program that makes the change.
            reason: Reason.

        Raises:
            MemoryInvalid: The file is not valid; the refusal is recorded.
            BadValue: The path or the text is invalid.
        """
        return await self._store.change([drafts.create(path, text)], by, reason)

    async def edit(self, path: str, old: str, new: str, *, by: str, reason: str = "") -> int:
        """Replace a part of a file that occurs exactly once. Raises as `create`."""
        return await self._store.change([drafts.edit(path, old, new)], by, reason)

    async def insert(self, path: str, line: int, text: str, *, by: str, reason: str = "") -> int:
        """Insert a text after a line (0: before the first). Raises as `create`."""
        return await self._store.change([drafts.insert(path, line, text)], by, reason)

    async def rename(self, path: str, to: str, *, by: str, reason: str = "") -> int:
        """Move a file of memory. Raises as `create`."""
        return await self._store.change([drafts.rename(path, to)], by, reason)

    async def delete(self, path: str, *, by: str, reason: str = "") -> int:
        """Delete a file of memory. Raises as `create`."""
        return await self._store.change([drafts.delete(path)], by, reason)

    @contextlib.asynccontextmanager
    async def change(
        self, reason: str, *, by: str, sources: Sequence[str] = ()
    ) -> AsyncGenerator[MemoryChange]:
        """Change several files at once: the calls in the block become one change, made at its
        end.
        """
        request = MemoryChange()
        yield request
        if request.ops:
            await self._store.change(request.ops, by, reason, sources)

    async def remember(
        self, text: str, *, by: str, path: str = AGENTS, sources: Sequence[str] = ()
    ) -> int:
        """Append an item to a file's list."""
        return await self._store.remember(text, by, path, sources)

    async def revert(self, change: str, *, by: str, reason: str = "") -> int:
        """Undo a change, all of its files or none.

        Args:
            change: Id of its event or commit, or its version of the space ('@3').
            by: Person or program that undoes it.
            reason: Reason.

        Raises:
            NotFound: There is no such change.
            MemoryConflict: One of its files was changed since.
        """
        return await self._store.revert(change, by, reason)

    async def set_policy(
        self,
        approval: MemoryApproval | str,
        *,
        by: str,
        until: datetime | None = None,
        untrusted: Sequence[str] = (),
        reason: str = "",
    ) -> bool:
        """Set whether agents' changes of the space need a person's approval.

        Args:
            approval: `ask`, or `off` for no approval.
            by: Person or program that sets it.
            until: Time by the log at which it reverts to `ask`; None for never.
            untrusted: Patterns of paths whose changes need no approval even if they rest on
                untrusted input; by default all such changes need approval.
            reason: Reason.

        Raises:
            BadValue: `until` has no time zone, or is given with `ask`.
        """
        policy = MemoryPolicySet(
            approval=MemoryApproval(approval),
            until=until,
            untrusted=tuple(untrusted),
            because=reason,
        )
        return await self._store.set_policy(policy, by)


class MemorySpace(_Space):
    """A space of memory, for the sync client: the methods of `AsyncMemorySpace`."""

    view = on_portal(AsyncMemorySpace.view)
    entry = on_portal(AsyncMemorySpace.entry)
    entries = on_portal(AsyncMemorySpace.entries)
    ls = on_portal(AsyncMemorySpace.ls)
    glob = on_portal(AsyncMemorySpace.glob)
    grep = on_portal(AsyncMemorySpace.grep)
    search = on_portal(AsyncMemorySpace.search)
    follow = on_portal(AsyncMemorySpace.follow)
    behind = on_portal(AsyncMemorySpace.behind)
    flush = on_portal(AsyncMemorySpace.flush)
    history = on_portal(AsyncMemorySpace.history)
    diff = on_portal(AsyncMemorySpace.diff)
    blame = on_portal(AsyncMemorySpace.blame)
    create = on_portal(AsyncMemorySpace.create)
    edit = on_portal(AsyncMemorySpace.edit)
    insert = on_portal(AsyncMemorySpace.insert)
    rename = on_portal(AsyncMemorySpace.rename)
    delete = on_portal(AsyncMemorySpace.delete)
    change = portal_block(AsyncMemorySpace.change)
    remember = on_portal(AsyncMemorySpace.remember)
    revert = on_portal(AsyncMemorySpace.revert)
    set_policy = on_portal(AsyncMemorySpace.set_policy)

    @property
    def pending(self) -> int:
        """Number of changes not yet in the log, as `AsyncMemorySpace.pending`."""
        return self._store.pending
