"""Power cuts: the guarantee of an acknowledgement, and the reopening of a workspace.

The disk is ext4 on a loop device that is shut down at once: data that the kernel has not written to
it is lost, the journal's own memory included.
"""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard.broker.lease import peek
from hansard.bus.log import Stored
from tests.faults._disks import Embedded
from tests.faults._inside import Acked
from tests.faults._power import PowerDisk, power_disk
from tests.faults._whole import holes, repeats, torn, whole_log
from tests.faults.support import Stage, all_go_on, missing, read_acks

pytestmark = pytest.mark.slow

SYNCED_S = 1.0
"""Seconds after which an acknowledged commit under `relaxed` is synced, also on a busy machine."""

NEW_FILES_S = 6.0
"""More than the 5 s after which ext4 writes its journal, and less than the 30 s after which Linux
writes what nobody syncs: a new file is then on the disk, and empty."""

SEED = 7


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerDisk]:
    """Yield a disk whose power may be cut."""
    with power_disk(tmp_path / "disk") as disk:
        yield disk


class Writers:
    """Programs that append to a workspace on the disk until the power is cut."""

    def __init__(self, disk: PowerDisk, folder: Path, durability: str) -> None:
        self._disk = disk
        self._folder = folder
        self.server = Embedded(disk.folder / "data")
        self.server.environment["HANSARD_DURABILITY"] = durability
        self.server.login["durability"] = durability

    def until_cut(self, number: int, seconds: float, synced_s: float = 0.0) -> list[Acked]:
        """Write, cut the power, restore it; return what was acknowledged `synced_s` before."""
        folder = self._folder / f"round{number}"
        folder.mkdir()
        stage, stop = Stage(self.server, folder, "lab"), str(folder / "stop")
        children = [stage.start("appender", name=f"appender{number}", streams=20, stop=stop)]
        stage.begin("r2")
        children += [stage.start("worker", name=f"worker{number}", stop=stop)]

        def acks() -> list[Acked]:
            return [ack for child in children for ack in read_acks(child.job.acks)]

        try:
            all_go_on(children)
            time.sleep(seconds)
            info, before = peek(self.server.data_dir), acks()
            assert info is not None
            time.sleep(synced_s)
            self._disk.cut()
        finally:
            stage.close()
        for pid in (info.supervisor_pid, info.server_pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._disk.restart()
        return before if synced_s else acks()


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_what_was_acknowledged_under_strict_outlives_a_power_cut(disk, tmp_path, rounds, evidence):
    """A power cut under `strict` loses no acknowledged commit and tears no transaction."""
    chance, writers = random.Random(SEED), Writers(disk, tmp_path, "strict")
    number = rounds(1, 20)
    acks: list[Acked] = []
    commits: list[Stored] = []
    for each in range(number):
        acks += writers.until_cut(each, chance.uniform(0.0, 1.0))
        commits = whole_log(writers.server, "lab")
        kept = missing(acks, commits), repeats(commits), holes(commits), torn(commits)
        assert kept == ([], [], [], [])
    evidence.record(
        "power.cut.strict",
        cuts=number,
        acknowledged=len(acks),
        stored=len(commits),
        lost=len(missing(acks, commits)),
        repeated=len(repeats(commits)),
    )


@pytest.mark.thorough(
    quick="bus/test_hosting.py::test_new_metadata_is_synced_before_the_first_commit"
)
def test_a_new_workspace_under_relaxed_is_there_after_a_power_cut(disk, tmp_path):
    """A new workspace survives a power cut with what was acknowledged a second before."""
    writers = Writers(disk, tmp_path, "relaxed")
    acks = writers.until_cut(0, NEW_FILES_S, SYNCED_S)
    commits = whole_log(writers.server, "lab")
    assert acks
    assert (missing(acks, commits), repeats(commits), holes(commits)) == ([], [], [])
