"""Sessions of agents over HTTP: answers that are lost or late, refusals, and kills of the service.

That a program leaves the same record over HTTP and NATS: `tests/service/test_parity.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

import hansard
from hansard import settings
from hansard.broker import access
from hansard.broker.access import Credentials
from hansard.broker.lease import join
from hansard.bus.errors import TooLarge, Unreachable
from hansard.client.credentials import CredentialsRequest, make
from hansard.client.restricted.http import HttpRequests
from hansard.client.restricted.link import Link
from hansard.domain.errors import BadValue
from hansard.domain.roles import check
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import AccessRefused, ServiceGone
from hansard.service.http import sessions
from hansard.service.running import served
from tests.cli.test_up import up
from tests.faults._warm import python
from tests.http.conftest import OPERATOR, Lab
from tests.service.support import ALL

pytestmark = pytest.mark.slow

CUTS = 12
NOTICED_S = 20.0


async def credentials_of(record: hansard.AsyncRecord, folder: Path, place: Path, url: str) -> Path:
    """Return a file of credentials for an address, in a role that may do everything."""
    name = record.workspace.log.workspace
    for role, rules in check.parse(ALL).items():
        await record.roles.apply(role, rules)
    config = settings.load(workspace=name, data_dir=folder)
    file = place / f"{uuid4().hex}.json"
    await make(config, CredentialsRequest(role="writer", name="ada", output=file, http=url))
    return file


@contextlib.asynccontextmanager
async def breaking(port: int, chance: random.Random) -> AsyncIterator[tuple[str, list[str]]]:
    """Yield the address of a forwarder that breaks connections, and a list of the breaks.

    It breaks one instead of forwarding an answer, at most `CUTS` times, and never the first two.
    """
    cuts: list[str] = []
    answers = 0

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answers
        to, into = await asyncio.open_connection("127.0.0.1", port)

        async def requests() -> None:
            while data := await reader.read(1 << 16):
                into.write(data)

        sending = asyncio.create_task(requests())
        with contextlib.suppress(OSError):
            while data := await to.read(1 << 16):
                answers += 1
                if answers > 2 and len(cuts) < CUTS and chance.random() < 0.4:
                    cuts.append(data[:20].decode(errors="replace"))
                    break
                writer.write(data)
        sending.cancel()
        into.close()
        writer.close()

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", cuts


async def test_lost_answers_are_requested_again(lab: Lab, tmp_path: Path):
    """Whatever connection breaks, each operation is done once, and gets its own result."""
    effects: list[int] = []

    @hansard.tool(effects="once")
    async def send(number: int) -> int:
        effects.append(number)
        return number

    assert lab.http.base_url.port is not None
    async with (
        served(lab.config, lab.broker, lambda _: None),
        breaking(lab.http.base_url.port, random.Random(random.randrange(1 << 32))) as (url, cuts),
    ):
        file = await credentials_of(lab.record, lab.folder, tmp_path, url)
        async with hansard.connect_async(credentials=file) as record, record.run("w") as session:
            for number in range(12):
                assert await send(number) == number
                await session.board.add("n", 1)
            state = await lab.record.state(session.run)
    assert effects == list(range(12))
    assert state.boards["n"].plain == 12
    assert len(cuts) == CUTS


async def test_an_answer_may_take_longer_than_a_request(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A wait of a session outlasts that of each request; a principal's places stay free."""
    monkeypatch.setattr(wire, "WAIT_S", 0.1)
    async with served(lab.config, lab.broker, lambda _: None):
        file = await credentials_of(lab.record, lab.folder, tmp_path, f"{lab.http.base_url}")
        async with hansard.connect_async(credentials=file) as record, record.run("w") as session:
            waits = [
                asyncio.create_task(session.wait_for(key=f"k{each}", timeout_s=30))
                for each in range(12)
            ]
            await asyncio.sleep(0.5)
            assert not any(each.done() for each in waits)
            for each in range(12):
                await session.board.put(f"k{each}", each)
            await asyncio.gather(*waits)


