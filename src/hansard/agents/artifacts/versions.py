"""Reading and appending of prompts, action caches and experiences.

Runs on the bus's loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.commits import drive_fetch, revive_all
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored, UpTo
from hansard.domain import payload
from hansard.domain.decider import ArtifactKind, ArtifactState, fold
from hansard.domain.errors import BadName
from hansard.domain.events import Actor, Event
from hansard.domain.label import Label, join, parse
from hansard.state.repository import folded

S = TypeVar("S", bound=ArtifactState[Any])


class Artifact(msgspec.Struct, Generic[S], frozen=True):
    """An artifact, folded from its commits."""

    state: S
    commits: Sequence[Stored]

    @property
    def label(self) -> Label | None:
        """Label of all that its commits rest on; None for public and trusted."""
        return join(*(each.commit.label for each in self.commits)).stored

    def by_version(self) -> dict[int, Stored]:
        """Return the commit that added each version."""
        return {
            number: each
            for each in self.commits
            for event in revive_all([each.commit])
            if event == self.state.versions.get(number := getattr(event, "version", 0))
        }


class ArtifactChange(msgspec.Struct, frozen=True, kw_only=True):
    """Acknowledgement of a change of an artifact.

    Attributes:
        kind: `prompt`, `actions` or `experience`.
        name: Name of the artifact.
        is_new: True if something was recorded; False if it was recorded before.
        version: Version that was added or changed; 0 if an alias was removed.
    """

    kind: str
    name: str
    is_new: bool
    version: int = 0


def of_commits(kind: ArtifactKind[S], commits: Sequence[Stored]) -> Artifact[S]:
    """Fold an artifact from its commits."""
    return Artifact(folded(kind, commits), commits)


def missing(kind: ArtifactKind[Any], name: str) -> NotFound:
    """Return the error for a name that is not in the record."""
    return NotFound(f"{kind.noun} {name!r:.80}", kind.remedy)


async def read(
    workspace: Workspace, kind: ArtifactKind[S], name: str, up_to: UpTo = None
) -> Artifact[S]:
    """Read an artifact at a point. Raises NotFound, BadName, BadValue, UnknownEvent."""
    artifact = await find(workspace, kind, name, up_to)
    if not artifact.commits:
        raise missing(kind, name)
    return artifact


async def find(
    workspace: Workspace, kind: ArtifactKind[S], name: str, up_to: UpTo = None
) -> Artifact[S]:
    """Read an artifact as `read` does; return an empty one if there is none of that name."""
    return of_commits(kind, await workspace.log.read(kind.stream(name), up_to=up_to))


async def change(
    workspace: Workspace,
    kind: ArtifactKind[S],
    name: str,
    event: Event | Callable[[S], Event],
    *,
    by: str | Actor,
    label: Label | None = None,
    begins: bool = False,
) -> ArtifactChange:
    """Append the events that an event leads to; it may be a function of the state.

    Raises NotFound if there is no such artifact, unless it may be created; Refused, BadName,
    BadValue, and Conflict after 50 lost races.
    """
    version = 0

    def decided(commits: list[Stored]) -> Sequence[Event]:
        nonlocal version
        if not (commits or begins):
            raise missing(kind, name)
        before = folded(kind, commits)
        stated = event if isinstance(event, Event) else event(before)
        made = kind.decide(before, stated)
        version = kind.version_of(fold(before, made), stated)
        return made

    is_new = await workspace.repository.record(kind.stream(name), by, decided, label)
    return ArtifactChange(kind=kind.kind, name=name, version=version, is_new=is_new)


async def fetched(workspace: Workspace, raw: msgspec.Raw) -> Any:
    """Return a value of an event, including parts stored as blobs. Raises NotFound, Corrupt."""
    return await drive_fetch(payload.unpack(raw), workspace.blobs.get)


async def label_of_runs(workspace: Workspace, runs: Iterable[str]) -> Label | None:
    """Return the label of what was learned from runs: the join of the labels of all their agents.

    Runs of other records count as public and trusted. Ignores roles: a restricted caller must not
    learn from it which runs exist.
    """
    labels: list[Label] = []
    for run in dict.fromkeys(each for each in runs if each):
        with contextlib.suppress(BadName, NotFound):
            view = await workspace.states.run(run)
            labels += [parse(agent.label) for agent in view.agents.values()]
    return join(*labels).stored
