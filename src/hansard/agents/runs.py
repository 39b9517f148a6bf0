"""Runs: sessions that start, join, resume or read one, and operations from outside it: fork or end
it, settle a step, reopen a task.

Long because all of them decide on the same life of a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from hansard._version import PROTOCOL_VERSION, SERVER_VERSION
from hansard.agents import experiments
from hansard.agents.access.carried import CarriedLog, put_together, stored_together
from hansard.agents.annotations.windows import turns
from hansard.agents.board import find_write
from hansard.agents.edits import Replacement, check_result, edited, find_step
from hansard.agents.errors import AgentError, Diverged, Miss, SecretsNotRedacted, warn
from hansard.agents.experiments import Arm, PlacementRequest
from hansard.agents.flow import Unbroken
from hansard.agents.policy import permits
from hansard.agents.policy.approvals import LogBudgets
from hansard.agents.policy.gate import Budget, GateRule
from hansard.agents.policy.permits import LABEL, RULE, clearance_of, remedy
from hansard.agents.steps import payloads
from hansard.agents.steps.doubt import difference
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.failures import failure
from hansard.agents.steps.ledger import Ledger, Mode
from hansard.agents.steps.placeholders import SecretProvider
from hansard.agents.steps.recorder import Settings, Settle
from hansard.agents.steps.substitution import Substitutes
from hansard.agents.workspace import Held, Workspace, decided
from hansard.bus.clock import OS_USER
from hansard.bus.commits import revive, revive_all
from hansard.bus.errors import BusError, Conflict, NotFound
from hansard.bus.log import Append, NothingUnder, Stored
from hansard.bus.writer import Identity, StreamWriter, Ticket
from hansard.domain import agent as agents
from hansard.domain import ids, team, values
from hansard.domain.agent import AgentRefused, AgentState, Begin, Leave, MessageAdded, Tell
from hansard.domain.choices import chosen, counted
from hansard.domain.conversation import KIND, RunJoined
from hansard.domain.decider import fold
from hansard.domain.errors import BadValue, HansardError, Refused
from hansard.domain.events import Actor, Recorded
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import AgentStream, RunStream, WorkspaceStream
from hansard.domain.label import LOWEST, Label, join, parse, raised
from hansard.domain.redaction import check_names
from hansard.domain.run import (
    ENDS,
    SHARED,
    AgentJoined,
    Chain,
    EditedResult,
    EditKind,
    ForkEffects,
    RunAgentLeft,
    RunCancelled,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunForked,
    RunResumed,
    RunStarted,
    RunState,
    RunStatus,
    SessionPath,
    Swap,
    newest,
)
from hansard.domain.steps import NULL, Failure, Step, StepSettled, Verdict
from hansard.domain.team import Reopen, TeamState
from hansard.domain.values import Scrub, recordable
from hansard.state.replay import RunView, fold_life, tasks_of
from hansard.state.repository import followed, retry, transact


async def fork(
    workspace: Workspace,
    run: str,
    at: object = None,
    effects: ForkEffects | None = None,
    labels: Mapping[str, str] | None = None,
    edits: Sequence[Replacement] = (),
    *,
    by: str | Actor = OS_USER,
    reason: str = "",
) -> str:
    """Fork a run at a point, or with edits before the first edited call; return the new run's id.

    One commit, whatever the run's length: it holds the parent's version vector, and the edits with
    their author and reason. `effects` is `models` with edits and `shadow` without, by default. A
    fork of a probe's fork belongs to the probe as well, and a fork of an edited one keeps its
    edits. Raises NotFound, BadName, BadValue, and Refused for a step that a fork inherited.
    """
    label = LOWEST
    items: dict[tuple[str, str], EditedResult] = {}
    if edits:
        if at is not None:
            remedy = "leave it out: a fork with edits begins before the first edited call"
            raise BadValue("at", f"{at!r:.80} beside edits", remedy)
        at, items, label = await edited(workspace, run, edits, by, workspace.text(reason))
    life, vector = await workspace.points.vector(run, at)
    refuse_observed(run, life)
    child = workspace.clock.new_id()
    before = {} if life.forked is None else {(e.agent, e.call): e for e in life.forked.edits}
    forked = RunForked(
        parent=run,
        at=vector,
        effects=effects or (ForkEffects.MODELS if edits else ForkEffects.SHADOW),
        labels=label_texts(labels or {}, workspace.redaction),
        swap=life.forked.swap if life.forked is not None else None,
        edits=tuple((before | items).values()),
    )
    actor = Actor.of(by) if edits else Actor(next(iter(life.roster), "hansard"))
    under = join(parse(life.label), label).stored  # the commit names its parent
    commit = workspace.commit(vector["life"] + 1, actor, [forked], label=under)
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
        if name == SHARED:
            raise BadValue(f"label {name!r}", "it marks copies of other workspaces", "rename it")
        if not isinstance(label, str):
            raise BadValue(f"label {name!r}", f"{label!r:.80}", "give a text")
        if values.plain(label) != label:
            raise BadValue(f"label {name!r}", f"a lone surrogate in {label[:40]!r}", "leave it out")
        fields[name] = recordable(label, scrub)
    return fields


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
    return it as `agent#number`. Takes the agent's next epoch, which fences a session still at work
    on another machine.

    Raises Refused if another process here is at work as the agent, if the step cannot be settled
    in this way or its run is observed, or if its write to shared state is stored; NotFound,
    BadName; BadValue for a result that its program could not read.
    """
    text = chosen(Verdict, verdict, "verdict")
    plain = values.plain(result, "result", workspace.redaction)
    actor = Actor.of(by)
    ids.name("by", actor.agent)
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
            because=workspace.text(reason),
        )
        news = agents.decide(state, Tell(event))
        if not news:
            return None
        _demand_diverged(view, agent, target, text)
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
    refuse_observed(run, view.life)
    view.life.demand_own()
    step = await workspace.points.step_name(run, step)
    agent, target = find_step(view, step)
    if happened:
        check_result(f"{agent}#{target.number}", target, plain)
    await _demand_unwritten(workspace, view.stream_of(agent), target)
    async with _at_rest(workspace, view.stream_of(agent)):
        try:
            await transact(functools.partial(workspace.points.view, run), settled, append)
        except Refused as error:
            if not target.settled_by:
                raise
            raise await _refused(error, workspace, view.stream_of(agent), target) from error
    return f"{agent}#{target.number}"


