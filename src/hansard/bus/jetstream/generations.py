"""The generations of a workspace's log, presented as one log.

A workspace that was never rolled has generation 0 alone, and its reads cost nothing more. A client
learns of a roll by a notice that the roller publishes after it sealed the open generation and
before it opens the next. On a single server every subscriber's connection has the notice before
the answer to any request that was sent after a commit of the next generation was acknowledged. So a
read that ends without a notice has missed nothing. Reads of a stream with several replicas ask its
leader first, whose answer shows the seal.

Long because each kind of read is routed to the generations that hold it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from hansard.bus import subjects
from hansard.bus.errors import BrokerError, BusError, GenerationMissing, Unreachable
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import (
    BEHIND_PAUSE_S,
    JETSTREAM_OFF,
    PAGE_BYTES_MAX,
    READ_WAIT_S,
    STREAM_NOT_FOUND,
    Direct,
    Known,
    replicas_of,
    stream_names,
)
from hansard.bus.jetstream.push import LOG_AFTER_S, NO_ANSWER_S_MAX, RETRY_S, Push, passes
from hansard.bus.jetstream.wire import NoResponders
from hansard.bus.loggers import logger
from hansard.bus.marks import Extent, Whole, edited
from hansard.bus.portal import own_task
from hansard.bus.sources import Archived, End, Message, Source, end_of
from hansard.domain.errors import Corrupt

SURVEYS_MAX = 3
"""Most look-ups of generations of which one reports an earlier end than the next one's begin."""

SURVEY_PAUSE_S = 1.0
"""Pause after a replica reported a generation as open that is sealed, in seconds: it has led the
stream since a moment ago, and does not know of the seal yet.
"""

DEAF_POLL_S = 1.0
"""Pause between two look-ups of a follower whose login may not listen to notices, in seconds."""

CLUSTER_POLL_S = 5.0
"""The same in a cluster, whose servers lose a notice while they do not reach each other."""

FIRST_SEQ = "hansard-first"
"""Key in the metadata of a region's copy of a generation: the first position that it can hold."""

HOME = "hansard-home"
"""Key in the metadata of a copy, or of a generation that was sealed for a promotion: the home."""

PROMOTED = "hansard-promoted"
"""Key in the metadata of a generation that a promotion opened, and of those after it: the region
that was home before, and the number of the first generation without it.
"""

GIVEN_UP = "hansard-given-up"
"""Key in the metadata of a generation that lost all its commits, which an operator gave up."""

_GONE = frozenset({STREAM_NOT_FOUND, JETSTREAM_OFF})
"""Errors of a stream that was deleted, or of a server that starts."""

T = TypeVar("T")
Info = dict[str, Any]
_log = logger(__name__)
_archived = msgspec.json.Decoder(Archived)


class NoLog(BrokerError):
    """The workspace has no log."""


