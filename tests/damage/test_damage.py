"""Damaged logs: never reported as clean, and every reader ends with an error."""

import re
import shutil
import time
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

import hansard
from hansard.broker import lease
from hansard.broker.lease import join
from hansard.bus import marks
from hansard.domain.errors import Corrupt
from hansard.domain.events import Recorded
from hansard.domain.ids import KeyStream, StreamId
from tests.cli.planting import commit, plant
from tests.cli.support import Call, Ran
from tests.damage.conftest import BOUND_S, STEPS, STEPS_OLDER, marked, steps, stopped
from tests.damage.damages import (
    ALL,
    BLOBS,
    BLOCKS,
    HARMLESS,
    MARKS,
    STREAM,
    TABLES,
    WORKSPACE,
    Damage,
    Files,
    emptied,
    flip,
    replaced,
)

pytestmark = pytest.mark.slow

SHORT_OF_MARK = r"its log ends at position \d+, and at .* it was on the disk up to \d+"
COUNT = "SELECT count(*) AS n FROM events"
ACCEPTED = ("last block gone, no index", "first block gone", "middle block gone")
QUICK = (BLOCKS[0], BLOCKS[3], BLOCKS[18], STREAM[0], STREAM[-1], BLOBS[3], TABLES[0])
"""One damage of each kind."""


def named(damages: tuple[Damage, ...] | list[Damage]) -> list[object]:
    """Return parameters with their names."""
    return [pytest.param(each, id=each.name) for each in damages]


def opened(files: Files) -> str:
    """Connect, and return the refusal."""
    try:
        hansard.connect(workspace=WORKSPACE, data_dir=files.home).close()
    except Corrupt as error:
        return str(error)
    return ""


def checked(damage: Damage, files: Files, cli: Call) -> Ran:
    """Do the damage, run everything that reads, and return the final result of `check`."""
    events = int(cli("sql", "--format", "csv", COUNT).out.split()[-1])
    stopped(files.home)
    damage.do(files)
    for _ in range(2):  # reading neither repairs nor worsens it
        result = cli("check")
        assert re.search(damage.fact, result.out + result.err), (result.out, result.err)
        assert result.code == (result.code or 1 if damage.wrong else 0), result.out
    refused = opened(files)
    assert bool(refused) == damage.refused, refused
    if damage.refused:
        assert re.search("restore|put back", refused), refused
    answer = cli("sql", "--format", "csv", COUNT)
    if damage.answered:
        assert (answer.code, int(answer.out.split()[-1])) == (0, events), answer.err
    else:
        assert answer.code
        assert re.search("lost|gone|holds messages|ends at|cannot be read", answer.err), answer.err
    verified = cli("rebuild", "--verify")
    assert bool(verified.code) == damage.wrong or damage in BLOBS, verified.err
    return cli("check")


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("damage", named(QUICK))
def test_damage_is_reported(damage: Damage, files: Files, cli: Call):
    """`check`, and anything else that meets the damage, reports it in time."""
    assert checked(damage, files, cli).code


@pytest.mark.thorough
@pytest.mark.parametrize("damage", named([each for each in ALL if each not in QUICK]))
def test_every_damage_is_reported(damage: Damage, files: Files, cli: Call):
    """The same of every one that we could think of."""
    assert checked(damage, files, cli).code


@pytest.mark.thorough
@pytest.mark.parametrize("damage", named([*MARKS, *HARMLESS]))
def test_what_loses_nothing_is_no_loss(damage: Damage, files: Files, cli: Call):
    """Damage to the mark or to derived files is reported if useful, and is no error."""
    assert checked(damage, files, cli).code == 0


def test_there_are_enough_of_them():
    """The requirement is 27 kinds of damage."""
    assert len(ALL) >= 27
    assert len({each.name for each in ALL}) == len(ALL)


def test_a_log_that_went_back_and_on_is_another(files: Files, cli: Call):
    """Only the digest reveals an older copy with as much appended as was lost."""
    replaced(files.home / "nats", files.older / "nats")
    kept = marks.read(files.home, WORKSPACE)
    assert kept is not None
    files.mark.unlink()  # the mark would refuse the workspace
    with hansard.connect(workspace=WORKSPACE, data_dir=files.home):
        plant(files.home, WORKSPACE, *steps(STEPS_OLDER + 1, STEPS + 5))
        marked(files.home, WORKSPACE, kept.mark.position + 5)
        marks.write(files.home, WORKSPACE, kept)
        result = cli("check")
    assert result.code == 1
    assert re.search(r"history .*do not hold what the broker's mark and the tables", result.out), (
        result.out
    )


