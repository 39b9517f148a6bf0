"""Scripts of a cache run with playwright alone, and end where the replay ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.domain.actions.cache import ActionCheck
from hansard.inspect.action_scripts import ScriptFormat, script
from hansard.integrations.browser.chromium import program
from tests.actions.test_cache import cache, entry

RUN_S_MAX = 120
PAGE = """<!doctype html><form onsubmit="event.preventDefault(); said.textContent =
who.value + ' ' + pw.value.length"><input id=who><input id=pw type=password>
<button>Send</button></form><p id=said></p>"""


def said(address: str) -> tuple[bytes, bytes]:
    """A cache whose check holds for Ada and a secret of seven letters."""
    goto = entry(0, action_type="goToUrl", method=None, arguments=[address], xpath=None)
    who = entry(1, arguments=["{{who}}"])
    password = entry(2, xpath="/html[1]/body[1]/form[1]/input[2]", arguments=[{"$secret": "pw"}])
    check = ActionCheck(kind="text", value="Ada 7", xpath="/html[1]/body[1]/p[1]")
    button = "/html[1]/body[1]/form[1]/button[1]"
    send = entry(3, xpath=button, method="click", arguments=[], checks=[check])
    made = cache(goto, who, password, send, slots=["who"])
    return script(made, ScriptFormat.PYTEST), script(made, ScriptFormat.PLAYWRIGHT_PY)


@pytest.mark.slow
def test_a_script_is_green_and_red_where_what_it_checks_is_not_so(tmp_path: Path):
    """As a program its slots are arguments, as a test variables; a secret is a variable of both."""
    found = program()
    if found is None:
        pytest.skip("no chromium or google-chrome on PATH, and HANSARD_BROWSER is not set")
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    test, alone = said(page.as_uri())
    (tmp_path / "test_made.py").write_bytes(test)
    (tmp_path / "made.py").write_bytes(alone)
    given = {**os.environ, "BROWSER": found, "SECRET_PW": "hunter2", "SLOT_who": "Ada"}

    def code(*command: str) -> int:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=given,
            capture_output=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        return done.returncode

    as_test = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_made.py")
    assert code("made.py", "--who", "Ada") == 0
    assert code(*as_test) == 0
    assert code("made.py", "--who", "Eve") != 0
    page.write_text(PAGE.replace("who.value +", "'nobody' +"))
    assert code(*as_test) == 1
