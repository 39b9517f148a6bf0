"""The supervisor of an embedded server, which `join` starts (`USAGE`).

It keeps one nats-server running while it has users. It ends the server half a second after the last
user has ended in any way; it restarts a server that dies; and a server never outlives it. A server
that could not write to a full disk is left running for readers, and restarted once there is space:
until then it stores nothing. A server whose files are no longer in place is ended. One thread, one
loop; every event wakes it through one `poll`.

It writes "up" to its standard output once processes can enter, then only to the log.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from hansard.broker import logins as server_logins
from hansard.broker import process as server_process
from hansard.broker.files import LOCK_POLL_S, Durability, ServerFiles, ServerInfo, hung_up, locked
from hansard.broker.marker import Marker
from hansard.bus import errors, marks
from hansard.bus.file_lock import PRIVATE_DIR, PRIVATE_FILE, release, replace_private, take

USAGE = "python -m hansard.broker.supervisor DATA_DIR strict|relaxed NATS_SERVER"

UP = b"up\n"

GRACE_S = 0.5
"""Time in seconds that the server runs without users, so that a series of commands finds it warm.
"""

GRACE_POLL_S = 0.05
READY_POLL_S = 0.01
"""Pause between two checks of a state that has no event of its own, in seconds."""

READY_TIMEOUT_S = 600.0
"""Time in seconds after which a server that does not answer is killed: a million commits are read
in 2 s.
"""

RESTARTS_MAX = 5
RESTART_WINDOW_S = 60.0
"""Time in seconds within which a server that dies too often is given up."""

STARTS_MAX = 3
"""Attempts to start a server that has not answered yet: another process may take the port in
between.
"""

BACKOFF_S = 0.1
"""Pause before the first restart in seconds; each further one within the window doubles it."""

LOG_POLL_S = 5.0
"""Pause between two checks of the log's size in seconds: a server writes much only after a fault.
"""

ROOM_POLL_S = 0.25
ROOM_POLL_S_MAX = 30.0
"""Longest pause between two checks for disk space, in seconds; it doubles each time that a
restarted server soon could not write, and is reset after a RESTART_WINDOW_S without that.
"""

FILES_POLL_S = 1.0
"""Pause between two checks that the server's files are in place, in seconds."""

STORE_WAIT_S = 15.0
"""Timeout for a predecessor to release the store, in seconds."""

ORPHAN_AFTER_S = 2.5
"""Time in seconds after which a predecessor's server still running has no supervisor and is ended.
More than a clean stop takes.
"""


class GaveUp(Exception):
    """The server cannot be run; the message goes to the error file, for `join` to raise."""


