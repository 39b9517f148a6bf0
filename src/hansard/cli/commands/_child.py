"""A program of the user's as a child that picks a run up, told through its environment."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from hansard.cli.opening import Options, data_dir_of, find_run, reading
from hansard.domain.errors import CallerError

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes as shells give them."""


class NotStartable(CallerError):
    """The command after `--` cannot be run."""

    def __init__(self, command: str, why: str) -> None:
        super().__init__(f"{command!r} cannot be run ({why}): give a program after '--'")
        self.command = command


async def run(options: Options, text: str, command: list[str], mode: str) -> int:
    """Run a command so that its `hansard.connect()` and `record.run()` pick a run up.

    The broker is held while it runs; SIGINT and SIGTERM reach the child and it decides. Returns
    its exit code, 128 and the signal's number where a signal ended it. Raises NotStartable,
    NotFound, Ambiguous.
    """
    async with reading(options) as workspace:
        run_id = await find_run(workspace, text)
        with _signals_held() as passing:
            try:
                child = await asyncio.create_subprocess_exec(
                    *command, env=environment(options, run_id, mode)
                )
            except OSError as error:
                raise NotStartable(command[0], os.strerror(error.errno or 0)) from error
            passing.append(child)
            code = await child.wait()
    return code if code >= 0 else 128 - code


def environment(options: Options, run_id: str, mode: str) -> dict[str, str]:
    """This process's environment, with the settings in use and the run to pick up."""
    settings = msgspec.structs.replace(
        options.settings(), run=run_id, mode=mode, data_dir=data_dir_of(options.settings())
    )
    told = {
        field.encode_name: str(value)
        for field in msgspec.structs.fields(settings)
        if (value := getattr(settings, field.name)) is not None
    }
    return os.environ | told


@contextmanager
def _signals_held() -> Generator[list[asyncio.subprocess.Process]]:
    """Leave an interrupt to the child, which the terminal sends it to as well; pass TERM on."""
    children: list[asyncio.subprocess.Process] = []
    loop = asyncio.get_running_loop()

    def terminate() -> None:
        for child in children:
            if child.returncode is None:
                child.terminate()

    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        yield children
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
