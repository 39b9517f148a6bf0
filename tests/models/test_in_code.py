"""`hansard.record_http()`: model calls of this process as steps of its open session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import hansard
from hansard.agents.steps import ledger
from hansard.client.record import Record
from hansard.ext.models import recorder
from hansard.ext.models.proxy import too_large
from tests.late import LATE
from tests.models.provider import STUCK_S, TEXT, Provider

if LATE:
    import openai

pytestmark = pytest.mark.later

PROMPT: list[Any] = [{"role": "user", "content": "hi"}]
WHOLE = "".join(TEXT)


def chat(client: openai.OpenAI, model: str, text: str = "hi") -> list[str]:
    """Return a model's answer, and then its pieces in a stream."""
    prompt: list[Any] = [{"role": "user", "content": text}]
    whole = client.chat.completions.create(model=model, messages=prompt)
    stream = client.chat.completions.create(model=model, messages=prompt, stream=True)
    pieces = [each.choices[0].delta.content or "" for each in stream if each.choices]
    return [whole.choices[0].message.content or "", *pieces]


def error_of(call: Callable[[], Any]) -> str:
    """Return the error of a call and its cause."""
    with pytest.raises(openai.APIError) as raised:
        call()
    return f"{raised.value!r} {type(raised.value.__cause__).__name__}"


def test_calls_of_sync_clients_are_steps_and_are_replayed(record: Record, provider: Provider):
    """Recorded in their order; a resumed run asks only what is new; a replay needs no provider."""
    import anthropic  # noqa: PLC0415 -- takes seconds

    client, other = openai.OpenAI(max_retries=0), anthropic.Anthropic(max_retries=0)

    def program() -> list[Any]:
        with hansard.record_http():
            said = other.messages.create(model="gzip", messages=PROMPT, max_tokens=9).content[0]
            return [
                chat(client, "m"),
                chat(client, "gzip"),
                said,
                error_of(lambda: chat(client, "cut")),
            ]

    with record.run("w", run="r") as session:
        recorded = program()
        assert [each.tool for each in session.state.steps.values()] == [
            "anthropic.messages",
            *["openai.chat.completions"] * 5,
        ]
    assert recorded[0] == recorded[1] == [WHOLE, *TEXT, ""]
    assert len(provider.calls) == 6
    with record.run(run="r", mode="offline"):
        provider.stop()
        assert program() == recorded
        with hansard.record_http():
            missed = error_of(lambda: chat(client, "m", "hello"))
    assert "/messages/0/content" in missed
    assert len(provider.calls) == 6


