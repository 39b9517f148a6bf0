"""Demonstrations: a person's actions in a window are a run, replayed as any other."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Error, async_playwright

import hansard
from benchmarks import bench_page
from hansard import testing
from hansard.domain.actions import ActionCache
from hansard.ext.browser.chromium import program
from hansard.ext.browser.demonstrate import ARGUMENTS, DemonstratedEnd, demonstrated
from tests.integrations.mcp.support import free_port

RUN_S_MAX = 90
QUICK = "tests/actions/test_demonstrate.py::test_what_a_person_does_is_done_again"

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

FORM = """<form onsubmit="event.preventDefault();
said.textContent = [guest.value, pin.value.length, day.value, vip.checked].join(' ')">
<label>Guest <input id=guest></label> <label>Pin <input id=pin name=pin type=password></label>
<span onclick="pin.type = 'text'">Show it</span>
<label>Day <select id=day><option value=1>Mon<option value=2>Tue</select></label>
<label><input type=checkbox id=vip> VIP</label> <button><b>In</b>vite</button></form><p id=said></p>
<guest-list></guest-list><iframe srcdoc="<button onclick='this.textContent=`Done`'>Inner</button>">
</iframe><script>customElements.define("guest-list", class extends HTMLElement {
connectedCallback() {
const root = this.attachShadow({mode: "open"}); root.innerHTML = "<button>More</button>";
root.firstChild.onclick = () => root.append("more"); } });</script>"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def named_browser() -> Any:
    """Start a browser that reports the role and the name of an element."""
    executable = program()
    if executable is None:
        pytest.skip("no chromium or google-chrome on PATH, and HANSARD_BROWSER is not set")
    async with async_playwright() as player:
        arguments = [*bench_page.ARGUMENTS, *ARGUMENTS]
        opened = await player.chromium.launch(executable_path=executable, args=arguments)
        yield opened
        await opened.close()


async def shown(
    record: Any, browser: Browser, address: str, does: Any
) -> tuple[DemonstratedEnd, ActionCache]:
    """Return the end and the action cache of what a person does to a page."""
    ended = asyncio.Event()
    page = await (await browser.new_context()).new_page()
    async with record.run("shown", agent="person", role="person", secrets=lambda _: "-") as session:
        task = asyncio.create_task(demonstrated(session, page, address, ended))
        await page.wait_for_url(lambda url: url != "about:blank")
        await page.wait_for_load_state()
        await does(page)
        ended.set()
        end = await task
    await page.context.close()
    return end, await record.actions.of_run(end.run)


def actions_of(cache: ActionCache) -> list[tuple[str | None, list[Any], str]]:
    """Return each action's method, arguments and element name."""
    return [
        (each.method, each.arguments, each.targets.name if each.targets else "")
        for each in cache.actions
    ]


async def test_what_a_person_does_is_done_again(named_browser, site):
    """Texts, choices, clicks in frames and shadow roots are replayed; a password only by name."""

    async def fills_in(page: Any) -> None:
        await page.click("#guest")
        await page.keyboard.type("Adx")
        await page.keyboard.press("Backspace")
        await page.keyboard.type("a")
        await page.keyboard.press("Tab")
        await page.keyboard.type("swordfish")
        await page.keyboard.press("Tab")
        await page.keyboard.press("ArrowDown")
        await page.click("text=VIP")
        await page.click("b")
        await page.click("guest-list button")
        await page.frame_locator("iframe").get_by_role("button").click()
        await asyncio.sleep(0.5)

    async with testing.record_async() as record:
        end, cache = await shown(record, named_browser, site(FORM), fills_in)
        assert (end.actions, end.secrets, end.unrecorded) == (8, ["pin"], [])
        assert actions_of(cache)[1:] == [
            ("fill", ["Ada"], "Guest"), ("fill", [{"$secret": "pin"}], "Pin"),
            ("selectOption", ["Tue"], "Day"), ("check", [], "VIP"), ("click", [], "Invite"),
            ("click", [], "More"), ("click", [], "Inner"),
        ]  # fmt: skip
        assert [each.frame_index for each in cache.actions[1:]] == [0] * 6 + [1]
        assert cache.final_state.success
        everything = repr(await record.workspace.log.read_run(end.run))
        assert "Ada" in everything
        assert "swordfish" not in everything
        page = await (await named_browser.new_context()).new_page()
        async with record.run(
            "again", agent="ada", role="agent", secrets={"pin": "swordfish"}
        ) as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=5.0)
            done = await browser.run_actions(cache, once="allow")
        assert done.success, done.error
        assert {each.strategy for each in done.actions[1:]} <= {"xpath", "css"}
        assert await page.inner_text("#said") == "Ada 9 2 true"
        assert await page.frame_locator("iframe").get_by_role("button").inner_text() == "Done"
        await page.context.close()


