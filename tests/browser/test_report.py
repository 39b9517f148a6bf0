"""A comparison's page in a real browser without a network."""

import io
from pathlib import Path
from uuid import UUID

import pytest
from PIL import Image

from tests.browser.support import Tabs
from tests.compare.conftest import trial
from tests.real.support import opened, write

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a comparison's page."""
    folder = tmp_path_factory.mktemp("report")
    runs = [trial(arm, task, 0) for arm in ("steady", "bold") for task in range(24)]
    write(folder / "runs.jsonl", runs)
    with opened(folder / "data") as place:
        assert place.call("import", "chat-jsonl", str(folder / "runs.jsonl")).code == 0
        made = place.call("compare", "greeting", "--format", "html", "-o", str(folder / "r.html"))
        assert made.code == 0, made.err
    return folder / "r.html"


async def test_the_pictures_are_drawn_without_a_request(tabs: Tabs, report: Path):
    """Every picture has a size, the verdict is shown, and there is no request or error."""
    page = await tabs.take()
    urls: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    await page.goto(report.as_uri())
    widths = await page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) == 3  # differences, cost against quality, task by task
    assert min(widths) > 100
    assert "bold against steady: better" in await page.inner_text("p.verdict")
    assert [url for url in urls if not url.startswith("data:")] == [report.as_uri()]
    assert messages == []
    await tabs.give_back(page)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("dark", [False, True])
async def test_plots_follow_the_colour_scheme(tabs: Tabs, report: Path, dark: bool):
    """Their ground is that of the panels, and words and lines are light on a dark one."""
    page = await tabs.take(dark=dark)
    await page.goto(report.as_uri())
    for picture in await page.locator("img").all():
        image = Image.open(io.BytesIO(await picture.screenshot())).convert("RGB")
        colours = sorted(image.getcolors(image.width * image.height) or [], reverse=True)
        assert colours[0][1] == ((23, 26, 32) if dark else (255, 255, 255))
        text = (231, 233, 238) if dark else (0, 0, 0)
        assert text in {colour for _, colour in colours}
    await tabs.give_back(page)


@pytest.mark.thorough(
    quick="tests/compare/test_compare.py::test_the_page_asks_nobody_and_links_to_files_beside_it"
)
async def test_it_is_read_in_the_dark_on_a_phone_and_without_pictures(tabs: Tabs, report: Path):
    """The page is dark on request, fits a narrow window, describes pictures and names runs."""
    page = await tabs.take(width=500, dark=True)
    await page.goto(report.as_uri())
    ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(15, 17, 21)"
    wide = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide == [500, 500]
    alts = await page.evaluate("[...document.images].map(image => image.alt)")
    assert "bold: +0.375, +0.1662 .. +0.5838" in alts[0]
    assert "bold: reward 0.875, cost 0.0315; steady: reward 0.5, cost 0.0215" in alts[1]
    assert all(len(alt) > 30 for alt in alts)
    first = await page.inner_text("h1 + p")
    assert "bold against steady: better" in first
    await page.click("summary")
    rows = await page.locator("details tr").count()
    assert rows == 1 + 24
    cells = await page.locator("details tr:nth-child(2) td").all_inner_texts()
    assert cells[0] == "t00"
    assert all(UUID(cell).version == 8 for cell in cells[-2:])
    assert cells[-2] != cells[-1]
    await tabs.give_back(page)


@pytest.mark.thorough(
    quick="tests/compare/test_compare.py::test_the_page_asks_nobody_and_links_to_files_beside_it"
)
async def test_tasks_are_filtered_by_label_and_lead_to_their_runs(tabs: Tabs, report: Path):
    """A label's value filters tasks with a count, and each run is a link."""
    page = await tabs.take()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    await page.goto(report.as_uri())
    await page.click("summary")
    assert await page.inner_text("output") == "24 of 24 rows"
    links = page.locator("details a")
    pairs = await links.evaluate_all("all => all.map(a => [a.getAttribute('href'), a.textContent])")
    assert len(pairs) == 2 * 24
    assert all(link == f"{run}.html" for link, run in pairs)
    await page.get_by_label("domain").select_option("odd")
    assert await page.inner_text("output") == "12 of 24 rows"
    shown = await page.locator("details tr:visible td:first-child").all_inner_texts()
    assert shown == [f"t{number:02}" for number in range(1, 24, 2)]
    await page.get_by_label("group").select_option("g0")  # no task is of both
    assert await page.inner_text("output") == "0 of 24 rows"
    assert messages == []
    await tabs.give_back(page)
