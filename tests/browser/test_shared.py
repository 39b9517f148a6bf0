"""Board and tasks of a page: at every event equal to replay, without later data."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import hansard
from hansard.agents.team.tasks import task_records
from hansard.bus.log import AtPosition, Stored
from hansard.domain.board import BoardState
from hansard.domain.team import TeamState
from hansard.inspect import page as page_data
from hansard.inspect import state as states
from hansard.inspect.page import WAITS_SHOWN, Expiries
from hansard.state.replay import RunView, fold_boards, fold_team
from hansard.web.pages import run_page
from tests.browser.shared_runs import random_team, small_team
from tests.browser.support import Open, Pages, Tabs, ends
from tests.conftest import THOROUGH

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

MODEL = """() => {
  const plainKey = ({ value, kind, version, author, role, labels, expires }) => ({
    kind, version, author, role, labels, expires,
    value: kind === "set" ? { $set: value } : value,
  });
  const out = [], { position, index } = hansard.rows();
  for (let number = 0; number < position.length; number++) {
    const keys = {}, tasks = [], here = [];
    const at = `${position[number]}.${index[number]}`;
    for (const row of hansard.now("/runs/it/board", { at }).keys) {
      if (row.change) here.push(row.key);
      if (row.kind === null) continue;
      Object.defineProperty(keys, row.key, { value: plainKey(row), enumerable: true });
    }
    for (const { change, ...row } of Object.values(hansard.now("/runs/it/tasks", { at }).tasks)) {
      if (change) here.push(`task ${row.id}`);
      tasks.push(row);
    }
    out.push(JSON.stringify({ keys, tasks, here }));
  }
  return `[${out.join()}]`;
}"""
"""Script that lists the page's own fold of the file at every event, first to last."""

EMPTY: dict[str, Any] = {
    **dict.fromkeys(("role", "agent", "holder", "by", "because", "error"), ""),
    **dict.fromkeys(("what", "given", "result", "lease_left_s")),
    "number": 0,
    "waits_for": [],
    "blocked_by": [],
}
"""Fields of a task that the page does not show."""


@pytest.fixture(scope="module")
def shared(record: hansard.Record) -> list[str]:
    """Record runs whose agents share a board and tasks."""
    made = [
        random_team(record, f"chance-{seed}", seed, 40) for seed in ((1, 2) if THOROUGH else (1,))
    ]
    return [small_team(record), *made]


async def by_page(tabs: Tabs, page: page_data.Page) -> list[dict[str, Any]]:
    """Keys and tasks at every event as the page's code has them."""
    tab = await tabs.take()
    await tab.set_content(run_page(page).decode())
    await tab.wait_for_selector("html[data-point]")
    states_of_page = msgspec.json.decode(await tab.evaluate(MODEL))
    await tabs.give_back(tab)
    for each in states_of_page:
        each["tasks"] = [{**EMPTY, **row} for row in each["tasks"]]
        for row in each["tasks"]:
            row.pop("expires", None)
    return list(states_of_page)


def prefixes(history: list[Stored]) -> Iterator[tuple[list[Stored], Stored]]:
    """Yield a run up to each of its events, inside commits too, and the commit of the last one."""
    for at, stored in enumerate(history):
        for count in range(1, len(stored.commit.events) + 1):
            commit = msgspec.structs.replace(stored.commit, events=stored.commit.events[:count])
            yield [*history[:at], msgspec.structs.replace(stored, commit=commit)], stored


def expected_state(boards: dict[str, BoardState], team: TeamState, now: int) -> dict[str, Any]:
    """Return the expected text of a state, in the command line's words."""
    keys = {name: states.key(state) for name, state in boards.items() if not state.absent(now)}
    for key in keys.values():
        del key["event"]
    return {"keys": keys, "tasks": task_records(team, now)}


def check(page: dict[str, Any], expected: dict[str, Any], where: object) -> None:
    """Compare the page with the expected state; a lease's rest to the page's microsecond."""
    page = {"keys": page["keys"], "tasks": [dict(row) for row in page["tasks"]]}
    for row, other in zip(page["tasks"], expected["tasks"], strict=True):
        left, right = row.pop("lease_left_s"), other.pop("lease_left_s")
        assert (left is None) == (right is None), where
        assert left is None or abs(left - right) < 0.001, where
        for name in ("waits_for", "blocked_by"):
            names = other[name]
            if len(names) > WAITS_SHOWN:
                other[name] = [*names[:WAITS_SHOWN], len(names) - WAITS_SHOWN]
    assert msgspec.json.decode(msgspec.json.encode(page)) == expected, where


async def test_every_event_shows_what_replay_says(tabs, pages, shared, runs):
    """At every event keys and tasks are a fold's; at a commit's end those of `States.run`."""
    seen = {"keys": 0, "tasks": 0}
    for run in (*shared, runs.team, runs.forked):
        history = await pages.workspace.states.history(run)
        data = await pages.data(run)
        page = await by_page(tabs, data)
        for number, (prefix, last) in enumerate(prefixes(history)):
            expected = expected_state(fold_boards(prefix), fold_team(prefix), last.stamp)
            check(page[number], expected, (run, number))
            seen["keys"] += len(expected["keys"])
            seen["tasks"] += len(expected["tasks"])
        if run is not runs.forked:
            for number, position in ends(data):
                view = await pages.workspace.states.run(run, AtPosition(position))
                check(page[number], await _view(pages, view), (run, position))
    assert min(seen.values()) > 500


