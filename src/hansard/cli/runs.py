"""Commands that list, replay, compare and change runs: `hansard runs`, `hansard run resume` ..."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from hansard.agents import edits, experiments
from hansard.agents import runs as actions
from hansard.agents.workspace import RunFilter
from hansard.bus.clock import OS_USER
from hansard.bus.reads import Time
from hansard.cli import output, processes
from hansard.cli.common import At, By, Command, Commands, Reason, Run, argument, flag, option, pairs
from hansard.cli.experiment import numbers
from hansard.cli.opening import agents_at_work, reading, reading_run, settings
from hansard.cli.output import Column, Hint, Part
from hansard.cli.run import edit_text, resume_command
from hansard.client import unfinished
from hansard.client.options import result_from
from hansard.domain.choices import counted, listed
from hansard.domain.errors import CallerError
from hansard.domain.run import ForkEffects, RunAssigned, RunForked, RunState, RunStatus
from hansard.domain.steps import Effects, Step, Verdict
from hansard.inspect import page as run_page
from hansard.inspect import rederive
from hansard.inspect.answer import find_run, plain_text, withheld_text
from hansard.inspect.rederive import CheckedCall, Replayed
from hansard.inspect.run import Run as ListedRun
from hansard.inspect.run import Runs, list_runs
from hansard.inspect.run_diff import (
    AgentPair,
    Comparability,
    Comparable,
    Match,
    Move,
    Pair,
    RunDiff,
    run_diff,
)
from hansard.inspect.trace import Doubts, Line, recorded
from hansard.state.replay import RunView
from hansard.web.pages import page_name
from hansard.web.pages import run_page as html_page

if TYPE_CHECKING:
    from rich.text import Text


app = Commands()
run = Commands()


@app.command()
async def runs(
    status: Annotated[
        Literal["open", "completed", "failed", "cancelled", "unknown"] | None,
        option("Only runs of this status; unknown: no valid life event."),
    ] = None,
    workflow: Annotated[str | None, option("Only runs of this workflow.", "NAME")] = None,
    agent: Annotated[str | None, option("Only runs that this agent has joined.", "NAME")] = None,
    role: Annotated[str | None, option("Only runs joined in this role.", "NAME")] = None,
    experiment: Annotated[str | None, option("Only trials of this experiment.", "NAME")] = None,
    since: Annotated[
        str | None, option("Only runs begun then or later by their source; with zone.", "TIME")
    ] = None,
    until: Annotated[
        str | None, option("Only runs begun then or before by their source; with zone.", "TIME")
    ] = None,
    probes: Annotated[bool, flag("--probes", "Also forks of probes.")] = False,
    limit: Annotated[int, option("Most runs to show; 0 shows all.", min=0)] = 20,
) -> None:
    """List runs, newest first (by start).

    Filters combine with AND.

    A call is in doubt if it is unknown whether its effect happened; it is under way while its
    process is at work on this machine.

    An imported run begins at the time that its source claims, shown with (occurred_at), and is
    listed by the time of its import. If the source gives no time, --since and --until leave the run
    out.
    """
    filters = {
        "status": status,
        "workflow": workflow,
        "agent": agent,
        "role": role,
        "experiment": experiment,
        "since": since,
        "until": until,
    }
    query = RunFilter.of(filters, "--{}")
    async with reading() as workspace:
        made = await list_runs(workspace, query, limit, probes=probes)
        for run in made.runs:
            run.judge(await agents_at_work(workspace, run))
    output.show(made, _render(made))
    _tell_left_out(made)
    if not made.found and not made.probed:
        _explain_absence(made, str(query))


def _tell_left_out(made: Runs) -> None:
    """Print what the filters leave out."""
    if made.probed:
        output.hint(f"{counted(made.probed, 'fork')} of probes left out: --probes shows them")
    if made.undated:
        undated = counted(made.undated, "run")
        output.hint(f"{undated} left out by --since or --until: the source gives no time")
    if made.unread:
        unread = counted(made.unread, "run")
        output.hint(f"{unread} could not be read and may match: 'hansard runs' lists them")


def _at_work(run: ListedRun) -> str:
    return ", ".join(f"{name} (gone)" if name in run.gone else name for name in run.at_work)


def _trial(of: RunAssigned | None) -> str:
    if of is None:
        return ""
    trial = f"trial {of.trial}" if of.trial else ""
    return " · ".join(filter(None, (of.experiment, of.arm, of.task, trial)))


def _explain_absence(made: Runs, filters: str) -> None:
    """Print that no run was found, and the filters that no run can meet."""
    matching = f" of {made.all} is: {filters}" if made.all and filters else "s in this workspace"
    output.hint(f"no run{matching}")
    for unknown in made.unknown:
        output.hint(unknown)


def _time(time: Time | None) -> str:
    """Format a time, with its clock if that is not the log's; "not given" if it is unknown."""
    if time is None:
        return ""
    return output.shown_time(time) or "not given"


