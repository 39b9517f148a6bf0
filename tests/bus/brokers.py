"""Real servers and logs for tests: a server that can be killed, and short ways to make commits."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from hansard.broker.lease import find_binary
from hansard.bus.clock import Clock
from hansard.bus.jetstream import BrokerOptions, JetStreamLog, open_log
from hansard.bus.log import Append, Expected, VersionFree
from hansard.domain.events import Actor, Commit, Recorded
from hansard.domain.ids import StreamId

CLOCK = Clock()
FREE = VersionFree()
START_S = 60.0

CONFIG = """\
host: 127.0.0.1
port: {port}
max_payload: {max_payload}
jetstream {{ store_dir: "{store}", sync_interval: {sync} }}
accounts {{ A {{
  jetstream: enabled
  users: [
    {{ user: admin, password: admin }}
    {{ user: runtime, password: runtime, permissions: {{ publish: {{ deny: [
        "$JS.API.STREAM.CREATE.>", "$JS.API.STREAM.UPDATE.>", "$JS.API.STREAM.DELETE.>",
        "$JS.API.STREAM.PURGE.>", "$JS.API.STREAM.MSG.DELETE.>" ] }} }} }}
  ]
}} }}
"""


class ServerProcess:
    """A nats-server on a port, with its configuration and its log in a folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self.frozen = False
        self.binary = find_binary()

    def start(self) -> None:
        """Start it and wait until it listens."""
        self.process = subprocess.Popen(
            [self.binary, "-c", self.folder / "nats.conf", "-l", self.folder / "nats.log"]
        )
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.01)
        raise AssertionError((self.folder / "nats.log").read_text())

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, also by a signal of another process."""
        return self.process is None or self.process.poll() is not None

    def freeze(self) -> None:
        """Stop the process where it is; it has stopped when this returns."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)
        self.frozen = True

    def go_on(self) -> None:
        """Continue it; it may serve stale data until it has caught up."""
        if self.frozen and self.process is not None:
            self.process.send_signal(signal.SIGCONT)
        self.frozen = False

    def stop(self) -> None:
        """End it cleanly."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(START_S)
            self.process = None

    def kill(self) -> None:
        """SIGKILL it; nothing if it does not run."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process, self.frozen = None, False


class Nats(ServerProcess):
    """A nats-server on a free port and a folder of its own."""

    def __init__(self, folder: Path, *, sync: str = "always", max_payload: str = "1MB") -> None:
        super().__init__(folder, *free_ports(1))
        self._config = folder / "nats.conf"
        store = folder / "store"
        self._config.write_text(
            CONFIG.format(port=self.port, store=store, sync=sync, max_payload=max_payload)
        )

    def configure(self, old: str, new: str) -> None:
        """Put something else in the place of a part of its configuration. Before the start."""
        text = self._config.read_text()
        assert text.count(old) == 1
        self._config.write_text(text.replace(old, new))

    def forbid(self, subject: str) -> None:
        """Have `runtime` not listen on a subject. Before the start."""
        denied = f'permissions: {{ subscribe: {{ deny: ["{subject}"] }}, publish'
        self.configure("permissions: { publish", denied)

    def spoil(self, workspace: str) -> None:
        """Flip a bit in the checksum of the last message of a log. While it does not run."""
        block = self.folder / f"store/jetstream/A/streams/hansard_log-{workspace}/msgs/1.blk"
        content = bytearray(block.read_bytes())
        content[-1] ^= 1
        block.write_bytes(content)

    def options(self, user: str = "runtime", **more: Any) -> BrokerOptions:
        """Options to log in as `admin` or `runtime`."""
        more = {"append_timeout_s": 30.0, "request_timeout_s": 5.0, **more}
        return BrokerOptions(
            urls=(f"nats://127.0.0.1:{self.port}",), user=user, password=user, **more
        )

    async def log(
        self, workspace: str = "lab", durability: str = "strict", **more: Any
    ) -> JetStreamLog:
        """Open a log of this server, with its streams made as admin."""
        admin = self.options("admin")
        return await open_log(self.options(**more), workspace, durability, admin=admin)


def free_ports(count: int) -> list[int]:
    """Return unused ports."""
    with contextlib.ExitStack() as open_:
        probes = [open_.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextlib.contextmanager
def running(folder: Path, *, sync: str = "always", max_payload: str = "1MB") -> Iterator[Nats]:
    """Yield a server until the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    nats = Nats(folder, sync=sync, max_payload=max_payload)
    nats.start()
    try:
        yield nats
    finally:
        nats.kill()


def commit(version: int = 1, events: int = 1, text: str = "x", agent: str = "a1") -> Commit:
    """Return a commit of some events with a text each."""
    data = msgspec.Raw(msgspec.json.encode({"text": text}))
    return Commit(
        id=CLOCK.new_id(),
        version=version,
        at=CLOCK.now(),
        actor=Actor(agent),
        events=tuple(Recorded("test.said.v1", CLOCK.new_id(), data) for _ in range(events)),
    )


def append(
    stream: StreamId, version: int = 1, events: int = 1, expected: Expected = FREE, text: str = "x"
) -> Append:
    """Return an append of a new commit."""
    return Append(stream, commit(version, events, text), expected)


async def until(condition: Callable[[], Awaitable[bool]], within_s: float = 60.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110 -- a server has no event for a finished store
            await asyncio.sleep(0.005)
