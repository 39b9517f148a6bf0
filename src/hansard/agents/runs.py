"""Operations on a run from outside it: fork or end it, settle a step, reopen a task."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hansard._version import PROTOCOL_VERSION, SERVER_VERSION
from hansard.agents.board.operations import find_write
from hansard.agents.steps import payloads
from hansard.agents.transact import transact
from hansard.agents.workspace import Workspace, decided
from hansard.bus.clock import OS_USER
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import Append, Stored
from hansard.domain import agent as agents
from hansard.domain import ids, values
from hansard.domain.agent import Begin, Tell
from hansard.domain.choices import chosen
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.events import Actor
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.label import LOWEST, Label, join, parse, raised
from hansard.domain.run import (
    ForkEffects,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunForked,
    RunState,
    RunStatus,
    Swap,
)
from hansard.domain.steps import NULL, Failure, Step, StepSettled, Verdict
from hansard.domain.team import task, task_rules
from hansard.domain.team.task_rules import Reopen
from hansard.domain.values import Scrub, recordable
from hansard.state.replay import RunView, evolve_team, tasks_of


async def fork(
    workspace: Workspace,
    run: str,
    at: object = None,
    effects: ForkEffects = ForkEffects.SHADOW,
    labels: Mapping[str, str] | None = None,
) -> str:
    """Fork a run at a point; return the new run's id.

    One commit, whatever the run's length: it holds the parent's version vector. Under `shadow`, the
    default, tools with effects return the parent's outcome or a declared shadow; under `live` they
    run. A fork of a probe's fork belongs to the probe as well. Raises NotFound.
    """
    life, vector = await workspace.points.vector(run, at)
    child = workspace.clock.new_id()
    value = label_texts(labels or {}, workspace.redaction)
    swap = life.forked.swap if life.forked is not None else None
    forked = RunForked(parent=run, at=vector, effects=effects, labels=value, swap=swap)
    actor = next(iter(life.roster), "hansard")
    label = parse(life.label).stored  # the commit names its parent
    commit = workspace.commit(vector["life"] + 1, actor, [forked], label=label)
    await workspace.log.append(Append(RunStream(child), commit))
    return child


async def fork_swapped(
    workspace: Workspace,
    run: str,
    at: int,
    child: str,
    swap: Swap,
    *,
    by: str | Actor = OS_USER,
    label: Label | None = None,
) -> RunState | None:
    """Start a probe's fork under a given id, before the commit at position `at`: effects are
    shadowed in it, and `swap` defines its substituted answer. `label` is the label of the swap's
    data. Return the fork's life if it exists already; None if it was started now.

    Raises NotFound; Refused if another run has this id.
    """
    actor = Actor.of(by)
    ids.name("by", actor.agent)
    if await workspace.log.last(RunStream(child)) is not None:
        current = await workspace.states.life(child)
        if current.forked is None or current.forked.parent != run or current.forked.swap != swap:
            message = f"run {child} exists and is not the probe's fork of {run}"
            raise Refused(message)
        return current
    life, vector = await workspace.points.vector(run, at - 1)
    forked = RunForked(parent=run, at=vector, swap=swap)
    under = join(parse(life.label), label or LOWEST).stored
    commit = workspace.commit(vector["life"] + 1, actor, [forked], label=under)
    await workspace.log.append(Append(RunStream(child), commit))
    return None


def label_texts(labels: Mapping[str, str], scrub: Scrub | None) -> dict[str, str]:
    """Return a run's labels as they are recorded. Raises BadName, and BadValue for a value that is
    not a text.
    """
    if not isinstance(labels, Mapping):
        raise BadValue("labels", f"{labels!r:.80}", "give a dict of texts")
    fields: dict[str, str] = {}
    for key, label in labels.items():
        name = ids.name("label", key)
        if not isinstance(label, str):
            raise BadValue(f"label {name!r}", f"{label!r:.80}", "give a text")
        if values.plain(label) != label:
            raise BadValue(f"label {name!r}", f"a lone surrogate in {label[:40]!r}", "leave it out")
        fields[name] = recordable(label, scrub)
    return fields


def find_step(view: RunView, text: str) -> tuple[str, Step]:
    """Return an agent and its step from `agent#17`, or `17` if the run has one agent.

    Raises BadName, NotFound.
    """
    agent, _, number = text.rpartition("#")
    if not number.isdigit():
        raise BadName("step", text, "give agent#number as 'hansard run trace' shows it")
    if not agent:
        if len(view.agents) != 1:
            raise BadName("step", text, f"name its agent: {', '.join(sorted(view.agents))}")
        [agent] = view.agents
    step = view.agent(agent).steps.get(int(number))
    if step is None:
        raise NotFound(
            f"step {number} of {agent!r} in run {view.run}", f"see 'hansard run trace {view.run}'"
        )
    return agent, step


async def settle(
    workspace: Workspace,
    run: str,
    step: str,
    verdict: str,
    *,
    result: Any = None,
    by: str | Actor = OS_USER,
    reason: str = "",
) -> str:
    """Settle a step as `happened` (with its result), `did_not_happen`, `reuse` or `run_again`;
    return it as `agent#number`. Takes the agent's next epoch, which fences a session still at work.

    Raises Refused if the step cannot be settled in this way, or if its write to shared state is
    stored; NotFound, BadName.
    """
    text = chosen(Verdict, verdict, "verdict")
    plain = values.plain(result, "result", workspace.redaction)
    actor = Actor.of(by)
    ids.name("by", actor.agent)
    reason = workspace.text(reason)
    happened = text is Verdict.HAPPENED
    packed = payloads.pack(plain, "result")

    def settled(view: RunView) -> Append | None:
        agent, target = find_step(view, step)
        state = view.agents[agent]
        begin = Begin(agent, state.role, SERVER_VERSION, PROTOCOL_VERSION, purpose="settle")
        event = StepSettled(
            step=target.number,
            verdict=text,
            by=actor.agent,
            result=packed.raw if happened else NULL,
            digest=digest(canonical(plain)) if happened else "",
            because=reason,
        )
        news = agents.decide(state, Tell(event))
        if not news:
            return None
        events = [*agents.decide(state, begin), *news]
        declared = state.tools.get(target.tool)  # the result is of the tool's return type
        gives = parse(declared.gives) if declared is not None and happened else None
        label = parse(raised(state.label, gives)).stored
        commit = workspace.commit(state.version + 1, actor, events, state.epoch + 1, label)
        return Append(view.stream_of(agent), commit)

    async def append(command: Append) -> Stored:
        for blob in packed.blobs:
            await workspace.blobs.put(blob)
        return await workspace.log.append(command)

    view = await workspace.points.view(run)
    step = await workspace.points.step_name(run, step)
    agent, target = find_step(view, step)
    wrote = await find_write(workspace.states, view.stream_of(agent), target)
    if wrote is not None:
        message = (
            f"step {target.number} of {agent!r} is not in doubt: it wrote version "
            f"{wrote.state.version} of key {wrote.key!r}; resume the run to go on there"
        )
        raise Refused(message)
    try:
        await transact(functools.partial(workspace.points.view, run), settled, append)
    except Refused as error:
        if not target.settled_by:
            raise
        raise await _refused(error, workspace, view.stream_of(agent), target) from error
    return f"{agent}#{target.number}"


async def _refused(
    error: Refused, workspace: Workspace, stream: AgentStream, step: Step
) -> Refused:
    """Return the refusal of a settlement, with the author and time of the earlier one."""
    stamps = [
        stored.stamp
        for stored in await workspace.states.commits(stream)
        for recorded in stored.commit.events
        if isinstance(event := revive(recorded), StepSettled) and event.step == step.number
    ]
    at = f"{datetime.fromtimestamp(stamps[-1] / 1e9, UTC):%Y-%m-%d %H:%M:%SZ}"
    return Refused(f"{error}; it was settled as {step.verdict} by {step.settled_by} at {at}")


async def reopen(
    workspace: Workspace,
    run: str,
    name: str,
    *,
    by: str | Actor = OS_USER,
    reason: str = "",
) -> bool:
    """Reopen a task that failed; return False if it has not ended.

    Raises Refused (no such task, it is done, or tasks would wait for each other), BadName.
    """
    actor = Actor.of(by)
    ids.name("by", actor.agent)
    command = Reopen(task=name, because=workspace.text(reason))
    stream = tasks_of(ids.name("run", run))

    def reopened(commits: list[Stored]) -> Append | None:
        state = task.initial()
        for stored in commits:
            evolve_team(state, stored)
        news = task_rules.decide(state, command, 0)
        return Append(stream, workspace.commit(state.version + 1, actor, news)) if news else None

    read = functools.partial(workspace.states.commits, stream)
    return await transact(read, reopened, workspace.log.append) is not None


async def finish(
    workspace: Workspace,
    run: str,
    *,
    by: str | Actor = OS_USER,
    reason: str = "",
    failed: str | None = None,
) -> bool:
    """End a run as completed, or as failed for the reason `failed`, even if agents have not left
    it. Return False if it already ended in that way. Raises NotFound, Refused (it ended in another
    way), BadName, BadValue.
    """
    if failed is None:
        return await _end(workspace, run, RunCompleted(because=workspace.text(reason)), by)
    if not failed or reason:
        raise BadValue("failed", f"{failed!r:.80}", "give the reason in failed=, without reason=")
    error = Failure("EndedByHand", workspace.text(failed), module="hansard")
    return await _end(workspace, run, RunFailed(error=error), by)


async def cancel(
    workspace: Workspace,
    run: str,
    *,
    by: str | Actor = OS_USER,
    reason: str = "",
) -> bool:
    """Mark a run as cancelled; return False if it already is.

    Agents at work are not stopped, and continue recording. Raises as `finish`.
    """
    return await _end(workspace, run, RunCancelled(because=workspace.text(reason)), by)


async def _end(
    workspace: Workspace, run: str, event: RunCompleted | RunCancelled | RunFailed, by: str | Actor
) -> bool:
    actor = Actor.of(by)
    ids.name("by", actor.agent)
    life = RunStream(ids.name("run", run))

    def ended(state: RunState) -> Append | None:
        if state.status is RunStatus.UNKNOWN:
            raise NotFound(f"run {run}", "see 'hansard runs'")
        news = decided(state, [event])
        return Append(life, workspace.commit(state.version + 1, actor, news)) if news else None

    read = functools.partial(workspace.states.life, run)
    return await transact(read, ended, workspace.log.append) is not None
