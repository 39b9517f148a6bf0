"""A workspace in this process's memory, and the client over it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar, Unpack

import msgspec

from hansard.agents.exchange.reader import import_events
from hansard.agents.exchange.writer import export
from hansard.agents.importers.sources import Bad
from hansard.agents.steps.ledger import Mode
from hansard.agents.workspace import Workspace
from hansard.bus.clock import Clock
from hansard.bus.errors import NotFound
from hansard.bus.log import verified
from hansard.bus.portal import arriving, portal, refuse_in_loop
from hansard.client.options import Defaults, RecordOptions
from hansard.client.record import AsyncRecord, Record
from hansard.domain.choices import check_options, chosen
from hansard.domain.errors import BadValue
from hansard.state.recorder.log import RecorderLog

WORKSPACE = "memory"

T = TypeVar("T")
R = TypeVar("R", bound=Record)
A = TypeVar("A", bound=AsyncRecord)


class MemoryBlobs:
    """Large payloads, by the hash of their bytes."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    async def put(self, data: bytes) -> str:
        """Keep bytes; their SHA-256 in hex."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._held[sha256] = data
        return sha256

    async def get(self, sha256: str, size: int) -> bytes:
        """The bytes behind a hash. Raises NotFound, Corrupt."""
        return self.at_hand(sha256, size)

    async def get_all(self, blobs: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """The bytes behind several hashes. Raises as `get`."""
        return {blob[0]: await self.get(*blob) for blob in blobs}

    def at_hand(self, sha256: str, size: int) -> bytes:
        """As `get`, without waiting."""
        if sha256 not in self._held:
            raise NotFound(f"blob {sha256}", "nothing stored it in this memory")
        return verified(sha256, size, self._held[sha256])


class _Strict:
    """Stops an import at the first record that cannot be read."""

    def read(self, count: int) -> None:
        """So many more bytes were read."""

    def bad(self, bad: Bad) -> None:
        """Raise BadValue."""
        where = f"file {bad.file!r}, line {bad.line}"
        raise BadValue(where, bad.reason, "export the runs again")


async def _nothing() -> None:
    return None


class Memory:
    """A workspace that lives as long as this object: runs, boards, tasks, roles, large payloads.

    What a broker is for is not there: other processes, and so the command line with its tables,
    SQL, search and pages, restricted agents, and what survives a kill of this process. `export`
    writes a file that `hansard import events` takes into a workspace that has all of it.
    """

    def __init__(self) -> None:
        self.log = RecorderLog(WORKSPACE)
        """Its commits: a `hansard.bus.log.EventLog`."""
        self.blobs = MemoryBlobs()
        """Its large payloads."""

    def record(self, **options: Unpack[RecordOptions]) -> Record:
        """A record of it for the sync client, as another process would open one.

        Keyword Args:
            gate (Sequence): Rules, as `hansard.connect` takes them.
            redact (Mapping): Secrets to keep out of the record, as `connect` takes them.
            secrets (Provider): Gives them back to live calls, as `connect` takes it.
            settle (Settle): A policy that settles doubt, as `connect` takes it.
            run (str): The run that sessions join, where they name none.
            mode (str): `strict` or `offline`: only read, and run no tool.

        Raises:
            BadOption: There is no such option here; the message names the nearest.
            SyncInLoop: Inside a running event loop: use `record_async`.
        """
        return record_of(self, Record, dict(options))

    def record_async(self, **options: Unpack[RecordOptions]) -> AsyncRecord:
        """A record of it for the async client; takes what `record` takes."""
        return record_async_of(self, AsyncRecord, dict(options))

    def copy(self, up_to: int | None = None) -> Memory:
        """The same record, byte for byte, which goes its own way from here; with `up_to` only what
        stood on record at that position, as a kill would have left it.
        """
        made = Memory()
        made.log = self.log.copy(up_to)
        made.blobs = self.blobs
        return made

    def load(self, path: str | Path) -> None:
        """Take in the runs of a file that `hansard export` wrote.

        Raises:
            BadValue: The file is damaged; the message says in which line.
            OSError: It cannot be read.
        """
        finished(import_events(workspace_of(self), Path(path), _Strict()))

    def export(self, path: str | Path, *runs: str) -> None:
        """Write runs, all of them where none is named, as `hansard export` does.

        Raises:
            NotFound: A run is not there.
            OSError: The file cannot be written.
        """
        request = list(runs) or finished(self.log.runs())
        with Path(path).open("wb") as file:
            finished(export(workspace_of(self), request, file.write))


def workspace_of(memory: Memory) -> Workspace:
    """The workspace that a record is made over: a new one each time, since what one loop waits for
    no other loop can wake.
    """
    return Workspace(memory.log, memory.blobs, Clock(), _nothing, command="hansard")


def record_of(memory: Memory, kind: Callable[..., R], options: dict[str, Any]) -> R:
    """A record of some class for the sync client. Raises BadOption, SyncInLoop."""
    refuse_in_loop()
    return kind(workspace_of(memory), portal(), _defaults(options))


def record_async_of(memory: Memory, kind: Callable[..., A], options: dict[str, Any]) -> A:
    """A record of some class for the async client. Raises BadOption."""
    return kind(workspace_of(memory), _defaults(options), None, Record)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine comes to that waits for nothing but memory: also inside a running loop,
    which it holds up for as long.
    """
    found: T = arriving(work, portal().loop).result()
    return found


def _defaults(options: dict[str, Any]) -> Defaults:
    check_options("testing.record", options, RecordOptions.__annotations__)
    given = {name: value for name, value in options.items() if value is not None}
    if "mode" in given:
        given["mode"] = chosen(Mode, given["mode"], "mode")
    return msgspec.structs.replace(Defaults(), **given)


def record(**options: Unpack[RecordOptions]) -> Record:
    """A record in memory for the sync client: `with testing.record() as record:`. No broker is
    started and no file written; it is gone with the object.

    Keyword Args:
        gate (Sequence): Rules, as `hansard.connect` takes them.
        redact (Mapping): Secrets to keep out of the record, as `connect` takes them.
        secrets (Provider): Gives them back to live calls, as `connect` takes it.
        settle (Settle): A policy that settles doubt, as `connect` takes it.
        run (str): The run that sessions join, where they name none.
        mode (str): `strict` or `offline`: only read, and run no tool.

    Raises:
        BadOption: There is no such option here; the message names the nearest.
        SyncInLoop: Inside a running event loop: use `record_async`.
    """
    return Memory().record(**options)


def record_async(**options: Unpack[RecordOptions]) -> AsyncRecord:
    """A record in memory for the async client: `async with testing.record_async() as record:`.
    Takes what `record` takes.
    """
    return Memory().record_async(**options)
