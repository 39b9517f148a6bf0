"""The session: one agent at work in one run.

Long because it is all that an agent may do, with what each method takes and raises. The methods are
written once, in the classes of the async client; those of the sync client run them in the calling
thread (`hansard.agents.flow`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import math
import os
import threading
from abc import abstractmethod
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import copy_context
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar, Unpack
from uuid import UUID

import msgspec

from hansard.agents.access.views import View
from hansard.agents.aggregates.operations import AggregateFlows
from hansard.agents.annotations import statements
from hansard.agents.annotations.inputs import stated
from hansard.agents.annotations.statements import Checkpoint
from hansard.agents.annotations.windows import Compaction, Windows, summarizer
from hansard.agents.artifacts import caches, experiences
from hansard.agents.artifacts import versions as artifacts
from hansard.agents.artifacts.versions import ArtifactChange, label_of_runs
from hansard.agents.board.twins import AsyncBoard, Board, TransactedFlows
from hansard.agents.callables import is_async_generator_function
from hansard.agents.errors import NotBegun, RunAddress, SessionEnded, ToolError
from hansard.agents.experiments.plans import Arm
from hansard.agents.flow import (
    AsyncDrive,
    Drive,
    Flow,
    Io,
    done,
    drive,
    driver,
    in_place,
    on_portal,
    sync,
)
from hansard.agents.memory.operations import MemoryFlows
from hansard.agents.memory.search import Embedder, Rankers
from hansard.agents.memory.twins import AsyncMemory, Memory
from hansard.agents.policy.permits import states
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.ledger import Ledger, Mode
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope, drop, enter, keep, leave, opens
from hansard.agents.steps.streams import iterate, iterate_async
from hansard.agents.steps.tools import Declare, ToolSpec
from hansard.agents.steps.view_steps import ViewFlows
from hansard.agents.team.tasks import MailFlows
from hansard.agents.team.twins import AsyncTeam, Team, WaitFlows
from hansard.bus.errors import NotFound
from hansard.bus.loggers import logger
from hansard.bus.portal import OtherLoop, Portal, arriving, demand_loop, in_loop
from hansard.client.beginning import OpeningRequest, begun, begun_async
from hansard.client.browser import experienced, replay
from hansard.client.browser.browser import AsyncBrowser, CallingSession, Model, pure
from hansard.client.browser.experienced import Teaching
from hansard.client.options import SessionOptions
from hansard.client.tracebacks import explain
from hansard.domain import ids
from hansard.domain.actions.cache import ActionCache, CachedAction
from hansard.domain.actions.kept import ACTIONS, ActionsHealed
from hansard.domain.agent import AgentState
from hansard.domain.choices import NOTHING, Brief, by_name
from hansard.domain.conversation import Bound
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience.checks import CheckFunction
from hansard.domain.experience.experience import Experience
from hansard.domain.experience.kept import (
    EXPERIENCES,
    ExperienceDistilled,
    ExperienceHealed,
    ExperienceReplayed,
)
from hansard.domain.label import Label, join
from hansard.domain.redaction import check_names
from hansard.domain.snapshot import Snapshot
from hansard.domain.steps import Effects
from hansard.domain.values import Secret, recordable
from hansard.inspect import state as snapshots
from hansard.inspect.experience import learned
from hansard.inspect.savings import Saved, saved

# A loop that goes on where it stood: `session.resumable`, of both clients.

T = TypeVar("T")


class Reached(Generic[T]):
    """How far a loop over items has come, and what came of them."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.last_item: T | None = None


class _Loop(Generic[T]):
    """What both kinds of loop show of how far they have come."""

    def __init__(self) -> None:
        self._reached: Reached[T] = Reached()

    @property
    def results(self) -> list[Any]:
        """What the loop's body appended, in order: with what it appended before the run was
        resumed, as far as that was recorded, so that it is whole at the end. It is recorded with
        the loop's progress, every so many items.
        """
        return self._reached.results

    @property
    def last_item(self) -> T | None:
        """The last item that is done, in this process or before it; None before the first."""
        return self._reached.last_item


async def remaining_async(
    items: Iterable[T], every: int, progress: Any, drive: Any, reached: Reached[T]
) -> AsyncGenerator[T, None]:
    """The items not yet done. It does not know the loop that it is of: who drops that one has left
    it.
    """
    going = progress()
    reached.results += await drive(going.begin())
    kept = len(reached.results)
    try:
        for number, item in enumerate(items, 1):
            if not await drive(going.skips(item)):
                yield item
                saves = number % every == 0
                await drive(going.done(reached.results[kept:] if saves else ()))
                kept = len(reached.results) if saves else kept
            reached.last_item = item
        await drive(going.end(reached.results[kept:]))
    finally:
        await drive(going.leave())


class AsyncResumable(_Loop[T]):
    """A loop over what is not yet done (`session.resumable`), and what came of what is."""

    def __init__(self, items: Iterable[T], every: int, progress: Any, drive: Any) -> None:
        super().__init__()
        self._left = remaining_async(items, every, progress, drive, self._reached)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return await self._left.__anext__()

    async def aclose(self) -> None:
        """Leave the loop: what follows stands outside of it."""
        await self._left.aclose()


def remaining(
    items: Iterable[T], every: int, progress: Any, drive: Any, reached: Reached[T]
) -> Generator[T, None, None]:
    """The items not yet done. It does not know the loop that it is of: who drops that one has left
    it.
    """
    going = progress()
    reached.results += drive(going.begin())
    kept = len(reached.results)
    try:
        for number, item in enumerate(items, 1):
            if not drive(going.skips(item)):
                yield item
                saves = number % every == 0
                drive(going.done(reached.results[kept:] if saves else ()))
                kept = len(reached.results) if saves else kept
            reached.last_item = item
        drive(going.end(reached.results[kept:]))
    finally:
        drive(going.leave())


class Resumable(_Loop[T]):
    """A loop over what is not yet done (`session.resumable`), and what came of what is."""

    def __init__(self, items: Iterable[T], every: int, progress: Any, drive: Any) -> None:
        super().__init__()
        self._left = remaining(items, every, progress, drive, self._reached)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return self._left.__next__()

    def close(self) -> None:
        """Leave the loop: what follows stands outside of it."""
        self._left.close()


# What a search in memory ranks by: the indexes that the tables' package has.


