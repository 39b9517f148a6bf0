"""Live streams: new rows of a run, and runs that changed, as server-sent events from the log.

The log is followed once for all streams of a workspace, and each batch of rows is encoded once. The
id of an event is the position up to which its stream is complete, so that `Last-Event-ID` continues
exactly. A stream whose client is slow forgets what waits, and reads it again from the log once the
client has read on; one that is too far behind gets `reload`. For a role an id is the number of its
event, and the id of the rules by which it was numbered.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable
from itertools import chain
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hansard.agents.access import roles
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.bus.loggers import logger, unexpected
from hansard.domain.access import is_views
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.ids import WorkspaceStream, run_of
from hansard.domain.roles.model import KIND as ROLE_KIND
from hansard.inspect.answer import find_run
from hansard.inspect.outline import Rows, RowsBuilder, outline, shown_outline
from hansard.operations.protocol.faults import ServiceBusy
from hansard.service.http.reads import record_view, view_of
from hansard.service.http.routes import Context, read
from hansard.service.workspace_requests import RoleContext

FLUSH_S = 0.05
"""Rows that arrive within so many seconds after a batch are sent together."""

BATCH_ROWS_MAX = 2_000
"""Most rows of a batch, and of a page that is read to catch up."""

FRAMES_MAX, FRAMES_BYTES_MAX = 64, 1024 * 1024
"""Most batches, and their bytes, that wait for one client; it is then read from the log again."""

CATCH_UP_ROWS_MAX = 20_000
"""Most rows that are read again for a stream; further behind, the client reloads."""

HEARTBEAT_S = 15.0
"""Seconds without an event after which a heartbeat is sent."""

LOOK_S = 0.5
"""Seconds between two looks whether a heartbeat is due."""

ROLE_S = 0.5
"""Least time between two views that are derived for a stream of a role, in seconds."""

STREAMS_MAX = 500
"""Most streams of a workspace; a browser's tabs share one."""

_encoder = msgspec.json.Encoder()

_log = logger(__name__)


def sse(name: str, data: Any, id: str = "") -> bytes:  # noqa: A002 -- the field's name
    """Return a server-sent event."""
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {name}\ndata: ".encode() + _encoder.encode(data) + b"\n\n"


class Frame(msgspec.Struct, frozen=True, gc=False):
    """An encoded event, and the positions of its first and last commit."""

    first: int
    last: int
    data: bytes


