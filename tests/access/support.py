"""A workspace with something to hide, a restricted login, and clients that try to get at it."""

import asyncio
import base64
import contextlib
import io
import json
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import msgspec
import nats
import nkeys
import structlog
from nats.aio.client import Client

import hansard
from hansard import settings as configuration
from hansard.broker import access
from hansard.broker.access import Credentials
from hansard.broker.files import Login
from hansard.broker.lease import Lease, join
from hansard.cli import command
from hansard.client.credentials import CredentialsRequest, make
from hansard.domain.roles import check as role_file

ROLES = """
[roles.writer]
sees = [{ name = "its own work", roles = ["writer"] }]
[roles.writers]
sees = [{ name = "their own work", roles = ["writers"] }]
"""
PLANTED = "planted-secret-4711"
ANSWER_S = 0.4
"""Seconds that a client waits for an answer or a refusal; either takes a millisecond."""


async def eventually(holds: Callable[[], Any], within_s: float = 60.0) -> None:
    """Wait until it holds; TimeoutError once the time is over."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 -- the awaited change has no event
            await asyncio.sleep(0.002)


async def credentials(
    data_dir: Path, folder: Path, name: str, role: str = "writer", **more: Any
) -> Credentials:
    """Make credentials as `hansard credentials` does, in a file of their own."""
    workspace = more.pop("workspace", "lab")
    place = folder / f"{workspace}-{uuid4().hex}.json"
    settings = configuration.load(workspace=workspace, data_dir=data_dir)
    await make(settings, CredentialsRequest(role=role, name=name, output=place, **more))
    return access.load(place)


def called(*arguments: object) -> list[dict[str, Any]]:
    """Run a successful command in this process and return its --json output."""

    def call() -> str:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            words = [*map(str, arguments), "--json"]
            assert command()(args=words, standalone_mode=False) == 0
        structlog.reset_defaults()
        return printed.getvalue()

    with ThreadPoolExecutor(1) as thread:  # it has a loop of its own
        return [json.loads(each) for each in thread.submit(call).result().splitlines()]


def plant(data_dir: Path, workspace: str = "lab") -> None:
    """Roles, and a run of a role that `writer` does not see."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        for name, rules in role_file.parse(ROLES).items():
            record.roles.apply(name, rules)
        with record.run("hidden", run="r1", agent="eve", role="boss") as session:
            session.message("user", PLANTED)
            session.board.put("plan", PLANTED)