class SessionRankers:
    """The indexes of one session or space: what was indexed once is not indexed again."""

    def __init__(self) -> None:
        self._words: Rankers | None = None
        self._by_embedder: dict[str, Rankers] = {}

    def __call__(self, embedder: Embedder | None) -> Rankers:
        """What ranks by words, and with an embedder by meaning."""
        from hansard.projections.search.files import FileVectors, FileWords  # noqa: PLC0415 -- it takes long, and not all search

        if self._words is None:
            self._words = Rankers(FileWords())
        if embedder is None:
            return self._words
        name = f"{embedder.name}@{embedder.digest}"
        if name not in self._by_embedder:
            self._by_embedder[name] = Rankers(self._words.words, FileVectors(embedder))
        return self._by_embedder[name]


_log = logger(__name__)

Ending = Callable[[BaseException | None], Coroutine[Any, Any, None]]
"""Puts the end of a session on record, with the error that ended it, if any."""


def _not_closed(error: Exception) -> None:
    """Log an error that the session's end met as it closed a stream."""
    _log.warning("a tool failed as its half-read stream was closed", error=repr(error))


def _labelled(fields: Mapping[str, Any], label: str) -> dict[str, Any]:
    """A message's fields, and its label among them. Raises BadValue where they have one already."""
    value = by_name("fields", fields)
    if "label" in value:
        raise BadValue("fields", "'label' is the message's own", "give it as label=")
    return value | {"label": label} if label else value


class SessionFlows(msgspec.Struct):
    """What a session's operations are, by their group: those of the log, or those that the service
    is asked for.
    """

    facts: Any
    views: Any
    board: Any
    team: Any
    mail: Any
    memory: Any = None
    aggregates: Any = None
    windows: Any = None


class _Session(Brief):
    """What all sessions share: no method here waits. `arm` is the run's in its experiment; None
    where it has none. `now`: runs a flow in the calling thread, where one may wait there.
    """

    def __init__(
        self, engine: Any, arm: Arm | None, ending: Ending | None, now: Drive | None = None
    ) -> None:
        self.engine = engine
        self._ending = ending
        stream: ids.AgentStream = engine.stream
        self.run = stream.run
        """The run's id."""
        self.arm = arm
        """The arm that the run has in its experiment; None where it has none."""
        self.tool = Declare(self)
        """Declares a function as a tool of this session: `@session.tool(effects="pure")`."""
        self._flows = self._made(now)
        self.facts = self._flows.facts
        self._pid = os.getpid()
        self._streams: dict[int, Any] = {}
        """Streams of tools whose readers have their last item, by identity: the session's end
        closes them."""
        engine.ledger.client = self
        opens(self)

    _closed = False

    @abstractmethod
    def _made(self, now: Drive | None) -> SessionFlows: ...

    @abstractmethod
    def _progress(self, name: str, every: int) -> Any:
        """How far a loop has come."""

    @abstractmethod
    def _items(self, call: Any) -> Any:
        """A call of a streaming tool, item by item."""

    def _closing(self) -> Ending | None:
        """Return what records its end; None the second time, and in a forked child, which has no
        part in this session.
        """
        if os.getpid() != self._pid:
            return None
        drop(self)
        ending = None if self._closed else self._ending
        self._closed = True
        return ending

    def _explain(self, error: BaseException | None) -> None:
        """Make the exception that ends the session's block readable."""
        if error is not None and error.__traceback__ is not None and not self.mode.reads_only:
            explain(error, self.run, self._last_step(), self._settle_first())

    def _settle_first(self) -> str:
        """Return the command that settles the first call in doubt; empty for none."""
        return ""

    def _last_step(self) -> str:
        """Name the agent's last step for people."""
        return f"agent {self.agent!r} joined it"

    @property
    def is_left_open(self) -> bool:
        """Whether its run stays open where this process ends now."""
        ours = os.getpid() == self._pid
        return ours and not self.engine.ledger.ended and not self.mode.reads_only

    def _brief(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "agent": self.agent,
            "role": self.role,
            "mode": self.mode.value,
            "status": "ended" if self.engine.ledger.ended else "open",
        }

    @contextlib.contextmanager
    def use(self) -> Generator[None]:
        """Have calls of `@hansard.tool` inside go to this session, where several are open."""
        token = enter(self.engine.ledger.here)
        try:
            yield
        finally:
            leave(token)

    @property
    def agent(self) -> str:
        """This agent's name."""
        agent: str = self.engine.stream.agent
        return agent

    @property
    def role(self) -> str:
        """This agent's role in the run."""
        role: str = self.engine.stream.role
        return role

    @property
    def mode(self) -> Mode:
        """How this session treats what is on record."""
        mode: Mode = self.engine.settings.mode
        return mode

    def usage(self, /, **figures: float) -> None:
        """Report what the current call used; it is summed over the call.

        Args:
            **figures: Finite numbers by name: `input_tokens`, `output_tokens`, `cost` ...

        Raises:
            BadName: A name is not one.
            BadValue: A figure is no finite number.
        """
        self.engine.ledger.demand_open()
        given: dict[str, Any] = dict(figures)
        check_names("usage", {"name": list(given)}, self.engine.settings.scrub)
        for name, amount in given.items():
            ids.name("usage", name)
            if not isinstance(amount, int | float) or not math.isfinite(amount):
                raise BadValue(f"usage({name})", f"{amount!r:.80}", "give a finite number")
        scope = self.engine.ledger.here
        for name, amount in figures.items():
            scope.usage[name] = scope.usage.get(name, 0.0) + float(amount)

    def _spawn(self, count: int, *, waits: bool = False) -> tuple[Scope, list[Scope]]:
        ledger = self.engine.ledger
        parent: Scope = self.engine.scope("gather")
        with ledger.lock:
            children = parent.spawn(count, waits=waits)
            ledger.busy += count
        return parent, children

    def _join(self, parent: Scope, children: list[Scope]) -> None:
        with self.engine.ledger.lock:
            parent.join(children)
            self.engine.ledger.busy -= len(children)


