"""`record.memory(space)` of both clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, Unpack

from hansard.agents.flow import on_portal, portal_block
from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op
from hansard.agents.memory.reading import MemoryEntry, MemoryVersion
from hansard.agents.memory.search.lines import grep
from hansard.agents.memory.search.paths import paths_matching
from hansard.agents.memory.search.ranked import Embedder, Found, Rankers, SearchOptions, search
from hansard.agents.memory.store import FLUSH_S, BlamedLine, MemoryStore, QueuedStore
from hansard.agents.memory.twins import MemoryChange
from hansard.agents.steps.scope import errors_without_secrets
from hansard.bus.portal import Portal
from hansard.domain.choices import Brief, check_options
from hansard.domain.errors import BadValue
from hansard.domain.memory import paths
from hansard.domain.memory.events import MemoryApproval, MemoryPolicySet
from hansard.domain.memory.paths import AGENTS

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
        entries = await self._store.entries()
        return sorted(each.path for each in entries if each.path.startswith(within))

    async def glob(self, pattern: str) -> list[str]:
        """The paths that match a pattern such as `skills/**`, sorted."""
        return paths_matching([each.path for each in await self._store.entries()], pattern).paths

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
        asked = MemoryChange()
        yield asked
        if asked.ops:
            await self._store.change(asked.ops, by, because, sources)

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
