"""A run's page in a real browser: it shows the fold's state, and sends nothing out."""

import asyncio
import getpass
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

import hansard
from hansard.bus.commits import encode, record
from hansard.bus.log import Append, AtPosition, Copied, Origin
from hansard.domain.agent import MessageAdded
from hansard.domain.events import Actor, Commit, Recorded
from hansard.domain.ids import AgentStream, RunStream, uuid8
from hansard.domain.run import AgentJoined, RunStarted
from hansard.domain.steps import IMPORTER
from hansard.inspect import page as page_data
from tests.browser.shared_runs import small_team
from tests.browser.support import Open, Pages, ends, expected
from tests.cli.support import Runs

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def shared(record: hansard.Record) -> str:
    """Return a run whose agents share a board, tasks and messages."""
    return small_team(record, "looked-at")


async def test_a_page_opens_from_disk_and_asks_nobody(view: Open, pages: Pages, runs: Runs):
    """The file is all it takes: one request, for itself; nothing printed, nothing thrown."""
    seen = await view(await pages.of(runs.team))
    assert await seen.text("#workflow") == "paper-pipeline"
    assert runs.team in await seen.text("#head")
    assert seen.requests == [seen.path.as_uri()]
    assert seen.console == []


async def test_a_page_cannot_ask_anybody(view: Open, pages: Pages, runs: Runs):
    """Its policy stops requests of every kind, inline handlers, and text used as markup."""
    seen = await view(await pages.of(runs.team))
    refused = await seen.page.evaluate(
        """async () => {
          const out = [];
          await fetch("https://example.org/").catch(() => out.push("fetch"));
          try { document.body.setAttribute("onclick", "1"); } catch { out.push("handler"); }
          try { document.body.innerHTML = "<b>x</b>"; } catch { out.push("markup"); }
          const image = new Image();
          await new Promise((done) => {
            image.onerror = () => done(out.push("image"));
            image.src = "https://example.org/x.png";
          });
          return out;
        }"""
    )
    assert refused == ["fetch", "handler", "markup", "image"]
    assert seen.refused == [("https://example.org/x.png", "csp")]
    assert seen.requests.pop() == "https://example.org/x.png"  # reported, and stopped
    assert seen.console
    assert all("Content Security Policy" in text or "Trusted" in text for text in seen.console)
    seen.console.clear()  # the browser's messages about refusals


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("name", ["team", "failed", "doubt", "settled", "forked"])
async def test_the_state_is_that_of_the_fold(view: Open, pages: Pages, runs: Runs, name: str):
    """At each commit's end the page agrees with `States.run`, and with a fork's parent."""
    run = getattr(runs, name)
    data = await pages.data(run)
    seen = await view(await pages.of(run))
    owned = [data.streams[number].run == 0 for number in data.commits.stream]
    ends_of_own = {number for number, own in zip(_last_events(data), owned, strict=True) if own}
    points = ends(data)
    assert points
    for number, position in points:
        whose = run if number in ends_of_own else runs.team
        state = expected(await pages.workspace.states.run(whose, AtPosition(position)))
        await seen.move(number)
        assert await seen.shown() == state, (number, position)


def _last_events(data: page_data.Page) -> list[int]:
    number, numbers = -1, []
    for events in data.commits.events:
        number += events
        numbers.append(number)
    return numbers


@pytest.mark.thorough(quick="test_the_state_is_that_of_the_fold")
async def test_lists_name_what_the_fold_holds(view: Open, pages: Pages, runs: Runs):
    """Open steps, checkpoints, decisions and messages of the agent in view are named."""
    seen = await view(await pages.of(runs.team))
    await seen.end()
    state = (await pages.workspace.states.run(runs.team)).agent("researcher_1")
    assert await seen.listed("checkpoints") == list(state.checkpoints)
    assert await seen.listed("decisions") == [made.question for made in state.decisions]
    assert await seen.listed("messages") == [message.role for message in state.messages]
    doubt = await view(await pages.of(runs.doubt))
    await doubt.end()
    assert await doubt.listed("open") == ["#1 send"]


