"""`run_actions` and `run_experience`: replays of a cache of actions, and of a
learned experience under check functions. Each action is a step like any other.

The element of each action is found by the recorded xpath, by its other targets and by variants of
the xpath, and only then by a model, which is called for this one element. The model's choice is
written back as a new version once the action succeeded: of the file, or of what the record keeps.

Long because both replays share how an action is done, and an experience adds its graph and checks.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from hansard.agents.artifacts.experiences import is_name, read_folder
from hansard.agents.errors import NeedsSettling, NotDone, SessionEnded
from hansard.agents.flow import awaited
from hansard.bus.errors import BusError
from hansard.bus.file_lock import read_bounded, whole
from hansard.domain import actions as caches
from hansard.domain import values
from hansard.domain.actions import (
    ActionCache,
    ActionCheck,
    CachedAction,
    ElementTargets,
    filled,
    locators,
    normalized,
    templated,
)
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience.checks import (
    END,
    WHEN,
    CheckedStep,
    CheckFailure,
    CheckFunction,
    FlowCheck,
    Guard,
    PostconditionCheck,
    PreconditionCheck,
    ProcedureNode,
    Situation,
    kind,
    named_functions,
)
from hansard.domain.experience.distil import JSON
from hansard.domain.experience.experience import Experience, plan
from hansard.domain.values import Secret
from hansard.ext.browser import elements
from hansard.ext.browser.browser import (
    ActionFailed,
    CallingSession,
    Model,
    PageAction,
    PageActions,
    composite,
    pure,
)
from hansard.ext.browser.elements import ElementAttempt, PageGone

Once = Literal["refuse", "allow"] | Collection[int]
"""Permission to repeat actions that are done once: for all of them, or those named."""


class ReplayedAction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of an entry.

    Attributes:
        step_index: The entry's index.
        success: True if the action was done.
        message: The result, or the reason of the failure.
        strategy: How the element was found: `xpath`, `variant`, `role` ..., `model`.
        healed: True if a model found the element, for this action or an earlier one of the same
            element; the cache has the new target.
        seconds: Duration.
        value: The value of an `extract` or a tool.
        attempts: Every attempt to find the element; with `debug=True`.
    """

    step_index: int
    success: bool
    message: str
    strategy: str = ""
    healed: bool = False
    seconds: float = 0.0
    value: Any = None
    attempts: list[ElementAttempt] = []


class Replayed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a replay.

    Attributes:
        success: True if all entries were done.
        error: The reason of the failure; empty on success.
        actions: The entries up to the first failure.
        model_calls: Number of calls of a model.
        seconds: Duration.
        cache: The cache with its heals.
    """

    success: bool
    error: str
    actions: list[ReplayedAction]
    model_calls: int
    seconds: float
    cache: ActionCache


Keep = Callable[[int, CachedAction, str], Awaitable[int]]
"""Records that an entry of a version has a new target, and why; returns the newest version."""


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of every replay: see `AsyncReplays.run_actions`."""

    params: Mapping[str, str | Secret]
    once: Once = "refuse"
    tools: Mapping[str, Callable[..., Any]] = {}


class ReplayRequest(ReplayOptions, frozen=True, kw_only=True):
    """Arguments of a replay of a cache. `keep` is set for a kept cache."""

    fallback: Model | None
    max_xpath_retries: int
    debug: bool
    xpath_only: bool = False
    by: str = ""
    keep: Keep | None = None


def opened_cache(cache: ActionCache | str | Path) -> tuple[ActionCache, Path | None]:
    """Return a cache, and its file if it is of one. Raises BadValue."""
    if isinstance(cache, ActionCache):
        return caches.checked(cache), None
    path = Path(cache)
    remedy = "give a file that `hansard actions show` wrote"
    raw = read_bounded(path, caches.FILE_BYTES_MAX, remedy)
    read: ActionCache = msgspec.structs.replace(caches.decode(raw, str(path)), name="")
    return read, path


def saved(cache: ActionCache, path: Path) -> None:
    """Write a cache to its file atomically."""
    with whole(path) as file:
        file.write(caches.encode(cache))


def demand_once(place: str, number: int, action: CachedAction, once: Once) -> None:
    """Raise Refused if an action is done once and not allowed; nothing was done."""
    effects = action.effects or ("once" if action.action_type == caches.TOOL else "")
    allowed = once == "allow" or (once != "refuse" and number in once)
    if effects in ("once", "reconcile") and not allowed:
        text = action.instruction or action.method
        message = (
            f"{place} {number} ({text!r:.100}) is done once, and a replay would do it again: allow "
            f"it with once=[{number}], or once='allow' for all"
        )
        raise Refused(message)