@pytest.mark.thorough(quick=QUICK)
async def test_keys_and_addresses_of_a_person_are_actions(named_browser, site):
    """Enter submits once, a double click is one action, and only typed addresses count."""
    other = site("<h1>Other</h1>", "other.html")
    page_ = site(
        f"<form action={other}><input aria-label=Find name=q></form>"
        f"<button ondblclick='this.textContent=1'>Twice</button><a href={other}>On</a>"
    )

    async def moves(page: Any) -> None:
        await page.dblclick("text=Twice")
        await page.click("input")
        await page.keyboard.type("whales")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/other.html*")
        await page.goto(page_)
        await page.click("text=On")
        await page.wait_for_url("**/other.html")
        await asyncio.sleep(0.5)

    async with testing.record_async() as record:
        end, cache = await shown(record, named_browser, page_, moves)
        assert end.unrecorded == []
        assert [each.method or each.action_type for each in cache.actions] == [
            "goToUrl", "dblclick", "fill", "press", "goToUrl", "click",
        ]  # fmt: skip
        assert (cache.actions[3].arguments, cache.actions[4].arguments) == (["Enter"], [page_])
        assert cache.actions[5].changed == "address"


@pytest.mark.thorough(quick=QUICK)
async def test_what_several_demonstrations_teach_is_done_for_another(named_browser, site):
    """Each demonstration does its task once; differences become slots, and the checks hold."""
    page_ = site(FORM)

    def invites(guest: str) -> Any:
        async def does(page: Any) -> None:
            await page.click("#guest")
            await page.keyboard.type(guest)
            await page.click("text=VIP")
            await page.click("b")
            await asyncio.sleep(0.5)

        return does

    async with testing.record_async() as record:
        runs: dict[str, str] = {}
        for guest in ("Ada", "Alan", "Grace"):
            end, _ = await shown(record, named_browser, page_, invites(guest))
            runs[end.run] = f'Invite "{guest}" to dinner.'
        experience = await record.experiences.learn("invite", list(runs), tasks=runs)
        assert not experience.left_out
        page = await (await named_browser.new_context()).new_page()
        async with record.run("again", agent="ada", role="agent") as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=5.0)
            await page.goto(page_)
            done = await browser.run_experience(
                experience.confirmed(), task='Invite "Barbara" to dinner.', once="allow"
            )
        assert done.success, done
        assert await page.inner_text("#said") == "Barbara 0 1 true"
        await page.context.close()


@pytest.mark.thorough(quick=QUICK)
async def test_a_password_that_is_shown_before_it_is_typed_stays_one(named_browser, site):
    """A field that held a password at first stays one. A dialog is left to the person."""

    async def shows(page: Any) -> None:
        await page.click("text=Show it")
        await page.click("#pin")
        await page.keyboard.type("swordfish")
        await page.click("text=Guest")
        page.once("dialog", lambda dialog: asyncio.create_task(dialog.accept()))
        await page.evaluate("alert('hello')")

    async with testing.record_async() as record:
        end, cache = await shown(record, named_browser, site(FORM), shows)
        assert end.unrecorded == ["the answer to a dialog"]
        assert actions_of(cache)[2] == ("fill", [{"$secret": "pin"}], "Pin")
        assert "swordfish" not in repr(await record.workspace.log.read_run(end.run))


@pytest.mark.thorough(quick=QUICK)
async def test_what_cannot_be_recorded_ends_it(named_browser, site):
    """The gate's error ends the demonstration, so that no action goes unrecorded."""
    page = await (await named_browser.new_context()).new_page()

    async def does(record: Any) -> None:
        gate = [hansard.budget("few", 2, tool="browser.*")]
        async with record.run("shown", agent="person", role="person", gate=gate) as session:
            doing = asyncio.create_task(demonstrated(session, page, site(FORM), asyncio.Event()))
            await page.wait_for_url(lambda url: url != "about:blank")
            for _ in range(3):
                await page.click("b")
                await asyncio.sleep(0.5)
            await doing

    async with testing.record_async() as record:
        with pytest.raises(hansard.HansardError, match="few"):
            await does(record)
    await page.context.close()


@pytest.mark.thorough(quick=QUICK)
async def test_what_no_person_did_is_no_action(named_browser, site):
    """A page's own actions are left out, and a window that it opened is reported."""
    page_ = site(
        "<input><button onclick='window.open(`about:blank`)'>Open</button><script>"
        "for (const name of Object.getOwnPropertyNames(globalThis)) if (/hansard/.test(name))"
        " globalThis[name]({method: 'click', element: {}});"
        "document.querySelector('button').addEventListener('click', () => {"
        "document.querySelector('input').click(); document.querySelector('input').value = 'x' })"
        "</script>"
    )

    async def opens(page: Any) -> None:
        await page.click("button")
        await asyncio.sleep(0.6)

    async with testing.record_async() as record:
        end, cache = await shown(record, named_browser, page_, opens)
        assert [each.method for each in cache.actions] == [None, "click"]
        assert end.unrecorded == ["what was done in other windows"]