class Generation(msgspec.Struct, frozen=True):
    """A generation with a stream: the state of the stream as its server reports it, but for
    `hidden` messages beyond the generation's end. `was_open` is known of one that is missing: it
    may have accepted commits.
    """

    number: int
    stream: str
    info: Info
    hidden: int = 0
    was_open: bool = False

    @property
    def is_sealed(self) -> bool:
        """True if it accepts no message any more."""
        return bool(self.info["config"].get("sealed"))

    @property
    def is_closed(self) -> bool:
        """True if it is sealed, or has left its subjects to be."""
        first = str(next(iter(self.info["config"].get("subjects") or []), ""))
        return self.is_sealed or first.startswith(f"{subjects.closed_prefix(self.number)}.")

    @property
    def is_new(self) -> bool:
        """True if it was created, and is not open yet; a roll seals no empty one."""
        return self.is_closed and not self.is_sealed and self.last < self.first

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of its stream."""
        return self.info["config"].get("metadata") or {}

    @property
    def is_copy(self) -> bool:
        """True if it follows that of another region."""
        return "mirror" in self.info["config"]

    @property
    def home(self) -> str:
        """The JetStream domain of the region that accepts commits; empty if it is this one."""
        return self.metadata.get(HOME, "")

    @property
    def first(self) -> int:
        """The first position that it can hold."""
        first = self.info["config"].get("first_seq") or self.metadata.get(FIRST_SEQ, 1)
        return max(1, int(first))

    @property
    def last(self) -> int:
        """The last position that it holds; `first - 1` if it is empty."""
        return int(self.info["state"]["last_seq"])


class Survey(msgspec.Struct, frozen=True):
    """All generations: those with a stream, and those that the archive has verified, both oldest
    first. One may be in both, until its stream is deleted.

    `missing` is the newest one that was opened, with the settings listed last, if the server omits
    its stream: it was killed while it wrote the stream's settings. Or if its stream `is_emptied`.
    """

    streams: list[Generation]
    archived: list[Archived]
    missing: Generation | None = None

    @property
    def is_emptied(self) -> bool:
        """True if the missing generation was created again, and is empty."""
        newest = self.streams[-1].number if self.streams else None
        return self.missing is not None and self.missing.number == newest

    def error(self, url: str) -> GenerationMissing | Corrupt | None:
        """Return the error of each read if a generation is missing: the log must not be taken for
        one that ends earlier.
        """
        if self.missing is None:
            return None
        stream, first = self.missing.stream, self.missing.first
        if not self.is_emptied:
            return GenerationMissing(url, stream)
        fact = (
            f"it accepted commits from position {first:,} on, and is empty: it was deleted, or its "
            "files were lost. Stop what writes and restore the broker's store from a backup that "
            f"has them. To give them up, and use the positions from {first:,} on again: "
            + edited(stream, self.streams[-1].metadata, GIVEN_UP, "yes")
        )
        return Corrupt(f"stream {stream!r}", fact)

    def complete(self, broker: Broker) -> Survey:
        """Return the generations. Raises GenerationMissing, Corrupt."""
        error = self.error(broker.url)
        if error is not None:
            raise error
        return self

    @property
    def home(self) -> str:
        """The JetStream domain of the workspace's home; empty if it is this one."""
        return self.streams[-1].home if self.streams else ""

    @property
    def era(self) -> str:
        """Name of the time since the last promotion, with a dot; empty without one."""
        promoted = self.streams[-1].metadata.get(PROMOTED, "") if self.streams else ""
        return "copy." if self.home else f"p{promoted.split()[-1]}." if promoted else ""

    @property
    def whole(self) -> Whole:
        """The log over all generations; one in the archive counts as the archive verified it."""
        return Whole(
            tuple((each.stream, Extent.of(each.info)) for each in self.streams),
            max((each.last for each in self.archived), default=0),
            sum(each.messages for each in self.archived),
        )


Inform = Callable[[str], Awaitable[Info | None]]
"""Returns a stream's STREAM.INFO; None if there is none."""


async def survey(direct: Direct, workspace: str, inform: Inform | None = None) -> Survey:
    """Return the generations of a workspace's log; none if it does not exist. One request for a log
    that was never rolled.
    """
    inform = inform or direct.info_of
    at, reopened = Survey([], []), list[Generation]()
    for _ in range(SURVEYS_MAX):
        at = await _survey(direct, workspace, inform)
        reopened = [each for each in at.streams[:-1] if not (each.is_sealed or each.is_copy)]
        if not (reopened or at.missing) and not any(
            each.last < after.first - 1 and each.number + 1 == after.number
            for each, after in itertools.pairwise(at.streams)
        ):
            break  # else one was reported before a restart of its server, the next after it
        suspects = [*reopened, *(at.streams[-1:] if at.is_emptied else ())]
        if any(replicas_of(each.info) > 1 for each in suspects):
            await asyncio.sleep(SURVEY_PAUSE_S)
    if reopened:
        number, newest = reopened[0].number, at.streams[-1].number
        fact = (
            f"generation {number} accepts commits though generation {newest} is newer: it was made "
            "again, or restored without its seal; see what it has with 'nats stream view "
            f"{reopened[0].stream}', and delete it"
        )
        raise Corrupt(f"workspace {workspace!r}", fact)
    pairs = itertools.pairwise(at.streams)
    streams = [*(_ended(each, after) for each, after in pairs), *at.streams[-1:]]
    return Survey(streams, at.archived, at.missing)


