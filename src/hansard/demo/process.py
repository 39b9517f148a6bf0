"""Workers as processes of their own, and the SIGKILL that ends one of them."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import msgspec

from hansard.demo.worker import News, Order
from hansard.demo.world import Saved

WORKER_S_MAX = 120.0
"""How long a worker may take before it is taken for stuck: it takes 3 to 6 s on two cores."""

DELAY_MS_MAX = 3.0
"""Longest wait between a body's begin and the kill: about as long as body and record take."""

ERROR_LINES = 8
"""Last lines of a failed worker's errors that are shown."""


class WorkerFailed(RuntimeError):
    """A worker ended with an error of its own."""


class Moment(msgspec.Struct, frozen=True):
    """When to kill: so many ms after the so-manieth tool body began."""

    body: int
    delay_ms: float


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker ended. `begun` are the bodies it told of, in order."""

    pid: int
    returncode: int
    begun: list[str]
    saved: Saved | None
    seconds: float


def moment(seed: int, bodies: int) -> Moment:
    """The moment that a seed stands for in a job of so many tool bodies."""
    draw = random.Random(seed)  # noqa: S311 -- a seed must give the same moment again
    return Moment(draw.randint(1, bodies), round(draw.uniform(0.0, DELAY_MS_MAX), 2))


def run_worker(order: Order, kill: Moment | None = None) -> Ended:
    """Run a worker to its end, or kill it. Raises WorkerFailed."""
    began = time.perf_counter()
    begun: list[str] = []
    saved: Saved | None = None
    command = [sys.executable, "-P", "-m", "hansard.demo.worker"]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(  # noqa: S603 -- our own module
            [*command, msgspec.json.encode(order).decode()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        assert process.stdout is not None  # noqa: S101 -- a pipe was asked for
        stuck = threading.Timer(WORKER_S_MAX, process.kill)
        stuck.start()
        try:
            for line in process.stdout:
                news = msgspec.json.decode(line, type=News)
                saved = news.saved or saved
                if news.body is not None:
                    begun.append(news.body)
                if kill is not None and len(begun) == kill.body:
                    _kill(process, kill.delay_ms)
                    break
            process.wait()
        finally:
            stuck.cancel()
            process.kill()
        if process.returncode != (0 if kill is None else -signal.SIGKILL):
            errors.seek(0)
            last = errors.read().decode(errors="replace").splitlines()[-ERROR_LINES:]
            raise WorkerFailed(f"a worker ended with {process.returncode}:\n" + "\n".join(last))
    return Ended(
        pid=process.pid,
        returncode=process.returncode,
        begun=begun,
        saved=saved,
        seconds=round(time.perf_counter() - began, 2),
    )


def _kill(process: subprocess.Popen[bytes], delay_ms: float) -> None:
    """SIGKILL after some ms, unless it ends before."""
    try:
        process.wait(delay_ms / 1_000)
    except subprocess.TimeoutExpired:
        process.kill()
