"""An import's interpretation of ambiguous sources, and its errors where there is none."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.support import Call

pytestmark = pytest.mark.later

ASKED = {"role": "user", "content": "hello"}


def imported(call: Call, folder: Path, text: str) -> str:
    """Import a file of this text and return the command's stderr."""
    file = folder / "chats.jsonl"
    file.write_text(text)
    return call("import", "chat-jsonl", file).err


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize(
    "time",
    [
        "2025-01-01T00:00:00Z",
        "2025-01-01T01:00:00+01:00",
        1735689600,
        1735689600000,
        "1735689600.0",
    ],
)
def test_a_time_is_read_however_it_is_written(call: Call, tmp_path: Path, time: str | float):
    """ISO 8601 with zone, seconds and milliseconds are the same moment."""
    record = {"messages": [ASKED | {"timestamp": time}]}
    assert imported(call, tmp_path, msgspec.json.encode(record).decode()) == ""
    (row,) = call(*("sql", "--json", "SELECT happened_at::VARCHAR AS at FROM messages")).lines[:1]
    assert row["at"] == "2025-01-01 00:00:00"


@pytest.mark.parametrize("time", ["yesterday", "12:30", 7, "2025-13-01", "1e400", -5])
def test_what_is_no_time_is_an_error(call: Call, tmp_path: Path, time: str | float):
    """An invalid time is an error, since it would be replaced by the time of the import."""
    record = {"messages": [ASKED, ASKED | {"timestamp": time}]}
    message = imported(call, tmp_path, msgspec.json.encode(record).decode())
    assert f"messages[1].timestamp: '{time}' is not a time; give ISO 8601" in message
    assert call("runs", "--json").lines == []


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('[{"messages": []}]', "jq -c '.[]' FILE"),
        ('{\n  "messages": [\n  ]\n}\n', "jq -c . FILE"),
        ('{"messages": [], "outcome": {"reward": NaN}}', "NaN and Infinity are not JSON"),
        ('{"messages": [], "outcom": {"reward": 1}}', "did you mean 'outcome'?"),
    ],
)
def test_a_file_that_is_nearly_right_is_refused_with_the_remedy(call, tmp_path, text, remedy):
    """A nearly valid file yields one sentence with the remedy; nothing is written."""
    message = imported(call, tmp_path, text)
    assert message.count(remedy) == 1
    assert call("runs", "--json").lines == []


def test_a_record_names_its_model(call: Call, tmp_path: Path):
    """A record's model is the run's label `model`; a contradicting label is refused."""
    record = {"messages": [ASKED], "model": "gpt-4o-2024-08-06"}
    assert imported(call, tmp_path, msgspec.json.encode(record).decode()) == ""
    (run,) = call("runs", "--json").lines
    assert run["labels"]["model"] == "gpt-4o-2024-08-06"
    twice = record | {"labels": {"model": "another"}}
    assert "state the model once" in imported(call, tmp_path, msgspec.json.encode(twice).decode())


NAMELESS = {
    "messages": [
        ASKED,
        {
            "role": "assistant",
            "tool_calls": [{"name": "look", "arguments": {"n": n}} for n in (1, 2)],
        },
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two"},
        {"role": "tool", "content": "three"},
    ],
    "outcome": {"reward": 1},
}


def test_a_result_without_an_id_answers_the_call_before_it(call: Call, tmp_path: Path):
    """Results without ids answer calls without ids in order; surplus ones are reported once."""
    file = tmp_path / "chats.jsonl"
    file.write_text(msgspec.json.encode(NAMELESS).decode())
    output = call("import", "chat-jsonl", file).out
    assert "2 results without an id taken for the call before" in output
    assert "1 result without a call" in output
    steps = call("run", "trace", "last", "--json").lines
    assert [(step["arguments"], step["result"]) for step in steps] == [
        ({"n": 1}, "one"),
        ({"n": 2}, "two"),
    ]


