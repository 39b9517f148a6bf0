"""`hansard import`: arguments, output and exit codes."""

import json
import random

import pytest
from msgspec.structs import replace

from hansard.bus.errors import NotFound
from hansard.cli.exchange import _path
from hansard.domain.errors import BadValue
from hansard.ext.importers.chat import Message, Record
from hansard.ext.importers.sources import SEE
from tests.conftest import ROOT
from tests.importers.support import (
    answer,
    asks,
    bodies,
    call,
    chat,
    in_workspace,
    log_of,
    made,
    runs_of,
    says,
    written,
)

pytestmark = pytest.mark.later

GOOD = [
    chat(says("user", f"hello {n}"), asks(call("c", "t")), answer("c", n), run=n, outcome={})
    for n in range(5)
]


@pytest.fixture
def file(tmp_path):
    """Five good records."""
    return written(tmp_path / "chats.jsonl", GOOD)


def test_it_says_what_was_imported(bring_in, file):
    """Stdout has one line, a missing workspace is made, and stderr is empty."""
    result = bring_in("chat-jsonl", file)
    assert result.code == 0, result.err
    assert result.out == "5 runs, 15 messages, 5 calls: 35 commits, 35 of them new\n"
    assert result.err == ""


def test_importing_again_changes_nothing(bring_in, home, workspace, file):
    """A second import finds every commit already recorded."""
    bring_in("chat-jsonl", file)
    before = log_of(home, workspace)
    result = bring_in("chat-jsonl", file)
    assert result.out == "5 runs, 15 messages, 5 calls: 35 commits, 0 of them new\n"
    assert log_of(home, workspace) == before


def test_the_same_record_twice_is_one_run(bring_in, home, workspace, tmp_path, file):
    """A record that appears twice, however it is spelled, is counted and stored once."""
    twice = written(tmp_path / "twice.jsonl", [*GOOD, dict(reversed(GOOD[2].items()))])
    result = bring_in("chat-jsonl", twice, file, "--json")
    [summary] = result.lines
    assert (summary["runs"], summary["duplicates"], summary["new"]) == (5, 6, 35)
    assert len(log_of(home, workspace)) == 35


def test_the_order_of_records_and_files_does_not_matter(bring_in, home, tmp_path, file):
    """Shuffled records, split over two files, give the same commits in the same order."""
    shuffled = random.Random(7).sample(GOOD, len(GOOD))
    one = written(tmp_path / "one.jsonl", shuffled[:2])
    two = written(tmp_path / "two.jsonl", shuffled[2:])
    bring_in("chat-jsonl", file, into="ordered")
    bring_in("chat-jsonl", two, one, into="shuffled")
    name = b'"source_file": "%b"'
    ordered = [
        (where, body.replace(name % b"chats.jsonl", b"")) for where, body in bodies(home, "ordered")
    ]
    other = [
        (where, body.replace(name % b"one.jsonl", b"").replace(name % b"two.jsonl", b""))
        for where, body in bodies(home, "shuffled")
    ]
    assert sorted(ordered) == sorted(other)
    assert ordered != other


def test_bad_records_are_reported_and_skipped(bring_in, tmp_path):
    """A bad record is reported by file, line and reason with exit code 1; others are imported."""
    path = tmp_path / "mixed.jsonl"
    lines = [
        json.dumps(GOOD[0]),
        '{"messages": [{"role": 1}]}',
        "",
        "nonsense",
        json.dumps(GOOD[1]),
    ]
    path.write_text("\n".join(lines))
    result = bring_in("chat-jsonl", path)
    assert result.code == 1
    assert result.err.splitlines() == [
        f"{path}:2: Expected `str`, got `int` - at `$.messages[0].role`; {SEE}",
        f"{path}:4: it is not JSON (JSON is malformed: invalid character (byte 4))",
    ]
    assert result.out == (
        "2 runs, 6 messages, 2 calls: 14 commits, 14 of them new; 2 bad records skipped\n"
    )


def test_a_record_that_is_bad_late_leaves_nothing_behind(bring_in, home, workspace, tmp_path):
    """A record is mapped whole before any of it is sent."""
    record = chat(*(says("user", n) for n in range(3_000)), says("user", "x", timestamp="1" * 300))
    result = bring_in("chat-jsonl", written(tmp_path / "a.jsonl", [record]))
    assert result.code == 1
    assert "messages[3000]: timestamp: 300 characters; use at most 200" in result.err
    assert log_of(home, workspace) == []


