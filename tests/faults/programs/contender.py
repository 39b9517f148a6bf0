"""Appends its share to a stream that others append to as well; on a conflict it reads again."""

import asyncio
import hashlib
from typing import Any

import msgspec

import hansard
from hansard.bus.errors import Conflict
from hansard.bus.log import Append, Stored
from hansard.domain.agent import CheckpointSaved
from hansard.domain.ids import AgentStream
from tests.faults._inside import Inside, run_program

STREAM = AgentStream("r1", "load", "shared")


def main(inside: Inside) -> dict[str, Any]:
    """Append, wait until all have, and say in which order one sees what is there."""
    return asyncio.run(asyncio.wait_for(_main(inside), inside.job.settings["within_s"]))


async def _main(inside: Inside) -> dict[str, Any]:
    name, share, total = (inside.job.settings[key] for key in ("name", "share", "total"))
    async with hansard.connect_async(workspace=inside.job.workspace) as record:
        workspace = record.workspace
        followed = asyncio.create_task(_followed(workspace.log, total))
        version = conflicts = 0
        for number in range(share):
            event = CheckpointSaved(
                name=name, data=msgspec.Raw(msgspec.json.encode(number)), fingerprint=""
            )
            while True:
                commit = workspace.commit(version + 1, STREAM.agent, [event])
                try:
                    await workspace.log.append(Append(STREAM, commit))
                except Conflict:
                    conflicts += 1
                    news = await workspace.log.read(STREAM, after=version)
                    version = news[-1].commit.last_version
                else:
                    version += 1
                    break
        following = await followed
        return {
            "conflicts": conflicts,
            "following": _digest(following),
            "reading": _digest(await workspace.log.read(STREAM)),
        }


async def _followed(log: Any, total: int) -> list[Stored]:
    seen: list[Stored] = []
    stream = log.follow()
    try:
        async for stored in stream:
            seen.append(stored)
            if len(seen) == total:
                return seen
    finally:
        await stream.aclose()
    raise AssertionError(f"following ended after {len(seen)} of {total}")


def _digest(commits: list[Stored]) -> str:
    order = "".join(f"{each.position} {each.commit.version} {each.commit.id}\n" for each in commits)
    return hashlib.sha256(order.encode()).hexdigest()


if __name__ == "__main__":
    run_program(main)
