"""Actions on real pages are steps with their targets, and are done again without a model."""

import asyncio

import msgspec
import pytest

import hansard
from hansard import testing
from hansard.agents.policy.gate import deny
from tests.actions.conftest import answered

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

SHORT_S = 0.2
"""Timeout for elements that never appear: each wait polls the page."""

FORM = """<form onsubmit="event.preventDefault(); sent.textContent = [...document.querySelectorAll(
'input')].map(each => each.value.length).join(' '); count.textContent = +count.textContent + 1">
<label>User <input id=user></label><label>Password <input type=password id=pw></label>
<button>Log in</button></form><p id=sent></p><p id=count>0</p>"""


async def recorded(record, page, url, **more):
    """Record a run that fills in the form; return its id."""
    async with record.run(
        "login", agent="ada", role="agent", secrets={"pw": "hunter22"}
    ) as session:
        browser = hansard.actions.AsyncBrowser(session, page, timeout_s=3.0)
        await browser.goto(url)
        await browser.act("enter the user", at="#user", method="fill", arguments=["Ada"])
        secret = hansard.Secret("pw")
        await browser.act("enter the password", at="#pw", method="fill", arguments=[secret])
        await browser.act("log in", at="text=Log in", **more)
        browser.timeout_s = SHORT_S
        with pytest.raises(hansard.errors.ElementNotFound, match="matches 0"):
            await browser.act("delete all", at="#delete", effects="idempotent")
        return session.run


async def test_an_answer_that_does_not_come_is_requested_again():
    """A start of the driver, a window or a page that never answers does not hold the tests."""
    requests = 0

    async def ask() -> int:
        nonlocal requests
        requests += 1
        if requests == 1:
            await asyncio.Event().wait()
        return requests

    assert await answered(ask, 0.01) == 2


async def test_what_was_done_is_a_file_that_is_done_again(page, site, tmp_path):
    """By the cached xpath alone, with another value; no secret and no failure is in it."""
    url = site(FORM)
    async with testing.record_async() as record:
        run = await recorded(record, page, url)
        cache = await record.actions.of_run(run, params={"user": "Ada"})
        assert [each.method for each in cache.actions] == [None, "fill", "fill", "click"]
        assert cache.final_state.success is False
        assert "delete all" in str(cache.final_state.error)
        _, user, password, click = cache.actions
        assert user.targets is not None
        assert user.xpath == "/html[1]/body[1]/form[1]/label[1]/input[1]"
        assert user.arguments == ["{{user}}"]
        assert (user.targets.role, user.targets.name, user.targets.label) == (
            *("textbox", "User"),
            "User",
        )
        assert user.targets.path == '//*[@id="user"]'
        assert str(user.element_id).startswith("0-")
        assert (password.arguments, click.effects) == ([{"$secret": "pw"}], "once")
        assert "hunter22" not in msgspec.json.encode(cache).decode()

        file = tmp_path / "login.json"
        file.write_bytes(msgspec.json.encode(cache))
        secrets = {"pw": "longer-secret"}
        async with record.run("again", agent="ada", role="agent", secrets=secrets) as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=3.0)
            with pytest.raises(hansard.errors.Refused, match=r"entry 3.*once=\[3\]"):
                await browser.run_actions(file, params={"user": "Grace"})
            result = await browser.run_actions(file, params={"user": "Grace"}, once=[3], debug=True)
            again = session.run
        assert result.success, result.error
        assert [each.strategy for each in result.actions] == ["", "xpath", "xpath", "xpath"]
        assert [len(each.attempts) for each in result.actions] == [0, 1, 1, 1]
        assert await page.inner_text("#sent") == "5 13"
        steps = (await record.state(again)).agents["ada"].steps.values()
        recorded_bytes = b"".join(bytes(each.arguments) + bytes(each.result) for each in steps)
        assert b"longer-secret" not in recorded_bytes
        replayed = await record.actions.of_run(again)
        assert [each.xpath for each in replayed.actions] == [each.xpath for each in cache.actions]


