"""Runs: their list, and one at a point: its life, agents, quarantined commits, board and team.

Long because the list and the report of one run state the same figures of the same states.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from datetime import datetime
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from hansard.agents.annotations.statements import PROGRESS
from hansard.agents.team.tasks import task_records
from hansard.agents.workspace import RunFilter, RunLife, Workspace, is_import, read_lives
from hansard.bus import reads
from hansard.bus.commits import revive, until
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, AtTime, Origin, RunStreams, Stored, UpTo
from hansard.bus.reads import EventTime, Time, began, is_imported, last, own, time_stored
from hansard.domain import payload
from hansard.domain.agent import AgentState, DecisionMade, MessageAdded, SessionBegan
from hansard.domain.board import (
    RESERVED,
    AmountAdded,
    ItemAppended,
    ItemDiscarded,
    ItemIncluded,
    KeyChecked,
    KeyRemoved,
    ValueMerged,
    ValuePut,
)
from hansard.domain.errors import HansardError, UnknownEvent
from hansard.domain.events import Event
from hansard.domain.ids import AgentStream, KeyStream, run_of
from hansard.domain.run import RunAssigned, RunForked, RunScored, RunStatus
from hansard.domain.snapshot import Snapshot
from hansard.domain.steps import Effects, Failure, Step, StepStatus
from hansard.domain.team import TaskStatus, waits
from hansard.inspect import state as state_reads
from hansard.inspect.answer import Answer, by_name
from hansard.inspect.state import turn
from hansard.inspect.trace import Payloads, commits_by_agent
from hansard.state.replay import RunView, fold_agent

# Boards and teams of runs at a point.


class Member(msgspec.Struct, tag_field="kind", tag="agent", kw_only=True):
    """Agent of a run: `tasks` it holds, its `last` action, and the action's `position`."""

    agent: str
    role: str
    status: str
    tasks: list[str]
    last: str
    position: int | None
    as_of: int


class Task(msgspec.Struct, tag_field="kind", tag="task", kw_only=True):
    """Task of a run: its holder, its claim, and what it waits for."""

    id: str
    title: str
    status: str
    role: str
    agent: str
    holder: str
    number: int
    by: str
    waits_for: list[str]
    blocked_by: list[str]
    lease_left_s: float | None
    because: str
    error: str
    as_of: int


class Team(Answer):
    """Agents and tasks of a run at a position; `is_over` if nothing can change any more."""

    _lines: ClassVar[tuple[str, ...]] = ("members", "tasks")

    run: str
    position: int
    members: dict[str, Member]
    tasks: dict[str, Task]
    is_over: bool


class Change(Answer):
    """Change of a team by a commit, and its time."""

    _lines: ClassVar[tuple[str, ...]] = ("changed",)

    time: datetime
    position: int
    changed: list[Member | Task]


async def team(workspace: Workspace, run: str, up_to: UpTo) -> Team:
    """Return a run's team at a point. Raises NotFound, UnknownEvent, Corrupt."""
    view = await workspace.states.run(run, up_to)
    now = up_to.stamp if isinstance(up_to, AtTime) else 0
    if not now and view.position:
        now = (await workspace.log.at(view.position)).stamp
    tasks = {}
    for item in task_records(view.team, now):
        kept = {name: item[name] for name in item if name not in ("what", "given", "result")}
        tasks[item["id"]] = Task(**kept, as_of=view.position)
    unmet = waits(view.team).values()
    return Team(
        run=run,
        position=view.position,
        members={agent: await _member(workspace, view, agent) for agent in view.life.roster},
        tasks=tasks,
        is_over=view.life.status is not RunStatus.OPEN and all(each.failed for each in unmet),
    )


