"""The proxy before providers of models: bytes and their pieces, ends, order, refusals."""

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from pathlib import Path

import httpx2
import pytest
import websockets
from websockets.exceptions import InvalidStatus

import hansard
from hansard.broker.lease import peek
from hansard.ext.models import clients, exchange, proxy
from tests.models.house import House
from tests.models.provider import Provider

pytestmark = pytest.mark.later

Response = tuple[int, list[tuple[str, str]], list[bytes], str]
"""Status, headers, pieces of the body as transferred, and the error at its end."""


async def ask(base: str, model: str, text: str = "hi", *, stream: bool = False) -> Response:
    """Send a request as an SDK does, and take its answer in undecoded pieces."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": stream}
    pieces, why = [], ""
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = f"{base}/chat/completions"
    async with (
        httpx2.AsyncClient(timeout=30) as client,
        client.stream("POST", url, json=body, headers=headers) as response,
    ):
        try:
            async for piece in response.aiter_raw():
                pieces.append(piece)  # noqa: PERF401 -- those before an error count
        except httpx2.RemoteProtocolError as error:
            why = str(error)
    kept = [each for each in response.headers.multi_items() if each[0] != "transfer-encoding"]
    return response.status_code, kept, pieces, why


CASES = [("m", False), ("gzip", False), ("cut", False), ("busy", False)]
CASES += [("m", True), ("gzip", True), ("cut", True), ("slow", True)]


async def test_recorded_and_replayed_pieces_are_those_of_the_provider(
    house: House, provider: Provider
):
    """Pieces, status, repeated headers, and the byte after which an answer breaks off are equal:
    direct, recorded, and replayed without the provider. A cookie reaches the client once and is not
    on record.
    """
    direct = [await ask(os.environ["OPENAI_BASE_URL"], m, stream=s) for m, s in CASES]
    provider.calls.clear()
    async with house.proxied() as base:
        recorded = [await ask(base, model, stream=stream) for model, stream in CASES]
    provider.stop()
    async with house.proxied("offline") as base:
        replayed = [await ask(base, model, stream=stream) for model, stream in CASES]
    assert recorded == direct
    assert [
        (status, [pair for pair in headers if pair[0] != "set-cookie"], pieces, why)
        for status, headers, pieces, why in recorded
    ] == replayed
    assert [bool(why) for *_, why in replayed] == ["cut" in model for model, _ in CASES]
    assert ("set-cookie", "session=secret-cookie") in recorded[0][1]
    ends = [items[-1]["end"]["how"] for items in await house.items()]
    assert ends == [exchange.BROKEN if "cut" in m else exchange.COMPLETE for m, _ in CASES]


async def test_concurrent_calls_are_answered_by_what_they_ask_not_by_their_order(
    house: House, provider: Provider
):
    """Of thirty requests at once, three of each kind, each gets an answer to its own question, in a
    replay in another order, too; a fourth of a kind is not on record.
    """
    asked = [f"m{number}" for number in range(10)] * 3

    async def all_at_once(base: str, seed: int) -> dict[str, str]:
        models = [*asked]
        random.Random(seed).shuffle(models)
        answers = await asyncio.gather(*(ask(base, model) for model in models))
        bodies = [json.loads(b"".join(pieces)) for _, _, pieces, _ in answers]
        return {model: body["model"] for model, body in zip(models, bodies, strict=True)}

    async with house.proxied() as base:
        recorded = await all_at_once(base, 1)
    assert len(provider.calls) == len(asked)
    provider.stop()
    async with house.proxied("offline") as base:
        assert await all_at_once(base, 2) == recorded == {each: each for each in asked}
        status, _, pieces, _ = await ask(base, "m0")
        assert (status, "answered an earlier one" in b"".join(pieces).decode()) == (422, True)


async def test_a_resumed_run_asks_the_provider_only_what_is_new(house: House, provider: Provider):
    """Recorded calls are answered from the record; usage of the new ones alone is reported."""
    async with house.proxied() as base:
        first = await ask(base, "m", "one")
    async with house.proxied() as base:
        assert await ask(base, "m", "two")
        assert (await ask(base, "m", "one"))[2] == first[2]
        assert (house.proxy.report.calls, house.proxy.report.from_record) == (2, 1)
    assert [body["messages"][0]["content"] for _, body in provider.calls] == ["one", "two"]
    usage = [
        (each.usage["input_tokens"], each.usage["output_tokens"]) for each in await house.steps()
    ]
    assert usage == [(11, 7), (11, 7)]


def stop(pid: int) -> None:
    """Stop a process; its last thread has stopped when this returns. On a busy machine that takes
    a while, in which the others serve.
    """
    os.kill(pid, signal.SIGSTOP)
    states: set[str] = set()
    until = time.monotonic() + 20
    while states != {"T"}:
        assert time.monotonic() < until, states
        time.sleep(0.01)
        with contextlib.suppress(OSError):  # a thread has ended
            files = Path(f"/proc/{pid}/task").glob("*/stat")
            states = {each.read_text().rpartition(")")[2].split()[0] for each in files}


async def test_a_provider_gets_no_whole_request_before_its_intent_is_on_record(
    house: House, provider: Provider, data_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    """While the broker acknowledges nothing, the head is there and no body. After a slow intent the
    request is sent on another connection. A call that the gate denies sends nothing.
    """
    server = peek(data_dir)
    assert server is not None

    async def ask_slowly(base: str, text: str) -> Response:
        heads, calls = provider.heads, len(provider.calls)
        try:
            stop(server.server_pid)
            asking = asyncio.create_task(ask(base, "m", text))
            async with asyncio.timeout(20):
                while provider.heads == heads:  # noqa: ASYNC110 -- it counts in another thread
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            assert (provider.heads, len(provider.calls)) == (heads + 1, calls)
        finally:
            os.kill(server.server_pid, signal.SIGCONT)
        return await asking

    async with house.proxied() as base:
        assert (await ask_slowly(base, "one"))[0] == 200
        monkeypatch.setattr(exchange, "OPEN_S_MAX", 0.0)
        assert (await ask_slowly(base, "two"))[0] == 200
    assert (provider.heads, len(provider.calls)) == (3, 2)
    async with house.proxied(gate=[hansard.deny()]) as base:
        assert (await ask(base, "m", "three"))[0] == 403
    assert provider.heads == 3


async def test_a_client_that_leaves_is_recorded_with_the_pieces_that_it_got(
    house: House, provider: Provider
):
    """The provider's stream is closed, the step ends so on record, and a replay gives those pieces
    and then ends, too.
    """

    async def two_pieces(base: str) -> list[bytes]:
        body = {"model": "stuck", "messages": [], "stream": True}
        async with (
            httpx2.AsyncClient() as client,
            client.stream("POST", f"{base}/chat/completions", json=body) as response,
        ):
            pieces = response.aiter_raw()
            return [await anext(pieces), await anext(pieces)]

    async with house.proxied() as base:
        recorded = await two_pieces(base)
    items = await house.items()
    assert items[0][-1]["end"]["how"] == exchange.CLOSED
    pieces = [data for each in items[0][1:-1] for data, _ in exchange.pieces_of(each["chunk"])]
    assert pieces == recorded
    async with house.proxied("offline") as base:
        assert await two_pieces(base) == recorded


async def test_a_replay_at_the_recorded_pace_takes_as_long(house: House, provider: Provider):
    """`pace` waits before each piece as long as the provider did."""
    loop = asyncio.get_running_loop()
    async with house.proxied() as base:
        recorded = await ask(base, "slow", stream=True)
    async with house.proxied("offline", pace=True) as base:
        began_s = loop.time()
        assert await ask(base, "slow", stream=True) == recorded
        took_s = loop.time() - began_s
    last_ms = (await house.items())[0][-2]["chunk"]["ms"][-1]
    assert took_s >= last_ms / 1000 > 0


async def test_a_provider_that_cannot_be_reached_is_an_error_in_words(
    house: House, provider: Provider
):
    """Nothing happened: a resumed run asks again. The request is refused so that SDKs retry."""
    provider.stop()
    async with house.proxied() as base:
        status, headers, pieces, _ = await ask(base, "m")
    assert status == 502
    assert "cannot be reached" in b"".join(pieces).decode()
    assert "x-should-retry" not in dict(headers)
    assert [each.safe for each in await house.steps()] == [True]


async def test_a_call_names_the_step_in_which_a_program_makes_it(house: House, provider: Provider):
    """The guard of a child adds run, agent and step; they are on record, and no part of the key."""
    async with house.proxied() as base:
        undo = clients.wrap(httpx2, clients.Guard(house.url, {}))
        try:
            recorded = await ask(base, "m")
        finally:
            undo()
    async with house.proxied("offline") as base:
        assert (await ask(base, "m"))[2] == recorded[2]
    [step] = await house.steps()
    assert json.loads(bytes(step.arguments))["caller"] == f"{house.run}/models"
    assert provider.calls[0][0] == "/v1/chat/completions"


async def test_a_request_that_is_too_large_is_refused_in_words(
    house: House, provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    """The client that is still sending gets the error, and nothing is recorded."""
    monkeypatch.setattr(proxy, "BODY_BYTES_MAX", 2**20)
    async with house.proxied() as base:
        status, _, pieces, _ = await ask(base, "m", "x" * (64 * 2**20))
    assert status == 413
    assert "pass a reference to the file" in json.loads(b"".join(pieces))["error"]["message"]
    assert not await house.steps()
    assert not provider.calls


async def test_an_unknown_path_and_a_websocket_are_refused(house: House, provider: Provider):
    """A path without the proxy's secret reaches nothing; a WebSocket is refused in words."""
    async with house.proxied() as base, httpx2.AsyncClient() as client:
        at = httpx2.URL(base)
        assert (await client.post(at.copy_with(path="/guess/openai/x"))).status_code == 404
        upgrade = {"connection": "upgrade", "upgrade": "websocket"}
        response = await client.get(f"{base}/realtime", headers=upgrade)
        assert response.status_code == 501
        assert "WebSocket" in response.json()["error"]["message"]
        with pytest.raises(InvalidStatus) as refused:
            await websockets.connect(f"{base.replace('http:', 'ws:')}/realtime")
        assert b"use the provider's HTTP API" in (refused.value.response.body or b"")
    assert not await house.steps()
    assert not provider.calls


