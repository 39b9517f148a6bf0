"""The HTTP listener of `hansard up`: its limits, its refusals, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from starlette.responses import JSONResponse, Response

from hansard import settings
from hansard.broker.lease import join
from hansard.client.listening import Address, Call
from hansard.client.opening import Broker, find_broker
from hansard.domain.errors import BadValue
from hansard.service.http import app as listener
from hansard.service.http.app import listening
from tests.cli.support import environment
from tests.cli.test_up import a_run, up
from tests.faults._warm import python

pytestmark = pytest.mark.later

ROUTES = {f"/{name}": f"{__name__}:{name}" for name in ("echo", "fails", "slow")}
TOKEN = "a-token-of-enough-characters"

started = asyncio.Semaphore(0)


async def echo(call: Call) -> Response:
    """Answer with the call."""
    return JSONResponse(
        {
            "workspace": call.record.workspace.log.workspace,
            "path": call.path,
            "bytes": len(call.body),
            "query": dict(call.query),
        }
    )


async def fails(call: Call) -> Response:
    """Fail with the error that the body names."""
    if call.body == b"bug":
        raise ZeroDivisionError
    raise BadValue("body", "it is bad", "send another")


async def slow(call: Call) -> Response:
    """Take longer than any test."""
    started.release()
    await asyncio.sleep(60)
    return Response()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[tuple[settings.Settings, Broker]]:
    """Yield a running broker with its settings."""
    with join(tmp_path):
        config = settings.load(workspace="first", data_dir=tmp_path)
        broker = await find_broker(config)
        yield config, broker
        await broker.release()


@contextlib.asynccontextmanager
async def client(
    broker: tuple[settings.Settings, Broker], **options: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of a listener with the routes of this file."""
    headers = {"authorization": f"Bearer {TOKEN}"} if "token" in options else {}
    address = Address("127.0.0.1", 0)
    async with (
        listening(*broker, address, slices=ROUTES, **options) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=30) as http,
    ):
        yield http


async def test_a_route_gets_the_request_and_the_record_of_its_workspace(broker: Any):
    """The default workspace is created; another one must exist."""
    async with client(broker) as http:
        answer = (await http.post("/echo?a=1", content=b"12345")).json()
        assert answer == {"workspace": "first", "path": "/echo", "bytes": 5, "query": {"a": "1"}}
        unknown = await http.post("/workspaces/second/echo")
        assert (unknown.status_code, "hansard up --workspace second" in unknown.text) == (404, True)
        broken = await http.post("/workspaces/UPPER/echo")
        assert (broken.status_code, "use 1 to 40 of a-z" in broken.text) == (400, True)
    config, running = broker
    second = msgspec.structs.replace(config, workspace="second")
    async with client((second, running)) as http:
        assert (await http.post("/echo")).json()["workspace"] == "second"
        answer = await http.post("/workspaces/first/echo")
        assert answer.json()["workspace"] == "first"
    async with client(broker, only=["first"]) as http:
        assert (await http.post("/workspaces/second/echo")).status_code == 404


async def test_requests_that_cannot_be_answered_get_the_reason(broker: Any):
    """Unknown paths, wrong methods, foreign hosts and pages, errors of a caller and our own."""
    async with client(broker) as http:
        unknown = await http.post("/other")
        assert unknown.headers["content-type"] == "application/problem+json"
        assert unknown.json() == {
            "type": "urn:hansard:problem:not-found",
            "title": "Not Found",
            "status": 404,
            "detail": "there is nothing at '/other': see /api/v1/openapi.json for the paths",
            "fact": "there is nothing at '/other'",
            "value": "",
            "remedy": "see /api/v1/openapi.json for the paths",
        }
        wrong = await http.get("/echo")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert (await http.post("/echo", headers={"host": "evil.example"})).status_code == 421
        page = {"origin": "https://evil.example"}
        assert (await http.post("/echo", headers=page)).status_code == 403
        caller = await http.post("/fails", content=b"value")
        assert (caller.status_code, "send another" in caller.text) == (400, True)
        bug = await http.post("/fails", content=b"bug")
        assert (bug.status_code, "ZeroDivision" in bug.text) == (500, False)