class Subscription:
    """The frames that wait for one stream."""

    def __init__(self) -> None:
        self.is_behind = False
        """True if frames were dropped since `forget`."""
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()

    def put(self, frame: Frame) -> None:
        """Add a frame; beyond the bounds all are dropped."""
        if self.is_behind:
            return
        self._frames.append(frame)
        self._bytes += len(frame.data)
        if len(self._frames) > FRAMES_MAX or self._bytes > FRAMES_BYTES_MAX:
            self.forget()
            self.is_behind = True
        self._wake.set()

    def wake(self) -> None:
        """Wake the stream, without a frame."""
        self._wake.set()

    def forget(self) -> None:
        """Drop the frames that wait."""
        self._frames.clear()
        self._bytes, self.is_behind = 0, False

    def take(self) -> Frame | None:
        """Return the next frame that waits, if any."""
        if not self._frames:
            return None
        frame = self._frames.popleft()
        self._bytes -= len(frame.data)
        return frame

    async def wait(self, timeout_s: float) -> bool:
        """Wait for news, at most so long; return whether there are any."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        is_awake = self._wake.is_set()
        self._wake.clear()
        return is_awake


class Hub:
    """Follows the log of a workspace while it has streams."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.position = 0
        """Position up to which commits were given to the streams."""
        self._subscribers: defaultdict[str | None, set[Subscription]] = defaultdict(set)
        """By run; None for those of all runs."""
        self.streams = 0
        """The number of streams."""
        self._pending: dict[str, tuple[int, RowsBuilder]] = {}
        self._changed: dict[str, int] = {}
        self._flush: asyncio.TimerHandle | None = None
        self._flushed_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def subscribe(self, run: str | None) -> AsyncGenerator[Subscription]:
        """Subscribe to a run, or to all; `position` is then complete. Raises ServiceBusy."""
        if self.streams >= STREAMS_MAX:
            raise ServiceBusy("live streams of this workspace", STREAMS_MAX, 10.0)
        subscription = Subscription()
        self.streams += 1
        try:
            async with self._lock:
                if not self.is_following:
                    if self.streams == 1:  # others continue where following failed
                        self.position = await self._workspace.log.head()
                    self._task = asyncio.create_task(self._follow())
            self.flush()
            self._subscribers[run].add(subscription)
            yield subscription
        finally:
            self.streams -= 1
            self._subscribers[run].discard(subscription)
            if not self._subscribers[run]:
                del self._subscribers[run]
            if not self.streams and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _follow(self) -> None:
        try:
            following = self._workspace.log.follow(after=self.position)
            async with contextlib.aclosing(following) as commits:  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
                async for stored in commits:
                    self._take(stored)
        except HansardError as error:
            _log.warning("live streams ended", error=type(error).__name__)
        except Exception as error:  # noqa: BLE001 -- the log gets its place; streams begin again
            _log.warning("live streams ended", **unexpected(error))
        self._wake()

    def _wake(self) -> None:
        """Wake all streams."""
        for each in chain.from_iterable(self._subscribers.values()):
            each.wake()

    @property
    def is_following(self) -> bool:
        """False once following the log has failed."""
        return self._task is not None and not self._task.done()

    def _take(self, stored: Stored) -> None:
        self.position = stored.position
        stream, run = stored.stream, run_of(stored.stream)
        if isinstance(stream, WorkspaceStream) and stream.kind == ROLE_KIND:
            self._wake()
        if run is None or is_views(stream):
            return
        self._changed[run] = stored.position
        if run in self._subscribers:
            _, builder = self._pending.setdefault(run, (stored.position, RowsBuilder()))
            builder.take(stored)
            if len(builder) >= BATCH_ROWS_MAX:
                self.flush()
        if self._flush is None:
            loop = asyncio.get_running_loop()
            at = max(loop.time(), self._flushed_s + FLUSH_S)
            self._flush = loop.call_at(at, self.flush)

    def flush(self) -> None:
        """Give all that was taken to the streams."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        self._flushed_s = asyncio.get_running_loop().time()
        for run, (first, builder) in self._pending.items():
            rows = builder.made()
            frame = Frame(first, rows.position[-1], _rows_event(rows))
            for each in self._subscribers.get(run, ()):
                each.put(frame)
        self._pending.clear()
        if self._changed and None in self._subscribers:
            frame = _changed_frame(self._changed)
            for each in self._subscribers[None]:
                each.put(frame)
        self._changed.clear()


def _rows_event(rows: Rows) -> bytes:
    return sse("rows", rows, f"{rows.position[-1]}")


def _changed_frame(changed: dict[str, int]) -> Frame:
    last = max(changed.values())
    rows = [{"run": run, "position": position} for run, position in changed.items()]
    return Frame(min(changed.values()), last, sse("runs", {"runs": rows}, f"{last}"))


# ---------------------------------------------------------------- what a stream sends

Events = AsyncGenerator[bytes]
"""The events of a stream; an empty one is a chance to send a heartbeat."""

CatchUp = Callable[[int, int], AsyncGenerator[Frame]]
"""Reads frames again, of positions in (after, up to]."""


class _TooFar(Exception):
    """The stream is too far behind to be read again."""


async def events_of(hub: Hub, run: str | None, after: int, catch_up: CatchUp) -> Events:
    """Yield the events of a run, or of all, after a position, each exactly once."""
    async with hub.subscribe(run) as waiting:
        sent = after
        yield sse("open", {"position": after}, f"{after}")
        while hub.is_following:
            # All after `up_to` waits, unless it is dropped, and then read again below.
            hub.flush()
            waiting.forget()
            up_to = hub.position
            try:
                async for frame in catch_up(sent, up_to):
                    yield frame.data
                    sent = frame.last
            except _TooFar:
                yield sse("reload", {"after": sent, "position": up_to})
                return
            sent = max(sent, up_to)
            while not waiting.is_behind and hub.is_following:
                news = waiting.take()
                if news is None:
                    if not await waiting.wait(LOOK_S):
                        yield b""
                elif news.first > sent:
                    yield news.data
                    sent = news.last
                elif news.last > sent:  # the client knows a later position than the hub
                    break


def rows_again(workspace: Workspace, run: str) -> CatchUp:
    """Return the reader of a run's rows."""

    async def pages(after: int, up_to: int) -> AsyncGenerator[Frame]:
        count = 0
        following: int | None = after
        while following is not None and following < up_to:
            page = await outline(workspace, run, following, BATCH_ROWS_MAX, up_to)
            following = page.next
            if page.rows.position:
                count += len(page.rows.position)
                last = page.rows.position[-1]
                yield Frame(page.rows.position[0], last, _rows_event(page.rows))
            if following is not None and count >= CATCH_UP_ROWS_MAX:
                raise _TooFar

    return pages


