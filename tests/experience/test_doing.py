"""A task is done by an experience: the level taken, the checks that stop it, the fallbacks."""

import functools
import json
import time
from typing import Any

import msgspec
import pytest

import hansard
from hansard import testing
from hansard.agents.artifacts.experiences import read_folder, write_folder
from hansard.domain.errors import BadValue
from hansard.domain.experience.experience import digest
from hansard.ext.browser.replays import AsyncBrowser
from tests.experience import journeys
from tests.experience.parties import FORM, sent

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

TASK = 'Invite "Barbara" to dinner.'


async def done(record, page, address, experience, freely=None, **how):
    """Run the experience on a page that is opened again."""
    await page.goto(address)
    async with record.run("again", agent="host", role="host") as session:
        browser = hansard.actions.AsyncBrowser(session, page, timeout_s=1.0)
        if freely is not None:
            how["free"] = functools.partial(freely, browser)
        return session.run, await browser.run_experience(experience, task=TASK, once="allow", **how)


async def steps(record, run, tool):
    """Return the results of a tool's steps, in order."""
    query = "SELECT result FROM steps WHERE run = ? AND tool = ? ORDER BY step"
    rows = await record.sql(query, run, tool)
    return [json.loads(each[0]) if isinstance(each[0], str) else each[0] for each in rows.rows]


