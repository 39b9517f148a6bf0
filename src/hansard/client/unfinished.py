"""Runs that a program left unfinished, so that starting it again resumes them.

While a `Session()` that names no run is open, a small file beside the record holds the run's id and
the identity of the program start; the process holds a lock on it (flock). The file is removed when
the run completes. A file that nobody locks therefore belongs to a run that failed, or whose process
is dead, and the next start of the same program resumes that run if the record allows it.

Same program: the same file, arguments, workspace, workflow, agent and role, and the same count of
earlier sessions in the process, so that the third of three resumes the third.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus import file_lock
from hansard.bus.commits import revive
from hansard.bus.log import Stored
from hansard.bus.loggers import logger
from hansard.domain.ids import RunStream
from hansard.domain.run import AgentJoined, RunResumed
from hansard.settings import Settings

_log = logger(__name__)

FOLDER = "unfinished"

FILES_MAX = 1_000
"""Files that one start reads at most, the newest first."""

READER_S = 0.02
"""Seconds that a start waits for a lock that may be that of a reader."""

_counted: Counter[str] = Counter()
"""Sessions of each program identity that this process has opened."""

_held: set[str] = set()
"""Identities with a session open in this process: further ones are independent runs."""


class _Note(msgspec.Struct, frozen=True):
    """The content of a file: a run, the digest of the program start that began it, and whether the
    run is on record. The last field is overwritten in place.
    """

    run: str
    start: str
    is_begun: bool = False


class Unfinished:
    """The file of one run, locked by this process until `close`."""

    def __init__(self, path: Path, fd: int, note: _Note, identity: str) -> None:
        self.path, self.run, self.is_begun = path, note.run, note.is_begun
        self._fd, self._identity = fd, identity
        _held.add(identity)

    def begun(self) -> None:
        """Note that the run is on record, so that its loss is noticed, and the time of this."""
        end = b"false}"
        os.pwrite(self._fd, b"true }", os.fstat(self._fd).st_size - len(end))
        now = time.time_ns()
        os.utime(self._fd, ns=(now, now))  # the kernel's own time of a write lags by some ms

    def close(self, *, is_done: bool) -> None:
        """Release the lock; remove the file if the run need not be resumed."""
        if is_done:
            self.path.unlink(missing_ok=True)
        _held.discard(self._identity)
        file_lock.release(self._fd)


class ProgramStart:
    """One start of a program: the files of its unfinished runs, and the file of a new one."""

    def __init__(self, settings: Settings, workflow: str, agent: str, role: str) -> None:
        self._folder = _folder(settings)
        program = (os.path.realpath(sys.argv[0]), *sys.argv[1:])
        self._identity = _digest(str(self._folder), *program, workflow, agent, role)
        self._is_alone = self._identity not in _held
        self._start = _digest(self._identity, str(_counted[self._identity]))
        self._suffix = _suffix(agent, role)
        _counted[self._identity] += 1

    def unfinished(self) -> Iterator[Unfinished]:
        """Yield this program's unfinished runs, each locked, the newest first. Runs of a live
        process are left out; while a session of the same program is open here, there are none.
        """
        if self._is_alone:
            for path in sorted(self._folder.glob(f"*.{self._suffix}"), reverse=True)[:FILES_MAX]:
                found = self._locked(path)
                if found is not None:
                    yield found

    def begin(self, run: str) -> Unfinished | None:
        """Create and lock the file of a new run. Return None and log why if that fails."""
        if not self._is_alone:
            return None
        path = self._path(run)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            file_lock.take(fd)
            note = _Note(run, self._start)
            os.write(fd, msgspec.json.encode(note))
        except OSError as error:
            _log.warning("cannot prepare to resume this run", run=run, error=str(error))
            return None
        return Unfinished(path, fd, note, self._identity)

    def join(self, run: str) -> Unfinished | None:
        """Lock the file of a run that the caller named, so that no other start resumes it."""
        return None if os.sep in run else self._locked(self._path(run), is_named=True)

    def _path(self, run: str) -> Path:
        return self._folder / f"{run}.{self._suffix}"

    def _locked(self, path: Path, *, is_named: bool = False) -> Unfinished | None:
        with contextlib.suppress(OSError, ValueError), path.open("r+b") as file:
            note = msgspec.json.decode(file.read(), type=_Note)
            is_same = is_named or note.start == self._start
            until = (
                time.monotonic() + READER_S
            )  # `gone` locks briefly to check whether a process lives
            is_free = is_same and file_lock.take_by(until, file.fileno(), READER_S / 4)
            if is_free and os.fstat(file.fileno()).st_nlink:  # not removed since it was opened
                return Unfinished(path, os.dup(file.fileno()), note, self._identity)
        return None


async def gone(
    workspace: Workspace, settings: Settings, run: str, roles: Mapping[str, str], agents: list[str]
) -> list[str]:
    """Return those of the agents at work whose process is known to have ended: the file of their
    session is there and not locked, and no later session took the agent over.
    """
    found: list[str] = []
    for agent in agents:
        path = _folder(settings) / f"{run}.{_suffix(agent, roles[agent])}"
        with contextlib.suppress(OSError), path.open("rb") as file:
            if file_lock.take(file.fileno(), shared=True):
                began = os.fstat(file.fileno()).st_mtime_ns
                commits = await workspace.states.commits(RunStream(run))
                found += [agent] if _taken_over(commits, agent) < began else []
    return found


def _taken_over(commits: list[Stored], agent: str) -> int:
    """Return when a session of an agent last joined or resumed its run (ns since 1970)."""
    events = [(stored.stamp, revive(each)) for stored in commits for each in stored.commit.events]
    return max(
        stamp
        for stamp, event in events
        if isinstance(event, AgentJoined | RunResumed) and event.agent == agent
    )


def _folder(settings: Settings) -> Path:
    return Path(settings.data_dir).absolute() / FOLDER / settings.workspace


def _suffix(agent: str, role: str) -> str:
    return _digest(agent, role)[:16]


def _digest(*parts: str) -> str:
    text = "\0".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
