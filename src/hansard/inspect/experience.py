"""Learn an experience from runs: their actions as demonstrations of a task."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.domain.choices import NOTHING, counted
from hansard.domain.errors import BadValue
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.distil import Demonstration, ShownAction
from hansard.domain.experience.experience import Experience, Lesson
from hansard.inspect import trace as traces
from hansard.inspect.actions import action_cache
from hansard.inspect.messages import contexts, window
from hansard.inspect.payloads import Payloads

RUNS_MAX = 1_000


async def demonstration(
    workspace: Workspace,
    run: str,
    fetch: Payloads,
    task: str = "",
    params: Mapping[str, str] = NOTHING,
) -> Demonstration:
    """Return a run as a demonstration of a task.

    `task` defaults to the first message of a user in the run; `params` are the values of slots.

    Raises:
        NotFound: There is no such run.
        BadValue: The run has no text of the task.
    """
    cache = await action_cache(workspace, run, fetch)
    return Demonstration(
        task=task or await _first_request(workspace, run, fetch),
        actions=tuple(ShownAction(action=each) for each in cache.actions),
        success=cache.final_state.success,
        source=run,
        seconds=cache.final_state.duration,
        params=dict(params),
    )


class LearnedStep(msgspec.Struct, frozen=True, kw_only=True):
    """Step of a run that a sentence can cite.

    Attributes:
        ref: `run/agent#step`.
        tool: The tool that was called.
        status: `completed`, `failed` ...
        arguments: The arguments, as recorded.
        error: The error of a failed step.
    """

    ref: str
    tool: str
    status: str
    arguments: Any
    error: str


class LearnedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Run that is learned from.

    Attributes:
        run: Its id.
        success: Whether its last action succeeded; from a failed run only lessons are kept.
        steps: Its steps, in order.
    """

    run: str
    success: bool
    steps: list[LearnedStep]


class LearnedFrom(msgspec.Struct, frozen=True, kw_only=True):
    """Input of a function that writes a plan or lessons.

    Attributes:
        experience: The experience learned without a model.
        runs: The runs, with their steps.
    """

    experience: Experience
    runs: list[LearnedRun]


Sentences = Callable[[LearnedFrom], Iterable[Lesson] | Awaitable[Iterable[Lesson]]]
"""Function of the user, with or without a model: sentences without a cited step are dropped."""


async def learned(  # noqa: PLR0913 -- what a caller may say of runs
    workspace: Workspace,
    name: str,
    runs: Sequence[str],
    tasks: Mapping[str, str],
    description: str = "",
    *,
    params: Mapping[str, Mapping[str, str]] = NOTHING,
    plan: Sentences | None = None,
    lessons: Sentences | None = None,
    parent: Experience | None = None,
) -> Experience:
    """Learn an experience from runs of one kind of task.

    It has no checks until a person confirms them.

    Raises:
        NotFound: There is no such run.
        BadValue: A run has no text of the task, the runs are of several kinds of task, no two of
            them acted alike, `params` do not fit, a slot holds several values, or a function
            returns no sentences.
    """
    if parent is not None:
        runs = [*parent.sources, *parent.failed, *runs]
        description = description or parent.description
    if not 0 < len(runs) <= RUNS_MAX:
        raise BadValue("runs", f"{len(runs):,}", f"give 1 to {RUNS_MAX:,}")
    unknown = [run for run in params if run not in runs]
    if unknown:
        fact = "it is not among the runs to learn from"
        raise BadValue(f"params[{unknown[0]!r:.80}]", fact, "give values only for these runs")
    fetch = Payloads(workspace)
    doings = [
        await demonstration(workspace, run, fetch, tasks.get(run, ""), params.get(run, NOTHING))
        for run in dict.fromkeys(runs)
    ]
    found = distil.distilled(doings)
    if len(found) > 1:
        kinds = "; ".join(f"{each.wording.template!r:.100}" for each in found[:4])
        fact = f"the runs are of {counted(len(found), 'kind')} of task: {kinds}"
        raise BadValue(f"experience {name!r:.80}", fact, "give runs of one kind")
    distil.demand_single_values(doings, found[0].wording)
    version = parent.version + 1 if parent is not None else 1
    made = experiences.made(name, found[0], description=description, version=version)
    if parent is not None:
        made = msgspec.structs.replace(made, parent=experiences.digest(parent))
    if plan is None and lessons is None:
        return made
    material = LearnedFrom(
        experience=made,
        runs=[
            LearnedRun(
                run=each.source,
                success=each.success,
                steps=await _steps(workspace, each.source, fetch),
            )
            for each in doings
        ],
    )
    sentences = {"plan": await _sentences_from("plan", plan, material)}
    sentences["lessons"] = await _sentences_from("lessons", lessons, material)
    refs = {each.run: {step.ref for step in each.steps} for each in material.runs}
    told_so = experiences.with_sentences(made, refs, **sentences)
    experiences.demand_few(told_so, f"experience {name!r:.80}")
    return told_so


async def _steps(workspace: Workspace, run: str, fetch: Payloads) -> list[LearnedStep]:
    history = await workspace.states.history(run, await workspace.points.up_to(run, None))
    steps = []
    async for step in traces.trace(run, history).whole(fetch):
        detail = step.traced
        steps.append(
            LearnedStep(
                ref=f"{run}/{detail.agent}#{detail.step}",
                tool=detail.tool,
                status=detail.status,
                arguments=detail.arguments,
                error=detail.error.message if detail.error is not None else "",
            )
        )
    return steps


async def _sentences_from(
    what: str, request: Sentences | None, material: LearnedFrom
) -> list[Lesson]:
    """Call a function of the user for sentences. Raises BadValue for an invalid sentence."""
    if request is None:
        return []
    raw: Any = request(material)
    if inspect.isawaitable(raw):
        raw = await raw
    text = list(raw) if isinstance(raw, Iterable) and not isinstance(raw, str) else [raw]
    for each in text:
        if not isinstance(each, Lesson):
            fact = f"it returned a {type(each).__name__}, not a hansard.actions.Lesson"
            remedy = "give hansard.actions.Lesson(says=..., rests_on=(step.ref, ...))"
            raise BadValue(what, fact, remedy)
    return text


async def _first_request(workspace: Workspace, run: str, fetch: Payloads) -> str:
    """Return the first message of a user in a run. Raises NotFound, BadValue."""
    up_to = await workspace.points.up_to(run, None)
    found = await contexts(workspace, run, up_to, None)
    for agent in found.agents:
        for _, message in window(agent.state):
            content = await fetch.value(message.content)
            if message.role == "user" and isinstance(content, str) and content.strip():
                return content.strip()
    remedy = (
        "give its text: tasks={run: text}, or --task; or record it: session.message('user', ...)"
    )
    raise BadValue(f"run {run}", "no user message states the task", remedy)
