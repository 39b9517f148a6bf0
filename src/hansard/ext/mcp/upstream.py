"""Servers of the proxy: a process over its stdin and stdout, and several servers as one.

A file in the form of MCP clients (`mcpServers`) names several. Of an entry, `command`, `args` and
`env`, or `url` and `headers` are read; `${NAME}` in any of them is an environment variable. The
module is long because one process and several of them share one interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue, CallerError
from hansard.ext.mcp import frames
from hansard.ext.mcp.frames import (
    CALL,
    DISCOVER,
    FRAME_BYTES_MAX,
    INITIALIZE,
    Answer,
    BadFrame,
    Frame,
    Id,
    Request,
)

# ------------------------------------------------------------ declared servers

BETWEEN = "__"
"""Separator of a server's name and a tool's; providers of models accept letters, digits, _ and -.
"""

_NAME = re.compile(r"[A-Za-z0-9](?:_?[A-Za-z0-9-]){0,31}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Declared(msgspec.Struct, frozen=True):
    """Server given by its command or its URL."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}

    @property
    def argv(self) -> list[str]:
        """Command with its arguments."""
        return [self.command or "", *self.args]


class _File(msgspec.Struct, frozen=True, rename="camel"):
    mcp_servers: dict[str, Declared] = {}
    servers: dict[str, Declared] = {}


def load(path: Path) -> dict[str, Declared]:
    """Read the servers of a file by name. Raises BadValue."""
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        fact = f"cannot be read ({error.strerror})"
        raise BadValue(f"--servers {path}", fact, "name a file") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        remedy = 'give {"mcpServers": {"NAME": {"command": "...", "args": []}}}, or "url"'
        raise BadValue(f"--servers {path}", f"is no such file ({error})", remedy) from None
    servers = content.mcp_servers or content.servers
    if not servers:
        raise BadValue(f"--servers {path}", "names no server", "add one to its mcpServers")
    return {name: _with_variables(f"{path}: {name}", name, each) for name, each in servers.items()}


def bearer(token: str) -> dict[str, str]:
    """Return the header of a bearer token."""
    return {"authorization": f"Bearer {token}"}


def _with_variables(where: str, name: str, server: Declared) -> Declared:
    if _NAME.fullmatch(name) is None:
        fact = "cannot be the prefix of a tool's name"
        raise BadValue(where, fact, "give up to 32 letters, digits, - and single _")
    if (server.command is None) == (server.url is None):
        raise BadValue(where, "needs either command or url", "give one of the two")

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        return value and _VARIABLE.sub(lambda match: _variable(where, match[1]), value)

    return Declared(**filled(msgspec.structs.asdict(server)))


