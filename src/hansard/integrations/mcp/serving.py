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

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.domain.approval import Approval
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.steps import Effects
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.approvals import ApprovalWaits
from hansard.integrations.mcp.bridge import Bridge
from hansard.integrations.mcp.calls import CALL, DISCOVER, INITIALIZE
from hansard.integrations.mcp.frames import Answer, Frame, Id, Request
from hansard.integrations.mcp.proxy import Proxy, Write
from hansard.integrations.mcp.recording import Recording, Told
from hansard.integrations.mcp.rules import Rules, ToolEffects
from hansard.integrations.mcp.servers import BETWEEN, Declared, Login
from hansard.integrations.mcp.upstream import (
    NOTHING,
    PIPE_BYTES_MAX,
    Beside,
    Heard,
    Server,
    ServerGone,
    ServerNotStarted,
    Upstream,
    pages,
    tagged,
)

_log = logger(__name__)

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""Requests for a list, and the field of a result that has it."""

NAMED = (CALL, "prompts/get")
"""Requests that name a tool or a prompt."""

BY_ADDRESS = ("resources/read", "resources/subscribe", "resources/unsubscribe")

COMPLETE = "completion/complete"


class Several:
    """Servers by their names; `ask` and `next` are as those of one."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = dict(servers)
        self._heard = Heard()
        self._of_resource: dict[str, str] = {}
        self._beside = Beside(self, self._heard)
        self._hearing = [
            asyncio.ensure_future(self._hear(name, server)) for name, server in servers.items()
        ]

    async def send(self, raw: bytes) -> None:
        """Pass a frame on: an answer to who asked, else to all. Raises ServerGone."""
        frame = frames.read(raw)
        if isinstance(frame, Request):
            await self._beside.ask(frame)
            return
        if isinstance(frame, Answer):
            name, _, id_ = str(frame.id).partition(BETWEEN)
            if name in self._servers:
                await self._servers[name].send(frame.under(_own_id(id_)).raw)
            return
        told = await self._all(lambda server: server.send(raw))
        lost = [each for each in told.values() if isinstance(each, ServerGone)]
        if len(lost) == len(told):
            raise lost[0]

    async def ask(self, id_: Id, raw: bytes) -> Answer:
        """A request's answer, by whose it is, or by all. Raises ServerGone, NotDone."""
        del id_  # the frame has it
        frame = frames.read(raw)
        if not isinstance(frame, Request):
            raise NotDone("this is no request")
        if frame.method in LISTS:
            return await self._listed(frame, LISTS[frame.method])
        if frame.method in {INITIALIZE, DISCOVER}:
            return await self._greeted(frame)
        if frame.method in NAMED:
            return await self._named(frame, frame.params)
        reference = frame.params.get("ref")
        if frame.method == COMPLETE and isinstance(reference, dict):
            return await self._completed(frame, reference)
        if frame.method in BY_ADDRESS:
            return await self._addressed(frame, str(frame.params.get("uri")))
        answers = await self._answers(frame)
        return next(iter(answers.values()))

    async def next(self) -> Frame | None:
        """What a server says that answers nothing; None once all have ended."""
        return await self._heard.next()

    async def flushed(self) -> None:
        """Wait until `next` has given all that was said before."""
        await asyncio.gather(*(each.flushed() for each in self._servers.values()))
        await self._heard.flushed()

    async def close(self) -> None:
        """Leave them all."""
        self._beside.close()
        for task in self._hearing:
            task.cancel()
        await asyncio.wait(self._hearing)
        await self._all(lambda server: server.close())

    async def _hear(self, name: str, server: Server) -> None:
        while (frame := await server.next()) is not None:
            if isinstance(frame, Request):
                id_ = f"{name}{BETWEEN}{tagged(frame.id)}"
                raw = frames.request(id_, frame.method, frame.params)
                frame = Request(raw, id_, frame.method, frame.params)
            await self._heard.put(frame)
        if all(each.done() or each is asyncio.current_task() for each in self._hearing):
            self._heard.end()

    async def _all(self, do: Any, among: Sequence[str] | None = None) -> dict[str, Any]:
        """What each comes to, or its error."""
        names = list(self._servers) if among is None else list(among)
        found = await asyncio.gather(
            *(do(self._servers[name]) for name in names), return_exceptions=True
        )
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, NotDone | ServerGone):
                raise each
        return dict(zip(names, found, strict=True))

    async def _answers(
        self, frame: Request, among: Sequence[str] | None = None
    ) -> dict[str, Answer]:
        """What each answered that answered. Raises the first one's error where none did."""
        told = await self._all(lambda server: server.ask(frame.id, frame.raw), among)
        answers = {name: each for name, each in told.items() if isinstance(each, Answer)}
        for name, error in told.items():
            if not isinstance(error, Answer):
                if not answers:
                    raise error
                _log.warning("a server did not answer", server=name, why=str(error))
        return answers

    # The server that a request is of

    async def _named(self, frame: Request, holder: dict[str, Any]) -> Answer:
        server, name = self._split(str(holder.get("name")))
        raw = frames.request(frame.id, frame.method, frame.params | {"name": name})
        return await server.ask(frame.id, raw)

    async def _completed(self, frame: Request, reference: dict[str, Any]) -> Answer:
        if "name" not in reference:
            return await self._addressed(frame, str(reference.get("uri")))
        server, name = self._split(str(reference["name"]))
        told = frame.params | {"ref": reference | {"name": name}}
        return await server.ask(frame.id, frames.request(frame.id, frame.method, told))

    def _split(self, name: str) -> tuple[Server, str]:
        prefix, _, own = name.partition(BETWEEN)
        if prefix not in self._servers or not own:
            names = ", ".join(f"{each}{BETWEEN}" for each in self._servers)
            near = nearest(prefix, list(self._servers))
            raise NotDone(f"{name!r:.80} is of no server: {near}names begin with one of {names}")
        return self._servers[prefix], own

    async def _addressed(self, frame: Request, uri: str) -> Answer:
        """By the server that lists the address, else by the first that knows it."""
        known = self._of_resource.get(uri)
        among = [known] if known is not None else list(self._servers)
        answers = await self._answers(frame, among)
        good = [each for each in answers.values() if each.error is None]
        return good[0] if good else next(iter(answers.values()))

    # What all of them are asked

    async def _greeted(self, frame: Request) -> Answer:
        """One greeting of all: what any of them can do, in a version that they all speak."""
        answers = await self._answers(frame)
        for answer in answers.values():
            if answer.error is not None:
                return answer
        results = {name: answer.result for name, answer in answers.items()}
        told = dict(next(iter(results.values())))
        told["capabilities"] = {}
        for each in results.values():
            _merge(told["capabilities"], each.get("capabilities", {}))
        said = [
            f"{name}: {each['instructions']}"
            for name, each in results.items()
            if each.get("instructions")
        ]
        if said:
            told["instructions"] = "\n\n".join(said)
        if "serverInfo" in told:
            told["serverInfo"] = {"name": "+".join(results), "version": "1"}
        if frame.method == INITIALIZE:
            told["protocolVersion"] = _common_version(results)
        elif "supportedVersions" in told:
            shared = [
                version
                for version in told["supportedVersions"]
                if all(version in each.get("supportedVersions", []) for each in results.values())
            ]
            told["supportedVersions"] = shared
        return Answer(frames.result(frame.id, told), frame.id, told)

    async def _listed(self, frame: Request, field: str) -> Answer:
        """All pages of all of them, one after the other."""
        found = await self._all(lambda server: _pages(server, frame, field))
        told: dict[str, Any] = {}
        listed: list[Any] = []
        errors: list[Answer] = []
        for name, each in found.items():
            if isinstance(each, Answer):
                errors.append(each)  # it has no such things
                continue
            if isinstance(each, BaseException):
                _log.warning("a server did not list what it has", server=name, why=str(each))
                continue
            first, items = each
            told = told or {k: v for k, v in first.items() if k not in (field, "nextCursor")}
            listed += [self._as_of(name, field, item) for item in items]
        if len(errors) == len(found):
            return errors[0]
        if all(isinstance(each, BaseException) for each in found.values()):
            raise next(iter(found.values()))
        told[field] = listed
        return Answer(frames.result(frame.id, told), frame.id, told)

    def _as_of(self, name: str, field: str, item: Any) -> Any:
        if not isinstance(item, dict):
            return item
        if field in {"tools", "prompts"}:
            return item | {"name": f"{name}{BETWEEN}{item.get('name')}"}
        if isinstance(item.get("uri"), str):
            self._of_resource.setdefault(item["uri"], name)
        return item


async def _pages(
    server: Server, frame: Request, field: str
) -> Answer | tuple[dict[str, Any], list[Any]]:
    """Return the first page and the items of all pages, or an answer that is no list."""
    first: dict[str, Any] | None = None
    items: list[Any] = []
    async for answer in pages(frame, lambda page: server.ask(page.id, page.raw)):
        if answer.error is not None or not isinstance(answer.result, dict):
            return answer.under(frame.id)
        first = answer.result if first is None else first
        items += answer.result.get(field) or []
    return first or {}, items


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into.setdefault(name, value)


def _common_version(results: Mapping[str, Mapping[str, Any]]) -> Any:
    versions = {name: each.get("protocolVersion") for name, each in results.items()}
    if len(set(versions.values())) > 1:
        _log.warning("the servers speak different versions: the oldest is told", **versions)
    return min(versions.values(), key=str)


def _own_id(tagged: str) -> Id:
    return int(tagged[1:]) if tagged.startswith("n") else tagged[1:]


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
