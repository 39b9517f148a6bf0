"""The optimization loop of prompts.

Candidates are proposed and evaluated on one part of the tasks, the best is compared with the base
version on the other part, and an alias is moved if the verdict is *better*.

An optimization is a run, each evaluation and each proposal a step of it, so that resuming a killed
one answers those from the record. The split of the tasks follows from their names, and is in the
run's checkpoint before the first evaluation. The comparison is an experiment, registered before its
first trial; each trial is a run of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import math
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import msgspec

from hansard.agents.artifacts.prompts import Prompt
from hansard.agents.experiments import plan
from hansard.agents.flow import is_coroutine_function
from hansard.bus.portal import LoopPortal, Portal
from hansard.client.record import AsyncRecord, Record
from hansard.domain import ids
from hansard.domain import prompt as prompts
from hansard.domain.choices import Brief, check_options
from hansard.domain.errors import BadValue, Refused
from hansard.domain.prompt import PromptText
from hansard.domain.redaction import check_names
from hansard.domain.steps import PromptUse
from hansard.inspect.experiments import PromptEvidence

AGENT = "optimizer"
STAGE = "optimization"
"""Name of the checkpoint that holds the prompt and the split of the tasks."""

WORKFLOW, TRIAL = "optimize prompt", "optimize prompt: trial"

BUDGET = 200
"""Default number of evaluations."""

AGAIN = "run it again to continue: results on record are not computed again"
"""Note added to any exception that ends an optimization or a comparison early."""

BASE, CANDIDATE = "base", "candidate"
"""The arms of the comparison."""

_OF_EVIDENCE = ("arm", "baseline", "metric", "verdict", "difference", "low", "high", "tasks")

CANDIDATES_MAX = 50
"""Most versions that one optimization adds."""

DULL_MAX = 3
"""Proposals in a row without a new text that end a search."""

Evaluate = Callable[[PromptText, Any], float]
"""Returns the score of a text on a task; may call tools. `text.fill(query=...)` sets variables."""

Propose = Callable[[str, Sequence[Mapping[str, Any]]], str]
"""Returns a new text from one and its `{"task", "input", "score"}`s, the worst first."""


class BudgetSpent(Exception):
    """The search has no evaluation left."""


class PromptCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate text of a search.

    Attributes:
        text: The text.
        parents: The candidates that it was derived from, by their indexes in the list.
        score: The mean score over the tasks of the search.
    """

    text: str
    parents: tuple[int, ...] = ()
    score: float


class PromptSearch(Brief):
    """The input of a search: the tasks of one half, and functions to evaluate and propose.

    Attributes:
        text: The text to begin with.
        tasks: The tasks, by name.
        left: The number of evaluations left.
    """

    def __init__(
        self, text: str, tasks: Mapping[str, Any], left: int, evaluate: Evaluate, propose: Propose
    ) -> None:
        self.text = text
        self.tasks = dict(tasks)
        self.left = left
        self._evaluate = evaluate
        self._propose = propose
        self._known: dict[tuple[str, str], float] = {}
        self.evaluations = 0

    def evaluate(self, text: str, task: str) -> float:
        """Return the score of a text on a task; repeated calls are free. Raises BudgetSpent."""
        if (text, task) not in self._known:
            if self.left < 1:
                raise BudgetSpent
            self.left -= 1
            self.evaluations += 1
            self._known[text, task] = self._evaluate(PromptText(text), self.tasks[task])
        return self._known[text, task]

    def mean(self, text: str) -> float:
        """Return the mean score of a text over all tasks of the search. Raises BudgetSpent."""
        return math.fsum(self.evaluate(text, task) for task in self.tasks) / len(self.tasks)

    def propose(self, text: str, tasks: Sequence[str] | None = None) -> str:
        """Propose another text, from the results of one on some of the tasks, or all."""
        shown = [task for task in (tasks or self.tasks) if (text, task) in self._known]
        shown.sort(key=lambda task: self._known[text, task])
        items = [
            {"task": task, "input": self.tasks[task], "score": self._known[text, task]}
            for task in shown
        ]
        return self._propose(text, items)

    def _brief(self) -> dict[str, Any]:
        return {"tasks": list(self.tasks), "left": self.left}