def test_an_error_by_its_sources_convention_is_a_failed_step(call: Call, tmp_path: Path):
    """A result of tau-bench that begins with `Error` is a failed step."""
    trajectory = [
        ASKED,
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "look"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "Error: user not found"},
    ]
    file = tmp_path / "runs.json"
    file.write_text(
        msgspec.json.encode([{"task_id": 1, "traj": trajectory, "reward": 0.0}]).decode()
    )
    assert call("import", "tau-bench", file).code == 0
    (step,) = call("run", "trace", "last", "--json").lines
    assert step["status"] == "failed"
    assert "user not found" in step["error"]["message"]


def written(folder: Path, *records: dict[str, Any], name: str = "chats.jsonl") -> Path:
    """Return a file of records."""
    file = folder / name
    file.write_bytes(b"\n".join(map(msgspec.json.encode, records)))
    return file


CALLED = {"role": "assistant", "tool_calls": [{"id": "c", "name": "look", "arguments": {}}]}


@pytest.mark.parametrize(
    "answer",
    [
        {"content": "gone", "isError": True},
        {"content": "gone", "is_error": True},
        {"content": {"content": [{"type": "text", "text": "gone"}], "isError": True}},
    ],
)
def test_a_result_that_says_it_is_an_error_is_a_failed_step(call, tmp_path, answer):
    """MCP's and Anthropic's error flags make a failed step; nothing is assumed."""
    answered = {"role": "tool", "tool_call_id": "c", **answer}
    file = written(tmp_path, {"messages": [ASKED, CALLED, answered]})
    result = call("import", "chat-jsonl", file, "--no-guesses")
    assert (result.code, result.err) == (0, "")
    (step,) = call("run", "trace", "last", "--json").lines
    assert step["status"] == "failed"


def test_a_run_lasts_from_its_first_message_to_its_last(call: Call, tmp_path: Path):
    """A run lasts from its first message to its last; without times its begin is unknown."""
    times = ["2025-01-01T00:00:00Z", "2025-01-01T00:00:02.5Z"]
    messages = [ASKED | {"timestamp": time} for time in times]
    for name, record in {"timed": messages, "untimed": [ASKED]}.items():
        file = written(tmp_path, {"run": name, "messages": record, "outcome": {}})
        assert call("import", "chat-jsonl", file, "--experiment", "e", "--arm", "a").code == 0
    query = "SELECT labels->>'source_run' AS name, latency_ms FROM trial_runs ORDER BY 1"
    timed, untimed = call("sql", "--json", query).lines
    assert (timed["name"], timed["latency_ms"]) == ("timed", 2_500)
    assert untimed["latency_ms"] is None


