"""Actions on a page, each a step with its target on record.

Long because each action of a page has its method, with its arguments and errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from hansard.agents.errors import NotDone
from hansard.agents.steps.tools import Tool, ToolSpec
from hansard.domain import actions as caches
from hansard.domain.actions import (
    METHODS,
    ActionCheck,
    CachedAction,
    ElementLocator,
    ElementTargets,
    PageMark,
)
from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.redaction import SECRET_LENGTH_MIN
from hansard.domain.steps import Effects
from hansard.domain.values import Secret
from hansard.ext.browser import elements
from hansard.ext.browser.elements import (
    ElementAttempt,
    ElementNotFound,
    FoundElement,
    PageGone,
    frame_of,
    locators_of,
)

# Secrets that were filled in on a page, which may show them.

_WHERE = frozenset(("selector", "xpath", "css", "path", "elementId"))
"""Fields that locate an element: short secrets are not searched for in them."""


class HeldSecrets:
    """Secrets that were filled in on a page, which may show them.

    Texts read from the page go to the record and to models with `<secret:name>` in their place.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._any: re.Pattern[str] | None = None
        self._long: re.Pattern[str] | None = None

    def add(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Add values by their names; a value with an empty name is not a secret."""
        for name, value in zip(names, values, strict=True):
            if name and isinstance(value, str) and value.strip():
                self._names[" ".join(value.split())] = name
        self._any = self._pattern(1)
        self._long = self._pattern(SECRET_LENGTH_MIN)

    @property
    def held(self) -> bool:
        """True if there are any."""
        return self._any is not None

    def without(self, plain: Any) -> Any:
        """Return a value with the secrets replaced."""
        return plain if self._any is None else self._without(plain, self._any)

    def _pattern(self, least: int) -> re.Pattern[str] | None:
        values = sorted((v for v in self._names if len(v) >= least), key=len, reverse=True)
        some = "|".join(map(_anywhere, values))
        return re.compile(some) if values else None

    def _without(self, plain: Any, pattern: re.Pattern[str] | None) -> Any:
        if isinstance(plain, str) and pattern is not None:
            return pattern.sub(lambda found: f"<secret:{self._name(found.group())}>", plain)
        if isinstance(plain, list):
            return [self._without(each, pattern) for each in plain]
        if isinstance(plain, dict):
            return {
                key: self._without(each, self._long if key in _WHERE else pattern)
                for key, each in plain.items()
            }
        return plain

    def _name(self, value: str) -> str:
        return self._names[" ".join(value.split())]


def _anywhere(value: str) -> str:
    """Return a pattern of a value with any spacing; a short value matches only as a whole word."""
    words = r"\s+".join(map(re.escape, value.split()))
    return words if len(value) >= SECRET_LENGTH_MIN else rf"(?<!\w){words}(?!\w)"


CHANGE_WAIT_S = 2.0
"""Seconds to wait for a change by an action that is known to change something."""

UNKNOWN_WAIT_S = 0.3
"""Seconds to wait for a change by an action that may change nothing."""

POLL_S = 0.02

LINE_CHARACTERS_MAX = 300
"""Most characters of a line of a page on which secrets were filled in."""

CHECKS = ("url", "text", "visible", "filled")
"""The kinds of checks."""

Model = Callable[[str], Any]
"""A function that names one element: takes a text, returns JSON as in `elements.ANSWER`."""


class CallingSession(Protocol):
    """The part of a session that a browser needs."""

    def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call of a tool."""
        ...


class ActionFailed(HansardError):
    """An action was done, and its postcondition does not hold.

    State: the action is on record as failed; its effect may have happened.
    Remedy: look at the page and at the step, then repeat or settle it.

    Attributes:
        message: The condition that does not hold.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PageAction(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An action on record: its target, and what it changed.

    Attributes:
        success: True if the checks hold afterwards.
        message: The result in words.
        element_id: Frame index and backend node id.
        frame_index: The frame; 0 is the page itself.
        xpath: The element's xpath; empty in a shadow root.
        method: The method applied to the element.
        targets: Other targets of the element.
        page: The page and its state before the action.
        changed: `address`, `page` or nothing.
        checks: The checks.
        url: The page's address afterwards; empty if nothing was done, and in older records.
    """

    success: bool
    message: str
    element_id: str | None = None
    frame_index: int = 0
    xpath: str | None = None
    method: str = ""
    targets: ElementTargets | None = None
    page: PageMark | None = None
    changed: str = ""
    checks: list[ActionCheck] = []
    url: str = ""


class _AnsweredCall(NamedTuple):
    """A call answered from the record, to be repeated on a page that is behind the record."""

    body: Callable[..., Awaitable[Any]]
    arguments: dict[str, Any]
    effects: Effects


class PageActions:
    """Actions on a page, each a step of a session; `AsyncBrowser` has them."""

    def __init__(
        self,
        session: CallingSession,
        page: Any,
        *,
        model: Model | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        if not inspect.iscoroutinefunction(getattr(page, "goto", None)):
            fact = f"{type(page).__name__} is not a page of playwright's async API"
            raise BadValue("page", fact, "give a page of playwright.async_api")
        self.page = page
        """Playwright's page."""
        self.model = model
        self.timeout_s = timeout_s
        self._session = session
        self._behind: list[_AnsweredCall] = []
        self._stopped = False
        self._held: dict[tuple[int, str], FoundElement] = {}
        self._secrets = HeldSecrets()

    # Public methods

    async def goto(self, url: str) -> str:
        """Open an address; return the address reached. Raises PageGone if it cannot be opened."""
        led: str = await self._step("browser.goto", Effects.IDEMPOTENT, self._goto, {"url": url})
        return led

    async def act(  # noqa: PLR0913 -- each is independent
        self,
        instruction: str,
        *,
        at: str = "",
        method: str = "click",
        arguments: Sequence[str | Secret] = (),
        targets: ElementTargets | None = None,
        frame: int = 0,
        effects: str = "",
        checks: Iterable[ActionCheck] = (),
        optional: bool = False,
    ) -> PageAction:
        """Do one action on one element.

        Args:
            instruction: The action in words; a model finds the element by it if `at` is not given.
            at: The element: a selector of playwright's (`#user`, `xpath=//button`, `text=OK`).
            method: `click`, `dblclick`, `press`, `fill`, `type`, `selectOption`, `check`,
                `uncheck`, `hover` or `scrollToElement`.
            arguments: The argument of `fill`, `type`, `press` and `selectOption`: one text, or a
                Secret.
            targets: Instead of `at`: role and name, label ...
            frame: The frame's index; 0 is the page itself.
            effects: `idempotent` or `once`; by default `once` for a click, a double click and a
                key, else `idempotent`.
            checks: Conditions that must hold afterwards; waited for.
            optional: True to do nothing if no element matches, as with a banner that is not always
                there.

        Raises:
            ElementNotFound: No element matches, or several do; nothing was done.
            PageGone: The page or the frame is gone, or does not respond; nothing was done.
            ActionFailed: A check does not hold. The action is on record, and never replayed.
            BadValue: There is no such method, or it takes other arguments.
        """
        if not at and targets is None:
            selector, method, arguments = await self._by_model(
                instruction, method, arguments, frame
            )
            at = selector
        return await self.done(
            {
                "instruction": instruction,
                "method": method,
                "arguments": list(arguments),
                "at": at,
                "targets": _plain(targets),
                "frame": frame,
                "changes": "",
                "checks": [_plain(each) for each in checks],
                "optional": optional,
            },
            effects,
        )

    async def done(self, arguments: dict[str, Any], effects: str = "") -> PageAction:
        """Run the step of an action from its recorded arguments."""
        method = arguments["method"]
        if method not in METHODS:
            known = ", ".join(METHODS)
            fact = f"{method!r:.80} is not a method"
            raise BadValue("method", fact, f"{nearest(str(method), METHODS)}use one of {known}")
        count, usual = METHODS[method]
        if len(arguments["arguments"]) != count:
            fact = f"{len(arguments['arguments'])} for {method}"
            raise BadValue("arguments", fact, f"give {count}")
        unknown = [each["kind"] for each in arguments["checks"] if each["kind"] not in CHECKS]
        if unknown:
            raise BadValue("checks", f"kind {unknown[0]!r:.40}", f"use {', '.join(CHECKS)}")
        how = Effects(effects or usual)
        if how not in (Effects.ONCE, Effects.IDEMPOTENT):
            raise BadValue("effects", f"{how.value!r}", "an action is idempotent or once")
        body = self._act_once if how is Effects.ONCE else self._act
        names = [each.name if isinstance(each, Secret) else "" for each in arguments["arguments"]]

        async def done(**given: Any) -> Any:
            self._secrets.add(names, given["arguments"])
            return await body(**given)

        name = "browser.act_once" if how is Effects.ONCE else "browser.act"
        report = await self._step(name, how, done, arguments)
        act = msgspec.convert(report, PageAction)
        if not act.success:
            raise ActionFailed(act.message)
        return act

    async def repeat(
        self, entry: CachedAction, at: str, changes: str, checks: Sequence[ActionCheck]
    ) -> PageAction:
        """Do to an element what an entry of a cache says. Raises as `act`."""
        return await self.done(
            {
                "instruction": entry.instruction or "",
                "method": entry.method,
                "arguments": [_argument(each) for each in entry.arguments],
                "at": at,
                "targets": None,
                "frame": entry.frame_index or 0,
                "changes": changes,
                "checks": _plains(checks),
                "mark": _plain(entry.page),
            },
            entry.effects,
        )

    async def extract(
        self, instruction: str, *, at: str, attribute: str = "", frame: int = 0
    ) -> str:
        """Return the text of one element, or an attribute of it. Raises as `act`."""
        arguments = {"instruction": instruction, "at": at, "attribute": attribute, "frame": frame}
        report = await self._step("browser.extract", Effects.PURE, self._extract, arguments)
        text: str = report["value"]
        return text

    async def find(
        self,
        instruction: str,
        ways: Sequence[ElementLocator],
        *,
        frame: int = 0,
        mark: PageMark | None = None,
        recorded: ElementTargets | None = None,
        retries: int = 3,
        entry: int = 0,
    ) -> dict[str, Any]:
        """Find an element by the first locator that matches exactly one of its kind.

        The step's result has `selector` (empty if none matches), `strategy`, and `attempts`: every
        locator tried, with its matches.
        """
        arguments = {
            "instruction": instruction,
            "ways": [_plain(each) for each in ways],
            "frame": frame,
            "mark": _plain(mark),
            "recorded": _plain(recorded),
            "retries": retries,
            "entry": entry,
        }
        fields: dict[str, Any] = await self._step(
            "browser.find", Effects.PURE, self._find, arguments
        )
        return fields

    async def ask(
        self, instruction: str, model: Model, frame: int = 0, recorded: ElementTargets | None = None
    ) -> dict[str, Any]:
        """Call a model for one element and return its response.

        The result has `selector`, which is empty if the model names none or one of another row than
        the `recorded` one, its `method` and `arguments`, and `attempts`.
        """
        row = recorded.in_row if recorded is not None else ""
        lines = await self._step(
            "browser.look", Effects.PURE, self._look, {"frame": frame}, kind="resource"
        )
        question = elements.question(instruction, frame, lines, row)
        answer = await self._ask_model(model, question)
        at = elements.candidate_number(answer, frame)
        chosen = {"frame": frame, "at": at, "of": elements.digest("\n".join(lines))}
        chosen |= {"recorded": _plain(recorded)} if row else {}
        report = await self._step("browser.choose", Effects.PURE, self._choose, chosen)
        return {**report, "method": answer.get("method"), "arguments": answer.get("arguments")}

    def without_secrets(self, text: str) -> str:
        """Return a text without the secrets that were filled in on this page."""
        value: str = self._secrets.without(text)
        return value

    async def go(self, entry: CachedAction) -> str:
        """Open the address of an entry, or turn to a page; the address that it led to."""
        if entry.action_type == caches.GOTO:
            return await self.goto(str(entry.arguments[0]))
        return await self.turn(entry.action_type)

    async def turn(self, action: str) -> str:
        """`refreshPage`, `pageBack` or `pageForward`; the address that it led to."""
        fields = {"action": action}
        led: str = await self._step("browser.turn", Effects.IDEMPOTENT, self._turn, fields)
        return led

    # Steps

    async def _step(
        self,
        name: str,
        effects: Effects,
        body: Callable[..., Awaitable[Any]],
        arguments: dict[str, Any],
        kind: str = "tool",
    ) -> Any:
        ran = False

        async def run(**given: Any) -> Any:
            nonlocal ran
            ran = True
            # Opening an address helps a page that cannot be brought to its recorded state.
            if name != "browser.goto" or not (self._stopped or self._not_again()):
                await self._catch_up()
            return self._secrets.without(await body(**given))

        result = await self._session.call(spec(name, effects, run, arguments, kind), (), arguments)
        if not ran and effects is not Effects.PURE:
            self._note(name, _AnsweredCall(body, arguments, effects))
        return result

    def _note(self, name: str, done: _AnsweredCall) -> None:
        """Note an action that was answered from the record and not done on this page."""
        if name == "browser.goto":
            self._behind.clear()
            self._stopped = False
        self._behind.append(done)

    def _not_again(self) -> str:
        """Why what the record answered for cannot be done to this page; empty where it can."""
        if any(each.effects is Effects.ONCE for each in self._behind):
            return (
                "the page is behind the record: an action that is done once was done before this "
                "page was opened, and is not done again; go on with `goto`, or begin another run"
            )
        values = [value for each in self._behind for value in each.arguments.get("arguments", ())]
        if any(isinstance(value, Secret) for value in values):
            return (
                "the page is behind the record, and a secret was filled in before: "
                "go on with `goto`, or begin another run"
            )
        return ""

    async def _catch_up(self) -> None:
        """Do to this page what the record answered for. Raises PageGone, and what an action raises:
        that one and those after it are still to be done then.
        """
        message = self._not_again()
        if message:
            raise PageGone(message)
        behind, self._behind = self._behind, []
        for done, each in enumerate(behind):
            try:
                await each.body(**each.arguments)
            except BaseException:
                self._behind[:0] = behind[done:]
                self._stopped = True
                raise
        self._stopped = False

    # Actions

    async def _goto(self, url: str) -> str:
        try:
            await self.page.goto(url, timeout=self.timeout_s * 6e3)
        except Exception as error:
            message = f"{elements.pattern(url)!r:.300} cannot be opened: {_first(error)}"
            raise PageGone(message) from error
        self._behind.clear()
        self._stopped = False
        return elements.pattern(self.page.url)

    async def _turn(self, action: str) -> str:
        turns = {
            "refreshPage": self.page.reload,
            "pageBack": self.page.go_back,
            "pageForward": self.page.go_forward,
        }
        await turns[action](timeout=self.timeout_s * 6e3)
        return elements.pattern(self.page.url)

    async def _act_once(self, **arguments: Any) -> dict[str, Any]:
        """Do `_act` once the element accepts the action, so that one not begun is not in doubt."""
        return await self._act(**arguments, trial=True)

    async def _act(  # noqa: PLR0913, PLR0917 -- the fields of a step's arguments
        self,
        instruction: str,
        method: str,
        arguments: list[str],
        at: str,
        targets: dict[str, Any] | None,
        frame: int,
        changes: str,
        checks: list[dict[str, Any]],
        mark: dict[str, Any] | None = None,
        *,
        optional: bool = False,
        trial: bool = False,
    ) -> dict[str, Any]:
        where = frame_of(self.page, frame, msgspec.convert(mark, PageMark) if mark else None)
        element = self._held.pop((frame, at), None)
        if element is None:
            value = msgspec.convert(targets, ElementTargets) if targets else None
            try:
                element = await self._first_of(
                    where, instruction, locators_of(at, value), brief=optional
                )
            except ElementNotFound:
                if not optional:
                    raise
                return _not_there(at, method, frame)
        where = element.frame or where
        frame = self.page.frames.index(where)
        method = _of_live(method, element.targets.tag)
        watched = element.watched and bool(changes)
        before = "" if watched else await elements.snapshot(where)
        url = self.page.url
        number, targets_now = 0, element.targets
        if not changes:  # a repeated action was recorded the first time
            number = await elements.backend_id(self.page, where, await element.node())
            alone = await elements.alike(where, targets_now) == 1
            targets_now = msgspec.structs.replace(targets_now, alone=alone)
        await _performed(element, method, arguments, self.timeout_s, trial=trial)
        if watched:
            changed = await self._changed(
                where, element, url, changes, filled=_filled(method, arguments)
            )
        else:
            if _filled(method, arguments):
                await _demand_filled(element.locator)
            changed = await self._change(where, before, url, changes)
        items = [msgspec.convert(each, ActionCheck) for each in checks]
        failed = await self._unmet(where, items, (element, arguments))
        act = PageAction(
            success=not failed,
            message=failed or f"{method} done",
            element_id=f"{frame}-{number}" if number else None,
            frame_index=frame,
            xpath=element.description["xpath"] or None,
            method=method,
            targets=targets_now,
            page=PageMark(
                address=elements.pattern(url),
                digest=elements.digest(before) if before else "",
                frame=elements.pattern(where.url) if frame else "",
            ),
            changed=changed,
            checks=items,
            url=elements.pattern(self.page.url),
        )
        plain: dict[str, Any] = msgspec.to_builtins(act)
        return plain

    async def _first_of(
        self, where: Any, instruction: str, ways: Sequence[ElementLocator], *, brief: bool = False
    ) -> FoundElement:
        """Wait for the element as long as a page may take. Raises ElementNotFound."""
        deadline = time.monotonic() + (UNKNOWN_WAIT_S if brief else self.timeout_s)
        while True:
            attempts: list[ElementAttempt] = []
            for way in ways:
                attempt, element = await elements.one(where, way)
                attempts.append(attempt)
                if element is not None:
                    return element
            if time.monotonic() > deadline:
                raise ElementNotFound(instruction, attempts)
            await asyncio.sleep(POLL_S)

    async def _change(self, where: Any, before: str, url: str, expected: str) -> str:
        """Return what an action changed; wait if it is known to change something."""
        if expected == "nothing":
            return ""
        wait_s = CHANGE_WAIT_S if expected else UNKNOWN_WAIT_S
        deadline = time.monotonic() + wait_s
        while True:
            if self.page.is_closed() or where.is_detached():
                return "page"
            if self.page.url != url:
                with contextlib.suppress(Exception):
                    await self.page.wait_for_load_state("domcontentloaded", timeout=5_000)
                return "address"
            if await elements.snapshot(where) != before:
                return "page"
            if time.monotonic() > deadline:
                return ""
            await asyncio.sleep(POLL_S)

    async def _changed(
        self, where: Any, element: FoundElement, url: str, expected: str, *, filled: bool
    ) -> str:
        """Return what an action changed, for an element watched since it was found."""
        if expected == "nothing" and not filled:
            return ""
        if expected == "address":
            waited = {"wait_until": "commit", "timeout": CHANGE_WAIT_S * 1e3}
            with contextlib.suppress(Exception):  # the address is the same: report other changes
                await self.page.wait_for_url(lambda now: now != url, **waited)
        if self.page.is_closed() or where.is_detached():
            return "page"
        if self.page.url != url:
            return await self._change(where, "", url, expected)
        wait_s = 0.0 if expected == "nothing" else CHANGE_WAIT_S
        changed, empty = await elements.changed(where, wait_s)
        if filled and empty is not False:
            await _demand_filled(element.locator)
        if self.page.url != url:
            return await self._change(where, "", url, expected)
        return "page" if changed else ""

    async def _unmet(
        self, where: Any, checks: Sequence[ActionCheck], acted: tuple[FoundElement, Sequence[str]]
    ) -> str:
        """Return the conditions that do not hold after an action, in words; empty if all hold."""
        deadline = time.monotonic() + self.timeout_s
        for check in checks:
            while not await self._holds(where, check, acted):
                if time.monotonic() > deadline:
                    if check.kind == "filled":
                        return f"the field does not hold the text within {self.timeout_s:g} s"
                    return f"{check.kind} is not {check.value!r:.200} within {self.timeout_s:g} s"
                await asyncio.sleep(POLL_S)
        return ""

    async def _holds(
        self, where: Any, check: ActionCheck, acted: tuple[FoundElement, Sequence[str]]
    ) -> bool:
        element, arguments = acted
        try:
            match check.kind:
                case "filled":
                    held: str = await elements.bounded(element.locator.input_value(timeout=500))
                    return held == arguments[0]
                case "url":
                    return elements.pattern(self.page.url) == elements.pattern(check.value)
                case "text":
                    text: str = await elements.bounded(
                        where.locator(f"xpath={check.xpath}").inner_text(timeout=500)
                    )
                    return text.strip() == check.value
                case "visible":
                    seen: bool = await elements.bounded(
                        where.get_by_text(check.value, exact=True).first.is_visible()
                    )
                    return seen
                case _:
                    return False
        except Exception:  # noqa: BLE001 -- a page that changes may not be readable
            return False

    async def _extract(
        self, instruction: str, at: str, attribute: str, frame: int
    ) -> dict[str, Any]:
        where = frame_of(self.page, frame)
        element = await self._first_of(where, instruction, locators_of(at, None))
        node = await element.node()
        reading = node.get_attribute(attribute) if attribute else node.inner_text()
        value = await elements.bounded(reading)
        return {
            "value": (value or "").strip(),
            "frame": self.page.frames.index(element.frame or where),
            "xpath": element.description["xpath"],
            "targets": msgspec.to_builtins(element.targets),
            "url": elements.pattern(self.page.url),
        }

    async def _find(
        self,
        instruction: str,
        ways: list[dict[str, Any]],
        frame: int,
        mark: dict[str, Any] | None,
        recorded: dict[str, Any] | None,
        retries: int,
        entry: int,
    ) -> dict[str, Any]:
        del instruction, entry
        where = frame_of(self.page, frame, msgspec.convert(mark, PageMark) if mark else None)
        looks = [msgspec.convert(each, ElementLocator) for each in ways]
        kind = msgspec.convert(recorded, ElementTargets) if recorded else None
        attempts: list[ElementAttempt] = []
        deadline = time.monotonic() + self.timeout_s
        hidden: FoundElement | None = None
        for retry in range(max(1, retries)):
            # While the page changes only the first locator counts: another may match too early.
            last = retry + 1 >= retries
            quiet = last or (retry > 0 and not await self._moves(where, deadline))
            for way in looks if quiet else looks[:1]:
                attempt, element = await elements.one(where, way, kind)
                attempts.append(attempt)
                if element is not None and element.description["seen"]:
                    return self._hold(frame, element, attempts)
                hidden = hidden or element
        if hidden is not None:  # it may be shown later: actions on it wait for that
            return self._hold(frame, hidden, attempts)
        return {"selector": "", "strategy": "", "attempts": _plains(attempts)}

    def _hold(
        self, frame: int, element: FoundElement, attempts: list[ElementAttempt]
    ) -> dict[str, Any]:
        self._held[frame, element.selector] = element
        return {
            "selector": element.selector,
            "strategy": element.strategy,
            "xpath": element.description["xpath"],
            "targets": msgspec.to_builtins(element.targets),
            "attempts": _plains(attempts),
            "url": elements.pattern(self.page.url),
            "shown": element.description["seen"],
        }

    async def _moves(self, where: Any, deadline: float) -> bool:
        """Return whether a page still changes; wait until it is quiet for `UNKNOWN_WAIT_S`."""
        before = await elements.snapshot(where)
        until = min(deadline, time.monotonic() + UNKNOWN_WAIT_S)
        while time.monotonic() < until:
            if await elements.snapshot(where) != before:
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def _look(self, frame: int) -> list[str]:
        return await self._candidates(frame_of(self.page, frame))

    async def _candidates(self, where: Any) -> list[str]:
        """Return the elements that may be meant, a line each, without the secrets filled in."""
        if not self._secrets.held:
            return await elements.candidates(where)
        # Cut after secrets are removed: half of one would not be recognized.
        whole = await elements.candidates(where, characters=elements.WHOLE_CHARACTERS_MAX)
        lines: list[str] = self._secrets.without(whole)
        return [each[:LINE_CHARACTERS_MAX] for each in lines]

    async def _choose(
        self, frame: int, at: int, of: str, recorded: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        where = frame_of(self.page, frame)
        lines = await self._candidates(where)
        if at < 0 or elements.digest("\n".join(lines)) != of:
            return {"selector": "", "strategy": "model", "attempts": []}
        kind = msgspec.convert(recorded, ElementTargets | None)
        attempt, element = await elements.candidate(where, at, kind)
        if element is None:
            return {"selector": "", "strategy": "model", "attempts": _plains([attempt])}
        return self._hold(frame, element, [attempt])

    # Models

    async def _ask_model(self, model: Model, question: str) -> dict[str, Any]:
        if isinstance(model, Tool):
            value = model(question)
            answer = await value if inspect.isawaitable(value) else value
        else:
            request = spec(
                "browser.ask", Effects.PURE, elements.awaiting(model), {"question": 0}, "model"
            )
            answer = await self._session.call(request, (), {"question": question})
        return elements.answer_json(answer)

    async def _by_model(
        self, instruction: str, method: str, arguments: Sequence[Any], frame: int
    ) -> tuple[str, str, Sequence[Any]]:
        if self.model is None:
            message = f"{instruction!r:.200}: neither at= nor targets=, and no model"
            raise BadValue("act", message, "give one of them, or browser(model=)")
        report = await self.ask(instruction, self.model, frame)
        if not report["selector"]:
            raise ElementNotFound(instruction, [])
        text = report["method"] if isinstance(report["method"], str) else method
        values = report["arguments"] if isinstance(report["arguments"], list) else []
        return report["selector"], text, arguments or [str(each) for each in values]


def _not_there(at: str, method: str, frame: int) -> dict[str, Any]:
    """Return the record of an optional action whose element is missing."""
    act = PageAction(
        success=True,
        message="not there",
        frame_index=frame,
        xpath=at.removeprefix("xpath=") if at.startswith(("/", "xpath=")) else None,
        method=method,
        targets=None if at.startswith(("/", "xpath=")) else ElementTargets(css=at),
    )
    plain: dict[str, Any] = msgspec.to_builtins(act)
    return plain


def _argument(argument: caches.Argument) -> str | Secret:
    if isinstance(argument, str):
        return argument
    if set(argument) != {"$secret"}:
        raise BadValue("arguments", f"{argument!r:.80}", "give texts, or {'$secret': name}")
    return Secret(argument["$secret"])


def _plains(every: Iterable[Any]) -> list[Any]:
    return [msgspec.to_builtins(each) for each in every]


def _plain(value: Any) -> Any:
    return None if value is None else msgspec.to_builtins(value)


def _first(error: BaseException) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:300]


async def _performed(
    target: FoundElement, method: str, arguments: Sequence[str], timeout_s: float, *, trial: bool
) -> None:
    """Do it. Raises NotDone where the element takes it not, TimeoutError where nobody knows."""
    element, timeout = target.locator, timeout_s * 1e3
    clicks = {"click": element.click, "dblclick": element.dblclick}
    try:
        if method in clicks and trial:
            await clicks[method](timeout=timeout, trial=True)
    except Exception as error:
        message = f"the element cannot be clicked, nothing was done: {_first(error)}"
        raise NotDone(message) from error
    done: Mapping[str, Callable[[], Awaitable[Any]]] = {
        "click": lambda: element.click(timeout=timeout),
        "dblclick": lambda: element.dblclick(timeout=timeout),
        "press": lambda: element.press(arguments[0], timeout=timeout),
        "fill": lambda: element.fill(arguments[0], timeout=timeout),
        "type": lambda: element.press_sequentially(arguments[0], timeout=timeout),
        "selectOption": lambda: element.select_option(arguments[0], timeout=timeout),
        "check": lambda: element.check(timeout=timeout),
        "uncheck": lambda: element.uncheck(timeout=timeout),
        "hover": lambda: element.hover(timeout=timeout),
        "scrollToElement": lambda: element.scroll_into_view_if_needed(timeout=timeout),
    }
    try:
        await done[method]()
    except Exception as error:  # noqa: BLE001 -- after any error the outcome is unknown
        text = _first(error)
        for number, value in enumerate(arguments, 1):
            text = text.replace(value, f"<argument {number}>") if value else text
        # It may or may not have reached the page, which may close during the click.
        message = f"{method} began and did not end: {text}"
        raise TimeoutError(message) from None


def _of_live(method: str, tag: str) -> str:
    """Return the method for the element on the page: a recording may not name its kind."""
    if method == "fill" and tag == "select":
        return "selectOption"
    return "fill" if method == "selectOption" and tag in ("input", "textarea") else method


def _filled(method: str, arguments: Sequence[str]) -> bool:
    """Return whether a field must hold a value after an action."""
    return method == "fill" and bool(arguments[0])


async def _demand_filled(element: Any) -> None:
    """Raise NotDone where a field is empty after it was filled in: a page may take the focus away,
    with a popup say, and then the browser enters nothing.
    """
    held = None
    with contextlib.suppress(Exception):  # not a field, or gone with its page
        held = await elements.bounded(element.input_value(timeout=500))
    if held == "":
        message = "the field is empty after it was filled in: the page rejected the text"
        raise NotDone(message)


def spec(
    name: str,
    effects: Effects,
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    kind: str = "tool",
) -> ToolSpec:
    """Build the tool of a browser call: the name and arguments on record, and its function."""
    names = [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in arguments]
    return ToolSpec(
        function=function,
        name=name,
        effects=effects,
        kind=kind,
        signature=inspect.Signature(names),
        safe_errors=(ElementNotFound, PageGone),
    )


def composite(
    name: str, function: Callable[..., Awaitable[Any]], arguments: Mapping[str, Any]
) -> ToolSpec:
    """Build a tool whose body makes calls of its own; a resumed run enters it again."""
    return spec(name, Effects.COMPOSITE, function, arguments, "tool")


def pure(
    name: str, function: Callable[..., Awaitable[Any]], arguments: Mapping[str, Any]
) -> ToolSpec:
    """Build a tool without effects; a resumed run gets its recorded result."""
    return spec(name, Effects.PURE, function, arguments, "resource")