def all_bytes(folder: Path) -> bytes:
    """Return all bytes of a folder's files."""
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


async def test_no_secret_of_a_request_is_on_record(
    house: House, provider: Provider, data_dir: Path
):
    """Neither keys of headers nor of the query are in any stored byte."""
    async with house.proxied() as base, httpx2.AsyncClient() as client:
        await ask(base, "m", "one")
        google = base.replace("/openai", "/google") + "/v1beta/models/g:generateContent"
        url = f"{google}?key=query-secret-of-google&alt=json"
        headers = {"x-goog-api-key": os.environ["GEMINI_API_KEY"], "cookie": "id=secret-cookie"}
        assert (await client.post(url, json={"contents": []}, headers=headers)).status_code == 200
    assert provider.calls[1][0].endswith("?key=query-secret-of-google&alt=json")
    stored = all_bytes(data_dir)
    assert b"generateContent" in stored
    assert b"alt=json" in stored
    for secret in ("secret-of-openai", "secret-of-google", "secret-cookie"):
        assert secret.encode() not in stored


async def test_an_answer_that_is_too_long_to_read_is_recorded(
    house: House, provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    """Its facts say why they are few, and no part of it becomes a message."""
    monkeypatch.setattr(exchange, "FACTS_BYTES_MAX", 300)
    async with house.proxied() as base:
        _, _, pieces, why = await ask(base, "m", stream=True)
    assert (len(b"".join(pieces)) > 600, why) == (True, "")
    [[*_, end]] = await house.items()
    assert end["end"]["facts"]["problem"] == "longer than 300 bytes: tokens are not read"
    assert [each.role for each in await house.messages()] == ["user"]


async def test_a_session_does_not_keep_the_calls_that_it_recorded(house: House, provider: Provider):
    """Neither calls nor messages stay in the memory of the session that recorded them; the record
    has all of them, and a resumed run is answered from it.
    """
    texts = ["a", "b", "a"]
    async with house.proxied() as base:
        assert [(await ask(base, "m", text))[0] for text in texts] == [200] * 3
        assert not house.session.state.steps
        assert not house.session.state.messages
    async with house.proxied() as base:
        assert [(await ask(base, "m", text))[0] for text in [*texts, "b"]] == [200] * 4
        assert house.proxy.report.from_record == 3
        assert [*house.session.state.steps] == [1, 2, 3]
    assert [each.number for each in await house.steps()] == [1, 2, 3, 4]
    assert len(provider.calls) == 4
