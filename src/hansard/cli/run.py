"""Commands `hansard run show`, `state`, `trace`, `context`, `left`, and `conversation`.

Long because the state of a run has many kinds of things, each with a line of its own for people.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec

from hansard.agents.policy import approvals
from hansard.bus.reads import Clock, EventTime, Time, imported
from hansard.cli import output
from hansard.cli.common import Agent, At, Commands, Run, argument, flag, option
from hansard.cli.opening import agents_at_work, reading, reading_run, settings
from hansard.cli.output import Column, Hint, Part
from hansard.client import unfinished
from hansard.domain.approval import ApprovalStatus
from hansard.domain.choices import counted, listed
from hansard.domain.errors import BadValue, CallerError, UnknownEvent
from hansard.domain.ids import run_of
from hansard.domain.run import OBSERVED, EditedResult, EditKind, Swap
from hansard.domain.steps import Effects, Step, StepAttempted
from hansard.inspect import run as run_reads
from hansard.inspect import state as state_reads
from hansard.inspect import trace as trace_reads
from hansard.inspect.answer import plain_text, withheld_text
from hansard.inspect.run import KillCost, OpenStep, RunAgent, RunReport, RunState, Unreadable
from hansard.inspect.state import (
    AgentContext,
    Change,
    Compacted,
    Contexts,
    Conversation,
    Data,
    Difference,
    Edit,
    Message,
    RunPart,
    Summary,
    Totals,
    as_json,
    contexts,
)
from hansard.inspect.trace import AgentHistory, Payloads, Settlement, Trace, WholeStep, recorded
from hansard.state.replay import RunView

if TYPE_CHECKING:
    from rich.text import Text


app = Commands()
run = Commands()
conversation = Commands()

ENTRIES_MAX = 200
"""Most entries shown of one kind and agent; the rest are counted. `--json` has all."""

FIELDS_SHOWN_MAX = 4
"""Most changed parts of one thing in its line."""

_DERIVED = {"digest", "outcome_version", "key", "fingerprint"}
"""Fields of a step that are not shown to people."""

_SIGNS = {Edit.ADDED: ("+", "green"), Edit.REMOVED: ("-", "red"), Edit.CHANGED: ("~", "yellow")}


def _step(step: dict[str, Any]) -> str:
    arguments = output.arguments_preview(step.get("arguments"))
    error = step.get("error") or {}
    outcome = f"{error.get('type')}: {error.get('message')}" if error else ""
    if not outcome and step.get("status") == "completed":
        items = step.get("items") if step.get("streamed") else step.get("result")
        outcome = f"→ {output.preview(items)}"
    call = f"{output.cut(str(step.get('tool')))}({arguments})"
    return f"{call}  {step.get('status')}  {output.cut(outcome)}"


def _message(message: dict[str, Any]) -> str:
    fields = message.get("fields")
    more = f"  {output.preview(fields)}" if fields else ""
    text = output.preview(message.get("content"))
    return f"{output.cut(str(message.get('role')))}: {text}{more}"


def _parts(*names: str) -> Callable[[dict[str, Any]], str]:
    """Return a renderer of some fields of a thing that skips empty ones."""

    def render(thing: dict[str, Any]) -> str:
        values = [thing.get(name) for name in names]
        return "  ".join(
            output.cut(value) if isinstance(value, str) else output.preview(value)
            for value in values
            if value not in (None, "", [], {})
        )

    return render


KINDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "tools": _parts("effects", "version"),
    "steps": _step,
    "checkpoints": _parts("data"),
    "messages": _message,
    "decisions": _parts("question", "selected", "because"),
    "resources": _parts("operation", "uri"),
    "hand_offs": _parts("to", "because", "payload"),
    "judged": _parts("by", "metrics", "because"),
    "board": _parts("kind", "value", "author"),
}
"""Renderers of a thing in one line, by kind."""


def whole_state(data: Data) -> Iterator[Text]:
    """Yield the whole state."""
    yield output.text("run", style="bold")
    yield from _whole(data.life)
    for name, item in data.agents.items():
        yield output.text()
        yield from agent_lines(name, item)


def agent_lines(name: str, fields: dict[str, Any]) -> Iterator[Text]:
    """Yield an agent's state."""
    yield output.cell(f"agent {name}", "bold")
    yield from _whole(fields)


def _whole(fields: dict[str, Any]) -> Iterator[Text]:
    for name, value in fields.items():
        if name not in KINDS:
            if value not in (None, "", [], {}):
                yield _line(1, f"{name}: {value if isinstance(value, str) else _all(value)}")
        elif value:
            yield _line(1, f"{name}: {len(value):,}")
            shown = ((f"{key}  {KINDS[name](thing)}", "") for key, thing in value.items())
            yield from _entries(shown, len(value))


