"""Proxy in a run of a record: over stdin and stdout here, or over HTTP (`http`).

Frames pass unchanged: a request on arrival, its answer once it is on record. A recorded call is
answered from the record without the server, which a read-only replay does not start.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import os
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import PurePath
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hansard.bus.errors import NotFound
from hansard.bus.loggers import logger
from hansard.domain.approval import Approval
from hansard.domain.errors import BadValue, CallerError, ExtraMissing, HansardError
from hansard.domain.steps import Effects
from hansard.ext.mcp import frames
from hansard.ext.mcp.frames import (
    INITIALIZE,
    Answer,
    BadFrame,
    Frame,
    Id,
    Notification,
    Request,
    StepRequest,
    reverse_step_of,
    step_of,
)
from hansard.ext.mcp.recording import (
    ApprovalWaits,
    ProxyReport,
    Recording,
    Rules,
    ToolEffects,
    answered_elsewhere,
    offers_forms,
    unanswerable,
)
from hansard.ext.mcp.upstream import (
    NOTHING,
    PIPE_BYTES_MAX,
    QUESTIONS_MAX,
    Declared,
    Expected,
    Lines,
    McpMultiplexer,
    Replies,
    Server,
    ServerGone,
    ServerNotStarted,
    Upstream,
)

# ------------------------------------------------------------ one client over stdio

_log = logger(__name__)

CANCELLED_WAIT_S = 2.0
"""Seconds that a server has to answer a cancelled call; then it is in doubt."""

LEAVE_WAIT_S = 5.0
"""Seconds for open calls when the client leaves; then they are in doubt."""

Write = Callable[[bytes], Awaitable[None]]
"""Function that writes a frame to the client, waiting while its buffer is full. Raises
ConnectionError if it has left.
"""


class Proxy:
    """Proxy of one client to one server in one session; `upstream` is None in an offline replay."""

    def __init__(self, recording: Recording, upstream: Server | None, write: Write) -> None:
        self._recording = recording
        self._upstream = upstream
        self._write = write
        self._left = asyncio.Event()
        self._open: dict[Id, asyncio.Task[None]] = {}
        self._others = set[asyncio.Task[None]]()
        self._expected = Expected[Id | None, Answer]()
        self._numbers = itertools.count(1)
        self.elicits = False

    async def serve(self, client: asyncio.StreamReader) -> None:
        """Serve until the client leaves or the server ends; open calls then get a short time."""
        reading = asyncio.ensure_future(self._client(Lines(client)))
        leaving = asyncio.ensure_future(self._left.wait())
        doing: set[asyncio.Future[Any]] = {reading, leaving}
        if self._upstream is not None:
            doing.add(asyncio.ensure_future(self._server(self._upstream)))
        try:
            await asyncio.wait(doing, return_when=asyncio.FIRST_COMPLETED)
            await self._wait_for_open_calls()
        finally:
            for each in (*doing, *self._open.values(), *self._others):
                each.cancel()
            await asyncio.gather(
                *doing, *self._open.values(), *self._others, return_exceptions=True
            )
        for each in doing:
            if not each.cancelled() and (error := each.exception()) is not None:
                raise error

    # Interface of the client for a call that waits for an approval

    async def elicit(self, params: dict[str, Any]) -> Answer:
        """Send `elicitation/create` and wait for its answer; a cancelled one is reported."""
        id_ = f"hansard-approval-{next(self._numbers)}"
        with self._expected.answer_to(id_) as answer:
            try:
                await self.notify(frames.request(id_, "elicitation/create", params))
                return await answer
            except asyncio.CancelledError:
                await self.notify(answered_elsewhere(id_))
                raise

    async def notify(self, frame: Frame) -> None:
        """Write a frame to the client, waiting if it does not read.

        Nothing is sent to a client that has left: the results of its calls are on record.
        """
        try:
            await self._write(frame.raw)
        except ConnectionError:
            self._left.set()

    async def _wait_for_open_calls(self) -> None:
        waiting = [*self._open.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=LEAVE_WAIT_S)

    # Frames from both sides

    async def _client(self, lines: Lines) -> None:
        while True:
            try:
                line = await lines.next()
                if line is None:
                    return
                frame = frames.read(line)
            except BadFrame as bad:
                frame = frames.failure(bad.id, bad.code, str(bad))
                if not bad.is_answer or bad.id not in self._expected:
                    await self.notify(frame)
                    continue
            if isinstance(frame, Request):
                await self._request(frame)
                continue
            if isinstance(frame, Notification):
                self._cancel(frame)
            if not isinstance(frame, Answer) or not self._expected.give(frame.id, frame):
                await self._pass_on(frame)

    async def _server(self, upstream: Server) -> None:
        replies = Replies(upstream)
        try:
            while (frame := await upstream.next()) is not None:
                await self._handle_frame(upstream, frame, replies)
        finally:
            await replies.close()

    async def _handle_frame(self, upstream: Server, frame: Frame, replies: Replies) -> None:
        step = reverse_step_of(frame) if isinstance(frame, Request) else None
        if isinstance(frame, Answer) and frame.id in self._open:
            # The first is being put on record; this one never is, so no client gets it.
            _log.warning(
                "the server answered a request twice: the second answer is dropped", id=frame.id
            )
        elif step is None or not isinstance(frame, Request):
            await self.notify(frame)
        elif len(self._others) >= QUESTIONS_MAX:
            await replies.refuse(frame, f"{QUESTIONS_MAX:,} requests wait for the client")
        else:
            task = self._recording.begin(self._step_back(upstream, frame, step))
            self._others.add(task)
            task.add_done_callback(self._others.discard)

    async def _pass_on(self, frame: Frame) -> None:
        if self._upstream is not None:
            with contextlib.suppress(ServerGone):  # waiters for an answer get its end as an error
                await self._upstream.send(frame)

    async def _step_back(self, upstream: Server, frame: Request, step: StepRequest) -> None:
        """Answer a request of the server from the record or through the client."""

        async def ask() -> Answer:
            with self._expected.answer_to(frame.id) as answer:
                await self.notify(frame)
                return await answer

        answer = await self._recording.answer_back(frame, step, ask)
        with contextlib.suppress(ServerGone):
            await upstream.send(answer)

    def _cancel(self, frame: Notification) -> None:
        if frame.method != "notifications/cancelled":
            return
        task = self._open.get(frame.calls_off)
        if task is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(CANCELLED_WAIT_S, task.cancel)

    async def _request(self, frame: Request) -> None:
        if frame.id in self._open:
            message = f"id {frame.id!r:.40} is that of a request that is still open"
            await self._refuse(frame, frames.INVALID_REQUEST, f"{message}: give each its own")
            return
        if frame.method == INITIALIZE:
            self.elicits = offers_forms(frame.params.get("capabilities"))
        try:
            step = step_of(frame)
        except HansardError as bad:
            await self._refuse(frame, frames.INVALID_PARAMS, str(bad))
            return
        if step is None and self._upstream is not None:
            await self._pass_on(frame)
        elif step is None:
            await self.notify(unanswerable(frame))
        else:
            task = self._recording.begin(self._step(frame, step))
            self._open[frame.id] = task
            task.add_done_callback(lambda _: self._open.pop(frame.id, None))

    async def _refuse(self, frame: Request, code: int, message: str) -> None:
        await self.notify(frames.failure(frame.id, code, message))

    async def _step(self, frame: Request, step: StepRequest) -> None:
        """Answer a request from the record or through the server."""
        ask = None if self._upstream is None else partial(self._ask, self._upstream)
        response = await self._recording.answer(frame, step, ask, self)
        if self._upstream is not None and response.is_servers:
            await self._upstream.flushed()  # earlier frames go first
        await self.notify(response.answer)

    async def _ask(self, upstream: Server, frame: Request) -> Answer:
        """Return the server's answer; if cancelled, the server is notified."""
        try:
            return await upstream.ask(frame)
        except asyncio.CancelledError:
            gone = {"requestId": frame.id, "reason": "the proxy waits no longer"}
            with contextlib.suppress(ServerGone, TimeoutError):  # it may no longer read
                async with asyncio.timeout(CANCELLED_WAIT_S):
                    await upstream.send(frames.notification("notifications/cancelled", gone))
            raise


