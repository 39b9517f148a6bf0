"""A run at any point, folded from the stored bytes with nothing but JSON."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from hansard.bus.log import RawMessage
from tests.cli.planting import raw_log

OUTCOMES = {
    "step.requested.v1": "requested",
    "step.completed.v1": "completed",
    "step.failed.v1": "failed",
    "step.blocked.v1": "blocked",
    "step.in_doubt.v1": "in_doubt",
}
VERDICTS = {"happened": "completed", "did_not_happen": "not_done"}
ENDINGS = {"run.completed.v1": "completed", "run.failed.v1": "failed", "run.forked.v1": "open"}


class Line(msgspec.Struct):
    """A commit of a run: stream, first position and time at which it counts, and its body."""

    position: int
    counts_from: int
    since_us: int
    stream: str
    body: dict[str, Any]

    @property
    def last_version(self) -> int:
        """The version of its last event."""
        return int(self.body["version"]) + len(self.body["events"]) - 1


def lines_of(home: Path, workspace: str, run: str) -> list[Line]:
    """Return a run's commits in order, with those before a fork's cut. Run ids must be plain."""
    raw = {message.position: message for message in raw_log(home, workspace)}
    return _lines(raw, workspace, run, None)


def _lines(
    raw: dict[int, RawMessage], workspace: str, run: str, cut: dict[str, int] | None
) -> list[Line]:
    prefix = f"hansard.{workspace}.run.{run}."
    own: list[Line] = []
    for position, message in raw.items():
        if not message.subject.startswith(prefix):
            continue
        body = json.loads(message.body)
        stream = message.subject[len(prefix) :].rpartition(".")[0].replace(".", "/")
        tx = body.get("tx", {"index": 0, "count": 1})
        end = position - tx["index"] + tx["count"] - 1
        line = Line(position, end, raw[end].stamp // 1_000, stream, body)
        if cut is None or line.last_version <= cut.get(stream, 0):
            own.append(line)
    events = [event for line in own for event in line.body["events"]]
    begun = next((e["data"] for e in events if e["type"] == "run.forked.v1"), None)
    if begun is None:
        return own
    return _lines(raw, workspace, begun["parent"], begun["at"]) + own


def at_position(lines: list[Line], position: int) -> list[Line]:
    """Return the lines that count at a position: a transaction only once it is complete."""
    return [line for line in lines if line.counts_from <= position]


def folded(lines: list[Line]) -> dict[str, Any]:
    """Return the state of a run's life and of its agents."""
    state: dict[str, Any] = {"status": None, "vector": {}, "roster": {}, "agents": {}}
    for line in lines:
        state["vector"][line.stream] = line.last_version
        for event in line.body["events"]:
            if line.stream == "life":
                _life(state, event["type"], event["data"])
            else:
                name = line.stream.rpartition("/")[2]
                _agent(state["agents"].setdefault(name, _nobody()), event["type"], event["data"])
    for name, agent in state["agents"].items():
        agent["version"] = next(v for s, v in state["vector"].items() if s.endswith(f"/{name}"))
        agent["steps"] = dict(Counter(agent["steps"].values()))
    return state


def _nobody() -> dict[str, Any]:
    return {"steps": {}, "messages": 0, "checkpoints": {}, "decisions": 0, "left": None, "epoch": 0}


def _life(state: dict[str, Any], kind: str, data: dict[str, Any]) -> None:
    if kind in {"run.started.v1", "run.resumed.v1"}:
        state["status"] = "open"
    elif kind == "run.agent_joined.v1":
        state["roster"][data["agent"]] = data["role"]
    state["status"] = ENDINGS.get(kind, state["status"])


def _agent(agent: dict[str, Any], kind: str, data: dict[str, Any]) -> None:
    if kind in OUTCOMES:
        agent["steps"][data["step"]] = OUTCOMES[kind]
    elif kind == "step.settled.v1":
        agent["steps"][data["step"]] = VERDICTS[data["verdict"]]
    elif kind == "message.added.v1":
        agent["messages"] += 1
    elif kind == "checkpoint.saved.v1":
        agent["checkpoints"][data["name"]] = data["data"]
    elif kind == "decision.made.v1":
        agent["decisions"] += 1
    elif kind == "agent.left.v1":
        agent["left"] = data["outcome"]
    elif kind == "agent.session_began.v1":
        agent["epoch"] = data["epoch"]
        if data.get("purpose", "run") == "run":
            agent["left"] = None


def shown_state(shown: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the output of `run show --json`, in the shape of `folded`."""
    run, *agents = shown
    return {
        "status": run["status"],
        "vector": run["vector"],
        "roster": run["agents"],
        "agents": {
            agent["agent"]: {
                "steps": agent["steps"],
                "messages": agent["messages"],
                "checkpoints": agent["checkpoints"],
                "decisions": len(agent["decisions"]),
                "left": agent["left"],
                "epoch": agent["epoch"],
                "version": agent["version"],
            }
            for agent in agents
        },
    }
