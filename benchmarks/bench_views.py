"""What does a role's view of a run cost, against reading the same run unfiltered?

A run of 10,000 events: four agents' steps, messages and decisions, and shared state, one or two
events a commit, dispersed. For each role of examples/roles.toml, and for one whose rule has fields
and masks: the view now and at a position in the middle (warm: by a client that has read the run;
cold: by one that has nothing in memory). Unfiltered: `states.history`, the read that every view
begins with, up to the same position. Serving one to a person besides puts it on record. Goals: no
view takes more than twice its unfiltered read, nor thrice where every value is looked into.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from benchmarks._states import fresh
from hansard.agents.access import roles as views
from hansard.bus.clock import Clock
from hansard.bus.commits import record as recorded
from hansard.bus.log import Append, AtPosition
from hansard.client.record import AsyncRecord
from hansard.domain.agent import DecisionMade, MessageAdded, SessionBegan
from hansard.domain.board import ValuePut
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId
from hansard.domain.roles import check as role_file
from hansard.domain.roles.model import Mask, Masking, RoleDefined, RoleRule
from hansard.domain.run import AgentJoined, RunStarted
from hansard.domain.steps import Effects, StepCompleted, StepRequested
from hansard.domain.values import dump

RUN = "0199c000-0000-7000-8000-00000000beef"
ROSTER = {"r1": "researcher", "r2": "researcher", "a1": "analyzer", "w1": "writer"}
EXAMPLES = Path(__file__).parents[1] / "examples" / "roles.toml"
KEY = bytes(range(32))
TIMES_MAX, MASKED_TIMES_MAX = 2.0, 3.0

MASKED = RoleDefined(
    sees=(
        RoleRule("calls", ("step.*",), fields=("step", "tool", "result", "arguments.query")),
        RoleRule("rest", ("message.added", "decision.made", "board.*")),
    ),
    masks=(
        Mask("price", ("step.completed",), ("result.price",), Masking.HASH),
        Mask("said", ("message.added",), ("content",), Masking.TRUNCATE, 40),
        Mask("why", ("decision.made",), ("because",)),
    ),
)
"""A role that sees nearly everything, but nearly all of it masked."""


class _Story:
    """The commits of the run, in order."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._versions: dict[StreamId, int] = {}
        self.events = 0

    def commit(self, stream: StreamId, actor: str, *events: Event) -> Append:
        """Return the next commit of a stream."""
        version = self._versions.get(stream, 0)
        self._versions[stream] = version + len(events)
        self.events += len(events)
        commit = Commit(
            id=self._clock.new_id(),
            version=version + 1,
            at=self._clock.now(),
            actor=Actor(actor),
            epoch=1 if isinstance(stream, AgentStream) else 0,
            events=tuple(recorded(event, self._clock.new_id()) for event in events),
        )
        return Append(stream, commit)

    def tell(self, count: int) -> Iterator[Append]:
        """About so many events."""
        for number, (name, role) in enumerate(ROSTER.items()):
            started = [] if number else [RunStarted(workflow="bench")]
            yield self.commit(RunStream(RUN), name, *started, AgentJoined(agent=name, role=role))
            began = SessionBegan(
                epoch=1, agent=name, role=role, server_version="1", protocol_version="1"
            )
            yield self.commit(AgentStream(RUN, role, name), name, began)
        number = 0
        while self.events < count:
            number += 1
            for name, role in ROSTER.items():
                yield from self._round(number, name, role)

    def _round(self, number: int, name: str, role: str) -> Iterator[Append]:
        stream, mark = AgentStream(RUN, role, name), f"{name}-{number}"
        asked = StepRequested(
            step=number,
            tool="search",
            effects=Effects.PURE,
            arguments=dump({"query": _world.text(200)}),
            call=mark,
            fingerprint=mark,
        )
        result = dump({"title": _world.text(100), "price": number, "text": _world.text(200)})
        done = StepCompleted(step=number, result=result, digest=mark, usage={"tokens": 9.0})
        yield self.commit(stream, name, asked, done)
        said = MessageAdded(role="assistant", content=dump(_world.text(300)), fingerprint=mark)
        yield self.commit(stream, name, said)
        if number % 4 == 0:
            made = DecisionMade(
                question="which?", selected="a", fingerprint=mark, because=_world.text(100)
            )
            yield self.commit(stream, name, made)
        if number % 2 == 0:
            put = ValuePut(value=dump(_world.text(200)), role=role)
            yield self.commit(KeyStream(RUN, f"findings/{number % 20}"), name, put)


async def _view(record: AsyncRecord, role: str, at: int | None) -> views.DerivedView:
    return await views.derive(record.workspace.states, role, RUN, at, KEY)


async def _cold(record: AsyncRecord, role: str, at: int | None) -> views.DerivedView:
    return await _view(fresh(record), role, at)


async def _unfiltered(record: AsyncRecord, at: int | None) -> None:
    await record.workspace.states.history(RUN, None if at is None else AtPosition(at))


async def _unfiltered_cold(record: AsyncRecord) -> None:
    await _unfiltered(fresh(record), None)


async def measure(found: Findings) -> None:
    """Each role in turn with the read that it is compared to."""
    rounds = sized(5, 2)
    async with (
        _world.world("relaxed") as place,
        hansard.connect_async("bench", data_dir=place.folder) as record,
    ):
        roles = {**role_file.parse(EXAMPLES.read_text(encoding="utf-8")), "masked": MASKED}
        for name, rules in roles.items():
            await record.roles.apply(name, rules)
        story = _Story()
        await record.workspace.log.append_bulk(story.tell(sized(10_000, 400)))
        found.results["events of the run"] = story.events
        middle = await record.workspace.log.head() // 2
        for name in roles:
            shown = await _view(record, name, None)
            found.results[f"{name}: events shown"] = len(shown.view.events)
            warm, cold, at, plain, plain_cold, plain_at = await _world.turns(
                rounds,
                partial(_view, record, name, None),
                partial(_cold, record, name, None),
                partial(_view, record, name, middle),
                partial(_unfiltered, record, None),
                partial(_unfiltered_cold, record),
                partial(_unfiltered, record, middle),
            )
            for kind, times, base in (
                ("warm", warm, plain),
                ("cold", cold, plain_cold),
                ("at a position", at, plain_at),
            ):
                found.results[f"{name}, {kind}"] = summary(times)
                ratio = median(times) / median(base)
                found.ratios[f"{name}, {kind}: view / unfiltered read"] = ratio
                most = MASKED_TIMES_MAX if name == "masked" else TIMES_MAX
                found.goals[f"{name}, {kind}: at most {most:g} times"] = ratio <= most
            found.results["unfiltered, warm"] = summary(plain)
            found.results["unfiltered, cold"] = summary(plain_cold)
            found.results["unfiltered, at a position"] = summary(plain_at)
        served, derived = await _world.turns(
            rounds,
            partial(views.serve, record.workspace, "writer", RUN, key=KEY),
            partial(_view, record, "writer", None),
        )
        found.results["writer, served and put on record"] = summary(served)
        found.ratios["writer: served / derived"] = median(served) / median(derived)


if __name__ == "__main__":
    benchmark(measure, __doc__)
