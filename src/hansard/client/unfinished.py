"""Files of open sessions: who is at work, and which run a restarted program resumes.

While a session is open, a small file beside the record holds its run's id and its process: the
program's, or the service's for a restricted agent. The process holds a lock on it (flock). Another
program that opens the same agent of that run as a program is refused, since it would end the
session amid its calls.

The file of a `Session()` that names no run also holds the identity of the program start. It is
removed when the run completes. If nobody locks it, its run failed or its process is dead, and the
next start of the same program resumes that run if the record allows it.

Same program: the same file, arguments, workspace, workflow, agent and role, and the same count of
earlier sessions in the process, so that the third of three resumes the third.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from hansard.agents.workspace import Workspace
from hansard.bus import file_lock
from hansard.bus.commits import revive
from hansard.bus.log import Stored
from hansard.bus.loggers import logger
from hansard.domain.approval import ApprovalStatus
from hansard.domain.errors import Refused
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.run import AgentJoined, RunResumed
from hansard.settings import Settings

if TYPE_CHECKING:
    from hansard.inspect.roles import Approvals

_log = logger(__name__)

FOLDER = "unfinished"

FILES_MAX = 1_000
"""Files that one start reads at most, the newest first."""

READER_S = 0.02
"""Seconds that an opening waits for a lock that may be that of a reader."""

HOLD_S = 2.0
"""Seconds that an opening waits for another process to end its session of the same agent."""

NOTE_BYTES = 512
"""Size of a file's content, padded with spaces. A longer note keeps its own size."""

_counted: Counter[str] = Counter()
"""Sessions of each program identity that this process has opened."""

_held: set[str] = set()
"""Identities with a session open in this process: further ones are independent runs."""


class _Note(msgspec.Struct, frozen=True):
    """The content of a file.

    Attributes:
        run: The run's id.
        start: The digest of the program start that began it; empty for a run that is resumed only
            by its id.
        pid: The process that holds the lock, or held it last.
        is_begun: True if the run is on record.
        is_hosted: True if a service hosts the session: another one may take its agent over.
    """

    run: str
    start: str
    pid: int = 0
    is_begun: bool = False
    is_hosted: bool = False


class SessionFile:
    """The file of one session, locked by this process until `close`."""

    def __init__(self, path: Path, fd: int, note: _Note, identity: str = "") -> None:
        self.path, self.run, self.is_begun = path, note.run, note.is_begun
        self._fd, self._identity = fd, identity
        self._note = replace(note, pid=os.getpid())
        self._write()
        if identity:
            _held.add(identity)

    def _write(self) -> None:
        """Overwrite the note in place: its length stays, so that a kill leaves one of the two."""
        os.pwrite(self._fd, msgspec.json.encode(self._note).ljust(NOTE_BYTES), 0)

    def begun(self) -> None:
        """Note that the run is on record, so that its loss is noticed, and the time of this."""
        self._note = replace(self._note, is_begun=True)
        self.is_begun = True
        self._write()
        now = time.time_ns()
        os.utime(self._fd, ns=(now, now))  # the kernel's own time of a write lags by some ms

    def close(self, *, is_done: bool, is_left: bool = False) -> None:
        """Release the lock. Remove the file if the session is done; also if no restart of the
        program resumes its run, and its end is on record (`is_left`) or it never began.
        """
        if is_done or (not self._note.start and (is_left or not self.is_begun)):
            self.path.unlink(missing_ok=True)
        _held.discard(self._identity)
        file_lock.release(self._fd)


async def hold(settings: Settings, stream: AgentStream, *, is_hosted: bool) -> SessionFile | None:
    """Create or lock the file of an agent's session, which a service hosts if `is_hosted`.

    Return None if another session of this process holds it, if the process that locked it has
    ended and left the lock to a child, if one of the two sessions is hosted, or if the file cannot
    be written, which is logged. Raises Refused if another process holds it for longer than HOLD_S.
    """
    path = _folder(settings) / f"{stream.run}.{_suffix(stream.agent, stream.role)}"
    began_s, pid = time.monotonic(), 0
    try:
        while not isinstance(held := _try_hold(path, stream.run, is_hosted=is_hosted), SessionFile):
            pid, any_hosted = held.pid, is_hosted or held.is_hosted
            is_late = time.monotonic() - began_s >= (READER_S if any_hosted else HOLD_S)
            if pid == os.getpid() or (pid and not _is_alive(pid)) or (any_hosted and is_late):
                return None
            if is_late:
                break
            await asyncio.sleep(READER_S / 2)
        else:
            return held
    except (OSError, ValueError) as error:
        _log.warning("cannot note that a session is open", run=stream.run, error=str(error))
        return None
    message = (
        f"agent {stream.agent!r} of run {stream.run} is at work in process {pid}, and would be "
        "ended amid its calls. Wait for its end, or end it "
        f"(kill {pid}), which may leave a call in doubt"
    )
    raise Refused(message)


