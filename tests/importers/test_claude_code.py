"""Transcripts of Claude Code as runs. Their records are written by hand, shaped as real ones."""

import json
from typing import Any

import pytest

from hansard.domain import run as runs
from hansard.domain.agent import MessageAdded
from hansard.domain.decider import fold
from hansard.domain.ids import AgentStream
from hansard.domain.steps import StepCompleted, StepFailed, StepRequested
from hansard.ext.importers.chat import ChatRun, ImportDefaults, mapped, run_id
from hansard.ext.importers.sources import recognised, records
from tests.importers.support import NOW, events, log_of, of_type, rederived, written
from tests.importers.test_tau import Nobody

pytestmark = pytest.mark.later


def record(kind: str, uuid: str, message: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a line of a transcript."""
    return {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/me/shop",
        "sessionId": "5e55-1",
        "version": "2.1.128",
        "gitBranch": "main",
        "type": kind,
        "message": message,
        "uuid": uuid,
        "timestamp": f"2026-11-02T10:00:0{len(uuid)}.000Z",
        **more,
    }


def answer(
    uuid: str, id_: str, *blocks: dict[str, Any], output: int, **more: Any
) -> dict[str, Any]:
    """Return a part of an answer; its usage grows from part to part."""
    usage = {"input_tokens": 3, "cache_read_input_tokens": 900, "output_tokens": output}
    message = {"id": id_, "type": "message", "role": "assistant", "model": "claude-opus-4-6"}
    return record("assistant", uuid, {**message, "content": [*blocks], "usage": usage}, **more)


def uses(id_: str, name: str, **arguments: Any) -> dict[str, Any]:
    """Return a call."""
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def results(uuid: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Results of calls, as a user's message."""
    return record("user", uuid, {"role": "user", "content": [*blocks]}, **more)


def result(id_: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return a result."""
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **more}


SESSION: list[dict[str, Any]] = [
    {"type": "summary", "summary": "Repair of the basket", "leafUuid": "x"},
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False},
    record("user", "u", {"role": "user", "content": "Repair the basket."}),
    answer("a1", "msg_1", {"type": "thinking", "thinking": "Look.", "signature": "s"}, output=1),
    answer("a12", "msg_1", {"type": "text", "text": "I look."}, output=9),
    answer("a123", "msg_1", uses("t1", "Bash", command="ls"), output=30),
    answer("a1234", "msg_1", uses("t2", "Read", file_path="basket.py"), output=44),
    results("r1", result("t1", "basket.py"), toolUseResult={"stdout": "basket.py", "stderr": ""}),
    results("r12", result("t2", "no such file", is_error=True), toolUseResult="Error: no file"),
    record("system", "s1", {}, subtype="turn_duration", durationMs=12),
    answer("b", "msg_2", {"type": "text", "text": "It is gone."}, output=5),
]


def read(path: Any) -> Any:
    """Return a transcript as commits."""
    watcher = Nobody()
    [(_, parsed)] = records("claude-code", path, ImportDefaults(), watcher)
    assert isinstance(parsed, ChatRun), parsed
    assert watcher.count == path.stat().st_size
    return mapped(parsed, run_id(parsed), path.name, NOW)


def plain(value: Any) -> Any:
    """Return a recorded value."""
    return json.loads(bytes(value))


def test_a_session_is_a_run(tmp_path):
    """Parts of one answer are one message, whose usage counts once, as the last part has it."""
    out = read(written(tmp_path / "s.jsonl", SESSION))
    messages = of_type(out, MessageAdded)
    assert [message.role for message in messages] == [
        *("user", "assistant", "tool", "tool", "assistant")
    ]
    usage = {"input_tokens": 3, "cache_read_input_tokens": 900, "output_tokens": 44}
    assert messages[1].usage == usage
    blocks = plain(messages[1].content)
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    state = fold(runs.RunState(), events(out, "life"))
    assert (state.workflow, state.status) == ("claude-code", "open")
    assert state.labels == {
        "source": "claude-code",
        "source_file": "s.jsonl",
        "source_run": "5e55-1",
        "model": "claude-opus-4-6",
        "claude_code_version": "2.1.128",
        "cwd": "/home/me/shop",
        "git_branch": "main",
    }
    first = out.appends[0].commit.events[0]
    assert first.occurred_at == SESSION[2]["timestamp"]


def test_its_calls_are_steps(tmp_path):
    """Results answer by id; one with `is_error` failed; what the harness kept of it stays."""
    out = read(written(tmp_path / "s.jsonl", SESSION))
    requests = of_type(out, StepRequested)
    assert [(each.tool, plain(each.arguments)) for each in requests] == [
        ("Bash", {"command": "ls"}),
        ("Read", {"file_path": "basket.py"}),
    ]
    [done] = of_type(out, StepCompleted)
    assert plain(done.result) == "basket.py"
    [failed] = of_type(out, StepFailed)
    assert failed.error.message == "no such file"
    fields = plain(of_type(out, MessageAdded)[2].fields)
    assert fields["toolUseResult"] == {"stdout": "basket.py", "stderr": ""}
    assert not any(checked.differs for checked in rederived(out))


def test_what_is_no_message_is_counted(tmp_path):
    """Other records are counted by type; repeats by a resumed session are left out."""
    out = read(written(tmp_path / "s.jsonl", [*SESSION, SESSION[2]]))
    assert out.tally.left_out == {
        "record of type summary": 1,
        "record of type file-history-snapshot": 1,
        "record of type system": 1,
        "record there twice": 1,
    }


def test_a_sub_agent_has_a_stream_of_its_own(tmp_path):
    """A sub-agent in the session's file has its own stream; one with its own file is a run."""
    side = {"isSidechain": True, "agentId": "a1b2"}
    inner = [
        record("user", "v", {"role": "user", "content": "Count the lines."}, **side),
        answer("v1", "msg_s", {"type": "text", "text": "Twelve."}, output=7, **side),
    ]
    out = read(written(tmp_path / "s.jsonl", SESSION[:3] + inner + SESSION[3:]))
    streams = {
        (append.stream.role, append.stream.agent)
        for append in out.appends
        if isinstance(append.stream, AgentStream)
    }
    assert streams == {("assistant", "claude-code"), ("subagent", "subagent-a1b2")}
    own = read(written(tmp_path / "agent-a1b2.jsonl", inner))
    state = fold(runs.RunState(), events(own, "life"))
    assert state.labels["source_run"] == "5e55-1/subagent-a1b2"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"type": "user", "message": ', "it is not JSON (Input data was truncated)"),
        ('{"type": "user", "type": "user"}', "the key 'type' is there twice in one object"),
        (
            '{"type": "assistant", "message": {"role": 1}}',
            "Expected `str`, got `int` - at `$.role`",
        ),
        ("[]", "Expected `object`, got `array`"),
    ],
)
def test_a_session_is_imported_whole_or_not_at_all(
    bring_in, home, workspace, tmp_path, line, reason
):
    """One wrong line is reported once, by its number, and nothing is on record."""
    path = written(tmp_path / "s.jsonl", SESSION)
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*text[:5], line + "\n", *text[5:]]))
    result = bring_in("claude-code", path)
    [message] = result.err.splitlines()
    assert message.startswith(f"{path}:6: {reason}")
    assert message.endswith("; a session is imported whole or not at all: take the line out")
    assert (result.code, log_of(home, workspace)) == (1, [])