def test_a_session_keeps_the_newest_answers_in_memory(
    record: Record, provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    """Earlier ones leave its state and stay on record: a resume and a replay have all of them."""
    monkeypatch.setattr(ledger, "KEPT_BYTES_MAX", 2_000)
    client = openai.OpenAI(max_retries=0)

    def program(session: hansard.Session, count: int) -> list[str]:
        @session.tool(effects="pure")
        def note(text: str) -> str:
            return text.upper()

        with hansard.record_http():
            return [note(chat(client, "m", f"{number}")[0]) for number in range(count)]

    with record.run("w", run="r") as session:
        recorded = program(session, 6)
        models = [each for each in session.state.steps.values() if each.kind == "model"]
        assert len(models) == 12
        kept = [sum(len(bytes(item)) for item in each.items) for each in models]
        assert 0 < sum(kept) <= 2_000
        assert [bool(size) for size in kept] == sorted(bool(size) for size in kept)
    with record.run(run="r") as session:
        assert program(session, 7)[:6] == recorded
        assert len(provider.calls) == 14
    provider.stop()
    with record.run(run="r", mode="offline") as session:
        assert program(session, 7)[:6] == recorded
        with hansard.record_http():
            assert "/messages/0/content" in error_of(lambda: chat(client, "m", "other"))
    client.close()


def test_a_stream_that_is_left_early_is_recorded_and_replayed_so(
    record: Record, provider: Provider
):
    """The step ends where the program closed the stream."""
    client = openai.OpenAI(max_retries=0)

    def first_piece() -> str:
        with (
            hansard.record_http(),
            client.chat.completions.create(model="m", messages=PROMPT, stream=True) as stream,
        ):
            return next(iter(stream)).choices[0].delta.content or ""

    with record.run("w", run="r") as session:
        assert first_piece() == TEXT[0]
        [step] = session.state.steps.values()
        assert len(step.items) == 3
        assert b"closed by the client" in bytes(step.items[-1])
    with record.run(run="r", mode="offline"):
        assert first_piece() == TEXT[0]


async def test_an_async_stream_that_is_left_while_it_waits_ends_at_once(
    workspace: str, data_dir: Path, provider: Provider
):
    """The provider's connection is closed, also while its next piece is being waited for."""
    client = openai.AsyncOpenAI(max_retries=0)

    async def first_piece() -> str:
        async with (
            hansard.record_http(),
            await client.chat.completions.create(
                model="stuck", messages=PROMPT, stream=True
            ) as stream,
        ):
            return (await anext(aiter(stream))).choices[0].delta.content or ""

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with record.run("w", run="r") as session, asyncio.timeout(STUCK_S / 2):
            assert await first_piece() == TEXT[0]
            [step] = session.state.steps.values()
            assert b"closed by the client" in bytes(step.items[-1])
        provider.stop()
        async with record.run(run="r", mode="offline"):
            assert await first_piece() == TEXT[0]
    await client.close()


def test_outside_the_block_or_a_session_nothing_is_recorded_in_silence(
    record: Record, provider: Provider
):
    """After the block calls go out as ever; in it, a call without a session is refused."""
    client = openai.OpenAI(max_retries=0)
    before = httpx.Client.send
    with hansard.record_http():
        assert "no session is current" in error_of(lambda: chat(client, "m"))
    assert httpx.Client.send is before
    assert not provider.calls
    with record.run("w") as session:
        assert chat(client, "m")[0] == WHOLE
        assert not session.state.steps


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
async def test_calls_of_async_clients_are_steps_and_are_replayed(
    workspace: str, data_dir: Path, provider: Provider
):
    """Over httpx2 and over aiohttp, at once; a sync client in a thread is recorded, too."""
    client = openai.AsyncOpenAI(max_retries=0)
    from google import genai  # noqa: PLC0415 -- takes seconds

    google = genai.Client().aio
    plain = openai.OpenAI(max_retries=0)

    async def stream(model: str) -> list[str]:
        chunks = await client.chat.completions.create(model=model, messages=PROMPT, stream=True)
        return [each.choices[0].delta.content or "" async for each in chunks if each.choices]

    async def ask_google() -> str | None:
        return (await google.models.generate_content(model="g", contents="hi")).text

    async def program(session: hansard.AsyncSession) -> list[Any]:
        async with hansard.record_http():
            both = await session.gather(stream("m"), stream("gzip"))
            texts = await asyncio.gather(ask_google(), ask_google())
            return [*both, texts, await asyncio.to_thread(chat, plain, "m")]

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with record.run("w", run="r") as session:
            recorded = await program(session)
        calls = len(provider.calls)
        assert recorded == [[*TEXT, ""], [*TEXT, ""], [WHOLE, WHOLE], [WHOLE, *TEXT, ""]]
        assert calls == 6
        provider.stop()
        async with record.run(run="r", mode="offline") as session:
            assert await program(session) == recorded
    plain.close()
    await client.close()
    await google.aclose()


async def test_a_client_that_stops_waiting_and_closes_is_no_interruption(
    workspace: str, data_dir: Path, provider: Provider
):
    """The SDK waits a tenth of a second for the end of a stream before it closes it. A task that is
    cancelled interrupts its call, which is made again by a resumed run.
    """
    client = openai.AsyncOpenAI(max_retries=0)

    async def pieces(model: str) -> list[str]:
        chunks = await client.chat.completions.create(model=model, messages=PROMPT, stream=True)
        return [each.choices[0].delta.content or "" async for each in chunks if each.choices]

    async def cancelled() -> None:
        async with asyncio.timeout(1):
            await pieces("stuck")

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with record.run("w", run="r") as session, hansard.record_http():
            received = await pieces("lags")
            with pytest.raises(TimeoutError):
                await cancelled()
            closed, interrupted = session.state.steps.values()
        provider.stop()
        async with record.run(run="r", mode="offline"), hansard.record_http():
            assert await pieces("lags") == received == [*TEXT, ""]
    assert (closed.status, interrupted.status) == ("completed", "in_doubt")
    await client.close()


async def test_a_request_that_is_too_large_is_refused_as_by_the_proxy(
    data_dir: Path, workspace: str, provider: Provider, monkeypatch: pytest.MonkeyPatch
):
    """Nothing is sent or recorded, from a sync client and from an async one."""
    monkeypatch.setattr(recorder, "BODY_BYTES_MAX", 1_000)
    prompt: list[Any] = [{"role": "user", "content": "x" * 1_000}]
    client, other = openai.OpenAI(max_retries=0), openai.AsyncOpenAI(max_retries=0)
    create = client.chat.completions.create
    async with (
        hansard.connect_async(workspace, data_dir=data_dir) as record,
        record.run("w") as session,
        hansard.record_http(),
    ):
        for call in (
            asyncio.to_thread(create, model="m", messages=prompt),
            other.chat.completions.create(model="m", messages=prompt),
        ):
            with pytest.raises(openai.APIStatusError) as raised:
                await call
            assert raised.value.status_code == 413
            assert too_large() in str(raised.value)
        assert not session.state.steps
    assert not provider.calls
