"""The reads of the page: questions about runs, each answered as `--json` of its command does.

A role is answered from its view of a run, whose events have the role's own numbers, or from its own
database; what it does not see and what does not exist have one answer. The module is long because
each view of the page has its reads here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from cachetools import LRUCache
from starlette.responses import Response

from hansard.agents.access import roles
from hansard.agents.access.roles import DerivedView
from hansard.agents.workspace import RunFilter, Workspace, read_lives
from hansard.bus.errors import NotFound
from hansard.bus.reads import Clock, Time
from hansard.client import unfinished
from hansard.domain import ids
from hansard.domain.choices import claimed_time
from hansard.domain.errors import BadValue
from hansard.domain.roles.view import ShownEvent
from hansard.domain.run import ForkEffects
from hansard.inspect import experiments as experiment_reads
from hansard.inspect import memory as memory_reads
from hansard.inspect import outline as outlines
from hansard.inspect import roles as access
from hansard.inspect import state as states
from hansard.inspect.answer import Answer, find_run
from hansard.inspect.fork_plan import ForkPlan, fork_plan
from hansard.inspect.outline import (
    ROWS,
    ROWS_MAX,
    Outline,
    event_in_full,
    find_event_of,
    shown_outline,
)
from hansard.inspect.page import gather
from hansard.inspect.run import (
    Doubt,
    Run,
    RunReport,
    RunState,
    Team,
    doubtful_steps,
    key_history,
    keys,
    list_runs,
    show,
    team,
)
from hansard.inspect.run_diff import run_diff
from hansard.inspect.trace import Payloads
from hansard.operations.reports import AuditOptions
from hansard.projections.snapshots import Reader
from hansard.service.http.routes import Context, read
from hansard.service.workspace_requests import RoleContext

RUNS, RUNS_MAX = 50, 2_000
"""Runs of a page of the list by default, and at most."""

CONTEXT_BYTES_MAX = 256 * 1024
"""Largest content of a message that a context window has in full."""

POSITIONS_MAX = 200
"""Most positions of one request for rows."""

KNOWN_RUNS_MAX = 10_000
"""Most runs of a workspace that are kept in short, to be listed again while they do not change."""


def document(answer: Answer) -> Any:
    """Return an answer as one JSON value: the lines that programs get, by their field's name."""
    names = type(answer)._lines  # noqa: SLF001 -- the names of the lines are the document's
    if names:
        return {name: getattr(answer, name) for name in names}
    lines = list(answer.lines())
    return lines[0] if len(lines) == 1 and lines[0] is answer else {"lines": lines}


async def _found(context: Context, what: str, text: str) -> tuple[Workspace, str]:
    """Return the trusted workspace, and the id of a run. Raises NotOffered, NotFound, Ambiguous."""
    workspace = context.trusted(what).workspace
    return workspace, await find_run(workspace, text)


async def view_of(role: RoleContext, run: str, at: str | None = None) -> DerivedView:
    """Return a run as a role sees it, by default now; record it as shown.

    A point is the id or number of an event that the role sees. Raises NotFound, also for a run or
    an event that it does not see.
    """
    made = await role.derived(ids.name("run", run))
    if made is None:
        raise NotFound(f"run {run!r:.80}", "give the id of a run of which the role sees an event")
    await record_view(role, made)
    if at is None:
        return made
    events, place = made.view.events, at.removesuffix(".0")
    point = next((each.id for number, each in events if place in (each.id, str(number))), None)
    if point is None:
        raise NotFound(f"event {at!r:.80}", _SHOWN_EVENT)
    made = await roles.derive(role.workspace.states, role.asker.who.role, run, point)
    if not made.view.events:  # by the rules of that time
        raise NotFound(f"event {at!r:.80}", _SHOWN_EVENT)
    await record_view(role, made)
    return made


_SHOWN_EVENT = "give the number or id of an event that the role is shown"


async def record_view(role: RoleContext, made: DerivedView) -> None:
    """Count a view as shown, and record it."""
    role.asker.carried.run = made.view.run
    await role.asker.carried.shown(made.label)
    await roles.record(role.workspace, made, role.asker.who.actor)