# ------------------------------------------------------------ in a window


@pytest.fixture(scope="module")
def display(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a display of Xvfb."""
    xvfb = shutil.which("Xvfb")
    if xvfb is None:
        pytest.skip("Xvfb is not installed: no window was opened (make browser installs it)")
    number = tmp_path_factory.mktemp("display") / "number"
    with number.open("w") as file:
        command = [xvfb, "-displayfd", str(file.fileno()), "-screen", "0", "1280x900x24"]
        server = subprocess.Popen(
            [*command, "-nolisten", "tcp"], pass_fds=[file.fileno()], stderr=subprocess.DEVNULL
        )
    deadline = time.monotonic() + RUN_S_MAX
    while not number.read_text().endswith("\n"):
        assert server.poll() is None, "Xvfb ended"
        assert time.monotonic() < deadline, "Xvfb does not begin"
        time.sleep(0.02)
    yield f":{number.read_text().strip()}"
    server.terminate()
    server.wait()


class Window:
    """`hansard demonstrate` in a process of its own, with the user of its window."""

    def __init__(self, data_dir: Path, workspace: str, folder: Path, display: str) -> None:
        executable = program(window=True)
        if executable is None:
            pytest.skip("no chromium or google-chrome on PATH, and HANSARD_BROWSER is not set")
        self.port = free_port()
        browser = folder / "browser"
        arguments = " ".join((*bench_page.ARGUMENTS, f"--remote-debugging-port={self.port}"))
        browser.write_text(f'#!/bin/sh\nexec "{executable}" {arguments} "$@"\n')
        browser.chmod(0o755)
        self._env = {**os.environ, "DISPLAY": display, "HANSARD_BROWSER": str(browser)}
        self._program = [sys.executable, "-m", "hansard", "--data-dir", str(data_dir)]
        self._program += ["-w", workspace, "demonstrate", "--json", "--task", "Invite Ada."]

    async def used(self, address: str, does: Callable[[Any], Awaitable[None]]) -> Any:
        """Return the outcome of the program when its window is used and then ended."""
        process = await asyncio.create_subprocess_exec(
            *self._program,
            address,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        async with asyncio.timeout(RUN_S_MAX), async_playwright() as player:
            page = await self._page(player, process)
            await page.click("#guest")
            await page.keyboard.type("Ada")
            await page.keyboard.press("Tab")
            await page.keyboard.type("swordfish")
            await page.click("b")
            await asyncio.sleep(1.0)  # the click is no double click, and is on record
            await does((process, page))
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def _page(self, player: Any, process: Any) -> Any:
        while True:
            assert process.returncode is None, (await process.stderr.read()).decode()
            try:
                browser = await player.chromium.connect_over_cdp(f"http://127.0.0.1:{self.port}")
            except Error:
                await asyncio.sleep(0.1)
                continue
            pages = [page for each in browser.contexts for page in each.pages]
            if pages and await pages[-1].locator("#guest").count():
                return pages[-1]
            await browser.close()
            await asyncio.sleep(0.1)


async def closes(window: Any) -> None:
    """Close the window, as a person."""
    await window[1].close()


async def interrupts(window: Any) -> None:
    """Press Ctrl-C, as a person; it reaches all of the program's processes."""
    os.killpg(window[0].pid, signal.SIGINT)


async def kills(window: Any) -> None:
    """Something kills the program."""
    window[0].kill()


@pytest.mark.thorough(quick="test_what_a_person_does_is_done_again")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "ends",
    [kills, *(pytest.param(each, marks=pytest.mark.thorough) for each in (closes, interrupts))],
    ids=lambda each: each.__name__,
)
async def test_a_window_s_demonstration_is_on_record_however_it_ends(
    display, site, data_dir, workspace, tmp_path, ends
):
    """After a close, interrupt or kill the actions are on record, without the password."""
    window = Window(data_dir, workspace, tmp_path, display)
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        code, out, err = await window.used(site(FORM), ends)
        [(run, life)] = await record.runs()
        cache = await record.actions.of_run(run)
        assert actions_of(cache)[1:] == [
            ("fill", ["Ada"], "Guest"), ("fill", [{"$secret": "pin"}], "Pin"),
            ("click", [], "Invite"),
        ], err  # fmt: skip
        if ends is not kills:
            assert (code, life.status.value) == (0, "completed"), err
            report = msgspec.json.decode(out)
            assert (report["run"], report["actions"], report["secrets"]) == (run, 4, ["pin"])
        assert "swordfish" not in repr(await record.workspace.log.read_run(run)) + out + err
