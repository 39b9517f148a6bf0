"""Export, import and export again: the same bytes, log and answers."""

import threading
from pathlib import Path

import pytest

import hansard
from hansard.bus.log import Origin
from hansard.cli.exchange import Schema
from hansard.domain.errors import UnknownEvent
from hansard.domain.ids import AgentStream, WorkspaceStream
from tests.cli.planting import delete_blobs
from tests.exchange.support import (
    LONG,
    SECRET,
    Zoo,
    bring_in,
    exported,
    in_workspace,
    lines_of,
    log_of,
    taken_out,
)
from tests.schemas import check_commit, validator

KINDS = [
    "team", "failed", "doubt", "settled", "forked", "fork of a fork", "bounded", "redacted", "long",
    "open", "talk 1", "talk 3", "retried", "unknown",
]  # fmt: skip


@pytest.mark.fast(cases=4, slow=0)
@pytest.mark.parametrize("kind", KINDS)
def test_out_in_and_out_again_is_byte_equal(home, zoo: Zoo, workspace, tmp_path, call, kind):
    """Export, import and export give the same bytes; checks and derivation find nothing."""
    run = zoo.runs[kind]
    data = exported(home, "zoo", run)
    brought = bring_in(home, workspace, tmp_path / "x.jsonl", data)
    assert brought.bads == []
    assert brought.bytes == len(data)
    assert exported(home, workspace, run) == data
    checked = call(workspace, "check")
    assert (checked.code, checked.out.count("nothing is wrong")) == (0, 1), checked.out
    replayed = call(workspace, "run", "replay", run, "--json")
    *calls, summary = replayed.lines
    assert (replayed.code, summary["differ"], summary["unproven"]) == (0, 0, 0)
    assert calls == call("zoo", "run", "replay", run, "--json").lines[:-1]


@pytest.mark.fast(cases=3, slow=0)
@pytest.mark.parametrize("kind", KINDS)
def test_the_states_are_equal(home, zoo: Zoo, workspace, tmp_path, kind):
    """The copy folds to the original's states; an event of an unknown type stops both."""
    run = zoo.runs[kind]
    bring_in(home, workspace, tmp_path / "x.jsonl", exported(home, "zoo", run))
    states: list[object] = []
    for name in ("zoo", workspace):
        with hansard.connect(name, data_dir=home) as record:
            try:
                view = record.state(run)
            except UnknownEvent as error:
                states.append(str(error))
            else:
                states.append((view.life, view.agents, view.streams, view.vector))
    assert states[0] == states[1]
    assert isinstance(states[0], str) == (run == zoo.runs["unknown"])


def test_every_line_and_every_event_fits_its_schema(home, zoo: Zoo):
    """All exported lines and events of known types fit what `hansard schema` publishes."""
    lines = lines_of(exported(home, "zoo", *sorted(set(zoo.runs.values()))))
    for line in lines:
        validator(Schema.EXPORT).validate(line)
    bodies = [line["body"] for line in lines if line["kind"] == "commit"]
    assert sum(check_commit(body, unknown=True) for body in bodies) > len(bodies) > 100


def test_importing_again_changes_nothing(home, zoo: Zoo, workspace, tmp_path):
    """A second import finds every commit, and the log is unchanged, times included."""
    data = exported(home, "zoo", zoo.runs["team"])
    first = bring_in(home, workspace, tmp_path / "x.jsonl", data)
    before = log_of(home, workspace)
    second = bring_in(home, workspace, tmp_path / "x.jsonl")
    assert (first.tally.new, second.tally.new) == (len(before), 0)
    assert (second.tally.commits, second.tally.runs, second.bads) == (len(before), 1, [])
    assert log_of(home, workspace) == before


def test_where_a_commit_stood_stays_with_it(home, zoo: Zoo, workspace, tmp_path):
    """A commit's origin is the first log, position and time, through any number of copies."""
    run = zoo.runs["bounded"]
    bring_in(home, workspace, tmp_path / "x.jsonl", exported(home, "zoo", run))
    bring_in(home, f"{workspace}b", tmp_path / "y.jsonl", exported(home, workspace, run))
    originals = {s.position: s for s in log_of(home, "zoo")}
    copies = log_of(home, f"{workspace}b")
    for copy in copies:
        assert copy.origin is not None
        original = originals[copy.origin.position]
        seconds, ns = divmod(original.stamp, 10**9)
        assert copy.origin.at.endswith(f".{ns:09d}Z")
        assert copy.origin == Origin("zoo", original.position, copy.origin.at)
        assert copy.body == original.body
        assert original.time.strftime("%FT%T") in copy.origin.at
        assert seconds > 0
    assert [copy.position for copy in copies] == list(range(1, len(copies) + 1))


