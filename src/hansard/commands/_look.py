"""What looking at a run shares: its agents with the events behind their states, and their times.

Three clocks tell when something was: the log's own, that of the log a copied commit came from,
and what the source of an imported event claims. They are shown with their name and never mixed up.
Where that source claims nothing, nobody knows: the moment of the import is told as that alone.
Of an imported event whose source says nothing, only the moment of the import is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents import payloads
from hansard.agents.importers.report import WRITER
from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, Stored, UpTo
from hansard.bus.states import RunView
from hansard.commands import _show
from hansard.commands._snapshots import Fetcher
from hansard.domain import agent as agents
from hansard.domain.agent import AgentState
from hansard.domain.events import Recorded
from hansard.domain.ids import AgentStream, run_of
from hansard.domain.parts import Fetch, in_full
from hansard.domain.steps import StepAttempted, StepRequested
from hansard.domain.values import SAFE_INT


class Clock(StrEnum):
    """Who says when something was."""

    LOG = "log"
    ORIGIN = "origin"
    OCCURRED_AT = "occurred_at"
    IMPORT = "import"


CLOCKS = {
    Clock.LOG: "the log's time",
    Clock.ORIGIN: "the time of the log that the run was copied from",
    Clock.OCCURRED_AT: "as the source says",
    Clock.IMPORT: "the moment of the import: the source says no times",
}
"""Each clock in words."""


class When(msgspec.Struct, frozen=True):
    """When something was, as its clock says it: ISO 8601, for `occurred_at` as the source wrote it
    (what has no zone there has none here).
    """

    at: str
    clock: Clock

    @property
    def moment(self) -> datetime | None:
        """As a time, in UTC where it has a zone; None where the source wrote something else."""
        try:
            found = datetime.fromisoformat(self.at)
            return found.astimezone(UTC) if found.tzinfo else found
        except (ValueError, OverflowError):
            return None

    @property
    def text(self) -> str:
        """For people: to the second."""
        moment = self.moment
        if moment is None:
            return _show.cut(self.at)
        return _show.moment(moment) if moment.tzinfo else f"{moment:%Y-%m-%d %H:%M:%S}"

    @property
    def is_known(self) -> bool:
        """Whether it says when something happened, and not just when it was imported."""
        return self.clock is not Clock.IMPORT

    @property
    def shown(self) -> str:
        """For people, with the clock's name where it is not the log's; empty where nobody knows."""
        if not self.is_known:
            return ""
        return self.text if self.clock is Clock.LOG else f"{self.text} ({self.clock.value})"

    @property
    def data(self) -> dict[str, str | None]:
        """For programs: `at` is None where nobody knows."""
        return {"at": self.at if self.is_known else None, "clock": self.clock.value}


def earlier(found: When, ms: float) -> When:
    """So long before a log's time; what a source says stays as it is, and so does an import."""
    moment = found.moment
    if found.clock not in {Clock.LOG, Clock.ORIGIN} or moment is None or not ms:
        return found
    try:
        return When((moment - timedelta(milliseconds=ms)).isoformat(), found.clock)
    except OverflowError:
        return found


def when(stored: Stored, recorded: Recorded) -> When:
    """When an event was: as its source says, else as `when_stored`."""
    if recorded.occurred_at is not None:
        return When(recorded.occurred_at, Clock.OCCURRED_AT)
    return when_stored(stored)


def when_stored(stored: Stored) -> When:
    """When a commit was stored: in the log it was copied from, else in this one."""
    at = stored.origin.at if stored.origin is not None else stored.time.isoformat()
    if is_imported(stored):
        return When(at, Clock.IMPORT)
    return When(at, Clock.ORIGIN if stored.origin is not None else Clock.LOG)


def is_imported(stored: Stored) -> bool:
    """Whether an importer wrote a commit, so that log time and writer's clock are the import's.

    An importer writes on behalf of somebody; an agent that is called like it does not.
    """
    actor = stored.commit.actor
    return actor.agent == WRITER and bool(actor.on_behalf_of)


def own(run: str, history: Sequence[Stored]) -> Sequence[Stored]:
    """A run's own commits, without those before a fork's cut; all where it has none yet."""
    return [stored for stored in history if run_of(stored.stream) == run] or history


def began(history: Sequence[Stored]) -> When:
    """When the first commit was; of an import the first time that its source tells, if any."""
    return _first(list(whens(history)))


def last(history: Sequence[Stored]) -> When:
    """When the newest commit was; of an import the last time that its source tells, if any."""
    return _first(list(whens(history))[::-1])


def _first(found: list[When]) -> When:
    if found[0].is_known:
        return found[0]
    return next((each for each in found if each.clock is Clock.OCCURRED_AT), found[0])


def whens(history: Iterable[Stored]) -> Iterator[When]:
    """When each event was, in their order."""
    for stored in history:
        for recorded in stored.commit.events:
            yield when(stored, recorded)


def imported(found: Iterable[When]) -> str | None:
    """What is to be said once where times are not known; None where all are."""
    for each in found:
        if not each.is_known:
            return f"imported {each.text}: where no time stands, its source gives none"
    return None


