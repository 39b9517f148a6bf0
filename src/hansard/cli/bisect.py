"""Command `hansard bisect`: find the first step of a run after which a check fails."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from hansard.agents import runs as actions
from hansard.agents.workspace import Workspace
from hansard.bus.log import AtPosition
from hansard.cli import output, processes
from hansard.cli.common import Agent, Command, Commands, Run, option
from hansard.cli.opening import reading_run
from hansard.cli.output import Hint, Part
from hansard.cli.run import differences
from hansard.domain.choices import counted, listed
from hansard.domain.errors import CallerError
from hansard.domain.run import ForkEffects
from hansard.inspect import state as state_reads
from hansard.inspect.bisect import (
    ASSUMPTION,
    END,
    SKIP,
    START,
    Bisection,
    CheckedState,
    Outcome,
    State,
    Verdict,
    bisected,
)

app = Commands()

BAD_MAX = 127
"""Highest exit code that means bad; a higher one, or a signal, ends the search."""

CHECK_S = 600.0
"""Default bound of one check, and of one run of the program in a fork, in seconds."""


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

    The check is a shell command, as for 'git bisect run'. It gets the state after a step as JSON on
    stdin and in the file $HANSARD_BISECT_STATE; $HANSARD_BISECT_RUN, $HANSARD_BISECT_STEP and
    $HANSARD_BISECT_AT name it. With COMMAND, each state is forked, COMMAND goes on in the fork
    without effects, and the check judges its end. Exits with 1 if there is no such step.
    """
    async with reading_run(which) as (workspace, run):
        plan = _Plan(run, check, command or [], ForkEffects(effects), timeout)

        async def check_state(state: State) -> CheckedState:
            checked = await _checked(workspace, plan, state)
            output.hint(f"{listed(checked.after)}: {checked.verdict} (exit code {checked.code})")
            return checked

        made = await bisected(workspace, run, agent, check, check_state)
    output.show(made, _render(made))
    return 0 if made.outcome in (Outcome.FOUND, Outcome.AMONG_SKIPPED) else 1


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
    from hansard.cli.record import recorded_agent, run_in_fork

    before = await workspace.states.run(fork)
    recorded_by = recorded_agent(before.life.roster, before.life.labels)
    code, line, calls = await run_in_fork(workspace, fork, plan.command, plan.timeout_s)
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


_COLUMNS = output.columns(
    "after! check=verdict exit=code#> fork! last_line", after=lambda row: listed(row.after)
)
