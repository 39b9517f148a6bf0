"""Looks at imported runs: source times are shown as such, and none is invented."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.domain.steps import IMPORTER
from tests.cli.support import Call, Ran, Runs

CLOCK = re.compile(r"\d\d:\d\d|\+\d")


def tool_request(**more: Any) -> dict[str, Any]:
    """Return a message that calls a tool."""
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **more}


def chat(name: str, *times: str | None) -> dict[str, Any]:
    """Return a record of four messages with the given times."""
    messages = [
        {"role": "user", "content": "hello"},
        tool_request(usage={"prompt_tokens": 5}, cost=0.25),
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "assistant", "content": "bye"},
    ]
    for message, at in zip(messages, times, strict=True):
        if at is not None:
            message["timestamp"] = at
    return {"run": name, "agent": "bot", "messages": messages, "outcome": {"reward": 1.0}}


RECORDS = {
    "untimed": chat("untimed", None, None, None, None),
    "timed": chat(
        "timed",
        "1999-12-31T23:59:58",
        "1999-12-31T23:59:59",
        "2000-01-01T00:00:01.5",
        "2000-01-01T00:00:02",
    ),
    "mixed": chat("mixed", "1999-12-31T23:59:58Z", None, None, "946684802"),
}


ELSEWHERE = "imported"


@pytest.fixture
def look(call: Call, runs: Runs, tmp_path: Path) -> Callable[..., Ran]:
    """Imports the records (again, which changes nothing), then looks: `look("untimed", "show")`."""
    path = tmp_path / "chats.jsonl"
    text = "".join(json.dumps(record) + "\n" for record in RECORDS.values())
    path.write_text(text, encoding="utf-8")
    brought = call("import", "chat-jsonl", str(path), workspace=ELSEWHERE)
    assert brought.code == 0, brought.err
    listed = call("runs", "--json", "--limit", "0", workspace=ELSEWHERE).lines
    ids = {line["labels"]["source_run"]: line["run"] for line in listed}

    def run(name: str, command: str, *more: str) -> Ran:
        result = call("run", command, ids[name], *more, workspace=ELSEWHERE)
        assert result.code == 0, result.err
        return result

    return run


@pytest.mark.parametrize("command", ["show", "trace", "context"])
def test_where_the_source_gives_no_times_none_is_shown(look: Callable[..., Ran], command: str):
    """The import's moment is shown once, and no begin, duration, step or message time."""
    text = look("untimed", command).out
    [line] = [line for line in text.splitlines() if CLOCK.search(line)]
    assert line.startswith("imported")
    head = text.splitlines()
    assert not any(re.search(r"\b(began|took|started)\b", line) for line in head)


def test_json_shows_that_no_time_is_known(look: Callable[..., Ran]):
    """Null for when it was, and `import` for whose time it is; `time` stays the log's."""
    [step] = look("untimed", "trace", "--json").lines
    unknown = {"at": None, "clock": "import", "offset_ms": None}
    assert (step["began"], step["ended"], step["duration_ms"]) == (unknown, unknown, None)
    run, _ = look("untimed", "show", "--json").lines
    assert run["began"] == run["last"] == {"at": None, "clock": "import"}
    messages = look("untimed", "context", "--json").lines[1:]
    assert {(line["at"], line["clock"]) for line in messages} == {(None, "import")}
    assert {line["occurred_at"] for line in messages} == {None}


@pytest.mark.slow
def test_what_the_source_tells_is_shown_as_the_sources(look: Callable[..., Ran]):
    """Source times are unchanged, relative to the source's beginning, under its name."""
    [step] = look("timed", "trace", "--json").lines
    assert step["began"] == {
        "at": "1999-12-31T23:59:59",
        "clock": "occurred_at",
        "offset_ms": 1_000.0,
    }
    assert step["ended"]["offset_ms"] == 3_500.0
    text = look("timed", "trace").out
    assert "+0.000 s is 1999-12-31 23:59:58, as the source says" in text
    assert "+1.000 s" in text
    assert "imported" not in text
    assert "1999-12-31 23:59:58 (occurred_at)" in look("timed", "context").out
    shown = look("timed", "show").out
    assert re.search(r"started +1999-12-31 23:59:58 \(occurred_at\)", shown)
    assert re.search(r"last +2000-01-01 00:00:02 \(occurred_at\)", shown)
    assert re.search(r"imported +20\d\d-", shown)


def test_a_source_that_tells_some_times(look: Callable[..., Ran]):
    """Stated times are shown as written; the rest is reported as unknown."""
    lines = look("mixed", "context", "--json").lines[1:]
    assert [(line["at"], line["clock"]) for line in lines] == [
        ("1999-12-31T23:59:58Z", "occurred_at"),
        (None, "import"),
        (None, "import"),
        ("946684802", "occurred_at"),
    ]
    text = look("mixed", "context").out
    assert text.count("imported 20") == 1
    assert "a missing time is one that the source does not give" in text
    assert "946684802 (occurred_at)" in text


