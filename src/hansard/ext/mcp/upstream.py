"""Servers of the proxy: a process over its stdin and stdout, and several servers as one.

A file in the form of MCP clients (`mcpServers`) names several. Of an entry, `command`, `args` and
`env`, or `url` and `headers` are read; `${NAME}` in any of them is an environment variable. The
module is long because one process, several of them and translated ones share one interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
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
    VERSION_KEY,
    Answer,
    BadFrame,
    Frame,
    Id,
    Notification,
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


class Login(msgspec.Struct, frozen=True):
    """Login of the proxy at a server by OAuth's client credentials.

    Attributes:
        client_id: The client's id.
        secret: The client's secret.
        issuer: The authorization server that issued them; they are sent nowhere else.
        scope: Scopes to request; None for those that the server names.
    """

    client_id: str
    secret: str
    issuer: str
    scope: str | None = None


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


# Bridge between a client and a server whose revisions of the protocol have no common version.
#
# If both speak one version, frames pass unchanged, and the bridge only observes. A client of
# 2025-11-25 or earlier, refused by a server of only 2026-07-28 (`initialize`), has its handshake
# answered from `server/discover`; for a client that insists on 2026-07-28 before an older server,
# the bridge makes the handshake. Afterwards it rewrites the differences: versions and
# capabilities in each request, the kinds of results, and the server's requests to the client,
# which the older era sends as requests and the newer one as a result after which the client
# repeats its request.
#
# Written from the texts of the two revisions. Not translated: subscriptions, and log levels.

NEW, OLD = "2026-07-28", "2025-11-25"
"""Versions offered when the bridge has to choose one."""

META = "io.modelcontextprotocol/"
"""Prefix of the names in `_meta` that the newer era writes in each request."""

INFO, CAPABILITIES, SERVER_INFO = (
    f"{META}clientInfo",
    f"{META}clientCapabilities",
    f"{META}serverInfo",
)

ONLY_NEW = ("resultType", "ttlMs", "cacheScope")
"""Fields of a result that the older era lacks."""

PROBE_S = 10.0
"""Seconds for a server to report its era; one without an answer is of the older era."""

SUSPENDED_MAX = 100
"""Most requests suspended for an answer of their client; for another one the oldest is cancelled.
"""

ROUNDS_MAX = 20
"""Most requests of a server to its client within one request."""

CACHED = (
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)
"""Methods whose results have a cache lifetime in the newer era."""

PING = "ping"

LOCAL = (PING, "logging/setLevel")
"""Requests of the older era that need no request to a server of the newer one."""

OWN = "hansard-bridge"
"""Prefix of the ids of the bridge's own requests."""


class _OpenRequest(msgspec.Struct, eq=False):
    """Open request at a server of the older era.

    `asks` are the server's requests to the client meanwhile, `put` those passed to the client.
    """

    answer: asyncio.Task[Answer]
    asks: asyncio.Queue[Request] = msgspec.field(
        default_factory=lambda: asyncio.Queue(QUESTIONS_MAX)
    )
    put: list[Request] = []