async def test_requests_beyond_the_limit_are_sent_again(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A request that was refused as one too many had no effect, and is done once later."""
    monkeypatch.setattr(sessions, "EXCHANGES_MAX", 2)
    effects: list[int] = []

    @hansard.tool(effects="once")
    async def send(number: int) -> int:
        effects.append(number)
        return number

    async with served(lab.config, lab.broker, lambda _: None):
        file = await credentials_of(lab.record, lab.folder, tmp_path, f"{lab.http.base_url}")
        async with hansard.connect_async(credentials=file) as record, record.run("w") as session:
            assert await session.gather(*map(send, range(8))) == [*range(8)]
    assert sorted(effects) == [*range(8)]


async def test_what_is_refused(lab: Lab, tmp_path: Path):
    """Callers without a principal's token, requests without a key, and unknown ones."""
    path = lab.at("/session/open")
    file = await credentials_of(lab.record, lab.folder, tmp_path, f"{lab.http.base_url}")
    ada = access.load(file)
    key = {"idempotency-key": "k"}
    for headers, status in (
        (OPERATOR | key, 403),
        ({"authorization": "Bearer other"} | key, 401),
        ({"authorization": f"Bearer {ada.token}"}, 400),
    ):
        answer = await lab.http.post(path, json={}, headers=headers)
        assert (answer.status_code, "remedy" in answer.json()) == (status, True), headers
    bearer = {"authorization": f"Bearer {ada.token}"} | key
    again = await lab.http.post(path, params={"again": True}, json=None, headers=bearer)
    assert again.status_code == 400  # no body at all
    again = await lab.http.post(path, params={"again": True}, content=b"null", headers=bearer)
    assert again.status_code == 410
    link = await Link.open(ada)
    try:
        with pytest.raises(ServiceGone):  # nothing serves the workspace
            await link.outside("sql", {})
        with pytest.raises(TooLarge, match=r"limit is 1,048,576"):
            await link.outside("sql", {"statement": "x" * 2_000_000})
    finally:
        await link.close()
    await _refused(ada, lab)


async def _refused(ada: Credentials, lab: Lab) -> None:
    """Connect with an unknown token, to another workspace, and to an address where nothing is."""
    for changes in ({"token": ada.token[:-1] + "x"}, {"workspace": "another"}):
        with pytest.raises(AccessRefused):
            await Link.open(msgspec.structs.replace(ada, **changes))
    with pytest.raises(Unreachable, match="hansard up --http"):
        await Link.open(msgspec.structs.replace(ada, url=f"http://127.0.0.1:{_free_port()}"))
    config = settings.load(workspace=lab.name, data_dir=lab.folder)
    for url in ("http://record.example.org", "record.example.org:8420"):
        with pytest.raises(BadValue, match="--http"):
            await make(config, CredentialsRequest(role="writer", http=url))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_the_service_is_killed(tmp_path: Path):
    """A client notices at once, and resumes with the next service: each effect is made once."""
    effects: list[str] = []

    @hansard.tool(effects="once")
    def send(text: str) -> str:
        effects.append(text)
        return text.upper()

    port = _free_port()
    (tmp_path / "token").write_text(uuid4().hex)
    (tmp_path / "token").chmod(0o600)
    more = ("-w", "lab", "--json", "--http", f"{port}", "--token-file", str(tmp_path / "token"))
    with join(tmp_path):
        with up(tmp_path, *more, program=python()) as process:
            url = json.loads(_line(process))["http"]
            file = asyncio.run(_credentials(tmp_path, url))
            with hansard.connect(credentials=file) as record:
                began_s = time.monotonic()
                with contextlib.suppress(ServiceGone), record.run("w", run="r1") as session:
                    assert send("one") == "ONE"
                    process.kill()
                    began_s = time.monotonic()
                    session.wait_for(key="never", timeout_s=600)
                    pytest.fail("a wait ended without a service")
                assert time.monotonic() - began_s < NOTICED_S
        with up(tmp_path, *more, program=python()) as process:
            assert json.loads(_line(process))["http"] == url
            with hansard.connect(credentials=file) as record, record.run(run="r1") as session:
                assert (send("one"), send("two")) == ("ONE", "TWO")
    assert effects == ["one", "two"]


async def _credentials(folder: Path, url: str) -> Path:
    async with hansard.connect_async("lab", data_dir=folder) as record:
        return await credentials_of(record, folder, folder, url)


def _line(process: Any) -> str:
    line: str = process.stdout.readline()
    return line


async def test_requests_that_overtake_each_other(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A call waits for the request that opens its scope, however late that one comes."""
    ask = HttpRequests.ask

    async def late(self: HttpRequests, subject: str, payload: bytes, timeout_s: float) -> bytes:
        if b'"scopes":[{' in payload:
            await asyncio.sleep(0.3)
        return await ask(self, subject, payload, timeout_s)

    monkeypatch.setattr(HttpRequests, "ask", late)

    @hansard.tool(effects="pure")
    async def double(number: int) -> int:
        return 2 * number

    async def branch(number: int) -> list[int]:
        return [await double(number), await double(number + 1)]

    async with served(lab.config, lab.broker, lambda _: None):
        file = await credentials_of(lab.record, lab.folder, tmp_path, f"{lab.http.base_url}")
        async with hansard.connect_async(credentials=file) as record, record.run("w") as session:
            assert await session.gather(branch(1), branch(5), branch(9)) == [
                [2, 4],
                [10, 12],
                [18, 20],
            ]
