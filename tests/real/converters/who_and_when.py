"""Converter of Who&When to chat-jsonl: failed runs of several agents, with the agent to blame."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHANNEL = re.compile(r"(?P<agent>.+?) \((?P<channel>.+)\)")


def convert(folder: Path) -> Iterator[dict[str, Any]]:
    """One run a file, from both halves of the data set."""
    for file in sorted(folder.rglob("*.json")):
        case = json.loads(file.read_bytes())
        messages = [_message(entry) for entry in case["history"]]
        yield {
            "run": f"{file.parent.name}/{file.stem}",
            "workflow": file.parent.name,
            "task": case["question_ID"],
            "trial": 0,
            "agent": messages[0]["name"],
            "role": _role(messages[0]["name"]),
            "roles": {name: _role(name) for name in sorted({entry["name"] for entry in messages})},
            "labels": {"mistake_agent": case["mistake_agent"]},
            "messages": messages,
            "outcome": {"mistake_step": int(case["mistake_step"]), "error": case["mistake_reason"]},
        }


def _message(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its agent as `name`, which the hand-made half has as `role`."""
    name = entry.get("name") or entry["role"]
    match = _CHANNEL.fullmatch(name)
    message = {"role": entry["role"], "content": entry["content"], "name": name}
    if "name" not in entry:
        message["role"] = "user" if name == "human" else "assistant"
    if match is not None:
        message |= {"name": match["agent"], "channel": match["channel"]}
    return message


def _role(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-").lower()