async def test_what_had_not_happened_is_not_shown(view: Open, pages: Pages, runs: Runs):
    """Rows after the point are grey and hold no later data; hidden, they are gone."""
    seen = await view(await pages.of(runs.team))
    await seen.move(0)
    later = await seen.page.locator(".row.later").all_inner_texts()
    assert len(later) > 10
    assert not [text for text in later if "a=1" in text or "\ncompleted" in text]
    assert all("not yet" in text for text in later)
    await seen.page.check("#hide")
    assert await seen.page.locator(".row").count() == 1
    await seen.page.uncheck("#hide")
    assert await seen.page.locator(".row.later").count() == len(later)


async def test_steps_stand_in_each_other(view: Open, pages: Pages, runs: Runs):
    """Parts of a composite are one level below it; branches and attempts are marked."""
    seen = await view(await pages.of(runs.team))
    await seen.end()
    rows = seen.page.locator(".row.step")
    levels = dict(
        zip(
            await rows.all_inner_texts(),
            await rows.evaluate_all("list => list.map((row) => row.ariaLevel)"),
            strict=True,
        )
    )
    inside = [level for text, level in levels.items() if "a=5, b=" in text]
    assert inside == ["2", "2"]
    assert [text for text in levels if "∥" in text and "0.1" in text and "a=20" in text]
    assert [text for text in levels if "flaky" in text and "attempt 2" in text]
    both = seen.page.locator(".row", has_text="both")
    await both.locator(".caret").click()
    assert await seen.page.locator(".row", has_text="a=5").count() == 0
    assert await both.get_attribute("aria-expanded") == "false"


@pytest.mark.thorough(quick="test_search_opens_what_it_finds")
async def test_a_row_leads_to_its_outcome(view: Open, pages: Pages, runs: Runs):
    """A click on a step moves the slider to where it ended, with arguments and result in full."""
    seen = await view(await pages.of(runs.team))
    await seen.move(0)
    await seen.page.locator(".row", has_text="flaky").click()
    await seen.page.wait_for_selector('html:not([data-point="0"])')
    details = await seen.text("#event")
    assert "Attempt 1 failed" in details
    assert "ValueError: not \\u001b[31myet" in details
    assert await seen.page.input_value("#slider") == str(await seen.at())


async def test_search_opens_what_it_finds(view: Open, pages: Pages, runs: Runs):
    """A word deep in a folded payload is found, the slider moves there, and it can be read."""
    seen = await view(await pages.of(runs.team))
    assert await seen.search("which FIRST") == "1 of 1"  # no id, drawn again, has so many letters
    assert "Which first?" in await seen.text("#event")
    assert await seen.search("it is NEWEST") == "1 of 1"
    place_of_first = await seen.search("hello hello")
    point = await seen.at()
    assert place_of_first == "1 of 3"  # in the prompts of three calls
    assert "hello hello" in await seen.text("#event")
    for place in ("2 of 3", "3 of 3", place_of_first):  # it wraps round
        await seen.page.press("#query", "Enter")
        assert await seen.text("#found") == place
    for button, place in (("#next", "2 of 3"), ("#previous", place_of_first)):
        await seen.page.click(button)
        assert await seen.text("#found") == place
    assert await seen.search("no such word anywhere") == "no match"
    assert await seen.at() == point
    await seen.page.press("#query", "Escape")
    assert await seen.text("#found") == ""


