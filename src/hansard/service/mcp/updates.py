"""Change notifications for watched addresses and for prompts.

For a trusted client the log is followed: each commit that concerns a watched address is a cue. For
a restricted client its service is polled for the run as its role sees it, and a difference is a
cue. A cue says only that an address changed; cues close together are merged. Nothing is sent about
data that the client may not read, nor about reads by its own agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import msgspec

from hansard.agents.access import views
from hansard.agents.errors import RoleRefused
from hansard.agents.policy import permits
from hansard.bus.errors import BusError, NotFound
from hansard.bus.log import Kind, Stored
from hansard.bus.loggers import logger, unexpected
from hansard.domain.board import VIEWS
from hansard.domain.errors import BadValue, HansardError, Refused
from hansard.domain.ids import AgentStream, KeyStream, WorkspaceStream, run_of
from hansard.domain.label import Label
from hansard.domain.memory.events import KIND as MEMORY
from hansard.domain.prompt import KIND, PromptAliased
from hansard.domain.roles.model import KIND as ROLE
from hansard.domain.roles.view import Line
from hansard.operations.protocol.errors import NotOffered
from hansard.service.mcp import resources
from hansard.service.mcp.resources import Address
from hansard.service.mcp.sessions import Sessions, Work

WATCHED_MAX = 100
"""Most subscriptions of one client, over all its connections."""

QUIET_S = 0.25
"""Pause after a cue, in seconds: changes in it become the next cue."""

REST = 4
"""Pause after a check as a multiple of its duration: checks take a fifth of the time."""

POLL_S_MIN, POLL_S_MAX, POLL_GROWTH = 2.0, 30.0, 1.5
"""Seconds between two polls: shortest, after a change; longest; and the growth."""

AGAIN_S = 5.0
"""Seconds after which following a log or checking an address is retried."""

LOOKED_AT = ("memory", "view")
"""Kinds of addresses that must be read to find out whether they changed."""

READING = frozenset({"board", "resource", "team", "view"})
"""Kinds of steps in which an agent reads the record, if their effects are `pure`."""

_log = logger(__name__)


class _Watched(msgspec.Struct):
    """A watched address: its session, number of holders, first position, and last state."""

    uri: str
    address: Address
    work: Work
    holders: int = 1
    since: int = 0
    seen: bytes = b""

    def concerns(self, stored: Stored) -> bool:
        """Return whether a commit may have changed the address."""
        run, stream = self.address.of, stored.stream
        if stored.position <= self.since:
            return False
        if self.address.kind == "memory":
            return isinstance(stream, WorkspaceStream) and stream.kind == MEMORY
        if self.address.key is not None:
            return stream == KeyStream(run, self.address.key)
        if isinstance(stream, WorkspaceStream):
            mine = self.work.session.engine.stream.role
            return self.address.kind == "view" and stream == WorkspaceStream(ROLE, mine)
        if run_of(stream) != run:
            return False
        if isinstance(stream, KeyStream) and stream.key.startswith(VIEWS):
            return False  # serving a view changes nothing
        own = isinstance(stream, AgentStream) and stream.agent == self.work.session.agent
        return not own or not all(_reads((e.type, e.data) for e in stored.commit.events))


class _Shown(msgspec.Struct, frozen=True):
    """The part of a run that a role is shown, and its label."""

    lines: list[Line]
    label: Label | None = None


def _reads(events: Iterable[tuple[str, msgspec.Raw]]) -> list[bool]:
    """Return for each of an agent's events whether it only records a read by the agent."""
    found: list[bool] = []
    steps: set[object] = set()
    for tag, data in events:
        kind = tag.rpartition(".v")[0]
        reads = kind in ("tool.declared", "agent.session_began")
        if kind in ("step.requested", "step.completed", "step.failed"):
            event = msgspec.json.decode(data)
            if kind == "step.requested":
                reads = event.get("effects") == "pure" and event.get("kind") in READING
                steps |= {event.get("step")} if reads else set()
            else:
                reads = event.get("step") in steps
        found.append(reads)
    return found


