"""The SQL door: untrusted queries, answered from published generations of one place."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec
from msgspec.structs import replace

from hansard.domain.choices import NOTHING
from hansard.domain.errors import BadValue
from hansard.projections import snapshots as published
from hansard.projections.errors import NotAllowed, QueryFailed, SqlBusy, SqlClosed, TooCostly
from hansard.projections.snapshots import PublishedSnapshot
from hansard.projections.sql_sandbox import answer as given_tables
from hansard.projections.sql_sandbox.answer import Answer
from hansard.projections.sql_sandbox.rows import (
    HEAD_BYTES_MAX,
    LENGTH,
    SQL_CHARACTERS_MAX,
    AnswerHead,
    Bounds,
    Hello,
    Limits,
    Query,
    TableHeader,
    framed,
)
from hansard.projections.table_files import TableFiles

# Workers of the SQL door: started in advance, bounded, supervised, replaced.

START_S = 30.0
"""Longest start of a worker, in seconds, on a busy machine."""

SLOW_S = 0.25
"""Time on a core, in seconds (elapsed time if the platform does not report it), after which a query
gets a lower priority. Most queries take some milliseconds, which are long on a busy machine.
"""

SLOW_LOOK_S_MIN = 0.05

SLOW_NICE = 10
"""Added niceness of a slow query, which gives it a tenth of this process's share: with more, 0.3 s
of work would not complete in 10 s beside ten others.
"""

NICE_MAX = 19

STARVED = 0.1
"""A slow query that had less of a core than this until half of its time gets its normal priority
again: otherwise it would be stopped for time that others used.
"""

BUSY = 0.5
"""The error of a query stopped for its time mentions the load if it had less of a core than this.
"""

END_S = 5.0
"""Longest wait for killed workers on close, in seconds; the kernel ends them anyway."""

READ_BYTES = 64 * 1024

ANSWER_SLACK_BYTES = 16 * 1024 * 1024
"""Bytes allowed for Arrow's own overhead, beyond an answer's."""


Take = Callable[[bytes], None]
"""Receives each chunk of a streamed answer, an Arrow IPC stream of its own."""

NOT_STARTED = "a worker of the SQL door does not start"


class Worker:
    """One worker process. It answers one query at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self.hello = Hello(network=False, root=False)
        self.answered = 0
        self.slowed = False
        self._killed = False
        self._process = process

    @classmethod
    async def start(cls, folder: Path, *, arrow: bool) -> Worker:
        """Start one over a folder of generations, with pyarrow or without; it is not ready before
        `greeted`. Raises SqlClosed.
        """
        value = (str(folder), *(["arrow"] if arrow else []))
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hansard.projections.sql_sandbox.worker", *value),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=_environment(),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise SqlClosed(NOT_STARTED) from error
        return cls(process)

    async def greeted(self) -> None:
        """Wait for its first message. Raises SqlClosed."""
        try:
            async with asyncio.timeout(START_S):
                self.hello = msgspec.json.decode(await self._head(), type=Hello)
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            raise SqlClosed(NOT_STARTED) from error

    async def ask(
        self, question: Query, tables: Iterable[bytes] = (), take: Take | None = None
    ) -> tuple[AnswerHead, bytes]:
        """Answer a query; `tables` are those that it names, and `take` receives the chunks of a
        streamed answer. Raises TooCostly and the errors of `take`; the worker is killed then, as
        when cancelled.
        """
        limits = question.limits
        before_s = _cpu_s(self.pid)
        slow = asyncio.create_task(self._yield_cores(before_s, limits.wall_s / 2))
        try:
            async with asyncio.timeout(limits.wall_s):
                assert self._process.stdin is not None  # noqa: S101 -- it was started with a pipe
                self._process.stdin.write(framed(question))
                for each in tables:
                    self._process.stdin.write(each)
                    await self._process.stdin.drain()
                await self._process.stdin.drain()
                while take is not None and (chunk := await self._chunk(limits.memory_mib)):
                    take(chunk)
                fields = msgspec.json.decode(await self._head(), type=AnswerHead)
                body = await self._exactly(fields.size, limits.bytes_max + ANSWER_SLACK_BYTES)
        except TimeoutError as error:
            had_s = _cpu_s(self.pid) - before_s
            waited = before_s > 0 and had_s < limits.wall_s * BUSY
            self.kill()
            raise TooCostly("time", f"{limits.wall_s:g} s", had_s if waited else None) from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.kill()
            if await self.ended(END_S) == -signal.SIGXCPU:
                raise TooCostly("cpu", f"{limits.cpu_s} s of one core") from error
            raise TooCostly("memory", f"{limits.memory_mib:,} MiB of memory") from error
        except BaseException:
            self.kill()
            raise
        finally:
            slow.cancel()
        self.answered += 1
        return fields, body

    @property
    def alive(self) -> bool:
        """True if it still runs. One that was killed does not count, even while the kernel frees
        its memory.
        """
        return not self._killed and self._has_ended() is False

    def kill(self) -> None:
        """Kill it and its children. A slow one gets its normal priority back: it frees its memory
        in its own time, of which it would get next to none.
        """
        self._killed = True
        if self._has_ended() is not None:
            self._weigh(0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _has_ended(self) -> bool | None:
        """Return whether it has ended, from the kernel: a busy or closed loop notices it late or
        never. None if its exit was already collected: its process id may belong to another process.
        """
        if self._process.returncode is not None:
            return None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return None

    async def ended(self, wait_s: float | None = None) -> int | None:
        """Wait for its end; return its exit code, or None if it has not ended within `wait_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._drained()
                await self._process.wait()
        return self._process.returncode

    async def _drained(self) -> None:
        """Read the rest of its output after a kill, since its pipe is closed at its end."""
        if self._killed and self._process.stdout is not None:
            with contextlib.suppress(RuntimeError):  # another task reads it already
                while await self._process.stdout.read(READ_BYTES):
                    pass

    async def _head(self) -> bytes:
        (length,) = LENGTH.unpack(await self._exactly(LENGTH.size))
        return await self._exactly(length, HEAD_BYTES_MAX)

    async def _chunk(self, memory_mib: int) -> bytes:
        """Read the next chunk of an answer; empty after the last. DuckDB held it, so DuckDB's
        memory limit bounds its size.
        """
        (length,) = LENGTH.unpack(await self._exactly(LENGTH.size))
        return await self._exactly(length, memory_mib * 2**20 + ANSWER_SLACK_BYTES)

    async def _exactly(self, count: int, most: int = LENGTH.size) -> bytes:
        if count > most:  # a worker that sends more than allowed may be compromised
            raise asyncio.IncompleteReadError(b"", count)
        assert self._process.stdout is not None  # noqa: S101 -- it was started with a pipe
        return await self._process.stdout.readexactly(count)

    async def _yield_cores(self, before_s: float, within_s: float) -> None:
        """Lower the priority of a slow query; not after `within_s` seconds, nor for longer than
        that if it gets next to no time.
        """
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + within_s
        left_s, had_s = SLOW_S, before_s
        while left_s > 0:
            await asyncio.sleep(max(left_s, SLOW_LOOK_S_MIN))
            had_s = _cpu_s(self.pid)
            left_s = SLOW_S - (had_s - before_s) if before_s and had_s else 0.0
        self.slowed = True
        rest_s = until_s - now_s()
        if rest_s > 0:
            self._weigh(SLOW_NICE)
            await asyncio.sleep(rest_s)
            if _cpu_s(self.pid) - had_s < STARVED * rest_s:
                self._weigh(0)

    def _weigh(self, nice: int) -> None:
        """Set its niceness relative to this process."""
        own = os.getpriority(os.PRIO_PROCESS, 0)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self.pid, min(own + nice, NICE_MAX))
        with contextlib.suppress(OSError):  # Linux may schedule by session
            Path(f"/proc/{self.pid}/autogroup").write_text(f"{nice}", encoding="ascii")


class Pool:
    """A bounded number of workers over one folder, some started in advance; all with pyarrow, or
    all without.
    """

    def __init__(self, folder: Path, bounds: Bounds, *, arrow: bool) -> None:
        self._folder = folder
        self._arrow = arrow
        self._bounds = bounds
        self._free = asyncio.Semaphore(bounds.workers_max)
        self._waiting = 0
        self._idle: list[Worker] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    def warm(self, at_least: int = 0) -> None:
        """Start the spare workers that are missing; dead ones are replaced."""
        self._idle = [worker for worker in self._idle if worker.alive]
        target = max(self._bounds.spares, at_least)
        missing = target - len(self._idle) - len(self._starting)
        for _ in range(0 if self._closed else missing):
            task = asyncio.ensure_future(self._spare())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _spare(self) -> None:
        with contextlib.suppress(SqlClosed):  # the next query starts one, and gets the error
            self._idle.append(await self._started())

    async def _started(self) -> Worker:
        worker = await Worker.start(self._folder, arrow=self._arrow)
        try:
            await worker.greeted()
        except BaseException:
            self._end(worker, holds=False)
            raise
        return worker

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncGenerator[Worker, None]:
        """Acquire a worker for one query. Raises SqlBusy, SqlClosed."""
        if self._waiting >= self._bounds.waiting_max:
            raise SqlBusy(f"{self._waiting} questions wait already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._bounds.queue_s):
                await self._free.acquire()
        except TimeoutError as error:
            raise SqlBusy(f"no worker was free within {self._bounds.queue_s:g} s") from error
        finally:
            self._waiting -= 1
        try:
            worker = await self._take()
        except BaseException:
            self._free.release()
            raise
        try:
            yield worker
        finally:
            self._back(worker)

    async def _take(self) -> Worker:
        if self._closed:
            raise SqlClosed("the SQL door is closed")
        if not self._idle and self._starting:
            await asyncio.wait(set(self._starting), return_when=asyncio.FIRST_COMPLETED)
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                self.warm()
                return worker
        self.warm()
        return await self._started()

    def _back(self, worker: Worker) -> None:
        """Keep a worker that may be used again; not one whose priority was lowered."""
        self._idle = [each for each in self._idle if each.alive]
        room = len(self._idle) < max(self._bounds.workers_max, self._bounds.spares)
        fresh = worker.answered < self._bounds.answers_max and not worker.slowed
        if worker.alive and fresh and room and not self._closed:
            self._idle.append(worker)
            self._free.release()
        else:
            self._end(worker, holds=True)

    def _end(self, worker: Worker, *, holds: bool) -> None:
        """Kill a worker. Only its slot waits for its end: until then it has its memory, and no
        other worker may use as much.
        """
        worker.kill()
        task = asyncio.ensure_future(self._gone(worker, holds=holds))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _gone(self, worker: Worker, *, holds: bool) -> None:
        try:
            await worker.ended()
        finally:
            if holds:
                self._free.release()
                self.warm()

    async def close(self) -> None:
        """End every idle worker; the others end after their answer."""
        self._closed = True
        for task in list(self._starting):
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        while self._idle:
            self._end(self._idle.pop(), holds=False)
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=END_S)


def _cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds; 0 if the platform does not report
    it.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    """Return the environment that a worker needs to start, without anything else."""
    kept = {
        name: os.environ[name] for name in ("PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ
    }
    return kept | {
        "PATH": "/usr/bin:/bin",
        "HOME": "/none",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MALLOC_ARENA_MAX": "2",
        "ARROW_IO_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


WAIT_S = 10.0
"""Longest wait for a position to be published, in seconds."""

TRIES_MAX = 3
"""Attempts with the newest generation, since a rebuild removes published ones."""


_NOTHING = "nothing is published of this workspace: run 'hansard up', or ask with 'hansard sql'"


class Door:
    """Answers untrusted SQL. Use it in `async with`; several queries may run at once.

    Every caller sees all that is published there: the workspace's tables, or those of one role
    (`role_tables`). `arrow`: answers may be requested as Arrow, and tables may be passed; the
    workers then load pyarrow.
    """

    def __init__(
        self, place: TableFiles, bounds: Bounds | None = None, *, arrow: bool = False
    ) -> None:
        self._place = place
        self._arrow = arrow
        self._pool: Pool | None = None
        self._bounds = bounds if bounds is not None else Bounds()

    async def __aenter__(self) -> Self:
        """Start the spare workers, at least one, since a query is about to follow."""
        self._pool = Pool(self._place.published, self._bounds, arrow=self._arrow)
        if self._place.published.exists():
            self._pool.warm(at_least=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the workers."""
        if self._pool is not None:
            await self._pool.close()

    async def ask(
        self,
        sql: str,
        limits: Limits | None = None,
        *,
        parameters: Sequence[object] = (),
        tables: Mapping[str, bytes] = NOTHING,
        take: Callable[[Answer], None] | None = None,
        arrow: bool = False,
        wait_for: int | None = None,
        wait_s: float = WAIT_S,
    ) -> Answer:
        """Answer one read-only statement, from the newest generation, or from one at `wait_for`,
        for which it waits.

        parameters: for the placeholders of the statement: texts, numbers, true or false, None,
            dates, times,
        lists of them. tables: additional tables by name, as Arrow IPC streams, for this query only.
        take: receives the rows as they arrive, in at least one answer; the returned answer then has
            none. arrow:
        return Arrow, if the door supports it.

        Raises NotAllowed, QueryFailed, TooCostly, SqlBusy, SqlClosed, Behind, the errors of `take`,
        and BadValue for an invalid parameter or table.
        """
        _check(sql)
        filling = [given_tables.parameter(each) for each in parameters]
        _check_size(filling)
        given_tables.check(tables)
        if wait_for is not None:
            await published.wait_for(self._place, wait_for, wait_s)
        if self._pool is None:
            raise SqlClosed("the SQL door is not open: use it in 'async with'")
        allowed = limits if limits is not None else Limits()
        gone = ""
        for _ in range(TRIES_MAX):
            if published.newest(self._place) is None:
                raise SqlClosed(_missing(self._place))
            async with self._pool.worker() as worker:
                with published.holding(self._place) as generation:
                    question = _question(generation, sql, allowed, filling, tables)
                    question = replace(question, streamed=take is not None, arrow=arrow)
                    receiver = _receiver(question, take)
                    answer, body = await worker.ask(question, tables.values(), receiver)
            if answer.wrong != "gone":
                return _answer(answer, body, question)
            gone = answer.text
        raise SqlClosed(f"the published tables cannot be opened ({gone}): run 'hansard rebuild'")


def _receiver(question: Query, take: Callable[[Answer], None] | None) -> Take | None:
    """Return a receiver of an answer's chunks, if `take` is given."""
    if take is None:
        return None
    return lambda chunk: take(Answer(question.position, chunk, 0, is_arrow=question.arrow))


def _check(sql: str) -> None:
    if len(sql) > SQL_CHARACTERS_MAX:
        raise NotAllowed(
            f"the question has {len(sql):,} characters, the most is {SQL_CHARACTERS_MAX:,}: "
            "shorten it"
        )
    if "\0" in sql:
        raise NotAllowed(f"the question has a NUL at character {sql.index(chr(0))}: remove it")
    with contextlib.suppress(UnicodeEncodeError):
        sql.encode()
        return
    raise NotAllowed("the question has characters that UTF-8 does not: remove them")


def _check_size(parameters: list[object]) -> None:
    size = len(msgspec.json.encode(parameters))
    if size > SQL_CHARACTERS_MAX:
        raise NotAllowed(
            f"the parameters have {size:,} bytes, the most is {SQL_CHARACTERS_MAX:,}: give fewer"
        )


def _missing(place: TableFiles) -> str:
    """Describe why no generation can answer: none was published, or the newest is damaged."""
    damaged = published.unreadable(place)
    if not damaged:
        return _NOTHING
    return (
        f"the published tables are damaged: '{damaged[-1]}' is not what was published; publish "
        "them again with 'hansard up', or ask with 'hansard sql'"
    )


def _question(
    generation: PublishedSnapshot | None,
    sql: str,
    limits: Limits,
    parameters: list[object],
    tables: Mapping[str, bytes],
) -> Query:
    if generation is None:
        raise SqlClosed(_NOTHING)
    items = [TableHeader(name, len(data)) for name, data in tables.items()]
    return Query(generation.folder.name, generation.position, sql, limits, parameters, items)


def _answer(value: AnswerHead, body: bytes, question: Query) -> Answer:
    match value.wrong:
        case None:
            took = (value.engine_ms, value.open_ms)
            cut, is_arrow = value.cut, question.arrow
            return Answer(question.position, body, value.rows, cut, *took, is_arrow)
        case "not allowed":
            raise NotAllowed(value.text)
        case "table":
            raise BadValue(given_tables.WHERE, value.text, "give another, or another name")
        case "memory":
            raise TooCostly("memory", f"{question.limits.memory_mib:,} MiB of memory")
        case _:
            raise QueryFailed(value.text)
