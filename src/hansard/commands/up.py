"""`hansard up`: hold the broker, serve restricted agents, project and show what is recorded, until
told to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import UTC, datetime
from functools import partial

import msgspec

from hansard._connect import Broker, find_broker, open_workspace
from hansard.bus.check import RawMessage
from hansard.bus.codec import decode
from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.commands import _show
from hansard.commands._open import Options, masked
from hansard.commands._projecting import projecting
from hansard.commands._serving import served
from hansard.commands._until import until, until_told
from hansard.commands.status import MEANING, broker_status
from hansard.domain.errors import Corrupt
from hansard.domain.ids import run_of
from hansard.settings import Settings


async def up(options: Options, after: int | None, *, json: bool) -> int:
    """Run in the foreground until SIGINT or SIGTERM; 0 then.

    Raises Unreachable, ServerError, Contradiction, Corrupt (the log is shorter than `after`).
    """
    settings = options.settings()
    with until_told() as stop:
        broker = await find_broker(settings)
        try:
            made = await _made(settings)
            raw = await RawWorkspace.open(broker.runtime, settings.workspace)
            try:
                _, head = await raw.bounds()
                async with served(options, broker, partial(_unserved, json=json)) as serves:
                    begun = _Begun(head, made=made, serves=serves)
                    _begin(settings, broker, raw, begun, json=json)
                    async with projecting(settings, broker, partial(_trouble, json=json), stop):
                        await _follow(raw, head if after is None else after, stop, json=json)
            finally:
                await raw.close()
        finally:
            await broker.release()
    if not json:
        _show.hint("stopped")
    return 0


async def _made(settings: Settings) -> bool:
    """Make the workspace's streams, or check them; whether they were made."""
    workspace = await open_workspace(settings)
    try:
        return isinstance(workspace.log, JetStreamLog) and workspace.log.made
    finally:
        await workspace.close()


async def _follow(raw: RawWorkspace, after: int, stop: asyncio.Event, *, json: bool) -> None:
    """Print one line a commit until told to stop."""

    async def show() -> None:
        async with contextlib.aclosing(raw.follow(after)) as messages:
            async for message in messages:
                # A reader that stops reading stops this thread alone: the service answers on.
                await asyncio.to_thread(_commit, message, json=json)

    await until(stop, show())


class _Begun(msgspec.Struct, frozen=True):
    """Where it begins: at which position, whether in a workspace of its own making."""

    head: int
    made: bool
    serves: bool


def _begin(
    settings: Settings, broker: Broker, raw: RawWorkspace, begun: _Begun, *, json: bool
) -> None:
    told = broker_status(settings, broker.runtime.urls, broker.durability)
    told.version = told.version or raw.server_version
    if json:
        workspace = settings.workspace
        _show.emit(
            {
                "kind": "up",
                "workspace": workspace,
                "position": begun.head,
                "made": begun.made,
                "broker": told,
                "service": begun.serves,
            }
        )
        sys.stdout.flush()
        return
    of = f"embedded, pid {told.pid}" if told.embedded else "outside"
    lines = [
        f"workspace   {settings.workspace}, at position {begun.head}"
        + (", made just now" if begun.made else ""),
        f"broker      {told.url} ({of}, nats-server {told.version})",
        f"durability  {told.durability}: {MEANING.get(told.durability, '')}",
    ]
    if told.embedded:
        lines.append(f"data        {told.data_dir}")
    if begun.serves:
        lines.append("service     answers restricted agents (hansard credentials ROLE)")
    lines.append("stop it with Ctrl-C")
    _show.hint(masked("\n".join(lines)))


def _unserved(said: str, *, json: bool) -> None:
    """Why restricted agents are not served."""
    if json:
        _show.emit({"kind": "service", "fact": said})
        sys.stdout.flush()
    else:
        _show.hint(said)


def _trouble(said: str, *, json: bool) -> None:
    """Why nothing is projected: the log is held and shown all the same."""
    if json:
        _show.emit({"kind": "projector", "fact": said})
        sys.stdout.flush()
    else:
        _show.hint(said)


def _commit(message: RawMessage, *, json: bool) -> None:
    """One line for one commit; a body that is none is shown as what it is."""
    seconds, ns = divmod(message.stamp, 1_000_000_000)
    time = datetime.fromtimestamp(seconds, UTC).replace(microsecond=ns // 1_000)
    try:
        stream, commit = decode(message.subject, message.body)
    except Corrupt as error:
        if json:
            _show.emit(
                {
                    "kind": "corrupt",
                    "position": message.position,
                    "subject": message.subject,
                    "fact": error.fact,
                }
            )
            sys.stdout.flush()
        else:
            _show.hint(f"{message.position:>8}  {time:%H:%M:%S.%f}  corrupt: {error}")
        return
    run = run_of(stream)
    if json:
        _show.emit(
            {
                "kind": "commit",
                "position": message.position,
                "time": time.isoformat(),
                "run": run,
                "stream": str(stream),
                "version": commit.version,
                "commit": commit.id,
                "actor": commit.actor.agent,
                "epoch": commit.epoch,
                "events": [event.type for event in commit.events],
            }
        )
        sys.stdout.flush()
        return
    events = ", ".join(event.type for event in commit.events)
    where = f"run {run} " if run is not None else ""
    text = f"{message.position:>8}  {time:%H:%M:%S.%f}  {where}{stream}@{commit.version}  {events}"
    _show.hint(text.replace("\n", " "))
