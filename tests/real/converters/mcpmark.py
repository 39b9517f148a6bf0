"""Converter of MCPMark to chat-jsonl: runs with figures, without messages."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def convert(archive: Path) -> Iterator[dict[str, Any]]:
    """One run a trial; its service is the workflow, its model the arm."""
    with tarfile.open(archive) as opened:
        for member in opened:
            file = opened.extractfile(member)
            if file is not None:
                yield from _runs(json.load(file))


def _runs(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, run in task["runs"].items():
        yield {
            "run": f"{task['model']}/{task['task']}/{name}",
            "workflow": task["service"],
            "arm": task["model"],
            "task": task["task"],
            "trial": int(name.removeprefix("run-")),
            "messages": [],
            "outcome": {
                "success": run["success"],
                "execution_time_s": run["execution_time"],
                "turns": run["turn_count"],
                "error": run["error_message"],
                **run["token_usage"],
            },
        }
