"""Programs of this folder as processes that are killed, resumed and replayed."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hansard
from tests.faults import _warm

PROGRAMS = Path(__file__).with_name("programs")
SOURCE = Path(__file__).parents[2] / "src"
START_S = 90.0
"""Longest time for a program, in seconds; it imports a framework."""

Run = Callable[..., subprocess.CompletedProcess[str]]


def program(name: str, data_dir: Path, workspace: str, folder: Path) -> Run:
    """Return a function that runs a program with a mode, where it dies, and further arguments."""

    def run(mode: str, at: str = "", *more: str) -> subprocess.CompletedProcess[str]:
        words = [str(PROGRAMS / name), str(data_dir), workspace, mode, at or "-", *more]
        env = {**os.environ, "PYTHONPATH": str(SOURCE)}  # no links, one of which is called agents
        return _warm.run(words, cwd=folder, env=env, timeout=START_S)

    return run


def is_killed(result: subprocess.CompletedProcess[str]) -> bool:
    """Return whether a process ended by SIGKILL."""
    return result.returncode == -signal.SIGKILL


def lines(folder: Path, name: str) -> list[str]:
    """Return the lines of a program's file."""
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


async def rows(data_dir: Path, workspace: str, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a question to the record."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        return [tuple(row) for row in (await record.sql(sql)).rows]
