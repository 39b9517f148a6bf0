"""Messages put into a workspace behind the log's back."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from hansard.broker.files import ServerInfo
from hansard.broker.lease import peek
from hansard.bus import subjects
from hansard.bus.commits import encode, record
from hansard.bus.jetstream.client import Broker, BrokerOptions
from hansard.bus.jetstream.direct import Known, api, publish
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.log import RawMessage
from hansard.domain.events import Actor, Commit, Event, Recorded, Tx
from hansard.domain.ids import AgentStream, StreamId, WorkspaceStream

SOMEBODY = Actor("somebody")


def options(home: Path) -> BrokerOptions:
    """Return the administrator's way to the broker of a data directory."""
    info = peek(home)
    assert isinstance(info, ServerInfo)
    return BrokerOptions(urls=(info.url,), user=info.admin.user, password=info.admin.password)


def administer(home: Path, work: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    """Do something as the administrator."""

    async def run() -> None:
        broker = await Broker.open(options(home))
        try:
            await work(broker)
        finally:
            await broker.close()

    asyncio.run(run())


def publish_raw(home: Path, *messages: tuple[str, bytes]) -> None:
    """Publish bodies to subjects."""

    async def work(broker: Broker) -> None:
        for subject, body in messages:
            await publish(broker, subject, body, b"", Known())

    administer(home, work)


def commit(version: int, *events: Event | Recorded, epoch: int = 1, **fields: Any) -> Commit:
    """Return a commit of some events."""
    return Commit(
        id=str(uuid4()),
        version=version,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        actor=SOMEBODY,
        epoch=epoch,
        events=tuple(
            event if isinstance(event, Recorded) else record(event, str(uuid4()))
            for event in events
        ),
        **fields,
    )


def tx(index: int, count: int) -> Tx:
    """Return a place in a transaction of its own."""
    return Tx(str(uuid4()), index, count)


def plant(home: Path, workspace: str, *planted: tuple[StreamId, Commit]) -> None:
    """Publish commits to where they belong."""
    publish_raw(
        home,
        *(
            (
                subjects.subject(workspace, stream, change.version),
                encode(stream, _written(stream, change)),
            )
            for stream, change in planted
        ),
    )


def _written(stream: StreamId, change: Commit) -> Commit:
    """Give a commit of SOMEBODY a permitted author: the agent, or an import for several."""
    if change.actor != SOMEBODY or isinstance(stream, WorkspaceStream):
        return change
    actor = Actor(stream.agent) if isinstance(stream, AgentStream) else Actor("import", ("a",))
    return msgspec.structs.replace(change, actor=actor)


def delete_blobs(home: Path, workspace: str) -> None:
    """Purge a workspace's blobs."""

    async def work(broker: Broker) -> None:
        await api(broker, f"STREAM.PURGE.{subjects.blob_stream(workspace)}", {})

    administer(home, work)


def raw_messages(home: Path, workspace: str) -> list[tuple[str, bytes]]:
    """Return every message of a workspace's log, as (subject, body)."""
    return [(message.subject, message.body) for message in raw_log(home, workspace)]


def raw_log(home: Path, workspace: str) -> list[RawMessage]:
    """Return every message of a workspace's log."""

    async def read() -> list[RawMessage]:
        raw = await RawWorkspace.open(options(home), workspace)
        try:
            last = (await raw.extent()).last
            return [message async for message in raw.follow(until=last)]
        finally:
            await raw.close()

    return asyncio.run(read())


def copied(
    home: Path, source: str, target: str, change: Callable[[Commit], Commit] = lambda same: same
) -> None:
    """Copy a log into another workspace whose streams exist, forging commits on the way."""
    forged = []
    for subject, body in raw_messages(home, source):
        forged_commit = change(msgspec.json.decode(body, type=Commit))
        renamed = subject.replace(f"hansard.{source}.", f"hansard.{target}.", 1)
        forged.append((renamed, msgspec.json.encode(forged_commit)))
    publish_raw(home, *forged)
