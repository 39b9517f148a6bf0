"""High-water marks: the extent of a log, recorded outside of the log.

A log that lost its beginning, its end or a part in between looks like a shorter log, and an older
copy like an older log: neither is visible in the log itself. So each reader that reads a log in
order keeps a mark: the newest position, the number of commits up to it, and a rolling digest of
them. The supervisor of an embedded server keeps one per workspace (see `hansard.broker.marker`);
the tables and each published generation of them carry one.

`loss` compares a log with a mark. Nothing is ever deleted from a log, so its last position minus
its number of messages is the number of lost positions, wherever they are; that number may not
exceed the mark's. The message at the mark must be the one that was read there.

    <data dir>/marks/<workspace>.json           a Kept: what the supervisor saw on the disk
    <data dir>/marks/<workspace>.json.damaged   one that could not be read

A mark may lag behind the log and never leads it: it covers only messages that were on the disk. It
protects against accidents: a process that can write the broker's files can write the marks, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

import msgspec

from hansard.bus import subjects
from hansard.bus.file_lock import PRIVATE_DIR, replace_private
from hansard.domain.choices import counted
from hansard.domain.errors import BadName, Corrupt
from hansard.domain.ids import workspace_name

ACCEPTED = "hansard-missing-positions"
"""Key in the metadata of a log's stream: how many missing positions its operator accepted."""

_BLOBS = "its stream of large payloads"

Newest = tuple[str, bytes]
"""Subject and exact body of the message at a mark's `chained` position."""

_LOG = re.compile(r"hansard_log-(?P<workspace>.+)")


class Counted(Protocol):
    """A log reader's position, and the number of messages it counted up to there."""

    @property
    def position(self) -> int:
        """The newest position that was read."""
        ...

    @property
    def messages(self) -> int:
        """Number of messages read up to it."""
        ...

    @property
    def chain(self) -> str | None:
        """Their rolling digest; None if they were not digested."""
        ...


class Extent(msgspec.Struct, frozen=True):
    """A stream's extent as its server reports it: `messages` from position `first` to `last`.

    `accepted` is the number of missing positions that an operator accepted (ACCEPTED).
    """

    first: int = 0
    last: int = 0
    messages: int = 0
    accepted: int = 0

    @classmethod
    def of(cls, info: dict[str, Any]) -> Extent:
        """Read an answer to STREAM.INFO, or one entry of STREAM.LIST."""
        state = info["state"]
        metadata = info["config"].get("metadata") or {}
        accepted = metadata.get(ACCEPTED, "")
        return cls(
            state["first_seq"],
            state["last_seq"],
            state["messages"],
            int(accepted) if accepted.isdecimal() else 0,
        )

    @property
    def missing(self) -> int:
        """Number of positions up to the last one without a message; 0 for a sound log."""
        return self.last - self.messages

    def gone_since(self, counted: Counted) -> int:
        """Return how many messages that a reader counted in order are gone from the log."""
        if counted.chain is None:  # published by a version that did not digest them
            return 0
        return max(0, self.missing - (counted.position - counted.messages))


