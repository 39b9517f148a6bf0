"""Simulated experiments, as columns of trials: rounds of one design side by side, by label."""

from __future__ import annotations

import json

import msgspec
import numpy as np
from numpy.typing import NDArray

from hansard.projections.store import Store
from tests.statistics import support

Floats = NDArray[np.float64]


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """Design of a round.

    `spread` is that of the cluster-by-arm effect (logit), with mean zero; `effect` is the second
    arm's advantage (logit), `difficulty` the spread of tasks (logit); `apart`: a task is in one arm
    only.
    """

    rounds: int
    tasks: int = 60
    trials: int = 5
    clusters: int | None = 10
    spread: float = 0.0
    effect: float = 0.0
    difficulty: float = 1.0
    apart: bool = False

    @property
    def cluster_of(self) -> NDArray[np.int64]:
        """Return each task's cluster, in turns, so that all clusters occur from the beginning."""
        return np.arange(self.tasks) % (self.clusters or self.tasks)

    def chances(self, rng: np.random.Generator) -> Floats:
        """Return the chance of success by round, arm and task, symmetric between the arms."""
        shape = (self.rounds, 1, self.tasks)
        groups = self.clusters or self.tasks
        bent = rng.normal(0, self.spread, (self.rounds, groups))[:, None, self.cluster_of]
        side = np.array([-0.5, 0.5])[None, :, None]
        logit = (
            rng.normal(0, self.difficulty, shape)
            + side * bent
            + np.array([0, self.effect])[None, :, None]
        )
        return np.asarray(1 / (1 + np.exp(-logit)))

    def true_difference(self) -> float:
        """Return the true difference of means, over all tasks and clusters."""
        rng = np.random.default_rng(99)
        logit, bent = (
            rng.normal(0, self.difficulty, 2_000_000),
            rng.normal(0, self.spread, 2_000_000),
        )
        arms = [
            1 / (1 + np.exp(-(logit + s * bent + e))) for s, e in ((-0.5, 0), (0.5, self.effect))
        ]
        return float(arms[1].mean() - arms[0].mean())


def plant(store: Store, design: Design, rng: np.random.Generator, experiment: str) -> Floats:
    """Write every round's trials, labelled; return the values."""
    chance = design.chances(rng)[..., None]
    values = (rng.random((*chance.shape[:3], design.trials)) < chance).astype(float)
    at = np.indices(values.shape).reshape(4, -1)
    if design.apart:
        at = at[:, at[1] == at[2] // (design.clusters or 1) % 2]
    cluster = design.cluster_of
    labels = np.array(
        [
            [
                json.dumps({"round": f"{r}", "cluster": f"c{cluster[t]}"})
                for t in range(design.tasks)
            ]
            for r in range(design.rounds)
        ]
    )
    count = at.shape[1]
    runs = np.array([f"{experiment} {number:07d}" for number in range(count)])
    support.put(
        store,
        "runs",
        {
            "run": runs,
            "experiment": np.full(count, experiment),
            "arm": np.array(["a", "b"])[at[1]],
            "task": np.array([f"t{t}" for t in range(design.tasks)])[at[2]],
            "trial": at[3],
            "status": np.full(count, "completed"),
            "labels": labels[at[0], at[2]],
            "first_position": np.arange(1, count + 1),
        },
    )
    support.judge(store, runs, values[tuple(at)])
    return values
