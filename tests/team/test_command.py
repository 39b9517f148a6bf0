"""`hansard team`: agents' work, waiting tasks, and each change as it happens."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.cli.support import environment
from tests.conftest import ROOT
from tests.fixtures import together

pytestmark = pytest.mark.later


def _add(lead):
    lead.team.add("Find papers", role="researcher", task="find")
    lead.team.add("Analyze", role="analyzer", waits_for_roles=["researcher"], task="analyze")
    lead.team.add("Write \x1b[31m", agent="cyd", waits_for=["analyze"], task="write")


def test_the_agents_and_tasks_of_a_run(record, call):
    """A table of agents and a table of tasks; at an earlier point the state of that time."""
    with together(record, run="r-1", ada="researcher", bob="analyzer") as (ada, bob):
        _add(ada)
        task = ada.team.claim(lease_s=100)
        search = ada.tool(effects="pure")(_search)
        search("seeds")
        now = [json.loads(line) for line in call("team", "r-1", "--json").out.splitlines()]
        ada.team.complete(task)
        done = bob.team.claim()
        bob.team.fail(done, "no data")
    by = {each.get("agent") if each["kind"] == "agent" else each["id"]: each for each in now}
    assert (by["ada"]["status"], by["ada"]["tasks"], by["ada"]["last"]) == (
        "open",
        ["find"],
        "_search completed",
    )
    assert by["ada"]["position"] <= by["ada"]["as_of"]
    assert (by["find"]["status"], by["find"]["holder"]) == ("claimed", "ada")
    assert 90 < by["find"]["lease_left_s"] <= 100
    assert (by["analyze"]["status"], by["analyze"]["waits_for"]) == ("waiting", ["role researcher"])
    ran = call("team", "r-1")
    assert (ran.code, "\x1b" in ran.out) == (0, False)
    agents, tasks = ran.out.split("\n\n")
    assert [line.split()[:3] for line in agents.splitlines()[1:]] == [
        ["ada", "researcher", "completed"],
        ["bob", "analyzer", "completed"],
    ]
    shown = {line.split()[0]: line for line in tasks.splitlines()[1:]}
    assert "done" in shown["find"]
    assert "failed" in shown["analyze"]
    assert "blocked" in shown["write"]
    assert "analyze (never)" in shown["write"]
    assert "2 agents and 3 tasks of run r-1 as of position" in ran.err
    early = call("team", "r-1", "--at", "ada@4", "--json").out.splitlines()
    assert [json.loads(line)["kind"] for line in early].count("task") == 1
    assert call("team", "never").code == 2


def _search(query):
    return query


@pytest.mark.thorough(quick="test_following_ends_at_a_signal")
@pytest.mark.parametrize("as_json", [True, False])
def test_changes_are_shown_as_they_come(record, following, as_json):
    """Each change of an agent or task is a line until the run ends."""
    with record.run("w", run="r-1", agent="ada", role="researcher") as ada:
        _add(ada)
        process, lines = following(*(["--json"] if as_json else []))
        _wait(lambda: any("write" in line for line in lines))
        begun = len(lines)
        task = ada.team.claim()
        _wait(lambda: any("claimed" in line for line in lines[begun:]))
        ada.team.complete(task)
        _wait(lambda: any("done" in line for line in lines[begun:]))
        ada.team.fail(ada.team.claim("analyzer"), "no data")
        with record.run("w", run="r-1", agent="bob", role="analyzer"):
            _wait(lambda: any("bob" in line for line in lines[begun:]))
        news = lines[begun:]
        assert process.poll() is None
    assert process.wait(20) == 0
    if as_json:
        entries = [json.loads(line) for line in news]
        assert [each["status"] for each in entries if each.get("id") == "find"] == [
            "claimed",
            "done",
        ]
        of_next = [each["status"] for each in entries if each.get("id") == "analyze"]
        assert of_next == ["open", "claimed", "failed"]
    else:
        line_of_claim = "task find claimed  Find papers  by ada (claim 1)  for role researcher"
        assert any(line_of_claim in line for line in news)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_at_a_signal(record, following, number):
    """A signal ends it, with 0."""
    with record.run("w", run="r-1", agent="ada"):
        process, lines = following()
        _wait(lambda: any("ada" in line for line in lines))
        time.sleep(0.2)
        process.send_signal(number)
        assert process.wait(20) == 0


@pytest.fixture
def following(data_dir, workspace):
    """Yield a starter of `hansard team r-1 --follow` as a child, with its lines as they arrive."""
    children = []

    def start(*more):
        lines: list[str] = []
        process = subprocess.Popen(
            [sys.executable, "-m", "hansard", "team", "r-1", "--follow", *more],
            env=environment(data_dir, HANSARD_WORKSPACE=workspace),
            stdout=subprocess.PIPE,
            text=True,
        )
        reader = threading.Thread(target=lines.extend, args=(process.stdout,))
        reader.start()
        children.append((process, reader))
        return process, lines

    yield start
    for process, reader in children:
        process.kill()
        process.wait()
        reader.join()
        assert process.stdout is not None
        process.stdout.close()


def _wait(until):
    deadline = time.monotonic() + 20
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_page_of_the_example_says_what_the_program_is_called():
    """The README's commands name the program and its roles."""
    text = (ROOT / "examples" / "research_team" / "README.md").read_text("utf-8")
    assert "hansard roles apply roles.toml" in text
    for role in ("researcher", "analyzer", "writer"):
        assert f"python team.py iterator {role}" in text
