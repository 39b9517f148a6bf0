"""Reflection as a run of its own: the runs are read, a function proposes as a step, and one event
says which runs were taken and what came of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from hansard.agents.artifacts.prompts import Prompt
from hansard.agents.memory import reflection as upkeep
from hansard.agents.memory.reflection import Judged, Propose, RunTold, Wanted, asked_for
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain.label import Label, join
from hansard.domain.label import text as text_of
from hansard.domain.memory.events import MemoryProposal, MemoryReflected

if TYPE_CHECKING:
    from hansard.client.record import AsyncRecord

AGENT = "reflect"
"""Who reflects."""

CUT = "it was cut, and others told of its runs"
"""Why one is cancelled."""


class Reflected(msgspec.Struct, frozen=True):
    """What a reflection came to.

    Attributes:
        space: Whose memory.
        runs: The runs that were reflected on; none where nothing was left.
        proposals: What is proposed; no file was changed.
        run: The reflection's own run; empty where nothing was left.
        label: Of what it rests on.
        left: How many runs are left for the next one.
    """

    space: str
    runs: list[str]
    proposals: list[MemoryProposal]
    run: str = ""
    label: str = ""
    left: int = 0


class Ask(Protocol):
    """A model; or a coroutine function that asks one."""

    def __call__(self, prompt: str, /) -> Any:
        """Its answer, as a text."""
        ...


async def our_prompt(record: AsyncRecord) -> Prompt:
    """The version of our prompt that is used: that which its alias names, at first ours."""
    try:
        return await record.prompt(f"{upkeep.PROMPT}@{upkeep.ALIAS}")
    except NotFound:
        because = "what to remember, where and in which form"
        version = await record.add_prompt(upkeep.PROMPT, upkeep.TEXT, because=because)
        named = f"{upkeep.PROMPT}@{version}"
        await record.alias_prompt(named, upkeep.ALIAS, because="the first one")
        return await record.prompt(f"{upkeep.PROMPT}@{upkeep.ALIAS}")


async def judge(
    record: AsyncRecord, run: str, key: Sequence[Wanted], by: str = "answer key"
) -> Judged:
    """Hold what a reflection proposed against a key, and have it be outcomes of its run: in SQL the
    macro `remembering` sums them per version of the prompt.

    Args:
        record: The workspace's.
        run: The reflection's own run.
        key: What it should have proposed.
        by: Who says so.

    Raises:
        NotFound: No reflection of that run is on record.
    """
    memories = record.workspace.memories
    found = [
        each.event
        for space in await memories.spaces()
        for each in await memories.history(space)
        if isinstance(each.event, MemoryReflected) and each.event.reflection == run
    ]
    if not found:
        raise NotFound(f"reflection {run!r:.80}", "see 'hansard memory proposals SPACE'")
    value = upkeep.judged([one for event in found for one in event.proposals], key)
    await record.score(run, value.scores, by=by)
    return value


async def reflect(
    record: AsyncRecord,
    space: str,
    files: dict[str, str],
    propose: Propose = asked_for,
    *,
    limit: int = upkeep.RUNS_MAX,
    run: str | None = None,
    ask: Ask | None = None,
) -> Reflected:
    """Reflect on the runs that have ended and that a space was not told of, the oldest first.

    Killed at any point, each run is reflected on once: what was taken stands in the event that says
    what came of it. One that was begun for the space and has not ended is gone on with: what it
    was answered stands on record. If it is still at work elsewhere, it is fenced.

    Args:
        record: The workspace's.
        space: The space that is told: `agent/<name>`, `user/<principal>` or `org`.
        files: Its files as they stand, by path; what comes of it is labelled as they are, too.
        propose: Makes proposals of runs and files; what users asked to be remembered if not given.
        limit: So many runs at most.
        run: Only this run, if given.
        ask: A model: is given our prompt, the version that `memory-remember@production` names, as a
            text, and returns its answer. In the place of `propose`.

    Raises:
        BadName: The space's name is none.
        BadValue: A proposal is none.
        NotFound: There is no such run.
        Refused: Another reflection took one of the runs meanwhile, or before; nothing of this one
            stands.
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
        await record.cancel(each, by=AGENT, because=CUT)
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

        found = await proposed(space, taken, text)
        proposals = [msgspec.convert(each, MemoryProposal) for each in found]
        event = MemoryReflected(
            runs=tuple(taken), proposals=tuple(proposals), reflection=session.run
        )
        label = session.engine.ledger.label  # what was answered before a cut may rest on more
        await upkeep.record(workspace, space, AGENT, event, label)
    return Reflected(space, taken, proposals, session.run, text_of(label), len(waiting[limit:]))


def _needed(files: dict[str, str], propose: Propose, ask: Ask | None) -> dict[str, str]:
    """The files that proposals are made of: what users asked for goes by the notes alone."""
    if ask is not None or propose is not asked_for:
        return files
    return {path: text for path, text in files.items() if path == upkeep.NOTES}


async def _read(
    workspace: Workspace, taken: list[str], space: str, files: dict[str, str]
) -> tuple[list[RunTold], Label]:
    """Runs as a reflection is given them, and the label of all that stands in them and in files."""
    found = [await upkeep.told(workspace, run) for run in taken]
    label = await upkeep.label_of(workspace, space, files)
    return [item for item, _ in found], join(label, *(label for _, label in found))


async def _begun(record: AsyncRecord, space: str, of: str | None) -> list[str]:
    """The reflections of a space that have not ended, the newest first: on one run, or on all that
    are left. What they were cut at ends others: one that had told what came of it is done, one on
    a run that another told of is cancelled.
    """
    report = await upkeep.reflections(record.workspace, space)
    done = {event.reflection for event in report}
    taken = {run for event in report for run in event.runs}
    found: list[str] = []
    for run, life in await record.runs(workflow=upkeep.WORKFLOW, status="open"):
        if life.labels.get("space") != space:
            continue
        if run in done:
            async with record.run(upkeep.WORKFLOW, agent=AGENT, run=run):
                pass
        elif life.labels.get("of") in taken:
            await record.cancel(run, by=AGENT, because=CUT)
        elif life.labels.get("of") == of:
            found.append(run)
    return found


async def _plain(
    runs: list[RunTold],
    files: dict[str, str],
    propose: Propose,
    ask: Ask | None,
    prompt: str,
) -> list[dict[str, Any]]:
    """What is proposed, by a function or by a model's answer, checked. Raises BadValue."""
    given = ask(prompt) if ask is not None else propose(runs, dict(files))
    found = await given if inspect.isawaitable(given) else given
    if ask is not None:
        found = upkeep.proposals_in(found)
    made: list[dict[str, Any]] = msgspec.to_builtins(list(upkeep.checked(found, files, runs)))
    return made
