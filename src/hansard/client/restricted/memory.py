"""A space of memory over the service, as its twins ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

import msgspec

from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op
from hansard.agents.memory.reading import MemoryEntry, MemoryVersion
from hansard.agents.memory.store import BlamedLine
from hansard.agents.memory.write import secrets
from hansard.agents.steps.scope import guard_secrets
from hansard.client.operations import (
    Ask,
    FileOp,
    RecordMemoryBlame,
    RecordMemoryChange,
    RecordMemoryDiff,
    RecordMemoryEntries,
    RecordMemoryEntry,
    RecordMemoryHistory,
    RecordMemoryRevert,
    of,
)
from hansard.client.protocol import shapes
from hansard.client.protocol.errors import NotOffered
from hansard.client.restricted.lacking import TRUSTED
from hansard.client.restricted.link import Link, value_of
from hansard.client.restricted.operations import event_point
from hansard.domain.memory.events import MemoryPolicySet, space_name
from hansard.domain.memory.space import MemoryInvalid
from hansard.domain.values import recordable


@guard_secrets("memory")
class RemoteStore:
    """One space. A secret is sent nowhere. Everything runs on the bus's loop."""

    def __init__(self, link: Link, space: str) -> None:
        self.space = space_name(space)
        self._link = link
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
        found: MemoryEntry = await self._ask(RecordMemoryEntry(self.space, path, _point(at)))
        return found

    async def entries(self, at: object = None) -> list[MemoryEntry]:
        """All files that the role sees."""
        found: list[MemoryEntry] = await self._ask(RecordMemoryEntries(self.space, _point(at)))
        return found

    async def versions(self, path: str | None = None) -> list[MemoryVersion]:
        """The versions of a file, or of all."""
        found: list[MemoryVersion] = await self._ask(RecordMemoryHistory(self.space, path))
        return found

    async def diff(self, path: str | None, before: object, after: object = None) -> str:
        """What became of a file, or of all, between two points."""
        asked = RecordMemoryDiff(self.space, path, _point(before) or "", _point(after))
        return str(await self._ask(asked))

    async def blame(self, path: str) -> list[BlamedLine]:
        """The change that brought each line."""
        found: list[BlamedLine] = await self._ask(RecordMemoryBlame(self.space, path))
        return found

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
        told = recordable(because, self._redaction)
        await self._ask(RecordMemoryChange(self.space, asked, told, list(sources)))
        return 0

    async def remember(self, text: str, by: str, path: str, sources: Sequence[str] = ()) -> int:
        """Add an item to a file's list."""
        return await self.change([drafts.remembered(path, text)], by, "to be remembered", sources)

    async def revert(self, change: str, by: Any, because: str = "") -> int:
        """Undo a change; 0."""
        self._demand_own(by)
        reason = recordable(because, self._redaction)
        await self._ask(RecordMemoryRevert(self.space, change, reason))
        return 0

    async def set_policy(self, policy: MemoryPolicySet, by: str) -> NoReturn:
        """Raises NotOffered: who is asked a trusted program says."""
        del policy, by
        raise NotOffered("memory.set_policy", TRUSTED)

    def _demand_own(self, by: Any) -> None:
        mine = self._link.credentials.principal
        if by != mine:
            raise NotOffered(f"by={by!r:.80}", f"these credentials are of {mine!r}: give that")

    async def _ask(self, asked: Ask) -> Any:
        operation = of(asked)
        answer = value_of(await self._link.outside(operation.method, asked))
        return shapes.back(answer, operation.result)


def _point(at: object) -> str | None:
    return at.isoformat() if isinstance(at, datetime) else event_point(at)