async def _survey(direct: Direct, workspace: str, inform: Inform) -> Survey:
    """Return the generations as the server reports them one after the other."""
    name = subjects.log_stream(workspace)
    first = await inform(name)
    if first is not None:
        only = Generation(0, name, first)
        if not (only.is_sealed or only.is_copy or only.is_new):
            return Survey([only], [])
    numbers = await _later(direct.broker, workspace)
    names = [subjects.generation_stream(workspace, number) for number in numbers]
    infos = await asyncio.gather(*(inform(each) for each in names))
    # Last, since a generation is listed there before it is opened, and before it is deleted.
    entries, opened = await listed(direct, workspace)
    streams = [
        Generation(number, stream, info)
        for number, stream, info in zip([0, *numbers], [name, *names], [first, *infos], strict=True)
        if info is not None
    ]
    newest = [each.number for each in streams[-1:]] + [each.generation for each in entries[-1:]]
    is_new = not entries and all(each.is_new for each in streams)
    if is_new and opened is None and direct.broker.options.witness is None:
        opened = await _unlisted(workspace, inform)
    missing = opened if opened is not None and opened.number > max(newest, default=-1) else None
    if opened is not None and streams and streams[-1].number == opened.number:
        is_empty = streams[-1].is_new and not streams[-1].metadata.keys() & {HOME, GIVEN_UP}
        missing = opened if is_empty and opened.was_open else None
    if len(streams) > 1 and streams[-1].is_copy and not streams[-1].info["state"]["messages"]:
        streams.pop()  # its first commit has not arrived: the one before it is the newest still
    return Survey(streams, entries, missing)


async def _unlisted(workspace: str, inform: Inform) -> Generation | None:
    """Return generation 0 of a log that was never rolled, if the server omits its stream: the
    others of the workspace are created after it.
    """
    others = (subjects.blob_stream(workspace), subjects.snapshot_stream(workspace))
    infos = [info for info in await asyncio.gather(*map(inform, others)) if info is not None]
    if not infos or any("sources" in info["config"] for info in infos):
        return None  # no workspace, or one that a region is about to copy
    name, was_open = subjects.log_stream(workspace), any(i["state"]["last_seq"] for i in infos)
    config = {"name": name, "num_replicas": max(map(replicas_of, infos))}
    return Generation(0, name, {"config": config}, was_open=was_open)


def _ended(generation: Generation, following: Generation) -> Generation:
    """Return a sealed generation without the messages beyond its end.

    Its end is where the next one begins. A server that was killed in a batch may complete the batch
    after a later start, although the stream is sealed. Nobody had an acknowledgement of it, and its
    sender looks for it in the generations and sends it again.
    """
    hidden = generation.last - (following.first - 1)
    if hidden <= 0:
        return generation
    state = generation.info["state"]
    ended = {"last_seq": following.first - 1, "messages": state["messages"] - hidden}
    info = generation.info | {"state": state | ended}
    return msgspec.structs.replace(generation, info=info, hidden=hidden)


async def _later(broker: Broker, workspace: str) -> list[int]:
    """Return the numbers of the generations but the first that have a stream, oldest first."""
    names = await stream_names(broker)  # not by subject: a copy of another region's has none
    before = f"{subjects.log_stream(workspace)}_"
    return sorted(int(name.removeprefix(before)) for name in names if name.startswith(before))