# ---------------------------------------------------------------- runs


class RunsPage(msgspec.Struct, kw_only=True):
    """A page of runs, newest first (by start).

    Attributes:
        runs: The runs, as `hansard runs --json` lists them.
        next: Cursor of the next page; None at the end.
        found: Number of runs that match; None for a role, which is shown one page at a time.
        all: Number of all runs; None for a role.
        probed: Forks of probes that match and are left out.
        undated: Runs left out since their source gives no time.
        unread: Runs left out since they could not be read.
        unknown: Names in the filters that no run has.
    """

    runs: list[Run]
    next: int | None
    found: int | None = None
    all: int | None = None
    probed: int = 0
    undated: int = 0
    unread: int = 0
    unknown: list[str] = []


Order = Literal["began", "in_doubt", "failed", "steps", "longest", "cost", "tokens"]

_ORDERS = """
    WITH called AS (
        SELECT run, count(*) AS steps, count(*) FILTER (status = 'failed') AS failed,
            count(*) FILTER (
                status IN ('requested', 'in_doubt') AND effects NOT IN ('pure', 'composite')
            ) AS in_doubt,
            max(coalesce(ended_at, requested_at)) AS last_at
        FROM steps GROUP BY run
    ), used AS (
        SELECT run, fsum(amount ORDER BY amount) FILTER (metric = 'cost') AS cost,
            sum(amount) FILTER (metric IN ('input_tokens', 'output_tokens')) AS tokens
        FROM usage WHERE metric IN ('cost', 'input_tokens', 'output_tokens') GROUP BY run
    ), figures AS (
        SELECT r.run, r.first_position, r.started_at AS began, c.in_doubt, c.failed, c.steps,
            coalesce(r.ended_at, c.last_at) - r.started_at AS longest, u.cost, u.tokens
        FROM runs AS r LEFT JOIN called AS c USING (run)
        LEFT JOIN used AS u USING (run)
    )
    SELECT run FROM figures ORDER BY {} DESC NULLS LAST, first_position DESC
"""
"""The runs in an order of the list; its name is one of `Order`."""


@read("/runs")
async def runs(  # noqa: PLR0913 -- each filter is independent
    context: Context,
    *,
    status: str | None = None,
    workflow: str | None = None,
    agent: str | None = None,
    role: str | None = None,
    experiment: str | None = None,
    since: str | None = None,
    until: str | None = None,
    text: str = "",
    probes: bool = False,
    sort: Order | None = None,
    limit: Annotated[int, msgspec.Meta(ge=1, le=RUNS_MAX)] = RUNS,
    cursor: int | None = None,
) -> RunsPage:
    """List runs, newest first (by start). Filters combine with AND.

    Args:
        status: Only runs of this status.
        workflow: Only runs of this workflow.
        agent: Only runs that this agent has joined.
        role: Only runs joined in this role.
        experiment: Only trials of this experiment.
        since: Only runs begun then or later by their source; with zone.
        until: Only runs begun then or before by their source; with zone.
        text: Only runs with this text in their id, workflow, conversation or labels.
        probes: Also forks of probes.
        sort: The order over all runs that match, the largest first, instead of the newest
            first. A role gets no other order: what it sees of each run is read one page at a time.
        limit: Most runs of the page.
        cursor: The `next` of the page before.
    """
    named = {
        "status": status,
        "workflow": workflow,
        "agent": agent,
        "role": role,
        "experiment": experiment,
        "since": since,
        "until": until,
    }
    filters = RunFilter.of(named, "{}")
    restricted = context.role
    if restricted is not None:
        if sort is not None:
            raise BadValue("sort", f"{sort!r}", "leave it out: a role's runs are the newest first")
        return await _shown_runs(restricted, filters, text.casefold(), limit, cursor or 0)
    workspace = context.trusted().workspace
    known = context.workspace.part(LRUCache, lambda: LRUCache[str, Run](KNOWN_RUNS_MAX))
    order: dict[str, int] | None = None
    if sort is not None:
        statement = _ORDERS.format(sort)
        rows = await context.tables.read(lambda reader: reader.rows(statement), "runs")
        order = {row["run"]: place for place, row in enumerate(rows)}
    made = await list_runs(
        workspace, filters, limit, probes=probes, before=cursor, text=text, known=known, order=order
    )
    for each in made.runs:
        each.judge(await _processes(context, each))
    counts = {name: getattr(made, name) for name in RunsPage.__struct_fields__}
    return RunsPage(**counts)


