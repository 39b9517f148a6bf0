"""Tree of Thoughts, Game of 24, to chat-jsonl: one run a puzzle, one message a sample."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COUNTED = {"cost": "cost", "prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}


def convert(file: Path) -> Iterator[dict[str, Any]]:
    """Return one run a puzzle, with its own part of the growing `usage_so_far`."""
    before = dict.fromkeys(COUNTED, 0.0)
    for puzzle in json.loads(file.read_bytes()):
        so_far = puzzle["usage_so_far"]
        if so_far["cost"] < before["cost"]:
            before = dict.fromkeys(COUNTED, 0.0)
        used = {ours: so_far[theirs] - before[theirs] for theirs, ours in COUNTED.items()}
        before = so_far
        right = _right(puzzle)
        yield {
            "run": f"{file.stem}/{puzzle['idx']}",
            "workflow": "game24",
            "task": str(puzzle["idx"]),
            "trial": 0,
            "messages": [{"role": "assistant", "content": sample} for sample in puzzle["ys"]],
            "outcome": {
                "accuracy": sum(right) / len(right),
                "solved": any(right),
                "samples": len(right),
                **used,
            },
        }


def _right(puzzle: dict[str, Any]) -> list[bool]:
    """Return which samples were right: `infos` in two of the files, `accs` in the third."""
    if "accs" in puzzle:
        return puzzle["accs"]
    return [info["r"] == 1 for info in puzzle["infos"]]
