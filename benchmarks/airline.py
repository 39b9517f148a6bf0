"""What do successful runs of an airline's agent teach about runs of other tasks?

    python -m benchmarks.airline ../shared/data/tau-bench/dev/gpt-4o-airline.json

Of every second task the runs that succeeded are distilled to one procedure; on all runs of the
other tasks it foretells the next tool and its arguments, and flags what it never saw. Nothing of a
task is in both halves. The intervals are of 95 %, by drawing tasks again 2,000 times (seed 1): the
four runs of one task are no four tasks.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain import actions as caches
from hansard.domain.actions import CachedAction
from hansard.domain.experience import distil
from hansard.domain.experience.checks import END, Procedure, Walk
from hansard.domain.experience.distil import Demonstration, ShownAction

DRAWS, SEED = 2_000, 1
SHORT = 3
"""Length below which a text can occur in messages by chance, in characters."""


class Call(msgspec.Struct, frozen=True):
    """A call of a tool, with all earlier texts of the user and of tools."""

    tool: str
    given: dict[str, Any]
    before: str


class Run(msgspec.Struct, frozen=True):
    """A run: its task, whether it succeeded, and its calls."""

    task: int
    success: bool
    calls: tuple[Call, ...]


class Share(msgspec.Struct, frozen=True):
    """A share of things, of 1, with its interval, and of how many."""

    share: float
    low: float
    high: float
    of: int


def runs(raw: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Return the runs of tau-bench's file."""
    return [
        Run(int(each["task_id"]), float(each["reward"]) == 1.0, tuple(_calls(each["traj"])))
        for each in raw
    ]


def _calls(messages: Iterable[Mapping[str, Any]]) -> Iterable[Call]:
    said: list[str] = []
    for each in messages:
        for call in each.get("tool_calls") or ():
            function = call["function"]
            yield Call(function["name"], json.loads(function["arguments"]), "\n".join(said))
        if each["role"] in ("user", "tool"):
            said.append(str(each.get("content") or ""))


def distilled(learned_from: Sequence[Run]) -> Procedure:
    """One procedure of all that succeeded; the user's words are no task that can be aligned."""
    doings = [
        Demonstration(
            task="An airline's customer.",
            actions=tuple(ShownAction(action=_action(call)) for call in each.calls),
            success=each.success,
            source=str(number),
        )
        for number, each in enumerate(learned_from)
    ]
    [told] = distil.distilled(doings, support_min=0)
    assert told.procedure is not None
    return told.procedure


def _action(call: Call) -> CachedAction:
    return CachedAction(
        step_index=0,
        instruction=None,
        element_id=None,
        method=call.tool,
        arguments=[],
        frame_index=None,
        xpath=None,
        action_type=caches.TOOL,
        success=True,
        message="done",
        effects="once",
        action_params=call.given,
    )


class Foreteller:
    """Predictor of the next call: by the procedure, and by frequency."""

    def __init__(self, procedure: Procedure, learned_from: Sequence[Run]) -> None:
        self._procedure = procedure
        tools = {each.name: each.action.method or "" for each in procedure.nodes}
        follows: dict[str, Counter[str]] = defaultdict(Counter)
        for edge in procedure.edges:
            if edge.after != END:
                follows[tools.get(edge.before, "")][tools[edge.after]] += edge.count
        self._follows = follows
        good = [call for each in learned_from if each.success for call in each.calls]
        self._most = Counter(call.tool for call in good).most_common(1)[0][0]
        values: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for call in good:
            for name, value in call.given.items():
                values[call.tool, name][_plain(value)] += 1
        self._values = {key: counts.most_common(1)[0][0] for key, counts in values.items()}
        self.nodes: dict[str, list[str]] = defaultdict(list)
        for each in procedure.nodes:
            self.nodes[each.action.method or ""].append(each.name)

    def tool(self, before: Sequence[Call]) -> str:
        """Return the tool that most often followed the last one."""
        counts = self._follows.get(before[-1].tool if before else "")
        return counts.most_common(1)[0][0] if counts else self._most

    def most_frequent_tool(self) -> str:
        """Return the tool that was called most often."""
        return self._most

    def argument(self, tool: str, name: str, before: Sequence[Call], said: str) -> str | None:
        """Return a value: the procedure's own; for a slot the run's last one of that name, in a
        call or in a message; else the most frequent one.
        """
        for call in reversed(before):
            if name in call.given:
                return _plain(call.given[name])
        at = said.rfind(f'"{name}": ')
        if at >= 0:
            try:
                value, _ = json.JSONDecoder().raw_decode(said, at + len(name) + 4)
            except ValueError:
                value = None
            if value is not None:
                return _plain(value)
        return self.most_frequent_argument(tool, name)

    def most_frequent_argument(self, tool: str, name: str) -> str | None:
        """Return the most frequent value."""
        return self._values.get((tool, name))

    def strange(self, run: Run) -> int:
        """Return how often the flow check refuses a call of a run, or its end."""
        walk, refusals = Walk(), 0
        calls: Counter[str] = Counter()
        for call in run.calls:
            known = self.nodes.get(call.tool, [])
            name = known[calls[call.tool]] if calls[call.tool] < len(known) else ""
            calls[call.tool] += 1
            refusals += not name or bool(walk.refusal(self._procedure, name))
            if name:
                visits = {**walk.visits, name: walk.visits.get(name, 0) + 1}
                walk = Walk(at=name, visits=visits)
        return refusals + bool(walk.refusal(self._procedure, END))