def _all(value: Any) -> str:
    """Render a value without parts of its own: labels, a roster, versions."""
    if isinstance(value, dict):
        return output.arguments_preview(value, output.LINE_COLUMNS)
    return output.preview(value, output.LINE_COLUMNS)


def _entries(entries: Iterable[tuple[str, str]], count: int) -> Iterator[Text]:
    for text, style in itertools.islice(entries, ENTRIES_MAX):
        yield _line(2, text, style)
    if count > ENTRIES_MAX:
        yield _line(2, f"… and {count - ENTRIES_MAX:,} more: --json has them")


def _line(depth: int, text: str, style: str = "") -> Text:
    return output.text("  " * depth + plain_text(text), style=style)


# ---------------------------------------------------------------- differences


def differences(edits: list[Change]) -> Iterator[Text]:
    """Yield differences by agent, kind and thing."""
    for agent, changes in itertools.groupby(edits, key=lambda change: change.agent):
        yield output.text()
        yield output.cell("run" if agent is None else f"agent {agent}", "bold")
        for kind, group in itertools.groupby(changes, key=lambda change: change.path[0]):
            yield from _kind(str(kind), list(group))


def _kind(kind: str, changes: list[Change]) -> Iterator[Text]:
    """Yield the differences of one kind of thing, or of one field."""
    if kind not in KINDS or len(changes[0].path) == 1:
        for change in changes:
            sign, style = _SIGNS[change.change]
            yield _line(1, f"{sign} {_path(change.path)}: {_sides(change)}", style)
        return
    things = [list(group) for _, group in itertools.groupby(changes, key=lambda c: c.path[1])]
    counts = ", ".join(
        f"{count:,} {what.value}"
        for what in Edit
        if (count := sum(_what(thing) is what for thing in things))
    )
    yield _line(1, f"{kind}: {counts}")
    entries = ((_thing(kind, thing), _SIGNS[_what(thing)][1]) for thing in things)
    yield from _entries(entries, len(things))


def _what(thing: list[Change]) -> Edit:
    """Return whether a thing was added, removed or changed; changed if only parts of it differ."""
    return thing[0].change if len(thing[0].path) == 2 else Edit.CHANGED  # noqa: PLR2004 -- kind and key


def _thing(kind: str, thing: list[Change]) -> str:
    """Render a thing that was added or removed, else its changes, in one line."""
    change, what = thing[0], _what(thing)
    head = f"{_SIGNS[what][0]} {change.path[1]}  "
    if what is not Edit.CHANGED:
        return head + KINDS[kind](change.after if what is Edit.ADDED else change.before)
    items = [each for each in thing if each.path[2] not in _DERIVED] or thing
    parts = [f"{_path(each.path[2:])}: {_sides(each)}" for each in items[:FIELDS_SHOWN_MAX]]
    more = len(thing) - len(parts)
    return head + "; ".join(parts) + (f"; and {more:,} more" if more else "")


def _path(path: Iterable[str | int]) -> str:
    """Render a path with dots; a name that has a dot is quoted."""
    return ".".join(
        output.cut(repr(part) if isinstance(part, str) and "." in part else str(part))
        for part in path
    )


def _sides(change: Change) -> str:
    match change.change:
        case Edit.ADDED:
            return output.preview(change.after)
        case Edit.REMOVED:
            return output.preview(change.before)
        case Edit.CHANGED:
            return f"{output.preview(change.before)} → {output.preview(change.after)}"


FOLD_LINES = 8
"""Most lines shown of a message's content; `--json` has all of it."""

FOLD_CHARACTERS = 600
CALLS_SHOWN_MAX = 50
"""Most calls of one message shown; the rest are counted."""

_INDENT = "      "

ROLES = {"user": "green", "assistant": "cyan", "tool": "magenta", "system": "yellow"}


class Figures(Protocol):
    """Totals of messages; `tokens` is None where they were not counted."""

    messages: int
    tokens: int | None
    usage: dict[str, float]


def message_lines(message: Message | Summary, title: str = "", window: str = "") -> output.Lines:
    """Render a recorded message, or a summary with its title, as lines."""
    head = output.text(f"{message.index:>4}  ")
    head.append(output.cut(message.role), style=f"bold {ROLES.get(message.role, '')}")
    head.append(title, style="bold")
    about = (
        counted(message.tokens, "token") if message.tokens is not None else "",
        window,
        output.usage_text(message.usage) if isinstance(message, Message) else "",
        output.shown_time(Time(message.at, message.clock)),
        f"{output.cut(message.agent)}@{message.version}",
        f"position {message.position}",
    )
    head.append("  " + "  ".join(part for part in about if part), style="dim")
    lines = (plain_text(line, lines=True) for line in readable(message.message))
    return output.Lines([head, *(output.text(_INDENT + line) for line in lines)])