async def _member(workspace: Workspace, view: RunView, agent: str) -> Member:
    state = view.agents.get(agent)
    tasks = view.team.tasks.values()
    made = Member(
        agent=agent,
        role=view.life.roster[agent],
        status="joined",
        tasks=[t.id for t in tasks if t.status is TaskStatus.CLAIMED and t.holder == agent],
        last="",
        position=None,
        as_of=view.position,
    )
    if state is not None:
        made.position = await workspace.states.position_of(view.stream_of(agent), state.version)
        made.status, made.last = state.left or "open", _last(state)
    return made


def _last(state: AgentState) -> str:
    """Return an agent's last action other than one on tasks and mail."""
    steps = [step for step in state.steps.values() if step.kind != "team"]
    last: Step | None = max(steps, key=lambda it: it.outcome_version or it.version, default=None)
    return f"{last.tool} {last.status.value}" if last is not None else ""


async def follow_team(workspace: Workspace, shown: Team) -> AsyncGenerator[Change]:
    """Yield each change after the given state, at the commit that made it.

    Ends when the run has ended and each task is over or blocked: a run may be ended with open
    tasks. Commits of other runs are read as well: a lease runs out by the log's time, which they
    advance.
    """
    if shown.is_over:
        return
    async with contextlib.aclosing(workspace.log.follow(shown.position)) as commits:  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
        async for stored in commits:
            if not _concerns(stored, shown):
                continue
            before, shown = shown, await team(workspace, shown.run, AtPosition(stored.position))
            changed: list[Member | Task] = [
                *(m for n, m in shown.members.items() if _news(m) != _news(before.members.get(n))),
                *(t for n, t in shown.tasks.items() if _news(t) != _news(before.tasks.get(n))),
            ]
            yield Change(time=stored.time, position=shown.position, changed=changed)
            if shown.is_over:
                return


def _concerns(stored: Stored, shown: Team) -> bool:
    leased = any(task.lease_left_s for task in shown.tasks.values())
    return run_of(stored.stream) == shown.run or leased


def _news(row: Member | Task | None) -> Member | Task | None:
    """Return the fields whose change is news: not the position alone, nor the remaining lease."""
    if isinstance(row, Member):
        return msgspec.structs.replace(row, position=None, as_of=0)
    return row and msgspec.structs.replace(row, lease_left_s=None, as_of=0)


class Key(msgspec.Struct, kw_only=True):
    """Key with its value: as recorded, and in full if one key is requested."""

    run: str
    key: str
    kind: str | None
    version: int
    author: str
    role: str
    labels: dict[str, str]
    expires: str | None
    event: str
    value: Any
    position: int


class NoKey(msgspec.Struct, kw_only=True):
    """Key without a value: removed or expired."""

    run: str
    key: str
    kind: None = None
    version: int = 0
    value: None = None
    position: int


class Write(msgspec.Struct, kw_only=True):
    """Write to a key: its operation and operand.

    `value` is as recorded, `expected` the version that it required.
    """

    run: str
    key: str
    version: int
    operation: str
    value: Any = UNSET
    expected: int | UnsetType | None = UNSET
    author: str
    role: str
    event: str
    position: int
    time: str


class Keys(Answer, kw_only=True):
    """Keys of a run that exist at a position."""

    _lines: ClassVar[tuple[str, ...]] = ("keys",)

    run: str
    position: int
    keys: list[Key]


class KeyHistory(Answer, kw_only=True):
    """Value of a key, and all of its writes, oldest first."""

    _lines: ClassVar[tuple[str, ...]] = ("now", "writes")

    now: Key | NoKey
    writes: list[Write]


async def keys(workspace: Workspace, run: str, up_to: UpTo) -> Keys:
    """Return the keys that exist at a point. Raises NotFound, UnknownEvent, Corrupt."""
    view = await workspace.states.run(run, up_to, ())
    entries = [
        Key(run=run, key=name, **state_reads.key(each), position=view.position)
        for name, each in sorted(view.boards.items())
    ]
    return Keys(run=run, position=view.position, keys=entries)


