"""The views of questions: what they show is what the commands and the record state."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Route

import hansard
from hansard.ext.worker.requests import Work
from tests.approvals.test_command import WAITER
from tests.cli.support import WORKSPACE, Runs, in_doubt
from tests.faults._warm import python
from tests.web.data import Examples
from tests.web.support import DESK, HEIGHT, PHONE, TOO_WIDE, Tab, Tabs

AT_REST_S = 0.5
"""Time after which the address has followed the page."""

in_thread = asyncio.to_thread
"""Calls of the sync record, which are refused in a running loop."""

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def fork(record: hansard.Record, runs: Runs) -> str:
    """Return the first fork of order-17, with another result."""
    del runs
    forks = [run for run, state in record.runs(workflow="refunds") if state.forked]
    return forks[-1]


def views(runs: Runs, examples: Examples, fork: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return the address of every view of questions, full, empty and failed."""
    return {
        "inbox": ("/inbox", {"answered": "true"}),
        "search": ("/search", {"q": "order"}),
        "search without words": ("/search", {}),
        "search without a hit": ("/search", {"q": "zzqqzz"}),
        "audit": ("/audit", {}),
        "audit of a run": ("/audit", {"run": runs.doubt}),
        "experiments": ("/experiments", {}),
        "experiment": ("/experiments/greeting", {}),
        "prompts": ("/prompts", {}),
        "prompt": ("/prompts/greeting", {}),
        "memory": ("/memory", {}),
        "memory of nobody": ("/memory", {"space": "agent/nobody"}),
        "file": ("/memory", {"space": "agent/ada", "path": "AGENTS.md"}),
        "file by line": ("/memory", {"space": "agent/ada", "path": "AGENTS.md", "view": "lines"}),
        "file changed": ("/memory", {"space": "agent/ada", "path": "AGENTS.md", "view": "diff"}),
        "two runs": ("/diff", {}),
        "diff": (f"/runs/order-17/diff/{fork}", {}),
        "diff of unlike runs": (f"/runs/{examples.trade}/diff/{examples.papers}", {"all": "true"}),
        "why": (f"/why/{runs.team}", {}),
        "why as a graph": (f"/why/{examples.advice}", {}),
        "why as a tree": (f"/why/{examples.advice}", {"view": "tree"}),
        "why in words": (f"/why/{examples.advice}", {"view": "words"}),
        "decisions": (f"/why/{examples.trade}", {}),
        "why of nothing": ("/why", {}),
        "origin": ("/runs/shared/origin/notes", {}),
        "result": ("/runs/order-17/result/clerk%232", {}),
        "change a write": ("/runs/order-17/change", {"edit": "clerk#3"}),
        "bisect": (
            "/runs/order-17/bisect",
            {"test": "is missing", "pointer": "/life/board/order 17"},
        ),
        "bisect before": ("/runs/order-17/bisect", {}),
        "change": ("/runs/order-17/change", {"edit": "clerk#1"}),
        "change at a point": ("/runs/order-17/change", {"at": "clerk@1"}),
        "change before": ("/runs/order-17/change", {}),
        "as a role": ("/runs/shared/as/reviewer", {}),
        "as a role that sees nothing": ("/runs/shared/as/guest", {}),
        "sql": ("/sql", {"q": "FROM runs"}),
        "sql chart": (
            "/sql",
            {"q": "SELECT workflow, count(*) AS runs FROM runs GROUP BY ALL", "view": "chart"},
        ),
        "sql lines": (
            "/sql",
            {"q": "SELECT range AS x, range * range AS y FROM range(50)", "view": "chart"},
        ),
        "sql many": ("/sql", {"q": "FROM range(5000)"}),
        "sql before": ("/sql", {}),
    }


FAILED = {
    "no such decision": ("/why/nothing-of-that-id", {}),
    "no such key": ("/runs/shared/origin/nothing", {}),
    "no SQL": ("/sql", {"q": "SELECT FROM"}),
    "no such run": ("/runs/nothing", {}),
    "no such view": ("/nothing", {}),
}
"""Views whose answer is a refusal."""


CHECKED = (
    "inbox",
    "experiment",
    "file changed",
    "diff",
    "why",
    "origin",
    "bisect",
    "as a role that sees nothing",
    "sql chart",
)
"""Views that `make check` opens; `make test-full` opens all, those of the examples too."""