class Whole(msgspec.Struct, frozen=True):
    """A log over all its generations: those that have a stream, oldest first, and the extent of
    all. The archive verified `archived` messages at positions up to `end`; their streams may be
    deleted.
    """

    streams: tuple[tuple[str, Extent], ...] = ()
    end: int = 0
    archived: int = 0

    @property
    def extent(self) -> Extent:
        """The extent of the whole log."""
        extents = [extent for _, extent in self.streams]
        if not self.end and len(extents) == 1:
            return extents[0]
        rest = [extent for extent in extents if extent.last > self.end]
        return Extent(
            1 if self.end else min((extent.first for extent in extents), default=0),
            max((extent.last for extent in extents), default=self.end),
            self.archived + sum(extent.messages for extent in rest),
            max((extent.accepted for extent in extents), default=0),
        )

    def holding(self, position: int) -> str | None:
        """Return the stream that can hold a position; None if only the archive does."""
        names = [name for name, each in self.streams if each.messages and each.first <= position]
        if names:
            return names[-1]
        return self.streams[0][0] if self.streams and position > self.end else None

    def checked(self, kept: Kept) -> Kept:
        """Return a mark without its digest if the server no longer has the message to check."""
        if kept.mark.checkable and self.holding(kept.mark.chained) is None:
            return msgspec.structs.replace(kept, mark=msgspec.structs.replace(kept.mark, chain=""))
        return kept


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The extent of a log when it was read: `count` messages up to `position`.

    `chain` is the rolling digest up to `chained`, which is `position` unless messages were written
    faster than they could be read. `before` is the rolling digest without the message at `chained`:
    with it, that one message can be checked alone.
    """

    stream: str
    position: int = 0
    count: int = 0
    chained: int = 0
    chain: str = ""
    before: str = ""

    def then(self, position: int, subject: str, body: bytes) -> Mark:
        """Return the mark after the next message."""
        chain = link(self.chain, position, subject, body)
        return Mark(self.stream, position, self.count + 1, position, chain, self.chain)

    @property
    def missing(self) -> int:
        """Number of positions up to the mark without a message."""
        return self.position - self.count

    @property
    def checkable(self) -> bool:
        """True if the message at `chained` can be checked alone; marks of older versions allow it
        only for the first message.
        """
        return bool(self.chain) and (bool(self.before) or self.chained == 1)

    def holds(self, message: Newest | None) -> bool:
        """Return whether the message at `chained` is the one that was read there."""
        if message is None:
            return False
        return link(self.before, self.chained, *message) == self.chain


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record that an embedded server's supervisor keeps of one workspace.

    `blobs` is the newest sequence of the blob stream. `late` explains why the mark began in the
    middle: earlier losses are unknown to it. `lost` is the loss found; it remains until the log
        agrees with the
    mark again.
    """

    mark: Mark
    written: datetime
    durability: str
    began: datetime
    blobs: int = 0
    late: str | None = None
    lost: str | None = None


class Known(msgspec.Struct, frozen=True):
    """A mark, and its owner's description; `aside` is a further remark for a loss."""

    who: str
    mark: Mark
    aside: str = ""


class Damaged(Exception):
    """A mark that cannot be read."""


def link(chain: str, position: int, subject: str, body: bytes) -> str:
    """Return the rolling digest after one more message: SHA-256 over the previous one (empty at
    first), the position as eight bytes, the subject, a line feed and the exact stored body.
    """
    before = bytes.fromhex(chain) + position.to_bytes(8, "big")
    return hashlib.sha256(before + subject.encode() + b"\n" + body).hexdigest()


# ---------------------------------------------------------------- the files


def path_of(data_dir: Path, workspace: str) -> Path:
    """Return the path of a workspace's mark. Raises BadName."""
    return data_dir / "marks" / f"{workspace_name(workspace)}.json"


def workspaces(data_dir: Path) -> set[str]:
    """Return the workspaces that have a mark. Raises OSError."""
    try:
        with os.scandir(data_dir / "marks") as entries:
            names = [entry.name for entry in entries]
    except FileNotFoundError:
        return set()
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


def read(data_dir: Path, workspace: str) -> Kept | None:
    """Read a workspace's mark; None if there is none. Raises Damaged, OSError."""
    path = path_of(data_dir, workspace)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise Damaged(f"{str(path)!r} cannot be read ({error})") from error


def write(data_dir: Path, workspace: str, kept: Kept) -> None:
    """Replace a workspace's mark, synced to disk. Raises OSError."""
    path = path_of(data_dir, workspace)
    path.parent.mkdir(mode=PRIVATE_DIR, exist_ok=True)
    replace_private(path, msgspec.json.encode(kept))