@hansard.actions.check_function("argument")
def raises(step):
    """Raises at the field."""
    return str(1 // 0) if step.method == "fill" else None


@hansard.actions.check_function("precondition")
def no_barbara(step):
    """Refuse with a reason."""
    return f"{step.params['invite']} is not invited" if step.node == "n2" else ""


@hansard.actions.check_function("invariant", name="for ever")
def loops(step):
    """Return no answer."""
    time.sleep(60)


@hansard.actions.check_function("flow")
def number(step):
    """Return an invalid answer."""
    return 7


async def test_checks_in_python_stay_in_the_workspace(taught, tmp_path):
    """A folder contains the checks' names, not their code; an unnamed check is refused."""
    experience = taught.confirmed(no_barbara, raises)
    assert experience.functions == (no_barbara, raises)
    write_folder(experience, tmp_path / "party")
    read = read_folder(tmp_path / "party")
    assert (read.functions, read.left_out_checks) == ((), ("no_barbara", "raises"))
    assert read.checks == experience.checks
    assert "`no_barbara`" in (tmp_path / "party" / "SKILL.md").read_text()
    with pytest.raises(BadValue, match="two checks are called 'flow'"):
        experience.confirmed(hansard.actions.check_function("flow", name="flow")(lambda step: None))
    with pytest.raises(BadValue, match="is no check function"):
        experience.confirmed(msgspec.structs.replace)
    with pytest.raises(BadValue, match="use precondition"):
        hansard.actions.check_function("before")  # type: ignore[arg-type]  # what is refused


async def test_what_a_check_refuses_is_not_done_and_the_next_way_is_taken(page, site, taught):
    """The notice stays, the field is filled in, and each action says its level: 1, 2 or 3."""
    async with testing.record_async() as record:
        address = site(FORM)
        experience = taught.confirmed()
        names = {each.action.instruction: each.name for each in experience.procedure.nodes}
        close = names["close the notice"]

        @hansard.actions.check_function("precondition")
        def leave_it(step):
            return step.node != close

        _, result = await done(record, page, f"{address}?notice", experience, checks=[leave_it])
        assert result.success
        assert [each.check for each in result.refusals] == ["leave_it"]
        assert [each.node for each in result.actions] == [names["enter the guest"], names["invite"]]
        assert await sent(page) == 1
        _, result = await done(record, page, address, experience)
        assert [each.level for each in result.actions] == [2, 1]
        _, result = await done(record, page, f"{address}?notice", experience)
        assert (result.success, result.level) == (True, 3)
        assert [each.level for each in result.actions] == [3, 3, 3]


async def test_a_function_goes_on_with_tools_and_is_learned_from_where_enabled(data_dir, workspace):
    """After a check stops it, the next version has the old parent and no confirmed check."""

    @hansard.actions.check_function("argument")
    def no_booking(step):
        return step.method != "book"

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        runs = [await journeys.booked(record, city) for city in ("Ulm", "Bern")]
        learnt = (await record.experiences.learn("book-a-journey", runs)).confirmed()
        tools: Any = journeys.tools()

        async def freely(guide):
            assert guide.task == journeys.TASK
            assert "no_booking: it returned False" in guide.stopped
            assert guide.done == ["search"]
            await tools["book"]("Linz")

        async with record.run("again", agent="host", role="host") as session:
            again = functools.partial(
                hansard.actions.AsyncReplays(session).run_experience,
                learnt,
                task=journeys.TASK,
                tools=tools,
                checks=[no_booking],
                learn=True,
            )
            result = await again(free=freely)
            assert (result.success, result.level, result.not_learned) == (True, 4, "")
            further = result.learned
            assert further is not None
            assert (further.version, len(further.sources), further.checks) == (2, 3, ())
            assert session.run in further.sources
            assert further.parent == digest(learnt)
            result = await again(free=lambda guide: False)
            assert (result.success, result.learned) == (False, None)
            assert "freely it was not done" in result.error


@pytest.mark.thorough(
    quick="tests/experience/test_kept.py::test_what_a_model_found_is_the_next_version_and_no_model_is_called_again"
)
async def test_a_teacher_answers_where_a_check_refuses_what_the_student_names(
    page, site, taught, data_dir, workspace
):
    """Two buttons share a name, so no recorded way is unique; each model's calls count apart."""
    twice = FORM.replace("<button>Invite</button>", "<button>Invite</button><button>Drop</button>")
    twice = twice.replace("<form", "<button type=button>Invite</button><form")

    def student(question):
        return json.dumps({"id": _line(question, "> Drop")})

    def teacher(question):
        return json.dumps({"id": _line(question, "> Invite", last=True)})

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        experience = taught.confirmed()
        changed = site(twice, "twice.html")
        models = hansard.actions.teach(teacher=teacher, student=student)
        run, result = await done(record, page, changed, experience, fallback=models)
        assert result.success, result.error
        assert result.model_calls == 2
        assert [each.kind for each in result.refusals] == ["precondition"]
        assert result.actions[-1].strategy == "model"
        assert await sent(page) == 1
        query = (
            """SELECT chosen_by, count(*) FROM model_inputs WHERE run = ? GROUP BY 1 ORDER BY 1"""
        )
        assert (await record.sql(query, run)).rows == [("teach.student", 1), ("teach.teacher", 1)]
    with pytest.raises(BadValue, match="student: None cannot be called"):
        hansard.actions.teach(teacher=teacher, student=None)  # type: ignore[arg-type]  # what is refused


def _line(question: str, says: str, *, last: bool = False) -> str:
    """Return the number of the page's line with this end."""
    lines = [each for each in question.splitlines() if each.endswith(says)]
    return lines[-1 if last else 0].split()[0]


async def test_tools_that_are_no_pages_are_called_again_under_checks(data_dir, workspace):
    """Differences between runs are slots; checks see arguments; a missing tool is named."""
    booked: list[tuple[str, int]] = []

    @hansard.tool(effects="pure")
    async def search(city: str) -> list[str]:
        return [f"a train to {city}"]

    @hansard.tool(effects="once")
    async def book(city: str, seats: int) -> str:
        booked.append((city, seats))
        return "booked"

    @hansard.actions.check_function("argument")
    def few_seats(step):
        return step.method != "book" or int(step.params["book_seats"]) < 5

    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        runs = []
        for city, seats in (("Ulm", 2), ("Bern", 3)):
            async with record.run("journey", agent="host", role="host") as session:
                await session.message("user", f'Book a journey to "{city}".')
                await search(city)
                await book(city, seats)
                runs.append(session.run)
        learnt = (await record.experiences.learn("book-a-journey", runs)).confirmed()
        assert [each.action.method for each in learnt.procedure.nodes] == ["search", "book"]
        booked.clear()
        tools: dict[str, Any] = {"search": search, "book": book}
        task = 'Book a journey to "Linz".'
        async with record.run("again", agent="host", role="host") as session:
            replays = hansard.actions.AsyncReplays(session)
            with pytest.raises(BadValue, match="calls 'book', which is not given"):
                await replays.run_experience(
                    learnt,
                    task=task,
                    params={"book_seats": "4"},
                    once="allow",
                    tools={"search": search},
                )
            result = await replays.run_experience(
                learnt,
                task=task,
                params={"book_seats": "4"},
                once="allow",
                tools=tools,
                checks=[few_seats],
            )
            assert (result.success, result.level) == (True, 2), result.error
            assert booked == [("Linz", 4)]
            result = await replays.run_experience(
                learnt,
                task=task,
                params={"book_seats": "9"},
                once="allow",
                tools=tools,
                checks=[few_seats],
            )
            assert (result.success, result.error) == (False, "few_seats: it returned False")
            assert booked == [("Linz", 4)]


_WINDOW = "window.open('about:blank'); "
_DOWNLOAD = (
    "const a = document.createElement('a'); a.download = 'x.bin'; "
    "a.href = 'data:application/octet-stream,x'; a.click(); "
)


def _when_sent(script: str) -> str:
    """Return a script of the page that runs while the form is sent."""
    return f"<script>document.forms[0].addEventListener('submit', () => {{ {script} }})</script>"


HOSTILE = {
    "a dialog": ("<script>setTimeout(() => alert('stop'), 50)</script>", True),
    "never settles": (
        "<script>setInterval(() => said.textContent = Math.random(), 10)</script>",
        True,
    ),
    "a pop-up": (_when_sent(_WINDOW), True),
    "a pop-up and a download": (_when_sent(_WINDOW + _DOWNLOAD), True),
    "covered": ("<div style='position:fixed;inset:0;z-index:9;background:#fff'></div>", False),
}


async def test_a_page_that_is_gone_ends_a_doing(page, site, taught):
    """The window is closed before the button: the error says so, and nothing is tried again."""
    async with testing.record_async() as record:
        address = site(FORM)
        experience = taught.confirmed()
        await page.goto(address)
        async with record.run("again", agent="host", role="host") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=1.0)
            await page.close()
            with pytest.raises(hansard.errors.PageGone):
                await browser.run_experience(experience, task=TASK, once="allow")


