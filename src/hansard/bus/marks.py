"""High-water marks: how far a log was, written down outside of it.

A log whose end was cut off is a shorter log, and an older copy of it an older log: neither says so
itself. So whoever reads a log in order keeps a mark: the newest position, how many commits there
are up to it, and a rolling digest of them. The supervisor of an embedded server keeps one a
workspace (see `hansard.bus.server._marker`), and the tables and each generation of them carry one.

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

import msgspec

from hansard.bus import subjects
from hansard.domain.errors import BadName, Corrupt
from hansard.domain.ids import workspace_name

PRIVATE_FILE = 0o600
PRIVATE_DIR = 0o700

_LOG = re.compile(r"hansard_log-(?P<workspace>.+)")


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a log was: `count` messages up to `position`; `chain` is the rolling digest of those
    up to `chained`, which is `position` unless more was written than could be read meanwhile.
    """

    stream: str
    position: int = 0
    count: int = 0
    chained: int = 0
    chain: str = ""

    def then(self, position: int, subject: str, body: bytes) -> Mark:
        """The mark after the next message."""
        chain = link(self.chain, position, subject, body)
        return Mark(self.stream, position, self.count + 1, position, chain)


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the supervisor of an embedded server wrote down of one workspace.

    `blobs` is the newest sequence of the stream of blobs. `late` says why it began in the middle:
    of what was lost before, it knows nothing. `lost` is what it found missing, and stays.
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

    def wrong(self, workspace: str, kept: Kept | None, last: int, blobs: int) -> Corrupt | None:
        """What is wrong with a log and blobs that end there, if anything is. `kept` is the mark as
        it was before that was asked: it moves on.
        """
        if kept is None:
            return None
        told = kept.lost or short_of(kept, last) or blobs_short_of(kept, blobs)
        if told is None:
            return None
        path = path_of(self.data_dir, workspace)
        return Corrupt(f"workspace {workspace!r}", f"{told}. {remedy(path)}")


def short_of(kept: Kept, last: int) -> str | None:
    """What is missing of a log that ends at a position, in words; None where nothing is."""
    mark = kept.mark
    if last >= mark.position:
        return None
    many = mark.position - last
    return (
        f"its log ends at position {last:,}, and at {when(kept.written)} it was on the disk up to "
        f"{mark.position:,}: {many:,} acknowledged commit{'s are' if many > 1 else ' is'} gone"
    )


def blobs_short_of(kept: Kept, last: int) -> str | None:
    """What is missing of the blobs, in words; None where nothing is."""
    if last >= kept.blobs:
        return None
    return (
        f"its stream of large payloads ends at {last:,}, and at {when(kept.written)} it was on the "
        f"disk up to {kept.blobs:,}"
    )


def remedy(path: Path) -> str:
    """What to do about a loss."""
    return (
        "End what uses the data directory and put back a copy of the broker's files that has them; "
        f"to go on with what is left, remove {str(path)!r}"
    )


def when(moment: datetime) -> str:
    """A time as people read it, UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
