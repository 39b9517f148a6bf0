"""What the workspace already has of the runs and conversations that a section brings.

Of each, the one side must go on from the other: what the file has may be the begin of what stands
here, or the other way round. Where both went on, there is no one history to keep.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hansard.agents.exchange.format import Damaged
from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive
from hansard.bus.log import Stored
from hansard.domain.counted import counted
from hansard.domain.errors import RecordError
from hansard.domain.events import Commit
from hansard.domain.ids import RunStream, StreamId, WorkspaceStream, run_of
from hansard.domain.run import RunForked


class _Here(msgspec.Struct):
    """A run or conversation as it stands here.

    `commits` has the position and the hash of the body, by stream and version; `vector` the version
    of each stream by name, inherited ones included. `met` are those commits that the section has
    too, `new` is the first that only the section has.
    """

    commits: dict[tuple[StreamId, int], tuple[int, int]] = {}
    vector: dict[str, int] = {}
    met: int = 0
    new: tuple[StreamId, int] | None = None


class SectionComparison:
    """Compares a section's commits with those of a workspace. Memory: some 300 bytes for each
    commit that stands here of a run that the section has, too.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._log = workspace.log
        self._here: dict[str | WorkspaceStream, _Here] = {}

    def has(self, stream: StreamId, version: int) -> bool:
        """Whether a commit that was compared stands here."""
        here = self._here.get(_whole(stream))
        return here is not None and (stream, version) in here.commits

    async def compare(self, stream: StreamId, commit: Commit, body: bytes) -> bool:
        """Whether a commit stands here. Raises Damaged where another one does."""
        here = await self._of(_whole(stream))
        found = here.commits.get((stream, commit.version))
        if found is None:
            here.new = here.new or (stream, commit.version)
            return False
        position, hashed = found
        if hashed != hash(body):
            raise Damaged(_other(stream, commit, await self._log.at(position)))
        here.met += 1
        return True

    def end(self) -> None:
        """Raise Damaged where both sides went on from what they share."""
        for whole, here in self._here.items():
            more = len(here.commits) - here.met
            if more and here.new is not None:
                stream, version = here.new
                raise Damaged(
                    f"{_named(whole)} went on here by {counted(more, 'commit')} that the file does "
                    f"not have, and in the file by others, the first of them version {version} of "
                    f"stream {stream}: import it into another workspace"
                )

    async def vector(self, run: str) -> dict[str, int]:
        """The version of each stream of a run by name; empty where the run is not here."""
        return (await self._of(run)).vector

    async def _of(self, whole: str | WorkspaceStream) -> _Here:
        here = self._here.get(whole)
        if here is None:
            if isinstance(whole, WorkspaceStream):
                here = _here(await self._log.read(whole))
            else:
                here = _here(await self._log.read_run(whole))
            self._here[whole] = here
        return here


def _whole(stream: StreamId) -> str | WorkspaceStream:
    """What goes on as one: a run with all its streams, or a conversation."""
    return stream if isinstance(stream, WorkspaceStream) else run_of(stream) or ""


def _named(whole: str | WorkspaceStream) -> str:
    return str(whole) if isinstance(whole, WorkspaceStream) else f"run {whole}"


def _here(commits: Iterable[Stored]) -> _Here:
    here = _Here()
    for stored in commits:
        stream, commit = stored.stream, stored.commit
        if isinstance(stream, RunStream) and not any(
            isinstance(s, RunStream) for s, _ in here.commits
        ):
            here.vector.update(_inherited(commit))
        here.commits[stream, commit.version] = stored.position, hash(stored.body)
        here.vector[str(stream)] = commit.last_version
    return here


def _inherited(first: Commit) -> dict[str, int]:
    """The versions that a run's streams go on from."""
    try:
        event = revive(first.events[0])
    except RecordError:
        return {}
    return event.at if isinstance(event, RunForked) else {}


def _other(stream: StreamId, commit: Commit, standing: Stored) -> str:
    mine = f"{standing.commit.id} by {standing.commit.actor.agent!r} of {standing.commit.at:%FT%TZ}"
    its = f"{commit.id} by {commit.actor.agent!r} of {commit.at:%FT%TZ}"
    return (
        f"{_named(_whole(stream))} went another way here: version {commit.version} of stream "
        f"{stream} is commit {mine} here (position {standing.position}), and commit {its} in the "
        "file: import it into another workspace"
    )