@pytest.mark.slow
def test_an_imported_message_is_whole(look: Callable[..., Ran]):
    """The chat is unchanged, with its usage; uncounted tokens are left out."""
    about, *lines = look("timed", "context", "--json").lines
    assert [line["message"]["role"] for line in lines] == ["user", "assistant", "tool", "assistant"]
    assert lines[1]["message"]["tool_calls"] == tool_request()["tool_calls"]
    assert (about["tokens"], about["usage"]) == (None, {"cost": 0.25, "input_tokens": 5})
    assert look("timed", "state", "--json").lines[1]["total_tokens"] is None
    [step] = look("timed", "trace", "--json").lines
    assert (step["call_id"], step["arguments"], step["result"]) == ("c1", {"q": 1}, "found")
    for command in ("show", "context"):
        text = look("timed", command).out
        assert "4 messages" in text
        assert "0 tokens" not in text
    assert "cost $0.25" in look("timed", "context").out
    assert re.search(r"scores +reward 1\b", look("timed", "show").out)


def test_points_lead_into_imported_runs(look: Callable[..., Ran]):
    """A point leads into an imported run as into any other, its state is the source's so far."""
    lines = look("timed", "context", "--json").lines[1:]
    for index, line in enumerate(lines):
        then = look("timed", "context", "--at", str(line["position"]), "--json").lines[1:]
        assert then == lines[: index + 1]
    changes = look("timed", "state", "--diff", "bot@3", "now", "--json").lines
    assert [c["path"] for c in changes if c["path"][:2] == ["messages", "8"]] == [["messages", "8"]]


def test_an_agent_that_is_called_import_keeps_its_times(call: Call, record: hansard.Record):
    """An agent that writes for itself has the log's times, whatever its name is."""
    with record.run("named", agent=IMPORTER, role="r") as session:
        session.message("user", "hello")
    [about, message] = call("run", "context", session.run, "--json").lines
    assert about["kind"] == "context"
    assert message["clock"] == "log"
    assert message["at"] is not None
    assert "imported" not in call("run", "show", session.run).out


def test_a_copied_run_has_the_times_of_its_original_log(call: Call, runs: Runs, tmp_path: Path):
    """They are under `origin`, in order, with their positions; offsets are unchanged."""
    path = str(tmp_path / "run.jsonl")
    assert call("export", runs.settled, "-o", path).code == 0
    assert call("import", "events", path, workspace="copies").code == 0
    there = call("run", "trace", runs.settled, "--json").lines
    here = call("run", "trace", runs.settled, "--json", workspace="copies").lines
    for ours, theirs in zip(here, there, strict=True):
        assert (ours["began"]["clock"], theirs["began"]["clock"]) == ("origin", "log")
        assert ours["began"]["at"][:26] == theirs["began"]["at"][:26]
        assert abs(ours["began"]["offset_ms"] - theirs["began"]["offset_ms"]) < 0.01
    text = call("run", "show", runs.settled, workspace="copies").out
    assert re.search(r"copied from +log lab", text)
    assert "(origin)" in text
    [run, *_] = call("run", "show", runs.settled, "--json", workspace="copies").lines
    assert run["origin"]["position"] != run["position"]


@pytest.mark.slow
def test_runs_are_listed_and_filtered_by_the_times_of_their_sources(call, look):
    """Claimed times are shown and filtered by; runs without any are left out and counted."""
    assert look("timed", "show").code == 0

    def listed(*arguments: str) -> Ran:
        return call("runs", "--limit", "0", *arguments, workspace=ELSEWHERE)

    began = {
        line["labels"]["source_run"]: (line["began"], line["last"])
        for line in listed("--json").lines
        if line["labels"]["source_run"] in RECORDS
    }
    unknown = {"at": None, "clock": "import"}
    assert began["untimed"] == (unknown, unknown)
    assert began["timed"] == (
        {"at": "1999-12-31T23:59:58", "clock": "occurred_at"},
        {"at": "2000-01-01T00:00:02", "clock": "occurred_at"},
    )
    table = listed().out
    assert "1999-12-31 23:59:58 (occurred_at)" in table
    assert re.search(r"not given +not given", table)
    of_1999 = listed("--json", "--since", "1999-01-01T00:00Z", "--until", "1999-12-31T23:59:59Z")
    assert {line["labels"]["source_run"] for line in of_1999.lines} >= {"timed", "mixed"}
    assert "untimed" not in {line["labels"]["source_run"] for line in of_1999.lines}
    assert "left out by --since or --until: the source gives no time" in of_1999.err
    now = listed("--json", "--since", "2020-01-01T00:00Z").lines
    assert not {line["labels"].get("source_run") for line in now} & RECORDS.keys()


def test_the_table_of_runs_names_the_clock_of_their_times(look: Callable[..., Ran], call: Call):
    """In SQL, too, a time is the source's or missing: never that of the import."""
    assert look("timed", "show").code == 0
    sql = (
        "SELECT labels->>'source_run' AS name, clock, started_at, ended_at FROM runs "
        "WHERE name IN ('timed', 'untimed') ORDER BY name"
    )
    done = call("sql", sql, "--json", workspace=ELSEWHERE)
    assert done.code == 0, done.err
    timed, untimed = done.lines[:2]
    assert (timed["name"], timed["clock"]) == ("timed", "occurred_at")
    assert timed["started_at"].startswith("1999-12-31T23:59:58")
    assert timed["ended_at"].startswith("2000-01-01T00:00:02")
    assert (untimed["name"], untimed["clock"]) == ("untimed", "import")
    assert untimed["started_at"] is untimed["ended_at"] is None