class _Performer:
    """Does recorded actions on a page or by tools, each a step of a session."""

    def __init__(
        self,
        session: CallingSession,
        browser: PageActions | None,
        actions: Iterable[tuple[str, CachedAction]],
        options: ReplayOptions,
    ) -> None:
        """Raise BadValue if one of the named actions has no page, or its tool is missing."""
        self._session = session
        self._page = browser
        self._options = options
        self._model_calls = 0
        for owner, action in actions:
            if action.action_type == caches.TOOL:
                if action.method not in options.tools:
                    tool = f"{action.method!r:.80}"
                    fact = f"{owner} calls {tool}, which is not given"
                    raise BadValue("tools", fact, f"give tools={{{tool}: ...}}")
            elif browser is None:
                fact = f"{owner} needs a page, and there is none"
                raise BadValue("browser", fact, "use hansard.actions.AsyncBrowser(session, page)")

    @property
    def _browser(self) -> PageActions:
        assert self._page is not None  # noqa: S101 -- checked at the beginning
        return self._page

    async def _look(
        self, action: CachedAction, entry: int, retries: int, most: int | None = None
    ) -> dict[str, Any]:
        """Look for an action's element by its recorded targets, or the first `most` of them."""
        return await self._browser.find(
            action.instruction or "",
            list(locators(action))[:most],
            frame=action.frame_index or 0,
            mark=action.page,
            recorded=action.targets,
            retries=retries,
            entry=entry,
        )

    async def _ask(self, model: Model, action: CachedAction) -> dict[str, Any]:
        """Return the element that a model names for an action."""
        self._model_calls += 1
        instruction, frame = action.instruction or "", action.frame_index or 0
        return await self._browser.ask(instruction, model, frame, action.targets)

    async def _call_tool(self, action: CachedAction) -> Any:
        return await called(self._options.tools[action.method or ""], action.action_params)

    def _moved_to(self, action: CachedAction, act: PageAction) -> CachedAction:
        """Return a recorded action with the element of a completed one, with slots for values."""
        params = {
            slot: value
            for slot, value in self._options.params.items()
            if isinstance(value, str) and value
        }
        xpath = normalized(act.xpath) if act.xpath else None
        moved = msgspec.structs.replace(action, xpath=xpath, targets=act.targets)
        moved = templated(moved, params)
        return msgspec.structs.replace(action, xpath=moved.xpath, targets=moved.targets)


