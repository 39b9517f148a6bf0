"""Command `hansard bisect`: find the first step of a run after which a check fails."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from hansard.agents import runs as actions
from hansard.agents.workspace import Workspace
from hansard.bus.commits import whole_at
from hansard.bus.log import AtPosition
from hansard.cli import output, processes
from hansard.cli.common import Agent, Command, Commands, Run, option
from hansard.cli.opening import reading_run
from hansard.cli.output import Column, Hint, Part
from hansard.cli.run import differences
from hansard.domain.choices import counted, listed
from hansard.domain.errors import CallerError
from hansard.domain.ids import AgentStream, run_of
from hansard.domain.run import ForkEffects
from hansard.inspect import state as state_reads
from hansard.inspect.answer import Answer
from hansard.inspect.state import Change
from hansard.inspect.trace import recorded

app = Commands()

SKIP = 125
"""Exit code of a check that cannot judge a state, as for `git bisect run`."""

BAD_MAX = 127
"""Highest exit code that means bad; a higher one, or a signal, ends the search."""

CHECK_S = 600.0
"""Default bound of one check, and of one run of the program in a fork, in seconds."""

START, END = "the beginning of the run", "the end of the run"

ASSUMPTION = (
    "assumed: once the check fails, it fails after every later step; states that were not checked "
    "may differ"
)


class Verdict(StrEnum):
    """Judgement of a check on a state."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


class Outcome(StrEnum):
    """End of a search."""

    FOUND = "found"
    AMONG_SKIPPED = "among skipped steps"
    NEVER_FAILS = "the check passes at the end"
    FAILS_AT_START = "the check fails before the first step"


class State(msgspec.Struct, frozen=True):
    """A state to check.

    Attributes:
        after: The steps whose outcomes the state has and the one before it has not, as
            `agent#number`; of the first and the last state, where in the run it is.
        at: Its position in the log; None for the end of the run.
    """

    after: tuple[str, ...]
    at: int | None


class CheckedState(msgspec.Struct, frozen=True, kw_only=True):
    """A state that was checked: the fork of it if there is one, and the check's result."""

    kind: Literal["probe"] = "probe"
    after: tuple[str, ...]
    at: int | None
    verdict: Verdict
    code: int
    fork: str | None
    last_line: str


class FailingStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step after which the check fails: its call and its result, as recorded."""

    kind: Literal["step"] = "step"
    step: str
    tool: str
    arguments: Any
    result: Any
    status: str


class Bisection(Answer):
    """Result of a search.

    Attributes:
        run: The run.
        check: The check's command.
        outcome: The end of the search.
        states: The number of states between which it searched.
        good: The last state in which the check passed.
        bad: The first state in which it failed.
        probes: The states that were checked, in that order.
        steps: The steps after which the check fails first; several if they were recorded together,
            or if those between them were skipped.
        changes: The differences between the good and the bad state.
    """

    run: str
    check: str
    outcome: Outcome
    states: int
    good: State | None
    bad: State | None
    probes: list[CheckedState]
    steps: list[FailingStep]
    changes: list[Change]

    def lines(self) -> Iterator[object]:
        """Yield the result, then the steps, the probes and the differences."""
        head: dict[str, Any] = {"run": self.run, "check": self.check, "outcome": self.outcome}
        head |= {"states": self.states, "good": self.good, "bad": self.bad}
        yield {"kind": "bisect", **head, "checked": len(self.probes), "assumed": ASSUMPTION}
        yield from self.steps
        yield from self.probes
        yield from self.changes


class _Plan(msgspec.Struct, frozen=True):
    """The run and what judges a state of it."""

    run: str
    check: str
    command: list[str]
    effects: ForkEffects
    timeout_s: float


@app.command()
async def bisect(
    which: Run,
    check: Annotated[
        str, option("Judges a state: exits with 0 if good, 1-127 if bad, 125 to skip it.", "CMD")
    ],
    command: Command = None,
    agent: Agent = None,
    effects: Annotated[
        Literal["shadow", "models"],
        option("Of the forks in which COMMAND runs: see 'hansard run fork --help'."),
    ] = "shadow",
    timeout: Annotated[
        float, option("Longest time of one check, and of one run of COMMAND.", "SECONDS", min=1)
    ] = CHECK_S,
) -> int:
    """Find the first step of a run after which a check fails.

    The search is binary. The check is a shell command, as for 'git bisect run'. It gets the state
    after a step as JSON on stdin and in the file $HANSARD_BISECT_STATE; $HANSARD_BISECT_RUN,
    $HANSARD_BISECT_STEP and $HANSARD_BISECT_AT name it. With COMMAND, each state is forked, COMMAND
    goes on in the fork, and the check judges its end; $HANSARD_BISECT_RUN is the fork. Forks have
    the label 'bisect', and no effects. In a run of 'hansard record', COMMAND goes on as 'hansard
    record --run FORK -- COMMAND' does. Exits with 1 if there is no such step.
    """
    async with reading_run(which) as (workspace, run):
        plan = _Plan(run, check, command or [], ForkEffects(effects), timeout)
        made = await _bisected(workspace, plan, agent)
    output.show(made, _render(made))
    return 0 if made.outcome in (Outcome.FOUND, Outcome.AMONG_SKIPPED) else 1


async def _bisected(workspace: Workspace, plan: _Plan, agent: str | None) -> Bisection:
    states = await _states(workspace, plan.run, agent)
    probes: list[CheckedState] = []

    async def probe(number: int) -> Verdict:
        checked = await _checked(workspace, plan, states[number])
        probes.append(checked)
        output.hint(f"{listed(checked.after)}: {checked.verdict} (exit code {checked.code})")
        return checked.verdict

    outcome, good, bad = await search(len(states) - 1, probe)
    steps: list[FailingStep] = []
    changes: list[Change] = []
    if good is not None and bad is not None:
        names = [name for state in states[good + 1 : bad + 1] for name in state.after]
        steps = await _failing(workspace, plan.run, names)
        changes = await _changes(workspace, plan.run, states[good], states[bad])
    return Bisection(
        run=plan.run,
        check=plan.check,
        outcome=outcome,
        states=len(states),
        good=states[good] if good is not None else None,
        bad=states[bad] if bad is not None else None,
        probes=probes,
        steps=steps,
        changes=changes,
    )


async def search(
    last: int, probe: Callable[[int], Awaitable[Verdict]]
) -> tuple[Outcome, int | None, int | None]:
    """Search the states 0 to `last` for the first bad one; return the end of the search, the last
    good state before it, and itself.

    Between both are only skipped states. Raises CallerError if the first or last state is skipped.
    """
    for number, ended, name in (
        (last, (Verdict.GOOD, Outcome.NEVER_FAILS), END),
        (0, (Verdict.BAD, Outcome.FAILS_AT_START), START),
    ):
        verdict = await probe(number)
        if verdict is Verdict.SKIPPED:
            message = f"the check skips {name} (exit code {SKIP}): let it judge that state"
            raise CallerError(message)
        if verdict is ended[0]:
            only = (number, None) if verdict is Verdict.GOOD else (None, number)
            return (ended[1], *only)
    good, bad = 0, last
    skipped: set[int] = set()
    while left := [number for number in range(good + 1, bad) if number not in skipped]:
        number = left[len(left) // 2]
        match await probe(number):
            case Verdict.GOOD:
                good = number
            case Verdict.BAD:
                bad = number
            case Verdict.SKIPPED:
                skipped.add(number)
    return (Outcome.FOUND if bad - good == 1 else Outcome.AMONG_SKIPPED), good, bad


async def _states(workspace: Workspace, run: str, agent: str | None) -> list[State]:
    """Return the states of a run to search: before its first step, after each, and at its end.

    Of a fork, only those after its beginning. Raises NotFound, CallerError.
    """
    commits = await workspace.states.history(run)
    view = await workspace.states.run(run)
    names = [agent] if agent is not None else list(view.agents)
    places = {
        (stored.stream.agent, version): stored
        for stored in commits
        if isinstance(stored.stream, AgentStream)
        for version in range(stored.commit.version, stored.commit.last_version + 1)
    }
    first = next(stored for stored in commits if run_of(stored.stream) == run)
    ended: dict[int, list[str]] = {}
    begun: list[int] = []
    for name in names:
        cut = view.life.forked.at.get(str(view.stream_of(name)), 0) if view.life.forked else 0
        for step in view.agent(name).steps.values():
            if step.version > cut and step.outcome_version is not None:
                intent = places[name, step.version]
                begun.append(intent.position - (intent.commit.tx.index if intent.commit.tx else 0))
                at = whole_at(places[name, step.outcome_version])
                ended.setdefault(at, []).append(f"{name}#{step.number}")
    if not ended:
        of = f" of agent {agent!r}" if agent is not None else ""
        message = f"run {run} has no step{of} with an outcome: there is nothing to search"
        raise CallerError(message)
    start = State((START,), max(whole_at(first), min(begun) - 1))
    return [start, *(State(tuple(ended[at]), at) for at in sorted(ended)), State((END,), None)]


async def _checked(workspace: Workspace, plan: _Plan, state: State) -> CheckedState:
    """Check a state, in a fork of it if there is a command to go on with. Raises CallerError."""
    fork: str | None = None
    if plan.command:
        labels = {"bisect": plan.run, "bisect.after": listed(state.after)}
        at = None if state.at is None else AtPosition(state.at)
        fork = await actions.fork(workspace, plan.run, at, plan.effects, labels)
        await _go_on(workspace, fork, plan)
    at = AtPosition(state.at) if fork is None and state.at is not None else None
    view = await workspace.states.run(fork or plan.run, at)
    data = state_reads.data(view)
    name = "" if state.after in ((START,), (END,)) else ",".join(state.after)
    fields = {"run": data.run, "after": state.after, "position": data.position}
    with tempfile.NamedTemporaryFile(prefix="hansard-state-", suffix=".json") as file:
        file.write(msgspec.json.encode({**fields, "life": data.life, "agents": data.agents}))
        file.seek(0)
        value = _environment(data.run, name, data.position, file.name)
        command = ["/bin/sh", "-c", plan.check]
        code, line = await processes.run_quietly(command, value, file, timeout_s=plan.timeout_s)
    if code > BAD_MAX:
        message = (
            f"the check ended with {code} after {listed(state.after)}: 0 is good, 1 to {BAD_MAX} "
            f"is bad, {SKIP} skips a state; its last line: {line or '(none)'}"
        )
        raise CallerError(message)
    verdict = Verdict.SKIPPED if code == SKIP else Verdict.BAD if code else Verdict.GOOD
    return CheckedState(
        after=state.after, at=state.at, verdict=verdict, code=code, fork=fork, last_line=line
    )


async def _go_on(workspace: Workspace, fork: str, plan: _Plan) -> None:
    """Run the plan's command in a fork; of a run of `hansard record`, as that command does.

    Raises CallerError if it ends without joining the fork: the check would judge nothing.
    """
    from hansard.cli.record import AGENT, demand, is_recorded, run_proxied

    code, line, calls = 0, "", 0

    async def start(command: list[str], values: Mapping[str, str]) -> int:
        nonlocal line
        code, line = await processes.run_quietly(command, values, timeout_s=plan.timeout_s)
        return code

    before = await workspace.states.run(fork)
    recorded_by = AGENT if is_recorded(before.life) else None
    if recorded_by is None:
        code, line = await processes.run_detached(fork, plan.command, plan.timeout_s)
    else:
        demand(plan.command)
        done = await run_proxied(None, AGENT, fork, plan.command, start=start)
        code, calls = done.code, done.proxy.report.calls
    after = await workspace.states.run(fork)
    epochs = {name: agent.epoch for name, agent in before.agents.items()}
    joined = [
        name
        for name, agent in after.agents.items()
        if name != recorded_by and agent.epoch > epochs.get(name, 0)
    ]
    if not joined and not calls:
        what = "a session" if recorded_by is None else "a session or calling a model"
        message = (
            f"{plan.command[-1]!r:.80} ended with exit code {code} without {what} in fork {fork}, "
            f"which HANSARD_RUN names: there is nothing to judge; its last line: {line or '(none)'}"
        )
        raise CallerError(message)


def _environment(run: str, after: str, position: int, path: str) -> Mapping[str, str]:
    """Return the environment of a check: the settings in use, without a run to resume."""
    value = processes.environment(run, "resume", Path(os.devnull))
    for name in ("HANSARD_RUN", "HANSARD_MODE", "HANSARD_REPORT", "HANSARD_SETTLE"):
        value.pop(name, None)
    return value | {
        "HANSARD_BISECT_RUN": run,
        "HANSARD_BISECT_STEP": after,
        "HANSARD_BISECT_AT": str(position),
        "HANSARD_BISECT_STATE": path,
    }


async def _failing(workspace: Workspace, run: str, names: list[str]) -> list[FailingStep]:
    """Return steps with their calls and results; a name of no step is left out."""
    view = await workspace.states.run(run)
    steps = []
    for name in names:
        if name not in (START, END):
            _, step = actions.find_step(view, name)
            result = recorded(step.result) if not step.streamed else [*map(recorded, step.items)]
            step_of = partial(FailingStep, step=name, tool=step.tool, status=step.status.value)
            steps.append(step_of(arguments=recorded(step.arguments), result=result))
    return steps


async def _changes(workspace: Workspace, run: str, good: State, bad: State) -> list[Change]:
    points = [state_reads.NOW if state.at is None else str(state.at) for state in (good, bad)]
    difference = await state_reads.difference(workspace, run, (points[0], points[1]), None)
    return difference.changes


# ------------------------------------------------------------ for people


def _render(made: Bisection) -> Iterator[Part]:
    yield output.listing(_COLUMNS, made.probes)
    checked = f"{len(made.probes)} of {counted(made.states, 'state')} checked"
    match made.outcome:
        case Outcome.NEVER_FAILS:
            yield f"The check passes at {END}: there is no step to find. {checked}."
            return
        case Outcome.FAILS_AT_START:
            yield f"The check fails at {START} already: no step is to blame. {checked}."
            return
        case Outcome.FOUND:
            names = listed(made.bad.after) if made.bad is not None else ""
            yield output.styled(f"The check fails first after {names}. {checked}.", "bold")
        case Outcome.AMONG_SKIPPED:
            names = listed(step.step for step in made.steps)
            text = (
                f"The check fails first after one of {names}; the others were skipped. {checked}."
            )
            yield output.styled(text, "bold")
    for step in made.steps:
        call = output.arguments_preview(step.arguments)
        yield f"  {step.step}  {step.tool}  {call}  {step.status}  {output.preview(step.result)}"
    yield output.Lines(list(differences(made.changes)))
    yield Hint(ASSUMPTION)
    if made.good is not None:
        yield Hint(f"fork before it: hansard run fork {made.run} --at {made.good.at}")


_COLUMNS = (
    Column("after", lambda row: listed(row.after), whole=True),
    Column("check", lambda row: row.verdict.value),
    Column("exit", lambda row: str(row.code), right=True),
    Column("fork", lambda row: row.fork or "", whole=True),
    Column("last line", lambda row: row.last_line),
)
