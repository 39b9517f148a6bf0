"""A space of memory over the service, as its twins ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op
from hansard.agents.memory.reading import MemoryEntry, MemoryVersion
from hansard.agents.memory.store import BlamedLine
from hansard.agents.memory.write import secrets
from hansard.agents.steps.scope import guard_secrets
from hansard.client.restricted.lacking import TRUSTED
from hansard.client.restricted.link import Link, value_of
from hansard.domain.memory.events import MemoryPolicySet, space_name
from hansard.domain.memory.space import MemoryInvalid
from hansard.operations.declare import Operation, sent
from hansard.operations.memory import FileOp, Spaces
from hansard.operations.protocol import shapes
from hansard.operations.protocol.errors import NotOffered


class Sender:
    """Sends operations to the service."""

    _link: Link

    async def _send(
        self, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Raises RoleRefused, NotFound, Refused, NotOffered, BadValue."""
        asked = operation.asked(args, kwargs, self._link.redaction)
        answer = value_of(await self._link.outside(operation.method, asked))
        return shapes.back(answer, operation.result)


@sent
class _RemoteSpaces(Sender, Spaces):
    """Spaces of memory, asked for over the service."""

    def __init__(self, link: Link) -> None:
        self._link = link


@guard_secrets("memory")
class RemoteStore:
    """One space. A secret is sent nowhere. Everything runs on the bus's loop."""

    def __init__(self, link: Link, space: str) -> None:
        self.space = space_name(space)
        self._link = link
        self._spaces = _RemoteSpaces(link)
        self._redaction = link.redaction

    @property
    def pending(self) -> int:
        """How many changes wait: none."""
        return 0

    async def flush(self, timeout_s: float = 0.0) -> None:
        """Each change is in the log when it is acknowledged."""

    def cached(self, path: str) -> MemoryEntry | None:
        """Nothing is kept here: what a role is shown is on record each time."""
        del path
        return None

    async def follow(self) -> NoReturn:
        """Raises NotOffered."""
        raise NotOffered("memory.follow", "read it: what a role is shown is on record each time")

    async def entry(self, path: str, at: object = None) -> MemoryEntry:
        """A file."""
        return await self._spaces.memory_entry(self.space, path, at)

    async def entries(self, at: object = None) -> list[MemoryEntry]:
        """All files that the role sees."""
        return await self._spaces.memory_entries(self.space, at)

    async def versions(self, path: str | None = None) -> list[MemoryVersion]:
        """The versions of a file, or of all."""
        return await self._spaces.memory_history(self.space, path)

    async def diff(self, path: str | None, before: object, after: object = None) -> str:
        """What became of a file, or of all, between two points."""
        return await self._spaces.memory_diff(self.space, path, before, after)

    async def blame(self, path: str) -> list[BlamedLine]:
        """The change that brought each line."""
        return await self._spaces.memory_blame(self.space, path)

    async def change(
        self, ops: Sequence[Op], by: Any, because: str = "", sources: Sequence[str] = ()
    ) -> int:
        """Make a change; 0, since versions count what others wrote. Raises MemoryInvalid."""
        self._demand_own(by)
        bad = [
            each
            for op in ops
            for field in ("text", "old", "new")
            for each in secrets(op["path"], op.get(field, ""), self._redaction)
        ]
        if bad:
            raise MemoryInvalid(self.space, bad)
        asked = [msgspec.convert(op, FileOp) for op in ops]
        await self._spaces.memory_change(self.space, asked, because, sources)
        return 0

    async def remember(self, text: str, by: str, path: str, sources: Sequence[str] = ()) -> int:
        """Add an item to a file's list."""
        return await self.change([drafts.remembered(path, text)], by, "to be remembered", sources)

    async def revert(self, change: str, by: Any, because: str = "") -> int:
        """Undo a change; 0."""
        self._demand_own(by)
        await self._spaces.memory_revert(self.space, change, because)
        return 0

    async def set_policy(self, policy: MemoryPolicySet, by: str) -> NoReturn:
        """Raises NotOffered: who is asked a trusted program says."""
        del policy, by
        raise NotOffered("memory.set_policy", TRUSTED)

    def _demand_own(self, by: Any) -> None:
        mine = self._link.credentials.principal
        if by != mine:
            raise NotOffered(f"by={by!r:.80}", f"these credentials are of {mine!r}: give that")
