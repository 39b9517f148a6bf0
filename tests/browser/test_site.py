"""The site that `make docs` builds, in a browser whose network is cut."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.async_api import Request

from tests import site_pages

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md", "README.zh-CN.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs",
    "examples",
)  # fmt: skip
NARROW = 400  # pixels: a telephone
LOOKED_AT = (
    "index", "docs/sql", "docs/cli", "docs/team", "docs/reference/errors", "docs/reference/team",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site, as `make docs` builds it."""
    home = tmp_path_factory.mktemp("site")
    pages = home / "build" / "pages"
    for name in PAGES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, pages / name)
        else:
            pages.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, pages / name)
    site_pages.main(pages / "docs")
    config = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    config = config.replace('paths = ["src"]', f'paths = ["{ROOT / "src"}"]')
    config = config.replace('["docs/sync_methods.py"]', f'["{ROOT / "docs/sync_methods.py"}"]')
    (home / "zensical.toml").write_text(config, encoding="utf-8")
    command = [str(Path(sys.executable).parent / "zensical"), "build", "--strict"]
    subprocess.run(command, cwd=home, check=True, timeout=500)
    return home / "site"


@pytest.mark.timeout(600)
@pytest.mark.asyncio(loop_scope="session")
async def test_the_site_asks_nobody_for_anything_and_fits_a_telephone(site, chromium):
    """A page loads only its own files and fits a narrow screen."""
    urls: list[str] = []

    def note(request: Request) -> None:
        urls.append(request.url)

    context = await chromium.new_context(viewport={"width": NARROW, "height": 800}, offline=True)
    page = await context.new_page()
    page.on("request", note)
    for name in LOOKED_AT:
        await page.goto((site / f"{name}.html").as_uri())
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= NARROW, name
    assert not [url for url in urls if re.match(r"(https?|wss?):", url)]
    await context.close()


@pytest.mark.timeout(600)
def test_no_page_names_a_file_of_another_host(site: Path) -> None:
    """Styles, scripts, fonts and pictures are the site's own; only links lead elsewhere."""
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = path.read_text(encoding="utf-8")
        links = re.findall(r"""(?:src=|url\(|<link[^>]*href=)["']?(?:https?:)?//[^"')]+""", text)
        assert not links, path.relative_to(site)


class Names(HTMLParser):
    """Collects the links and the table headings of a page that have no text."""

    def __init__(self) -> None:
        super().__init__()
        self.nameless: list[str] = []
        self._open: dict[str, tuple[str, str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a link or a heading, or take the text of a picture in one."""
        values = dict(attrs)
        name = values.get("title") or values.get("aria-label") or values.get("alt") or ""
        if tag == "th" or (tag == "a" and "href" in values):
            self._open[tag] = (values.get("href") or tag, name)
        elif tag == "img":
            self.handle_data(name)

    def handle_data(self, data: str) -> None:
        """Add text to the open element."""
        self._open = {tag: (key, name + data) for tag, (key, name) in self._open.items()}

    def handle_endtag(self, tag: str) -> None:
        """Note a link or a heading that ended without text."""
        key, name = self._open.pop(tag, ("", tag))
        if not name.strip():
            self.nameless.append(key)


@pytest.mark.timeout(600)
def test_links_and_table_headings_have_names(site: Path) -> None:
    """A screen reader can name each link's target and each column."""
    nameless = {}
    for path in site.rglob("*.html"):
        page = Names()
        page.feed(path.read_text(encoding="utf-8"))
        if page.nameless:
            nameless[str(path.relative_to(site))] = page.nameless[:5]
    assert not nameless