class Held:
    """A connection with given credentials, open until the server ends it.

    It speaks the protocol itself, because the client library leaves a connection open that the
    server ended. Once made, the server has admitted it or not; a connection still waiting for that
    is ended if logins change meanwhile.
    """

    def __init__(self, login: Credentials) -> None:
        host, port = login.url.removeprefix("nats://").split(":")
        self._connection = socket.create_connection((host, int(port)), 5)
        self._answers = self._connection.makefile("rb")
        try:
            self._hello(login)
            self.is_in()
        except BaseException:
            self.__exit__()
            raise

    def _hello(self, login: Credentials) -> None:
        info = self._answers.readline()
        if not info:
            raise ConnectionError("the server is gone")
        # A server that knows no keys asks for no signature.
        nonce = json.loads(info[5:]).get("nonce", "").encode()
        keys = nkeys.from_seed(bytearray(login.nkey_seed.encode()))
        signature = base64.urlsafe_b64encode(keys.sign(nonce)).decode().rstrip("=")
        hello = {"nkey": keys.public_key.decode(), "sig": signature, "verbose": False}
        self._connection.sendall(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._connection.close()

    def is_in(self) -> bool:
        """Return whether the server admitted the client and still does."""
        try:
            self._connection.sendall(b"PING\r\n")
            while (answer := self._answers.readline()).startswith((b"INFO", b"PING")):
                pass
        except ConnectionError:
            return False
        assert answer[:4] in (b"PONG", b"-ERR", b""), answer
        return answer.startswith(b"PONG")


def let_in(login: Credentials) -> bool:
    """Return whether the server admits a holder of credentials."""
    with Held(login) as connection:
        return connection.is_in()


class Lab:
    """A server, workspaces `lab`, `lab2` and `lab-2` in it, and ada's credentials for `lab`."""

    def __init__(self, data_dir: Path, folder: Path) -> None:
        self.data_dir = data_dir
        self.folder = folder
        folder.mkdir()
        self.lease: Lease = join(data_dir)
        for workspace in ("lab", "lab2", "lab-2"):
            plant(data_dir, workspace)
        self.ada = asyncio.run(credentials(data_dir, folder, "ada"))
        self.bob = asyncio.run(credentials(data_dir, folder, "bob"))

    @contextlib.asynccontextmanager
    async def restricted(self, login: Credentials | None = None) -> AsyncIterator["Caller"]:
        """Yield a bare client with given credentials."""
        whose = login or self.ada
        async with Caller(whose.url, whose.inbox, {"nkeys_seed_str": whose.nkey_seed}) as caller:
            yield caller

    @contextlib.asynccontextmanager
    async def trusted(self, *, admin: bool = False) -> AsyncIterator["Caller"]:
        """Yield a bare client with a login of the runtime, or of the administrator."""
        login: Login = self.lease.info.admin if admin else self.lease.info.runtime
        login_options = {"user": login.user, "password": login.password}
        async with Caller(self.lease.info.url, "_INBOX", login_options) as caller:
            yield caller


class Answer(msgspec.Struct):
    """Outcome of a request: an answer, a refusal by the server, or neither."""

    data: bytes | None = None
    headers: dict[str, str] = {}
    refused: str | None = None


class Caller:
    """A nats-py client that reports the server's refusals."""

    def __init__(self, url: str, inbox: str, login: dict[str, Any]) -> None:
        self._arguments = {"servers": url, "inbox_prefix": inbox, **login}
        self.errors: list[str] = []
        self.client = Client()

    async def __aenter__(self) -> Self:
        self.client = await nats.connect(
            **self._arguments,
            error_cb=self._on_error,
            allow_reconnect=False,
            connect_timeout=5,
            skip_subject_validation=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def _on_error(self, error: Exception) -> None:
        self.errors.append(str(error).lower())

    async def flush(self) -> None:
        """Wait, twice, until the server has all that was sent: a ping may overtake a message."""
        for _ in range(2):
            await self.client.flush()

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        headers: dict[str, str] | None = None,
        reply: str | None = None,
    ) -> Answer:
        """Ask, and wait for the first answer or the refusal."""
        self.errors.clear()
        inbox = reply or self.client.new_inbox()
        answers: asyncio.Queue[Any] = asyncio.Queue()
        subscription = None
        if reply is None:
            subscription = await self.client.subscribe(inbox, cb=answers.put)
        await self.client.publish(subject, data, reply=inbox, headers=headers)
        await self.flush()
        answer = Answer()
        loop = asyncio.get_running_loop()
        until = loop.time() + ANSWER_S
        while loop.time() < until and answer.refused is None and answer.data is None:
            with contextlib.suppress(asyncio.QueueEmpty):
                message = answers.get_nowait()
                answer.data, answer.headers = message.data, dict(message.headers or {})
            answer.refused = next((e for e in self.errors if "permissions violation" in e), None)
            await asyncio.sleep(0.005)
        if subscription is not None:
            await subscription.unsubscribe()
        return answer

    async def listen(self, subject: str, queue: str = "") -> tuple[list[Any], str | None]:
        """Subscribe; return the list that receives messages, and the server's refusal if any."""
        self.errors.clear()
        heard: list[Any] = []

        async def hear(message: Any) -> None:
            heard.append(message)

        await self.client.subscribe(subject, queue=queue, cb=hear)
        await self.flush()
        await asyncio.sleep(0.05)
        refused = next((e for e in self.errors if "permissions violation" in e), None)
        return heard, refused
