"""An outside broker: the printed line is all that its configuration needs."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard import settings as configuration
from hansard.agents.access.principals import Authenticator
from hansard.broker import access
from hansard.broker.lease import find_binary
from hansard.bus.errors import BrokerError
from hansard.bus.jetstream.client import Broker
from hansard.client.credentials import CredentialsRequest, make
from hansard.domain.roles import check as role_file
from tests.access.support import ROLES, Lab, called, eventually, let_in

CONFIG = Path(__file__).parents[2] / "deploy" / "nats.conf"
START_S_MAX = 60.0


class Theirs:
    """The broker of compose.yaml, with a configuration that can be edited."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "nats.conf"
        self.config.write_text(CONFIG.read_text())
        with socket.socket() as probe, socket.socket() as other:
            probe.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
            ports = {"PORT": self.port, "HTTP_PORT": other.getsockname()[1]}
        env = {f"HANSARD_NATS_{name}": str(port) for name, port in ports.items()}
        env |= {"HANSARD_NATS_STORE": str(folder / "store")}
        env |= {
            f"HANSARD_{who}_PASSWORD": '"pass-word"' for who in ("RUNTIME", "SERVICE", "SYSTEM")
        }
        command: list[str | Path] = [find_binary(), "-c", self.config, "-a", "127.0.0.1"]
        command += ["-l", folder / "log"]
        self.process = subprocess.Popen(command, env=os.environ | env)
        self.wait()

    def wait(self) -> None:
        """Wait until the server listens."""
        until = time.monotonic() + START_S_MAX
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.02)
        pytest.fail("the server did not start")

    def add(self, entry: str) -> None:
        """Put a line into the users of the account, and have the server reload."""
        self.config.write_text(self.config.read_text().replace("users: [", f"users: [\n{entry}", 1))
        self.process.send_signal(signal.SIGHUP)

    @property
    def url(self) -> str:
        """With the runtime's login."""
        return f"nats://runtime:pass-word@127.0.0.1:{self.port}"


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Theirs]:
    """Start the outside server."""
    made = Theirs(tmp_path)
    yield made
    made.process.terminate()
    made.process.wait()


async def test_the_printed_line_lets_the_holder_in(theirs: Theirs, tmp_path: Path):
    """No login is admitted before; the file has no other login's password."""
    async with hansard.connect_async("lab", nats=theirs.url) as record:
        for name, rules in role_file.parse(ROLES).items():
            await record.roles.apply(name, rules)
        unused, place = tmp_path / "unused", tmp_path / "ada.json"
        settings = configuration.load(workspace="lab", nats_url=theirs.url, data_dir=unused)
        made = await make(
            settings, CredentialsRequest(role="writer", name="ada {x} # y", output=place)
        )
        credentials = access.load(place)
        assert "pass-word" not in place.read_text()
        assert credentials.url == f"nats://127.0.0.1:{theirs.port}"
        assert not let_in(credentials)
        assert made.broker_entry is not None
        theirs.add(made.broker_entry)
        await eventually(lambda: let_in(credentials), START_S_MAX)
        async with await Authenticator.open(record.workspace) as keeper:
            assert keeper.check(credentials.token, "ada {x} # y", "writer").token_id == made.token
        global_options = ("--workspace", "lab", "--nats", theirs.url, "--data-dir", unused)
        assert called(*global_options, "principals", "revoke", made.token)[0]["revoked"]
        assert not unused.exists()


async def test_our_own_client_logs_in_with_the_file(lab: Lab):
    """`Credentials.options` suffices; an operation outside the permissions is an error at once."""
    broker = await Broker.open(lab.ada.options())
    try:
        with pytest.raises(BrokerError, match="permissions violation"):
            await broker.request("$JS.API.INFO")
        assert lab.ada.token not in repr(broker.options)
        assert lab.ada.nkey_seed not in repr(broker.options)
    finally:
        await broker.close()
