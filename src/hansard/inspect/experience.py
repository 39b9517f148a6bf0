"""Experiences: learn one from runs, list the saved ones, and search for one that fits a task."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

import msgspec

from hansard.agents.artifacts import versions
from hansard.agents.artifacts.experiences import KeptVersion
from hansard.agents.workspace import Workspace
from hansard.domain.actions import SLOT
from hansard.domain.choices import NOTHING, counted
from hansard.domain.errors import BadValue
from hansard.domain.experience import distil
from hansard.domain.experience import experience as contents
from hansard.domain.experience.distil import Demonstration, ShownAction, Wording, tokens
from hansard.domain.experience.experience import EXPERIENCES, Experience, ExperienceStanding, Lesson
from hansard.domain.ids import host_in
from hansard.inspect import trace as traces
from hansard.inspect.actions import action_cache
from hansard.inspect.answer import Answer, Listed, by_name
from hansard.inspect.state import contexts, window
from hansard.inspect.trace import Payloads
from hansard.projections.snapshots import Reader
from hansard.projections.table_files import statements

_SQL = statements(__file__)


# Saved experiences: list them, their versions, and search for one that fits a task.

HITS_MAX = 10
"""Default number of search results."""

HITS_LIMIT_MAX = 1_000
"""Most search results that can be requested."""

DEPTH = 200
"""Search results by words whose wording is matched with the task."""

QUESTION_CHARACTERS_MAX = 4_000
"""Longest task text in characters, as for learning."""

_USABLE = (ExperienceStanding.CONFIRMED, ExperienceStanding.GUIDES)


class KeptExperience(msgspec.Struct, tag_field="kind", tag="experience", kw_only=True):
    """Saved experience in its newest version.

    Attributes:
        experience: Its name.
        version: The newest version.
        digest: SHA-256 of that version's files in RFC 8785 form, hexadecimal.
        description: Its purpose.
        task: The wording of the task, each slot as `{{name}}`.
        standing: guides, confirmed, untrusted, quarantined or retired.
        tools: The tools that its actions call.
        hosts: The hosts of the pages it acts on.
        checks: The number of its check functions.
        procedure: SHA-256 of its wording and graph, hexadecimal: equal for duplicates.
        replays: The number of replays with a recorded outcome.
        successes: The number of replays that completed with every check passed.
        unfinished: The number of replays without a recorded outcome: killed and not resumed, or
            in progress. They count in no share.
        success_low: Lower end of Wilson's 95 % interval of the share of successes; None without
            replays.
        heals: The number of versions that are heals.
        heals_unreviewed: The number of heals in use without a confirmation.
        changed_at: The time of its newest version, UTC.
    """

    experience: str
    version: int
    digest: str
    description: str
    task: str
    standing: ExperienceStanding
    tools: list[str]
    hosts: list[str]
    checks: int
    procedure: str
    replays: int
    successes: int
    unfinished: int
    success_low: float | None
    heals: int
    heals_unreviewed: int
    changed_at: datetime


class KeptExperiences(Listed):
    """Saved experiences.

    Attributes:
        position: The position of the log.
        experiences: By name.
    """

    _listed: ClassVar[str] = "experiences"
    experiences: list[KeptExperience]


class ExperienceChange(msgspec.Struct, tag_field="kind", tag="change", kw_only=True):
    """Version of an experience, or an event about one.

    Attributes:
        experience: Its name.
        version: The version.
        change: distilled, confirmed, healed, installed, replayed or retired.
        digest: For a version, the digest of its files.
        parent: For a version, the version it was made from.
        checks: The number of check functions of the version or the replay.
        node: For a heal, the node.
        run: For a heal or a replay, its run.
        success: For a replay, whether it completed with every check passed.
        key: For an installed version, the public key of its publisher.
        author: The author.
        because: The reason; for a replay its error.
        at: The time, UTC.
    """

    experience: str
    version: int | None
    change: str
    digest: str | None
    parent: int | None
    checks: int | None
    node: str | None
    run: str | None
    success: bool | None
    key: str | None
    author: str
    because: str | None
    at: datetime


class ExperienceLog(Listed):
    """History of an experience.

    Attributes:
        position: The position of the log.
        changes: The oldest first.
    """

    _listed: ClassVar[str] = "changes"
    changes: list[ExperienceChange]


class ShownExperience(Answer, kw_only=True):
    """Version of an experience with its history.

    Attributes:
        experience: The content.
        digest: SHA-256 of the version's files in RFC 8785 form, hexadecimal.
        standing: The permitted use.
        label: Its confidentiality and trust; empty for public and trusted.
        changes: The history of all versions, the oldest first.
    """

    experience: Experience
    digest: str
    standing: ExperienceStanding
    label: str
    changes: list[ExperienceChange]


class FileDiff(msgspec.Struct, tag_field="kind", tag="file", kw_only=True):
    """Difference of a file, in the format of `diff -u`."""

    path: str
    diff: str


class ExperienceDiff(Answer, kw_only=True):
    """Difference of two versions by file; empty if they are equal."""

    _lines: ClassVar[tuple[str, ...]] = ("files",)

    before: str
    after: str
    files: list[FileDiff]


class ExperienceHit(msgspec.Struct, tag_field="kind", tag="hit", kw_only=True):
    """Experience that fits a query, with reasons.

    Attributes:
        experience: Its name.
        version: Its newest version.
        standing: The permitted use.
        description: Its purpose.
        task: The wording of the task.
        params: The values of its slots if the query has the task's wording; else None.
        score: The score of its words (bm25): the higher the better, comparable within one answer;
            0 for a query without words.
        success_low: Lower end of Wilson's 95 % interval of the share of successes (E. B. Wilson,
            "Probable inference, the law of succession, and statistical inference", JASA 22, 1927);
            None without replays.
        replays: The number of replays behind it.
        cost: The mean cost of models of a run with a replay; None if unknown.
        seconds: The mean duration of the calls of such a run; None without replays.
        duplicates: Other experiences with equal wording and graph that fit less well; they are no
            hits themselves.
        why: The reasons for and against it, in words.
    """

    experience: str
    version: int
    standing: ExperienceStanding
    description: str
    task: str
    params: dict[str, str] | None
    score: float
    success_low: float | None
    replays: int
    cost: float | None
    seconds: float | None
    why: list[str]
    duplicates: list[str] = []


class ExperienceHits(Answer):
    """Experiences that fit a task.

    Attributes:
        position: The position of the log.
        hits: The best first.
        more: Whether a limit left out others.
    """

    position: int
    hits: list[ExperienceHit]
    more: bool = False

    def lines(self) -> Iterator[object]:
        """Yield each hit, then the position."""
        yield from self.hits
        yield {
            "kind": "hits",
            "count": len(self.hits),
            "more": self.more,
            "position": self.position,
        }


class Words(Protocol):
    """Ranking of texts by the words of a query: `hansard.projections.file_search.FileWords`."""

    def ranked(
        self, tree: Mapping[str, str], question: str, limit: int, /
    ) -> list[tuple[str, float, str]]:
        """Return path, score and excerpt of the matches, best first, at most `limit`."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class ExperienceIndex:
    """Index of the experiences of one generation of tables.

    Another search of the same tables reads nothing again.
    """

    def __init__(self, words: Words) -> None:
        self.words = words
        self._held: tuple[tuple[object, ...], _NamedExperiences] = ((), _NamedExperiences.of([]))

    def kept(self, reader: Reader) -> _NamedExperiences:
        """Return the experiences in the tables."""
        of = (reader.path, reader.position, reader.digest)
        known, named = self._held
        if of != known:
            named = _NamedExperiences.of(experiences(reader).experiences)
            self._held = (of, named)
        return named

    def close(self) -> None:
        """Let go of what it holds."""
        self.words.close()


