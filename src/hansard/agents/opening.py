"""How a session begins and ends: begin a run, join it, resume it, or only read it.

Taking part is one commit over the run's life and the agent's stream: the roster and the epoch
change together or not at all. Taking the next epoch fences whoever wrote the stream before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from hansard._version import PROTOCOL_VERSION, SERVER_VERSION
from hansard.agents import experiments, permits, placing
from hansard.agents.budgets import LogBudgets
from hansard.agents.conversations import turns
from hansard.agents.core import Core
from hansard.agents.errors import AgentError
from hansard.agents.experiments import Arm, Asked
from hansard.agents.failures import failure, recordable
from hansard.agents.gate import GateRule
from hansard.agents.ledger import Ledger, Mode
from hansard.agents.outcomes import Settings, Settle
from hansard.agents.runs import told_labels
from hansard.agents.secrets import Provider, scrubber
from hansard.agents.workspace import RACES_MAX, Workspace, decided
from hansard.bus.errors import Conflict, NotFound
from hansard.bus.log import Append, NothingUnder, Stored
from hansard.bus.states import fold_life
from hansard.bus.writer import Identity, StreamWriter
from hansard.domain import agent as agents
from hansard.domain import ids
from hansard.domain import run as runs
from hansard.domain.agent import AgentState, Begin, Leave
from hansard.domain.conversation import KIND, RunJoined
from hansard.domain.errors import BadValue, HansardError, Refused
from hansard.domain.events import Actor
from hansard.domain.ids import AgentStream, Lasting, Life
from hansard.domain.label import parse
from hansard.domain.run import (
    AgentJoined,
    ForkEffects,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunResumed,
    RunStarted,
    RunState,
    RunStatus,
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is opened with; see `Record.run`. `restricted`: a role that was never defined
    may do nothing, as one that was withdrawn; else it is only a name. Its agent is told of the
    run's place in an experiment, and may have it placed, as its role sees that.
    """

    workflow: str | None = None
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
    secrets: Provider | None = None
    settle: Settle | None = None
    labels: Mapping[str, str] = {}
    program: str = ""
    correlation: str | None = None
    traceparent: str | None = None
    on_behalf_of: tuple[str, ...] = ()
    restricted: bool = False

    @property
    def asked(self) -> Asked:
        """What is said of the run's place in an experiment."""
        return Asked(self.experiment, self.arm, self.task, self.trial, self.unit)


class Opened(msgspec.Struct):
    """An open session. `owner` says whether its end is the run's end."""

    run: str
    core: Core
    writer: StreamWriter | None
    owner: bool
    arm: Arm | None = None


class _Found(msgspec.Struct):
    """What is on record of a run and one of its agents."""

    life: RunState
    state: AgentState
    parent: AgentState | None = None
    inherited: int = 0
    arm: Arm | None = None
    first: Stored | None = None


async def _find(workspace: Workspace, run: str, agent: str, role: str) -> _Found:
    commits = await workspace.states.commits(Life(run))
    life = fold_life(commits)
    arm = await experiments.arm_of_run(workspace, life, commits)
    first = commits[0] if commits else None
    parent: AgentState | None = None
    if life.forked is not None:
        parent = await workspace.states.agent(AgentStream(life.forked.parent, role, agent))
    known = life.roster.get(agent)
    if known is None:
        return _Found(life, agents.initial(), parent, arm=arm, first=first)
    if known != role:
        message = (
            f"agent {agent!r} has role {known!r} in this run, not {role!r}: "
            "use that role, or another agent name"
        )
        raise Refused(message)
    stream = AgentStream(run, role, agent)
    state = await workspace.states.agent(stream)
    if life.forked is None:
        return _Found(life, state, arm=arm, first=first)
    return _Found(life, state, parent, life.forked.at.get(str(stream), 0), arm, first)


