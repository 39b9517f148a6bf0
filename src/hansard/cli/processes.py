"""Child processes that resume a run, and foreground work that a signal ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import msgspec

from hansard.cli.opening import reading_run, settings
from hansard.client.beginning import Ended, report_sessions
from hansard.client.opening import data_dir_of
from hansard.client.options import OnDoubt
from hansard.domain.errors import CallerError
from hansard.inspect.savings import Saved, added
from hansard.state.replay import RunView

OUTPUT_BYTES_MAX = 8_192
"""Bytes at the end of a program's output in which its last line is searched."""


class NotStartable(CallerError):
    """Error: the command after `--` cannot be run."""

    def __init__(self, command: str, why: str) -> None:
        super().__init__(f"{command!r} cannot be run ({why}): give a program after '--'")
        self.command = command


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
        """Agents that have calls on record but no session that this program ended."""
        names = {each.agent for each in self.ended}
        return [
            name for name, state in self.view.agents.items() if state.steps and name not in names
        ]


async def run(text: str, command: list[str], mode: str) -> ProgramResult:
    """Run a command so that its `hansard.connect()` and `record.run()` resume a run.

    The broker is held while it runs; SIGINT and SIGTERM reach the child, which decides. Raises
    NotStartable, NotFound, Ambiguous.
    """
    async with reading_run(text) as (workspace, run_id):
        with tempfile.NamedTemporaryFile(prefix="hansard-report-") as file:
            report = Path(file.name)
            code = await _run(command, environment(run_id, mode, report))
            ended = [each for each in report_sessions(report) if each.run == run_id]
        view = await workspace.states.run(run_id)
    return ProgramResult(code if code >= 0 else 128 - code, ended, view)


async def run_detached(run_id: str, command: list[str]) -> tuple[int, str]:
    """Run a command that resumes a run, detached from the terminal.

    Returns its exit code (128 plus the signal's number if a signal ended it) and the last line of
    its output. The command is ended when its caller is cancelled. Raises NotStartable.
    """
    value = environment(run_id, "resume", Path(os.devnull), OnDoubt.STOP)
    with tempfile.TemporaryFile() as output:
        try:
            child = await asyncio.create_subprocess_exec(
                *command, env=value, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
            )
        except OSError as error:
            raise NotStartable(command[0], os.strerror(error.errno or 0)) from error
        try:
            code = await child.wait()
        finally:
            if child.returncode is None:
                child.terminate()
                await child.wait()
        output.seek(max(0, output.tell() - OUTPUT_BYTES_MAX))
        lines = output.read().decode(errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return code if code >= 0 else 128 - code, last


async def _run(command: list[str], environment: dict[str, str]) -> int:
    with _signals_held() as passing:
        try:
            child = await asyncio.create_subprocess_exec(*command, env=environment)
        except OSError as error:
            raise NotStartable(command[0], os.strerror(error.errno or 0)) from error
        passing.append(child)
        return await child.wait()


def environment(
    run_id: str, mode: str, report: Path, on_doubt: OnDoubt = OnDoubt.ASK
) -> dict[str, str]:
    """Return this process's environment, with the settings in use and the run to resume."""
    found = settings()
    found = msgspec.structs.replace(
        found, run=run_id, mode=mode, data_dir=data_dir_of(found), report=str(report)
    )
    if mode == "resume" and found.settle is None:
        found = msgspec.structs.replace(found, settle=on_doubt.value)
    fields = {
        field.encode_name: str(value)
        for field in msgspec.structs.fields(found)
        if (value := getattr(found, field.name)) is not None
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
