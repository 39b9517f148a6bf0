"""Spaces of thousands of files: the cost of a change does not depend on their number."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hansard.agents.memory import drafts
from hansard.agents.memory.store import MemoryStore, pack
from hansard.agents.workspace import Workspace
from hansard.bus.clock import Clock
from hansard.bus.log import Append
from hansard.client.options import Defaults
from hansard.client.record import AsyncRecord, Record
from hansard.domain.events import Actor
from hansard.domain.memory import space
from hansard.domain.memory.files import MemoryChanged, digest_of, stream_of
from hansard.inspect.memory import listing
from hansard.testing.programs import Memory, MemoryBlobs, workspace_of

pytestmark = pytest.mark.slow


def test_tables_of_thousands_of_files_are_made_within_their_bound(record: Record):
    """A row of a changed file has the same cost in changes of any size."""
    space = record.memory("org")
    for begin in range(0, 2_000, 500):
        with space.change("an import", by="eve") as change:
            for number in range(begin, begin + 500):
                change.create(f"notes/n{number}.md", f"note {number}\n" * 30)
    assert record.sql("SELECT count(*), max(version) FROM memory_files").rows == [(2_000, 4)]


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of Python and C function calls, a cost that does not depend on load."""
    count = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def cost_of_a_change(files: int) -> int:
    """Return the calls for an edit and a new file in a space of so many files."""
    store = MemoryStore(workspace_of(Memory()), "org")
    with asyncio.Runner() as runner:

        def change(*ops: drafts.Op) -> None:
            runner.run(store.change(ops, by="eve"))

        for begin in range(0, files, 100):
            change(
                *(
                    drafts.create(f"d{begin}/n{number}.md", f"note {number}\n")
                    for number in range(begin, begin + 100)
                )
            )
        edit = drafts.edit("d0/n7.md", "note", "a note")
        return calls_of(lambda: change(edit, drafts.create("d0/new.md", "x\n")))


def test_a_change_of_one_file_costs_the_same_beside_few_and_many_others():
    """No step of a change goes through all files of its space."""
    few, many = cost_of_a_change(100), cost_of_a_change(2_000)
    assert many < few * 1.2, (few, many)


class CountedBlobs(MemoryBlobs):
    """Counts the requests that a broker would get, and the blobs that they fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = self.fetched = 0

    async def get(self, sha256: str, size: int) -> bytes:
        """Count and return one blob."""
        return (await self.get_all([(sha256, size)]))[sha256]

    async def get_all(self, blobs: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Count and return several blobs."""
        self.requests += 1
        self.fetched += len(blobs)
        return {blob[0]: self.at_hand(*blob) for blob in blobs}


async def written(files: int) -> CountedWorkspace:
    """Return a workspace of so many large texts, opened by a process that has read nothing."""
    blobs, log = CountedBlobs(), Memory().log
    workspace = CountedWorkspace(log, blobs, Clock(), _nothing)
    workspace.fetched = blobs
    for version, begin in enumerate(range(0, files, 300), 1):
        numbers = range(begin, min(begin + 300, files))
        made = [space.change_of(f"d{n // 100}/n{n}.md", None, f"{n}" * 9_000) for n in numbers]
        changed, stored = pack([each for each in made if each])
        for blob in stored:
            await blobs.put(blob)
        commit = workspace.commit(version, Actor("eve"), [MemoryChanged(files=changed)])
        await workspace.log.append(Append(stream_of("org"), commit))
    return workspace


class CountedWorkspace(Workspace):
    """A workspace whose large payloads are counted."""

    fetched: CountedBlobs


async def _nothing() -> None:
    return None


def test_a_new_process_fetches_the_files_of_a_change_together():
    """A new process fetches a change's files in requests of 16 MiB each."""

    async def requests() -> int:
        workspace = await written(300)
        state = await workspace.memories.whole("org")
        assert {path: len(file.text) for path, file in state.files.items()} == {
            f"d{n // 100}/n{n}.md": 9_000 * len(f"{n}") for n in range(300)
        }
        return workspace.fetched.requests

    assert asyncio.run(requests()) == 1


def digests_of(work: Callable[[], object]) -> int:
    """Return the number of text digests that the work computes."""
    count = 0

    def counted(frame: Any, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is digest_of.__code__

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def cost_in_a_new_process(files: int) -> tuple[int, int]:
    """Return the blobs fetched and digests computed for a new process's first change."""
    with asyncio.Runner() as runner:
        workspace = runner.run(written(files))
        store = MemoryStore(workspace, "org")
        edit = drafts.edit("d0/n77.md", "7" * 18_000, "seven\n")
        count = digests_of(lambda: runner.run(store.change([edit], by="eve")))
        seen = runner.run(store.entry("d0/n77.md"))
        assert seen.text == "seven\n"
        return workspace.fetched.fetched, count


def test_the_first_change_of_a_process_reads_the_file_that_it_changes_alone():
    """The first change fetches and checks only the changed file, whatever the size of the space."""
    few, many = cost_in_a_new_process(100), cost_in_a_new_process(2_000)
    assert few == many
    assert many[0] == 1
    assert many[1] < 10


def test_a_list_of_paths_reads_no_text():
    """A list of paths reads no text, whatever the size of the space."""

    async def fetched() -> tuple[int, int]:
        workspace = await written(300)
        space = AsyncRecord(workspace, Defaults()).memory("org")
        lists = await space.ls("d1"), await space.glob("d1/*7.md")
        assert [len(each) for each in lists] == [100, 10]
        listed = (await listing(workspace, None)).files
        assert [each.size >= 9_000 for each in listed] == [True] * 300
        return workspace.fetched.requests, len(await space.entries())

    assert asyncio.run(fetched()) == (0, 300)