class _NamedExperiences(msgspec.Struct, frozen=True):
    """Experiences by name, those not retired, and the words that find each."""

    every: dict[str, KeptExperience]
    in_use: dict[str, KeptExperience]
    texts: dict[str, str]

    @classmethod
    def of(cls, kept: Sequence[KeptExperience]) -> _NamedExperiences:
        """Build the index of these experiences."""
        retired = ExperienceStanding.RETIRED
        return cls(
            {each.experience: each for each in kept},
            {each.experience: each for each in kept if each.standing is not retired},
            {each.experience: f"{each.task}\n{each.description}" for each in kept},
        )

    def able(self, request: ExperienceQuery) -> dict[str, KeptExperience]:
        """Return the experiences that match the filters by tool and address."""
        some = self.every if request.retired else self.in_use
        if not (request.tools or request.address):
            return some
        return {name: each for name, each in some.items() if _matches(each, request)}


class ExperienceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query for experiences.

    Attributes:
        task: The task's text, or words of it; empty for any.
        tools: Tools that an experience must call.
        address: The place of the task: an address, or a host; empty for any.
        limit: Most results.
        retired: Whether to include retired experiences.
    """

    task: str = ""
    tools: tuple[str, ...] = ()
    address: str = ""
    limit: int = HITS_MAX
    retired: bool = False


def experiences(reader: Reader) -> KeptExperiences:
    """Return the saved experiences by name."""
    kept = msgspec.convert(reader.rows(_SQL["list"], []), list[KeptExperience])
    return KeptExperiences(position=reader.position, experiences=kept)


def log(reader: Reader, name: str) -> ExperienceLog:
    """Return the history of an experience. Raises NotFound."""
    rows = [dict(each) for each in reader.rows(_SQL["log"], [name])]
    changes = msgspec.convert(rows, list[ExperienceChange])
    if not changes:
        raise versions.missing(EXPERIENCES, name)
    return ExperienceLog(position=reader.position, changes=changes)


def shown(version: KeptVersion, changes: ExperienceLog) -> ShownExperience:
    """Return a version with the history of its experience."""
    return by_name(ShownExperience, version, changes, label=str(version.label or ""))


def difference(
    before: Mapping[str, str], after: Mapping[str, str], named: tuple[str, str]
) -> ExperienceDiff:
    """Compare the files of two versions; `named` are their labels."""
    files = []
    for path in sorted({*before, *after}):
        one, other = (each.get(path, "").splitlines(keepends=True) for each in (before, after))
        names = [f"{each}/{path}" for each in named]
        diff = "".join(difflib.unified_diff(one, other, names[0], names[1]))
        if diff:
            files.append(FileDiff(path=path, diff=diff))
    return ExperienceDiff(before=named[0], after=named[1], files=files)


def find(reader: Reader, request: ExperienceQuery, index: ExperienceIndex) -> ExperienceHits:
    """Find the experiences that fit a query, best first, each with reasons.

    First those whose task has the wording of the query, then by its words (bm25); among equals,
    those that may be used come first, then by the lower end of the share of successes, then by
    cost.

    Raises:
        BadValue: The text or the limit is invalid.
        BadQuery: The text has no words.
    """
    _check(request)
    kept = index.kept(reader)
    able = kept.able(request)
    scores = dict.fromkeys(able, 0.0)
    if request.task:
        most = len(kept.every) if len(able) < len(kept.every) else DEPTH
        ranked = index.words.ranked(kept.texts, request.task, most)
        scores = {name: score for name, score, _ in ranked if name in able}
    done = [name for name in scores if able[name].replays]
    rows = reader.rows(_SQL["costs"], [done]) if done else []
    costs = {str(each["experience"]): each for each in rows}
    hits = [_hit(able[name], score, request, costs.get(name)) for name, score in scores.items()]
    hits = _without_duplicates(sorted(hits, key=_order), able)
    return ExperienceHits(
        position=reader.position, hits=hits[: request.limit], more=len(hits) > request.limit
    )


def _without_duplicates(
    hits: Sequence[ExperienceHit], kept: Mapping[str, KeptExperience]
) -> list[ExperienceHit]:
    """Keep the best of experiences with equal wording and graph; it names the others."""
    first: dict[str, ExperienceHit] = {}
    for hit in hits:
        same = first.setdefault(kept[hit.experience].procedure or hit.experience, hit)
        if same is not hit:
            same.duplicates.append(hit.experience)
    return list(first.values())


def _check(request: ExperienceQuery) -> None:
    if not 1 <= request.limit <= HITS_LIMIT_MAX:
        raise BadValue("limit", f"{request.limit}", f"give 1 to {HITS_LIMIT_MAX:,}")
    if len(request.task) > QUESTION_CHARACTERS_MAX:
        fact = f"{counted(len(request.task), 'character')}, more than {QUESTION_CHARACTERS_MAX:,}"
        raise BadValue("task", fact, "give the task without its material")
    if not (request.task or request.tools or request.address):
        remedy = "give the task's text, a tool or an address; `hansard experience list` has all"
        raise BadValue("find", "the query is empty", remedy)


def _matches(each: KeptExperience, request: ExperienceQuery) -> bool:
    if not set(request.tools) <= set(each.tools):
        return False
    return not request.address or _matches_address(request.address, each.hosts)


def _matches_address(address: str, hosts: Sequence[str]) -> bool:
    url = address if "//" in address else f"https://{address}"
    try:
        return bool(urlsplit(url).hostname) and host_in(url, tuple(hosts))
    except ValueError as error:
        remedy = "give an address, or a host: https://shop.example.org/"
        raise BadValue("address", f"{address!r:.80} ({error})", remedy) from None


def _hit(
    each: KeptExperience, score: float, request: ExperienceQuery, used: Mapping[str, Any] | None
) -> ExperienceHit:
    params = slot_values_like(each.task, request.task) if request.task else None
    hit = by_name(
        ExperienceHit,
        each,
        params=params,
        score=score,
        cost=used["cost"] if used else None,
        seconds=used["seconds"] if used else None,
        why=[],
    )
    hit.why = _why(each, hit, request)
    return hit


def _why(each: KeptExperience, hit: ExperienceHit, request: ExperienceQuery) -> list[str]:
    why = []
    if hit.params is not None:
        why.append("the text has the wording of its task")
    elif request.task:
        query = {word.lower() for word in tokens(request.task) if word.isalnum()}
        has = {word.lower() for word in tokens(f"{each.task} {each.description}"[:4_000])}
        both = sorted(query & has)
        why.append(f"words in common: {', '.join(both)}" if both else "forms of its words")
    if request.tools:
        why.append(f"it calls {', '.join(request.tools)}")
    if request.address:
        why.append(f"it acts on {', '.join(each.hosts)}")
    if each.success_low is None:
        why.append("never replayed")
    else:
        share = f"{each.successes} of {each.replays} replays succeeded"
        why.append(f"{share}: at least {each.success_low:.0%} (Wilson, 95 %)")
    if each.unfinished:
        why.append(f"{each.unfinished} without a recorded outcome")
    if hit.cost is not None:
        why.append(f"{hit.cost:.4g} USD of models a replay")
    if each.standing not in _USABLE:
        why.append(f"not usable: {each.standing.value}")
    elif each.standing is ExperienceStanding.GUIDES:
        why.append("it may guide, not act: its checks are not confirmed")
    return why


def _order(hit: ExperienceHit) -> tuple[Any, ...]:
    return (
        hit.params is None,
        -hit.score,
        hit.standing not in _USABLE,
        -(hit.success_low or 0.0),
        hit.cost if hit.cost is not None else float("inf"),
        hit.experience,
    )


def slot_values_like(task: str, text: str) -> dict[str, str] | None:
    """Return the values of a task's slots in a text of its wording; None if it has another one."""
    parts = SLOT.split(task)
    if len(parts) == 1:
        return {} if tokens(task) == tokens(text) else None
    trimmed = tuple(part if at % 2 else part.strip() for at, part in enumerate(parts))
    return Wording(parts=trimmed).read(text)