async def key_history(
    workspace: Workspace, run: str, key: str, up_to: UpTo, fetch: Payloads
) -> KeyHistory:
    """Return a key at a point with its writes.

    Raises NotFound (it was never written up to that point), UnknownEvent, Corrupt.
    """
    view = await workspace.states.run(run, up_to, ())
    writes = await _writes(workspace, KeyStream(run, key), view.position)
    if not writes:
        where = f"key {key!r} of run {run} at position {view.position}"
        raise NotFound(where, f"see 'hansard board {run}'")
    entry = view.boards.get(key)
    now: Key | NoKey = NoKey(run=run, key=key, position=view.position)
    if entry is not None:
        now = Key(run=run, key=key, **state_reads.key(entry), position=view.position)
        raw = msgspec.Raw(msgspec.json.encode(entry.plain))
        now.value = await fetch.get(payload.resolve(entry.plain), raw)
    return KeyHistory(now=now, writes=writes)


async def _writes(workspace: Workspace, stream: KeyStream, position: int) -> list[Write]:
    """Return the writes to a key up to a position, oldest first; none for a budget."""
    if stream.key.startswith(RESERVED):
        return []
    commits = await workspace.states.commits(stream, up_to=AtPosition(position))
    writes: list[Write] = []
    for stored in until(commits, position):
        for index, recorded in enumerate(stored.commit.events):
            event = revive(recorded)
            made = Write(
                run=stream.run,
                key=stream.key,
                version=stored.commit.version + index,
                **_operation(event),
                author=stored.commit.actor.agent,
                role=getattr(event, "role", ""),
                event=recorded.id,
                position=stored.position,
                time=stored.time.isoformat(),
            )
            writes.append(made)
    return writes


def _operation(event: Event) -> dict[str, Any]:
    """Return the operation of a write, and its operand as recorded."""
    match event:
        case ValuePut():
            return {"operation": "put", "value": event.value, "expected": event.expected}
        case ItemAppended():
            return {"operation": "append", "value": event.item}
        case AmountAdded():
            return {"operation": "add", "value": event.amount}
        case ItemIncluded():
            return {"operation": "include", "value": event.item}
        case ItemDiscarded():
            return {"operation": "discard", "value": event.item}
        case ValueMerged():
            return {"operation": event.merge, "value": event.value}
        case KeyRemoved():
            return {"operation": "remove", "expected": event.expected}
        case KeyChecked():
            return {"operation": "check", "expected": event.expected}
        case _:
            return {"operation": event.tag}


class RunState(msgspec.Struct, tag_field="kind", tag="run", kw_only=True):
    """Run at a position.

    `time` is the log's, of the newest commit; `began` and `last` are times of their own clocks.
    `gone` are agents at work whose process is known to have ended.
    """

    run: str
    position: int
    time: str
    origin: Origin | None
    started: str
    began: Time
    last: Time
    workflow: str
    status: str
    program: str
    conversation: str | None
    labels: dict[str, str]
    assigned: RunAssigned | None
    scores: dict[str, float]
    judged: list[RunScored]
    error: Failure | None
    forked: RunForked | None
    vector: dict[str, int]
    agents: dict[str, str]
    at_work: list[str]
    gone: list[str] = []
    keys: list[str]


RESUMES = {
    Effects.PURE: "runs again",
    Effects.IDEMPOTENT: "runs again with the same key",
    Effects.COMPOSITE: "its body runs again; its recorded calls are answered",
    Effects.RECONCILE: "asks the tool's reconcile function whether it happened",
    Effects.ONCE: "stops at it until it is settled: hansard run settle",
}
"""What a resume does with a call without an outcome, by its effects."""


class OpenStep(msgspec.Struct, kw_only=True):
    """Step whose effect may or may not have happened; `resume` is what a resume does with it."""

    step: str
    tool: str
    effects: str
    status: str
    arguments: msgspec.Raw
    error: Failure | None
    resume: str


class Resource(msgspec.Struct):
    """Resource that an agent accessed."""

    uri: str
    operation: str


