"""Errors of the bus, grouped by who must act.

    BusError
    ├── TooLarge            the caller: a commit does not fit even with its payloads as blobs
    ├── ReadOnly            the caller: the data directory can only be read
    ├── Contradiction       the caller: a stream or server exists with other settings
    ├── BadArchive          the caller: the address of an archive is not usable
    ├── NotFound            the caller: a run, stream, blob or point does not exist
    ├── Conflict            a lost race: another commit has that version; carries the winner
    ├── Fenced              a lost race: another session holds a later epoch; never retried
    ├── AppendUnknown       the world: the broker did not answer; the commit may be stored or not
    ├── StoreGone           the world: the embedded broker's files were deleted, moved or replaced
    ├── Unreachable         the world: no connection to the broker
    │   ├── NotWritable     the world: the embedded broker's disk refuses writes (it is full)
    │   ├── Closed          the caller: the connection was closed
    │   ├── GenerationMissing
    │   │                   the world: the broker omits the newest generation of the log
    │   ├── ReplicaBehind   the world: no replica that is up to date answered in time
    │   └── ArchiveUnavailable
    │                       the world: the object store of older positions does not answer
    └── BrokerError         the world: the broker answered with an error of its own

A record that contradicts itself is `hansard.domain.errors.Corrupt`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hansard.domain.errors import HansardError

if TYPE_CHECKING:
    from hansard.bus.log import Stored
    from hansard.domain.ids import StreamId

# Messages for a disk that refuses writes, and checks whether it accepts them again.
#
# Used for all files: the broker's store, tables, exports, credentials.

ROOM_BYTES_MIN = 8 * 1024 * 1024
"""Free space below this, in bytes, counts as a full disk: the largest transaction would fill it
again.
"""

_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
_TEXTS = (
    *((code, os.strerror(code).lower()) for code in _REFUSALS),
    (errno.ENOSPC, "database or disk is full"),  # this one and the next are SQLite's
    (errno.EIO, "disk i/o error"),
)


def code_of(cause: OSError | str) -> int:
    """Return the disk's errno for an OSError or another program's message; 0 if it is none.

    Go and DuckDB quote the operating system's text, in upper or lower case.
    """
    if isinstance(cause, OSError):
        return cause.errno if cause.errno in _REFUSALS else 0
    text = cause.lower()
    return next((code for code, words in _TEXTS if words in text), 0)


def explained(path: Path | str, cause: OSError | str) -> str:
    """Describe why a path could not be written, and the remedy."""
    where = repr(os.fspath(path))
    match code_of(cause):
        case errno.ENOSPC:
            return f"the disk of {where} is full{_free(path)}: free some space"
        case errno.EDQUOT:
            return (
                f"the quota on the disk of {where} is used up: free some space, or have it raised"
            )
        case errno.EROFS:
            return f"the disk of {where} is mounted read-only: mount it for writing again"
        case errno.EACCES | errno.EPERM:
            return f"{where} is not writable for user {os.getuid()}: restore the permissions"
        case errno.EIO:
            return (
                f"the disk of {where} fails: see the system's log, move the files to a sound disk"
            )
        case _:
            return f"{where} cannot be written ({cause}): remove the cause"


def _free(path: Path | str) -> str:
    """Describe the free space of the nearest existing folder, as far as the system reports it."""
    place = Path(path)
    for folder in (place, *place.parents):
        with contextlib.suppress(OSError):
            disk = os.statvfs(folder)
            files = f" and {disk.f_favail:,} files" if disk.f_files else ""
            return f" ({disk.f_bavail * disk.f_frsize:,} bytes{files} free)"
    return ""


def look(folder: Path) -> None:
    """Raise OSError if the disk reports that it is full (less than ROOM_BYTES_MIN, or no inode) or
    read-only. Costs a microsecond; does not detect a quota.
    """
    disk = os.statvfs(folder)
    code = errno.EROFS if disk.f_flag & os.ST_RDONLY else 0
    if disk.f_bavail * disk.f_frsize < ROOM_BYTES_MIN or (disk.f_files and not disk.f_favail):
        code = errno.ENOSPC
    if code:
        raise OSError(code, os.strerror(code), str(folder))


def try_room(folder: Path) -> None:
    """Raise OSError unless a file of ROOM_BYTES_MIN bytes can be written in a folder now."""
    import tempfile  # noqa: PLC0415 -- half of what a supervisor would load, for a disk that was full

    look(folder)
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES_MIN)
        else:
            file.write(bytes(ROOM_BYTES_MIN))
        file.flush()
        os.fsync(file.fileno())


class Anchors:
    """Folders held open, to detect whether their paths still lead to them.

    While a folder is held, its inode is not reused: a folder that was deleted and created again has
    a different one.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, tuple[int, int]]] = {}

    def hold(self, folder: Path) -> None:
        """Hold a folder. Raises OSError."""
        path = os.fspath(folder)
        if path not in self._held:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stat = os.fstat(fd)
            self._held[path] = fd, (stat.st_dev, stat.st_ino)

    def release(self, folder: Path) -> None:
        """Hold a folder no longer; nothing if it is not held."""
        held = self._held.pop(os.fspath(folder), None)
        if held is not None:
            os.close(held[0])

    def lost(self, folder: Path | str | None = None) -> str | None:
        """Describe how the folder, or any held one, was lost; None if it is in place.

        Costs about 2 us a folder. Raises OSError if the disk cannot be read.
        """
        for path in (os.fspath(folder),) if folder is not None else tuple(self._held):
            held = self._held.get(path)
            if held is None:
                continue
            try:
                stat = os.stat(path)  # noqa: PTH116 -- after each write: half as dear as a Path's
            except (FileNotFoundError, NotADirectoryError):
                return f"{path!r} was deleted or moved"
            if (stat.st_dev, stat.st_ino) != held[1]:
                return f"another folder is now at {path!r}"
        return None

    def close(self) -> None:
        """Close all held folders."""
        held, self._held = self._held, {}
        for fd, _ in held.values():
            os.close(fd)