def runs_again(workspace: Workspace, most: float = math.inf) -> CatchUp:
    """Return the reader of the runs that changed, within at most so many commits."""

    async def changed(after: int, up_to: int) -> AsyncGenerator[Frame]:
        if up_to - after > most:
            raise _TooFar
        runs: dict[str, int] = {}
        following = workspace.log.follow(after, until=up_to)
        async with contextlib.aclosing(following) as commits:  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
            async for stored in commits:
                if (run := run_of(stored.stream)) is not None:
                    runs[run] = stored.position
        if runs:
            yield _changed_frame(runs)

    return changed


# ---------------------------------------------------------------- streams of a role


async def shown_rows(hub: Hub, role: RoleContext, run: str, after: str) -> Events:
    """Yield the rows of what a role sees of a run, after the number of an event.

    A view is derived again at most every `ROLE_S` after a change, and recorded if it differs. Other
    rules, or an end of the run's visibility, make the client reload.
    """
    async with hub.subscribe(run) as waiting:
        known = made = await view_of(role, run)
        number, _, rules = after.partition("-")
        sent = int(number) if number.isdigit() else len(made.view.events)
        if (rules and rules != made.rules) or sent > len(made.view.events):
            yield sse("reload", {"after": 0})
            return
        yield sse("open", {"position": sent}, f"{sent}-{made.rules}")
        while hub.is_following:
            if len(made.view.events) > sent:
                page = shown_outline(run, made.view.events, sent, BATCH_ROWS_MAX)
                sent += len(page.rows.position)
                yield sse("rows", page.rows, f"{sent}-{made.rules}")
                continue
            if not await waiting.wait(LOOK_S):
                yield b""
                continue
            waiting.forget()
            began_s = asyncio.get_running_loop().time()
            newest = await role.derived(run)
            if newest is None or newest.rules != known.rules:
                yield sse("reload", {"after": 0})
                return
            made = newest
            if made.view.digest != known.view.digest:
                await record_view(role, made)
                known = made
            took_s = asyncio.get_running_loop().time() - began_s
            await asyncio.sleep(max(ROLE_S, 2 * took_s))


async def shown_changes(hub: Hub, role: RoleContext) -> Events:
    """Yield the runs whose view by a role changed."""
    workspace = role.workspace
    async with hub.subscribe(None) as waiting:
        begun = seen = hub.position
        known: dict[str, str] = {}
        yield sse("open", {})
        while hub.is_following:
            if not await waiting.wait(LOOK_S):
                yield b""
                continue
            began_s = asyncio.get_running_loop().time()
            runs: dict[str, None] = {}
            frames: list[Frame] = []
            if waiting.is_behind:  # by whatever distance: a reload would show how much is hidden
                hub.flush()
                waiting.forget()
                frames = [each async for each in runs_again(workspace)(seen, hub.position)]
            while (frame := waiting.take()) is not None:
                frames.append(frame)
            for frame in frames:
                seen = max(seen, frame.last)
                event = msgspec.json.decode(frame.data.split(b"data: ", 1)[1])
                runs |= {each["run"]: None for each in event["runs"]}
            for run in runs:
                if run not in known:
                    known[run] = await _digest_at(workspace, role, run, begun)
                made = await role.derived(run)
                digest = made.view.digest if made is not None else ""
                if digest != known[run] and made is not None:
                    await record_view(role, made)
                    rows = [{"run": run, "position": len(made.view.events)}]
                    yield sse("runs", {"runs": rows})
                known[run] = digest
            took_s = asyncio.get_running_loop().time() - began_s
            await asyncio.sleep(max(ROLE_S, 2 * took_s))


