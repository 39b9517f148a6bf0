"""High-water marks: how far a log was, recorded outside of the log.

A log that lost its beginning, its end or a part in between looks like a shorter log, and an older
copy like an older log: neither says so itself. So each reader that reads a log in order keeps a
mark: the newest position, the number of commits up to it, and a rolling digest of them. The
supervisor of an embedded server keeps one per workspace (see `hansard.broker.marker`); the
tables and each published generation of them carry one.

A log is compared with a mark as a whole (`loss`). Nothing is ever deleted from a log, so its last
position minus its number of messages is the number of positions that it lost, wherever they were;
that number may not exceed the mark's. The message at the mark must be the one that was read there.

    <data dir>/marks/<workspace>.json           a Kept: what the supervisor has seen on the disk
    <data dir>/marks/<workspace>.json.damaged   one that could not be read

A mark may lag behind the log and never leads it: what it knows was on the disk. It is a tool
against accidents. Who may write the broker's files may write the marks, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hansard.bus import subjects
from hansard.domain.choices import counted
from hansard.domain.errors import BadName, Corrupt
from hansard.domain.ids import workspace_name

PRIVATE_FILE = 0o600
PRIVATE_DIR = 0o700

ACCEPTED = "hansard-missing-positions"
"""Key in the metadata of a log's stream: how many missing positions its operator accepted."""

_BLOBS = "its stream of large payloads"

Newest = tuple[str, bytes]
"""Subject and exact body of the message at a mark's `chained` position."""

_LOG = re.compile(r"hansard_log-(?P<workspace>.+)")


class Counted(Protocol):
    """Where a reader of a log stands, and how many messages it counted up to there."""

    @property
    def position(self) -> int:
        """The newest position that was read."""
        ...

    @property
    def messages(self) -> int:
        """How many messages were read up to it."""
        ...

    @property
    def chain(self) -> str | None:
        """Their rolling digest; None where they were not counted."""
        ...


class Extent(msgspec.Struct, frozen=True):
    """The extent of a stream by its server's own figures: `messages` from position `first` to
    `last`. `accepted` is how many missing positions an operator accepted (ACCEPTED).
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
        """How many positions up to the last one hold no message; of a sound log none."""
        return self.last - self.messages

    def gone_since(self, counted: Counted) -> int:
        """How many messages that a reader counted in order the log does not hold any more."""
        if counted.chain is None:  # by a version that did not count them
            return 0
        return max(0, self.missing - (counted.position - counted.messages))


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a log was: `count` messages up to `position`; `chain` is the rolling digest of those
    up to `chained`, which is `position` unless more was written than could be read meanwhile.
    `before` is the rolling digest without the message at `chained`: with it, that one message can
    be checked alone.
    """

    stream: str
    position: int = 0
    count: int = 0
    chained: int = 0
    chain: str = ""
    before: str = ""

    def then(self, position: int, subject: str, body: bytes) -> Mark:
        """The mark after the next message."""
        chain = link(self.chain, position, subject, body)
        return Mark(self.stream, position, self.count + 1, position, chain, self.chain)

    @property
    def missing(self) -> int:
        """How many positions up to the mark held no message."""
        return self.position - self.count

    @property
    def checkable(self) -> bool:
        """Whether the message at `chained` can be checked alone: marks of before it could cannot,
        except for the first message.
        """
        return bool(self.chain) and (bool(self.before) or self.chained == 1)

    def holds(self, message: Newest | None) -> bool:
        """Whether the message at `chained` is the one that was read there."""
        if message is None:
            return False
        return link(self.before, self.chained, *message) == self.chain


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record that the supervisor of an embedded server keeps of one workspace.

    `blobs` is the newest sequence of the stream of blobs. `late` says why it began in the middle:
    it does not know what was lost before. `lost` is the loss that it found; it stays until the log
    agrees with the mark again.
    """

    mark: Mark
    written: datetime
    durability: str
    began: datetime
    blobs: int = 0
    late: str | None = None
    lost: str | None = None


class Known(msgspec.Struct, frozen=True):
    """A mark, and who kept it, in words; `aside` is what else there is to say of a loss."""

    who: str
    mark: Mark
    aside: str = ""


class Damaged(Exception):
    """A mark that cannot be read."""


def link(chain: str, position: int, subject: str, body: bytes) -> str:
    """The rolling digest after one more message: SHA-256 over the one before (nothing at first),
    the position as eight bytes, the subject, a line feed and the exact stored body.
    """
    before = bytes.fromhex(chain) + position.to_bytes(8, "big")
    return hashlib.sha256(before + subject.encode() + b"\n" + body).hexdigest()


# ---------------------------------------------------------------- the files


def path_of(data_dir: Path, workspace: str) -> Path:
    """Where a workspace's mark is kept. Raises BadName."""
    return data_dir / "marks" / f"{workspace_name(workspace)}.json"


