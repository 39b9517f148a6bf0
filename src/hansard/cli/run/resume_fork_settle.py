"""Commands `hansard run resume`, `fork`, `settle`, `score`, `reopen`, `finish`, `cancel`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Annotated, Literal

from hansard.agents import runs as actions
from hansard.agents.experiments import scoring
from hansard.bus.clock import OS_USER
from hansard.cli import output, processes
from hansard.cli.common import At, By, Command, Commands, Reason, Run, argument, flag, option
from hansard.cli.opening import reading_run
from hansard.cli.price import numbers
from hansard.client.person import result_from
from hansard.domain.errors import CallerError
from hansard.domain.run import ForkEffects, RunState, RunStatus
from hansard.domain.steps import Effects, Step, Verdict
from hansard.state.replay import RunView

app = Commands()


class OneVerdict(CallerError):
    """Error: not exactly one verdict was given."""

    def __init__(self, options: list[str]) -> None:
        has = f"{' and '.join(options)} were given" if options else "none was given"
        super().__init__(
            f"a step is settled by exactly one verdict, {has}: choose one of "
            "--happened RESULT, --did-not-happen, --reuse, --run-again"
        )
        self.given = options


def verdict_of(
    happened: str | None, *, did_not_happen: bool, reuse: bool, run_again: bool
) -> Verdict:
    """Return the one verdict of the options. Raises OneVerdict."""
    named = {
        "--happened": (happened is not None, Verdict.HAPPENED),
        "--did-not-happen": (did_not_happen, Verdict.DID_NOT_HAPPEN),
        "--reuse": (reuse, Verdict.REUSE),
        "--run-again": (run_again, Verdict.RUN_AGAIN),
    }
    options = [name for name, (is_given, _) in named.items() if is_given]
    if len(options) != 1:
        raise OneVerdict(options)
    return named[options[0]][1]


@app.command(plain=True)
async def resume(which: Run, command: Command = None) -> int:
    """Resume a run: run its program again.

    Without a command, print how to continue: nothing from the record is ever executed. At a
    terminal, asks for the outcome of a step in doubt if the program has no policy for it
    (HANSARD_SETTLE). At the end, prints what was answered from the record.
    """
    if command:
        ran = await processes.run(which, command, "resume")
        output.hint(f"the resume saved: {ran.saved.line()}")
        if missing := ran.view.life.missing:
            who = ", ".join(missing)
            output.hint(f"{who} has not left the run: what that session was answered is not known")
        return ran.code
    async with reading_run(which) as (workspace, run):
        view = await workspace.states.run(run)
    output.write(_how(run, view.life))
    for agent, step in _steps_to_settle(view):
        output.hint(f"open: {agent}#{step.number} ({step.tool}) may need settling first")
    return 0


@app.command()
async def fork(
    which: Run,
    at: At = None,
    effects: Annotated[
        Literal["shadow", "live"],
        option("shadow: the fork's tools with effects do not run; live: they run."),
    ] = "shadow",
) -> None:
    """Start a new run from a point of another; print its id."""
    chosen = ForkEffects(effects)
    async with reading_run(which) as (workspace, run):
        child = await actions.fork(workspace, run, at, chosen)
        life = await workspace.states.life(child)
    vector = life.forked.at if life.forked is not None else {}
    output.show({"run": child, "parent": run, "effects": chosen, "vector": vector}, child)
    meant = {
        ForkEffects.SHADOW: "tools with effects return the parent's outcome or a declared shadow",
        ForkEffects.LIVE: "tools with effects run, and may repeat what the parent did",
    }
    output.hint(f"effects={effects}: {meant[chosen]}\ncontinue with: {_resume(child)}")


@app.command()
async def settle(
    which: Run,
    step: Annotated[
        str,
        argument(
            "STEP",
            "agent#number, the address of one of its events (1234.2), or its number in a run of "
            "one agent.",
        ),
    ],
    happened: Annotated[
        str | None, option("It happened; its result as JSON, else as text.", "RESULT")
    ] = None,
    did_not_happen: Annotated[
        bool, flag("--did-not-happen", "It did not happen and may run again.")
    ] = False,
    reuse: Annotated[bool, flag("--reuse", "If diverged: use the recorded outcome.")] = False,
    run_again: Annotated[
        bool, flag("--run-again", "If diverged: run it again with its effect.")
    ] = False,
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """State the outcome of a step in doubt or diverged."""
    verdict = verdict_of(happened, did_not_happen=did_not_happen, reuse=reuse, run_again=run_again)
    result = result_from(happened) if happened is not None else None
    async with reading_run(which) as (workspace, run):
        name = await actions.settle(
            workspace, run, step, verdict.value, result=result, by=by, reason=reason
        )
        view = await workspace.states.run(run)
        _, settled = actions.find_step(view, name)
    fields = {"run": run, "step": name, "verdict": verdict, "status": settled.status}
    text = (
        f"step {name} ({settled.tool}) is settled: {settled.verdict} by {settled.settled_by}, "
        f"now {settled.status}"
    )
    output.show(fields, text)
    output.hint(_next(view))


@app.command()
async def reopen(
    which: Run,
    task: Annotated[str, argument("TASK", "A task's id, see 'hansard team'.")],
    reason: Reason = "",
    by: By = OS_USER,
) -> None:
    """Let a failed task be claimed again."""
    async with reading_run(which) as (workspace, run):
        is_new = await actions.reopen(workspace, run, task, by=by, reason=reason)
    text = "is open again" if is_new else "is not over: nothing was written"
    fields = {"run": run, "task": task, "reopened": is_new}
    output.show(fields, f"task {task} of run {run} {text}")
    if is_new:
        output.hint("its next claim is another agent's to make, or a resumed one's")


@app.command()
async def finish(
    which: Run,
    reason: Reason = "",
    failed: Annotated[
        str | None, option("Mark it as failed instead, for this reason.", "REASON")
    ] = None,
    by: By = OS_USER,
) -> None:
    """Mark a run as completed, or as failed.

    Works even if agents have not left it, for example because their process was killed.
    """
    await _end(which, partial(actions.finish, failed=failed), reason, by)


@app.command()
async def cancel(which: Run, reason: Reason = "", by: By = OS_USER) -> None:
    """Mark a run as cancelled.

    Works even if agents have not left it; no agent is stopped.
    """
    await _end(which, actions.cancel, reason, by)


async def _end(which: str, say: Callable[..., Awaitable[bool]], reason: str, by: str) -> None:
    """Record the end of a run. Raises NotFound, Refused, BadName."""
    async with reading_run(which) as (workspace, run):
        missing = (await workspace.states.life(run)).missing
        is_new = await say(workspace, run, by=by, reason=reason)
        status = (await workspace.states.life(run)).status
    text = f"run {run} is {status.value}{'' if is_new else ' already: nothing was written'}"
    fields = {"run": run, "status": status, "ended": is_new, "at_work": missing}
    output.show(fields, text)
    if is_new and missing:
        output.hint(f"it is no longer waited for {', '.join(missing)}, at work or killed")


def _steps_to_settle(view: RunView) -> Iterator[tuple[str, Step]]:
    """Yield the steps in doubt that do not simply run again, each with its agent."""
    for agent, state in view.agents.items():
        for step in state.in_doubt:
            if step.effects is not Effects.IDEMPOTENT:
                yield agent, step


def _next(view: RunView) -> str:
    """Return the next command after a step was settled."""
    still = [f"{agent}#{step.number}" for agent, step in _steps_to_settle(view)]
    if still:
        return f"still open: {', '.join(still)}; settle them too, or resume: {_resume(view.run)}"
    return f"continue with: {_resume(view.run)}"


def _resume(run: str) -> str:
    return f"hansard run resume {run} -- COMMAND"


def _how(run: str, life: RunState) -> str:
    current = f"run {run} ({life.workflow}) is {life.status.value}"
    if life.missing:
        current += f" for {', '.join(life.missing)}, at work or killed"
    if life.status is RunStatus.COMPLETED:
        current += "; resuming replays it from the record and records what is new"
    program = (
        f"It was started by {life.program!r}: a label, which is never run from the record."
        if life.program
        else "Its record does not name the program that started it."
    )
    return (
        f"{current}.\n{program}\nRun that program again so that it picks this run up:\n"
        f"  {_resume(run)}\nor in code: record.run(run={run!r}, agent=..., role=...)"
    )


@app.command()
async def score(
    which: Run,
    metrics: Annotated[list[str], argument("METRIC=NUMBER...", "Such as reward=1 cost=0.2.")],
    by: By = OS_USER,
    reason: Reason = "",
) -> None:
    """Record a score of a run."""
    scores = numbers(metrics)
    async with reading_run(which) as (workspace, run):
        is_new = await scoring.score(workspace, run, scores, by=by, reason=reason)
    text = "is scored" if is_new else "has just these scores already"
    fields = {"run": run, "by": by, "metrics": scores, "recorded": is_new}
    output.show(fields, f"run {run} {text} by {by}")
