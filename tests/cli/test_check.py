"""`hansard check`: finds the faults of a workspace, and none in a sound one."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

import hansard
from hansard.bus import subjects
from hansard.bus.commits import encode
from hansard.domain.agent import CheckpointSaved, SessionBegan
from hansard.domain.conversation import ContextCompacted, RunJoined
from hansard.domain.events import Commit, Recorded
from hansard.domain.ids import AgentStream, RunStream, StreamId, WorkspaceStream
from hansard.domain.run import AgentJoined, RunForked, RunStarted
from hansard.domain.steps import Effects, StepCompleted, StepRequested
from tests.cli.planting import commit, delete_blobs, plant, publish_raw, tx
from tests.cli.support import Call, Runs

pytestmark = pytest.mark.later

Planted = list[tuple[StreamId, Commit]]
A = AgentStream("r1", "r", "a")
RAW = msgspec.Raw(b"{}")
ODD = msgspec.Raw(b'{"step":"one"}')
SUMMARY = ContextCompacted(
    role="system",
    summary=msgspec.Raw(b'"s"'),
    fingerprint="f",
    stands_for=("x",),
    digest="d",
    versions=((1, 7),),
)
BEGAN = SessionBegan(epoch=1, agent="a", role="r", server_version="x", protocol_version="y")


def begun() -> Planted:
    """Return a run as small as it can be: its life and an agent's first event."""
    life = commit(1, RunStarted(workflow="w"), AgentJoined(agent="a", role="r"), epoch=0)
    return [(RunStream("r1"), life), (A, commit(1, BEGAN))]


def requested(step: int, arguments: bytes = b"{}", **fields: Any) -> StepRequested:
    """Return an intent."""
    return StepRequested(
        step=step,
        tool="t",
        effects=Effects.PURE,
        call="c",
        fingerprint="f",
        arguments=msgspec.Raw(arguments),
        **fields,
    )


def extends(step: int, to: int, count: int, **fields: Any) -> StepRequested:
    """Return an intent whose argument adds an item to the list of an earlier step."""
    items = b'{"m":{"$append":{"to":%d,"count":%d,"digest":"","items":[3]}}}' % (to, count)
    return requested(step, items, **fields)


@pytest.fixture
def workspace(home: Path, record: hansard.Record) -> str:
    """Return a workspace of the test's own, with its streams and no commit."""
    name = f"c{uuid4().hex[:12]}"
    hansard.connect(workspace=name, data_dir=home).close()
    return name


@pytest.fixture
def findings(home: Path, workspace: str, call: Call) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that plants commits, checks again, and returns the findings."""

    def check(*planted: tuple[StreamId, Commit], begin: bool = True) -> list[dict[str, Any]]:
        plant(home, workspace, *(begun() if begin else ()), *planted)
        result = call("check", "--json", workspace=workspace)
        *reported, summary = result.lines
        assert summary["summary"] == workspace
        wrong = sum(finding["wrong"] for finding in reported)
        assert (summary["wrong"], summary["notes"]) == (wrong, len(reported) - wrong)
        assert result.code == (1 if wrong else 0)
        return reported

    return check


@pytest.mark.slow
def test_a_sound_workspace_has_no_finding(call: Call, runs: Runs):
    """Real runs, complete, failed, in doubt, settled and forked, are sound."""
    result = call("check", "--json")
    assert result.code == 0
    [summary] = result.lines
    assert summary["runs"] >= 5
    assert summary["blobs"] >= 1
    assert summary["blob_bytes"] > 100_000
    assert summary["commits"] == summary["position"]
    assert "nothing is wrong" in call("check").out


def test_what_the_log_was_not_compared_with_is_named(home: Path, workspace: str, call: Call):
    """Without tables the clean result says that the log was not compared with any."""
    plant(home, workspace, *begun())
    output = call("check", workspace=workspace).out
    assert re.search(
        r"; not compared with (the broker's mark \([^)]*\) and )?the tables \(none are published: "
        r"a query with 'hansard sql' makes them\)",
        output,
    )


def test_what_is_planted_in_these_tests_is_sound_to_begin_with(findings):
    """The smallest run has no finding, nor has one with a step that extends a list."""
    first, second = requested(1, b'{"m":[1,2]}'), extends(2, to=1, count=2, after=(1,))
    assert findings((A, commit(2, first)), (A, commit(3, second))) == []


def test_a_hole_in_the_versions_is_reported(findings):
    """A commit behind the log's back that leaves versions out."""
    [hole] = findings((A, commit(5, requested(1))))
    assert (hole["finding"], hole["run"], hole["stream"]) == ("version", "r1", "agent/r/a")
    assert "versions 2 to 4 are missing" in hole["fact"]


