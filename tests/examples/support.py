"""The use cases as processes: run, killed at a place, run again, with their effects."""

import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

import hansard
from tests.faults._warm import run

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WATCHED = ROOT / "tests" / "examples_migration" / "_watched.py"
PROGRAM_S_MAX = 170
"""Longest run of a program, in seconds: it takes half a second on an idle machine."""


def orders(folder: Path) -> list[Any]:
    """Return the exchange's orders."""
    with closing(sqlite3.connect(folder / "order_book.sqlite")) as book:
        tables = book.execute("SELECT name FROM sqlite_master").fetchall()
        return book.execute("SELECT * FROM orders").fetchall() if tables else []


def mails(folder: Path) -> list[Any]:
    """Return the sent mails."""
    outbox = folder / "outbox.jsonl"
    return list(map(json.loads, outbox.read_text("utf-8").splitlines())) if outbox.exists() else []


def papers(folder: Path) -> list[Any]:
    """Return the names of the stored papers."""
    return sorted(path.name for path in (folder / "papers").glob("*"))


class UseCase(msgspec.Struct, frozen=True):
    """A program, the run it makes, and what a test watches of it."""

    name: str
    program: str
    arguments: tuple[str, ...]
    run: str
    stages: tuple[str, ...]
    """Functions that use no tool, or several; entered again on resume."""
    workers: tuple[str, ...]
    """The function behind each tool, which begins once where nobody kills."""
    acts: str
    """The worker with an effect, which `effects` looks up in the world."""
    effects: Callable[[Path], list[Any]]

    def places(self) -> list[str]:
        """Places to kill: before a tool's record, at the end of each stage, before the effect."""
        return [f"return {name}" for name in (*self.workers, *self.stages)] + [f"call {self.acts}"]


TRADING = UseCase(
    "trading",
    "strategy.py",
    ("trade-1",),
    "trade-1",
    ("analyse", "recommend", "limit_risk", "execute"),
    ("synthetic_series", "scores_by_trend", "enter_in_book"),
    "enter_in_book",
    orders,
)
SUPPORT_DESK = UseCase(
    "support_desk",
    "desk.py",
    ("tickets/1.txt",),
    "ticket-1",
    ("find_topic", "gather_context", "respond"),
    ("shares_by_keyword", "paragraphs_by_keyword", "quoting_reply", "deliver"),
    "deliver",
    mails,
)
PAPER_PIPELINE = UseCase(
    "paper_pipeline",
    "pipeline.py",
    ("iterator",),
    "papers-iterator",
    (),  # its one function is a coroutine, which begins and ends at each wait
    ("titles_by_count", "put_on_shelf", "prose_of", "quotes_by_frequency", "extractive_summary"),
    "put_on_shelf",
    papers,
)
USE_CASES = (TRADING, SUPPORT_DESK, PAPER_PIPELINE)


class Desk(msgspec.Struct):
    """A copy of one use case's folder, with its own workspace in a shared broker."""

    case: UseCase
    folder: Path
    data: Path
    workspace: str
    started: list[list[str]] = []

    def environment(self) -> dict[str, str]:
        """Return the environment of a process here; our own commands come first in PATH."""
        return {
            **os.environ,
            "HANSARD_DATA_DIR": str(self.data),
            "HANSARD_WORKSPACE": self.workspace,
            "NO_COLOR": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def start(self, *more: str, kill_at: str = "0") -> subprocess.CompletedProcess[str]:
        """Run the program to its end or, if a place is given, until SIGKILL there; see _watched."""
        places = self.folder / f"places-{len(self.started)}"
        watched = [str(WATCHED), str(self.folder / self.case.program), str(places), kill_at]
        done = self._process(*watched, *self.case.arguments, *more)
        self.started.append(places.read_text("utf-8").splitlines())
        if kill_at != "0":
            assert done.returncode == -signal.SIGKILL, f"never came to {kill_at}: {done.stderr}"
        return done

    def command(self, *words: str) -> str:
        """Run `hansard ...` or `python PROGRAM ...`, which must succeed, and return its output."""
        program, *arguments = words
        done = self._process(*(("-m", *words) if program == "hansard" else arguments))
        assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"
        return done.stdout

    def _process(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(words, cwd=self.folder, env=self.environment(), timeout=PROGRAM_S_MAX)

    def popen(self, python: str = sys.executable) -> subprocess.Popen[bytes]:
        """Start the program as it is, unwatched."""
        return subprocess.Popen(
            [python, self.case.program, *self.case.arguments],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def work_begun(self, process: int | None = None) -> Counter[str]:
        """Count the starts of each tool's work, over all processes or in one."""
        processes = self.started if process is None else [self.started[process]]
        calls = [place for places in processes for place in places if place.startswith("call ")]
        names = [place.removeprefix("call ") for place in calls]
        return Counter(name for name in names if name in self.case.workers)

    def connect(self) -> hansard.Record:
        """Open the record that the programs here write."""
        return hansard.connect(self.workspace, data_dir=self.data)

    def on_record(self) -> dict[str, Any]:
        """Return each agent's facts and the outcomes of its calls, without times and ids."""
        with self.connect() as record:
            agents = record.state(self.case.run).agents
        return {
            name: (
                [noted.fact.fingerprint for noted in agent.facts],
                sorted(
                    (step.tool, step.status.value, _digests(step.arguments), _digest(step.result))
                    for step in agent.steps.values()
                ),
            )
            for name, agent in agents.items()
        }

    def settle(self) -> None:
        """Look into the order book and say what is true, by the README's own command."""
        readme = (self.folder / "README.md").read_text("utf-8")
        happened, did_not_happen = re.findall(r"^hansard run settle .*$", readme, re.MULTILINE)
        self.command(*(happened if orders(self.folder) else did_not_happen).split())


def _digests(arguments: msgspec.Raw) -> list[tuple[str, str]]:
    values = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    return sorted((name, _digest(value)) for name, value in values.items())


def _digest(value: msgspec.Raw) -> str:
    """Return the digest of the whole value, also of one that is stored in parts."""
    match msgspec.json.decode(value) if value else None:
        case {"$parts": {"sha256": str() as whole}}:
            return whole
        case _:
            return hashlib.sha256(bytes(value)).hexdigest()


def new_desk(case: UseCase, folder: Path, texts: Path, data: Path, workspace: str) -> Desk:
    """Return a desk in an empty folder; `texts` is the copy of our documents for its example."""
    for text in texts.iterdir():
        (folder / text.name).symlink_to(text)
    place = folder / "examples" / case.name
    shutil.copytree(EXAMPLES / case.name, place, ignore=shutil.ignore_patterns("__pycache__"))
    return Desk(case, place, data, workspace)