def test_strict_stops_at_the_first_bad_record(bring_in, home, workspace, tmp_path):
    """--strict keeps the records before the bad one, reads no more, and reports both."""
    path = written(tmp_path / "a.jsonl", [*GOOD[:3], {"message": []}, *GOOD[3:], {}])
    result = bring_in("chat-jsonl", path, "--strict")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert f"{path}:4: " in result.err
    assert result.out.endswith(
        "21 commits, 21 of them new; stopped at the first bad record: "
        "the records before it are imported\n"
    )
    assert runs_of(home, workspace) == {made(record).run for record in GOOD[:3]}


def test_most_bad_records_are_only_counted(bring_in, tmp_path):
    """People see a hundred bad records one by one, programs all of them."""
    path = written(tmp_path / "a.jsonl", [GOOD[0], *([{"bad": 1}] * 250)])
    result = bring_in("chat-jsonl", path)
    assert len(result.err.splitlines()) == 101
    assert "250 bad records skipped" in result.out
    result = bring_in("chat-jsonl", path, "--json")
    assert [line["line"] for line in result.lines if line["kind"] == "bad"] == [*range(2, 252)]


def test_json_is_one_object_a_line(bring_in, tmp_path):
    """JSON output has bad records, calls without a result, and the summary, one object a line."""
    record = chat(asks(call("c1", "t"), call("c2", "t")), answer("c2", 1), answer("c9", 1))
    path = written(tmp_path / "a.jsonl", [{}, record])
    result = bring_in("chat-jsonl", path, "--json")
    bad, open_, summary = result.lines
    assert bad["kind"] == "bad"
    assert (bad["file"], bad["line"]) == (str(path), 1)
    assert "messages" in bad["reason"]
    assert open_ == {"kind": "unanswered", "run": made(record).run, "call_id": "c1"}
    assert summary == {
        "kind": "summary",
        "runs": 1,
        "messages": 3,
        "calls": 2,
        "commits": 5,
        "events": 10,
        "new": 5,
        "bad": 1,
        "blobs": 0,
        "duplicates": 0,
        "unasked": 1,
        "claims": 0,
        "assumed": {},
        "left_out": {},
        "unanswered": 1,
        "stopped": False,
    }
    assert result.err == ""


def test_calls_without_a_result_are_named_to_people(bring_in, tmp_path):
    """People see the number of such calls, and the first few by id and run."""
    record = chat(asks(*(call(f"c{n}", "t") for n in range(9))))
    result = bring_in("chat-jsonl", written(tmp_path / "a.jsonl", [record]))
    run = made(record).run
    assert f"9 calls without a result (c0 of {run}, " in result.out
    assert f"c4 of {run}...)" in result.out
    assert result.code == 0


def test_experiment_and_arm_stand_in_where_a_record_says_nothing(bring_in, tmp_path):
    """--experiment and --arm fill gaps; a record with another value is bad."""
    records = [chat(run=1), chat(run=2, experiment="e", arm="a"), chat(run=3, arm="b")]
    path = written(tmp_path / "a.jsonl", records)
    result = bring_in("chat-jsonl", path, "--experiment", "e", "--arm", "a")
    assert result.err == (
        f"{path}:3: arm: it says 'b', not 'a'; leave out --arm, or import such records apart\n"
    )
    shown = bring_in("--json", command="runs")
    assert len(shown.lines) == 2


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 2_000, "\udcff"])
def test_an_experiment_that_cannot_be_one_is_an_error(bring_in, file, name):
    """An invalid experiment is reported once, before anything is read."""
    result = bring_in("chat-jsonl", file, "--experiment", name)
    assert result.code == 2
    assert "experiment name" in result.err


@pytest.mark.parametrize("format_", ["chat-jsonl", "tau-bench", "tau2-bench", "events"])
def test_a_file_that_cannot_be_read_is_an_error_before_anything_is_done(
    bring_in, home, workspace, tmp_path, file, format_
):
    """A missing file or a folder is exit code 2, and no other file is imported."""
    for other, fact in ((tmp_path / "missing", "was not found"), (tmp_path, "is a directory")):
        result = bring_in(format_, file, other)
        assert result.code == 2
        assert fact in result.err
    shown = bring_in(command="runs")
    assert "was not found" in shown.err