def _render(made: Runs) -> list[Part]:
    def status(run: ListedRun) -> str:
        return "unreadable" if run.run in made.lost else run.status

    columns = (
        Column("run", whole=True),
        Column("workflow", lambda run: run.workflow + (" (probe)" if run.probe else "")),
        Column("status", status, whole=True, styles=output.STYLES),
        Column("trial", lambda run: _trial(run.assigned), short=True, optional=True),
        Column("agents"),
        Column("at work", _at_work, short=True),
        Column("steps", lambda run: "?" if run.steps is None else str(run.steps), right=True),
        Column("open", lambda run: str(run.open_steps or ""), right=True),
        Column("under way", lambda run: str(run.under_way_steps or ""), right=True),
        Column("in doubt", lambda run: str(run.in_doubt_steps or ""), right=True),
        Column("failed", lambda run: str(run.failed_steps or ""), right=True),
        Column("began", lambda run: _time(run.began), whole=True),
        Column("last", lambda run: _time(run.last), whole=True),
    )
    parts: list[Part] = [output.listing(columns, made.runs)] if made.runs else []
    parts += [
        Hint(f"run {run.run} could not be read whole: {run.problem}")
        for run in made.runs
        if run.problem
    ]
    if any(run.gone for run in made.runs):
        words = "(gone): no process is at work; 'hansard run show RUN' says since when"
        parts.append(Hint(words))
    if len(made.runs) < made.found:
        text = f"{len(made.runs)} of {counted(made.found, 'run')}; --limit 0 shows all"
        parts.append(Hint(text))
    return parts


def verdict_of(
    happened: str | None, *, did_not_happen: bool, reuse: bool, run_again: bool
) -> Verdict:
    """Return the one verdict of the options. Raises CallerError."""
    named = {
        "--happened": (happened is not None, Verdict.HAPPENED),
        "--did-not-happen": (did_not_happen, Verdict.DID_NOT_HAPPEN),
        "--reuse": (reuse, Verdict.REUSE),
        "--run-again": (run_again, Verdict.RUN_AGAIN),
    }
    options = [name for name, (is_given, _) in named.items() if is_given]
    if len(options) != 1:
        has = f"{' and '.join(options)} were given" if options else "none was given"
        message = (
            f"a step is settled by exactly one verdict, {has}: choose one of "
            "--happened RESULT, --did-not-happen, --reuse, --run-again"
        )
        raise CallerError(message)
    return named[options[0]][1]


@run.command(plain=True)
async def resume(which: Run, command: Command = None) -> int:
    """Resume a run: run its program again.

    Without a command, print how to continue: nothing from the record is ever executed. At a
    terminal, asks for the outcome of a step in doubt if the program has no policy for it
    (HANSARD_SETTLE). At the end, prints what was answered from the record.
    """
    if command:
        if recorded_run := await _recorded(which):
            from hansard.cli.record import demand, run_proxied

            demand(command)
            return (await run_proxied(None, None, recorded_run, command)).code
        ran = await processes.run(which, command, "resume")
        output.hint(f"the resume saved: {ran.saved.line()}")
        if missing := ran.view.life.missing:
            who = ", ".join(missing)
            output.hint(f"{who} has not left the run: what that session was answered is not known")
        return ran.code
    async with reading_run(which) as (workspace, run):
        view = await workspace.states.run(run)
    actions.refuse_observed(run, view.life)
    output.write(_how(run, view.life))
    for agent, step in _steps_to_settle(view):
        output.hint(f"in doubt: {agent}#{step.number} ({step.tool}) may need settling first")
    return 0


