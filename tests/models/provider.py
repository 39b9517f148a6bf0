"""A local provider of models over TLS, with gzip, chunked events and cuts.

Its answers are written by hand, in the forms of OpenAI, Anthropic and Google.
"""

import asyncio
import json
import ssl
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trustme

TEXT = ["Grüße", " aus", " Köln", "."]
"""The text that each model answers, in pieces; a cut may split a character of two bytes."""

STUCK_S = 60.0
"""Seconds that a stream waits in its middle: a test ends its client before."""


class Provider:
    """The provider: `url` is its address, `calls` are the requests that it got.

    A model's name says how it answers: `cut` breaks off in the middle, `slow` waits between
    pieces, `lags` before the end, `stuck` waits after two of them the first time, `busy` refuses
    its first request, `gzip` compresses.
    """

    def __init__(self, folder: Path) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.heads = 0
        """Heads of requests that arrived, with a body or without."""
        self.left = 0
        """Streams whose client closed them."""
        authority = trustme.CA()
        self.authority = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.authority))
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(self._tls)
        self._stopping: tuple[asyncio.AbstractEventLoop, asyncio.Event]
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)))
        self._thread.start()
        assert ready.wait(10)

    async def _run(self, ready: threading.Event) -> None:
        stop = asyncio.Event()
        self._stopping = asyncio.get_running_loop(), stop
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for each in serving:
            each.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0.01)  # the closed connections are released

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which SDKs and Hansard find it."""
        base = f"https://localhost:{self.port}"
        return {
            "OPENAI_BASE_URL": f"{base}/v1",
            "ANTHROPIC_BASE_URL": base,
            "GOOGLE_GEMINI_BASE_URL": base,
            "SSL_CERT_FILE": str(self.authority),
            "OPENAI_API_KEY": "sk-secret-of-openai-0123456789",
            "ANTHROPIC_API_KEY": "sk-ant-secret-of-anthropic-0123456789",
            "GEMINI_API_KEY": "AIza-secret-of-google-0123456789",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def stop(self) -> None:
        """Close it: its address refuses connections."""
        if self._thread.is_alive():
            loop, stop = self._stopping
            loop.call_soon_threadsafe(stop.set)
            self._thread.join(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            self.left += 1
        finally:
            writer.transport.abort() if self._stopping[1].is_set() else writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.heads += 1
        _, path, _ = head[0].split(" ")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:])}
        if headers.get("transfer-encoding") == "chunked":
            raw = b""
            while size := int(await reader.readline(), 16):
                raw += (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
        else:
            raw = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(raw) if raw else {}
        self.calls.append((path, body))
        model = body.get("model") or path
        is_first = [each for _, each in self.calls].count(body) == 1
        if "busy" in model and is_first:
            answer = json.dumps({"error": {"message": "busy", "type": "server_error"}}).encode()
            writer.write(_head(503, len(answer), ["retry-after-ms: 10"]) + answer)
            return True
        if body.get("stream") or "stream" in path:
            return await self._stream(writer, path, model, sticks="stuck" in model and is_first)
        answer = json.dumps(_answer(path, model)).encode()
        extra = ["set-cookie: session=secret-cookie", "x-ratelimit-a: 1", "x-ratelimit-a: 2"]
        if "gzip" in model:
            packer = zlib.compressobj(wbits=31)
            answer = packer.compress(answer) + packer.flush()
            extra.append("content-encoding: gzip")
        sent = answer[: len(answer) // 2] if "cut" in model else answer
        writer.write(_head(200, len(answer), extra) + sent)
        await writer.drain()
        return "cut" not in model

    async def _stream(
        self, writer: asyncio.StreamWriter, path: str, model: str, *, sticks: bool
    ) -> bool:
        packer = zlib.compressobj(wbits=31) if "gzip" in model else None
        coding = ["content-encoding: gzip"] if packer else []
        writer.write(_head(200, None, coding))
        for number, event in enumerate(_events(path, model)):
            data = event.encode()
            if packer is not None:
                data = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
            if "cut" in model and number == 3:
                writer.write(_piece(data[: data.find("ü".encode()) + 1 or len(data) // 2]))
                await writer.drain()
                return False
            writer.write(_piece(data))
            await writer.drain()
            if sticks and number == 1:
                await asyncio.sleep(STUCK_S)
            await asyncio.sleep(0.05 if "slow" in model else 0.002)
        if packer is not None:
            writer.write(_piece(packer.flush()))
        await writer.drain()
        await asyncio.sleep(0.5 if "lags" in model else 0)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _head(status: int, length: int | None, extra: list[str]) -> bytes:
    kind = "application/json" if length is not None else "text/event-stream; charset=utf-8"
    size = f"content-length: {length}" if length is not None else "transfer-encoding: chunked"
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", size, *extra, "", ""]
    return "\r\n".join(lines).encode()


def _piece(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n" if data else b""


def _answer(path: str, model: str) -> dict[str, Any]:
    text = "".join(TEXT)
    if path.endswith("/messages"):
        return {
            "id": "msg_1", "type": "message", "role": "assistant", "model": model,
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
            "stop_sequence": None, "usage": {"input_tokens": 11, "output_tokens": 7},
        }  # fmt: skip
    if "enerateContent" in path:
        return {
            "candidates": [
                {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}
            ],
            "usageMetadata": {
                "promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18,
            },
            "modelVersion": "gemini",
        }  # fmt: skip
    message = {"role": "assistant", "content": text}
    return {
        "id": "c1", "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }  # fmt: skip


def _events(path: str, model: str) -> Iterator[str]:
    if path.endswith("/messages"):
        start: dict[str, Any] = _answer(path, model) | {"content": [], "stop_reason": None}
        yield _named("message_start", message=start)
        block = {"type": "text", "text": ""}
        yield _named("content_block_start", index=0, content_block=block)
        for text in TEXT:
            delta = {"type": "text_delta", "text": text}
            yield _named("content_block_delta", index=0, delta=delta)
        yield _named("content_block_stop", index=0)
        ended = {"stop_reason": "end_turn", "stop_sequence": None}
        yield _named("message_delta", delta=ended, usage={"output_tokens": 7})
        yield _named("message_stop")
        return
    if "enerateContent" in path:
        for text in TEXT:
            part = {"content": {"role": "model", "parts": [{"text": text}]}}
            usage = _answer(path, model)["usageMetadata"]
            yield _data({"candidates": [part], "usageMetadata": usage})
        return
    base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model}
    for text in TEXT:
        delta = {"role": "assistant", "content": text}
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield _data({**base, "choices": [choice]})
    yield _data({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield _data({**base, "choices": [], "usage": _answer(path, model)["usage"]})
    yield "data: [DONE]\n\n"


def _named(kind: str, **fields: Any) -> str:
    return f"event: {kind}\n" + _data({"type": kind, **fields})


def _data(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