async def open_agent(
    workspace: Workspace,
    agent: str,
    role: str,
    options: Options,
    post: Callable[[Callable[[], None]], None],
    pending: Callable[[], Any],
) -> Opened:
    """Open a session. Raises Refused, NotFound, Conflict after 50 lost races."""
    ids.name("agent", agent)
    ids.name("role", role)
    for kind in ("correlation", "traceparent", "conversation"):
        if getattr(options, kind) is not None:
            ids.name(kind, getattr(options, kind))
    if not isinstance(options.on_behalf_of, tuple | list):  # a text would be taken by letters
        raise BadValue("on_behalf_of", f"{options.on_behalf_of!r:.80}", "give a tuple of names")
    if not isinstance(options.program, str):
        raise BadValue("program", f"{options.program!r:.80}", "give a text")
    for principal in options.on_behalf_of:
        ids.name("on_behalf_of", principal)
    options.asked.check()
    run = ids.name("run", options.run) if options.run is not None else workspace.clock.new_id()
    mode = Mode(options.mode) if options.mode is not None else None
    seen = await placing.read(workspace, role, agent) if options.restricted else None
    found = _Found(RunState(), agents.initial())
    for race in range(RACES_MAX):
        if options.run is not None or race:
            found = await _find(workspace, run, agent, role)
        if seen is not None:
            found = _shown(seen, run, options, found)
        _check(found, run, mode, options)
        if mode is not None and mode.reads_only:
            break
        try:
            found = await _take_part(workspace, run, agent, role, options, found)
        except Conflict:
            if race == RACES_MAX - 1:
                raise
            continue
        break
    permit = permits.FREE
    if mode is None or not mode.reads_only:
        permit = seen.permit if seen is not None else await permits.read(workspace, role)
    stream = AgentStream(run, role, agent)
    return _opened(workspace, stream, options, found, post, pending, permit)


def _shown(seen: placing.Placing, run: str, options: Options, found: _Found) -> _Found:
    """What is on record, less what the role does not see of the run's place. Raises RoleRefused."""
    if found.first is None:
        seen.demand(options.asked, seen.new(run, options.labels), begins=True)
        return found
    facts = placing.begun(run, found.life, found.first)
    seen.demand(options.asked, facts, begins=False)
    return msgspec.structs.replace(found, arm=seen.arm(found.arm, facts))


def _check(found: _Found, run: str, mode: Mode | None, options: Options) -> None:
    begun = found.life.status is not RunStatus.UNKNOWN
    if not begun and (mode is not None and mode is not Mode.LIVE):
        raise NotFound(f"run {run}", "see 'hansard runs'")
    if not begun and not options.workflow:
        message = "a new run needs the name of its workflow: record.run('my-workflow', ...)"
        raise AgentError(message)
    if begun and options.conversation not in (None, found.life.conversation_id):
        message = (
            f"run {run} is part of conversation {found.life.conversation_id!r}, not "
            f"{options.conversation!r}: a run belongs to one, from its beginning"
        )
        raise Refused(message)
    if begun and options.workflow and options.workflow != found.life.workflow:
        message = (
            f"run {run} is of workflow {found.life.workflow!r}, not {options.workflow!r}: "
            "give that one, or another run id"
        )
        raise Refused(message)
    if begun:
        options.asked.agree(run, found.life)
    if mode is not None and mode.reads_only and not found.state.epoch:
        raise NotFound(f"this agent in run {run}", f"its roster is {sorted(found.life.roster)}")


async def _take_part(
    workspace: Workspace, run: str, agent: str, role: str, options: Options, found: _Found
) -> _Found:
    actor = Actor(agent, tuple(options.on_behalf_of))
    conversation = found.life.conversation_id
    told: list[RunEvent] = []
    extra: list[Append] = []
    place: experiments.Place | None = None
    if found.life.status is RunStatus.UNKNOWN:
        conversation = options.conversation
        told.append(_started(options))
        place = await experiments.place(workspace, run, options.asked, conversation)
        if place is not None:
            told.append(place.event)
            found = msgspec.structs.replace(found, arm=place.arm)
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
    began = agents.decide(found.state, begin)
    state = agents.fold(found.state, began)
    joined = AgentJoined(agent=agent, role=role)
    told.append(RunResumed(agent=agent, epoch=state.epoch) if found.state.epoch else joined)
    life = decided(found.life, told)
    label = parse(found.state.label).stored
    mine = Append(
        AgentStream(run, role, agent),
        workspace.commit(found.state.version + 1, actor, began, state.epoch, label),
    )
    if not found.state.epoch:
        mine = msgspec.structs.replace(mine, expected=NothingUnder(run, agent))
    lives = Append(Life(run), workspace.commit(found.life.version + 1, actor, life, label=label))
    if place is not None and place.condition is not None:
        lives = msgspec.structs.replace(lives, expected=place.condition)
    await workspace.log.append_all([lives, mine, *extra])
    return msgspec.structs.replace(found, life=runs.fold(found.life, life), state=state)


