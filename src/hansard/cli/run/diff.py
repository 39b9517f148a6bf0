"""Command `hansard run diff`: compare two runs step by step, and their costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from rich.text import Text

from hansard.cli import output
from hansard.cli.common import Commands, argument
from hansard.cli.opening import reading
from hansard.cli.output import Column, Part
from hansard.domain.choices import counted, listed
from hansard.inspect.answer import plain_text, withheld_text
from hansard.inspect.find import find_run
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
from hansard.inspect.trace import recorded

app = Commands()

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


@app.command()
async def diff(
    a: Annotated[str, argument("A", "First run: its id, a prefix, or 'last'.")],
    b: Annotated[str, argument("B", "Second run.")],
) -> int:
    """Compare two runs step by step.

    Agents are matched by name, else by role. Compares their calls, results, decisions and messages,
    and the runs' status, error and scores; shows the first difference, then all others, and the
    cost of each run. Tokens and cost are those of the agents; a simulated user (messages with the
    role 'user') has rows of its own. Exits with 1 if the runs differ.
    """
    async with reading() as workspace:
        runs = [await find_run(workspace, run) for run in (a, b)]
        found = await run_diff(workspace, *runs)
    output.show(found, _render)
    return 1 if found.differs else 0


def _render(found: RunDiff) -> Iterator[Part]:
    columns = [Column(""), Column("A", whole=True), Column("B", whole=True)]
    yield output.table(columns, _rows(found))
    yield ""
    for letter, side in zip("AB", found.sides, strict=True):
        if side.life.forked is not None:
            yield f"{letter} is a fork of run {side.life.forked.parent}"
    if found.shared:
        yield f"they share {_count(found.shared)}, recorded once, before the fork"
    yield from _comparability(found.comparability)
    if found.first is not None:
        yield "first difference"
        yield output.Lines(list(_difference(found.first[1])))
    elif not found.differs:
        yield "equal: calls, results, decisions, messages, status and scores"
    if not found.ended_alike:
        yield from _outcomes(found)
    for couple in found.couples:
        yield ""
        yield output.Lines(list(_agent(couple)))


def _outcomes(found: RunDiff) -> Iterator[Part]:
    """Yield how each run ended, if they ended differently."""
    yield "they ended differently"
    for letter, cost in zip("AB", found.costs, strict=True):
        scores = "".join(f", {name} {_amount(cost.scores[name])}" for name in sorted(cost.scores))
        error = f", {output.cut(cost.error)}" if cost.error else ""
        yield f"      {letter} {cost.status}{error}{scores}"


def _comparability(found: Comparability) -> Iterator[Part]:
    """Yield the causes other than the cut that may explain the differences."""
    match found.verdict:
        case Comparable.DIFFERS:
            yield f"they also differ in {listed(found.differs_in)}"
        case Comparable.CANNOT_TELL:
            unknown = listed(found.not_on_record)
            yield f"it is unknown whether anything else differs: {unknown} not on record"
        case Comparable.COMPARABLE:
            yield "nothing else differs: code, model, prompt and effects are the same"
    for each in found.respects:
        yield f"  {each.name:<8} {each.sameness.value}: {each.because}"


def _rows(found: RunDiff) -> Iterator[list[str]]:
    a, b = costs = found.costs
    yield ["run", a.run, b.run]
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


def _agent(couple: AgentPair) -> Iterator[Text]:
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
            yield Text(f"  = {_count(same)} the same", style="dim")
        same, shown = 0, shown + 1
        if shown > SHOWN_MAX:
            break
        yield from _difference(pair)
    if shown > SHOWN_MAX:
        more = sum(pair.what is not Match.SAME for pair in couple.pairs) - SHOWN_MAX
        yield Text(f"  … and {more:,} more differences: --json has them")
    elif same or not couple.pairs:
        yield Text(f"  = {_count(same)} the same", style="dim")


def _difference(pair: Pair) -> Iterator[Text]:
    """Yield a difference: its subject and both sides."""
    sign, style = _SIGNS[pair.what]
    move = pair.a or pair.b
    name = move.name if move is not None else ""
    yield Text(f"  {sign} {output.cut(name)}, {_LABELS.get(pair.what, '')}", style=style)
    for letter, each in (("A", pair.a), ("B", pair.b)):
        if each is not None:
            yield Text(f"      {letter} {plain_text(each.place)}  {_move(each)}")


def _move(move: Move) -> str:
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
    status = "" if step.status.value == "completed" else f"{step.status.value} "
    withheld = withheld_text(step)
    return f"({arguments}) → {status}{result}{', ' if withheld else ''}{withheld}".rstrip()
