"""Imports into a workspace that has part of a run: continued, or refused as diverged."""

import asyncio
import os

import msgspec
import pytest

import hansard
from hansard import settings
from hansard.agents.exchange import reader
from hansard.bus.commits import encode
from hansard.bus.log import Append, Copied, Origin
from hansard.client.opening import open_workspace
from hansard.domain.events import Recorded
from hansard.domain.ids import AgentStream, RunStream, WorkspaceStream, run_of
from hansard.domain.run import AgentJoined, RunStarted
from tests.cli.planting import commit, plant
from tests.exchange.support import (
    Reports,
    Zoo,
    blob_messages,
    bring,
    bring_in,
    exported,
    in_workspace,
    lines_of,
    log_of,
    sealed,
    taken_out,
)

pytestmark = pytest.mark.later


def work(home, name, run, *texts):
    """Add some messages in a session of one agent."""
    with hansard.Session(
        "w", run=run, agent="a", role="r", workspace=name, data_dir=home
    ) as session:
        for text in texts:
            session.message("user", text)


def turn(home, name):
    """Record a run that joins the conversation."""
    with hansard.Session(
        "chat", agent="bot", role="responder", conversation="chat", workspace=name, data_dir=home
    ) as session:
        session.message("user", "another")


def test_newer_commits_are_added(home, workspace, tmp_path):
    """Importing a longer export adds the new commits, and the copy is byte-equal."""
    work(home, workspace, "r", "one")
    first = exported(home, workspace, "r")
    work(home, workspace, "r", "two")
    second = exported(home, workspace, "r")
    copy = f"{workspace}-copy"
    bring_in(home, copy, tmp_path / "x.jsonl", first)
    before = log_of(home, copy)
    result = bring_in(home, copy, tmp_path / "x.jsonl", second)
    assert result.bads == []
    assert result.tally.new == result.tally.commits - len(before) > 0
    assert log_of(home, copy)[: len(before)] == before
    assert exported(home, copy, "r") == second


def test_an_older_export_changes_nothing(home, workspace, tmp_path):
    """An export shorter than the workspace's run adds nothing."""
    work(home, workspace, "r", "one")
    first = exported(home, workspace, "r")
    work(home, workspace, "r", "two")
    before = log_of(home, workspace)
    result = bring_in(home, workspace, tmp_path / "x.jsonl", first)
    assert (result.bads, result.tally.new) == ([], 0)
    assert log_of(home, workspace) == before


def test_a_run_that_went_on_on_both_sides_is_refused(home, workspace, tmp_path):
    """Both sides are named, and nothing is written."""
    work(home, workspace, "r", "one")
    copy = f"{workspace}-copy"
    bring_in(home, copy, tmp_path / "x.jsonl", exported(home, workspace, "r"))
    work(home, workspace, "r", "there" * 20_000)
    work(home, copy, "r", "here" * 20_000)
    data = exported(home, workspace, "r")
    before, blobs = log_of(home, copy), blob_messages(home, copy)
    result = bring_in(home, copy, tmp_path / "x.jsonl", data)
    [bad] = result.bads
    diverged = next(s for s in before if s.origin is None)
    theirs = next(s for s in log_of(home, workspace) if s.position == diverged.position)
    assert "run r differs here" in bad.reason
    assert f"is commit {diverged.commit.id} by 'a'" in bad.reason
    assert f"and commit {theirs.commit.id} by 'a'" in bad.reason
    assert f"(position {diverged.position})" in bad.reason
    assert data.splitlines()[bad.line - 1].count(theirs.commit.id.encode()) == 1
    assert (log_of(home, copy), blob_messages(home, copy)) == (before, blobs)
    assert blobs > 0


def test_a_run_that_went_on_only_here_is_left_alone(home, workspace, tmp_path):
    """Importing the original file over a run resumed only here changes nothing."""
    work(home, workspace, "r", "one")
    data = exported(home, workspace, "r")
    copy = f"{workspace}-copy"
    bring_in(home, copy, tmp_path / "x.jsonl", data)
    work(home, copy, "r", "here")
    before = log_of(home, copy)
    result = bring_in(home, copy, tmp_path / "x.jsonl", data)
    assert (result.bads, result.tally.new) == ([], 0)
    assert log_of(home, copy) == before
    back = bring_in(home, workspace, tmp_path / "y.jsonl", exported(home, copy, "r"))
    assert (back.bads, back.tally.new) == ([], len(before) - result.tally.commits)
    assert [s.body for s in log_of(home, workspace)] == [s.body for s in before]


