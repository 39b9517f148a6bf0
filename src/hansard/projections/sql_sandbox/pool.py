"""Workers of the SQL door: started ahead, bounded, watched, replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path

import msgspec

from hansard.projections.errors import SqlBusy, SqlClosed, TooCostly
from hansard.projections.sql_sandbox.limits import (
    HEAD_BYTES_MAX,
    LENGTH,
    AnswerHead,
    Ask,
    Bounds,
    Hello,
    framed,
)

START_S = 30.0
"""Longest start of a worker, on a machine that is busy."""

SLOW_S = 0.25
"""Of a core, or where that is not told of time: who has taken so much gives way to others. Most
questions take some milliseconds; on a machine that is busy those are a long time.
"""

SLOW_LOOK_S_MIN = 0.05

SLOW_NICE = 10
"""A tenth of what this process gets: with more, 0.3 s of work are not done in 10 s beside ten
others.
"""

NICE_MAX = 19

STARVED = 0.1
"""Who gave way and had less of a core than this until half of its time comes as others do again: it
would be stopped for what they took.
"""

BUSY = 0.5
"""A question that was stopped for its time, and had less of a core, is told that others had it."""

END_S = 5.0
"""How long closing waits for workers that were killed; the kernel ends them, whoever waits."""

READ_BYTES = 64 * 1024

ANSWER_SLACK_BYTES = 16 * 1024 * 1024
"""Of Arrow's own, beyond an answer's bytes."""


Take = Callable[[bytes], None]
"""Is given each chunk of an answer that is streamed, an Arrow IPC stream of its own."""

NOT_STARTED = "a worker of the SQL door does not start"


class Worker:
    """One worker process. It answers one question at a time."""

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
        """Wait for its first word. Raises SqlClosed."""
        try:
            async with asyncio.timeout(START_S):
                self.hello = msgspec.json.decode(await self._head(), type=Hello)
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            raise SqlClosed(NOT_STARTED) from error

    async def ask(
        self, question: Ask, tables: Iterable[bytes] = (), take: Take | None = None
    ) -> tuple[AnswerHead, bytes]:
        """Have it answer; `tables` are those that the question names, and `take` is given the
        chunks of one that is streamed. Raises TooCostly, and what `take` raises, and then it is
        killed, as it is when cancelled.
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
        """Whether it still runs. One that was killed does not, however long it takes to give back
        its memory.
        """
        return not self._killed and self._has_ended() is False

    def kill(self) -> None:
        """Have it end, and whatever it started. What gave way to others is let come first again: it
        gives back its memory in its own time, of which it would get next to none.
        """
        self._killed = True
        if self._has_ended() is not None:
            self._weigh(0)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _has_ended(self) -> bool | None:
        """Whether it has ended, as the kernel says: a loop that is busy, or was closed, hears of it
        late or never. None if its end was heard of by somebody: its number may be another's by now.
        """
        if self._process.returncode is not None:
            return None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return None

    async def ended(self, wait_s: float | None = None) -> int | None:
        """How it ended, or None if it has not within `wait_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._drained()
                await self._process.wait()
        return self._process.returncode

    async def _drained(self) -> None:
        """Read what it had said before it was killed: its pipe is closed at the end of it."""
        if self._killed and self._process.stdout is not None:
            with contextlib.suppress(RuntimeError):  # somebody reads it already
                while await self._process.stdout.read(READ_BYTES):
                    pass

    async def _head(self) -> bytes:
        (length,) = LENGTH.unpack(await self._exactly(LENGTH.size))
        return await self._exactly(length, HEAD_BYTES_MAX)

    async def _chunk(self, memory_mib: int) -> bytes:
        """The next chunk of an answer; empty after the last. DuckDB held it, so it is no larger
        than what that may hold.
        """
        (length,) = LENGTH.unpack(await self._exactly(LENGTH.size))
        return await self._exactly(length, memory_mib * 2**20 + ANSWER_SLACK_BYTES)

    async def _exactly(self, count: int, most: int = LENGTH.size) -> bytes:
        if count > most:  # a worker that says more than it may is not itself any more
            raise asyncio.IncompleteReadError(b"", count)
        assert self._process.stdout is not None  # noqa: S101 -- it was started with a pipe
        return await self._process.stdout.readexactly(count)

    async def _yield_cores(self, before_s: float, within_s: float) -> None:
        """Give way to others once the question has taken so much of a core; not after `within_s`
        of time, nor for longer than that where others leave it next to nothing.
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
        """Have it come so much later than this process does."""
        own = os.getpriority(os.PRIO_PROCESS, 0)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self.pid, min(own + nice, NICE_MAX))
        with contextlib.suppress(OSError):  # Linux weighs sessions against each other, if it does
            Path(f"/proc/{self.pid}/autogroup").write_text(f"{nice}", encoding="ascii")


class Pool:
    """A bounded number of workers over one folder, some of them started ahead; with pyarrow, or
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
        """Start what is to be started ahead; who has died meanwhile stands in nobody's place."""
        self._idle = [worker for worker in self._idle if worker.alive]
        target = max(self._bounds.spares, at_least)
        missing = target - len(self._idle) - len(self._starting)
        for _ in range(0 if self._closed else missing):
            task = asyncio.ensure_future(self._spare())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _spare(self) -> None:
        with contextlib.suppress(SqlClosed):  # whoever asks starts one, and hears why it does not
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
        """A worker for one question. Raises SqlBusy, SqlClosed."""
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
            found = await self._take()
        except BaseException:
            self._free.release()
            raise
        try:
            yield found
        finally:
            self._back(found)

    async def _take(self) -> Worker:
        if self._closed:
            raise SqlClosed("the SQL door is closed")
        if not self._idle and self._starting:
            await asyncio.wait(set(self._starting), return_when=asyncio.FIRST_COMPLETED)
        while self._idle:
            found = self._idle.pop()
            if found.alive:
                self.warm()
                return found
        self.warm()
        return await self._started()

    def _back(self, worker: Worker) -> None:
        """Keep what may be asked again; not one that gave way to others."""
        self._idle = [each for each in self._idle if each.alive]
        room = len(self._idle) < max(self._bounds.workers_max, self._bounds.spares)
        fresh = worker.answered < self._bounds.answers_max and not worker.slowed
        if worker.alive and fresh and room and not self._closed:
            self._idle.append(worker)
            self._free.release()
        else:
            self._end(worker, holds=True)

    def _end(self, worker: Worker, *, holds: bool) -> None:
        """Kill it. Nobody waits for that but the place that it holds: until it is gone it has its
        memory, and no other worker may have as much.
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
        """End every worker that is idle; those that answer end when they have."""
        self._closed = True
        for task in list(self._starting):
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        while self._idle:
            self._end(self._idle.pop(), holds=False)
        if self._ending:
            await asyncio.wait(set(self._ending), timeout=END_S)


def _cpu_s(pid: int) -> float:
    """What a process has taken of the cores; 0 where the platform does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    """What a worker needs to start, and nothing that it should not know."""
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
