"""`session.run_experience`: a task is done by what was learned, each action under check functions.

Before each action the graph says what may come next, in its order; the first whose element is there
is done, if every check function lets it. What was asked and answered is on record, step by step, so
that a run that goes on after a kill takes the same way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.actions.experience_folder import read_folder
from hansard.agents.errors import NotDone
from hansard.client.browser.browser import (
    ActionFailed,
    AsyncBrowser,
    CallingSession,
    composite,
    pure,
)
from hansard.client.browser.elements import PageGone
from hansard.client.browser.replay import Once
from hansard.domain.actions import cache as caches
from hansard.domain.actions.cache import ActionCheck, CachedAction, ElementTargets
from hansard.domain.actions.locators import locators
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience.checks import (
    CheckFailure,
    FlowCheck,
    Guard,
    PostconditionCheck,
    PreconditionCheck,
    Situation,
    kind,
)
from hansard.domain.experience.experience import Experience, plan
from hansard.domain.experience.procedure import END
from hansard.domain.values import Secret

MOVES_MAX = 10_000
"""Of one doing: a procedure's loops have bounds, and together they have this one."""

TRIES_MAX = 4
"""Of an action that the page does not take."""


class ExperiencedAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action of a doing.

    Attributes:
        node: The procedure's node.
        level: 2 while the way is the one that was taken most often, 3 from where it is another.
        strategy: How its element was found.
        seconds: What it took.
    """

    node: str
    level: int
    strategy: str
    seconds: float


class Experienced(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a doing.

    Attributes:
        success: Whether it came to an end of the procedure, every check passed.
        error: Why not; empty where it did.
        failure: The check function that stopped it, if one did.
        actions: What was done, in order.
        level: 2 or 3: of the least specific action.
        guide: Where it stopped, the plan in words: for whoever goes on freely.
        seconds: What it took.
    """

    success: bool
    error: str
    failure: CheckFailure | None
    actions: list[ExperiencedAction]
    level: int
    guide: list[str]
    seconds: float


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
        allowed = once == "allow" or (once != "refuse" and number in once)
        if node.action.effects in ("once", "reconcile") and not allowed:
            message = (
                f"node {number} ({node.action.instruction!r:.100}) is done once, and this would do "
                f"it again: allow it with once=[{number}], or once='allow' for all"
            )
            raise Refused(message)


def opened(experience: Experience | str | Path) -> Experience:
    """An experience, or that of a folder. Raises BadValue."""
    return experience if isinstance(experience, Experience) else read_folder(Path(experience))


def values_of(experience: Experience, task: str, params: Mapping[str, str]) -> dict[str, str]:
    """The values that a task's text gives, and those that are given. Raises BadValue."""
    found = experience.params(task)
    if found is None:
        fact = f"{task!r:.200} is not said as {experience.wording.said!r:.200}"
        raise BadValue("task", fact, "give params=, or the task as it was said")
    twice = [name for name in params if name in found]
    if twice:
        fact = f"{twice[0]!r} stands in the task's text, too"
        raise BadValue("params", fact, "give the task or its values")
    return found | dict(params)