async def _processes(context: Context, run: Run | RunState) -> dict[str, bool]:
    """Return of the agents that a run waits for whether their process is at work, if known."""
    workspace, settings = context.workspace.record.workspace, context.workspace.settings
    return await unfinished.processes(workspace, settings, run.run, run.agents, run.at_work)


async def _shown_runs(
    role: RoleContext, filters: RunFilter, text: str, limit: int, skip: int
) -> RunsPage:
    """List the runs of which a role sees an event; each is read, and recorded as shown.

    Filters apply to what the role sees; the cursor counts the runs that match.
    """
    listed: list[Run] = []
    matched = 0
    for life in await read_lives(role.workspace.log):
        made = await role.derived(life.run)
        row = shown_run(made) if made is not None else None
        if made is None or row is None or not _matches(row, filters, text):
            continue
        matched += 1
        if matched <= skip:
            continue
        if len(listed) == limit:
            return RunsPage(runs=listed, next=skip + limit)
        await record_view(role, made)
        listed.append(row)
    return RunsPage(runs=listed, next=None)


def shown_run(made: DerivedView) -> Run:
    """Return a run in short as a role sees it; its positions are numbers of the role's events."""
    view = made.view
    status = str(view.state.run.get("status", "unknown"))
    first, (number, newest) = view.events[0][1], view.events[-1]
    forked_from: str | None = None
    steps: dict[tuple[str, int], str] = {}
    for _, event in view.events:
        kind = event.type.rpartition(".")[0]
        if kind == "run.forked":  # the events before it are its parent's
            first, forked_from = event, msgspec.json.decode(event.data).get("parent")
        step = _step_of(event) if kind.startswith("step.") else None
        if step is not None:
            steps[event.agent, step] = kind.removeprefix("step.")
    kinds = Counter(steps.values())
    labels = view.state.run.get("labels")
    return Run(
        run=view.run,
        workflow=str(view.state.run.get("workflow", "")),
        status=status,
        agents={name: agent.role for name, agent in view.state.agents.items()},
        at_work=[],
        steps=kinds.total(),
        open_steps=kinds["requested"] + kinds["attempted"] + kinds["yielded"],
        in_doubt_steps=kinds["in_doubt"],
        failed_steps=kinds["failed"],
        began=_time(first),
        last=_time(newest),
        position=number,
        program="",
        conversation=None,
        forked_from=forked_from,
        probe=None,
        labels=labels if isinstance(labels, dict) else {},
        assigned=None,
        error=None,
        problem=None,
    )


def _step_of(event: ShownEvent) -> int | None:
    data = msgspec.json.decode(event.data)
    step = data.get("step") if isinstance(data, dict) else None
    return step if type(step) is int else None


def _time(event: ShownEvent) -> Time:
    if event.occurred_at is not None:
        return Time(event.occurred_at, Clock.OCCURRED_AT)
    return Time(event.at.isoformat(), Clock.LOG)


def _matches(row: Run, filters: RunFilter, text: str) -> bool:
    """Return whether a run matches the filters by what a role sees of it."""
    began = claimed_time(row.began.at) if row.began is not None and row.began.at else None
    names = (row.run, row.workflow, *map(str, row.labels.values()))
    members = [
        agent
        for agent, role in row.agents.items()
        if filters.agent in (None, agent) and filters.role in (None, role)
    ]
    return (
        filters.status in (None, row.status)
        and filters.workflow in (None, row.workflow)
        and filters.experiment is None
        and (bool(members) or (filters.agent is None and filters.role is None))
        and (filters.since is None or (began is not None and began >= filters.since))
        and (filters.until is None or (began is not None and began <= filters.until))
        and (not text or any(text in name.casefold() for name in names))
    )


