"""Real object stores for tests: a folder, and an S3 server (SeaweedFS)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import obstore
import pytest
from obstore.store import S3Store

KEY, SECRET = "archivist", "not-a-secret"
START_S = 60.0


def free_ports(count: int) -> list[int]:
    """Return ports that are free, and whose sums with 10,000 (for gRPC) are free as well."""
    ports: list[int] = []
    while len(ports) < count:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                other.bind(("127.0.0.1", port + 10_000))
                if port not in ports:
                    ports.append(port)
    return ports


class S3:
    """An S3 server; `url` names a bucket of it, in an environment that leads to the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        master, volume, filer, self.port = free_ports(4)
        (folder / "s3.json").write_text(
            json.dumps(
                {
                    "identities": [
                        {
                            "name": "tests",
                            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                        }
                    ]
                }
            )
        )
        self._arguments = [
            str(Path(sys.executable).with_name("weed")),
            f"-logdir={folder}",
            "server",
            f"-dir={folder}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            "-master.telemetry=false",
            "-master.electionTimeout=1s",
            "-master.volumeSizeLimitMB=1024",
            f"-volume.port={volume}",
            "-volume.max=8",
            "-filer",
            f"-filer.port={filer}",
            "-s3",
            f"-s3.port={self.port}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={folder / 's3.json'}",
        ]
        self.process: subprocess.Popen | None = None

    @property
    def url(self) -> str:
        """The address of an archive; another one for each server, since a process opens it once."""
        return f"s3://archive/tests-{self.port}"

    def lead(self, patch: pytest.MonkeyPatch, port: int | None = None) -> None:
        """Let the environment lead to the server, or to a proxy at another port."""
        patch.setenv("AWS_ACCESS_KEY_ID", KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port or self.port}")

    def start(self) -> None:
        """Start it, and return once it answers."""
        with (self.folder / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(self._arguments, stdout=log, stderr=log)
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=1).close()
                except urllib.error.HTTPError as error:
                    error.close()
                    return
                return
            time.sleep(0.05)
        raise AssertionError((self.folder / "weed.log").read_text()[-2000:])

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, also by a signal of another process."""
        return self.process is None or self.process.poll() is not None

    def restart(self) -> None:
        """End it, if it runs, and return once it answers again."""
        self.kill()
        self.start()


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[S3]:
    """Run an S3 server."""
    server = S3(folder)
    server.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            server.lead(patch)
            store = S3Store("archive", client_options={"allow_http": True})
            obstore.put(store, "made", b"")  # it makes the bucket
        yield server
    finally:
        server.kill()


class Fault:
    """A proxy in front of an S3 server that spoils answers: `mode` is "" (none), "503", "slow"
    (as many seconds as `slow_s`), "cut" (half of the body) or "flip" (one bit of the body).
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.mode = ""
        self.slow_s = 0.0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for each in self._writers:
            each.transport.abort()
        closed = (each.wait_closed() for each in self._writers)
        await asyncio.gather(*closed, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close; ended by `__aexit__`, which the server must not see."""
        self._writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            size = _length(head)
            body = await reader.readexactly(size) if size else b""
            if self.mode == "503":
                writer.write(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n")
                writer.write(b"Connection: close\r\n\r\n")
                await writer.drain()
            else:
                if self.mode == "slow":
                    await asyncio.sleep(self.slow_s)
                writer.write(self._spoilt(await self._relayed(head, body)))
                await writer.drain()
        writer.close()

    async def _relayed(self, head: bytes, body: bytes) -> bytes:
        up, out = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(out)
        first, _, rest = head.partition(b"\r\n")
        lines = [
            line for line in rest.split(b"\r\n") if not line.lower().startswith(b"connection:")
        ]
        out.write(first + b"\r\nConnection: close\r\n" + b"\r\n".join(lines) + body)
        answer = await up.read(-1)
        out.close()
        return answer

    def _spoilt(self, answer: bytes) -> bytes:
        head, _, body = answer.partition(b"\r\n\r\n")
        if self.mode == "cut":
            body = body[: len(body) // 2]
        if self.mode == "flip" and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        return head + b"\r\n\r\n" + body


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0
