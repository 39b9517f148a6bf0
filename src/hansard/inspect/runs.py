"""Which runs there are, and what each one's agents did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from hansard.agents import run_index
from hansard.agents.run_index import RunFilter, RunLife
from hansard.agents.workspace import Workspace
from hansard.bus.times import Time, last, own
from hansard.domain.errors import HansardError
from hansard.domain.steps import Failure, StepStatus
from hansard.inspect.answer import Answer
from hansard.inspect.trace import commits_by_agent
from hansard.state.replay import fold_agent

AT_ONCE_MAX = 10
"""Runs that are read at once: what waits is the broker's answers, and each is held whole."""


class Run(msgspec.Struct, kw_only=True):
    """A run in short.

    A call with effects is in doubt until its outcome is on record, also while it is under way.
    What its agents did is None where that could not be read, and `problem` says why. `began` and
    `last` are as in `hansard run show`: a time and its clock, null where the source of an import
    gives no time. `gone` are those at work whose process has ended, as far as that is known.
    """

    run: str
    workflow: str
    status: str
    agents: dict[str, str]
    at_work: list[str]
    gone: list[str] = []
    steps: int | None = None
    open_steps: int | None = None
    in_doubt_steps: int | None = None
    failed_steps: int | None = None
    began: Time | None
    last: Time | None = None
    position: int | None = None
    program: str
    conversation: str | None
    forked_from: str | None
    probe: str | None
    labels: dict[str, str]
    error: Failure | None
    problem: str | None


class Runs(Answer):
    """The runs that were asked for, the newest first: at most so many of those `found`, of `all`
    that there are. `probed` more would be among them, and are forks of probes; `undated` more match
    everything but the span of time, since their sources give no time; `unread` more could not be
    read and are left out by a filter. `lost` are those whose life could not be read; `unknown` says
    what was asked for that no run has.
    """

    runs: list[Run]
    found: int
    all: int
    probed: int
    undated: int
    unread: int
    lost: set[str]
    unknown: list[str]

    def lines(self) -> Iterable[Run]:
        """Each run."""
        return self.runs


async def list_runs(
    workspace: Workspace, wanted: RunFilter, limit: int, *, probes: bool = False
) -> Runs:
    """The runs that are asked for, with or without the forks of probes; 0 is no limit. Reads the
    whole of each run it gives.
    """
    lives = await run_index.read(workspace.log)
    taken = [life for life in lives if wanted.takes(life)]
    found = [life for life in taken if probes or life.probe is None]
    given = found[:limit] if limit > 0 else found
    return Runs(
        runs=await _all(workspace, given),
        found=len(found),
        all=len(lives),
        probed=len(taken) - len(found),
        undated=sum(map(wanted.leaves_out_undated, lives)),
        unread=sum(life.error is not None and not wanted.takes(life) for life in lives),
        lost={life.run for life in given if life.problem},
        unknown=list(wanted.unknown(lives)) if not found else [],
    )


async def _all(workspace: Workspace, lives: Sequence[RunLife]) -> list[Run]:
    """Runs in short; some are asked for at once."""
    made: list[Run] = []
    for start in range(0, len(lives), AT_ONCE_MAX):
        some = lives[start : start + AT_ONCE_MAX]
        made += await asyncio.gather(*(_run(workspace, life) for life in some))
    return made


async def _run(workspace: Workspace, life: RunLife) -> Run:
    state = life.state
    made = Run(
        run=life.run,
        workflow=state.workflow,
        status=state.status.value,
        agents=state.roster,
        at_work=life.at_work,
        began=life.began.time if life.began is not None else None,
        program=state.program,
        conversation=state.conversation_id,
        forked_from=state.forked.parent if state.forked is not None else None,
        probe=life.probe,
        labels=state.labels,
        error=state.error,
        problem=life.problem,
    )
    try:
        commits = await workspace.states.history(life.run)
        states = [fold_agent(agent) for agent in commits_by_agent(commits).values()]
    except HansardError as error:
        made.problem = life.problem or str(error)
        return made
    statuses = Counter(step.status for state in states for step in state.steps.values())
    made.steps = statuses.total()
    made.open_steps = sum(len(state.open_steps) for state in states)
    made.in_doubt_steps = sum(len(state.in_doubt) for state in states)
    made.failed_steps = statuses[StepStatus.FAILED]
    made.last, made.position = last(own(life.run, commits)).time, commits[-1].position
    return made
