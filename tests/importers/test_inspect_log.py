"""Logs of Inspect as runs: real ones, written by inspect_ai and its mock model (data/README.md)."""

import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from backports.zstd import zipfile as zstd_zipfile

from hansard.agents.exchange import files
from hansard.domain import run as runs
from hansard.domain.agent import MessageAdded
from hansard.domain.decider import fold
from hansard.domain.run import RunFailed, RunScored
from hansard.domain.steps import StepCompleted, StepFailed, StepRequested
from hansard.ext.importers.chat import ChatRun, ImportDefaults, mapped, run_id
from hansard.ext.importers.sources import records
from tests.importers.support import NOW, events, log_of, of_type, rederived
from tests.importers.test_tau import Nobody

pytestmark = pytest.mark.later

DATA = Path(__file__).parent / "data"
CORRECT, WRONG = DATA / "inspect-correct.eval", DATA / "inspect-wrong.eval"


def entries(path: Path = CORRECT) -> dict[str, Any]:
    """Return the entries of a log by name, decoded."""
    with zstd_zipfile.ZipFile(path) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def archived(path: Path, parts: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """Return a log of these entries, compressed as older versions of Inspect do it."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, part in parts.items():
            data = part if isinstance(part, bytes) else json.dumps(part).encode()
            archive.writestr(name, data)
    return path


def document(path: Path, parts: dict[str, Any]) -> Path:
    """Return the same log as one JSON document, as `inspect log convert --to json` writes it."""
    samples = [part for name, part in parts.items() if name.startswith("samples/")]
    path.write_text(json.dumps({**parts["header.json"], "samples": samples}))
    return path


def read(path: Path) -> dict[str, Any]:
    """Return a log's samples as commits, by task."""
    watcher = Nobody()
    out = {}
    for _, parsed in records("inspect", path, ImportDefaults(), watcher):
        assert isinstance(parsed, ChatRun), parsed
        out[parsed.task] = mapped(parsed, run_id(parsed), path.name, NOW)
    assert watcher.count == path.stat().st_size
    return out


def test_a_sample_is_a_run():
    """Sample, epoch, scores and log become task, trial, metrics and labels."""
    made = read(CORRECT)
    assert sorted(made) == ["3", "small", "unlucky"]
    state = fold(runs.RunState(), events(made["small"], "life"))
    assert state.assigned == runs.RunAssigned(task="small", trial=1)
    assert state.scores == {"includes": 1.0, "brevity": 1.44, "model_graded_qa": 1.0}
    assert (state.workflow, state.status) == ("arithmetic", "completed")
    labels = {name: state.labels[name] for name in ("model", "level", "task_version", "source")}
    expected = {"model": "mockllm/model", "level": "easy", "task_version": "1", "source": "inspect"}
    assert labels == expected
    details = json.loads(bytes(state.judged[0].details))
    assert details["target"] == "3"
    assert details["scores"]["includes"]["answer"].startswith("the sum is 3")
    assert details["model_usage"]["mockllm/judge"]["input_tokens"] == 90


def test_messages_have_the_tokens_costs_and_times_of_their_calls():
    """Usage and time of an answer come from the model's event, a result's time from the tool's."""
    [small] = [made for task, made in read(CORRECT).items() if task == "small"]
    messages = of_type(small, MessageAdded)
    assert [message.role for message in messages] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]
    usage = {
        "input_tokens": 20,
        "output_tokens": 5,
        "total_tokens": 28,
        "input_tokens_cache_read": 3,
        "cost": 0.0005,
    }
    assert [message.usage for message in messages] == [{}, {}, usage, {}, usage]
    sample = entries()["samples/small_epoch_1.json"]
    calls = [event for event in sample["events"] if event["event"] in ("model", "tool")]
    times = [each.get("completed") or each["timestamp"] for each in calls]
    claimed = [
        event.occurred_at
        for append in small.appends
        for event in append.commit.events
        if event.type == "message.added.v1"
    ]
    assert claimed == [None, None, *times[:3]]
    life = [event.occurred_at for append in small.appends[:1] for event in append.commit.events]
    assert life[0] == sample["started_at"]
    assert small.appends[-1].commit.events[-1].occurred_at == sample["completed_at"]


def test_tool_calls_have_results_and_errors():
    """A call's arguments and result are a step's, and an error of Inspect fails it."""
    made = read(CORRECT)
    [request] = of_type(made["small"], StepRequested)
    assert (request.tool, json.loads(bytes(request.arguments))) == ("add", {"x": 1, "y": 2})
    [done] = of_type(made["small"], StepCompleted)
    assert json.loads(bytes(done.result)) == "3"
    [failed] = of_type(made["unlucky"], StepFailed)
    assert failed.error.message == "unlucky number"
    assert not any(checked.differs for checked in rederived(made["unlucky"]))


