"""Child processes that resume a run, work that a signal ends, and printing that never blocks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any, TextIO

import msgspec

from hansard.agents.runs import refuse_observed
from hansard.cli.common import PIPE_CLOSED
from hansard.cli.opening import reading_run, settings
from hansard.client.beginning import Ended, report_sessions
from hansard.client.opening import data_dir_of
from hansard.client.options import OnDoubt
from hansard.domain.errors import CallerError
from hansard.domain.steps import Effects
from hansard.inspect.savings import Saved, added
from hansard.state.replay import RunView

TERMINATION_S = 10.0
"""Seconds that a terminated program has to end before it is killed."""

OUTPUT_BYTES_MAX = 8_192
"""Bytes at the end of a program's output in which its last line is searched."""


def _not_startable(command: str, error: OSError) -> CallerError:
    why = os.strerror(error.errno or 0)
    return CallerError(f"{command!r} cannot be run ({why}): give a program after '--'")


READ_KINDS = frozenset({"board", "memory", "team", "view"})
"""Kinds of steps that read the record, where they have no effect."""


class ProgramResult(msgspec.Struct):
    """Result of a program.

    Its exit code (128 plus the signal's number if a signal ended it), the sessions of the run that
    it ended, and the state of the run's agents afterwards.
    """

    code: int
    ended: list[Ended]
    view: RunView

    @property
    def saved(self) -> Saved:
        """Sum of what all of its sessions were answered from the record."""
        return added(each.saved for each in self.ended)

    @property
    def without_report(self) -> list[str]:
        """Agents that acted on record but have no session that this program ended."""
        return [name for name in self._others if name not in self.only_read]

    @property
    def only_read(self) -> list[str]:
        """Those without such a session that only read the record: a program that no longer reads
        it makes the same calls.
        """
        states = self.view.agents
        return [
            name
            for name in self._others
            if not states[name].facts
            and all(
                step.effects is Effects.PURE and step.kind in READ_KINDS
                for step in states[name].steps.values()
            )
        ]

    @property
    def _others(self) -> list[str]:
        names = {each.agent for each in self.ended}
        return [name for name, at in self.view.agents.items() if at.steps and name not in names]


async def run(text: str, command: list[str], mode: str) -> ProgramResult:
    """Run a command so that its `hansard.connect()` and `record.run()` resume a run.

    The broker is held while it runs; SIGINT and SIGTERM reach the child, which decides. Raises
    CallerError, NotFound.
    """
    async with reading_run(text) as (workspace, run_id):
        refuse_observed(run_id, (await workspace.states.run(run_id)).life)
        with tempfile.NamedTemporaryFile(prefix="hansard-report-") as file:
            report = Path(file.name)
            code = await child(command, environment(run_id, mode, report))
            ended = [each for each in report_sessions(report) if each.run == run_id]
        view = await workspace.states.run(run_id)
    return ProgramResult(code, ended, view)


async def child(command: list[str], values: dict[str, str]) -> int:
    """Run a command in an environment; return its exit code, or 128 plus the signal's number.

    SIGINT and SIGTERM reach the child, which decides. Raises CallerError.
    """
    with _signals_held() as passing:
        started = await _start(command, env=values)
        passing.append(started)
        code = await started.wait()
    return code if code >= 0 else 128 - code


async def run_detached(
    run_id: str, command: list[str], timeout_s: float | None = None
) -> tuple[int, str]:
    """Run a command that resumes a run, detached from the terminal.

    Returns its exit code (128 plus the signal's number if a signal ended it) and the last line of
    its output. The command is ended when its caller is cancelled. Raises CallerError.
    """
    value = environment(run_id, "resume", Path(os.devnull), OnDoubt.STOP)
    return await run_quietly(command, value, timeout_s=timeout_s)