async def check_views(tab: Tab, addresses: dict[str, tuple[str, dict[str, str]]]) -> None:
    """Check that views have one heading, no refusal and no message, and fit desk and phone."""
    for name, (address, query) in addresses.items():
        await tab.open(address, **query)
        assert await tab.page.locator("h1").count() == 1, name
        assert await tab.page.locator(".failed[role=alert]").count() == 0, (name, await tab.text())
        for width in (PHONE, DESK):
            await tab.page.set_viewport_size({"width": width, "height": HEIGHT})
            assert await tab.page.evaluate(TOO_WIDE) == [], (name, width)
        assert tab.console == [], name


async def test_views_open_without_a_message_and_fit(tab: Tab, runs: Runs, fork: str):
    """One view of each kind."""
    every = views(runs, Examples(), fork)
    await check_views(tab, {name: every[name] for name in CHECKED})


@pytest.mark.thorough(quick="test_views_open_without_a_message_and_fit")
async def test_every_view_opens_without_a_message_and_fits(
    tab: Tab, runs: Runs, examples: Examples, fork: str
):
    """Every view, full and empty."""
    await check_views(tab, views(runs, examples, fork))


async def test_refusals_state_fact_and_remedy(tabs: Tabs, runs: Runs):
    """A refusal is shown with its title and its sentences, and can be tried again."""
    del runs
    tab = await tabs.open()
    for name, (address, query) in FAILED.items():
        await tab.open(address, **query)
        text = await tab.text(".failed[role=alert]")
        assert len(text.splitlines()) > 1, (name, text)
        lists = await tab.page.locator(".failed a[href$='/runs']").count()
        assert lists == (name == "no such run"), name
    await tab.close()


async def test_an_event_that_is_not_read_is_a_refusal_until_it_is(tab: Tab, runs: Runs):
    """A lost answer is shown with a button that reads it again."""
    await tab.page.route("**/events/*", lambda route: route.abort())
    await tab.page.goto(tab.site.view("/runs/order-17"))
    await tab.page.wait_for_selector("#event .failed[role=alert]")
    await tab.page.unroute("**/events/*")
    await tab.page.click("#event button:has-text('Try again')")
    await tab.page.wait_for_selector("#event .what")
    assert all("ERR_FAILED" in line for line in tab.console)
    tab.console.clear()


async def test_a_malformed_address_is_a_refusal(tab: Tab):
    """A `%` without two digits after it, in the workspace and in a run's id."""
    for address in ("/ws/50%/runs", f"/ws/{WORKSPACE}/runs/50%"):
        await tab.page.goto(tab.site.url + address)
        await tab.page.wait_for_selector("#content .failed[role=alert]")
    assert all(" 40" in line for line in tab.console)
    tab.console.clear()


async def test_a_list_of_runs_keeps_its_length_when_it_is_read_again(
    tab: Tab, record: hansard.Record, runs: Runs
):
    """More rows stay open over a live reload, which the page reads as one list."""
    del runs

    async def fewer(route: Route) -> None:  # 100 rows are read as 2 of the few that there are
        limit = int(parse_qs(urlsplit(route.request.url).query)["limit"][0])
        await route.continue_(
            url=route.request.url.replace(f"limit={limit}", f"limit={limit // 50}")
        )

    await tab.page.route("**/runs?*", fewer)
    await tab.open("/runs")
    await tab.until("document.querySelectorAll('.run-row').length === 2")
    await tab.page.wait_for_selector(".live.live")
    await tab.page.click("button.more")
    await tab.until("document.querySelectorAll('.run-row').length === 4")
    await in_thread(_complete_a_run, record, "newest")
    await tab.page.wait_for_selector(".run-row[href$='/newest']")
    assert await tab.page.locator(".run-row").count() == 4


def _complete_a_run(record: hansard.Record, run: str) -> None:
    with record.run("short", run=run, agent="ada", role="writer"):
        pass