async def _demand_unwritten(workspace: Workspace, stream: AgentStream, step: Step) -> None:
    """Raise Refused for a step whose write to shared state is stored."""
    wrote = await find_write(workspace.states, stream, step)
    if wrote is not None:
        message = (
            f"step {step.number} of {stream.agent!r} is not in doubt: it wrote version "
            f"{wrote.state.version} of key {wrote.key!r}; resume the run to go on there"
        )
        raise Refused(message)


def _demand_diverged(view: RunView, agent: str, step: Step, verdict: Verdict) -> None:
    """Raise Refused for a verdict on a divergence, unless the error that ended the agent's last
    session names the step as diverged: else an effect could happen twice without a stop before.
    """
    if verdict not in (Verdict.REUSE, Verdict.RUN_AGAIN):
        return
    left = view.life.ends.get(agent)
    if left is None or not Diverged.is_in(left.error, view.run, agent, step.number):
        name = f"{agent}#{step.number}"
        message = (
            f"step {name} ({step.tool}) is {step.status}, and the last session of {agent!r} did "
            "not end with its divergence: --reuse and --run-again settle only a call that stopped "
            "with Diverged. If the program was edited, resume the run and let Diverged end it; to "
            f"continue with another result: hansard run fork {view.run} --replace {name}=FILE"
        )
        raise Refused(message)


@contextlib.asynccontextmanager
async def _at_rest(workspace: Workspace, stream: AgentStream) -> AsyncGenerator[None]:
    """Keep other processes here from working as an agent. Raises Refused if one does."""
    hold = workspace.hold
    held = await hold(stream, is_hosted=False) if hold is not None else None
    try:
        yield
    finally:
        if held is not None:
            held.close(is_done=False)


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
    workspace: Workspace, run: str, name: str, *, by: str | Actor = OS_USER, reason: str = ""
) -> bool:
    """Reopen a task that failed; return False if it has not ended.

    Raises Refused (no such task, it is done, or tasks would wait for each other), BadName.
    """
    actor = Actor.of(by)
    ids.name("by", actor.agent)
    command = Reopen(task=name, because=workspace.text(reason))
    stream = tasks_of(ids.name("run", run))

    def reopened(commits: list[Stored]) -> Append | None:
        state = followed(TeamState(), commits)
        if name not in state.tasks:
            message = f"there is no task {name!r} in run {run}: see 'hansard team {run}'"
            raise Refused(message)
        news = team.decide(state, command, 0)
        return Append(stream, workspace.commit(state.version + 1, actor, news)) if news else None

    life = await workspace.states.life(run)
    refuse_observed(run, life)
    life.demand_own()
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
        fact = "a reason is given beside it" if failed else "it is empty"
        raise BadValue("failed", fact, "give the reason of the failure, and no other")
    error = Failure("EndedByHand", workspace.text(failed), module="hansard")
    return await _end(workspace, run, RunFailed(error=error), by)