@run.command()
async def fork(
    which: Run,
    at: At = None,
    effects: Annotated[
        Literal["shadow", "models", "live"] | None,
        option(
            "shadow: the fork's tools with effects do not run; models: as shadow, but new calls of "
            "models run; live: they run [shadow; models with edits].",
            show_default=False,
        ),
    ] = None,
    replace: Annotated[
        list[str] | None,
        option(
            "Another result of a step, content of a write or of a message: JSON, else text; '-' is "
            "stdin. STEP is agent#number or an address. Repeatable.",
            "STEP=FILE",
        ),
    ] = None,
    prompt: Annotated[
        list[str] | None,
        option("Another version of a prompt, from a call on. Repeatable.", "STEP=NAME@VERSION"),
    ] = None,
    reason: Annotated[str, option("Reason for the edits, for the record.", "TEXT")] = "",
    by: By = OS_USER,
) -> None:
    """Start a new run from a point of another; print its id.

    With --replace or --prompt it begins before the first of these steps. Calls that do not depend
    on them are answered from the record (docs/forks.md).
    """
    chosen = ForkEffects(effects) if effects is not None else None
    form = "STEP=FILE, such as agent#3=result.json"
    changes = [
        edits.replace(step, result=result_from(_content(name)))
        for step, name in pairs(replace, "--replace", form).items()
    ]
    form = "STEP=NAME@VERSION, such as agent#3=rag@2"
    versions = pairs(prompt, "--prompt", form).items()
    changes += [edits.replace(step, prompt=version) for step, version in versions]
    async with reading_run(which) as (workspace, run):
        child = await actions.fork(workspace, run, at, chosen, None, changes, by=by, reason=reason)
        life = await workspace.states.life(child)
    forked = life.forked or RunForked(parent=run, at={})
    edited = [edit.target for edit in forked.edits]
    fields = {"run": child, "parent": run, "effects": forked.effects, "vector": forked.at}
    output.show(fields | ({"edits": edited} if edited else {}), child)
    meant = {
        ForkEffects.SHADOW: "tools with effects return the parent's outcome or a declared shadow",
        ForkEffects.MODELS: "calls of models run where the record has no answer, other tools with "
        "effects return the parent's outcome or a declared shadow",
        ForkEffects.LIVE: "tools with effects run, and may repeat what the parent did",
    }
    if edited:
        output.hint(f"edited: {listed(edited)}; calls that depend on it run, others are answered")
    command = resume_command(child, life.roster, life.labels)
    output.hint(f"effects={forked.effects}: {meant[forked.effects]}\ncontinue with: {command}")


