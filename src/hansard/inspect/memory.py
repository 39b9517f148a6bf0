"""Memory as people and programs ask for it: files, their versions, who wrote what."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hansard.agents.memory import reflection as upkeep
from hansard.agents.memory.reading import MemoryEntry, MemoryVersion
from hansard.agents.memory.reflection import ListedProposal
from hansard.agents.memory.store import BlamedLine, MemoryStore
from hansard.agents.workspace import Workspace
from hansard.domain.memory.events import MemoryPolicySet, space_name
from hansard.inspect.answer import Answer


class ListedFile(msgspec.Struct, kw_only=True):
    """A file of a space. `size` is in bytes of UTF-8, `version` the space's that changed it last.

    Attributes:
        space: Whose it is.
        path: From the root of the tree.
        kind: procedural, semantic or episodic.
        size: How large it is.
        version: Of which change.
        author: Who changed it last.
        label: Of all that it comes from; empty for public and trusted.
        digest: Of its text.
    """

    space: str
    path: str
    kind: str
    size: int
    version: int
    author: str
    label: str
    digest: str


class MemoryListing(Answer, kw_only=True):
    """The files of some spaces at a point."""

    files: list[ListedFile]
    spaces: list[str]

    def lines(self) -> Iterable[ListedFile]:
        """Each file."""
        return self.files


class MemoryLog(Answer, kw_only=True):
    """The versions of a file, or of all files of a space, the oldest first."""

    space: str
    versions: list[MemoryVersion]

    def lines(self) -> Iterable[MemoryVersion]:
        """Each version."""
        return self.versions


class MemoryBlame(Answer, kw_only=True):
    """The lines of a file, each with the change that brought it."""

    space: str
    path: str
    blamed: list[BlamedLine]

    def lines(self) -> Iterable[BlamedLine]:
        """Each line."""
        return self.blamed


class MemoryDiff(msgspec.Struct, kw_only=True):
    """What became of files between two points, in git's unified format.

    Attributes:
        space: Whose files.
        diff: Empty where nothing changed.
    """

    space: str
    diff: str


class MemoryChangeMade(msgspec.Struct, kw_only=True):
    """A change, or a policy, as it was put on record.

    Attributes:
        space: Of which space.
        version: That it is at.
        changed: Whether that is new.
    """

    space: str
    version: int
    changed: bool


async def listing(workspace: Workspace, space: str | None, at: object = None) -> MemoryListing:
    """The files of a space at a point, or of all spaces. Raises BadName, NotFound."""
    names = [space] if space is not None else await workspace.memories.spaces()
    found: list[ListedFile] = []
    for name in names:
        found += [_listed(entry) for entry in await MemoryStore(workspace, name).entries(at)]
    return MemoryListing(files=found, spaces=names)


def _listed(entry: MemoryEntry) -> ListedFile:
    return ListedFile(
        space=entry.space,
        path=entry.path,
        kind=entry.kind.value,
        size=entry.binary or len(entry.text.encode()),
        version=entry.version,
        author=entry.author,
        label=entry.label,
        digest=entry.digest,
    )


async def entry(workspace: Workspace, space: str, path: str, at: object = None) -> MemoryEntry:
    """A file at a point. Raises BadName, BadValue, NotFound."""
    return await MemoryStore(workspace, space).entry(path, at)


async def log(workspace: Workspace, space: str, path: str | None) -> MemoryLog:
    """The versions of a file, or of all. Raises BadName, BadValue."""
    versions = await MemoryStore(workspace, space).versions(path)
    return MemoryLog(space=space, versions=versions)


async def blame(workspace: Workspace, space: str, path: str) -> MemoryBlame:
    """The change that brought each line. Raises BadName, BadValue, NotFound."""
    blamed = await MemoryStore(workspace, space).blame(path)
    return MemoryBlame(space=space, path=path, blamed=blamed)


async def diff(
    workspace: Workspace, space: str, path: str | None, before: object, after: object
) -> MemoryDiff:
    """What became of a file, or of all, between two points. Raises BadName, BadValue, NotFound."""
    found = await MemoryStore(workspace, space).diff(path, before, after)
    return MemoryDiff(space=space, diff=found)


class MemoryProposals(Answer, kw_only=True):
    """What is proposed for a space's files, the newest last."""

    space: str
    proposals: list[ListedProposal]

    def lines(self) -> Iterable[ListedProposal]:
        """Each file of each proposal."""
        return self.proposals


class MemoryProposalMade(msgspec.Struct, kw_only=True):
    """A proposal that a person made a change.

    Attributes:
        space: Of which space.
        version: That it is at.
        diff: What changed, in git's unified format.
    """

    space: str
    version: int
    diff: str


async def proposals(workspace: Workspace, space: str) -> MemoryProposals:
    """What is proposed for a space's files. Raises BadName."""
    found = await upkeep.listed(workspace, space_name(space))
    return MemoryProposals(space=space, proposals=found)


async def policy(workspace: Workspace, space: str) -> MemoryPolicySet | None:
    """What a space asks about, as it was said last; None where nobody did: about all changes."""
    return (await MemoryStore(workspace, space).state()).policy