def test_importing_again_adds_nothing_and_a_longer_session_is_a_conflict(bring_in, tmp_path):
    """A longer session has the same name and other content: a reported conflict."""
    path = written(tmp_path / "s.jsonl", SESSION)
    result = bring_in(path)
    assert result.out == (
        "1 run, 5 messages, 2 calls: 7 commits, 7 of them new\n"
        "not imported: 1 record of type summary; 1 record of type file-history-snapshot; "
        "1 record of type system\n"
    )
    assert "7 commits, 0 of them new" in bring_in(path).out
    more = record("user", "z", {"role": "user", "content": "Thanks."})
    result = bring_in(written(path, [*SESSION, more]))
    assert "session '5e55-1' continued or changed since it was imported as" in result.err
    assert result.code == 1
    assert "1 run, 6 messages" in bring_in(path, "--experiment", "e", "--arm", "longer").out


def test_an_imported_session_is_not_at_work(bring_in, tmp_path):
    """An imported session is open, since its end is unknown, and no process works on it."""
    bring_in(written(tmp_path / "s.jsonl", SESSION))
    [run] = bring_in("--json", command="runs").lines
    assert (run["status"], run["at_work"]) == ("open", [])
    [shown] = [
        line
        for line in bring_in("show", run["run"], "--json", command="run").lines
        if line["kind"] == "run"
    ]
    assert shown["at_work"] == []
    held = bring_in("--json", command="status").lines[-1]
    assert (held["runs"], held["open_runs"]) == ({"open": 1}, {})


