"""The demo, scene by scene. Each figure is read from the record or the world afterwards."""

from __future__ import annotations

import functools
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from textwrap import shorten
from typing import Any

import msgspec

import hansard
from hansard.demo.team import BATCH, MODULES, THRESHOLDS, World, call_name, digest, work
from hansard.domain.agent import CheckpointSaved
from hansard.domain.choices import counted
from hansard.domain.run import RunStatus
from hansard.domain.steps import Effects, Step, StepStatus
from hansard.state.replay import RunView

WORKSPACE = "demo"

CALLS_MIN = 100
"""Least recorded calls of the job: fewer would show little."""

MIDDLE = MODULES // BATCH // 2 * BATCH
"""Modules measured before the state is inspected and the fork begins."""

WORKER = "import sys, hansard.demo.story as it; it.work_and_report(*sys.argv[1:])"

WORKER_S_MAX = 120.0
"""Timeout of a worker in seconds: it takes 3 to 6 s on two cores."""

DELAY_MS_MAX = 3.0
"""Longest wait between a body's begin and the kill, in milliseconds: about as long as body and
record take.
"""


class Failed(Exception):
    """A claim that does not hold, with the observed values; or the way in which a worker ended."""

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))


class Stage:
    """Prints facts, one line each: as text, or as NDJSON with their figures and claims."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._held: list[str] = []
        self.claims = 0

    def _line(self, shown: str, **line: Any) -> None:
        sys.stdout.write((msgspec.json.encode(line).decode() if self._json else shown) + "\n")
        sys.stdout.flush()

    def scene(self, title: str) -> None:
        """Begin a new part of the story; text only."""
        if not self._json:
            self._line(f"\n{title}")

    def hold(self, claim: str, holds: object, /, **seen: Any) -> None:
        """Check a claim that the next fact rests on. Raises Failed."""
        if not holds:
            raise Failed(claim, f"it does not hold, seen: {seen!r:.400}")
        self._held.append(claim)
        self.claims += 1

    def fact(self, fact: str, text: str, **figures: Any) -> None:
        """Print a fact in one line."""
        held, self._held = self._held, []
        mark = "ok" if held else ""
        self._line(f"  {mark:2}  {text}", fact=fact, text=text, **figures, claims=held)

    def fail(self, error: Exception) -> None:
        """Print the error and end the story."""
        claim = error.args[0] if isinstance(error, Failed) else ""
        if self._json:
            self._line("", fact="failed", claim=claim, text=str(error))
        else:
            sys.stderr.write(f"\nThe demo failed: {error}\n")


Moment = tuple[int, float]
"""Moment of the kill: the number of a tool body, and the milliseconds after its begin."""


def moment(seed: int, bodies: int) -> Moment:
    """Return the moment of the kill for a seed and a job with this number of tool bodies."""
    draw = random.Random(seed)  # noqa: S311 -- a seed must give the same moment
    return draw.randint(1, bodies), round(draw.uniform(0.0, DELAY_MS_MAX), 2)


def work_and_report(root: str, stdlib: str, strategy: str, run: str = "") -> None:
    """Do the job in this process; it writes a line before each tool's body."""
    with hansard.connect(workspace=WORKSPACE, data_dir=root) as record:
        world_of = functools.partial(
            World, Path(root, "world"), announce=functools.partial(print, flush=True)
        )
        work(record, Path(stdlib), world_of, strategy, run or None)


Worked = tuple[int, float]
"""A worker's process id, and its duration in seconds."""


