"""Memory spaces of a restricted agent, addressed by the space's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.agents.memory.reading import MemoryEntry, MemoryVersion
from hansard.agents.memory.store import BlamedLine, MemoryStore
from hansard.agents.memory.twins import MemoryChange
from hansard.agents.policy.permits import Need, changes_file
from hansard.domain.errors import BadValue
from hansard.domain.label import Label, join
from hansard.domain.label import parse as label_of
from hansard.operations.declare import By, C_co, Name, Noun, Point, Prose, free, operation


class FileOp(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A change of one file.

    `op` is create (text, link), edit (old, new), insert (line, text), append (text), rename (to) or
    delete.
    """

    op: str
    path: str
    text: str = ""
    link: bool = False
    old: str = ""
    new: str = ""
    line: int = 0
    to: str = ""

    def add_to(self, change: MemoryChange) -> None:
        """Add this to a change. Raises BadValue."""
        match self.op:
            case "create":
                change.create(self.path, self.text, link=self.link)
            case "edit":
                change.edit(self.path, self.old, self.new)
            case "insert":
                change.insert(self.path, self.line, self.text)
            case "append":
                change.append(self.path, self.text)
            case "rename":
                change.rename(self.path, self.to)
            case "delete":
                change.delete(self.path)
            case other:
                remedy = "give create, edit, insert, append, rename or delete"
                raise BadValue("memory.change(ops)", f"an operation {other!r:.40}", remedy)


def changes(request: Any) -> tuple[Need, ...]:
    """Return the permissions to change the files, if it names a space; else the session checks."""
    if not request.space:
        return ()
    ops = getattr(request, "ops", [request])
    named = [path for op in ops for path in (op.path, getattr(op, "to", "")) if path]
    return tuple(changes_file(request.space, path) for path in dict.fromkeys(named))


class Spaces(Noun[C_co], noun="memory"):
    """Memory spaces: their files as a role sees them, and changes that need no approval.

    Shown files are recorded before they are returned.
    """

    if TYPE_CHECKING:

        async def _shown(self, label: Label | None) -> None:
            """Record that the role is shown data of a label."""

        async def _space(self, space: str) -> MemoryStore:
            """Return a space as the role sees it."""

    @operation(needs=free)
    async def entry(self, space: Name, path: Name, at: Point = None) -> MemoryEntry:
        """Return a file, now or at `at`: the id of a change that the role was shown, or a time."""
        result = await (await self._space(space)).entry(path, at)
        await self._shown(label_of(result.label))
        return result

    @operation(needs=free)
    async def entries(self, space: Name, at: Point = None) -> list[MemoryEntry]:
        """Return all files that the role sees, by path."""
        result = await (await self._space(space)).entries(at)
        await self._shown(join(*(label_of(each.label) for each in result)).stored)
        return result

    @operation(needs=free)
    async def history(self, space: Name, path: Name | None = None) -> list[MemoryVersion]:
        """Return the versions of a file, or the changes of all that the role sees."""
        store = await self._space(space)
        await self._shown(await store.label())
        return await store.versions(path)

    @operation(needs=free)
    async def diff(self, space: Name, path: Name | None, before: Point, after: Point = None) -> str:
        """Return the differences of a file, or of all that the role sees, between two points."""
        store = await self._space(space)
        await self._shown(await store.label())
        return await store.diff(path, before or "", after)

    @operation(needs=free)
    async def blame(self, space: Name, path: Name) -> list[BlamedLine]:
        """Return for each line of a file the change that added it."""
        store = await self._space(space)
        await self._shown(await store.label())
        return await store.blame(path)

    @operation(needs=changes)
    async def change(
        self,
        space: Name,
        ops: Sequence[FileOp],
        reason: Prose = "",
        sources: Sequence[Name] = (),
        *,
        by: By = "",
    ) -> None:
        """Change files, all or none."""
        store = await self._space(space)
        files = (await store.state()).files
        named = [files[path].label for op in ops for path in (op.path, op.to) if path in files]
        await self._shown(join(*named).stored)  # the response depends on their content
        change = MemoryChange()
        for each in ops:
            each.add_to(change)
        await store.change(change.ops, by, reason, sources)

    @operation(needs=free)
    async def revert(self, space: Name, change: Name, reason: Prose = "", *, by: By = "") -> None:
        """Undo a change, all of its files or none."""
        store = await self._space(space)
        await self._shown(await store.label())
        await store.revert(change, by, reason)
