"""One page of tasks (see `task_pages`), built in many ways: recorded on one, done on the others."""

import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import testing
from hansard.domain.actions import ActionCache, encode
from tests.actions import task_pages
from tests.actions.provider import ANSWER_COST, Provider
from tests.actions.task_pages import END, FRAMEWORKS, Shown, shown, shows

pytestmark = [pytest.mark.thorough, pytest.mark.asyncio(loop_scope="session")]

HEALED = (
    "tests/actions/test_changed_pages.py::"
    "test_a_change_is_healed_or_refused_and_nothing_else_is_touched"
)
SAVES = "tests/actions/test_tables.py::test_replays_and_their_savings_are_queried_in_sql"


@pytest.fixture(scope="module")
def here() -> Iterator[str]:
    """Yield the address of the pages that need no build."""
    with task_pages.served(task_pages.SOURCES) as address:
        yield address


@pytest.fixture(scope="module")
def there(tmp_path_factory) -> Iterator[str]:
    """Yield the address of all pages."""
    with task_pages.served(task_pages.built(tmp_path_factory.mktemp("tasks"))) as address:
        yield address


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Start a provider that counts model requests."""
    with Provider(task_pages.key).serving() as serving:
        yield serving


LEFT = Shown([("two", True), ("three", False)], 1, [("two", True), ("three", False)])
"""State of the page at the end of `specified`."""


async def specified(chromium: Any, address: str) -> Shown:
    """Run the specification on one build; return the final state."""
    context = await chromium.new_context()
    page = await context.new_page()
    await page.goto(address)
    field = page.get_by_role("textbox")
    add = page.get_by_role("button", name=re.compile("add|create", re.IGNORECASE))

    async def enter(title: str) -> None:
        await field.fill(title)
        if await add.is_enabled():
            await add.click()

    for title in ("one", "two", "", "three"):
        await enter(title)
    assert await field.input_value() == ""
    open_tasks = [("one", False), ("two", False), ("three", False)]
    await shows(page, Shown(open_tasks, 3, open_tasks))
    await page.get_by_role("checkbox", name="two", exact=True).check()
    now = [("one", False), ("two", True), ("three", False)]
    await shows(page, Shown(now, 2, now))
    row = page.get_by_role("listitem").filter(has_text="one")
    await row.get_by_role("button").click()
    await shows(page, LEFT)
    await page.reload()
    await shows(page, LEFT)
    ended = await shown(page)
    await context.close()
    return ended


async def recorded(record: Any, page: Any, address: str) -> ActionCache:
    """Record the work on one build; return it as a cache whose address is a slot."""
    async with record.run("tasks", agent="ada", role="agent") as session:
        await task_pages.worked(hansard.actions.AsyncBrowser(session, page, timeout_s=5.0), address)
        run = session.run
    await shows(page, END)
    cache: ActionCache = await record.actions.of_run(run, params={"address": address})
    return cache


async def replayed(record: Any, chromium: Any, cache: Any, address: str, **how: Any) -> Any:
    """Return the outcome of a replay on another build; a success must end in equal states."""
    context = await chromium.new_context()
    async with record.run("again", agent="ada", role="agent") as session:
        page = await context.new_page()
        browser = hansard.actions.AsyncBrowser(session, page, timeout_s=5.0)
        fallbacks = {name: make(session) for name, make in how.items() if name == "fallback"}
        result = await browser.run_actions(
            cache, params={"address": address}, debug=True, **how | fallbacks
        )
    if result.success:
        await shows(page, END)
    else:
        assert await shown(page) != END
    await context.close()
    return result


async def unhealed(record: Any, chromium: Any, file: Path, address: str) -> dict[str, Any]:
    """Return how far replays get by xpath alone, and by everything except a model."""
    alone = await replayed(record, chromium, file, address, xpath_only=True)
    counts = {"xpath": sum(each.success for each in alone.actions)}
    variants = await replayed(record, chromium, file, address)
    assert (variants.model_calls, variants.cache.version) == (0, 1)
    counts["variants"] = sum(each.success for each in variants.actions)
    return counts


async def healed(record: Any, chromium: Any, file: Path, address: str, make: Any) -> dict[str, Any]:
    """Replay with a model, then once more; return the outcomes."""
    model = await replayed(record, chromium, file, address, fallback=make)
    assert model.success, model.error
    counts = {"model": len(model.actions), "asked": model.model_calls}
    again = await replayed(record, chromium, file, address, fallback=make)
    assert again.success, again.error
    assert again.model_calls == 0
    return counts


@pytest.mark.thorough(quick=HEALED)
async def test_a_page_of_another_kind_is_healed_once(chromium, page, here, provider, tmp_path):
    """After one heal from a plain page to a shadow root, no model is called and all ends equal."""
    for name in ("plain", "shadow"):
        assert await specified(chromium, f"{here}/{name}.html") == LEFT
    async with testing.record_async() as record:
        cache = await recorded(record, page, f"{here}/plain.html")
        file = tmp_path / "tasks.json"
        file.write_bytes(encode(cache))
        shadow = f"{here}/shadow.html"
        counts = await healed(record, chromium, file, shadow, provider.anthropic)
        assert provider.requests == counts["asked"]


@pytest.mark.thorough(quick=HEALED)
@pytest.mark.timeout(600)
async def test_each_framework_s_page_keeps_the_specification(chromium, there):
    """One test for all of them."""
    for name in (*FRAMEWORKS, "plain", "shadow"):
        assert await specified(chromium, f"{there}/{name}.html") == LEFT


@pytest.mark.thorough(quick=HEALED)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("at", ["plain", *FRAMEWORKS])
async def test_what_was_recorded_on_one_page_is_done_on_those_of_other_frameworks(
    chromium, page, there, provider, tmp_path, evidence, at
):
    """Each page is healed once, by both SDKs in turn, and then done without a call."""
    async with testing.record_async() as record:
        cache = await recorded(record, page, f"{there}/{at}.html")
        for number, name in enumerate(("plain", *FRAMEWORKS)):
            if name == at:
                continue
            file = tmp_path / f"{name}.json"
            file.write_bytes(encode(cache))
            make = (provider.openai, provider.anthropic)[number % 2]
            before = provider.requests
            address = f"{there}/{name}.html"
            counts = await unhealed(record, chromium, file, address)
            counts |= await healed(record, chromium, file, address, make)
            assert provider.requests - before == counts["asked"]
            evidence.record(f"actions.pages.{at}.{name}", **counts)


SAVED = """SELECT model_calls, recorded_model_calls, cost_saved, model_seconds_saved, seconds
FROM action_runs ORDER BY position"""
ASKED = "SELECT count(*), sum(cost), sum(duration_ms) / 1e3 FROM steps WHERE kind = 'model'"


async def again_and_again(
    record: Any, chromium: Any, cache: ActionCache, address: str, provider: Provider, count: int
) -> None:
    """Replay repeatedly: no request, and each replay ends with an equal tree and equal storage."""
    before, ends = provider.requests, set()
    for _ in range(count):
        context = await chromium.new_context()
        async with record.run("again", agent="ada", role="agent") as session:
            page = await context.new_page()
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=5.0)
            result = await browser.run_actions(
                cache, params={"address": address}, fallback=provider.openai(session)
            )
            assert result.success, result.error
        await shows(page, END)
        tree = await page.locator("body").aria_snapshot()
        ends.add((tree, str(await context.storage_state())))
        await context.close()
    assert provider.requests == before
    assert len(ends) == 1


@pytest.mark.thorough(quick=SAVES)
async def test_what_a_model_did_once_is_done_again_without_a_request(
    chromium, page, here, provider, data_dir, workspace, rounds, evidence
):
    """The saving is the recorded usage; browser time is measured apart."""
    address = f"{here}/plain.html"
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with record.run("tasks", agent="ada", role="agent") as session:
            browser = hansard.actions.AsyncBrowser(
                session, page, model=provider.openai(session), timeout_s=5.0
            )
            await browser.goto(address)
            for title in ("Buy milk", "Bake bread", "Write home"):
                await browser.act(f"enter {title}", method="fill", arguments=[title])
                await browser.act("add the task", effects="idempotent")
            await browser.act("tick Buy milk", method="check")
            await browser.act("remove Bake bread", effects="idempotent")
            run = session.run
        await shows(page, END)
        cache = await record.actions.of_run(run, params={"address": address})
        requests = provider.requests
        count = rounds(quick=2, full=50)
        await again_and_again(record, chromium, cache, address, provider, count)
        [(calls, cost, seconds)] = [
            tuple(each.values()) for each in (await record.sql(ASKED)).dicts()
        ]
        assert (calls, cost) == (requests, pytest.approx(requests * ANSWER_COST))
        rows = (await record.sql(SAVED)).dicts()
        assert len(rows) == count
        for row in rows:
            assert (row["model_calls"], row["recorded_model_calls"]) == (0, requests)
            assert row["cost_saved"] == pytest.approx(cost)
            assert row["model_seconds_saved"] == pytest.approx(seconds)
            assert row["seconds"] > 0
        evidence.record(
            "actions.replays",
            replays=count,
            requests=0,
            model_calls_saved_each=calls,
            cost_saved_each=round(cost, 6),
            model_seconds_saved_each=round(seconds, 3),
            browser_seconds_median=round(statistics.median(each["seconds"] for each in rows), 2),
        )
