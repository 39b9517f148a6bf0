"""Sample runs as agents record them: every type of event, in the shares that agents have."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from benchmarks import _world
from hansard.bus.clock import Clock
from hansard.bus.commits import record
from hansard.bus.log import Append
from hansard.domain import access, agent, board, experiment, run, steps
from hansard.domain.conversation import RunJoined
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream

_clock = Clock()
USAGE = {"input_tokens": 450.0, "output_tokens": 44.0, "cost": 0.001252}


def raw_json(value: Any) -> msgspec.Raw:
    """Return a payload."""
    return msgspec.Raw(msgspec.json.encode(value))


SAID = raw_json(_world.text(400))
FOUND = raw_json({"papers": [_world.text(60) for _ in range(5)]})
ASKED = raw_json({"query": _world.text(60), "limit": 10})
NO = steps.Failure("TimeoutError", "no answer in 30 s")


def appended(stream: StreamId, version: int, *events: Event) -> Append:
    """One commit."""
    told = tuple(record(event, _clock.new_id()) for event in events)
    commit = Commit(
        id=_clock.new_id(),
        version=version,
        at=_clock.now(),
        actor=Actor("bench" if isinstance(stream, WorkspaceStream) else "ada"),
        epoch=1,
        events=told,
    )
    return Append(stream, commit)


def _outcome(step: int) -> list[Event]:
    """Return the outcome of a step: most complete, some do not."""
    match step % 12:
        case 3:
            return [
                steps.StepAttempted(step=step, attempt=1, error=NO, retry_in_ms=100.0),
                steps.StepFailed(step=step, error=NO, digest="d" * 32, usage=USAGE),
            ]
        case 5:
            return [steps.StepBlocked(step=step, rule="deny send", reason="no mail at night")]
        case 7:
            return [
                steps.StepInDoubt(step=step, error=NO, duration_ms=30_000.0),
                steps.StepSettled(
                    step=step,
                    verdict=steps.Verdict.HAPPENED,
                    by="ann",
                    result=FOUND,
                    digest="d" * 32,
                ),
            ]
        case 9:
            return [
                steps.StepYielded(step=step, index=0, items=(SAID,)),
                steps.StepCompleted(step=step, result=SAID, digest="d" * 32, items=1),
            ]
        case _:
            return [
                steps.StepCompleted(
                    step=step, result=FOUND, digest="d" * 32, duration_ms=12.5, usage=USAGE
                )
            ]


def _facts(step: int) -> list[Event]:
    """Return the facts that an agent states after a step."""
    mark = f"{step}" * 8
    calls = raw_json({"tool_calls": [{"id": f"call_{step}", "type": "function"}]})
    found: list[Event] = [
        agent.MessageAdded(
            role="assistant", content=SAID, fingerprint=mark, usage=USAGE, fields=calls, tokens=44
        )
    ]
    match step % 6:
        case 1:
            options = tuple(agent.Alternative(f"p{i}", i / 10, "newest") for i in range(4))
            found.append(
                agent.DecisionMade(
                    question="Which next?",
                    selected="p3",
                    fingerprint=mark,
                    alternatives=options,
                    threshold=0.25,
                )
            )
        case 2:
            found.append(agent.CheckpointSaved(name="found", data=ASKED, fingerprint=mark))
        case 3:
            found.append(
                agent.ResourceAccessed(uri=f"file:///{step}", operation="read", fingerprint=mark)
            )
        case 4:
            tool = {"tool_call_id": f"call_{step}"}
            found.append(
                agent.MessageAdded(
                    role="tool", content=FOUND, fingerprint=mark, fields=raw_json(tool)
                )
            )
        case _:
            pass
    return found


def one_run(number: int, parent: str | None) -> Iterator[Append]:
    """Yield a run of one agent, about 90 events; every tenth is a fork of the one before."""
    name = _clock.new_id()
    ada, life = AgentStream(name, "researcher", "ada"), RunStream(name)
    if parent is not None:
        yield appended(life, 4, run.RunForked(parent=parent, at={"life": 3}))
        version = 5
    else:
        yield appended(
            life,
            1,
            run.RunStarted(workflow="papers", labels={"source": "bench"}),
            run.AgentJoined(agent="ada", role="researcher"),
            run.RunAssigned(experiment="e", arm="ab"[number % 2], task=f"{number % 50}", trial=0),
        )
        version = 4
    if number % 5 == 0:
        yield appended(WorkspaceStream("conversation", name), 1, RunJoined(run=name))
    began = agent.SessionBegan(
        epoch=1, agent="ada", role="researcher", server_version="1", protocol_version="1"
    )
    tool = steps.ToolDeclared(tool="search", effects=steps.Effects.ONCE, source="s" * 32)
    yield appended(ada, 1, began, tool)
    at = 3
    for step in range(1, 21):
        asked = steps.StepRequested(
            step=step,
            tool="search",
            effects=steps.Effects.ONCE,
            arguments=ASKED,
            call="c" * 32,
            fingerprint="f" * 32,
            after=(step - 1,),
        )
        for events in ([asked], [*_outcome(step), *_facts(step)]):
            yield appended(ada, at, *events)
            at += len(events)
    for times in range(1, 4):
        yield appended(
            KeyStream(name, f"found/{times}"), 1, board.ValuePut(value=FOUND, role="researcher")
        )
        yield appended(
            KeyStream(name, "read"), times, board.AmountAdded(amount=1, role="researcher")
        )
    seen = {str(ada): f"1-{at - 1}"}
    told = access.ViewServed(
        role="researcher", agent="ada", at=name, events=at - 1, seen=seen, digest="d" * 32
    )
    yield appended(KeyStream(name, access.key_of("researcher")), 1, told)
    handed = agent.HandedOff(to="writer", fingerprint="h", payload=ASKED)
    yield appended(ada, at, handed, agent.AgentLeft(outcome="completed"))
    scored = run.RunScored(metrics={"reward": float(number % 2), "turns": 20.0}, by="judge")
    yield appended(life, version, scored, run.RunCompleted())


def plans() -> Iterator[Append]:
    """Yield the events outside of runs: an experiment, and a price."""
    arms = (experiment.PlannedArm("a"), experiment.PlannedArm("b"))
    plan = experiment.ExperimentRegistered(arms=arms, metrics=(experiment.Metric("reward"),))
    yield appended(WorkspaceStream("experiment", "e"), 1, plan)
    since = datetime(2026, 1, 1, tzinfo=UTC)
    stated = experiment.PriceStated(usage="input_tokens", amount=2.5e-6, since=since)
    yield appended(WorkspaceStream("price", "model"), 1, stated)


def log_of(events: int) -> Iterator[Append]:
    """Yield runs until there are so many events."""
    made, number, before = 0, 0, None
    while made < events:
        number += 1
        commits = list(one_run(number, before if number % 10 == 0 else None))
        before = commits[0].stream.run if isinstance(commits[0].stream, RunStream) else None
        made += sum(len(each.commit.events) for each in commits)
        yield from commits
