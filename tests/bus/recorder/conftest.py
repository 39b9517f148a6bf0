"""A nats-server of its own that tests may kill, stop and start again; recorders on it."""

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from eventsourcing.utils import Environment

from hansard.bus.recorder import Factory, JetStreamFactory
from hansard.bus.server import find_binary

CONFIG = """
host: 127.0.0.1
port: {port}
jetstream {{ store_dir: "{store}", sync_interval: always }}
"""

START_WITHIN_S = 10.0


class Server:
    """A nats-server on a port that it keeps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        config = CONFIG.format(port=self.port, store=folder / "store")
        (folder / "nats.conf").write_text(config, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it lets clients in."""
        files = ["-c", str(self._folder / "nats.conf"), "-l", str(self._folder / "log")]
        self._process = subprocess.Popen([find_binary(), *files])
        deadline = time.monotonic() + START_WITHIN_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < deadline, (self._folder / "log").read_text()
                time.sleep(0.02)
            else:
                return

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL it, and wait for its end."""
        self.send(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    """A server for the tests of one file."""
    running = Server(tmp_path_factory.mktemp("nats"))
    running.start()
    yield running
    running.kill()


@pytest.fixture
def factory_of(server) -> Iterator[Callable[..., JetStreamFactory]]:
    """Makes factories on the server; each name has a stream of its own. Closed after the test."""
    made: list[JetStreamFactory] = []
    own = uuid4().hex

    def make(name: str = "app", **variables: str) -> JetStreamFactory:
        variables = {
            "PERSISTENCE_MODULE": "hansard.bus.recorder",
            "NATS_URL": server.url,
        } | variables
        made.append(Factory(Environment(f"{name}{own}", variables)))
        return made[-1]

    yield make
    for factory in made:
        factory.close()
