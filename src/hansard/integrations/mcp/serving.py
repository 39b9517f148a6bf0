"""A proxy in a run of a record: over this process's stdin and stdout, or over HTTP."""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import stat
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import PurePath
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hansard.domain.approval import Approval
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.steps import Effects
from hansard.integrations.mcp.approvals import ApprovalWaits
from hansard.integrations.mcp.bridge import Bridge
from hansard.integrations.mcp.proxy import Proxy, Write
from hansard.integrations.mcp.recording import Recording, Told
from hansard.integrations.mcp.rules import Rules, ToolEffects
from hansard.integrations.mcp.servers import Declared, Login
from hansard.integrations.mcp.several import Several
from hansard.integrations.mcp.upstream import (
    NOTHING,
    PIPE_BYTES_MAX,
    Server,
    ServerNotStarted,
    Upstream,
)

NEW, LAST = "new", "last"
"""For which run: one that begins, or the newest of the workflow."""

READS_ONLY = ("strict", "offline")
"""Modes in which no server is started."""

SERVER_LABEL = "mcp_server"
"""A run's label: the command that its server is started by, without its arguments, or its host."""

TIMEOUT_S = 600.0
"""Seconds that a call may take where nothing else is said."""


NOTHING_DECLARED: Mapping[str, Declared] = MappingProxyType({})


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What a proxy is to do.

    Attributes:
        command: The server's, with its arguments.
        url: Where a server is asked over HTTP instead.
        headers: What goes with each request there, such as its token.
        login: Who the proxy is there, where it logs in itself.
        servers: Several servers by their names, in the place of one.
        http: `[HOST:]PORT` where clients come in over HTTP; None for stdin and stdout.
        hosts: Names that these may ask for, besides this machine's own.
        client_token: The bearer token that they must send, if any.
        run: A run's id, `new` or `last`.
        mode: `live`, `resume`, `strict`, `offline`; None for what follows from the run.
        workflow: Of a new run, and of which the last is looked for.
        agent: Who the client is.
        role: In which role.
        rules: What its tools may do.
        timeout_s: Seconds that a call may take.
    """

    command: Sequence[str] = ()
    url: str | None = None
    headers: Mapping[str, str] = NOTHING
    login: Login | None = None
    servers: Mapping[str, Declared] = NOTHING_DECLARED
    http: str | None = None
    hosts: Sequence[str] = ()
    client_token: str | None = None
    run: str = NEW
    mode: str | None = None
    workflow: str = "mcp"
    agent: str | None = None
    role: str | None = None
    rules: Rules = Rules()
    timeout_s: float = TIMEOUT_S

    @property
    def server(self) -> str:
        """The server's name, as a run's label has it."""
        if self.servers:
            return "+".join(self.servers)
        if self.url is not None:
            return urlsplit(self.url).netloc.rpartition("@")[2]
        return PurePath(self.command[0]).name

    def check(self) -> None:
        """Raise CallerError for what contradicts itself."""
        given = [
            option
            for option, value in (
                ("a command", self.command),
                ("--url", self.url),
                ("--servers", self.servers),
            )
            if value
        ]
        if len(given) > 1:
            fact = f"{' and '.join(given)} are given"
            raise BadValue("the server", fact, "give one of them; --servers names several")
        if not given and self.mode not in READS_ONLY:
            raise ServerNotStarted("", "none was given")
        if self.run == NEW and self.mode not in (None, "live"):
            message = f"--mode {self.mode} needs what is on record: name it, or give --run last"
            raise CallerError(message)
        if self.run != NEW and self.mode == "live":
            message = f"--mode live begins a run, and --run {self.run} names one: leave one out"
            raise CallerError(message)


class NoSuchRun(CallerError):
    """There is no run that could be the last."""

    def __init__(self, workflow: str) -> None:
        super().__init__(
            f"no run of workflow {workflow!r} is on record, so that there is no last one: "
            "begin one with --run new"
        )


async def which(record: Any, config: Serving) -> str | None:
    """The run that is meant; None for a new one. Raises NoSuchRun."""
    if config.run == NEW:
        return None
    if config.run != LAST:
        return config.run
    found = await record.runs(workflow=config.workflow)
    if not found:
        raise NoSuchRun(config.workflow)
    newest: str = found[0][0]
    return newest


async def serve(
    record: Any,
    config: Serving,
    told: Told,
    began: Callable[[str], None],
    learned: Callable[[dict[str, Effects]], None],
    listens: Callable[[str], None],
    waits: Callable[[Approval], None],
) -> None:
    """Serve the client at stdin until it leaves or the server has ended; over HTTP until this is
    cancelled. `began` is given the run, `learned` what the server's tools do, as that becomes
    known, `listens` the URL of clients, `waits` each question that a call waits for. Raises as
    `record.run`, and CallerError, ServerNotStarted, NoSuchRun.
    """
    config.check()
    run = await which(record, config)
    workflow = config.workflow if run is None else None  # one that is joined keeps its own
    options: dict[str, Any] = {"run": run}
    if config.mode in READS_ONLY:
        options["mode"] = config.mode
    if run is None:
        options |= {"program": "hansard mcp proxy", "labels": {SERVER_LABEL: config.server}}

    @asynccontextmanager
    async def recording() -> AsyncGenerator[Recording]:
        opened = record.run(workflow, agent=config.agent, role=config.role, **options)
        async with opened as session:
            began(session.run)
            effects, approvals = ToolEffects(config.rules), None
            if config.rules.gate.ask_first and config.mode not in READS_ONLY:
                workspace = session.engine.workspace
                asks = config.rules.asks_first
                approvals = ApprovalWaits(asks, workspace, config.timeout_s, waits)
            found = Recording(
                session,
                effects,
                timeout_s=config.timeout_s,
                tell=learned,
                told=told,
                in_any_order=config.http is not None and run is not None,
                approvals=approvals,
            )
            try:
                yield found
            finally:
                await found.close()

    if config.http is None:
        await _over_pipes(config, recording)
        return
    over = _http("--http")
    where = over.address(config.http, config.hosts, config.client_token)
    server = None
    if config.mode not in READS_ONLY and config.url is not None:
        server = over.HttpServer(config.url, config.headers, of_many=True, login=config.login)
    elif config.mode not in READS_ONLY:
        _demand_there(config)
        server = over.carried_to(partial(_server, config), config.server)
    await over.serve(where, config.client_token, server, recording, listens)


def _demand_there(config: Serving) -> None:
    """Raise ServerNotStarted for a command that is not there: clients would be told one by one."""
    commands = [config.command] if config.command else []
    commands += [each.argv for each in config.servers.values() if each.url is None]
    for argv in commands:
        if shutil.which(argv[0]) is None:
            raise ServerNotStarted(argv[0], "there is no such program")


async def _over_pipes(
    config: Serving, recording: Callable[[], AbstractAsyncContextManager[Recording]]
) -> None:
    upstream: Server | None = None
    if config.mode not in READS_ONLY:
        upstream = await _server(config)
    try:
        async with _pipes() as (reader, write), recording() as found:
            await Proxy(found, upstream, write).serve(reader)
    finally:
        if upstream is not None:
            await upstream.close()


async def _server(config: Serving) -> Server:
    """Return who answers requests. Raises ServerNotStarted, BadValue, NotInstalled."""
    if not config.servers:
        given = Declared(url=config.url, headers=dict(config.headers))
        return await _reached(given, config.command, config.login)
    started: dict[str, Server] = {}
    try:
        for name, each in config.servers.items():
            started[name] = await _reached(each, each.argv)
    except BaseException:
        for server in started.values():
            await server.close()
        raise
    return Several(started)


async def _reached(server: Declared, command: Sequence[str], login: Login | None = None) -> Server:
    if server.url is None:
        return Bridge(await Upstream.started(command, server.env))
    return Bridge(_http("--url").asked_at(server.url, server.headers, login))


def _http(option: str) -> Any:
    """What speaks HTTP, which is of an extra. Raises NotInstalled."""
    try:
        return importlib.import_module("hansard.integrations.mcp.http.serving")
    except ModuleNotFoundError as error:
        raise NotInstalled(f"hansard mcp proxy {option}", error.name or "httpx2") from None


class NotInstalled(CallerError):
    """A package that speaks the protocol is not there."""

    def __init__(self, command: str, package: str) -> None:
        super().__init__(
            f"{command!r} takes {package}, which is not installed: pip install 'hansard[mcp]'"
        )


@asynccontextmanager
async def _pipes() -> AsyncGenerator[tuple[asyncio.StreamReader, Write]]:
    """Stdin to read, and how stdout is written to. Raises CallerError where they are files."""
    for fd in (0, 1):
        if stat.S_ISREG(os.fstat(fd).st_mode):
            message = (
                "stdin or stdout is a file: an MCP client starts this command, and talks to it"
            )
            raise CallerError(message)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=PIPE_BYTES_MAX)
    taking, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb")
    )
    giving, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(os.dup(1), "wb")
    )
    writer = asyncio.StreamWriter(giving, protocol, None, loop)

    async def write(raw: bytes) -> None:
        writer.write(raw + b"\n")
        await writer.drain()

    try:
        yield reader, write
    finally:
        taking.close()
        writer.close()
        for fd in (0, 1):
            os.set_blocking(fd, True)  # as they were: others may hold them, too
