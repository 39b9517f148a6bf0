"""A workspace of imported trials whose arms differ in a known way."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.projections.query_cache import cached_queries
from tests.real.support import Place, opened, write

TASKS, TRIALS = 24, 3
EVIL = "<b>|$x_1$ \u202e`*"
"""An arm's name that markup, formulas and terminals would like to obey."""


def trial(arm: str, task: int, number: int) -> dict[str, Any]:
    """Return an arm's run: steady solves 12 tasks, bold 21 at twice the cost; flaky fails some."""
    solved = task < {"steady": 12, "bold": 21}.get(arm, 12)
    outcome: dict[str, Any] = {"reward": int(solved)}
    if arm == EVIL and task % 3 == 0:
        outcome = {"error": "timed out"}
    cost = 0.02 if arm == "bold" else 0.01
    return {
        "run": f"{arm}-{task}-{number}",
        "experiment": "greeting",
        "arm": arm,
        "task": f"t{task:02}",
        "trial": number,
        "labels": {"domain": "even" if task % 2 == 0 else "odd", "group": f"g{task % 6}"},
        "messages": [
            {"role": "user", "content": "hi", "timestamp": "2026-01-01T00:00:00Z"},
            {
                "role": "assistant",
                "content": f"{arm} {task} {number}",
                "timestamp": f"2026-01-01T00:00:{task:02}Z",
                "cost": cost + task / 1_000,
                "usage": {"input_tokens": 100 + task, "output_tokens": 10},
            },
        ],
        "outcome": outcome,
    }


@pytest.fixture(scope="module", autouse=True)
def forget_answers() -> Iterator[Callable[[], None]]:
    """Clear the answers that a quick run keeps for unchanged tables."""
    with cached_queries() as forget:
        yield forget


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Yield the workspace, imported."""
    folder = tmp_path_factory.mktemp("compare")
    runs = [
        trial(arm, task, number)
        for arm in ("steady", "bold", EVIL)
        for task in range(20 if arm == EVIL else TASKS)
        for number in range(TRIALS)
    ]
    write(folder / "runs.jsonl", runs)
    with opened(folder / "data") as workspace:
        output = workspace.call("import", "chat-jsonl", str(folder / "runs.jsonl"))
        assert output.code == 0, output.err
        yield workspace
