"""Probes: locate a value that runs decided from, and the call that returned it."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain.agent import AgentState, DecisionMade
from hansard.domain.choices import counted, listed
from hansard.domain.errors import BadValue, CallerError, Corrupt
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.label import Label, parse
from hansard.domain.steps import Step, StepStatus
from hansard.domain.values import DOT, Plain, leaves
from hansard.inspect.answer import Answer
from hansard.inspect.trace import AgentHistory, Fetcher, by_agent
from hansard.projections.snapshots import Reader
from hansard.projections.table_files import statements

_SQL = statements(__file__)


# Decisions of a probe's forks from SQL: pairs, noise, and differences.

Row = dict[str, Any]


class SkippedRun(msgspec.Struct, frozen=True):
    """Selected run that was not forked, and why."""

    run: str
    why: str


class FailedFork(msgspec.Struct, frozen=True):
    """Fork whose program failed: its exit code, and its last line of output."""

    run: str
    fork: str
    value: str
    code: int
    last_line: str


class ProbeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Probe with the forks that it made.

    Attributes:
        probe: Its id.
        path: The path of the value.
        values: The values; the others are compared with the first.
        runs: The runs that were forked.
        left_out: The selected runs that were not forked, with the reasons.
        forks: The number of forks of these runs.
        before: The number of forks that had ended before.
        ran: The number of forks that were run now.
        live: Whether model calls without a recorded answer ran.
        tools: The calls that returned the value, each with its number of runs.
        beside: Paths of equal values that were not replaced, each with its number of runs.
        failures: The forks whose program failed.
    """

    probe: str
    path: str
    values: list[str]
    runs: list[str]
    left_out: list[SkippedRun]
    forks: int
    before: int
    ran: int
    live: bool
    tools: dict[str, int]
    beside: dict[str, int]
    failures: list[FailedFork]


class ProbeQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the comparison of pairs.

    Attributes:
        question: Only decisions whose question has this prefix, as one; None compares each
            question separately.
        alpha: The accepted probability of a false alarm.
        margin: The share of changed decisions below which a difference is negligible; None if
            none was given.
        score_margin: The same for the mean difference of a score.
    """

    question: str | None = None
    alpha: float = 0.05
    margin: float | None = None
    score_margin: float | None = None


class Fairness(Answer):
    """Result of a probe: the forks made, the pairs that count, and how the decisions differ."""

    probed: ProbeReport
    query: ProbeQuestion
    position: int
    noise: Row
    summary: list[Row]
    comparisons: list[Row]
    pairs: list[Row]

    @property
    def unanswered(self) -> Counter[str]:
        """Numbers of pairs that do not count, by reason."""
        return Counter(row["unanswered"] for row in self.pairs if row["unanswered"])

    @property
    def changed(self) -> list[Row]:
        """Pairs that decided differently."""
        return [row for row in self.pairs if row["unanswered"] is None and row["changed"]]

    @property
    def differs(self) -> bool:
        """True if the decisions of all runs differ by the value, as far as the pairs show."""
        return any(row["verdict"] == "differs" for row in self.comparisons if not row["slice"])

    def lines(self) -> Iterator[Row]:
        """Yield the probe, then each row."""
        value = msgspec.to_builtins(self.probed) | msgspec.to_builtins(self.query)
        yield {"kind": "probe", "position": self.position, **value}
        yield {"kind": "noise", **self.noise}
        for kind, rows in (
            ("summary", self.summary),
            ("comparison", self.comparisons),
            ("pair", self.pairs),
        ):
            for row in rows:
                yield {"kind": kind, **row}


def fairness(reader: Reader, probed: ProbeReport, request: ProbeQuestion) -> Fairness:
    """Compare the decisions of a probe's forks of the selected runs."""
    parameters: Sequence[Any] = (probed.probe, probed.runs, request.question)
    [noise] = reader.rows(_SQL["noise"], [*parameters, request.alpha])
    return Fairness(
        probed=probed,
        query=request,
        position=reader.position,
        noise=noise,
        summary=reader.rows(_SQL["summary"], [*parameters, request.alpha]),
        comparisons=reader.rows(
            _SQL["comparisons"], [*parameters, request.alpha, request.margin, request.score_margin]
        ),
        pairs=reader.rows(_SQL["pairs"], parameters),
    )


NEAREST_MAX = 5
"""Most paths listed in an error."""

KINDS = ("tool", "model", "resource", "memory")
"""Kinds of calls whose answers a fork can replace: calls of the program's own tools."""


def no_such_path(path: str, known: Iterable[str], runs: int, beside: str = "") -> CallerError:
    """Return the error for a path that leads to no value in any of the runs."""
    there = sorted(set(known))
    near = difflib.get_close_matches(path, there, NEAREST_MAX, 0.3)
    if near:
        shown = f"the nearest: {', '.join(near)}"
    elif there:
        shown = f"there are: {', '.join(there[:NEAREST_MAX])}"
    else:
        shown = "no call returned anything before a decision"
    return CallerError(
        f"{path!r} is no value that a call returned before a decision, in none of "
        f"{counted(runs, 'run')}{beside}; {shown}"
    )


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Place of the value in a run.

    Attributes:
        run: The run.
        agent: The agent of the first call that returned it.
        step: That call's step.
        tool: The tool that was called.
        arguments: The digest of the call's arguments.
        within: The path of the value in the result.
        value: The value.
        at: The position of the commit with the call's intent; the fork ends before it.
        label: The label of the reader of the value.
        beside: Paths of other calls before the decision with an equal value under the same last
            name; these are not replaced.
    """

    run: str
    agent: str
    step: int
    tool: str
    arguments: str
    within: tuple[str, ...]
    value: Plain
    at: int
    label: Label
    beside: tuple[str, ...] = ()


class SearchResult(msgspec.Struct, frozen=True):
    """Result of a search in a run: the value, or why there is none; and the paths in the run."""

    run: str
    site: Site | None
    why: str = ""
    paths: frozenset[str] = frozenset()
    argument: str = ""
    """Call with the path as an argument, if there is one."""


class _CallResult(msgspec.Struct, frozen=True):
    """Result of a call, with its place."""

    agent: AgentHistory
    step: Step
    at: int
    result: Plain
    arguments: Plain


def paths_of(tool: str, within: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of a value of a call's result: with and without the tool's name."""
    inside = DOT.join(within)
    return (f"{tool}{DOT}{inside}", inside) if inside else (tool,)


