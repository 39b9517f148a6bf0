"""Command output to a full disk, a closed stream, and a locale that lacks characters."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.cli.support import Call, Runs, environment
from tests.cli.test_read_only import POWERLESS

pytestmark = pytest.mark.slow


WORKSPACE = "texts"
"""Workspace of these tests alone: other tests add runs to the shared one."""


@pytest.fixture
def run(home: Path, record: hansard.Record) -> str:
    """Record a workspace's only run, whose workflow's name is not ASCII."""
    with hansard.Session(
        "r\u00e9sum\u00e9-\U0001f600", run="texts", workspace=WORKSPACE, data_dir=home
    ) as session:
        session.message("user", "\u65e5\u672c")
    return session.run


def _ran(home: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {**environment(home), "HANSARD_WORKSPACE": WORKSPACE, **options.pop("env", {})}
    command = [sys.executable, "-m", "hansard", *arguments]
    return subprocess.run(
        command, env=env, stderr=subprocess.PIPE, text=True, check=False, timeout=60, **options
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("arguments", [("runs",), ("export", "texts"), ("--help",)], ids=str)
def test_a_full_disk_is_an_error_in_words(home: Path, run: str, arguments: tuple[str, ...]) -> None:
    """One line on stderr and the exit code of an error, no traceback."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = _ran(home, *arguments, stdout=full)
    assert ended.returncode == 2
    assert ended.stderr == (
        "error: the standard output: No space left on device; "
        "the answer is cut off (a change that it reports is on record)\n"
    )


def test_a_closed_stream_takes_nothing_and_ends_nothing(home: Path, run: str) -> None:
    """A command that is started without a standard output does its work."""
    command = f"exec {sys.executable} -m hansard runs >&-"
    env = {**environment(home), "HANSARD_WORKSPACE": WORKSPACE}
    ended = subprocess.run(
        ["sh", "-c", command], env=env, capture_output=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr.decode()) == (0, "")


def test_what_a_locale_lacks_is_escaped_as_in_json(home: Path, run: str) -> None:
    """In an ASCII locale people get the escapes of JSON, and `--json` stays JSON."""
    ascii_ = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    people = _ran(home, "runs", env=ascii_, stdout=subprocess.PIPE)
    assert (people.returncode, people.stderr) == (0, "")
    assert "r\\u00e9sum\\u00e9" in people.stdout
    lines = _ran(home, "runs", "--json", env=ascii_, stdout=subprocess.PIPE)
    [row] = [json.loads(line) for line in lines.stdout.splitlines()]
    assert row["workflow"] == "r\u00e9sum\u00e9-\U0001f600"


@pytest.mark.parametrize("program", ["hansard runs", "hansard.connect"])
def test_a_folder_that_may_not_be_read_is_an_error_in_words(tmp_path: Path, program: str) -> None:
    """The error for another user's data directory names it and the remedy, everywhere."""
    locked = tmp_path / ".hansard"
    locked.mkdir(mode=0o000)
    arguments = ["-m", "hansard", "runs"]
    if program == "hansard.connect":
        arguments = ["-c", "import hansard; hansard.connect()"]
    command = [*POWERLESS, sys.executable, *arguments]
    env = environment(locked)
    ended = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode != 0
    message = ended.stderr.splitlines()[-1]
    assert f"the data directory {str(locked)!r} cannot be used" in message
    assert "give a directory on a local disk that you may write to (HANSARD_DATA_DIR)" in message


def test_tables_and_views_are_listed_with_their_comments(call: Call, runs: Runs):
    """Each is listed once, by name, with a sentence that says what a row is."""
    rows = call("sql", "--tables", "--json").lines
    names = [row["name"] for row in rows]
    assert names == sorted(set(names))
    kinds = {row["name"]: row["kind"] for row in rows}
    assert (kinds["steps"], kinds["scores"]) == ("table", "view")
    assert [row["name"] for row in rows if not row["comment"]] == []
    columns = call("sql", "--tables", "scores", "--json").lines
    described = call("sql", "DESCRIBE scores", "--json").lines
    assert [row["name"] for row in columns] == [row["column_name"] for row in described]
    assert [row["name"] for row in columns if not row["comment"]] == []
    for wrong in ("SELECT 1", "no_table"):
        refused = call("sql", "--tables", wrong)
        assert (refused.code, refused.out) == (2, "")


def test_scores_are_listed_under_that_name(call: Call, record: hansard.Record, home: Path):
    """A score of `hansard run score` is a row of the view `scores`."""
    with hansard.connect("scored", data_dir=home) as own, own.run("w", run="scored"):
        pass
    assert call("run", "score", "scored", "reward=0.5", workspace="scored").code == 0
    [row] = call("sql", "FROM scores", "--json", workspace="scored").lines
    assert (row["metric"], row["value"]) == ("reward", 0.5)
