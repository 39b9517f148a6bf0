"""Append to many streams at once and note each acknowledgement; one task writes in pairs."""

import asyncio
from pathlib import Path

import msgspec

import hansard
from hansard.bus.log import Append, Stored
from hansard.domain.agent import CheckpointSaved
from hansard.domain.ids import AgentStream
from tests.faults._inside import Inside, acked, append_line, run_program

PADDING = "." * 200


def main(inside: Inside) -> int:
    """Append until stopped; return the number of acknowledged commits."""
    return asyncio.run(_main(inside))


async def _main(inside: Inside) -> int:
    settings = inside.job.settings
    is_stopped = Path(settings["stop"]).exists
    async with hansard.connect_async(workspace=inside.job.workspace) as record:
        workspace = record.workspace

        def note(stored: Stored) -> None:
            append_line(inside.job.acks, msgspec.json.encode(acked(stored)))

        def next_commit(stream: AgentStream, version: int, count: int) -> Append:
            events = [
                CheckpointSaved(
                    name=f"{count}.{part}",
                    data=msgspec.Raw(msgspec.json.encode(PADDING)),
                    fingerprint="",
                )
                for part in range(1 + count % 3)
            ]
            return Append(stream, workspace.commit(version + 1, stream.agent, events))

        async def appends(stream: AgentStream) -> int:
            version = count = 0
            while not is_stopped():
                following = next_commit(stream, version, count)
                note(await workspace.log.append(following))
                version = following.commit.last_version
                count += 1
            return count

        async def transacts(pair: list[AgentStream]) -> int:
            version = count = 0
            while not is_stopped():
                both = [next_commit(stream, version, count) for stream in pair]
                for stored in await workspace.log.append_all(both):
                    note(stored)
                version = both[0].commit.last_version
                count += 1
            return 2 * count

        names = [f"{settings['name']}-{number}" for number in range(settings["streams"])]
        streams = [AgentStream(inside.job.run, "load", name) for name in names]
        singles = (appends(stream) for stream in streams[2:])
        return sum(await asyncio.gather(transacts(streams[:2]), *singles))


if __name__ == "__main__":
    run_program(main)