# ---------------------------------------------------------------- one run


@read("/runs/{run}", cancels=True)
async def run(
    context: Context,
    run: str,
    *,
    at: str | None = None,
    agent: str | None = None,
    agents: bool = True,
) -> Any:
    """Return a run at a point: its life, its agents, and commits that are ignored.

    Without some agents nothing of them is read: `vector` and `quarantined` leave them out.

    Args:
        run: The run's id, a unique prefix, or `last`.
        at: The point, as of `hansard run show --at`; now by default.
        agent: Only this agent.
        agents: Without agents if false: a large run is then read faster.
    """
    role = context.role
    if role is not None:
        made = await view_of(role, run, at)
        context.position = made.view.events[-1][0]
        return {"run": shown_run(made), "agents": made.view.state.agents, "quarantined": []}
    workspace, name = await _found(context, "run", run)
    only = [agent] if agent is not None else None if agents else []
    report = await show(workspace, name, at, only)
    if isinstance(report, RunReport):
        context.position = report.run.position
        if at is None:
            processes = await _processes(context, report.run)
            report.run.gone = [name for name, is_alive in processes.items() if not is_alive]
    return document(report)


@read("/runs/{run}/state")
async def state(
    context: Context,
    run: str,
    *,
    at: str | None = None,
    agent: str | None = None,
    steps: bool = False,
) -> Any:
    """Return the state of a run at a point: its life with shared state, and its agents.

    Args:
        run: The run's id, a unique prefix, or `last`.
        at: The point; now by default.
        agent: Only this agent.
        steps: With every step of the agents; else with their number.
    """
    role = context.role
    if role is not None:
        return _shown_data(await view_of(role, run, at))
    workspace, name = await _found(context, "state", run)
    data = await states.state(workspace, name, at, agent)
    if not steps:
        for each in data.agents.values():
            each["steps"] = len(each["steps"])
    return data


def _shown_data(made: DerivedView) -> states.Data:
    """Return what a role sees of a run's state in the form of `states.state`."""
    shown = made.view.state
    agents = msgspec.to_builtins(shown.agents)
    for name, messages in shown.context.items():
        agents.setdefault(name, {})["messages"] = dict(enumerate(messages, 1))
    life = {**shown.run, "board": msgspec.to_builtins(shown.board)}
    return states.Data(made.view.run, made.view.events[-1][0], life, agents)


@read("/runs/{run}/changes")
async def changes(
    context: Context, run: str, *, since: str, to: str = states.NOW, agent: str | None = None
) -> states.Difference:
    """Return what changed in a run's state between two points.

    Args:
        run: The run's id, a unique prefix, or `last`.
        since: The first point.
        to: The second point, which may be earlier; now by default.
        agent: Only this agent.
    """
    role = context.role
    if role is None:
        workspace, name = await _found(context, "changes", run)
        return await states.difference(workspace, name, (since, to), agent)
    before, after = [
        _shown_data(await view_of(role, run, None if point == states.NOW else point))
        for point in (since, to)
    ]
    items = list(states.changes(before, after))
    return states.Difference(run, before.position, after.position, items)


class ContextWindows(msgspec.Struct, kw_only=True):
    """Context windows of a run's agents at a position, with the messages of each in full."""

    run: str
    position: int
    agents: list[states.AgentContext]
    messages: dict[str, list[Any]]