def _variable(where: str, name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise BadValue(where, f"${{{name}}} is not set", "set the variable, or write the value")
    return value


_log = logger(__name__)

NOTHING: Mapping[str, str] = MappingProxyType({})

CLOSE_WAIT_S = 2.0
"""Seconds that a server has to end after its stdin is closed, and again after SIGTERM."""

PIPE_BYTES_MAX = 1024 * 1024
"""Bytes of a pipe that are buffered in addition to one line; at twice as many, the writer blocks.
"""

INBOX_MAX, INBOX_BYTES_MAX = 1_000, 16 * 1024 * 1024
"""Most frames, and bytes of frames, queued for a client; at either limit the server is not read
further.
"""

QUESTIONS_MAX = 1_000
"""Most open requests of a server to its client; more are refused."""

REPLIES_MAX = 1_000
"""Most answers of the proxy that a server has not read; then it is not read further."""

SIDE_REQUESTS_MAX = 1_000
"""Most open requests that are no steps; more are answered by an error."""

DISCARDED_BYTES = 64 * 1024
"""Bytes read at once from a server whose output is discarded."""


class ServerNotStarted(CallerError):
    """Error: the command after `--` cannot be run."""

    def __init__(self, command: str, why: str) -> None:
        super().__init__(f"{command!r} cannot be run ({why}): give the server's command after '--'")
        self.command = command


PAGES_MAX = 50
"""Most pages of a list that the proxy itself requests."""


class ServerGone(ConnectionError):
    """Error: the server's process has ended, or its output is not the protocol."""


class TooManyPages(ServerGone):
    """Error: a server's list has more than PAGES_MAX pages."""


async def pages(
    frame: Request, ask: Callable[[Request], Awaitable[Answer]]
) -> AsyncGenerator[Answer]:
    """Read a list from its first page to its last, or to the first answer without a list.

    Later pages have ids of their own, so that no answer is taken for that of another page. Raises
    TooManyPages, and as `ask`.
    """
    params = {name: value for name, value in frame.params.items() if name != "cursor"}
    for number in range(PAGES_MAX):
        id_ = f"hansard-page-{number}-{tagged(frame.id)}" if number else frame.id
        answer = await ask(frames.request(id_, frame.method, params))
        yield answer
        cursor = answer.result.get("nextCursor") if isinstance(answer.result, dict) else None
        if not cursor:
            return
        params = params | {"cursor": cursor}
    raise TooManyPages(f"{frame.method}: more than {PAGES_MAX} pages")


def tagged(id_: Id) -> str:
    """Return an id as a text that keeps its type."""
    return f"s{id_}" if isinstance(id_, str) else f"n{id_}"


K = TypeVar("K")
V = TypeVar("V")


class Expected(Generic[K, V]):
    """Answers that are awaited, by key."""

    def __init__(self) -> None:
        self._awaited: dict[K, asyncio.Future[V]] = {}

    def __contains__(self, key: K) -> bool:
        """Return whether an answer is awaited, or was given and not taken yet."""
        return key in self._awaited

    @contextlib.contextmanager
    def answer_to(self, key: K) -> Generator[asyncio.Future[V]]:
        """Await an answer in the block."""
        answer = self._awaited[key] = asyncio.get_running_loop().create_future()
        try:
            yield answer
        finally:
            del self._awaited[key]

    def give(self, key: K, answer: V) -> bool:
        """Give an answer; return whether it was awaited. A second one is not."""
        awaited = self._awaited.get(key)
        if awaited is None or awaited.done():
            return False
        awaited.set_result(answer)
        return True

    def fail(self, key: K, error: Exception) -> None:
        """Raise an error for an awaited answer, if none was given yet."""
        awaited = self._awaited.get(key)
        if awaited is not None and not awaited.done():
            awaited.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        """Raise an error for each awaited answer."""
        for key in self._awaited:
            self.fail(key, error)


class Lines:
    """Reader of lines of at most FRAME_BYTES_MAX, on a reader with the limit PIPE_BYTES_MAX.

    The rest of a longer line is skipped. A cancelled `next` loses nothing.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._begun = bytearray()
        self._passed_over = False

    async def next(self) -> bytes | None:
        """Return the next line that is not empty; None at the end. Raises BadFrame for a longer
        one.
        """
        while True:
            is_end = False
            try:
                part = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as over:
                self._take(await self._reader.readexactly(over.consumed))
                continue
            except asyncio.IncompleteReadError as end:
                part, is_end = end.partial, True
            if not self._begun:  # as most lines: whole
                line = part
            else:
                self._take(part)
                line = bytes(self._begun)
                self._begun.clear()
            if self._passed_over:
                self._passed_over = False
                raise BadFrame(f"a line of more than {FRAME_BYTES_MAX:,} bytes", line)
            if line.strip():
                return line
            if is_end:
                return None

    def _take(self, part: bytes) -> None:
        """Store a part of a line, or the beginning of one that is too long."""
        self._begun += part
        if len(self._begun) > FRAME_BYTES_MAX:
            self._passed_over = True
        if self._passed_over:
            del self._begun[frames.ID_HEAD_BYTES : -frames.ID_TAIL_BYTES]


class Inbox:
    """Bounded queue of a server's frames for its client; `put` waits while it is full."""

    def __init__(self) -> None:
        self._frames: deque[Frame | asyncio.Event] = deque()
        self._bytes = 0
        self._is_over = self._is_awaited = False
        self._room, self._news = asyncio.Event(), asyncio.Event()

    async def put(self, frame: Frame) -> None:
        """Queue a frame once there is room; after the end it is dropped."""
        while self._is_full and not self._is_over:
            self._room.clear()
            await self._room.wait()
        if not self._is_over:
            self._frames.append(frame)
            self._bytes += len(frame.raw)
            self._news.set()

    async def next(self) -> Frame | None:
        """Return the oldest frame; None once the queue has ended and is empty."""
        while True:
            while not self._frames:
                if self._is_over:
                    return None
                await self._more()
            frame = self._frames.popleft()
            if isinstance(frame, asyncio.Event):
                frame.set()
                continue
            self._bytes -= len(frame.raw)
            if not self._is_full:
                self._room.set()
            return frame

    async def _more(self) -> None:
        self._news.clear()
        self._is_awaited = True
        try:
            await self._news.wait()
        finally:
            self._is_awaited = False

    async def flushed(self) -> None:
        """Wait until the frames queued before were taken and their reader asks for the next."""
        if not self._frames and (self._is_over or self._is_awaited):
            return
        passed = asyncio.Event()
        self._frames.append(passed)
        self._news.set()
        await passed.wait()

    def end(self) -> None:
        """End the queue; its frames can still be read."""
        self._is_over = True
        self._room.set()
        self._news.set()

    @property
    def _is_full(self) -> bool:
        return len(self._frames) >= INBOX_MAX or self._bytes >= INBOX_BYTES_MAX


class DroppingInbox(Inbox):
    """Queue that drops every frame, for callers that only need answers."""

    async def put(self, frame: Frame) -> None:
        """Drop the frame."""
        _log.debug("a frame of a server is dropped", bytes=len(frame.raw))


class Server(Protocol):
    """Server over any transport."""

    async def send(self, frame: Frame) -> None:
        """Pass on a frame without an answer. Raises ServerGone."""
        ...

    async def ask(self, frame: Request) -> Answer:
        """Return a request's answer. Raises ServerGone, and NotDone if it surely was not done."""
        ...

    async def next(self) -> Frame | None:
        """Return the next frame that is no answer; None once the server has ended."""
        ...

    async def flushed(self) -> None:
        """Wait until `next` has returned everything received before, so that an answer comes after
        it.
        """
        ...

    async def close(self) -> None:
        """Leave it."""
        ...


class SideRequests:
    """Sends requests that are no steps.

    They may be answered late, or stay open as long as a client listens, and block nothing else.
    Their answers and errors are queued with the server's frames.
    """

    def __init__(self, server: Server, heard: Inbox) -> None:
        self._server = server
        self._heard = heard
        self._asking = set[asyncio.Task[None]]()

    async def ask(self, frame: Request) -> None:
        """Send a request in the background; refuse it if too many are open."""
        if len(self._asking) >= SIDE_REQUESTS_MAX:
            fact = f"{SIDE_REQUESTS_MAX:,} requests are open that are no calls, the limit"
            await self._failed(frame, f"{fact}: wait for answers, or cancel some")
            return
        asking = asyncio.create_task(self._ask(frame))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    def close(self) -> None:
        """Cancel all requests."""
        for each in self._asking:
            each.cancel()

    async def _ask(self, frame: Request) -> None:
        try:
            answer = await self._server.ask(frame)
        except (NotDone, ServerGone) as error:
            await self._failed(frame, str(error))
        else:
            await self._heard.put(answer)

    async def _failed(self, frame: Request, why: str) -> None:
        await self._heard.put(frames.failure(frame.id, frames.INTERNAL_ERROR, why))


class Replies:
    """Answers of the proxy to a server, sent while its output is read further.

    A server that reads nothing until it has written everything would otherwise block the proxy, and
    the proxy it.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._kept: asyncio.Queue[Frame] = asyncio.Queue(REPLIES_MAX)
        self._sending: asyncio.Task[None] | None = None
        self._refused = 0

    async def refuse(self, question: Request, why: str) -> None:
        """Refuse a request of the server; waits if many refusals are unread."""
        self._refused += 1
        if self._refused == 1:  # the others are only counted: their number is unbounded
            _log.warning("a request of the server is refused", method=question.method, why=why)
        await self.put(frames.failure(question.id, frames.INTERNAL_ERROR, why))

    async def put(self, frame: Frame) -> None:
        """Queue an answer; waits if many answers are unread."""
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())
        await self._kept.put(frame)

    async def close(self) -> None:
        """Stop sending."""
        if self._refused > 1:
            _log.warning("some requests of the server were refused", refused=self._refused)
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def _send(self) -> None:
        while True:
            frame = await self._kept.get()
            with contextlib.suppress(ServerGone):  # waiters for an answer get its end as an error
                await self._server.send(frame)


class Upstream:
    """Process of a server: `ask` sends requests, `next` reads its other frames. Created by
    `started`.
    """

    def __init__(
        self,
        command: Sequence[str],
        process: asyncio.subprocess.Process,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
    ) -> None:
        self._command = command
        self._process = process
        self._stdin = stdin
        self._stdout = stdout
        self._lines = Lines(stdout)
        self._expected = Expected[Id | None, Answer]()
        self._gone: ServerGone | None = None

    @classmethod
    async def started(cls, command: Sequence[str], env: Mapping[str, str] = NOTHING) -> Self:
        """Start the process with these additional variables. Raises ServerNotStarted."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | env,
                limit=PIPE_BYTES_MAX,
                # An interrupt is the proxy's, which ends it in order. It stays in our session: in
                # one of its own Linux would schedule it apart, and each call waits for both.
                process_group=0,
            )
        except OSError as error:
            raise ServerNotStarted(command[0], os.strerror(error.errno or 0)) from None
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise ServerNotStarted(command[0], "it has no pipes")
        return cls(command, process, stdin, stdout)

    async def send(self, frame: Frame) -> None:
        """Pass a frame on. Raises ServerGone."""
        if self._gone is not None:
            raise self._gone
        try:
            self._stdin.write(frame.raw + b"\n")
            await self._stdin.drain()
        except (ConnectionError, RuntimeError):
            raise self._ended("it reads no more") from None

    async def ask(self, frame: Request) -> Answer:
        """Pass a request on, and wait for its answer. Raises ServerGone, and NotDone if it was
        never passed on.
        """
        if self._gone is not None:
            raise NotDone(str(self._gone))
        if frame.id in self._expected:
            raise NotDone(f"a request with id {frame.id!r:.40} is still open: give each its own")
        with self._expected.answer_to(frame.id) as answer:
            await self.send(frame)
            return await answer

    async def next(self) -> Frame | None:
        """Return the server's next frame that no `ask` waits for; None once it has ended.

        A line that is no frame is logged and dropped, as a client would.
        """
        while True:
            try:
                line = await self._lines.next()
                if line is None:
                    self._expected.fail_all(self._ended(await self._code()))
                    return None
                frame = frames.read(line, from_server=True)
            except BadFrame as bad:
                _log.warning("the server wrote an invalid frame: it is dropped", why=str(bad))
                fact = f"the server's answer is no frame ({bad.fact})"
                self._expected.fail(bad.id, ServerGone(f"{fact}: it may have been done"))
                continue
            if not isinstance(frame, Answer) or frame.id not in self._expected:
                return frame
            self._expected.give(frame.id, frame)

    async def flushed(self) -> None:
        """Do nothing: frames before an answer are returned by `next` before it."""

    async def close(self) -> None:
        """End the process as the protocol says: close its stdin, then SIGTERM, then SIGKILL.

        Its output meanwhile is discarded, since it may block on it. No `next` may be running.
        """
        discarding = asyncio.create_task(self._discard())
        try:
            await self._close()
        finally:
            discarding.cancel()
            await asyncio.wait([discarding])

    async def _discard(self) -> None:
        while await self._stdout.read(DISCARDED_BYTES):
            pass

    async def _close(self) -> None:
        self._stdin.close()
        for end in (None, self._process.terminate, self._process.kill):
            with contextlib.suppress(ProcessLookupError):
                if end is not None:
                    end()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_WAIT_S):
                    await self._process.wait()
                    return

    async def _code(self) -> str:
        try:
            async with asyncio.timeout(CLOSE_WAIT_S):
                return f"exit code {await self._process.wait()}"
        except TimeoutError:
            return "it closed its stdout"

    def _ended(self, why: str) -> ServerGone:
        self._gone = self._gone or ServerGone(
            f"the server {self._command[0]!r} has ended ({why}): see its stderr"
        )
        return self._gone