async def test_the_keyboard_moves_everything(view: Open, pages: Pages, runs: Runs):
    """Arrows, Home, End, Page keys, `/` for search, and the tree's own arrows."""
    seen = await view(await pages.of(runs.team))
    last = await seen.last()
    keys = seen.page.keyboard
    for key, point in (("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        await keys.press(key)
        await seen.reached(point)
    await keys.press("End")
    await seen.reached(last)
    await seen.page.focus("#slider")
    await keys.press("ArrowLeft")
    await seen.reached(last - 1)
    await keys.press("Home")
    await seen.reached(0)
    await keys.press("/")
    assert await seen.page.evaluate("document.activeElement.id") == "query"
    await keys.type("mail")
    await keys.press("ArrowLeft")  # in a text, an arrow is the text's
    await keys.press("Escape")
    await seen.page.focus("#tree")
    before = await seen.at()
    await keys.press("ArrowDown")
    await seen.page.wait_for_selector(f'html:not([data-point="{before}"])')
    assert await seen.at() > before
    active = await seen.page.get_attribute("#tree", "aria-activedescendant")
    assert await seen.page.get_attribute(f"#{active}", "aria-selected") == "true"


@pytest.mark.thorough(quick="test_the_keyboard_moves_everything")
async def test_the_slider_speaks(view: Open, pages: Pages, runs: Runs):
    """The slider's value is read out as position, version, time and event."""
    seen = await view(await pages.of(runs.team))
    await seen.move(7)
    spoken = await seen.page.get_attribute("#slider", "aria-valuetext")
    assert spoken is not None
    assert "event 8 of" in spoken
    assert "researcher_1 version " in spoken
    assert "position" in spoken
    nameless = await seen.page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea")]
             .filter((node) => !(node.textContent.trim() || node.ariaLabel || node.labels?.length))
             .map((node) => node.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.thorough(quick="test_search_opens_what_it_finds")
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("at", ["first", "middle", "last"])
async def test_a_link_leads_to_a_point(view: Open, pages: Pages, runs: Runs, at: str):
    """`#at=POSITION.INDEX` opens the page there; a bare position is the end of its commit."""
    points = ends(await pages.data(runs.team))
    number, position = points[{"first": 0, "middle": len(points) // 2, "last": -1}[at]]
    seen = await view(await pages.of(runs.team), str(position))
    assert await seen.at() == number
    assert f"{position}." in await seen.text("#where")


@pytest.mark.thorough(quick="test_the_state_is_that_of_the_fold")
async def test_a_fork_shows_where_it_came_from(view: Open, pages: Pages, runs: Runs):
    """The parent's events are shown and marked; the head names the parent."""
    seen = await view(await pages.of(runs.forked))
    await seen.end()
    assert runs.team in await seen.text("#head")
    assert "before the fork" not in await seen.text("#where")
    assert await seen.page.locator(".row.parents").count() > 3
    await seen.move(2)
    assert "before the fork" in await seen.text("#where")


def _withholding(record: hansard.Record) -> str:
    """Return a fork in which a mail was refused."""
    with record.run("withholds", run="withholds", agent="ada", role="writer"):
        pass
    fork = record.fork("withholds")
    with record.run("withholds", run=fork, agent="ada", role="writer") as session:

        @session.tool(effects="once")
        def send(to: str) -> str:
            """Send a mail."""
            raise AssertionError(to)

        with pytest.raises(hansard.errors.ShadowedEffect):
            send("x")
    return fork


async def test_what_a_fork_withheld_is_shown(view: Open, pages: Pages, record: hansard.Record):
    """The call shows the substitute for its answer, and its tool's description."""
    fork = await asyncio.to_thread(_withholding, record)
    seen = await view(await pages.of(fork))
    await seen.end()
    await seen.page.locator(".row", has_text="send").click()
    await seen.page.locator("#event", has_text="Withheld").wait_for()
    details = await seen.text("#event")
    assert "Withheld in this fork: refused, nothing answered for it" in details
    assert "It would have done: Send a mail." in details
    assert seen.console == []


async def test_what_a_source_claims_is_shown_as_a_claim(view: Open, pages: Pages):
    """`occurred_at` and a copied commit's origin are shown beside the log's time."""
    run = "brought-here"
    events = (
        record(RunStarted(workflow="elsewhere"), uuid8(run, "1")),
        record(AgentJoined(agent="a", role="r"), uuid8(run, "2")),
    )
    claimed = tuple(replace(each, occurred_at="2024-05-15T15:00:07") for each in events)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    commit = Commit(id=uuid8(run), version=1, at=at, actor=Actor("a"), events=claimed)
    origin = Origin("production", 4321, "2025-02-03T04:05:06.000000007Z")
    copied = Copied(encode(RunStream(run), commit), origin)
    await pages.workspace.log.append_bulk([Append(RunStream(run), commit, copied=copied)])
    seen = await view(await pages.of(run))
    await seen.end()
    where = await seen.text("#where")
    assert "occurred at 2024-05-15T15:00:07, says the source" in where
    assert "copied from position 4321 of log production, 2025-02-03T04:05:06Z" in where
    assert "inside a commit" not in where
    assert "15:00:07" in await seen.page.locator(".row .claim").first.inner_text()
    await seen.move(0)
    assert "inside a commit" in await seen.text("#where")


async def _written(pages: Pages, run: str, by: Actor, *events: Recorded) -> Path:
    """Return a run of one commit and its page."""
    await pages.workspace.log.append(Append(RunStream(run), _commit(run, by, *events)))
    return await pages.of(run)


def _commit(seed: str, by: Actor, *events: Recorded) -> Commit:
    """Return the first commit of a stream."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Commit(id=uuid8(seed), version=1, at=at, actor=by, epoch=1, events=events)


def _begin(run: str, occurred_at: str | None = None) -> tuple[Recorded, Recorded]:
    """Return the first events of a run, with the source's time if it has one."""
    started = record(RunStarted(workflow="elsewhere"), uuid8(run, "1"))
    joined = record(AgentJoined(agent="a", role="r"), uuid8(run, "2"))
    return replace(started, occurred_at=occurred_at), joined


@pytest.mark.thorough(quick="test_what_a_source_claims_is_shown_as_a_claim")
async def test_an_imported_run_claims_no_times_that_its_source_does_not(view: Open, pages: Pages):
    """Without source times the page shows no moment and no duration, and says so once."""
    run = "no-times"
    seen = await view(await _written(pages, run, Actor(IMPORTER, ("a",)), *_begin(run)))
    await seen.end()
    where = await seen.text("#where")
    assert "life version 2" in where
    assert not re.search(r"\d\d:\d\d|\+|\d ms", where)
    spoken = await seen.page.get_attribute("#slider", "aria-valuetext")
    assert not re.search(r"\d\d:\d\d", str(spoken))
    assert set(await seen.page.locator(".row .when").all_inner_texts()) == {""}
    head = await seen.text("#head")
    assert "lasted" not in head
    assert re.search(r"imported\s+20\d\d-\d\d-\d\d [0-9:]+Z; its source gives no times", head)
    assert len(re.findall(r"\d\d:\d\d:\d\d", head)) == 1


@pytest.mark.thorough(quick="test_what_a_source_claims_is_shown_as_a_claim")
async def test_what_its_source_tells_of_an_imported_run_is_shown(view: Open, pages: Pages):
    """The slider and the trace have the source's own times, and no others."""
    run, time = "some-times", "1999-12-31T23:59:59"
    seen = await view(await _written(pages, run, Actor(IMPORTER, ("a",)), *_begin(run, time)))
    await seen.end()
    assert await seen.page.locator(".row .when").all_inner_texts() == ["23:59:59", ""]
    assert "a missing time is one that the source does not give" in await seen.text("#head")
    assert "lasted" not in await seen.text("#head")
    await seen.move(0)
    assert f"occurred at {time}, says the source" in await seen.text("#where")
    assert time in str(await seen.page.get_attribute("#slider", "aria-valuetext"))
    assert await seen.page.locator("#where time").count() == 0


async def test_tokens_that_nobody_counted_are_not_shown(view: Open, pages: Pages):
    """A count is shown from the first message that has one, a counted 0 too."""
    run = "uncounted"
    messages = [
        MessageAdded(role="user", content=Raw(b'"hello"'), fingerprint="f", tokens=tokens)
        for tokens in (None, 0)
    ]
    events = [record(each, uuid8(run, "m", str(n))) for n, each in enumerate(messages)]
    agent = _commit(f"{run} a", Actor("a"), *events)
    await pages.workspace.log.append(Append(RunStream(run), _commit(run, Actor("a"), *_begin(run))))
    await pages.workspace.log.append(Append(AgentStream(run, "r", "a"), agent))
    seen = await view(await pages.of(run))
    await seen.end()
    tokens = seen.page.locator("#now .agent [data-field=tokens]")
    assert await tokens.all_inner_texts() == ["0 tokens"]
    await seen.move(await seen.at() - 1)
    assert await seen.page.locator("#now .agent [data-field=messages]").count() == 1
    assert await tokens.count() == 0


async def test_a_compacted_window_is_shown_as_it_stood(view, pages, record):
    """The summary replaces its messages from its own event on, with their number."""

    def work() -> None:
        with record.run("w", run="compacted", agent="ada", role="r") as session:
            for text in ("first", "second", "third"):
                session.message("user", f"the {text} question, at length")
            session.compact(in_short, keep=1)

    await asyncio.to_thread(work)
    seen = await view(await pages.of("compacted"))
    last = await seen.last()
    await seen.move(last - 1)
    assert await seen.listed("messages") == ["system", "user"]
    assert (await seen.shown())["agents"]["ada"]["messages"] == 2
    messages = await seen.text("#now [data-list=messages]")
    assert "2 in short" in messages
    assert "second" not in messages
    await seen.move(5)
    assert await seen.listed("messages") == ["user", "user", "user"]


def in_short(messages: list[dict[str, str]]) -> str:
    """Summarise by a rule instead of a model."""
    return f"{len(messages)} in short"


async def test_a_completed_run_opens_at_its_end_and_another_at_its_first_failure(view, pages, runs):
    """A reader looks first for the conclusion, or for the first failure."""
    seen = await view(await pages.of(runs.team))
    assert await seen.at() == await seen.last()
    for run, words in ((runs.failed, "Blocked by rule"), (runs.doubt, "In doubt")):
        seen = await view(await pages.of(run))
        assert await seen.at() < await seen.last()
        assert words in await seen.text("#event")


async def test_the_header_counts_what_went_wrong_and_leads_to_it(view, pages, runs):
    """By status as at the end of the run; a step that was settled is not counted."""
    counts = {runs.team: ["1 failed"], runs.failed: ["1 blocked"], runs.doubt: ["1 in doubt"]}
    for run, expected_counts in {**counts, runs.settled: []}.items():
        seen = await view(await pages.of(run))
        assert await seen.page.locator("#troubles button").all_inner_texts() == expected_counts
    seen = await view(await pages.of(runs.team))
    await seen.page.click("#troubles button")
    await seen.page.wait_for_selector("#event :text('KeyError')")


@pytest.mark.thorough(quick="test_the_state_is_that_of_the_fold")
async def test_a_settled_call_says_by_whom(view: Open, pages: Pages, runs: Runs):
    """In its row of the trace, from the settlement on."""
    seen = await view(await pages.of(runs.settled))
    await seen.end()
    row = seen.page.locator(".row.step")
    assert f"settled by {getpass.getuser()}" in await row.inner_text()
    await seen.move(await seen.last() - 2)
    assert "settled by" not in await row.inner_text()


def talk(record: hansard.Record) -> str:
    """Messages between calls, in the forms of several providers."""
    with record.run("talk", run="talk", agent="ada", role="r") as session:

        @session.tool(effects="pure")
        def look(name: str) -> str:
            return name

        @session.tool(effects="composite")
        def both() -> str:
            look("inside")
            session.message("assistant", "said inside")
            return look("again")

        look("first")
        session.message("user", "And the second one, please")
        look("second")
        session.message("assistant", [{"type": "text", "text": "Here it is"}])
        both()
        session.message("assistant", None, fields={"tool_calls": [{"function": {"name": "look"}}]})
    return session.run


async def test_messages_stand_at_their_own_place_with_their_first_words(view, pages, record):
    """Beside the call before them and not inside it, with the words that a person reads."""
    run = await asyncio.to_thread(talk, record)
    seen = await view(await pages.of(run))
    rows = await seen.page.evaluate(
        """() => [...document.querySelectorAll(".row.step, .row.message")].map((row) =>
             [row.ariaLevel, row.querySelector(".name").textContent,
              row.querySelector(".gist").textContent])"""
    )
    assert rows == [
        ["1", "look", 'name="first"'],
        ["1", "user", "And the second one, please"],
        ["1", "look", 'name="second"'],
        ["1", "assistant", "Here it is"],
        ["1", "both", ""],
        ["2", "look", 'name="inside"'],
        ["2", "assistant", "said inside"],
        ["2", "look", 'name="again"'],
        ["1", "assistant", "calls look"],
    ]
    words = seen.page.locator("#now [data-list=messages] summary .dim")
    assert (await words.all_text_contents())[:2] == ["And the second one, please", "Here it is"]
