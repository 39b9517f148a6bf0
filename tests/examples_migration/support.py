"""The steps of the migration as processes: run, killed at a place, run again, settled."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.faults._warm import run

ROOT = Path(__file__).parents[2]
STEPS = sorted((ROOT / "examples" / "migration").glob("step*.py"))
PROGRAM_S_MAX = 170
STOPPED = 1
"""Exit code of a program stopped by an error; of our errors only doubt is permitted."""
TOOLS = ("search", "read", "ask_model", "send")
SETTLE = re.compile(r"run settle (?P<run>\S+) (?P<step>\S+#\d+)")


class Ended(msgspec.Struct):
    """The end of a process, and the places of the example that it reached."""

    returncode: int
    out: str
    err: str
    places: list[str]

    @property
    def bodies(self) -> list[str]:
        """The tools whose bodies began, in order."""
        begun = [place.removeprefix("call ") for place in self.places if place.startswith("call ")]
        return [name for name in begun if name in TOOLS]


class Desk(msgspec.Struct):
    """A ticket's folder, with its own outbox and run."""

    folder: Path
    data: Path
    ticket: str
    started: list[Ended] = []

    def start(self, example: Path, kill_at: int | str = 0) -> Ended:
        """Run a step of the migration, or have it killed at a place; see `_watched`."""
        places = self.folder / f"places-{len(self.started)}"
        program = str(Path(__file__).with_name("_watched.py"))
        done = run(
            [program, str(example), str(places), str(kill_at), self.ticket],
            cwd=self.folder,
            env=self.environment(),
            timeout=PROGRAM_S_MAX,
        )
        listed = places.read_text(encoding="utf-8").splitlines() if places.exists() else []
        expected = {-signal.SIGKILL} if kill_at else {0, STOPPED}
        assert done.returncode in expected, done.stderr[-3000:]
        assert done.returncode == 0 or kill_at or "errors.InDoubt:" in done.stderr, done.stderr
        ended = Ended(done.returncode, done.stdout, done.stderr, listed)
        self.started.append(ended)
        return ended

    def bodies(self, tool: str) -> int:
        """Return how often a tool's body began, over all processes."""
        return sum(ended.bodies.count(tool) for ended in self.started)

    def sent(self) -> list[dict[str, str]]:
        """Return the outbox, line by line."""
        outbox = self.folder / "outbox.jsonl"
        lines = outbox.read_text(encoding="utf-8").splitlines() if outbox.exists() else []
        return [json.loads(line) for line in lines]

    def finish(self, example: Path) -> tuple[Ended, bool]:
        """Restart until it is done, settle doubts by the outbox, and return True if one was."""
        ended = self.start(example)
        doubt = SETTLE.search(ended.err)
        if doubt is None:
            return ended, False
        verdict = ["--happened", "null"] if self.sent() else ["--did-not-happen"]
        self.command("run", "settle", doubt["run"], doubt["step"], *verdict)
        return self.start(example), True

    def command(self, *words: str) -> str:
        """Run a `hansard` command and return its output."""
        done = run(
            ["-m", "hansard", "--workspace", "migration", *words],
            cwd=self.folder,
            env=self.environment(),
            timeout=PROGRAM_S_MAX,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def environment(self) -> dict[str, str]:
        """Return the environment of a process here."""
        return {**os.environ, "HANSARD_DATA_DIR": str(self.data)}

    def kill_after(self, example: Path, seconds: float) -> None:
        """Run a step as it is and kill it from outside after a while, unless it ended before."""
        with subprocess.Popen(
            [sys.executable, str(example), self.ticket],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()


def kill_points(places: list[str], *, all_of_them: bool) -> Iterator[int]:
    """Places to kill: begin and end of each tool's body, or every line that runs."""
    seen: set[str] = set()
    for number, place in enumerate(places, 1):
        event, _, name = place.partition(" ")
        first = place not in seen
        seen.add(place)
        if name in TOOLS:
            if first or all_of_them:
                yield number
        elif event == "line" and first and (all_of_them or places[number - 2] == "return send"):
            yield number