def test_what_is_not_taken_over_is_counted():
    """Other events, a judge's calls and NaN scores are counted."""
    counts = read(CORRECT)["unlucky"].tally.left_out
    assert counts == {
        "event besides calls of models and tools": 27,
        "call of a model without its answer among the messages": 1,
        "score without a number, kept in the details": 1,
    }


@pytest.mark.parametrize("form", ["deflated", "json"])
def test_every_form_of_a_log_has_the_same_runs(tmp_path, form):
    """Logs of today's and older versions and of JSON have the same runs, with no duplicates."""
    parts = entries()
    if form == "json":
        other = document(tmp_path / "log.json", parts)
    else:
        other = archived(tmp_path / "log.eval", parts)
    ids = {task: made.run for task, made in read(CORRECT).items()}
    assert {task: made.run for task, made in read(other).items()} == ids


def test_a_log_that_was_cut_off_has_the_samples_it_has(tmp_path):
    """A log without its header has its samples, since its journal has the common facts."""
    parts = entries()
    del parts["header.json"]
    assert len(read(archived(tmp_path / "log.eval", parts))) == 3


def test_texts_that_a_log_keeps_apart_are_put_back(tmp_path):
    """A text that is an attachment of the sample is restored."""
    parts = entries()
    sample = parts["samples/small_epoch_1.json"]
    sample["messages"][1]["content"] = [{"type": "image", "image": "attachment://abc"}]
    sample["attachments"] = {"abc": "data:image/png;base64,AAAA"}
    made = read(archived(tmp_path / "log.eval", parts))["small"]
    content = json.loads(bytes(of_type(made, MessageAdded)[1].content))
    assert content == [{"type": "image", "image": "data:image/png;base64,AAAA"}]


def test_answers_without_an_id_are_known_by_their_text(tmp_path):
    """Answers of older versions without ids are matched by text."""
    parts = entries()
    sample = parts["samples/small_epoch_1.json"]
    answers = [message for message in sample["messages"] if message["role"] == "assistant"]
    events = [event for event in sample["events"] if event["event"] == "model"]
    texts = sample["attachments"] = {}
    for number, (event, message) in enumerate(zip(events, answers, strict=False)):
        texts[f"t{number}"] = message["content"]
        event["output"]["choices"][0]["message"] = {
            **message,
            "id": None,
            "content": f"attachment://t{number}",
        }
        message["id"] = None
    made = read(archived(tmp_path / "log.eval", parts))["small"]
    tokens = [message.usage.get("input_tokens") for message in of_type(made, MessageAdded)]
    assert tokens == [None, None, 20, None, 20]
    assert made.tally.left_out["call of a model without its answer among the messages"] == 1


def test_other_events_may_have_any_fields(tmp_path):
    """A sandbox event's output may be a text."""
    parts = entries()
    sandbox = {"event": "sandbox", "action": "exec", "output": "hello", "id": 7, "completed": True}
    parts["samples/small_epoch_1.json"]["events"].append(sandbox)
    counts = read(archived(tmp_path / "log.eval", parts))["small"].tally.left_out
    assert counts["event besides calls of models and tools"] == 28


def test_a_newer_version_of_the_format_is_refused(bring_in, tmp_path):
    """A newer version of the format is refused, since its meaning is unknown."""
    parts = entries()
    parts["header.json"]["version"] = 4
    for path in (archived(tmp_path / "a", parts), document(tmp_path / "b", parts)):
        result = bring_in("inspect", path)
        [line] = result.err.splitlines()
        assert "version 4 of the format is not known: convert the log" in line
        assert result.out.startswith("0 runs")


def test_a_sample_that_broke_is_failed(tmp_path):
    """An error of the sample is the run's; scores may be missing."""
    parts = entries()
    sample = parts["samples/small_epoch_1.json"]
    sample |= {"error": {"message": "the sandbox is gone", "traceback": "x"}, "scores": None}
    made = read(archived(tmp_path / "log.eval", parts))["small"]
    [failed] = of_type(made, RunFailed)
    assert failed.error.message == "the sandbox is gone"
    [scored] = of_type(made, RunScored)
    assert scored.metrics == {}


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        ("C", {"s": 1}),
        ("P", {"s": 0.5}),
        ("I", {"s": 0}),
        ("N", {"s": 0}),
        ("yes", {"s": 1}),
        ("0.25", {"s": 0.25}),
        (True, {"s": 1}),
        (7, {"s": 7}),
        ({"a": 1, "b": "I"}, {"s.a": 1, "s.b": 0}),
        ([1, 0.5], {"s.0": 1, "s.1": 0.5}),
        ("nobody knows", {}),
        (None, {}),
    ],
)
def test_scores_are_counted_as_inspect_counts_them(tmp_path, value, numbers):
    """Grades are numbers, and an object or a list is one metric a part."""
    parts = entries()
    parts["samples/small_epoch_1.json"]["scores"] = {"s": {"value": value}}
    made = read(archived(tmp_path / "log.eval", parts))["small"]
    [scored] = of_type(made, RunScored)
    assert scored.metrics == numbers
    assert ("score without a number, kept in the details" in made.tally.left_out) == (not numbers)