def begin_missing(data_dir: Path, store: Path, durability: str) -> None:
    """Begin a mark, flagged as late, for each workspace in the store that has none. Called before a
    server starts, so that a mark begun later is of a new workspace.
    """
    for workspace in _workspaces(store):
        why = "the log was there before there were marks, or its mark was removed"
        try:
            if read(data_dir, workspace) is not None:
                continue
        except Damaged as error:
            path = path_of(data_dir, workspace)
            path.replace(path.with_name(f"{path.name}.damaged"))
            why = str(error)
        now, nothing = datetime.now(UTC), Mark(subjects.log_stream(workspace))
        write(data_dir, workspace, Kept(nothing, now, durability, now, late=why))


def files_of(store: Path, stream: str) -> Path | None:
    """Return the folder of a stream in an embedded server's store, if it holds messages."""
    return next((each for each in _folders(store, stream) if any(_sizes(each / "msgs"))), None)


def generation_of(stream: str) -> tuple[str, int] | None:
    """Return the workspace of whose log a stream is a generation, and its number; None for any
    other stream.
    """
    name, _, number = stream.removeprefix("hansard_").rpartition("_")
    if number.isdecimal() and (workspace := workspace_of(f"hansard_{name}")) is not None:
        return workspace, int(number)
    workspace = workspace_of(stream)
    return (workspace, 0) if workspace is not None else None


def workspace_of(stream: str) -> str | None:
    """Return the workspace whose log a stream is; None for any other stream."""
    match = _LOG.fullmatch(stream)
    with contextlib.suppress(BadName):
        return workspace_name(match["workspace"]) if match is not None else None
    return None


def _workspaces(store: Path) -> Iterator[str]:
    """Yield the workspaces with messages in the store."""
    folders = ((generation_of(folder.name), folder) for folder in _folders(store))
    yield from dict.fromkeys(
        log[0] for log, folder in folders if log is not None and any(_sizes(folder / "msgs"))
    )


def _folders(store: Path, stream: str | None = None) -> Iterator[Path]:
    """Yield the folders of all streams, or of one, found by name since a server may have any number
    of streams.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for account in (store / "jetstream").iterdir():
            streams = account / "streams"
            if stream is None:
                yield from streams.glob("*")
            elif (streams / stream).is_dir():
                yield streams / stream


def _sizes(folder: Path) -> Iterator[int]:
    with contextlib.suppress(FileNotFoundError):
        for path in folder.glob("*.blk"):
            with contextlib.suppress(FileNotFoundError):
                yield path.stat().st_size


# ---------------------------------------------------------------- comparison with a log


class Witness(msgspec.Struct, frozen=True):
    """Evidence of an embedded server's workspaces, kept outside of the server."""

    data_dir: Path

    @classmethod
    def of(cls, data_dir: str | Path) -> Witness:
        """Return the witness of a folder, which need not exist."""
        return cls(Path(data_dir).absolute())

    def kept(self, workspace: str) -> Kept | None:
        """Return the mark; None if it cannot be read, which `check` reports."""
        try:
            return read(self.data_dir, workspace)
        except (Damaged, OSError):
            return None

    def files(self, stream: str) -> Path | None:
        """Return the folder that holds messages of a stream."""
        return files_of(self.data_dir / "nats", stream)

    def logs(self, workspace: str) -> dict[str, Path]:
        """Return the folders that hold messages of a log's generations, by stream."""
        first = subjects.log_stream(workspace)
        folders = _folders(self.data_dir / "nats")
        return {
            each.name: each
            for each in folders
            if each.name.split("_")[:2] == first.split("_") and any(_sizes(each / "msgs"))
        }

    def hidden(self, workspace: str, stream: str, folder: Path) -> Corrupt:
        """Return the error for a stream that the server does not offer though its messages are on
        disk.
        """
        return Corrupt(
            f"workspace {workspace!r}",
            f"the broker does not offer its stream {stream!r}, and {str(folder)!r} holds messages "
            f"of it: 'meta.inf' or 'meta.sum' there is damaged or gone, "
            f"{str(self.data_dir / 'server.log')!r} says which. Nothing was made in its place. End "
            "what uses the data directory and run 'hansard repair', which writes both files again; "
            "or put back all of the folder from a copy",
        )

    def remedy(self, workspace: str) -> str:
        """Describe the remedy for a loss."""
        return remedy(path_of(self.data_dir, workspace))


