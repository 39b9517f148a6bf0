"""The lives of all runs in few requests: 200 runs in one, whatever their length."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive
from hansard.bus.log import Stored
from hansard.bus.states import FORK_DEPTH_MAX, fold_life
from hansard.domain.errors import HansardError, RecordError
from hansard.domain.ids import Life
from hansard.domain.run import RunForked, RunState

LIVES_AT_ONCE_MAX = 200
"""Streams in one consistent request."""


class RunLife(msgspec.Struct):
    """A run's life. `problem` says why it could not be read; the state is then empty."""

    run: str
    state: RunState
    started: datetime | None
    position: int
    problem: str | None = None


async def read(workspace: Workspace) -> list[RunLife]:
    """Every run, the newest first."""
    runs = await workspace.log.runs()
    own: dict[str, list[Stored]] = {}
    problems: dict[str, str] = {}
    for start in range(0, len(runs), LIVES_AT_ONCE_MAX):
        chunk = runs[start : start + LIVES_AT_ONCE_MAX]
        try:
            commits = await workspace.log.read_streams([Life(run) for run in chunk])
        except RecordError:
            commits = []
            for run in chunk:
                try:
                    commits += await workspace.log.read_streams([Life(run)])
                except RecordError as error:
                    problems[run] = str(error)
        for stored in commits:
            if isinstance(stored.stream, Life):
                own.setdefault(stored.stream.run, []).append(stored)
    found = [_life(run, own) for run in own]
    found.sort(key=lambda life: -life.position)
    return found + [RunLife(run, RunState(), None, 0, why) for run, why in problems.items()]


def _life(run: str, own: dict[str, list[Stored]]) -> RunLife:
    first = own[run][0]
    life = RunLife(run, RunState(), first.time, first.position)
    try:
        life.state = fold_life(list(_through_parents(run, own)))
    except HansardError as error:
        life.problem = str(error)
    return life


def _through_parents(run: str, own: dict[str, list[Stored]]) -> Iterator[Stored]:
    """A life's commits from version 1, the parents' up to each cut."""
    line: list[tuple[list[Stored], int | None]] = []
    cut: int | None = None
    for _ in range(FORK_DEPTH_MAX):
        commits = own.get(run, [])
        line.append((commits, cut))
        forked = revive(commits[0].commit.events[0]) if commits else None
        if not isinstance(forked, RunForked):
            break
        run, cut = forked.parent, forked.at.get("life", 0)
    for commits, limit in reversed(line):
        for stored in commits:
            if limit is None or stored.commit.version <= limit:
                yield stored
