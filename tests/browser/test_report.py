"""A comparison's page in a real browser without a network."""

from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.compare.conftest import trial
from tests.real.support import opened, write

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison's page."""
    folder = tmp_path_factory.mktemp("report")
    runs = [trial(arm, task, 0) for arm in ("steady", "bold") for task in range(24)]
    write(folder / "runs.jsonl", runs)
    with opened(folder / "data") as place:
        assert place.call("import", "chat-jsonl", str(folder / "runs.jsonl")).code == 0
        made = place.call("compare", "greeting", "--format", "html", "-o", str(folder / "r.html"))
        assert made.code == 0, made.err
    return folder / "r.html"


async def test_the_pictures_are_drawn_and_nobody_is_asked(chromium: Browser, report: Path):
    """Every picture has a size, the verdict stands there, no request, no complaint."""
    context = await chromium.new_context(offline=True)
    page = await context.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    await page.goto(report.as_uri())
    widths = await page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) == 2
    assert min(widths) > 100
    assert "bold against steady: better" in await page.inner_text("p.verdict")
    assert [url for url in asked if not url.startswith("data:")] == [report.as_uri()]
    assert said == []
    await context.close()