class RunAgent(msgspec.Struct, tag_field="kind", tag="agent", kw_only=True):
    """Agent of a run.

    `steps` are numbers by status; `context_tokens` is None if tokens were not counted.
    """

    run: str
    agent: str
    role: str
    version: int
    epoch: int
    left: str | None
    turn_number: int
    steps: dict[str, int]
    open_steps: list[OpenStep]
    checkpoints: dict[str, msgspec.Raw]
    decisions: list[DecisionMade]
    messages: int
    context_tokens: int | None
    resources: list[Resource]
    written_by: str


class Quarantined(msgspec.Struct, tag_field="kind", tag="quarantined", kw_only=True):
    """Commit that is invalid at its place, and why; it is ignored."""

    run: str
    position: int
    stream: str
    version: int
    reason: str


class RunReport(Answer, kw_only=True):
    """Run, its agents, quarantined commits, and its newest commit, as of `end`."""

    _lines: ClassVar[tuple[str, ...]] = ("run", "agents", "quarantined")

    run: RunState
    agents: list[RunAgent]
    quarantined: list[Quarantined]
    newest: Stored
    end: AtPosition

    @property
    def imported(self) -> EventTime | None:
        """Time at which the newest commit was imported; None if it was not."""
        return time_stored(self.newest) if is_imported(self.newest) else None


class Commit(msgspec.Struct, tag_field="kind", tag="commit", kw_only=True):
    """Commit with its exact bytes."""

    position: int
    time: str
    stream: str
    body: msgspec.Raw


class Unreadable(Answer, kw_only=True):
    """Commits of a run whose state cannot be folded, and why."""

    _lines: ClassVar[tuple[str, ...]] = ("commits",)

    error: UnknownEvent
    commits: list[Commit]


async def show(
    workspace: Workspace, run: str, at: object, only: Collection[str] | None = None
) -> RunReport | Unreadable:
    """Return a run at a point. With `only`, of no other agents anything is read: `agents`,
    `vector` and `quarantined` leave them out.

    Agents are read from their chunks, so that a long run costs as much as a short one. All of its
    commits are read, once, for the point of an id, which has no index; and if some are quarantined,
    or an import's times are those of its source.

    Raises NotFound, Corrupt, BadName.
    """
    up_to, history = await workspace.points.history(run, at)
    try:
        view = await workspace.states.run(run, up_to, only)
    except UnknownEvent as error:
        history = history or await workspace.states.history(run, up_to)
        return Unreadable(error=error, commits=[_commit(stored) for stored in history])
    if history is None:
        history = await workspace.states.outline(view)
        ours = own(run, history)
        if any(state.quarantined for state in view.agents.values()) or not (
            began(ours).is_known and last(ours).is_known
        ):
            history = await workspace.states.history(run, AtPosition(view.position))
    return RunReport(
        run=_run(view, history),
        agents=[_agent(run, name, state) for name, state in view.agents.items()],
        quarantined=[
            Quarantined(
                run=run,
                position=stored.position,
                stream=str(stored.stream),
                version=stored.commit.version,
                reason=reason,
            )
            for stored in history
            if (reason := reads.reason(stored.commit))
        ],
        newest=history[-1],
        end=AtPosition(view.position),
    )


async def agent_snapshots(
    workspace: Workspace, report: RunReport, *, chained: bool
) -> AsyncIterator[Snapshot]:
    """Yield the snapshot of each agent of a run; with `chained`, the chain of its snapshots.

    Raises NotFound, Corrupt.
    """
    if not report.agents:
        raise NotFound(f"an agent in run {report.run.run}", "none had begun at this point")
    for each in report.agents:
        stream = AgentStream(report.run.run, each.role, each.agent)
        own_commits = await workspace.states.commits(stream, up_to=report.end)
        if chained:
            async for made in state_reads.chain(workspace, own_commits):
                yield made
        else:
            yield await state_reads.at_end(workspace, own_commits)