async def listed(direct: Direct, workspace: str) -> tuple[list[Archived], Generation | None]:
    """Return the generations that the archive has verified, oldest first, and the newest that was
    opened, with the settings listed last.
    """
    stream = subjects.tiers_stream(workspace)
    info = await direct.info_of(stream)
    if info is None:
        return [], None
    names, _ = await direct.names(stream, subjects.tiers_subject(workspace, "*"))
    mark = subjects.opened_subject(workspace, info["created"], "")
    steps = [name.removeprefix(mark).split("-") for name in names if name.startswith(mark)]
    step = max(([int(part) for part in each] for each in steps), default=[])
    newest = mark + "-".join(map(str, step))
    targets = [name for name in names if name == newest or name.rpartition(".")[2].isdecimal()]
    bodies = {each.subject: each.body for each in await direct.named(stream, targets)}
    opened = bodies.pop(newest, None)
    entries = sorted(map(_archived.decode, bodies.values()), key=lambda each: each.generation)
    if opened is None:
        return entries, None
    config = msgspec.json.decode(opened)
    # The mark of an embedded server shows a loss itself.
    was_open = len(step) > 1 and direct.broker.options.witness is None
    return entries, Generation(step[0], config["name"], {"config": config}, was_open=was_open)


class SealedStream:
    """A `Source`: the stream of a sealed generation."""

    def __init__(self, direct: Direct, generation: Generation) -> None:
        self._direct = direct
        self.stream = generation.stream
        self.first, self.last = generation.first, generation.last
        self._hidden = generation.hidden
        direct.known.of(self.stream).may_go = True

    async def many(self, filters: Sequence[str]) -> list[Message]:
        """See `Source.many`."""
        return self._within(await self._direct.many(self.stream, filters, self._target))

    async def named(self, names: Sequence[str]) -> list[Message]:
        """See `Source.named`."""
        return self._within(await self._direct.named(self.stream, names, self._target))

    async def names(self, pattern: str) -> list[str]:
        """See `Source.names`."""
        try:
            names, _ = await self._direct.names(self.stream, pattern)
        except BrokerError as error:
            if error.code != STREAM_NOT_FOUND:
                raise
            raise NoResponders(self.stream) from error  # as for any read of a deleted stream
        if not self._hidden:
            return names
        hidden: set[str] = set()
        position, end = self.last + 1, self.last + self._hidden
        while position <= end:
            messages = await self._direct.following(self.stream, position, end - position + 1)
            if not messages:
                break
            hidden |= {message.subject for message in messages}
            position = messages[-1].position + 1
        return [name for name in names if name not in hidden]

    async def newest(self, pattern: str) -> Message | None:
        """See `Source.newest`."""
        newest = await self._direct.last(self.stream, pattern, self._target)
        if newest is None or newest.position <= self.last:
            return newest
        messages = await self.named(await self.names(pattern))
        return max(messages, key=lambda message: message.position, default=None)

    async def end(self, pattern: str) -> End | None:
        """See `Source.end`."""
        newest = await self.newest(pattern)
        return end_of(newest) if newest is not None else None

    async def at(self, position: int) -> Message | None:
        """See `Source.at`."""
        return await self._direct.at(self.stream, position)

    async def since(self, stamp: int) -> Message | None:
        """See `Source.since`."""
        message = await self._direct.since(self.stream, stamp, self._target)
        return message if message is not None and message.position <= self.last else None

    async def chunks(
        self, after: int, until: int, pattern: str
    ) -> AsyncGenerator[list[Message], None]:
        """See `Source.chunks`."""
        if self.last < self.first:
            return
        push = Push(self._direct.broker, self.stream, pattern, after, until=until)
        async with contextlib.aclosing(push.chunks()) as chunks:
            async for chunk in chunks:
                yield [message for message in chunk if message.position <= until]
                if chunk[-1].position >= until:
                    return

    def _within(self, messages: list[Message]) -> list[Message]:
        return [message for message in messages if message.position <= self.last]

    @property
    def _target(self) -> int:
        return self.last if self.last >= self.first else 0


class Open(msgspec.Struct, frozen=True):
    """The generation that accepts messages."""

    number: int
    stream: str
    first: int
    prefix: str
    known: Known

    def subject(self, stored: str) -> str:
        """Return the subject under which to publish what is stored as `stored`."""
        return self.prefix + stored