WHOLE = tx(0, 3)
TOLD = commit(2, requested(1))


@pytest.mark.parametrize(
    ("planted", "kinds", "fact"),
    [
        pytest.param(
            [(A, commit(2, requested(1), requested(2))), (A, commit(3, requested(3)))],
            ["version"],
            "version 3 is written again",
            id="two commits overlap, which subjects alone do not prevent",
        ),
        pytest.param(
            [(A, commit(2, Recorded("step.completed.v1", str(uuid4()), ODD)))],
            ["event"],
            "",
            id="a known type has fields that are not its own",
        ),
        pytest.param(
            [
                (A, commit(2, requested(1), tx=WHOLE)),
                (
                    RunStream("r1"),
                    commit(
                        3,
                        AgentJoined(agent="b", role="r"),
                        epoch=0,
                        tx=msgspec.structs.replace(WHOLE, index=1),
                    ),
                ),
                (A, commit(3, requested(2))),
            ],
            ["transaction"],
            "has 2 of its 3 commits",
            id="two of three commits of a transaction, followed by another",
        ),
        pytest.param(
            [
                (A, commit(2, msgspec.structs.replace(BEGAN, epoch=2), epoch=2)),
                (A, commit(3, requested(1), epoch=1)),
            ],
            ["quarantine", "epoch"],
            "",
            id="a commit of an epoch that was over",
        ),
        pytest.param(
            [(A, TOLD), (A, msgspec.structs.replace(TOLD, version=3))],
            ["duplicate"],
            "",
            id="one id under two versions",
        ),
    ],
)
def test_what_is_wrong_with_commits_is_reported(findings, planted: Planted, kinds, fact):
    """Each is a finding of its kind, and nothing else is."""
    reported = findings(*planted)
    assert [finding["finding"] for finding in reported] == kinds
    assert any(fact in finding["fact"] for finding in reported)


def test_a_body_that_its_subject_denies_is_reported(findings, home: Path, workspace: str):
    """A body of another version than its subject, and bytes that are no commit."""
    plant(home, workspace, *begun())
    publish_raw(
        home,
        (subjects.subject(workspace, A, 7), encode(A, commit(8, requested(1)))),
        (f"hansard.{workspace}.run.r2.life.1", b"no commit"),
        (f"hansard.{workspace}.run.r2.life.x", b"{}"),
    )
    reported = findings(begin=False)
    assert [(f["finding"], f["position"]) for f in reported] == [
        ("body", 3),
        ("body", 4),
        ("body", 5),
    ]
    assert "its body says version 8" in reported[0]["fact"]


def test_a_missing_blob_is_reported(home: Path, call: Call, workspace: str):
    """An event names it, and its chunks are not there."""
    with hansard.Session("w", agent="a", role="r", workspace=workspace, data_dir=home) as session:

        @session.tool(effects="pure")
        def big() -> str:
            return "x" * 100_000

        big()
    assert call("check", workspace=workspace).code == 0
    delete_blobs(home, workspace)
    result = call("check", "--json", workspace=workspace)
    assert result.code == 1
    finding, _ = result.lines
    assert (finding["finding"], finding["wrong"]) == ("blob", True)
    assert "chunks) was not found" in finding["fact"]


def test_a_damaged_blob_is_reported(home: Path, call: Call, findings, workspace: str):
    """The bytes of a damaged blob do not hash to its name."""
    name = "ab" * 32
    publish_raw(home, (subjects.blob_subject(workspace, name, 0), b"abc"))
    data = msgspec.Raw(b'{"$blob":{"sha256":"%b","size":3}}' % name.encode())
    saved = CheckpointSaved(name="c", data=data, fingerprint="f")
    [finding] = findings((A, commit(2, saved)))
    assert finding["finding"] == "blob"
    assert "its bytes hash to" in finding["fact"]