def _commit(stored: Stored) -> Commit:
    return Commit(
        position=stored.position,
        time=stored.time.isoformat(),
        stream=str(stored.stream),
        body=msgspec.Raw(stored.body),
    )


def _run(view: RunView, history: list[Stored]) -> RunState:
    life, newest, ours = view.life, history[-1], own(view.run, history)
    return by_name(
        RunState,
        newest,
        life,
        view,
        run=view.run,
        time=newest.time.isoformat(),
        started=ours[0].time.isoformat(),
        began=began(ours).time,
        last=last(ours).time,
        status=life.status.value,
        conversation=life.conversation_id,
        agents=life.roster,
        at_work=[] if is_import(ours) else life.missing,
        keys=sorted(view.boards),
    )


def _open(state: AgentState) -> list[Step]:
    """Return the steps without a known outcome: intents without outcome, and calls in doubt."""
    in_doubt = {step.number for step in state.in_doubt}
    unsettled = (step for step in state.steps.values() if step.status is not StepStatus.COMPLETED)
    return [step for step in unsettled if step.is_open or step.number in in_doubt]


def _agent(run: str, name: str, state: AgentState) -> RunAgent:
    window = state.window
    counts = [getattr(noted.fact, "tokens", None) for noted in window]
    tokens = [count for count in counts if count is not None]
    return by_name(
        RunAgent,
        state,
        run=run,
        agent=name,
        turn_number=turn(state),
        # `_value_`, since `value` takes a fifth of a microsecond more for each of many steps
        steps=dict(Counter(step.status._value_ for step in state.steps.values())),
        open_steps=[
            by_name(
                OpenStep,
                step,
                step=f"{state.agent}#{step.number}",
                effects=step.effects.value,
                status=step.status.value,
                resume=RESUMES[step.effects],
            )
            for step in _open(state)
        ],
        checkpoints={name: saved.data for name, saved in state.checkpoints.items()},
        messages=len(window),
        context_tokens=sum(tokens) if tokens else None,
        resources=[
            Resource(noted.fact.uri, noted.fact.operation)  # type: ignore[union-attr] # only resources
            for noted in state.resources
        ],
        written_by=state.server_version,
    )


class KillCost(Answer, tag_field="kind", tag="agent", kw_only=True):
    """What a kill now would cost an agent at work; times in seconds.

    `loop` is the `resumable` loop whose checkpoint is the agent's newest, with `done` items; null
    for none. A resume repeats the program's own time, outside of calls, within the two bounds of
    `repeated_s`: from that checkpoint (from the session's begin if it is older) until the last
    event; and from the session's begin until now, without the items of loops that are on record. An
    earlier session's call without an outcome may run again now, and lowers the lower bound alone.
    A resume repeats none of the `answered` calls, which used `usage`: those of all sessions, and of
    a fork's parent before the cut. `open_calls` would be interrupted, after `open_s`. With `gone`
    the agent's process has ended already, and all is as of its last event.
    """

    run: str
    agent: str
    gone: bool
    loop: str | None
    done: int | None
    repeated_s: tuple[float, float]
    answered: int
    usage: dict[str, float]
    open_s: dict[str, float]
    open_calls: list[OpenStep]


async def kill_costs(
    workspace: Workspace, run: str, at_s: float, processes: Mapping[str, bool]
) -> list[KillCost]:
    """Predict what a kill of each agent at work would cost, at a time in seconds since 1970.
    `processes` has the agents whose processes are known to be at work, or to have ended. Reads the
    agents' whole streams. Raises NotFound, UnknownEvent, Corrupt, and Refused for a copy of
    another workspace's run: nobody is at work in it.
    """
    view = await workspace.states.run(run)
    view.life.demand_own()
    agents = [agent for agent in view.life.missing if agent in view.agents]
    gone = {agent for agent in agents if not processes.get(agent, True)}
    return [
        await _kill_cost(workspace, view, each, None if each in gone else at_s) for each in agents
    ]


