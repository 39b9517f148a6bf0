"""An outside broker: TLS, an nkey, a wrong login, and a durability that is read, never guessed."""

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nkeys
import pytest
import trustme

import hansard
from hansard.broker.lease import find_binary
from hansard.client import opening

START_S = 60.0
SEED = b"SUAM2DO3RN6LIHJFVEUTDAKGHFNSWEVMCGBYSYDL6JPNOVDKTL7YTXSJPI"


class Outside:
    """An outside server: TLS only, one nkey user, a system account."""

    def __init__(self, folder: Path, sync: str) -> None:
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(self.ca)
        issued = authority.issue_cert("127.0.0.1", "localhost")
        (folder / "key.pem").write_bytes(issued.private_key_pem.bytes())
        (folder / "cert.pem").write_bytes(b"".join(p.bytes() for p in issued.cert_chain_pems))
        self.seed = folder / "user.nk"
        self.seed.write_bytes(nkeys.from_seed(bytearray(SEED)).seed)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        public = nkeys.from_seed(bytearray(SEED)).public_key.decode()
        config = folder / "nats.conf"
        config.write_text(
            f"""
host: 127.0.0.1
port: {self.port}
jetstream {{ store_dir: "{folder}/store", sync_interval: {sync} }}
tls {{ cert_file: "{folder}/cert.pem", key_file: "{folder}/key.pem", timeout: 60 }}
accounts {{
  A {{ jetstream: enabled, users: [ {{ nkey: {public} }} ] }}
  SYS {{ users: [ {{ user: sys, password: s3cret-system }} ] }}
}}
system_account: SYS
"""
        )
        self.process = subprocess.Popen([find_binary(), "-c", config, "-l", folder / "log"])
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError((folder / "log").read_text())

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"tls://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()


@pytest.fixture(params=["always", "10ms", "2m"])
def outside(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Outside]:
    """Yield an outside server of each durability."""
    server = Outside(tmp_path, request.param)
    yield server
    server.stop()


DURABILITY_OF = {"always": "strict", "10ms": "relaxed", "2m": "unknown"}


def test_a_server_over_tls_with_an_nkey(outside, request):
    """It records and resumes; the system account states its durability, else it is unknown."""
    sync = request.node.callspec.params["outside"]
    login: dict[str, Any] = {"nats_ca": str(outside.ca), "nats_nkey": str(outside.seed)}
    with hansard.connect(workspace="lab", nats=outside.url, **login) as record:
        assert record.workspace.log.durability == "unknown"
        with record.run("w", agent="a", role="r") as session:

            @session.tool(effects="pure")
            def double(x: int) -> int:
                return 2 * x

            assert double(21) == 42
    system: dict[str, Any] = {"nats_system_user": "sys", "nats_system_password": "s3cret-system"}
    with hansard.connect(workspace="lab", nats=outside.url, **login, **system) as record:
        assert record.workspace.log.durability == DURABILITY_OF[sync]
        assert record.state(session.run).life.status == "completed"


@pytest.mark.fast(cases=1, slow=0)
def test_a_server_whose_certificate_is_not_trusted_is_refused(outside):
    """Without its authority's certificate nothing is sent; the error names the server."""
    with pytest.raises(hansard.errors.BusError, match=r"127\.0\.0\.1") as caught:
        hansard.connect(workspace="lab", nats=outside.url, nats_nkey=str(outside.seed))
    assert ssl.SSLError.__name__ in repr(caught.value) or "certificate" in str(caught.value)


@pytest.mark.fast(cases=1, slow=0)
def test_a_refused_login_is_reported_at_once(outside):
    """A wrong password is the caller's to mend: no retry, no long wait."""
    begin = time.monotonic()
    with pytest.raises(hansard.errors.BusError, match=r"(?i)auth"):
        hansard.connect(
            workspace="lab",
            nats=outside.url,
            nats_ca=str(outside.ca),
            nats_user="who",
            nats_password="wrong-password",
        )
    assert time.monotonic() - begin < 5


@pytest.mark.slow
def test_an_unreachable_server_is_reported_with_the_url(monkeypatch):
    """The error names the address and the remedy, after a bounded wait."""
    monkeypatch.setattr(opening, "OUTSIDE_CONNECT_TIMEOUT_S", 0.5)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(hansard.Unreachable, match=rf"{port}.*HANSARD_NATS_URL"):
        hansard.connect(workspace="lab", nats=f"nats://127.0.0.1:{port}")
