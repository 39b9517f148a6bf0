"""Scripts of a cache run with playwright alone, and end where the replay ends."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

import hansard
from hansard import testing
from hansard.domain.actions import ActionCache, ActionCheck
from hansard.ext.browser.chromium import program
from hansard.ext.browser.scripts import ScriptFormat, script
from tests.actions import task_pages
from tests.actions.test_cache import cache, entry

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
INSTALL_S_MAX = 300

RUN_S_MAX = 120
PAGE = """<!doctype html><form onsubmit="event.preventDefault(); said.textContent =
who.value + ' ' + pw.value.length"><input id=who><input id=pw type=password>
<button>Send</button></form><p id=said></p>"""


def scripts_of(address: str) -> tuple[bytes, bytes]:
    """Return a cache whose check holds for Ada and a secret of seven letters."""
    goto = entry(0, action_type="goToUrl", method=None, arguments=[address], xpath=None)
    who = entry(1, arguments=["{{who}}"])
    password = entry(2, xpath="/html[1]/body[1]/form[1]/input[2]", arguments=[{"$secret": "pw"}])
    check = ActionCheck(kind="text", value="Ada 7", xpath="/html[1]/body[1]/p[1]")
    button = "/html[1]/body[1]/form[1]/button[1]"
    send = entry(3, xpath=button, method="click", arguments=[], checks=[check])
    made = cache(goto, who, password, send, slots=["who"])
    return script(made, ScriptFormat.PYTEST), script(made, ScriptFormat.PLAYWRIGHT_PY)


def ended(folder: Path, *command: str) -> subprocess.CompletedProcess[bytes]:
    """Run Python in a folder, with the browser and the values of a script."""
    executable = program()
    if executable is None:
        pytest.skip("no chromium or google-chrome on PATH, and HANSARD_BROWSER is not set")
    variables = {**os.environ, "BROWSER": executable, "SECRET_PW": "hunter2", "SLOT_who": "Ada"}
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # it takes no plugin, and some take seconds
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=variables,
        capture_output=True,
        timeout=RUN_S_MAX,
        check=False,
    )


def test_a_script_is_green_and_red_where_what_it_checks_is_not_so(tmp_path: Path):
    """A script run as a program takes slots as arguments and a secret as a variable."""
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    (tmp_path / "made.py").write_bytes(scripts_of(page.as_uri())[1])
    assert ended(tmp_path, "made.py", "--who", "Ada").returncode == 0
    assert ended(tmp_path, "made.py", "--who", "Eve").returncode != 0


class Workflow(msgspec.Struct):
    """A recording of a page, and the page's report to the server at its end."""

    page: str
    cache: ActionCache
    end: str


WORKFLOWS = {
    "plain": "Left: 1",
    "shadow": "1 to do",
    "react": "1 item left",
    "vue": "1 of 2 open",
    "preact": "1",
    "svelte": "1 remaining",
    "lit": "1 left",
}
"""Text of each page at the end."""


@pytest.fixture(scope="module")
def reports() -> list[str]:
    """Return the reports of the pages."""
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the pages, which a test may break."""
    return task_pages.built(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def here(folder: Path, reports: list[str]) -> Iterator[str]:
    """Serve the pages and yield their address."""
    with task_pages.served(folder, reports) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def workflows(chromium: Any, here: str, reports: list[str]) -> list[Workflow]:
    """Return each page's recorded workflow, with its address as a slot."""
    made: list[Workflow] = []
    async with testing.record_async() as record:
        for name, says in WORKFLOWS.items():
            context = await chromium.new_context()
            page = await context.new_page()
            address = f"{here}/{name}.html"
            async with record.run("tasks", agent="ada", role="agent") as session:
                await task_pages.worked(
                    hansard.actions.AsyncBrowser(session, page, timeout_s=5.0), address, says
                )
                run = session.run
            await task_pages.shows(page, task_pages.END)
            await context.close()
            recorded = await record.actions.of_run(run, params={"address": address})
            made.append(Workflow(name, recorded, reports[-1]))
    return made


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fresh environment with playwright and pytest alone."""
    room, locked = tmp_path_factory.mktemp("alone"), ("-r", str(HERE / "scripts.txt"))
    for command in (
        [sys.executable, "-m", "venv", "venv"],
        ["venv/bin/python", "-m", "pip", "install", "--quiet", "--require-hashes", *locked],
    ):
        subprocess.run(command, cwd=room, check=True, capture_output=True, timeout=INSTALL_S_MAX)
    return room / "venv/bin/python"


def ran(command: list[str], where: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment with a browser and without Hansard."""
    executable = program()
    assert executable is not None
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(where),
        "BROWSER": executable,
        **variables,
    }
    return subprocess.run(
        command,
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )


