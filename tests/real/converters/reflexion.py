"""Reflexion to chat-jsonl: a run an AlfWorld environment and trial, or a problem."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def alfworld(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the trials of one agent; its memory of earlier trials is part of its context."""
    files = sorted(folder.glob("env_results_trial_*.json"), key=_trial)
    for file in files:
        for environment in json.loads(file.read_bytes()):
            yield {
                "run": f"{folder.name}/{environment['name']}/{_trial(file)}",
                "workflow": "alfworld",
                "task": environment["name"],
                "trial": _trial(file),
                "messages": [
                    {"role": "system", "content": memory} for memory in environment["memory"]
                ],
                "outcome": {"success": environment["is_success"]},
            }


def _trial(file: Path) -> int:
    return int(file.stem.rsplit("_", 1)[1])


def programming(file: Path) -> Iterator[dict[str, Any]]:
    """Yield one run for each problem: the prompt, the lesson of each failure, the solution."""
    for line in file.read_bytes().splitlines():
        problem = json.loads(line)
        learnt = problem.get("reflections", [])
        yield {
            "run": f"{file.stem}/{problem['name']}",
            "workflow": problem["language"],
            "task": problem["name"],
            "trial": 0,
            "messages": [
                {"role": "user", "content": problem["prompt"]},
                *({"role": "assistant", "content": each} for each in learnt),
                {"role": "assistant", "content": problem["solution"]},
            ],
            "outcome": {"success": problem["is_solved"], "reflections": len(learnt)},
        }
