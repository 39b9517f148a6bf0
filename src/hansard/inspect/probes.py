"""Where a value stands that runs decided from, and which call gave it: what a probe swaps."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.domain.agent import AgentState
from hansard.domain.choices import counted, listed
from hansard.domain.errors import BadValue, CallerError, Corrupt
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import AgentStream
from hansard.domain.label import Label, parse
from hansard.domain.paths import DOT, leaves
from hansard.domain.steps import Step, StepStatus
from hansard.domain.values import Plain
from hansard.inspect.answer import Answer
from hansard.inspect.payloads import Fetcher
from hansard.inspect.trace import commits_by_agent, folded
from hansard.projections.reader import Reader

# What a probe's forks decided: pairs, noise, and how the decisions differ, all of it from SQL.

Row = dict[str, Any]


class LeftOut(msgspec.Struct, frozen=True):
    """A run that was asked for and not forked, and why."""

    run: str
    why: str


class Unrun(msgspec.Struct, frozen=True):
    """A fork whose program did not end well: its exit code, and its last line."""

    run: str
    fork: str
    value: str
    code: int
    said: str


class Probed(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, and what was done for it.

    Attributes:
        probe: Its id.
        path: The path of the value.
        values: The values, the first of which the others are compared with.
        runs: The runs that were forked.
        left_out: Those that were asked for and were not, with the reasons.
        forks: How many forks the probe has of these runs.
        before: How many of them were done before.
        ran: How many were run now.
        live: Whether calls of a model ran that the record does not answer.
        tools: The calls that gave the value, each with how many runs it gave it in.
        beside: Where an equal value stands beside it, which was not swapped: paths, and in how many
            runs.
        failures: Forks whose program did not end well.
    """

    probe: str
    path: str
    values: list[str]
    runs: list[str]
    left_out: list[LeftOut]
    forks: int
    before: int
    ran: int
    live: bool
    tools: dict[str, int]
    beside: dict[str, int]
    failures: list[Unrun]


class ProbeQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """How the pairs are to be compared.

    Attributes:
        question: Only decisions on questions that begin so, as one; None for each question apart.
        alpha: The chance of a false alarm that is accepted.
        margin: A smaller share of runs that are decided otherwise is no difference that matters;
            None where nobody named one.
        score_margin: The same of the mean difference of a score.
    """

    question: str | None = None
    alpha: float = 0.05
    margin: float | None = None
    score_margin: float | None = None


class Fairness(Answer):
    """What a probe comes to: what was done, how many pairs count, how the decisions differ."""

    probed: Probed
    asked: ProbeQuestion
    position: int
    noise: Row
    summary: list[Row]
    comparisons: list[Row]
    pairs: list[Row]

    @property
    def unanswered(self) -> Counter[str]:
        """Why pairs count for nothing, and how many."""
        return Counter(row["unanswered"] for row in self.pairs if row["unanswered"])

    @property
    def changed(self) -> list[Row]:
        """The pairs that decided differently."""
        return [row for row in self.pairs if row["unanswered"] is None and row["changed"]]

    @property
    def differs(self) -> bool:
        """Whether the decisions of all runs differ by the value, as far as can be told."""
        return any(row["verdict"] == "differs" for row in self.comparisons if not row["slice"])

    def lines(self) -> Iterator[Row]:
        """What was done first, then row by row."""
        value = msgspec.to_builtins(self.probed) | msgspec.to_builtins(self.asked)
        yield {"kind": "probe", "position": self.position, **value}
        yield {"kind": "noise", **self.noise}
        for kind, rows in (
            ("summary", self.summary),
            ("comparison", self.comparisons),
            ("pair", self.pairs),
        ):
            for row in rows:
                yield {"kind": kind, **row}