def _started(options: Options) -> RunStarted:
    return RunStarted(
        workflow=ids.name("workflow", options.workflow),
        conversation_id=options.conversation,
        program=recordable(options.program, scrubber(options.redact)),
        labels=told_labels(options.labels, scrubber(options.redact)),
    )


async def _join_conversation(
    workspace: Workspace, conversation: str, run: str, actor: Actor
) -> Append:
    stream = Lasting(KIND, ids.name("conversation", conversation))
    last = await workspace.log.last(stream)
    version = last.commit.last_version + 1 if last is not None else 1
    return Append(stream, workspace.commit(version, actor, [RunJoined(run=run)]))


def _opened(
    workspace: Workspace,
    stream: AgentStream,
    options: Options,
    found: _Found,
    post: Callable[[Callable[[], None]], None],
    pending: Callable[[], Any],
    permit: permits.Permit,
) -> Opened:
    mode = Mode(options.mode) if options.mode is not None else None
    if mode is None:
        mode = Mode.RESUME if found.state.epoch > 1 else Mode.LIVE
        if found.life.forked is not None:
            mode = Mode.FORK
    writer: StreamWriter | None = None
    actor = Actor(stream.agent, tuple(options.on_behalf_of))
    if not mode.reads_only:
        identity = Identity(actor, found.state.epoch, options.correlation, options.traceparent)
        writer = StreamWriter(
            workspace.log,
            stream,
            found.state.version,
            identity,
            workspace.clock,
            parse(found.state.label).stored,
        )
    ledger = Ledger(stream, found.state, writer, post, pending)
    ledger.inherited = found.inherited
    forked = found.life.forked
    settings = Settings(
        mode=mode,
        rules=options.gate,
        scrub=scrubber(options.redact),
        secrets=options.secrets,
        settle=options.settle,
        parent=found.parent,
        shadows=forked is not None and forked.effects is ForkEffects.SHADOW,
        permit=permit,
    )
    budgets = LogBudgets(workspace.log, workspace.states, stream.run, actor, workspace.clock)
    budgets.label = lambda: ledger.label.stored
    owner = next(iter(found.life.roster), stream.agent) == stream.agent
    core = Core(ledger, settings, workspace.blobs, budgets, workspace.boards)
    if options.restricted:
        budgets.demand = core.clearances.demand
    return Opened(stream.run, core, writer, owner, found.arm)


async def open_agent_here(workspace: Workspace, agent: str, role: str, options: Options) -> Opened:
    """Open a session in the running loop: its writes are posted and awaited here."""
    loop = asyncio.get_running_loop()
    return await open_agent(
        workspace, agent, role, options, lambda call: call(), loop.create_future
    )


async def close_agent(workspace: Workspace, opened: Opened, error: BaseException | None) -> None:
    """End a session in order. With an error it never raises one of its own: it adds a note."""
    writer = opened.writer
    if writer is None or (error is not None and writer.lost is not None):
        return
    scrub = opened.core.settings.scrub
    told = failure(error, scrub) if error is not None else None
    outcome = "completed" if error is None else "failed"
    try:
        done = opened.core.ledger.tell([Leave(outcome, told)])
        if done is not None:
            await (asyncio.wrap_future(done) if isinstance(done, Future) else done)
        if opened.owner:
            end = RunFailed(error=told) if told is not None else RunCompleted()
            label = opened.core.ledger.label.stored
            await workspace.tell_life(opened.run, opened.core.ledger.actor, end, label=label)
    except HansardError as failed:
        if error is None:
            raise
        error.add_note(f"the end of the session could not be recorded: {failed}")
