"""What the demo reads from the record: which calls are on it, and what came of them."""

from __future__ import annotations

import msgspec

from hansard.bus.states.replay import RunView
from hansard.demo.world import World, call_name
from hansard.domain.agent import AgentState, CheckpointSaved, HandedOff
from hansard.domain.steps import Step, StepStatus

WORDS_MAX = 60
"""Characters of a name or a message that one line shows."""


def name_of(step: Step) -> str:
    """A recorded call's name, as the list of bodies that ran has it."""
    arguments: dict[str, object] = msgspec.json.decode(step.arguments)
    return call_name(step.tool, arguments.values())


def calls(view: RunView) -> dict[str, Step]:
    """Every call of a run, by name, agent after agent."""
    return {name_of(step): step for state in view.agents.values() for step in in_order(state)}


def in_order(state: AgentState) -> list[Step]:
    """An agent's calls, in the order of their outcomes."""
    return sorted(state.steps.values(), key=lambda step: step.outcome_version or state.version)


def done(view: RunView) -> dict[str, Step]:
    """The calls whose results are on record."""
    return {name: step for name, step in calls(view).items() if step.status is StepStatus.COMPLETED}


def ended(view: RunView) -> dict[str, Step]:
    """The calls that ended, be it in an error that the agent then dealt with."""
    over = (StepStatus.COMPLETED, StepStatus.FAILED)
    return {name: step for name, step in calls(view).items() if step.status in over}


def in_doubt(view: RunView) -> dict[str, Step]:
    """The intents without an outcome."""
    return {name: step for name, step in calls(view).items() if step.is_open}


def by_model(view: RunView) -> bool:
    """Whether a model wrote the report's summary."""
    return any(step.kind == "model" for step in done(view).values())


def large(view: RunView) -> int:
    """The results that went to the blobs, being over 64 KiB."""
    return sum(b'"$blob"' in bytes(step.result) for step in calls(view).values())


def events(view: RunView) -> int:
    """The events of a run."""
    return sum(view.vector.values())


def told(view: RunView) -> str:
    """How many calls each agent has on record."""
    counts = {
        agent: sum(step.status is StepStatus.COMPLETED for step in state.steps.values())
        for agent, state in view.agents.items()
    }
    return ", ".join(f"{agent} {count}" for agent, count in counts.items())


def handed_to(state: AgentState) -> str | None:
    """Whom an agent has handed its work to."""
    found = [noted.fact.to for noted in state.facts if isinstance(noted.fact, HandedOff)]
    return found[-1] if found else None


def checkpoint(state: AgentState, name: str, **data: object) -> int:
    """The version of an agent's checkpoint with this name and data. Raises LookupError."""
    for noted in state.facts:
        fact = noted.fact
        if not isinstance(fact, CheckpointSaved) or fact.name != name:
            continue
        if msgspec.json.decode(fact.data) == data:
            return noted.version
    message = f"{state.agent} has no checkpoint {name!r} with {data}"
    raise LookupError(message)


def report_of(view: RunView) -> str:
    """The report as the writer's call had it, whether or not it was then written."""
    [step] = [step for name, step in calls(view).items() if name.startswith("save_report ")]
    arguments: dict[str, str] = msgspec.json.decode(step.arguments)
    return arguments["text"]


def posted(world: World, sha256: str) -> int:
    """How many lines of the ledger a run has; 0 too where one names another report."""
    lines = world.entries(world.run)
    return len(lines) if all(sha256 in line for line in lines) else 0


def short(text: str) -> str:
    """A text in one line of at most 60 characters."""
    line = " ".join(text.split())
    return line if len(line) <= WORDS_MAX else f"{line[: WORDS_MAX - 3]}..."