class Watcher:
    """Watches for changes: follows the log, or polls a restricted client's service.

    Subclasses define what a commit concerns, and what is sent.
    """

    kind: Kind | None = None
    """The streams to follow; None for all."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._beginning = asyncio.Lock()
        self._cue = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def close(self) -> None:
        """Stop watching."""
        ended = self._end()
        await asyncio.gather(*ended, return_exceptions=True)

    def _begin(self, after: int) -> None:
        works: list[Coroutine[Any, Any, None]] = (
            [self._asking()]
            if self._sessions.workspace is None
            else [self._following(after), self._telling()]
        )
        self._tasks = [asyncio.create_task(each) for each in works]

    def _end(self) -> list[asyncio.Task[None]]:
        ended, self._tasks = self._tasks, []
        for task in ended:
            task.cancel()
        return ended

    async def _following(self, after: int) -> None:
        """Note the commits of the log, until cancelled."""
        while True:
            try:
                following = self._sessions.workspace.log.follow(after, of=self.kind)
                async with contextlib.aclosing(following) as commits:
                    async for stored in commits:
                        after = stored.position
                        self._note(stored)
            except Exception as error:  # noqa: BLE001 -- keep following after any error
                _log.warning("cannot follow the log", again_s=AGAIN_S, **unexpected(error))
            await asyncio.sleep(AGAIN_S)

    async def _telling(self) -> None:
        """Send changes, with pauses, until cancelled."""
        while True:
            await self._cue.wait()
            self._cue.clear()
            began_s = time.monotonic()
            await self._tell()
            await asyncio.sleep(max(QUIET_S, REST * (time.monotonic() - began_s)))

    async def _asking(self) -> None:
        """Poll a restricted client's service, until cancelled."""
        raise NotImplementedError

    def _note(self, stored: Stored) -> None:
        """Set the cue if a commit concerns a watched address."""
        raise NotImplementedError

    async def _tell(self) -> int:
        """Send the changes that may be read; return the number of notifications."""
        raise NotImplementedError

    def _again(self) -> None:
        """Schedule another check, after a request without an answer."""
        asyncio.get_running_loop().call_later(AGAIN_S, self._cue.set)