class Replay(_Performer):
    """One replay of a cache."""

    def __init__(
        self,
        session: CallingSession,
        browser: PageActions | None,
        cache: ActionCache,
        path: Path | None,
        request: ReplayRequest,
    ) -> None:
        for entry in cache.actions:
            demand_once("entry", entry.step_index, entry, request.once)
        entries = filled(cache, request.params)
        named = ((f"entry {each.step_index}", each) for each in entries)
        super().__init__(session, browser, named, request)
        self._request = request
        self._cache = cache
        self._version = cache.version
        self._path = path
        self._entries = entries
        self._moved: dict[bytes, CachedAction] = {}
        self._done: list[ReplayedAction] = []
        self._late: set[int] = set()

    async def run(self) -> Replayed:
        """Replay all entries, as one composite step whose calls are its own."""
        begun = time.perf_counter()
        identity = {"run": self._cache.run, "actions": len(self._entries)}

        async def replay(**_: Any) -> dict[str, Any]:
            return await self._all(await self._begun(identity))

        report = await self._session.call(
            composite("browser.replay", replay, identity), (), identity
        )
        return Replayed(
            success=report["success"],
            error=report["error"],
            actions=self._done,
            model_calls=self._model_calls,
            seconds=time.perf_counter() - begun,
            cache=self._cache,
        )

    async def _begun(self, identity: dict[str, Any]) -> list[CachedAction]:
        """Return the entries as they were when this replay began.

        Its own heals may have changed the file since, and searches must repeat those on record.
        """

        async def entries(**_: Any) -> list[Any]:
            return [msgspec.to_builtins(each) for each in self._cache.actions]

        report = await self._session.call(pure("browser.entries", entries, identity), (), identity)
        actions = msgspec.convert(report, list[CachedAction])
        return filled(msgspec.structs.replace(self._cache, actions=actions), self._request.params)

    async def _all(self, entries: list[CachedAction]) -> dict[str, Any]:
        error = ""
        self._done.clear()
        self._moved.clear()
        self._late.clear()
        for entry in entries:
            begun = time.perf_counter()
            done = await self._tried(entry)
            if not done.success and await self._cleared(entry, entries):
                done = await self._tried(entry)
            took = time.perf_counter() - begun
            self._done.append(msgspec.structs.replace(done, seconds=took))
            if not done.success:
                error = done.message
                break
        strategies = [each.strategy for each in self._done if each.strategy]
        return {
            "success": not error,
            "error": error[:1_000],
            "done": sum(each.success for each in self._done),
            "actions": len(entries),
            "by_xpath": strategies.count("xpath"),
            "by_model": strategies.count("model"),
            "by_other": sum(each not in ("xpath", "model") for each in strategies),
            "healed": sum(each.healed for each in self._done),
            "version": self._cache.version,
            "model_calls": self._model_calls,
        }

    async def _tried(self, entry: CachedAction) -> ReplayedAction:
        """Return the result of an entry, also of one that failed."""
        try:
            return await self._entry(entry)
        except (NeedsSettling, SessionEnded, BusError):
            raise  # the run must not continue before this is settled
        except Exception as failed:  # noqa: BLE001 -- any error of a tool ends the replay
            message = f"entry {entry.step_index} was not done: {failed}"
            return ReplayedAction(step_index=entry.step_index, success=False, message=message)

    async def _cleared(self, entry: CachedAction, entries: list[CachedAction]) -> bool:
        """Do optional entries that may be in the way, such as a banner; return whether any was.

        An action that is done once is not repeated.
        """
        if entry.effects != "idempotent":
            return False
        for each in self._out_of_turn(entries):
            done = await self._tried(each)
            if not done.success or done.strategy:
                self._late.add(each.step_index)
            if done.success and done.strategy:
                return True
        return False

    def _out_of_turn(self, entries: list[CachedAction]) -> list[CachedAction]:
        """Return the optional entries, one of each element, that may be done now.

        These are the idempotent ones, and those done once whose element was missing at their turn
        and that were not begun since.
        """
        missed = {each.step_index for each in self._done if not each.strategy} - self._late
        optional = [
            each
            for each in entries
            if each.optional and (each.effects == "idempotent" or each.step_index in missed)
        ]
        return list({each.xpath: each for each in optional}.values())

    async def _entry(self, entry: CachedAction) -> ReplayedAction:
        index = entry.step_index
        if entry.action_type == caches.TOOL:
            value = await self._call_tool(entry)
            return ReplayedAction(step_index=index, success=True, message="done", value=value)
        if entry.action_type in caches.OF_PAGE:
            led = await self._browser.go(entry)
            return ReplayedAction(step_index=index, success=True, message=led)
        return await self._of_element(entry)

    async def _of_element(self, entry: CachedAction) -> ReplayedAction:
        index = entry.step_index
        report = await self._find(entry)
        attempts = msgspec.convert(report["attempts"], list[ElementAttempt])
        moved = None if report["selector"] else self._moved.get(_place(entry))
        if moved is not None:
            report = await self._find(moved)
            attempts += msgspec.convert(report["attempts"], list[ElementAttempt])
        if not report["selector"] and entry.optional:
            return ReplayedAction(step_index=index, success=True, message="not there")
        if not report["selector"] and self._request.fallback is not None and entry.instruction:
            report = await self._ask(self._request.fallback, entry)
            attempts += msgspec.convert(report["attempts"], list[ElementAttempt])
        if not report["selector"]:
            raise elements.ElementNotFound(entry.instruction or entry.xpath or "", attempts)
        shown = attempts if self._request.debug else []
        if entry.action_type == caches.EXTRACT:
            value = await self._browser.extract(
                entry.instruction or "",
                at=report["selector"],
                frame=entry.frame_index or 0,
                attribute=entry.method or "",
            )
            return ReplayedAction(
                step_index=index,
                success=True,
                message="read",
                value=value,
                strategy=report["strategy"],
                attempts=shown,
            )
        healed = moved is not None or report["strategy"] == "model"
        changes = "" if healed else entry.changed or ("nothing" if entry.page else "")
        act = await self._browser.repeat(entry, report["selector"], changes, entry.checks)
        if healed:
            await self._heal(entry, act, attempts)
        return ReplayedAction(
            step_index=index,
            success=True,
            message=act.message,
            strategy=report["strategy"],
            healed=healed,
            attempts=shown,
        )

    async def _find(self, entry: CachedAction) -> dict[str, Any]:
        retries = 1 if entry.optional else self._request.max_xpath_retries
        most = 1 if self._request.xpath_only else None
        return await self._look(entry, entry.step_index, retries, most)

    async def _heal(
        self, entry: CachedAction, act: PageAction, attempts: list[ElementAttempt]
    ) -> None:
        """Set the element that a model found as the entry's target, also in the file or record."""
        stored = next(e for e in self._cache.actions if e.step_index == entry.step_index)
        place = {"element_id": act.element_id, "page": act.page}
        xpath = normalized(act.xpath) if act.xpath else None
        self._moved[_place(entry)] = msgspec.structs.replace(
            entry, xpath=xpath, targets=act.targets, **place
        )
        after = msgspec.structs.replace(self._moved_to(stored, act), **place)
        if (after.xpath, after.targets) == (stored.xpath, stored.targets):
            return
        why = attempts[0].text if attempts else "the cached xpath did not match"
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._cache = caches.healed(self._cache, after, at=at, by=self._request.by, why=why)
        if self._request.keep is not None:
            version = await self._request.keep(self._version, after, why)
            self._cache = msgspec.structs.replace(self._cache, version=version)
        if self._path is not None:
            saved(self._cache, self._path)