class Supervisor:
    """The loop. `store_lock`: descriptor of the held lock, which the server inherits."""

    def __init__(
        self,
        place: ServerFiles,
        durability: Durability,
        binary: Path,
        store_lock: int,
        log_since: int,
    ) -> None:
        self._place = place
        self._durability = durability
        self._binary = binary
        self._store_lock = store_lock
        self._log_since = log_since
        self._credentials = place.read_credentials()
        self._marker = Marker(place, durability)
        self._server: subprocess.Popen[bytes] | None = None
        self._launched_at = 0.0
        self._next_start_at = 0.0
        self._answers = False
        self._answered_once = False
        self._deaths: list[float] = []
        self._alone_since: float | None = None
        self._over = False
        self._look_at_log = 0.0
        self._unfinished = b""
        self._obstacle = ""
        self._room_poll_s = ROOM_POLL_S
        self._look_for_room = 0.0
        self._obstacle_at = 0.0
        self._files = errors.Anchors()
        self._files.hold(place.root)
        self._files.hold(place.store)
        self._wakeup, wakeup_in = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(wakeup_in, False)
        signal.set_wakeup_fd(wakeup_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._end)
        self._users = place.receive()

    def run(self) -> int:
        """Serve until there are no users or a signal arrives; return the exit code."""
        try:
            while not self._over:
                pause_s = self._step()
                if not self._over:
                    self._wait(pause_s)
        except Exception as error:  # noqa: BLE001 -- reported by the process that waits for us
            return _give_up(self._place, error)
        finally:
            # In this order: a waiting process finds the reason once we have ended; no new process
            # enters; no process gets the address of a server that is ending.
            self._leave_users()
            self._forget_state()
            self._marker.end()
            if self._server is not None:
                self._stop(self._server)
            self._files.close()
        return 0

    def _forget_state(self) -> None:
        """Withdraw the state of the server; a file of another process in place of our folder is
        kept.
        """
        with contextlib.suppress(OSError):
            if self._files.lost() is None:
                self._place.state.unlink(missing_ok=True)

    def _end(self, number: int, _frame: object) -> None:
        _say(f"received {signal.Signals(number).name}")
        self._over = True

    def _step(self) -> float | None:
        """Do the work that is due; return the seconds until the next, None: until an event."""
        now = time.monotonic()
        self._watch_output()
        due = [
            self._watch_files(),
            self._watch_users(now),
            self._watch_server(now),
            self._watch_room(now),
            self._watch_log(now),
        ]
        return min((pause for pause in due if pause is not None), default=None)

    def _wait(self, pause_s: float | None) -> None:
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        if self._alone_since is None and self._users >= 0:
            poll.register(self._users, 0)  # POLLHUP needs no request, and lasts until a user enters
        if self._server is not None and self._server.poll() is None:
            poll.register(server_process.output(self._server), select.POLLIN)
        poll.poll(None if pause_s is None else max(1, int(pause_s * 1000)))
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup, 512)

    # ------------------------------------------------------------ users

    def _watch_users(self, now: float) -> float | None:
        if self._over:
            return None
        if not hung_up(self._users):
            self._alone_since = None
            return None
        if self._alone_since is None:
            self._alone_since = now
        if now - self._alone_since >= GRACE_S:
            self._leave_if_alone()
        return GRACE_POLL_S

    def _leave_if_alone(self) -> None:
        """Decide to stop, unless a process is about to enter: then check again soon."""
        try:
            with locked(self._place.join_lock, 0.0) as held:
                if held and hung_up(self._users):
                    _say("no users are left")
                    self._leave_users()
                    self._over = True
        except FileNotFoundError:
            _say("the data directory is gone")
            self._over = True

    def _leave_users(self) -> None:
        if self._users >= 0:
            os.close(self._users)
            self._users = -1

    # ------------------------------------------------------------ log

    def _watch_log(self, now: float) -> float:
        """Keep the log bounded; a disk without space for the old one is no reason to stop."""
        if now >= self._look_at_log:
            self._look_at_log = now + LOG_POLL_S
            with contextlib.suppress(OSError):
                if self._place.put_log_aside():
                    self._log_since = 0
        return self._look_at_log - now

    # ------------------------------------------------------------ files

    def _watch_files(self) -> float | None:
        """End a server whose files are missing: its acknowledged writes would be lost."""
        if self._over:
            return None
        try:
            lost = self._files.lost()
        except OSError as error:
            self._hinder(str(error))
            return FILES_POLL_S
        if lost is not None:
            _say(f"the data directory is gone: {lost}")
            self._over = True
            if self._server is not None:
                self._server.kill()  # at once: a clean stop would still write files
        return FILES_POLL_S

    def _watch_output(self) -> None:
        """Write the server's output to the log, and check whether it reports that it cannot
        write.
        """
        if self._server is None:
            return
        text = server_process.read_output(self._server)
        _write(text)
        whole, newline, rest = (self._unfinished + text).rpartition(b"\n")
        self._unfinished = rest
        obstacle = server_process.obstacle(whole) if newline else ""
        if obstacle and not self._over:
            self._hinder(obstacle)

    def _hinder(self, obstacle: str) -> None:
        """Record an obstacle for the users, and check for disk space from now on."""
        now = time.monotonic()
        before, self._obstacle_at = self._obstacle_at, now
        if self._obstacle:
            return
        again = before and now - before < RESTART_WINDOW_S
        longer = min(2 * self._room_poll_s, ROOM_POLL_S_MAX)
        self._room_poll_s = longer if again else ROOM_POLL_S
        self._look_for_room = now + self._room_poll_s
        self._tell_obstacle(obstacle)
        _say(f"the server cannot write: {errors.explained(self._place.root, obstacle)}")

    def _tell_obstacle(self, obstacle: str) -> None:
        self._obstacle = obstacle
        with contextlib.suppress(OSError):  # users notice that the server does not answer
            self._place.write_obstacle(obstacle)

    def _watch_room(self, now: float) -> float | None:
        """Restart the server once it has disk space."""
        if self._over or not self._obstacle or self._server is None or not self._answers:
            return None
        if now < self._look_for_room:
            return self._look_for_room - now
        self._look_for_room = now + self._room_poll_s
        try:
            errors.try_room(self._place.store)
        except OSError:
            return self._room_poll_s
        _say("there is room again: starting the server again")
        self._forget_state()
        self._stop(self._server)
        self._server = None
        self._answers = False
        self._next_start_at = now
        return READY_POLL_S

    def _stop(self, server: subprocess.Popen[bytes]) -> None:
        server_process.stop(server)
        _write(server_process.read_output(server))
        self._unfinished = b""
        if server.stderr is not None:
            server.stderr.close()

    # ------------------------------------------------------------ server

    def _watch_server(self, now: float) -> float | None:
        """Start the server, wait for its first response, and notice its end. Files that cannot be
        written are an obstacle that may pass.
        """
        try:
            return self._attend(now)
        except OSError as error:
            if not errors.code_of(error):
                raise
            self._hinder(str(error))
            self._next_start_at = now + ROOM_POLL_S
            return ROOM_POLL_S

    def _attend(self, now: float) -> float | None:
        if self._over:
            return None
        if self._server is None:
            if now < self._next_start_at:
                return self._next_start_at - now
            self._start(now)
            return READY_POLL_S
        code = self._server.poll()
        if code is not None:
            return self._died(code, now)
        if self._answers:
            return self._marker.keep(self._credentials, now)
        version = server_process.probe(
            self._credentials.port, self._credentials.name, self._credentials.admin
        )
        if version is not None:
            # First, so that no user of a killed supervisor finds another process at its FIFO.
            pause_s = self._marker.keep(self._credentials, now)
            self._answered(self._server.pid, version, now)
            return pause_s
        if now - self._launched_at > READY_TIMEOUT_S:
            _say(f"the server did not answer for {READY_TIMEOUT_S:.0f} s")
            self._server.kill()
        return READY_POLL_S

    def _start(self, now: float) -> None:
        port = server_process.free_port(self._credentials.port)
        if port != self._credentials.port:
            self._credentials = msgspec.structs.replace(self._credentials, port=port)
            self._place.write_credentials(self._credentials)
        config = server_process.config(self._place, self._credentials, self._durability, port)
        replace_private(self._place.config, config)
        server_logins.write(self._place, self._credentials)
        try:
            self._server = server_process.launch(self._binary, self._place, self._store_lock)
        except OSError as error:
            raise GaveUp(f"{self._binary} cannot be run ({error})") from error
        self._launched_at = now

    def _answered(self, pid: int, version: str, now: float) -> None:
        self._place.write_state(
            ServerInfo(
                url=f"nats://{server_process.HOST}:{self._credentials.port}",
                durability=self._durability,
                admin=self._credentials.admin,
                runtime=self._credentials.runtime,
                system=self._credentials.system,
                server_pid=pid,
                supervisor_pid=os.getpid(),
                version=version,
            )
        )
        self._answers = self._answered_once = True
        if self._obstacle_at < self._launched_at:  # else this server has met an obstacle, too
            self._tell_obstacle("")
        _say(f"nats-server {version} answers after {now - self._launched_at:.3f} s")

    def _died(self, code: int, now: float) -> float:
        """Schedule a restart, or give up. Return the pause until then."""
        self._forget_state()
        self._watch_output()
        if self._server is not None and self._server.stderr is not None:
            self._server.stderr.close()
        self._server = None
        self._answers = False
        self._deaths = [at for at in self._deaths if now - at < RESTART_WINDOW_S] + [now]
        deaths = len(self._deaths)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        limit = RESTARTS_MAX + 1 if self._answered_once else STARTS_MAX
        if deaths >= limit:
            raise GaveUp(
                f"nats-server {how}, the last of {deaths} times within {RESTART_WINDOW_S:.0f} s; "
                "the log says:\n" + self._place.log_tail(self._log_since)
            )
        pause_s: float = BACKOFF_S * 2 ** (deaths - 1)
        _say(f"nats-server {how}; starting it again in {pause_s:.1f} s")
        self._next_start_at = now + pause_s
        return pause_s


