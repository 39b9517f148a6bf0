"""Trajectories of ATIF, the Agent Trajectory Interchange Format of Harbor, read as chats.

The format is that of Harbor's RFC 0001 up to version 1.8. A step is a message; the results that it
observes are messages of tools. An embedded trajectory of a sub-agent belongs to an agent of the
same run, and its messages are inserted before the result that refers to it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Literal

import msgspec

from hansard.agents.importers.chat import (
    AGENT,
    TOOL,
    ChatRun,
    Ending,
    ImportDefaults,
    converted,
    metrics,
)
from hansard.domain.errors import BadValue

ATIF = "atif"

SUBAGENT = "subagent"
"""Role of an agent that another agent started."""

_VERSION = re.compile(r"ATIF-v1\.\d+")


class _Call(msgspec.Struct, frozen=True):
    tool_call_id: str
    function_name: str
    arguments: Any
    extra: dict[str, Any] | None = None


class _Reference(msgspec.Struct, frozen=True):
    trajectory_id: str | None = None
    session_id: str | None = None


class _Result(msgspec.Struct, frozen=True):
    source_call_id: str | None = None
    content: Any = None
    subagent_trajectory_ref: list[_Reference] | None = None
    extra: dict[str, Any] | None = None


class _Observation(msgspec.Struct, frozen=True):
    results: list[_Result]


class _Step(msgspec.Struct, frozen=True):
    step_id: int
    source: Literal["system", "user", "agent"]
    message: Any
    timestamp: str | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None
    metrics: dict[str, Any] | None = None


class _Agent(msgspec.Struct, frozen=True):
    name: str
    version: str | None = None
    model_name: str | None = None


class _Trajectory(msgspec.Struct, frozen=True):
    schema_version: str
    agent: _Agent
    steps: list[_Step]
    session_id: str | None = None
    trajectory_id: str | None = None
    notes: str | None = None
    final_metrics: dict[str, Any] | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: list[Any] | None = None


_ERROR_MARKS = ("is_error", "tool_result_is_error")
"""Marks of a failed call in results from Harbor's converters; the format itself defines none."""

_MAPPED = {"source", "message", "timestamp", "tool_calls", "observation", "metrics"}
"""Keys of a step that are not kept with its message under their own names."""


def from_atif(raw: Any, defaults: ImportDefaults) -> ChatRun:
    """Convert a decoded trajectory. Raises ValidationError, CallerError."""
    reading = _Reading()
    whole = reading.trajectory(raw, "")
    final = whole.final_metrics
    name = whole.trajectory_id or whole.session_id
    record: dict[str, Any] = {
        "workflow": ATIF,
        "agent": whole.agent.name,
        "role": AGENT,
        "roles": {whole.agent.name: AGENT, **reading.roles},
        **({"run": name} if name else {}),
        **({"model": whole.agent.model_name} if whole.agent.model_name else {}),
        "labels": {
            "atif": whole.schema_version,
            **({"agent_version": whole.agent.version} if whole.agent.version else {}),
            **({"session": whole.session_id} if whole.session_id else {}),
            **({"notes": whole.notes} if whole.notes else {}),
        },
        "messages": reading.messages,
    }
    ending = None
    if final is not None:
        numbers = {key: value for key, value in final.items() if type(value) in (int, float)}
        at = next((step.timestamp for step in reversed(whole.steps) if step.timestamp), None)
        ending = Ending(metrics=metrics(numbers, "final_metrics"), details=final, at=at)
    return converted(ATIF, record, defaults, ending=ending, left_out=dict(reading.left_out))


class _Reading:
    """The messages of a trajectory, and of those embedded in it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.roles: dict[str, str] = {}
        self.left_out: Counter[str] = Counter()

    def trajectory(self, raw: Any, name: str) -> _Trajectory:
        """Read a trajectory; `name` is its agent's if it is embedded."""
        whole = msgspec.convert(raw, _Trajectory)
        if not _VERSION.fullmatch(whole.schema_version):
            fact = f"{whole.schema_version!r:.80} is not known"
            raise BadValue("schema_version", fact, "write the trajectory as ATIF-v1")
        embedded = {}
        for number, inner in enumerate(whole.subagent_trajectories or ()):
            key = inner.get("trajectory_id") if isinstance(inner, dict) else None
            if not isinstance(key, str) or key in embedded:
                where = f"subagent_trajectories[{number}].trajectory_id"
                fact = f"{key!r:.80} is missing or there twice"
                raise BadValue(where, fact, "give each trajectory an id of its own")
            embedded[key] = inner
        self.left_out["list of tool definitions"] += bool(raw["agent"].get("tool_definitions"))
        self.left_out["continuation in another file"] += whole.continued_trajectory_ref is not None
        for step, plain in zip(whole.steps, raw["steps"], strict=True):
            self._step(step, plain, name, embedded)
        for key in list(embedded):
            self._embedded(key, embedded)
        self.left_out = +self.left_out
        return whole

    def _step(
        self, step: _Step, plain: dict[str, Any], name: str, embedded: dict[str, Any]
    ) -> None:
        common: dict[str, Any] = {"timestamp": step.timestamp} if step.timestamp else {}
        if name:
            common["name"] = name
        kept = {key: value for key, value in plain.items() if key not in _MAPPED}
        made = {
            "role": "assistant" if step.source == "agent" else step.source,
            "content": step.message,
            **common,
            **{key: value for key, value in kept.items() if value is not None},
        }
        if step.tool_calls:
            made["tool_calls"] = [
                {"id": call.tool_call_id, "name": call.function_name, "arguments": call.arguments}
                | ({"extra": call.extra} if call.extra else {})
                for call in step.tool_calls
            ]
        if step.metrics:
            made["usage"] = {key: n for key, n in step.metrics.items() if key != "cost_usd"}
            if type(step.metrics.get("cost_usd")) in (int, float):
                made["cost"] = step.metrics["cost_usd"]
        self.messages.append(made)
        for result in step.observation.results if step.observation is not None else ():
            for reference in result.subagent_trajectory_ref or ():
                if reference.trajectory_id not in embedded:
                    self.left_out["trajectory of a sub-agent in another file"] += 1
                else:
                    self._embedded(reference.trajectory_id, embedded)
            answer = {"role": TOOL, "content": result.content, **common}
            if result.source_call_id is not None:
                answer["tool_call_id"] = result.source_call_id
            if result.extra:
                answer["extra"] = result.extra
                if any(result.extra.get(name) is True for name in _ERROR_MARKS):
                    answer["error"] = True
            self.messages.append(answer)

    def _embedded(self, key: str, embedded: dict[str, Any]) -> None:
        """Take an embedded trajectory, at the first result that refers to it."""
        inner = embedded[key]
        if inner is None:
            return
        embedded[key] = None
        self.roles[key] = SUBAGENT
        self.trajectory(inner, key)
