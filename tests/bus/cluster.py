"""A cluster of three servers on loopback, each of which may be stopped, continued and killed."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hansard.bus.errors import BusError
from hansard.bus.jetstream import BrokerOptions, JetStreamLog, open_log
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import api
from tests.bus.brokers import ServerProcess, free_ports

SERVERS = 3
RELAY_BYTES = 64 * 1024
NOT_ADVERTISED = 'advertise: "127.0.0.1:1",'
"""Setting that hides the servers' addresses: they would bypass a `Link`."""

ELECTED_S = 30.0
"""Seconds that a cluster on a busy machine may need for a leader and for new streams."""

CONFIG = """\
server_name: {name}
host: 127.0.0.1
port: {port}
jetstream {{ store_dir: "{store}", sync_interval: {sync} }}
cluster {{ name: lab, host: 127.0.0.1, port: {route}, {advertise} routes: [{routes}] }}
accounts {{
  A {{
    jetstream: enabled
    users: [
      {{ user: admin, password: admin }}
      {{ user: runtime, password: runtime, permissions: {{ publish: {{ deny: [
          "$JS.API.STREAM.CREATE.>", "$JS.API.STREAM.UPDATE.>", "$JS.API.STREAM.DELETE.>",
          "$JS.API.STREAM.PURGE.>", "$JS.API.STREAM.MSG.DELETE.>" ] }} }} }}
    ]
  }}
  SYS {{ users: [ {{ user: system, password: system }} ] }}
}}
system_account: SYS
"""


class Member(ServerProcess):
    """One server of the cluster."""

    def __init__(self, name: str, port: int, folder: Path) -> None:
        super().__init__(folder, port)
        self.name = name

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"nats://127.0.0.1:{self.port}"


