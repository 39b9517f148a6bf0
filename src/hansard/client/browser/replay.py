"""`session.run_actions`: replays a cache of actions, each action a step like any other.

The element of each entry is found by the cached xpath, by its other targets and by variants of the
xpath, and only then by a model, which is called for this one element. The model's choice is written
back as a new version once the action succeeded: of the file, or of the kept cache in the record.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from hansard.agents.errors import NeedsSettling, SessionEnded
from hansard.agents.flow import awaited
from hansard.bus.errors import BusError
from hansard.bus.file_lock import read_bounded, whole
from hansard.client.browser import elements
from hansard.client.browser.browser import (
    AsyncBrowser,
    CallingSession,
    Model,
    PageAction,
    composite,
    pure,
)
from hansard.client.browser.elements import ElementAttempt
from hansard.domain import values
from hansard.domain.actions import cache as caches
from hansard.domain.actions.cache import (
    ActionCache,
    CachedAction,
    filled,
    locators,
    normalized,
    templated,
)
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience.distil import JSON
from hansard.domain.values import Secret

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


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a replay: see `AsyncSession.run_actions`. `keep` is set for a kept cache."""

    params: Mapping[str, str]
    max_xpath_retries: int
    fallback: Model | None
    debug: bool
    once: Once
    tools: Mapping[str, Callable[..., Any]]
    xpath_only: bool = False
    by: str = ""
    keep: Keep | None = None


def opened(cache: ActionCache | str | Path) -> tuple[ActionCache, Path | None]:
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


def demand_once(cache: ActionCache, once: Once) -> None:
    """Raise Refused if an action that is done once is not allowed; nothing was done."""
    if once == "allow":
        return
    allowed = () if once == "refuse" else once
    for entry in cache.actions:
        effects = entry.effects or ("once" if entry.action_type == caches.TOOL else "")
        if effects in ("once", "reconcile") and entry.step_index not in allowed:
            text = entry.instruction or entry.method
            message = (
                f"entry {entry.step_index} ({text!r:.100}) is done once, and a replay would do it "
                f"again: allow it with once=[{entry.step_index}], or once='allow' for all"
            )
            raise Refused(message)


class Replay:
    """One replay of a cache."""

    def __init__(
        self,
        session: CallingSession,
        browser: AsyncBrowser | None,
        cache: ActionCache,
        path: Path | None,
        request: ReplayRequest,
    ) -> None:
        self._session = session
        self._browser = browser
        self._cache = cache
        self._version = cache.version
        self._path = path
        self._request = request
        self._model_calls = 0
        self._moved: dict[bytes, CachedAction] = {}
        self._done: list[ReplayedAction] = []
        self._late: set[int] = set()

    async def run(self) -> Replayed:
        """Replay all entries, as one composite step whose calls are its own."""
        demand_once(self._cache, self._request.once)
        entries = filled(self._cache, self._request.params)
        demand_there(
            ((f"entry {each.step_index}", each) for each in entries),
            self._browser,
            self._request.tools,
        )
        begun = time.perf_counter()
        identity = {"run": self._cache.run, "actions": len(entries)}

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
            value = await called(self._request.tools[entry.method or ""], entry.action_params)
            return ReplayedAction(step_index=index, success=True, message="done", value=value)
        browser = self._browser
        assert browser is not None  # noqa: S101 -- checked by `demand_there`
        if entry.action_type in caches.OF_PAGE:
            led = await browser.go(entry)
            return ReplayedAction(step_index=index, success=True, message=led)
        return await self._of_element(browser, entry)

    async def _of_element(self, browser: AsyncBrowser, entry: CachedAction) -> ReplayedAction:
        index, frame = entry.step_index, entry.frame_index or 0
        report = await self._find(browser, entry)
        attempts = msgspec.convert(report["attempts"], list[ElementAttempt])
        moved = None if report["selector"] else self._moved.get(_place(entry))
        if moved is not None:
            report = await self._find(browser, moved)
            attempts += msgspec.convert(report["attempts"], list[ElementAttempt])
        if not report["selector"] and entry.optional:
            return ReplayedAction(step_index=index, success=True, message="not there")
        if not report["selector"] and self._request.fallback is not None and entry.instruction:
            self._model_calls += 1
            model = self._request.fallback
            report = await browser.ask(entry.instruction, model, frame, entry.targets)
            attempts += msgspec.convert(report["attempts"], list[ElementAttempt])
        if not report["selector"]:
            raise elements.ElementNotFound(entry.instruction or entry.xpath or "", attempts)
        shown = attempts if self._request.debug else []
        if entry.action_type == caches.EXTRACT:
            value = await browser.extract(
                entry.instruction or "",
                at=report["selector"],
                frame=frame,
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
        act = await browser.repeat(entry, report["selector"], changes, entry.checks)
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

    async def _find(self, browser: AsyncBrowser, entry: CachedAction) -> dict[str, Any]:
        ways = list(locators(entry))
        return await browser.find(
            entry.instruction or "",
            ways[:1] if self._request.xpath_only else ways,
            frame=entry.frame_index or 0,
            mark=entry.page,
            recorded=entry.targets,
            retries=1 if entry.optional else self._request.max_xpath_retries,
            entry=entry.step_index,
        )

    async def _heal(
        self, entry: CachedAction, act: PageAction, attempts: list[ElementAttempt]
    ) -> None:
        """Set the element that a model found as the entry's target, also in the file or record."""
        stored = next(e for e in self._cache.actions if e.step_index == entry.step_index)
        found = msgspec.structs.replace(
            entry,
            xpath=normalized(act.xpath) if act.xpath else None,
            element_id=act.element_id,
            targets=act.targets,
            page=act.page,
        )
        self._moved[_place(entry)] = found
        found = templated(found, self._request.params)
        after = msgspec.structs.replace(
            stored,
            xpath=found.xpath,
            element_id=found.element_id,
            targets=found.targets,
            page=found.page,
        )
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


def demand_there(
    actions: Iterable[tuple[str, CachedAction]],
    browser: AsyncBrowser | None,
    tools: Mapping[str, Callable[..., Any]],
) -> None:
    """Raise BadValue if an action has no page, or its tool is missing.

    Each action is paired with its name for the message.
    """
    for owner, action in actions:
        if action.action_type == caches.TOOL:
            if action.method not in tools:
                tool = f"{action.method!r:.80}"
                fact = f"{owner} calls {tool}, which is not given"
                raise BadValue("tools", fact, f"give tools={{{tool}: ...}}")
        elif browser is None:
            fact = f"{owner} needs a page, and there is none"
            raise BadValue("browser", fact, "call session.browser(page) first")


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