class BusError(HansardError):
    """Base of the bus's errors."""


class TooLarge(BusError):
    """A commit or request is too large even with its payloads as blobs.

    State: nothing was written.
    Remedy: split the value, or pass a reference to it.

    Attributes:
        size: Its size, in bytes.
        limit: The limit, in bytes.
    """

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what} has {size:,} bytes, the limit is {limit:,}: "
            "split it, or pass large values by reference"
        )
        self.size = size
        self.limit = limit


class ReadOnly(BusError):
    """A write was attempted on a data directory that cannot be written.

    State: nothing was written.
    Remedy: use a writable data directory.

    `path` is the directory.
    """

    def __init__(self, path: str) -> None:
        super().__init__(
            f"nothing can be recorded: {path!r} is not writable, and a temporary private copy is "
            "read; restore the write permission, or copy it to a folder of your own and name that "
            "(--data-dir, HANSARD_DATA_DIR)"
        )
        self.path = path


class Contradiction(BusError):
    """A stream or server exists with other settings than requested.

    State: nothing was changed.
    Remedy: request the existing settings, or change them at the broker.

    Attributes:
        what: The stream or server.
        differences: By setting: the existing and the requested value.
    """

    def __init__(self, what: str, differences: dict[str, tuple[object, object]]) -> None:
        text = ", ".join(f"{k} is {has!r}, not {new!r}" for k, (has, new) in differences.items())
        super().__init__(
            f"{what} exists with other settings: {text}; "
            "use another workspace or data directory, or change the settings by hand"
        )
        self.what = what
        self.differences = differences


WHAT_MAX = 300
"""Most characters of a description that the message of `NotFound` repeats."""