_NOISE = "FROM probe_noise($1, of_runs := $2, of_question := $3, at_alpha := $4)"
_SUMMARY = """
    FROM probe_summary($1, of_runs := $2, of_question := $3, at_alpha := $4)
    ORDER BY agent, question, value
"""
_COMPARISONS = """
    FROM probe_comparisons($1, of_runs := $2, of_question := $3, at_alpha := $4,
        decision_margin := $5, score_margin := $6)
    ORDER BY agent, question, slice, measure = 'score', option, value
"""
_PAIRS = """
    FROM probe_pairs($1, of_runs := $2, of_question := $3)
    ORDER BY agent, question, value, parent
"""


def fairness(reader: Reader, probed: Probed, request: ProbeQuestion) -> Fairness:
    """What the forks of a probe decided, of the runs that were asked for."""
    given: Sequence[Any] = (probed.probe, probed.runs, request.question)
    [noise] = reader.rows(_NOISE, [*given, request.alpha])
    return Fairness(
        probed=probed,
        asked=request,
        position=reader.position,
        noise=noise,
        summary=reader.rows(_SUMMARY, [*given, request.alpha]),
        comparisons=reader.rows(
            _COMPARISONS, [*given, request.alpha, request.margin, request.score_margin]
        ),
        pairs=reader.rows(_PAIRS, given),
    )


NEAREST_MAX = 5
"""How many paths an error names."""

KINDS = ("tool", "model", "resource", "memory")
"""Calls whose answers a fork can be given: those of the program's own tools."""


class NoSuchPath(CallerError):
    """A path that leads to no value in any of the runs."""

    def __init__(self, path: str, known: Iterable[str], runs: int, beside: str = "") -> None:
        there = sorted(set(known))
        near = difflib.get_close_matches(path, there, NEAREST_MAX, 0.3)
        if near:
            shown = f"the nearest: {', '.join(near)}"
        elif there:
            shown = f"there are: {', '.join(there[:NEAREST_MAX])}"
        else:
            shown = "no call returned anything before a decision"
        super().__init__(
            f"{path!r} is no value that a call returned before a decision, in none of "
            f"{counted(runs, 'run')}{beside}; {shown}"
        )
        self.path = path
        self.nearest = near


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run's value stands.

    Attributes:
        run: The run.
        agent: Whose call gave it first.
        step: That call.
        tool: What was called.
        arguments: The digest of what it was called with.
        within: Where in its result the value stands.
        value: The value.
        at: The position of the commit that holds the call's intent: the fork ends before it.
        label: The label of who was given it.
        beside: Other calls before the decision whose results have an equal value under the same
            last name, as paths: those keep it.
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


class Searched(msgspec.Struct, frozen=True):
    """What was found in a run: the value, or why there is none; and the paths that it has."""

    run: str
    site: Site | None
    why: str = ""
    paths: frozenset[str] = frozenset()
    argument: str = ""
    """The call of which the path is an argument, where it is one."""


class _CallResult(msgspec.Struct, frozen=True):
    """A call's result, with where it stands."""

    agent: str
    step: Step
    at: int
    result: Plain
    arguments: Plain


def paths_of(tool: str, within: Sequence[str]) -> tuple[str, ...]:
    """How a value of a call's result may be named: with the tool's name before it, or without."""
    inside = DOT.join(within)
    return (f"{tool}{DOT}{inside}", inside) if inside else (tool,)