Searcher = Callable[[PromptSearch], Sequence[PromptCandidate]]
"""Returns candidates, the base text first, each after its parents; `gepa.search(...)` builds one.
"""


def hill_climb(search: PromptSearch) -> list[PromptCandidate]:
    """Propose a text from the best one so far, until the budget is spent."""
    candidates = [PromptCandidate(text=search.text, score=search.mean(search.text))]
    dull = 0
    while len(candidates) < CANDIDATES_MAX and dull < DULL_MAX and search.left >= len(search.tasks):
        best = _best(candidates)
        text = search.propose(candidates[best].text)
        if any(each.text == text for each in candidates):
            dull += 1
            continue
        dull = 0
        candidates.append(PromptCandidate(text=text, parents=(best,), score=search.mean(text)))
    return candidates


def _best(candidates: Sequence[PromptCandidate]) -> int:
    """Return the index of the best candidate; of equal ones the first."""
    return max(range(len(candidates)), key=lambda place: (candidates[place].score, -place))


class Optimized(Brief, msgspec.Struct, kw_only=True):
    """The result of an optimization.

    Attributes:
        prompt: The prompt's name.
        run: The id of the optimization's run.
        base: The version that it began with.
        best: The version with the best mean score on the tasks of the search.
        versions: The mean score of each version that was tried, on the tasks of the search.
        experiment: The experiment that compared `best` with `base`; empty if they are the same.
        evidence: The verdict of the experiment; None without one.
        promoted: True if the alias names `best` now.
        evaluations: Number of evaluations, those of the comparison included.
        searched: The tasks of the search.
        held_out: The tasks of the comparison.
    """

    prompt: str
    run: str
    base: int
    best: int
    versions: dict[int, float]
    experiment: str
    evidence: PromptEvidence | None
    promoted: bool
    evaluations: int
    searched: list[str]
    held_out: list[str]


class OptimizeOptions(TypedDict, total=False):
    """Options of `optimize`.

    Attributes:
        search: The search for candidates: `hill_climb` by default, or one of
            `hansard.ext.optimize.gepa`.
        metric: Name of the score; `score` by default.
        alias: The alias to move; `production` by default.
        budget: Most evaluations, those of the comparison included; 200 by default.
        holdout: Share of the tasks held out for the comparison; 0.5 by default.
        salt: Text that the choice of held-out tasks depends on.
        by: The author on record; `optimizer` by default.
    """

    search: Searcher
    metric: str
    alias: str
    budget: int
    holdout: float
    salt: str
    by: str


class OptimizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of an optimization."""

    reference: str
    tasks: Any
    evaluate: Evaluate
    propose: Propose
    search: Searcher = hill_climb
    metric: str = "score"
    alias: str = "production"
    budget: int = BUDGET
    holdout: float = 0.5
    salt: str = ""
    by: str = "optimizer"

    def check(self) -> None:
        """Raise BadValue or BadName if an argument is invalid."""
        if not isinstance(self.tasks, Mapping) or not all(
            isinstance(name, str) for name in self.tasks
        ):
            raise BadValue("tasks", f"{self.tasks!r:.80}", "give a mapping of tasks by name")
        for name in self.tasks:
            ids.name("task", name)
        ids.name("metric", self.metric)
        prompts.check_alias(self.alias)
        if not 0 < self.holdout < 1:
            raise BadValue("holdout", f"{self.holdout}", "give a share between 0 and 1")


def halves(request: OptimizeRequest, name: str) -> tuple[list[str], list[str]]:
    """Return the tasks of the search and those that are held out.

    Both are ordered by a digest of salt, prompt and task, so that the split never depends on the
    order of the arguments. Raises BadValue.
    """

    def place(task: str) -> bytes:
        raws = [part.encode() for part in (request.salt, name, task)]
        return hashlib.sha256(b"".join(len(raw).to_bytes(8, "big") + raw for raw in raws)).digest()

    order = sorted(request.tasks, key=place)
    count = round(len(order) * request.holdout)
    held, searched = order[:count], order[count:]
    if not held or not searched:
        fact = f"{len(order)}, of which {count} are held out"
        raise BadValue("tasks", fact, "give more, so that both halves have some")
    left = request.budget - 2 * len(held)
    if left < 2 * len(searched):
        fact = (
            f"{request.budget}, of which the comparison takes {2 * len(held)}, and each candidate "
            f"{len(searched)}"
        )
        least = 2 * len(held) + 2 * len(searched)
        raise BadValue("budget", fact, f"give {least} evaluations or more, or fewer tasks")
    return searched, held


class _Stage(msgspec.Struct):
    """The checkpoint of an optimization, recorded before the first evaluation."""

    prompt: str
    base: int
    searched: list[str]
    held_out: list[str]


def optimize(
    record: Record,
    reference: str,
    tasks: Mapping[str, Any],
    *,
    evaluate: Evaluate,
    propose: Propose,
    **options: Unpack[OptimizeOptions],
) -> Optimized:
    """Optimize a prompt (docs/prompts.md).

    Candidates are proposed and evaluated on one part of the tasks. The best is compared with
    the base version on the held-out tasks, in an experiment that is registered first. An alias
    is moved if the verdict is *better*.

    The optimization is a run. After a kill, or an error of `evaluate` or `propose`, call it
    again: it is resumed, and results on record are not computed again.

    Args:
        record: The record that has the prompt.
        reference: The version to begin with.
        tasks: The tasks, by name: values that can be recorded.
        evaluate: Returns the score of a text on a task, the higher the better.
        propose: Returns another text, from one and its result on each task.
        **options: See `OptimizeOptions`.

    Raises:
        BadValue: There are too few tasks, the budget is too small for them, or a function
            returned no score or no text.
        NotFound: There is no such prompt.
        Refused: The optimization began with other tasks, or there is no such version.
    """
    return _optimized(record, _request(record, reference, tasks, evaluate, propose, options))


async def optimize_async(
    record: AsyncRecord,
    reference: str,
    tasks: Mapping[str, Any],
    *,
    evaluate: Callable[[PromptText, Any], Any],
    propose: Callable[[str, Sequence[Mapping[str, Any]]], Any],
    **options: Unpack[OptimizeOptions],
) -> Optimized:
    """Optimize a prompt; see `optimize`.

    `evaluate` and `propose` may be coroutine functions, which run on this loop: each call of
    one is a step, and no tool declared in Hansard may be called inside it. Plain functions run
    in a thread. After a cancellation, calling it again resumes the optimization.
    """
    # Searches block, so they run in a thread, with a record of the sync client over this loop.
    portal = LoopPortal(asyncio.get_running_loop())
    request = _request(
        record, reference, tasks, _waiting(portal, evaluate), _waiting(portal, propose), options
    )
    blocking = record._blocking(portal)  # noqa: SLF001 -- for slices
    work = asyncio.ensure_future(asyncio.to_thread(_optimized, blocking, request))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        portal.end()
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # retrieved, so that asyncio does not log it
        raise


def _request(
    record: Record | AsyncRecord,
    reference: str,
    tasks: Any,
    evaluate: Any,
    propose: Any,
    options: OptimizeOptions,
) -> OptimizeRequest:
    """Build a request from the arguments of `optimize`. Raises BadOption and BadValue."""
    check_options("optimize", options, OptimizeOptions.__annotations__)
    check_names("optimize", {"tasks": list(tasks)}, record.workspace.redaction)
    return OptimizeRequest(
        reference=reference, tasks=tasks, evaluate=evaluate, propose=propose, **options
    )


def _optimized(record: Any, request: OptimizeRequest) -> Optimized:
    """Optimize a prompt of a record of the sync client.

    The newest optimization of the prompt is resumed unless it completed or was cancelled: results
    recorded before a kill, or before an error of `evaluate` or `propose`, are not computed again.
    Raises BadValue, NotFound, Refused, and what `evaluate` and `propose` raise.
    """
    request.check()
    name, _ = prompts.split(request.reference)
    base: Prompt = record.prompts.get(request.reference)
    halves(request, name)
    workflow = f"{WORKFLOW} {name}"
    newest = next(iter(record.runs(workflow=workflow)), None)
    resumes = newest is not None and newest[1].status.value in ("open", "failed")
    options = {"run": newest[0]} if newest is not None and resumes else {}
    with record.run(
        workflow, agent=AGENT, labels={"prompt": name, "by": request.by}, **options
    ) as session:
        value = session.checkpoint_data(STAGE)
        if value is None:
            searched, held = halves(request, name)
            value = msgspec.to_builtins(_Stage(name, base.version, searched, held))
            session.checkpoint(STAGE, **value)
        stage = msgspec.convert(value, _Stage)
        missing = [task for task in (*stage.searched, *stage.held_out) if task not in request.tasks]
        if missing:
            message = (
                f"run {session.run} began with task {missing[0]!r:.80}, which is missing now: give "
                f"the same tasks, or end it (hansard run cancel {session.run}) and begin again"
            )
            raise Refused(message)
        with continues():
            return _Loop(record, request, stage, session).run()


def _waiting(portal: Portal, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for use in a thread; a coroutine function runs on the portal's loop."""

    def call(*args: Any) -> Any:
        async def awaited() -> Any:
            return await function(*args)

        return portal.run(awaited())

    return call if is_coroutine_function(function) else function


