"""Append to one stream until standard input ends; print the id and position of each commit.

Given: the server's port, the workspace, the name of the stream.
"""

import asyncio
import sys

import msgspec

from hansard.bus.clock import Clock
from hansard.bus.errors import AppendUnknown, ArchiveUnavailable, Conflict, Unreachable
from hansard.bus.jetstream import BrokerOptions, open_log
from hansard.bus.log import Append
from hansard.domain.events import Actor, Commit, Recorded
from hansard.domain.ids import KeyStream


async def main(port: str, workspace: str, name: str) -> None:
    """Write, each version after a read of the one before."""
    options = BrokerOptions(
        urls=(f"nats://127.0.0.1:{port}",), user="runtime", password="runtime", name="writer"
    )
    log = await open_log(options, workspace, "strict")
    stream, clock = KeyStream("shared", name), Clock()
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while not ended.done():
        try:
            newest = await log.last(stream)
        except Unreachable:
            continue  # it was stopped for longer than a read may take
        version = newest.commit.version + 1 if newest is not None else 1
        event = Recorded("test.said.v1", clock.new_id(), msgspec.Raw(b"{}"))
        commit = Commit(
            id=clock.new_id(),
            version=version,
            at=clock.now(),
            actor=Actor("paused"),
            events=(event,),
        )
        try:
            stored = await log.append(Append(stream, commit))
        except (Conflict, AppendUnknown, ArchiveUnavailable):
            continue  # it was stopped for longer than an append may take, or the store is away
        sys.stdout.write(f"{commit.id} {stored.position}\n")
        sys.stdout.flush()
    await log.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
