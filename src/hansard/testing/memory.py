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
        """Store bytes, and return their SHA-256 in hex."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._held[sha256] = data
        return sha256

    async def get(self, sha256: str, size: int) -> bytes:
        """Return the bytes with a hash. Raises NotFound, Corrupt."""
        return self.at_hand(sha256, size)

    async def get_all(self, blobs: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Return the bytes with each of several hashes. Raises as `get`."""
        return {blob[0]: await self.get(*blob) for blob in blobs}

    def at_hand(self, sha256: str, size: int) -> bytes:
        """Return the same as `get`, without awaiting."""
        if sha256 not in self._held:
            raise NotFound(f"blob {sha256}", "nothing stored it in this memory")
        return verified(sha256, size, self._held[sha256])


class _Strict:
    """Import observer that stops at the first record that cannot be read."""

    def read(self, count: int) -> None:
        """Ignore the progress: `count` more bytes were read."""

    def bad(self, bad: Bad) -> None:
        """Raise BadValue."""
        where = f"file {bad.file!r}, line {bad.line}"
        raise BadValue(where, bad.reason, "export the runs again")


async def _nothing() -> None:
    return None


class Memory:
    """An in-memory workspace: runs, boards, tasks, roles, large payloads.

    It lives as long as this object. Everything that needs a broker is missing: other processes
    (so the command line with its tables, SQL, search and pages), restricted agents, and data that
    survives a kill of this process. `export` writes a file that `hansard import events` loads
    into a workspace on a broker.
    """

    def __init__(self) -> None:
        self.log = RecorderLog(WORKSPACE)
        """The commits, as a `hansard.bus.log.EventLog`."""
        self.blobs = MemoryBlobs()
        """The large payloads."""

    def record(self, **options: Unpack[RecordOptions]) -> Record:
        """Open it as a record for the sync client, as another process would.

        Keyword Args:
            gate (Sequence): Rules, as `hansard.connect` takes them.
            redact (Mapping): Secrets to keep out of the record, as `connect` takes them.
            secrets (Provider): Provider that returns them to live calls, as `connect` takes it.
            settle (Settle): Policy for steps in doubt, as `connect` takes it.
            run (str): The run that sessions join if they name none.
            mode (str): `strict` or `offline`: read only, run no tool.

        Raises:
            BadOption: Unknown option; the message suggests the nearest.
            SyncInLoop: Called inside a running event loop; use `record_async`.
        """
        return record_of(self, Record, dict(options))

    def record_async(self, **options: Unpack[RecordOptions]) -> AsyncRecord:
        """Open it as a record for the async client; takes the options of `record`."""
        return record_async_of(self, AsyncRecord, dict(options))

    def copy(self, up_to: int | None = None) -> Memory:
        """Return an independent copy, byte for byte; with `up_to` only the commits up to that
        position, as a kill would have left it.
        """
        made = Memory()
        made.log = self.log.copy(up_to)
        made.blobs = self.blobs
        return made

    def load(self, path: str | Path) -> None:
        """Load the runs of a file that `hansard export` wrote.

        Raises:
            BadValue: The file is damaged; the message names the line.
            OSError: It cannot be read.
        """
        finished(import_events(workspace_of(self), Path(path), _Strict()))

    def export(self, path: str | Path, *runs: str) -> None:
        """Write the named runs, or all if none is named, as `hansard export` does.

        Raises:
            NotFound: A run does not exist.
            OSError: The file cannot be written.
        """
        request = list(runs) or finished(self.log.runs())
        with Path(path).open("wb") as file:
            finished(export(workspace_of(self), request, file.write))


def workspace_of(memory: Memory) -> Workspace:
    """Return a new workspace over the memory. Each record needs its own: one event loop cannot wake
    a waiter of another.
    """
    return Workspace(memory.log, memory.blobs, Clock(), _nothing, command="hansard")


def record_of(memory: Memory, kind: Callable[..., R], options: dict[str, Any]) -> R:
    """Open a record of a given class for the sync client. Raises BadOption, SyncInLoop."""
    refuse_in_loop()
    return kind(workspace_of(memory), portal(), _defaults(options))


def record_async_of(memory: Memory, kind: Callable[..., A], options: dict[str, Any]) -> A:
    """Open a record of a given class for the async client. Raises BadOption."""
    return kind(workspace_of(memory), _defaults(options), None, Record)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only memory, and return its result; works inside a running loop,
    which it blocks meanwhile.
    """
    found: T = arriving(work, portal().loop).result()
    return found


def _defaults(options: dict[str, Any]) -> Defaults:
    check_options("testing.record", options, RecordOptions.__annotations__)
    defaults = {name: value for name, value in options.items() if value is not None}
    if "mode" in defaults:
        defaults["mode"] = chosen(Mode, defaults["mode"], "mode")
    return msgspec.structs.replace(Defaults(), **defaults)


def record(**options: Unpack[RecordOptions]) -> Record:
    """Open an in-memory record for the sync client: `with testing.record() as record:`.

    No broker is started and no file is written; the record is gone with the object.

    Keyword Args:
        gate (Sequence): Rules, as `hansard.connect` takes them.
        redact (Mapping): Secrets to keep out of the record, as `connect` takes them.
        secrets (Provider): Provider that returns them to live calls, as `connect` takes it.
        settle (Settle): Policy for steps in doubt, as `connect` takes it.
        run (str): The run that sessions join if they name none.
        mode (str): `strict` or `offline`: read only, run no tool.

    Raises:
        BadOption: Unknown option; the message suggests the nearest.
        SyncInLoop: Called inside a running event loop; use `record_async`.
    """
    return Memory().record(**options)


def record_async(**options: Unpack[RecordOptions]) -> AsyncRecord:
    """Open an in-memory record for the async client; takes the options of `record`."""
    return Memory().record_async(**options)