@pytest.mark.thorough(
    quick="tests/actions/test_changed_pages.py::test_a_change_is_healed_or_refused_and_nothing_else_is_touched"
)
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("body", "strategy"),
    [
        ("<div><section><button data-testid=go>Start</button></section></div>", "testId"),
        ("<main><nav></nav><p><button>Go</button></p></main>", "role"),
        ("<b></b><div id=box><span><i></i><button>Go</button></span></div>", "role"),
        ("<button>Go</button><button>Go</button>", ""),
        ("<a>Go</a>", ""),
        ("<button>Stop</button>", ""),
    ],
)
async def test_exactly_one_element_of_the_kind_counts(page, site, body, strategy):
    """Two matches count as none, and an element that only looks alike is not clicked."""
    script = "<script>onclick = (event) => { document.title = event.target.tagName }</script>"
    start = site(f"<button data-testid=go>Go</button>{script}")
    async with testing.record_async() as record:
        async with record.run("go", agent="ada", role="agent") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=3.0)
            await browser.goto(start)
            await browser.act("go", at="button", effects="idempotent")
            run = session.run
        cache = await record.actions.of_run(run)
        goto = msgspec.structs.replace(
            cache.actions[0], arguments=[site(f"<div></div>{body}{script}", "other.html")]
        )
        cache = msgspec.structs.replace(cache, actions=[goto, cache.actions[1]])
        async with record.run("again", agent="ada", role="agent") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=3.0)
            result = await browser.run_actions(cache, debug=True)
        assert result.success is bool(strategy), result
        assert result.actions[-1].strategy == strategy
        assert await page.title() == ("BUTTON" if strategy else "t")


async def test_a_replay_asks_the_gate_and_calls_tools(page, site):
    """A rule of the new run refuses the old action; a tool is called with its arguments."""
    called = []
    async with testing.record_async() as record:
        async with record.run("go", agent="ada", role="agent") as session:

            @session.tool(effects="idempotent")
            async def note(text: str, times: int = 1) -> str:
                called.append((text, times))
                return text * times

            await note("Ada", times=2)
            browser = hansard.actions.AsyncBrowser(session, page)
            await browser.goto(site(FORM))
            await browser.act("log in", at="text=Log in", effects="idempotent")
            run = session.run
        cache = await record.actions.of_run(run, params={"who": "Ada"})
        assert [each.action_type for each in cache.actions] == ["tool", "goToUrl", "actElement"]
        assert cache.actions[0].arguments == ['{"text":"{{who}}","times":2}']
        async with record.run(
            "again", agent="ada", role="agent", gate=[deny("browser.act", name="no clicks")]
        ) as session:
            browser = hansard.actions.AsyncBrowser(session, page)
            with pytest.raises(hansard.BadValue, match="'note'"):
                await browser.run_actions(cache, params={"who": "Bob"})
            tools = {"note": session.tool(effects="idempotent")(note.spec.function)}
            result = await browser.run_actions(cache, params={"who": "Bob"}, tools=tools)
        assert called[1:] == [("Bob", 2)]
        assert not result.success
        assert "no clicks" in result.error
        assert await page.inner_text("#count") == "0"


async def test_a_run_that_goes_on_brings_its_new_page_to_where_it_stood(page, site, chromium):
    """A resume repeats repeatable actions; after one done once it raises and does nothing."""
    async with testing.record_async() as record:

        async def work(page, then, run=None):
            async with record.run("go", agent="ada", role="agent", run=run) as session:
                browser = hansard.actions.AsyncBrowser(session, page, timeout_s=3.0)
                await browser.goto(site(FORM))
                await browser.act("user", at="#user", method="fill", arguments=["Ada"])
                run = session.run
                await then(browser)
            return run

        async def stop(browser):
            browser.timeout_s = SHORT_S
            await browser.act("none", at="#none", effects="idempotent")

        async def once(browser):
            await browser.act("log in", at="text=Log in")
            browser.timeout_s = SHORT_S
            await browser.extract("x", at="#none")

        with pytest.raises(hansard.errors.ElementNotFound):
            await work(page, stop)
        [(run, _)] = await record.runs()
        other = await chromium.new_page()

        async def type_on(browser):
            await browser.act("pw", at="#pw", method="fill", arguments=["x"])

        await work(other, type_on, run)
        assert await other.input_value("#user") == "Ada"
        await other.close()

        with pytest.raises(hansard.errors.ElementNotFound):
            await work(page, once)
        [(run, _), *_] = await record.runs()
        blank = await chromium.new_page()
        with pytest.raises(hansard.errors.PageGone, match="behind the record"):
            await work(blank, once, run)
        assert blank.url == "about:blank"
        await blank.close()