# ------------------------------------------------------------ several servers as one

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""Requests for a list, and the field of a result that holds it."""

NAMED = (CALL, "prompts/get")
"""Requests that name a tool or a prompt."""

BY_ADDRESS = ("resources/read", "resources/subscribe", "resources/unsubscribe")

COMPLETE = "completion/complete"


class McpMultiplexer:
    """Several servers by name as one; `ask` and `next` are as those of one."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = dict(servers)
        self._heard = Inbox()
        self._of_resource: dict[str, str] = {}
        self._beside = SideRequests(self, self._heard)
        self._hearing = [
            asyncio.ensure_future(self._hear(name, server)) for name, server in servers.items()
        ]

    async def send(self, frame: Frame) -> None:
        """Pass a frame on: an answer to its server, any other to all. Raises ServerGone."""
        if isinstance(frame, Request):
            await self._beside.ask(frame)
            return
        if isinstance(frame, Answer):
            name, _, id_ = str(frame.id).partition(BETWEEN)
            if name in self._servers:
                await self._servers[name].send(frame.under(_own_id(id_)))
            return
        outcomes = await self._ask_all(lambda server: server.send(frame))
        lost = [each for each in outcomes.values() if isinstance(each, ServerGone)]
        if len(lost) == len(outcomes):
            raise lost[0]

    async def ask(self, frame: Request) -> Answer:
        """Return a request's answer, by the server that owns its name, or by all. Raises
        ServerGone, NotDone.
        """
        if frame.method in LISTS:
            return await self._all_pages(frame, LISTS[frame.method])
        if frame.method in {INITIALIZE, DISCOVER}:
            return await self._merged_greeting(frame)
        if frame.method in NAMED:
            return await self._named(frame, frame.params)
        reference = frame.params.get("ref")
        if frame.method == COMPLETE and isinstance(reference, dict):
            return await self._completed(frame, reference)
        if frame.method in BY_ADDRESS:
            return await self._route_by_address(frame, str(frame.params.get("uri")))
        answers = await self._answers(frame)
        return next(iter(answers.values()))

    async def next(self) -> Frame | None:
        """Return a server's next frame that is no answer; None once all have ended."""
        return await self._heard.next()

    async def flushed(self) -> None:
        """Wait until `next` has returned everything received before."""
        await asyncio.gather(*(each.flushed() for each in self._servers.values()))
        await self._heard.flushed()

    async def close(self) -> None:
        """Disconnect from all servers."""
        self._beside.close()
        for task in self._hearing:
            task.cancel()
        await asyncio.wait(self._hearing)
        await self._ask_all(lambda server: server.close())

    async def _hear(self, name: str, server: Server) -> None:
        while (frame := await server.next()) is not None:
            if isinstance(frame, Request):
                id_ = f"{name}{BETWEEN}{tagged(frame.id)}"
                frame = frames.request(id_, frame.method, frame.params)
            await self._heard.put(frame)
        if all(each.done() or each is asyncio.current_task() for each in self._hearing):
            self._heard.end()

    async def _ask_all(self, do: Any, among: Sequence[str] | None = None) -> dict[str, Any]:
        """Return each server's result or error."""
        names = list(self._servers) if among is None else list(among)
        outcomes = await asyncio.gather(
            *(do(self._servers[name]) for name in names), return_exceptions=True
        )
        for each in outcomes:
            if isinstance(each, BaseException) and not isinstance(each, NotDone | ServerGone):
                raise each
        return dict(zip(names, outcomes, strict=True))

    async def _answers(
        self, frame: Request, among: Sequence[str] | None = None
    ) -> dict[str, Answer]:
        """Return the answers of the servers that answered. Raises the first error if none did."""
        outcomes = await self._ask_all(lambda server: server.ask(frame), among)
        answers = {name: each for name, each in outcomes.items() if isinstance(each, Answer)}
        for name, error in outcomes.items():
            if not isinstance(error, Answer):
                if not answers:
                    raise error
                _log.warning("a server did not answer", server=name, why=str(error))
        return answers

    # Routing of a request to its server

    async def _named(self, frame: Request, holder: dict[str, Any]) -> Answer:
        server, name = self._split(str(holder.get("name")))
        params = frame.params | {"name": name}
        return await server.ask(frames.request(frame.id, frame.method, params))

    async def _completed(self, frame: Request, reference: dict[str, Any]) -> Answer:
        if "name" not in reference:
            return await self._route_by_address(frame, str(reference.get("uri")))
        server, name = self._split(str(reference["name"]))
        params = frame.params | {"ref": reference | {"name": name}}
        return await server.ask(frames.request(frame.id, frame.method, params))

    def _split(self, name: str) -> tuple[Server, str]:
        prefix, _, own = name.partition(BETWEEN)
        if prefix not in self._servers or not own:
            names = ", ".join(f"{each}{BETWEEN}" for each in self._servers)
            near = nearest(prefix, list(self._servers))
            raise NotDone(f"{name!r:.80} is of no server: {near}names begin with one of {names}")
        return self._servers[prefix], own

    async def _route_by_address(self, frame: Request, uri: str) -> Answer:
        """Forward to the server that lists the address, else to the first that knows it."""
        known = self._of_resource.get(uri)
        among = [known] if known is not None else list(self._servers)
        answers = await self._answers(frame, among)
        good = [each for each in answers.values() if each.error is None]
        return good[0] if good else next(iter(answers.values()))

    # Requests to all servers

    async def _merged_greeting(self, frame: Request) -> Answer:
        """Return one greeting for all: the union of their capabilities, in a version that all
        speak.
        """
        answers = await self._answers(frame)
        for answer in answers.values():
            if answer.error is not None:
                return answer
        results = {name: answer.result for name, answer in answers.items()}
        result = dict(next(iter(results.values())))
        result["capabilities"] = {}
        for each in results.values():
            _merge(result["capabilities"], each.get("capabilities", {}))
        instructions = [
            f"{name}: {each['instructions']}"
            for name, each in results.items()
            if each.get("instructions")
        ]
        if instructions:
            result["instructions"] = "\n\n".join(instructions)
        if "serverInfo" in result:
            result["serverInfo"] = {"name": "+".join(results), "version": "1"}
        if frame.method == INITIALIZE:
            result["protocolVersion"] = _common_version(results)
        elif "supportedVersions" in result:
            shared = [
                version
                for version in result["supportedVersions"]
                if all(version in each.get("supportedVersions", []) for each in results.values())
            ]
            result["supportedVersions"] = shared
        return frames.result(frame.id, result)

    async def _all_pages(self, frame: Request, field: str) -> Answer:
        """Return all pages of all servers, one after the other."""
        outcomes = await self._ask_all(lambda server: _pages(server, frame, field))
        result: dict[str, Any] = {}
        listed: list[Any] = []
        errors: list[Answer] = []
        for name, each in outcomes.items():
            if isinstance(each, Answer):
                errors.append(each)  # it has no such list
                continue
            if isinstance(each, BaseException):
                _log.warning("a server did not answer a list request", server=name, why=str(each))
                continue
            first, items = each
            result = result or {k: v for k, v in first.items() if k not in (field, "nextCursor")}
            listed += [self._as_of(name, field, item) for item in items]
        if len(errors) == len(outcomes):
            return errors[0]
        if all(isinstance(each, BaseException) for each in outcomes.values()):
            raise next(iter(outcomes.values()))
        result[field] = listed
        return frames.result(frame.id, result)

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
    """Return the first page and the items of all pages, or an answer without a list."""
    first: dict[str, Any] | None = None
    items: list[Any] = []
    async for answer in pages(frame, server.ask):
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
        _log.warning("the servers speak different versions: the oldest is used", **versions)
    return min(versions.values(), key=str)


def _own_id(tagged: str) -> Id:
    return int(tagged[1:]) if tagged.startswith("n") else tagged[1:]
