"""compose.yaml cannot be started without a container engine; all that it rests on can."""

import asyncio
import copy
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
import yaml
from nats.js.api import Placement
from nats.js.errors import APIError

from hansard import AsyncRecord, connect, connect_async
from hansard import settings as configuration
from hansard.bus.errors import BusError
from hansard.client.opening import find_broker
from hansard.service.http.logins import listeners
from hansard.service.rolling import tend
from tests.faults._warm import python

ROOT = Path(__file__).parents[1]
START_S_MAX = 60
PASSWORDS = tuple(f"HANSARD_{user}_PASSWORD" for user in ("RUNTIME", "SERVICE", "SYSTEM"))
SECRET = dict.fromkeys(PASSWORDS, "secret")


class Broker(msgspec.Struct):
    """A running nats-server with deploy/nats.conf."""

    port: int
    http_port: int
    passwords: dict[str, str]

    def url(self, user: str) -> str:
        """Return the address with which `user` logs in."""
        password = self.passwords[f"HANSARD_{user.upper()}_PASSWORD"]
        return f"nats://{user}:{password}@127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """compose.yaml as a container engine would read it."""
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return parsed


@pytest.fixture(scope="module")
def compose_cluster(compose) -> dict[str, Any]:
    """compose.cluster.yaml over compose.yaml, merged as a container engine does."""
    text = (ROOT / "compose.cluster.yaml").read_text(encoding="utf-8")
    over: dict[str, Any] = yaml.safe_load(text)
    merged: dict[str, Any] = copy.deepcopy(compose)
    for name, service in over["services"].items():
        base = merged["services"].setdefault(name, {})
        environment = base.get("environment", {}) | service.get("environment", {})
        volumes = {each.split(":")[1]: each for each in base.get("volumes", [])}
        volumes |= {each.split(":")[1]: each for each in service.get("volumes", [])}
        base |= service | {"environment": environment, "volumes": [*volumes.values()]}
    merged["volumes"] |= over["volumes"]
    return merged


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _healthz(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
        status: dict[str, Any] = json.load(answer)
        return status


def _wait_until_healthy(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S_MAX
    while time.monotonic() < end:
        assert server.poll() is None, f"nats-server stopped:\n{log.read_text()}"
        try:
            _healthz(port)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"nats-server was not healthy within {START_S_MAX} s:\n{log.read_text()}")


@pytest.fixture(scope="module")
def broker(compose, tmp_path_factory) -> Iterator[Broker]:
    """Yield the `nats` service by hand: its command and environment, but free ports and a new
    store.
    """
    folder = tmp_path_factory.mktemp("nats")
    ports = {"HANSARD_NATS_PORT": _free_port(), "HANSARD_NATS_HTTP_PORT": _free_port()}
    # Digits only: the hardest case for nats.conf, which would read it as a number.
    passwords = {name: str(secrets.randbelow(10**12) + 10**12) for name in PASSWORDS}
    declared = compose["services"]["nats"]["environment"]
    env = {name: _expand(str(value), passwords) for name, value in declared.items()}
    env |= {name: str(port) for name, port in ports.items()}
    env |= {"HANSARD_NATS_STORE": str(folder / "store")}
    log = folder / "server.log"
    program = Path(sys.executable).parent / "nats-server"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [program, "--config", ROOT / "deploy" / "nats.conf", "--addr", "127.0.0.1"],
            env=env,
            stdout=output,
            stderr=output,
        )
    try:
        _wait_until_healthy(ports["HANSARD_NATS_HTTP_PORT"], server, log)
        yield Broker(ports["HANSARD_NATS_PORT"], ports["HANSARD_NATS_HTTP_PORT"], passwords)
    finally:
        server.terminate()
        server.wait(START_S_MAX)


def _expand(value: str, variables: dict[str, str]) -> str:
    """Expand `${NAME:?message}` and `${NAME:-default}` as compose does."""

    def text(found: re.Match[str]) -> str:
        return variables[found[1]] if found[2] is None else variables.get(found[1], found[2])

    return re.sub(r"\$\{(\w+)(?::\?[^}]*|:-([^}]*))?\}", text, value)


@pytest.mark.parametrize("which", ["compose", "compose_cluster"])
def test_every_service_can_start_and_comes_back(request, which):
    """A service has an image or a Dockerfile that exists, and is restarted after a crash."""
    services = request.getfixturevalue(which)["services"]
    brokers = {"nats"} if which == "compose" else {"nats", "nats-2", "nats-3"}
    assert set(services) == brokers | {"worker"}
    assert len({services[name]["image"] for name in brokers}) == 1
    for name, service in services.items():
        assert ("image" in service) != ("build" in service), name
        if "build" in service:
            assert (ROOT / service["build"] / "Dockerfile").is_file()
        assert service["restart"] == "unless-stopped", name


@pytest.mark.parametrize("which", ["compose", "compose_cluster"])
def test_every_volume_is_declared_or_a_file_of_the_repository(request, which):
    """No service loses its data with its container, and no mounted file is missing."""
    compose = request.getfixturevalue(which)
    stores: list[str] = []
    for name, service in compose["services"].items():
        assert service["volumes"], name
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (ROOT / source).is_file(), volume
            stores += [source] * (source in compose["volumes"])
    assert sorted(stores) == sorted(compose["volumes"])


def test_the_store_of_the_broker_is_its_volume(compose):
    """JetStream writes into the named volume."""
    nats_service = compose["services"]["nats"]
    targets = [volume.split(":")[1] for volume in nats_service["volumes"]]
    assert nats_service["environment"]["HANSARD_NATS_STORE"] in targets


def test_the_worker_waits_for_a_healthy_broker_at_its_address(compose):
    """The worker starts after the health check passed, and receives the broker's own port."""
    nats_service, worker = compose["services"]["nats"], compose["services"]["worker"]
    assert worker["command"][:3] == ["up", "--http", "0.0.0.0:8420"]
    assert worker["ports"] == ["127.0.0.1:8420:8420"]
    assert worker["depends_on"] == {"nats": {"condition": "service_healthy"}}
    http_port = nats_service["environment"]["HANSARD_NATS_HTTP_PORT"]
    assert nats_service["healthcheck"]["test"][-1] == f"http://127.0.0.1:{http_port}/healthz"
    port = nats_service["environment"]["HANSARD_NATS_PORT"]
    assert worker["environment"]["HANSARD_NATS_URL"].endswith(f"@nats:{port}")