# ------------------------------------------------------------ in a run

NEW, LAST = "new", "last"
"""Values for a run: a new one, or the newest of the workflow."""

READS_ONLY = ("strict", "offline")
"""Modes that start no server."""

SERVER_LABEL = "mcp_server"
"""Label of a run: its server's command without arguments, or its host."""

TIMEOUT_S = 600.0
"""Default longest duration of a call, in seconds."""


NOTHING_DECLARED: Mapping[str, Declared] = MappingProxyType({})


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of a proxy.

    Attributes:
        command: The server's command with its arguments.
        url: The address of a server over HTTP instead.
        headers: Headers of each request there, such as its token.
        servers: Several servers by name, instead of one.
        http: `[HOST:]PORT` for clients over HTTP; None for stdin and stdout.
        hosts: Host names that they may use, in addition to this machine's own.
        client_token: The bearer token that they must send, if any.
        run: A run's id, `new` or `last`.
        mode: `live`, `resume`, `strict`, `offline`; None for the default of the run.
        workflow: The workflow of a new run, and that of `last`.
        agent: The client's agent name.
        role: The client's role.
        rules: The rules of its tools.
        timeout_s: The longest duration of a call, in seconds.
    """

    command: Sequence[str] = ()
    url: str | None = None
    headers: Mapping[str, str] = NOTHING
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
        """Name of the server in a run's label."""
        if self.servers:
            return "+".join(self.servers)
        if self.url is not None:
            return urlsplit(self.url).netloc.rpartition("@")[2]
        return PurePath(self.command[0]).name

    def check(self) -> None:
        """Raise CallerError for contradicting options."""
        options = [
            option
            for option, value in (
                ("a command", self.command),
                ("--url", self.url),
                ("--servers", self.servers),
            )
            if value
        ]
        if len(options) > 1:
            fact = f"{' and '.join(options)} are given"
            raise BadValue("the server", fact, "give one of them; --servers names several")
        if self.http is not None and (self.command or self.servers):
            fact = f"{options[0]} has one client, at stdin"
            raise BadValue("--http", fact, "give --url, or leave --http out")
        if not options and self.mode not in READS_ONLY:
            raise ServerNotStarted("", "none was given")
        if self.run == NEW and self.mode not in (None, "live"):
            message = f"--mode {self.mode} needs a recorded run: give --run ID or --run last"
            raise CallerError(message)
        if self.run != NEW and self.mode == "live":
            message = f"--mode live begins a run, and --run {self.run} names one: leave one out"
            raise CallerError(message)


