"""Recorded exchanges of real models, and a local provider that answers with them."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from hansard.ext.models.providers import Operation, operation_of, provider_of


class Recorded(msgspec.Struct, frozen=True):
    """A recorded exchange: the request's body as a value, the response's as transferred."""

    file: str
    provider: str
    operation: Operation
    path: str
    request: Any
    status: int
    headers: list[tuple[str, str]]
    response: bytes

    @property
    def is_stream(self) -> bool:
        """True if the response is a stream of events."""
        return any("event-stream" in value for _, value in self.headers)

    @property
    def text(self) -> str:
        """The response without its content coding."""
        coded = any(name.lower() == "content-encoding" for name, _ in self.headers)
        return (gzip.decompress(self.response) if coded else self.response).decode()


KEPT = ("content-type", "x-request-id", "openai-processing-ms", "set-cookie")


def recorded(folder: Path) -> Iterator[Recorded]:
    """Yield the exchanges of all cassettes below a folder that are calls of known providers."""
    for file in sorted(folder.rglob("*.yaml")):
        for each in yaml.load(file.read_text("utf-8"), yaml.CSafeLoader)["interactions"]:
            request, response = each["request"], each["response"]
            address = urlsplit(request["uri"])
            provider = provider_of(address.hostname or "")
            if provider is None:
                continue
            operation = operation_of(provider, request["method"], address.path)
            if operation is None:
                continue
            body = _body(response)
            headers = [
                (name, value)
                for name, values in response["headers"].items()
                for value in values
                if name.lower() in KEPT
            ]
            if body.startswith(b"\x1f\x8b"):
                headers.append(("content-encoding", "gzip"))
            status = response["status"]["code"]
            query = json.loads(_body(request))
            yield Recorded(
                file.name, provider.name, operation, address.path, query, status, headers, body
            )


def _body(message: dict[str, Any]) -> bytes:
    """Return a body, from the forms of both recorders."""
    if "parsed_body" in message:
        return json.dumps(message["parsed_body"]).encode()
    body = message["body"]
    body = body["string"] if isinstance(body, dict) else body
    return body if isinstance(body, bytes) else body.encode()


class RecordedProvider:
    """A provider that answers each request with the exchange that is next.

    A stream is sent event by event. `calls` are the paths and bodies that it got.
    """

    def __init__(self) -> None:
        self.next: Recorded | None = None
        self.calls: list[tuple[str, Any]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                size = int(self.headers["content-length"])
                provider.calls.append((self.path, json.loads(self.rfile.read(size))))
                answer = provider.next
                assert answer is not None
                self.send_response(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                if not answer.is_stream:
                    self.send_header("content-length", str(len(answer.response)))
                    self.end_headers()
                    self.wfile.write(answer.response)
                    return
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for event in answer.response.split(b"\n\n"):
                    if event:
                        piece = event + b"\n\n"
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """Close it: its address refuses connections."""
        self._server.shutdown()
        self._server.server_close()
