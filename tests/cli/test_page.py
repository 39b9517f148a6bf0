"""`run html`: one file, written whole, the same every time; tests/browser opens it."""

import base64
import contextlib
import hashlib
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.inspect.page import BLOB_BYTES_MAX
from tests.cli.support import BIG, Call, Runs, environment
from tests.faults._warm import run, start

ROOT = Path(__file__).parents[2]
DATA = re.compile(rb'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
KILLS = 6


def data_of(file: bytes) -> dict[str, Any]:
    """Return the data in a page."""
    (text,) = DATA.findall(file)
    data: dict[str, Any] = json.loads(text)
    return data


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a working directory of the test's own."""
    monkeypatch.chdir(tmp_path)


def test_a_page_is_written_to_the_working_directory(call: Call, runs: Runs, tmp_path: Path):
    """Without -o it is RUN.html in the working directory; the command prints its path."""
    result = call("run", "html", runs.team)
    assert (result.code, result.out) == (0, f"{runs.team}.html\n")
    assert [path.name for path in tmp_path.iterdir()] == [f"{runs.team}.html"]
    page = data_of((tmp_path / f"{runs.team}.html").read_bytes())
    assert page["run"] == runs.team


def test_the_help_and_the_documentation_agree_on_the_opening_point(call: Call):
    """Both have the same sentence on the event at which a page opens (tests/browser shows it)."""
    documented = " ".join((ROOT / "docs" / "page.md").read_text("utf-8").split())
    shown = " ".join(call("run", "html", "--help").out.split())
    [sentence] = re.findall(r"The page of a completed run opens .*?in doubt\.", shown)
    assert sentence in documented


def test_a_page_can_be_named_and_described_as_json(call: Call, runs: Runs, tmp_path: Path):
    """-o sets the path; --json prints run, path, bytes and events."""
    path = tmp_path / "there.html"
    (line,) = call("run", "html", "last", "-o", str(path), "--json").lines
    file = path.read_bytes()
    assert line == {
        "run": line["run"],
        "path": str(path),
        "bytes": len(file),
        "events": len(data_of(file)["events"]["id"]),
    }
    assert line["run"] == data_of(file)["run"]


@pytest.mark.slow
def test_a_page_goes_to_stdout(shell: Call, runs: Runs, tmp_path: Path):
    """`-o -` prints the file and writes none."""
    result = shell("run", "html", runs.team, "-o", "-")
    assert result.code == 0
    assert result.out.startswith("<!doctype html>")
    assert data_of(result.out.encode())["run"] == runs.team
    assert list(tmp_path.iterdir()) == []


def test_stdout_holds_one_answer(call: Call, runs: Runs):
    """`-o -` and --json both need stdout: the combination is refused with an error."""
    result = call("run", "html", runs.team, "-o", "-", "--json")
    assert (result.code, result.out) == (2, "")
    assert "leave one" in result.err


def test_the_same_run_gives_the_same_bytes(call: Call, runs: Runs, tmp_path: Path):
    """No time of making, no order of chance: two pages of one log are byte-equal."""
    for name in ("a.html", "b.html"):
        assert call("run", "html", runs.team, "-o", name).code == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_every_event_is_in_the_page(call: Call, runs: Runs, tmp_path: Path):
    """A page holds each event of the run once, in the order of the log."""
    call("run", "html", runs.team, "-o", "page.html")
    page = data_of((tmp_path / "page.html").read_bytes())
    commits = page["commits"]
    assert sum(commits["events"]) == len(page["events"]["id"]) == len(set(page["events"]["id"]))
    shown = call("run", "show", runs.team, "--json").lines
    run = next(line for line in shown if line["kind"] == "run")
    assert sum(commits["position"]) == run["position"]
    assert sum(run["vector"].values()) == len(page["events"]["id"])


def test_a_fork_holds_its_parents_prefix(call: Call, runs: Runs, tmp_path: Path):
    """A fork's page begins with the steps that it took over, marked as another run's."""
    call("run", "html", runs.forked, "-o", "page.html")
    page = data_of((tmp_path / "page.html").read_bytes())
    owners = [page["runs"][page["streams"][s]["run"]] for s in page["commits"]["stream"]]
    assert (owners[0], owners[-1]) == (runs.team, runs.forked)
    assert owners == sorted(owners, key=[runs.team, runs.forked].index)


def test_the_policy_names_exactly_what_is_inside(call: Call, runs: Runs, tmp_path: Path):
    """The policy has the hashes of the one script and the one style, and allows nothing else."""
    call("run", "html", runs.team, "-o", "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none';")
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (inside,) = re.findall(rf"<{tag}(?: type=\"module\")?>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    page = DATA.sub(b"", text.encode()).decode()
    assert not re.search(r"https?://(?!www\.w3\.org/)|\bsrc=|\bhref=|@import|url\(", page)


def test_nothing_recorded_can_end_the_data(record: hansard.Record, call: Call, tmp_path: Path):
    """Between its tags the data has no character that markup or a script's line could see."""
    with record.run("</script>", agent="a<b>&", role="r") as session:
        session.message("user", "</script><!-- \u2028 \u2029 & \x00")
    call("run", "html", session.run, "-o", "page.html")
    file = (tmp_path / "page.html").read_bytes()
    (data,) = DATA.findall(file)
    assert not re.search("[<>&\u2028\u2029]", data.decode())
    assert file.count(b"</script>") == 2
    values = [value for row in json.loads(data)["events"]["data"] for value in row]
    assert "</script><!-- \u2028 \u2029 & \x00" in values


@pytest.mark.thorough(quick="test_every_event_is_in_the_page")
def test_blobs_are_inside_up_to_a_bound(record: hansard.Record, call: Call, tmp_path: Path):
    """A blob within the bound is embedded; a larger one has size, hash and a notice."""
    with record.run("blobs", agent="a", role="r") as session:

        @session.tool(effects="pure")
        def make(size: int) -> str:
            return "b" * size

        make(BIG)
        make(BLOB_BYTES_MAX)
    result = call("run", "html", session.run, "-o", "page.html")
    page = data_of((tmp_path / "page.html").read_bytes())
    assert list(page["blobs"].values()) == ["b" * BIG]
    ((digest, why),) = page["absent"].items()
    assert "larger" in why
    assert digest in result.err


def test_a_runs_name_cannot_leave_the_folder(record: hansard.Record, call: Call, tmp_path: Path):
    """The name of a run's file is escaped, whatever the run's name is."""
    with record.run("named", run="../of/invoices <1>", agent="a", role="r"):
        pass
    result = call("run", "html", "../of/invoices <1>")
    assert result.code == 0
    (path,) = tmp_path.iterdir()
    assert result.out == f"{path.name}\n"
    assert "/" not in path.name


@pytest.mark.parametrize("where", ["missing/page.html", "folder"])
def test_a_place_that_cannot_be_written_is_named(
    call: Call, runs: Runs, tmp_path: Path, where: str
):
    """A folder that is not there, or one where a file should be: fact, value, remedy; no rest."""
    (tmp_path / "folder").mkdir()
    result = call("run", "html", runs.team, "-o", where)
    assert result.code == 2
    assert where in result.err
    assert "-o" in result.err
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_no_run_no_page(call: Call, runs: Runs, tmp_path: Path):
    """An unknown run is an error and leaves no file."""
    result = call("run", "html", "no-such-run")
    assert result.code == 2
    assert "no-such-run" in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_kill_leaves_the_old_file_or_the_new(home: Path, call: Call, runs: Runs, tmp_path: Path):
    """After a kill at any moment the file is complete: the old one, or the page."""
    call("run", "html", runs.team, "-o", "whole.html")
    whole = (tmp_path / "whole.html").read_bytes()
    path = tmp_path / "page.html"
    command = ["-m", "hansard", "run", "html", runs.team, "-o", str(path)]
    begun = time.monotonic()
    done = run(command, cwd=tmp_path, env=environment(home), timeout=170)
    took = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    for kill in range(KILLS):
        path.write_bytes(b"what was there")
        child = start(command, tmp_path, environment(home))
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(took * (0.5 + kill / KILLS))
        child.kill()
        child.communicate()
        assert path.read_bytes() in (b"what was there", whole)