async def run_quietly(
    command: list[str],
    variables: Mapping[str, str],
    stdin: IO[bytes] | None = None,
    timeout_s: float | None = None,
) -> tuple[int, str]:
    """Run a command in an environment, without a terminal.

    Returns and ends as `run_detached`. Raises CallerError, also if it does not end in time.
    """
    with tempfile.TemporaryFile() as output:
        source = stdin if stdin is not None else asyncio.subprocess.DEVNULL
        streams = {"stdin": source, "stdout": output, "stderr": output}
        child = await _start(command, env=variables, **streams)
        try:
            code = await asyncio.wait_for(child.wait(), timeout_s)
        except TimeoutError:
            message = f"{command[-1]!r:.80} did not end within {timeout_s:g} s: see --timeout"
            raise CallerError(message) from None
        finally:
            if child.returncode is None:
                child.terminate()
                await _end(child)
        output.seek(max(0, output.tell() - OUTPUT_BYTES_MAX))
        lines = output.read().decode(errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return code if code >= 0 else 128 - code, last


async def _end(child: asyncio.subprocess.Process) -> None:
    """Wait for the end of a terminated child; kill one that goes on."""
    try:
        await asyncio.wait_for(child.wait(), TERMINATION_S)
    except TimeoutError:
        child.kill()
        await child.wait()


async def _start(command: list[str], **options: Any) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(*command, **options)
    except OSError as error:
        raise _not_startable(command[0], error) from error


def environment(
    run_id: str, mode: str, report: Path, on_doubt: OnDoubt = OnDoubt.ASK
) -> dict[str, str]:
    """Return this process's environment, with the settings in use and the run to resume."""
    config = settings()
    config = msgspec.structs.replace(
        config, run=run_id, mode=mode, data_dir=data_dir_of(config), report=str(report)
    )
    if mode == "resume" and config.settle is None:
        config = msgspec.structs.replace(config, settle=on_doubt.value)
    fields = {
        field.encode_name: str(value)
        for field in msgspec.structs.fields(config)
        if (value := getattr(config, field.name)) is not None
    }
    return os.environ | fields


@contextlib.contextmanager
def _handling(handlers: dict[signal.Signals, Callable[[], object]]) -> Generator[None]:
    """Call the handlers when their signal arrives."""
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _signals_held() -> Generator[list[asyncio.subprocess.Process]]:
    """Ignore SIGINT, which the terminal also sends to the child, and forward SIGTERM."""
    children: list[asyncio.subprocess.Process] = []

    def terminate() -> None:
        for child in children:
            if child.returncode is None:
                child.terminate()

    with _handling({signal.SIGINT: lambda: None, signal.SIGTERM: terminate}):
        yield children


@contextlib.contextmanager
def termination_event() -> Generator[asyncio.Event]:
    """Provide an event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    with _handling({signal.SIGINT: stop.set, signal.SIGTERM: stop.set}):
        yield stop


async def until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine until it ends or the event is set. Raises its errors."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not working.done():
            working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


WAITING_MAX = 10_000
"""Most queued lines of callers that do not wait, a few MB; further lines are dropped and counted.
"""

END_S = 2.0
"""Longest wait at exit for a reader that has stopped reading, in seconds."""

Show = Callable[[], None]


class BackgroundPrinter:
    """Prints lines of one thread in another, in order; end it with `end()`.

    An error of printing (the reader closed the pipe) stops the printer: `failed` is called in the
    printing thread, nothing more is printed, and `print` and `end` raise the error.
    """

    def __init__(self, missed: Callable[[int], None], failed: Show) -> None:
        """`missed` prints the number of dropped lines in their place."""
        self._missed = missed
        self._failed = failed
        self._left_out = self._queued = self._begun = 0
        self._error: Exception | None = None
        self._ended = False
        self._thread = ThreadPoolExecutor(1, "printer")

    def print_later(self, show: Show) -> None:
        """Queue a line without waiting; it is dropped if the queue is full."""
        if self._ended:
            show()
        elif self._queued - self._begun >= WAITING_MAX:
            self._left_out += 1
        else:
            self._queue(show)

    async def print(self, show: Show) -> None:
        """Print a line and wait until it is printed, however long the reader blocks.

        After a cancellation the line may or may not be printed. Raises the error of printing.
        """
        await asyncio.wrap_future(self._queue(show))
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Wait until all lines are printed; later lines are printed in the caller's thread.

        Raises the error of printing. If the reader blocks longer than END_S, the process exits
        here: the printing thread holds the stream, and the interpreter's shutdown would wait for
        it.
        """
        try:
            self._queue(lambda: None).result(END_S)
        except TimeoutError:
            os._exit(PIPE_CLOSED)
        self._thread.shutdown()
        self._ended = True
        if self._error is not None:
            raise self._error

    def _queue(self, show: Show) -> Future[None]:
        missed, self._left_out = self._left_out, 0
        if missed:
            self._queue(partial(self._missed, missed))
        self._queued += 1
        return self._thread.submit(self._print, show)

    def _print(self, show: Show) -> None:
        self._begun += 1
        if self._error is None:
            try:
                show()
            except Exception as error:  # noqa: BLE001 -- `print` and `end` raise it
                self._error = error
                self._failed()


class LogStream:
    """Stream for a log handler that never blocks on its reader."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._printer = BackgroundPrinter(self._missed, lambda: None)

    def write(self, text: str) -> None:
        """Queue a line."""
        self._printer.print_later(lambda: self._write(text))

    def flush(self) -> None:
        """Do nothing: each line is flushed when it is written."""

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def end(self) -> None:
        """Wait for queued lines, for a limited time: see `BackgroundPrinter.end`."""
        with contextlib.suppress(OSError, ValueError):  # the reader is gone: nothing to report to
            self._printer.end()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _missed(self, many: int) -> None:
        text = "lines of the log were dropped: the reader was blocked"
        self._write(f'{{"event": "{text}", "level": "warning", "lines": {many}}}\n')


@contextlib.contextmanager
def log_stream(stream: TextIO) -> Generator[LogStream]:
    """Open a non-blocking stream for the log of a serving command."""
    made = LogStream(stream)
    try:
        yield made
    finally:
        made.end()