@pytest.mark.fast(cases=3, slow=0)
@pytest.mark.parametrize("format_", ["chat-jsonl", "tau-bench", "tau2-bench"])
@pytest.mark.parametrize("content", [b"", b"\n\n \r\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_bad(bring_in, tmp_path, format_, content):
    """An empty file is bad."""
    path = tmp_path / "empty"
    path.write_bytes(content)
    result = bring_in(format_, path)
    assert result.code == 1
    assert result.err.startswith(f"{path}:1: ")
    assert result.err.count("\n") == 1


CHATS = "".join(json.dumps(record) + "\n" for record in GOOD)
TAU = [{"task_id": 1, "trial": 0, "reward": 1.0, "info": {}, "traj": [says("user", "x")]}] * 2
TAU2 = {"timestamp": "t", "info": {"num_trials": 1}, "tasks": [], "simulations": []}


@pytest.mark.parametrize(
    ("format_", "content", "is_really"),
    [
        ("tau-bench", CHATS, "chat-jsonl"),
        ("tau2-bench", CHATS, "chat-jsonl"),
        ("chat-jsonl", json.dumps(TAU), "tau-bench"),
        ("chat-jsonl", json.dumps(TAU, indent=2), "tau-bench"),
        ("tau2-bench", json.dumps(TAU, indent=2), "tau-bench"),
        ("chat-jsonl", json.dumps(TAU2), "tau2-bench"),
        ("chat-jsonl", json.dumps(TAU2, indent=2), "tau2-bench"),
        ("tau-bench", json.dumps(TAU2, indent=2), "tau2-bench"),
    ],
)
def test_a_file_of_another_format_is_named(bring_in, tmp_path, format_, content, is_really):
    """A file of another format yields one line with that format."""
    path = tmp_path / "file"
    path.write_text(content)
    result = bring_in(format_, path)
    assert result.code == 1
    [line] = result.err.splitlines()
    assert line.startswith(f"{path}:1: ")
    assert line.endswith(f"it looks like {is_really}: use 'hansard import {is_really}'")


def test_an_experiment_is_not_for_exported_events(bring_in, file):
    """Exported events refuse --experiment, since they have their own."""
    result = bring_in("events", file, "--experiment", "e")
    assert result.code == 2
    assert "leave out --experiment and --arm" in result.err


@pytest.mark.slow
def test_off_a_terminal_there_is_no_progress(start, file):
    """Nothing but errors goes to stderr, so that a log stays readable."""
    child = start("import", "chat-jsonl", file)
    out, err = child.communicate(timeout=170)
    assert (child.returncode, err) == (0, b"")
    assert out.count(b"\n") == 1


def test_control_characters_of_a_record_are_shown_not_obeyed(bring_in, tmp_path):
    """A reason that quotes a record cannot move the cursor."""
    path = written(tmp_path / "a.jsonl", [chat(agent="\x1b[31mred")])
    result = bring_in("chat-jsonl", path)
    assert "\\x1b" in result.err
    assert "\x1b" not in result.err


def test_a_run_that_others_wrote_to_is_reported_and_the_rest_is_imported(
    bring_in, home, workspace, tmp_path
):
    """A run with a foreign commit is reported as bad; all others are imported."""
    first = chat(says("user", "x"), run="met")
    run = made(first)

    async def meddle(opened):
        [begin, *_] = run.appends
        other = opened.commit(begin.commit.last_version + 1, "me", [])
        await opened.log.append(begin)
        stolen = run.appends[1]
        await opened.log.append(replace(stolen, commit=replace(stolen.commit, id=other.id)))

    in_workspace(home, workspace, meddle)
    path = written(tmp_path / "a.jsonl", [GOOD[0], first, GOOD[1]])
    result = bring_in("chat-jsonl", path)
    assert result.code == 1
    assert f"{path}:2: run {run.run} " in result.err
    assert runs_of(home, workspace) == {made(record).run for record in (GOOD[0], first, GOOD[1])}
    strict = bring_in("chat-jsonl", path, "--strict")
    assert strict.code == 1


def test_the_documented_fields_are_those_that_are_read():
    """docs/chat-jsonl.md names every field of a run and of a message, and no other."""
    text = (ROOT / "docs" / "chat-jsonl.md").read_text()
    run = text[text.index("## A run") : text.index("## A message")]
    message = text[text.index("## A message") : text.index("**Calls.**")]
    assert _first_column(run) == set(Record.__struct_fields__)
    assert _first_column(message) == set(Message.__struct_fields__) - {"id"}


def _first_column(text):
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("|`")]
    return {name.strip(" `") for cell in cells for name in cell.split(",")}


def test_errors_say_what_they_are():
    """A missing file raises NotFound, a folder BadValue."""
    with pytest.raises(NotFound):
        _path("no such file")
    with pytest.raises(BadValue):
        _path("/")
