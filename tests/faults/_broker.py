"""A nats-server of these tests: killed, and started again on the same store and port."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Protocol

from hansard.broker.lease import find_binary

READY_S = 60.0
"""Longest start of a server, in seconds: a killed one rebuilds what it had not closed."""

STOP_S = 60.0
"""Longest orderly stop of a server, in seconds."""

SYNC = {"strict": "always", "relaxed": "10ms"}
"""Interval of the server's disk syncs, by durability."""


class Reachable(Protocol):
    """A server, for who wants to know how to reach it."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a process finds it."""
        ...

    @property
    def login(self) -> dict[str, Any]:
        """The same as arguments of `connect`."""
        ...


class NatsServer:
    """One server, its folder and its port. Not started by being made."""

    def __init__(self, folder: Path, durability: str) -> None:
        self.durability = durability
        self.port = _free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "server.json"
        self._config.write_text(json.dumps(self._settings()))

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a process finds this server and may ask how durable it is."""
        return {
            "HANSARD_NATS_URL": f"nats://127.0.0.1:{self.port}",
            "HANSARD_NATS_USER": "agents",
            "HANSARD_NATS_PASSWORD": "one",
            "HANSARD_NATS_SYSTEM_USER": "system",
            "HANSARD_NATS_SYSTEM_PASSWORD": "two",
        }

    @property
    def login(self) -> dict[str, Any]:
        """The same as arguments of `connect`, which needs them by other names."""
        names = {"HANSARD_NATS_URL": "nats"}
        return {
            names.get(key, key.removeprefix("HANSARD_").lower()): value
            for key, value in self.environment.items()
        }

    def start(self) -> None:
        """Start it and wait until it takes clients."""
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [find_binary(), "-c", str(self._config)], stdin=subprocess.DEVNULL, stderr=log
            )
        deadline = time.monotonic() + READY_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                message = f"no server: {(self._folder / 'server.log').read_text()[-2_000:]}"
                raise RuntimeError(message)
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL: it can close nothing and write nothing more."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it in order; nothing if it does not run."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(STOP_S)

    def _answers(self) -> bool:
        try:
            with (
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection,
                connection.makefile("rb") as reader,
            ):
                return b'"jetstream":true' in reader.readline()
        except OSError:
            return False

    def _settings(self) -> dict[str, object]:
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "server_name": "faults",
            "jetstream": {
                "store_dir": str(self._folder / "store"),
                "sync_interval": SYNC[self.durability],
            },
            "accounts": {
                "AGENTS": {
                    "jetstream": "enabled",
                    "users": [{"user": "agents", "password": "one"}],
                },
                "SYSTEM": {"users": [{"user": "system", "password": "two"}]},
            },
            "system_account": "SYSTEM",
        }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