async def search(
    workspace: Workspace, run: str, path: str, question: str | None = None
) -> Searched:
    """Look for the value at a path in what calls returned before a run's last decision (on a
    question that begins with `question`, if one is given). The first call that returned it counts.

    Raises NotFound for a run that is not there, Corrupt.
    """
    history = await workspace.states.history(run)
    decided, given = await _given(workspace, history, question)
    if decided is None:
        query = f" on a question that begins with {question!r}" if question else ""
        return Searched(run, None, f"no decision{query} is on record")
    known: dict[str, list[tuple[_CallResult, tuple[str, ...], Plain]]] = {}
    arguments: dict[str, str] = {}
    for each in given:
        for within, value in leaves(each.result):
            for name in paths_of(each.step.tool, within):
                known.setdefault(name, []).append((each, within, value))
        for within, _ in leaves(each.arguments):
            for name in paths_of(each.step.tool, within):
                arguments.setdefault(name, f"{each.agent}#{each.step.number} {each.step.tool}")
    paths = frozenset(known)
    if path not in known:
        why = f"no call before its decision returned {path}"
        return Searched(run, None, why, paths, arguments.get(path, ""))
    first, within, value = known[path][0]
    step = first.step
    if step.kind not in KINDS or step.streamed:
        what = "a stream" if step.streamed else f"a step of kind {step.kind}"
        return Searched(
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
    label = parse(folded(first.agent, commits_by_agent(history)[first.agent]).state.label)
    site = Site(
        run=run,
        agent=first.agent,
        step=step.number,
        tool=step.tool,
        arguments=marked,
        within=within,
        value=value,
        at=first.at,
        label=label,
        beside=tuple(beside),
    )
    return Searched(run, site, "", paths)


async def _given(
    workspace: Workspace, history: list[Stored], question: str | None
) -> tuple[int | None, list[_CallResult]]:
    """Where the last decision stands, and what calls had returned by then, by position."""
    positions: dict[tuple[str, int], int] = {}
    for stored in history:
        if isinstance(stored.stream, AgentStream):
            for version in range(stored.commit.version, stored.commit.last_version + 1):
                positions[stored.stream.agent, version] = stored.position
    states: dict[str, AgentState] = {
        name: folded(name, commits).state for name, commits in commits_by_agent(history).items()
    }
    decided = [
        positions[name, noted.version]
        for name, state in states.items()
        for noted in state.facts
        if (query := getattr(noted.fact, "question", None)) is not None
        and query.startswith(question or "")
    ]
    if not decided:
        return None, []
    last = max(decided)
    fetch = Fetcher(workspace)
    found: list[_CallResult] = []
    for name, state in states.items():
        reader = _reader(state)
        for step in state.steps.values():
            if step.status is not StepStatus.COMPLETED or step.outcome_version is None:
                continue
            if positions[name, step.outcome_version] > last:
                continue
            try:
                result = await fetch(reader.result(step))
                arguments = await fetch(reader.arguments(step))
            except (NotFound, Corrupt):
                continue  # a blob that was erased: no value to find there
            found.append(_CallResult(name, step, positions[name, step.version], result, arguments))
    return last, sorted(found, key=lambda each: each.at)


def _reader(state: AgentState) -> payloads.Reader:
    return payloads.Reader(lambda: state)


class Swapping(msgspec.Struct, frozen=True):
    """What is to be swapped: `customer.gender=female,male`."""

    path: str
    values: tuple[str, ...]
    exact: bool = False
    """Whether the values were given as JSON, each with its type."""

    @classmethod
    def of(cls, text: str) -> Swapping:
        """From its text. Raises BadValue."""
        path, equals, listed_ = text.partition("=")
        remedy = "give PATH=VALUE,VALUE, such as customer.gender=female,male"
        if not path.strip() or not equals:
            raise BadValue("--swap", f"{text!r:.80}", remedy)
        exact = listed_.strip().startswith("[")
        if exact:
            try:
                given = msgspec.json.decode(listed_)
            except msgspec.DecodeError as error:
                raise BadValue("--swap", f"{listed_!r:.80} ({error})", remedy) from error
            found = [msgspec.json.encode(each).decode() for each in given]
        else:
            found = [each.strip() for each in listed_.split(",")]
        if len(set(found)) < 2 or len(set(found)) < len(found):  # noqa: PLR2004 -- a swap is between two
            fact = f"{counted(len(found), 'value')} ({listed(found)})" if found else "no value"
            raise BadValue("--swap", fact, "give two different values or more")
        return cls(path.strip(), tuple(found), exact)

    def typed(self, recorded: Plain) -> list[Plain]:
        """The values, as what they stand in the place of: texts for a text, else what they are as
        JSON, where they are that.
        """
        return [self._one(text, recorded) for text in self.values]

    def _one(self, text: str, recorded: Plain) -> Plain:
        if not self.exact and type(recorded) is str:
            return text
        try:
            found: Plain = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
        return found