def _try_hold(path: Path, run: str, *, is_hosted: bool) -> SessionFile | _Note:
    """Return the locked file; else the note of the process that has locked it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, file_lock.PRIVATE_FILE)
        try:
            text = os.pread(fd, NOTE_BYTES, 0)
            note = msgspec.json.decode(text, type=_Note) if text else _Note(run, "")
            if not file_lock.take(fd):
                return note
            if os.fstat(fd).st_nlink:  # else removed since it was opened
                return SessionFile(path, os.dup(fd), replace(note, is_hosted=is_hosted))
        finally:
            os.close(fd)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


class ProgramStart:
    """One start of a program: the files of its unfinished runs, and the file of a new one."""

    def __init__(self, settings: Settings, workflow: str, agent: str, role: str) -> None:
        self._folder = _folder(settings)
        program = (os.path.realpath(sys.argv[0]), *sys.argv[1:])
        self._identity = _digest(str(self._folder), *program, workflow, agent, role)
        self._is_alone = self._identity not in _held
        self._start = _digest(self._identity, str(_counted[self._identity]))
        self._suffix = _suffix(agent, role)
        self.others: list[tuple[str, int]] = []
        """Runs of this program that live processes work on, with the process of each."""
        _counted[self._identity] += 1

    def unfinished(self) -> Iterator[SessionFile]:
        """Yield this program's unfinished runs, each locked, the newest first. Runs of a live
        process are left out; while a session of the same program is open here, there are none.
        """
        if self._is_alone:
            for path in sorted(self._folder.glob(f"*.{self._suffix}"), reverse=True)[:FILES_MAX]:
                result = self._locked(path)
                if isinstance(result, SessionFile):
                    yield result
                elif result:
                    self.others.append(result)

    def begin(self, run: str) -> SessionFile | None:
        """Create and lock the file of a new run. Return None and log why if that fails."""
        if not self._is_alone:
            return None
        path = self._folder / f"{run}.{self._suffix}"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            file_lock.take(fd)
            return SessionFile(path, fd, _Note(run, self._start), self._identity)
        except OSError as error:
            _log.warning("cannot prepare to resume this run", run=run, error=str(error))
            return None

    def _locked(self, path: Path) -> SessionFile | tuple[str, int] | None:
        """Return the file of a run that this program began, if nobody has locked it; otherwise the
        run and the process that did.
        """
        with contextlib.suppress(OSError, ValueError), path.open("r+b") as file:
            note = msgspec.json.decode(file.read(), type=_Note)
            until = (
                time.monotonic() + READER_S
            )  # `session_file` locks briefly to check whether a process lives
            is_same = note.start == self._start
            is_free = is_same and file_lock.take_by(until, file.fileno(), READER_S / 4)
            if is_free and os.fstat(file.fileno()).st_nlink:  # not removed since it was opened
                return SessionFile(path, os.dup(file.fileno()), note, self._identity)
            if is_same and not is_free:
                return note.run, note.pid
        return None


async def processes(
    workspace: Workspace, settings: Settings, run: str, roles: Mapping[str, str], agents: list[str]
) -> dict[str, bool]:
    """Return of agents of an open run whether their process is at work; one of which nothing is
    known here is left out.
    """
    known: dict[str, bool] = {}
    for agent in agents:
        session = session_file(settings, run, agent, roles[agent])
        if session is not None:
            commits = await workspace.states.commits(RunStream(run))
            is_alive = session.is_alive(_taken_over(commits, agent))
            known |= {agent: is_alive} if is_alive is not None else {}
    return known


async def at_work(workspace: Workspace, settings: Settings, run: str) -> dict[str, bool | None]:
    """Map each agent that has not left a run to whether its process is at work; None if that is
    not known here.
    """
    life = await workspace.states.life(run)
    known = await processes(workspace, settings, run, life.roster, life.missing)
    return {name: known.get(name) for name in life.missing}


async def note_waiting(workspace: Workspace, settings: Settings, approvals: Approvals) -> None:
    """Set on each pending approval whether its agent's process is at work, where that is known."""
    for each in approvals.questions:
        if each.standing is ApprovalStatus.PENDING:
            roles = {each.agent: each.role}
            known = await processes(workspace, settings, each.run, roles, [each.agent])
            each.at_work = known.get(each.agent)


class SessionLock(msgspec.Struct, frozen=True):
    """The file of a session: whether a live process holds it, and when its run was first on record
    (ns since 1970).
    """

    is_locked: bool
    began: int

    def is_alive(self, joined: int) -> bool | None:
        """Return whether the process of an agent is at work that last joined at a time (ns since
        1970); None if a later session took the agent over, whose process is not known.
        """
        if self.is_locked:
            return True
        return False if joined < self.began else None


def session_file(settings: Settings, run: str, agent: str, role: str) -> SessionLock | None:
    """Return the file of an agent's session in a run; None if there is none on this machine."""
    path = _folder(settings) / f"{run}.{_suffix(agent, role)}"
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        is_locked = not file_lock.take(file.fileno(), shared=True)
        return SessionLock(is_locked, os.fstat(file.fileno()).st_mtime_ns)
    return None


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
