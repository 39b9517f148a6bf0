"""A page's two axes: events by their order, and by the times that were stated of them."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Raw
from msgspec.structs import replace

from hansard.bus.commits import record
from hansard.bus.log import Append
from hansard.domain.agent import MessageAdded
from hansard.domain.events import Actor, Commit, Recorded
from hansard.domain.ids import AgentStream, RunStream, uuid8
from hansard.domain.run import AgentJoined, RunStarted
from hansard.domain.steps import IMPORTER
from tests.browser.support import Open, Pages, View

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

BEGAN = datetime(2025, 3, 1, 12, 0, 0, tzinfo=UTC)


async def _run(pages: Pages, run: str, times: list[float | None]) -> None:
    """Import a run of two agents with event times (seconds from BEGAN)."""

    def timed(number: int, event: Recorded) -> Recorded:
        after = times[number]
        if after is None:
            return event
        return replace(event, occurred_at=(BEGAN + timedelta(seconds=after)).isoformat())

    by = Actor(IMPORTER, ("a",))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    first = [RunStarted(workflow="timed"), AgentJoined(agent="a", role="r")]
    first.append(AgentJoined(agent="b", role="r"))
    events = [timed(n, record(each, uuid8(run, str(n)))) for n, each in enumerate(first)]
    life = Commit(id=uuid8(run), version=1, at=at, actor=by, events=tuple(events))
    appends = [Append(RunStream(run), life)]
    for number in range(3, len(times)):
        agent = "ab"[number % 2]
        message = MessageAdded(role="user", content=Raw(b'"m"'), fingerprint=str(number))
        event = timed(number, record(message, uuid8(run, str(number))))
        version = sum(each.stream == AgentStream(run, "r", agent) for each in appends) + 1
        by = Actor(IMPORTER, (agent,))
        named = uuid8(run, "c", str(number))
        commit = Commit(id=named, version=version, at=at, actor=by, events=(event,))
        appends.append(Append(AgentStream(run, "r", agent), commit))
    await pages.workspace.log.append_bulk(appends)


async def _by_time(seen: View) -> None:
    await seen.page.click("#by-time")
    await seen.page.wait_for_selector("html[data-axis=time]")


async def _places(seen: View) -> list[int]:
    """Return the slider's value at each event, walked in the record's order by key."""
    places = []
    await seen.page.keyboard.press("Home")
    await seen.reached(0)
    for number in range(await seen.last() + 1):
        await seen.reached(number)
        places.append(int(await seen.page.input_value("#slider")))
        await seen.page.keyboard.press("ArrowRight")
    return places


async def test_on_the_time_axis_events_stand_at_their_times(view: Open, pages: Pages):
    """Places are apart as times are, or evenly; button and key `t` switch and keep the point."""
    await _run(pages, "timed", [0, 0, 0, 1, 2, 6, 10])
    seen = await view(await pages.of("timed"))
    assert await _places(seen) == list(range(7))
    await seen.move(4)
    await seen.page.keyboard.press("t")
    await seen.page.wait_for_selector("html[data-axis=time]")
    assert await seen.at() == 4
    assert await seen.page.get_attribute("#by-time", "aria-pressed") == "true"
    assert await seen.page.get_attribute("#slider", "aria-label") == "Point in the run, by time"
    assert await _places(seen) == [0, 0, 0, 1_000, 2_000, 6_000, 10_000]
    note = await seen.text("#axis-note")
    assert "as the source says, in UTC" in note
    assert "The order is the record's" in note
    assert "2025-03-01 12:00:00" in await seen.text("#axis")
    await seen.page.keyboard.press("t")
    await seen.page.wait_for_selector("html[data-axis=order]")
    assert await seen.page.locator("#axis").is_hidden()


@pytest.mark.thorough(quick="test_on_the_time_axis_events_stand_at_their_times")
async def test_a_place_on_the_time_axis_leads_to_its_event(view: Open, pages: Pages):
    """The nearest in time; of several at one time the last, so that all of them have happened."""
    await _run(pages, "led", [0, 0, 0, 1, 4, 4, 10])
    seen = await view(await pages.of("led"))
    await _by_time(seen)
    for place, point in ((0, 2), (4_100, 5), (2_600, 5), (2_400, 3), (9_900, 6), (10_000, 6)):
        await seen.page.evaluate(
            """(place) => {
              const slider = document.getElementById("slider");
              slider.value = String(place);
              slider.dispatchEvent(new Event("input", { bubbles: true }));
            }""",
            place,
        )
        await seen.reached(point)
        assert await seen.at() == point


async def test_a_long_gap_is_shortened_and_says_so(view: Open, pages: Pages):
    """Events around a night stay apart; the gap has a mark with its length, and a note."""
    night = 9 * 3_600
    await _run(pages, "night", [0, 1, 2, 3, 4, night, night + 1, night + 2, night + 3])
    seen = await view(await pages.of("night"))
    await _by_time(seen)
    places = await _places(seen)
    assert places[4] - places[0] > 4_000
    assert 0 < places[5] - places[4] < 1_000
    assert "8 h 59 min" in await seen.page.locator("#axis .gap").inner_text()
    assert "1 long gap is shortened: 8 h 59 min from 2025-03-01 12:00:04Z" in await seen.text(
        "#axis-note"
    )


async def test_clocks_that_disagree_do_not_change_the_order(view: Open, pages: Pages):
    """Events keep their stated times and the record's order; one without time joins it."""
    await _run(pages, "clocks", [0, 0, 0, 10, 4, None, 5])
    seen = await view(await pages.of("clocks"))
    await _by_time(seen)
    assert await _places(seen) == [0, 0, 0, 10_000, 4_000, 4_000, 5_000]
    note = await seen.text("#axis-note")
    assert "1 event states an earlier time than the event before." in note
    assert "1 event has no time, and is placed at the event before." in note
    await seen.page.keyboard.press("Home")
    for _ in range(4):
        await seen.page.keyboard.press("ArrowRight")
    await seen.reached(4)
    assert "its time is 6.00 s earlier than that of the event before" in await seen.text("#where")
    assert "event 5 of 7" in await seen.text("#where")


@pytest.mark.thorough(quick="test_on_the_time_axis_events_stand_at_their_times")
async def test_where_nobody_knows_a_time_there_is_no_time_axis(view: Open, pages: Pages):
    """The button is disabled with a reason, so the key does nothing."""
    await _run(pages, "timeless", [None] * 5)
    seen = await view(await pages.of("timeless"))
    assert await seen.page.is_disabled("#by-time")
    assert await seen.page.get_attribute("#by-time", "title") == "No event of this run has a time"
    await seen.page.keyboard.press("t")
    assert await seen.page.get_attribute("html", "data-axis") == "order"