@pytest.mark.thorough
def test_a_sound_log_is_called_clean(files: Files, cli: Call):
    """`check` also names the sources of its comparison."""
    result = cli("check")
    assert result.code == 0, result.out
    assert re.search(
        r"compared with the broker's mark \(position (\d+)\), the tables \(position \1\), "
        r"the published tables \(position \1\): nothing is wrong",
        result.out,
    )


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("damage", named([d for d in BLOCKS if d.name in ACCEPTED]))
def test_a_loss_that_is_accepted_is_gone_on_with(damage: Damage, files: Files, cli: Call):
    """Without its mark the log opens, the tables are rebuilt, and the unknown past is reported."""
    damage.do(files)
    assert "To continue with what is left, remove" in opened(files)
    stopped(files.home)
    files.mark.unlink()
    assert opened(files) == ""
    assert "go on without them, make it again with 'hansard rebuild'" in cli("sql", COUNT).err
    assert cli("rebuild").code == 0
    result = cli("check")
    assert "note: mark: the broker's mark was begun on" in result.out
    assert "acknowledged commits are gone" not in result.out
    if damage.name.startswith("last"):
        assert result.code == 0, result.out
    else:  # references to lost messages stay wrong
        assert "are missing: this loss was accepted" in result.out
    assert cli("sql", COUNT).code == 0
    assert cli("runs").code == 0


DOORS = [
    ("runs",),
    ("run", "show", "r1"),
    ("run", "state", "r1"),
    ("run", "resume", "r1"),
    ("sql", COUNT),
    ("audit",),
    ("why", "1"),
    ("search", "x"),
    ("export", "r1"),
    ("rebuild",),
    ("up",),
]


@pytest.mark.slow
def test_every_door_refuses_a_log_that_lost_its_head(files: Files, cli: Call):
    """None reads an empty run, or tables beyond the log's end; `status` reports it."""
    files.blocks()[0].unlink()
    with pytest.raises(Corrupt, match="missing: position 1 to"):
        hansard.connect(workspace=WORKSPACE, data_dir=files.home)
    for door in DOORS:
        refused = cli(*door)
        assert refused.code == 2, door
        assert "missing: position 1 to" in refused.err, door
        assert "cp -a BACKUP/nats" in refused.err, door
    status = cli("status", "--start")
    assert status.code == 1
    assert "damaged: workspace 'lab': its log goes to position" in status.err


@pytest.mark.slow
def test_a_restored_log_is_opened_again(files: Files, cli: Call):
    """With the broker's files restored, the mark forgets the loss."""
    backup = files.home.with_name("backup")
    replaced_store = files.home / "nats"
    shutil.copytree(replaced_store, backup)
    emptied(files.stream())
    until_s = time.monotonic() + BOUND_S
    while "lost" not in files.mark.read_text():  # the broker must run
        assert opened(files)
        assert time.monotonic() < until_s
    stopped(files.home)
    replaced(replaced_store, backup)
    assert opened(files) == ""
    assert cli("check").code == 0
    while "lost" in files.mark.read_text():
        assert opened(files) == ""
        assert time.monotonic() < until_s


