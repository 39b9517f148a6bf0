"""A role's view contains the permitted events, and no trace of others."""

import contextlib
import io
import json
import random

import msgspec
import pytest

import hansard
from hansard.agents.exchange.writer import export_view
from hansard.bus.errors import NotFound
from hansard.domain.agent import HandedOff
from hansard.domain.approval import Reserved
from hansard.domain.events import Commit, Event, Recorded
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream
from hansard.domain.run import AgentJoined, RunResumed, RunScored
from tests.cli.planting import commit, plant
from tests.exchange.support import Zoo, bring_in, exported, in_workspace, lines_of, log_of, sealed


def view(home, name, role, *runs):
    """Return a view's bytes."""
    out = io.BytesIO()
    in_workspace(home, name, lambda opened: export_view(opened, list(runs), role, out.write))
    return out.getvalue()


@pytest.fixture
def pair(home, workspace) -> str:
    """Return a run of a reader and a writer who hands over to it, with a budget and a failure."""
    gate = [hansard.budget("all", limit=9)]
    with (
        contextlib.suppress(ZeroDivisionError),
        hansard.connect(workspace, data_dir=home) as record,
        record.run("w", run="r", agent="wanda", role="writer", gate=gate) as writer,
    ):

        @writer.tool(effects="pure", name="think")
        def think(n: int) -> str:
            return "secret of the writer" + "w" * n

        think(100_000)
        with record.run(run="r", agent="rita", role="reader", gate=gate) as reader:

            @reader.tool(effects="pure", name="read")
            def read(n: int) -> str:
                return "page " + "r" * n

            writer.hand_off("rita", {"pages": 3})
            writer.hand_off("reader", {"pages": 4})
            writer.hand_off("nobody", {"text": "not for the reader"})
            read(100_000)
        think(0)
        raise ZeroDivisionError("secret of the writer")
    return "r"


def test_a_role_sees_its_own_and_what_is_for_it(home, workspace, pair):
    """The view has its agents' events, hand-offs to them, the run's begin and end, and blobs."""
    lines = lines_of(view(home, workspace, "reader", pair))
    header, *events, end = lines
    assert header["view"] == {"role": "reader"}
    assert [line["n"] for line in lines] == list(range(len(lines)))
    assert [(e["agent"], e["type"]) for e in events if e["kind"] == "event"] == [
        ("", "run.started.v1"),
        ("", "run.agent_joined.v1"),
        ("rita", "agent.session_began.v1"),
        ("wanda", "agent.handed_off.v1"),
        ("wanda", "agent.handed_off.v1"),
        ("rita", "tool.declared.v1"),
        ("rita", "step.requested.v1"),
        ("rita", "step.completed.v1"),
        ("rita", "agent.left.v1"),
        ("", "run.agent_left.v1"),
        ("", "run.failed.v1"),
    ]
    assert [e["data"]["payload"] for e in events if e.get("type") == HandedOff.tag] == [
        {"pages": 3},
        {"pages": 4},
    ]
    blobs = [e for e in events if e["kind"] == "blob"]
    assert [blob["parts"] for blob in blobs] == [1]
    assert end["commits"] == 11


@pytest.mark.slow
def test_nothing_of_others_is_in_a_view(home, workspace, pair):
    """A view has no text, blob, budget, position or version that its role does not see."""
    data = view(home, workspace, "reader", pair)
    for hidden in (b"secret of the writer", b"not for the reader", b"budget", b"position"):
        assert hidden not in data
    assert b'"version"' not in data
    assert lines_of(data)[-2]["data"] == {}
    theirs = lines_of(view(home, workspace, "writer", pair))
    assert "secret of the writer" in theirs[-2]["data"]["error"]["message"]