PASSWORD = "<label>Password <input type=password id=pw></label>"
LATE = (
    FORM.replace(PASSWORD, "<span id=here></span>")
    + f"<script>function later() {{ here.innerHTML = '{PASSWORD}' }}</script>"
)
"""The form on a slow page: the test decides when its second field appears."""


async def filled_in(record, page, url, then, run=None):
    """Record a run that fills in both fields, then runs `then`, or else ends."""
    async with record.run("go", agent="ada", role="agent", run=run) as session:
        browser = hansard.actions.AsyncBrowser(session, page, timeout_s=3.0)
        await browser.goto(url)
        await browser.act("user", at="#user", method="fill", arguments=["Ada"])
        await browser.act("pw", at="#pw", method="fill", arguments=["12345"])
        await then(browser)


async def stopped(browser):
    """End the program."""
    raise InterruptedError


async def begun_run(record, page, url, then=stopped):
    """Return the id of a run that was stopped."""
    with pytest.raises(InterruptedError):
        await filled_in(record, page, url, then)
    [(run, _), *_] = await record.runs()
    return run


async def test_nothing_is_done_to_a_page_that_is_not_where_the_record_is(page, site, chromium):
    """However often it is retried, the remaining actions keep their order."""
    other = await chromium.new_page()

    async def log_in(browser):
        browser.timeout_s = SHORT_S
        for _ in range(2):
            with pytest.raises(hansard.errors.ElementNotFound, match="'pw'"):
                await browser.act("log in", at="text=Log in")
            assert await other.inner_text("#count") == "0"
        await other.evaluate("later()")
        browser.timeout_s = 3.0
        await browser.act("log in", at="text=Log in")

    async with testing.record_async() as record:
        run = await begun_run(record, page, site(FORM))
        await filled_in(record, other, site(LATE), log_in, run)
    assert await other.inner_text("#count") == "1"
    assert await other.inner_text("#sent") == "3 5"
    await other.close()


async def test_an_address_is_opened_after_what_is_done_once(page, site, chromium):
    """The address is opened as the earlier error advises; the action done once is not repeated."""
    other = await chromium.new_page()

    async def sent(browser):
        await browser.act("log in", at="text=Log in")
        if browser.page is page:
            raise InterruptedError
        with pytest.raises(hansard.errors.PageGone, match="go on with `goto`"):
            await browser.act("log in", at="text=Log in", effects="idempotent")
        await browser.goto(site(FORM))
        await browser.act("user", at="#user", method="fill", arguments=["Eve"])

    async with testing.record_async() as record:
        run = await begun_run(record, page, site(FORM), sent)
        await filled_in(record, other, site(FORM), sent, run)
    assert await other.input_value("#user") == "Eve"
    assert await other.inner_text("#count") == "0"
    await other.close()


OFFER = """<button onclick="count.textContent = +count.textContent + 1">Add insurance</button>
<p id=count>0</p><label>Name <input id=name></label>"""


async def test_an_optional_action_that_is_done_once_is_done_once(page, site):
    """This holds even if the next action fails: the optional one was not in its way."""
    async with testing.record_async() as record:
        async with record.run("go", agent="ada", role="agent") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=3.0)
            await browser.goto(site(OFFER))
            await browser.act("add it if offered", at="text=Add insurance", optional=True)
            await browser.act("name", at="#name", method="fill", arguments=["Ada"])
            run = session.run
        cache = await record.actions.of_run(run)
        assert [each.effects for each in cache.actions[1:]] == ["once", "idempotent"]
        site(OFFER.partition("<label>")[0])
        async with record.run("again", agent="ada", role="agent") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=1.0)
            result = await browser.run_actions(cache, once=[1])
    assert "entry 2 was not done" in result.error
    assert await page.inner_text("#count") == "1"


BANNERS = """<div id=over></div><label>A <input id=a oninput="if (LATE) show()"></label>
<p id=box></p><p id=count>0</p><script>
const fields = '<label>B <input id=b oninput="if (LATE) show()"></label>'
  + '<label>C <input id=c></label>'
function show() { over.innerHTML = '<button onclick="leave()">Leave</button>'; box.innerHTML = '' }
function leave() {
  over.innerHTML = ''; box.innerHTML = fields; count.textContent = +count.textContent + 1
}
if (LATE) box.innerHTML = fields
else show()
</script>"""


