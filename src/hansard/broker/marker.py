"""Maintains the marks of an embedded server's workspaces: a child of its supervisor.

Once a second it asks the server whether anything was written, and for the extent of its logs, reads
the new messages, and writes the mark (`hansard.bus.marks`). It is a separate process, so that
neither writers nor the supervisor wait for it: it uses at most a tenth of a core, and of a bulk
load it counts everything at once and reads the rest later. It ends with the supervisor, which
closes the other end of a pipe.

A mark is never ahead of the disk: an observation is written only once it is older than the longest
time that a server leaves anything unsynced, and if it still holds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import time
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from hansard.broker import process as server_process
from hansard.broker.files import Credentials, Durability, ServerFiles
from hansard.bus import marks, subjects
from hansard.bus.marks import Extent, Kept, Mark, Newest, Whole

LOOK_S = 1.0
"""Pause between two checks in seconds: how far a mark lags behind under a light load."""

SHARE = 10
"""Least ratio of a pause to the duration of the check before it."""

BEHIND_MAX = 100_000
"""Unread messages of a log beyond which a pause is no longer than the check before it."""

READ_S_MAX = 0.1
"""Longest reading time of one check, in seconds: the rest is read in the next ones."""

READ_MESSAGES = 512
READ_BYTES = 4 * 1024 * 1024
"""Most bytes of one request. More than the largest message."""

SETTLED_S = 0.05
"""Age in seconds from which a write is on disk: at most 14 ms if durability is relaxed."""

ANSWER_S = 5.0
"""Timeout for one reply of the server, in seconds."""

RETRY_S = 0.1
"""Pause before the next attempt to reach a server, in seconds."""

START_S = 5.0
"""Longest wait for its process to start, in seconds: a fork takes a few ms."""

AGAIN_S = 10.0
"""Least time between two starts after it was ended from outside, in seconds."""

LEAVE_S = 0.25
"""Timeout for a last check when the supervisor ends the server, in seconds."""

NOT_FOUND = 10_059
"""The JetStream API's error code for a missing stream."""

PAGES_MAX = 1_000
"""Most pages of the server's list of streams (256 streams each)."""

PIPE = 3
_DESCRIPTORS_MAX = 65_536


