"""A workspace with a service, trusted clients, and restricted ones with credentials."""

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import hansard
from hansard import settings
from hansard.agents.access.roles import read
from hansard.agents.workspace import Workspace
from hansard.broker import access
from hansard.broker.access import Credentials
from hansard.bus.jetstream.client import Requests
from hansard.bus.log import Stored
from hansard.bus.portal import portal
from hansard.client import credentials as making
from hansard.client import opening
from hansard.client.credentials import CredentialsRequest, make
from hansard.client.listening import Address
from hansard.client.restricted.link import Link
from hansard.domain.roles import check as role_file
from hansard.service.http.app import listening
from hansard.service.running import served, serving
from hansard.service.server import Service
from tests.agents.twins import TwinRecord

ALL = """
[roles.writer]
clearance = "secret"
[[roles.writer.sees]]
name = "all"
kinds = ["**"]
[[roles.writer.sees]]
name = "memory"
kinds = ["memory.*"]
[roles.writer.may]
tools = ["**"]
kinds = ["**"]
keys = ["**"]
paths = ["**"]
settle = true
approve = true
query = true
"""


async def credentials(
    data_dir: Path, folder: Path, name: str, role: str, workspace: str, **more: Any
) -> Path:
    """Return a file of credentials, as made by `hansard credentials`."""
    place = folder / f"{name}-{uuid4().hex}.json"
    config = settings.load(workspace=workspace, data_dir=data_dir)
    await make(config, CredentialsRequest(role=role, name=name, output=place, **more))
    return place


def requests_sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every request that a client of this process sends from now on."""
    sent: list[bytes] = []
    ask = Requests.ask

    async def asking(self: Requests, subject: str, payload: bytes, timeout_s: float) -> bytes:
        sent.append(payload)
        return await ask(self, subject, payload, timeout_s)

    monkeypatch.setattr(Requests, "ask", asking)
    return sent


class House:
    """A workspace whose service runs in this process, on the bus's loop."""

    def __init__(self, data_dir: Path, workspace: str, folder: Path) -> None:
        self.data_dir = data_dir
        self.workspace = workspace
        self.folder = folder
        self.stack = contextlib.AsyncExitStack()
        self.service: Service | None = None
        self.opened: Workspace | None = None
        self.files: dict[tuple[str, str], Path] = {}
        self.http: str | None = None

    def apply(self, roles: str) -> None:
        """Apply roles from a file's text, and wait until a running service uses them."""
        with hansard.connect(self.workspace, data_dir=self.data_dir) as record:
            for name, rules in role_file.parse(roles).items():
                record.roles.apply(name, rules)
                version = portal().run(read(record.workspace, name)).version
                until = time.monotonic() + 60
                while self.service is not None and self._rules_version(name) < version:
                    assert time.monotonic() < until, "the service does not notice new rules"
                    time.sleep(0.01)

    def _rules_version(self, role: str) -> int:
        """Return the version of a role's rules that the service applies."""
        assert self.service is not None
        return self.service._authenticator.rules_version(role)

    def begin(self, *, quiet_s: float = 10.0) -> None:
        """Start the service."""
        portal().run(self._begin(quiet_s))

    async def _begin(self, quiet_s: float) -> None:
        config = settings.load({}, workspace=self.workspace, data_dir=self.data_dir)
        broker = await opening.find_broker(config)
        self.stack.push_async_callback(broker.release)
        workspace = await opening.open_workspace(config)
        self.stack.push_async_callback(workspace.close)
        self.opened = workspace
        opened = serving(workspace, broker.runtime, quiet_s=quiet_s)
        self.service = await self.stack.enter_async_context(opened)

    def listen(self) -> None:
        """Listen for HTTP, too; credentials made from now on are for that address."""
        self.http = portal().run(self._listen())

    async def _listen(self) -> str:
        config = settings.load({}, workspace=self.workspace, data_dir=self.data_dir)
        broker = await opening.find_broker(config)
        self.stack.push_async_callback(broker.release)
        served = listening(config, broker, Address("127.0.0.1", 0), token=uuid4().hex)
        return await self.stack.enter_async_context(served)

    def end(self) -> None:
        """Stop it."""
        portal().run(self.stack.aclose())
        self.service = self.opened = None

    def login_all(self, *whos: tuple[str, str]) -> None:
        """Create credentials of several names and roles with one reload of the broker."""

        async def reloaded_with_the_last(*_: object) -> bool:
            return True

        *others, last = whos
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(making, "sync_broker", reloaded_with_the_last)
            for name, role in others:
                self.login(name, role)
        self.login(*last)

    def login(self, name: str = "ada", role: str = "writer") -> Path:
        """Credentials of a principal."""
        if (name, role) not in self.files:
            self.login_with(name, role)
        return self.files[name, role]

    def login_with(self, name: str, role: str, **more: Any) -> Path:
        """Credentials of a principal, with terms of their own."""
        more = {"http": self.http} | more
        made = credentials(self.data_dir, self.folder, name, role, self.workspace, **more)
        with pytest.MonkeyPatch.context() as patch:
            if self.opened is not None:  # a connection less
                patch.setattr(making, "reading", lambda _: contextlib.nullcontext(self.opened))
            self.files[name, role] = portal().run(made)
        return self.files[name, role]

    def known(self, name: str = "ada", role: str = "writer") -> Credentials:
        """Return the credentials, read from the file."""
        return access.load(self.login(name, role))

    def connect(self, name: str = "ada", role: str = "writer", **options: Any) -> Any:
        """Connect a restricted agent's record with the sync client."""
        return hansard.connect(credentials=self.login(name, role), **options)

    def trusted(self, **options: Any) -> Any:
        """Connect a trusted program's record with the sync client."""
        return hansard.connect(self.workspace, data_dir=self.data_dir, **options)

    @contextlib.contextmanager
    def link(self, name: str = "ada", role: str = "writer") -> Iterator[Link]:
        """Yield a restricted agent's bare connection."""
        link = portal().run(Link.open(self.known(name, role)))
        try:
            yield link
        finally:
            portal().run(link.close())


class Served(House):
    """A workspace served as `hansard up` serves it, SQL too."""

    async def _begin(self, quiet_s: float) -> None:
        del quiet_s
        config = settings.load(workspace=self.workspace, data_dir=self.data_dir)
        broker = await opening.find_broker(config)
        self.stack.push_async_callback(broker.release)
        serves = await self.stack.enter_async_context(served(config, broker, pytest.fail))
        assert serves


class Lab:
    """Counterpart of `tests.agents.twins.Lab` for either door and either client."""

    def __init__(self, house: House, door: str, kind: str) -> None:
        self.house = house
        self.door = door
        self.is_async = kind == "async"

    @contextlib.asynccontextmanager
    async def connect(self, name: str = "ada", **options: Any) -> AsyncIterator[TwinRecord]:
        """Yield a record of an agent's own program."""
        house = self.house
        arguments: dict[str, Any] = {"workspace": house.workspace, "data_dir": house.data_dir}
        if self.door == "restricted":
            arguments = {"credentials": house.files[name, "writer"]}
        if self.is_async:
            async with hansard.connect_async(**arguments, **options) as record:
                yield TwinRecord(record, is_async=True)
        else:
            with hansard.connect(**arguments, **options) as record:
                yield TwinRecord(record, is_async=False)

    def commits(self, run: str) -> list[Stored]:
        """Return the stored commits of a run."""
        with self.house.trusted() as record:
            work = record.workspace.log.read_run(run)
            stored: list[Stored] = portal().run(work)
            return stored
