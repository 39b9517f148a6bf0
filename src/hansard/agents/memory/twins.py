"""`session.memory` and `record.memory(space)`, each of both clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, Unpack

from hansard.agents.board.twins import OfAgent
from hansard.agents.flow import (
    AsyncDrive,
    Drive,
    in_place,
    on_portal,
    portal_block,
    sync,
    sync_block,
)
from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op
from hansard.agents.memory.operations import MemoryFlows
from hansard.agents.memory.reading import MemoryEntry, MemoryNews, MemoryVersion
from hansard.agents.memory.search import (
    Embedder,
    Found,
    Rankers,
    SearchOptions,
    grep,
    paths_matching,
    search,
)
from hansard.agents.memory.store import FLUSH_S, BlamedLine, MemoryStore, QueuedStore
from hansard.agents.steps.scope import errors_without_secrets
from hansard.bus.portal import Portal
from hansard.domain.choices import Brief, check_options
from hansard.domain.errors import BadValue
from hansard.domain.memory import paths
from hansard.domain.memory.events import MemoryApproval, MemoryPolicySet
from hansard.domain.memory.paths import AGENTS


class MemoryChange:
    """Changes of several files that become one: they wait for the block's end, so they are plain
    calls in both clients.
    """

    def __init__(self) -> None:
        self.ops: list[Op] = []
        """The operations so far, in order."""

    def create(self, path: str, text: str, *, link: bool = False) -> None:
        """Have a file hold a text; `link`: a symbolic link that leads there."""
        self.ops.append(drafts.create(path, text, link=link))

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a part of a file, which must stand there once."""
        self.ops.append(drafts.edit(path, old, new))

    def insert(self, path: str, line: int, text: str) -> None:
        """Insert a text behind a line (0: before the first)."""
        self.ops.append(drafts.insert(path, line, text))

    def append(self, path: str, text: str) -> None:
        """Add a line at the end of a file, which is created where there is none."""
        self.ops.append(drafts.append(path, text))

    def rename(self, path: str, to: str) -> None:
        """Move a file."""
        self.ops.append(drafts.rename(path, to))

    def delete(self, path: str) -> None:
        """Delete a file."""
        self.ops.append(drafts.delete(path))