class _Replaying(_Session):
    """Replays of action caches and experiences, in either client: `_flow` and `_caller` are its."""

    _flow: AsyncDrive
    _caller: CallingSession
    _browser: AsyncBrowser | None = None

    async def _io(
        self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any
    ) -> T:
        def flow() -> Flow[T]:
            value: T = yield Io(functools.partial(work, *args, **kwargs))
            return value

        return await self._flow(flow())

    async def run_actions(
        self,
        cache: ActionCache | str | Path,
        *,
        params: Mapping[str, str] = NOTHING,
        max_xpath_retries: int = 3,
        fallback: Model | None = None,
        once: replay.Once = "refuse",
        tools: Mapping[str, Callable[..., Any]] = NOTHING,
        xpath_only: bool = False,
        debug: bool = False,
    ) -> replay.Replayed:
        """Do again what a cache of actions says, each a step, on the newest `browser(page)`.

        An element is the one that the cached xpath matches; else the one that another target or a
        variant of the xpath does; else the one that `fallback` names, which is written back as a
        new version: to the file, or to the record where `record.kept_actions` gave it. Exactly one
        match counts, in the recorded frame alone. The first
        action that cannot be done ends it.

        Args:
            cache: A file that `hansard actions show` or HyperAgent wrote, or what is in it; or what
                `record.kept_actions` gave.
            params: A value for each slot of it.
            max_xpath_retries: How often the page is looked at while it still changes.
            fallback: A model: a function that is given a text, and answers with JSON.
            once: `allow`, or the stepIndex of each action that is done once and may be done again
                in this run; without it such a cache is refused.
            tools: The tools that it calls, by name.
            xpath_only: Whether only the cached xpath counts, and a model.
            debug: Whether each action comes with every look for its element.

        Raises:
            BadValue: The cache cannot be read, or a value or tool of it is missing; nothing was
                done.
            Refused: An action of it is done once, and not allowed; nothing was done.
            RoleRefused: The role may not state `actions.healed`, and a model may heal what the
                record keeps; nothing was done.
        """
        self.engine.ledger.demand_open()
        read, path = replay.opened(cache)
        if read.name and fallback is not None:
            await self._flow(self.engine.outcomes.demand(states(ActionsHealed.tag)))
        if read.name:
            with contextlib.suppress(NotFound):  # of another record's nothing is known
                found = await self._io(artifacts.read, self.engine.workspace, ACTIONS, read.name)
                self.engine.ledger.shown(found.label)
        request = replay.ReplayRequest(
            params=by_name("params", params),
            max_xpath_retries=max_xpath_retries,
            fallback=fallback,
            debug=debug,
            once=once,
            tools=by_name("tools", tools),
            xpath_only=xpath_only,
            by=self.agent,
            keep=functools.partial(self._heals, read.name) if read.name else None,
        )
        return await replay.Replay(self._caller, self._browser, read, path, request).run()

    async def run_experience(  # noqa: PLR0913 -- each is a choice of its own
        self,
        experience: Experience | str | Path,
        params: Mapping[str, str | Secret] = NOTHING,
        *,
        task: str = "",
        once: replay.Once = "refuse",
        checks: Sequence[CheckFunction] = (),
        fallback: Model | Teaching | None = None,
        free: experienced.Free | None = None,
        learn: bool | Literal["keep"] = False,
        tools: Mapping[str, Callable[..., Any]] = NOTHING,
    ) -> experienced.Experienced:
        """Do a task by what was learned, on the newest `browser(page)`; no model is asked unless
        one is given.

        The first next action of the procedure that is there is done, if every check function allows
        it; else the others are tried, then what `fallback` names, and at last `free` goes on.
        Without them it ends there: the result names the check, and has the plan in words.

        Args:
            experience: The name of one that the record keeps, its folder (a path with a slash), or
                what was learned; its checks are those that a person confirmed. What came of it is
                on record for one that is kept.
            params: A value for each slot; a `hansard.Secret` is filled in on this machine, and in
                no step, request or file.
            task: In the place of `params`: the task's text, from which they are read.
            once: `allow`, or the number of each node that is done once and may be done in this run.
            checks: Functions of `actions.check_function`, asked beside the experience's own.
            fallback: A model that is asked for an element where no recorded way finds one, or
                `hansard.actions.teach(...)`. What it names must pass every check, too.
            free: Goes on where no level can: it is given a `actions.FreeGuide`, acts as it likes
                through this session, and gives False where the task was not done.
            learn: Whether what `free` did is learned from: the result has the next version. With
                `keep` the record keeps it, too: as it is, unconfirmed, it may guide and not act.
            tools: The tools that it calls, by name.

        Raises:
            BadValue: The folder cannot be read, a slot has no value, the text is said otherwise,
                there is no page, or a tool is missing.
            NotFound: The record keeps none of that name.
            Refused: No check guards an effect, it is done once and not allowed, or what is kept is
                retired, quarantined, or came in a bundle that nobody has confirmed; nothing was
                done.
            RoleRefused: The role may not state what this may come to; nothing was done.
        """
        self.engine.ledger.demand_open()
        value, given = by_name("params", params), experienced.opened(experience)
        also = (ExperienceHealed.tag,) if fallback is not None else ()
        learnt, version = await self._kept_experience(given, also, keeps=learn == "keep")
        if task:
            value = experienced.values_of(learnt, task, value)
        doing = experienced.ReplayOptions(
            params=value,
            task=task,
            once=once,
            functions=checks,
            fallback=fallback,
            free=free,
            tools=by_name("tools", tools),
        )
        tell = functools.partial(self._tell_replayed, learnt, version) if version else None
        heal = self._tell_healed if version else None
        work = (self._caller, self._browser, learnt, doing, tell, heal, version)
        done = await experienced.ExperienceReplay(*work).run()
        if not (learn and done.success and done.level == experienced.FREE):
            return done
        return await self._learned_further(done, learnt, task, value, keeps=learn == "keep")

    async def _keep(self, learnt: Experience) -> None:
        """Keep what was learned as the next version of its name; equal, it is kept already."""
        ledger, workspace = self.engine.ledger, self.engine.workspace
        label = await self._io(label_of_runs, workspace, (*learnt.sources, *learnt.failed))
        why = f"learned from run {self.run}, which went on freely"
        label = join(label, ledger.label).stored
        keep = experiences.keep
        await self._io(keep, workspace, learnt, because=why, by=ledger.actor, label=label)

    async def _learned_further(
        self,
        done: experienced.Experienced,
        learnt: Experience,
        task: str,
        params: Mapping[str, Any],
        *,
        keeps: bool,
    ) -> experienced.Experienced:
        """What a free doing taught, beside what came of it."""
        try:
            request = task or learnt.wording.filled(params)
            tasks = {self.run: request} if request else {}
            further = await self._io(
                learned, self.engine.workspace, learnt.name, [self.run], tasks, parent=learnt
            )
        except (BadValue, NotFound) as error:
            return msgspec.structs.replace(done, not_learned=str(error))
        if keeps:
            await self._keep(further)
        return msgspec.structs.replace(done, learned=further)

    async def _kept_experience(
        self, given: Experience | str, also: Sequence[str], *, keeps: bool
    ) -> tuple[Experience, int]:
        """What is to be done, and which version it is of what the record keeps; 0 for none. A run
        that goes on is told the same version again. What will be stated must be allowed.
        """
        name = given if isinstance(given, str) else given.name
        question = {"experience": name, "version": 0 if isinstance(given, str) else given.version}
        workspace = self.engine.workspace

        async def opens(**_: Any) -> int:
            if isinstance(given, str):
                number = await self._io(experiences.usable, workspace, given)
            else:
                number = await self._io(experiences.number_of, workspace, given, usable=True)
            stated = [ExperienceReplayed.tag, *also] if number else []
            for tag in (*stated, *((ExperienceDistilled.tag,) if keeps else ())):
                await self._flow(self.engine.outcomes.demand(states(tag)))
            return number

        opened = pure("experience.opened", opens, question)
        version: int = await self._caller.call(opened, (), question)
        if not isinstance(given, str) and not version:
            return given, version
        found = await self._io(experiences.get, workspace, name, version)
        self.engine.ledger.shown(found.label)
        return (found.experience if isinstance(given, str) else given), version

    async def _tell_replayed(
        self, learnt: Experience, version: int, fields: Mapping[str, Any]
    ) -> None:
        """Put on record what came of a doing; that of one step once."""
        ledger = self.engine.ledger
        failure = fields["failure"] or {}
        stated = ExperienceReplayed(
            version=version,
            run=self.run,
            agent=self.agent,
            step=ledger.here.step or 0,
            success=not fields["error"],
            checks=len(learnt.checks),
            done=fields["done"],
            level=fields["level"],
            failed_check=failure.get("check", ""),
            error=recordable(fields["error"], self.engine.settings.scrub),
        )
        label = ledger.label.stored
        given = (self.engine.workspace, EXPERIENCES, learnt.name, stated)
        await self._io(artifacts.change, *given, by=ledger.actor, label=label)

    async def _tell_healed(self, version: int, moved: Experience, node: str, because: str) -> int:
        """Put on record that a node's element was found elsewhere: the number of the experience's
        next version; 0 where somebody made one since.
        """
        ledger, workspace, name = self.engine.ledger, self.engine.workspace, moved.name
        await self._io(
            experiences.heal,
            workspace,
            await self._io(experiences.get, workspace, name, version),
            moved,
            node,
            because=recordable(because, self.engine.settings.scrub),
            run=self.run,
            by=ledger.actor,
            label=ledger.label.stored,
        )
        number: int = await self._io(experiences.number_of, workspace, moved)
        return number

    async def _heals(self, name: str, version: int, after: CachedAction, because: str) -> int:
        """Put on record that an entry of a cache that is kept was found elsewhere."""
        ledger = self.engine.ledger
        made: ArtifactChange = await self._io(
            caches.heal,
            self.engine.workspace,
            name,
            version,
            after,
            because=recordable(because, self.engine.settings.scrub),
            run=self.run,
            by=ledger.actor,
            label=ledger.label.stored,
        )
        return made.version


