"""Two regions on loopback: servers with JetStream domains, and a leaf connection with a delay."""

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hansard.bus.jetstream import BrokerOptions
from tests.bus.brokers import ServerProcess, free_ports

READ_BYTES = 64 * 1024

CONFIG = """\
server_name: {domain}
host: 127.0.0.1
port: {port}
jetstream {{ store_dir: "{store}", sync_interval: always, domain: {domain} }}
accounts {{ H {{ jetstream: enabled, users: [ {{ user: admin, password: admin }} ] }} }}
leafnodes {{ {leaf} }}
"""


class Distance:
    """A TCP proxy that delivers everything after a delay, and may be cut."""

    def __init__(self, server_port: int, delay_s: float) -> None:
        self._server_port, self._delay_s = server_port, delay_s
        self._is_cut = False
        self._sockets: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections, with what is on its way, and take no other."""
        self._is_cut = True
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets = []

    def join(self) -> None:
        """Take connections again."""
        self._is_cut = False

    def close(self) -> None:
        """Take no more connections."""
        self.cut()
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    if self._is_cut:
                        raise ConnectionRefusedError
                    server = socket.create_connection(("127.0.0.1", self._server_port))
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                for source, sink in ((client, server), (server, client)):
                    _Pump(source, sink, self._delay_s)


class _Pump:
    """Delivers one direction of a connection after a delay."""

    def __init__(self, source: socket.socket, sink: socket.socket, delay_s: float) -> None:
        self._source, self._sink, self._delay_s = source, sink, delay_s
        self._parts: deque[tuple[float, bytes]] = deque()
        self._more = threading.Semaphore(0)
        for each in (self._receive, self._deliver):
            threading.Thread(target=each, daemon=True).start()

    def _receive(self) -> None:
        part = b"-"
        while part:
            part = b""
            with contextlib.suppress(OSError):
                part = self._source.recv(READ_BYTES)
            self._parts.append((time.monotonic() + self._delay_s, part))
            self._more.release()

    def _deliver(self) -> None:
        while True:
            self._more.acquire()
            due_s, part = self._parts.popleft()
            time.sleep(max(0.0, due_s - time.monotonic()))
            try:
                self._sink.sendall(part)
            except OSError:
                break
            if not part:
                break
        for each in (self._source, self._sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._source.close()  # the pump of the other direction closes the sink


class Server(ServerProcess):
    """The server of a region."""

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def login(self) -> dict[str, Any]:
        """Arguments of `connect`."""
        return {"nats": self.url, "nats_user": "admin", "nats_password": "admin"}

    @property
    def options(self) -> BrokerOptions:
        """Options of a connection."""
        return BrokerOptions(
            urls=(self.url,), user="admin", password="admin", request_timeout_s=2.0
        )


class Regions:
    """Region A, and region B with a leaf connection to it."""

    def __init__(self, folder: Path, delay_s: float) -> None:
        a_port, b_port, leaf_port = free_ports(3)
        self.distance = Distance(leaf_port, delay_s)
        url = f"nats://admin:admin@127.0.0.1:{self.distance.port}"
        leaves = {
            "A": f"host: 127.0.0.1, port: {leaf_port}, no_advertise: true",
            "B": f'reconnect: 1s, remotes: [ {{ url: "{url}", account: H }} ]',
        }
        servers: list[Server] = []
        for (domain, leaf), port in zip(leaves.items(), (a_port, b_port), strict=True):
            own = folder / domain
            own.mkdir(parents=True)
            text = CONFIG.format(domain=domain, port=port, store=own / "store", leaf=leaf)
            (own / "nats.conf").write_text(text)
            servers.append(Server(own, port))
        self.a, self.b = servers


@contextlib.contextmanager
def running(folder: Path, delay_s: float) -> Iterator[Regions]:
    """Run both regions until the end of the block."""
    regions = Regions(folder, delay_s)
    try:
        regions.a.start()
        regions.b.start()
        yield regions
    finally:
        regions.distance.close()
        regions.a.kill()
        regions.b.kill()