async def _kill_cost(
    workspace: Workspace, view: RunView, agent: str, at_s: float | None
) -> KillCost:
    """Predict the cost at a time, or for None as of the last event."""
    state = view.agents[agent]
    began, times = 0, {0: at_s or 0.0}
    for stored in await workspace.states.commits(view.stream_of(agent)):
        for version, recorded in enumerate(stored.commit.events, stored.commit.version):
            times[version] = stored.time.timestamp()
            began = version if recorded.type == SessionBegan.tag else began
    since, saved = began, None
    loops: dict[str, list[float]] = {}
    for noted in state.facts:
        fact: Any = noted.fact
        if getattr(fact, "name", "").startswith(PROGRESS):
            since, saved = max(began, noted.version), fact
            if noted.version > began:
                loops.setdefault(fact.name, []).append(times[since])
    data = await Payloads(workspace).value(saved.data) if saved is not None else {}
    answered = [step for step in state.steps.values() if step.outcome_version]
    ended = [step for step in answered if (step.outcome_version or 0) > began]
    calls = [step for step in state.steps.values() if step.status is StepStatus.REQUESTED]
    last_s, now_s = times[state.version], max(at_s or 0.0, times[state.version])
    ends = [(times[step.outcome_version or 0], step.duration_ms / 1e3) for step in ended]
    busy = [(end - seconds, end) for end, seconds in ends]
    least = _apart(times[since], last_s, busy + [(times[each.version], now_s) for each in calls])
    busy += [(times[each.version], now_s) for each in calls if each.version > began]
    most = _apart(times[began], now_s, busy + [(saves[0], saves[-1]) for saves in loops.values()])
    usage: Counter[str] = Counter()
    for step in answered:
        usage.update(step.usage)  # its counts may be fractions
    return KillCost(
        run=view.run,
        agent=agent,
        gone=at_s is None,
        loop=saved.name.removeprefix(PROGRESS) if saved is not None else None,
        done=data.get("done"),
        repeated_s=(round(least, 3), round(most, 3)),
        answered=len(answered),
        usage=dict(usage),
        open_s={f"{agent}#{step.number}": round(now_s - times[step.version], 3) for step in calls},
        open_calls=_agent(view.run, agent, state).open_steps,
    )


def _apart(begin: float, end: float, spans: Iterable[tuple[float, float]]) -> float:
    """Return the time between two points that lies in none of some spans."""
    apart = 0.0
    for span_begin, span_end in sorted(spans):
        apart += max(0.0, min(span_begin, end) - begin)
        begin = max(begin, span_end)
    return apart + max(0.0, end - begin)


class Doubt(OpenStep, kw_only=True):
    """Step in doubt or without an outcome, its run, and the label of its agent."""

    run: str
    workflow: str
    agent: str
    label: str


DOUBTFUL_RUNS_MAX = 200
"""Most runs, the newest first, that are read for steps in doubt."""


async def doubtful_steps(workspace: Workspace) -> list[Doubt]:
    """Return the steps without a known outcome of the newest runs that are open or failed.

    Imported runs are left out: nobody works on them.
    """
    lives = [
        life
        for life in await read_lives(workspace.log)
        if life.state.status in {RunStatus.OPEN, RunStatus.FAILED} and not life.is_import
    ][:DOUBTFUL_RUNS_MAX]
    doubts: list[Doubt] = []
    for start in range(0, len(lives), AT_ONCE_MAX):
        some = lives[start : start + AT_ONCE_MAX]
        for view in await asyncio.gather(*(workspace.states.run(life.run) for life in some)):
            for name, agent in view.agents.items():
                of = {"run": view.run, "workflow": view.life.workflow, "agent": name}
                doubts += [
                    by_name(Doubt, each, **of, label=agent.label)
                    for each in _agent(view.run, name, agent).open_steps
                ]
    return doubts


