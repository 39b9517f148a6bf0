"""Mutated attempts on a server's pages: a check stops each before its effect."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from hansard import testing
from hansard.client.browser.elements import PageGone
from hansard.domain.actions.cache import CachedAction, ElementTargets, locators
from hansard.domain.experience import checks as checking
from hansard.domain.experience.checks import Guard, Situation
from tests.experience import test_checks as pure
from tests.experience.forms import served
from tests.experience.test_checks import MUTATIONS, Move, Try, honest, node_of
from tests.experience.test_learning import CLOSE, EIGHT, learned, shown

pytestmark = [pytest.mark.thorough, pytest.mark.asyncio(loop_scope="session")]

OTHER_HOST = "127.0.0.2"
OF_THE_PAGE = (pure.other_element, pure.other_host, pure.other_frame, pure.stale, pure.twice_there)


def guarded() -> Any:
    """Return the experience of eight demonstrations, limited to the server's host."""
    made = learned(*EIGHT)
    checks = checking.proposed(made.procedure, hosts=("localhost",))
    return msgspec.structs.replace(made, checks=checks)


async def found(browser: Any, move: Move) -> dict[str, Any]:
    """Return the place of a move's element on the page."""
    action: CachedAction = shown(move.element, move.method, *move.arguments).action
    try:
        told: dict[str, Any] = await browser.find(
            move.method, list(locators(action)), frame=move.frame, retries=1
        )
    except PageGone:
        return {"selector": ""}
    return told


async def doing(browser: Any, guard: Guard, tries: list[Try]) -> str:
    """Do what is proposed until a check stops it: its kind; empty where none did."""
    for each in tries:
        move = each.move
        node = node_of(guard, move)
        if node is None:
            return "flow"
        told = await found(browser, move)
        targets = told.get("targets")
        now = Situation(
            url=told.get("url", browser.page.url),
            done=each.situation.done,
            frame=move.frame,
            matches=1 if told["selector"] else 0,
            element=msgspec.convert(targets, ElementTargets) if targets else None,
        )
        failed = guard.before(node, now)
        if failed is not None:
            return failed.kind
        await browser.done(
            {
                "instruction": move.method,
                "method": move.method,
                "arguments": list(move.arguments),
                "at": told["selector"],
                "targets": None,
                "frame": move.frame,
                "changes": "nothing",
                "checks": [],
            }
        )
        guard.after(node, msgspec.structs.replace(now, value=None))
    failed = guard.complete()
    return failed.kind if failed is not None else ""


def page_of(mutation: Any, tries: list[Try], site: Any) -> str:
    """Return the page for a mutation."""
    asked = ["notice"] if any(e.move.element == CLOSE for e in tries) else []
    asked += {pure.twice_there: ["twice"], pure.other_frame: ["frame"]}.get(mutation, [])
    host = OTHER_HOST if mutation is pure.other_host else "127.0.0.1"
    return site.at(host) + "?" + "&".join(asked)


def in_frame(mutation: Any, changed: list[Try], at: int) -> list[Try]:
    """Put the move into another frame, if the mutation changes the frame."""
    if mutation is not pure.other_frame:
        return changed
    move = msgspec.structs.replace(changed[at].move, frame=1)
    return [*changed[:at], Try(move, changed[at].situation), *changed[at + 1 :]]


def expected(tries: list[Try]) -> list[str]:
    """Return the effects of unchanged attempts."""
    name = next((e.move.arguments[0] for e in tries if e.move.method == "fill"), "")
    clicks = [e.move.element.name for e in tries if e.move.method == "click"]
    return [f"Send {name}" if each == "Send" else each for each in clicks]


async def rounds(
    page: Any, honest_ones: int, mutated: int, mutations: Sequence[Any] = MUTATIONS
) -> tuple[int, list[str]]:
    """Return the number of stopped honest attempts, and the mutations with another effect."""
    experience, stopped, passed = guarded(), 0, []
    with served() as site:
        async with (
            testing.record_async() as record,
            record.run("doings", agent="a", role="agent") as session,
        ):
            browser = session.browser(page, timeout_s=30.0)  # a click is done, however slow
            for seed in range(honest_ones):
                tries = honest(experience, random.Random(seed))
                name = next(e.move.arguments[0] for e in tries if e.move.method == "fill")
                site.effects.clear()
                await page.goto(page_of(None, tries, site))
                guard = Guard(experience.procedure, experience.checks, {"invite": name})
                why = await doing(browser, guard, tries)
                stopped += why != "" or site.effects != expected(tries)
            for number in range(mutated):
                dice = random.Random(number)
                tries = honest(experience, dice)
                mutation, at = mutations[number % len(mutations)], dice.randrange(len(tries))
                changed = in_frame(mutation, mutation(tries, dice, at), at)
                name = next(e.move.arguments[0] for e in tries if e.move.method == "fill")
                site.effects.clear()
                await page.goto(page_of(mutation, tries, site))
                guard = Guard(experience.procedure, experience.checks, {"invite": name})
                why = await doing(browser, guard, changed)
                same = 0
                while same < min(len(tries), len(changed)) and tries[same] == changed[same]:
                    same += 1
                if (
                    not why
                    or site.effects != expected(tries)[: len(site.effects)]
                    or len(site.effects) > len(expected(tries[:same]))
                ):
                    passed.append(f"{mutation.__name__} {number}: {site.effects}")
    return stopped, passed


@pytest.mark.thorough(
    quick="tests/experience/test_checks.py::test_mutated_doings_are_stopped_before_the_effect"
)
async def test_a_mutated_doing_is_stopped_before_its_effect(page):
    """One of each kind that a page decides is stopped; `test_checks` has all without a page."""
    assert await rounds(page, 1, len(OF_THE_PAGE), OF_THE_PAGE) == (0, [])


@pytest.mark.thorough(
    quick="tests/experience/test_checks.py::test_mutated_doings_are_stopped_before_the_effect"
)
@pytest.mark.long
@pytest.mark.timeout(3_600)
async def test_a_thousand_mutated_doings_are_stopped_and_no_honest_one(page, evidence):
    """Mutations that passed are listed, and none of 1,000 honest attempts is stopped."""
    stopped, passed = await rounds(page, 1_000, 1_000)
    evidence.record("experience.effects", honest_stopped=stopped, mutated_passed=len(passed))
    assert stopped == 0
    assert passed == []