class NotFound(BusError):
    """A run, stream, blob or point does not exist.

    State: nothing was written.
    Remedy: check the name: `hansard runs` lists the runs.

    Attributes:
        what: Its description.
    """

    def __init__(self, what: str, remedy: str) -> None:
        shown = what if len(what) <= WHAT_MAX else f"{what[:WHAT_MAX]}…"
        super().__init__(f"{shown} was not found: {remedy}")
        self.what = what


class Conflict(BusError):
    """Another commit has that version, or a condition does not hold.

    State: nothing was written.
    Remedy: read what is new, decide again, append again.

    Attributes:
        stream: The stream.
        version: The version that is taken.
        winner: The commit that has that version; None if only a condition failed and no commit
            under it could be read.
        tries: Races lost in a row, this one included, when the retries are used up.
    """

    def __init__(
        self, stream: StreamId, version: int, winner: Stored | None, tries: int = 1
    ) -> None:
        by = f" by {winner.commit.actor.agent!r} at position {winner.position}" if winner else ""
        fact = f"version {version} of stream {stream} is already written{by}"
        remedy = "read the stream and decide again"
        if tries > 1:
            fact = f"{tries:,} tries in a row to write stream {stream} were lost to others: {fact}"
            remedy = "nothing was written; try again, or let fewer write to it at once"
        super().__init__(f"{fact}: {remedy}")
        self.stream = stream
        self.version = version
        self.winner = winner
        self.tries = tries


class Fenced(BusError):
    """Another session took over this agent's stream.

    State: this session is over and wrote nothing.
    Remedy: end this process, or open the run again to take over.

    Attributes:
        stream: The agent's stream.
        epoch: This session's epoch.
        newer: The newer session's epoch.
    """

    def __init__(self, stream: StreamId, epoch: int, newer: int) -> None:
        super().__init__(
            f"this session writes {stream} in epoch {epoch}, but epoch {newer} has begun: "
            "the run was resumed elsewhere; stop here, nothing more is recorded from this session"
        )
        self.stream = stream
        self.epoch = epoch
        self.newer = newer


class AppendUnknown(BusError):
    """The broker did not answer a commit in time.

    State: the commit may be stored or not; no effect was started.
    Remedy: resume the run: it reads the stream and continues from what is stored. To look
    yourself, search for `commit_id` at `version`; absence is no proof while the connection may
    still deliver it.

    Attributes:
        stream: The stream.
        version: The version to be written.
        commit_id: The commit's id.
        waited_s: Time waited, in seconds.
        why: Further details.
    """

    def __init__(
        self, stream: StreamId, version: int, commit_id: str, waited_s: float, why: str = ""
    ) -> None:
        known = f" ({why})" if why else ""
        super().__init__(
            f"the broker did not confirm commit {commit_id} (version {version} of {stream}) "
            f"within {waited_s:.1f} s: it may be stored or not{known}; reconnect, then resume the "
            "run"
        )
        self.stream = stream
        self.version = version
        self.commit_id = commit_id
        self.waited_s = waited_s
        self.why = why


class Unreachable(BusError):
    """There is no connection to the broker.

    State: nothing was sent.
    Remedy: start the broker or correct its address; then resume the run.

    Attributes:
        url: The address.
    """

    def __init__(self, url: str, why: str) -> None:
        is_http = url.startswith(("http://", "https://"))
        super().__init__(
            f"no service answers at {url} ({why}): check that 'hansard up --http' runs there, and "
            "the url in the file of credentials"
            if is_http
            else f"no NATS server answers at {url} ({why}): "
            "check HANSARD_NATS_URL and the server, or unset it to use the embedded one"
        )
        self.url = url


class NotWritable(Unreachable):
    """The disk of the embedded broker accepts no writes: it is full, read-only or broken.

    State: nothing was written.
    Remedy: free space: waiting writes continue by themselves; then resume the run.

    Attributes:
        path: The data directory.
    """

    def __init__(self, path: Path, cause: OSError | str) -> None:
        BusError.__init__(
            self,
            f"nothing can be recorded: {explained(path, cause)}; waiting writes then "
            f"continue [{cause}]",
        )
        self.__cause__ = cause if isinstance(cause, OSError) else None
        self.url = ""
        self.path = path


