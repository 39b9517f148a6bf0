"""GEPA as the search of `prompts.optimize`: its candidates are versions, merges included.

    from hansard.ext.optimize import gepa
    prompts.optimize(record, "rag", tasks, evaluate=..., propose=..., search=gepa.search(seed=7))

GEPA's evaluations and proposals are the steps of the optimisation's run, so it needs no folder of
its own to be resumed: with the same seed it makes the same requests, which are answered from the
record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch

from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.ext.optimize.loop import CANDIDATES_MAX, PromptCandidate, PromptSearch, Searcher

COMPONENT = "prompt"
"""GEPA's name of the one text that it optimises."""

MINIBATCH = 3
"""Default number of tasks per proposal."""


class _Adapter:
    """Adapter that evaluates a search's tasks."""

    def __init__(self, search: PromptSearch) -> None:
        self._search = search
        self.failed: BaseException | None = None

    def evaluate(
        self,
        batch: list[str],
        candidate: dict[str, str],
        capture_traces: bool = False,  # noqa: FBT001, FBT002 -- as GEPA has it
    ) -> EvaluationBatch[Any, Any]:
        """Return the scores of a candidate on some tasks."""
        scores = [self._search.evaluate(candidate[COMPONENT], task) for task in batch]
        traces: list[Any] = [
            {"task": task, "score": score} for task, score in zip(batch, scores, strict=True)
        ]
        return EvaluationBatch(
            outputs=list(batch), scores=scores, trajectories=traces if capture_traces else None
        )

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """Return a new text. GEPA continues after an error, so the error is kept for the caller."""
        shown = [each["task"] for name in components_to_update for each in reflective_dataset[name]]
        try:
            return {COMPONENT: self._search.propose(candidate[COMPONENT], shown)}
        except BaseException as error:
            self.failed = self.failed or error
            raise

    def ended(self, gepa_state: Any) -> bool:  # noqa: ARG002 -- as GEPA calls it
        """Return whether GEPA must stop, because a proposal failed."""
        return self.failed is not None

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],  # noqa: ARG002 -- as GEPA calls it
        eval_batch: EvaluationBatch[Any, Any],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return the tasks that a proposal is made from."""
        return {name: eval_batch.trajectories or [] for name in components_to_update}


class _SilentLogger:
    """Logger that drops everything: requests are on record."""

    def log(self, message: str) -> None:
        """Drop the message."""


def search(*, seed: int = 0, minibatch: int = MINIBATCH, **options: Any) -> Searcher:
    """Return GEPA's search.

    Args:
        seed: Seed of its random choices; the same one makes the same requests.
        minibatch: Tasks that a proposal is made from.
        **options: Further options of `gepa.optimize`, such as `use_merge=True`.

    Raises:
        BadValue: When it runs, the budget suffices for no candidate.
    """

    def searched(work: PromptSearch) -> list[PromptCandidate]:
        tasks = list(work.tasks)
        last = 2 * min(minibatch, len(tasks)) + len(tasks)  # what its last turn may take
        most = work.left - last
        if most < len(tasks):
            fact = f"{counted(work.left, 'evaluation')} are left, for {counted(len(tasks), 'task')}"
            raise BadValue("budget", fact, "give more, or fewer tasks")

        adapter = _Adapter(work)
        typed: Any = adapter
        result: Any = optimize(
            seed_candidate={COMPONENT: work.text},
            trainset=tasks,
            valset=tasks,
            adapter=typed,
            reflection_minibatch_size=minibatch,
            max_metric_calls=most,
            stop_callbacks=[adapter.ended],
            seed=seed,
            logger=_SilentLogger(),
            **options,
        )
        if adapter.failed is not None:
            raise adapter.failed
        return [
            PromptCandidate(
                text=candidate[COMPONENT],
                parents=tuple(parent for parent in parents if parent is not None),
                score=score,
            )
            for candidate, parents, score in zip(
                result.candidates, result.parents, result.val_aggregate_scores, strict=True
            )
        ][:CANDIDATES_MAX]

    return searched