class AsyncMemory(OfAgent):
    """Files that outlive runs, as this agent sees them: its own, those of the user it acts for, and
    those of all; of files of one path the nearer one.

    Each call is a step. A change waits for a person's word unless the space's policy says
    otherwise; it is made whole or not at all, and goes by what this session saw of each file.
    """

    def __init__(self, flows: MemoryFlows, drive: AsyncDrive) -> None:
        self._flows = flows
        self._drive = drive

    async def view(self, path: str, *, space: str | None = None, at: object = None) -> str:
        """A file's text.

        Args:
            path: From the root of the tree.
            space: Of which space; the nearest that has it, if not given.
            at: A point: a version ('@3'), a position, a time, or the id of a change; now without.

        Raises:
            NotFound: There is no such file.
            BadValue: The path is none inside a tree.
        """
        found: MemoryEntry = await self._drive(self._flows.view(path, space, at))
        return found.text

    async def entry(self, path: str, *, space: str | None = None, at: object = None) -> MemoryEntry:
        """A file with its space, digest, version, author and label; as `view`."""
        found: MemoryEntry = await self._drive(self._flows.view(path, space, at))
        return found

    async def create(
        self,
        path: str,
        text: str,
        *,
        because: str = "",
        space: str | None = None,
        sources: Sequence[str] = (),
        link: bool = False,
    ) -> None:
        """Have a file hold a text. One that stands there must be as this session saw it.

        Args:
            path: From the root of the tree.
            text: What it holds from then on; of a link the path that it leads to.
            because: Why.
            space: Of which space; that of the file that is seen, else the agent's own.
            sources: The ids of the events that it rests on.
            link: Whether it is a symbolic link.

        Raises:
            MemoryConflict: Another text stands there than this session saw.
            MemoryInvalid: The file is not valid; the refusal is on record.
            Blocked: Who was asked said no, or nobody answered.
            BadValue: It is no path, or no text.
        """
        await self._change([drafts.create(path, text, link=link)], because, space, sources)

    async def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        because: str = "",
        space: str | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        """Replace a part of a file, which must stand there once; raises as `create`."""
        await self._change([drafts.edit(path, old, new)], because, space, sources)

    async def insert(
        self,
        path: str,
        line: int,
        text: str,
        *,
        because: str = "",
        space: str | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        """Insert a text behind a line (0: before the first); raises as `create`."""
        await self._change([drafts.insert(path, line, text)], because, space, sources)

    async def rename(
        self, path: str, to: str, *, because: str = "", space: str | None = None
    ) -> None:
        """Move a file; raises as `create`."""
        await self._change([drafts.rename(path, to)], because, space, ())

    async def delete(self, path: str, *, because: str = "", space: str | None = None) -> None:
        """Delete a file; raises as `create`."""
        await self._change([drafts.delete(path)], because, space, ())

    async def remember(
        self,
        text: str,
        *,
        path: str = AGENTS,
        space: str | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        """Add a line to a file, by default the instructions: what is to hold from now on.

        Args:
            text: The line; `- ` is put before it where it is no item yet.
            path: The file, which is created where there is none.
            space: Of which space; that of the file that is seen, else the agent's own.
            sources: The ids of the events that it rests on, such as the message that said so.

        Raises:
            BadValue: The text is empty, or the path is none.
            MemoryConflict, MemoryInvalid, Blocked: As `create`.
        """
        await self._change([drafts.remembered(path, text)], "to be remembered", space, sources)

    async def command(self, text: str, *, path: str = AGENTS, space: str | None = None) -> str:
        """Do what a user's message asks of memory: `/remember TEXT` adds a line as `remember` does,
        with that message as its source.

        Give it what the user says, after `session.message("user", said)`: what a page, a tool or a
        model says is nobody's word.

        Args:
            text: The user's message, as it is on record.
            path: The file that has the line.
            space: Of which space; that of the file that is seen, else the agent's own.

        Returns:
            What is remembered; empty where the message asks for nothing.

        Raises:
            BadValue: No message of a user says so in this run.
            MemoryConflict, MemoryInvalid, Blocked: As `create`.
        """
        return await self._drive(self._flows.command(text, path, space))

    async def prompt(
        self, *, budget: int | None = None, count: Callable[[str], int] | None = None
    ) -> str:
        """The block of the system prompt: every AGENTS.md, the nearest last, and the names and
        descriptions of skills. Which files and versions it has is on record.

        Args:
            budget: Most characters, or of what `count` says; None for all. The farthest
                instructions are cut first.
            count: How large a text is, such as the tokens that your model's tokenizer makes of it;
                characters if not given, of which a token of English has some four.

        Raises:
            BadValue: The budget is too small.
        """
        return await self._drive(self._flows.prompt(budget, count))

    async def news(self) -> list[MemoryNews]:
        """What changed of the files that `prompt` tells of, since it was asked or this was asked
        last: ask before a turn of a session that goes on, and tell the model.
        """
        return await self._drive(self._flows.news())

    async def ls(self, folder: str = "") -> list[str]:
        """The paths under a folder, sorted; under `runs` those of past runs, too."""
        return await self._drive(self._flows.ls(folder))

    async def glob(self, pattern: str) -> list[str]:
        """The paths that match a pattern such as `skills/**`, sorted. A pattern that begins with
        `runs/` finds the files of past runs, at most 500 runs at once.
        """
        return await self._drive(self._flows.glob(pattern))

    async def grep(self, pattern: str, *, glob: str = "") -> list[tuple[str, int, str]]:
        """The lines that match a regular expression in RE2's syntax: path, line from 1, text; with
        a `glob` that begins with `runs/` those of past runs.
        """
        hits = await self._drive(self._flows.grep(pattern, glob))
        return [(path, line, text) for path, line, text in hits]

    async def search(
        self, question: str, *, embedder: Embedder | None = None, **options: Unpack[SearchOptions]
    ) -> Found:
        """The files that fit a question, the best first, of those that this agent may see.

        Args:
            question: Words in any order, or a sentence.
            embedder: What is asked for vectors, such as `hansard.memory.StaticVectors()`.
            **options: See `SearchOptions`.

        Raises:
            BadValue: There is nothing to search for, no embedder for the meaning, or no such kind.
            BadOption: There is no such option.
        """
        check_options("memory.search", options, SearchOptions.__annotations__)
        return await self._drive(self._flows.search(question, embedder, **options))

    async def history(self, path: str, *, space: str | None = None) -> list[MemoryVersion]:
        """The versions of a file, through its renames, the oldest first."""
        return await self._drive(self._flows.history(path, space))

    async def revert(self, change: str, *, because: str = "", space: str | None = None) -> None:
        """Undo a change, all of its files or none.

        Args:
            change: The id of its event or commit, or its version of the space ('@3').
            because: Why.
            space: Of which space; the agent's own, if not given.

        Raises:
            NotFound: There is no such change.
            MemoryConflict: One of its files was changed since.
            Blocked: Who was asked said no, or nobody answered.
        """
        await self._drive(self._flows.revert(change, because, space))

    @contextlib.asynccontextmanager
    async def change(
        self, because: str, *, space: str | None = None, sources: Sequence[str] = ()
    ) -> AsyncGenerator[MemoryChange]:
        """Change several files at once: what the block asks for is one change, made at its end. A
        block that ends in an error changes nothing. Takes and raises as `create`.
        """
        request = MemoryChange()
        yield request
        if request.ops:
            await self._change(request.ops, because, space, sources)

    async def _change(
        self, ops: Sequence[Op], because: str, space: str | None, sources: Sequence[str]
    ) -> dict[str, Any]:
        made: dict[str, Any] = await self._drive(self._flows.change(ops, because, space, sources))
        return made


class Memory(OfAgent):
    """Files that outlive runs, for the sync client: the methods of `AsyncMemory`."""

    def __init__(self, flows: MemoryFlows, drive: Drive) -> None:
        self._flows = flows
        self._drive = in_place(drive)

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
    _change = AsyncMemory._change  # noqa: SLF001 -- of its own twin


def awaited(memory: Memory) -> AsyncMemory:
    """Return it with methods to `await`, none of which waits: for `hansard.agents.flow`."""
    return AsyncMemory(memory._flows, memory._drive)  # noqa: SLF001 -- of the same module


# `record.memory(space)` of both clients.

SpaceRankers = Callable[[Embedder | None], Rankers]
"""Gives what ranks files by words, and with an embedder by meaning, too."""


class SpaceStore(Protocol):
    """What a space is asked: the log, or the service. As `hansard.agents.memory.store` says."""

    space: str

    @property
    def pending(self) -> int: ...  # noqa: D102 -- said there
    async def flush(self, timeout_s: float = ...) -> None: ...  # noqa: D102 -- said there
    def cached(self, path: str) -> MemoryEntry | None: ...  # noqa: D102 -- said there
    async def follow(self) -> None: ...  # noqa: D102 -- said there
    async def entry(self, path: str, at: object = None) -> MemoryEntry: ...  # noqa: D102 -- said there
    async def entries(self, at: object = None) -> list[MemoryEntry]: ...  # noqa: D102 -- said there
    async def paths(self) -> list[str]: ...  # noqa: D102 -- said there
    async def versions(self, path: str | None = None) -> list[MemoryVersion]: ...  # noqa: D102 -- said there
    async def diff(self, path: str | None, before: object, after: object = None) -> str: ...  # noqa: D102 -- said there
    async def blame(self, path: str) -> list[BlamedLine]: ...  # noqa: D102 -- said there
    async def change(  # noqa: D102 -- said there
        self, ops: Sequence[Op], by: Any, because: str = "", sources: Sequence[str] = ()
    ) -> int: ...
    async def remember(  # noqa: D102 -- said there
        self, text: str, by: str, path: str, sources: Sequence[str] = ()
    ) -> int: ...
    async def revert(self, change: str, by: Any, because: str = "") -> int: ...  # noqa: D102 -- said there
    async def set_policy(self, policy: MemoryPolicySet, by: str) -> bool: ...  # noqa: D102 -- said there


def texts_of(entries: Iterable[MemoryEntry]) -> dict[str, str]:
    """The texts of files by path, links left out."""
    return {each.path: each.text for each in entries if not each.link}


class SpaceOnLoop(Brief):
    """Of the async client."""

    def __init__(self, store: SpaceStore, rankers: SpaceRankers) -> None:
        self._store = store
        self._rankers = rankers
        self.space = store.space
        """Its name."""

    def _brief(self) -> dict[str, str]:
        return {"space": self.space}


class SpaceOnPortal(Brief):
    """Of the sync one: it waits for the bus's loop in another thread."""

    def __init__(self, store: SpaceStore, rankers: SpaceRankers, portal: Portal) -> None:
        self._store = store
        self._rankers = rankers
        self._portal = portal
        self.space = store.space
        """Its name."""

    def _brief(self) -> dict[str, str]:
        return {"space": self.space}


class AsyncMemorySpace(SpaceOnLoop):
    """A space of memory, for people and programs that are trusted with it. Nobody is asked before
    a change, and all is checked as ever.
    """

    async def view(self, path: str, *, at: object = None) -> str:
        """A file's text; from memory where the space is followed.

        Args:
            path: From the root of the tree.
            at: A point: a version ('@3'), a position, a time, or the id of a change; now without.

        Raises:
            NotFound: There is no such file, or point.
            BadValue: The path is none inside a tree.
        """
        found = self._store.cached(path) if at is None else None
        if found is None:
            found = await self._store.entry(path, at)
        return found.text

    async def entry(self, path: str, *, at: object = None) -> MemoryEntry:
        """A file with its digest, version, author and label; as `view`."""
        found = self._store.cached(path) if at is None else None
        return found if found is not None else await self._store.entry(path, at)

    async def entries(self, *, at: object = None) -> list[MemoryEntry]:
        """All files, by path."""
        return await self._store.entries(at)

    async def ls(self, folder: str = "") -> list[str]:
        """The paths under a folder, sorted."""
        within = f"{paths.normal(folder.rstrip('/'))}/" if folder.strip("/.") else ""
        return [path for path in await self._store.paths() if path.startswith(within)]

    async def glob(self, pattern: str) -> list[str]:
        """The paths that match a pattern such as `skills/**`, sorted."""
        return paths_matching(await self._store.paths(), pattern).paths

    async def grep(self, pattern: str, *, glob: str = "") -> list[tuple[str, int, str]]:
        """The lines that match a regular expression in RE2's syntax: path, line from 1, text."""
        found = grep(texts_of(await self._store.entries()), pattern, glob=glob)
        return [(line.path, line.line, line.text) for line in found.lines]

    async def search(
        self, question: str, *, embedder: Embedder | None = None, **options: Unpack[SearchOptions]
    ) -> Found:
        """The files of the space that fit a question, the best first; as a session's `search`."""
        check_options("memory.search", options, SearchOptions.__annotations__)
        ranked, texts = self._rankers(embedder), texts_of(await self._store.entries())
        with errors_without_secrets(self._store):
            return search(texts, question, ranked, **options)

    async def follow(self) -> None:
        """Keep the space in memory at what the log tells: reads then ask nobody."""
        await self._store.follow()

    async def behind(self) -> None:
        """Send changes in the background from here on, in order: a change returns 0 at once, and
        `flush` says when the log has it. Closing the record flushes. A change that was not flushed
        is lost if the process is killed. Reads wait for what was queued before them.

        Raises:
            BadValue: Changes are sent in the background already, or by the service.
        """
        if not isinstance(self._store, MemoryStore) or isinstance(self._store, QueuedStore):
            fact = "its changes are sent in the background already, or by the service"
            raise BadValue("behind", fact, "open the space again, in a trusted program")
        self._store = self._store.queued()

    @property
    def pending(self) -> int:
        """How many changes the log does not have yet: 0 unless `behind`."""
        return self._store.pending

    async def flush(self, *, timeout_s: float = FLUSH_S) -> None:
        """Wait until the log has every change that could be made.

        Args:
            timeout_s: How long, in seconds.

        Raises:
            BusError: The log does not have all of them yet.
            Refused: Some could not be made on the space as others had left it; each raises once.
        """
        await self._store.flush(timeout_s)

    async def history(self, path: str | None = None) -> list[MemoryVersion]:
        """The versions of a file, through its renames, or the changes of all, the oldest first."""
        return await self._store.versions(path)

    async def diff(self, path: str | None = None, *, before: object, after: object = None) -> str:
        """What became of a file, or of all, between two points, in git's unified format."""
        return await self._store.diff(path, before, after)

    async def blame(self, path: str) -> list[BlamedLine]:
        """The change that brought each line of a file: what git's `blame` would say."""
        return await self._store.blame(path)

    async def create(self, path: str, text: str, *, by: str, because: str = "") -> int:
        """Have a file hold a text, whatever stands there; the version that the space is at.

        Args:
            path: From the root of the tree.
            text: What it holds from then on.
            by: Who says so.
            because: Why.

        Raises:
            MemoryInvalid: The file is not valid; the refusal is on record.
            BadValue: It is no path, or no text.
        """
        return await self._store.change([drafts.create(path, text)], by, because)

    async def edit(self, path: str, old: str, new: str, *, by: str, because: str = "") -> int:
        """Replace a part of a file, which must stand there once; raises as `create`."""
        return await self._store.change([drafts.edit(path, old, new)], by, because)

    async def insert(self, path: str, line: int, text: str, *, by: str, because: str = "") -> int:
        """Insert a text behind a line (0: before the first); raises as `create`."""
        return await self._store.change([drafts.insert(path, line, text)], by, because)

    async def rename(self, path: str, to: str, *, by: str, because: str = "") -> int:
        """Move a file; raises as `create`."""
        return await self._store.change([drafts.rename(path, to)], by, because)

    async def delete(self, path: str, *, by: str, because: str = "") -> int:
        """Delete a file; raises as `create`."""
        return await self._store.change([drafts.delete(path)], by, because)

    @contextlib.asynccontextmanager
    async def change(
        self, because: str, *, by: str, sources: Sequence[str] = ()
    ) -> AsyncGenerator[MemoryChange]:
        """Change several files at once: what the block asks for is one change, made at its end."""
        request = MemoryChange()
        yield request
        if request.ops:
            await self._store.change(request.ops, by, because, sources)

    async def remember(
        self, text: str, *, by: str, path: str = AGENTS, sources: Sequence[str] = ()
    ) -> int:
        """Add an item to a file's list: what is to hold from now on."""
        return await self._store.remember(text, by, path, sources)

    async def revert(self, change: str, *, by: str, because: str = "") -> int:
        """Undo a change, all of its files or none.

        Args:
            change: The id of its event or commit, or its version of the space ('@3').
            by: Who says so.
            because: Why.

        Raises:
            NotFound: There is no such change.
            MemoryConflict: One of its files was changed since.
        """
        return await self._store.revert(change, by, because)

    async def set_policy(
        self,
        approval: MemoryApproval | str,
        *,
        by: str,
        until: datetime | None = None,
        untrusted: Sequence[str] = (),
        because: str = "",
    ) -> bool:
        """Say whether agents' changes of the space wait for a person's word.

        Args:
            approval: `ask`, or `off`: they are made unasked.
            by: Who says so.
            until: When it is `ask` again, by the log's time; None for never.
            untrusted: Patterns of the paths whose changes are made unasked though they rest on
                untrusted input; none: all of these ask.
            because: Why.

        Raises:
            BadValue: `until` has no zone, or it is given with `ask`.
        """
        policy = MemoryPolicySet(
            approval=MemoryApproval(approval),
            until=until,
            untrusted=tuple(untrusted),
            because=because,
        )
        return await self._store.set_policy(policy, by)


class MemorySpace(SpaceOnPortal):
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
        """As `AsyncMemorySpace.pending`."""
        return self._store.pending
