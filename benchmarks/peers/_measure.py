"""The three measurements of one side: ingest, loss, questions."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.peers import _work
from benchmarks.peers._side import Mode, Server, Side, free_port, side_of, traces
from benchmarks.peers._work import Job

SETTLE_S = 5.0
"""Seconds without progress after which unreadable spans count as lost."""

ENDS_S = 100.0
"""Longest wait for a writer's end."""

LOAD_S = (2.0, 6.0)
"""Range of the time of the kill, in seconds after each writer's first acknowledgement."""

LOSS_STEPS = 4
"""Steps of the runs that are written meanwhile: short, so that many are acknowledged."""


FIRST_S = 60.0
"""Longest wait for a writer's first acknowledgement."""

WARM_RUNS = 4
"""Runs before the first that counts, for the one-time work of a server."""

ENDLESS = 1_000_000

ROUNDS_ASKED = 15


class Asked(msgspec.Struct, frozen=True):
    """Sizes: runs of so many steps; rounds of kills, fewer when `until` (seconds since 1970) has
    passed; a folder to work in; the least pause between two runs of a writer that is killed.
    """

    side: str
    scratch: str
    runs: int
    steps: int
    rounds: int
    seed: int
    until: float
    pause_s: float = 0.0


class Measurement:
    """One side, from its first start to its end."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.side: Side = side_of(asked.side)
        self.folder = Path(asked.scratch) / "server"
        self.found: dict[str, Any] = {"versions": self.side.versions()}
        self.starts_s: list[float] = []
        self.ports = (free_port(), free_port())
        self.server = self.serve()

    def serve(self) -> Server:
        """Start the server, and note how long it takes."""
        began_s = time.perf_counter()
        server = self.side.serve(self.folder, self.ports)
        self.starts_s.append(time.perf_counter() - began_s)
        return server

    def job(self, mode: Mode, batch: str) -> Job:
        """Return the ingest's work for a writer."""
        asked = self.asked
        return Job(
            side=asked.side,
            url=self.server.url,
            folder=str(self.folder),
            mode=mode,
            batch=batch,
            runs=asked.runs,
            steps=asked.steps,
            seed=asked.seed,
            scratch=asked.scratch,
        )

    def whole(self) -> dict[str, Any]:
        """Everything, in order."""
        try:
            kept = self.ingest()
            self.questions(*kept)
            self.loss()
        finally:
            self.server.stop()
        self.found["start_s"] = [round(each, 1) for each in self.starts_s]
        return self.found

    # ------------------------------------------------------------ ingest

    def ingest(self) -> tuple[str, dict[str, Any]]:
        """Measure each mode alone; return the batch for later queries, with its runs' ids."""
        rates: dict[str, Any] = {}
        kept: tuple[str, dict[str, Any]] | None = None
        warm = msgspec.structs.replace(self.job(self.side.modes[0], "warm"), runs=WARM_RUNS)
        _work.begin(warm).join(ENDS_S)
        self.until_readable(warm)
        for number, mode in enumerate(self.side.modes):
            job = self.job(mode, f"in{number}")
            process = _work.begin(job)
            process.join(ENDS_S)
            if not job.done.exists():
                process.kill()
                message = f"{mode.name}: {self.asked.runs} runs took longer than {ENDS_S:g} s"
                raise RuntimeError(message)
            told = _work.told(job)
            late_s, stored = self.until_readable(job)
            process.join(ENDS_S)
            spans = self.asked.runs * (self.asked.steps + 1)
            rates[mode.name] = {
                "acknowledged": mode.acknowledged,
                "spans": spans,
                "spans_missing": spans - stored,
                "spans_s_returned": round(stored / told.returned_s, 1),
                "spans_s_flushed": round(stored / told.flushed_s, 1),
                "spans_s_readable": round(stored / (told.flushed_s + late_s), 1),
            }
            say(f"  {self.asked.side}, {mode.name}: {rates[mode.name]}")
            if kept is None or not kept[1]:
                kept = job.batch, dict(told.ids)
        self.found["ingest"] = rates
        assert kept is not None
        return kept

    def until_readable(self, job: Job) -> tuple[float, int]:
        """Seconds from now until a reader had all that ever can be read, and how many spans that
        is. Its last reading counts: while a server answers, it goes on storing.
        """
        began_s = time.perf_counter()
        self.side.settle(self.server)
        wanted = job.runs * (job.steps + 1)
        best, since_s = -1, 0.0
        while True:
            found = self.side.readable(self.server, job.batch)
            now, at_s = sum(steps + 1 for steps in found.values()), time.perf_counter() - began_s
            if now > best:
                best, since_s = now, at_s
            if now >= wanted or at_s > since_s + SETTLE_S:
                return since_s, best
            time.sleep(0.2)

    # ------------------------------------------------------------ loss

    def loss(self) -> None:
        """Measure rounds of kills under load."""
        chance = random.Random(self.asked.seed)
        lost: dict[str, dict[str, Any]] = {
            mode.name: {
                "acknowledged_by": mode.acknowledged,
                "rounds": 0,
                "runs_acknowledged": 0,
                "runs_lost": 0,
                "of_them_in_part": 0,
                "only_the_newest": True,
                "by_round": [],
            }
            for mode in self.side.losses
        }
        for number in range(self.asked.rounds):
            if number and time.time() > self.asked.until:
                say(f"  {self.asked.side}: {number} rounds, the time is up")
                break
            jobs = [
                msgspec.structs.replace(
                    self.job(mode, f"k{number}m{index}"),
                    runs=ENDLESS,
                    steps=LOSS_STEPS,
                    pause_s=max(mode.pause_s, self.asked.pause_s),
                )
                for index, mode in enumerate(self.side.losses)
            ]
            self.one_kill(jobs, chance.uniform(*LOAD_S))
            for job in jobs:
                self.count(job, lost[job.mode.name])
        self.found["loss"] = lost
        for name, told in lost.items():
            say(f"  {self.asked.side}, {name}: {told}")

    def one_kill(self, jobs: list[Job], load_s: float) -> None:
        """Load, SIGKILL, and the server started again on the same files and the same port."""
        writers = [_work.begin(job) for job in jobs]
        until_s = time.monotonic() + FIRST_S
        while not all(job.acknowledged() for job in jobs):
            if time.monotonic() > until_s:
                message = "a writer has no acknowledgement: see the log of the server"
                raise RuntimeError(message)
            time.sleep(0.02)
        time.sleep(load_s)
        for job, writer in zip(jobs, writers, strict=True):
            if not job.mode.survives and writer.pid is not None:
                os.kill(writer.pid, signal.SIGKILL)
        self.server.kill()
        for job in jobs:
            job.stop.touch()
        self.server = self.serve()
        for job, writer in zip(jobs, writers, strict=True):
            writer.join(ENDS_S)
            if writer.is_alive():
                say(f"  {self.asked.side}, {job.mode.name}: no end within {ENDS_S:g} s")
                writer.kill()

    def count(self, job: Job, into: dict[str, Any]) -> None:
        """Count acknowledged runs that cannot be read, now and for a while after."""
        names = job.acknowledged()
        until_s = time.monotonic() + SETTLE_S
        while True:
            found = self.side.readable(self.server, job.batch)
            lost = [name for name in names if found.get(name, -1) < job.steps]
            if not lost or time.monotonic() > until_s:
                break
            time.sleep(0.5)
        into["rounds"] += 1
        into["runs_acknowledged"] += len(names)
        into["runs_lost"] += len(lost)
        into["of_them_in_part"] += len([name for name in lost if name in found])
        into["only_the_newest"] &= names[len(names) - len(lost) :] == lost
        into["by_round"].append([len(lost), len(names)])

    # ------------------------------------------------------------ questions

    def questions(self, batch: str, ids: dict[str, Any]) -> None:
        """Measure each query in milliseconds, after a first answer that does not count."""
        asked = self.asked
        scores = {each.name: each for each in traces(batch, asked.runs, asked.steps, asked.seed)}
        known = {name: scores[name].score for name in ids}
        stored = self.side.readable(self.server, batch)
        known = {name: score for name, score in known.items() if stored.get(name) == asked.steps}
        self.side.score(self.server, ids, known)
        wanted: dict[str, list[float]] = {}
        for name, score in known.items():
            wanted.setdefault(scores[name].arm, []).append(score)
        names = random.Random(asked.seed).sample(sorted(known), min(ROUNDS_ASKED, len(known)))
        times: dict[str, list[float]] = {}
        with self.side.questions(self.server, batch, ids) as questions:
            assert questions.trail(names[0]) == asked.steps
            times["trail"] = [taken(partial(questions.trail, name)) for name in names]
            for way, mean in questions.means.items():
                told = mean()
                for arm, given in wanted.items():
                    assert abs(told[arm] - sum(given) / len(given)) < 1e-9, (way, told)
                times[f"mean score by arm, {way}"] = [taken(mean) for _ in names]
            for way, question in questions.more.items():
                question()
                times[way] = [taken(question) for _ in names]
        self.found["questions_ms"] = times
        self.found["runs_asked_about"] = len(known)
        say(f"  {asked.side}: { {way: round(median(each), 2) for way, each in times.items()} }")


def taken(question: Callable[[], object]) -> float:
    """Milliseconds."""
    began_s = time.perf_counter()
    question()
    return (time.perf_counter() - began_s) * 1e3


def say(words: str) -> None:
    """Print progress for people."""
    print(words, file=sys.stderr, flush=True)


def main() -> int:
    """Measure as the argument says; one line of JSON on stdout."""
    asked = msgspec.json.decode(sys.argv[1], type=Asked)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # its server is stopped, too
    with contextlib.redirect_stdout(sys.stderr):
        found = Measurement(asked).whole()
    print(msgspec.json.encode(found).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