def workspaces(data_dir: Path) -> set[str]:
    """Those that have a mark there. Raises OSError."""
    try:
        with os.scandir(data_dir / "marks") as found:
            names = [entry.name for entry in found]
    except FileNotFoundError:
        return set()
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


def read(data_dir: Path, workspace: str) -> Kept | None:
    """What is kept; None where nothing is. Raises Damaged, OSError."""
    path = path_of(data_dir, workspace)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise Damaged(f"{str(path)!r} cannot be read ({error})") from error


def write(data_dir: Path, workspace: str, kept: Kept) -> None:
    """Replace what is kept, at once and on the disk. Raises OSError."""
    path = path_of(data_dir, workspace)
    path.parent.mkdir(mode=PRIVATE_DIR, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, PRIVATE_FILE), "wb") as file:
        file.write(msgspec.json.encode(kept))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def begin_missing(data_dir: Path, store: Path, durability: str) -> None:
    """Before a server starts: begin a mark, and say that it is late, for each workspace that the
    store has files of and that has none. So a later one is of a workspace that is new.
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
    """The folder of a stream in an embedded server's store, if it holds messages."""
    return next((each for each in _folders(store, stream) if any(_sizes(each / "msgs"))), None)


def workspace_of(stream: str) -> str | None:
    """The workspace whose log a stream is; None for any other stream."""
    found = _LOG.fullmatch(stream)
    with contextlib.suppress(BadName):
        return workspace_name(found["workspace"]) if found is not None else None
    return None


def _workspaces(store: Path) -> Iterator[str]:
    """Those that the store has messages of."""
    for folder in _folders(store):
        workspace = workspace_of(folder.name)
        if workspace is not None and any(_sizes(folder / "msgs")):
            yield workspace


def _folders(store: Path, stream: str | None = None) -> Iterator[Path]:
    """Those of all streams, or those of one, which are found by their name: a server has as many
    streams as it likes.
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


# ---------------------------------------------------------------- what they prove


class Witness(msgspec.Struct, frozen=True):
    """What a data directory knows of its embedded server's workspaces, apart from the server."""

    data_dir: Path

    @classmethod
    def of(cls, data_dir: str | Path) -> Witness:
        """That of a folder, which need not be there."""
        return cls(Path(data_dir).absolute())

    def kept(self, workspace: str) -> Kept | None:
        """The mark; None where none can be read, which `check` tells."""
        try:
            return read(self.data_dir, workspace)
        except (Damaged, OSError):
            return None

    def files(self, stream: str) -> Path | None:
        """The folder that holds messages of a stream."""
        return files_of(self.data_dir / "nats", stream)

    def hidden(self, workspace: str, stream: str, folder: Path) -> Corrupt:
        """The server does not offer a stream whose messages are there."""
        return Corrupt(
            f"workspace {workspace!r}",
            f"the broker does not offer its stream {stream!r}, and {str(folder)!r} holds messages "
            f"of it: 'meta.inf' or 'meta.sum' there is damaged or gone, "
            f"{str(self.data_dir / 'server.log')!r} says which. Nothing was made in its place. End "
            "what uses the data directory and run 'hansard repair', which writes both files again; "
            "or put back all of the folder from a copy",
        )

    def remedy(self, workspace: str) -> str:
        """What to do about a loss."""
        return remedy(path_of(self.data_dir, workspace))


def loss(
    kept: Kept | None, log: Extent, blobs: int, newest: Newest | None, gaps: str = ""
) -> str | None:
    """What a log and the blobs that end at `blobs` lost, compared with their mark; None where it is
    nothing.

    `kept` is the mark as it was before the log was asked, since it moves on; without one no
    position may be missing. `newest` is the message at the mark's `chained` position, None where
    the server has none there. `gaps` names the missing positions, where that is known.
    """
    if kept is None:
        return _fewer(log, log.accepted, gaps)
    mark = kept.mark
    if not mark.position and kept.late is not None:
        return kept.lost  # it was begun just now, and takes the log as it finds it
    found = (
        _shorter(kept, log)
        or _fewer(log, max(mark.missing, log.accepted), gaps)
        or _other(kept, newest)
        or blobs_short_of(kept, blobs)
    )
    if found is not None or kept.lost is None:
        return found
    # Whether the blobs are there again cannot be seen, nor the log of a mark of an older version.
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
    """Describe what is missing of the blobs that end at `last`; None where nothing is."""
    if last >= kept.blobs:
        return None
    return (
        f"{_BLOBS} ends at {last:,}, and at {when(kept.written)} it was on the "
        f"disk up to {kept.blobs:,}"
    )


def remedy(path: Path) -> str:
    """What to do about a loss; `path` is the mark's file."""
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
    "what is left: nats stream edit {stream} --metadata {key}={missing}"
)
"""What to do about a loss of an outside broker, which no mark is kept of."""


def when(moment: datetime) -> str:
    """A time as people read it, UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
