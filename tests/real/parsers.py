"""Second parsers of the files of tau-bench and tau2-bench, independent of `src/`.

Tests compare Hansard's record with their result, so this module must not share a line with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec


class SourceMessage(msgspec.Struct, frozen=True):
    """A message of a chat as in its source; None for missing fields."""

    role: str
    content: str | None
    name: str | None = None
    tool_call_id: str | None = None
    calls: tuple[tuple[str, str, Any], ...] = ()
    """Calls of the message: id, tool, arguments (as values, or as text where they are no JSON)."""
    usage: dict[str, float] = {}
    occurred_at: str | None = None
    failed: bool = False
    """A tool's answer that the source calls an error."""


class Chat(msgspec.Struct, frozen=True):
    """One run of a source: task, trial, reward and messages."""

    task: str
    trial: int
    reward: float
    messages: tuple[SourceMessage, ...]
    agent_cost: float | None = None

    def called(self, before: int | None = None) -> list[tuple[str, str, Any]]:
        """Return the calls of the first messages, in order."""
        return [call for message in self.messages[:before] for call in message.calls]

    def answers(self, before: int | None = None) -> list[str | None]:
        """Return what each call led to: "completed", "failed" or None."""
        ids: list[str] = []
        statuses: list[str | None] = []
        for message in self.messages[:before]:
            if message.role == "tool":
                calls = [i for i, id_ in enumerate(ids) if id_ == message.tool_call_id]
                [call] = [i for i in calls if statuses[i] is None]
                statuses[call] = "failed" if message.failed else "completed"
            ids += [id_ for id_, _, _ in message.calls]
            statuses += [None] * len(message.calls)
        return statuses

    def unanswered(self) -> list[str]:
        """Return the ids of the calls without a result, in order."""
        paired = zip(self.called(), self.answers(), strict=True)
        return [id_ for (id_, _, _), status in paired if status is None]


def arguments(text: str) -> Any:
    """Return a call's arguments as values, or the text itself if it is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def tau(path: Path) -> list[Chat]:
    """Return the runs of a tau-bench file: a list of `{task_id, trial, reward, traj}`."""
    return [
        Chat(
            task=str(run["task_id"]),
            trial=run["trial"],
            reward=run["reward"],
            messages=tuple(tau_message(message) for message in run["traj"]),
        )
        for run in json.loads(path.read_bytes())
    ]


def tau_message(message: dict[str, Any]) -> SourceMessage:
    """Return a message in the form of OpenAI's API."""
    functions = [(call["id"], call["function"]) for call in message.get("tool_calls") or []]
    return SourceMessage(
        role=message["role"],
        content=message["content"],
        name=message.get("name"),
        tool_call_id=message.get("tool_call_id"),
        calls=tuple((id_, made["name"], arguments(made["arguments"])) for id_, made in functions),
        failed=message["role"] == "tool" and str(message["content"]).startswith("Error:"),
    )


def tau2(path: Path) -> list[Chat]:
    """Return the runs of a tau2-bench file: `{simulations: [{task_id, trial, messages, ...}]}`."""
    return [
        Chat(
            task=run["task_id"],
            trial=run["trial"],
            reward=run["reward_info"]["reward"],
            messages=tuple(tau2_message(message) for message in run["messages"]),
            agent_cost=run["agent_cost"],
        )
        for run in json.loads(path.read_bytes())["simulations"]
    ]


def tau2_message(message: dict[str, Any]) -> SourceMessage:
    """Return a message of tau2-bench: calls without `function`, a tool's answer with its call's
    `id`.
    """
    counted = message.get("usage") or {}
    used = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
    usage = {ours: counted[theirs] for ours, theirs in used.items() if theirs in counted}
    if message.get("cost") is not None:
        usage["cost"] = message["cost"]
    return SourceMessage(
        role=message["role"],
        content=message["content"],
        tool_call_id=message.get("id"),
        calls=tuple(
            (call["id"], call["name"], call["arguments"])
            for call in message.get("tool_calls") or []
        ),
        usage=usage,
        occurred_at=message["timestamp"],
        failed=bool(message.get("error")),
    )
