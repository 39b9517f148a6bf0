"""Record of refused access, at most one event a minute for each principal and operation.

The first refusal is written at once; further ones within the minute are counted and written as one
event when it ends. Repeated refusals thus cost a bounded number of events.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

import msgspec

from hansard.agents.access import principals
from hansard.agents.access.authenticator import AccessDenied
from hansard.agents.workspace import Workspace, transact
from hansard.bus.errors import BusError
from hansard.bus.log import Append, Expected, NotYet, VersionFree
from hansard.domain.access import KIND, STRANGER, AccessRefused
from hansard.domain.errors import HansardError
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import HIGHEST, Label
from hansard.domain.principal import KIND as PRINCIPAL

WINDOW_S = 60.0
"""Time during which further refusals are only counted, in seconds."""

OPERATIONS_MAX = 64
"""Most operations that are counted separately for one principal; further ones count as `OTHER`."""

OTHER = "other"
TEXT_LENGTH_MAX = 200
"""Most characters of each claimed text, as it is written by a stranger."""

BY = "service"


class _Counted(msgspec.Struct):
    """Refusals since the last event: their number, and the newest claim."""

    ends_s: float
    count: int = 0
    last: AccessRefused | None = None


class Denials:
    """Records refusals. Use it in an `async with`, or close it, which writes the pending counts.

    window_s: how long refusals are counted before they are written, in seconds.
    """

    def __init__(self, workspace: Workspace, *, window_s: float = WINDOW_S) -> None:
        self._workspace = workspace
        self._window_s = window_s
        self._counted: dict[tuple[str, str], _Counted] = {}
        self._writing = asyncio.Lock()
        self._flushing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def note(self, denied: AccessDenied, operation: str) -> None:
        """Record a refusal, now or with the others of its minute. Raises BusError."""
        who = denied.principal if denied.known else STRANGER
        what = _clean(operation)
        known = sum(principal == who for principal, _ in self._counted)
        if (who, what) not in self._counted and known >= OPERATIONS_MAX:
            what = OTHER
        event = AccessRefused(
            principal=_clean(denied.principal),
            role=_clean(denied.role),
            operation=what,
            because=denied.reason,
        )
        found = self._counted.get((who, what))
        if found is None:
            self._counted[who, what] = _Counted(self._now() + self._window_s)
            if self._flushing is None or self._flushing.done():
                self._flushing = asyncio.create_task(self._flush())
            await self._write(who, event)
        else:
            found.count += 1
            found.last = event

    async def close(self) -> None:
        """Write the pending counts."""
        self._closing.set()  # not cancelled: an interrupted write might be made twice
        if self._flushing is not None:
            await self._flushing
        for (who, _), found in self._counted.items():
            await self._write_counted(who, found)
        self._counted.clear()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _flush(self) -> None:
        """Write each minute's count when it ends; return when none is left."""
        while self._counted and not self._closing.is_set():
            ends_s = min(found.ends_s for found in self._counted.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, ends_s - self._now())):
                    await self._closing.wait()
            for (who, what), found in list(self._counted.items()):
                if found.ends_s > self._now():
                    continue
                if found.count == 0:
                    del self._counted[who, what]
                    continue
                found.ends_s = self._now() + self._window_s
                with contextlib.suppress(BusError):  # stays counted for the next one
                    await self._write_counted(who, found)

    async def _write_counted(self, who: str, counted: _Counted) -> None:
        if counted.last is None or not counted.count:
            return
        count = counted.count
        await self._write(who, msgspec.structs.replace(counted.last, count=count))
        counted.count -= count

    async def _write(self, who: str, event: AccessRefused) -> None:
        stream = WorkspaceStream(KIND, who)

        async def read() -> tuple[int, tuple[Label | None, Expected]]:
            last = await self._workspace.log.last(stream)
            return (last.commit.last_version if last is not None else 0), await self._under(who)

        def next_append(found: tuple[int, tuple[Label | None, Expected]]) -> Append:
            version, (label, expected) = found
            commit = self._workspace.commit(version + 1, BY, [event], label=label)
            return Append(stream, commit, expected)

        async with self._writing:
            await transact(read, next_append, self._workspace.log.append)

    async def _under(self, who: str) -> tuple[Label | None, Expected]:
        """Return the label of a refusal's event, and the condition that the principal's label is
        unchanged: the event holds the principal's own words. A stranger has no label.
        """
        if who == STRANGER:
            return None, VersionFree()
        try:
            state = await principals.read(self._workspace, who)
        except HansardError:  # an unreadable label may be the highest
            return HIGHEST, VersionFree()
        return state.carries.stored, NotYet(WorkspaceStream(PRINCIPAL, who), state.version + 1)


def _clean(text: str) -> str:
    """Return a claimed text as it may be recorded: short, and valid UTF-8."""
    return text[:TEXT_LENGTH_MAX].encode(errors="backslashreplace").decode()