class _InPlace:
    """A sync session as a replay calls it: what it awaits is done in the calling thread."""

    def __init__(self, session: SyncMixin) -> None:
        self._session = session

    async def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = spec.function

        def in_thread(**given: Any) -> Any:
            return done(function(**given))

        spec = msgspec.structs.replace(spec, function=in_thread)
        return self._session.call(spec, args, kwargs)


_run_actions = sync(_Replaying.run_actions)
_run_experience = sync(_Replaying.run_experience)


class SyncMixin(_Replaying):
    """What the sync twin does its own way: a call waits in its thread; one that is on record is
    answered there, without the broker.
    """

    def __init__(self, engine: Any, arm: Arm | None, portal: Portal, ending: Ending) -> None:
        super().__init__(engine, arm, ending, self._drive)
        self._portal = portal
        self._flow = in_place(self._drive)
        self._caller = _InPlace(self)
        self.board = Board(self._flows.board, self._drive)
        self.memory = Memory(self._flows.memory, self._drive)
        self.team = Team(self._flows.team, self._flows.mail, self._drive)
        self.wait_for = self.team.wait_for

    def _drive(self, flow: Flow[T]) -> T:
        redaction = self.engine.settings.scrub
        if redaction is None:
            return drive(flow, self._portal)
        with redaction.in_errors():
            return drive(flow, self._portal)

    @property
    def is_within_reach(self) -> bool:
        """Whether calls can still be made: nobody has ended it, and what drives it runs."""
        return not self.engine.ledger.ended

    def _closing(self) -> Ending | None:
        if os.getpid() == self._pid:
            self._portal.refuse()
        return super()._closing()

    def _end_streams(self) -> None:
        """Close the streams that are half read."""
        for items in list(self._streams.values()):
            if self._streams.pop(id(items), None) is not None:
                try:
                    items.close()
                except Exception as error:  # noqa: BLE001 -- on record as the step's failure
                    _not_closed(error)

    def _read(self, call: Any) -> Generator[Any, None, None]:
        """Call a streaming tool for its reader, item by item."""
        with contextlib.closing(self._items(call)) as items:
            for item in items:
                self._streams[id(items)] = items
                try:
                    yield item
                finally:
                    mine = self._streams.pop(id(items), None)
                if mine is None:
                    raise SessionEnded(self.run, self.agent)

    def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call of a declared tool comes to: resolve, gate, run, record. Call the tool.

        Raises:
            SyncInLoop: Inside a running event loop.
            AfterFork: In a process that was forked: connect there.
            Blocked: The gate refused the call.
            NeedsSettling: Somebody must say what is true first.
            Miss: Strict or offline replay met a call that is not on record.
            NoScope: The thread or task is not one that the session knows.
        """
        self._portal.refuse()
        is_stream = spec.is_stream
        if is_stream and is_async_generator_function(spec.function):
            message = f"{spec.name} is an async generator: use the async client, or a generator"
            raise ToolError(message)
        call = self.engine.begin(spec, args, kwargs)
        if is_stream:
            return self._read(call)
        answered, value = self.engine.answer(call)
        return value if answered else self._drive(self.engine.execute(call))

    def browser(self, *_: object, **__: object) -> NoReturn:
        """Not in the sync client: playwright's sync API runs an event loop in the thread that calls
        it, in which no sync session may wait. Take the async client (docs/actions.md).

        Raises:
            Refused: Always, with what to take instead.
        """
        self.engine.ledger.demand_open()
        message = (
            "a page's actions are steps of the async client alone, since playwright's sync API "
            "runs an event loop in this thread: take hansard.connect_async, `async with "
            "record.run(...) as session`, and a page of playwright.async_api"
        )
        raise Refused(message)

    run_actions = _run_actions  # type: ignore[assignment]  # that of the base is awaited
    run_experience = _run_experience  # type: ignore[assignment]  # that of the base is awaited

    def thread(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> SessionThread[T]:
        """Run a function in a thread with a scope of its own; `.result()` joins it."""
        parent, [child] = self._spawn(1)
        return SessionThread(self, parent, child, function, args, kwargs)

    def gather(self, *functions: Callable[[], Any]) -> list[Any]:
        """Run functions side by side in threads, each a scope of its own; their results in order.

        All run to their end; then the first error, if any, is raised.
        """
        parent, children = self._spawn(len(functions), waits=True)
        workers = [
            SessionThread(self, parent, child, function, (), {})
            for child, function in zip(children, functions, strict=True)
        ]
        for worker in workers:
            worker.wait()
        self._join(parent, children)
        return [worker.value() for worker in workers]


class SessionThread(Generic[T]):
    """A function running in a thread, in a scope of its own."""

    def __init__(
        self,
        session: SyncMixin,
        parent: Scope,
        scope: Scope,
        function: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._session = session
        self._parent = parent
        self._scope = scope
        self._work = (function, args, kwargs)
        self._values: list[T] = []
        self._error: BaseException | None = None
        self._joined = False
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        enter(self._scope)
        function, args, kwargs = self._work
        try:
            self._values.append(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 -- raised again where the result is asked for
            self._error = error

    def wait(self) -> None:
        """Wait until the function has ended."""
        self._thread.join()

    def value(self) -> T:
        """What the function returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._values[0]

    def result(self) -> T:
        """Wait, let the parent's scope go on after this one, and give the value."""
        self.wait()
        if not self._joined:
            self._joined = True
            self._session._join(self._parent, [self._scope])  # noqa: SLF001 -- its other half
        return self.value()


