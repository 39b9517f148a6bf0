"""Changes behind: on disk when they are acknowledged, in the log once, whoever is killed."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.agents.memory.behind import Journal, Waiting, line_of, read
from hansard.client.record import Record
from hansard.domain.errors import Corrupt
from tests.evidence import Evidence
from tests.faults._warm import ROOT, run

SPACE = "agent/ada"
PROGRAM = Path(__file__).with_name("programs") / "behind.py"


def test_what_is_acknowledged_is_read_at_once_and_stands_in_the_log_once_flushed(record, tmp_path):
    """Acknowledged changes are read at once and flushed to the log; a bad one is refused."""
    space, other = record.memory(SPACE), record.memory(SPACE)
    other.create("b.md", "theirs\n", by="eve")
    space.follow()
    space.behind(tmp_path)
    for number in range(20):
        space.remember(f"change {number}", by="ada")
        assert f"- change {number}\n" in space.view("AGENTS.md")
    assert space.create("b.md", "theirs\n", by="ada") == 0  # it is so already
    space.flush()
    assert space.pending == 0
    lines = [f"- change {number}" for number in range(20)]
    assert other.view("AGENTS.md").splitlines() == lines
    assert len(other.history("AGENTS.md")) == 20
    assert (tmp_path / "agent=2Fada.journal").stat().st_size == 0
    with pytest.raises(hansard.BadValue, match="not at all"):
        space.edit("AGENTS.md", "never", "x", by="ada")
    with pytest.raises(hansard.errors.Refused, match="another process"):
        record.memory(SPACE).behind(tmp_path)
    with pytest.raises(hansard.BadValue, match="journal already"):
        space.behind(tmp_path / "other")


def test_what_cannot_be_made_any_more_is_kept_and_told_once(record: Record, tmp_path: Path):
    """Somebody else changed the line meanwhile: it is no part of the log, and not lost."""
    other = record.memory(SPACE)
    other.create("a.md", "one\n", by="eve")
    gone = {"op": "rename", "path": "gone.md", "to": "there.md"}
    edit = {"op": "edit", "path": "a.md", "old": "1", "new": "2"}
    lines = [line_of(Waiting(f"{at:08}", [op], "ada")) for at, op in enumerate((edit, gone))]
    (tmp_path / "agent=2Fada.journal").write_bytes(b"".join(lines))
    space = record.memory(SPACE)
    space.behind(tmp_path)
    deadline = time.monotonic() + 30
    while space.pending:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(hansard.errors.Refused, match="2 changes of agent/ada could not be made"):
        space.flush()
    space.flush()
    assert b'"old":"1"' in (tmp_path / "agent=2Fada.refused").read_bytes()
    assert other.view("a.md") == "one\n"


waiting = st.lists(
    st.builds(
        Waiting,
        id=st.uuids().map(str),
        ops=st.just([{"op": "append", "path": "a.md", "text": "x\n{}"}]),
        by=st.text("abc", min_size=1, max_size=3),
    ),
    max_size=4,
)


@given(waiting, st.integers(min_value=0, max_value=10_000))
def test_a_journal_that_was_cut_has_what_was_written_whole(changes, cut):
    """However many bytes of its end are missing: no line of which all is there is lost."""
    lines = [line_of(each) for each in changes]
    raw = b"".join(lines)[:cut]
    found, end = read(raw, "j")
    whole = [each for each in range(len(lines) + 1) if len(b"".join(lines[:each])) <= len(raw)]
    assert [each.change for each in found] == changes[: whole[-1]]
    assert end == len(b"".join(lines[: whole[-1]]))


def test_a_journal_that_was_changed_in_its_middle_is_corrupt():
    """What was acknowledged is not left out in silence."""
    first, second = line_of(Waiting("a", [], "x")), line_of(Waiting("b", [], "y"))
    with pytest.raises(Corrupt, match="at byte 0"):
        read(first.replace(b'"x"', b'"z"') + second, "j")


def ids_waiting(folder: Path, space: str) -> list[str]:
    """The ids of the changes that wait for a space."""
    journal = Journal(folder, space)
    journal.close()
    return [each.change.id for each in journal.waiting]


def test_no_two_spaces_have_one_journal(tmp_path: Path):
    """However their names are made of slashes, dots and escapes."""
    names = ["org", "agent/a/b", "agent/a.b", "agent/a=2Fb", "agent/ab", "user/a/b", "agent/" * 99]
    for name in names:
        journal = Journal(tmp_path, name)
        assert not journal.waiting
        journal.add(Waiting(name, [], "ada"))
        journal.close()
    assert [ids_waiting(tmp_path, name) for name in names] == [[name] for name in names]


@pytest.mark.slow
@pytest.mark.long
def test_killed_at_any_point_of_the_journal_nothing_acknowledged_is_lost_or_doubled(
    record: Record, tmp_path: Path, rounds: Callable[[int, int], int], evidence: Evidence
):
    """Killed at any point, acknowledged changes are stored once and in order."""
    journal, told = tmp_path / "journal", tmp_path / "told"
    told.touch()
    log = record.workspace
    where = log.command.split("--data-dir ")[1].split()[0], log.log.workspace
    tries = rounds(4, 50)
    killed = 0
    for number in range(tries):
        at = 1 + (number * 17) % 61 if tries > 4 else 3 + number * 9
        command = [PROGRAM, *where, journal, told, str(number * 100), str(at)]
        ended = run(list(map(str, command)), cwd=ROOT, env=os.environ, timeout=60)
        assert ended.returncode in (0, -9), ended.stderr
        killed += ended.returncode == -9
        acknowledged = [int(line) for line in told.read_text().split()]
        found = text_once_flushed(record, journal, check=number % 10 == 0 or number == tries - 1)
        if found is not None:
            assert found == sorted(set(found))
            assert set(acknowledged) <= set(found)
            assert len(found) - len(acknowledged) <= number + 1
    assert killed > tries // 2
    evidence.record("kill.journal", rounds=tries, killed=killed, lost=0)


def text_once_flushed(record: Record, journal: Path, *, check: bool) -> list[int] | None:
    """The changes that the log has, once what waited is sent."""
    if not check:
        return None
    with hansard.connect(
        record.workspace.log.workspace,
        data_dir=record.workspace.command.split("--data-dir ")[1].split()[0],
    ) as again:
        space = again.memory(SPACE)
        space.behind(journal)
        space.flush()
    try:
        text = record.memory(SPACE).view("AGENTS.md")
    except hansard.NotFound:
        return []
    return [int(each) for each in re.findall(r"^- change (\d+)$", text, re.MULTILINE)]
