"""The demo, scene by scene. Each figure is read from the record or the world after the fact."""

from __future__ import annotations

import difflib
import shlex
import signal
from pathlib import Path

import hansard
from hansard.bus.states.replay import RunView
from hansard.demo import look, report
from hansard.demo.process import Ended, Moment, moment, run_worker
from hansard.demo.stage import Stage
from hansard.demo.team import BATCH, MODULES, STRATEGIES
from hansard.demo.worker import Order
from hansard.demo.world import World, described
from hansard.domain.run import RunStatus
from hansard.domain.steps import Effects, Verdict

CALLS_MIN = 100
"""The job is no toy: fewer recorded calls would show little."""

MIDDLE = MODULES // BATCH // 2 * BATCH
"""Modules that are measured when the state is looked at and the fork begins."""

SETTLED: dict[Verdict | None, str] = {
    Verdict.HAPPENED: "the ledger was looked at and has the line: it was not posted again",
    Verdict.DID_NOT_HAPPEN: "the ledger was looked at and lacks the line: it was posted now",
}


class Story:
    """One telling: a record, a world, and what was found so far."""

    def __init__(self, stage: Stage, record: hansard.Record, order: Order) -> None:
        self.stage = stage
        self.record = record
        self.order = order

    def _world(self, run: str) -> World:
        return World(Path(self.order.world), run)

    def _work(
        self, run: str | None, strategy: str = "branches", kill: Moment | None = None
    ) -> Ended:
        order = Order(
            data_dir=self.order.data_dir,
            stdlib=self.order.stdlib,
            world=self.order.world,
            run=run,
            strategy=strategy,
        )
        return run_worker(order, kill)

    def _newest(self) -> str:
        return self.record.runs()[0][0]

    def undisturbed(self) -> tuple[str, int]:
        """Scene 1: the job, from its begin to its end. Its run, and how many bodies it took."""
        stage = self.stage
        stage.scene("1. An undisturbed run")
        ended = self._work(None)
        run = self._newest()
        view, world = self.record.state(run), self._world(run)
        calls = look.done(view)
        bodies = world.bodies()
        stage.hold("the run is complete", view.life.status is RunStatus.COMPLETED)
        stage.hold("at least 100 calls are on record", len(calls) >= CALLS_MIN, calls=len(calls))
        stage.hold(
            "every call is on record and ran once",
            sorted(look.ended(view)) == sorted(bodies) and not look.in_doubt(view),
            calls=len(calls),
            bodies=len(bodies),
        )
        stage.hold("results over 64 KiB came back from blobs", look.large(view) > 1)
        stage.tell(
            "undisturbed",
            f"process {ended.pid} did the job in {ended.seconds} s: {len(calls)} calls "
            f"({look.told(view)}), {look.events(view)} events, {look.large(view)} results over "
            "64 KiB kept as blobs",
            run=run,
            pid=ended.pid,
            seconds=ended.seconds,
            calls=len(calls),
            events=look.events(view),
            blobs=look.large(view),
        )
        saved = described(world.report.name, world.report.read_text(encoding="utf-8"))
        stage.hold("the report on disk is the one on record", saved == ended.saved)
        stage.hold("the ledger has one line for it", look.posted(world, saved.sha256) == 1)
        stage.tell(
            "report",
            f"report A, summary by {'a model' if look.by_model(view) else 'a rule'}: "
            f"{saved.size:,} bytes, sha256 {saved.sha256[:16]}, one line in the ledger",
            path=str(world.report),
            sha256=saved.sha256,
            bytes=saved.size,
            by_model=look.by_model(view),
        )
        return run, len(bodies)

    def killed(self, seed: int, bodies: int) -> tuple[str, RunView]:
        """Scene 2: the job again, killed. Its run, and what was on record then."""
        stage, when = self.stage, moment(seed, bodies)
        stage.scene("2. The same job, killed by another process")
        stage.tell(
            "moment",
            f"seed {seed} says: SIGKILL {when.delay_ms} ms after tool body {when.body} of {bodies} "
            "begins",
            seed=seed,
            body=when.body,
            bodies=bodies,
            delay_ms=when.delay_ms,
        )
        ended = self._work(None, kill=when)
        run = self._newest()
        view, world = self.record.state(run), self._world(run)
        begun, done, doubt = world.bodies(), look.done(view), look.in_doubt(view)
        stage.hold("the process died of SIGKILL", ended.returncode == -signal.SIGKILL)
        stage.hold("what is on record did run", set(done) <= set(begun), record=sorted(done))
        lost = [name for name in begun if name not in done]
        stage.tell(
            "killed",
            f"process {ended.pid} is dead {ended.seconds} s after its start; its last body to "
            f"begin was {look.short(begun[-1])!r}",
            run=run,
            pid=ended.pid,
            returncode=ended.returncode,
            begun=len(begun),
        )
        stage.tell(
            "on_record",
            f"on record: {look.events(view)} events, {len(done)} calls done ({look.told(view)}); "
            f"{len(lost)} more had begun without an outcome",
            events=look.events(view),
            done=len(done),
            begun_without_outcome=lost,
        )
        for name, step in doubt.items():
            stage.tell(
                "in_doubt",
                f"in doubt: {look.short(name)!r} ({step.effects.value}): its intent is on record, "
                "its outcome is not",
                call=name,
                effects=step.effects.value,
            )
        if not doubt:
            stage.tell("in_doubt", "in doubt: nothing that has an effect was under way", call=None)
        return run, view

    def resumed(self, run: str, before: RunView, undisturbed: str) -> None:
        """Scene 3: a new process finishes what the killed one had begun."""
        stage, world = self.stage, self._world(run)
        stage.scene("3. Resumed in a new process")
        earlier = len(world.bodies())
        ended = self._work(run)
        view, bodies = self.record.state(run), world.bodies()
        calls, ran = look.done(view), bodies[earlier:]
        was = look.done(before)
        again = sorted(set(was) & set(ran))
        settled = [name for name, step in calls.items() if step.verdict is not None]
        answered = [name for name in calls if name not in ran and name not in settled]
        stage.hold("the run is complete", view.life.status is RunStatus.COMPLETED)
        stage.hold(
            "what was on record is still there, result by result",
            all(calls[name].digest == step.digest for name, step in was.items()),
        )
        stage.hold("0 recorded calls ran again", not again, again=again)
        stage.hold("every recorded call was answered", set(was) <= set(answered))
        stage.tell(
            "resumed",
            f"process {ended.pid} finished in {ended.seconds} s: {len(answered)} calls answered "
            f"from the record, {len(ran)} ran, 0 of the recorded ones among them",
            run=run,
            pid=ended.pid,
            answered=len(answered),
            ran=len(ran),
            again=len(again),
        )
        twice = sorted({name for name in bodies if bodies.count(name) > 1})
        stage.hold("only what was not on record ran twice", not set(twice) & set(was), twice=twice)
        stage.tell(
            "twice",
            f"the list of bodies that ran, kept outside the record: {len(bodies)} for "
            f"{len(calls)} calls; {len(twice)} had been cut short and ran a second time",
            bodies=len(bodies),
            calls=len(calls),
            twice=twice,
        )
        self._settled(before, view)
        self._compared(view, self.record.state(undisturbed))

    def _settled(self, before: RunView, view: RunView) -> None:
        """What became of the intents in doubt."""
        calls = look.done(view)
        for name, was in look.in_doubt(before).items():
            step = calls[name]
            how = SETTLED.get(step.verdict)
            idempotent = was.effects is Effects.IDEMPOTENT and step.key == was.key
            self.stage.hold(
                "a doubt was settled by looking, or by the same key",
                how is not None or idempotent,
                call=name,
            )
            self.stage.tell(
                "settled",
                f"settled: {look.short(name)!r}: {how or 'done again under the same key'}",
                call=name,
                verdict=step.verdict.value if step.verdict is not None else None,
                by=step.settled_by,
            )

    def _compared(self, resumed: RunView, undisturbed: RunView) -> None:
        """The resumed run's report beside the undisturbed one's."""
        mine, other = self._world(resumed.run), self._world(undisturbed.run)
        by_model = look.by_model(resumed) or look.by_model(undisturbed)
        ours, theirs = (world.report.read_text(encoding="utf-8") for world in (mine, other))
        saved = described(mine.report.name, ours)
        equal = ours == theirs
        if by_model:  # a model need not say the same twice, the rest must
            equal = report.without_summary(ours) == report.without_summary(theirs)
        self.stage.hold(
            "the report is byte-equal to A",
            equal,
            here=saved.sha256,
            there=described(other.report.name, theirs).sha256,
        )
        self.stage.hold("the ledger has one line for it", look.posted(mine, saved.sha256) == 1)
        apart = " but for the model's summary" if by_model else ""
        self.stage.tell(
            "equal",
            f"report B is byte-equal to A{apart}: {saved.size:,} bytes, sha256 "
            f"{saved.sha256[:16]}; the ledger has one line for each",
            path=str(mine.report),
            sha256=saved.sha256,
            by_model=by_model,
        )

    def middle(self, run: str) -> tuple[str, RunView]:
        """Scene 4: the team as it stood halfway. The point, and the state there."""
        stage = self.stage
        stage.scene("4. The team, halfway")
        newest = self.record.state(run)
        version = look.checkpoint(newest.agent("analyzer"), "measured", modules=MIDDLE)
        at = f"analyzer@{version}"
        view = self.record.state(run, at=at)
        measured = [name for name in look.done(view) if name.startswith("measure ")]
        stage.hold("the analyzer has measured half", len(measured) == MIDDLE, measured=measured)
        stage.hold("the writer has done nothing yet", not view.agent("writer").steps)
        later = look.done(newest)
        stage.hold(
            "nothing of it changed later",
            all(later[name] == step for name, step in look.done(view).items()),
        )
        stage.tell(
            "middle",
            f"at {at} (position {view.position}): {look.told(view)} calls done; the analyzer has "
            f"measured {len(measured)} of {MODULES} modules",
            run=run,
            at=at,
            position=view.position,
            calls=len(look.done(view)),
            measured=len(measured),
        )
        researcher = view.agent("researcher")
        stage.hold("the work is the analyzer's", look.handed_to(researcher) == "analyzer")
        for name, state in view.agents.items():
            last = look.in_order(state)[-1:]
            did = f"last call {look.short(look.name_of(last[0]))!r}" if last else "no call yet"
            to = look.handed_to(state)
            stage.tell(
                "agent",
                f"{name}: version {state.version}, {did}, {len(state.messages)} messages "
                f"({state.total_tokens} tokens), {len(state.resources)} resources"
                + (f", handed over to {to}" if to else ""),
                agent=name,
                version=state.version,
                calls=len(state.steps),
                messages=len(state.messages),
                tokens=state.total_tokens,
                resources=len(state.resources),
                handed_to=to,
            )
        self._decided(view)
        return at, view

    def _decided(self, view: RunView) -> None:
        """What was decided by then, and what was turned down."""
        decided = [(name, fact) for name, state in view.agents.items() for fact in state.decisions]
        self.stage.hold("both agents have decided by then", len(decided) > 1)
        for name, fact in decided:
            refused = [a for a in fact.alternatives if a.rejected_because]
            why = f"{refused[0].id}: {refused[0].rejected_because}" if refused else "nothing"
            self.stage.tell(
                "decision",
                f"{name} decided {fact.question!r}: {look.short(fact.selected)!r}, out of "
                f"{len(fact.alternatives)}; turned down, for one, {look.short(why)!r}",
                agent=name,
                question=fact.question,
                selected=fact.selected,
                alternatives=len(fact.alternatives),
                rejected=len(refused),
                threshold=fact.threshold,
                because=fact.because,
            )

    def forked(self, run: str, at: str, shared: RunView) -> str:
        """Scene 5: from the middle on, with another strategy. The fork's run."""
        stage, parent = self.stage, self._world(run)
        stage.scene("5. From there, with another strategy")
        ledger, written = parent.entries(), parent.report.read_bytes()
        fork = self.record.fork(run, at=at, labels={"strategy": "lines"})
        ended = self._work(fork, "lines")
        view, ran = self.record.state(fork), self._world(fork).bodies()
        took = look.done(shared)
        anew = {name: step for name, step in look.ended(view).items() if name not in took}
        shadows = sorted(name for name, step in anew.items() if step.kind == "shadow")
        stage.hold("nothing taken over ran", not set(took) & set(ran))
        stage.hold(
            "all else ran once, effects apart",
            sorted(ran) == sorted(set(anew) - set(shadows)),
            ran=len(ran),
            anew=len(anew),
        )
        strategy = STRATEGIES["lines"]
        stage.tell(
            "fork",
            f"a fork at {at} looks for {strategy.threshold} {strategy.measure} instead of "
            f"{STRATEGIES['branches'].threshold} branches: {len(took)} calls taken over without "
            f"running, {len(ran)} ran again ({ended.seconds} s)",
            run=fork,
            parent=run,
            at=at,
            taken_over=len(took),
            ran=len(ran),
        )
        stage.hold("both effects were shadowed", len(shadows) == len(("report", "ledger")))
        stage.hold("the ledger is as it was", parent.entries() == ledger)
        stage.hold("the parent's report is as it was", parent.report.read_bytes() == written)
        stage.hold("the fork wrote no report", not self._world(fork).report.exists())
        names = ", ".join(name.split()[0] for name in shadows)
        stage.tell(
            "shadowed",
            f"its effects ({names}) were only shadowed: {len(ledger)} lines in the ledger before "
            "and after, the parent's report untouched",
            shadowed=shadows,
            ledger=len(ledger),
        )
        self._differ(written.decode(), look.report_of(view))
        return fork

    def _differ(self, ours: str, theirs: str) -> None:
        """How the two reports differ, in a line each."""
        changes = list(difflib.ndiff(ours.splitlines(), theirs.splitlines()))
        gone, new = (sum(line.startswith(mark) for line in changes) for mark in ("- ", "+ "))
        self.stage.hold("the reports differ", gone > 0 and new > 0)
        first, second = report.headline(ours), report.headline(theirs)
        self.stage.hold("they lead with another finding", first != second)
        self.stage.tell("leads", f"by branches: {first}", strategy="branches", lines=gone)
        self.stage.tell("leads", f"by lines:    {second}", strategy="lines", lines=new)

    def closing(self, run: str, at: str) -> None:
        """Where all of it is, and what to try."""
        stage = self.stage
        stage.scene("Where it is")
        where = self.order.data_dir
        commands = [
            "hansard runs",
            f"hansard run trace {run}",
            f"hansard run show {run} --at {at}",
        ]
        setting = f"export HANSARD_DATA_DIR={shlex.quote(where)} HANSARD_WORKSPACE=demo"
        stage.tell("where", f"the record is in {where}; to look around:", data_dir=where)
        for command in (setting, *commands):
            stage.command(command)