def _take_store(place: ServerFiles) -> int | None:
    """Acquire the store's lock once a predecessor has ended; end the server of a dead predecessor.
    None: another supervisor, at which processes can enter, has the lock.

    Raises GaveUp if the predecessor does not end.
    """
    fd = os.open(place.store_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    began = time.monotonic()
    while not take(fd):
        if _another(place):
            os.close(fd)
            return None
        waited_s = time.monotonic() - began
        if waited_s > STORE_WAIT_S:
            raise GaveUp(
                f"another process has held {place.store_lock} for {STORE_WAIT_S:.0f} s: "
                "end the nats-server that runs on this data directory"
            )
        if waited_s > ORPHAN_AFTER_S:
            _end_orphan(place, by_force=waited_s > 2 * ORPHAN_AFTER_S)
        time.sleep(LOCK_POLL_S)
    return fd


def _another(place: ServerFiles) -> bool:
    """Return whether processes can enter: a supervisor is up."""
    entered = place.enter()
    if entered is None:
        return False
    os.close(entered)
    return True


def _end_orphan(place: ServerFiles, *, by_force: bool) -> None:
    try:
        left = place.read_state()
    except msgspec.DecodeError:
        return
    if left is None or not server_process.is_ours(left.server_pid, place):
        return
    try:
        os.kill(left.server_pid, signal.SIGKILL if by_force else signal.SIGTERM)
    except ProcessLookupError:
        return


def _serve(place: ServerFiles, durability: Durability, binary: Path, log_since: int) -> int:
    store_lock = _take_store(place)
    if store_lock is None:
        _say("another supervisor already runs here")
        _say_up()
        return 0
    # Before any process can enter, so that a file found there later is ours.
    place.state.unlink(missing_ok=True)
    place.error.unlink(missing_ok=True)
    place.store.mkdir(mode=PRIVATE_DIR, exist_ok=True)
    place.write_obstacle()
    try:
        marks.begin_missing(place.root, place.store, durability.value)
    except OSError as error:
        _say(f"marks are not begun: {error}")
    supervisor = Supervisor(place, durability, binary, store_lock, log_since)
    _say_up()
    code = supervisor.run()
    release(store_lock)
    return code


def _say_up() -> None:
    """Report to the starting process that processes can enter; it may have ended, or entered
    elsewhere.
    """
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), UP)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def _give_up(place: ServerFiles, error: Exception) -> int:
    """Record the reason where `join` reads it; return the exit code."""
    text = str(error)
    if not isinstance(error, GaveUp | OSError):
        import traceback  # noqa: PLC0415 -- only for a bug of ours

        text = "".join(traceback.format_exception(error))
    _say(f"gave up: {text}")
    with contextlib.suppress(OSError):  # `join` notices itself that the disk is full
        place.write_error(text)
    return 1