class AsyncMixin(_Replaying):
    """What the async twin does its own way."""

    def __init__(self, engine: Any, arm: Arm | None, ending: Ending | None = None) -> None:
        super().__init__(engine, arm, ending)
        self._loop = asyncio.get_running_loop()
        self._drive_here = driver(self._loop)
        redacts = engine.settings.scrub is not None
        self._drive = self._drive_redacted if redacts else self._drive_here
        self._flow = self._drive
        self._caller = self
        self.board = AsyncBoard(self._flows.board, self._drive)
        self.memory = AsyncMemory(self._flows.memory, self._drive)
        self.team = AsyncTeam(self._flows.team, self._flows.mail, self._drive)
        self.wait_for = self.team.wait_for

    async def _drive_redacted(self, flow: Flow[T]) -> T:
        with self.engine.settings.scrub.in_errors():
            return await self._drive_here(flow)

    @property
    def is_within_reach(self) -> bool:
        """Whether calls can still be made: nobody has ended it, and its loop was not closed."""
        return not self.engine.ledger.ended and not self._loop.is_closed()

    def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a declared tool: a coroutine, or an async iterator for a streaming tool. In a thread
        without a loop (the body of a plain composite tool) it waits for the result, or iterates.
        """
        if spec.is_stream:
            return handed_items(self._iterate(spec, args, kwargs), self._loop, spec.name)
        return handed(self._call(spec, args, kwargs), self._loop, spec.name)

    async def _call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = self.engine.begin(spec, args, kwargs)
        answered, value = self.engine.answer(call)
        return value if answered else await self._drive(self.engine.execute(call))

    async def _iterate(
        self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        call = self.engine.begin(spec, args, kwargs)
        async with contextlib.aclosing(self._items(call)) as items:
            async for item in items:
                self._streams[id(items)] = items
                try:
                    yield item
                finally:
                    mine = self._streams.pop(id(items), None)
                if mine is None:
                    raise SessionEnded(self.run, self.agent)

    async def _end_streams(self) -> None:
        """Close the streams that are half read."""
        for items in list(self._streams.values()):
            if self._streams.pop(id(items), None) is not None:
                try:
                    await items.aclose()
                except Exception as error:  # noqa: BLE001 -- on record as the step's failure
                    _not_closed(error)

    def browser(
        self, page: Any, *, model: Model | None = None, timeout_s: float = 5.0
    ) -> AsyncBrowser:
        """A page whose actions are steps of this session; `run_actions` is done on the newest.

        Args:
            page: A page of playwright's async API.
            model: Is asked which element is meant where an action does not say.
            timeout_s: Seconds that an element, or what must hold, is waited for.

        Raises:
            BadValue: It is no such page.
        """
        self.engine.ledger.demand_open()
        self._browser = AsyncBrowser(self, page, model=model, timeout_s=timeout_s)
        return self._browser

    async def gather(self, *awaitables: Awaitable[Any]) -> list[Any]:
        """Await things side by side, each in a scope of its own; their results in order.

        All run to their end; then the first error, if any, is raised. A cancellation reaches all.
        """
        parent, children = self._spawn(len(awaitables), waits=True)
        tasks = [
            asyncio.ensure_future(_scoped(child, awaitable))
            for child, awaitable in zip(children, awaitables, strict=True)
        ]
        try:
            results: Sequence[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._join(parent, children)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return list(results)

    @contextlib.asynccontextmanager
    async def task_group(self) -> AsyncGenerator[SessionTasks, None]:
        """An asyncio.TaskGroup whose tasks have scopes of their own, joined at its end."""
        parent, _ = self._spawn(0)
        children: list[Scope] = []
        try:
            async with asyncio.TaskGroup() as group:
                yield SessionTasks(self, group, parent, children)
        finally:
            self._join(parent, children)


class SessionTasks:
    """Starts tasks in scopes of their own."""

    def __init__(
        self, session: AsyncMixin, group: asyncio.TaskGroup, parent: Scope, children: list[Scope]
    ) -> None:
        self._session = session
        self._group = group
        self._parent = parent
        self._children = children

    def create_task(self, awaitable: Awaitable[T]) -> asyncio.Task[T]:
        """Start something as a task of the group."""
        ledger = self._session.engine.ledger
        with ledger.lock:
            ledger.demand_open()
            [child] = self._parent.spawn(1)
            ledger.busy += 1
        self._children.append(child)
        return self._group.create_task(_scoped(child, awaitable))


async def _scoped(scope: Scope, awaitable: Awaitable[T]) -> T:
    token = enter(scope)
    try:
        return await awaitable
    finally:
        leave(token)
        if inspect.iscoroutine(awaitable):
            awaitable.close()


def handed(work: Any, loop: asyncio.AbstractEventLoop, tool: str) -> Any:
    """Return a call for its caller: the coroutine in a loop; in a thread without one, its result.

    Raises OtherLoop in another loop than the session's, and ToolError where the session's does not
    run: nobody would do the call.
    """
    if in_loop():
        if asyncio.get_running_loop() is not loop:
            work.close()  # else Python warns that it was never awaited
            raise OtherLoop
        work.__qualname__ = tool  # what Python names where it was never awaited
        return work
    if not loop.is_running():
        work.close()
        message = f"{tool} was called where no event loop runs: await it inside the async session"
        raise ToolError(message)
    return arriving(work, loop).result()


def handed_items(
    items: AsyncGenerator[Any, None], loop: asyncio.AbstractEventLoop, tool: str
) -> AsyncGenerator[Any, None] | Iterator[Any]:
    """Return a streamed call for its caller: see `handed`."""
    if in_loop():
        demand_loop(loop)
        return items
    return _items(items, loop, tool)


def _items(
    items: AsyncGenerator[Any, None], loop: asyncio.AbstractEventLoop, tool: str
) -> Iterator[Any]:
    async def following() -> list[Any]:
        async for item in items:
            return [item]
        return []

    try:
        while found := handed(following(), loop, tool):
            yield found[0]
    finally:
        handed(items.aclose(), loop, tool)


class AsyncCommonSession(AsyncMixin):
    """One agent at work in one run, for the async client: what every session has, a trusted
    program's (`AsyncSession`) and a restricted agent's. Made by `record.run(...)`.

    After its `with` each of these raises `SessionEnded`.
    """

    board: AsyncBoard
    """State that all agents of the run share, by key."""
    memory: AsyncMemory
    """Files that outlive runs: the agent's own, those of the user it acts for, and those of all."""
    team: AsyncTeam
    """The tasks that the run's agents share, and the messages between them."""

    async def close(self, error: BaseException | None = None) -> None:
        """End the session, as leaving its block would: completed, or failed where an error is
        given. Streams of tools that are half read are closed first. It does nothing the second
        time, nor in a forked child. Raises as any write.
        """
        ending = self._closing()
        if ending is not None:
            self._explain(error)
            await self._end_streams()
            await ending(error)

    async def view(self, at: object = None, *, key: bytes | None = None) -> View:
        """What this agent's role may see of the run; that it was served is put on record.

        Args:
            at: A point of the run; now without one.
            key: 32 secret bytes or more, where a mask of the role hashes.

        Raises:
            NotFound: There is no such point.
            ViewDiffers: It is on record, and derived again it is another one.
        """
        found: View = await self._flow(self._flows.views.view(at, key))
        return found

    async def checkpoint(self, name: str, /, **data: Any) -> None:
        """Put a named stage on record, with data that can be read back."""
        await self._flow(self.facts.checkpoint(name, data))

    async def checkpoint_data(self, name: str) -> dict[str, Any] | None:
        """The data of the newest checkpoint of a name; None where there is none."""
        found: dict[str, Any] | None = await self._flow(self.facts.checkpoint_data(name))
        return found

    async def decide(
        self,
        question: str,
        *,
        selected: str,
        alternatives: Iterable[Any] = (),
        inputs: Iterable[Any] = (),
        threshold: float | None = None,
        confidence: float | None = None,
        because: str = "",
    ) -> None:
        """Put a decision on record.

        Args:
            question: What is decided.
            selected: What is chosen.
            alternatives: Texts, or dicts of id, score, reason, rejected_because.
            inputs: What it was made from: values that calls returned or parts of them, steps
                (`ada#3`), entries of the board (or `key@version`), views, ids of events and
                commits. Each is recorded as the event that it came from.
            threshold: What a score had to reach.
            confidence: How sure the agent was.
            because: Why.

        Raises:
            BadValue: An input came from nowhere, or a number is not finite; nothing is recorded.
        """
        await self._flow(
            self.facts.decide(
                question,
                selected,
                alternatives=alternatives,
                inputs=stated(inputs),
                threshold=threshold,
                confidence=confidence,
                because=because,
            )
        )

    async def message(
        self,
        role: str,
        content: Any,
        *,
        tokens: int | None = None,
        label: str = "",
        fields: Mapping[str, Any] = NOTHING,
    ) -> None:
        """Add a message to the context window, in the provider's form.

        Args:
            role: The message's: `user`, `assistant`, `tool` ...
            content: A text, or what the provider takes.
            tokens: How many tokens it has; None where nobody counted.
            label: `secret untrusted`, say, where it is more than public and trusted.
            fields: What else the provider's form has (`tool_calls`, `name` ...).

        Raises:
            BadValue: It cannot be recorded, or `tokens` is no whole number.
        """
        await self._flow(self.facts.message(role, content, tokens, _labelled(fields, label)))

    async def resource(self, uri: str, operation: str = "read") -> None:
        """Put on record that a resource was used."""
        await self._flow(self.facts.resource(uri, operation))

    async def hand_off(
        self, to: str, payload: Mapping[str, Any] = NOTHING, *, because: str = ""
    ) -> None:
        """Hand the work over to another agent or role.

        Args:
            to: The agent or role.
            payload: What it needs, by name.
            because: Why.

        Raises:
            BadName, BadValue: `to` is no name, or the payload cannot be recorded.
        """
        await self._flow(self.facts.hand_off(to, because, by_name("payload", payload)))

    async def context(self) -> list[dict[str, Any]]:
        """This run's part of the context window in the provider's message form: what this agent has
        stated in it, a summary in the place of what was compacted. `window()` has all of it.
        """
        return await self._flow(self.facts.context())

    async def latest_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint of this agent, of whatever name; None where there is none."""
        found: Checkpoint | None = await self._flow(self.facts.latest_checkpoint())
        return found

    def resumable(
        self, items: Iterable[T], *, every: int = 1, name: str = "items"
    ) -> AsyncResumable[T]:
        """The items not yet done: a loop that goes on where it stood.

        Args:
            items: In the same order each time.
            every: Progress is recorded after so many; up to as many are done again on resume.
            name: Of the loop, where an agent has several.

        Raises:
            BadValue: `every` is less than 1; when the loop begins.
        """
        progress = functools.partial(self._progress, name, every)
        return AsyncResumable(items, every, progress, self._drive)


_OF_THE_BEGUN = frozenset(
    {"arm", "board", "engine", "facts", "memory", "run", "team", "tool", "wait_for"}
    | {
        "_drive",
        "_drive_here",
        "_ending",
        "_flow",
        "_flows",
        "_loop",
        "_pid",
        "_portal",
        "_streams",
    }
)
"""What a session has from its beginning on."""


class Trusted(_Session):
    """What a trusted program's session has besides: it holds the agent's whole state, and may be
    one that has yet to begin.
    """

    _asked: OpeningRequest | None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if self._asked is not None and name in _OF_THE_BEGUN:
                raise NotBegun
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)

    def _beginning(self) -> OpeningRequest:
        """What it is to begin with. Raises SessionEnded, Refused where it has begun."""
        if self._asked is None:
            self.engine.ledger.demand_open()
            message = (
                f"the session of agent {self.agent!r} in run {self.run} is open already: use it "
                "as it stands, without a second 'with'"
            )
            raise Refused(message)
        return self._asked

    def _made(self, now: Drive | None) -> SessionFlows:  # noqa: ARG002 -- a write of the log waits for its commit
        engine: StepEngine = self.engine
        team = WaitFlows(engine)
        facts = statements.Annotations(engine)
        return SessionFlows(
            facts=facts,
            views=ViewFlows(engine),
            board=TransactedFlows(engine),
            team=team,
            mail=MailFlows(engine, team.store),
            memory=MemoryFlows(engine, SessionRankers()),
            aggregates=AggregateFlows(engine),
            windows=Windows(facts),
        )

    def _progress(self, name: str, every: int) -> statements.Progress:
        return statements.Progress(self.facts, name, every)

    def _brief(self) -> dict[str, Any]:
        if self._asked is not None:
            return {"workflow": self._asked.workflow, "status": "not begun"}
        state: AgentState = self.engine.ledger.state
        steps = len(state.steps)
        return super()._brief() | {"epoch": state.epoch, "version": state.version, "steps": steps}

    @property
    def label(self) -> Label:
        """The join of the labels of all that this agent was shown."""
        label: Label = self.engine.ledger.label
        return label

    def _last_step(self) -> str:
        steps = self.engine.ledger.state.steps
        if not steps:
            return super()._last_step()
        number = max(steps)
        return f"{self.agent}#{number} ({steps[number].tool})"

    def _settle_first(self) -> str:
        steps = (
            s for s in self.engine.ledger.state.in_doubt if s.effects is not Effects.IDEMPOTENT
        )
        first = next(steps, None)
        if first is None:
            return ""
        address: RunAddress = self.engine.outcomes.address
        return address.settle(first.number, "--happened RESULT", "--did-not-happen")

    @property
    def saved(self) -> Saved:
        """What this session was answered from the record until now, as the recorded calls had used
        it; what is not recorded of them is unknown, not 0.
        """
        return saved(self.engine.ledger)

    @property
    def state(self) -> AgentState:
        """A copy of the agent's state as it stands."""
        ledger: Ledger = self.engine.ledger
        with ledger.lock:
            return ledger.state.copy()


