"""`hansard run diff`: two runs step by step, where they part, and what each cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from rich.text import Text

from hansard.agents.workspace import Workspace
from hansard.bus.log import Stored
from hansard.bus.states import fold_life
from hansard.commands import _look, _paths, _show
from hansard.commands._look import Agent
from hansard.commands._open import Options, find_run, reading
from hansard.commands._paths import Move, Pair, What
from hansard.domain.agent import MessageAdded
from hansard.domain.counted import counted
from hansard.domain.ids import Life, run_of
from hansard.domain.run import RunState
from hansard.domain.steps import Step

SHOWN_MAX = 100
"""Differences of an agent that people are shown; --json has all."""

_SIGNS = {
    What.SAME: ("=", ""),
    What.RESULT: ("≠", "yellow"),
    What.ARGUMENTS: ("~", "yellow"),
    What.MOVED: ("↕", "yellow"),
    What.ONLY_A: ("-", "red"),
    What.ONLY_B: ("+", "green"),
}
_SAID = {
    What.RESULT: "another result",
    What.ARGUMENTS: "other arguments",
    What.MOVED: "in another place",
    What.ONLY_A: "only in A",
    What.ONLY_B: "only in B",
}


class Side(msgspec.Struct):
    """A run as it is compared."""

    run: str
    life: RunState
    agents: dict[str, Agent]
    history: list[Stored]


class Couple(msgspec.Struct, frozen=True):
    """An agent of one run beside one of the other; either may be missing."""

    a: Agent | None
    b: Agent | None
    pairs: list[Pair]

    @property
    def parts(self) -> Pair | None:
        """The first difference."""
        return next((pair for pair in self.pairs if pair.what is not What.SAME), None)

    @property
    def differs(self) -> bool:
        """Whether they are not the same in what they called and decided."""
        return self.a is None or self.b is None or self.parts is not None


async def diff(options: Options, a: str, b: str, *, json: bool) -> int:
    """Print how two runs compare; 1 where they differ in what was called, what came of it or what
    was decided. Raises NotFound, Ambiguous, UnknownEvent, Corrupt.
    """
    async with reading(options) as workspace:
        sides = [await _side(workspace, run) for run in (a, b)]
    couples = list(_couples(*sides))
    differing = any(couple.differs for couple in couples)
    if json:
        _emit(sides, couples, equal=not differing)
    else:
        _print(sides, couples)
    return 1 if differing else 0


async def _side(workspace: Workspace, text: str) -> Side:
    run = await find_run(workspace, text)
    history = await workspace.states.history(run)
    life = fold_life(stored for stored in history if isinstance(stored.stream, Life))
    return Side(run, life, _look.by_agent(history), history)


def _couples(a: Side, b: Side) -> Iterator[Couple]:
    """Agents of one name, then those of one role in the order in which they came, then the rest."""
    left = {name: agent for name, agent in b.agents.items() if name not in a.agents}
    for name, agent in a.agents.items():
        other = b.agents.get(name)
        if other is None:
            role = agent.state.role
            found = next((n for n, each in left.items() if each.state.role == role), None)
            other = left.pop(found) if found is not None else None
        yield _couple(agent, other)
    for agent in left.values():
        yield _couple(None, agent)


def _couple(a: Agent | None, b: Agent | None) -> Couple:
    paths = [_paths.moves(agent) if agent is not None else [] for agent in (a, b)]
    return Couple(a, b, _paths.aligned(*paths))


def _first(sides: Sequence[Side], couples: Iterable[Couple]) -> tuple[Couple, Pair] | None:
    """Where the runs part: the difference that came first, counted in commits of its run."""
    orders = [
        {stored.position: order for order, stored in enumerate(side.history)} for side in sides
    ]

    def order(pair: Pair) -> int:
        both = zip(orders, (pair.a, pair.b), strict=True)
        return min(known[move.position] for known, move in both if move is not None)

    found = [(couple, couple.parts) for couple in couples if couple.parts is not None]
    return min(found, key=lambda each: order(each[1]), default=None)


# ---------------------------------------------------------------- what it cost


def _cost(side: Side) -> dict[str, Any]:
    """What a run came to, of a fork what it has from its parents included; `own_usage` is what was
    used up in itself alone.
    """
    told = [agent for agent in side.agents.values() if agent.state.version]
    steps = [step for agent in told for step in _steps(agent)]
    used: list[tuple[str | None, dict[str, float]]] = []
    for agent in told:
        at = {version: run_of(event.stored.stream) for version, event in agent.told.items()}
        used += [(at[step.outcome_version or step.version], step.usage) for step in _steps(agent)]
        used += [
            (at[noted.version], noted.fact.usage)
            for noted in agent.state.facts
            if isinstance(noted.fact, MessageAdded)
        ]
    return {
        "status": side.life.status.value,
        "scores": side.life.scores,
        "steps": len(steps),
        "statuses": dict(Counter(step.status.value for step in steps)),
        "attempts": sum(step.attempt for step in steps),
        "decisions": sum(len(agent.state.decisions) for agent in told),
        "duration_ms": _duration_ms(side),
        "usage": _look.summed([usage for _, usage in used]),
        "own_usage": _look.summed([usage for run, usage in used if run == side.run]),
    }


def _steps(agent: Agent) -> list[Step]:
    return list(agent.state.steps.values())


def _duration_ms(side: Side) -> float | None:
    """From a run's first event to its last, in ms; of a fork from its own first. None where nobody
    can tell, as of an import without times.
    """
    own = _look.own(side.run, side.history)
    began, last = _look.began(own), _look.last(own)
    if _look.kind(began) is None or _look.kind(began) != _look.kind(last):
        return None
    if began.moment is None or last.moment is None:
        return None
    return (last.moment - began.moment).total_seconds() * 1_000


# ---------------------------------------------------------------- for programs


def _emit(sides: Sequence[Side], couples: list[Couple], *, equal: bool) -> None:
    for name, side in zip("ab", sides, strict=True):
        _show.emit({"kind": "run", "side": name, "run": side.run, **_forked(side), **_cost(side)})
    for couple in couples:
        for pair in couple.pairs:
            _show.emit({"kind": "move", **_line(couple, pair)})
    first = _first(sides, couples)
    counts = Counter(pair.what.value for couple in couples for pair in couple.pairs)
    _show.emit(
        {
            "kind": "compared",
            "equal": equal,
            "agents": [
                {"a": couple.a and couple.a.name, "b": couple.b and couple.b.name}
                for couple in couples
            ],
            "shared": sum(pair.shared for couple in couples for pair in couple.pairs),
            "counts": {what.value: counts[what.value] for what in What},
            "parts": first and _line(*first),
            "position": max(side.history[-1].position for side in sides),
        }
    )


def _forked(side: Side) -> dict[str, Any]:
    forked = side.life.forked
    return {"forked_from": forked.parent if forked is not None else None}


def _line(couple: Couple, pair: Pair) -> dict[str, Any]:
    return {
        "agent_a": couple.a and couple.a.name,
        "agent_b": couple.b and couple.b.name,
        "what": pair.what.value,
        "shared": pair.shared,
        "a": _told(pair.a),
        "b": _told(pair.b),
    }


def _told(move: Move | None) -> dict[str, Any] | None:
    if move is None:
        return None
    where = {
        "place": move.place,
        "recorded_in": move.run,
        "version": move.version,
        "position": move.position,
    }
    if move.decision is not None:
        made = move.decision
        return {
            **where,
            "decision": made.question,
            "selected": made.selected,
            "threshold": made.threshold,
            "confidence": made.confidence,
            "alternatives": made.alternatives,
            "because": made.because or None,
        }
    step = move.step
    if step is None:
        return where
    return {
        **where,
        "step": step.number,
        "tool": step.tool,
        "arguments": step.arguments,
        "status": step.status.value,
        "result": step.items if step.streamed else step.result,
        "error": step.error,
        "attempts": step.attempt,
        "duration_ms": step.duration_ms or None,
        "usage": step.usage,
    }


# ---------------------------------------------------------------- for people


def _print(sides: Sequence[Side], couples: list[Couple]) -> None:
    columns = [_show.Column(""), _show.Column("A", whole=True), _show.Column("B", whole=True)]
    _show.write(_show.table(columns, _rows(sides)), "")
    first = _first(sides, couples)
    shared = sum(pair.shared for couple in couples for pair in couple.pairs)
    for letter, side in zip("AB", sides, strict=True):
        if side.life.forked is not None:
            _show.write(f"{letter} is a fork of run {side.life.forked.parent}")
    if shared:
        _show.write(f"they share {_count(shared)}: the same events, recorded once")
    alone = [couple for couple in couples if couple.a is None or couple.b is None]
    if first is not None:
        _show.write("they part at", _show.Lines(list(_difference(first[1]))))
    elif not alone:
        _show.write("they called the same, with the same results, and decided the same")
    for couple in couples:
        _show.write("", _show.Lines(list(_agent(couple))))


def _rows(sides: Sequence[Side]) -> Iterator[list[str]]:
    costs = [_cost(side) for side in sides]
    yield ["run", *(side.run for side in sides)]
    for name in ("status", "steps", "attempts", "decisions"):
        yield [name, *(f"{cost[name]:,}" if name != "status" else cost[name] for cost in costs)]
    yield ["took", *(_show.duration(cost["duration_ms"] or 0.0) for cost in costs)]
    for key, label in (("usage", "{}"), ("own_usage", "{} in itself")):
        if key == "own_usage" and all(cost[key] == cost["usage"] for cost in costs):
            continue
        for name in sorted({name for cost in costs for name in cost[key]}):
            yield [label.format(name), *(_amount(cost[key].get(name)) for cost in costs)]
    for name in sorted({name for cost in costs for name in cost["scores"]}):
        yield [name, *(_amount(cost["scores"].get(name)) for cost in costs)]


def _amount(amount: float | None) -> str:
    return "" if amount is None else _look.number(amount)


def _count(number: int) -> str:
    return f"{counted(number, 'move')}"


def _agent(couple: Couple) -> Iterator[Text]:
    """An agent's differences, with how many moves are the same before, between and after them."""
    names = [agent.name for agent in (couple.a, couple.b) if agent is not None]
    role = next(agent.state.role for agent in (couple.a, couple.b) if agent is not None)
    side = "" if len(names) > 1 else f", {_SAID[What.ONLY_A if couple.a else What.ONLY_B]}"
    named = " and ".join(dict.fromkeys(names))
    yield _show.cell(f"agent {named} ({role}){side}", "bold")
    same = shown = 0
    for pair in couple.pairs:
        if pair.what is What.SAME:
            same += 1
            continue
        if same:
            yield Text(f"  = {_count(same)} the same", style="dim")
        same, shown = 0, shown + 1
        if shown > SHOWN_MAX:
            break
        yield from _difference(pair)
    if shown > SHOWN_MAX:
        more = sum(pair.what is not What.SAME for pair in couple.pairs) - SHOWN_MAX
        yield Text(f"  … and {more:,} more differences: --json has them")
    elif same or not couple.pairs:
        yield Text(f"  = {_count(same)} the same", style="dim")


def _difference(pair: Pair) -> Iterator[Text]:
    """A difference: what of, and both sides."""
    sign, style = _SIGNS[pair.what]
    move = pair.a or pair.b
    name = move.name if move is not None else ""
    yield Text(f"  {sign} {_show.cut(name)}, {_SAID.get(pair.what, '')}", style=style)
    for letter, each in (("A", pair.a), ("B", pair.b)):
        if each is not None:
            yield Text(f"      {letter} {_show.plain_text(each.place)}  {_move(each)}")


def _move(move: Move) -> str:
    if move.decision is not None:
        made = move.decision
        why = f": {_show.cut(made.because)}" if made.because else ""
        return f"{_show.cut(made.selected)}{why}"
    step = move.step
    if step is None:
        return ""
    arguments = _show.arguments_preview(_show.recorded(step.arguments))
    items = [_show.recorded(item) for item in step.items[: _show.PREVIEW_CHARACTERS]]
    result = _show.result_preview(step, items if step.streamed else _show.recorded(step.result))
    status = "" if step.status.value == "completed" else f"{step.status.value} "
    return f"({arguments}) → {status}{result}".rstrip()
