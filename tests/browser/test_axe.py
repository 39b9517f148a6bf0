"""Pages and reports have no violation of the accessibility rules of axe-core."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page

import hansard
from tests.browser.shared_runs import small_team
from tests.browser.support import Pages
from tests.cli.support import Runs, team
from tests.conftest import THOROUGH
from tests.real.support import WORKSPACE, opened

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

INSTALL_S_MAX = 60
PANELS = ("trace", "chat", "detail", "state", "board", "tasks")
WINDOWS = ((1440, 900), (390, 844))
"""Sizes of a window in pixels: a desk and a phone."""

RULES = """async (within) => {
  const { violations } = await axe.run(within || document, { resultTypes: ["violations"] });
  return violations.map((each) => [each.id, each.nodes.map((node) => node.html)]);
}"""


@pytest.fixture(scope="module")
def axe() -> str:
    """Return the script of axe-core in npm's lock file; or skip."""
    return _installed_axe()


@functools.cache
def _installed_axe() -> str:
    """Install axe-core once, for all files that use the fixture."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: the accessibility rules were not checked")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(Path(__file__).with_name("axe"), folder, dirs_exist_ok=True)
        install = (npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
        done = subprocess.run(
            install, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:]
            pytest.skip(f"npm could not install axe-core, so its rules were not checked: {last}")
        return Path(folder, "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shared(record: hansard.Record) -> str:
    """Return a run whose agents share a board, tasks and messages."""
    return small_team(record, "of-axe")


@pytest.fixture(scope="module")
def decision(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a decision."""
    folder = tmp_path_factory.mktemp("report")
    with opened(folder / "data") as place:
        with hansard.connect(workspace=WORKSPACE, data_dir=folder / "data") as record:
            team(record)
        made = place.call("why", "last", "--html", str(folder / "why.html"))
        assert made.code == 0, made.err
    return folder / "why.html"


async def checked(page: Page, axe: str, within: str = "") -> list[Any]:
    """Return the rules that the current page, or an element of it, breaks, with what breaks them.

    In a thorough run always of the whole page.
    """
    await page.evaluate(f"typeof axe === 'undefined' && (() => {{ {axe}\n }}).call(window)")
    violations: list[Any] = await page.evaluate(RULES, "" if THOROUGH else within)
    return violations


@pytest.mark.thorough(quick="web/test_axe_views.py::test_some_views_break_no_rule")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("window", WINDOWS, ids=["desk", "phone"])
async def test_a_page_and_a_decision_break_no_rule(
    chromium: Browser,
    axe: str,
    pages: Pages,
    runs: Runs,
    shared: str,
    decision: Path,
    dark: bool,
    window: tuple[int, int],
):
    """Pages of completed, failed and doubtful runs, a team and a decision pass."""
    width, height = window
    context = await chromium.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        bypass_csp=True,  # else the page refuses the checker's script
        offline=True,
    )
    page = await context.new_page()
    for run in (runs.team, runs.failed, runs.doubt, runs.settled, shared):
        await page.goto((await pages.of(run)).as_uri())
        await page.wait_for_selector("html[data-point]")
        for panel in PANELS if run == shared else PANELS[:1]:
            tab = page.locator(f"[role=tab][aria-controls={panel}]:visible")
            if await tab.count():
                await tab.click()
            within = "" if panel == PANELS[0] else f"#{panel}"
            assert await checked(page, axe, within) == [], (run, panel)
    await page.goto(decision.as_uri())
    assert await checked(page, axe) == []
    if await page.locator("summary").count():
        await page.locator("summary").first.click()
        assert await checked(page, axe) == []
    await context.close()
