"""Tickets on the record: an example of a slice of Hansard in a package of its own.

It adds two events, a view in SQL and three operations. Python, restricted agents, MCP and the
command line have the operations from this one declaration.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hansard.extending import (
    OS_USER,
    By,
    C_co,
    Event,
    Name,
    Noun,
    Prose,
    Refused,
    Slice,
    event,
    operation,
    queries,
    states,
)

KIND = "ticket"
"""Kind of stream: one stream a ticket, by its id."""


@event("ticket.opened.v1")
class TicketOpened(Event, frozen=True, kw_only=True):
    """A ticket was opened."""

    title: str
    priority: int = 3


@event("ticket.closed.v1")
class TicketClosed(Event, frozen=True, kw_only=True):
    """A ticket was closed, and why."""

    resolution: str


class Ticket(msgspec.Struct, frozen=True):
    """A ticket as `Tickets.find` returns it."""

    id: str
    title: str
    priority: int
    opened_by: str
    resolution: str | None = None


def is_open(events: Sequence[Event]) -> bool:
    """Return whether a ticket is open after its events."""
    return bool(events) and isinstance(events[-1], TicketOpened)


class Tickets(Noun[C_co], noun="tickets"):
    """Tickets, by id."""

    @operation(needs=states(TicketOpened), begins=True)
    async def open(
        self, ticket: Name, title: Prose, *, priority: int = 3, by: By = OS_USER
    ) -> bool:
        """Open a ticket; return False if it is open already.

        Args:
            ticket: The ticket's id.
            title: The problem in one line.
            priority: From 1, the most urgent, to 5.
            by: The author on record.
        """

        def decide(events: Sequence[Event]) -> list[Event]:
            return [] if is_open(events) else [TicketOpened(title=title, priority=priority)]

        return await self.decided(KIND, ticket, decide, by)

    @operation(needs=states(TicketClosed))
    async def close(self, ticket: Name, resolution: Prose, *, by: By = OS_USER) -> None:
        """Close a ticket.

        Args:
            ticket: The ticket's id.
            resolution: The outcome.
            by: The author on record.

        Raises:
            Refused: The ticket is not open.
        """

        def decide(events: Sequence[Event]) -> list[Event]:
            if not is_open(events):
                raise Refused("it is not open: see 'hansard tickets find'")
            return [TicketClosed(resolution=resolution)]

        await self.decided(KIND, ticket, decide, by)

    @operation(needs=queries("tickets.find"))
    async def find(self, *, closed: bool = False) -> list[Ticket]:
        """List tickets, the most urgent first.

        Args:
            closed: True to list closed tickets, too.
        """
        answer = await self.query(
            "SELECT id, title, priority, opened_by, resolution FROM tickets "
            "WHERE $1 OR resolution IS NULL ORDER BY priority, id",
            closed,
        )
        return [Ticket(*row) for row in answer.rows]


SCHEMA = """
CREATE VIEW tickets AS
SELECT
    url_decode(split_part(stream, '/', 2)) AS id,
    arg_max(data->>'title', position) FILTER (type = 'ticket.opened.v1') AS title,
    arg_max(coalesce((data->>'priority')::INTEGER, 3), position)
        FILTER (type = 'ticket.opened.v1') AS priority,
    arg_max(actor, position) FILTER (type = 'ticket.opened.v1') AS opened_by,
    CASE WHEN arg_max(type, position) = 'ticket.closed.v1'
        THEN arg_max(data->>'resolution', position) END AS resolution
FROM events
WHERE type IN ('ticket.opened.v1', 'ticket.closed.v1')
GROUP BY stream;
"""

SLICE = Slice(
    name="tickets", streams={KIND: (TicketOpened, TicketClosed)}, nouns=(Tickets,), schema=SCHEMA
)