async def test_lines_of_a_file_are_those_of_the_point(tab: Tab, runs: Runs):
    """By line as of a version: its lines alone, each with the version that brought it."""
    del runs
    of = {"space": "agent/ada", "path": "AGENTS.md", "view": "lines"}
    versions = (await tab.api("/memory/file", space=of["space"], path=of["path"]))["lines"][1:]
    for version, lines in zip(versions, (1, 2, 2), strict=True):
        await tab.open("/memory", at=f"@{version['version']}", **of)
        rows = await tab.page.locator("#lines tbody tr").all_inner_texts()
        assert len(rows) == lines
        assert str(version["version"]) in "\n".join(rows).split()


async def test_two_runs_part_where_the_command_states_it(tab: Tab, fork: str):
    """The first difference, the differing field and the counts are those of `hansard run diff`."""
    lines = tab.site.lines("run", "diff", "order-17", fork)
    end = next(line for line in lines if line["kind"] == "compared")
    first = end["parts"]
    await tab.open(f"/runs/order-17/diff/{fork}")
    assert first["a"]["tool"] in await tab.text(".ask-bar")
    detail = await tab.text(".detail")
    assert "result.state" in detail
    assert "lost" in detail
    assert "delivered" in detail
    moves = await tab.page.locator(".pair-row").count()
    different = sum(line["kind"] == "move" and line["what"] != "same" for line in lines)
    assert moves == different
    boxes = [await tab.page.locator(".pair-row").nth(at).bounding_box() for at in range(2)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[1]["y"] == boxes[0]["y"] + boxes[0]["height"]
    assert boxes[0]["width"] > DESK / 3
    await tab.page.keyboard.press("j")
    await tab.until("document.querySelectorAll('.pair-row')[1].ariaCurrent === 'true'")
    assert "refund" in await tab.text(".detail h2")
    await tab.page.keyboard.press("d")
    await tab.until("document.querySelectorAll('.pair-row')[0].ariaCurrent === 'true'")
    newest = tab.site.lines("runs")[0]["run"]
    for path in ("", "/diff/order-17"):
        await tab.page.goto(tab.site.view(f"/runs/last{path}"))
        await tab.page.wait_for_url(tab.site.view(f"/runs/{newest}{path}"))
    await tab.shown()


@pytest.mark.thorough(quick="web/test_run.py::test_a_run_is_followed_while_it_goes_on")
async def test_a_trial_names_its_arm_in_the_list_and_in_a_comparison(tab: Tab, runs: Runs):
    """Trials of one experiment are told apart without opening them."""
    del runs
    await tab.open("/runs", text="greet-15")
    assert "greeting · bold · t7" in await tab.text(".run-row")
    await tab.open("/runs/greet-14/diff/greet-15")
    trial = await tab.text("tr:has-text('trial')")
    assert trial.split("\t")[1:3] == [
        f"greeting, arm {arm}, task t7, trial 0" for arm in ("plain", "bold")
    ]


async def test_a_run_that_goes_on_is_followed_beside_the_other(tab: Tab, runs: Runs, home: Path):
    """Each new move of the second run appears beside the first, without a reload of the page."""
    del runs
    async with (
        hansard.connect_async(WORKSPACE, data_dir=home) as record,
        record.run("refunds", run="beside", agent="clerk", role="support") as session,
    ):
        for number in range(3):
            await session.message("user", f"message {number}")
            if not number:
                await tab.open("/runs/order-17/diff/beside")
            await tab.until(
                f"document.querySelector('.aligned').innerText.includes('message {number}')"
            )
    assert "message 0" in await tab.text(".aligned")


async def test_what_followed_a_decision_is_no_input_of_it(tab: Tab, record: hansard.Record):
    """A refusal after the decision is among its consequences; the chosen alternative is marked."""

    def play() -> None:
        with record.run("refunds", run="refused", gate=(hansard.deny("pay"),)) as session:

            @session.tool(effects="once")
            def pay(amount: int) -> str:
                return f"paid {amount}"

            session.decide("Refund?", selected="yes", alternatives=["yes", "no"])
            with contextlib.suppress(hansard.Blocked):
                pay(42)

    await in_thread(play)
    await tab.open("/why/refused", view="tree")
    assert "✓ yes" in await tab.text(".tree")
    assert "Later refusals by the gate" in await tab.text(".tree")
    assert "Earlier refusals" not in await tab.text(".tree")


@pytest.mark.thorough(quick="test_views_open_without_a_message_and_fit")
async def test_a_decision_is_shown_as_graph_and_as_tree(tab: Tab, examples: Examples):
    """Both have the inputs of `hansard why`; the graph begins with 50 nodes, and shows more."""
    facts = [line for line in tab.site.lines("why", examples.advice) if line["kind"] == "fact"]
    inputs = [fact for fact in facts if fact["part"] == "input"]
    await tab.open(f"/why/{examples.advice}")
    assert await tab.page.locator(".node").count() <= 50
    await tab.page.get_by_role("button", name="Show more").click()
    await tab.until("document.querySelectorAll('.node.input').length > 50")
    assert await tab.page.locator(".node.input").count() == len(inputs)
    assert await tab.page.locator(".node.cause").count() > 0
    await tab.page.get_by_role("tab", name="Tree").click()
    group = tab.page.locator(".tree details", has_text="Inputs").first
    assert f"{len(inputs)}" in await group.locator("> summary").inner_text()
    await group.locator("> summary").click()
    await group.locator("> ul > li").first.wait_for()
    assert await group.locator("> ul > li").count() == len(inputs)
    behind = group.locator("> ul > li > details").first
    await behind.locator("> summary").click()
    await behind.locator("li").first.wait_for()


async def test_a_value_leads_to_its_writes_and_reads(tab: Tab, record: hansard.Record, runs: Runs):
    """Writes are those of `hansard board`, and the one call that read the key is listed."""
    del runs
    lines = tab.site.lines("board", "shared", "plan")
    await tab.open("/runs/shared/origin/plan")
    rows = await tab.page.locator("tbody tr").all_inner_texts()
    writes = [line for line in lines if "operation" in line]
    assert len(rows) == len(writes) + 1
    readers = [
        f"ada#{step.number}"
        for step in (await in_thread(record.state, "shared")).agent("ada").steps.values()
        if step.tool == "board.get"
    ]
    assert readers[0] in rows[-1]


@pytest.mark.thorough(quick="test_views_open_without_a_message_and_fit")
async def test_the_step_that_broke_it_is_the_one_of_the_command(tab: Tab, runs: Runs):
    """The condition and the shell check find the same step."""
    del runs
    check = "! grep -q '\"order 17\"' $HANSARD_BISECT_STATE"
    lines = tab.site.lines("bisect", "order-17", "--check", check)
    steps = [line["step"] for line in lines if line.get("kind") == "step"]
    await tab.open("/runs/order-17/bisect")
    await tab.page.get_by_label("Part of the state").fill("/life/board")
    await tab.page.get_by_label("Test").select_option("does not contain")
    await tab.page.get_by_label("Value").fill("order 17")
    await tab.page.get_by_role("button", name="Search").click()
    await tab.page.wait_for_selector(".card")
    assert steps[0] in await tab.text(".card")


async def test_a_change_becomes_a_fork_that_a_worker_runs(
    tab: Tab, record: hansard.Record, runs: Runs
):
    """The plan is that of the API; the fork has the edit; the page shows that a worker ran it."""
    del runs
    await tab.open("/runs/order-17/change", edit="clerk#1")
    plan = await tab.api("/runs/order-17/plan", edit="clerk#1")
    rows = await tab.page.locator("tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == [each["step"] for each in plan["calls"]]
    await tab.page.locator("textarea").fill('{"state": "found"}')
    await tab.page.get_by_label("Reason").fill("it was found")
    await tab.page.get_by_role("button", name="Make the fork").click()
    await tab.page.wait_for_selector(".card")
    await tab.until("document.querySelector('.card').innerText.includes('waits for a worker')")
    [request] = [each for each in await in_thread(record.noun(Work).list) if each.code is None]
    forked = (await in_thread(record.state, request.run)).life.forked
    assert forked is not None
    assert [each.reason for each in forked.edits] == ["it was found"]
    command = ("worker", "refunds", "--once", "--", python(), "-c", "print('well done')")
    done = await in_thread(tab.site.command, *command)
    assert done.returncode == 0, done.stderr
    await tab.until("document.querySelector('.card').innerText.includes('exit code 0')")
    assert "well done" in await tab.text(".card")
    assert "start a worker" not in await tab.text(".card")


@pytest.mark.thorough(quick="test_a_change_becomes_a_fork_that_a_worker_runs")
async def test_a_message_is_changed_from_its_event(
    tab: Tab, record: hansard.Record, runs: Runs, tmp_path: Path
):
    """The event of a message leads to its change; the fork has the new content on record.

    The same run is saved without its texts, and opens from disk.
    """
    del runs
    await tab.open("/runs/order-17")
    await tab.page.locator("[role=treeitem]", has_text="Pay lost orders").first.click()
    await tab.page.get_by_role("link", name="Change the message and go on").click()
    await asyncio.sleep(AT_REST_S)
    assert re.search(r"/change\?edit=[0-9.]+$", tab.page.url), "the point went into the address"
    await tab.page.locator("textarea").fill("Pay nothing back.")
    await tab.page.get_by_role("button", name="Make the fork").click()
    await tab.page.wait_for_selector(".card")
    await tab.page.wait_for_url("**fork=*")  # it follows the page at rest
    fork = re.search(r"fork=([0-9a-f-]+)", tab.page.url)
    assert fork is not None
    forked = (await in_thread(record.state, fork[1])).life.forked
    assert forked is not None
    [edit] = forked.edits
    assert (edit.kind, bytes(edit.before)) == ("message", b'"Pay lost orders back."')
    assert bytes(edit.result) == b'"Pay nothing back."'
    for run in ("order-17", "shared", "monday"):
        saved = await tab.page.request.get(
            f"{tab.site.url}/api/v1/{WORKSPACE}/runs/{run}/file?redacted=true"
        )
        assert saved.ok, await saved.text()
        (tmp_path / f"{run}.html").write_bytes(await saved.body())
    await tab.page.goto((tmp_path / "order-17.html").as_uri())
    await tab.until("document.querySelectorAll('[role=treeitem]').length > 5")
    text = await tab.text("body")
    assert "find_order" in text
    assert "Pay lost" not in text


async def test_approvals_and_doubts_are_answered_on_record(
    tab: Tab, record: hansard.Record, runs: Runs, home: Path
):
    """A grant, a denial and a settlement of the page are on record, with their reasons.

    A request whose process was killed is marked.
    """
    del runs
    run = await in_thread(in_doubt, record, "undecided")
    before = len(await in_thread(record.approvals.list))
    waiter = await asyncio.create_subprocess_exec(sys.executable, "-c", WAITER, home, WORKSPACE)
    while len(await in_thread(record.approvals.list)) == before:
        assert waiter.returncode is None
        await asyncio.sleep(0.05)
    waiter.kill()
    await waiter.wait()
    await tab.open("/inbox")
    waiting = {
        each.approval.id: each.approval.request for each in await in_thread(record.approvals.list)
    }
    cards = tab.page.locator("section:has(#approvals) .card")
    assert await cards.count() == len(waiting) == 4
    assert await cards.locator("header .chip").all_inner_texts() == ["untrusted"] * 3
    [over] = await cards.filter(has_text="Nobody is known to wait").all_inner_texts()
    assert "its process has ended" in over
    assert "ada" in over
    await cards.first.get_by_role("button", name="Deny", exact=True).click()
    assert "State the reason" in await cards.first.inner_text()
    for button, reason in (("Grant", "read it"), ("Deny", "too early")):
        number = await cards.count()
        await cards.first.get_by_label("Reason").fill(reason)
        await cards.first.get_by_role("button", name=button, exact=True).click()
        await tab.until(
            f"document.querySelectorAll('section:has(#approvals) .card').length < {number}"
        )
    answers = {
        (each.standing.value, each.approval.because)
        for each in await in_thread(record.approvals.list, answered=True)
        if each.approval.id in waiting
    }
    assert {("granted", "read it"), ("denied", "too early")} <= answers
    doubt = tab.page.locator("section:has(#doubts) .card", has_text=run[-8:])
    await doubt.get_by_role("button", name="It happened").click()
    assert "State the result" in await doubt.inner_text()
    await doubt.get_by_label("Result").fill('{"id": 7}')
    await doubt.get_by_label("Reason").fill("the server's log")
    await doubt.get_by_role("button", name="It happened").click()
    await doubt.wait_for(state="detached")
    [step] = (await in_thread(record.state, run)).agent("sender").steps.values()
    assert step.status.value == "completed"


@pytest.mark.thorough(quick="test_views_open_without_a_message_and_fit")
async def test_sql_is_completed_run_and_drawn(tab: Tab, runs: Runs):
    """Columns complete from the schema, the answer is that of the command, a chart draws it."""
    del runs
    await tab.open("/sql")
    await tab.until("document.querySelectorAll('.schema li').length > 10")
    await tab.page.locator(".editor .cm-content").click()
    await tab.page.keyboard.type("SELECT workflow, count(*) AS runs FROM run", delay=5)
    await tab.page.wait_for_selector(".cm-tooltip-autocomplete li:has-text('runs')")
    await tab.page.keyboard.press("Escape")
    await tab.page.keyboard.type("s GROUP BY ALL ORDER BY workflow")
    await tab.page.keyboard.press("Escape")
    await tab.page.keyboard.press("Control+Enter")
    await tab.page.wait_for_selector(".grid tbody tr")
    rows = [row.split("\t") for row in await tab.page.locator("tbody tr").all_inner_texts()]
    statement = "SELECT workflow, count(*) AS runs FROM runs GROUP BY ALL ORDER BY workflow"
    lines = tab.site.lines("sql", statement)
    assert rows == [[line["workflow"], str(line["runs"])] for line in lines]
    await tab.page.get_by_role("button", name="Chart").click()
    bars = tab.page.locator(".plot .u-over")
    box = await bars.bounding_box()
    assert box is not None
    for number, line in ((0, lines[0]), (len(lines) - 1, lines[-1])):
        await bars.hover(
            position={"x": 5, "y": box["height"] * (number + 0.6) / (len(lines) + 0.2)}
        )
        shown = await tab.page.locator(".plot .u-value").all_inner_texts()
        assert shown == [line["workflow"], str(line["runs"])]
    await tab.page.get_by_label("Save as").fill("by workflow")
    await tab.page.get_by_role("button", name="Save", exact=True).click()
    await tab.page.reload()
    await tab.shown()
    kept = tab.page.get_by_label("Query").locator("optgroup[label='Saved in this browser'] option")
    assert await kept.all_inner_texts() == ["by workflow"]
    examples = tab.page.get_by_label("Query").locator("optgroup[label='Examples'] option")
    for name in await examples.all_inner_texts():
        async with tab.page.expect_response("**/sql?*") as response:
            await tab.page.get_by_label("Query").select_option(label=name)
        answer = await response.value
        assert answer.ok or "Error" not in await answer.text(), name  # a busy machine may stop it


async def test_search_marks_words_and_leads_to_the_event(tab: Tab, runs: Runs):
    """Hits are those of `hansard search`; a hit leads to its event in its run."""
    del runs
    lines = tab.site.lines("search", "lost", "--limit", "50")
    await tab.open("/search", q="lost")
    links = tab.page.locator(".hits li > div > a:first-child")
    addresses = [f"{line['position']}.{line['event_index']}" for line in lines if "snippet" in line]
    assert await links.all_inner_texts() == addresses
    assert "lost" in [word.lower() for word in await tab.page.locator("mark").all_inner_texts()]
    href: Any = await links.first.get_attribute("href")
    assert re.fullmatch(rf"/ws/lab/runs/.+\?at={addresses[0]}", href)


async def test_a_look_as_a_role_is_on_record(tab: Tab, record: hansard.Record, runs: Runs):
    """The page shows the events that the role sees, and each look is a served view."""
    del runs

    async def looks() -> int:
        statement = "SELECT count(*) FROM views_served WHERE role = 'reviewer'"
        answer = await tab.api("/sql", statement=statement)
        return int(answer["rows"][0][0])

    async def last() -> object:
        return (await tab.api("/runs", text="shared"))["runs"][0]["last"]

    before, end = await looks(), await last()
    await tab.open("/runs/shared/as/reviewer")
    view = await in_thread(record.roles.view, "shared", role="reviewer")
    assert f"{len(view.events)} events" in await tab.text()
    assert await looks() == before + 2  # the page's and this one's
    assert await last() == end, "a look does not prolong the run"
