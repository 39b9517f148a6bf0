"""Reflection on ended runs, itself a run.

The runs are read, a function makes proposals as a step, and one event records the runs that were
taken and the proposals.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from hansard.agents.artifacts.prompts import Prompt
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain.label import Label, join
from hansard.domain.label import text as text_of
from hansard.domain.memory.files import MemoryProposal, MemoryReflected
from hansard.ext.memory import upkeep
from hansard.ext.memory.upkeep import (
    ExpectedLine,
    Propose,
    ReflectionScore,
    RunInput,
    user_requests,
)

if TYPE_CHECKING:
    from hansard.client.record import AsyncRecord

AGENT = "reflect"
"""Name of the agent that reflects."""

CUT = "it was cut off, and another reflection took its runs"
"""Reason on record for cancelling a reflection."""


class Reflected(msgspec.Struct, frozen=True):
    """The result of a reflection.

    Attributes:
        space: The memory space.
        runs: The runs that were reflected on; empty if none was left.
        proposals: The proposals; no file was changed.
        run: The reflection's own run; empty if no run was left.
        label: The label of everything that the proposals rest on.
        left: Number of runs left for the next reflection.
    """

    space: str
    runs: list[str]
    proposals: list[MemoryProposal]
    run: str = ""
    label: str = ""
    left: int = 0


class Ask(Protocol):
    """A function or coroutine function that calls a model."""

    def __call__(self, prompt: str, /) -> Any:
        """Return the model's response, as a text."""
        ...


async def our_prompt(record: AsyncRecord) -> Prompt:
    """Return the version that the alias of our prompt names; add our text if there is none."""
    try:
        return await record.prompts.get(f"{upkeep.PROMPT}@{upkeep.ALIAS}")
    except NotFound:
        because = "what to remember, where and in which form"
        version = await record.prompts.add(upkeep.PROMPT, upkeep.TEXT, reason=because)
        named = f"{upkeep.PROMPT}@{version}"
        await record.prompts.alias(named, upkeep.ALIAS, reason="the first one")
        return await record.prompts.get(f"{upkeep.PROMPT}@{upkeep.ALIAS}")


async def judge(
    record: AsyncRecord, run: str, key: Sequence[ExpectedLine], by: str = "answer key"
) -> ReflectionScore:
    """Score a reflection's proposals against an answer key, as metrics of its run.

    In SQL the macro `remembering` sums them per version of the prompt.

    Args:
        record: The workspace's record.
        run: The reflection's own run.
        key: The proposals that it should have made.
        by: The judge on record.

    Raises:
        NotFound: No reflection of that run is on record.
    """
    memories = record.workspace.memories
    reflections = [
        each.event
        for space in await memories.spaces()
        for each in await memories.history(space)
        if isinstance(each.event, MemoryReflected) and each.event.reflection == run
    ]
    if not reflections:
        raise NotFound(f"reflection {run!r:.80}", "see 'hansard memory proposals SPACE'")
    value = upkeep.score_proposals([one for event in reflections for one in event.proposals], key)
    await record.experiments.score(run, value.scores, by=by)
    return value


