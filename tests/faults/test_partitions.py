"""One-way partitions of three brokers: an acknowledged commit is stored once for all readers."""

import asyncio
import contextlib
import random
import time
from pathlib import Path

import pytest

from hansard.bus.errors import BusError
from hansard.bus.jetstream.direct import leader_of
from hansard.bus.subjects import log_stream
from tests.bus import cluster
from tests.bus.cluster import ELECTED_S, Cluster
from tests.faults._inside import Acked
from tests.faults._whole import holes, repeats, torn, whole_log
from tests.faults.support import PROGRESS_S, Child, Stage, acks_of, missing, read_acks

pytestmark = pytest.mark.slow

SEED = 11
PARTED_S = (3.0, 6.0, 12.0)
"""Durations below and above the followers' election time-out (4 to 9 s)."""

JOINED_S = (0.5, 3.0)
RUNS = "r1", "r2"
"""Runs of the commits over the loop, and of the sessions."""

STREAMS = 20
LEADER_SHARE = 0.75
BROKEN_SHARE = 0.5
"""Share of partitions that end with broken connections, whose held data is lost."""


async def made(servers: Cluster) -> None:
    """Make the workspace, with a replica on each server."""
    await servers.elected()
    await (await servers.log("lab")).close()


async def leader(servers: Cluster) -> str:
    """Wait for the server that leads the log."""
    async with asyncio.timeout(ELECTED_S):
        while True:
            with contextlib.suppress(BusError):
                name = leader_of(await servers.info(log_stream("lab")))
                if name:
                    return name
            await asyncio.sleep(0.1)


def part(servers: Cluster, chance: random.Random) -> str:
    """Part the servers in one direction, mostly the leader from others; return a description."""
    names = [member.name for member in servers.members]
    one = chance.choice(names)
    if chance.random() < LEADER_SHARE:
        one = asyncio.run(leader(servers))
    others = [name for name in names if name != one]
    match chance.choice(["mute", "deaf", "pair"]):
        case "mute":
            servers.part(one)
            return f"nobody hears {one}"
        case "deaf":
            for each in others:
                servers.part(each, deaf=[one])
            return f"{one} hears nobody"
        case _:
            other = chance.choice(others)
            servers.part(one, deaf=[other])
            return f"{other} does not hear {one}"


class Writers:
    """Programs that append in each way; a new one follows each that gives up."""

    def __init__(self, servers: Cluster, folder: Path, threads: int) -> None:
        self._stop = folder / "stop"
        self._stage = Stage(servers, folder, "lab")
        self._ended: list[Child] = []
        self._children = [self._start(0)]
        self._stage.begin(RUNS[1])
        self._children += [self._start(number) for number in range(1, 1 + threads)]
        self.gave_up = 0

    def _start(self, number: int) -> Child:
        """Start a writer: the first one appends over the loop, the others from threads."""
        self._stage.run = RUNS[number > 0]  # commits of no member of a run that began are screened
        program, name = ("worker", f"thread{number}") if number else ("appender", "loop")
        name, stop = f"{name}-{len(self._ended)}", str(self._stop)
        return self._stage.start(program, name=name, streams=STREAMS, stop=stop)

    def go_on(self) -> None:
        """Wait until each has one more acknowledgement."""
        until_s = time.monotonic() + PROGRESS_S
        before = [acks_of(child) for child in self._children]
        for number, had in enumerate(before):
            while acks_of(self._children[number]) <= had:
                assert time.monotonic() < until_s, "a writer got no acknowledgement any more"
                if self._children[number].process.poll() is not None:
                    self._end(self._children[number])
                    self._children[number], had = self._start(number), 0  # noqa: PLW2901 -- of another
                time.sleep(0.02)

    def _end(self, child: Child) -> None:
        error = child.end(PROGRESS_S).error
        assert error in ("", "AppendUnknown"), error
        self.gave_up += error != ""
        self._ended.append(child)

    def acks(self) -> list[Acked]:
        """Have all end in order; what was acknowledged to any of them."""
        self._stop.touch()
        for child in self._children:
            self._end(child)
        return [ack for child in self._ended for ack in read_acks(child.job.acks)]

    def close(self) -> None:
        """End what still runs."""
        self._stage.close()


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_nothing_acknowledged_is_lost_in_a_one_way_partition(tmp_path, rounds, evidence):
    """In a one-way partition each acknowledged commit is stored once, at its position."""
    number, chance = rounds(1, 30), random.Random(SEED)
    parted: list[str] = []
    with cluster.running(tmp_path / "cluster", linked=True) as servers:
        asyncio.run(made(servers))
        writers = Writers(servers, tmp_path, rounds(2, 5))
        try:
            for _ in range(number):
                writers.go_on()
                parted.append(part(servers, chance))
                time.sleep(chance.choice(PARTED_S))
                servers.join(broken=chance.random() < BROKEN_SHARE)
                time.sleep(chance.uniform(*JOINED_S))
            writers.go_on()
            acks = writers.acks()
            commits = whole_log(servers, "lab")
        finally:
            servers.join()
            writers.close()
    lost, repeated = missing(acks, commits), repeats(commits)
    evidence.record(
        "partition.one_way",
        rounds=number,
        acknowledged=len(acks),
        stored=len(commits),
        lost=len(lost),
        repeated=len(repeated),
        gave_up=writers.gave_up,
    )
    assert (lost, repeated, holes(commits), torn(commits)) == ([], [], [], []), parted
