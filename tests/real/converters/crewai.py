"""Recorded model calls of crewAI crews to chat-jsonl: one run a crew, each message its agent's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_WHO = re.compile(r"You are (?P<agent>.+?)\. ")


def convert(folder: Path) -> Iterator[dict[str, Any]]:
    """One run a file. A call that no agent made (an output parser's, telemetry) is left out."""
    for file in sorted(folder.glob("*.yaml")):
        calls = yaml.safe_load(file.read_bytes())["interactions"]
        messages: list[dict[str, Any]] = []
        agents: dict[str, int] = {}
        for call in calls:
            body = call["request"]["body"]
            request = (
                json.loads(body)["messages"]
                if call["request"]["uri"].endswith("chat/completions")
                else []
            )
            who = _WHO.match(request[0]["content"]) if request else None
            if who is None:
                continue
            name = who["agent"]
            answer = json.loads(call["response"]["body"]["string"])["choices"][0]["message"]
            known = agents.get(name, 0) if len(request) > agents.get(name, 0) else 0
            messages += [_message(message, name) for message in [*request[known:], answer]]
            agents[name] = len(request) + 1
        yield {
            "run": file.stem,
            "workflow": "crew",
            "agent": messages[0]["name"],
            "role": role(messages[0]["name"]),
            "roles": {name: role(name) for name in agents},
            "messages": messages,
        }


def _message(message: dict[str, Any], name: str) -> dict[str, Any]:
    kept = {key: value for key, value in message.items() if key in _KEPT and value is not None}
    kept.setdefault("content", None)
    return kept if message["role"] == "tool" else {**kept, "name": name}


_KEPT = {"role", "content", "tool_calls", "tool_call_id"}


def role(name: str) -> str:
    """Return an agent's name as a role name."""
    return re.sub(r"\W+", "-", name).strip("-").lower()
