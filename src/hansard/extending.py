"""Extend Hansard by a slice: events, a view in SQL and operations in a package of its own.

The package makes a `Slice` and names it as an entry point of the group `hansard.slices`. Each
operation is a method of a noun: `record.noun(Tickets).open(...)` in Python, for trusted programs
and restricted agents; a tool of `hansard mcp serve`; a command of `hansard`. See docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hansard.agents.policy import permits
from hansard.agents.policy.permits import Need
from hansard.bus.clock import OS_USER
from hansard.bus.commits import revive_all
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.bus.slices import Slice
from hansard.domain import ids
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.integrity import may_hold
from hansard.domain.label import LOWEST, Label, join
from hansard.domain.roles.authorize import Trust
from hansard.operations import declare
from hansard.operations.declare import (
    By,
    C_co,
    Content,
    Here,
    Name,
    Named,
    Prose,
    Proses,
    Takes,
    composite,
    free,
    operation,
    trusted,
)
from hansard.operations.sql_answer import SqlAnswer

__all__ = (
    "OS_USER",
    "BadValue",
    "By",
    "C_co",
    "Content",
    "Event",
    "Here",
    "Name",
    "Named",
    "Need",
    "NotFound",
    "Noun",
    "Prose",
    "Proses",
    "Refused",
    "Slice",
    "Takes",
    "composite",
    "event",
    "free",
    "operation",
    "queries",
    "states",
    "trusted",
)

Decide = Callable[[list[Event]], Sequence[Event]]
"""The events that follow a stream's events; none if nothing changes. May be called repeatedly."""


def states(*events: type[Event]) -> Callable[[Any], tuple[Need, ...]]:
    """Require that the caller's role may state events of these types."""
    return lambda _: tuple(permits.states(each.tag) for each in events)


def queries(name: str) -> Callable[[Any], tuple[Need, ...]]:
    """Require that the caller's role may query its tables; `name` is the operation in messages."""
    return lambda _: (permits.trusts(Trust.QUERY, name),)


class Noun(declare.Noun[C_co]):
    """Operations on one kind of thing, each an async method with `@operation`.

    The methods here are for the operations of a subclass; they are awaited.
    """

    def __init__(self, record: declare.Noun[C_co]) -> None:
        super().__init__(record._context, record._portal)  # noqa: SLF001 -- of the record, a noun

    @classmethod
    def _of(cls, record: Any) -> Any:
        """Return this noun of a record."""
        return cls(record)

    async def decided(self, kind: str, name: str, decide: Decide, by: str) -> bool:
        """Append the events that `decide` derives from those of a stream; return False for none.

        It is one commit. If another writer was first, the stream is read again and `decide` is
        called again, at most 50 times.

        Args:
            kind: The kind of the stream, one of those of the slice.
            name: The name of the thing: a stream of its own.
            decide: Returns the events to append.
            by: The author on record.

        Raises:
            BadValue: The slice does not declare that streams of this kind hold these events.
            NotFound: The caller's role is not cleared for what the stream holds.
            Conflict: Other writers were first 50 times.
            BadName: The name is malformed.
            Exception: As `decide`.
        """
        stream = WorkspaceStream(kind, ids.name(kind, name))
        shown = _label(await self._workspace.log.read(stream))
        if not await self._context.shows(shown):
            raise NotFound(f"{kind} {name!r:.80}", "give another name, or have the role cleared")

        def events(stored: list[Stored]) -> Sequence[Event]:
            if _label(stored) != shown:
                fact = f"its label changed from {str(shown)!r} during the call"
                raise Refused(f"{kind} {name!r:.80}: {fact}; repeat the call")
            made = decide(revive_all(each.commit for each in stored))
            for each in made:
                if not may_hold(stream, type(each)):
                    fact = f"a stream of kind {kind!r} may not hold {each.tag!r}"
                    raise BadValue("decided", fact, "name both in the slice's streams=")
            return made

        return await self._workspace.repository.record(stream, by, events, shown.stored)

    def query(self, statement: str, *parameters: object) -> Awaitable[SqlAnswer]:
        """Query the tables that the caller sees, up to date with the log.

        Args:
            statement: A reading SQL statement, with `?` or `$1` for parameters.
            *parameters: Values, as of `record.sql`.

        Raises:
            SqlError, ProjectionError, Refused: As `record.sql`.
            NotOffered: The service of a restricted agent has no tables.
        """
        return self._context.ask(self._path, statement, parameters)


def _label(stored: Sequence[Stored]) -> Label:
    return join(LOWEST, *(each.commit.label or LOWEST for each in stored))
