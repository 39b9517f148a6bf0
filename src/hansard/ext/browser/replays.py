"""Replays in a session: `run_actions` and `run_experience`, with a page and without one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from hansard.agents.artifacts import caches, experiences
from hansard.agents.artifacts import versions as artifacts
from hansard.agents.artifacts.versions import ArtifactChange, label_of_runs
from hansard.agents.flow import done, sync
from hansard.agents.policy.permits import states
from hansard.agents.steps.tools import ToolSpec
from hansard.bus.errors import NotFound
from hansard.client.session import AsyncMixin, SyncMixin
from hansard.domain.actions import ACTIONS, ActionCache, ActionsHealed, CachedAction
from hansard.domain.choices import NOTHING, by_name
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience.checks import CheckFunction
from hansard.domain.experience.experience import (
    EXPERIENCES,
    Experience,
    ExperienceDistilled,
    ExperienceHealed,
    ExperienceReplayed,
)
from hansard.domain.label import join
from hansard.domain.values import Secret, recordable
from hansard.ext.browser import replay
from hansard.ext.browser.browser import CallingSession, Model, PageActions, pure
from hansard.ext.browser.replay import Teaching
from hansard.inspect.experience import learned

T = TypeVar("T")


class _Replays:
    """Replays of action caches and experiences in a session of either client."""

    _acted_on: PageActions | None = None

    def __init__(self, session: AsyncMixin | SyncMixin, caller: CallingSession) -> None:
        self._in = session
        self._caller = caller
        self._engine: Any = session.engine
        self._engine.ledger.demand_open()
        self._io, self._flow = session._io, session._flow  # noqa: SLF001 -- for slices

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
        """Replay a cache of actions, each a step, in the session.

        An element is found by the cached xpath; else by another target or a variant of the xpath;
        else by `fallback`, whose result is written back as a new version: to the file, or to the
        record if the cache is from `record.actions.get`. Only exactly one match counts, in the
        recorded frame alone. The first action that fails ends the replay.

        Args:
            cache: A file that `hansard actions show` or HyperAgent wrote, its content, or the
                result of `record.actions.get`.
            params: A value for each slot of the cache.
            max_xpath_retries: Most looks at the page while it still changes.
            fallback: A model: a function of a text that returns JSON.
            once: `allow`, or the stepIndex of each action that is done once and may be repeated in
                this run; by default a cache with such actions is refused.
            tools: The tools that the cache calls, by name.
            xpath_only: True to find elements only by the cached xpath, and by `fallback`.
            debug: True to return every attempt to find an element with each action.

        Raises:
            BadValue: The cache cannot be read, or lacks a value or tool; nothing was done.
            Refused: An action is done once, and not allowed by `once`; nothing was done.
            RoleRefused: The role may not state `actions.healed`, and the model may heal a cache of
                the record; nothing was done.
        """
        self._engine.ledger.demand_open()
        read, path = replay.opened_cache(cache)
        if read.name and fallback is not None:
            await self._flow(self._engine.outcomes.demand(states(ActionsHealed.tag)))
        if read.name:
            with contextlib.suppress(NotFound):  # a cache of another record has no label here
                kept = await self._io(artifacts.read, self._engine.workspace, ACTIONS, read.name)
                self._engine.ledger.shown(kept.label)
        request = replay.ReplayRequest(
            params=by_name("params", params),
            max_xpath_retries=max_xpath_retries,
            fallback=fallback,
            debug=debug,
            once=once,
            tools=by_name("tools", tools),
            xpath_only=xpath_only,
            by=self._in.agent,
            keep=functools.partial(self._heals, read.name) if read.name else None,
        )
        return await replay.Replay(self._caller, self._acted_on, read, path, request).run()

    async def run_experience(  # noqa: PLR0913 -- each is a choice of its own
        self,
        experience: Experience | str | Path,
        params: Mapping[str, str | Secret] = NOTHING,
        *,
        task: str = "",
        once: replay.Once = "refuse",
        checks: Sequence[CheckFunction] = (),
        fallback: Model | Teaching | None = None,
        free: replay.Free | None = None,
        learn: bool | Literal["keep"] = False,
        tools: Mapping[str, Callable[..., Any]] = NOTHING,
    ) -> replay.Experienced:
        """Do a task by a learned experience, in the session.

        No model is called unless one is given.

        The first possible next action of the procedure is done, if every check function allows it;
        else the others are tried, then the one that `fallback` names, and at last `free` continues.
        Without these the replay ends: the result names the failed check, and has the plan in words.

        Args:
            experience: The name of one in the record, its folder (a path with a slash), or the
                object; its checks are those that a person confirmed. The result of one in the
                record is recorded.
            params: A value for each slot; a `hansard.Secret` is filled in on this machine, and is
                in no step, request or file.
            task: Instead of `params`: the task's text, from which they are read.
            once: `allow`, or the number of each node that is done once and may be done in this run.
            checks: Functions of `actions.check_function`, called beside the experience's own.
            fallback: A model that names the element if no recorded target finds one, or
                `hansard.actions.teach(...)`. Its choice must pass every check, too.
            free: A function that continues where no level can: it gets an `actions.FreeGuide`, acts
                through this session, and returns False if the task was not done.
            learn: True to learn from the actions of `free`: the result has the next version. With
                `keep` it is also kept in the record, unconfirmed: it may guide and not act.
            tools: The tools that the experience calls, by name.

        Raises:
            BadValue: The folder cannot be read, a slot has no value, the task's text does not fit,
                there is no page, or a tool is missing.
            NotFound: The record has no experience of that name.
            Refused: No check guards an effect, an action is done once and not allowed, or the
                experience is retired, quarantined, or is from a pack that nobody has confirmed;
                nothing was done.
            RoleRefused: The role may not state a result that this may have; nothing was done.
        """
        self._engine.ledger.demand_open()
        value, source = by_name("params", params), replay.opened_experience(experience)
        also = (ExperienceHealed.tag,) if fallback is not None else ()
        learnt, version = await self._kept_experience(source, also, keeps=learn == "keep")
        if task:
            value = replay.values_of(learnt, task, value)
        options = replay.ExperienceOptions(
            params=value,
            task=task,
            once=once,
            functions=checks,
            fallback=fallback,
            free=free,
            tools=by_name("tools", tools),
        )
        tell = functools.partial(self._record_replay, learnt, version) if version else None
        heal = self._record_heal if version else None
        work = (self._caller, self._acted_on, learnt, options, tell, heal, version)
        done = await replay.ExperienceReplay(*work).run()
        if not (learn and done.success and done.level == replay.FREE):
            return done
        return await self._learned_further(done, learnt, task, value, keeps=learn == "keep")

    async def _keep(self, learnt: Experience) -> None:
        """Keep an experience as the next version of its name; an equal one is kept already."""
        ledger, workspace = self._engine.ledger, self._engine.workspace
        label = await self._io(label_of_runs, workspace, (*learnt.sources, *learnt.failed))
        why = f"learned from run {self._in.run}, which went on freely"
        label = join(label, ledger.label).stored
        keep = experiences.keep
        await self._io(keep, workspace, learnt, reason=why, by=ledger.actor, label=label)

    async def _learned_further(
        self,
        done: replay.Experienced,
        learnt: Experience,
        task: str,
        params: Mapping[str, Any],
        *,
        keeps: bool,
    ) -> replay.Experienced:
        """Return the result with the experience learned from the free actions."""
        try:
            request = task or learnt.wording.filled(params)
            tasks = {self._in.run: request} if request else {}
            further = await self._io(
                learned, self._engine.workspace, learnt.name, [self._in.run], tasks, parent=learnt
            )
        except (BadValue, NotFound) as error:
            return msgspec.structs.replace(done, not_learned=str(error))
        if keeps:
            await self._keep(further)
        return msgspec.structs.replace(done, learned=further)

    async def _kept_experience(
        self, source: Experience | str, also: Sequence[str], *, keeps: bool
    ) -> tuple[Experience, int]:
        """Return the experience to replay, and its version in the record; 0 if it has none.

        A resumed run gets the same version again. Raise if the role may not state the events that
        follow.
        """
        name = source if isinstance(source, str) else source.name
        question = {"experience": name, "version": 0 if isinstance(source, str) else source.version}
        workspace = self._engine.workspace

        async def opens(**_: Any) -> int:
            if isinstance(source, str):
                number = await self._io(experiences.usable, workspace, source)
            else:
                number = await self._io(experiences.number_of, workspace, source, usable=True)
            stated = [ExperienceReplayed.tag, *also] if number else []
            for tag in (*stated, *((ExperienceDistilled.tag,) if keeps else ())):
                await self._flow(self._engine.outcomes.demand(states(tag)))
            return number

        opened = pure("experience.opened", opens, question)
        version: int = await self._caller.call(opened, (), question)
        if not isinstance(source, str) and not version:
            return source, version
        kept = await self._io(experiences.get, workspace, name, version)
        self._engine.ledger.shown(kept.label)
        return (kept.experience if isinstance(source, str) else source), version

    async def _record_replay(
        self, learnt: Experience, version: int, fields: Mapping[str, Any]
    ) -> None:
        """Record the result of a replay; for the same step only once."""
        ledger = self._engine.ledger
        failure = fields["failure"] or {}
        stated = ExperienceReplayed(
            version=version,
            run=self._in.run,
            agent=self._in.agent,
            step=ledger.here.step or 0,
            success=not fields["error"],
            checks=len(learnt.checks),
            done=fields["done"],
            level=fields["level"],
            failed_check=failure.get("check", ""),
            error=recordable(fields["error"], self._engine.settings.scrub),
        )
        label = ledger.label.stored
        target = (self._engine.workspace, EXPERIENCES, learnt.name, stated)
        await self._io(artifacts.change, *target, by=ledger.actor, label=label)

    async def _record_heal(self, version: int, moved: Experience, node: str, reason: str) -> int:
        """Record that a node's element was found elsewhere; return the experience's next version.

        0 if somebody added a version in the meantime.
        """
        ledger, workspace, name = self._engine.ledger, self._engine.workspace, moved.name
        await self._io(
            experiences.heal,
            workspace,
            await self._io(experiences.get, workspace, name, version),
            moved,
            node,
            reason=recordable(reason, self._engine.settings.scrub),
            run=self._in.run,
            by=ledger.actor,
            label=ledger.label.stored,
        )
        number: int = await self._io(experiences.number_of, workspace, moved)
        return number

    async def _heals(self, name: str, version: int, after: CachedAction, reason: str) -> int:
        """Record that an element of a kept cache was found elsewhere; return the new version."""
        ledger = self._engine.ledger
        made: ArtifactChange = await self._io(
            caches.heal,
            self._engine.workspace,
            name,
            version,
            after,
            reason=recordable(reason, self._engine.settings.scrub),
            run=self._in.run,
            by=ledger.actor,
            label=ledger.label.stored,
        )
        return made.version


class AsyncReplays(_Replays):
    """Replays in a session of the async client, without a page: of calls of tools.

    `AsyncBrowser` has the same methods, on its page.
    """

    def __init__(self, session: AsyncMixin) -> None:
        _demand_async(session)
        super().__init__(session, session)


def _demand_async(session: object) -> None:
    """Raise Refused for a session of the sync client."""
    if isinstance(session, SyncMixin):
        message = (
            "the sync client has no browser, since playwright's sync API runs an event loop in "
            "this thread: use hansard.connect_async, `async with record.run(...) as session`, and "
            "a page of playwright.async_api; hansard.actions.Replays(session) replays calls of "
            "tools"
        )
        raise Refused(message)


class AsyncBrowser(PageActions, AsyncReplays):
    """A page whose actions are steps of a session.

    A resumed run has a new page, and its steps are answered from the record: before the next action
    is done, those since the last `goto` are repeated on the page, if all are idempotent; after one
    that is done once, `PageGone` says what to do.

    Args:
        session: A session of the async client.
        page: A page of playwright's async API.
        model: A model that names the element if an action does not.
        timeout_s: Seconds to wait for an element, or for a condition to hold.

    Raises:
        BadValue: `page` is not such a page.
        Refused: The session is one of the sync client: playwright's sync API runs an event loop in
            the calling thread, where no sync session may wait.
    """

    def __init__(
        self, session: AsyncMixin, page: Any, *, model: Model | None = None, timeout_s: float = 5.0
    ) -> None:
        AsyncReplays.__init__(self, session)
        PageActions.__init__(self, session, page, model=model, timeout_s=timeout_s)
        self._acted_on = self


_run_actions = sync(_Replays.run_actions)
_run_experience = sync(_Replays.run_experience)


class _InPlace:
    """The calling session of a sync replay: what it awaits runs in the calling thread."""

    def __init__(self, session: SyncMixin) -> None:
        self._session = session

    async def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = spec.function

        def in_thread(**arguments: Any) -> Any:
            return done(function(**arguments))

        spec = msgspec.structs.replace(spec, function=in_thread)
        return self._session.call(spec, args, kwargs)


class Replays(_Replays):
    """Replays in a session of the sync client: of calls of tools."""

    def __init__(self, session: SyncMixin) -> None:
        super().__init__(session, _InPlace(session))

    run_actions = _run_actions  # type: ignore[assignment]  # that of the base is awaited
    run_experience = _run_experience  # type: ignore[assignment]  # that of the base is awaited
