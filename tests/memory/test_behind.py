"""Background changes are in the log after a flush, in order, even if a process is killed."""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import hansard
from hansard.client.record import Record
from tests.evidence import Evidence
from tests.faults._warm import ROOT, run

pytestmark = pytest.mark.later

SPACE = "agent/ada"
PROGRAM = Path(__file__).with_name("programs") / "behind.py"
CHANGES = 6
"""Changes in one round of the program."""


def test_a_flushed_change_is_in_the_log_and_a_read_waits_for_queued_ones(record: Record):
    """Queued changes are commits in order, stored by `flush` or when the record closes."""
    other = record.memory(SPACE)
    with hansard.connect(
        record.workspace.log.workspace,
        data_dir=record.workspace.command.split("--data-dir ")[1].split()[0],
    ) as again:
        space = again.memory(SPACE)
        space.follow()
        space.behind()
        assert [space.remember(f"change {number}", by="ada") for number in range(20)] == [0] * 20
        assert "- change 19\n" in space.view("AGENTS.md")
        space.flush()
        assert space.pending == 0
        assert len(other.history("AGENTS.md")) == 20
        assert space.create("AGENTS.md", "whole\n", by="ada") == 0
        with pytest.raises(hansard.BadValue, match="in the background already"):
            space.behind()
    assert other.view("AGENTS.md") == "whole\n"


def test_a_queued_change_that_cannot_be_made_is_raised_by_flush_once(record: Record):
    """`flush` raises a failed change once; the others are made."""
    space = record.memory(SPACE)
    space.behind()
    space.edit("gone.md", "1", "2", by="ada")
    space.create("a.md", "one\n", by="ada")
    with pytest.raises(hansard.errors.Refused, match=r"1 queued change .*gone\.md"):
        space.flush()
    space.flush()
    assert space.view("a.md") == "one\n"


def test_changes_of_two_writers_behind_one_space_are_all_made(record: Record):
    """Two background writers of a space lose no change."""
    spaces = [record.memory(SPACE) for _ in range(2)]

    def write(number: int) -> None:
        spaces[number].behind()
        for line in range(10):
            spaces[number].remember(f"{number}.{line}", by="ada")
        spaces[number].flush()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = record.memory(SPACE).view("AGENTS.md").splitlines()
    for number in range(2):
        assert [each for each in lines if each.startswith(f"- {number}.")] == [
            f"- {number}.{line}" for line in range(10)
        ]


@pytest.mark.slow
@pytest.mark.long
def test_killed_at_any_point_no_flushed_change_is_lost_and_none_is_doubled(
    record: Record, tmp_path: Path, rounds: Callable[[int, int], int], evidence: Evidence
):
    """Killed around any append, flushed changes are in the log once and in order."""
    flushed_file = tmp_path / "flushed"
    flushed_file.touch()
    log = record.workspace
    where = log.command.split("--data-dir ")[1].split()[0], log.log.workspace
    tries, killed = rounds(4, 50), 0
    for number in range(tries):
        command = [PROGRAM, *where, flushed_file, number * 100, 1 + (number * 5) % (2 * CHANGES)]
        ended = run(list(map(str, command)), cwd=ROOT, env=os.environ, timeout=60)
        assert ended.returncode in (0, -9), ended.stderr
        killed += ended.returncode == -9
        try:
            text = record.memory(SPACE).view("AGENTS.md")
        except hansard.NotFound:
            text = ""
        numbers = [int(each) for each in re.findall(r"^- change (\d+)$", text, re.MULTILINE)]
        of_round = [each for each in numbers if each >= number * 100]
        assert of_round == list(range(number * 100, number * 100 + len(of_round)))
        assert numbers == sorted(set(numbers))
        assert {int(line) for line in flushed_file.read_text().split()} <= set(numbers)
    assert killed > tries // 2
    evidence.record("kill.behind", rounds=tries, killed=killed, lost=0)