async def test_a_listener_with_a_token_demands_it(broker: Any):
    """Without the token a request is refused before its body is read."""
    async with client(broker, token=TOKEN) as http:
        assert (await http.post("/echo")).status_code == 200
        for wrong in ("", "Bearer", "Bearer other", f"Basic {TOKEN}"):
            answer = await http.post("/echo", headers={"authorization": wrong})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_bodies_and_times_are_limited(broker: Any, monkeypatch: pytest.MonkeyPatch):
    """Too large a body, stated or not, is 413; a handler that takes too long is 503."""
    monkeypatch.setattr(listener, "BODY_BYTES_MAX", 1_000)
    monkeypatch.setattr(listener, "WAIT_S", 0.05)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 500

    async with client(broker) as http:
        assert (await http.post("/echo", content=b"x" * 1_000)).json()["bytes"] == 1_000
        for body in (b"x" * 1_001, chunks()):
            answer = await http.post("/echo", content=body)
            assert (answer.status_code, "1,000 bytes" in answer.text) == (413, True)
        monkeypatch.setattr(listener, "HANDLE_S", 0.05)
        late = await http.post("/slow")
        assert (late.status_code, late.headers["retry-after"]) == (503, "1")
        monkeypatch.setattr(listener, "HANDLE_S", 10)
        await started.acquire()  # the one above
        many = [asyncio.create_task(http.post("/slow")) for _ in range(listener.HANDLED_MAX)]
        for _ in many:
            await started.acquire()
        full = await http.post("/echo")
        assert (full.status_code, "under way" in full.text) == (503, True)
        for each in many:
            each.cancel()


async def test_other_machines_need_encryption(broker: tuple[settings.Settings, Broker]):
    """An address of other machines without TLS, and a short token, are refused in words."""
    config, running = broker
    for token, words in ((TOKEN, "nothing is encrypted"), ("short", "16 or more")):
        with pytest.raises(BadValue, match=words):
            async with listening(config, running, Address("0.0.0.0", 0), token=token):  # noqa: S104 -- it is refused
                pass
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BadValue, match="listened"):
        async with listening(config, running, Address("127.0.0.1", taken.getsockname()[1])):
            pass


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("options", [(), ("--workspace", "lab")])
def test_up_listens_and_stops_with_its_listener(tmp_path: Path, options: tuple[str, ...]):
    """The first line has the address; a signal ends both with code 0."""
    home = tmp_path / "data"
    more = ("--json", "--http", "127.0.0.1:0", *options)
    with up(home, *more, program=python(), HANSARD_DURABILITY="relaxed") as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["http"]
        answer = httpx2.post(f"{url}/nothing")
        assert (answer.status_code, "there is nothing at" in answer.text) == (404, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        with pytest.raises(httpx2.ConnectError):
            httpx2.post(f"{url}/nothing")


@pytest.mark.slow
def test_up_refuses_to_listen_for_others_without_encryption(tmp_path: Path):
    """The refusal names the remedy; options without --http are refused, too."""
    for options, words in (
        (("--http", "0.0.0.0:0"), "add --tls-cert and --tls-key"),
        (("--http", "0", "--tls-cert", "x", "--tls-key", "y"), "No such file"),
        (("--token-file", "x"), "there is no --http"),
        (("--http", "nowhere"), "[HOST:]PORT"),
    ):
        with up(tmp_path, *options, program=python()) as process:
            _, errors = process.communicate(timeout=60)
        assert (process.returncode, words in " ".join(errors.split())) == (2, True), errors


@pytest.mark.slow
def test_up_serves_several_workspaces_and_a_broken_one_stops_none(tmp_path: Path):
    """Those of `-w` are served, and created; the log of one was lost on the broker's disk."""
    home = tmp_path / "data"
    with join(home):
        for name in ("broken", "other", "sound"):
            a_run(home, name)
    shutil.rmtree(home / "nats/jetstream/HANSARD/streams/hansard_log-broken")
    named = [word for name in ("broken", "new", "sound") for word in ("-w", name)]
    token = tmp_path / "token"
    more = (*named, "--json", "--http", "127.0.0.1:0", "--token-file", str(token))
    with up(home, *more, program=python(), HANSARD_DURABILITY="relaxed") as process:
        assert process.stdout is not None
        lines = (json.loads(line) for line in process.stdout)
        begun = next(line for line in lines if line["kind"] == "up")
        headers = {"authorization": f"Bearer {token.read_text().strip()}"}
        with httpx2.Client(base_url=begun["http"], headers=headers, timeout=30) as http:
            answers = {
                name: http.get(f"/api/v1/{name}/me").status_code
                for name in ("broken", "new", "other", "sound")
            }
            assert answers == {"broken": 503, "new": 200, "other": 404, "sound": 200}
            runs = http.get("/api/v1/sound/runs").json()["runs"]
            assert [each["workflow"] for each in runs] == ["w"]
        assert {each["workspace"] for each in begun["workspaces"]} == {"new", "sound"}


@pytest.mark.slow
def test_several_workspaces(tmp_path: Path):
    """Other commands take the last one, as of any option; `up` refuses them beside `--all`."""
    for command, words in (
        (["runs", "--data-dir", "nowhere"], "data directory"),
        (["up", "--all"], "--workspace names some"),
    ):
        process = subprocess.run(
            [python(), "-m", "hansard", *command, "-w", "one", "-w", "two"],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (process.returncode, words in " ".join(process.stderr.split())) == (2, True)