@read("/runs/{run}/context")
async def context_windows(
    context: Context, run: str, *, at: str | None = None, agent: str | None = None
) -> ContextWindows:
    """Return the context windows of a run's agents at a point, with their messages.

    A content over 256 KiB stays a reference: `/runs/{run}/blobs/{sha256}` has it.

    Args:
        run: The run's id, a unique prefix, or `last`.
        at: The point; now by default.
        agent: Only this agent.
    """
    role = context.role
    if role is not None:
        view = (await view_of(role, run, at)).view
        messages: dict[str, list[Any]] = dict(view.state.context)
        number = view.events[-1][0]
        return ContextWindows(run=view.run, position=number, agents=[], messages=messages)
    workspace, name = await _found(context, "context", run)
    up_to = await workspace.points.up_to(name, at)
    windows, fetch = (
        await states.contexts(workspace, name, up_to, agent),
        Payloads(workspace, CONTEXT_BYTES_MAX),
    )
    return ContextWindows(
        run=name,
        position=windows.position,
        agents=[windows.context(each) for each in windows.agents],
        messages={
            each.name: [message async for message in windows.messages(each, fetch)]
            for each in windows.agents
        },
    )


@read("/runs/{run}/board")
async def board(
    context: Context, run: str, *, at: str | None = None, key: str | None = None
) -> Any:
    """Return the keys of a run's shared state at a point, or one key with its writes.

    Args:
        run: The run's id, a unique prefix, or `last`.
        at: The point; now by default.
        key: The key.
    """
    role = context.role
    if role is not None:
        view = (await view_of(role, run, at)).view
        shown = [
            {"run": run, "key": name, **msgspec.to_builtins(each)}
            for name, each in view.state.board.items()
            if key in (None, name)
        ]
        context.position = view.events[-1][0]
        return {"run": view.run, "keys": shown}
    workspace, name = await _found(context, "board", run)
    up_to = await workspace.points.up_to(name, at)
    if key is None:
        return await keys(workspace, name, up_to)
    return await key_history(workspace, name, key, up_to, Payloads(workspace))


@read("/runs/{run}/tasks")
async def tasks(context: Context, run: str, *, at: str | None = None) -> Team:
    """Return the agents of a run with their tasks at a point.

    Args:
        run: The run's id, a unique prefix, or `last`.
        at: The point; now by default.
    """
    workspace, name = await _found(context, "tasks", run)
    return await team(workspace, name, await workspace.points.up_to(name, at))


@read("/runs/{run}/outline")
async def outline(
    context: Context,
    run: str,
    *,
    after: Annotated[int, msgspec.Meta(ge=0)] = 0,
    limit: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)] = ROWS,
    part: Literal["page", "end"] = "page",
    at: str = "",
    words: bool = True,
) -> Outline:
    """Return the rows of a run's events in order, one column a field.

    Args:
        run: The run's id, a unique prefix, or `last`.
        after: Only events after this position.
        limit: Most rows; a page ends with a whole commit, and may have a few more.
        part: `end` for the last rows, at least `limit` of them, instead of a page.
        at: Only the commits at these positions, with commas, at most 200.
        words: Without first words of events if false: a large run is then read faster.
    """
    role = context.role
    try:
        positions = [int(each) for each in at.split(",") if each]
    except ValueError:
        raise BadValue("at", f"{at!r:.80}", "give positions with commas, such as 12,17") from None
    if len(positions) > POSITIONS_MAX:
        raise BadValue("at", f"{len(positions)} positions", f"give at most {POSITIONS_MAX}")
    if role is not None:
        view = (await view_of(role, run)).view
        if part == "end":
            after, limit = max(0, len(view.events) - limit), len(view.events)
        return shown_outline(view.run, view.events, after, limit)
    workspace, name = await _found(context, "outline", run)
    if positions:
        return await outlines.outline_at(workspace, name, positions)
    if part == "end":
        return await outlines.outline_end(workspace, name, limit)
    return await outlines.outline(workspace, name, after, limit, has_words=words)