def _content(file: str) -> str:
    """Return the text of a file, of stdin for `-`. Raises CallerError."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f"{file} cannot be read ({error}): give a file of UTF-8 text") from error


@run.command()
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
        _, settled = edits.find_step(view, name)
    fields = {"run": run, "step": name, "verdict": verdict, "status": settled.status}
    text = (
        f"step {name} ({settled.tool}) is settled: {settled.verdict} by {settled.settled_by}, "
        f"now {settled.status}"
    )
    output.show(fields, text)
    output.hint(_next(view))


def _steps_to_settle(view: RunView) -> Iterator[tuple[str, Step]]:
    """Yield the steps in doubt that do not simply run again, each with its agent."""
    for agent, state in view.agents.items():
        for step in state.in_doubt:
            if step.effects is not Effects.IDEMPOTENT:
                yield agent, step


def _next(view: RunView) -> str:
    """Return the next command after a step was settled."""
    still = [f"{agent}#{step.number}" for agent, step in _steps_to_settle(view)]
    resume = resume_command(view.run, view.life.roster, view.life.labels)
    is_completed = view.life.status is RunStatus.COMPLETED
    if still:
        either = "" if is_completed else f", or resume: {resume}"
        return f"still in doubt: {', '.join(still)}; settle them too{either}"
    if is_completed:
        return (
            f"run {view.run} is completed: nothing is left to resume. To run its program again "
            f"with this outcome, which reopens the run: {resume}"
        )
    return f"continue with: {resume}"


async def _recorded(which: str) -> str | None:
    """Return the id of a run if its model calls were recorded by `hansard record`."""
    from hansard.cli.record import recorded_agent

    async with reading_run(which) as (workspace, run):
        life = await workspace.states.life(run)
    return run if recorded_agent(life.roster, life.labels) is not None else None


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
        f"  {resume_command(run, life.roster, life.labels)}\n"
        f"or in code: record.run(run={run!r}, agent=..., role=...)"
    )


@run.command()
async def score(
    which: Run,
    metrics: Annotated[list[str], argument("METRIC=NUMBER...", "Such as reward=1 cost=0.2.")],
    by: By = OS_USER,
    reason: Reason = "",
) -> None:
    """Record a score of a run."""
    scores = numbers(metrics)
    async with reading_run(which) as (workspace, run):
        is_new = await experiments.score(workspace, run, scores, by=by, reason=reason)
    text = "is scored" if is_new else "has just these scores already"
    fields = {"run": run, "by": by, "metrics": scores, "recorded": is_new}
    output.show(fields, f"run {run} {text} by {by}")


@run.command()
async def replay(
    which: Run,
    command: Command = None,
    offline: Annotated[bool, flag("--offline", "With a command: allow changed tools too.")] = False,
) -> int:
    """Replay a run without running tools.

    With a command, that program runs against the record: a call that is not on record is an error,
    and so is a program that makes fewer calls. Without a command, every call is derived again from
    the record and compared; exits with 1 if one differs.
    """
    if command and (recorded_run := await _recorded(which)):
        from hansard.cli.record import demand, run_proxied

        demand(command)
        done = await run_proxied(None, None, recorded_run, command, replays=True)
        return done.code or (1 if done.proxy.report.refused else 0)
    if command:
        mode = "offline" if offline else "strict"
        ran = await processes.run(which, command, mode)
        code = ran.code
        if mode == "strict" and ran.without_report:
            agents = ", ".join(_calls_of(ran.view, agent) for agent in ran.without_report)
            output.hint(f"not equal to the record: no session was replayed to its end of {agents}")
            code = code or 1
        if ran.only_read:
            agents = ", ".join(_calls_of(ran.view, agent) for agent in ran.only_read)
            output.hint(f"not replayed, since it only read the record: {agents}")
        output.hint(f"{mode} replay ended with exit code {code}; nothing was recorded")
        output.hint(f"the replay saved: {ran.saved.line()}")
        return code
    async with reading_run(which) as (workspace, run):
        actions.refuse_observed(run, (await workspace.states.run(run)).life)
        report = await rederive.replay(workspace, run)
        report.doubts.alive = await unfinished.at_work(workspace, settings(), run)
    output.show(report, _render_replay(report))
    return 1 if report.summary.differ else 0


def _calls_of(view: RunView, agent: str) -> str:
    calls = counted(len(view.agents[agent].steps), "call")
    return f"{agent} ({calls} on record)"


def _call_name(row: tuple[Line, CheckedCall]) -> str:
    line = row[0]
    return ("  " * (line.depth - 1) + "└ " if line.depth else "") + line.step.tool


def _render_call(row: tuple[Line, CheckedCall]) -> Text:
    checked = row[1]
    if checked.differs:
        return output.cell("; ".join(checked.differs), "bold red")
    if checked.unproven:
        return output.cell("; ".join(checked.unproven), "yellow")
    return output.cell("as recorded", "green")


def _render_replay(report: Replayed) -> Iterator[Part]:
    def status(row: tuple[Line, CheckedCall]) -> Text:
        return output.status_cell(report.doubts.status(row[0].agent, row[0].step))

    columns = (
        Column("step", lambda row: f"{row[0].agent}#{row[0].step.number}", whole=True),
        Column("tool", _call_name),
        Column("arguments", lambda row: output.arguments_preview(row[1].arguments)),
        Column("result", lambda row: output.result_preview(row[0].step, row[1].result)),
        Column("status", status, whole=True),
        Column("re-derived", _render_call, whole=True),
    )
    if report.calls:
        yield output.listing(columns, report.calls)
    tally = report.summary
    text = f"{counted(tally.calls, 'call')} from the record, 0 tools run"
    if tally.differ:
        text += f"; {tally.differ} differ from what is recorded of them"
    if tally.unproven:
        text += f"; {tally.unproven} could not be re-derived"
    if not tally.differ and not tally.unproven:
        text += "; every fingerprint and digest is as recorded"
    yield text


SHOWN_MAX = 100
"""Most differences of an agent shown; --json has all."""

_SIGNS = {
    Match.SAME: ("=", ""),
    Match.RESULT: ("≠", "yellow"),
    Match.ARGUMENTS: ("~", "yellow"),
    Match.TEXT: ("~", "yellow"),
    Match.MOVED: ("↕", "yellow"),
    Match.ONLY_A: ("-", "red"),
    Match.ONLY_B: ("+", "green"),
}
_LABELS = {
    Match.RESULT: "different result",
    Match.ARGUMENTS: "different arguments",
    Match.TEXT: "different text",
    Match.MOVED: "in a different place",
    Match.ONLY_A: "only in A",
    Match.ONLY_B: "only in B",
}


@run.command()
async def diff(
    a: Annotated[str, argument("A", "First run: its id, a prefix, or 'last'.")],
    b: Annotated[str, argument("B", "Second run.")],
) -> int:
    """Compare two runs step by step.

    Agents are matched by name, else by role. Compares calls, results, decisions, messages, status,
    error, scores and cost; the first difference comes first. A simulated user has rows of its own.
    Exits with 1 if the runs differ.
    """
    async with reading() as workspace:
        runs = [await find_run(workspace, run) for run in (a, b)]
        difference = await run_diff(workspace, *runs)
        for side in difference.sides:
            side.doubts.alive = await unfinished.at_work(workspace, settings(), side.run)
    output.show(difference, _render_diff(difference))
    return 1 if difference.differs else 0


def _render_diff(difference: RunDiff) -> Iterator[Part]:
    columns = [Column(""), Column("A", whole=True), Column("B", whole=True)]
    yield output.table(columns, _rows(difference))
    yield ""
    for letter, side in zip("AB", difference.sides, strict=True):
        if side.life.forked is not None:
            edits = "; ".join(map(edit_text, side.life.forked.edits))
            with_ = f" with edits: {edits}" if edits else ""
            yield f"{letter} is a fork of run {side.life.forked.parent}{with_}"
    if difference.shared:
        yield f"they share {_count(difference.shared)}, recorded once, before the fork"
    yield from _comparability(difference.comparability)
    if difference.first is not None:
        yield "first difference"
        yield output.Lines(list(_difference(difference, difference.first[1])))
    elif not difference.differs:
        yield "equal: calls, results, decisions, messages, status and scores"
    if not difference.ended_alike:
        yield from _outcomes(difference)
    for couple in difference.couples:
        yield ""
        yield output.Lines(list(_agent(difference, couple)))


def _outcomes(difference: RunDiff) -> Iterator[Part]:
    """Yield how each run ended, if they ended differently."""
    yield "they ended differently"
    for letter, cost in zip("AB", difference.costs, strict=True):
        scores = "".join(f", {name} {_amount(cost.scores[name])}" for name in sorted(cost.scores))
        error = f", {output.cut(cost.error)}" if cost.error else ""
        yield f"      {letter} {cost.status}{error}{scores}"


def _comparability(verdict: Comparability) -> Iterator[Part]:
    """Yield the causes other than the cut that may explain the differences."""
    match verdict.verdict:
        case Comparable.DIFFERS:
            yield f"they also differ in {listed(verdict.differs_in)}"
        case Comparable.CANNOT_TELL:
            unknown = listed(verdict.not_on_record)
            yield f"it is unknown whether anything else differs: {unknown} not on record"
        case Comparable.COMPARABLE:
            yield "nothing else differs: code, model, prompt and effects are the same"
        case Comparable.NOTHING_RAN:
            yield f"they cannot be compared: {verdict.respects[0].because}"
            return
    for each in verdict.respects:
        yield f"  {each.name:<8} {each.sameness.value}: {each.because}"


def _rows(difference: RunDiff) -> Iterator[list[str]]:
    a, b = costs = difference.costs
    yield ["run", a.run, b.run]
    if a.assigned or b.assigned:
        yield ["trial", _trial(a.assigned), _trial(b.assigned)]
    yield ["status", a.status, b.status]
    yield ["steps", f"{a.steps:,}", f"{b.steps:,}"]
    yield ["attempts", f"{a.attempts:,}", f"{b.attempts:,}"]
    yield ["decisions", f"{a.decisions:,}", f"{b.decisions:,}"]
    yield ["took", *(output.duration(cost.duration_ms or 0.0) for cost in costs)]
    rows = [("{}", [cost.usage for cost in costs])]
    if any(cost.own_usage != cost.usage for cost in costs):
        rows.append(("{} in itself", [cost.own_usage for cost in costs]))
    rows.append(("{} of the simulated user", [cost.user_usage for cost in costs]))
    rows.append(("{}", [cost.scores for cost in costs]))
    for label, sides in rows:
        for name in sorted({name for side in sides for name in side}):
            yield [label.format(name), *(_amount(side.get(name)) for side in sides)]


def _amount(amount: float | None) -> str:
    return "" if amount is None else output.number(amount)


def _count(number: int) -> str:
    return f"{counted(number, 'entry')}"


def _agent(difference: RunDiff, couple: AgentPair) -> Iterator[Text]:
    """Yield an agent's differences, with the number of equal entries before, between and after."""
    names = [agent.name for agent in (couple.a, couple.b) if agent is not None]
    role = next(agent.state.role for agent in (couple.a, couple.b) if agent is not None)
    side = "" if len(names) > 1 else f", {_LABELS[Match.ONLY_A if couple.a else Match.ONLY_B]}"
    named = " and ".join(dict.fromkeys(names))
    yield output.cell(f"agent {named} ({role}){side}", "bold")
    same = shown = 0
    for pair in couple.pairs:
        if pair.what is Match.SAME:
            same += 1
            continue
        if same:
            yield output.text(f"  = {_count(same)} the same", style="dim")
        same, shown = 0, shown + 1
        if shown > SHOWN_MAX:
            break
        yield from _difference(difference, pair)
    if shown > SHOWN_MAX:
        more = sum(pair.what is not Match.SAME for pair in couple.pairs) - SHOWN_MAX
        yield output.text(f"  … and {more:,} more differences: --json has them")
    elif same or not couple.pairs:
        yield output.text(f"  = {_count(same)} the same", style="dim")