METADATA = [*(each for each in STREAM if each.name.startswith("meta.")), BLOBS[-1]]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the metadata of a stream."""
    return {each.name: each.read_bytes() for each in folder.glob("meta.*")}


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("damage", named(METADATA))
def test_damaged_metadata_is_repaired(damage: Damage, files: Files, cli: Call):
    """The refusal names `hansard repair`, which restores the workspace and keeps a copy."""
    events = int(cli("sql", "--format", "csv", COUNT).out.split()[-1])
    stopped(files.home)
    damage.do(files)
    stream = files.stream("blob") if damage in BLOBS else files.stream()
    damaged = contents(stream)
    assert "run 'hansard repair'" in opened(files)
    repaired = cli("repair", "--json")
    assert repaired.code == 0, repaired.err
    [restored] = [msgspec.json.decode(line) for line in repaired.out.splitlines()]
    assert (restored["stream"], restored["messages"] > 0) == (stream.name, True)
    assert contents(Path(restored["backup"])) == damaged
    assert opened(files) == ""
    checked = cli("check")
    assert checked.code == 0, checked.out
    assert int(cli("sql", "--format", "csv", COUNT).out.split()[-1]) == events
    with hansard.connect(workspace=WORKSPACE, data_dir=files.home) as record:
        with record.run("w", agent="a", role="r") as session:
            session.checkpoint("large", text="y" * 100_000)
        assert record.state(session.run).agents
    assert cli("check").code == 0


@pytest.mark.thorough(quick="test_damaged_metadata_is_repaired")
def test_a_workspace_is_used_without_its_snapshots_and_repaired(files: Files, cli: Call):
    """With damaged snapshots a workspace opens and makes them again; without it `check` reports
    them, and `repair` rebuilds them.
    """
    flip(files.stream("snap") / "meta.inf", 3)
    with hansard.connect(workspace=WORKSPACE, data_dir=files.home) as record:
        [(run, _)] = record.runs(workflow="long")
        assert record.state(run).agents
    stopped(files.home)
    assert cli("check").code == 0
    stopped(files.home)
    flip(files.stream("snap") / "meta.inf", 3)
    assert "stream 'hansard_snap-lab' does not exist" in cli("check").out
    [restored] = [msgspec.json.decode(line) for line in cli("repair", "--json").out.splitlines()]
    assert restored["stream"] == files.stream("snap").name
    stopped(files.home)
    assert cli("check").code == 0


@pytest.mark.slow
def test_a_repair_hides_no_loss(files: Files, cli: Call):
    """If messages are missing besides, the broker's mark still refuses the workspace. A repair says
    that it cannot restore them: it names the loss and the remedy.
    """
    BLOCKS[1].do(files)
    BLOBS[-1].do(files)
    assert cli("check").code
    assert cli("repair").code == 0
    assert re.search(SHORT_OF_MARK, opened(files))
    result = cli("repair")
    assert result.code == 1
    assert "nothing to repair" not in result.out
    assert "messages are lost, which 'hansard repair' cannot restore" in result.err
    assert "backup" in result.err


@pytest.mark.slow
def test_a_repair_of_a_rolled_log_is_refused(files: Files, cli: Call):
    """The refusal names the stream and the remedy, and changes nothing; blobs are repaired."""
    rolled = cli("tiers", "roll")
    assert rolled.code == 0, rolled.err
    stopped(files.home)
    BLOBS[-1].do(files)
    assert cli("repair").code == 0
    stopped(files.home)
    flip(files.stream() / "meta.inf", 3)
    damaged = contents(files.stream())
    refused = cli("repair")
    assert refused.code == 2
    assert "the broker does not offer 'hansard_log-lab' of it" in refused.err
    assert "from a backup, then run 'hansard check'" in refused.err
    assert contents(files.stream()) == damaged


@pytest.mark.thorough
def test_a_roll_restores_the_newest_generation(files: Files, cli: Call):
    """The broker was killed between the two files that it writes for a stream."""
    assert cli("tiers", "roll").code == 0
    opened(files)
    stopped(files.home)
    newest = files.stream().with_name("hansard_log-lab_1")
    (newest / "meta.sum").unlink()
    refused = cli("check")
    assert refused.code
    assert "does not offer its stream 'hansard_log-lab_1'" in refused.out
    assert cli("tiers", "roll").code == 0
    assert cli("check").code == 0
    stopped(files.home)
    assert cli("check").code == 0


@pytest.mark.slow
def test_a_repair_changes_nothing_that_is_sound_or_in_use(
    files: Files, cli: Call, monkeypatch: pytest.MonkeyPatch
):
    """A repair without work reports that; it is refused for a broker in use or outside."""
    before = contents(files.stream())
    assert "nothing to repair" in cli("repair").out
    stopped(files.home)
    STREAM[0].do(files)
    with join(files.home), monkeypatch.context() as patch:
        patch.setattr(lease, "ENDING_S", 0.5)
        refused = cli("repair")
        assert refused.code == 2
        assert "is needed alone, and other processes use it" in refused.err
    mistyped = cli("-w", "lob", "repair")
    assert (mistyped.code, "workspace 'lob' was not found" in mistyped.err) == (2, True)
    outside = cli("--nats", "nats://127.0.0.1:1", "repair")
    assert (outside.code, "is a broker of your own" in outside.err) == (2, True)
    assert contents(files.stream()) == {"meta.sum": before["meta.sum"]}


def test_a_server_that_was_killed_while_it_made_a_stream_is_no_loss(files: Files):
    """The stream's folder exists and is empty, without the server's metadata."""
    for kind in ("log", "blob", "snap"):
        folder = files.stream(kind).with_name(f"hansard_{kind}-other") / "msgs"
        folder.mkdir(parents=True)
        (folder / "1.blk").write_bytes(b"")
    with hansard.connect(workspace="other", data_dir=files.home) as record:
        with record.run("w", agent="a", role="r") as session:
            session.message("user", "x")
        assert record.state(session.run).agents


LATER = Recorded("plan.imagined.v9", str(uuid4()), msgspec.Raw(b"{}"))


def planted(home: Path, stream: StreamId) -> None:
    """Plant a commit whose version 1 is missing."""
    plant(home, "lab", (stream, commit(2, LATER)))


def test_a_fork_goes_on_from_its_parent(tmp_path: Path):
    """Its streams begin after the parent's versions, and that is no loss."""
    home = tmp_path / "data"
    with hansard.connect(workspace="lab", data_dir=home, durability="relaxed") as record:
        with record.run("w", run="parent", agent="a", role="r") as session:
            session.board.put("plan", "x")
            session.message("user", "hello")
        with record.run(run=record.fork("parent"), agent="a", role="r") as session:
            assert session.board.get("plan") == "x"
            session.board.put("plan", "y")
            session.board.put("new", "z")
        assert record.state(session.run).run == session.run
        with record.run(run=record.fork("parent"), agent="a", role="r") as session:
            session.message("user", "hello")
        planted(home, KeyStream(session.run, "late"))
        with pytest.raises(Corrupt, match=r"version 1 is missing"):
            record.state(session.run)