def test_two_agents_that_went_on_apart_are_refused(home, workspace, tmp_path):
    """Different agents that went on apart are two histories, though no version is doubled."""
    copy = f"{workspace}-copy"
    with (
        hansard.connect(workspace, data_dir=home) as record,
        record.run("w", run="r", agent="a", role="r") as session,
        record.run(run="r", agent="b", role="s") as other,
    ):
        session.message("user", "one")
        bring_in(home, copy, tmp_path / "x.jsonl", exported(home, workspace, "r"))
        other.message("user", "there")
        data = exported(home, workspace, "r")
    mine = next(s for s in log_of(home, copy)[::-1] if s.stream == AgentStream("r", "r", "a"))
    extra = commit(mine.commit.last_version + 1, AgentJoined(agent="x", role="y"))
    plant(home, copy, (mine.stream, extra))
    before = log_of(home, copy)
    result = bring_in(home, copy, tmp_path / "x.jsonl", data)
    assert "run r went on here by 1 commit that the file does not have" in result.bads[0].reason
    assert "the first of them version 2 of stream agent/s/b" in result.bads[0].reason
    assert log_of(home, copy) == before


def test_the_same_id_with_other_bytes_is_another_commit(home, zoo: Zoo, workspace, tmp_path):
    """A commit with a known id and other bytes is another commit."""
    data = exported(home, "zoo", zoo.runs["settled"])
    bring_in(home, workspace, tmp_path / "x.jsonl", data)
    lines = lines_of(data)
    lines[-2]["body"] = lines[-2]["body"].replace('"version":', '"version" :', 1)
    result = bring_in(home, workspace, tmp_path / "x.jsonl", sealed(lines))
    assert "differs here" in result.bads[0].reason


def test_a_conversation_that_went_on_on_both_sides(home, zoo: Zoo, workspace, tmp_path):
    """Different runs that joined one conversation on both sides are refused, with its name."""
    bring_in(home, workspace, tmp_path / "x.jsonl", exported(home, "zoo", zoo.runs["talk 1"]))
    turn(home, workspace)
    before = log_of(home, workspace)
    data = exported(home, "zoo", zoo.runs["talk 2"])
    result = bring_in(home, workspace, tmp_path / "x.jsonl", data)
    assert "conversation/chat differs here: version 2" in result.bads[0].reason
    assert log_of(home, workspace) == before


def test_two_imports_of_one_file_at_once(home, zoo: Zoo, workspace, tmp_path):
    """Two concurrent imports of one file succeed, and each commit is stored once."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(exported(home, "zoo", *zoo.runs.values()))

    async def both(opened):
        other = await open_workspace(settings.load(data_dir=home, workspace=workspace))
        try:
            return await asyncio.gather(bring(opened, path), bring(other, path))
        finally:
            await other.close()

    results = in_workspace(home, workspace, both)
    assert [each.bads for each in results] == [[], []]
    log = log_of(home, workspace)
    assert len({(s.stream, s.commit.version) for s in log}) == len(log) == results[0].tally.commits


def test_somebody_who_writes_meanwhile_is_reported(
    home, zoo: Zoo, workspace, tmp_path, monkeypatch
):
    """A commit that takes a version after the check is reported; earlier ones are kept."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(exported(home, "zoo", zoo.runs["settled"]))
    monkeypatch.setattr(reader, "BATCH_COMMITS_MAX", 1)
    reports = Reports()

    async def race(opened):
        real = opened.log.append_bulk
        calls = []

        async def slow(appends):
            calls.append(appends)
            if len(calls) == 2:
                stream = appends[0].stream
                other = opened.commit(
                    appends[0].commit.version, "rival", [AgentJoined(agent="x", role="y")]
                )
                await opened.log.append(Append(stream, other))
            return await real(appends)

        opened.log.append_bulk = slow
        return await reader.import_events(opened, path, reports)

    tally = in_workspace(home, workspace, race)
    [bad] = reports.bads
    assert "by 'rival'" in bad.reason
    assert "what comes before that commit in the file is stored" in bad.reason
    assert (tally.bad, tally.runs) == (1, 0)
    stored = [s.body for s in log_of(home, workspace) if s.origin is not None]
    bodies = [line["body"].encode() for line in lines_of(path.read_bytes())[1:-1]]
    assert stored == bodies[: len(stored)] != []