LEADS = FORM.replace("said.textContent", "location = '{address}'; said.textContent")
"""The form, whose button leads to another page."""


async def test_what_leads_to_another_host_is_no_success(page, site, taught):
    """An invariant is checked on the page to which an action led, not on the previous one."""

    async def other_host(route):
        await route.fulfill(body="<title>x</title>", content_type="text/html")

    await page.route("https://elsewhere.example/**", other_host)
    async with testing.record_async() as record:
        address = site(LEADS.replace("{address}", "https://elsewhere.example/x"))
        _, result = await done(record, page, address, taught.confirmed())
    assert page.url == "https://elsewhere.example/x"
    assert not result.success
    assert result.failure is not None
    assert (result.failure.kind, result.failure.check) == ("invariant", "at a file")
    assert "'elsewhere.example'" in result.failure.why


async def test_checks_after_an_action_and_at_the_end_see_where_it_led(page, site, taught):
    """Such a check gets no element, since the element may be gone."""
    seen = []

    @hansard.actions.check_function("postcondition")
    def thanked(step):
        seen.append((step.url.rpartition("/")[2], step.element, step.matches))
        return step.method == "fill" or step.url.endswith("/thanks.html")

    @hansard.actions.check_function("complete")
    def at_thanks(step):
        return step.url.endswith("/thanks.html")

    async with testing.record_async() as record:
        address = site(LEADS.replace("{address}", site("<p>Thanks", "thanks.html")))
        experience = taught.confirmed()
        _, result = await done(record, page, address, experience, checks=[thanked, at_thanks])
        assert result.success, result.error
        assert seen == [("page.html", None, 0), ("thanks.html", None, 0)]
        _, result = await done(record, page, site(FORM), experience, checks=[at_thanks])
        assert result.failure is not None
        assert result.failure.check == "at_thanks"


async def test_a_doing_of_a_record_that_does_not_say_where_actions_led_goes_on(
    page, site, taught, monkeypatch
):
    """A record without the addresses that actions led to is resumed with its recorded answers."""
    act = AsyncBrowser._act

    async def before(self, **arguments):
        answer = await act(self, **arguments)
        del answer["url"]
        return answer

    async with testing.record_async() as record:
        experience = taught.confirmed()

        async def work(run=None):
            await page.goto(site(FORM))
            async with record.run("again", agent="host", role="host", run=run) as session:
                browser = hansard.actions.AsyncBrowser(session, page, timeout_s=1.0)
                results.append(await browser.run_experience(experience, task=TASK, once="allow"))
                if run is None:
                    raise InterruptedError

        results: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(AsyncBrowser, "_act", before)
            with pytest.raises(InterruptedError):
                await work()
        assert await sent(page) == 1
        [(run, _)] = await record.runs()
        steps_before = (await record.state(run)).agents["host"].steps
        assert b'"url"' not in b"".join(
            bytes(each.result)
            for each in steps_before.values()
            if each.tool.startswith("browser.act")
        )
        await work(run)
        assert await sent(page) == 0
        assert (await record.state(run)).agents["host"].steps == steps_before
        assert [each.success for each in results] == [True, True]


@pytest.mark.thorough(quick="test_tools_that_are_no_pages_are_called_again_under_checks")
async def test_a_check_in_python_stops_before_the_effect_by_its_name(
    page, site, taught, data_dir, workspace
):
    """A check stops the action if it raises, refuses, or gives no valid answer."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        address = site(FORM)
        experience = taught.confirmed()
        for check, why in (
            (raises, "it raised ZeroDivisionError"),
            (no_barbara, "Barbara is not invited"),
            (loops, "it gave no answer within 1 s"),
            (number, "it returned a int, not a text"),
        ):
            run, result = await done(record, page, address, experience, checks=[check])
            assert not result.success
            assert (result.failure.check, result.failure.kind) == (check.name, check.kind)
            assert why in result.failure.why
            assert await sent(page) == 0
            checked = await steps(record, run, "experience.checks")
            assert checked[-1]["failure"]["check"] == check.name
            assert checked[-1]["asked"][-1] == {"check": check.name, "kind": check.kind}