class ExperienceReplay:
    """One doing of an experience."""

    def __init__(
        self,
        session: CallingSession,
        browser: AsyncBrowser | None,
        experience: Experience,
        params: Mapping[str, str],
        once: Once,
    ) -> None:
        if browser is None:
            fact = f"experience {experience.name!r} is of a page, and there is none"
            raise BadValue("browser", fact, "call session.browser(page) before")
        demand_guarded(experience, once)
        self._session = session
        self._browser = browser
        self._experience = experience
        self._guard = Guard(experience.procedure, experience.checks, params)
        self._usual = _path(experience)
        self._actions: list[ExperiencedAction] = []
        self._names: list[str] = []

    async def run(self) -> Experienced:
        """Do it, as one composite step whose calls are its own."""
        begun = time.perf_counter()
        identity = {"experience": self._experience.name, "version": self._experience.version}

        async def replay(**_: Any) -> dict[str, Any]:
            return await self._all()

        told = await self._session.call(
            composite("experience.replay", replay, identity), (), identity
        )
        failure = msgspec.convert(told["failure"], CheckFailure | None)
        return Experienced(
            success=not told["error"],
            error=told["error"],
            failure=failure,
            actions=self._actions,
            level=told["level"],
            guide=[] if not told["error"] else plan(self._experience),
            seconds=time.perf_counter() - begun,
        )

    async def _all(self) -> dict[str, Any]:
        self._actions.clear()
        error, failure, tries = "", None, 0
        for _ in range(MOVES_MAX):
            begun = time.perf_counter()
            name, found = await self._next()
            if name == END:
                failure = self._guard.complete()
                error = f"{failure.check}: {failure.why}" if failure else ""
                break
            if not name:
                waited = ", ".join(self._guard.walk.candidates(self._experience.procedure))
                error = f"after {self._guard.walk.at} nothing that may follow is there: {waited}"
                break
            try:
                failure = await self._done(name, found)
            except NotDone as nothing:  # a popup took the focus, say: what is there now comes first
                tries += 1
                if tries < TRIES_MAX:
                    continue
                error = f"{name} was not done: {nothing}"
                break
            tries = 0
            if failure is not None:
                error = f"{failure.check}: {failure.why}"
                break
            self._note(name, found, time.perf_counter() - begun)
        else:
            error = f"more than {MOVES_MAX:,} actions"
        return {
            "error": error[:1_000],
            "failure": msgspec.to_builtins(failure),
            "done": len(self._actions),
            "level": max((each.level for each in self._actions), default=2),
        }

    def _note(self, name: str, found: Mapping[str, Any], seconds: float) -> None:
        self._names.append(name)
        usual = self._names == self._usual[: len(self._names)]
        self._actions.append(
            ExperiencedAction(
                node=name,
                level=2 if usual else 3,
                strategy=found.get("strategy", ""),
                seconds=seconds,
            )
        )

    async def _next(self) -> tuple[str, dict[str, Any]]:
        """The first that may come next and is there; the end where, after a wait, none is."""
        candidates = self._guard.walk.candidates(self._experience.procedure)
        deadline = time.monotonic() + self._browser.timeout_s
        retries = 1
        while True:
            for name in candidates:
                if name == END:
                    if retries > 1 or len(candidates) == 1:
                        return END, {}
                    continue
                action = self._guard.actions[name]
                if action.action_type != caches.ACT:
                    return name, {}
                found = await self._found(action, name, retries)
                if found["selector"] and found["shown"]:
                    return name, found
            if time.monotonic() > deadline:
                return "", {}
            retries = 2

    async def _found(self, action: CachedAction, name: str, retries: int) -> dict[str, Any]:
        return await self._browser.find(
            action.instruction or "",
            list(locators(action)),
            frame=action.frame_index or 0,
            mark=action.page,
            recorded=action.targets,
            retries=retries,
            entry=int(name.removeprefix("n")) if name.removeprefix("n").isdecimal() else 0,
        )

    async def _done(self, name: str, found: dict[str, Any]) -> CheckFailure | None:
        """Do an action that every check lets be done; else what stopped it, on record."""
        action = self._guard.actions[name]
        now = Situation(
            url=found.get("url", ""),
            done=self._guard.done,
            frame=action.frame_index or 0,
            matches=1 if found else 0,
            element=msgspec.convert(found["targets"], ElementTargets) if found else None,
        )
        refused = await self._asked("before", name, self._guard.before(name, now))
        if refused is not None:
            return refused
        try:
            await self._act(name, action, found)
        except ActionFailed as failed:
            why = CheckFailure(check=f"{name} after", kind="postcondition", why=failed.message)
            return await self._asked("after", name, why)
        except PageGone as gone:
            why = CheckFailure(check=f"{name} is there", kind="precondition", why=str(gone))
            return await self._asked("before", name, why)
        return await self._asked("after", name, self._guard.after(name, now_after(now)))

    async def _act(self, name: str, action: CachedAction, found: dict[str, Any]) -> None:
        browser = self._browser
        posts = any(
            isinstance(each, PostconditionCheck) and each.node == name
            for each in self._guard.checks
        )
        held = [ActionCheck(kind="filled", value="")] if posts else []
        if action.action_type == caches.GOTO:
            await browser.goto(str(action.arguments[0]))
            return
        if action.action_type in (caches.RELOAD, caches.BACK, caches.FORWARD):
            await browser.turn(action.action_type)
            return
        await browser.done(
            {
                "instruction": action.instruction or "",
                "method": action.method,
                "arguments": [
                    each if isinstance(each, str) else Secret(each["$secret"])
                    for each in action.arguments
                ],
                "at": found["selector"],
                "targets": None,
                "frame": action.frame_index or 0,
                "changes": action.changed,
                "checks": [msgspec.to_builtins(each) for each in (*action.checks, *held)],
                "mark": msgspec.to_builtins(action.page) if action.page else None,
            },
            action.effects,
        )

    async def _asked(
        self, when: str, node: str, failure: CheckFailure | None
    ) -> CheckFailure | None:
        """Put on record what the check functions said."""
        asked = {"when": when, "node": node, "done": len(self._names)}
        kinds = sorted({kind(each) for each in self._experience.checks})

        async def checks(**_: Any) -> dict[str, Any]:
            return {"kinds": kinds, "failure": msgspec.to_builtins(failure)}

        told = await self._session.call(pure("experience.checks", checks, asked), (), asked)
        return msgspec.convert(told["failure"], CheckFailure | None)


def now_after(before: Situation) -> Situation:
    """The situation after an action, as far as it is known without another look."""
    changed: Situation = msgspec.structs.replace(before, done=before.done + 1, value=None)
    return changed


def _path(experience: Experience) -> list[str]:
    """The nodes of the way that was taken most often."""
    names: list[str] = []
    for entry in experience.script.actions:
        at = msgspec.structs.replace(entry, step_index=0)
        name = next((n.name for n in experience.procedure.nodes if n.action == at), "")
        names.append(name)
    return names