def test_no_password_is_written_down(compose):
    """Passwords come from the environment, and a missing one stops `docker compose up`."""
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    for name in PASSWORDS:
        assert f"${{{name}:?" in text
        assert compose["services"]["nats"]["environment"][name].startswith('"${')


def test_the_configuration_asks_for_nothing_that_compose_does_not_give(compose):
    """Every variable of deploy/nats.conf is set by the service."""
    lines = (ROOT / "deploy" / "nats.conf").read_text(encoding="utf-8").splitlines()
    used = {name for line in lines for name in re.findall(r"[:] \$([A-Z_]+)", line.split("#")[0])}
    assert used == set(compose["services"]["nats"]["environment"])


def test_every_copied_file_of_the_dockerfile_exists_and_reaches_the_build():
    """COPY finds its sources, and .dockerignore lets them through."""
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )
    sources = [source for line in copied for source in line.split()]
    let_through = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source.split('/')[0]}" in let_through, source


def test_the_broker_is_healthy(broker):
    """The healthcheck's address answers ok on the shipped configuration."""
    end = time.monotonic() + START_S_MAX
    status: dict[str, Any] = {}
    while not status and time.monotonic() < end:
        try:
            status = _healthz(broker.http_port)
        except urllib.error.HTTPError:
            time.sleep(0.05)
    assert status == {"status": "ok"}