def readable(message: dict[str, Any]) -> Iterator[str]:
    """Yield a message's lines: its content, its calls, and its other fields."""
    line, calls = _content(message.get("content"))
    yield from folded(line)
    calls += _calls(message)
    yield from calls[:CALLS_SHOWN_MAX]
    if len(calls) > CALLS_SHOWN_MAX:
        yield f"… and {counted(len(calls) - CALLS_SHOWN_MAX, 'call')} more"
    known = {"role", "content", "tool_calls", "function_call"}
    for name, value in message.items():
        if name not in known and value is not None:
            yield f"{output.cut(name)}: {output.preview(value)}"


def folded(message_lines: str) -> Iterator[str]:
    """Yield a text's first lines, and the number of characters left out."""
    message_lines = message_lines.replace("\r\n", "\n")
    kept = message_lines[:FOLD_CHARACTERS]
    lines = kept.split("\n", FOLD_LINES)
    rest = len(lines.pop()) if len(lines) > FOLD_LINES else 0
    rest += len(message_lines) - len(kept)
    if lines != [""]:
        yield from lines
    if rest:
        yield f"… {counted(rest, 'character')} more: --json has them"


def _content(content: Any) -> tuple[str, list[str]]:
    """Return the text of a message's content, and the calls among its parts."""
    if not isinstance(content, list):
        return (content if isinstance(content, str) else _other(content)), []
    parts: list[str] = []
    calls: list[str] = []
    for part in content:
        match part:
            case str():
                parts.append(part)
            case {"type": "tool_use", "name": str(name)}:
                calls.append(_call(name, part.get("input"), part.get("id")))
            case {"type": "tool_result"}:
                inner, _ = _content(part.get("content"))
                parts.append(f"result of {output.cut(str(part.get('tool_use_id')))}: {inner}")
            case {"text": str(message_lines)}:
                parts.append(message_lines)
            case _:
                parts.append(_other(part))
    return "\n".join(parts), calls


def _other(content: Any) -> str:
    return "" if content is None else output.preview(content, FOLD_CHARACTERS)


