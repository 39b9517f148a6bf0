"""Base of every benchmark: an embedded broker of its own, raw clients, sample commits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from hansard import settings
from hansard.broker.lease import peek
from hansard.bus import commits, subjects
from hansard.bus.clock import Clock
from hansard.bus.jetstream import JetStreamLog, open_log
from hansard.bus.jetstream.streams import log_config
from hansard.bus.log import Append
from hansard.client import opening
from hansard.domain.events import Actor, Commit, Recorded
from hansard.domain.ids import AgentStream

T = TypeVar("T")

WORKSPACE = "bench"
RAW = "bench-raw"
"""Workspace whose log's settings the raw stream copies: same server, other name."""

EXPECT_FREE = {"Nats-Expected-Last-Subject-Sequence": "0"}
"""The header that every ordinary commit carries; raw publishes carry it too."""

STOP_S = 15.0
"""Longest wait for a server to end after its last user left."""

DIRECT_S = 30.0


class World(msgspec.Struct):
    """A running broker: where it keeps its files, how to log in."""

    folder: Path
    broker: opening.Broker

    async def log(self, workspace: str = WORKSPACE) -> JetStreamLog:
        """Return a log with its own connections."""
        found = self.broker
        return await open_log(found.runtime, workspace, found.durability, admin=found.admin)

    async def raw(self) -> Client:
        """Return a plain nats-py connection as the admin."""
        admin = self.broker.admin
        assert admin is not None
        return await nats.connect(admin.urls[0], user=admin.user, password=admin.password)

    async def restart(self) -> None:
        """Stop the broker, wait for its end, start it again on the same files."""
        await self.broker.release()
        await gone(self.folder)
        self.broker = await _start(self.folder, self.broker.durability)


async def _start(folder: Path, durability: str) -> opening.Broker:
    wanted = settings.load({}, data_dir=folder, durability=durability)
    return await opening.find_broker(wanted)


async def gone(folder: Path) -> None:
    """Wait for the end of a server whose last user left."""
    info = peek(folder)
    until = time.monotonic() + STOP_S
    while info is not None and _alive(info.server_pid):
        if time.monotonic() > until:
            message = f"nats-server {info.server_pid} runs on {STOP_S:g} s after its last user left"
            raise TimeoutError(message)
        await asyncio.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.asynccontextmanager
async def world(durability: str = "strict") -> AsyncIterator[World]:
    """Yield an embedded broker in a temporary folder; both are removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="hansard-bench-"))
    try:
        made = World(folder, await _start(folder, durability))
        try:
            yield made
        finally:
            await made.broker.release()
            await gone(folder)
    finally:
        shutil.rmtree(folder)


async def raw_stream(nc: Client, workspace: str = RAW) -> str:
    """Create a stream with the settings of a workspace's log by plain nats-py; return its name."""
    config = log_config(workspace)
    await api(nc, f"STREAM.CREATE.{config['name']}", config)
    return str(config["name"])


async def api(nc: Client, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Make a JetStream API call over a plain connection."""
    payload = msgspec.json.encode(body) if body is not None else b""
    answer = await nc.request(f"$JS.API.{subject}", payload, timeout=DIRECT_S)
    told: dict[str, Any] = msgspec.json.decode(answer.data)
    assert "error" not in told, told
    return told


async def direct(nc: Client, stream: str, request: dict[str, Any]) -> list[Msg]:
    """Fetch a batched Direct Get with plain nats-py, as its users write it: one callback a
    message.
    """
    ended: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
    inbox = nc.new_inbox()
    found: list[Msg] = []

    async def take(message: Msg) -> None:
        if message.headers and "Status" in message.headers:
            ended.set_result(message.headers)
        else:
            found.append(message)

    subscription = await nc.subscribe(inbox, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
    try:
        body = msgspec.json.encode(request)
        await nc.publish(f"$JS.API.DIRECT.GET.{stream}", body, reply=inbox)
        await asyncio.wait_for(ended, DIRECT_S)
    finally:
        await subscription.unsubscribe()
    return found


# ---------------------------------------------------------------- sample commits

_clock = Clock()
_letters = random.Random(7)
_TEXT = "".join(_letters.choices("abcdefghijklmnopqrstuvwxyz      ", k=8_192))


def text(size: int) -> str:
    """So many letters and blanks."""
    return (_TEXT * (size // len(_TEXT) + 1))[:size]


def appends(
    stream: AgentStream, first: int, count: int, *, events: int = 1, body: int = 1_024
) -> Iterator[Append]:
    """Yield commits of one stream from a version on, each body about so many bytes."""
    frame = 330 + 110 * events
    data = msgspec.json.encode({"step": 1, "result": text(max(1, (body - frame) // events))})
    actor = Actor(stream.agent)
    for version in range(first, first + count * events, events):
        recorded = tuple(
            Recorded("step.completed.v1", _clock.new_id(), msgspec.Raw(data)) for _ in range(events)
        )
        commit = Commit(
            id=_clock.new_id(),
            version=version,
            at=_clock.now(),
            actor=actor,
            epoch=1,
            events=recorded,
        )
        yield Append(stream, commit)


def raw_message(append: Append, workspace: str = RAW) -> tuple[str, bytes]:
    """Return the subject and the exact bytes of a commit, as a plain client would publish them."""
    subject = subjects.subject(workspace, append.stream, append.commit.version)
    return subject, commits.encode(append.stream, append.commit)


def agent_stream(name: str, run: str = "0199c000-0000-7000-8000-000000000001") -> AgentStream:
    """Return an agent's stream in a sample run."""
    return AgentStream(run, "worker", name)


# ---------------------------------------------------------------- timing


async def timed(work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    """Milliseconds that a coroutine function took, and its result."""
    start = time.perf_counter_ns()
    result = await work()
    return (time.perf_counter_ns() - start) / 1e6, result


async def turns(
    rounds: int, *works: Callable[[], Awaitable[object]], warm_up: int = 1
) -> list[list[float]]:
    """Return the milliseconds of each work in each round; the works take turns, so that other load
    of the machine affects them equally.
    """
    times: list[list[float]] = [[] for _ in works]
    for number in range(-warm_up, rounds):
        for index, work in enumerate(works):
            took, _ = await timed(work)
            if number >= 0:
                times[index].append(took)
    return times


def shuffled(lists: Sequence[Iterator[T]], counts: Sequence[int], seed: int) -> Iterator[T]:
    """Items of several iterators, dispersed among each other, each in its own order."""
    order = [index for index, count in enumerate(counts) for _ in range(count)]
    random.Random(seed).shuffle(order)
    for index in order:
        yield next(lists[index])
