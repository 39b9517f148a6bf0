"""One-way partitions of three brokers: what was acknowledged is in the log, once, for everybody."""

import asyncio
import random
import time

import pytest

from tests.bus import cluster
from tests.bus.cluster import Cluster
from tests.faults._whole import holes, repeats, torn, whole_log
from tests.faults.support import Stage, all_go_on, missing, read_acks

pytestmark = pytest.mark.slow

SEED = 11
PARTED_S = (3.0, 6.0, 12.0)
"""Shorter and longer than what followers wait before they elect another leader (4 to 9 s)."""

JOINED_S = (0.5, 3.0)
STREAMS = 20


async def made(servers: Cluster) -> None:
    """Make the workspace, with a replica on each server."""
    await servers.elected()
    await (await servers.log("lab")).close()


def part(servers: Cluster, chance: random.Random) -> str:
    """Part the servers in one direction; in words which."""
    names = [member.name for member in servers.members]
    one, other = chance.sample(names, 2)
    match chance.choice(["mute", "deaf", "pair"]):
        case "mute":
            servers.part(one)
            return f"nobody hears {one}"
        case "deaf":
            for each in names:
                if each != one:
                    servers.part(each, deaf=[one])
            return f"{one} hears nobody"
        case _:
            servers.part(one, deaf=[other])
            return f"{other} does not hear {one}"


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_nothing_acknowledged_is_lost_in_a_one_way_partition(tmp_path, rounds, evidence):
    """Programs append from their own threads, over the loop and in atomic batches, while servers do
    not hear each other in one direction. Each acknowledged commit is in the log at its position,
    byte for byte, none is there twice, and no stream has a hole.
    """
    number, chance = rounds(1, 30), random.Random(SEED)
    parted: list[str] = []
    with cluster.running(tmp_path / "cluster", linked=True) as servers:
        asyncio.run(made(servers))
        stage, stop = Stage(servers, tmp_path, "lab"), tmp_path / "stop"
        try:
            children = [stage.start("appender", name="loop", streams=STREAMS, stop=str(stop))]
            stage.begin("r2")
            children += [
                stage.start("worker", name=f"thread{each}", stop=str(stop)) for each in range(3)
            ]
            for _ in range(number):
                all_go_on(children)
                parted.append(part(servers, chance))
                time.sleep(chance.choice(PARTED_S))
                servers.join()
                time.sleep(chance.uniform(*JOINED_S))
            all_go_on(children)
            stop.touch()
            reports = [child.end(60.0) for child in children]
            acks = [ack for child in children for ack in read_acks(child.job.acks)]
            commits = whole_log(servers, "lab")
        finally:
            servers.join()
            stage.close()
    lost, repeated = missing(acks, commits), repeats(commits)
    evidence.record(
        "partition.one_way",
        rounds=number,
        acknowledged=len(acks),
        stored=len(commits),
        lost=len(lost),
        repeated=len(repeated),
    )
    assert [report.error for report in reports] == [""] * len(children)
    assert (lost, repeated, holes(commits), torn(commits)) == ([], [], [], []), parted
