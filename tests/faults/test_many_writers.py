"""Eight processes append to one stream at the same time."""

import time

import msgspec
import pytest

from hansard.domain.ids import AgentStream
from tests.faults._whole import holes, repeats, whole_log

pytestmark = pytest.mark.slow

PROCESSES = 8
SHARE_QUICK, SHARE_FULL = 60, 1_000
ROUNDS_FULL = 200
"""Number of rounds from which each process appends its full share."""

COMMIT_S_MAX = 0.05
"""Longest duration of a commit with its conflicts, in seconds: 0.005 s on two cores."""


@pytest.mark.thorough(quick="board/test_kill.py::test_8_processes_put_by_version_and_lose_nothing")
@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_eight_processes_append_to_one_stream(stage, server, workspace, evidence, rounds):
    """Eight writers fill versions 1 to N without a hole, and all readers see one order."""
    share = SHARE_FULL if rounds(1, ROUNDS_FULL) == ROUNDS_FULL else SHARE_QUICK
    total = PROCESSES * share
    within_s = 30 + total * COMMIT_S_MAX
    clock = time.monotonic()
    children = [
        stage.start("contender", name=f"writer{n}", share=share, total=total, within_s=within_s)
        for n in range(PROCESSES)
    ]
    reports = [child.end(within_s=within_s + 10) for child in children]
    took_s = time.monotonic() - clock
    assert [report.error for report in reports] == [""] * PROCESSES

    commits = whole_log(server, workspace)
    assert [stored.commit.version for stored in commits] == list(range(1, total + 1))
    assert {stored.stream for stored in commits} == {AgentStream("r1", "load", "shared")}
    assert holes(commits) == repeats(commits) == []
    written: dict[str, list[int]] = {}
    for stored in commits:
        [event] = stored.commit.events
        entry = msgspec.json.decode(event.data)
        written.setdefault(entry["name"], []).append(entry["data"])
    assert written == {f"writer{n}": list(range(share)) for n in range(PROCESSES)}
    orders = {report.results[way] for report in reports for way in ("reading", "following")}
    assert len(orders) == 1
    conflicts = sum(report.results["conflicts"] for report in reports)
    assert conflicts > 0  # else they were not at it at the same time
    evidence.record(
        "one_stream.eight_processes",
        events=total,
        conflicts=conflicts,
        readers=2 * PROCESSES,
        orders=len(orders),
        commits_per_s=round(total / took_s),
    )