async def which(record: Any, config: Serving) -> str | None:
    """Return the run to record in; None for a new one. Raises NotFound."""
    if config.run == NEW:
        return None
    if config.run != LAST:
        return config.run
    newest_first = await record.runs(workflow=config.workflow)
    if not newest_first:
        what = f"a run of workflow {config.workflow!r}"
        raise NotFound(what, "there is no last one: begin one with --run new")
    newest: str = newest_first[0][0]
    return newest


async def serve(
    record: Any,
    config: Serving,
    report: ProxyReport,
    began: Callable[[str], None],
    learned: Callable[[dict[str, Effects]], None],
    listens: Callable[[str], None],
    waits: Callable[[Approval], None],
) -> None:
    """Serve the client at stdin until it leaves or the server ends; over HTTP until cancelled.

    `began` is called with the run, `learned` with the effects of the server's tools as they
    become known, `listens` with the URL for clients, `waits` with each approval that a call
    waits for.

    Raises as `record.run`, and CallerError, ServerNotStarted, NotFound.
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
            recorder = Recording(
                session,
                effects,
                timeout_s=config.timeout_s,
                tell=learned,
                report=report,
                in_any_order=config.http is not None and run is not None,
                approvals=approvals,
            )
            try:
                yield recorder
            finally:
                await recorder.close()

    if config.http is None:
        await _over_pipes(config, recording)
        return
    over = _http("--http")
    where = over.address(config.http, config.hosts, config.client_token)
    server = None
    if config.mode not in READS_ONLY and config.url is not None:
        server = over.HttpServer(config.url, config.headers, of_many=True)
    await over.serve(where, config.client_token, server, recording, listens)


async def _over_pipes(
    config: Serving, recording: Callable[[], AbstractAsyncContextManager[Recording]]
) -> None:
    upstream: Server | None = None
    if config.mode not in READS_ONLY:
        upstream = await _server(config)
    try:
        async with _pipes() as (reader, write), recording() as opened:
            await Proxy(opened, upstream, write).serve(reader)
    finally:
        if upstream is not None:
            await upstream.close()


async def _server(config: Serving) -> Server:
    """Return the server of requests. Raises ServerNotStarted, BadValue, NotInstalled."""
    if not config.servers:
        declared = Declared(url=config.url, headers=dict(config.headers))
        return await _reached(declared, config.command)
    started: dict[str, Server] = {}
    try:
        for name, each in config.servers.items():
            started[name] = await _reached(each, each.argv)
    except BaseException:
        for server in started.values():
            await server.close()
        raise
    return McpMultiplexer(started)


async def _reached(server: Declared, command: Sequence[str]) -> Server:
    if server.url is None:
        return await Upstream.started(command, server.env)
    upstream: Server = _http("--url").server_at(server.url, server.headers)
    return upstream


def _http(option: str) -> Any:
    """Import the HTTP module, which belongs to an extra. Raises NotInstalled."""
    try:
        return importlib.import_module("hansard.ext.mcp.http_proxy")
    except ModuleNotFoundError as error:
        command = f"hansard mcp proxy {option}"
        raise ExtraMissing(repr(command), error.name or "httpx2", "mcp") from None


@asynccontextmanager
async def _pipes() -> AsyncGenerator[tuple[asyncio.StreamReader, Write]]:
    """Open stdin for reading and stdout for writing. Raises CallerError if they are files."""
    for fd in (0, 1):
        if stat.S_ISREG(os.fstat(fd).st_mode):
            message = "stdin or stdout is a file: an MCP client starts this command over pipes"
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
