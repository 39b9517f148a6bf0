"""A replay that is killed at any boundary: a form is sent once, or in doubt; never twice."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

import hansard
from benchmarks.bench_page import ARGUMENTS
from hansard.domain.actions import decode, encode
from hansard.ext.browser.chromium import program
from tests.actions.replaying import Job
from tests.actions.test_cache import cache, entry
from tests.faults._warm import run
from tests.integrations.mcp.support import free_port

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("replaying.py")
ROOT = Path(__file__).parents[2]
RUN_S_MAX = 120
SIGKILLED = -9
DOUBT = {("in doubt", 0), ("in doubt", 1)}
"""Outcomes of a kill that leaves a click in doubt, with how often the form was sent."""
PAGE = b"""<!doctype html><form method=post><main><input name=who aria-label=Who></main>
<button>Send</button></form>"""


class Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Form)
        self.sent: list[bytes] = []


class Form(BaseHTTPRequestHandler):
    server: Site

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Answer with the form."""
        self._answer(PAGE)

    def do_POST(self) -> None:
        """Count the sent form."""
        self.server.sent.append(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(b"<p>Thanks</p>")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def form() -> Iterator[Site]:
    """Yield the form, served."""
    site = Site()
    thread = threading.Thread(target=site.serve_forever, daemon=True)
    thread.start()
    yield site
    site.shutdown()
    site.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[str]:
    """Yield a browser that outlives the programs that are killed."""
    executable = program()
    if executable is None:
        pytest.skip("no chromium or google-chrome on PATH, and HANSARD_BROWSER is not set")
    port = free_port()
    profile = tmp_path_factory.mktemp("profile")
    options = (f"--remote-debugging-port={port}", f"--user-data-dir={profile}", "--headless=new")
    # A session of its own: what is called chromium may be a script that begins it.
    process = subprocess.Popen(
        [executable, *ARGUMENTS, *options], stderr=subprocess.DEVNULL, start_new_session=True
    )
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + RUN_S_MAX
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                break
        except OSError:
            assert time.monotonic() < deadline, "the browser does not answer"
            time.sleep(0.05)
    yield address
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def launched(job: Job) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, or to its kill."""
    command = [str(PROGRAM), msgspec.json.encode(job).decode()]
    return run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=RUN_S_MAX)


def actions(address: str) -> bytes:
    """Return a cache whose first element moved, and whose second sends the form."""
    goto = entry(
        0, action_type="goToUrl", method=None, arguments=[address], xpath=None, instruction=None
    )
    fill = entry(1, xpath="/html[1]/body[1]/form[1]/textarea[1]", instruction="enter the name")
    send = entry(
        2,
        method="click",
        arguments=[],
        xpath="/html[1]/body[1]/form[1]/button[1]",
        effects="once",
        changed="page",
    )
    return encode(cache(goto, fill, send))


def killed_and_resumed(job: Job, form: Site, file: Path) -> tuple[str, int]:
    """Kill a replay and run it again; return the outcome and how often the form was sent."""
    form.sent.clear()
    file.write_bytes(actions(f"http://127.0.0.1:{form.server_port}/"))
    first = launched(job)
    assert first.returncode == SIGKILLED, first.stderr[-2_000:]
    before = decode(file.read_bytes())
    assert before.version in (1, 2)
    job.kill_at, job.kill_on = 0, ""
    again = launched(job)
    assert again.returncode == 0, again.stderr[-2_000:]
    report = json.loads(again.stdout)
    after = decode(file.read_bytes())
    assert after.version == len(after.history) + 1 <= 2
    assert len(form.sent) <= 1
    if report["success"]:
        assert form.sent == [b"who=Ada"]
        assert after.version == 2
        return "sent", 1
    assert "in doubt" in report["error"] or "InDoubt" in report["error"], report
    return "in doubt", len(form.sent)


def boundaries(job: Job, form: Site, file: Path) -> int:
    """Return the number of boundaries of an undisturbed replay."""
    file.write_bytes(actions(f"http://127.0.0.1:{form.server_port}/"))
    done = launched(job)
    assert done.returncode == 0, done.stderr[-2_000:]
    report = json.loads(done.stdout)
    assert report["success"], report
    assert form.sent == [b"who=Ada"]
    count: int = report["boundaries"]
    return count


@pytest.mark.timeout(300)
def test_a_kill_while_the_form_is_sent_leaves_it_in_doubt(
    browser, form, data_dir, workspace, tmp_path
):
    """A click without a recorded outcome is not repeated."""
    file = tmp_path / "form.json"
    job = Job(str(data_dir), workspace, "killed", browser, str(file), kill_on="clicked")
    assert killed_and_resumed(job, form, file) in DOUBT


@pytest.mark.thorough(quick="test_a_kill_while_the_form_is_sent_leaves_it_in_doubt")
@pytest.mark.timeout(1_800)
def test_a_kill_at_any_boundary_sends_the_form_once_or_leaves_it_in_doubt(
    browser, form, data_dir, workspace, tmp_path, evidence
):
    """And no heal is half written: the file is as before, or as after."""
    file = tmp_path / "form.json"
    count = boundaries(Job(str(data_dir), workspace, "whole", browser, str(file)), form, file)
    outcomes = []
    for at in range(1, count + 1):
        job = Job(str(data_dir), workspace, f"killed-{at}", browser, str(file), at)
        outcomes.append(killed_and_resumed(job, form, file))
    twice = sum(sent > 1 for _, sent in outcomes)
    doubt = sum(outcome == "in doubt" for outcome, _ in outcomes)
    evidence.record("actions.kills", boundaries=count, in_doubt=doubt, sent_twice=twice)
    assert twice == 0
    assert 0 < doubt < count


@pytest.mark.timeout(300)
@pytest.mark.parametrize("after", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_kill_around_a_heal_leaves_a_kept_cache_as_it_was_or_healed(
    browser, form, data_dir, workspace, after
):
    """Before the heal is recorded it is version 1, then 2; the form is sent once."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        cache = decode(actions(f"http://127.0.0.1:{form.server_port}/"))
        record.actions.keep("killed", cache)
        job = Job(str(data_dir), workspace, "killed", browser, "killed", kept=True)
        job.kill_on = "healed" if after else "heal"
        form.sent.clear()
        assert launched(job).returncode == SIGKILLED
        assert record.actions.get("killed").version == (2 if after else 1)
        assert form.sent == []
        job.kill_on = ""
        again = launched(job)
        assert again.returncode == 0, again.stderr[-2_000:]
        assert json.loads(again.stdout)["success"], again.stdout
        healed = record.actions.get("killed")
        assert (healed.version, len(healed.history)) == (2, 1)
        assert form.sent == [b"who=Ada"]