def _say(text: str) -> None:
    line = f"[{os.getpid()}] {time.strftime('%Y/%m/%d %H:%M:%S')} [supervisor] {text}\n"
    _write(line.encode(errors="surrogateescape"))


def _write(text: bytes) -> None:
    """Write to the log; a full disk is no reason to end."""
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(sys.stderr.fileno(), text) :]


def _become_daemon() -> None:
    """Detach from the process that started us, so that it need not wait for our end, and reset
    inherited state.
    """
    if os.fork():
        os._exit(0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o777 & ~PRIVATE_DIR)
    server_process.name_process("hansard-server")


def main() -> int:
    """Run until the last user has ended. Return 0 after a clean end, 1 with the reason in the error
    file.
    """
    try:
        _, data_dir, target, binary = sys.argv
        durability = Durability(target)
    except ValueError:
        sys.exit(f"usage: {USAGE}")
    _become_daemon()
    place = ServerFiles(Path(data_dir))
    log_since = os.fstat(sys.stderr.fileno()).st_size
    _say(f"started for {place.root}, durability {durability.value}")
    try:
        code = _serve(place, durability, Path(binary), log_since)
    except Exception as error:  # noqa: BLE001 -- last handler: `join` reports it
        code = _give_up(place, error)
    _say("ended")
    if place.copied.exists():
        from hansard.broker import private_copy  # noqa: PLC0415 -- rarely needed, and a third of the start time

        private_copy.remove_unused(place.root)
    return code


if __name__ == "__main__":
    sys.exit(main())