class View(msgspec.Struct, frozen=True):
    """The log as last looked up: sealed generations, oldest first; the open one, None in the moment
    between the seal and the next generation; the last position of each sealed one, by stream; the
    region that accepts commits, if it is another one; the error of each read, if the newest
    generation is missing.
    """

    older: tuple[Source, ...]
    open: Open | None
    ends: dict[str, int] = {}
    home: str = ""
    error: GenerationMissing | Corrupt | None = None

    @property
    def end(self) -> int:
        """The last position of the sealed generations."""
        return self.older[-1].last if self.older else 0

    def covering(self, after: int) -> Source | None:
        """Return the first sealed generation with positions after a position."""
        return next((each for each in self.older if each.last > after), None)


class Generations:
    """One client's knowledge of the generations of a log, over all its connections."""

    def __init__(self, workspace: str, direct: Direct) -> None:
        """`direct` is on the connection of the reads, and must not wait for a comparison."""
        self.workspace = workspace
        self._direct = direct
        self.view = View((), self._opened(0, subjects.log_stream(workspace), 1))
        self.is_stale = True
        self._signs = 0
        self._moved = ""
        self._lock = asyncio.Lock()
        self._listening: Callable[[], Awaitable[None]] | None = None
        self._rolls: set[Callable[[], None]] = set()
        self.on_notice: Callable[[], None] = _nothing
        """Called with each notice of a roll."""
        direct.broker.on_reconnect(self._reconnected)
        self._is_new = True  # the connection
        self.is_deaf = False
        """True if the login may not listen to the notices: then each read looks first."""

    def prime(self, at: Survey) -> None:
        """Begin with generations that were looked up on another connection."""
        if at.streams:
            self.view = self._seen(at)

    def on_roll(self, call: Callable[[], None]) -> Callable[[], None]:
        """Register a call at each sign of a roll; return the function that removes it."""
        self._rolls.add(call)
        return lambda: self._rolls.discard(call)

    def suspect(self) -> None:
        """Look the generations up again before the next read."""
        self.is_stale = True
        self._signs += 1
        for call in [*self._rolls]:
            call()

    async def current(self) -> View:
        """Return the generations, looked up if there was a sign of a roll. Raises BrokerError,
        NoResponders, Unreachable.
        """
        if self.is_stale:
            async with self._lock:
                if self.is_stale:
                    await self._look_up()
        return self.view

    async def _look_up(self) -> None:
        if self._is_new:
            before, subject = self._signs, subjects.rolled(self.workspace)
            if self._listening is not None:
                await self._listening()
            self._direct.broker.unheard.discard(subject)
            self._listening = await self._direct.broker.listen(subject, self._hear)
            self._is_new = self._signs != before  # else it was made again meanwhile
        signs = self._signs
        self.view = self._seen(await survey(self._direct, self.workspace))
        self.is_deaf = subjects.rolled(self.workspace) in self._direct.broker.unheard
        # Only now: another read must not take the earlier view while this one is looked up.
        self.is_stale = self.is_deaf or self._signs != signs or self.view.open is None

    def _seen(self, at: Survey) -> View:
        newest = at.streams[-1] if at.streams else None
        if newest is None and not at.archived and not at.missing:
            name = subjects.log_stream(self.workspace)
            raise NoLog(f"reading {name!r}", STREAM_NOT_FOUND, "stream not found")
        error = at.error(self._direct.broker.url)
        is_open = newest is not None and not newest.is_sealed and error is None
        # A stream deleted during the look-up is missing between others: all before it go, too.
        has = {each.number for each in at.streams}
        end = max((e.generation for e in at.archived if e.generation not in has), default=-1)
        sealed = [s for s in (at.streams[:-1] if is_open else at.streams) if s.number > end]
        gone = [each for each in at.archived if each.generation <= end]
        older: list[Source] = [*_archives(self.workspace, gone)]
        older += [SealedStream(self._direct, each) for each in sealed]
        ends = {subjects.generation_stream(self.workspace, e.generation): e.last for e in gone}
        ends |= {each.stream: each.last for each in sealed}
        if newest is None or not is_open:
            return View(tuple(older), None, ends, self._moved or at.home, error)
        before = self.view.open
        self._direct.known.of(newest.stream).domain = str(newest.info.get("domain", ""))
        if not newest.number and not newest.home and before is not None and not before.number:
            return self.view  # unchanged
        opened = self._opened(newest.number, newest.stream, newest.first)
        return View(tuple(older), opened, ends, self._moved or newest.home)

    def _opened(self, number: int, stream: str, first: int) -> Open:
        known = self._direct.known.of(stream)
        known.may_go = True
        return Open(number, stream, first, subjects.generation_prefix(number), known)

    def _hear(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:  # noqa: ARG002 -- a Receive
        domain = self._direct.broker.options.domain
        if data and domain and domain != data.decode():
            self._moved = data.decode()  # another region was promoted, maybe since ours is gone
            self.view = msgspec.structs.replace(self.view, home=self._moved)
        self.on_notice()
        self.suspect()

    def _reconnected(self) -> None:
        self._is_new = True
        self.suspect()


def _nothing() -> None:
    pass


def _archives(workspace: str, entries: Iterable[Archived]) -> list[Source]:
    """Return the archives that hold generations, oldest first."""
    sources: list[Source] = []
    for place, some in itertools.groupby(entries, key=lambda each: each.place):
        from hansard.bus.archive import archive_at  # noqa: PLC0415 -- an optional package

        sources.append(archive_at(workspace, place).source([*some]))
    return sources


class Messages:
    """Reads of all generations through one connection; targets as in `Direct`."""

    def __init__(self, direct: Direct, generations: Generations) -> None:
        self.direct = direct
        self.generations = generations

    async def _read(self, ask: Callable[[View], Awaitable[T]]) -> T:
        """Return the answer of a read that was not overtaken by a roll."""
        generations, until_s = self.generations, 0.0
        while True:
            view = generations.view
            try:
                if generations.is_stale:
                    view = await generations.current()
                if view.error is not None:
                    raise view.error
                answer = await ask(view)
            except (NoResponders, BrokerError, GenerationMissing) as error:
                if isinstance(error, NoLog) or _code(error) not in _GONE:
                    raise
                generations.suspect()
                until_s = until_s or time.monotonic() + READ_WAIT_S
                if time.monotonic() >= until_s:
                    if isinstance(error, GenerationMissing):
                        raise
                    raise Unreachable(self.direct.broker.url, str(error)) from error
                await asyncio.sleep(BEHIND_PAUSE_S)
                continue
            if view.open is not None and view.open.known.sealed:
                generations.suspect()  # the leader shows what a notice on its way will tell
            elif not generations.is_stale or generations.is_deaf or view.open is None:
                return answer

    async def required(self) -> int:
        """Return the position that a read of the newest state must reach."""

        async def ask(view: View) -> int:
            return view.end if view.open is None else await self.direct.required(view.open.stream)

        return await self._read(ask)

    async def head(self) -> int:
        """Return the newest position."""

        async def ask(view: View) -> int:
            if view.open is None:
                return view.end
            return int((await self.direct.info(view.open.stream))["state"]["last_seq"])

        return await self._read(ask)

    async def matching(self, pattern: str, first: int, last: int) -> list[Message] | None:
        """Return the messages between two positions that match a filter, as far as the server has
        them: those of the archive are left out. None if they are too large for one answer.
        """

        async def ask(view: View) -> list[Message] | None:
            parts = [(s.stream, s.first, s.last) for s in view.older if isinstance(s, SealedStream)]
            if view.open is not None:
                parts.append((view.open.stream, view.open.first, last))
            found: list[Message] = []
            for stream, begin, end in parts:
                if begin <= last and first <= end:
                    count = min(end, last) - max(begin, first) + 1
                    page, whole = await self.direct.matching(stream, pattern, first, count)
                    inside = [each for each in page if each.position <= min(end, last)]
                    if inside == page and not whole and len(page) < count:
                        return None
                    found += inside
            return found

        return await self._read(ask)

    async def many(self, filters: Sequence[str], target: int | None = None) -> list[Message]:
        """Return all messages that match a filter, by position. Raises as `Direct.many`."""

        async def ask(view: View) -> list[Message]:
            messages: list[Message] = []
            for source in view.older:
                messages += await source.many(filters)
            if view.open is not None:
                messages += await self.direct.many(view.open.stream, filters, target)
            return messages

        return await self._read(ask)

    async def named(self, names: Sequence[str], target: int | None = None) -> list[Message]:
        """Return the messages on these subjects, unordered."""

        async def ask(view: View) -> list[Message]:
            messages: list[Message] = []
            if view.open is not None:
                messages = await self.direct.named(view.open.stream, names, target)
            for source in reversed(view.older):
                has = {message.subject for message in messages}
                left = [name for name in names if name not in has]
                messages += await source.named(left) if left else []
            return messages

        return await self._read(ask)

    async def names(self, pattern: str) -> tuple[list[str], int]:
        """Return all subjects that match, and the position up to which they are complete."""

        async def ask(view: View) -> tuple[list[str], int]:
            names: list[str] = []
            for source in view.older:
                names += await source.names(pattern)
            if view.open is None:
                return names, view.end
            live, head = await self.direct.names(view.open.stream, pattern)
            return names + live, head

        return await self._read(ask)

    async def last(self, pattern: str, target: int | None = None) -> Message | None:
        """Return the newest message on a subject, wildcards allowed."""

        async def ask(view: View) -> Message | None:
            message: Message | None = None
            if view.open is not None:
                message = await self.direct.last(view.open.stream, pattern, target)
            return message or await newest_of(view.older, pattern)

        return await self._read(ask)

    async def at(self, position: int) -> Message | None:
        """Return the message at a position."""

        async def ask(view: View) -> Message | None:
            source = view.covering(position - 1)
            if source is not None:
                return await source.at(position)
            return (
                await self.direct.at(view.open.stream, position) if view.open is not None else None
            )

        return await self._read(ask)

    async def since(self, stamp: int, head: int) -> Message | None:
        """Return the first message after a time (ns since 1970, UTC), up to position `head`."""

        async def ask(view: View) -> Message | None:
            for source in view.older:
                message = await source.since(stamp)
                if message is not None:
                    return message
            if view.open is None:
                return None
            return await self.direct.since(view.open.stream, stamp, head)

        return await self._read(ask)

    async def following(self, first: int, count: int) -> list[Message]:
        """Return at most so many messages from a position on, fewer if they are large."""

        async def ask(view: View) -> list[Message]:
            source = view.covering(first - 1)
            if source is None:
                if view.open is None:
                    return []
                return await self.direct.following(view.open.stream, first, count)
            messages: list[Message] = []
            last = min(source.last, first + count - 1)
            chunks = source.chunks(first - 1, last, f"hansard.{self.workspace}.>")
            async with contextlib.aclosing(chunks):
                async for chunk in chunks:
                    messages += chunk
                    if sum(len(message.body) for message in messages) > PAGE_BYTES_MAX:
                        break
            return messages

        return await self._read(ask)

    @property
    def workspace(self) -> str:
        """The workspace's name."""
        return self.generations.workspace

    async def pushed(
        self, after: int, until: int | None, pattern: str
    ) -> AsyncGenerator[tuple[list[Message], int], None]:
        """Yield the messages after a position that match a filter, as they arrive, each list with
        the newest position that the server reported; ends as `Push` does.
        """
        while until is None or after < until:
            view = await self._patient(until)
            source = view.covering(after)
            if source is not None:
                end = source.last if until is None else min(until, source.last)
                chunks = source.chunks(after, end, pattern)
                try:
                    async with contextlib.aclosing(chunks):
                        async for chunk in chunks:
                            after = chunk[-1].position
                            yield chunk, max(view.end, after)
                except (NoResponders, BrokerError) as error:
                    self._went(error)
                    continue
                after = end
            elif view.open is None:
                await asyncio.sleep(BEHIND_PAUSE_S)
            else:
                live = self._live(view.open, after, until, pattern)
                try:
                    async with contextlib.aclosing(live):
                        async for chunk, head in live:
                            after = chunk[-1].position
                            yield chunk, head
                except (NoResponders, BrokerError) as error:
                    self._went(error)
                    if view.open.stream not in (await self._patient(until)).ends:
                        raise
                    continue  # what was not read yet is in the archive
                sealed = self.generations.view.ends.get(view.open.stream)
                if sealed is None:
                    return  # nothing more is there, up to the end of the read
                after = max(after, sealed)

    async def _patient(self, until: int | None) -> View:
        """Return the generations; a broker that does not answer is waited for as by `Push`."""
        began_s, is_logged = time.monotonic(), False
        while True:
            try:
                return await self._read(self._confirmed)
            except BusError as error:
                waited_s = time.monotonic() - began_s
                if not passes(error) or (until is not None and waited_s >= NO_ANSWER_S_MAX):
                    raise
                if until is None and waited_s >= LOG_AFTER_S and not is_logged:
                    is_logged = True
                    _log.warning("waiting for the broker", log=self.workspace, why=str(error))
            await asyncio.sleep(RETRY_S)

    async def _confirmed(self, view: View) -> View:
        """Return the view; in a cluster query the leader of its open generation for a seal."""
        if view.open is not None and not view.open.known.alone:
            await self.direct.required(view.open.stream)
        return view

    async def _live(
        self, generation: Open, after: int, until: int | None, pattern: str
    ) -> AsyncGenerator[tuple[list[Message], int], None]:
        """Yield what the open generation pushes, to its end if it is sealed."""
        push = Push(self.direct.broker, generation.stream, pattern, after, until=until)
        looking: asyncio.Task[None] | None = None

        async def look() -> None:
            """End the reader with its generation."""
            while True:
                end = (await self._patient(None)).ends.get(generation.stream)
                if end is not None:
                    push.end_at(end)
                if end is not None or (generation.known.alone and not self.generations.is_deaf):
                    return
                await asyncio.sleep(CLUSTER_POLL_S if not self.generations.is_deaf else DEAF_POLL_S)

        def rolled() -> None:
            nonlocal looking
            if looking is None or looking.done():
                looking = own_task(look())

        forget = self.generations.on_roll(rolled)
        try:
            rolled()  # it may have been sealed before the registration
            end: int | None = None
            async with contextlib.aclosing(push.chunks()) as chunks:
                async for pushed in chunks:
                    if end is None:
                        is_stale = self.generations.is_stale
                        view = await self._patient(until) if is_stale else self.generations.view
                        end = view.ends.get(generation.stream)
                    chunk = [each for each in pushed if end is None or each.position <= end]
                    if not chunk:
                        return
                    generation.known.note(chunk[-1])  # later reads must not return an older state
                    yield chunk, max(push.position + push.pending, chunk[-1].position)
                    if until is not None and chunk[-1].position >= until:
                        return
        finally:
            forget()
            if looking is not None:
                looking.cancel()

    def _went(self, error: Exception) -> None:
        """Note that a stream was deleted; raise any other error."""
        if _code(error) not in _GONE:
            raise error
        self.generations.suspect()


def _code(error: Exception) -> int:
    return error.code if isinstance(error, BrokerError) else JETSTREAM_OFF


async def newest_of(older: Sequence[Source], pattern: str) -> Message | None:
    """Return the newest message of sealed generations that matches a filter."""
    for source in reversed(older):
        message = await source.newest(pattern)
        if message is not None:
            return message
    return None


async def newest_end(older: Sequence[Source], pattern: str) -> End | None:
    """Return the position and last version of the newest message of sealed generations that matches
    a filter.
    """
    for source in reversed(older):
        end = await source.end(pattern)
        if end is not None:
            return end
    return None