class _Loop:
    """One optimization, in its run."""

    def __init__(self, record: Any, request: OptimizeRequest, stage: _Stage, session: Any) -> None:
        self._record = record
        self._request = request
        self._stage = stage
        self._session = session
        self._trials = 0

    def run(self) -> Optimized:
        """Search, compare and promote."""
        stage, request = self._stage, self._request
        search = self._search()
        candidates = list(request.search(search))[:CANDIDATES_MAX]
        versions = self._added(candidates)
        best = versions[_best(candidates)]
        experiment, evidence = "", None
        if best != stage.base:
            experiment = f"{stage.prompt} {self._session.run}"
            self._compare(experiment, best)
            evidence = self._evidence(experiment)
        better = evidence is not None and evidence.verdict == "better"
        promoted = better and self._promote(experiment, best)
        means = {version: each.score for version, each in zip(versions, candidates, strict=True)}
        return Optimized(
            prompt=stage.prompt,
            run=self._session.run,
            base=stage.base,
            best=best,
            versions=means,
            experiment=experiment,
            evidence=evidence,
            promoted=promoted,
            evaluations=search.evaluations + self._trials,
            searched=stage.searched,
            held_out=stage.held_out,
        )

    def _search(self) -> PromptSearch:
        stage, request = self._stage, self._request
        base = self._record.prompts.get(f"{stage.prompt}@{stage.base}")
        propose: Propose = self._session.tool(name="propose", effects="composite")(
            _named(request.propose, "text", "results")
        )
        return PromptSearch(
            base.text,
            {task: request.tasks[task] for task in stage.searched},
            request.budget - 2 * len(stage.held_out),
            _evaluator(self._session, request.evaluate),
            propose,
        )

    def _added(self, candidates: Sequence[PromptCandidate]) -> list[int]:
        """Return the versions of the candidates, the base first. Adding a version again adds
        nothing.
        """
        stage = self._stage
        versions = [stage.base]
        base = self._record.prompts.get(f"{stage.prompt}@{stage.base}")
        for each in candidates[1:]:
            parents = tuple(dict.fromkeys(versions[place] for place in each.parents))
            version = self._record.prompts.add(
                stage.prompt,
                each.text,
                model=base.model,
                parameters=base.parameters,
                parents=parents[: prompts.PARENTS_MAX] or (stage.base,),
                reason=f"proposed in run {self._session.run}",
                metrics={f"{self._request.metric} in the search": each.score},
                by=self._request.by,
            )
            versions.append(version)
        return versions

    def _compare(self, experiment: str, best: int) -> None:
        """Register the experiment and run its trials."""
        stage, request = self._stage, self._request
        arms = {BASE: f"{stage.prompt}@{stage.base}", CANDIDATE: f"{stage.prompt}@{best}"}
        made = Comparison(
            experiment=experiment,
            question=f"Is version {best} of {stage.prompt} better than version {stage.base}?",
            arms=arms,
            tasks={task: request.tasks[task] for task in stage.held_out},
            evaluate=request.evaluate,
            metric=request.metric,
            workflow=f"{TRIAL} {stage.prompt}",
            by=request.by,
            key=self._session.run,
        )
        made.run(self._record)
        self._trials += len(arms) * len(stage.held_out)

    def _evidence(self, experiment: str) -> PromptEvidence | None:
        """Return the experiment's verdict, as `record.experiments.compare` reports it."""
        parts = self._record.experiments.compare(experiment, baseline=BASE).report.judged
        for row in parts[0].comparisons if parts else ():
            if row["default"] and row["arm"] == CANDIDATE and not row["slice"]:
                fields = {name: row[name] for name in _OF_EVIDENCE}
                return PromptEvidence(experiment=experiment, **fields)
        return None

    def _promote(self, experiment: str, best: int) -> bool:
        """Move the alias if it names the base, or nothing; return whether it now names `best`."""
        request, name = self._request, self._stage.prompt
        try:
            current = self._record.prompts.get(f"{name}@{request.alias}").version
        except Refused:
            because = f"better than version {self._stage.base} in experiment {experiment}"
            self._record.prompts.promote(
                f"{name}@{best}", request.alias, reason=because, by=request.by
            )
            return True
        if current == self._stage.base:
            self._record.prompts.promote(
                f"{name}@{best}", request.alias, experiment=experiment, by=request.by
            )
            return True
        return bool(current == best)