class AsyncSession(Trusted, AsyncCommonSession):
    """A trusted program's session, for the async client: what `record.run` gives, or without a
    record `async with hansard.AsyncSession() as session`, which opens the record and a run, and
    closes both where the block ends.

    Until its block is entered each of its methods raises `NotBegun`, after it `SessionEnded`.

    Args:
        workflow: What the run is an execution of, where it begins; HANSARD_WORKFLOW if not given,
            else the program's name: `agent` for `python agent.py`, `interactive` at a prompt, in a
            notebook and for `python -c`.
        agent: Who acts: HANSARD_AGENT, or `agent`, if not given.
        role: Its role: HANSARD_ROLE, or `agent`, if not given.
        workspace: Which one; HANSARD_WORKSPACE, or `default`, if not given.
        **options: What `connect` and `record.run` take: `run`, `mode`, `gate`, `settle` ...; see
            `SessionOptions`.

    Raises:
        BadOption: There is no such option; the message names the nearest.
    """

    _asked: OpeningRequest | None = None
    _block: AbstractAsyncContextManager[Self]

    def __init__(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        workspace: str | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        self._asked = OpeningRequest(
            workflow=workflow, agent=agent, role=role, workspace=workspace, options=dict(options)
        )

    async def __aenter__(self) -> Self:
        """Open the record and begin, join or resume the run. Raises as `connect` and `record.run`;
        Refused where it is open already, SessionEnded where it was.
        """
        request = self._beginning()
        AsyncMixin.__init__(self, *await begun_async(request))
        self._asked = None
        self._block = within_async(self)
        return await self._block.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the session, and close what it opened."""
        await self._block.__aexit__(kind, error, trace)

    async def snapshot(self) -> Snapshot:
        """The agent's state as it stands, large payloads included: it reads all that the agent did.
        Its id is a point for `at=`, and what `record.replay_from` takes.
        """
        self.engine.ledger.demand_open()
        return await snapshots.now(self.engine.workspace, self.engine.stream)

    async def window(self, *, full: bool = False, close: bool = True) -> list[dict[str, Any]]:
        """The whole context window in the provider's form, ready to be sent to a model: what the
        conversation held before this run, then what this agent has stated in it; a summary in the
        place of messages that were compacted. This agent has seen it: their labels are its own.

        Args:
            full: All messages, without the summaries.
            close: Answer each tool call that has no answer on record and gets none any more, as
                after a run that was cut off: providers refuse a window that has one. The answer
                says so, and is not recorded.
        """
        flow = self._flows.windows.window(full=full, close=close)
        found: list[dict[str, Any]] = await self._flow(flow)
        return found

    async def compact(
        self,
        summarize: Callable[..., Any],
        *,
        keep: int = 4,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        count: Callable[[dict[str, Any]], int] | None = None,
        role: str = "system",
    ) -> Compaction | None:
        """Have a summary stand for the window's earlier messages, if it is too long. They stay on
        record; `compaction.dropped` and `window(full=True)` have them.

        Nothing is half done: the summary is one event, which says what it stands for. Instructions
        at the window's begin stay, and an answer to a call stays with that call.

        Args:
            summarize: Is given the messages to be dropped, in the provider's form, and returns a
                text. Its call is a step like any other, answered from the record on a resume: of
                the tool that it was declared as, else `pure` and of kind `model`.
            keep: So many of the newest messages stay.
            max_messages: Only if the window has more than these.
            max_tokens: Only if it has more than these. Without either it is compacted at once.
            count: How many tokens a message has, where that was not said with each (`tokens=`).
            role: The role of the message that the summary is.

        What comes of it is the window now, and what was dropped; None where it was within its
        bounds.

        Raises:
            Refused: Nothing is left to drop, or another agent of the run compacted some of these
                messages.
            BadValue: The summary is empty, or longer than what it stands for; or tokens are bounded
                and of some message not known. Nothing of it is on record but the failed call.
        """
        bound = Bound(keep=keep, messages=max_messages, tokens=max_tokens)
        plan = await self._flow(self._flows.windows.planned(bound, count, role))
        if plan is None:
            return None
        spec = summarizer(summarize, plan)
        summary = await self._flow(self._flows.windows.summarized(spec, plan))
        made: Compaction = await self._flow(self._flows.windows.compacted(plan, summary))
        return made

    async def save(self, *aggregates: Any) -> list[int]:
        """Save what happened to aggregates of the program's own: their new events and the step that
        caused them, together, whole or not at all. The versions that they are at, in order.

        Called again by a program that is resumed or replayed, it writes nothing, and the aggregates
        become what was saved then: with the ids and times of then.

        Args:
            *aggregates: Aggregates of the `eventsourcing` library, of classes that are declared
                with `hansard.aggregate_type`. One that nothing happened to is left as it is.

        Raises:
            AggregateConflict: Another was first: one of them is at another version. Get it again,
                and decide again.
            BadValue: A class or event is not declared, or an event cannot be recorded so that an
                equal one comes back.
            ShadowedEffect: In a fork that shadows effects, for what its parent never saved.
        """
        versions: list[int] = await self._flow(self._flows.aggregates.save(aggregates))
        return versions

    async def get(
        self,
        cls: type[T],
        aggregate_id: UUID | str,
        *,
        at: object = None,
        version: int | None = None,
    ) -> T:
        """An aggregate of the program's own, rebuilt from its events as it stands, or stood. That
        it was read, and at which version, is put on record; a replay is given the same.

        Args:
            cls: Its class, declared with `hansard.aggregate_type`.
            aggregate_id: Its id.
            at: A point: a position, a time, the id of a commit or event of it, or '@3' for its
                version; now without one.
            version: Its version, as `at='@3'` says it.

        Raises:
            NotFound: There was no such aggregate then.
            UndeclaredEvent: It has an event on record under a tag that is not declared.
            BadValue: The class is not declared.
        """
        found: T = await self._flow(self._flows.aggregates.get(cls, aggregate_id, at, version))
        return found

    def _items(self, call: Call) -> AsyncGenerator[Any, None]:
        return iterate_async(self.engine, call, self._drive)


def opened_async(*made_of: Any) -> AsyncSession:
    """A session that is open already, of what `AsyncMixin` is made of."""
    session = AsyncSession.__new__(AsyncSession)
    AsyncMixin.__init__(session, *made_of)
    return session


AsyncS = TypeVar("AsyncS", bound=AsyncCommonSession)


@contextlib.asynccontextmanager
async def within_async(session: AsyncS) -> AsyncGenerator[AsyncS, None]:
    """A session's block: it is current inside, and ends with it."""
    with session.use():
        try:
            yield session
        except BaseException as error:
            await session.close(error)
            raise
        else:
            await session.close()


async def stay_async(session: AsyncS, record: Any, where: str) -> AsyncS:
    """Have calls find a session without a block; one that it takes the place of ends."""
    for old in keep(session, record, where):
        await old.close(SessionEnded(old.run, old.agent))
    return session


class CommonSession(SyncMixin):
    """What every session has for the sync client: the methods of `AsyncCommonSession`."""

    board: Board
    memory: Memory
    team: Team

    def close(self, error: BaseException | None = None) -> None:
        """End the session, as leaving its block would: completed, or failed where an error is
        given. Streams of tools that are half read are closed first. It does nothing the second
        time, nor in a forked child. Raises as any write.
        """
        ending = self._closing()
        if ending is not None:
            self._explain(error)
            self._end_streams()
            self._portal.run(ending(error))

    def resumable(self, items: Iterable[T], *, every: int = 1, name: str = "items") -> Resumable[T]:
        """The items not yet done: a loop that goes on where it stood.

        Args:
            items: In the same order each time.
            every: Progress is recorded after so many; up to as many are done again on resume.
            name: Of the loop, where an agent has several.

        Raises:
            BadValue: `every` is less than 1; when the loop begins.
        """
        progress = functools.partial(self._progress, name, every)
        return Resumable(items, every, progress, self._drive)

    view = sync(AsyncCommonSession.view)
    checkpoint = sync(AsyncCommonSession.checkpoint)
    checkpoint_data = sync(AsyncCommonSession.checkpoint_data)
    decide = sync(AsyncCommonSession.decide)
    message = sync(AsyncCommonSession.message)
    resource = sync(AsyncCommonSession.resource)
    hand_off = sync(AsyncCommonSession.hand_off)
    context = sync(AsyncCommonSession.context)
    latest_checkpoint = sync(AsyncCommonSession.latest_checkpoint)


class Session(Trusted, CommonSession):
    """A trusted program's session, for the sync client: what `record.run` gives, or without a
    record `with hansard.Session() as session`, which opens the record and a run, and
    closes both where the block ends.

    Until its block is entered each of its methods raises `NotBegun`, after it `SessionEnded`.

    Args:
        workflow: What the run is an execution of, where it begins; HANSARD_WORKFLOW if not given,
            else the program's name: `agent` for `python agent.py`, `interactive` at a prompt, in a
            notebook and for `python -c`.
        agent: Who acts: HANSARD_AGENT, or `agent`, if not given.
        role: Its role: HANSARD_ROLE, or `agent`, if not given.
        workspace: Which one; HANSARD_WORKSPACE, or `default`, if not given.
        **options: What `connect` and `record.run` take: `run`, `mode`, `gate`, `settle` ...; see
            `SessionOptions`.

    Raises:
        BadOption: There is no such option; the message names the nearest.
    """

    _asked: OpeningRequest | None = None
    _block: AbstractContextManager[Self]

    def __init__(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        workspace: str | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        self._asked = OpeningRequest(
            workflow=workflow, agent=agent, role=role, workspace=workspace, options=dict(options)
        )

    def __enter__(self) -> Self:
        """Open the record and begin, join or resume the run. Raises as `connect` and `record.run`;
        Refused where it is open already, SessionEnded where it was.
        """
        request = self._beginning()
        SyncMixin.__init__(self, *begun(request))
        self._asked = None
        self._block = within(self)
        return self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the session, and close what it opened."""
        self._block.__exit__(kind, error, trace)

    def _items(self, call: Call) -> Generator[Any, None, None]:
        return iterate(self.engine, call, self._drive)

    snapshot = on_portal(AsyncSession.snapshot)
    window = sync(AsyncSession.window)
    compact = sync(AsyncSession.compact)
    save = sync(AsyncSession.save)
    get = sync(AsyncSession.get)


def opened(*made_of: Any) -> Session:
    """A session that is open already, of what `SyncMixin` is made of."""
    session = Session.__new__(Session)
    SyncMixin.__init__(session, *made_of)
    return session


S = TypeVar("S", bound=CommonSession)


@contextlib.contextmanager
def within(session: S) -> Generator[S, None, None]:
    """A session's block: it is current inside, and ends with it."""
    with session.use():
        try:
            yield session
        except BaseException as error:
            session.close(error)
            raise
        else:
            session.close()


def stay(session: S, record: Any, where: str) -> S:
    """Have calls find a session without a block; one that it takes the place of ends."""
    for old in keep(session, record, where):
        old.close(SessionEnded(old.run, old.agent))
    return session
