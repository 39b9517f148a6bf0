"""`hansard run resume`, `fork`, `settle`, `reopen`, `finish`, `cancel`: how a run goes on."""

from __future__ import annotations

from typing import Any

import msgspec

from hansard.agents import runs as actions
from hansard.bus.states.replay import RunView
from hansard.cli import output
from hansard.cli.commands import _child
from hansard.cli.opening import Options, find_run, reading
from hansard.domain import values
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.run import ForkEffects, RunState, RunStatus
from hansard.domain.steps import Verdict


class OneVerdict(CallerError):
    """No verdict was given, or several."""

    def __init__(self, given: list[str]) -> None:
        has = f"{' and '.join(given)} were given" if given else "none was given"
        super().__init__(
            f"a step is settled by exactly one verdict, {has}: choose one of "
            "--happened RESULT, --did-not-happen, --reuse, --run-again"
        )
        self.given = given


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of a step."""

    happened: str | None = None
    did_not_happen: bool = False
    reuse: bool = False
    run_again: bool = False
    because: str = ""
    by: str = "person"

    def verdict(self) -> Verdict:
        """The one verdict. Raises OneVerdict."""
        named = {
            "--happened": (self.happened is not None, Verdict.HAPPENED),
            "--did-not-happen": (self.did_not_happen, Verdict.DID_NOT_HAPPEN),
            "--reuse": (self.reuse, Verdict.REUSE),
            "--run-again": (self.run_again, Verdict.RUN_AGAIN),
        }
        given = [name for name, (is_given, _) in named.items() if is_given]
        if len(given) != 1:
            raise OneVerdict(given)
        return named[given[0]][1]


def result_from(text: str) -> Any:
    """A result as typed: JSON, with values as `hansard run trace` shows them; else the text."""
    try:
        plain = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
    try:
        return values.revive(plain)
    except BadValue:  # an object with a key of the user's own that begins with "$"
        return plain


async def settle(options: Options, run: str, step: str, said: Said, *, json: bool) -> int:
    """Say what is true of a step. Raises OneVerdict, Refused, NotFound, BadName, BadValue."""
    verdict = said.verdict()
    result = result_from(said.happened) if said.happened is not None else None
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        await actions.settle(
            workspace,
            run,
            step,
            verdict.value,
            result=result,
            by=said.by,
            because=said.because,
        )
        view = await workspace.states.run(run)
        agent, settled = actions.find_step(view, step)
    name = f"{agent}#{settled.number}"
    told = {"run": run, "step": name, "verdict": verdict, "status": settled.status}
    text = f"step {name} ({settled.tool}) is settled: {verdict.value}, now {settled.status}"
    output.show(told, text, json=json)
    output.hint(_next(view))
    return 0


def _next(view: RunView) -> str:
    """What to do after a step was settled."""
    still = [
        f"{agent}#{step.number}"
        for agent, state in view.agents.items()
        for step in state.open_steps
        if step.effects.value in ("once", "reconcile")
    ]
    if still:
        return f"still open: {', '.join(still)}; settle them too, or resume: {_resume(view.run)}"
    return f"go on with: {_resume(view.run)}"


def _resume(run: str) -> str:
    return f"hansard run resume {run} -- COMMAND"


async def fork(
    options: Options, run: str, at: str | None, effects: ForkEffects, *, json: bool
) -> int:
    """Begin a new run where another stood; its id is the answer. Raises NotFound, BadName."""
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        child = await actions.fork(workspace, run, at, effects)
        life = await workspace.states.life(child)
    vector = life.forked.at if life.forked is not None else {}
    told = {"run": child, "parent": run, "effects": effects, "vector": vector}
    output.show(told, child, json=json)
    meant = {
        ForkEffects.SHADOW: "tools with effects return the parent's outcome or a declared shadow",
        ForkEffects.LIVE: "tools with effects run, and may repeat what the parent did",
    }
    output.hint(f"effects={effects.value}: {meant[effects]}\ngo on with: {_resume(child)}")
    return 0


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """Who says something of a run, and why."""

    by: str = "person"
    because: str = ""


async def reopen(options: Options, run: str, task: str, word: Word, *, json: bool) -> int:
    """Have a task that failed be done after all. Raises NotFound, Refused, BadName."""
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        news = await actions.reopen(workspace, run, task, by=word.by, because=word.because)
    text = "is open again" if news else "is not over: nothing was written"
    told = {"run": run, "task": task, "reopened": news}
    output.show(told, f"task {task} of run {run} {text}", json=json)
    if news:
        output.hint("its next claim is another agent's to make, or a resumed one's")
    return 0


async def end(options: Options, run: str, word: Word, *, cancels: bool, json: bool) -> int:
    """Say that a run has ended. Raises NotFound, Refused, BadName."""
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        missing = (await workspace.states.life(run)).missing
        said = actions.cancel if cancels else actions.finish
        news = await said(workspace, run, by=word.by, because=word.because)
        status = (await workspace.states.life(run)).status
    text = f"run {run} is {status.value}{'' if news else ' already: nothing was written'}"
    told = {"run": run, "status": status, "ended": news, "at_work": missing}
    output.show(told, text, json=json)
    if news and missing:
        output.hint(f"it is no longer waited for {', '.join(missing)}, at work or killed")
    return 0


async def resume(options: Options, run: str, command: list[str]) -> int:
    """Run a command that goes on with a run, or say how to."""
    if command:
        return await _child.run(options, run, command, "resume")
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        view = await workspace.states.run(run)
    output.write(_how(run, view.life))
    for agent, state in view.agents.items():
        for step in state.open_steps:
            if step.effects.value in ("once", "reconcile"):
                output.hint(f"open: {agent}#{step.number} ({step.tool}) may need settling first")
    return 0


def _how(run: str, life: RunState) -> str:
    stands = f"run {run} ({life.workflow}) is {life.status.value}"
    if life.missing:
        stands += f" for {', '.join(life.missing)}, at work or killed"
    if life.status is RunStatus.COMPLETED:
        stands += "; resuming replays it from the record and records what is new"
    program = (
        f"It was started by {life.program!r}: a label, which is never run from the record."
        if life.program
        else "Its record does not name the program that started it."
    )
    return (
        f"{stands}.\n{program}\nRun that program again so that it picks this run up:\n"
        f"  {_resume(run)}\nor in code: record.run(run={run!r}, agent=..., role=...)"
    )