def test_a_name_that_is_there_with_other_content_is_a_conflict(call: Call, tmp_path: Path):
    """A name with other content is a conflict that names its run; equal content is none."""
    one = {"run": "chat-1", "messages": [ASKED]}
    other = one | {"messages": [ASKED, ASKED]}
    file = written(tmp_path, one, other)
    result = call("import", "chat-jsonl", file)
    (run,) = call("runs", "--json").lines
    assert result.code == 1
    assert f"{file}:2: run 'chat-1' is imported with other content, as {run['run']}:" in result.err
    later = written(tmp_path, other, name="later.jsonl")
    assert "is imported with other content" in call("import", "chat-jsonl", later).err
    assert call("runs", "--json").lines == [run]
    assert call("import", "chat-jsonl", written(tmp_path, one)).code == 0
    broken = {"run": "chat-2", "messages": [ASKED | {"role": ""}]}
    mended = written(tmp_path, broken, broken | {"messages": [ASKED]}, name="mended.jsonl")
    result = call("import", "chat-jsonl", mended)  # a record that failed has no name yet
    assert "other content" not in result.err
    assert len(call("runs", "--json").lines) == 2
    apart = call("import", "chat-jsonl", later, "--experiment", "e", "--arm", "a")
    assert (apart.code, apart.err) == (0, "")


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize(
    ("record", "assumption"),
    [
        (NAMELESS, "messages[2]: a result without an id taken for the call before (2 in this run)"),
        (
            {"messages": [ASKED | {"timestamp": "2025-01-01T00:00:00"}]},
            "messages[0]: a time without a zone read as UTC: give it one",
        ),
        ({"messages": [ASKED | {"timestamp": 1735689600}]}, "a number read as a time"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"name": "t", "arguments": "x"}]}]},
            "a call with arguments that are no JSON object",
        ),
    ],
)
def test_no_guesses_stops_where_something_would_be_assumed(call, tmp_path, record, assumption):
    """`--no-guesses` stops at the first assumption; without it all are listed and recorded."""
    good = {"messages": [ASKED | {"timestamp": "2025-01-01T00:00:00Z"}]}
    file = written(tmp_path, good, record, good | {"task": "after"})
    stopped = call("import", "chat-jsonl", file, "--no-guesses")
    assert stopped.code == 1
    assert f"{file}:2: " in stopped.err
    assert assumption in stopped.err
    assert "or leave out --no-guesses" in stopped.err
    assert len(call("runs", "--json").lines) == 1
    taken = call("import", "chat-jsonl", file)
    assert taken.code == 0
    assert "assumed: " in taken.out
    query = "SELECT runs, skipped, stopped, assumed, reasons FROM imports ORDER BY version"
    first, second = call("sql", "--json", query).lines
    assert (first["runs"], first["skipped"], first["stopped"]) == (1, 1, True)
    assert assumption in first["reasons"][0]
    assert (second["runs"], second["skipped"], second["stopped"]) == (3, 0, False)
    assert sum(msgspec.json.decode(second["assumed"]).values()) >= 1
    assert call("import", "chat-jsonl", file).code == 0
    assert len(call("sql", "--json", query).lines) == 2


def test_agents_of_one_conversation_come_back_in_their_order(call: Call, tmp_path: Path):
    """`run context --team` gives each message with its agent in order, also at an earlier point."""
    roles = {"planner": "plans", "coder": "codes"}
    messages = [
        {"role": "user", "content": "go", "name": "planner"},
        {"role": "assistant", "content": "plan", "name": "planner"},
        {"role": "assistant", "content": "code", "name": "coder"},
        {"role": "assistant", "content": "again", "name": "planner"},
        {"role": "assistant", "content": "done", "name": "coder"},
    ]
    file = written(
        tmp_path, {"agent": "planner", "role": "plans", "roles": roles, "messages": messages}
    )
    assert call("import", "chat-jsonl", file).code == 0
    lines = call("run", "context", "last", "--team", "--json").lines
    assert [line["agent"] for line in lines if line["kind"] == "context"] == ["planner", "coder"]
    shown = [line for line in lines if line["kind"] == "message"]
    assert [(line["agent"], line["message"]["content"]) for line in shown] == [
        (message["name"], message["content"]) for message in messages
    ]
    before = call("run", "context", "last", "--team", "--at", str(shown[2]["position"]), "--json")
    assert [line for line in before.lines if line["kind"] == "message"] == shown[:3]
    text = call("run", "context", "last", "--team").out
    assert text.index("plan") < text.index("code") < text.index("again") < text.index("done")
    refused = call("run", "context", "last", "--team", "--agent", "coder")
    assert refused.code == 2
    assert "leave one of them out" in refused.err


@pytest.mark.parametrize(
    ("document", "remedy"),
    [
        ([{"info": {"num_trials": 1}, "simulations": []}], "write each to one of its own"),
        ([{"id": "a", "task_id": 1, "messages": []}], "jq '{simulations: .}' FILE"),
    ],
)
def test_a_list_of_tau2_results_is_refused_with_the_remedy(call, tmp_path, document, remedy):
    """A list of tau2 results yields one sentence with the remedy."""
    file = tmp_path / "list.json"
    file.write_bytes(msgspec.json.encode(document))
    result = call("import", "tau2-bench", file)
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert remedy in result.err