async def result_of(value: Any) -> Any:
    """Return a function's result, awaited if necessary; in the sync client no loop runs."""
    if not inspect.isawaitable(value):
        return value
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(awaited(value))
    return await value


def _place(entry: CachedAction) -> bytes:
    """Return a key that is equal for entries of the same element."""
    return msgspec.json.encode((entry.frame_index, entry.xpath, entry.targets))


async def called(tool: Callable[..., Any], arguments: Mapping[str, Any] | None) -> Any:
    """Call a tool with recorded arguments; a non-text slot is given as JSON. Raises BadValue."""
    revived: dict[str, Any] = {}
    for name, each in (arguments or {}).items():
        if isinstance(each, dict) and set(each) == {JSON}:
            try:
                revived[name] = msgspec.json.decode(each[JSON])
            except msgspec.DecodeError as error:
                fact = f"{each[JSON]!r:.80} is not JSON"
                raise BadValue(f"argument {name!r}", fact, "give the value's JSON") from error
        elif isinstance(each, dict) and set(each) == {"$secret"}:
            revived[name] = Secret(each["$secret"])
        else:
            revived[name] = values.revive(each)
    return await result_of(tool(**revived))


# An experience: before each action the graph lists the possible next ones, in its order; the first
# whose element is there is done, if every check function allows it. If one refuses, the other next
# actions are tried, then a model names the element, and at last a function of the caller's
# continues freely. Every question and answer is recorded, step by step, so that a run resumed after
# a kill takes the same way.

# Teaching: a student names elements, and a teacher if a check refuses its choice.


class Teaching:
    """Two models for `run_experience(fallback=...)`. Built by `hansard.actions.teach`.

    The calls of each are below a step of its own, `teach.student` or `teach.teacher`: SQL separates
    their calls, tokens and cost.
    """

    def __init__(self, teacher: Model, student: Model) -> None:
        self.teacher = teacher
        """The model called if the student names no element that every check allows."""
        self.student = student
        """The model called first."""

    @property
    def models(self) -> Mapping[str, Model]:
        """The models by role, in the order in which they are called."""
        return {"student": self.student, "teacher": self.teacher}


def teach(*, teacher: Model, student: Model) -> Teaching:
    """Combine a small model that works with an experience, and a large one that helps out.

    If no recorded target finds the element of a next action, the student is called for it; if it
    names none, or a check function refuses its choice, the teacher is. Each is a function, or a
    tool of kind `model`, that takes a text and returns JSON, as in `browser(model=...)`.

    Args:
        teacher: The large model.
        student: The small model.

    Raises:
        BadValue: One of them cannot be called.
    """
    models: dict[str, object] = {"teacher": teacher, "student": student}
    for role, model in models.items():
        if not callable(model):
            fact = f"{model!r:.80} cannot be called"
            raise BadValue(role, fact, "give a function of a text, or a tool of kind model")
    return Teaching(teacher, student)


MOVES_MAX = 10_000
"""Most moves of one replay: a procedure's loops have bounds, and together they have this one."""

TRIES_MAX = 4
"""Most attempts of an action that the page does not accept."""

MODEL_QUESTIONS_MAX = 3
"""Most actions that a model is called for at one place: the first possible next ones."""

CHECK_S_MAX = 1.0
"""For one answer of a check in Python; one that takes longer has failed, and is left to itself."""

FREE = 4
"""The level of what is done freely, with the plan and the lessons in words."""


Tell = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Records the result of a replay of a kept experience."""

Heal = Callable[[int, Experience, str, str], Awaitable[int]]
"""Adds a version with a node's new element: version, experience, node, why; returns it, or 0."""


class ExperiencedAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action of a options.

    Attributes:
        node: The procedure's node.
        level: 1 where it was done as it was: the recorded xpath, and no slot; 2 with slots, or
            found by another way; 3 where the way is another than the one taken most often.
        strategy: How its element was found: `xpath`, `role` ..., `model`.
        seconds: What it took.
    """

    node: str
    level: int
    strategy: str
    seconds: float


class Experienced(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay of an experience.

    Attributes:
        success: True if it reached an end of the procedure, every check passed; or, at level 4, if
            the free function reports success.
        error: The reason of the failure; empty on success.
        failure: The check function that stopped it, if one did.
        actions: The actions done by the graph, in order.
        level: The level of the least specific action: 1 to 3; 4 if the free function continued.
        guide: After a failure, the plan in words, for continuing freely.
        seconds: Duration.
        refusals: Refusals by check functions on the way.
        model_calls: Number of calls of a model for an element.
        healed: The nodes whose element a model found and whose action was done: they have it in the
            next version of a kept experience.
        learned: With `learn=True`, the next version, with the free actions in it; it has no checks
            until a person confirms them.
        not_learned: The reason why there is none.
    """

    success: bool
    error: str
    failure: CheckFailure | None
    actions: list[ExperiencedAction]
    level: int
    guide: list[str]
    seconds: float
    refusals: list[CheckFailure] = []
    model_calls: int = 0
    healed: list[str] = []
    learned: Experience | None = None
    not_learned: str = ""