RUNS_MAX = 1_000


async def demonstration(
    workspace: Workspace,
    run: str,
    fetch: Payloads,
    task: str = "",
    params: Mapping[str, str] = NOTHING,
) -> Demonstration:
    """Return a run as a demonstration of a task.

    `task` defaults to the first message of a user in the run; `params` are the values of slots.

    Raises:
        NotFound: There is no such run.
        BadValue: The run has no text of the task.
    """
    cache = await action_cache(workspace, run, fetch)
    return Demonstration(
        task=task or await _first_request(workspace, run, fetch),
        actions=tuple(ShownAction(action=each) for each in cache.actions),
        success=cache.final_state.success,
        source=run,
        seconds=cache.final_state.duration,
        params=dict(params),
    )


class LearnedStep(msgspec.Struct, frozen=True, kw_only=True):
    """Step of a run that a sentence can cite.

    Attributes:
        ref: `run/agent#step`.
        tool: The tool that was called.
        status: `completed`, `failed` ...
        arguments: The arguments, as recorded.
        error: The error of a failed step.
    """

    ref: str
    tool: str
    status: str
    arguments: Any
    error: str


class LearnedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Run that is learned from.

    Attributes:
        run: Its id.
        success: Whether its last action succeeded; from a failed run only lessons are kept.
        steps: Its steps, in order.
    """

    run: str
    success: bool
    steps: list[LearnedStep]


class LearnedFrom(msgspec.Struct, frozen=True, kw_only=True):
    """Input of a function that writes a plan or lessons.

    Attributes:
        experience: The experience learned without a model.
        runs: The runs, with their steps.
    """

    experience: Experience
    runs: list[LearnedRun]


Sentences = Callable[[LearnedFrom], Iterable[Lesson] | Awaitable[Iterable[Lesson]]]
"""Function of the user, with or without a model: sentences without a cited step are dropped."""


async def learned(  # noqa: PLR0913 -- what a caller may say of runs
    workspace: Workspace,
    name: str,
    runs: Sequence[str],
    tasks: Mapping[str, str],
    description: str = "",
    *,
    params: Mapping[str, Mapping[str, str]] = NOTHING,
    plan: Sentences | None = None,
    lessons: Sentences | None = None,
    parent: Experience | None = None,
) -> Experience:
    """Learn an experience from runs of one kind of task.

    It has no checks until a person confirms them.

    Raises:
        NotFound: There is no such run.
        BadValue: A run has no text of the task, the runs are of several kinds of task, no two of
            them acted alike, `params` do not fit, a slot holds several values, or a function
            returns no sentences.
    """
    if parent is not None:
        runs = [*parent.sources, *parent.failed, *runs]
        description = description or parent.description
    if not 0 < len(runs) <= RUNS_MAX:
        raise BadValue("runs", f"{len(runs):,}", f"give 1 to {RUNS_MAX:,}")
    unknown = [run for run in params if run not in runs]
    if unknown:
        fact = "it is not among the runs to learn from"
        raise BadValue(f"params[{unknown[0]!r:.80}]", fact, "give values only for these runs")
    fetch = Payloads(workspace)
    doings = [
        await demonstration(workspace, run, fetch, tasks.get(run, ""), params.get(run, NOTHING))
        for run in dict.fromkeys(runs)
    ]
    distilled = distil.distilled(doings)
    if len(distilled) > 1:
        kinds = "; ".join(f"{each.wording.template!r:.100}" for each in distilled[:4])
        fact = f"the runs are of {counted(len(distilled), 'kind')} of task: {kinds}"
        raise BadValue(f"experience {name!r:.80}", fact, "give runs of one kind")
    distil.demand_single_values(doings, distilled[0].wording)
    version = parent.version + 1 if parent is not None else 1
    made = contents.made(name, distilled[0], description=description, version=version)
    if parent is not None:
        made = msgspec.structs.replace(made, parent=contents.digest(parent))
    if plan is None and lessons is None:
        return made
    material = LearnedFrom(
        experience=made,
        runs=[
            LearnedRun(
                run=each.source,
                success=each.success,
                steps=await _steps(workspace, each.source, fetch),
            )
            for each in doings
        ],
    )
    sentences = {"plan": await _sentences_from("plan", plan, material)}
    sentences["lessons"] = await _sentences_from("lessons", lessons, material)
    refs = {each.run: {step.ref for step in each.steps} for each in material.runs}
    told_so = contents.with_sentences(made, refs, **sentences)
    contents.demand_few(told_so, f"experience {name!r:.80}")
    return told_so


async def _steps(workspace: Workspace, run: str, fetch: Payloads) -> list[LearnedStep]:
    history = await workspace.states.history(run, await workspace.points.up_to(run, None))
    steps = []
    async for step in traces.trace(run, history).whole(fetch):
        detail = step.traced
        steps.append(
            by_name(
                LearnedStep,
                detail,
                ref=f"{run}/{detail.agent}#{detail.step}",
                error=detail.error.message if detail.error is not None else "",
            )
        )
    return steps


async def _sentences_from(
    what: str, request: Sentences | None, material: LearnedFrom
) -> list[Lesson]:
    """Call a function of the user for sentences. Raises BadValue for an invalid sentence."""
    if request is None:
        return []
    raw: Any = request(material)
    if inspect.isawaitable(raw):
        raw = await raw
    text = list(raw) if isinstance(raw, Iterable) and not isinstance(raw, str) else [raw]
    for each in text:
        if not isinstance(each, Lesson):
            fact = f"it returned a {type(each).__name__}, not a hansard.actions.Lesson"
            remedy = "give hansard.actions.Lesson(says=..., rests_on=(step.ref, ...))"
            raise BadValue(what, fact, remedy)
    return text


async def _first_request(workspace: Workspace, run: str, fetch: Payloads) -> str:
    """Return the first message of a user in a run. Raises NotFound, BadValue."""
    up_to = await workspace.points.up_to(run, None)
    conversation = await contexts(workspace, run, up_to, None)
    for agent in conversation.agents:
        for _, message in window(agent.state):
            content = await fetch.value(message.content)
            if message.role == "user" and isinstance(content, str) and content.strip():
                return content.strip()
    remedy = "state it: --task RUN=TEXT, or tasks= in Python; or record a user message in the run"
    raise BadValue(f"run {run}", "no user message states the task", remedy)