class Bridge:
    """Server seen by a client of either era; `ask` and `next` are as in `Upstream`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._heard = Inbox()
        self._replies = Replies(server)
        self._hearing = asyncio.ensure_future(self._hear())
        self._translates: str | None = None  # the server's era
        self._settled = False
        self._settling = asyncio.Lock()
        self._client: dict[str, Any] = {}
        self._server_info: Any = None
        self._expected = Expected[Id | None, Answer]()
        self._open: list[_OpenRequest] = []
        self._suspended: dict[str, _OpenRequest] = {}
        self._number = 0
        self._ids: dict[Id, Id] = {}  # a client's request: its id at the server

    async def send(self, frame: Frame) -> None:
        """Pass on a frame without an answer. Raises ServerGone."""
        if self._is_plain:
            await self._server.send(frame)
            return
        if isinstance(frame, Answer) and frame.id in self._expected:
            self._expected.give(frame.id, frame)  # a second answer is dropped
            return
        if self._translates == NEW:
            if isinstance(frame, Answer):
                return  # too late, or without a request: the newer era asks only by results
            if isinstance(frame, Request) and frame.method in LOCAL:
                await self._heard.put(frames.result(frame.id, {}))
                return
            if isinstance(frame, Notification) and frame.method != "notifications/cancelled":
                return  # of the handshake, and of roots, which the newer era lacks
        if isinstance(frame, Notification) and frame.calls_off in self._ids:
            params = frame.params | {"requestId": self._ids.pop(frame.calls_off)}
            frame = frames.notification(frame.method, params)
        await self._server.send(frame)

    async def ask(self, frame: Request) -> Answer:
        """Return a request's answer in the client's era. Raises ServerGone, NotDone."""
        if self._is_plain:
            return await self._server.ask(frame)
        if not self._settled:
            async with self._settling:
                if not self._settled:
                    return await self._first(frame)
        if self._translates == NEW:
            return await self._to_new(frame)
        if self._translates == OLD and _is_new(frame):
            return await self._to_old(frame)
        return await self._server.ask(frame)

    @property
    def _is_plain(self) -> bool:
        """True if both are known to speak one era: frames then pass unread."""
        return self._settled and self._translates is None

    async def next(self) -> Frame | None:
        """Return the server's next frame that is no answer; None once it has ended."""
        return await self._heard.next()

    async def flushed(self) -> None:
        """Wait until `next` has returned everything received before."""
        await self._server.flushed()
        await self._heard.flushed()

    async def close(self) -> None:
        """Disconnect from the server."""
        self._hearing.cancel()
        await asyncio.wait([self._hearing])
        for each in self._suspended.values():
            each.answer.cancel()
        await self._replies.close()
        await self._server.close()

    async def _hear(self) -> None:
        try:
            while (frame := await self._server.next()) is not None:
                if self._translates == OLD and isinstance(frame, Request):
                    await self._assign_request(frame)
                elif isinstance(frame, Answer) and str(frame.id).startswith(OWN):
                    _log.warning("the server answered twice: the second answer is dropped")
                else:
                    await self._heard.put(frame)
        finally:
            self._heard.end()

    async def _assign_request(self, frame: Request) -> None:
        """Assign a server's request to an open request of the client: no frame names it in the
        older era.
        """
        opened = next(iter((*self._open, *self._suspended.values())), None)
        if frame.method == PING:
            await self._replies.put(frames.result(frame.id, {}))
        elif opened is None:
            why = "its client accepts requests only during a request of its own, and none is open"
            await self._replies.refuse(frame, why)
        elif opened.asks.full():
            await self._replies.refuse(frame, f"{QUESTIONS_MAX:,} requests wait for the client")
        else:
            opened.asks.put_nowait(frame)

    # Detection of the era

    async def _first(self, frame: Request) -> Answer:
        """Answer the first request, which shows whether the two share an era."""
        answer = await self._server.ask(frame)
        if frame.method == INITIALIZE:
            self._settled = answer.error is None
            return answer if self._settled else await self._handshake_for_new_server(frame, answer)
        if not _is_new(frame) or frame.method == DISCOVER:
            self._settled = answer.error is None and _is_new(frame)
            return answer
        is_old = answer.error is None and not _has_result_type(answer.result)
        if answer.error is not None:
            is_old = (await self._describe_server(frame.params["_meta"])) is None
        self._settled = True
        if not is_old:
            return answer
        await self._greet(frame.params["_meta"])
        if answer.error is None:
            return _as_new(frame, answer, self._server_info)
        return await self._to_old(frame)

    async def _handshake_for_new_server(self, frame: Request, refused: Answer) -> Answer:
        """Answer the handshake of a client whose server has none."""
        self._client = {
            INFO: frame.params.get("clientInfo", {}),
            CAPABILITIES: frame.params.get("capabilities", {}),
        }
        description = await self._describe_server({VERSION_KEY: NEW, **self._client})
        if description is None:
            return refused
        self._settled, self._translates = True, NEW
        _log.warning("client and server share no version: translated", client=OLD, server=NEW)
        unnamed = {"name": "server", "version": "0"}
        result = {
            "protocolVersion": frame.params.get("protocolVersion", OLD),
            "capabilities": description.get("capabilities", {}),
            "serverInfo": frames.meta_of(description).get(SERVER_INFO, unnamed),
        }
        if description.get("instructions"):
            result["instructions"] = description["instructions"]
        return frames.result(frame.id, result)

    async def _describe_server(self, meta: dict[str, Any]) -> dict[str, Any] | None:
        """Return the self-description of a server of the newer era; None for an older one."""
        answer = await self._own(DISCOVER, {"_meta": {**meta, VERSION_KEY: NEW}})
        result = None if answer is None else answer.result
        if isinstance(result, dict) and NEW in (result.get("supportedVersions") or ()):
            return result
        return None

    async def _greet(self, meta: dict[str, Any]) -> None:
        """Make the handshake for a client that has none."""
        self._translates = OLD
        _log.warning("client and server share no version: translated", client=NEW, server=OLD)
        params = {
            "protocolVersion": OLD,
            "capabilities": meta.get(CAPABILITIES, {}),
            "clientInfo": meta.get(INFO, {"name": "client", "version": "0"}),
        }
        answer = await self._own(INITIALIZE, params)
        if answer is None or answer.error is not None:
            why = "no answer" if answer is None else str(answer.error)
            raise NotDone(f"the server shares no version with its client ({NEW}): {why}")
        self._server_info = (answer.result or {}).get("serverInfo")
        await self._server.send(frames.notification("notifications/initialized", {}))

    async def _own(self, method: str, params: dict[str, Any]) -> Answer | None:
        """Return the answer to a request of the bridge's own; None if there is none in time."""
        id_ = self._new_id()
        try:
            async with asyncio.timeout(PROBE_S):
                return await self._server.ask(frames.request(id_, method, params))
        except TimeoutError:
            return None

    def _new_id(self) -> str:
        self._number += 1
        return f"{OWN}-{self._number}"

    async def _ask(self, frame: Request, params: dict[str, Any]) -> Answer:
        """Send a client's request with other parameters, under a new id.

        A late second answer to an earlier request is then not mistaken for its answer.
        """
        id_ = self._ids[frame.id] = self._new_id()
        try:
            answer = await self._server.ask(frames.request(id_, frame.method, params))
        except (NotDone, ServerGone):
            self._ids.pop(frame.id, None)
            raise
        self._ids.pop(frame.id, None)  # a cancelled one stays until the server knows
        return answer.under(frame.id)

    # A client of the older era, a server of the newer

    async def _to_new(self, frame: Request) -> Answer:
        params = dict(frame.params)
        params["_meta"] = {**frames.meta_of(params), VERSION_KEY: NEW, **self._client}
        for _ in range(ROUNDS_MAX):
            answer = await self._ask(frame, params)
            result = answer.result
            if not isinstance(result, dict) or result.get("resultType") != "input_required":
                return _as_old(frame, answer)
            question = result.get("inputRequests") or {}
            answers = [await self._put(each) for each in question.values()]
            params["inputResponses"] = dict(zip(question, answers, strict=True))
            params["requestState"] = result.get("requestState")
        raise NotDone(f"the server sent more than {ROUNDS_MAX} requests to its client")

    async def _put(self, question: dict[str, Any]) -> dict[str, Any]:
        """Pass a request of the server to the client."""
        id_ = self._new_id()
        request = frames.request(id_, question["method"], question.get("params", {}))
        with self._expected.answer_to(id_) as awaited:
            await self._heard.put(request)
            answer = await awaited
        if answer.error is not None:
            raise NotDone(f"the client did not answer the server's request: {answer.error}")
        content: dict[str, Any] = answer.result
        return content

    # A client of the newer era, a server of the older

    async def _to_old(self, frame: Request) -> Answer:
        if frame.method == DISCOVER:
            return await self._server.ask(frame)
        state = frame.params.get("requestState")
        if isinstance(state, str) and state in self._suspended:
            return await self._go_on(frame, self._suspended.pop(state))
        answer = asyncio.ensure_future(self._ask(frame, _old_params(frame.params)))
        return await self._answer_or_request(frame, _OpenRequest(answer))

    async def _answer_or_request(
        self, frame: Request, opened: _OpenRequest, answers: Sequence[Answer] = ()
    ) -> Answer:
        """Return the server's answer after these answers of the client.

        If the server makes another request first, return a result after which the client repeats
        its request.
        """
        self._open.append(opened)
        asking = asyncio.ensure_future(opened.asks.get())
        try:
            for each in answers:
                await self._server.send(each)
            either: set[asyncio.Future[Any]] = {opened.answer, asking}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            opened.answer.cancel()
            raise
        finally:
            self._open.remove(opened)
            asking.cancel()
        if opened.answer.done():
            late = [asking.result()] if asking.done() and not asking.cancelled() else []
            while not opened.asks.empty():
                late.append(opened.asks.get_nowait())
            for question in late:  # they belong to another request, or to none
                await self._assign_request(question)
            return _as_new(frame, opened.answer.result(), self._server_info)
        opened.put = [asking.result()]
        while not opened.asks.empty():
            opened.put.append(opened.asks.get_nowait())
        state = f"{OWN}-{secrets.token_hex(16)}"
        self._suspended[state] = opened
        if len(self._suspended) > SUSPENDED_MAX:
            await self._give_up(self._suspended.pop(next(iter(self._suspended))))
        result = {
            "resultType": "input_required",
            "inputRequests": {
                str(question.id): {"method": question.method, "params": question.params}
                for question in opened.put
            },
            "requestState": state,
        }
        return frames.result(frame.id, result)

    async def _give_up(self, opened: _OpenRequest) -> None:
        """Cancel a request whose client did not answer its server's request."""
        opened.answer.cancel()
        while not opened.asks.empty():
            opened.put.append(opened.asks.get_nowait())
        for question in opened.put:
            await self._replies.refuse(question, "its client sent no answer")

    async def _go_on(self, frame: Request, opened: _OpenRequest) -> Answer:
        responses = frame.params.get("inputResponses")
        answers: list[Answer] = []
        for question in opened.put:
            result = responses.get(str(question.id)) if isinstance(responses, dict) else None
            if result is None:
                no = frames.failure(question.id, frames.INVALID_PARAMS, "nothing was answered")
                answers.append(no)
            else:
                answers.append(frames.result(question.id, result))
        opened.put = []
        return await self._answer_or_request(frame, opened, answers)