def loss(
    kept: Kept | None, log: Extent, blobs: int, newest: Newest | None, gaps: str = ""
) -> str | None:
    """Describe the loss of a log, and of the blobs that end at `blobs`, against their mark; None if
    there is none.

    `kept` is the mark as read before the log, since it advances; without one no position may be
    missing. `newest` is the message at the mark's `chained` position, None if the server has none
    there. `gaps` names the missing positions, if known.
    """
    if kept is None:
        return _fewer(log, log.accepted, gaps)
    mark = kept.mark
    if not mark.position and kept.late is not None:
        return kept.lost  # it was begun just now, and accepts the log as found
    fact = (
        _shorter(kept, log)
        or _fewer(log, max(mark.missing, log.accepted), gaps)
        or _other(kept, newest)
        or blobs_short_of(kept, blobs)
    )
    if fact is not None or kept.lost is None:
        return fact
    # Blobs that were restored cannot be detected, nor the log of an older version's mark.
    return None if mark.checkable and not kept.lost.startswith(_BLOBS) else kept.lost


def _shorter(kept: Kept, log: Extent) -> str | None:
    mark = kept.mark
    if log.last >= mark.position:
        return None
    many = mark.position - log.last
    return (
        f"its log ends at position {log.last:,}, and at {when(kept.written)} it was on the disk up "
        f"to {mark.position:,}: {many:,} acknowledged commit{'s are' if many > 1 else ' is'} gone"
    )


def _fewer(log: Extent, allowed: int, gaps: str) -> str | None:
    many = log.missing - allowed
    if many <= 0:
        return None
    where = gaps or (f"1 to {log.first - 1:,}" if log.first > 1 else "")
    which = f" (missing: position {where})" if where else ""
    return (
        f"its log goes to position {log.last:,} and holds "
        f"{counted(log.messages, 'commit')}: {many:,} "
        f"acknowledged commit{'s are' if many > 1 else ' is'} gone{which}"
    )


def _other(kept: Kept, newest: Newest | None) -> str | None:
    mark = kept.mark
    if not mark.checkable or mark.holds(newest):
        return None
    if newest is None:
        return (
            f"position {mark.chained:,} of its log cannot be read, and at {when(kept.written)} it "
            "was on the disk"
        )
    return (
        f"position {mark.chained:,} of its log is not the commit that was on the disk at "
        f"{when(kept.written)}: an older copy of the broker's files, or another log, was put in "
        "the place of its own"
    )


def blobs_short_of(kept: Kept, last: int) -> str | None:
    """Describe what is missing of the blobs that end at `last`; None if nothing is."""
    if last >= kept.blobs:
        return None
    return (
        f"{_BLOBS} ends at {last:,}, and at {when(kept.written)} it was on the "
        f"disk up to {kept.blobs:,}"
    )


def remedy(path: Path) -> str:
    """Describe the remedy for a loss; `path` is the mark's file."""
    store = path.parent.parent / "nats"
    return (
        "Stop every program that uses the data directory and restore the broker's files from a "
        f"backup that has them: mv '{store}' '{store}.damaged' && cp -a BACKUP/nats '{store}'. "
        "That brings back all workspaces of the data directory as they were then. To continue with "
        f"what is left, remove '{path}': a program that is started again then repeats the effects "
        "that are lost"
    )


OUTSIDE_REMEDY = (
    "Stop what writes and restore the broker's store from a backup that has them. To continue with "
    "what is left: {command}"
)
"""Remedy for a loss of an outside broker, for which no mark is kept."""


def edited(stream: str, metadata: Mapping[str, str], key: str, value: object) -> str:
    """Return the command that adds an entry to a stream's metadata; it replaces all of them."""
    entries = {**metadata, key: value}.items()
    named = [f"{name}={each}" for name, each in entries if not name.startswith("_nats.")]
    return " ".join(
        [f"nats stream edit {stream}", *(f"--metadata {quote(each)}" for each in named)]
    )


def when(moment: datetime) -> str:
    """Format a time for people, in UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