def _calls(message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    request: Sequence[Any] = calls if isinstance(calls, list) else []
    items = [*request, *([message["function_call"]] if message.get("function_call") else [])]
    return [_call_fields(call) for call in items]


def _call_fields(call: Any) -> str:
    """Render a call from any of the providers' formats."""
    match call:
        case {"function": {"name": str(name)}}:
            return _call(name, call["function"].get("arguments"), call.get("id"))
        case {"custom": {"name": str(name)}}:
            return _call(name, call["custom"].get("input"), call.get("id"))
        case {"name": str(name)}:
            return _call(name, call.get("arguments"), call.get("id"))
        case _:
            return f"→ {_other(call)}"


def _call(name: str, arguments: Any, call_id: Any) -> str:
    """Render a call in one line; arguments that are JSON in a string are parsed."""
    if isinstance(arguments, str):
        shown = output.cut(arguments, FOLD_CHARACTERS)
        with contextlib.suppress(msgspec.DecodeError, RecursionError):  # a text like any other
            shown = output.arguments_preview(msgspec.json.decode(arguments), FOLD_CHARACTERS)
    else:
        shown = "" if arguments is None else output.arguments_preview(arguments, FOLD_CHARACTERS)
    called = f"  [{output.cut(str(call_id))}]" if call_id is not None else ""
    return f"→ {output.cut(name)}({shown}){called}"


def apart(part: Message | Summary, more: str = "") -> list[Part]:
    """Return an empty line and a message, or a summary and the number of messages it replaced."""
    if isinstance(part, Message):
        return ["", message_lines(part)]
    where = f", {part.first}-{part.last}" if part.first is not None else ""
    title = f"  summary of {counted(part.messages, 'message')}{where}{more}"
    window = ""
    if part.tokens_before is not None and part.tokens_after is not None:
        window = f"window {part.tokens_before:,} to {counted(part.tokens_after, 'token')}"
    return ["", message_lines(part, title, window)]


def context_part(part: Message | Summary | Compacted, *, every: bool) -> list[Part]:
    """Return an empty line and a part of a context window."""
    if not isinstance(part, Compacted):
        return apart(part, "" if every else "; --all shows them")
    if isinstance(part.original, Summary):
        return apart(part.original)
    heading = output.text(_INDENT + "compacted:", style="dim")
    return ["", heading, message_lines(part.original)]


def total_text(total: Figures) -> str:
    """Render the totals of messages."""
    used = output.usage_text(total.usage)
    return f"{count_text(total)}, {used}" if used else count_text(total)


def count_text(total: Figures) -> str:
    """Render the number of messages and, if they were counted, of tokens."""
    line = counted(total.messages, "message")
    return line if total.tokens is None else f"{line}, {counted(total.tokens, 'token')}"


RUNS = output.columns(
    "run! workflow status began! messages",
    status=lambda run: output.status_cell(run.status),
    began=lambda run: output.shown_time(run.began),
    messages=total_text,
)


@conversation.command("show")
async def show_conversation(
    conversation: Annotated[str, argument("ID", "The conversation's id.")], at: At = None
) -> None:
    """Show a conversation's runs and messages."""
    async with reading() as workspace:
        answer = await state_reads.conversation(workspace, conversation, at)
        for error in answer.left_out:
            output.hint(f"a run of the conversation is left out: {error}")
        output.show(answer, _render_conversation(answer))
        fetch = Payloads(workspace)
        for part in answer.parts:
            output.show(part, _part_heading(part))
            async for message in answer.messages(part, fetch):
                output.hint_erased(fetch)
                output.show(message, apart(message))


def _render_conversation(answer: Conversation) -> Iterator[Part]:
    facts = answer.figures
    line = f"{total_text(facts)}, {counted(facts.turns, 'turn')}"
    yield f"conversation {facts.conversation} as of position {facts.position}: {line}"
    yield from output.imported(answer.imported) or [""]
    yield output.listing(RUNS, [part.line for part in answer.parts])


def _part_heading(part: RunPart) -> Iterator[Part]:
    yield ""
    title = f"run {part.line.run}, {counted(len(part.messages), 'message')}"
    yield output.Lines([output.cell(title, "bold")])


KEYS_SHOWN_MAX = 200
"""Most characters of shared keys' names; `hansard board` has all."""


@run.command()
async def show(
    which: Run,
    at: At = None,
    agent: Agent = None,
    snapshot: Annotated[
        bool, flag("--snapshot", "One snapshot per agent, in the exchange format.")
    ] = False,
    snapshots: Annotated[
        bool, flag("--snapshots", "The chain of snapshots: request, around each call, final.")
    ] = False,
) -> None:
    """Show the state of a run, now or at any point."""
    async with reading_run(which) as (workspace, run):
        report = await run_reads.show(workspace, run, at, None if agent is None else [agent])
        if isinstance(report, RunReport) and at is None:
            alive = await agents_at_work(workspace, report.run)
            report.run.gone = [agent for agent, is_alive in alive.items() if not is_alive]
        if isinstance(report, Unreadable):
            output.show(report, _unreadable(report))
            output.hint(str(report.error))
        elif snapshot or snapshots:
            made = run_reads.agent_snapshots(workspace, report, chained=snapshots)
            async for each in made:
                plain = as_json(each)
                output.show(
                    plain, msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
                )
        else:
            now = None
            if at is not None:
                with contextlib.suppress(UnknownEvent):  # after that point
                    now = await workspace.states.run(run)
            output.show(report, _render_report(report, now))


def _unreadable(unreadable: Unreadable) -> Iterator[Part]:
    """Raise the error: the answer is only for programs."""
    yield from []
    raise unreadable.error


def _render_report(report: RunReport, now: RunView | None) -> Iterator[Part]:
    """Render a run at a point; `now` is its newest state, if the point may be an earlier one."""
    run, forked = report.run, report.run.forked
    observed = forked is None and run.labels.get(OBSERVED) == "true"
    open_steps = [step for agent in report.agents for step in agent.open_steps]
    settled = run.error is not None and run.error.type == "InDoubt" and not open_steps
    resume = resume_command(run.run, run.agents, run.labels)
    rows: list[tuple[str, object]] = [
        ("run", run.run),
        ("workflow", run.workflow),
        ("status", output.status_cell(run.status)),
        ("at work", _at_work(run) if now is None else _at_work_then(run)),
        ("error", run.error.text if run.error is not None else None),
        ("now", f"settled; continue with: {resume}" * settled),
        ("observed", "spans of another program: none can be replayed" * observed),
        ("program", run.program),
        ("conversation", run.conversation),
        ("assigned", _arm_text(run)),
        ("scores", ", ".join(f"{name} {output.number(n)}" for name, n in run.scores.items())),
        ("judged by", ", ".join(dict.fromkeys(each.by for each in run.judged))),
        ("labels", ", ".join(f"{key}={value}" for key, value in run.labels.items())),
        ("fork of", forked and f"{forked.parent} (effects {forked.effects.value})"),
        ("probe", forked and forked.swap and _swap_text(forked.swap)),
        ("edits", forked and "; ".join(map(edit_text, forked.edits))),
        ("shared keys", output.cut(", ".join(run.keys), KEYS_SHOWN_MAX)),
        *_when(report),
    ]
    yield output.pairs(rows)
    if report.agents:
        yield ""
        yield output.listing(AGENTS, report.agents)
    checkpoints = [
        (agent.agent, name, data)
        for agent in report.agents
        for name, data in agent.checkpoints.items()
    ]
    decisions = [(agent.agent, made) for agent in report.agents for made in agent.decisions]
    misfits = "quarantined: written to this run by an unauthorised writer"
    tables: list[tuple[str, tuple[Column, ...], list[Any]]] = [
        ("in doubt or under way", OPEN_STEPS, open_steps),
        ("checkpoints", CHECKPOINTS, checkpoints),
        ("decisions", DECISIONS, decisions),
        (misfits, MISFITS, report.quarantined),
    ]
    for title, columns, things in tables:
        if things:
            yield ""
            yield output.text(title, style="bold")
            yield output.listing(columns, things)
    if now is not None:
        still = {
            f"{agent}#{step.number}"
            for agent, state in now.agents.items()
            for step in (*state.open_steps, *state.in_doubt)
        }
        open_steps = [step for step in open_steps if step.step in still]
    yield from _next_commands(report, open_steps)


def _next_commands(report: RunReport, open_steps: list[OpenStep]) -> Iterator[Part]:
    """Yield the commands for steps without an outcome; some may run again without a decision."""
    run = report.run
    repeated = [step.step for step in open_steps if step.effects in REPEATED]
    if len(repeated) < len(open_steps):
        yield Hint(
            "the effect of a step in doubt may have happened or not: look, then settle it with\n"
            f"  hansard run settle {run.run} STEP --happened RESULT or --did-not-happen"
        )
    if repeated and report.imported is None:
        yield Hint(
            f"{listed(repeated)} may run again: go on with\n"
            f"  {resume_command(run.run, run.agents, run.labels)}"
        )


@app.command()
async def predict(which: Run) -> None:
    """Predict what a kill of a run's agents now would cost.

    Of a process that has ended, it states what that cost. It also states what a resume would do.
    Work of the program itself is stated as two bounds, since the record holds its calls and
    checkpoints only.
    """
    async with reading_run(which) as (workspace, run):
        life = await workspace.states.life(run)
        alive = await unfinished.processes(workspace, settings(), run, life.roster, life.missing)
        costs = await run_reads.kill_costs(workspace, run, datetime.now(UTC).timestamp(), alive)
        requests = await approvals.listed(workspace, [run])
        output.show(costs, _render_costs(costs, requests))


def _render_costs(
    costs: Sequence[KillCost], requests: Sequence[approvals.ListedApproval]
) -> Iterator[Part]:
    if not costs:
        yield "no agent is at work: a kill costs nothing"
    for each in costs:
        waits = [
            f"approval {it.approval.id} of {it.approval.request.tool} "
            f"({each.agent}#{it.approval.request.step})"
            for it in requests
            if (it.approval.request.agent, it.standing) == (each.agent, ApprovalStatus.PENDING)
        ]
        low, high = (output.duration(1e3 * seconds) or "0 s" for seconds in each.repeated_s)
        after = f"item {each.done} of loop {each.loop!r}" if each.loop else "the session's begin"
        yield output.pairs(
            [
                ("agent", each.agent),
                ("process", "none: as of the last event; resume or finish it" if each.gone else ""),
                ("waits for", ", ".join(waits)),
                ("goes on after", after),
                ("repeats", f"{low} to {high} of the program's own time"),
                ("keeps", f"{counted(each.answered, 'call')}  {output.usage_text(each.usage)}"),
            ]
        )
        if each.open_calls:
            yield output.listing(OPEN_STEPS, each.open_calls)


def _interval(row: tuple[str, str, msgspec.Raw]) -> str:
    """Return the choice of a loop's interval that a checkpoint states; empty for none."""
    match recorded(row[2]):
        case {"auto": {"interval_s": interval, "cost_s": cost, "mtbf_s": mtbf, **rest}}:
            every, cost, mtbf = (output.duration(1e3 * time) for time in (interval, cost, mtbf))
            seen = f"{rest['failures']} failures in {rest['sessions']} sessions: {rest['source']}"
            return f"{every}; a checkpoint takes {cost}, failures are {mtbf} apart ({seen})"
        case _:
            return ""


REPEATED = frozenset({Effects.PURE, Effects.IDEMPOTENT, Effects.COMPOSITE})
"""Effects of calls that a resumed run makes again if they were interrupted."""


def resume_command(run: str, agents: Collection[str], labels: Mapping[str, str]) -> str:
    """Return the command that goes on with a run: of one whose models were recorded, `record`."""
    from hansard.cli.record import recorded_agent

    how = "run resume" if recorded_agent(agents, labels) is None else "record --run"
    return f"hansard {how} {shlex.quote(run)} -- COMMAND"


def edit_text(edit: EditedResult) -> str:
    """Return an edit of a fork in one line."""
    result = bytes(edit.result).decode()
    reason = f": {edit.reason}" if edit.reason else ""
    tool = f" {edit.tool}" if edit.tool and edit.kind is not EditKind.PROMPT else ""
    return f"{edit.target}{tool} is {output.cut(result)} by {edit.by}{reason}"


def _swap_text(swap: Swap) -> str:
    before, after = bytes(swap.before).decode(), bytes(swap.after).decode()
    return f"{swap.probe} ({swap.path} is {after}, on record {before})"


def _at_work(run: RunState) -> str:
    """Return the agents that an open run waits for, and the state of their processes."""
    rest = [name for name in run.at_work if name not in run.gone]
    last = datetime.fromisoformat(run.time)
    remedy = f"resume it, or end it: hansard run finish {run.run} [--failed REASON]"
    items = []
    if run.gone:
        items.append(
            f"no process of {listed(run.gone)} (last event {output.moment(last)}); {remedy}"
        )
    if rest:
        age = output.duration((datetime.now(UTC) - last).total_seconds() * 1_000)
        killed = f"; if it was killed, {remedy}" if not run.gone else ""
        items.append(f"{listed(rest)} (last event {age} ago{killed})")
    return "; ".join(reversed(items))


def _at_work_then(run: RunState) -> str:
    """Return the agents that a run waited for at an earlier point."""
    return f"{listed(run.at_work)}, at this point" if run.at_work else ""


def _arm_text(run: RunState) -> str:
    assignment = run.assigned
    if assignment is None:
        return ""
    parts = {
        "experiment": assignment.experiment,
        "arm": assignment.arm,
        "task": assignment.task,
        "trial": assignment.trial,
    }
    return ", ".join(f"{name} {part}" for name, part in parts.items() if part not in ("", None))


def _when(report: RunReport) -> list[tuple[str, str]]:
    """Return when the run began and when its newest event happened, each with its clock.

    The log's own time is shown with the position.
    """
    run, origin = report.run, report.run.origin
    stored = f"{output.moment(datetime.fromisoformat(run.time))}, "
    copied = f"log {origin.log}, position {origin.position}, {origin.at}" if origin else ""
    return [
        ("started", output.shown_time(run.began)),
        ("last", output.shown_time(run.last) if run.last.clock is not Clock.LOG else ""),
        ("imported", output.event_time(report.imported) if report.imported is not None else ""),
        ("copied from", copied),
        ("as of", f"{'' if report.imported else stored}position {run.position}"),
    ]


def _steps(agent: RunAgent) -> str:
    return ", ".join(f"{count} {status}" for status, count in agent.steps.items()) or "0"


def _context(agent: RunAgent) -> str:
    return count_text(Totals(agent.messages, agent.context_tokens, {}))


def _why(step: OpenStep) -> str:
    return step.error.text if step.error is not None else ""


AGENTS = output.columns(
    "agent! role version#> epoch#> steps context> session",
    steps=_steps,
    context=_context,
    session=lambda agent: agent.left or "open",
)
OPEN_STEPS = output.columns(
    "step! tool arguments effects status! why~? resume!",
    arguments=lambda step: output.arguments_preview(recorded(step.arguments)),
    status=lambda step: output.status_cell(step.status),
    why=_why,
)
CHECKPOINTS = (
    Column("agent", lambda row: row[0]),
    Column("checkpoint", lambda row: row[1]),
    Column("data", lambda row: output.preview(recorded(row[2]))),
    Column("interval", _interval, optional=True),
)
DECISIONS = (
    Column("agent", lambda row: row[0]),
    Column("question", lambda row: row[1].question, short=True),
    Column("selected", lambda row: row[1].selected, short=True),
    Column("confidence", lambda row: row[1].confidence),
    Column("threshold", lambda row: row[1].threshold),
    Column("because", lambda row: row[1].because, short=True),
)
MISFITS = output.columns("position# stream version# why=reason~")


@run.command()
async def context(
    which: Run,
    at: At = None,
    agent: Agent = None,
    every: Annotated[bool, flag("--all", "Show the messages behind each summary in full.")] = False,
    team: Annotated[bool, flag("--team", "All agents' messages, in the record's order.")] = False,
) -> None:
    """Show the context window of a run's agents at a point.

    Agents are shown one by one; with --team, all messages as one conversation, each with its agent.
    """
    if team and agent is not None:
        raise BadValue("--team", f"agent {agent!r:.80} is given too", "leave one of them out")
    async with reading_run(which) as (workspace, run):
        windows = await contexts(workspace, run, await workspace.points.up_to(run, at), agent)
        fetch = Payloads(workspace)
        output.show(windows, _contexts_heading(windows))
        for each in windows.agents:
            window = windows.context(each)
            output.show(window, _window(window))
            if not team:
                await _write(windows.messages(each, fetch, every=every), fetch, every)
        if team:
            await _write(windows.team(fetch, every=every), fetch, every)
    if not windows.agents:
        output.hint(f"run {run} had no agents at this point")


async def _write(
    report: AsyncIterator[Message | Summary | Compacted], fetch: Payloads, every: bool
) -> None:
    async for part in report:
        output.hint_erased(fetch)
        output.show(part, context_part(part, every=every))


def _contexts_heading(windows: Contexts) -> list[Part]:
    return [
        f"run {windows.run} as of position {windows.position}",
        *output.imported(windows.imported),
    ]


def _window(window: AgentContext) -> Iterator[Part]:
    yield ""
    text = f"{window.agent} ({window.role}): {total_text(window)}"
    yield output.Lines([output.cell(text, "bold")])


@run.command()
async def state(
    which: Run,
    at: At = None,
    diff: Annotated[
        tuple[str, str] | None, option("Changes between two points; 'now' is the newest.", "P Q")
    ] = None,
    agent: Agent = None,
) -> None:
    """Show a run's whole state at a point, or changes between two."""
    if at is not None and diff is not None:
        message = "--at and --diff exclude each other: give both points to --diff"
        raise CallerError(message)
    async with reading_run(which) as (workspace, run):
        if diff is None:
            data = await state_reads.state(workspace, run, at, agent)
            output.show(data, _state(data))
        else:
            difference = await state_reads.difference(workspace, run, diff, agent)
            output.show(difference, _difference(difference))


def _state(data: Data) -> Iterator[Part]:
    yield f"run {data.run} as of position {data.position}"
    yield ""
    yield output.Lines(list(whole_state(data)))


def _difference(difference: Difference) -> Iterator[Part]:
    where = f"position {difference.before} to position {difference.after}"
    yield f"run {difference.run}, {where}: {counted(len(difference.changes), 'difference')}"
    yield output.Lines(list(differences(difference.changes)) or [output.text()])


@run.command()
async def trace(
    which: Run,
    at: At = None,
    full: Annotated[bool, flag("--full", "Show values in full; fetch large ones.")] = False,
) -> None:
    """List the steps of a run, nested as they ran."""
    async with reading_run(which) as (workspace, run):
        history = await workspace.states.history(run, await workspace.points.up_to(run, at))
        traced = trace_reads.trace(run, history)
        if at is None:
            traced.doubts.alive = await unfinished.at_work(workspace, settings(), run)
        if not full:
            output.show(traced, _render_trace(traced))
            return
        fetch = Payloads(workspace)
        output.show([], _trace_heading(traced))
        async for step in traced.whole(fetch):
            output.hint_erased(fetch)
            output.show(step, _block(traced, step))


def _render_trace(traced: Trace) -> Iterator[Part]:
    yield from _trace_heading(traced)
    if traced.steps:
        yield ""
        rows = (row for each in traced.agents.values() for row in _agent_rows(traced, each))
        yield output.listing(TRACE, rows)


def _trace_heading(traced: Trace) -> Iterator[Part]:
    """Yield the run, and the origin of its offsets: one line for each clock in use."""
    if not traced.steps:
        yield Hint(f"run {traced.run} has no steps at this point")
        return
    yield f"run {traced.run}"
    used = [
        agent.events[step.version].time for agent in traced.agents.values() for step in agent.steps
    ]
    kinds = {time.kind for time in used}
    for kind, began in traced.beginning.first.items():
        if kind in kinds:
            yield f"+0.000 s is {output.event_time(began)}, {output.CLOCKS[began.clock]}"
    yield from output.imported(imported(used))


_Row = dict[str, "Text | str | None"]
"""Cells of a row of a trace, by column."""

TRACE = output.columns("step! began>? clock!? took>? call outcome recorded_in!?")
"""Times on the left, outcomes on the right; of clocks and runs only others than usual."""


def _agent_rows(traced: Trace, agent: AgentHistory) -> Iterator[_Row]:
    steps = agent.state.steps
    if not steps:
        return
    count = counted(len(steps), "step")
    yield _row(call=output.cell(f"{agent.name} ({agent.state.role}), {count}", "bold"))
    for row in trace_reads.rows(trace_reads.tree(steps.values())):
        if row.step is None:
            yield _row(call=_guided(row.guides, row.label, "bold"))
            continue
        yield _step_row(traced, agent, row, row.step)
        yield from _attempt_rows(traced, agent, row, row.step)
        yield from _change_rows(row, row.step)


def _row(**cells: Text | str) -> _Row:
    return {**cells}


def _clock(time: EventTime) -> str:
    return "" if time.clock in (Clock.LOG, Clock.IMPORT) else time.clock.value


def _step_row(traced: Trace, agent: AgentHistory, row: trace_reads.Row, step: Step) -> _Row:
    event, began = agent.events[step.version], traced.began(agent.name, step)
    call = _guided(row.guides, f"{row.label} · " if row.label else "", "bold")
    call.append("∥ " if step.unordered else "")
    call.append(output.cut(step.tool), style="cyan")
    call.append(f"  {output.arguments_preview(recorded(step.arguments))}".rstrip())
    recorded_in = run_of(event.stored.stream)
    return _row(
        step=f"{agent.name}#{step.number}",
        began=_began(traced, began),
        clock=_clock(began),
        took=output.duration(step.duration_ms),
        call=call,
        outcome=_outcome(traced, agent.name, step),
        recorded_in="" if recorded_in == traced.run else recorded_in or "",
    )


def _attempt_rows(
    traced: Trace, agent: AgentHistory, row: trace_reads.Row, step: Step
) -> Iterator[_Row]:
    """Yield a step's earlier attempts, each before the settlements that followed it."""
    guides = row.under + ("│  " if row.holds else "   ")
    lines: list[tuple[int, str, StepAttempted | None]] = []
    began = step.version
    for attempt, ended in traced.attempts(agent.name, step):
        lines.append((began, _tried(attempt), attempt))
        began = ended
    lines += [(at, _settled(each), None) for at, each in traced.settlements(agent.name, step)]
    for version, text, tried in sorted(lines, key=lambda line: line[0]):
        yield _row(
            clock=_clock(agent.events[version].time),
            took=output.duration(tried.duration_ms) if tried is not None else "",
            call=_guided(guides, output.cut(text), "dim"),
            outcome=output.cell(output.cut(tried.error.text) if tried is not None else "", "dim"),
        )


_INTERRUPTIONS = {
    ("builtins", "Interrupted"),  # recorded on resume: the process was killed
    ("builtins", "KeyboardInterrupt"),
    ("builtins", "SystemExit"),
    ("asyncio.exceptions", "CancelledError"),
}
"""Errors by module and class that stop a call from outside."""


def _tried(tried: StepAttempted) -> str:
    """Describe an attempt that another followed; the effect of an interrupted one is unknown."""
    if (tried.error.module, tried.error.type) in _INTERRUPTIONS:
        return f"attempt {tried.attempt} interrupted, outcome unknown"
    again = f", again after {output.duration(tried.retry_in_ms)}" if tried.retry_in_ms else ""
    return f"attempt {tried.attempt} failed{again}"


def _settled(settlement: Settlement) -> str:
    reason = f" ({settlement.reason})" if settlement.reason else ""
    if settlement.is_edit:
        return f"result edited by {settlement.by}{reason}"
    return f"settled by {settlement.by}: {settlement.verdict.value.replace('_', ' ')}{reason}"


def _change_rows(row: trace_reads.Row, step: Step) -> Iterator[_Row]:
    """Yield the changes of each aggregate that a save caused."""
    for change in trace_reads.changes_of(step):
        guides = row.under + ("│  " if row.holds else "   ")
        text = f"{change.event}  {change.aggregate} {change.id}@{change.version}"
        yield _row(
            call=_guided(guides, output.cut(text), ""),
            outcome=output.cell(output.preview(change.state), "dim"),
        )


def _guided(guides: str, label: str, style: str) -> Text:
    line = output.text(guides, style="dim")
    line.append(plain_text(label), style)
    return line


def _began(traced: Trace, when: EventTime) -> str:
    offset_ms = traced.beginning.offset_ms(when)
    if offset_ms is not None:
        return output.offset(offset_ms)
    return output.cut(when.at) if when.is_known else ""


def _outcome(traced: Trace, agent: str, step: Step) -> Text:
    """Render a step's outcome; its status unless it simply completed."""
    status = traced.doubts.status(agent, step)
    line = output.cell("") if status == "completed" else output.status_cell(status)
    items = [recorded(item) for item in step.items[: output.PREVIEW_CHARACTERS]]
    result = output.result_preview(step, items if step.streamed else recorded(step.result))
    for part in (result, _settlement_text(step)):
        if part:
            line.append(f"  {part}" if line.plain else part)
    return line


def _settlement_text(step: Step) -> str:
    late = "after its agent had left" if step.late else ""
    return ", ".join(part for part in (_reused(step), late, withheld_text(step)) if part)


def _reused(step: Step) -> str:
    if step.reused_from is not None:
        source = step.reused_from
        return f"answer of {source.agent}#{source.step} of run {source.run}"
    return "" if step.reused is None else f"outcome of step {step.reused}"


def _block(traced: Trace, whole: WholeStep) -> Iterator[Part]:
    """Yield a step in full, one line for each part."""
    line, step, value = whole.line, whole.line.step, whole.traced
    indent = "  " * min(line.depth, trace_reads.GUIDES_MAX)
    began = traced.began(line.agent, step)
    head = (
        f"{line.agent}#{step.number}",
        step.tool,
        traced.doubts.status(line.agent, step),
        _settlement_text(step),
        f"in {value.branch}" if value.branch else "",
        f"began {_began(traced, began)} ({began.clock.value})" if began.is_known else "",
        f"took {output.duration(step.duration_ms)}" if step.duration_ms else "",
    )
    yield ""
    yield indent + "  ".join(part for part in head if part)
    parts = [("arguments", output.preview(value.arguments, None))]
    parts += [(_tried(tried), tried.error.text) for tried in step.attempts]
    parts += [("settlement", _settled(each)) for each in value.settlements]
    parts.append(("would do", plain_text(step.would)))
    parts.append(("result", output.result_preview(step, value.result, None)))
    for name, text in parts:
        if text:
            yield f"{indent}  {name}  {text}"
