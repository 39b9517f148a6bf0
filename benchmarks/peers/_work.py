"""The processes that write: each has a client of its own, and may be killed."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from benchmarks.peers._side import Mode, Server, Side, side_of, traces

LOADED = {"mlflow": ["mlflow"], "phoenix": ["phoenix.otel"], "hansard": ["hansard.client.connect"]}
"""Modules imported once, before the writers are forked from that process."""


class Job(msgspec.Struct, frozen=True):
    """Work of a writer: up to `runs` runs of a batch, until the file `stop` exists. `acks` gets a
    line a run when it is acknowledged, `done` the times and the runs' ids at the end. The writer
    pauses between two runs.
    """

    side: str
    url: str
    folder: str
    mode: Mode
    batch: str
    runs: int
    steps: int
    seed: int
    scratch: str
    pause_s: float = 0.0

    @property
    def acks(self) -> Path:
        """Names of acknowledged runs, one a line."""
        return Path(self.scratch) / f"{self.batch}.acks"

    @property
    def stop(self) -> Path:
        """Asks it to end."""
        return Path(self.scratch) / f"{self.batch}.stop"

    @property
    def done(self) -> Path:
        """File that exists when the writer has ended."""
        return Path(self.scratch) / f"{self.batch}.done"

    def acknowledged(self) -> list[str]:
        """Return the acknowledged names, without a line that a kill cut off."""
        if not self.acks.exists():
            return []
        return [line.rstrip() for line in self.acks.open() if line.endswith("\n")]


class Done(msgspec.Struct, frozen=True):
    """Seconds until the last call had returned, and until the flush had; the runs' ids."""

    returned_s: float
    flushed_s: float
    ids: dict[str, object]


def write(job: Job) -> None:
    """Be a writer."""
    side: Side = side_of(job.side)
    server = Server(job.url, Path(job.folder))
    writer = side.writer(server, job.mode)
    acks = os.open(job.acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    began_s = time.perf_counter()
    for trace in traces(job.batch, job.runs, job.steps, job.seed):
        if job.stop.exists():
            break
        writer.write(trace)
        if job.mode.flush_each:
            writer.flush()
        os.write(acks, f"{trace.name}\n".encode())
        time.sleep(job.pause_s)
    returned_s = time.perf_counter() - began_s
    writer.flush()
    flushed_s = time.perf_counter() - began_s
    told = Done(returned_s, flushed_s, writer.ids)
    part = job.done.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(told))
    part.rename(job.done)
    writer.close()


def begin(job: Job) -> BaseProcess:
    """Start one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.peers._work", *LOADED[job.side]])
    process = context.Process(target=write, args=(job,), daemon=True)
    process.start()
    return process


def told(job: Job) -> Done:
    """Return a writer's result."""
    return msgspec.json.decode(job.done.read_bytes(), type=Done)