def broken(how: str, path: Path) -> Path:
    """Return a log that is damaged in some way."""
    data = bytearray(CORRECT.read_bytes())
    if how == "cut off":
        path.write_bytes(data[: len(data) // 2])
    elif how == "a flipped bit":
        data[data.find(b"samples/small_epoch_1.json") + 200] ^= 0xFF
        path.write_bytes(data)
    elif how == "no log":
        archived(path, {"readme.txt": b"hello"})
    elif how == "too big":
        archived(path, entries())
        data = bytearray(path.read_bytes())
        at = data.rfind(b"samples/small_epoch_1.json") - 46  # of the central directory
        struct.pack_into("<I", data, at + 24, files.RECORD_BYTES_MAX + 1)
        path.write_bytes(data)
    else:
        parts = entries()
        parts["samples/small_epoch_1.json"] = {
            "no sample": {"epoch": 1},
            "a doubled key": b'{"id": 1, "id": 2, "epoch": 1}',
            "no JSON": b"{",
        }[how]
        archived(path, parts)
    return path


@pytest.mark.parametrize(
    ("how", "reason", "left"),
    [
        ("cut off", "not a complete ZIP archive", 0),
        ("a flipped bit", "entry 'samples/small_epoch_1.json': it cannot be read", 2),
        ("no log", "not a log of Inspect", 0),
        ("too big", "entry 'samples/small_epoch_1.json': it has 67,108,865 bytes", 2),
        ("no sample", "entry 'samples/small_epoch_1.json': Object missing", 2),
        ("a doubled key", "the key 'id' is there twice in one object: leave one out", 2),
        ("no JSON", "entry 'samples/small_epoch_1.json': it is not JSON", 2),
    ],
)
def test_damage_is_reported_by_entry_and_the_rest_is_imported(
    bring_in, home, workspace, tmp_path, how, reason, left
):
    """Damage is reported by entry, and nothing of that entry is on record."""
    path = broken(how, tmp_path / "log.eval")
    result = bring_in("inspect", path)
    [line] = result.err.splitlines()
    assert line.startswith(f"{path}:1: ")
    assert reason in line
    assert result.code == 1
    assert result.out.startswith(f"{left} runs")
    assert len(log_of(home, workspace)) == left * 9


def test_without_the_extra_it_says_what_to_install(bring_in, monkeypatch):
    """Without the extra the error names it, since Python before 3.14 lacks Zstandard."""
    monkeypatch.setitem(__import__("sys").modules, "backports.zstd.zipfile", None)
    result = bring_in("inspect", CORRECT)
    assert result.err == (
        f"{CORRECT}:1: a .eval file of this version of Inspect takes backports.zstd, which is not "
        "installed: pip install '.[inspect]' in a clone of Hansard\n"
    )


def test_a_log_is_read_from_a_pipe(monkeypatch):
    """Standard input is spooled, since an archive is read from its end."""
    with CORRECT.open(encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        parsed = list(records("inspect", None, ImportDefaults(), Nobody()))
    assert [type(run) for _, run in parsed] == [ChatRun] * 3


def test_a_log_is_read_from_a_named_pipe():
    """A log is read from a pipe, such as a shell's <(...), which can be opened only once."""
    read_end, write_end = os.pipe()
    os.write(write_end, CORRECT.read_bytes())
    os.close(write_end)
    parsed = list(records("inspect", Path(f"/dev/fd/{read_end}"), ImportDefaults(), Nobody()))
    os.close(read_end)
    assert [type(run) for _, run in parsed] == [ChatRun] * 3


def test_two_logs_are_compared_as_an_analyst_would(bring_in, home, workspace):
    """Each log is an arm: accuracies are Inspect's, and a second import adds nothing."""
    for path, arm in ((CORRECT, "correct"), (WRONG, "wrong")):
        result = bring_in(path, "--experiment", "sums", "--arm", arm)
        assert result.out == (
            "3 runs, 15 messages, 3 calls: 27 commits, 27 of them new\n"
            "not imported: 3 calls of a model without its answer among the messages; 81 events "
            "besides calls of models and tools; 1 score without a number, kept in the details\n"
        )
    before = log_of(home, workspace)
    again = bring_in(CORRECT, "--experiment", "sums", "--arm", "correct")
    assert "27 commits, 0 of them new" in again.out
    assert log_of(home, workspace) == before
    result = bring_in("sums", "--metric", "includes", "--json", command="compare")
    arms = {
        line["arm"]: line
        for line in result.lines
        if (line["kind"], line.get("part"), line.get("metric")) == ("arm", "judged", "includes")
    }
    for path, arm in ((CORRECT, "correct"), (WRONG, "wrong")):
        [accuracy] = [
            score["metrics"]["accuracy"]["value"]
            for score in entries(path)["header.json"]["results"]["scores"]
            if score["name"] == "includes"
        ]
        assert arms[arm]["mean"] == accuracy
