"""A restricted agent that uses a slice's operations: the first argument is what it does."""

import asyncio
import json
import sys

from tickets import Tickets

import hansard


async def found() -> list[str]:
    """Return the ids of open tickets, by the async client."""
    async with hansard.connect_async() as record:
        return [ticket.id for ticket in await record.noun(Tickets).find()]


with hansard.connect() as record:
    tickets = record.noun(Tickets)
    if sys.argv[1] == "open":
        news = [tickets.open("t2", "Slow disk", priority=2), tickets.open("t2", "again")]
        assert [each.id for each in tickets.find()] == asyncio.run(found())
        sys.stdout.write(json.dumps({"news": news, "found": asyncio.run(found())}))
    elif sys.argv[1] == "close":
        tickets.close("t2", "new disk")
    else:
        tickets.open("t3", "Not mine", by="eve")