@pytest.mark.thorough(quick="test_an_optional_action_that_is_done_once_is_done_once")
async def test_a_banner_that_comes_late_is_left_once(page, site):
    """A banner missed in its turn is skipped once, and handled when it appears again."""
    async with testing.record_async() as record:
        async with record.run("go", agent="ada", role="agent") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=3.0)
            await browser.goto(site(BANNERS.replace("LATE", "false")))
            await browser.act("leave", at="text=Leave", optional=True)
            for field in ("a", "b", "c"):
                await browser.act(field, at=f"#{field}", method="fill", arguments=["x"])
            run = session.run
        cache = await record.actions.of_run(run)
        assert cache.actions[1].effects == "once"
        site(BANNERS.replace("LATE", "true"))
        async with record.run("again", agent="ada", role="agent") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=1.0)
            result = await browser.run_actions(cache, once=[1])
    messages = [each.message for each in result.actions[1:]]
    assert messages[:3] == ["not there", "fill done", "fill done"]
    assert messages[3].startswith("entry 4 was not done")
    assert await page.inner_text("#count") == "1"


async def clicked(chromium, url, timeout_s=10.0):
    """Return the outcome of a click of the page's only button, within a minute."""
    context = await chromium.new_context()
    async with (
        testing.record_async() as record,
        asyncio.timeout(60),
        record.run("go", agent="ada", role="agent") as session,
    ):
        browser = hansard.actions.AsyncBrowser(
            session, await context.new_page(), timeout_s=timeout_s
        )
        await browser.goto(url)
        done = await browser.act("go", at="button")
    await context.close()
    return done


@pytest.mark.thorough(
    quick="tests/actions/test_hostile_pages.py::test_an_xpath_that_runs_for_ever_ends_and_so_does_the_browser"
)
async def test_a_page_that_does_not_take_a_click_is_reported(chromium, site):
    """Before it was begun nothing was done; a script without an end leaves it in doubt."""
    with pytest.raises(hansard.errors.NotDone, match="cannot be clicked"):
        await clicked(chromium, site("<button disabled>Go</button>"), 1.0)
    with pytest.raises((hansard.HansardError, TimeoutError), match=r"did not (end|answer)"):
        await clicked(chromium, site("<button onclick='while (true);'>Go</button>"), 1.0)


@pytest.mark.thorough(quick="test_what_was_done_is_a_file_that_is_done_again")
async def test_what_fills_in_is_chosen_by_the_live_element(page, site):
    """An imported recording may not know whether a field is a list."""
    body = "<label>A <select id=a><option>x<option>y</select></label><input id=b role=combobox>"
    async with (
        testing.record_async() as record,
        record.run("fields", agent="ada", role="agent") as session,
    ):
        browser = hansard.actions.AsyncBrowser(session, page, timeout_s=2.0)
        await browser.goto(site(body))
        chosen = await browser.act("a", at="#a", method="fill", arguments=["y"])
        entered = await browser.act("b", at="#b", method="selectOption", arguments=["z"])
    assert (chosen.method, entered.method) == ("selectOption", "fill")
    assert await page.evaluate("[a.value, b.value]") == ["y", "z"]


@pytest.mark.thorough(quick="test_what_was_done_is_a_file_that_is_done_again")
async def test_a_list_in_its_label_is_one_element_whatever_is_chosen(page, site):
    """Neither its label nor its name holds an option: runs with other values do the same action."""
    body = "<label>Item <select id=a><option>tea<option>cocoa</select></label>"
    async with testing.record_async() as record:
        runs = []
        for value in ("tea", "cocoa", "tea"):
            await page.goto(site(body))
            async with record.run("order", agent="ada", role="agent") as session:
                await session.message("user", f'Item "{value}", please.')
                browser = hansard.actions.AsyncBrowser(session, page, timeout_s=2.0)
                await browser.act("choose", at="#a", method="selectOption", arguments=[value])
                runs.append(session.run)
        [node] = (await record.experiences.learn("order", runs)).procedure.nodes
    targets = node.action.targets
    assert targets is not None
    assert (targets.label, targets.name) == ("Item", "Item")
    assert node.action.arguments == ["{{item}}"]
