"""LangGraph's checkpoints on the record: `builder.compile(checkpointer=Checkpointer())`.

A thread is a stream of events that outlives runs (`hansard.ext.frameworks.threads`). What a session
reads of a thread is a step with the version read as its result. So a resumed or replayed program
gets the thread as it was, without what the run itself stored before it was killed. Once it goes
beyond its record, it stores the checkpoints that it repeated, too; those of the killed process stay
in the thread. A strict replay, and a fork that shadows effects, store nothing.

Between the reads, a session has its threads in memory, as LangGraph's `InMemorySaver` keeps them.
Values are recorded as those of calls; what cannot be recorded exactly, as LangGraph's bytes.
"""

from __future__ import annotations

import functools
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from hansard.agents.flow import done
from hansard.agents.steps import payloads
from hansard.agents.steps.scope import ambient, around
from hansard.bus.commits import revive
from hansard.bus.log import Stored
from hansard.client.session import AsyncMixin, Trusted, handed
from hansard.domain import ids, payload, values
from hansard.domain.errors import BadValue
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import LOWEST, join
from hansard.domain.steps import Effects
from hansard.domain.values import Scrub
from hansard.ext.frameworks.threads import KIND, ThreadCheckpointed, ThreadPruned, ThreadWritten
from hansard.ext.steps import AnySession, call_async, demand_thread, step

P = ParamSpec("P")
R = TypeVar("R")
Typed = tuple[str, bytes]
ThreadEvent = ThreadCheckpointed | ThreadWritten | ThreadPruned

READ = "langgraph.thread"
"""Tool name of the step that reads a thread; without arguments, all threads."""

RECORDED = "hansard"
"""Type of a value in memory that is recorded as those of calls."""

WRITES = ("aput", "aput_writes")

_reader: ContextVar[Any] = ContextVar("hansard_thread_reader", default=None)

NO_VALUE = "empty", b""
"""A channel without a value, as LangGraph keeps it."""

REFERENCE = "hansard-reference"
"""Type of a large value that is not in memory."""


class _Values(JsonPlusSerializer):
    """Serializer of values that are recorded as those of calls, where that is exact."""

    def __init__(self, scrub: Callable[[], Scrub | None]) -> None:
        super().__init__()
        self._scrub = scrub

    def dumps_typed(self, obj: Any) -> Typed:
        """Return a value as recorded JSON, or as LangGraph's bytes."""
        result = payloads.plain_result(obj, None, self._scrub())
        return super().dumps_typed(obj) if result.inexact else (RECORDED, _json(result.plain))

    def loads_typed(self, data: Typed) -> Any:
        """Return a value."""
        if data[0] != RECORDED:
            return super().loads_typed(data)
        return values.load(data[1], secret=lambda name: f"<secret:{name}>")