def test_an_event_of_a_newer_version_is_a_note_and_no_error(findings):
    """An event of a newer version is not damage."""
    newer = Recorded("step.imagined.v9", str(uuid4()), RAW)
    completed = StepCompleted(step=7, result=RAW, digest="")
    [note] = findings((A, commit(2, newer)), (A, commit(3, completed)))
    assert (note["finding"], note["wrong"]) == ("unknown_event", False)


@pytest.mark.parametrize(
    ("planted", "fact"),
    [
        ([(A, commit(2, requested(1, parent=9)))], "step 1 follows step 9"),
        ([(A, commit(2, requested(1, after=(8,))))], "step 1 follows step 8"),
        ([(A, commit(2, SUMMARY))], "a summary of versions 1 to 7, which are not before it"),
        ([(A, commit(2, StepCompleted(step=4, result=RAW, digest="")))], "was never requested"),
        ([(A, commit(2, extends(1, to=5, count=1)))], "extends step 5, which is not on record"),
        (
            [(A, commit(2, requested(1, b'{"m":[1]}'), extends(2, to=1, count=3)))],
            "extends 3 of step 1's 1 items",
        ),
        (
            [(RunStream("r2"), commit(4, RunForked(parent="r9", at={"life": 3})))],
            "its parent, run r9, is not on record",
        ),
        (
            [(RunStream("r2"), commit(3, RunForked(parent="r1", at={"life": 2, "agent/r/a": 5})))],
            "it holds version 5 of agent/r/a of run r1",
        ),
        ([(A, commit(2, requested(1), causation=str(uuid4())))], "is no event of this log"),
        ([(AgentStream("r1", "r", "b"), commit(1, BEGAN))], "agent 'b' never joined"),
        ([(AgentStream("r1", "other", "a"), commit(1, BEGAN))], "writes as 'other' and as 'r'"),
        ([(AgentStream("r3", "r", "a"), commit(1, BEGAN))], "run r3 has no life"),
        (
            [(WorkspaceStream("conversation", "x"), commit(1, RunJoined(run="r1")))],
            "which is not of it",
        ),
        (
            [(RunStream("r2"), commit(1, RunStarted(workflow="w", conversation_id="x")))],
            "conversation 'x' does not know this run",
        ),
    ],
)
def test_a_reference_that_leads_nowhere_is_reported(findings, planted: Planted, fact: str):
    """Steps, growing lists, forks, causes, rosters, conversations."""
    reported = findings(*planted)
    assert reported
    kinds = {finding["finding"] for finding in reported} - {"quarantine"}  # some are not shown, too
    assert kinds == {"reference"}
    assert any(fact in finding["fact"] for finding in reported)


@pytest.mark.parametrize(
    "arguments",
    [b'{"m":{"$append":5}}', b'{"m":{"$blob":{"sha256":1}}}', b"[1]", b'{"m":{"$append":{}}}'],
)
def test_payloads_that_hansard_does_not_write_stop_nothing(findings, arguments: bytes):
    """A planted invalid payload is a finding, and later events are still checked."""
    planted = commit(2, requested(1, arguments))
    reported = findings((A, planted), (A, commit(9, requested(2))))
    assert [finding["finding"] for finding in reported] == ["event", "version"]


def test_people_read_where_and_what(call: Call, home: Path, workspace: str):
    """A line a finding, with position, stream and run, and a last line that counts."""
    plant(home, workspace, *begun(), (A, commit(5, requested(1))))
    result = call("check", workspace=workspace)
    assert result.code == 1
    first, last = result.out.splitlines()
    assert first.startswith("version (position 3, agent/r/a, run r1): versions 2 to 4 are missing")
    assert "up to position 3; not compared with" in last
    assert last.endswith(": 1 wrong")
    assert json.loads(call("check", "--json", workspace=workspace).out.splitlines()[0])