def run_worker(arguments: list[str], kill: Moment | None) -> Worked:
    """Run a worker to its end, or kill it. Raises Failed."""
    began = time.perf_counter()
    command = [sys.executable, "-P", "-c", WORKER, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 -- our own module
        assert process.stdout is not None  # noqa: S101 -- a pipe was requested
        stuck = threading.Timer(WORKER_S_MAX, process.kill)
        stuck.start()
        try:
            for begun, _ in enumerate(process.stdout, 1):
                if kill is not None and begun == kill[0]:
                    time.sleep(kill[1] / 1_000)
                    process.kill()
                    break
            process.wait()
        finally:
            stuck.cancel()
            process.kill()
    if process.returncode != (0 if kill is None else -signal.SIGKILL):
        raise Failed(f"a worker ended with {process.returncode}")
    return process.pid, round(time.perf_counter() - began, 2)


def calls(view: RunView, *statuses: StepStatus) -> dict[str, Step]:
    """Return the calls of a run in these states, by name."""
    return {
        call_name(step.tool, msgspec.json.decode(step.arguments).values()): step
        for agent in view.agents.values()
        for step in agent.steps.values()
        if step.status in statuses
    }


def done(view: RunView) -> dict[str, Step]:
    """Return the calls with recorded results."""
    return calls(view, StepStatus.COMPLETED)


def in_doubt(view: RunView) -> dict[str, Step]:
    """Return the intents without an outcome."""
    return {name: step for name, step in calls(view, *StepStatus).items() if step.is_open}


class Story:
    """One execution of the demo: a record, a world, and the findings so far."""

    def __init__(self, stage: Stage, root: Path, stdlib: Path) -> None:
        self.stage = stage
        self.root = root
        self.stdlib = stdlib

    def tell(self, seed: int) -> None:
        """Run all scenes. Raises Failed."""
        began = time.perf_counter()
        self.stage.fact("job", f"three agents report on the standard library in {self.stdlib}")
        with hansard.connect(workspace=WORKSPACE, data_dir=self.root) as self.record:
            first, bodies = self.undisturbed()
            run, before = self.killed(seed, bodies)
            self.resumed(run, before, first)
            at, middle = self.middle(run)
            self.forked(run, at, middle)
            self.closing(run, at)
        seconds, held = round(time.perf_counter() - began, 1), self.stage.claims
        self.stage.fact("end", f"{held} claims held in {seconds} s", claims_held=held, seed=seed)

    def _world(self, run: str) -> World:
        return World(self.root / "world", run)

    def _work(self, run: str = "", how: str = "branches", kill: Moment | None = None) -> Worked:
        return run_worker([str(self.root), str(self.stdlib), how, run], kill)

    def _newest(self) -> RunView:
        return self.record.state(self.record.runs()[0][0])

    def undisturbed(self) -> tuple[str, int]:
        """Run scene 1: the whole job. Return its run, and its number of bodies."""
        stage = self.stage
        stage.scene("1. An undisturbed run")
        pid, seconds = self._work()
        view = self._newest()
        outcomes, world = done(view), self._world(view.run)
        bodies = world.bodies()
        large = sum(b'"$blob"' in bytes(step.result) for step in outcomes.values())
        stage.hold("the run is complete", view.life.status is RunStatus.COMPLETED)
        stage.hold(
            "at least 100 calls are on record", len(outcomes) >= CALLS_MIN, calls=len(outcomes)
        )
        stage.hold("every call is on record and ran once", sorted(outcomes) == sorted(bodies))
        stage.hold("results over 64 KiB were read back from blobs", large > 1)
        text = f"process {pid} did the job in {seconds} s: {len(outcomes)} calls, {large} in blobs"
        stage.fact("undisturbed", text, run=view.run, pid=pid, calls=len(outcomes), blobs=large)
        saved = digest(world.report.read_text(encoding="utf-8"))
        stage.hold("the report on disk is the one on record", self._posted(world, saved))
        stage.fact("report", f"report A has sha256 {saved}", path=str(world.report))
        return view.run, len(bodies)

    @staticmethod
    def _posted(world: World, sha256: str) -> bool:
        return world.entries(world.run) == [f"{world.run}\t{sha256}"]

    def killed(self, seed: int, bodies: int) -> tuple[str, RunView]:
        """Run scene 2: the job again, killed. Return its run, and its state after the kill."""
        stage, (body, delay_ms) = self.stage, moment(seed, bodies)
        stage.scene("2. The same job, killed by another process")
        text = f"seed {seed} says: SIGKILL {delay_ms} ms after tool body {body} of {bodies} begins"
        stage.fact("moment", text, bodies=bodies)
        pid, seconds = self._work(kill=(body, delay_ms))
        view = self._newest()
        begun, outcomes = self._world(view.run).bodies(), done(view)
        stage.hold("the run is not complete", view.life.status is not RunStatus.COMPLETED)
        stage.hold("recorded calls did run", set(outcomes) <= set(begun), record=sorted(outcomes))
        lost = [name for name in begun if name not in outcomes]
        text = (
            f"process {pid} is dead after {seconds} s, its last body was {shorten(begun[-1], 60)!r}"
        )
        stage.fact("killed", text, run=view.run, pid=pid, begun=len(begun))
        text = f"on record: {len(outcomes)} calls; {len(lost)} more had begun without an outcome"
        stage.fact("on_record", text, done=len(outcomes), begun_without_outcome=lost)
        for name, step in in_doubt(view).items():
            text = f"in doubt: {shorten(name, 60)!r}: its intent is on record, its outcome is not"
            stage.fact("in_doubt", text, call=name, effects=step.effects.value)
        return view.run, view

    def resumed(self, run: str, before: RunView, undisturbed: str) -> None:
        """Run scene 3: a new process finishes the killed job."""
        stage, world = self.stage, self._world(run)
        stage.scene("3. Resumed in a new process")
        earlier = len(world.bodies())
        pid, seconds = self._work(run)
        view, bodies = self.record.state(run), world.bodies()
        outcomes, was, ran = done(view), done(before), bodies[earlier:]
        again = sorted(set(was) & set(ran))
        answered = [n for n, step in outcomes.items() if n not in ran and step.verdict is None]
        stage.hold("the run is complete", view.life.status is RunStatus.COMPLETED)
        kept = all(outcomes[name].digest == step.digest for name, step in was.items())
        stage.hold("recorded results are unchanged", kept)
        stage.hold("0 recorded calls ran again", not again, again=again)
        stage.hold("every recorded call was answered", set(was) <= set(answered))
        twice = sorted({name for name in bodies if bodies.count(name) > 1})
        stage.hold("only unrecorded calls ran twice", not set(twice) & set(was), twice=twice)
        count = f"{len(answered)} calls answered from the record, {len(ran)} ran"
        text = f"process {pid} finished in {seconds} s: {count}, 0 of the recorded ones among them"
        stage.fact("resumed", text, run=run, pid=pid, answered=len(answered), ran=len(ran))
        text = f"{counted(len(twice), 'call')} had been cut short and ran a second time"
        stage.fact("twice", text, bodies=len(bodies), twice=twice)
        for name, doubt in in_doubt(before).items():
            step = outcomes[name]
            same_key = doubt.effects is Effects.IDEMPOTENT and step.key == doubt.key
            verdict = step.verdict.value if step.verdict is not None else None
            stage.hold("a doubt was settled by looking, or by the same key", verdict or same_key)
            how = f"the ledger says: {verdict}" if verdict else "done again under the same key"
            text = f"settled: {shorten(name, 60)!r}: {how}"
            stage.fact("settled", text, call=name, verdict=verdict)
        ours = world.report.read_bytes()
        theirs = self._world(undisturbed).report.read_bytes()
        stage.hold("the report is byte-equal to A", ours == theirs)
        saved = digest(ours.decode())
        stage.hold("the ledger has one line for it", self._posted(world, saved))
        text = f"report B is byte-equal to A: sha256 {saved}; the ledger has one line for each"
        stage.fact("equal", text, path=str(world.report), sha256=saved)

    def middle(self, run: str) -> tuple[str, RunView]:
        """Run scene 4: the team halfway through the job. Return the point, and the state there."""
        stage = self.stage
        stage.scene("4. The team, halfway")
        newest = self.record.state(run)
        noted = [n for n in newest.agent("analyzer").facts if isinstance(n.fact, CheckpointSaved)]
        version = noted[MIDDLE // BATCH - 1].version
        at = f"analyzer@{version}"
        view = self.record.state(run, at=at)
        outcomes, later = done(view), done(newest)
        measured = sum(name.startswith("measure ") for name in outcomes)
        stage.hold("the analyzer has measured half", measured == MIDDLE, measured=measured)
        stage.hold("the writer has done nothing yet", not view.agent("writer").steps)
        stage.hold("nothing of it changed later", all(later[n] == s for n, s in outcomes.items()))
        text = f"at {at}: {len(outcomes)} calls done, {measured} of {MODULES} modules measured"
        stage.fact("middle", text, at=at, calls=len(outcomes), measured=measured)
        for name, state in view.agents.items():
            did = f"{len(state.steps)} calls, {len(state.resources)} resources"
            chose = [f"chose {shorten(each.selected, 60)!r}" for each in state.decisions]
            text = ", ".join([f"{name}: version {state.version}", did, *chose])
            figures = {"calls": len(state.steps), "resources": len(state.resources)}
            stage.fact("agent", text, agent=name, **figures)
        return at, view

    def forked(self, run: str, at: str, shared: RunView) -> None:
        """Run scene 5: from the middle on, with another strategy."""
        stage, parent = self.stage, self._world(run)
        stage.scene("5. From there, with another strategy")
        ledger, written = parent.entries(), parent.report.read_text(encoding="utf-8")
        fork = self.record.fork(run, at=at, labels={"strategy": "lines"})
        _, seconds = self._work(fork, "lines")
        view, ran, took = self.record.state(fork), self._world(fork).bodies(), done(shared)
        news = {name: step for name, step in done(view).items() if name not in took}
        shadows = sorted(name for name, step in news.items() if step.kind == "shadow")
        stage.hold("nothing taken over ran", not set(took) & set(ran))
        stage.hold("all else ran once, effects apart", sorted(ran) == sorted({*news} - {*shadows}))
        looks = f"looks for {THRESHOLDS['lines']} lines, not {THRESHOLDS['branches']} branches"
        text = (
            f"a fork at {at} {looks}: {len(took)} calls taken over, {len(ran)} ran in {seconds} s"
        )
        stage.fact("fork", text, run=fork, taken_over=len(took), ran=len(ran))
        stage.hold("both effects were shadowed", len(shadows) == len(("report", "ledger")))
        stage.hold("the ledger is as it was", parent.entries() == ledger)
        unchanged = parent.report.read_text(encoding="utf-8") == written
        stage.hold("the parent's report is as it was", unchanged)
        stage.hold("the fork wrote no report", not self._world(fork).report.exists())
        names = ", ".join(name.split()[0] for name in shadows)
        text = f"its effects ({names}) were only shadowed: ledger and report are untouched"
        stage.fact("shadowed", text, shadowed=shadows, ledger=len(ledger))
        [saving] = [step for name, step in news.items() if name.startswith("save_report ")]
        theirs = str(msgspec.json.decode(saving.arguments)["text"])
        stage.hold("the reports differ", theirs != written)
        for strategy, text in (("branches", written), ("lines", theirs)):
            stage.fact("leads", f"by {strategy}: {text.splitlines()[2]}", strategy=strategy)

    def closing(self, run: str, at: str) -> None:
        """Print where everything is, and what to try next."""
        self.stage.scene(f"The record is in {self.root}; to look around:")
        where = f"HANSARD_DATA_DIR={shlex.quote(str(self.root))} HANSARD_WORKSPACE={WORKSPACE}"
        show = f"hansard run show {run} --at {at}"
        for command in (f"export {where}", "hansard runs", f"hansard run trace {run}", show):
            self.stage.fact("try", f"    {command}", command=command)
        self.stage.scene("In a browser, with the service in one terminal and the login in another:")
        for command in ("hansard up --http", f"hansard login --open --next /ws/{WORKSPACE}"):
            self.stage.fact("try", f"    {command}", command=command)