class Beginning:
    """When a run began, by each clock that can be compared with it.

    What logs say is one kind of time, what a source says with a zone another, without a third;
    each begins with the first event that has it. A fork begins with the run it goes on from.
    """

    def __init__(self, history: Iterable[Stored]) -> None:
        self.first: dict[tuple[bool, bool], When] = {}
        for found in whens(history):
            key = kind(found)
            if key is not None:
                self.first.setdefault(key, found)

    def offset_ms(self, found: When) -> float | None:
        """How long after the beginning something was, in ms; None where nobody can tell."""
        key, moment = kind(found), found.moment
        began = self.first[key].moment if key in self.first else None
        if began is None or moment is None:
            return None
        return (moment - began).total_seconds() * 1_000


def kind(found: When) -> tuple[bool, bool] | None:
    """Which kind of time it is, of those that cannot be compared; None where it is no time of what
    happened.
    """
    moment = None if found.clock is Clock.IMPORT else found.moment
    return None if moment is None else (found.clock is Clock.OCCURRED_AT, moment.tzinfo is None)


def offset(ms: float) -> str:
    """How long after a beginning, for people."""
    sign, whole = ("-" if ms < 0 else "+"), abs(ms) / 1_000
    minutes, seconds = divmod(whole, 60)
    if not minutes:
        return f"{sign}{seconds:.3f} s"
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    clock = (
        f"{hours}:{minutes:02}:{int(seconds):02}" if hours or days else f"{minutes}:{seconds:04.1f}"
    )
    return f"{sign}{days} d {clock}" if days else f"{sign}{clock}"


class Told(msgspec.Struct, frozen=True):
    """One event of a stream, with the commit that holds it."""

    stored: Stored
    event: Recorded

    @property
    def when(self) -> When:
        """When it was."""
        return when(self.stored, self.event)


class Agent(msgspec.Struct):
    """An agent's state and the events it was folded from, by version.

    `attempted` are the versions at which a step's attempts failed, by step.
    """

    name: str
    state: AgentState
    told: dict[int, Told] = {}
    attempted: dict[int, list[int]] = {}


def folded(name: str, commits: Iterable[Stored]) -> Agent:
    """An agent from its stream's commits, from the first. Raises UnknownEvent, Corrupt."""
    made = Agent(name, agents.initial())
    for stored in commits:
        for recorded in stored.commit.events:
            event = revive(recorded)
            agents.evolve(made.state, event)
            version = made.state.version
            made.told[version] = Told(stored, recorded)
            if isinstance(event, StepRequested):
                made.attempted[event.step] = []
            elif isinstance(event, StepAttempted):
                made.attempted[event.step].append(version)
    in_full(made.state.steps)
    return made


def by_agent(history: Iterable[Stored]) -> dict[str, Agent]:
    """Every agent of a run, in the order in which they came. Raises UnknownEvent, Corrupt."""
    commits: dict[str, list[Stored]] = {}
    for stored in history:
        if isinstance(stored.stream, AgentStream):
            commits.setdefault(stored.stream.agent, []).append(stored)
    return {name: folded(name, found) for name, found in commits.items()}


async def agents_at(
    workspace: Workspace, run: str, up_to: UpTo, only: str | None
) -> tuple[RunView, list[Agent]]:
    """A run at a point, and its agents (or one) with their events.

    Reads the streams of these agents alone. Raises NotFound, UnknownEvent, Corrupt.
    """
    view = await workspace.states.run(run, up_to)
    end = AtPosition(view.position)
    found: list[Agent] = []
    for name in view.agents if only is None else [only]:
        commits = await workspace.states.commits(view.stream_of(name), up_to=end)
        found.append(folded(name, commits))
    return view, found


class Payloads:
    """Gets recorded payloads whole; what was erased stays the reference it is, and is told."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def value(self, raw: msgspec.Raw) -> Any:
        """The plain values. Raises Corrupt."""
        if b'"$blob"' not in bytes(raw):
            return _show.recorded(raw)
        return await self.get(payloads.unpack(raw), raw)

    async def get(self, fetch: Fetch, raw: msgspec.Raw) -> Any:
        """What a fetch leads to, else the recorded payload as it stands. Raises Corrupt."""
        try:
            return await Fetcher(self._workspace)(fetch)
        except NotFound as error:
            _show.hint(f"shown as a reference: {error}")
            return _show.recorded(raw)


def summed(usages: Sequence[dict[str, float]]) -> dict[str, float]:
    """Usage by name, summed without rounding on the way; in the order of the names."""
    names = sorted({name for usage in usages for name in usage})
    return {name: _sum([usage.get(name, 0.0) for usage in usages]) for name in names}


def _sum(amounts: list[float]) -> float:
    try:
        return math.fsum(amounts)
    except OverflowError:
        return sum(amounts)


def usage_text(usage: dict[str, float]) -> str:
    """Usage for people: `cost` is in US dollars."""
    return ", ".join(
        f"cost ${number(amount)}" if name == "cost" else f"{_show.cut(name)} {number(amount)}"
        for name, amount in usage.items()
    )


def number(amount: float) -> str:
    """A number for people: whole where it is, else to six digits."""
    whole = float(amount).is_integer() and abs(amount) <= SAFE_INT
    return f"{amount:,.0f}" if whole else f"{amount:,.6g}"