class Marker:
    """The supervisor's side: starts the marker process and ends it."""

    def __init__(self, place: ServerFiles, durability: Durability) -> None:
        self._place = place
        self._durability = durability
        self._credentials: Credentials | None = None
        self._due_s = 0.0
        self._pid = 0
        self._pipe = -1

    def keep(self, credentials: Credentials, now_s: float) -> float | None:
        """Keep it running with these credentials; return None if it runs, else the seconds until it
        may be started again.
        """
        if self._pid and not self._ended():
            if credentials == self._credentials:
                return None
            self.end()
            self._due_s = 0.0
        if now_s < self._due_s:
            return self._due_s - now_s
        self._let_go()
        self._due_s, self._credentials = now_s + AGAIN_S, credentials
        try:
            self._pipe, theirs = (each.detach() for each in socket.socketpair())
            self._pid = os.fork()
        except OSError:  # no process or descriptor available: no reason to stop the server
            return AGAIN_S
        if self._pid:
            os.close(theirs)
            # Until it holds nothing of ours, which our death then releases.
            if _over(self._pipe, START_S):
                os.read(self._pipe, 1)
                return None
            _say(f"its process was not up within {START_S:.0f} s: next start in {AGAIN_S:.0f} s")
            self.end()
            return AGAIN_S
        try:
            run(_Keeper(self._place.root, self._durability.value), credentials, _alone(theirs))
        finally:
            os._exit(0)

    def end(self) -> None:
        """End it after one more check."""
        self._let_go()
        until_s = time.monotonic() + LEAVE_S
        while self._pid and not self._ended():
            if time.monotonic() >= until_s:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
            time.sleep(0.005)

    def _let_go(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def _ended(self) -> bool:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(self._pid, os.WNOHANG)[0] == 0:
                return False
        self._pid = 0
        return True


def _alone(pipe: int) -> int:
    """Release everything inherited from the supervisor: its lock, users, signals; then report that
    to it. Return the pipe's new number.
    """
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(pipe, PIPE)
    os.closerange(PIPE + 1, _DESCRIPTORS_MAX)
    server_process.name_process("hansard-marker")
    os.write(PIPE, b".")
    return PIPE


def run(keeper: _Keeper, credentials: Credentials, pipe: int) -> None:
    """Check repeatedly until the other end of the pipe is closed, and then once more."""
    last = False
    while not last:
        try:
            with _Server.reached(credentials) as server:
                while not last:
                    began_s = time.monotonic()
                    behind = keeper.look(server)
                    took_s = time.monotonic() - began_s
                    pause_s = took_s if behind > BEHIND_MAX else max(LOOK_S, SHARE * took_s)
                    last = _over(pipe, pause_s)
                keeper.look(server)
        except (OSError, ValueError, KeyError, marks.Damaged) as error:
            keeper.say(f"marks are not kept now: {error!r}")
            last = last or _over(pipe, RETRY_S)


def _over(pipe: int, pause_s: float) -> bool:
    """Wait for a pause or the end; return whether it must end."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(pause_s * 1000))


def _say(text: str) -> None:
    line = f"[{os.getpid()}] {time.strftime('%Y/%m/%d %H:%M:%S')} [marks] {text}\n"
    with contextlib.suppress(OSError):  # a full disk is no reason to end
        os.write(2, line.encode(errors="surrogateescape"))


class _Keeper:
    """Marks, with the known extent of each."""

    def __init__(self, data_dir: Path, durability: str) -> None:
        self._data_dir = data_dir
        self._durability = durability
        self._folder = data_dir.stat()
        self._kept: dict[str, Kept] = {}
        self._written = ""

    def say(self, text: str) -> None:
        """Write a text to the server's log, once."""
        if text == self._written:
            return
        self._written = text
        _say(text)

    def look(self, server: _Server) -> int:
        """Check the extent of each log, and write the marks of changed ones; return the most
        messages of one that were not read yet. Raises OSError, DecodeError.
        """
        behind = 0
        streams = server.streams()
        logs = server.logs(streams)
        marked = marks.workspaces(self._data_dir)
        changed: dict[str, Kept] = {}
        until_s = time.monotonic() + READ_S_MAX
        for workspace, log in logs.items():
            name, state = subjects.log_stream(workspace), log.extent
            known = self._known(workspace, name, there=workspace in marked)
            blobs = streams.get(subjects.blob_stream(workspace), Extent()).last
            is_read = known.lost is not None or known.mark.chained == state.last
            if is_read and server.compared.get(name) == (state, blobs):
                continue
            newest = server.newest(known.mark, log)
            lost = marks.loss(log.checked(known), state, blobs, newest)
            server.compared[name] = state, blobs
            if lost is not None:
                if known.lost is None:  # the mark stays unchanged: only it proves the loss
                    changed[workspace] = msgspec.structs.replace(known, lost=lost)
                    self.say(f"workspace {workspace!r}: {lost}; see 'hansard check'")
                continue
            mark = self._read(server, known.mark, log, until_s)
            if mark.chained > known.mark.chained:
                behind = max(behind, mark.position - mark.chained)
            if (mark, blobs, None) != (known.mark, known.blobs, known.lost):
                changed[workspace] = msgspec.structs.replace(
                    known, mark=mark, blobs=blobs, lost=None
                )
        if changed:
            time.sleep(SETTLED_S)
            streams = server.streams()
            self._write(changed, streams, server.logs(streams))
        return behind

    def _known(self, workspace: str, stream: str, *, there: bool) -> Kept:
        known, late = self._kept.get(workspace), None
        if known is not None and not there:
            known, late = None, "its mark was removed"
            del self._kept[workspace]
        if known is None:
            known = marks.read(self._data_dir, workspace)
            if known is None:
                now = datetime.now(UTC)
                return Kept(Mark(stream), now, self._durability, now, late=late)
            self._kept[workspace] = known
        return known

    def _read(self, server: _Server, mark: Mark, log: Whole, until_s: float) -> Mark:
        """Return the mark at the newest position, with its chain as far as the reading time
        allows: at least the answer of one request.
        """
        state = log.extent
        chained = Mark(mark.stream, mark.chained, 0, mark.chained, mark.chain, mark.before)
        while chained.position < state.last:
            before = chained.position
            stream = log.holding(before + 1)
            if stream is None:
                break  # only the archive has it
            for position, subject, body in server.after(stream, before):
                if position > state.last:
                    break
                chained = chained.then(position, subject, body)
            if chained.position == before or time.monotonic() >= until_s:
                break  # nothing more is readable, or not now
        return msgspec.structs.replace(chained, position=state.last, count=state.messages)

    def _write(
        self, changed: dict[str, Kept], streams: dict[str, Extent], logs: dict[str, Whole]
    ) -> None:
        """Write the marks that still hold. A folder that replaced ours gets none."""
        if not os.path.samestat(self._folder, self._data_dir.stat()):
            raise FileNotFoundError(errno.ENOENT, "another folder now", str(self._data_dir))
        for workspace, kept in changed.items():
            log = logs.get(workspace)
            state = log.extent if log is not None else None
            blobs = streams.get(subjects.blob_stream(workspace), Extent()).last
            if kept.lost is None and (
                state is None
                or state.last < kept.mark.position
                or state.missing > kept.mark.missing
                or blobs < kept.blobs
            ):
                continue
            now = datetime.now(UTC)
            written = kept.written if kept.lost is not None else now
            mark = msgspec.structs.replace(kept, written=written, durability=self._durability)
            marks.write(self._data_dir, workspace, mark)
            self._kept[workspace] = mark


class _Server:
    """A connection to the server: one request at a time, each with a timeout."""

    def __init__(self, connection: server_process.Connection) -> None:
        self._connection = connection
        self._requests = 0
        self._usage: object = None
        self._streams: dict[str, Extent] = {}
        self._archived: dict[str, tuple[int, int, int]] = {}
        self.compared: dict[str, tuple[Extent, int]] = {}
        """Logs that were last compared with their marks over this connection: the log's extent, and
        the end of its blobs.
        """

    @classmethod
    @contextlib.contextmanager
    def reached(cls, credentials: Credentials) -> Generator[_Server]:
        """Connect to the server. Raises OSError."""
        login = credentials.runtime
        with server_process.connect(credentials.port, credentials.name, login) as connection:
            connection.socket.settimeout(ANSWER_S)
            yield cls(connection)

    def streams(self) -> dict[str, Extent]:
        """Return every stream: its newest sequence, and its number of messages.

        They are listed, at 20 us a stream, only if something may have changed since the last time:
        a write changes the account's use of the disk, a new or deleted stream is an API request.
        """
        info = self._api("INFO", {}) or {}
        others = info.get("api", {}).get("total", 0) - self._requests
        usage = info.get("storage"), info.get("streams"), others
        if usage != self._usage:
            self._streams = self._list_streams()
            self._usage = usage
        return self._streams

    def _list_streams(self) -> dict[str, Extent]:
        extents: dict[str, Extent] = {}
        for _ in range(PAGES_MAX):
            page = self._api("STREAM.LIST", {"offset": len(extents)}) or {}
            for each in page.get("streams") or []:
                extents[each["config"]["name"]] = Extent.of(each)
            if not page.get("streams") or len(extents) >= page.get("total", 0):
                break
        return extents

    def logs(self, streams: dict[str, Extent]) -> dict[str, Whole]:
        """Return the logs of all workspaces, over their generations."""
        generations: dict[str, list[tuple[int, str]]] = {}
        for name in streams:
            log = marks.generation_of(name)
            if log is not None:
                generations.setdefault(log[0], []).append((log[1], name))
        return {
            workspace: Whole(
                tuple((name, streams[name]) for _, name in sorted(names)),
                *self._archive(workspace, streams),
            )
            for workspace, names in generations.items()
        }

    def _archive(self, workspace: str, streams: dict[str, Extent]) -> tuple[int, int]:
        """Return the last position that the archive verified, and its number of messages."""
        name = subjects.tiers_stream(workspace)
        if name not in streams:
            return 0, 0
        read, end, messages = self._archived.get(workspace, (0, 0, 0))
        while read < streams[name].last:
            before = read
            for position, _, body in self.after(name, read):
                entry = msgspec.json.decode(body)
                read, end = position, max(end, int(entry.get("last", 0)))  # 0: one that was opened
                messages += int(entry.get("messages", 0))
            if read == before:
                break
        self._archived[workspace] = read, end, messages
        return end, messages

    def newest(self, mark: Mark, log: Whole) -> Newest | None:
        """Return the message at a mark's `chained` position; None if it cannot be checked, or if
        the server has none there.
        """
        stream = log.holding(mark.chained)
        if not mark.checkable or mark.chained > log.extent.last or stream is None:
            return None
        headers, body = self._connection.answer(
            self._ask(f"DIRECT.GET.{stream}", {"seq": mark.chained})
        )
        fields = _headers(headers)
        return None if fields is None else (fields["Nats-Subject"], body)

    def after(self, stream: str, position: int) -> Generator[tuple[int, str, bytes]]:
        """Yield the next messages of a stream: position, subject, body."""
        names = {
            "seq": position + 1,
            "batch": READ_MESSAGES,
            "max_bytes": READ_BYTES,
            "next_by_subj": ">",
        }
        inbox = self._ask(f"DIRECT.GET.{stream}", names)
        while True:
            headers, body = self._connection.answer(inbox)
            fields = _headers(headers)
            if fields is None:
                return
            yield int(fields["Nats-Sequence"]), fields["Nats-Subject"], body

    def _api(self, what: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Call the JetStream API; return None if there is no such stream."""
        self._requests += 1
        _, data = self._connection.answer(self._ask(what, body))
        answer: dict[str, Any] = msgspec.json.decode(data)
        error = answer.get("error")
        if error is None:
            return answer
        if error.get("err_code") == NOT_FOUND:
            return None
        raise OSError(f"{what}: the broker answered {error.get('description')}")

    def _ask(self, what: str, body: dict[str, Any]) -> bytes:
        return self._connection.ask(f"$JS.API.{what}", msgspec.json.encode(body))


def _headers(headers: bytes) -> dict[str, str] | None:
    """Return a stored message's headers; None for a status: the end, or no message."""
    lines = headers.decode(errors="surrogateescape").split("\r\n")
    if len(lines[0].split()) > 1:
        return None
    return dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