def _difference(difference: RunDiff, pair: Pair) -> Iterator[Text]:
    """Yield a difference: its subject and both sides."""
    sign, style = _SIGNS[pair.what]
    move = pair.a or pair.b
    name = move.name if move is not None else ""
    yield output.text(f"  {sign} {output.cut(name)}, {_LABELS.get(pair.what, '')}", style=style)
    for letter, each, side in zip("AB", (pair.a, pair.b), difference.sides, strict=True):
        if each is not None:
            text = _move(each, side.doubts)
            yield output.text(f"      {letter} {plain_text(each.place)}  {text}")


def _move(move: Move, doubts: Doubts) -> str:
    if move.decision is not None:
        made = move.decision
        why = f": {output.cut(made.because)}" if made.because else ""
        return f"{output.cut(made.selected)}{why}"
    if move.message is not None:
        message = recorded(move.message.content)
        return output.cut(message if isinstance(message, str) else output.preview(message))
    step = move.step
    if step is None:
        return ""
    arguments = output.arguments_preview(recorded(step.arguments))
    items = [recorded(item) for item in step.items[: output.PREVIEW_CHARACTERS]]
    result = output.result_preview(step, items if step.streamed else recorded(step.result))
    status = doubts.status(move.agent, step)
    status = "" if status == "completed" else f"{status} "
    withheld = withheld_text(step)
    return f"({arguments}) → {status}{result}{', ' if withheld else ''}{withheld}".rstrip()


class Written(msgspec.Struct, kw_only=True):
    """Path of a run's page."""

    run: str
    path: str
    bytes: int
    events: int


@run.command()
async def html(
    which: Run,
    file: Annotated[
        Path | None, option("The file to write; '-' is stdout [RUN.html].", None, "--output", "-o")
    ] = None,
    redacted: Annotated[
        bool, flag("--redacted", "Without the texts of arguments, results, messages and reasons.")
    ] = False,
) -> None:
    """Write a run as one HTML file that needs no server.

    The page of a completed run opens at its last event, any other at the first call that failed,
    was blocked or is in doubt.

    """
    # The run and the page are held in memory: some five times the page's size.
    output.check_one_answer(file)
    async with reading_run(which) as (workspace, run):
        page = await run_page.gather(workspace, run, redacted=redacted)
    data = html_page(page)
    path = file or default_path(run)
    report = Written(run=run, path=str(path), bytes=len(data), events=len(page.events.id))
    absent = [
        Hint(f"blob {sha256} is not in the page: {why}") for sha256, why in page.absent.items()
    ]
    output.page(data, path, report, *absent)


def default_path(run: str) -> Path:
    """Return `RUN.html` in the working directory; characters not allowed in names are escaped."""
    return Path(page_name(run))