async def reflect(
    record: AsyncRecord,
    space: str,
    files: dict[str, str],
    propose: Propose = user_requests,
    *,
    limit: int = upkeep.RUNS_MAX,
    run: str | None = None,
    ask: Ask | None = None,
) -> Reflected:
    """Reflect on ended runs that a space has not been given yet, the oldest first.

    If it is killed at any point, each run is still reflected on once: the event with the proposals
    also names the runs. An earlier reflection of the space that has not ended is resumed, with its
    recorded answers. If it is still at work elsewhere, it is fenced.

    Args:
        record: The workspace's record.
        space: The memory space: `agent/<name>`, `user/<principal>` or `org`.
        files: The space's present files, by path; proposals get their label, too.
        propose: Makes proposals from runs and files; by default those that users requested.
        limit: Most runs to take.
        run: Only this run, if given.
        ask: A model, in place of `propose`: a function of our prompt as a text (the version that
            `memory-remember@production` names) that returns the response.

    Raises:
        BadName: The space's name is malformed.
        BadValue: A proposal is invalid.
        NotFound: There is no such run.
        Refused: Another reflection took one of the runs first; nothing of this one is on record.
    """
    workspace = record.workspace
    begun = await _begun(record, space, run)
    if run is not None:
        await upkeep.demand_unreflected(workspace, space, run)
        waiting = [run]
    else:
        waiting = await upkeep.unreflected(workspace, space, limit=1_000_000)
    files = _needed(files, propose, ask)
    taken = waiting[:limit]
    for each in begun if not taken else begun[1:]:
        await record.cancel(each, by=AGENT, reason=CUT)
    if not taken:
        return Reflected(space, [], [])
    labels = {"space": space} | ({"of": run} if run is not None else {})
    mine = begun[0] if begun else None
    async with record.run(upkeep.WORKFLOW, agent=AGENT, labels=labels, run=mine) as session:
        runs, label = await _read(workspace, taken, space, files)
        session.engine.ledger.shown(label.stored)
        text = ""
        if ask is not None:
            prompt = await our_prompt(record)
            text = prompt.format(**upkeep.variables(runs, files))

        @session.tool(effects="pure", kind="model", name="propose")
        async def proposed(space: str, of: list[str], prompt: str) -> list[dict[str, Any]]:
            del space, of
            return await _plain(runs, files, propose, ask, prompt)

        answer = await proposed(space, taken, text)
        proposals = [msgspec.convert(each, MemoryProposal) for each in answer]
        event = MemoryReflected(
            runs=tuple(taken), proposals=tuple(proposals), reflection=session.run
        )
        label = session.engine.ledger.label  # an answer from before a cut may rest on more
        await upkeep.record(workspace, space, AGENT, event, label)
    return Reflected(space, taken, proposals, session.run, text_of(label), len(waiting[limit:]))


def _needed(files: dict[str, str], propose: Propose, ask: Ask | None) -> dict[str, str]:
    """Return the files that proposals depend on; requests of users depend on the notes alone."""
    if ask is not None or propose is not user_requests:
        return files
    return {path: text for path, text in files.items() if path == upkeep.NOTES}


async def _read(
    workspace: Workspace, taken: list[str], space: str, files: dict[str, str]
) -> tuple[list[RunInput], Label]:
    """Return the runs as input of a reflection, and the label of all of them and of the files."""
    inputs = [await upkeep.run_input(workspace, run) for run in taken]
    label = await upkeep.label_of(workspace, space, files)
    return [item for item, _ in inputs], join(label, *(label for _, label in inputs))


async def _begun(record: AsyncRecord, space: str, of: str | None) -> list[str]:
    """Return the open reflections of a space, newest first: on one run, or on all that are left.

    End others on the way: one whose event is on record is completed, one on a run that another
    reflection took is cancelled.
    """
    report = await upkeep.reflections(record.workspace, space)
    done = {event.reflection for event in report}
    taken = {run for event in report for run in event.runs}
    runs: list[str] = []
    for run, life in await record.runs(workflow=upkeep.WORKFLOW, status="open"):
        if life.labels.get("space") != space:
            continue
        if run in done:
            async with record.run(upkeep.WORKFLOW, agent=AGENT, run=run):
                pass
        elif life.labels.get("of") in taken:
            await record.cancel(run, by=AGENT, reason=CUT)
        elif life.labels.get("of") == of:
            runs.append(run)
    return runs


async def _plain(
    runs: list[RunInput], files: dict[str, str], propose: Propose, ask: Ask | None, prompt: str
) -> list[dict[str, Any]]:
    """Return checked proposals, from a function or from a model's response. Raises BadValue."""
    answer = ask(prompt) if ask is not None else propose(runs, dict(files))
    proposals = await answer if inspect.isawaitable(answer) else answer
    if ask is not None:
        proposals = upkeep.proposals_in(proposals)
    made: list[dict[str, Any]] = msgspec.to_builtins(
        list(upkeep.check_proposals(proposals, files, runs))
    )
    return made
