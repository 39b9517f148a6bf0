"""A recording of Chrome DevTools' Recorder, imported, is done again in a browser."""

import json

import pytest

import hansard
from hansard import testing
from hansard.agents.exchange.files import Bad
from hansard.ext.importers.chat import ImportDefaults
from hansard.ext.importers.reader import Importer
from tests.importers.test_devtools import whole

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

FORM = """<form onsubmit="event.preventDefault();
said.textContent = guest.value + pin.value.length + day.value">
<label>Guest <input id=guest></label> <input id=pin type=password aria-label=Password>
<label>Day <select id=day><option>Mon<option>Tue</select></label> <button>Invite</button></form>
<p id=said></p>"""


class Quiet:
    def read(self, count: int) -> None:
        """Mark the message as read."""

    def bad(self, bad: Bad) -> None:
        """Fail: no message is bad."""
        raise AssertionError(bad)


@pytest.mark.thorough(
    quick="tests/actions/test_browser.py::test_what_was_done_is_a_file_that_is_done_again"
)
async def test_a_recording_is_done_again(page, site, tmp_path):
    """Replay uses recorded elements, takes the password by name and checks awaited text."""
    file = tmp_path / "flow.json"
    file.write_text(json.dumps(whole(site(FORM))))
    async with testing.record_async() as record:
        async with Importer(record.workspace, "devtools", ImportDefaults(), Quiet()) as importer:
            await importer.take(file)
        [(run, _)] = await record.runs()
        cache = await record.actions.of_run(run)
        secrets = {"password": "swordfish"}
        async with record.run("again", agent="ada", role="agent", secrets=secrets) as session:
            browser = hansard.actions.AsyncBrowser(session, page, timeout_s=5.0)
            result = await browser.run_actions(cache, once="allow", debug=True)
    assert result.success, result.error
    assert (result.model_calls, await page.inner_text("#said")) == (0, "Ada9Tue")
    assert [each.strategy for each in result.actions[1:]] == ["xpath", *["css"] * 4]