class StoreGone(BusError):
    """The embedded broker's files were deleted, moved or replaced while in use.

    State: acknowledged events are lost with the files; later ones are not on record.
    Remedy: stop all programs, restore a backup, and start again.

    Attributes:
        path: The data directory.
    """

    def __init__(self, path: Path, fact: str) -> None:
        super().__init__(
            f"the data directory {str(path)!r} is not the one that was opened ({fact}): nothing is "
            "recorded any more; put it back, or connect again to use the folder that is there now"
        )
        self.path = path


class Closed(Unreachable):
    """The record was closed before the call.

    State: nothing was sent.
    Remedy: connect again.
    """

    def __init__(self, url: str) -> None:
        BusError.__init__(
            self,
            "the record was closed (record.close(), or its 'with' was left): "
            "do it before, or call hansard.connect(...) again",
        )
        self.url = url


class ReplicaBehind(Unreachable):
    """No replica at the required position answered in time. Only with several replicas.

    State: nothing was read.
    Remedy: try again; check the cluster if it lasts.

    Attributes:
        stream: The stream's name.
        target: The position that the read must reach.
        reached: The furthest position of any answer.
    """

    def __init__(
        self, url: str, stream: str, target: int, reached: int, waited_s: float, replicas: str
    ) -> None:
        BusError.__init__(
            self,
            f"stream {stream!r} was to be read up to position {target}, but what its replicas at "
            f"{url} answered within {waited_s:.1f} s ends at {reached} ({replicas}): read again "
            "when the replica has caught up, or restart the server that stays behind",
        )
        self.url = url
        self.stream = stream
        self.target = target
        self.reached = reached


class GenerationMissing(Unreachable):
    """The broker omits the newest generation of a rolled log. A server does so if it was killed
    while it wrote the settings of the stream.

    State: the commits are on its disk; nothing was read.
    Remedy: run `hansard tiers roll` or `hansard up` with a login that may create streams.

    Attributes:
        stream: The name of the stream.
    """

    def __init__(self, url: str, stream: str) -> None:
        BusError.__init__(
            self,
            f"stream {stream!r} has the newest commits of the log, and the server at {url} does "
            "not offer it, as after a kill while it wrote the stream's settings: restore it with "
            "'hansard tiers roll', with a login that may create streams",
        )
        self.url = url
        self.stream = stream


class ArchiveUnavailable(Unreachable):
    """The object store of a log's older positions did not answer, refused, or has no object of it.

    State: nothing was read or written there. New events are recorded as before.
    Remedy: mount the store or make it reachable, and correct its credentials; then try again. A
        session whose append raised it is closed: resume its run.

    Attributes:
        name: The object.
    """

    def __init__(self, url: str, action: str, name: str, why: str, remedy: str = "") -> None:
        BusError.__init__(
            self,
            f"the archive at {url} could not {action} {name!r} ({why}): "
            + (remedy or "check the store, its credentials and HANSARD_ARCHIVE, then try again"),
        )
        self.url = url
        self.name = name


class BadArchive(BusError):
    """The address of an archive is not usable.

    State: nothing was written.
    Remedy: give a folder, or a URL of the kinds that the message lists.
    """

    def __init__(self, url: str, fact: str) -> None:
        super().__init__(
            f"HANSARD_ARCHIVE is {url!r}, {fact}: give a folder, or a URL such as "
            "s3://bucket/folder, gs://bucket/folder, az://container/folder"
        )


class BrokerError(BusError):
    """The broker answered with an error of its own.

    State: nothing was written.
    Remedy: correct what the message names at the broker, then try again.
    """

    def __init__(self, action: str, code: int, description: str) -> None:
        answer = f"the broker answered {code}, " if code else ""
        super().__init__(f"{action}: {answer}{description}")
        self.code = code
        self.description = description