@contextlib.contextmanager
def continues() -> Generator[None]:
    """Add a note to any exception that leaves the block: running again continues."""
    try:
        yield
    except BaseException as error:
        error.add_note(AGAIN)
        raise


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of versions of prompts on the same tasks, as the arms of an experiment.

    Attributes:
        experiment: The name of the experiment.
        question: The question that it answers.
        arms: The version that each arm tries, as `rag@3`.
        tasks: The tasks, by name.
        evaluate: Returns the score of a text on a task.
        metric: The name of the score; more is better.
        workflow: The workflow of the trials.
        by: The author on record.
        key: A text that the ids of the trials depend on, beside arm and task.
    """

    experiment: str
    question: str
    arms: Mapping[str, str]
    tasks: Mapping[str, Any]
    evaluate: Evaluate
    metric: str
    workflow: str
    by: str
    key: str

    def run(self, record: Any) -> int:
        """Register the experiment and run its trials; return how many were already scored.

        An error of `evaluate`, or Ctrl-C, ends it; running it again evaluates only unscored trials.
        """
        made = plan(
            question=self.question,
            arms=[{"name": arm, "prompt": reference} for arm, reference in self.arms.items()],
            metrics=[{"name": self.metric, "better": "higher"}],
            unit="trial",
            planned=len(self.tasks),
        )
        record.experiments.register(self.experiment, made, by=self.by)
        begun = dict(record.runs(experiment=self.experiment))
        known = 0
        for task, (arm, reference) in itertools.product(self.tasks, self.arms.items()):
            run = ids.uuid8("trial", self.key, arm, task)
            if run in begun and begun[run].judged:
                known += 1
                continue
            score = self._trial(record, run, arm, task, reference)
            record.experiments.score(run, {self.metric: score}, by=self.by)
        return known

    def _trial(self, record: Any, run: str, arm: str, task: str, reference: str) -> float:
        prompt: Prompt = record.prompts.get(reference)
        text = PromptText(prompt.text, PromptUse(prompt.name, prompt.version), prompt.label)
        with record.run(
            self.workflow, run=run, agent=AGENT, experiment=self.experiment, arm=arm, task=task
        ) as session:
            return _evaluator(session, self.evaluate)(text, self.tasks[task])


def _evaluator(session: Any, evaluate: Evaluate) -> Evaluate:
    made: Evaluate = session.tool(name="evaluate", effects="composite")(
        _named(evaluate, "text", "task")
    )
    return made


def _named(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Wrap a function so that its arguments have the names under which calls are recorded."""
    if names == ("text", "task"):

        def evaluate(text: PromptText, task: Any) -> float:
            score = function(text, task)
            is_number = type(score) in (int, float, bool) and abs(score) <= sys.float_info.max
            if not is_number:
                raise BadValue("evaluate", f"{score!r:.80}", "give a finite number")
            return float(score)

        return evaluate

    def propose(text: str, results: Sequence[Mapping[str, Any]]) -> str:
        proposal = function(text, results)
        if not isinstance(proposal, str) or not proposal.strip():
            raise BadValue("propose", f"{proposal!r:.80}", "give the new text")
        return str(proposal)

    return propose
