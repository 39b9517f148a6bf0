"""Filter of memory by role. Files that a role may not see are removed from the state before
anything is read, searched, changed or checked, so that no listing, count or error depends on them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from hansard.agents.memory.reading import MemoryVersion, versions_of
from hansard.agents.policy.permits import FREE, Permit, changes_file, refused, sees_file
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition
from hansard.domain.errors import BadValue
from hansard.domain.label import Confidentiality, Label, join
from hansard.domain.memory.events import FileChange, FileOp, MemoryChanged
from hansard.domain.memory.space import MemoryState
from hansard.state.aggregates import point_in
from hansard.state.memories import Memories, MemoryEventAt

SEE_HISTORY = "give the id of a change that history() shows, or a time"


class VisibilityFilter:
    """View of memory for one role in a session or a request. Used on the bus's loop."""

    def __init__(
        self,
        permit: Permit,
        cleared: Callable[[], Awaitable[Confidentiality]],
        label: Callable[[], Label | None] = lambda: None,
    ) -> None:
        """Create a filter. cleared: returns the role's current clearance. label: returns the label
        of all that the writer of a change was shown.
        """
        self.permit = permit
        self._cleared = cleared
        self.label = label
        self._last: dict[str, tuple[MemoryState, Confidentiality, MemoryState]] = {}

    @property
    def is_limited(self) -> bool:
        """True if there may be files that the role must not know of, as it has rules."""
        return self.permit.enforced

    def sees(self, space: str, path: str) -> bool:
        """Return whether the role sees all changes of a file."""
        return self.permit.ask(sees_file(space, path)).allowed

    async def of(self, space: str, state: MemoryState) -> MemoryState:
        """Return a space as the role sees it: without files that it may not see or is not cleared
        for. The result must not be modified.
        """
        if not self.is_limited:
            return state
        cleared = Confidentiality.SECRET
        if any(file.label is not None for file in state.files.values()):
            cleared = await self._cleared()
        known = self._last.get(space)
        if known is not None and known[0] is state and known[1] is cleared:
            return known[2]
        seen = state.limited_to(
            msgspec.structs.replace(file, version=0)  # hides how much others wrote
            for path, file in state.files.items()
            if _flows(file.label, cleared) and self.sees(space, path)
        )
        self._last[space] = state, cleared, seen
        return seen

    async def at(self, memories: Memories, space: str, at: object) -> MemoryState:
        """Return a space as the role sees it, now or at a point. Raises BadName, NotFound, and
        BadValue for a version or a position, which would reveal how much others wrote.
        """
        if self.is_limited and at is not None:
            to, up_to, version_wanted = point_in(at)
            if to is not None or isinstance(up_to, AtPosition):
                raise BadValue("at", f"{at!r:.80} counts what others wrote, too", SEE_HISTORY)
            if version_wanted:
                await self._demand_any(space, await memories.history(space), version_wanted)
        return await self.of(space, await memories.at(space, at))

    async def _demand_any(self, space: str, history: Sequence[MemoryEventAt], target: str) -> None:
        """Raise NotFound for a change of which the role may see no file."""
        for each in await self.history(space, history):
            files = each.event.files if isinstance(each.event, MemoryChanged) else ()
            if files and target in (each.id, each.stored.commit.id):
                return
        raise NotFound(f"change {target} of {space}", SEE_HISTORY)

    def demand_changes(self, space: str, changes: Iterable[FileChange]) -> None:
        """Raise RoleRefused for a change of a file that the role may not change, after links are
        resolved.
        """
        for each in changes:
            for path in (each.path, each.was):
                refusal = self.permit.refusal(changes_file(space, path)) if path else None
                if refusal is not None:
                    raise refused(refusal)

    async def versions(
        self, space: str, history: Sequence[MemoryEventAt], path: str | None
    ) -> tuple[list[MemoryVersion], Label | None]:
        """Return the versions of a file, or of all files, that the role may see, and their
        label.
        """
        shown = await self.history(space, history)
        found = versions_of(space, shown, path)
        events = {each.event for each in found}
        label = join(*(each.stored.commit.label for each in shown if each.id in events)).stored
        if self.is_limited:
            found = [msgspec.structs.replace(each, version=0, position=0) for each in found]
        return found, label

    async def history(self, space: str, history: Sequence[MemoryEventAt]) -> list[MemoryEventAt]:
        """Return the changes of a space that the role may see, reduced to the visible parts."""
        cleared = Confidentiality.SECRET
        if any(each.stored.commit.label is not None for each in history):
            cleared = await self._cleared()
        may = [each for each in history if _flows(each.stored.commit.label, cleared)]
        return [self._visible_part(space, each) for each in may] if self.is_limited else may

    def _visible_part(self, space: str, each: MemoryEventAt) -> MemoryEventAt:
        """Remove the files that the role does not see from a change. If any is removed, reason and
        sources go too, as they also describe the removed ones.
        """
        if not isinstance(each.event, MemoryChanged):
            return each
        files = tuple(
            self._without(space, file) for file in each.event.files if self.sees(space, file.path)
        )
        if files == each.event.files:
            return each
        event = msgspec.structs.replace(each.event, files=files, because="", sources=())
        return msgspec.structs.replace(each, event=event)

    def _without(self, space: str, file: FileChange) -> FileChange:
        """Remove the old path of a moved file if the role does not see that path."""
        if not file.was or self.sees(space, file.was):
            return file
        return msgspec.structs.replace(file, op=FileOp.CREATED, was="", before="")

    async def demand_whole(self, space: str, history: Sequence[MemoryEventAt], target: str) -> None:
        """Raise NotFound for a change that the role may not see completely, and for one named by
        its version, which would reveal how much others wrote.
        """
        if not self.is_limited:
            return
        previous = {each.id: each.event for each in history}
        for each in await self.history(space, history):
            if target in (each.id, each.stored.commit.id) and each.event is previous[each.id]:
                return
        raise _no_change(space, target)

    async def demand_returned(self, space: str, target: str, label: Label | None) -> None:
        """Raise NotFound, as for a missing change, if its undo would restore a text that the role
        is not cleared for.
        """
        if self.is_limited and label is not None and not _flows(label, await self._cleared()):
            raise _no_change(space, target)


async def _all() -> Confidentiality:
    return Confidentiality.SECRET


def _no_change(space: str, target: str) -> NotFound:
    return NotFound(f"change {target!r:.80} of {space}", SEE_HISTORY)


EVERYTHING = VisibilityFilter(FREE, _all)
"""Filter that shows everything, for trusted readers."""


def _flows(label: Label | None, cleared: Confidentiality) -> bool:
    return label is None or label.flows_to(cleared)
