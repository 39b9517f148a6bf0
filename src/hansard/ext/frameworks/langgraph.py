"""LangGraph's checkpoints on the record: `builder.compile(checkpointer=Checkpointer(session))`.

A thread is a stream of events that outlives runs (`hansard.ext.frameworks.threads`). What a session
reads of a thread is a step with the version read as its result. So a resumed or replayed program
gets the thread as it was, without what the run itself stored before it was killed, and stores the
same checkpoints again as it repeats its calls; those of the killed process stay in the thread. A
strict replay, and a fork that shadows effects, store nothing.

A checkpoint's values are recorded as those of calls. What cannot be recorded exactly, and
everything if a serializer is given, is stored as that serializer's bytes.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

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
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from hansard.agents.flow import done
from hansard.agents.steps import payloads
from hansard.bus.commits import new_commit, revive
from hansard.bus.log import Append, Stored
from hansard.client.session import AsyncMixin, Trusted, handed
from hansard.domain import ids, payload, values
from hansard.domain.errors import BadValue
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import LOWEST, join
from hansard.domain.steps import Effects
from hansard.ext.frameworks.threads import (
    Key,
    Thread,
    ThreadCheckpointed,
    ThreadEvent,
    ThreadPruned,
    ThreadWritten,
    parts,
)
from hansard.ext.steps import AnySession, call_async, demand_thread, step
from hansard.state.repository import transact

P = ParamSpec("P")
R = TypeVar("R")
READ = "langgraph.thread"
"""Tool name of the step that reads a thread, and without arguments of one that reads all."""


class _Known(msgspec.Struct):
    """What a session knows of a thread: events of others, and those of its run in this process,
    each with the newest version read before it.
    """

    others: list[tuple[int, ThreadEvent]] = []
    own: list[tuple[int, ThreadEvent]] = []
    seen: int = 0
    at: int = 0

    def thread(self) -> Thread:
        """Return the thread at the version that was read last."""
        events = [each for each in self.others if each[0] <= self.at] + self.own
        return Thread(each for _, each in sorted(events, key=lambda each: each[0]))


def _in_thread(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return the method for plain functions: of a sync session, or in a thread of an async one."""

    @functools.wraps(method)
    def call(self: Checkpointer, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        session = self._session
        demand_thread(session, READ)
        work = method(self, *args, **kwargs)
        if not isinstance(session, AsyncMixin):
            return done(work)
        return handed(work, session._loop, READ)  # noqa: SLF001 -- as its own calls

    return call


class Checkpointer(BaseCheckpointSaver[str]):
    """Checkpoints of a session's graphs, on the record.

    Args:
        session: The session of a trusted program, of either client.
        serde: A serializer whose bytes are stored, such as an encrypting one; by default values are
            recorded as those of calls.

    Raises BadValue for the session of a restricted agent, which has no access to the log.
    """

    def __init__(self, session: AnySession, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        if not isinstance(session, Trusted):
            fact = "the session of a restricted agent cannot write to the log"
            raise BadValue("Checkpointer", fact, "use a checkpointer of LangGraph's")
        self._session: Any = session
        self._opaque = serde is not None
        settings = session.engine.settings
        self._scrub = settings.scrub
        self._stores = not (settings.mode.reads_only or settings.shadows)
        self._workspace = session.engine.workspace
        self._known: dict[str, _Known] = {}
        self._blobs: dict[str, bytes] = {}

    # ------------------------------------------------------------ threads of the log

    async def _read(self, thread: str | None) -> dict[str, Thread]:
        """Return a thread as of a step that reads it, or all threads."""
        if not self._session.engine.ledger.here.nests:  # inside a tool, whose result is recorded
            versions = await self._newest(thread)
        else:
            newest = functools.partial(self._newest, thread)
            body = newest if isinstance(self._session, AsyncMixin) else lambda: done(newest())
            tool = step(READ, body, effects=Effects.PURE, kind="memory")
            arguments = {} if thread is None else {"thread": thread}
            versions = await call_async(self._session, tool, arguments)
        for name, version in versions.items():
            known = self._of(name)
            if known.seen < version:  # answered from the record
                self._learn(await self._io(self._log.read, _stream(name), after=known.seen))
            known.at = version
        names = self._known if thread is None else [thread]
        return {name: self._of(name).thread() for name in [*names]}

    async def _newest(self, thread: str | None) -> dict[str, int]:
        """Read new events; return the versions of the threads."""
        if thread is None:
            commits: list[Stored] = await self._io(self._log.read_kind, "thread")
        else:
            after = self._of(thread).seen
            commits = await self._io(self._log.read, _stream(thread), after=after)
        label = join(LOWEST, *(each.commit.label or LOWEST for each in commits))
        engine, what = self._session.engine, f"thread {thread or 'of the workspace'}"
        await self._io(engine.clearances.demand, label, what, READ)
        engine.ledger.shown(label)
        self._learn(commits)
        names = self._known if thread is None else [thread]
        return {name: self._of(name).seen for name in [*names]}

    def _learn(self, commits: Iterable[Stored]) -> None:
        """Add the events of commits that are not known yet."""
        for stored in commits:
            known = self._of(cast("WorkspaceStream", stored.stream).id)
            if stored.commit.version <= known.seen:
                continue
            known.seen = stored.commit.last_version
            for version, recorded in enumerate(stored.commit.events, stored.commit.version):
                event = cast("ThreadEvent", revive(recorded))
                if (event.run, stored.commit.actor.agent) != self._author:
                    known.others.append((version, event))

    async def _append(self, thread: str, event: ThreadEvent, *packs: payloads.Packed) -> None:
        """Append an event, after the payloads that it names."""
        for blob in (blob for packed in packs for blob in packed.blobs):
            if self._stores:
                await self._io(self._workspace.blobs.put, blob)
            else:
                self._blobs[payload.reference(blob)["$blob"]["sha256"]] = blob
        known = self._of(thread)
        known.own.append((known.at, event))
        if not self._stores:
            return
        label = self._session.engine.ledger.label.stored
        actor, stream = Actor.of(self._session.agent), _stream(thread)

        def next_append(last: Stored | None) -> Append:
            version = last.commit.last_version + 1 if last is not None else 1
            commit = new_commit(self._workspace.clock, version, actor, [event], label=label)
            return Append(stream, commit)

        newest = functools.partial(self._log.last, stream)
        await self._io(transact, newest, next_append, self._log.append)

    @property
    def _log(self) -> Any:
        return self._workspace.log

    @property
    def _author(self) -> tuple[str, str]:
        return self._session.run, self._session.agent

    def _of(self, thread: str) -> _Known:
        return self._known.setdefault(thread, _Known())

    async def _io(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine on the loop of the bus."""
        return await self._session._io(work, *args, **kwargs)  # noqa: SLF001 -- one way, both clients

    # ------------------------------------------------------------ values

    def _plain(self, value: Any) -> Any:
        """Return a value as it is recorded, or its serializer's bytes if that would be inexact."""
        if not self._opaque:
            result = payloads.plain_result(value, None, self._scrub)
            if not result.inexact:
                return {"value": result.plain}
        kind, data = self.serde.dumps_typed(value)
        if self._scrub is not None and self._scrub.holds(data):
            fact = f"a {type(value).__name__} holds a secret, and cannot be recorded without it"
            raise BadValue("checkpoint", fact, "register its class with hansard.value_type")
        return {"serde": kind, "data": values.plain(data)}

    async def _value(self, raw: msgspec.Raw) -> Any:
        """Return a recorded value."""
        request = payload.unpack(raw)
        plain: dict[str, Any] = {}
        try:
            sha256, size = next(request)
            while True:
                data = self._blobs.get(sha256)
                if data is None:
                    data = await self._io(self._workspace.blobs.get, sha256, size)
                sha256, size = request.send(data)
        except StopIteration as stop:
            plain = stop.value
        if "serde" in plain:
            return self.serde.loads_typed((plain["serde"], values.revive(plain["data"])))
        return values.revive(plain["value"], secret=lambda name: f"<secret:{name}>")

    async def _tuple(self, name: str, thread: Thread, key: Key) -> CheckpointTuple:
        """Return a checkpoint with its values and pending writes."""
        event = thread.checkpoints[key]
        state = {part: await self._value(raw) for part, raw in parts(event.state).items()}
        raws = {channel: thread.stored(key, channel) for channel in event.versions}
        contents = {
            channel: await self._value(raw) for channel, raw in raws.items() if raw is not None
        }
        checkpoint = {
            **state["checkpoint"],
            "channel_versions": dict(event.versions),
            "channel_values": contents,
        }
        return CheckpointTuple(
            _config(name, *key),
            cast("Checkpoint", checkpoint),
            state["metadata"],
            _config(name, key[0], event.parent) if event.parent else None,
            await self._pending(thread, key),
        )

    async def _pending(self, thread: Thread, key: Key) -> list[tuple[str, str, Any]]:
        return [(w.task, w.channel, await self._value(w.value)) for w in thread.writes(key)]

    # ------------------------------------------------------------ as LangGraph calls it

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, by default the newest."""
        name, namespace, checkpoint = _place(config)
        thread = (await self._read(name))[name]
        key = (namespace, checkpoint) if checkpoint else thread.latest(namespace)
        if key is None or key not in thread.checkpoints:
            return None
        return await self._tuple(name, thread, key)

    async def _list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 -- LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> list[CheckpointTuple]:
        configurable = {} if config is None else config["configurable"]
        threads = await self._read(None if config is None else _place(config)[0])
        earlier = None if before is None else get_checkpoint_id(before)
        keys = [(key, name) for name, thread in threads.items() for key in thread.checkpoints]
        tuples: list[CheckpointTuple] = []
        for key, name in sorted(keys, key=lambda each: each[0][1], reverse=True):
            if limit is not None and len(tuples) >= limit:
                break
            if (
                configurable.get("checkpoint_ns", key[0]) != key[0]
                or (configurable.get("checkpoint_id") or key[1]) != key[1]
                or (earlier is not None and key[1] >= earlier)
            ):
                continue
            each = await self._tuple(name, threads[name], key)
            if all(each.metadata.get(field) == value for field, value in (filter or {}).items()):
                tuples.append(each)
        return tuples

    async def alist(
        self, config: RunnableConfig | None, **query: Any
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, the newest first."""
        for each in await self._list(config, **query):
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with the new values of its channels."""
        name, namespace, parent = _place(config)
        whole: dict[str, Any] = {**checkpoint}
        contents, versions = whole.pop("channel_values"), whole.pop("channel_versions")
        about = get_checkpoint_metadata(config, metadata)
        state = {"checkpoint": self._plain(whole), "metadata": self._plain(about)}
        new = {
            channel: self._plain(contents[channel])
            for channel in new_versions
            if channel in contents
        }
        packs = payloads.pack_arguments(state), payloads.pack_arguments(new)
        event = ThreadCheckpointed(
            namespace=namespace,
            checkpoint=checkpoint["id"],
            parent=parent,
            versions={**new_versions, **versions},
            delta=tuple(metadata.get("counters_since_delta_snapshot", ())),
            graph_run=str(about.get("run_id", "")),
            state=packs[0].raw,
            values=packs[1].raw,
            run=self._session.run,
        )
        await self._append(name, event, *packs)
        return _config(name, namespace, checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task."""
        name, namespace, checkpoint = _place(config)
        indices = [WRITES_IDX_MAP.get(channel, at) for at, (channel, _) in enumerate(writes)]
        plain = {str(at): self._plain(each) for at, (_, each) in zip(indices, writes, strict=True)}
        packed = payloads.pack_arguments(plain)
        event = ThreadWritten(
            namespace=namespace,
            checkpoint=checkpoint,
            task=task_id,
            path=task_path,
            channels=tuple((at, ch) for at, (ch, _) in zip(indices, writes, strict=True)),
            values=packed.raw,
            run=self._session.run,
        )
        await self._append(name, event, packed)

    async def _prune(self, threads: Mapping[str, Thread], gone: Callable[..., bool]) -> None:
        """Remove checkpoints; those that others need for a delta channel stay."""
        for name, thread in threads.items():
            keys = thread.removable(key for key in thread.checkpoints if gone(thread, key))
            if keys:
                await self._append(name, ThreadPruned(checkpoints=keys, run=self._session.run))

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove all checkpoints of a thread."""
        await self._append(str(thread_id), ThreadPruned(run=self._session.run))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of some of LangGraph's runs."""
        if run_ids:
            runs = set(map(str, run_ids))
            threads = await self._read(None)
            await self._prune(threads, lambda it, key: it.checkpoints[key].graph_run in runs)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread."""
        thread = (await self._read(source_thread_id))[source_thread_id]
        run = self._session.run
        for key, event in sorted(thread.checkpoints.items(), key=lambda each: each[0][1]):
            raws = {channel: thread.stored(key, channel) for channel in event.versions}
            new = {channel: raw for channel, raw in raws.items() if raw is not None}
            copy = msgspec.structs.replace(event, values=values.dump(new), run=run)
            await self._append(target_thread_id, copy)
            for write in thread.writes(key):
                written = ThreadWritten(
                    namespace=key[0],
                    checkpoint=key[1],
                    task=write.task,
                    path=write.path,
                    channels=((write.at, write.channel),),
                    values=values.dump({str(write.at): write.value}),
                    run=run,
                )
                await self._append(target_thread_id, written)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove old checkpoints of threads, or with another strategy all.

        Raises BadValue for an unknown strategy.
        """
        if strategy not in ("keep_latest", "delete", "delete_all"):
            fact = f"strategy={strategy!r:.40}"
            raise BadValue("prune", fact, "use keep_latest or delete")
        for name in map(str, thread_ids):
            if strategy == "keep_latest":
                threads = await self._read(name)
                await self._prune(threads, lambda it, key: key != it.latest(key[0]))
            else:
                await self.adelete_thread(name)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes of channels since their nearest stored value, and that value."""
        name, namespace, checkpoint = _place(config)
        thread = (await self._read(name))[name] if channels else Thread()
        key = (namespace, checkpoint) if checkpoint else thread.latest(namespace)
        history: dict[str, DeltaChannelHistory] = {each: {"writes": []} for each in channels}
        for before in thread.ancestors(key) if key is not None else ():
            open_ = {channel for channel in channels if "seed" not in history[channel]}
            if not open_:
                break
            pending = [each for each in await self._pending(thread, before) if each[1] in open_]
            for channel in open_:
                writes = [each for each in pending if each[1] == channel]
                history[channel]["writes"] = writes + history[channel]["writes"]
                raw = thread.stored(before, channel)
                if raw is not None:
                    history[channel]["seed"] = await self._value(raw)
        return history

    def get_next_version(self, current: str | None, channel: None) -> str:  # noqa: ARG002
        """Return a version after another one; it differs between branches of a thread."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{secrets.token_hex(8)}"

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


def _stream(thread: str) -> WorkspaceStream:
    return WorkspaceStream("thread", ids.name("thread", thread))


def _place(config: RunnableConfig) -> tuple[str, str, str]:
    """Return the thread, the namespace and the checkpoint that a configuration names."""
    at = config["configurable"]
    return str(at["thread_id"]), at.get("checkpoint_ns", ""), get_checkpoint_id(config) or ""


def _config(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    place = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}
    return {"configurable": place}