AT_ONCE_MAX = 10
"""Most runs read at once: reads wait for the broker, and each run is held in full."""


class Run(msgspec.Struct, kw_only=True):
    """Run in short.

    A call with effects is in doubt until its outcome is on record; `unanswered` are those without
    any outcome, by agent. They are under way instead while the agent's process is known to be at
    work (`judge`). Figures of its agents are None if they could not be read, and `problem` has the
    reason. `began` and `last` are a time and its clock, null if the source of an import gives no
    time; a view that was served later is not the last. `gone` are agents at work whose process has
    ended. `cost` (US dollars) and `tokens` are sums of what calls and messages have on record, None
    if nothing is.
    """

    run: str
    workflow: str
    status: str
    agents: dict[str, str]
    at_work: list[str]
    gone: list[str] = []
    steps: int | None = None
    open_steps: int | None = None
    in_doubt_steps: int | None = None
    under_way_steps: int = 0
    unanswered: dict[str, int] = {}
    failed_steps: int | None = None
    cost: float | None = None
    tokens: int | None = None
    began: Time | None
    last: Time | None = None
    position: int | None = None
    program: str
    conversation: str | None
    forked_from: str | None
    probe: str | None
    labels: dict[str, str]
    assigned: RunAssigned | None
    error: Failure | None
    problem: str | None

    def judge(self, processes: Mapping[str, bool]) -> None:
        """Take into account which agents' processes are at work, and which have ended."""
        self.gone = [agent for agent, is_alive in processes.items() if not is_alive]
        self.under_way_steps = sum(
            calls for agent, calls in self.unanswered.items() if processes.get(agent)
        )
        if self.in_doubt_steps is not None:
            self.in_doubt_steps -= self.under_way_steps


class Runs(Answer):
    """Selected runs, newest first: at most the limit of those `found`, of `all` runs.

    `probed` more match and are forks of probes; `undated` more match except for the time span,
    since their sources give no time; `unread` more could not be read and are excluded by a
    filter. `lost` are those whose life could not be read; `unknown` are filter values that no
    run has. `next` continues the list (`before`); None at its end.
    """

    _lines: ClassVar[tuple[str, ...]] = ("runs",)

    runs: list[Run]
    found: int
    all: int
    probed: int
    undated: int
    unread: int
    lost: set[str]
    unknown: list[str]
    next: int | None = None


async def list_runs(
    workspace: Workspace,
    filters: RunFilter,
    limit: int,
    *,
    probes: bool = False,
    before: int | None = None,
    text: str = "",
    known: MutableMapping[str, Run] | None = None,
    order: Mapping[str, int] | None = None,
) -> Runs:
    """List the runs that match, with or without the forks of probes; limit 0 is no limit.

    Reads each returned run completely. `before` continues a list after the run whose life begins at
    that position; `text` must occur in a run's id, workflow, conversation or labels. A process that
    lists runs again and again passes `known`, which holds runs that did not change since; it reads
    long runs from their chunks. With `order`, the place of each run, those without one come last,
    and `before` is the number of runs that are listed already.
    """
    lives = await read_lives(workspace.log)
    taken = [life for life in lives if filters.takes(life) and _has(text.casefold(), life)]
    matching = [life for life in taken if probes or life.probe is None]
    if order is not None:
        matching.sort(key=lambda life: order.get(life.run, len(order)))
        further = matching[before or 0 :]
    else:
        further = [life for life in matching if before is None or life.position < before]
    listed = further[:limit] if limit > 0 else further
    more = (
        (before or 0) + len(listed) if order is not None else listed[-1].position if listed else 0
    )
    return Runs(
        runs=await _all(workspace, listed, known),
        found=len(matching),
        all=len(lives),
        probed=len(taken) - len(matching),
        undated=sum(map(filters.leaves_out_undated, lives)),
        unread=sum(life.error is not None and not filters.takes(life) for life in lives),
        lost={life.run for life in listed if life.problem},
        unknown=list(filters.unknown(lives)) if not matching else [],
        next=more if len(listed) < len(further) else None,
    )