# ---------------------------------------------------------------- parents that are not there


@pytest.fixture
def orphan(home, workspace) -> str:
    """Return a fork in a workspace without its parent, as an archive may leave it."""
    name = f"{workspace}-orphan"
    hansard.connect(name, data_dir=home).close()
    work(home, workspace, "parent", "one", "two")
    with hansard.connect(workspace, data_dir=home) as record:
        child = record.fork("parent")
    work(home, workspace, child, "three")
    plant(
        home,
        name,
        *((s.stream, s.commit) for s in log_of(home, workspace) if run_of(s.stream) == child),
    )
    return child


def test_a_fork_without_its_parent_says_what_is_missing(home, workspace, orphan, tmp_path, call):
    """A missing parent is reported on stderr and in the file, and the export goes on."""
    data, result = taken_out(home, f"{workspace}-orphan", orphan)
    [missing] = result.missing
    assert missing.what == "run parent"
    assert lines_of(data)[0]["missing"] == [{"what": missing.what, "why": missing.why}]
    ran = call(f"{workspace}-orphan", "export", orphan)
    assert (ran.code, ran.out.encode()) == (1, data)
    assert f"missing: run parent: run {orphan} is a fork of it" in ran.err


@pytest.mark.slow
def test_a_fork_without_its_parent_goes_where_the_parent_is(home, workspace, orphan, tmp_path):
    """A fork is imported only where its parent is complete."""
    data, _ = taken_out(home, f"{workspace}-orphan", orphan)
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    result = bring_in(home, f"{workspace}-empty", path)
    assert "is a fork of run parent, which is neither in the file nor in" in result.bads[0].reason
    assert log_of(home, f"{workspace}-empty") == []

    whole = lines_of(exported(home, workspace, "parent"))
    some = [line for line in whole if line["kind"] != "commit" or line["version"] < 2]
    some[-1]["commits"] = len(some) - 2
    assert bring_in(home, f"{workspace}-half", tmp_path / "y.jsonl", sealed(some)).bads == []
    result = bring_in(home, f"{workspace}-half", path)
    assert "continues from version" in result.bads[0].reason
    assert "import all of that run first" in result.bads[0].reason

    bring_in(home, f"{workspace}-full", tmp_path / "z.jsonl", exported(home, workspace, "parent"))
    assert bring_in(home, f"{workspace}-full", path).bads == []
    there, here = (exported(home, name, orphan) for name in (workspace, f"{workspace}-full"))
    assert [_less(line) for line in lines_of(here)] == [_less(line) for line in lines_of(there)]


def _less(line):
    """Return a line without its origin and digests."""
    return {k: v for k, v in line.items() if k not in {"origin", "digest", "sha256"}}


@pytest.mark.thorough(quick="test_a_fork_without_its_parent_goes_where_the_parent_is")
def test_a_fork_of_a_fork_whose_middle_is_here(home, zoo: Zoo, workspace, tmp_path):
    """A parent's inherited versions count as its own; they may be the grandparent's."""
    runs = zoo.runs
    bring_in(home, workspace, tmp_path / "x.jsonl", exported(home, "zoo", runs["forked"]))
    last = runs["fork of a fork"]
    lines = lines_of(exported(home, "zoo", last))
    kept = [
        line
        for line in lines
        if line["kind"] != "blob"
        and line.get("stream", {}).get("run", last) == last
        and line.get("stream", {}).get("kind") is None
    ]
    kept[0]["carries"] = [last]
    kept[0]["missing"] = [{"what": f"run {runs['forked']}", "why": "left out"}]
    kept[-1]["commits"], kept[-1]["blobs"] = len(kept) - 2, 0
    result = bring_in(home, workspace, tmp_path / "y.jsonl", sealed(kept))
    assert result.bads == []
    assert exported(home, workspace, last) == exported(home, "zoo", last)


# ---------------------------------------------------------------- check of imported logs


def test_check_tells_a_missing_parent_once(home, workspace, orphan, call):
    """A missing parent is one finding, not one for each inherited step."""
    facts = call(f"{workspace}-orphan", "check", "--json").lines[:-1]
    assert [line["fact"] for line in facts] == [
        "version 5: its parent, run parent, is not on record"
    ]