def test_a_fork_brings_its_parents_once(home, zoo: Zoo):
    """An export of a fork of a fork contains both parents, and shared commits once."""
    runs = zoo.runs
    data = exported(home, "zoo", runs["fork of a fork"], runs["forked"])
    header = lines_of(data)[0]
    assert header["runs"] == [runs["fork of a fork"], runs["forked"]]
    assert header["carries"] == [runs["team"], runs["forked"], runs["fork of a fork"]]
    parents = [line for line in lines_of(data) if line.get("stream", {}).get("run") == runs["team"]]
    alone = lines_of(exported(home, "zoo", runs["team"]))
    whole = [line for line in alone if line.get("stream", {}).get("run") == runs["team"]]
    assert [line["body"] for line in parents] == [line["body"] for line in whole]


def test_a_run_of_a_conversation_brings_those_before_it(home, zoo: Zoo, workspace, tmp_path):
    """The second of three runs of a conversation brings the first; the third is added later."""
    one, two, three = (zoo.runs[f"talk {n}"] for n in (1, 2, 3))
    data = exported(home, "zoo", two)
    assert lines_of(data)[0]["carries"] == [one, two]
    bring_in(home, workspace, tmp_path / "x.jsonl", data)
    stream = WorkspaceStream("conversation", "chat")
    assert len([s for s in log_of(home, workspace) if s.stream == stream]) == 2
    more = bring_in(home, workspace, tmp_path / "y.jsonl", exported(home, "zoo", three))
    assert (more.bads, more.tally.runs) == ([], 3)
    assert 0 < more.tally.new < more.tally.commits
    with hansard.connect(workspace, data_dir=home) as record:
        assert record.conversation("chat").runs == [one, two, three]


def test_boards_and_budgets_go_along(home, zoo: Zoo):
    """The shared boards and budgets of a run are exported with it."""
    kinds = {
        line["stream"]["type"]
        for line in lines_of(exported(home, "zoo", zoo.runs["bounded"]))[1:-1]
    }
    assert kinds == {"life", "agent", "board"}


def test_each_blob_is_there_once_and_before_it_is_named(home, zoo: Zoo):
    """A large value in three events is one blob, directly before its first event."""
    lines = lines_of(exported(home, "zoo", zoo.runs["retried"]))
    parts = [line for line in lines if line["kind"] == "blob"]
    assert [(part["part"], part["parts"]) for part in parts] == [(0, 2), (1, 2)]
    named = [line["n"] for line in lines if parts[0]["sha256"] in line.get("body", "")]
    assert len(named) >= 2
    assert parts[-1]["n"] + 1 == named[0]


def test_no_secret_is_in_an_export(home, zoo: Zoo):
    """A redacted value is a name in the export, too."""
    data = exported(home, "zoo", zoo.runs["redacted"])
    assert SECRET.encode() not in data
    assert b"$secret" in data


def test_names_that_no_subject_holds(home, zoo: Zoo):
    """A name digested in subjects is exported in full."""
    lines = lines_of(exported(home, "zoo", zoo.runs["long"]))
    assert {line["stream"]["run"] for line in lines[1:-1]} == {f"run {LONG}"}


def test_the_header_tells_nothing_of_the_moment(home, zoo: Zoo):
    """Two exports of one log are byte-equal."""
    run = zoo.runs["settled"]
    assert exported(home, "zoo", run) == exported(home, "zoo", run)


@pytest.mark.slow
def test_a_run_that_is_being_written(home, workspace, tmp_path):
    """Each export of a run in progress is consistent and imports over the previous one."""

    def write():
        gate = [hansard.budget("all", limit=10_000)]
        with (
            hansard.connect(workspace, data_dir=home) as record,
            record.run("w", run="r", agent="a", role="r", gate=gate) as session,
            record.run(run="r", agent="b", role="s", gate=gate) as other,
        ):

            @session.tool(effects="idempotent")
            def ask(n: int) -> str:
                return "x" * (70_000 if n % 20 == 0 else 10) + str(n)

            for n in range(80):
                ask(n)
                other.message("user", str(n))

    writer = threading.Thread(target=write)
    writer.start()
    copy = f"{workspace}-copy"
    grew = []
    try:
        while writer.is_alive():
            if "r" not in in_workspace(home, workspace, lambda opened: opened.log.runs()):
                continue
            data = exported(home, workspace, "r")
            result = bring_in(home, copy, tmp_path / "x.jsonl", data)
            assert result.bads == []
            grew.append(result.tally.new)
    finally:
        writer.join(timeout=170)
    data = exported(home, workspace, "r")
    assert bring_in(home, copy, tmp_path / "x.jsonl", data).bads == []
    assert exported(home, copy, "r") == data
    assert len([new for new in grew if new]) > 1