def _has(text: str, life: RunLife) -> bool:
    """Return whether a text occurs in the names of a run."""
    state = life.state
    names = (life.run, state.workflow, state.conversation_id or "", *state.labels.values())
    return not text or any(text in name.casefold() for name in names)


async def _all(
    workspace: Workspace, lives: Sequence[RunLife], known: MutableMapping[str, Run] | None
) -> list[Run]:
    """Return runs in short; several are read at once."""
    made: list[Run] = []
    for start in range(0, len(lives), AT_ONCE_MAX):
        some = lives[start : start + AT_ONCE_MAX]
        made += await asyncio.gather(*(_newest(workspace, life, known) for life in some))
    return made


async def _newest(
    workspace: Workspace, life: RunLife, known: MutableMapping[str, Run] | None
) -> Run:
    """Return a run in short, from `known` if it did not change since."""
    if known is None:
        return await _summarize(workspace, life, is_long=False)
    newest = await workspace.log.last(RunStreams(life.run))
    row = known.get(life.run)
    if row is None or newest is None or row.position != newest.position:
        row = await _summarize(workspace, life, is_long=await _is_long(workspace, life, newest))
        if row.problem is None:
            known[life.run] = row
    return msgspec.structs.replace(row)


LONG_VERSIONS = 500
"""Versions of an agent's stream above which a run is read from chunks."""


async def _is_long(workspace: Workspace, life: RunLife, newest: Stored | None) -> bool:
    """Return whether an agent of a run has many events."""
    if newest is not None and isinstance(newest.stream, AgentStream):
        return newest.commit.last_version > LONG_VERSIONS
    streams = (AgentStream(life.run, role, name) for name, role in life.state.roster.items())
    ends = await asyncio.gather(*map(workspace.log.last, streams))
    return any(end is not None and end.commit.last_version > LONG_VERSIONS for end in ends)


def _used(states: Iterable[AgentState], metrics: Iterable[str]) -> float | None:
    """Return the sum of some metrics over calls and messages; None if none has one on record."""
    amounts = [
        usage[metric]
        for state in states
        for usage in (
            *(step.usage for step in state.steps.values()),
            *(each.fact.usage for each in state.facts if isinstance(each.fact, MessageAdded)),
        )
        for metric in metrics
        if metric in usage
    ]
    return math.fsum(amounts) if amounts else None


async def _summarize(workspace: Workspace, life: RunLife, *, is_long: bool) -> Run:
    state = life.state
    made = by_name(
        Run,
        life,
        state,
        status=state.status.value,
        agents=state.roster,
        began=life.began.time if life.began is not None else None,
        conversation=state.conversation_id,
        forked_from=state.forked.parent if state.forked is not None else None,
        error=state.error,
    )
    try:
        if is_long:
            view = await workspace.states.run(life.run)
            commits, states = await workspace.states.outline(view), [*view.agents.values()]
        else:
            commits = await workspace.states.history(life.run)
            states = [fold_agent(agent) for agent in commits_by_agent(commits).values()]
    except HansardError as error:
        made.problem = life.problem or str(error)
        return made
    statuses = Counter(step.status for state in states for step in state.steps.values())
    made.steps = statuses.total()
    made.open_steps = sum(len(state.open_steps) for state in states)
    made.in_doubt_steps = sum(len(state.in_doubt) for state in states)
    unanswered = {each.agent: sum(step.is_open for step in each.in_doubt) for each in states}
    made.unanswered = {agent: calls for agent, calls in unanswered.items() if calls}
    made.failed_steps = statuses[StepStatus.FAILED]
    made.cost = _used(states, ("cost",))
    tokens = _used(states, ("input_tokens", "output_tokens"))
    made.tokens = None if tokens is None else round(tokens)
    ours = own(life.run, commits)
    made.last, made.position = last(ours).time, commits[-1].position
    return made