class Link:
    """Connections between two servers, whose packets may be held back for a while."""

    def __init__(self, dialer: str, acceptor: str, acceptor_port: int) -> None:
        self.names = dialer, acceptor
        self._acceptor_port = acceptor_port
        self._open = {dialer: threading.Event(), acceptor: threading.Event()}
        self._breaks = 0
        self.go_on()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self, sender: str) -> None:
        """Hold back one side's data."""
        self._open[sender].clear()

    def go_on(self, *, broken: bool = False) -> None:
        """Deliver everything again; a `broken` link loses the data held back."""
        self._breaks += broken
        for each in self._open.values():
            each.set()

    def close(self) -> None:
        """Take no more connections."""
        self.go_on()
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                dialer, _ = self._listening.accept()
                try:
                    acceptor = socket.create_connection(("127.0.0.1", self._acceptor_port))
                except OSError:  # that server does not run
                    dialer.close()
                    continue
                for name, source, sink in (
                    (self.names[0], dialer, acceptor),
                    (self.names[1], acceptor, dialer),
                ):
                    threading.Thread(
                        target=self._pump, args=[self._open[name], source, sink], daemon=True
                    ).start()

    def _pump(self, is_open: threading.Event, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(RELAY_BYTES):
                breaks = self._breaks
                is_open.wait()
                if self._breaks != breaks:
                    break
                sink.sendall(part)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()  # the pump of the other direction closes the sink


class Cluster:
    """Three servers. Where they are `linked`, each reaches the others over a `Link`."""

    def __init__(self, folder: Path, syncs: Sequence[str], *, linked: bool = False) -> None:
        ports = free_ports(2 * SERVERS)
        clients, routes = ports[:SERVERS], ports[SERVERS:]
        self.members: list[Member] = []
        self.links: list[Link] = []
        each = zip(clients, routes, syncs, strict=True)
        for number, (port, route, sync) in enumerate(each, 1):
            own = folder / f"n{number}"
            own.mkdir(parents=True)
            others, advertise = routes, ""
            if linked:
                mine = [
                    Link(f"n{number}", f"n{other}", reached)
                    for other, reached in enumerate(routes, 1)
                    if other != number
                ]
                self.links += mine
                others, advertise = [link.port for link in mine], NOT_ADVERTISED
            text = CONFIG.format(
                name=f"n{number}",
                port=port,
                store=own / "store",
                sync=sync,
                route=route,
                advertise=advertise,
                routes=", ".join(f'"nats://127.0.0.1:{other}"' for other in others),
            )
            (own / "nats.conf").write_text(text)
            self.members.append(Member(f"n{number}", port, own))

    def member(self, name: str) -> Member:
        """Return a member by its name."""
        return next(member for member in self.members if member.name == name)

    def options(
        self, user: str = "runtime", *, first: Member | None = None, **more: Any
    ) -> BrokerOptions:
        """Return options to log in, at `first` alone if it is given."""
        urls = [member.url for member in ([first] if first else self.members)]
        return BrokerOptions(urls=tuple(urls), user=user, password=user, **more)

    def part(self, muted: str, *, deaf: Sequence[str] | None = None) -> None:
        """Drop everything from one server to some others (all of them if not given)."""
        for link in self.links:
            if muted in link.names and (deaf is None or set(deaf) & set(link.names)):
                link.hold(muted)

    def join(self, *, broken: bool = False) -> None:
        """End every partition; `broken` as in `Link.go_on`."""
        for link in self.links:
            link.go_on(broken=broken)

    @property
    def login(self) -> dict[str, Any]:
        """The environment as arguments of `connect`."""
        names = {"HANSARD_NATS_URL": "nats"}
        return {
            names.get(key, key.removeprefix("HANSARD_").lower()): value
            for key, value in self.environment.items()
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a program finds it, and may ask how durable it is."""
        return {
            "HANSARD_NATS_URL": ",".join(member.url for member in self.members),
            "HANSARD_NATS_USER": "admin",
            "HANSARD_NATS_PASSWORD": "admin",
            "HANSARD_NATS_SYSTEM_USER": "system",
            "HANSARD_NATS_SYSTEM_PASSWORD": "system",
        }

    async def log(
        self,
        workspace: str = "lab",
        *,
        replicas: int | None = SERVERS,
        first: Member | None = None,
        **more: Any,
    ) -> JetStreamLog:
        """Open a log of this cluster, with its streams made as admin."""
        runtime = self.options(first=first, **more)
        admin = self.options("admin", request_timeout_s=ELECTED_S)
        return await open_log(runtime, workspace, "strict", admin=admin, replicas=replicas)

    async def info(self, stream: str, first: Member | None = None) -> dict[str, Any]:
        """Return the servers' information about a stream."""
        broker = await Broker.open(self.options(first=first))
        try:
            return await api(broker, f"STREAM.INFO.{stream}")
        finally:
            await broker.close()

    async def leader(self, stream: str) -> Member:
        """Return the server that leads a stream."""
        return self.member((await self.info(stream))["cluster"]["leader"])

    async def followers(self, stream: str) -> list[Member]:
        """Return the servers that follow it."""
        leader = await self.leader(stream)
        return [member for member in self.members if member is not leader]

    async def elected(self) -> None:
        """Wait until it makes streams."""
        until = time.monotonic() + ELECTED_S
        while True:
            try:
                broker = await Broker.open(self.options("admin", request_timeout_s=1.0))
                try:
                    config = {"name": "probe", "subjects": ["probe"], "num_replicas": SERVERS}
                    await api(broker, "STREAM.CREATE.probe", config)
                    await api(broker, "STREAM.DELETE.probe")
                finally:
                    await broker.close()
            except BusError:
                if time.monotonic() > until:
                    raise
            else:
                return


@contextlib.contextmanager
def running(
    folder: Path, *, syncs: Sequence[str] = ("always", "always", "always"), linked: bool = False
) -> Iterator[Cluster]:
    """Run a cluster until the end of the block; `syncs` is each server's sync interval."""
    cluster = Cluster(folder, syncs, linked=linked)
    try:
        for member in cluster.members:
            member.start()
        yield cluster
    finally:
        for member in cluster.members:
            member.kill()
        for link in cluster.links:
            link.close()