async def search(
    workspace: Workspace, run: str, path: str, question: str | None = None
) -> SearchResult:
    """Search the value at a path in the results of calls before a run's last decision.

    `question` restricts the decisions to those whose question has this prefix. The first call
    that returned the value counts. Raises NotFound for an unknown run, Corrupt.
    """
    agents = by_agent(await workspace.states.history(run)).values()
    results = await _results_before(workspace, agents, question)
    if results is None:
        query = f" on a question that begins with {question!r}" if question else ""
        return SearchResult(run, None, f"no decision{query} is on record")
    known: dict[str, list[tuple[_CallResult, tuple[str, ...], Plain]]] = {}
    arguments: dict[str, str] = {}
    for each in results:
        for within, value in leaves(each.result):
            for name in paths_of(each.step.tool, within):
                known.setdefault(name, []).append((each, within, value))
        for within, _ in leaves(each.arguments):
            for name in paths_of(each.step.tool, within):
                arguments.setdefault(name, f"{each.agent.name}#{each.step.number} {each.step.tool}")
    paths = frozenset(known)
    if path not in known:
        why = f"no call before its decision returned {path}"
        return SearchResult(run, None, why, paths, arguments.get(path, ""))
    first, within, value = known[path][0]
    step = first.step
    if step.kind not in KINDS or step.streamed:
        what = "a stream" if step.streamed else f"a step of kind {step.kind}"
        return SearchResult(
            run, None, f"{path} was given by {what}, which a fork cannot be given", paths
        )
    marked = digest(canonical(first.arguments))
    beside = sorted(
        {
            DOT.join((other.step.tool, *place))
            for places in known.values()
            for other, place, same in places
            if place[-1:] == within[-1:]
            and same == value
            and (other.step.tool, digest(canonical(other.arguments))) != (step.tool, marked)
        }
    )
    site = Site(
        run=run,
        agent=first.agent.name,
        step=step.number,
        tool=step.tool,
        arguments=marked,
        within=within,
        value=value,
        at=first.at,
        label=parse(first.agent.state.label),
        beside=tuple(beside),
    )
    return SearchResult(run, site, "", paths)


async def _results_before(
    workspace: Workspace, agents: Iterable[AgentHistory], question: str | None
) -> list[_CallResult] | None:
    """Return the results of the calls before the last decision, in order; None without one."""
    decided = [
        agent.events[noted.version].stored.position
        for agent in agents
        for noted in agent.state.facts
        if isinstance(noted.fact, DecisionMade) and noted.fact.question.startswith(question or "")
    ]
    if not decided:
        return None
    fetch = Fetcher(workspace)
    results: list[_CallResult] = []
    for agent in agents:
        reader = _reader(agent.state)
        for step in agent.steps:
            ended = agent.events.get(step.outcome_version or 0)
            if step.status is not StepStatus.COMPLETED or ended is None:
                continue
            if ended.stored.position > max(decided):
                continue
            try:
                result = await fetch(reader.result(step))
                arguments = await fetch(reader.arguments(step))
            except (NotFound, Corrupt):
                continue  # an erased blob: it has no value to search
            at = agent.events[step.version].stored.position
            results.append(_CallResult(agent, step, at, result, arguments))
    return sorted(results, key=lambda each: each.at)


def _reader(state: AgentState) -> payloads.Reader:
    return payloads.Reader(lambda: state)


class Replacement(msgspec.Struct, frozen=True):
    """Replacement of a value: `customer.gender=female,male`."""

    path: str
    values: tuple[str, ...]
    exact: bool = False
    """True if the values were given as JSON, each with its type."""

    @classmethod
    def of(cls, text: str) -> Replacement:
        """Parse the text of an option. Raises BadValue."""
        path, equals, listed_ = text.partition("=")
        remedy = "give PATH=VALUE,VALUE, such as customer.gender=female,male"
        if not path.strip() or not equals:
            raise BadValue("--swap", f"{text!r:.80}", remedy)
        exact = listed_.strip().startswith("[")
        if exact:
            try:
                decoded = msgspec.json.decode(listed_)
            except msgspec.DecodeError as error:
                raise BadValue("--swap", f"{listed_!r:.80} ({error})", remedy) from error
            values = [msgspec.json.encode(each).decode() for each in decoded]
        else:
            values = [each.strip() for each in listed_.split(",")]
        if len(set(values)) < 2 or len(set(values)) < len(values):  # noqa: PLR2004 -- a swap is between two
            fact = f"{counted(len(values), 'value')} ({listed(values)})" if values else "no value"
            raise BadValue("--swap", fact, "give two different values or more")
        return cls(path.strip(), tuple(values), exact)

    def typed(self, recorded: Plain) -> list[Plain]:
        """Return the values in the type of the recorded one.

        Text for a text; otherwise they are parsed as JSON if possible.
        """
        return [self._one(text, recorded) for text in self.values]

    def _one(self, text: str, recorded: Plain) -> Plain:
        if not self.exact and type(recorded) is str:
            return text
        try:
            value: Plain = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
        return value