def test_a_bare_line_is_recognised(tmp_path):
    """Type and message suffice; a line of another kind with both keys is none."""
    bare = {"type": "user", "message": {"role": "user", "content": "Hello."}}
    assert _format(tmp_path, [bare]) == "claude-code"
    assert _format(tmp_path, [{"type": "log", "message": "started"}]) is None
    assert _format(tmp_path, [{"type": "summary", "sessionId": "s"}]) == "claude-code"


def _format(folder, lines):
    importer = recognised(written(folder / "x.jsonl", lines).read_bytes())
    return importer.name if importer is not None else None


def test_an_answer_of_the_program_itself_names_no_model(tmp_path):
    """A failed request, which Claude Code writes as an answer of a pseudo model, names no model."""
    failed = answer("e", "msg_0", {"type": "text", "text": "API Error: 529"}, output=0)
    failed["message"]["model"] = "<synthetic>"
    out = read(written(tmp_path / "s.jsonl", [failed, *SESSION]))
    state = fold(runs.RunState(), events(out, "life"))
    assert state.labels["model"] == "claude-opus-4-6"


def test_a_file_without_messages_is_reported(bring_in, tmp_path):
    """A session without messages is no run, and is reported."""
    path = written(tmp_path / "s.jsonl", SESSION[:2])
    result = bring_in(path)
    assert result.err == f"{path}:1: the file has no messages of a user or an assistant\n"


def test_what_was_left_out_is_a_row_of_the_table_imports(bring_in, tmp_path):
    """The table `imports` lists fields of the other system that were left out."""
    bring_in(written(tmp_path / "s.jsonl", SESSION))
    result = bring_in("SELECT format, left_out FROM imports", "--json", command="sql")
    [row] = [line for line in result.lines if line.get("format") == "claude-code"]
    left_out = row["left_out"]
    counts = json.loads(left_out) if isinstance(left_out, str) else left_out
    assert counts["record of type system"] == 1


def test_a_secret_is_replaced_or_its_session_is_refused(
    bring_in, home, workspace, tmp_path, monkeypatch
):
    """A secret in a message is replaced; a blob is immutable, so its session is refused by line."""
    monkeypatch.setenv("SHOP_KEY", "sk-basket-4711")
    monkeypatch.setenv("HANSARD_REDACT", "shop=SHOP_KEY")
    prompt = record("user", "k", {"role": "user", "content": "Use sk-basket-4711."})
    short = written(tmp_path / "short.jsonl", [*SESSION, prompt])
    padded = {"role": "user", "content": "sk-basket-4711" + "x" * 100_000}
    long = [{**each, "sessionId": "5e55-2"} for each in (*SESSION, record("user", "l", padded))]
    result = bring_in(written(tmp_path / "long.jsonl", long), short)
    assert "long.jsonl:1: a text stored as a blob holds a secret" in result.err
    assert result.out.startswith("1 run, 6 messages")
    assert not any(b"sk-basket-4711" in stored.body for stored in log_of(home, workspace))