def ungrounded(run: Run) -> int:
    """Return how many texts in a run's calls occur in no earlier text of the user or of tools."""
    count = 0
    for call in run.calls:
        said = call.before.casefold()
        count += sum(each.casefold() not in said for each in _texts(call.given))
    return count


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str) and len(value) > SHORT and any(c.isdigit() for c in value):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def share(by_task: Mapping[int, Sequence[bool]]) -> Share:
    """Return a share with its interval, by resampling tasks."""
    tasks = [(sum(each), len(each)) for each in by_task.values() if each]
    of = sum(n for _, n in tasks)
    if not of:
        return Share(float("nan"), float("nan"), float("nan"), 0)
    dice = random.Random(SEED)
    drawn = sorted(
        sum(k for k, _ in some) / sum(n for _, n in some)
        for some in (dice.choices(tasks, k=len(tasks)) for _ in range(DRAWS))
    )
    low, high = drawn[int(0.025 * DRAWS)], drawn[int(0.975 * DRAWS) - 1]
    return Share(sum(k for k, _ in tasks) / of, low, high, of)


def compared(every: Sequence[Run]) -> dict[str, Share]:
    """All figures: learned from even tasks, shown on odd ones."""
    learned_from = [each for each in every if each.task % 2 == 0]
    shown_on = [each for each in every if each.task % 2]
    teller = Foreteller(distilled(learned_from), learned_from)
    found: dict[str, dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for run in shown_on:
        for at, call in enumerate(run.calls):
            before = run.calls[:at]
            found["next tool, by the procedure"][run.task].append(teller.tool(before) == call.tool)
            most = teller.most_frequent_tool() == call.tool
            found["next tool, the most frequent"][run.task].append(most)
            for name, value in call.given.items():
                wanted = _plain(value)
                told = teller.argument(call.tool, name, before, call.before) == wanted
                found["argument, by the procedure"][run.task].append(told)
                most = teller.most_frequent_argument(call.tool, name) == wanted
                found["argument, the most frequent"][run.task].append(most)
        which = "succeeded" if run.success else "failed"
        flags: dict[str, Callable[[Run], int]] = {
            "flow check": teller.strange,
            "values out of nowhere": ungrounded,
        }
        for name, count in flags.items():
            found[f"{name} flags, of runs that {which}"][run.task].append(count(run) > 0)
        either = any(count(run) > 0 for count in flags.values())
        found[f"either flags, of runs that {which}"][run.task].append(either)
    return {name: share(by_task) for name, by_task in found.items()}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="gpt-4o-airline.json of tau-bench")
    every = runs(json.loads(parser.parse_args().file.read_text()))
    for name, told in sorted(compared(every).items()):
        figures = f"{told.share:6.3f}  {told.low:.3f} to {told.high:.3f}  of {told.of:,}"
        print(f"{name:50} {figures}")


if __name__ == "__main__":
    main()
