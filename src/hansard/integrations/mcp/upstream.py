"""A server as a process of ours, over its stdin and stdout; its stderr is ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol, Self

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.domain.errors import CallerError
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.frames import FRAME_BYTES_MAX, Answer, BadFrame, Frame, Id, Request

_log = logger(__name__)

NOTHING: Mapping[str, str] = MappingProxyType({})

CLOSE_WAIT_S = 2.0
"""Seconds that a server has to end once its stdin is closed, and again once it is asked to."""


class ServerNotStarted(CallerError):
    """The command after `--` cannot be run."""

    def __init__(self, command: str, why: str) -> None:
        super().__init__(f"{command!r} cannot be run ({why}): give the server's command after '--'")
        self.command = command


class ServerGone(ConnectionError):
    """The server's process has ended, or writes what is no protocol."""


class Lines:
    """Reads lines of at most FRAME_BYTES_MAX; what a longer one holds is passed over."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self) -> bytes | None:
        """The next line that is not empty; None at the end. Raises BadFrame for a longer one."""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                return end.partial if end.partial.strip() else None
            except asyncio.LimitOverrunError as over:
                start = await self._pass_over(over)
                fact = f"a line of more than {FRAME_BYTES_MAX:,} bytes"
                raise BadFrame(fact, start) from None
            if line.strip():
                return line

    async def _pass_over(self, over: asyncio.LimitOverrunError) -> bytes:
        start = await self._reader.read(frames.SHOWN_CHARACTERS_MAX)
        left = over.consumed - len(start)
        while True:
            if left > 0:
                await self._reader.readexactly(left)
            try:
                await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as more:
                left = more.consumed
                continue
            except asyncio.IncompleteReadError:
                pass
            return start


class Server(Protocol):
    """Who is asked, over whatever transport."""

    async def send(self, raw: bytes) -> None:
        """Pass on what nobody answers. Raises ServerGone."""
        ...

    async def ask(self, id_: Id, raw: bytes) -> Answer:
        """A request's answer. Raises ServerGone, and NotDone where it surely was not done."""
        ...

    async def next(self) -> Frame | None:
        """What is said that answers nothing; None once it has ended."""
        ...

    async def close(self) -> None:
        """Leave it."""
        ...


class Beside:
    """Asks requests that are no steps: they may be answered late, or as long as somebody listens,
    and hold nothing else up. What they come to, an error too, is put where a server is heard.
    """

    def __init__(self, server: Server, heard: asyncio.Queue[Frame | None]) -> None:
        self._server = server
        self._heard = heard
        self._asking = set[asyncio.Task[None]]()

    def ask(self, frame: Request) -> None:
        """Begin to."""
        asking = asyncio.create_task(self._ask(frame))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    def close(self) -> None:
        """Ask no longer."""
        for each in self._asking:
            each.cancel()

    async def _ask(self, frame: Request) -> None:
        try:
            answer = await self._server.ask(frame.id, frame.raw)
        except (NotDone, ServerGone) as error:
            told = {"code": frames.INTERNAL_ERROR, "message": str(error)}
            answer = Answer(frames.error(frame.id, told), frame.id, None, told)
        self._heard.put_nowait(answer)


class Upstream:
    """The process: `ask` it, and read what else it says with `next`. Made by `started`."""

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
        self._lines = Lines(stdout)
        self._waiting: dict[Id, asyncio.Future[Answer]] = {}
        self._gone: ServerGone | None = None

    @classmethod
    async def started(cls, command: Sequence[str], env: Mapping[str, str] = NOTHING) -> Self:
        """Start it, with these variables besides our own. Raises ServerNotStarted."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | env,
                limit=FRAME_BYTES_MAX,
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

    async def send(self, raw: bytes) -> None:
        """Pass a frame on. Raises ServerGone."""
        if self._gone is not None:
            raise self._gone
        try:
            self._stdin.write(raw + b"\n")
            await self._stdin.drain()
        except (ConnectionError, RuntimeError):
            raise self._ended("it reads no more") from None

    async def ask(self, id_: Id, raw: bytes) -> Answer:
        """Pass a request on, and wait for its answer. Raises ServerGone, and NotDone where it was
        never passed on.
        """
        if self._gone is not None:
            raise NotDone(str(self._gone))
        if id_ in self._waiting:
            raise NotDone(f"a request with id {id_!r:.40} is still open: give each its own")
        self._waiting[id_] = asyncio.get_running_loop().create_future()
        try:
            await self.send(raw)
            return await self._waiting[id_]
        finally:
            del self._waiting[id_]

    async def next(self) -> Frame | None:
        """What the server says that is no answer `ask` waits for; None once it has ended. A line
        that is no frame is logged and left out, as a client would.
        """
        while True:
            try:
                line = await self._lines.next()
                if line is None:
                    self._fail(self._ended(await self._code()))
                    return None
                frame = frames.read(line)
            except BadFrame as bad:
                _log.warning("the server wrote what is no frame: it is left out", why=str(bad))
                asked = None if bad.id is None else self._waiting.get(bad.id)
                if asked is not None and not asked.done():
                    fact = f"the server's answer is no frame ({bad.fact})"
                    asked.set_exception(ServerGone(f"{fact}: it may have been done"))
                continue
            if not isinstance(frame, Answer) or frame.id not in self._waiting:
                return frame
            waiting = self._waiting[frame.id]
            if not waiting.done():
                waiting.set_result(frame)

    async def close(self) -> None:
        """End it as the protocol says: its stdin closed, then asked to, then killed."""
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
            f"the server {self._command[0]!r} has ended ({why}): what it wrote to stderr says more"
        )
        return self._gone

    def _fail(self, gone: ServerGone) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(gone)
