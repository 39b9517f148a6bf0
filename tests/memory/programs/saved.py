"""Change a large space; may stop around a part of its snapshot, by number, as the program ends."""

import asyncio
from collections.abc import Sequence

from hansard.bus.log import Snapshots
from hansard.state import memories
from tests.faults._inside import Inside, run_program

PART_BYTES = 16 * 1024


class Watched:
    """The real store of snapshots; stops before or after the part of a number is sent."""

    def __init__(self, kept: Snapshots, inside: Inside) -> None:
        self._kept = kept
        self._inside = inside
        self._left = inside.job.settings["number"]

    async def put(self, subject: str, data: bytes) -> bool:
        """Store, watched."""
        self._left -= 1
        if self._inside.job.settings["when"] == "before":
            await self._stop()
        sent = await self._kept.put(subject, data)
        await self._stop()
        return sent

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Read from the real store."""
        return await self._kept.get_many(keys)

    async def _stop(self) -> None:
        if not self._left and not self._inside.stops.reach():
            await asyncio.Event().wait()


def main(inside: Inside) -> None:
    """Change each of the files, and end."""
    memories.PART_BYTES = PART_BYTES
    with inside.connect() as record:
        assert record.workspace.snapshots is not None
        record.workspace.memories._snapshots = Watched(record.workspace.snapshots, inside)
        space, word = record.memory("org"), inside.job.settings["word"]
        for begin in range(0, 600, 300):
            with space.change(word, by="eve") as change:
                for number in range(begin, begin + 300):
                    change.create(f"{'notes' * 8}/n{number}.md", f"{word} {number}\n")


if __name__ == "__main__":
    run_program(main)
