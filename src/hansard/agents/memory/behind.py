"""Changes of a space that go to the log later: each stands in a journal on this machine's disk
before it is acknowledged, and is sent from there, in order, as one commit.

    SPACE.journal   a line a change: its CRC-32, and what it does
    SPACE.sent      up to which byte of the journal the log has it, or it was refused
    SPACE.refused   a line a change that could not be made on the space as it stood by then

SPACE is the space's name as a subject's token, one-to-one. It was the name with `.` for `/`, the
same for agent/a/b and agent/a.b: what waits in a journal of such a name goes to the space that is
opened first, since nothing in it tells of which it is.

A change is its operations, which are worked out on the space as it stands when they are sent: what
others wrote meanwhile in other files, or other lines, stays. Its id is that of its commit, so that
what was sent before a kill is known again and not sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op, worked_out
from hansard.agents.memory.reading import MemoryEntry, MemoryVersion, entry_of
from hansard.agents.memory.store import BlamedLine, MemoryStore
from hansard.bus import file_lock, subjects
from hansard.bus.clock import Clock
from hansard.bus.errors import BusError, NotFound, TooLarge
from hansard.domain import ids
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue, Corrupt, HansardError, Refused
from hansard.domain.events import Actor
from hansard.domain.memory import paths
from hansard.domain.memory import space as spaces
from hansard.domain.memory.events import MemoryChanged, MemoryPolicySet
from hansard.domain.memory.space import MemoryState

PENDING_MAX = 10_000
"""Most changes that wait: each is worked out again on what others wrote, to be read."""

RETRY_S = 1.0
"""Between two tries to send, where the log is out of reach, in seconds."""

LOOK_S = 1.0
"""So often `flush` looks whether anything sends still, in seconds."""

FLUSH_S = 60.0
"""How long `flush` waits if nothing else is said, in seconds."""


class Waiting(msgspec.Struct, frozen=True):
    """A change that waits: the id of the commit that it becomes, and what it does."""

    id: str
    ops: list[Op]
    by: str
    because: str = ""
    sources: tuple[str, ...] = ()


class _Entry(msgspec.Struct, frozen=True):
    change: Waiting
    end: int
    """Where its line ends in the journal, in bytes."""


_decoder = msgspec.json.Decoder(Waiting)


def line_of(change: Waiting) -> bytes:
    """A change as its line."""
    body = msgspec.json.encode(change)
    return b"%08x %b\n" % (zlib.crc32(body), body)


def read(raw: bytes, where: str) -> tuple[list[_Entry], int]:
    """The changes of a journal, and where they end: a line that was not written whole is at its
    end, and was not acknowledged. Raises Corrupt for one elsewhere.
    """
    found: list[_Entry] = []
    at = 0
    while at < len(raw):
        end = raw.find(b"\n", at) + 1
        line = raw[at : end - 1] if end else raw[at:]
        try:
            crc, body = int(line[:8], 16), line[9:]
            fits = bool(end) and zlib.crc32(body) == crc
            change = _decoder.decode(body) if fits else None
        except (ValueError, msgspec.DecodeError):
            change = None
        if change is None:
            if end and end < len(raw):
                raise Corrupt(where, f"its line at byte {at} is not as it was written")
            break
        found.append(_Entry(change, end))
        at = end
    return found, at


class Journal:
    """The files of one space's journal, locked while they are open. Blocks; nothing here waits for
    the log.
    """

    def __init__(self, folder: Path, space: str) -> None:
        """Open and lock it. Raises Refused (another process has it open), Corrupt, OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        files = subjects.token(space)
        self._path, self._mark = folder / f"{files}.journal", folder / f"{files}.sent"
        self._refused = folder / f"{files}.refused"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        if not file_lock.take(self._fd):
            os.close(self._fd)
            message = f"another process has {self._path} open: end it, or give another folder"
            raise Refused(message)
        try:
            self._read()
            _sync_folder(folder)
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        raw = self._path.read_bytes()
        entries, end = read(raw, str(self._path))
        if end < len(raw):
            os.ftruncate(self._fd, end)
        sent = int(self._mark.read_text() or 0) if self._mark.exists() else 0
        if sent > end:  # it was emptied, and killed before that was said
            sent = 0
            self._say(0)
        self.waiting = deque(each for each in entries if each.end > sent)
        self._end = end

    def add(self, change: Waiting) -> None:
        """Have a change on disk. Raises OSError, and then nothing of it counts."""
        self._write([change])

    def _write(self, changes: Sequence[Waiting]) -> None:
        lines = [line_of(change) for change in changes]
        left = b"".join(lines)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
            os.fdatasync(self._fd)
        except OSError:
            os.ftruncate(self._fd, self._end)
            raise
        for change, line in zip(changes, lines, strict=True):
            self._end += len(line)
            self.waiting.append(_Entry(change, self._end))

    def done(self, entry: _Entry) -> None:
        """The log has the first that waits, or it was refused."""
        self.waiting.popleft()
        if self.waiting:
            self._say(entry.end)
        else:
            self._empty()

    def _empty(self) -> None:
        os.ftruncate(self._fd, 0)
        self._end = 0
        self._say(0)

    def refuse(self, change: Waiting, why: str) -> None:
        """Keep a change that could not be made."""
        line = msgspec.json.encode({"why": why, **msgspec.to_builtins(change)}) + b"\n"
        with self._refused.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Let go of it."""
        file_lock.release(self._fd)

    def _say(self, sent: int) -> None:
        beside = self._mark.with_suffix(".sent-new")
        with beside.open("w") as file:
            file.write(str(sent))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._mark)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class BehindStore:
    """A space whose changes go to the log later. On the bus's loop."""

    def __init__(self, store: MemoryStore, folder: Path) -> None:
        """Raises Refused, Corrupt, OSError."""
        self.space = store.space
        self.refused: list[str] = []
        """Why changes of this process could not be made, in order."""
        self._store = store
        self._journal = Journal(folder, store.space)
        self._clock = Clock()
        self._turn = asyncio.Lock()
        self._news, self._sent = asyncio.Event(), asyncio.Event()
        self._ahead: tuple[MemoryState, int, MemoryState] | None = None
        self._changes = 0
        self._told = 0
        self._task = asyncio.create_task(self._send_all())
        if self._journal.waiting:
            self._news.set()

    @property
    def pending(self) -> int:
        """How many changes wait."""
        return len(self._journal.waiting)

    # ------------------------------------------------------------ reads

    def cached(self, path: str) -> MemoryEntry | None:
        """A file of a space that is followed, what waits included, from memory, in any thread."""
        stands = self._store.known()
        found = self._with_waiting(stands).files.get(path) if stands is not None else None
        return entry_of(self.space, found) if found is not None and not found.link else None

    async def follow(self) -> None:
        """Keep the space at what the log tells."""
        await self._store.follow()

    async def entry(self, path: str, at: object = None) -> MemoryEntry:
        """A file, what waits included. Raises NotFound, BadValue."""
        if at is not None:
            return await self._store.entry(path, at)
        named = paths.normal(path)
        found = (await self._state()).file(named)
        if found is None:
            raise NotFound(f"file {named!r} of {self.space}", "see 'hansard memory ls'")
        return entry_of(self.space, found)

    async def entries(self, at: object = None) -> list[MemoryEntry]:
        """All files, what waits included."""
        if at is not None:
            return await self._store.entries(at)
        files = (await self._state()).files
        return [entry_of(self.space, files[path]) for path in sorted(files)]

    async def versions(self, path: str | None = None) -> list[MemoryVersion]:
        """The versions in the log."""
        return await self._store.versions(path)

    async def diff(self, path: str | None, before: object, after: object = None) -> str:
        """What became of files in the log."""
        return await self._store.diff(path, before, after)

    async def blame(self, path: str) -> list[BlamedLine]:
        """The change in the log that brought each line."""
        return await self._store.blame(path)

    async def _state(self) -> MemoryState:
        """The space with what waits."""
        stands = self._store.known()
        return self._with_waiting(stands if stands is not None else await self._store.state())

    def _with_waiting(self, stands: MemoryState) -> MemoryState:
        """A space with what waits; what cannot be made of it is left out."""
        known = self._ahead
        if known is not None and known[0] is stands and known[1] == self._changes:
            return known[2]
        state, changes = stands, self._changes
        for entry in list(self._journal.waiting):
            with contextlib.suppress(HansardError):
                state = _after(self.space, state, entry.change)
        self._ahead = stands, changes, state
        return state

    # ------------------------------------------------------------ changes

    async def change(
        self, ops: Sequence[Op], by: str | Actor, because: str = "", sources: Sequence[str] = ()
    ) -> int:
        """Have a change in the journal, which is on disk when this returns; 0, since its version is
        not known yet. Raises what is known to be in its way already.
        """
        ids.name("by", Actor.of(by).agent)
        change = Waiting(
            self._clock.new_id(), list(ops), Actor.of(by).agent, because, tuple(sources)
        )
        async with self._turn:
            if self.pending >= PENDING_MAX:
                fact = f"{counted(self.pending, 'change')} wait"
                raise BadValue(f"journal of {self.space}", fact, "flush() first")
            state = await self._state()
            after = _after(self.space, state, change)
            if after.version == state.version:
                return 0
            await asyncio.to_thread(self._journal.add, change)
            self._changes += 1
            self._news.set()
        return 0  # its version is not known yet

    async def remember(self, text: str, by: str, path: str, sources: Sequence[str] = ()) -> int:
        """Add an item to a file's list."""
        return await self.change([drafts.remembered(path, text)], by, "to be remembered", sources)

    async def revert(self, change: str, by: str | Actor, because: str = "") -> int:
        """Undo a change of the log, once nothing waits."""
        await self.flush()
        return await self._store.revert(change, by, because)

    async def set_policy(self, policy: MemoryPolicySet, by: str) -> bool:
        """Say whether changes are asked about."""
        return await self._store.set_policy(policy, by)

    async def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Wait until nothing waits. Raises BusError after `timeout_s` seconds; Refused where some
        of it could not be made, each told once; OSError where this disk takes nothing.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self.pending:
            if self._task.done():
                self._task.result()  # raises what ended it: this disk takes nothing, say
            left_s = deadline - asyncio.get_running_loop().time()
            self._sent.clear()
            try:
                await asyncio.wait_for(self._sent.wait(), min(max(left_s, 0.001), LOOK_S))
            except TimeoutError:
                if left_s > LOOK_S:
                    continue
                waits = f"{counted(self.pending, 'change')} of {self.space} still in the journal"
                message = f"{waits} after {timeout_s:g} s: the log takes nothing; try again"
                raise BusError(message) from None
        news, self._told = self.refused[self._told :], len(self.refused)
        if news:
            message = (
                f"{counted(len(news), 'change')} of {self.space} could not be made as the space "
                f"stands now: kept in the journal's file of refusals; the first: {news[0]}"
            )
            raise Refused(message)

    async def close(self) -> None:
        """Send no more; what waits is sent when the journal is opened again."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        async with self._turn:
            self._journal.close()

    # ------------------------------------------------------------ to the log

    async def _send_all(self) -> None:
        doubtful = True
        """Whether what is sent next may stand in the log already."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._journal.waiting:
                entry = self._journal.waiting[0]
                try:
                    await self._send(entry.change, doubtful=doubtful)
                    doubtful = False
                except HansardError as error:
                    if isinstance(error, BusError) and not isinstance(error, (NotFound, TooLarge)):
                        doubtful = True
                        await asyncio.sleep(RETRY_S)
                        continue
                    await asyncio.to_thread(self._journal.refuse, entry.change, str(error))
                    self.refused.append(str(error))
                async with self._turn:
                    await asyncio.to_thread(self._journal.done, entry)
                    self._changes += 1
                self._sent.set()

    async def _send(self, change: Waiting, *, doubtful: bool) -> None:
        if doubtful and await self._store.has(change.id):
            return
        await self._store.change(
            change.ops, change.by, change.because, change.sources, commit=change.id
        )


def _after(name: str, state: MemoryState, change: Waiting) -> MemoryState:
    """A space after a change that waits. Raises NotFound, BadValue, MemoryConflict."""
    wanted = MemoryChanged(
        files=worked_out(name, state, change.ops, None),
        because=change.because,
        sources=change.sources,
    )
    return spaces.fold(state, spaces.decide(name, state, wanted))


async def behind_of(store: object, folder: Path) -> BehindStore:
    """A space's store whose changes go to the log later, until its workspace is closed. Raises
    BadValue for a store that is of another kind, Refused, Corrupt, OSError.
    """
    if not isinstance(store, MemoryStore):
        fact = "its changes go to a journal already, or by the service"
        raise BadValue("behind", fact, "ask for the space again, by a trusted program")
    made = BehindStore(store, folder)
    store.on_close(made.close)
    return made