def test_check_knows_that_a_cause_may_be_elsewhere(home, workspace, call):
    """A copied commit's cause may be in a run that was not exported, which is only a note."""
    began = commit(1, RunStarted(workflow="w"), epoch=0, causation="an-event-of-another-run")

    async def put(opened):
        body = encode(RunStream("r"), began)
        origin = Origin("elsewhere", 7, "2026-01-01T00:00:00.000000000Z")
        await opened.log.append_bulk([Append(RunStream("r"), began, copied=Copied(body, origin))])

    in_workspace(home, workspace, put)
    result = call(workspace, "check", "--json")
    assert result.code == 0
    assert [line["wrong"] for line in result.lines[:-1]] == [False]
    assert "causation" in result.lines[0]["fact"]
    plant(
        home,
        workspace,
        (RunStream("s"), commit(1, RunStarted(workflow="w"), epoch=0, causation="x")),
    )
    assert call(workspace, "check", "--json").code == 1


def changed_while_it_is_read(home, into, path, change):
    """Import a file, and change it before each batch is stored; return tally and bad record."""
    reports = Reports()

    async def bring_in(opened):
        real = opened.log.append_bulk

        async def spoil(appends):
            change()
            return await real(appends)

        opened.log.append_bulk = spoil
        return await reader.import_events(opened, path, reports)

    tally = in_workspace(home, into, bring_in)
    [bad] = reports.bads
    assert "the file was changed while it was read" in bad.reason
    return tally, bad


def test_a_file_that_changes_while_it_is_read(home, zoo: Zoo, workspace, tmp_path, monkeypatch):
    """Damage after the check is reported by its line, and a beginning is stored."""
    path = tmp_path / "x.jsonl"
    data = exported(home, "zoo", zoo.runs["team"])
    path.write_bytes(data)
    monkeypatch.setattr(reader, "BATCH_COMMITS_MAX", 1)

    def spoil():
        with path.open("r+b") as file:
            file.seek(len(data) - 9)
            file.write(b"0000")
            file.seek(-900, 2)
            file.write(b"~")

    _, bad = changed_while_it_is_read(home, workspace, path, spoil)
    assert bad.line == data.count(b"\n", 0, len(data) - 900) + 1
    stored = [s.body for s in log_of(home, workspace)]
    bodies = [line["body"].encode() for line in lines_of(data) if line["kind"] == "commit"]
    assert stored == bodies[: len(stored)] != []
    assert len(stored) < len(bodies)


def test_a_file_that_is_cut_while_it_is_stored(home, zoo: Zoo, workspace, tmp_path, monkeypatch):
    """A cut between two lines after the check is reported, and not taken for the end."""
    path = tmp_path / "x.jsonl"
    data = exported(home, "zoo", *zoo.runs.values())
    path.write_bytes(data)
    half = data.rindex(b"\n", 0, len(data) // 2) + 1
    monkeypatch.setattr(reader, "BATCH_COMMITS_MAX", 1)
    tally, bad = changed_while_it_is_read(home, workspace, path, lambda: os.truncate(path, half))
    assert "of its export is gone" in bad.reason
    assert (tally.bad, tally.runs) == (1, 0)
    assert log_of(home, workspace)


def test_a_conversation_of_a_newer_version(home, workspace, tmp_path):
    """Events of a conversation that this version does not know are kept and passed on."""
    stream = WorkspaceStream("conversation", "chat")
    turn(home, workspace)
    [one] = in_workspace(home, workspace, lambda opened: opened.log.runs())
    turn(home, workspace)
    [two] = {*in_workspace(home, workspace, lambda opened: opened.log.runs())} - {one}
    lines = lines_of(exported(home, workspace, two))
    [first, second] = [n for n, each in enumerate(lines) if each.get("stream", {}).get("id")]
    newer = commit(2, Recorded("conversation.named.v9", "e1", msgspec.Raw(b'{"name":"n"}')))
    body = encode(stream, newer).decode()
    lines[second]["version"] = 3
    lines[second]["body"] = lines[second]["body"].replace('"version":2', '"version":3', 1)
    lines.insert(first + 1, {**lines[first], "version": 2, "body": body})
    lines[-1]["commits"] += 1
    data = sealed(lines)
    result = bring_in(home, f"{workspace}-copy", tmp_path / "x.jsonl", data)
    assert result.bads == []
    assert exported(home, f"{workspace}-copy", two) == data