class Updates(Watcher):
    """Addresses that one client watches, over all its connections.

    `notify` is called with an address that should be read again.
    """

    def __init__(self, sessions: Sessions, notify: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(sessions)
        self._notify = notify
        self._watched: dict[str, _Watched] = {}
        self._changed: dict[str, None] = {}

    async def hold(self, uri: str) -> None:
        """Watch an address from now on.

        It is read once, so that a client that may not read it is refused in the same words. Raises
        BadValue, Refused, and as `resources.read`.
        """
        address = Address.read(uri)
        if not address.changes:
            known = ", ".join(each.uri for each in resources.TEMPLATES if each.changes)
            raise BadValue(f"{uri!r:.200}", "does not change", f"watch one of {known}")
        async with self._beginning:
            held = sum(each.holders for each in self._watched.values())
            if held >= WATCHED_MAX:
                message = (
                    f"this client holds {held} subscriptions, the most that one may: unsubscribe "
                    "from some, or from the keys of a run and watch run://RUN/trace"
                )
                raise Refused(message)
            if uri in self._watched:
                self._watched[uri].holders += 1
                return
            answer = await resources.read(self._sessions, uri, address, "resources/subscribe")
            new = _Watched(uri, address, answer.work or await self._sessions.own())
            if self._sessions.workspace is not None:
                new.since = await self._sessions.workspace.log.head()
            if address.kind in LOOKED_AT or self._sessions.workspace is None:
                new.seen = await self._sight(new, {})
            self._watched[uri] = new
            if not self._tasks:
                self._begin(new.since)

    def release(self, uri: str) -> None:
        """Stop watching an address for one holder."""
        each = self._watched.get(uri)
        if each is None:
            return
        each.holders -= 1
        if not each.holders:
            del self._watched[uri]
            self._changed.pop(uri, None)
        if not self._watched:
            self._end()

    # ------------------------------------------------------------ watching

    def _note(self, stored: Stored) -> None:
        self._changes(each for each in self._watched.values() if each.concerns(stored))

    def _changes(self, changed: Iterable[_Watched]) -> None:
        for each in changed:
            self._changed[each.uri] = None
            self._cue.set()

    async def _asking(self) -> None:
        """Poll a restricted client's service, until cancelled."""
        pause_s = POLL_S_MIN
        while True:
            before = len(self._watched)
            await asyncio.sleep(pause_s)
            self._changes(self._watched.values())
            changed = await self._tell()
            quiet = not changed and len(self._watched) <= before
            pause_s = min(pause_s * POLL_GROWTH, POLL_S_MAX) if quiet else POLL_S_MIN

    async def _tell(self) -> int:
        """Notify of each address that changed and may be read; return how many."""
        changed, self._changed = self._changed, {}
        known: dict[str, _Shown] = {}
        count = 0
        for each in [self._watched[uri] for uri in changed if uri in self._watched]:
            try:
                news = await self._is_news(each, known)
            except HansardError as error:  # refused or unreachable: no notification
                self._sessions.note(error)
                _log.debug("cannot check a watched address", **unexpected(error))
                if isinstance(error, BusError) and not isinstance(error, NotFound):
                    self._changed[each.uri] = None  # the broker has not answered: retry
                    self._again()
                continue
            except Exception as error:  # noqa: BLE001 -- the other addresses are still checked
                _log.warning("cannot check a watched address", **unexpected(error))
                continue
            if news and each.uri in self._watched:
                count += 1
                await self._notify(each.uri)
        return count

    async def _is_news(self, each: _Watched, known: dict[str, _Shown]) -> bool:
        """Return whether an address changed in a way that the client may know."""
        if each.address.kind in LOOKED_AT or self._sessions.workspace is None:
            before, each.seen = each.seen, await self._sight(each, known)
            is_mine = each.address.kind == "view" and self._sessions.workspace is not None
            if is_mine and each.seen != before:
                each.work.session.engine.ledger.shown(known[each.address.of].label)
            return each.seen != before
        if each.address.key is None:
            return True
        engine = each.work.session.engine
        permit = await permits.read(self._sessions.workspace, engine.stream.role)
        permit.demand(permits.reads(each.address.key))
        state = await engine.boards.state(KeyStream(each.address.of, each.address.key))
        cleared = state.label is None or state.label.flows_to(await engine.clearances.own())
        if cleared:
            engine.ledger.shown(state.label)  # the notification itself reveals it
        return cleared

    async def _sight(self, each: _Watched, known: dict[str, _Shown]) -> bytes:
        """Return a digest of what the role sees at an address, without reads of its own agent."""
        if each.address.kind == "memory":
            return await self._file(each)
        run = each.address.of
        if run not in known:
            known[run] = await self._shown(each)
        lines = known[run].lines
        digest = hashlib.sha256()
        mine = [one for _, one in lines if one.agent == each.work.session.agent]
        reads = _reads((one.type, one.data) for one in mine)
        passed = {one.id for one, is_reading in zip(mine, reads, strict=True) if is_reading}
        for _, one in lines:
            concerned = each.address.key is None or each.address.key == one.key
            if concerned and one.id not in passed and not one.type.startswith("view."):
                digest.update(one.id.encode() + b"\0" + bytes(one.data) + b"\0")
        return digest.digest()

    async def _file(self, each: _Watched) -> bytes:
        """Return the space and digest of a file of memory; empty if it does not exist."""
        each.work = await self._sessions.of(each.work.session.run)
        async with self._sessions.at_work(each.work):
            try:
                found = await each.work.session.memory.entry(each.address.key)
            except NotFound:
                return b""
        return f"{found.space} {found.digest}".encode()

    async def _shown(self, each: _Watched) -> _Shown:
        """Return the part of a run that the role is shown."""
        if self._sessions.workspace is None:
            return _Shown((await self._sessions.record.view(each.address.of)).events)
        role = each.work.session.engine.stream.role
        made = await views.derive(self._sessions.workspace.states, role, each.address.of)
        return _Shown(made.view.events, made.label)


# ------------------------------------------------------------ prompts

Seen = dict[str, tuple[Any, ...]]
"""The listed fields of each prompt."""


class PromptUpdates(Watcher):
    """Watches the prompts while a client is to be notified.

    `notify` is called when they should be listed again.
    """

    kind = Kind(KIND)

    def __init__(self, sessions: Sessions, notify: Callable[[], Awaitable[None]]) -> None:
        super().__init__(sessions)
        self._notify = notify
        self._holders = 0
        self._seen: Seen = {}
        self._moved = set[str]()

    async def hold(self) -> None:
        """Watch from now on, for one more holder."""
        async with self._beginning:
            self._holders += 1
            if not self._tasks:
                workspace = self._sessions.workspace
                after = 0 if workspace is None else await workspace.log.head()
                self._seen = await self._sight()
                self._begin(after)

    def release(self) -> None:
        """Stop watching for one holder."""
        self._holders -= 1
        if not self._holders:
            self._end()

    def _note(self, stored: Stored) -> None:
        moves = any(each.type == PromptAliased.tag for each in stored.commit.events)
        if moves and isinstance(stored.stream, WorkspaceStream):
            self._moved.add(stored.stream.id)
        self._cue.set()

    async def _asking(self) -> None:
        while True:
            await asyncio.sleep(POLL_S_MAX)
            await self._tell()

    async def _tell(self) -> int:
        moved, self._moved = self._moved, set()
        try:
            before, self._seen = self._seen, await self._sight()
        except HansardError as error:  # unreachable: no notification
            self._sessions.note(error)
            self._moved |= moved
            self._again()
            _log.debug("cannot check the prompts", **unexpected(error))
            return 0
        if self._seen == before and not moved & self._seen.keys():
            return 0
        await self._notify()
        return 1

    async def _sight(self) -> Seen:
        """Return the prompts that the client may see; empty if it may see none."""
        try:
            await self._sessions.demand(permits.prompts())
            found = await self._sessions.record.prompts()
        except (NotOffered, RoleRefused):
            return {}
        for each in found:
            await self._sessions.shown(each.label)
        return {each.name: (each.version, each.because, each.text) for each in found}
