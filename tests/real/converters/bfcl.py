"""BFCL to chat-jsonl: a model's answers, each scored right or wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

UNSCORED = "sql"
"""The category that has answers and no scores."""

_RESULT = "gorilla_openfunctions_v1_test_"


def convert(folder: Path, model: str) -> Iterator[dict[str, Any]]:
    """One run a scored case. A score file lists the wrong cases; the others were right."""
    for results in sorted((folder / "result-BFCL" / model).glob("*_result.json")):
        category = results.name.removeprefix(_RESULT).removesuffix("_result.json")
        if category == UNSCORED:
            continue
        scores = folder / "score-BFCL" / model / f"{category}_score.json"
        _, *scored = [json.loads(line) for line in scores.read_bytes().splitlines()]
        wrong = {case["id"] - 1 for case in scored}  # scores count from 1, results from 0
        for line in results.read_bytes().splitlines():
            yield _run(json.loads(line), model, category, wrong)


def _run(case: dict[str, Any], model: str, category: str, wrong: set[int]) -> dict[str, Any]:
    number = case["idx"]
    return {
        "run": f"{model}/{category}/{number}",
        "workflow": category,
        "task": f"{category}/{number}",
        "trial": 0,
        "messages": [_answer(case, f"{category}-{number}")],
        "outcome": {"valid": number not in wrong, "latency_s": case["latency"]},
    }


def _answer(case: dict[str, Any], name: str) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": None,
        "usage": {
            "prompt_tokens": case["input_token_count"],
            "completion_tokens": case["output_token_count"],
        },
    }
    if isinstance(case["result"], str):
        return answer | {"content": case["result"]}
    functions = [item for call in case["result"] for item in call.items()]
    return answer | {
        "tool_calls": [
            {
                "id": f"{name}-{number}",
                "type": "function",
                "function": {"name": tool, "arguments": arguments},
            }
            for number, (tool, arguments) in enumerate(functions)
        ]
    }
