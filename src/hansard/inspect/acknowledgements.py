"""What was put on record, as who had it put there is told it, and whether that is new."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from hansard.agents.importers.sources import Tally
from hansard.domain.memory.events import Problem
from hansard.domain.memory.space import MemoryConflict
from hansard.domain.run import ForkEffects, RunStatus
from hansard.domain.steps import StepStatus, Verdict
from hansard.inspect.answer import Answer

# What an import came to.


class Unanswered(msgspec.Struct, tag_field="kind", tag="unanswered"):
    """A tool call whose result the source does not have."""

    run: str
    call_id: str


class Absent(msgspec.Struct, tag_field="kind", tag="absent"):
    """A large payload that the source could not read either."""

    blob: str


class Summary(msgspec.Struct, tag_field="kind", tag="summary", kw_only=True):
    """An import in figures, as `Tally` has them; `stopped` at the first bad record."""

    runs: int
    messages: int
    calls: int
    commits: int
    events: int
    new: int
    bad: int
    blobs: int
    duplicates: int
    unasked: int
    claims: int
    assumed: dict[str, int]
    left_out: dict[str, int]
    unanswered: int
    stopped: bool


class Imported(Answer):
    """What an import came to, and whether it stopped at the first bad record."""

    tally: Tally
    stopped: bool

    def lines(self) -> Iterator[Unanswered | Absent | Summary]:
        """What is missing, then the figures."""
        tally = msgspec.structs.asdict(self.tally)
        unanswered, absent = tally.pop("unanswered"), tally.pop("absent")
        yield from (Unanswered(run, call) for run, call in unanswered)
        yield from map(Absent, absent)
        yield Summary(**tally, unanswered=len(unanswered), stopped=self.stopped)


class Settled(msgspec.Struct, kw_only=True):
    """What is true of a step now."""

    run: str
    step: str
    verdict: Verdict
    status: StepStatus


class Forked(msgspec.Struct, kw_only=True):
    """A new run, and up to which version of each agent's stream it has its parent's."""

    run: str
    parent: str
    effects: ForkEffects
    vector: dict[str, int]


class Reopened(msgspec.Struct, kw_only=True):
    """A task that failed, and whether it may be claimed again now."""

    run: str
    task: str
    reopened: bool


class Ended(msgspec.Struct, kw_only=True):
    """A run that is over, whether by this word, and who had not left it."""

    run: str
    status: RunStatus
    ended: bool
    at_work: list[str]


class Scored(msgspec.Struct, kw_only=True):
    """What came of a run, by whom, and whether that is new."""

    run: str
    by: str
    metrics: dict[str, float]
    recorded: bool


class Stated(msgspec.Struct, kw_only=True):
    """What one million of each usage of a model costs from a time on, and whether that is new."""

    model: str
    amounts: dict[str, float]
    since: datetime
    stated: bool


class Registered(msgspec.Struct, kw_only=True):
    """An experiment, whether its plan is new, and whether it replaced another."""

    experiment: str
    registered: bool
    replaced: bool = False


class Stopped(msgspec.Struct, kw_only=True):
    """An experiment, and whether this stopped it."""

    experiment: str
    stopped: bool


class Applied(msgspec.Struct, kw_only=True):
    """A role, and whether its rules are new."""

    role: str
    applied: bool


class Withdrawn(msgspec.Struct, kw_only=True):
    """A role, and whether this withdrew it."""

    role: str
    withdrawn: bool


class PrincipalNamed(msgspec.Struct, kw_only=True):
    """A principal, what it is, and whether it is new."""

    principal: str
    kind: str
    registered: bool


class Revoked(msgspec.Struct, kw_only=True):
    """A token, whose it is, and whether this revoked it."""

    principal: str
    token: str
    revoked: bool


class Invalidated(msgspec.Struct, kw_only=True):
    """Answers that are stale now: of a tool, a run or a key; the others are empty."""

    tool: str
    run: str
    key: str


class PromptsImported(msgspec.Struct, kw_only=True):
    """A prompt whose versions were imported: how many its source has, how many are new, how many
    parents they name, which one the alias `best` names for it, and what was not read.
    """

    prompt: str
    source: str
    versions: int
    added: int
    edges: int
    merges: int
    best: int | None = None
    notes: list[str] = []


class MemoryExported(msgspec.Struct, kw_only=True):
    """A folder of a space, at which version, how many files, and what its form cannot say."""

    space: str
    version: int
    folder: str
    files: int
    notes: list[str]


class MemoryCheckedOut(msgspec.Struct, kw_only=True):
    """A folder to work on, and of which version of its space it is."""

    space: str
    version: int
    folder: str
    notes: list[str]


class MemoryValidated(msgspec.Struct, kw_only=True):
    """How many files were checked, and what is wrong with them."""

    files: int
    problems: list[Problem]


class MemoryConflicting(msgspec.Struct, kw_only=True):
    """A file that two changed: both texts (empty: no file), and who wrote the one that stands."""

    space: str
    path: str
    mine: str
    theirs: str
    author: str
    version: int


def conflicting(lost: MemoryConflict) -> MemoryConflicting:
    """What a lost change is told."""
    return MemoryConflicting(
        space=str(lost.space),
        path=str(lost.path),
        mine=str(lost.mine),
        theirs=str(lost.theirs),
        author=str(lost.author),
        version=int(str(lost.version)),
    )