def _in_thread(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return the method for plain functions: of a sync session, or in a thread of an async one."""

    @functools.wraps(method)
    def call(self: Checkpointer, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        token = _reader.set(self.reader(args) if args and method.__name__ in WRITES else None)
        try:
            session = self._session
            demand_thread(session, READ)
            work = method(self, *args, **kwargs)
            if not isinstance(session, AsyncMixin):
                return done(work)
            return handed(work, session._loop, READ)  # noqa: SLF001 -- as its own calls
        finally:
            _reader.reset(token)

    return call


class _Threads:
    """The threads of one session.

    Attributes:
        storage: Checkpoints, as `InMemorySaver` keeps them; `writes` and `blobs` likewise.
        seen: The version of each thread up to which its events are in memory.
        held: Events that are not stored, since all calls so far were answered from the record.
        stores: False for a replay, and for a fork that shadows effects.
        is_new: True if the session began without a recorded call.
    """

    def __init__(self, session: Any) -> None:
        if not isinstance(session, Trusted):
            fact = "the session of a restricted agent cannot write to the log"
            raise BadValue("Checkpointer", fact, "use a checkpointer of LangGraph's")
        self.storage: Any = defaultdict(lambda: defaultdict(dict))
        self.writes: Any = defaultdict(dict)
        self.blobs: Any = {}
        self.seen: dict[str, int] = defaultdict(int)
        self.held: list[tuple[str, ThreadEvent]] = []
        settings = session.engine.settings
        self.stores = not (settings.mode.reads_only or settings.shadows)
        self.is_new = not session.engine.ledger.state.steps


class Checkpointer(InMemorySaver):
    """Checkpoints of a session's graphs, on the record. Not for restricted agents.

    Args:
        session: The session, of either client; by default the one that is current at each call.
        serde: A serializer whose bytes are stored, such as an encrypting one.
    """

    def __init__(
        self, session: AnySession | None = None, *, serde: SerializerProtocol | None = None
    ) -> None:
        BaseCheckpointSaver.__init__(self, serde=serde or _Values(self._scrub))
        self._given = session
        self._by_session: WeakKeyDictionary[Any, _Threads] = WeakKeyDictionary()
        self._readers: WeakValueDictionary[str, Any] = WeakValueDictionary()
        if session is not None:
            _ = self._threads  # refuses a restricted agent's

    @property
    def _session(self) -> Any:
        if self._given is not None:
            return self._given
        reader = None if around() else _reader.get()
        return ambient(READ) if reader is None else reader

    def reader(self, args: tuple[Any, ...]) -> Any:
        """Return the open session that read the thread of a write: LangGraph stores a task's writes
        in threads of its own, where no session is current.
        """
        session = self._readers.get(_place(args[0])[0])
        return None if session is None or session.engine.ledger.ended else session

    @property
    def _threads(self) -> _Threads:
        session = self._session
        if session not in self._by_session:
            self._by_session.setdefault(session, _Threads(session))
        return self._by_session[session]

    @property
    def _engine(self) -> Any:
        return self._session.engine

    def _scrub(self) -> Scrub | None:
        scrub: Scrub | None = self._engine.settings.scrub
        return scrub

    storage = property(lambda self: self._threads.storage)
    writes = property(lambda self: self._threads.writes)
    blobs = property(lambda self: self._threads.blobs)

    # ------------------------------------------------------------ threads of the log

    async def _load(self, thread: str | None) -> None:
        """Bring a thread, or all of them, to the version that a step reads."""
        if thread is not None:
            self._readers[thread] = self._session
        if not self._engine.ledger.here.nests:  # in a tool's body, whose result is recorded
            await self._newest(thread)
            return
        newest = functools.partial(self._newest, thread)
        body = newest if isinstance(self._session, AsyncMixin) else lambda: done(newest())
        tool = step(READ, body, effects=Effects.PURE, kind="memory")
        arguments = {} if thread is None else {KIND: thread}
        for name, version in (await call_async(self._session, tool, arguments)).items():
            if self._threads.seen[name] < version:  # answered from the record
                await self._take(await self._read(name, to=version))

    async def _newest(self, thread: str | None) -> dict[str, int]:
        """Read what is new; return the versions."""
        if thread is None:
            commits: list[Stored] = await self._io(self._engine.workspace.log.read_kind, KIND)
        else:
            commits = await self._read(thread)
        label = join(LOWEST, *(each.commit.label or LOWEST for each in commits))
        what = "the threads" if thread is None else f"thread {thread!r:.80}"
        await self._io(self._engine.clearances.demand, label, what, READ)
        self._engine.ledger.shown(label)
        await self._take(commits)
        seen = self._threads.seen
        return dict(seen) if thread is None else {thread: seen[thread]}

    async def _read(self, thread: str, **until: int) -> list[Stored]:
        """Read the commits of a thread that are not in memory."""
        after, log = self._threads.seen[thread], self._engine.workspace.log
        commits: list[Stored] = await self._io(log.read, _stream(thread), after=after, **until)
        return commits

    async def _take(self, commits: Sequence[Stored]) -> None:
        """Apply what others stored."""
        author = self._session.run, self._session.agent
        for stored in commits:
            thread = cast("WorkspaceStream", stored.stream).id
            if stored.commit.version <= self._threads.seen[thread]:
                continue
            self._threads.seen[thread] = stored.commit.last_version
            for recorded in stored.commit.events:
                event = cast("ThreadEvent", revive(recorded))
                if (event.run, stored.commit.actor.agent) != author:
                    await self._apply(thread, event)

    async def _apply(self, thread: str, event: ThreadEvent) -> None:
        match event:
            case ThreadCheckpointed(namespace=namespace):
                for channel, raw in _parts(event.values).items():
                    self.blobs[thread, namespace, channel, event.versions[channel]] = _typed(raw)
                state = _parts(event.state)
                checkpoint, about = [await self._whole(_typed(each)) for each in state.values()]
                entry = checkpoint, about, event.parent or None
                self.storage[thread][namespace][event.checkpoint] = entry
            case ThreadWritten(namespace=namespace, task=task):
                writes = self.writes[thread, namespace, event.checkpoint]
                raws = _parts(event.values)
                for at, channel in event.channels:
                    if at < 0 or (task, at) not in writes:
                        writes[task, at] = task, channel, _typed(raws[str(at)]), event.path
            case ThreadPruned(checkpoints=()):
                super().delete_thread(thread)
            case ThreadPruned():
                for namespace, id_ in event.checkpoints:
                    self.storage[thread][namespace].pop(id_, None)
                    self.writes.pop((thread, namespace, id_), None)

    async def _append(self, thread: str, event: ThreadEvent) -> None:
        """Apply an event, and store it, once the session has recorded anything: a program that only
        gets recorded answers stores nothing again.
        """
        await self._apply(thread, event)
        threads, ledger = self._threads, self._engine.ledger
        if not threads.stores:
            return
        threads.held.append((thread, event))
        if threads.is_new or ledger.state.version > ledger.opened:
            held, threads.held = threads.held, []
            for name, each in held:
                await self._store(name, each)

    async def _store(self, thread: str, event: ThreadEvent) -> None:
        """Append an event to its thread, after the payloads that it names."""
        for field in ("state", "values"):
            packed = payloads.pack_arguments(_parts(getattr(event, field, _NOTHING)))
            for blob in packed.blobs:
                await self._io(self._engine.workspace.blobs.put, blob)
            if packed.blobs:
                event = msgspec.structs.replace(event, **{field: packed.raw})
        ledger, repository = self._engine.ledger, self._engine.workspace.repository
        label = ledger.label.stored
        await self._io(repository.append, _stream(thread), ledger.actor, event, label)

    async def _io(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine on the loop of the bus."""
        return await self._session._io(work, *args, **kwargs)  # noqa: SLF001 -- for both clients

    # ------------------------------------------------------------ values

    def _raw(self, value: Typed) -> msgspec.Raw:
        """Return a value as it is recorded. Raises BadValue for a secret within bytes."""
        kind, data = value
        if kind == RECORDED:
            return msgspec.Raw(_json({"value": msgspec.Raw(data)}))
        scrub: Any = self._scrub()
        if scrub is not None and scrub.holds(data):
            fact = "a value holds a secret, and cannot be recorded without it"
            raise BadValue("checkpoint", fact, "register its class with hansard.value_type")
        return msgspec.Raw(_json({"serde": kind, "data": data}))

    async def _whole(self, value: Typed) -> Typed:
        """Return a value, fetched if it is a reference."""
        if value[0] != REFERENCE:
            return value
        fetch = self._engine.outcomes.fetch(payload.unpack(msgspec.Raw(value[1])))
        return _typed(msgspec.Raw(_json(await self._session._flow(fetch))))  # noqa: SLF001 -- as `_io` does

    async def _fetch(self, thread: str, namespace: str | None = None, id_: str = "") -> None:
        """Fetch what a thread has by reference: all of it, or what one checkpoint needs."""
        for space, checkpoints in self.storage[thread].items():
            for each, (checkpoint, _, _) in checkpoints.items():
                if namespace not in (None, space) or id_ not in ("", each):
                    continue
                for channel, version in self.serde.loads_typed(checkpoint)[
                    "channel_versions"
                ].items():
                    key = thread, space, channel, version
                    if key in self.blobs:
                        self.blobs[key] = await self._whole(self.blobs[key])
                writes = self.writes.get((thread, space, each), {})
                for at, (task, channel, value, path) in [*writes.items()]:
                    writes[at] = task, channel, await self._whole(value), path

    # ------------------------------------------------------------ as LangGraph calls it

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, by default the newest."""
        thread, namespace, id_ = _place(config)
        await self._load(thread)
        newest = max(self.storage[thread][namespace], default="")
        await self._fetch(thread, namespace, id_ or newest or "none")
        return super().get_tuple(config)

    async def _list(
        self, config: RunnableConfig | None, /, **query: Any
    ) -> Sequence[CheckpointTuple]:
        thread = None if config is None else _place(config)[0]
        await self._load(thread)
        for each in [*self.storage] if thread is None else [thread]:
            await self._fetch(each)
        return [*super().list(config, **query)]

    async def alist(
        self, config: RunnableConfig | None, **query: Any
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, the newest first."""
        for each in await self._list(config, **query):
            yield each

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes of channels since their nearest stored value, and that value."""
        if channels:
            thread, namespace, _ = _place(config)
            await self._load(thread)
            await self._fetch(thread, namespace)
        return super().get_delta_channel_history(config=config, channels=channels)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with the new values of its channels."""
        stored = super().put(config, checkpoint, metadata, new_versions)
        thread, namespace, id_ = _place(stored)
        state, about, parent = self.storage[thread][namespace][id_]
        new = [each for each in new_versions if each in checkpoint["channel_values"]]
        entries = {each: self.blobs[thread, namespace, each, new_versions[each]] for each in new}
        event = ThreadCheckpointed(
            namespace=namespace,
            checkpoint=id_,
            parent=parent or "",
            state=values.dump({"checkpoint": self._raw(state), "metadata": self._raw(about)}),
            versions={each: new_versions[each] for each in new},
            values=values.dump({each: self._raw(entry) for each, entry in entries.items()}),
            run=self._session.run,
        )
        await self._append(thread, event)
        return stored

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task."""
        thread, namespace, id_ = _place(config)
        numbered = [
            (WRITES_IDX_MAP.get(name, at), name, each) for at, (name, each) in enumerate(writes)
        ]
        event = ThreadWritten(
            namespace=namespace,
            checkpoint=id_,
            task=task_id,
            path=task_path,
            channels=tuple((at, channel) for at, channel, _ in numbered),
            values=values.dump(
                {str(at): self._raw(self.serde.dumps_typed(each)) for at, _, each in numbered}
            ),
            run=self._session.run,
        )
        await self._append(thread, event)

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove all checkpoints of a thread."""
        await self._append(str(thread_id), ThreadPruned(run=self._session.run))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of some of LangGraph's runs."""
        if run_ids:
            await self._load(None)
            runs = set(map(str, run_ids))
            for thread in [*self.storage]:
                await self._prune(thread, lambda _, about: str(about.get("run_id")) in runs)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove old checkpoints of threads, or with another strategy all.

        Raises BadValue for an unknown strategy.
        """
        if strategy not in ("keep_latest", "delete", "delete_all"):
            raise BadValue("prune", f"strategy={strategy!r:.40}", "use keep_latest or delete")
        for thread in map(str, thread_ids):
            if strategy != "keep_latest":
                await self.adelete_thread(thread)
                continue
            await self._load(thread)
            newest = {max(each) for each in self.storage[thread].values() if each}
            await self._prune(thread, functools.partial(_is_before, newest))

    async def _prune(self, thread: str, is_old: Callable[[str, Any], bool]) -> None:
        """Remove checkpoints, but for those that others need for the value of a delta channel."""
        gone: set[tuple[str, str]] = set()
        needed: set[tuple[str, str]] = set()
        for namespace, checkpoints in self.storage[thread].items():
            abouts = {id_: self.serde.loads_typed(each[1]) for id_, each in checkpoints.items()}
            old = {id_ for id_, about in abouts.items() if is_old(id_, about)}
            gone |= {(namespace, id_) for id_ in old}
            for id_ in checkpoints.keys() - old:
                open_ = set(abouts[id_].get("counters_since_delta_snapshot", ()))
                at: str | None = id_
                while at in checkpoints:
                    versions = self.serde.loads_typed(checkpoints[at][0])["channel_versions"]
                    places = {each: (thread, namespace, each, versions.get(each)) for each in open_}
                    kinds = {each: self.blobs.get(at, NO_VALUE)[0] for each, at in places.items()}
                    open_ = {each for each in open_ if kinds[each] == NO_VALUE[0]}
                    at = checkpoints[at][2] if open_ else None
                    needed.add((namespace, at or ""))
        if gone - needed:
            keys = tuple(sorted(gone - needed))
            await self._append(thread, ThreadPruned(checkpoints=keys, run=self._session.run))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread as it was read: its checkpoints, writes and removals."""
        source = str(source_thread_id)
        await self._load(source)
        log, to = self._engine.workspace.log, self._threads.seen[source]
        for stored in await self._io(log.read, _stream(source), to=to):
            for recorded in stored.commit.events:
                event = cast("ThreadEvent", revive(recorded))
                event = msgspec.structs.replace(event, run=self._session.run)
                await self._append(str(target_thread_id), event)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version after another one; it differs between branches of a thread."""
        return (
            f"{super().get_next_version(current, channel).partition('.')[0]}.{secrets.token_hex(8)}"
        )

    def list(self, config: RunnableConfig | None, **query: Any) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the newest first."""
        return iter(_in_thread(Checkpointer._list)(self, config, **query))

    get_tuple = _in_thread(aget_tuple)
    put = _in_thread(aput)
    put_writes = _in_thread(aput_writes)
    delete_thread = _in_thread(adelete_thread)
    delete_for_runs = _in_thread(adelete_for_runs)
    copy_thread = _in_thread(acopy_thread)
    prune = _in_thread(aprune)
    get_delta_channel_history = _in_thread(aget_delta_channel_history)


_NOTHING = msgspec.Raw(b"{}")
_json = msgspec.json.encode


def _parts(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the values of a recorded mapping, each still encoded."""
    return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])


def _typed(raw: msgspec.Raw) -> Typed:
    """Return a recorded value as a serializer's."""
    parts = _parts(raw)
    if "value" in parts:
        return RECORDED, bytes(parts["value"])
    if "serde" in parts:
        decode = msgspec.json.decode
        return decode(parts["serde"], type=str), decode(parts["data"], type=bytes)
    return REFERENCE, bytes(raw)


def _is_before(newest: set[str], id_: str, about: Any) -> bool:
    del about
    return id_ not in newest


def _stream(thread: str) -> WorkspaceStream:
    return WorkspaceStream(KIND, ids.name(KIND, thread))


def _place(config: RunnableConfig) -> tuple[str, str, str]:
    """Return the thread, the namespace and the checkpoint that a configuration names."""
    at = config["configurable"]
    return str(at["thread_id"]), at.get("checkpoint_ns", ""), get_checkpoint_id(config) or ""