@pytest.mark.thorough
@pytest.mark.real
def test_a_published_benchmark_goes_out_and_in(
    home, workspace, tmp_path, call, real_data, evidence
):
    """200 runs of tau-bench are byte-equal after a round trip, and so is the log."""
    [file] = real_data.rglob("gpt-4o-airline.json")
    assert call(workspace, "import", "tau-bench", file).code == 0
    runs = sorted(in_workspace(home, workspace, lambda opened: opened.log.runs()))
    data = exported(home, workspace, *runs)
    brought = bring_in(home, f"{workspace}b", tmp_path / "x.jsonl", data)
    assert (brought.bads, brought.tally.runs, brought.tally.messages) == ([], 200, 5_308)
    assert exported(home, f"{workspace}b", *runs) == data
    original = log_of(home, workspace)
    owner = original[-1].stream  # of the import alone
    assert isinstance(owner, WorkspaceStream)
    assert owner.kind == "import"
    assert [s.body for s in log_of(home, f"{workspace}b")] == [s.body for s in original[:-1]]
    evidence.record("export.round_trip", runs=200, commits=brought.tally.commits, bytes=len(data))


def test_sections_can_stand_one_after_the_other(home, zoo: Zoo, workspace, tmp_path):
    """Concatenated exports are both imported, and shared commits once."""
    one = exported(home, "zoo", zoo.runs["forked"])
    two = exported(home, "zoo", zoo.runs["team"])
    brought = bring_in(home, workspace, tmp_path / "x.jsonl", one + two + one)
    assert (brought.bads, brought.tally.runs) == ([], 5)
    assert brought.tally.new == len(log_of(home, workspace))
    assert exported(home, workspace, zoo.runs["forked"]) == one


def test_what_was_erased_is_reported_and_the_rest_goes_on(home, workspace, tmp_path, call):
    """An erased blob is reported missing by export and import, and the copy is byte-equal."""
    with hansard.connect(workspace, data_dir=home) as record:  # noqa: SIM117 -- one is the workspace
        with record.run("w", run="r", agent="a", role="r") as session:

            @session.tool(effects="pure")
            def big(n: int) -> str:
                return str(n) * 100_000

            big(1)
            big(2)
    delete_blobs(home, workspace)
    data, result = taken_out(home, workspace, "r")
    assert len(result.missing) == 2
    assert lines_of(data)[-1]["missing"] == [{"what": m.what, "why": m.why} for m in result.missing]
    brought = bring_in(home, f"{workspace}b", tmp_path / "x.jsonl", data)
    assert brought.bads == []
    assert sorted(brought.tally.absent) == sorted(
        m.what.removeprefix("blob ") for m in result.missing
    )
    assert taken_out(home, f"{workspace}b", "r")[0] == data
    out = call(workspace, "export", "r", "-o", tmp_path / "y.jsonl")
    assert (out.code, out.out, out.err.count("missing: blob")) == (1, "", 2)
    second = call(f"{workspace}c", "import", "events", tmp_path / "y.jsonl")
    assert "2 large payloads were missing at the source" in second.out


def test_a_point_in_the_past_is_the_same_point(home, zoo: Zoo, workspace, tmp_path, call):
    """State at a version, a commit and an event of the copy is that of the original."""
    run = zoo.runs["team"]
    bring_in(home, workspace, tmp_path / "x.jsonl", exported(home, "zoo", run))
    commits = [
        s.commit
        for s in log_of(home, "zoo")
        if s.stream == AgentStream(run, "researcher", "researcher_1")
    ]
    points = ["researcher_1@7", commits[3].id, commits[-1].events[0].id]
    for point in points:
        then, now = (
            call(name, "run", "show", run, "--at", point, "--json") for name in ("zoo", workspace)
        )
        assert then.code == now.code == 0
        drop = {"position", "time", "started", "at", "stamp", "origin", "began", "last"}
        assert [_less(line, drop) for line in now.lines] == [
            _less(line, drop) for line in then.lines
        ]


def _less(line, drop):
    return {key: value for key, value in line.items() if key not in drop}


def in_short(messages: list[dict[str, str]]) -> str:
    """Summarize by a rule, in place of a model."""
    return f"{len(messages)} earlier"


def test_the_window_comes_along(data_dir: Path, workspace: str, tmp_path: Path):
    """A summary's earlier runs are exported with it, and a later run uses the summary."""
    copy = f"{workspace}-copy"
    with hansard.connect(workspace, data_dir=data_dir) as record:
        for run, texts in (("one", "abc"), ("two", "d")):
            with record.run("w", run=run, conversation="c", agent="ada", role="r") as session:
                for text in texts:
                    session.message("user", f"{text}, please, at length")
                if run == "two":
                    session.compact(in_short, keep=2)
        conversation = record.conversation("c")
    assert [message["content"][:9] for message in conversation.window] == [
        "2 earlier",
        "c, please",
        "d, please",
    ]
    bring_in(data_dir, copy, tmp_path / "x.jsonl", exported(data_dir, workspace, "two"))
    with hansard.connect(copy, data_dir=data_dir) as record:
        again = record.conversation("c")
        assert (again.window, again.messages) == (conversation.window, conversation.messages)
        with record.run("w", run="three", conversation="c", agent="ada", role="r") as session:
            assert session.window() == conversation.window
            assert session.window(full=True) == conversation.messages
