"""Restore the metadata of streams that an embedded broker does not offer.

nats-server identifies a stream by two files beside its messages: `meta.inf` has its configuration,
`meta.sum` a checksum of that. If either is damaged or missing, the server omits the stream, and its
messages stay in place. Neither file depends on the messages, so those of an empty stream of the
same name and configuration, created by a broker on a separate folder, replace them.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hansard.broker.files import METADATA, ServerFiles
from hansard.broker.lease import ENDING_S, ServerError, is_freed, join_in_thread, unused
from hansard.bus import marks, subjects
from hansard.bus.errors import BrokerError, NotFound, NotWritable
from hansard.bus.file_lock import PRIVATE_DIR
from hansard.bus.jetstream import streams as jetstream_streams
from hansard.bus.jetstream.client import Broker, BrokerOptions
from hansard.bus.jetstream.direct import Direct, api
from hansard.bus.jetstream.generations import survey
from hansard.bus.marks import Witness

BACKUPS = "repaired"
"""Folder of a data directory that keeps the replaced files."""


class RestoredStream(msgspec.Struct, frozen=True, tag_field="kind", tag="restored"):
    """A stream that the broker offers again: its number of messages, first and last sequence, and
    the new place of its damaged files.
    """

    stream: str
    messages: int
    first: int
    last: int
    backup: str


async def repair(data_dir: Path, workspace: str) -> list[RestoredStream]:
    """Restore the metadata of a workspace's streams that have messages and are not offered.

    Raises NotFound, NotWritable, ServerError, Unreachable, BrokerError, Corrupt.
    """
    place = ServerFiles(data_dir.resolve())  # noqa: ASYNC240 -- as `Host.open` does, once
    log, logs = subjects.log_stream(workspace), Witness.of(place.root).logs(workspace)
    async with _administrator(place.root) as broker:
        missing = [
            name
            for name in dict.fromkeys([*_names(workspace), *sorted(logs)])
            if await jetstream_streams.config_of(broker, name) is None
        ]
        at = await survey(Direct(broker), workspace)
    is_rolled = bool(at.archived or {*logs, *(each.stream for each in at.streams)} - {log})
    damaged = [name for name in missing if Witness.of(place.root).files(name) is not None]
    if log in missing and not damaged and not is_rolled:
        raise NotFound(f"workspace {workspace!r}", f"no stream of it is in {str(place.store)!r}")
    generations = [name for name in damaged if name in logs]
    if generations and is_rolled:
        raise ServerError(
            f"the log of workspace {workspace!r} was rolled, and the broker does not offer "
            f"{', '.join(map(repr, generations))} of it; 'hansard repair' restores the log only of "
            "a workspace that was never rolled, because a damaged file does not say which "
            "generation is sealed. 'hansard tiers roll' restores the newest one; for another, "
            f"restore {str(place.store)!r} from a backup, then run 'hansard check'"
        )
    if not damaged:
        return []
    with tempfile.TemporaryDirectory("-hansard-repair", ignore_cleanup_errors=True) as folder:
        fresh = ServerFiles(Path(folder) / "data")
        async with _administrator(fresh.root) as broker:
            await jetstream_streams.ensure(broker, workspace)
        try:
            backup = await asyncio.to_thread(_replace, place, fresh, damaged, workspace)
        except OSError as error:
            raise NotWritable(place.root, error) from error
        await asyncio.to_thread(is_freed, fresh, time.monotonic() + ENDING_S)
    async with _administrator(place.root) as broker:
        return [await _restored_stream(broker, name, backup) for name in damaged]


def _names(workspace: str) -> list[str]:
    """Return the streams of a workspace."""
    return [
        subjects.log_stream(workspace),
        subjects.blob_stream(workspace),
        subjects.snapshot_stream(workspace),
    ]


@contextlib.asynccontextmanager
async def _administrator(data_dir: Path) -> AsyncGenerator[Broker]:
    """Connect to the broker of a data directory, which is started if it does not run."""
    lease = await join_in_thread(data_dir)
    try:
        login = lease.info.admin
        options = BrokerOptions(
            urls=(lease.info.url,), user=login.user, password=login.password, name="hansard repair"
        )
        broker = await Broker.open(options)
        try:
            yield broker
        finally:
            await broker.close()
    finally:
        lease.close()


def _replace(place: ServerFiles, fresh: ServerFiles, names: Sequence[str], workspace: str) -> Path:
    """Replace damaged metadata by that of new streams; return the backup's folder.

    No broker can be started meanwhile. Raises InUse, OSError.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    backup = place.root / BACKUPS / stamp
    with unused(place):
        for name in names:
            kept = backup / name
            kept.mkdir(mode=PRIVATE_DIR, parents=True)
            for each in METADATA:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy2(place.stream(name) / each, kept / each)
            new = {each: (fresh.stream(name) / each).read_bytes() for each in METADATA}
            place.write_metadata(name, new)
        _forget_loss(place.root, workspace, backup)
    return backup


def _forget_loss(data_dir: Path, workspace: str, backup: Path) -> None:
    """Remove the note of a loss from a workspace's mark: messages of a stream that was not offered
    counted as lost. The mark detects again whatever is still missing.
    """
    with contextlib.suppress(marks.Damaged):
        kept = marks.read(data_dir, workspace)
        if kept is not None and kept.lost is not None:
            path = marks.path_of(data_dir, workspace)
            shutil.copy2(path, backup / path.name)
            marks.write(data_dir, workspace, msgspec.structs.replace(kept, lost=None))


async def _restored_stream(broker: Broker, name: str, backup: Path) -> RestoredStream:
    """Return the broker's current state of a stream. Raises BrokerError if it still does not offer
    it.
    """
    try:
        state = (await api(broker, f"STREAM.INFO.{name}"))["state"]
    except BrokerError as error:
        fact = f"it is still not offered ({error.description}); its files are in {str(backup)!r}"
        raise BrokerError(f"repairing stream {name!r}", error.code, fact) from error
    kept = str(backup / name)
    return RestoredStream(name, state["messages"], state["first_seq"], state["last_seq"], kept)