class FreeGuide(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a function that continues where no level can.

    Attributes:
        task: The task's text, if it was given as a text.
        plan: The actions in words, each sentence of the graph and of the plan.
        lessons: What to do and to avoid.
        done: The actions done so far, in words.
        stopped: The reason why no level can continue.
    """

    task: str
    plan: list[str]
    lessons: list[str]
    done: list[str]
    stopped: str


Free = Callable[[FreeGuide], Awaitable[Any] | Any]
"""A function that goes on freely; it gives False where the task was not done."""


class ExperienceOptions(ReplayOptions, frozen=True, kw_only=True):
    """Further arguments of a replay of an experience: see `AsyncReplays.run_experience`."""

    task: str = ""
    fallback: Model | Teaching | None = None
    functions: Sequence[CheckFunction] = ()
    free: Free | None = None


def demand_guarded(experience: Experience, once: Once) -> None:
    """Raise Refused where an effect may not be done: without checks, or done once and not allowed.

    Nothing was done.
    """
    flows = any(isinstance(each, FlowCheck) for each in experience.checks)
    guarded = {each.node for each in experience.checks if isinstance(each, PreconditionCheck)}
    for number, node in enumerate(experience.procedure.nodes):
        if not flows or node.name not in guarded:
            missing = "flow" if not flows else f"precondition of {node.name}"
            message = (
                f"experience {experience.name!r}: no {missing} check guards its effects: it may "
                "guide, not act; confirm its checks first"
            )
            raise Refused(message)
        demand_once("node", number, node.action, once)


def opened_experience(experience: Experience | str | Path) -> Experience | str:
    """Return an experience, that of a folder, or the name of a kept one: a text without a slash.

    Raises BadValue.
    """
    if isinstance(experience, Experience) or is_name(experience):
        return experience
    return read_folder(Path(experience))


def values_of(
    experience: Experience, task: str, params: Mapping[str, str | Secret]
) -> dict[str, str | Secret]:
    """Return the values in a task's text, with those given. Raises BadValue."""
    from_task = experience.params(task)
    if from_task is None:
        fact = f"{task!r:.200} cannot be read as {experience.wording.template!r:.200}"
        raise BadValue("task", fact, "give params=, or the task in the recorded wording")
    twice = [name for name in params if name in from_task]
    if twice:
        fact = f"{twice[0]!r} is in the task's text, too"
        raise BadValue("params", fact, "give the task or its values")
    return from_task | dict(params)


class ExperienceReplay(_Performer):
    """One replay of an experience."""

    def __init__(
        self,
        session: CallingSession,
        browser: PageActions | None,
        experience: Experience,
        options: ExperienceOptions,
        tell: Tell | None = None,
        heal: Heal | None = None,
        version: int = 0,
    ) -> None:
        owner = f"experience {experience.name!r}"
        nodes = ((owner, each.action) for each in experience.procedure.nodes)
        super().__init__(session, browser, nodes, options)
        demand_guarded(experience, options.once)
        self._experience = experience
        self._options: ExperienceOptions = options
        self._tell = tell
        self._heal = heal
        self._version = version
        self._healed: dict[str, ProcedureNode] = {}
        functions = (*experience.functions, *options.functions)
        self._functions = named_functions(experience.checks, functions)
        self._guard = Guard(experience.procedure, experience.checks, options.params)
        self._usual = _path(experience)
        self._actions: list[ExperiencedAction] = []
        self._names: list[str] = []
        self._refusals: list[CheckFailure] = []
        self._finished = False
        self._url = ""

    async def run(self) -> Experienced:
        """Do it, as one composite step whose calls are its own."""
        begun = time.perf_counter()
        identity = {"experience": self._experience.name, "version": self._experience.version}

        async def replay(**_: Any) -> dict[str, Any]:
            try:
                report = await self._all()
            except (SessionEnded, BusError):
                raise  # fenced by another process, or the state is unknown for now
            except Exception as error:  # e.g. in doubt, or the page is gone: not completed
                stopped = f"{type(error).__name__}: {self._clean(str(error))}"
                await self._say(self._outcome(stopped, stopped, None))
                raise
            await self._say(report)
            return report

        report = await self._session.call(
            composite("experience.replay", replay, identity), (), identity
        )
        failure = msgspec.convert(report["failure"], CheckFailure | None)
        return Experienced(
            success=not report["error"],
            error=report["error"],
            failure=failure,
            actions=self._actions,
            level=report["level"],
            guide=[] if not report["error"] else plan(self._experience),
            seconds=time.perf_counter() - begun,
            refusals=self._refusals,
            model_calls=self._model_calls,
            healed=list(self._healed),
        )

    async def _say(self, fields: Mapping[str, Any]) -> None:
        if self._tell is not None:
            await self._tell(fields)

    async def _all(self) -> dict[str, Any]:
        self._actions.clear()
        self._url = ""
        error, failure = await self._by_graph()
        free = self._options.free if error else None
        if free is None:
            return self._outcome(error, error, failure)
        freely = await self._freely(free, error)
        return self._outcome(freely, error, failure) | {"level": FREE}

    def _outcome(self, error: str, stopped: str, failure: CheckFailure | None) -> dict[str, Any]:
        """Return the replay's result: the error, and why the graph reached no end."""
        return {
            "error": error[:1_000],
            "failure": msgspec.to_builtins(failure),
            "done": len(self._actions),
            "level": max((each.level for each in self._actions), default=1),
            "stopped": stopped[:1_000],
            "refusals": len(self._refusals),
            "model_calls": self._model_calls,
        }

    async def _by_graph(self) -> tuple[str, CheckFailure | None]:
        """Follow the graph; return why it reached no end, empty if it did."""
        failure: CheckFailure | None = None
        refused: set[str] = set()
        tries = 0
        for _ in range(MOVES_MAX):
            begun = time.perf_counter()
            name, element = await self._next(refused)
            if not name and self._options.fallback is not None:
                name, element, failure = await self._named(failure)
            if name == END:
                failure = await self._checked(
                    "end", END, self._guard.complete, Situation(url=self._url, done=0)
                )
                return (_failure_text(failure) if failure else ""), failure
            if not name:
                return (_failure_text(failure) if failure else self._nothing()), failure
            try:
                failure = await self._done(name, element)
            except NotDone as nothing:  # e.g. a popup took the focus: handle what is there now
                tries += 1
                if tries < TRIES_MAX:
                    continue
                return f"{name} was not done: {nothing}", None
            tries = 0
            if failure is not None and self._finished:
                return _failure_text(failure), failure
            if failure is not None:
                refused.add(name)
                continue
            refused.clear()
            self._note(name, element, time.perf_counter() - begun)
        return f"more than {MOVES_MAX:,} actions", None

    def _nothing(self) -> str:
        waited = ", ".join(self._guard.walk.candidates(self._experience.procedure))
        return f"after {self._guard.walk.at} nothing that may follow is there: {waited}"

    def _note(self, name: str, element: Mapping[str, Any], seconds: float) -> None:
        self._names.append(name)
        usual = self._names == self._usual[: len(self._names)]
        action = self._experience.procedure.node(name).action
        strategy = element.get("strategy", "")
        as_it_was = action == self._guard.actions[name] and strategy in ("", "xpath")
        self._actions.append(
            ExperiencedAction(
                node=name,
                level=3 if not usual else 1 if as_it_was else 2,
                strategy=strategy,
                seconds=seconds,
            )
        )

    async def _next(self, refused: Collection[str]) -> tuple[str, dict[str, Any]]:
        """Return the first possible next action whose element is there; after a wait, the end.

        An action refused here is not tried again, and the end is no way around it.
        """
        candidates = [
            each
            for each in self._guard.walk.candidates(self._experience.procedure)
            if each not in refused and not (each == END and refused)
        ]
        timeout_s = self._page.timeout_s if self._page is not None else 0.0
        deadline = time.monotonic() + (0.0 if refused else timeout_s)
        retries = 1
        while candidates:
            for name in candidates:
                if name == END:
                    if retries > 1 or len(candidates) == 1:
                        return END, {}
                    continue
                action = self._guard.actions[name]
                if action.action_type != caches.ACT:
                    return name, {}
                element = await self._find_element(action, name, retries)
                if element["selector"] and element["shown"]:
                    return name, element
            if time.monotonic() > deadline and (not refused or retries > 1):
                break
            retries = 2
        return "", {}

    async def _named(
        self, failure: CheckFailure | None
    ) -> tuple[str, dict[str, Any], CheckFailure | None]:
        """Call a model for the element of a next action; return it if every check allows it.

        The teacher is called if a check refuses the student's choice.
        """
        fallback = self._options.fallback
        models = fallback.models if isinstance(fallback, Teaching) else {"": fallback}
        candidates = self._guard.walk.candidates(self._experience.procedure)
        of_elements = [
            each
            for each in candidates
            if each != END and self._guard.actions[each].action_type == caches.ACT
        ]
        for name in of_elements[:MODEL_QUESTIONS_MAX]:
            action = self._guard.actions[name]
            for role, model in models.items():
                element = await self._by_model(role, model, action)
                if not element["selector"]:
                    continue
                refused = await self._before(name, element)
                if refused is None:
                    return name, element | {"asked": True}, None
                failure = refused
        return "", {}, failure

    async def _by_model(self, role: str, model: Any, action: CachedAction) -> dict[str, Any]:
        """Return the element that a model names; the call is recorded as student's or teacher's."""

        async def call(**_: Any) -> dict[str, Any]:
            return await self._ask(model, action)

        if not role:
            return await call()
        arguments = {"instruction": action.instruction or ""}
        fields: dict[str, Any] = await self._session.call(
            composite(f"teach.{role}", call, arguments), (), arguments
        )
        return fields

    async def _freely(self, free: Free, stopped: str) -> str:
        """Let a function of yours go on; why the task was not done, empty where it was."""
        procedure = self._experience.procedure
        guide = FreeGuide(
            task=self._options.task,
            plan=[*(each.says for each in self._experience.plan), *plan(self._experience)],
            lessons=[each.says for each in self._experience.lessons],
            done=[procedure.node(each).action.instruction or each for each in self._names],
            stopped=stopped,
        )
        result = await result_of(free(guide))
        return f"{stopped}; and freely it was not done" if result is False else ""

    async def _find_element(self, action: CachedAction, name: str, retries: int) -> dict[str, Any]:
        number = name.removeprefix("n")
        return await self._look(action, int(number) if number.isdecimal() else 0, retries)

    def _situation(self, name: str, element: Mapping[str, Any]) -> Situation:
        targets = element.get("targets")
        return Situation(
            url=element.get("url", ""),
            done=self._guard.done,
            frame=self._guard.actions[name].frame_index or 0,
            matches=1 if element else 0,
            element=msgspec.convert(targets, ElementTargets) if targets else None,
        )

    async def _before(self, name: str, element: Mapping[str, Any]) -> CheckFailure | None:
        now = self._situation(name, element)
        return await self._checked("before", name, lambda: self._guard.before(name, now), now)

    async def _done(self, name: str, element: dict[str, Any]) -> CheckFailure | None:
        """Do an action that every check lets be done; else what stopped it, on record. Whether it
        was done then, `_finished` says: nothing else is tried.
        """
        action = self._guard.actions[name]
        now = self._situation(name, element)
        self._finished = False
        if not element.get("asked"):
            refused = await self._before(name, element)
            if refused is not None:
                return refused
        try:
            act, url = await self._act(name, action, element)
        except ActionFailed as failed:
            self._finished = True
            why = CheckFailure(check=f"{name} after", kind="postcondition", why=failed.message)
            return await self._checked("after", name, lambda: why, now)
        except PageGone as gone:
            self._finished = True
            why = CheckFailure(check=f"{name} is there", kind="precondition", why=str(gone))
            return await self._checked("before", name, lambda: why, now)
        self._finished = True
        after = now_after(now, url)
        self._url = after.url or self._url
        moved = self._guard.after(name, after)
        refused = await self._checked("after", name, lambda: moved, after)
        if refused is None and act is not None and element.get("asked"):
            await self._move_element(name, act, element)
        return refused

    async def _move_element(self, name: str, act: PageAction, element: Mapping[str, Any]) -> None:
        """Set the element that a model named as the node's: it was used, and every check passed."""
        node = self._experience.procedure.node(name)
        action = self._moved_to(node.action, act)
        if action == node.action:
            return
        self._healed[name] = msgspec.structs.replace(node, action=action)
        if self._heal is not None and self._version:
            why = f"no recorded way led to {name}'s element; a model named {element['selector']}"
            now = healed_experience(self._experience, self._healed)
            self._version = await self._heal(self._version, now, name, self._clean(why)[:300])

    async def _act(
        self, name: str, action: CachedAction, element: dict[str, Any]
    ) -> tuple[PageAction | None, str]:
        """Do an action; return the record of one on an element, and the address reached.

        The address is part of the step's result, so that a resumed run gets the same.
        """
        if action.action_type == caches.TOOL:
            await self._call_tool(action)
            return None, ""
        if action.action_type in caches.OF_PAGE:
            return None, await self._browser.go(action)
        posts = any(
            isinstance(each, PostconditionCheck) and each.node == name
            for each in self._guard.checks
        )
        held = [ActionCheck(kind="filled", value="")] if posts else []
        checks = [*action.checks, *held]
        act = await self._browser.repeat(action, element["selector"], action.changed, checks)
        return act, act.url

    async def _checked(
        self, when: str, node: str, ask: Callable[[], CheckFailure | None], now: Situation
    ) -> CheckFailure | None:
        """Call the check functions, and record their results.

        `failure` is the first that failed, `asked` those called up to then.
        """
        identity = {"when": when, "node": node, "done": len(self._names)}
        checks = [(each.name, kind(each)) for each in self._guard.checks_at(when, node)]
        functions = [each for each in self._functions if when in WHEN[each.kind]]

        async def call(**_: Any) -> dict[str, Any]:
            failure = ask()
            names = _until(checks, failure)
            step = self._step(node, now)
            for each in functions if failure is None else ():
                names.append((each.name, each.kind))
                failure = each.failed(self._clean(await answered(each, step)))
                if failure is not None:
                    break
            return {
                "kinds": sorted({kind for _, kind in names}),
                "asked": [{"check": name, "kind": kind} for name, kind in names],
                "failure": msgspec.to_builtins(failure),
            }

        report = await self._session.call(pure("experience.checks", call, identity), (), identity)
        failure = msgspec.convert(report["failure"], CheckFailure | None)
        if failure is not None:
            self._refusals.append(failure)
        return failure

    def _step(self, node: str, now: Situation) -> CheckedStep:
        """Build the step that a check in Python judges."""
        params = {
            name: f"secret {each.name}" if isinstance(each, Secret) else each
            for name, each in self._options.params.items()
        }
        action = self._guard.actions.get(node)
        arguments = () if action is None else tuple(map(_text, action.arguments))
        if action is not None and action.action_type == caches.TOOL:
            arguments = ()
        return CheckedStep(
            node=node,
            instruction=(action.instruction or "") if action else "",
            method=(action.method or action.action_type) if action else "",
            arguments=arguments,
            given=action.action_params if action and action.action_params else {},
            params=params,
            url=now.url,
            frame=now.frame,
            matches=now.matches,
            element=now.element,
            done=tuple(self._names),
        )

    def _clean(self, why: str) -> str:
        return why if self._page is None else self._page.without_secrets(why)


async def answered(check: CheckFunction, step: CheckedStep, within_s: float = CHECK_S_MAX) -> str:
    """Why a check in Python does not let an action be done; empty where it does. One that gives no
    answer in time has failed; its thread ends with the program, if not before.
    """
    answer: Future[str] = Future()
    ask = threading.Thread(
        target=lambda: answer.set_result(check.why(step)), name=f"check {check.name}", daemon=True
    )
    ask.start()
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # the sync client: this thread may block
        wait([answer], within_s)
    else:
        await asyncio.wait([asyncio.wrap_future(answer)], timeout=within_s)
    return answer.result() if answer.done() else f"it gave no answer within {within_s:g} s"


def _until(
    checks: Sequence[tuple[str, str]], failure: CheckFailure | None
) -> list[tuple[str, str]]:
    """Return the checks that were called: all, or those up to and including the first failure."""
    if failure is None:
        return list(checks)
    names = [name for name, _ in checks]
    if failure.check in names:
        return list(checks[: names.index(failure.check) + 1])
    return [(failure.check, failure.kind)]


def _failure_text(failure: CheckFailure) -> str:
    return f"{failure.check}: {failure.why}"


def _text(argument: caches.Argument) -> str:
    return argument if isinstance(argument, str) else f"secret {argument.get('$secret')}"


def now_after(before: Situation, url: str) -> Situation:
    """Return the situation after an action: the address reached, or the one before if not recorded.

    The element of the action may be gone.
    """
    return Situation(url=url or before.url, done=before.done + 1, frame=before.frame)


def healed_experience(experience: Experience, nodes: Mapping[str, ProcedureNode]) -> Experience:
    """Return an experience with some nodes replaced, by name, in its script, too."""
    procedure = experience.procedure
    moved = {
        msgspec.json.encode(each.action): nodes[each.name].action
        for each in procedure.nodes
        if each.name in nodes
    }

    def now(entry: CachedAction) -> CachedAction:
        changed = moved.get(
            msgspec.json.encode(msgspec.structs.replace(entry, step_index=0)), entry
        )
        return msgspec.structs.replace(changed, step_index=entry.step_index)

    kept = tuple(nodes.get(each.name, each) for each in procedure.nodes)
    script = msgspec.structs.replace(
        experience.script, actions=[now(each) for each in experience.script.actions]
    )
    return msgspec.structs.replace(
        experience, procedure=msgspec.structs.replace(procedure, nodes=kept), script=script
    )


def _path(experience: Experience) -> list[str]:
    """Return the nodes of the most frequent path."""
    names: list[str] = []
    for entry in experience.script.actions:
        at = msgspec.structs.replace(entry, step_index=0)
        name = next((n.name for n in experience.procedure.nodes if n.action == at), "")
        names.append(name)
    return names
