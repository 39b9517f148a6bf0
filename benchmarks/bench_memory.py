"""How long does any of a file's versions take, and how long a read from memory, beside git?

One file that grew by a line at a time: each version is fetched by its number, in a random order, of
the record and of a repository of git's with the same history (`git show COMMIT:FILE`, a process
each). A read from memory is of a space that is followed; its goal is 0.1 ms. A change replaces a
line of a small file through the same call of `deepagents`: with its own store on SQLite, and with a
session of ours, where it is a step, approved, checked and stored with the content before. Both are
on disk when the call returns.

The first change of a new process is that of one file beside 99 others and beside thousands of 10
KB, by wall time and by the CPU time of the process: its goal is one that does not grow with the
files.
"""

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import hansard
from benchmarks import _report, _world
from hansard.client.record import Record

VERSIONS = _report.sized(1_000, 60)
ASKED = _report.sized(40, 6)
CACHED = 10_000
CHANGES = _report.sized(300, 10)
GOAL_MS = 0.1
FEW, MANY = 100, _report.sized(20_000, 1_000)
FILE_CHARACTERS = 10_240
PROCESSES = _report.sized(9, 3)
GOAL_RATIO = 5.0


def texts() -> list[str]:
    """Return a file's versions, oldest first."""
    lines = [f"- rule {number}: {'word ' * 8}\n" for number in range(VERSIONS)]
    return ["".join(lines[: number + 1]) for number in range(VERSIONS)]


def milliseconds(work: Callable[[], object]) -> float:
    """Return the duration of the work, in ms."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1_000


def repository(folder: Path, versions: list[str]) -> list[str]:
    """Return the commits of a repository with the same history, by one `git fast-import`."""
    parts: list[bytes] = []
    for number, text in enumerate(versions, 1):
        data = text.encode()
        parts += [
            b"commit refs/heads/main\nmark :%d\n" % number,
            b"committer x <x@y> %d +0000\ndata 1\nx\n" % number,
            b"M 100644 inline AGENTS.md\ndata %d\n" % len(data),
            data,
            b"\n",
        ]
    plain = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    git = shutil.which("git") or "git"
    subprocess.run([git, "init", "-q", "-b", "main"], cwd=folder, env=plain, check=True)
    subprocess.run(
        [git, "fast-import", "--quiet"], cwd=folder, env=plain, check=True, input=b"".join(parts)
    )
    listed = subprocess.run(
        [git, "rev-list", "--reverse", "main"],
        cwd=folder,
        env=plain,
        check=True,
        capture_output=True,
        text=True,
    )
    return listed.stdout.split()


def changes(record: Record, home: Path) -> dict[str, list[float]]:
    """Return the times of changes by store, in ms; without `deepagents` only ours."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other people's packages, as they are imported
            from deepagents.backends import StoreBackend  # noqa: PLC0415 -- an optional rival
            from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415 -- an optional rival

            from hansard.ext.memory.deep_agent import MemoryBackend  # noqa: PLC0415 -- it imports the rival
    except ImportError:
        return {}
    record.memory("agent/ann").set_policy("off", by="bench")
    backends: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(record.run("w", agent="ann", run="changes"))
        backends["ours"] = MemoryBackend(session.memory)
        connection = sqlite3.connect(
            home / "store.sqlite", check_same_thread=False, isolation_level=None
        )
        stack.callback(connection.close)
        store = SqliteStore(connection)
        store.setup()
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
        assert synchronous == 2, "not FULL: it would not be the twin of strict"
        backends["theirs"] = StoreBackend(store=store, namespace=lambda _: ("files",))
        for backend in backends.values():
            assert backend.write("/notes.md", "- rule\n" * 20 + "- last 0\n").error is None
        took: dict[str, list[float]] = {name: [] for name in backends}
        for number in range(CHANGES):
            for name, backend in backends.items():
                edit = partial(
                    backend.edit, "/notes.md", f"- last {number}\n", f"- last {number + 1}\n"
                )
                took[name].append(milliseconds(edit))
        for backend in backends.values():
            [loaded] = backend.download_files(["/notes.md"])
            assert loaded.content.endswith(b"- last %d\n" % CHANGES)
    return took