async def cancel(
    workspace: Workspace, run: str, *, by: str | Actor = OS_USER, reason: str = ""
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
        refuse_observed(run, state)
        state.demand_own()
        end, abandoned = ENDS[type(event)], (RunStatus.FAILED, RunStatus.CANCELLED)
        if state.status not in (RunStatus.OPEN, end) and (state.status, end) != abandoned:
            message = f"run {run} is {state.status} and cannot become {end}: resume it first with "
            raise Refused(f"{message}'hansard run resume {run}'")
        news = decided(state, [event])
        return Append(life, workspace.commit(state.version + 1, actor, news)) if news else None

    read = functools.partial(workspace.states.life, run)
    return await transact(read, ended, workspace.log.append) is not None


# Start and end of a session: start a run, join it, resume it, or only read it.
#
# Joining is one commit over the run's stream and the agent's stream: the roster and the epoch
# change together or not at all. Taking the next epoch fences the stream's previous writer.

LEAVE_TRIES_MAX = 1_000
"""Largest number of attempts to record a leave; each lost race means that another agent's won."""


class OpenedBefore(BusError):
    """This request has already opened a session, which has since continued or been replaced."""

    def __init__(self, run: str, agent: str) -> None:
        super().__init__(
            f"the session of {agent!r} in run {run} was already opened by this request, and "
            "has continued since: use that session, or open the run again"
        )


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a session; see `Record.run`.

    `restricted`: a role that was never defined may do nothing, like a withdrawn role; otherwise it
    is only a name. The agent sees and sets the run's place in an experiment only as its role
    permits.

    `opening`: the id of the commit to the run's stream by which the agent joins, for requests that
    may be repeated: what is recorded under this id is not done again. `begins`: the id of the run
    to start if `run` names none.

    `otherwise`: the workflow of a run that starts here if `workflow` names none; an existing run
    may have another one. `reopens`: False to refuse a run that has ended.
    """

    workflow: str | None = None
    otherwise: str = ""
    run: str | None = None
    mode: Mode | str | None = None
    conversation: str | None = None
    experiment: str | None = None
    arm: str | None = None
    task: str | None = None
    trial: int | None = None
    unit: str | None = None
    gate: Sequence[GateRule] = ()
    redact: Mapping[str, Any] = {}
    secrets: SecretProvider | None = None
    settle: Settle | None = None
    labels: Mapping[str, str] = {}
    program: str = ""
    correlation: str | None = None
    traceparent: str | None = None
    on_behalf_of: tuple[str, ...] = ()
    restricted: bool = False
    chain: Chain | str | None = None
    opening: str = ""
    begins: str = ""
    reopens: bool = True

    @property
    def placement(self) -> PlacementRequest:
        """The requested place of the run in an experiment."""
        return PlacementRequest(self.experiment, self.arm, self.task, self.trial, self.unit)


class Opened(msgspec.Struct):
    """An open session. `writer` is None if it only reads. `version` is that of the agent's stream
    when the session began, `before` the run that it joined if that was completed, and `after` the
    run once the session is left.
    """

    run: str
    engine: StepEngine
    writer: StreamWriter | None
    arm: Arm | None = None
    held: Held | None = None
    """The note that the agent is at work in this process."""
    before: RunState | None = None
    after: RunState = msgspec.field(default_factory=RunState)
    version: int = 0


class _Member(msgspec.Struct):
    """Recorded state of a run and one of its agents. `label` is the label that the agent writes
    under.
    """

    life: RunState
    state: AgentState
    parent: AgentState | None = None
    inherited: int = 0
    arm: Arm | None = None
    first: Stored | None = None
    label: Label = LOWEST
    before: Stored | None = None
    """The commit by which this request has already opened the session."""
    path: SessionPath | None = None
    """The path that a strict replay must equal."""
    ended: RunState | None = None
    """The run before it was joined, if it was completed."""


async def _find(workspace: Workspace, run: str, agent: str, role: str, opening: str) -> _Member:
    """Read the recorded state. Raises Refused if the agent has another role."""
    commits = await workspace.states.commits(RunStream(run))
    member = await _member(workspace, AgentStream(run, role, agent), commits)
    if opening:
        member.before = next((each for each in commits if each.commit.id == opening), None)
    return member


async def _member(workspace: Workspace, stream: AgentStream, commits: list[Stored]) -> _Member:
    role, agent = stream.role, stream.agent
    life = fold_life(commits)
    arm = await experiments.arm_of_run(workspace, life, commits)
    first = commits[0] if commits else None
    parent: AgentState | None = None
    if life.forked is not None:
        parent = await workspace.states.agent(AgentStream(life.forked.parent, role, agent))
    known = life.roster.get(agent)
    if known is None:
        return _Member(life, agents.AgentState(), parent, arm=arm, first=first)
    if known != role:
        message = (
            f"agent {agent!r} has role {known!r} in this run, not {role!r}: "
            "use that role, or another agent name"
        )
        raise Refused(message)
    state = await workspace.states.agent(stream)
    if life.forked is None:
        return _Member(life, state, arm=arm, first=first)
    return _Member(life, state, parent, life.forked.at.get(str(stream), 0), arm, first)


async def open_agent(
    workspace: Workspace,
    agent: str,
    role: str,
    options: Options,
    post: Callable[[Callable[[], None]], None],
    pending: Callable[[], Any],
) -> Opened:
    """Open a session. Raises Refused, NotFound, Conflict after 50 lost races."""
    workspace = workspace.redacting(options.redact)
    _check_options(workspace, agent, role, options)
    begins = options.begins or workspace.clock.new_id()
    run = ids.name("run", options.run) if options.run is not None else begins
    mode = chosen(Mode, options.mode, "mode") if options.mode is not None else None
    writes = mode is None or not mode.reads_only
    placing = await experiments.placing(workspace, role, agent) if options.restricted else None
    is_new = options.run is None

    async def attempt() -> _Member:
        nonlocal is_new
        member = _Member(RunState(), agents.AgentState())
        if not is_new:
            member = await _find(workspace, run, agent, role, options.opening)
        is_new = False  # after a lost race it may exist
        if placing is not None:
            member = _visible(placing, run, options, member)
        _check(member, run, mode, options)
        member = await _labelled(workspace, role, member, writes=writes)
        if not writes or await _is_recorded(workspace, run, agent, role, member):
            return member
        return await _take_part(workspace, run, agent, role, options, member)

    stream = AgentStream(run, role, agent)
    held: Held | None = None
    if writes and workspace.hold is not None:
        held = await workspace.hold(stream, is_hosted=options.restricted)
    try:
        member = await retry(attempt)
        if mode is Mode.STRICT:
            commits = await workspace.states.commits(stream, member.state.version)
            events = revive_all(stored.commit for stored in commits)
            member = msgspec.structs.replace(member, path=newest(events, member.state.steps))
        permit = permits.FREE
        if writes:
            _warn_not_redacted(workspace, run, member.state, options)
            permit = placing.permit if placing is not None else await permits.read(workspace, role)
        forked = member.life.forked
        texts = await Substitutes.read(forked.edits, workspace.blobs) if forked else None
        opened = _opened(workspace, stream, options, member, post, pending, permit, texts)
        opened.before, opened.version = member.ended, member.state.version
    except BaseException:
        if held is not None:
            held.close(is_done=False)
        raise
    if held is not None:
        held.begun()
        opened.held = held
    return opened


_REDACTED = re.compile(rb'<secret:([^<>"]+)>|\{"\$secret":"([^"]+)"\}')
"""Forms of a redacted secret in a recorded text or value; the second is `hansard.Secret`."""


def _warn_not_redacted(workspace: Workspace, run: str, state: AgentState, options: Options) -> None:
    """Warn if the record has redacted secrets that this session would not redact.

    A provider of secrets may know those that replace a whole value.
    """
    marked: list[bytes] = []
    for step in state.steps.values():
        arguments, result = bytes(step.arguments), bytes(step.result)
        if b"secret" in arguments or b"secret" in result:
            marked += (arguments, result)
        marked += map(bytes, step.items)
        if step.error is not None:
            marked.append(step.error.message.encode())
    for noted in state.facts:
        if isinstance(noted.fact, MessageAdded):
            marked.append(bytes(noted.fact.content))
    names: set[str] = set()
    for place in marked:
        for text, value in _REDACTED.findall(place):
            names.add((text or (b"" if options.secrets is not None else value)).decode())
    known = {name for name, _ in workspace.redaction.secrets} if workspace.redaction else set()
    missing = sorted(names - known - {""})
    if missing:
        message = (
            f"run {run} has {counted(len(missing), 'secret')} redacted on record "
            f"({', '.join(missing)}) that this session does not redact: its events may hold "
            "the secret itself; give connect(redact=...) or HANSARD_REDACT as at the run's start"
        )
        warn(message, SecretsNotRedacted)


async def _is_recorded(
    workspace: Workspace, run: str, agent: str, role: str, member: _Member
) -> bool:
    """Return whether this request is already recorded, with nothing after it to write.

    Raises OpenedBefore if the agent has continued.
    """
    if member.before is None:
        return False
    last = await workspace.log.last(AgentStream(run, role, agent))
    mine, newest = member.before.commit.tx, last.commit.tx if last is not None else None
    if mine is None or newest is None or mine.id != newest.id:
        raise OpenedBefore(run, agent)
    return True


def _check_options(workspace: Workspace, agent: str, role: str, options: Options) -> None:
    """Raise BadName for an invalid name, BadValue for another invalid option, or for a name that
    holds a secret.
    """
    ids.name("agent", agent)
    ids.name("role", role)
    parts = (
        "run",
        "workflow",
        "otherwise",
        "conversation",
        "correlation",
        "traceparent",
        "on_behalf_of",
    )
    names: dict[str, Any] = {kind: getattr(options, kind) for kind in parts}
    names |= {"agent": agent, "role": role, **msgspec.structs.asdict(options.placement)}
    if isinstance(options.labels, Mapping):  # another type is rejected where it is read
        names["labels"] = list(options.labels)
    budgets = [rule for rule in options.gate if isinstance(rule, Budget)]
    names["gate"] = [msgspec.structs.asdict(rule) for rule in budgets]
    check_names("record.run", names, workspace.redaction)
    for kind in ("correlation", "traceparent", "conversation"):
        if getattr(options, kind) is not None:
            ids.name(kind, getattr(options, kind))
    if not isinstance(options.on_behalf_of, tuple | list):  # a text would be iterated by character
        raise BadValue("on_behalf_of", f"{options.on_behalf_of!r:.80}", "give a tuple of names")
    if not isinstance(options.program, str):
        raise BadValue("program", f"{options.program!r:.80}", "give a text")
    for principal in options.on_behalf_of:
        ids.name("on_behalf_of", principal)
    options.placement.check()
    _chain(options)


def _visible(placing: experiments.Placing, run: str, options: Options, member: _Member) -> _Member:
    """Return the recorded state without the parts of the run's place that the role may not see.
    Raises RoleRefused.
    """
    if member.first is None or member.first.commit.id == options.opening:  # it starts here
        placing.demand(options.placement, placing.new(run, options.labels), begins=True)
        return member
    facts = experiments.begun(run, member.life, member.first)
    placing.demand(options.placement, facts, begins=False)
    return msgspec.structs.replace(member, arm=placing.arm(member.arm, facts))


def refuse_observed(run: str, life: RunState) -> None:
    """Raise Refused for a run that was made of what was seen of another program."""
    if life.observed:
        message = (
            f"run {run} was observed from outside (its calls are spans of another program; none "
            "was an intent): it can be neither resumed nor replayed nor forked, and nothing of it "
            "is open to settle or end; read it: "
            f"hansard run show {run}"
        )
        raise Refused(message)


def _check(member: _Member, run: str, mode: Mode | None, options: Options) -> None:
    refuse_observed(run, member.life)
    if not options.reopens and member.life.status not in (RunStatus.UNKNOWN, RunStatus.OPEN):
        message = f"run {run} has ended: a read does not reopen it"
        raise Refused(message)
    begun = member.life.status is not RunStatus.UNKNOWN
    if not begun and (mode is not None and mode is not Mode.LIVE):
        raise NotFound(f"run {run}", "see 'hansard runs'")
    if not begun and not (options.workflow or options.otherwise):
        message = (
            "a new run needs the name of its workflow: record.run('my-workflow', ...), or a "
            "setting (HANSARD_WORKFLOW)"
        )
        raise AgentError(message)
    if begun and options.conversation not in (None, member.life.conversation_id):
        message = (
            f"run {run} is part of conversation {member.life.conversation_id!r}, not "
            f"{options.conversation!r}: its conversation is fixed at its start"
        )
        raise Refused(message)
    if begun and options.workflow and options.workflow != member.life.workflow:
        message = (
            f"run {run} is of workflow {member.life.workflow!r}, not {options.workflow!r}: "
            "give that one, or another run id"
        )
        raise Refused(message)
    if begun:
        options.placement.agree(run, member.life)
    if begun and options.chain is not None and member.life.chain is not _chain(options):
        message = (
            f"run {run} has chain={member.life.chain.value!r}, not {_chain(options).value!r}: it "
            "is fixed at a run's start, also for its forks; leave chain= out, or give another "
            "run id"
        )
        raise Refused(message)
    if mode is not None and mode.reads_only and not member.state.epoch:
        raise NotFound(f"this agent in run {run}", f"its roster is {sorted(member.life.roster)}")


async def _labelled(workspace: Workspace, role: str, member: _Member, *, writes: bool) -> _Member:
    """Return the state with the label that the agent writes under.

    It joins the agent's own label, the label of the run's start (whose id and workflow are part of
    all that is written), and the label that its principal carries.

    Raises Refused if the role is not cleared for the run's start, and RoleRefused if it is not
    cleared for the principal's label: nothing of its request is written.
    """
    own = parse(member.state.label)
    begun = (member.first.commit.label if member.first is not None else None) or LOWEST
    log = workspace.log
    carried = log.carried.label if isinstance(log, CarriedLog) else LOWEST
    under = join(own, begun, carried)
    if under.confidentiality is not own.confidentiality and writes:
        cleared = await clearance_of(log, role)
        if not begun.flows_to(cleared) and not member.state.epoch:
            message = (
                f"the run was started under label {str(begun)!r}, and role {role!r} is cleared "
                f"only for {cleared.value!r}: take part in another run; {remedy(begun, role)}"
            )
            raise Refused(message)
        if not join(own, carried).flows_to(cleared) and join(own, carried) != own:
            because = (
                f"this principal has read data labelled {str(carried)!r} in a run and could "
                f"write it here, while role {role!r} is cleared only for {cleared.value!r}; "
                f"{remedy(carried, role)}"
            )
            refusal = AgentRefused(what=LABEL, name=role, rule=RULE, because=because)
            raise permits.refused(refusal)
    return msgspec.structs.replace(member, label=under)


async def _take_part(
    workspace: Workspace, run: str, agent: str, role: str, options: Options, member: _Member
) -> _Member:
    actor = Actor(agent, tuple(options.on_behalf_of))
    conversation = member.life.conversation_id
    items: list[RunEvent] = []
    extra: list[Append] = []
    place: experiments.Placement | None = None
    if member.life.status is RunStatus.UNKNOWN:
        conversation = options.conversation
        items.append(_started(workspace, options))
        place = await experiments.place(workspace, run, options.placement, conversation)
        if place is not None:
            items.append(place.event)
            member = msgspec.structs.replace(member, arm=place.arm)
        if conversation is not None:
            extra.append(await _join_conversation(workspace, conversation, run, actor))
    before = await turns(workspace, conversation, run) if conversation is not None else 0
    begin = Begin(
        agent,
        role,
        SERVER_VERSION,
        PROTOCOL_VERSION,
        conversation_id=conversation,
        turns_before=before,
    )
    began = agents.decide(member.state, begin)
    state = fold(member.state, began)
    joined = AgentJoined(agent=agent, role=role)
    resumed = RunResumed(agent=agent, epoch=state.epoch)
    if not member.state.epoch:
        items.append(joined)
    if member.state.epoch or member.life.status not in (RunStatus.UNKNOWN, RunStatus.OPEN):
        items.append(resumed)  # joining a run that has ended reopens it
    life = decided(member.life, items)
    label = member.label.stored
    mine = Append(
        AgentStream(run, role, agent),
        workspace.commit(member.state.version + 1, actor, began, state.epoch, label),
    )
    if not member.state.epoch and place is None:  # a run that starts here has no agent yet
        mine = msgspec.structs.replace(mine, expected=NothingUnder(run, agent))
    commit = workspace.commit(member.life.version + 1, actor, life, label=label)
    if options.opening:
        commit = msgspec.structs.replace(commit, id=options.opening)
    lives = Append(RunStream(run), commit)
    if place is not None and place.condition is not None:
        lives = msgspec.structs.replace(lives, expected=place.condition)
    await workspace.log.append_all([lives, mine, *extra])
    ended = member.life if member.life.status is RunStatus.COMPLETED else None
    return msgspec.structs.replace(member, life=fold(member.life, life), state=state, ended=ended)


def _started(workspace: Workspace, options: Options) -> RunStarted:
    return RunStarted(
        workflow=ids.name("workflow", options.workflow or options.otherwise),
        conversation_id=options.conversation,
        program=workspace.text(options.program),
        labels=label_texts(options.labels, workspace.redaction),
        chain=_chain(options),
    )


def _chain(options: Options) -> Chain:
    """Return the requested chain. Raises BadValue."""
    return chosen(Chain, options.chain, "chain") if options.chain is not None else Chain.RESULT


async def _join_conversation(
    workspace: Workspace, conversation: str, run: str, actor: Actor
) -> Append:
    stream = WorkspaceStream(KIND, ids.name("conversation", conversation))
    last = await workspace.log.last(stream)
    version = last.commit.last_version + 1 if last is not None else 1
    return Append(stream, workspace.commit(version, actor, [RunJoined(run=run)]))


def _opened(
    workspace: Workspace,
    stream: AgentStream,
    options: Options,
    member: _Member,
    post: Callable[[Callable[[], None]], None],
    pending: Callable[[], Any],
    permit: permits.Permit,
    texts: Substitutes | None,
) -> Opened:
    if texts is not None and options.restricted:
        message = (
            f"run {stream.run} is a fork with another message or prompt version, which is put into "
            "the calls of its program: run it with a program that has access to the broker"
        )
        raise Refused(message)
    mode = chosen(Mode, options.mode, "mode") if options.mode is not None else None
    if mode is None:
        mode = Mode.RESUME if member.state.epoch > 1 else Mode.LIVE
        if member.life.forked is not None:
            mode = Mode.FORK
    writer: StreamWriter | None = None
    actor = Actor(stream.agent, tuple(options.on_behalf_of))
    if not mode.reads_only:
        identity = Identity(actor, member.state.epoch, options.correlation, options.traceparent)
        writer = StreamWriter(
            workspace.log,
            stream,
            member.state.version,
            identity,
            workspace.clock,
            member.label.stored,
            workspace.states.written(stream),
            post,
        )
    ledger = Ledger(stream, member.state, writer, post, pending)
    ledger.shown(member.label.stored)
    ledger.inherited = member.inherited
    ledger.path = member.path
    ledger.full = member.life.chain is Chain.FULL
    forked = member.life.forked
    settings = Settings(
        mode=mode,
        rules=options.gate,
        scrub=workspace.redaction,
        secrets=options.secrets,
        settle=options.settle,
        parent=member.parent,
        shadows=forked is not None and forked.effects is not ForkEffects.LIVE,
        models=forked is not None and forked.effects is ForkEffects.MODELS,
        swap=forked.swap if forked is not None else None,
        edits=_edits_of(forked, stream.agent) if forked is not None else None,
        contents=_by_call(forked, stream.agent, EditKind.CONTENT),
        texts=texts,
        permit=permit,
        command="hansard"
        if options.restricted
        else workspace.command,  # the command may name local folders
    )
    budgets = LogBudgets(workspace.log, workspace.states, stream.run, actor, workspace.clock)
    budgets.label = lambda: ledger.label.stored
    engine = StepEngine(ledger, settings, workspace, budgets)
    if isinstance(workspace.log, CarriedLog):
        engine.carried = workspace.log.carried
        engine.carried.tell = ledger.shown
        ledger.shown(engine.carried.label.stored)
    if options.restricted:
        budgets.demand = engine.clearances.demand
    return Opened(stream.run, engine, writer, member.arm)


def _edits_of(forked: RunForked, agent: str) -> dict[str, EditedResult] | None:
    """Return the edited results of an agent's calls by call key; None in a fork without edits."""
    if not forked.edits:
        return None
    return _by_call(forked, agent, EditKind.RESULT)


def _by_call(forked: RunForked | None, agent: str, kind: EditKind) -> dict[str, EditedResult]:
    """Return the edits of an agent's calls of one kind by call key."""
    edits = forked.edits if forked is not None else ()
    return {edit.call: edit for edit in edits if edit.agent == agent and edit.kind is kind}


async def open_agent_here(workspace: Workspace, agent: str, role: str, options: Options) -> Opened:
    """Open a session in the running loop: its writes are posted and awaited here."""
    return await open_agent(workspace, agent, role, options, lambda call: call(), Unbroken)


async def close_agent(workspace: Workspace, opened: Opened, error: BaseException | None) -> None:
    """End a session. If `error` is given, it raises no error of its own but adds a note.

    The agent's leaving is recorded in its own stream and in the run's stream in one commit, and so
    is the run's end if it was the last agent at work: a kill leaves all of it or nothing. A strict
    replay that differs from its record raises ReplayDiffers.
    """
    writer, ledger = opened.writer, opened.engine.ledger
    if writer is None:
        ledger.end()
        _demand_equal(ledger, error)
        return
    is_left = False
    try:
        is_left = await _leave(workspace, opened, writer, error)
    finally:
        if opened.held is not None:
            opened.held.close(is_done=is_left and error is None, is_left=is_left)


async def _leave(
    workspace: Workspace, opened: Opened, writer: StreamWriter, error: BaseException | None
) -> bool:
    """Record the end of a session; return whether it is on record."""
    ledger = opened.engine.ledger
    if error is not None and writer.lost is not None:
        ledger.end()
        return False
    failure_record = failure(error, opened.engine.settings.scrub) if error is not None else None
    outcome = "completed" if error is None else "failed"
    left = RunAgentLeft(agent=ledger.stream.agent, outcome=outcome, error=failure_record)

    life = RunStream(ledger.stream.run)

    async def leave(writer: StreamWriter, events: Sequence[Recorded]) -> Stored:
        attempt = functools.partial(_write_leave, workspace, opened, left, writer, events)
        return await retry(attempt, LEAVE_TRIES_MAX, ours=lambda lost: lost.stream == life)

    try:
        done = Unbroken().bounded()
        ledger.leave(Leave(outcome, failure_record, ledger.answered_ranges), leave, done)
        await done
        if opened.before is not None and error is not None:
            now = f"was completed before this session; now it is {opened.after.status}"
            if opened.after.status is RunStatus.COMPLETED:
                now = "stays completed, though this session failed"
            error.add_note(f"hansard: run {opened.run} {now}")
    except HansardError as failed:
        if error is None:
            raise
        error.add_note(f"the end of the session could not be recorded: {failed}")
        return False
    finally:
        ledger.end()
    return True


def _demand_equal(ledger: Ledger, error: BaseException | None) -> None:
    """Raise ReplayDiffers if a strict replay differs; a program's own error is kept, with the
    difference as a note. A Miss already contains it.
    """
    text = difference(ledger)
    if text is None or isinstance(error, Miss):
        return
    if error is None:
        raise text
    error.add_note(f"hansard: {text}")


def _kept(
    before: RunState, state: RunState, left: RunAgentLeft, news: list[RunEvent]
) -> list[RunEvent]:
    """Return the events of leaving a run that was completed before: it stays so, unless another
    agent failed since.
    """
    failed = any(
        end.outcome != RunStatus.COMPLETED and before.ends.get(agent) != end
        for agent, end in state.ends.items()
        if agent != left.agent
    )
    if failed or not news or not isinstance(news[-1], RunFailed):
        return news
    because = ""
    if left.error is not None:
        because = f"agent {left.agent!r} joined it, failed ({left.error.type}), recorded no event"
    return [*news[:-1], RunCompleted(because=because)]


async def _write_leave(
    workspace: Workspace,
    opened: Opened,
    left: RunAgentLeft,
    writer: StreamWriter,
    events: Sequence[Recorded],
) -> Stored:
    """Write the end of an agent's session, and its effect on the run. Raises Fenced, Conflict.

    The agents of one process decide one after another, each on the state that the previous one has
    sent: their ends go in one batch. A Conflict may mean that this assumed state was not stored.
    """
    ledger = opened.engine.ledger
    life, boards = RunStream(ledger.stream.run), workspace.boards
    async with boards.turn([life]) as give_back:
        state, before = boards.leaving(life) or (await workspace.states.life(life.run), None)
        adds_nothing = writer.version == opened.version and len(events) == 1
        try:
            news = decided(state, [left])
            was = opened.before
            is_harmless = left.error is None or (adds_nothing and was and left.agent in was.roster)
            if was is not None and is_harmless:
                news = _kept(was, state, left, news)
        except Refused:
            if before is None:
                raise
            news = []  # it joined after the assumed state
        if not news and before is not None:
            # The assumed state is wrong: an agent joined since, or what was sent was not stored.
            await asyncio.wait({before.stored})
            raise Conflict(life, state.version + 1, None)
        opened.after = fold(state, news)
        label = ledger.label.stored  # read again: after a lost race it may have risen
        if not news:
            return await writer.append(events, label)
        commit = workspace.commit(state.version + 1, ledger.actor, news, label=label)
        appends = [writer.next_commit(events, label), Append(life, commit)]
        after = [before] if before is not None else []
        ticket: Ticket | None = None
        try:
            ticket = await put_together(boards.sender, writer.log, appends, after)
            boards.leaves(life, opened.after, ticket)
            give_back()
            [mine, *_] = await stored_together(writer, ticket)
        except Conflict:
            if ticket is not None and ticket.took_s:
                boards.lost(life, ticket.took_s)
            raise
        boards.won(life)
        return mine