def test_an_acknowledged_commit_is_on_disk(broker):
    """The server's own status says that it syncs always."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/jsz", timeout=2) as answer:
        assert json.load(answer)["config"]["sync_always"] is True


async def test_the_service_user_rolls_a_log(compose, broker, tmp_path):
    """The worker runs as it; the runtime user goes on in the next generation."""
    assert "//service:" in compose["services"]["worker"]["environment"]["HANSARD_NATS_URL"]
    runtime = broker.url("runtime")
    async with connect_async("rolls", nats=runtime, data_dir=tmp_path / "a") as record:
        async with record.run("one", agent="a", role="r") as session:
            await session.message("user", "before")
        settings = configuration.Settings(
            workspace="rolls", nats_url=broker.url("service"), data_dir=tmp_path / "b"
        )
        server = await find_broker(settings)
        rolled = await tend(settings, server, None)
        await server.release()
        assert rolled.roll.generation == 1
        async with record.run("two", agent="a", role="r") as session:
            await session.message("user", "after")
        assert len(await record.runs(status="completed")) == 2


async def test_the_runtime_user_appends_but_removes_no_stream(broker):
    """The user that Hansard runs as makes streams, but may not update or delete one."""
    refused: list[str] = []

    async def on_error(error: Exception) -> None:
        refused.append(str(error).lower())

    runtime = await nats.connect(broker.url("runtime"), error_cb=on_error)
    try:
        await runtime.jetstream().add_stream(name="PROBE", subjects=["probe.>"])
        acked = await runtime.jetstream().publish("probe.1", b"{}")
        assert acked.seq == 1
        with pytest.raises((APIError, TimeoutError, nats.errors.Error)):
            await runtime.jetstream(timeout=0.3).delete_stream("PROBE")
        await asyncio.sleep(0)
        assert any("permissions violation" in error for error in refused)
        assert (await runtime.jetstream().stream_info("PROBE")).state.messages == 1
    finally:
        await runtime.close()


def test_the_worker_knows_that_an_acknowledged_commit_is_on_disk(broker, compose, tmp_path):
    """With the environment that compose gives it, durability is strict, not unknown."""
    declared = compose["services"]["worker"]["environment"]
    settings = {name: _expand(str(value), broker.passwords) for name, value in declared.items()}
    settings["HANSARD_NATS_URL"] = broker.url("service")
    settings["HANSARD_DATA_DIR"] = str(tmp_path)
    loaded = configuration.load(settings)
    with connect(
        loaded.workspace,
        nats=loaded.nats_url,
        data_dir=tmp_path,
        nats_system_user=loaded.nats_system_user,
        nats_system_password=loaded.nats_system_password,
    ) as record:
        assert record.workspace.log.durability == "strict"


@pytest.mark.slow
def test_the_worker_is_healthy_while_it_watches(broker, compose, tmp_path):
    """The worker's health check passes while it runs, even without a workspace, and fails
    afterwards.
    """
    worker = compose["services"]["worker"]
    program, *arguments = worker["healthcheck"]["test"][1:]
    assert program == "hansard"
    env = {**os.environ, "HANSARD_NATS_URL": broker.url("service")}
    env["HANSARD_DATA_DIR"] = str(tmp_path)

    def healthy() -> int:
        command = [python(), "-m", program, *arguments]
        return subprocess.run(command, env=env, capture_output=True, check=False).returncode

    assert healthy() == 1
    port = _free_port()
    words = [
        each.replace("/data", str(tmp_path)).replace(":8420", f":{port}")
        for each in worker["command"]
    ]
    process = subprocess.Popen(
        [python(), "-m", program, *words],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + START_S_MAX
        while healthy():
            assert time.monotonic() < until
        with urllib.request.urlopen(f"http://localhost:{port}/readyz", timeout=5) as answer:
            assert json.load(answer)["status"] == "ready"
        assert [each.url for each in listeners(tmp_path)] == [f"http://localhost:{port}"]
    finally:
        process.terminate()
        process.wait(START_S_MAX)
    assert healthy() == 1


def _cluster_server(
    service: dict[str, Any], folder: Path, name: str, routes: dict[str, int]
) -> tuple[list[str | Path], dict[str, str]]:
    """Return the command of a server of the cluster by hand, on loopback, and its environment."""
    folder.mkdir()
    text = (ROOT / "deploy" / "cluster.conf").read_text(encoding="utf-8")
    text = text.replace("0.0.0.0:6222", f"127.0.0.1:{routes[name]}")
    for other, at in routes.items():
        text = text.replace(f"nats://{other}:6222", f"nats://127.0.0.1:{at}")
    (folder / "cluster.conf").write_text(text)
    (folder / "nats.conf").write_text((ROOT / "deploy" / "nats.conf").read_text())
    env = {key: _expand(str(value), SECRET) for key, value in service["environment"].items()}
    env["HANSARD_NATS_HTTP_PORT"] = str(_free_port())
    env["HANSARD_NATS_STORE"] = str(folder / "store")
    option, config = service["command"]
    program = Path(sys.executable).parent / "nats-server"
    return [program, option, folder / Path(config).name, "--addr", "127.0.0.1"], env


def test_the_configuration_of_each_server_of_a_cluster_is_valid(compose_cluster, tmp_path):
    """The server itself reads it, with the environment that compose.cluster.yaml gives it."""
    services = compose_cluster["services"]
    routes = {name: _free_port() for name in services if name != "worker"}
    for name in routes:
        command, env = _cluster_server(services[name], tmp_path / name, name, routes)
        tested = subprocess.run([*command, "-t"], env=env, capture_output=True, check=False)
        assert tested.returncode == 0, tested.stderr


@pytest.mark.thorough(quick="test_the_configuration_of_each_server_of_a_cluster_is_valid")
async def test_a_cluster_stores_each_commit_three_times(compose_cluster, tmp_path):
    """Started by hand with the files of compose.cluster.yaml; one server may be killed.

    Replicas are in different zones, and an acknowledged commit is on disks: the worker knows it.
    """
    services = compose_cluster["services"]
    routes = {name: _free_port() for name in services if name != "worker"}
    servers: dict[str, subprocess.Popen[bytes]] = {}
    ports = {name: _free_port() for name in routes}
    try:
        for name in routes:
            command, env = _cluster_server(services[name], tmp_path / name, name, routes)
            env["HANSARD_NATS_PORT"] = str(ports[name])
            servers[name] = subprocess.Popen(  # noqa: ASYNC220 -- before anything waits
                command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        declared = services["worker"]["environment"]
        url = _expand(declared["HANSARD_NATS_URL"], SECRET)
        for name, port in ports.items():
            assert url.count(f"@{name}:4222") == 1
            url = url.replace(f"@{name}:4222", f"@127.0.0.1:{port}")
        options: dict[str, Any] = {"nats": url, "data_dir": tmp_path, "nats_replicas": 3}
        options |= {"nats_system_user": "system", "nats_system_password": "secret"}
        assert declared["HANSARD_NATS_REPLICAS"] == "3"
        async with asyncio.timeout(START_S_MAX):
            await (
                await _connected(options)
            ).close()  # the first may begin before a leader is elected
        async with await connect_async("lab", **options) as record:
            assert record.workspace.log.durability == "strict"
            await _refuses_one_zone(url.split(",")[0])
            async with record.run("w", agent="a", role="r") as session:
                await session.message("user", "before")
                servers["nats-3"].kill()
                await session.message("user", "after")
            assert len(await record.runs(status="completed")) == 1
    finally:
        for server in servers.values():
            server.kill()
            server.wait()


async def _refuses_one_zone(url: str) -> None:
    """Check that two replicas of a stream are never in the same zone."""
    client = await nats.connect(url)
    try:
        place = Placement(tags=["zone:b"])
        one = await client.jetstream().add_stream(name="ONE", subjects=["one"], placement=place)
        assert one.cluster is not None
        assert one.cluster.leader == "nats-2"
        with pytest.raises(APIError, match="no suitable peers"):
            await client.jetstream().add_stream(
                name="TWO", subjects=["two"], num_replicas=2, placement=place
            )
    finally:
        await client.close()


async def _connected(options: dict[str, Any]) -> AsyncRecord:
    """Connect, once the servers have elected a leader."""
    while True:
        try:
            return await connect_async("lab", **options)
        except BusError:
            await asyncio.sleep(0.2)


async def test_the_system_user_reads_the_settings(broker):
    """Durability is read from the server, not guessed."""
    system = await nats.connect(broker.url("system"))
    try:
        answer = await system.request("$SYS.REQ.SERVER.PING.JSZ", b"{}", timeout=2)
        assert json.loads(answer.data)["data"]["config"]["sync_always"] is True
    finally:
        await system.close()


def test_nobody_gets_in_without_a_password(broker):
    """There is no default account; a connection without a password is refused."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=2) as stranger:
        stranger.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        received = b""
        while part := stranger.recv(4096):  # the server closes the connection
            received += part
    assert b"Authorization Violation" in received
    assert b"PONG" not in received


@pytest.mark.skipif(os.name != "posix", reason="the mode of a file is a POSIX notion")
def test_the_ci_script_can_be_started():
    """CI calls .ci/run itself, not `bash .ci/run`."""
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
