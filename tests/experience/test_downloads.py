"""A server's download in place of the page that the learned runs received."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_asyncio

import hansard
from hansard import testing
from tests.actions.test_kills import Form, Site

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

DOING_S_MAX = 30.0
PIECE = b"x" * 1_000


class Served(Site):
    """A form whose answer, or that itself, is a file to be kept: `what` of it is."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = _Form
        self.what = ""
        self.ended = threading.Event()


class _Form(Form):
    server: Served

    def do_GET(self) -> None:  # noqa: N802 -- http.server calls it so
        """Answer with the form."""
        if self.server.what == "the form":
            self._file(endless=False)
        else:
            super().do_GET()

    def do_POST(self) -> None:  # noqa: N802 -- http.server calls it so
        """Receive the form."""
        if not self.server.what:
            super().do_POST()
            return
        self.server.sent.append(self.rfile.read(int(self.headers["Content-Length"])))
        self._file(endless=self.server.what == "an answer without end")

    def _file(self, *, endless: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Disposition", 'attachment; filename="../../receipt.bin"')
        if not endless:
            self.send_header("Content-Length", str(len(PIECE)))
        self.end_headers()
        self.wfile.write(PIECE)
        while endless and not self.server.ended.wait(0.05):
            self.wfile.write(PIECE)


def address(site: Served) -> str:
    """Return the site's address."""
    return f"http://127.0.0.1:{site.server_port}/"


@pytest.fixture
def served() -> Iterator[Served]:
    """Serve the form."""
    site = Served()
    thread = threading.Thread(target=site.serve_forever, daemon=True)
    thread.start()
    yield site
    site.ended.set()
    site.shutdown()
    site.server_close()
    thread.join()


async def _sends(record: Any, page: Any, at: str, who: str) -> str:
    async with record.run("send", agent="host", role="host") as session:
        await session.message("user", f'Send "{who}".')
        browser = hansard.actions.AsyncBrowser(session, page, timeout_s=2.0)
        await browser.goto(at)
        await browser.act("who", at="input", method="fill", arguments=[who])
        await browser.act("send", at="text=Send")
        run: str = session.run
        return run


@pytest_asyncio.fixture(loop_scope="session")
async def learned(page: Any, served: Served) -> Any:
    """Yield a record and the experience of two runs of the form."""
    async with testing.record_async() as record:
        runs = [await _sends(record, page, address(served), who) for who in ("Ada", "Alan")]
        served.sent.clear()
        yield record, (await record.experiences.learn("send", runs)).confirmed()


@pytest.mark.thorough(
    quick="tests/actions/test_hostile_pages.py::test_a_replay_clicks_once_whatever_the_page_opens"
)
@pytest.mark.parametrize("what", ["an answer", "an answer without end", "the form"])
async def test_a_download_is_left_alone_and_reported_and_the_form_is_sent_once_at_most(
    page, served, learned, what
):
    """A file as answer leaves a done form; a file as form is an error before anything is sent."""
    record, experience = learned
    served.what = what
    began_s = time.monotonic()
    error = ""
    result: Any = None
    async with record.run("again", agent="host", role="host") as session:
        browser = hansard.actions.AsyncBrowser(session, page, timeout_s=2.0)
        try:
            result = await browser.run_experience(experience, task='Send "Barbara".', once="allow")
        except hansard.HansardError as ended:
            error = str(ended)
    assert time.monotonic() - began_s < DOING_S_MAX
    if what == "the form":
        assert served.sent == []
        assert "download" in (error or result.error).lower(), (error, result)
    else:
        assert served.sent == [b"who=Barbara"]
        assert result is not None, error
        assert result.success, result.error
        assert await page.input_value("input") == "Barbara"
    served.what = ""
    served.sent.clear()
    await _sends(record, page, address(served), "Grace")
    assert served.sent == [b"who=Grace"]