@read("/runs/{run}/events/{id}")
async def event(context: Context, run: str, id: str) -> Any:  # noqa: A002 -- the parameter's name
    """Return one event in full; large payloads are named by their hash and size.

    Args:
        run: The run's id, a unique prefix, or `last`.
        id: The event's address (`position.index`) or id; for a role also its number.
    """
    role = context.role
    if role is None:
        workspace, name = await _found(context, "event", run)
        return await event_in_full(workspace, name, id)
    view = (await view_of(role, run)).view
    for number, shown in view.events:
        if id.removesuffix(".0") in (shown.id, str(number)):
            return {"run": view.run, "number": number, **msgspec.structs.asdict(shown)}
    raise NotFound(f"event {id!r:.80}", _SHOWN_EVENT)


@read("/runs/{run}/file")
async def file(context: Context, run: str, *, redacted: bool = False) -> Response:
    """Return a run as one HTML file that needs no server, as `hansard run html` writes it.

    Args:
        run: The run's id, a unique prefix, or `last`.
        redacted: Without the texts of arguments, results, messages and reasons.
    """
    from hansard.web.pages import page_name, run_page  # noqa: PLC0415 -- it loads templates

    workspace, name = await _found(context, "file", run)
    data = run_page(await gather(workspace, name, redacted=redacted))
    fields = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(page_name(name))}"}
    return Response(data, headers=fields, media_type="text/html")


@read("/runs/{run}/blobs/{sha256}")
async def blob(context: Context, run: str, sha256: str, *, size: int) -> Response:
    """Return a large payload that an event of a run names; for a trusted caller.

    Args:
        run: The run's id, a unique prefix, or `last`.
        sha256: The payload's hash.
        size: The payload's size, in bytes.
    """
    workspace, _ = await _found(context, "payload", run)
    return Response(await workspace.blobs.get(sha256, size), media_type="application/json")


@read("/runs/{run}/diff/{other}")
async def diff(context: Context, run: str, other: str) -> Any:
    """Return two runs aligned, as `hansard run diff --json`.

    Args:
        run: The first run.
        other: The second run.
    """
    workspace, name = await _found(context, "diff", run)
    difference = await run_diff(workspace, name, await find_run(workspace, other))
    for side in difference.sides:
        settings = context.workspace.settings
        side.doubts.alive = await unfinished.at_work(workspace, settings, side.run)
    return document(difference)


@read("/runs/{run}/plan")
async def plan(
    context: Context,
    run: str,
    *,
    edit: list[str] = [],  # noqa: B006 -- never changed
    prompt: list[str] = [],  # noqa: B006 -- never changed
    at: str | None = None,
    effects: ForkEffects | None = None,
) -> ForkPlan:
    """Return what a fork of a run will do: which calls are answered, and which run.

    `POST /record/fork` makes it, and `POST /queue/request` has a worker run it.

    Args:
        run: The run's id, a unique prefix, or `last`.
        edit: Values that are replaced: calls as `agent#number`, or addresses of messages and of
            writes to keys; also several with a comma.
        prompt: Calls that get another version of a prompt, such as `agent#3=greeting`.
        at: The point of the fork, if nothing is edited; by default the run's end.
        effects: The handling of tools with effects; `models` with edits, else `shadow`.
    """
    workspace, name = await _found(context, "plan", run)
    steps = [each for text in edit for each in _BETWEEN_STEPS.split(text) if each]
    uses = [(call, used) for text in prompt for call, _, used in [text.partition("=")]]
    if any(not each for use in uses for each in use):
        raise BadValue("prompt", f"{prompt!r:.80}", "give CALL=PROMPT, such as agent#3=greeting")
    return await fork_plan(workspace, name, steps, at, effects, uses)


_BETWEEN_STEPS = re.compile(r"(?<=[0-9]),|(?<=-[0-9a-f]{12}),")


@read("/runs/{run}/knew")
async def knew(
    context: Context,
    run: str,
    *,
    event: str | None = None,
    role: str | None = None,
    rules_at: str | None = None,
) -> Any:
    """Return what an agent knew before an event, as `hansard knew --json`.

    Args:
        run: The run's id, a unique prefix, or `last`.
        event: The event's address or id; by default the run's newest decision.
        role: The role of the reader; by default the agent's.
        rules_at: The point of the role's rules; by default that of the event.
    """
    workspace, name = await _found(context, "knew", run)
    if event is None:
        where = await access.before_newest_decision(workspace, name, role)
    else:
        stored, index = await find_event_of(workspace, name, event)
        where = await access.before_event(workspace, event, (stored.position, index), role)
    return document(await access.knew(workspace, where, rules_at, None))