async def _digest_at(workspace: Workspace, role: RoleContext, run: str, position: int) -> str:
    """Return the digest of a role's view of a run at a position; empty if it saw nothing."""
    try:
        made = await roles.derive(workspace.states, role.asker.who.role, run, position)
    except NotFound:
        return ""
    return made.view.digest if made.view.events else ""


# ---------------------------------------------------------------- the response


class EventStream(StreamingResponse):
    """A response that sends events until its client leaves or its caller's access ends."""

    media_type = "text/event-stream"

    def __init__(self, events: Events) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_sent(events), headers=headers)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; to `HEAD` the headers alone."""
        try:
            if scope["method"] == "HEAD":
                await Response(headers=dict(self.headers))(scope, receive, send)
                return
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()


async def _sent(events: Events) -> AsyncGenerator[bytes]:
    """Yield events, and heartbeats when there are none for long."""
    loop = asyncio.get_running_loop()
    yield b"retry: 1000\n\n"
    sent_s = loop.time()
    try:
        async for event in events:
            if event or loop.time() - sent_s >= HEARTBEAT_S:
                yield event or b":\n\n"
                sent_s = loop.time()
    except HansardError as error:
        _log.info("a live stream ended", error=type(error).__name__)


def _after(context: Context, after: str | None) -> str | None:
    """Return where a stream begins: `Last-Event-ID` of a client that comes back, else `after`."""
    return context.request.headers.get("last-event-id") or after


def _position(text: str | None, head: int) -> int:
    """Return the position in an id of an event; the head without one. Raises BadValue."""
    if text is None:
        return head
    if not (text.isascii() and text.isdigit() and int(text) <= head):
        remedy = "give the id of an event of this stream, or the position of an outline"
        raise BadValue("after", f"{text!r:.40}", remedy)
    return int(text)


@read("/live", stream="text/event-stream")
async def live(context: Context, *, after: str | None = None) -> EventStream:
    """Stream the runs that change, as server-sent events: `open`, `runs`, `reload`.

    Args:
        after: Begin after this position; now by default. `Last-Event-ID` takes its place.
    """
    workspace, role = context.workspace, context.role
    hub = workspace.part(Hub, lambda: Hub(workspace.record.workspace))
    if role is not None:
        return EventStream(shown_changes(hub, role))
    trusted = context.trusted().workspace
    begin = _position(_after(context, after), await trusted.log.head())
    events = events_of(hub, None, begin, runs_again(trusted, CATCH_UP_ROWS_MAX))
    return EventStream(events)


@read("/runs/{run}/live", stream="text/event-stream")
async def run_live(context: Context, run: str, *, after: str | None = None) -> EventStream:
    """Stream the new rows of a run's outline, as server-sent events: `open`, `rows`, `reload`.

    Args:
        run: The run's id, a unique prefix, or `last`.
        after: Begin after this position; now by default. `Last-Event-ID` takes its place.
    """
    workspace, role = context.workspace, context.role
    hub = workspace.part(Hub, lambda: Hub(workspace.record.workspace))
    after = _after(context, after)
    if role is not None:
        await view_of(role, run)  # of a run that it does not see the answer is 404
        return EventStream(shown_rows(hub, role, run, after or ""))
    trusted = context.trusted().workspace
    name = await find_run(trusted, run)
    begin = _position(after, await trusted.log.head())
    events = events_of(hub, name, begin, rows_again(trusted, name))
    return EventStream(events)
