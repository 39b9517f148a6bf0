"""A notebook whose cells a real kernel runs; `make test-full` starts each kernel afresh."""

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, Self

import nbformat
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

from tests.faults import _warm

CELL_S_MAX = 120
GONE_S_MAX = 60.0
"""Seconds until a kernel that was killed has left its ports."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class CellResult:
    """Result of a cell: display (`text`, `html`), output, warnings and error."""

    def __init__(self, outputs: list[Any]) -> None:
        self.printed = self.warned = self.text = self.html = self.error = self.traceback = ""
        for output in outputs:
            match output.output_type:
                case "stream" if output.name == "stderr":
                    self.warned += output.text
                case "stream":
                    self.printed += output.text
                case "error":
                    self.error = f"{output.ename}: {output.evalue}"
                    self.traceback = COLOUR.sub("", "\n".join(output.traceback))
                case _:
                    self.text = output.data.get("text/plain", "")
                    self.html = output.data.get("text/html", "")


CHANNELS = ("shell", "iopub", "stdin", "hb", "control")
BELOW_EPHEMERAL = range(10_000, 32_000)
"""Ports that the system never assigns on request, so that none is taken between our choice and its
use by the kernel.
"""


def _ports(count: int) -> list[int]:
    """Ports that are free."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(BELOW_EPHEMERAL, 100):
        if _is_free(port):
            ports.append(port)
        if len(ports) == count:
            break
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as tried, contextlib.suppress(OSError):
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the kernel does
        tried.bind(("127.0.0.1", port))
        return True
    return False


OF_KERNELS = ("ipykernel.ipkernel", "ipykernel.kernelapp", "ipykernel.zmqshell")
KERNEL = """
import warnings
from ipykernel.kernelapp import launch_new_instance
warnings.resetwarnings()  # a kernel warns as any program does, and ends of nothing
for each in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
    warnings.simplefilter("ignore", each)
launch_new_instance()
"""


def _kernel() -> list[str]:
    """Return the command of a kernel, without its connection."""
    python = _warm.python(*OF_KERNELS)
    if python == sys.executable:
        return [python, "-m", "ipykernel_launcher"]
    return [python, "-c", KERNEL]


class Notebook:
    """One kernel in a folder and a workspace of its own."""

    def __init__(self, folder: Path, data_dir: Path, workspace: str) -> None:
        self.folder = folder
        self.data_dir = data_dir
        self.workspace = workspace
        self._env = os.environ | {"HANSARD_DATA_DIR": str(data_dir), "HANSARD_WORKSPACE": workspace}
        self._cells = 0
        self._ports: list[int] = []
        self._client: Any = None

    def __enter__(self) -> Self:
        with warnings.catch_warnings():  # the kernel's own channel has no encryption
            warnings.simplefilter("ignore")
            self._client = NotebookClient(
                nbformat.v4.new_notebook(), timeout=CELL_S_MAX, allow_errors=True
            )
            manager = self._client.create_kernel_manager()
            manager.cache_ports = False
            manager.kernel_spec.argv = [*_kernel(), "-f", "{connection_file}"]
            self._ports = _ports(len(CHANNELS))
            for name, port in zip(CHANNELS, self._ports, strict=True):
                setattr(manager, f"{name}_port", port)
            self._client.start_new_kernel(env=self._env, cwd=str(self.folder))
            self._client.start_new_kernel_client()
        return self

    def __exit__(self, *_: object) -> None:
        self._client._cleanup_kernel()

    def run(self, text: str) -> CellResult:
        """Run a cell."""
        cell = nbformat.v4.new_code_cell(text)
        self._client.nb.cells.append(cell)
        self._client.execute_cell(cell, self._cells)
        self._cells += 1
        return CellResult(cell.outputs)

    def interrupted(self, text: str, when: Callable[[], bool]) -> CellResult:
        """Run a cell, and interrupt it as soon as something is so."""

        def press() -> None:
            until = time.monotonic() + CELL_S_MAX
            while not when() and time.monotonic() < until:
                time.sleep(0.02)
            os.kill(self._client.km.provisioner.pid, signal.SIGINT)

        pressing = Thread(target=press)
        pressing.start()
        try:
            return self.run(text)
        finally:
            pressing.join()

    def restart(self, *, kill: bool = False) -> None:
        """Restart the kernel, as the button does; or kill it, as running out of memory does."""
        run_sync(self._restarted)(kill)

    async def _restarted(self, kill: bool) -> None:
        manager = self._client.km
        await manager.shutdown_kernel(now=kill, restart=True)
        until = time.monotonic() + GONE_S_MAX
        while not all(map(_is_free, self._ports)):  # its stub is gone, and it soon after
            assert time.monotonic() < until, "a kernel that was ended goes on"
            await asyncio.sleep(0.01)
        await manager.start_kernel(**manager._launch_args)
        await self._client.kc.wait_for_ready(timeout=CELL_S_MAX)