async def _view(pages: Pages, view: RunView) -> dict[str, Any]:
    now = (await pages.workspace.log.at(view.position)).stamp
    return expected_state(view.boards, view.team, now)


@pytest.mark.thorough(quick="test_every_event_shows_what_replay_says")
async def test_what_an_event_changed_is_named(tabs: Tabs, pages: Pages, shared: list[str]):
    """An event marks exactly the differences from before; a lease's rest is none."""
    for run in shared:
        page = await by_page(tabs, await pages.data(run))
        before: dict[str, Any] = {"keys": {}, "tasks": []}
        for number, now in enumerate(page):
            old, new = _by_name(before), _by_name(now)
            changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
            here = set(now["here"])
            assert changed <= here, (run, number)
            same = {name for name in here - changed if name in new}
            assert all(new[name] == old.get(name) for name in same)
            before = now


def _by_name(page: dict[str, Any]) -> dict[str, Any]:
    rows = {f"task {row['id']}": {**row, "lease_left_s": None} for row in page["tasks"]}
    return {**page["keys"], **rows}


@pytest.mark.thorough
async def test_the_panels_show_it(view: Open, pages: Pages, shared: list[str]):
    """Panels list keys and tasks with status, version and change; tabs count them."""
    run = shared[0]
    data = await pages.data(run)
    seen = await view(await pages.of(run))
    await seen.move(0)
    await seen.page.click("#desk-board")
    assert "No key is there" in await seen.text("#board")
    words: set[str] = set()
    positions = dict(ends(data))
    for number in range(len(data.events.id)):
        await seen.move(number)
        words |= set(await seen.page.locator("#board-now .here").all_inner_texts())
        if number not in positions:
            continue
        state = await pages.workspace.states.run(run, AtPosition(positions[number]))
        listed = await seen.page.locator("#board-now [data-key]:not(.gone)").evaluate_all(
            """rows => rows.map((row) => [row.dataset.key,
                 row.querySelector("[data-field=version]").textContent])"""
        )
        assert listed == [[key, f"v{each.changed}"] for key, each in sorted(state.boards.items())]
        size = await seen.page.text_content("#desk-board .size")
        assert size == (str(len(listed)) if listed else "")
    assert words == {"new here", "changed here", "removed here", "expired here"}
    await seen.page.click("#desk-tasks")
    statuses: set[str] = set()
    for number, position in ends(data)[::3]:
        await seen.move(number)
        state = await pages.workspace.states.run(run, AtPosition(position))
        rows = (await _view(pages, state))["tasks"]
        pills = await seen.page.locator("#tasks-now .pill").all_inner_texts()
        assert pills == [row["status"] for row in rows]
        statuses |= set(pills)
    assert {"open", "waiting", "claimed", "done"} <= statuses


@pytest.mark.thorough(quick="test_every_event_shows_what_replay_says")
async def test_values_are_whole_and_stay_open(view: Open, pages: Pages, shared: list[str]):
    """A key opens to its whole value, stays open while the point moves, and links to its event."""
    seen = await view(await pages.of(shared[0]))
    await seen.page.click("#desk-board")
    await seen.end()
    big = seen.page.locator("#board-now [data-key=big]")
    await big.locator("summary").first.click()
    await big.locator(".more").click()
    sizes = await big.locator("pre").evaluate_all("list => list.map(n => n.textContent.length)")
    assert max(sizes) == 100_000
    await seen.move(await seen.last() - 1)
    assert await big.get_attribute("open") is not None
    await big.locator(".link").first.click()
    await seen.page.wait_for_selector("#board-now [data-key=big] [data-here=new]")
    assert "board put" in await seen.text("#event")
    await seen.page.click("#back")
    await seen.page.wait_for_selector("#board-now [data-key=big]", state="detached")


@pytest.fixture(scope="module")
def growing(record: hansard.Record) -> list[str]:
    """Record runs whose keys grow, the second twice as far, and one with a long value."""
    for count in (20, 40):
        with record.run("growing", run=f"growing-{count}", agent="a", role="r") as session:
            for number in range(count):
                session.board.append("list", number)
                session.board.include("set", f"{number:05d}")
                session.board.merge("union", "union", {f"{number:05d}": "x" * 100})
    with record.run("once", run="once", agent="a", role="r") as session:
        session.board.put("key", "y" * 30_000)
    return ["growing-20", "growing-40", "once"]


async def test_the_file_is_bounded_by_the_run(pages: Pages, growing: list[str]):
    """Twice as many items double the changes, and a value is in the file once."""
    data = [await pages.data(run) for run in growing]
    small, large, once = [len(msgspec.json.encode(page.shared)) for page in data]
    assert large < 2.2 * small
    assert once < 300


async def test_where_the_time_moves_back_what_was_over_is_there_again():
    """Entries expire by the log's time, in whichever direction it moves."""
    lapses = Expiries()
    lapses.set("a", 10)
    lapses.set("b", 20)
    assert lapses.move(9) == []
    assert lapses.move(20) == ["a", "b"]
    assert lapses.move(10) == ["b"]
    assert lapses.move(9) == ["a"]
    lapses.set("a", None)
    assert lapses.move(30) == ["b"]