# ---------------------------------------------------------------- the whole record


@read("/audit")
async def audit(
    context: Context,
    *,
    run: str | None = None,
    kind: list[str] = [],  # noqa: B006 -- never changed
    experiment: str | None = None,
    severity: str | None = None,
) -> Any:
    """Return missing and odd things, worst first, as `hansard audit --json`.

    Args:
        run: Only this run; the whole record by default.
        kind: Only these topics or kinds of findings.
        experiment: Only findings in this experiment.
        severity: Only this severity or worse.
    """
    options: AuditOptions = {"kinds": kind, "experiment": experiment, "severity": severity}
    return document(await context.record.audit(run, **options))


class Inbox(msgspec.Struct, kw_only=True):
    """What waits for a person: approvals, and calls in doubt; None for a role."""

    approvals: list[access.Question]
    doubts: list[Doubt] | None


@read("/inbox")
async def inbox(context: Context, *, every: bool = False) -> Inbox:
    """Return approvals that wait for an answer, and steps in doubt of open or failed runs.

    Args:
        every: Also approvals that were answered.
    """
    role = context.role
    if role is None:
        workspace = context.trusted().workspace
        made = await access.list_approvals(workspace, every=every)
        await unfinished.note_waiting(workspace, context.workspace.settings, made)
        return Inbox(approvals=made.questions, doubts=await doubtful_steps(workspace))
    made = await access.list_approvals(role.workspace, every=every)
    shown: list[access.Question] = []
    for each in made.questions:
        about = {"approval": each.approval}
        data = await role.shown_data(each.run, "approval.requested", about)
        if data is not None:
            # the number, the label and the status follow from what the role may not see
            of_role = {name: data.get(name, "") for name in ("agent", "role", "tool", "rule")}
            arguments = msgspec.Raw(msgspec.json.encode(data.get("arguments")))
            shown.append(
                msgspec.structs.replace(
                    each, **of_role, step=None, arguments=arguments, label="", run_status=None
                )
            )
    return Inbox(approvals=shown, doubts=None)


class _Items(Answer):
    """Things from the tables."""

    _lines = ("items",)

    items: list[Any]


async def _list(context: Context, what: str, reads: Callable[[Reader], list[Any]]) -> Any:
    """Return a list from the tables under its name."""
    made = await context.tables.read(lambda reader: _Items(items=reads(reader)), what)
    return {what: made.items}


@read("/experiments")
async def experiments(context: Context) -> Any:
    """List all experiments, as `hansard experiment list --json`."""
    return await _list(context, "experiments", experiment_reads.list_experiments)


@read("/experiments/{name}")
async def experiment(context: Context, name: str) -> Any:
    """Return an experiment: its plan, arms and metrics.

    Args:
        name: The experiment.
    """
    reads = partial(experiment_reads.experiment, name=name)
    return document(await context.tables.read(reads, "experiment", name))


@read("/prompts")
async def prompts(context: Context) -> Any:
    """List all prompts with their aliases, as `hansard prompt list --json`."""
    return await _list(context, "prompts", experiment_reads.list_prompts)


@read("/prompts/{name}")
async def prompt(context: Context, name: str) -> Any:
    """Return a prompt's versions with the means of their runs, and its aliases' history.

    Args:
        name: The prompt.
    """
    reads = partial(experiment_reads.log, name=name)
    return document(await context.tables.read(reads, "prompt", name))


@read("/memory")
async def memory(context: Context, *, space: str | None = None, at: str | None = None) -> Any:
    """List the files of memory spaces at a point, as `hansard memory ls --json`.

    Args:
        space: Only this space.
        at: The point; now by default.
    """
    workspace = context.trusted("memory").workspace
    return document(await memory_reads.listing(workspace, space, at))