def _is_new(frame: Request) -> bool:
    return VERSION_KEY in frames.meta_of(frame.params)


def _has_result_type(result: Any) -> bool:
    return isinstance(result, dict) and "resultType" in result


def _old_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters without fields of the newer era."""
    meta = _without(params["_meta"])
    only_new = ("_meta", "inputResponses", "requestState")
    result = {name: value for name, value in params.items() if name not in only_new}
    return result | ({"_meta": meta} if meta else {})


def _as_old(frame: Request, answer: Answer) -> Answer:
    """Convert a result to the older era."""
    if answer.error is not None or not isinstance(answer.result, dict):
        return answer
    result = {name: value for name, value in answer.result.items() if name not in ONLY_NEW}
    kept = _without(frames.meta_of(result))
    result.pop("_meta", None)
    if kept:
        result["_meta"] = kept
    return frames.result(frame.id, result)


def _as_new(frame: Request, answer: Answer, server: Any) -> Answer:
    """Convert a result to the newer era, under the id of the current request."""
    if answer.error is not None:
        return answer.under(frame.id)
    result = dict(answer.result) if isinstance(answer.result, dict) else {}
    result.setdefault("resultType", "complete")
    if frame.method in CACHED:
        result.setdefault("ttlMs", 0)
        result.setdefault("cacheScope", "private")
    if server is not None:
        result["_meta"] = {SERVER_INFO: server, **frames.meta_of(result)}
    return frames.result(frame.id, result)


def _without(meta: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in meta.items() if not name.startswith(META)}