@pytest.mark.slow
def test_whatever_others_do(home, workspace, pair, rounds):
    """Random events of others, in any order and number, leave a view unchanged."""
    before = view(home, workspace, "reader", pair)
    versions: dict[object, int] = {}
    for stored in log_of(home, workspace):
        versions[stored.stream] = stored.commit.last_version
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    others = ("wanda", "xaver", "reader's friend", "Rita", "rit", "READER")
    for number in range(rounds(10, 100)):
        planted: list[tuple[StreamId, Commit]] = []
        for _ in range(chance.randrange(1, 9)):
            agent = chance.choice(others)
            streams: list[StreamId] = [
                AgentStream("r", "writer" if agent == "wanda" else "other", agent),
                RunStream("r"),
                KeyStream("r", chance.choice(["plan", "reader", "budget all"])),
                KeyStream("r" * 2, "reader"),
                AgentStream("rr", "reader", "rita"),
                WorkspaceStream("conversation", "r"),
                WorkspaceStream("role", "reader"),
            ]
            stream = chance.choice(streams)
            events: list[Event | Recorded] = [
                RunScored(metrics={"reward": chance.random()}, by="reader"),
                AgentJoined(agent=agent, role="other"),
                RunResumed(agent=agent, epoch=number + 2),
                Reserved(call="rita", amount=1),
                HandedOff(to=agent, fingerprint=str(chance.random())),
                Recorded("reader.seen.v9", "rita", msgspec.Raw(b'{"to":"reader","agent":"rita"}')),
            ]
            known = events[:3] if isinstance(stream, RunStream) else events[3:]
            chosen = chance.choices(known, k=chance.randrange(1, 4))
            version = versions.get(stream, 0)
            versions[stream] = version + len(chosen)
            planted.append((stream, commit(version + 1, *chosen)))
        plant(home, workspace, *planted)
        assert view(home, workspace, "reader", pair) == before, (seed, number)


def test_a_time_that_no_clock_has(home, zoo: Zoo, workspace, tmp_path):
    """An event's time is shown as written, even an impossible one."""
    lines = lines_of(exported(home, "zoo", zoo.runs["settled"]))
    times = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "")
    for line, at in zip(lines[1:4], times, strict=True):
        body = json.loads(line["body"])
        line["body"] = json.dumps({**body, "at": at or body["at"].removesuffix("Z")})
    assert bring_in(home, workspace, tmp_path / "x.jsonl", sealed(lines)).bads == []
    viewed = lines_of(view(home, workspace, "sender", zoo.runs["settled"]))
    shown = [line["at"] for line in viewed[1:-1]]
    assert shown[0] == "0001-01-01T00:00:00+14:00"
    assert len({at[-1] for at in shown}) > 1


def test_a_copy_gives_the_same_view(home, workspace, pair, tmp_path):
    """A copy gives a byte-equal view, since positions and log times are not in it."""
    bring_in(home, f"{workspace}-copy", tmp_path / "x.jsonl", exported(home, workspace, pair))
    assert view(home, f"{workspace}-copy", "reader", pair) == view(home, workspace, "reader", pair)


@pytest.mark.slow
def test_a_view_cannot_be_imported(home, workspace, pair, tmp_path):
    """A view is refused with the reason, and nothing is written."""
    data = view(home, workspace, "reader", pair)
    result = bring_in(home, f"{workspace}-copy", tmp_path / "x.jsonl", data)
    assert "it is what role 'reader' sees, no whole record" in result.bads[0].reason
    assert log_of(home, f"{workspace}-copy") == []


def test_a_role_that_nobody_has_sees_nothing(home, workspace, pair, call):
    """An unknown role gets an error that names the roles, and no output."""
    with pytest.raises(NotFound, match="these runs have reader, writer"):
        view(home, workspace, "auditor", pair)
    result = call(workspace, "export", pair, "--role", "auditor")
    assert (result.code, result.out) == (2, "")
    assert "an agent with role 'auditor' was not found" in result.err


@pytest.mark.slow
def test_of_a_fork_a_role_sees_what_it_lived_through(home, zoo: Zoo, workspace):
    """Events of the role's agents in the parent are included up to the cut only."""
    runs = zoo.runs
    lines = lines_of(view(home, "zoo", "researcher", runs["forked"]))
    assert {line["run"] for line in lines[1:-1] if line["kind"] == "event"} == {runs["forked"]}
    whole = lines_of(view(home, "zoo", "researcher", runs["team"]))
    before = [line["id"] for line in lines if line["kind"] == "event"]
    assert before == [line["id"] for line in whole if line["kind"] == "event"][: len(before)]
    assert 3 < len(before) < len(whole) - 2


def test_several_runs_stand_one_after_the_other(home, zoo: Zoo):
    """A view of two runs is their single views in sequence."""
    one, two = zoo.runs["talk 1"], zoo.runs["talk 2"]
    both = lines_of(view(home, "zoo", "responder", one, two))[1:-1]
    apart = [
        line for run in (one, two) for line in lines_of(view(home, "zoo", "responder", run))[1:-1]
    ]
    assert [line["id"] for line in both] == [line["id"] for line in apart]