def filled(data: Path, files: int) -> str:
    """Fill a workspace with a space of so many files; return its name."""
    workspace = f"files-{files}"
    with hansard.connect(workspace, data_dir=data) as record:
        space = record.memory()
        for begin in range(0, files, 500):
            with space.change("an import", by="alice") as change:
                for number in range(begin, min(begin + 500, files)):
                    line = f"- note {number} {'word ' * 10}\n"
                    text = (line * (FILE_CHARACTERS // len(line) + 1))[:FILE_CHARACTERS]
                    change.create(f"notes/d{number // 100}/n{number}.md", text)
    return workspace


def first_changes(data: Path, workspaces: dict[str, str]) -> dict[str, list[float]]:
    """Return the times of the first change of a new process, by wall and CPU time, in ms, in
    turns.
    """
    took: dict[str, list[float]] = {}
    for number in range(PROCESSES):
        for name, workspace in workspaces.items():
            with hansard.connect(workspace, data_dir=data) as record:
                space = record.memory()
                cpu = time.process_time()
                edit = partial(space.create, "notes/d0/n7.md", f"{number}\n", by="alice")
                took.setdefault(f"{name}, wall", []).append(milliseconds(edit))
                spent = (time.process_time() - cpu) * 1_000
                took.setdefault(f"{name}, CPU", []).append(spent)
    return took


def main() -> None:
    """Ask both in alternation."""
    versions = texts()
    draw = random.Random(7)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "git"
        folder.mkdir()
        commits = repository(folder, versions)
        with hansard.connect("bench", data_dir=Path(home) / "data") as record:
            space = record.memory()
            for text in versions:
                space.create("AGENTS.md", text, by="alice")
            ours: list[float] = []
            gits: list[float] = []
            for number in draw.sample(range(1, VERSIONS + 1), ASKED):
                point, commit = f"@{number}", commits[number - 1]
                ours.append(milliseconds(partial(space.view, "AGENTS.md", at=point)))
                show = ["git", "show", f"{commit}:AGENTS.md"]
                gits.append(
                    milliseconds(
                        partial(subprocess.run, show, cwd=folder, check=True, capture_output=True)
                    )
                )
                assert space.view("AGENTS.md", at=point) == versions[number - 1]
            space.follow()
            cached = milliseconds(lambda: [space.view("AGENTS.md") for _ in range(CACHED)]) / CACHED
            took = changes(record, Path(home))
        data = Path(home) / "data"
        firsts = first_changes(data, {"few": filled(data, FEW), "many": filled(data, MANY)})
        asyncio.run(_world.gone(data))
    growth = median(firsts["many, CPU"]) / median(firsts["few, CPU"])
    _report.emit(
        question=f"How long does any of a file's {VERSIONS:,} versions take, beside git show?",
        results={
            "a version (ours)": _report.summary(ours),
            "a version (git show)": _report.summary(gits),
            "a read from memory, ms": round(cached, 5),
        }
        | {f"a change ({name})": _report.summary(each) for name, each in took.items()}
        | {f"a first change ({name})": _report.summary(each) for name, each in firsts.items()},
        ratios={"a version: ours to git show": median(ours) / median(gits)}
        | (
            {"a change: ours to theirs": median(took["ours"]) / median(took["theirs"])}
            if took
            else {}
        )
        | {f"a first change, CPU: {MANY:,} files to {FEW:,}": growth},
        goals={
            "a read from memory under 0.1 ms": cached < GOAL_MS,
            f"a first change at most {GOAL_RATIO:g} times that beside few": growth <= GOAL_RATIO,
        },
    )


if __name__ == "__main__":
    main()