@pytest.mark.thorough(quick="test_a_script_is_green_and_red_where_what_it_checks_is_not_so")
@pytest.mark.timeout(900)
def test_scripts_of_each_workflow_end_equal_in_a_fresh_environment(
    workflows: list[Workflow], python: Path, here: str, folder: Path, reports: list[str], tmp_path
):
    """Scripts end equal as a program and as a test; on a broken page the test fails."""
    for work in workflows:
        address = f"{here}/{work.page}.html"
        alone = tmp_path / f"{work.page}.py"
        alone.write_bytes(script(work.cache, ScriptFormat.PLAYWRIGHT_PY))
        test = tmp_path / f"test_{work.page}.py"
        test.write_bytes(script(work.cache, ScriptFormat.PYTEST))
        as_test = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", test.name]
        for command in ([str(python), alone.name, "--address", address], as_test):
            reports.clear()
            done = ran(command, tmp_path, SLOT_address=address)
            assert done.returncode == 0, done.stdout + done.stderr
            assert reports[-1] == work.end
        page = folder / f"{work.page}.html"
        before = page.read_text()
        page.write_text(before.replace("<meta", task_pages.BROKEN + "<meta", 1))
        broken = ran(as_test, tmp_path, SLOT_address=address)
        page.write_text(before)
        assert broken.returncode == 1, broken.stdout
        assert "1 failed" in broken.stdout


@pytest.mark.thorough(quick="actions/test_scripts.py::test_equal_caches_are_equal_bytes")
@pytest.mark.timeout(900)
def test_scripts_in_typescript_are_compiled_and_end_equal(workflows, here, reports, tmp_path):
    """By the strict compiler, without a word from it."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm or node is not installed: no script in TypeScript was compiled")
    for each in (HERE / "typescript").iterdir():
        shutil.copy(each, tmp_path)
    install = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(install, cwd=tmp_path, check=True, capture_output=True, timeout=INSTALL_S_MAX)
    for work in workflows:
        made = script(work.cache, ScriptFormat.PLAYWRIGHT_TS)
        (tmp_path / f"{work.page}.ts").write_bytes(made)
    compiled = ran(["node_modules/.bin/tsc"], tmp_path)
    assert (compiled.returncode, compiled.stdout) == (0, "")
    for work in workflows:
        reports.clear()
        arguments = ["--address", f"{here}/{work.page}.html"]
        done = ran([node, f"made/{work.page}.js", *arguments], tmp_path)
        assert done.returncode == 0, done.stderr
        assert reports[-1] == work.end


TOOLS = """import json

def note(text, times=1):
    with open("notes.jsonl", "a") as file:
        file.write(json.dumps([text, times]) + "\\n")
    return text * times
"""


def test_a_script_of_tools_calls_them_as_they_were_called(tmp_path: Path):
    """With another value for its slot; asynchronous ones, too."""
    (tmp_path / "office.py").write_text(TOOLS + "async def later(text): return note(text, 3)\n")
    params = {"text": "{{who}}", "times": 2}
    tool = {"action_type": "tool", "xpath": None}
    made = cache(
        entry(0, method="note", action_params=params, **tool),
        entry(1, method="later", action_params={"text": "to {{who}}"}, **tool),
        slots=["who"],
    )
    (tmp_path / "made.py").write_bytes(script(made, ScriptFormat.PYTHON, "office"))
    done = subprocess.run(
        [sys.executable, "made.py", "--who", "Eve"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    notes = [json.loads(line) for line in (tmp_path / "notes.jsonl").read_text().splitlines()]
    assert notes == [["Eve", 2], ["to Eve", 3]]
