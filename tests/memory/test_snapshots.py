"""Snapshots of spaces: a new process reads only what it uses, and always agrees with the log."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.agents.memory import drafts
from hansard.agents.memory.store import MemoryStore
from hansard.agents.workspace import Workspace
from hansard.bus.log import EventLog, Stored
from hansard.bus.portal import portal
from hansard.client.record import Record
from hansard.domain.ids import StreamId
from hansard.domain.label import Confidentiality, Label
from hansard.domain.memory.files import FileForm, MemoryApproval
from hansard.domain.memory.space import MemoryFile, MemoryInvalid
from hansard.state import memories
from hansard.state.memories import SNAPSHOT_EVERY, Memories
from tests.faults.support import Stage

pytestmark = pytest.mark.later

SAVED = Path(__file__).with_name("programs") / "saved.py"
SPACE = "org"
WITHIN_S = 30.0
PLAIN = ("version", "size", "policy", "refused", "unfit", "reflected", "links", "end")


class Counted:
    """A real log that counts the commits which reads of it return."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, stream: StreamId, **bounds: Any) -> list[Stored]:
        """Read and count."""
        commits = await self._log.read(stream, **bounds)
        self.commits += len(commits)
        return commits


class NewProcess:
    """Memory as a process that begins has it."""

    def __init__(self, workspace: Workspace, *, snapshots: bool = True) -> None:
        self.log = Counted(workspace.log)
        kept = workspace.snapshots if snapshots else None
        self.memories = Memories(self.log, workspace.blobs, kept)

    def facts(self) -> tuple[list[object], dict[str, tuple[MemoryFile, str]]]:
        """Return all that the snapshot holds of the space, with each text."""
        state = portal().run(self.memories.state(SPACE))
        self.folded = self.log.commits
        whole = portal().run(self.memories.whole(SPACE))
        files = {path: (whole.files[path], whole.files[path].text) for path in sorted(whole.files)}
        assert len(whole.files) == len(files)
        assert all(path == file.path for path, (file, _) in files.items())
        return [getattr(state, name) for name in PLAIN], files


def many(record: Record, count: int = 600) -> None:
    """Write files of all forms, and all that a space can hold besides."""
    store = MemoryStore(record.workspace, SPACE)
    for begin in range(0, count, 300):
        ops = [drafts.create(f"n/f{n}.md", f"note {n}\n") for n in range(begin, begin + 300)]
        portal().run(store.change(ops, "eve", "an import"))
    label = Label(Confidentiality.SECRET, untrusted=True)
    ops = [
        drafts.create("large.md", "large\n" * 20_000),
        drafts.create("link.md", "n/f0.md", link=True),
        drafts.restore("run.sh", "#!/bin/sh\n", FileForm(executable=True)),
        drafts.restore("a.bin", "AAEC", FileForm(binary=True)),
    ]
    portal().run(store.change(ops, "ann", "of all forms", label=label))
    record.memory(SPACE).set_policy(MemoryApproval.OFF, by="ann", untrusted=["n/**"])
    bad = [drafts.create("skills/x/SKILL.md", "no front matter\n")]
    with pytest.raises(MemoryInvalid):
        portal().run(store.change(bad, "bob"))


def changes(record: Record) -> None:
    """Change what a snapshot may hold: edit, move, delete and create again."""
    space = record.memory(SPACE)
    space.edit("n/f1.md", "note", "a note", by="eve")
    space.rename("n/f1.md", "n/g1.md", by="eve")
    space.edit("n/g1.md", "a note", "the note", by="eve")
    space.edit("large.md", "large\n" * 20_000, "small\n", by="eve")
    space.delete("n/f2.md", by="eve")
    space.delete("n/f3.md", by="eve")
    space.create("n/f3.md", "again\n", by="eve")


def saved(record: Record) -> dict[str, bytes]:
    """Return the space's snapshot by subject, once the server has all of it."""
    workspace = record.workspace
    assert workspace.snapshots is not None
    until = time.monotonic() + WITHIN_S
    reader = Memories(workspace.log, workspace.blobs, workspace.snapshots)
    portal().run(workspace.memories.close())
    while portal().run(reader._snapshot(SPACE)) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    keys = reader._keys(SPACE)[:3]
    return portal().run(workspace.snapshots.get_many(keys))


def test_a_snapshot_and_what_follows_are_what_all_changes_make(record: Record):
    """Forms, labels, links, renames, refusals and the policy; a second snapshot on the first."""
    many(record)
    changes(record)
    assert saved(record)
    for _ in range(2):
        by_log, by_snapshot = (
            NewProcess(record.workspace, snapshots=False),
            NewProcess(record.workspace),
        )
        assert by_snapshot.facts() == by_log.facts()
        assert by_snapshot.folded < by_log.folded
        space = record.memory(SPACE)
        space.edit("n/g1.md", "the note", "note", by="eve")
        space.rename("n/g1.md", "n/f1.md", by="eve")
        space.delete("link.md", by="eve")
        space.create("link.md", "a file now\n", by="eve")
        assert (
            NewProcess(record.workspace).facts()
            == NewProcess(record.workspace, snapshots=False).facts()
        )
        space.edit("n/f1.md", "note", "the note", by="eve")
        space.rename("n/f1.md", "n/g1.md", by="eve")
        record.workspace.memories._saved.clear()
        saved(record)


def test_the_first_change_of_a_process_reads_as_many_commits_beside_few_and_many(record: Record):
    """The commits that a process reads do not grow with the files of the space."""
    counts = []
    for files in (600, 3_000):
        many(record, files)
        saved(record)
        process = NewProcess(record.workspace)
        workspace = record.workspace
        before, workspace.memories = workspace.memories, process.memories
        try:
            record.memory(SPACE).edit("n/f7.md", "note", "a note", by="eve")
        finally:
            workspace.memories = before
        counts.append(process.log.commits)
        record.memory(SPACE).edit("n/f7.md", "a note", "note", by="eve")
    assert max(counts) <= 10, counts


def other_history(held: dict[str, bytes]) -> None:
    """Rewrite a snapshot as one of a commit that the log does not have."""
    head, part = sorted(held)
    held[part] = held[part].replace(b'"end":[', b'"end":[1,"another"],"begin":[')
    digest = hashlib.sha256(held[part]).hexdigest()
    held[head] = msgspec.json.encode((1, digest))


def damaged(held: dict[str, bytes]) -> None:
    """Flip a bit of a part."""
    part = sorted(held)[1]
    held[part] = held[part].replace(b"n/f7.md", b"n/f6.md")


def cut(held: dict[str, bytes]) -> None:
    """Cut a part in half."""
    part = sorted(held)[1]
    held[part] = held[part][: len(held[part]) // 2]


def no_head(held: dict[str, bytes]) -> None:
    """Replace the head with an invalid one."""
    held[min(held)] = b"{not a head"


def another_form(held: dict[str, bytes]) -> None:
    """Rewrite a part in another form."""
    head, part = sorted(held)
    held[part] = b'[{"version":7}]'
    digest = hashlib.sha256(held[part]).hexdigest()
    held[head] = msgspec.json.encode((1, digest))


@pytest.mark.parametrize("spoil", [damaged, cut, no_head, other_history, another_form])
def test_a_snapshot_that_cannot_be_used_costs_nothing_but_time(
    record: Record, spoil: Callable[[dict[str, bytes]], None]
):
    """A damaged, cut or foreign snapshot is ignored and all changes are folded."""
    many(record)
    held = saved(record)
    before = dict(held)
    spoil(held)
    assert held != before
    snapshots = record.workspace.snapshots
    assert snapshots is not None
    for subject, data in held.items():
        portal().run(snapshots.put(subject, data))
    until = time.monotonic() + WITHIN_S
    while portal().run(snapshots.get_many(list(held))) != held:
        assert time.monotonic() < until
        time.sleep(0.01)
    by_log, by_snapshot = (
        NewProcess(record.workspace, snapshots=False),
        NewProcess(record.workspace),
    )
    assert by_snapshot.facts() == by_log.facts()
    assert by_snapshot.folded >= by_log.folded
    portal().run(by_snapshot.memories.close())  # and it makes another one
    repaired = NewProcess(record.workspace)
    until = time.monotonic() + WITHIN_S
    while portal().run(repaired.memories._snapshot(SPACE)) is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert repaired.facts() == by_log.facts()
    assert repaired.folded < by_log.folded


def test_a_snapshot_of_another_version_is_not_read(record: Record, monkeypatch: pytest.MonkeyPatch):
    """A snapshot of another format version is not found."""
    many(record)
    saved(record)
    assert memories._layout() == memories.LAYOUT
    monkeypatch.setattr(memories, "SERVER_VERSION", "0.0.0")
    other = memories._layout()
    assert other != memories.LAYOUT
    monkeypatch.setattr(memories, "LAYOUT", other)
    process = NewProcess(record.workspace)
    assert portal().run(process.memories._snapshot(SPACE)) is None
    assert process.facts() == NewProcess(record.workspace, snapshots=False).facts()


def test_a_small_space_has_no_snapshot(record: Record):
    """A small space has no snapshot."""
    with record.memory(SPACE).change("few", by="eve") as change:
        for number in range(SNAPSHOT_EVERY // 2):
            change.create(f"n{number}.md", "x\n")
    portal().run(record.workspace.memories.close())
    assert portal().run(NewProcess(record.workspace).memories._snapshot(SPACE)) is None


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_it_is_sent_no_part_of_a_snapshot_is_used(
    stage: Stage, rounds: Callable[[int, int], int], when: str
):
    """A snapshot cut by a kill is ignored, and the state is the log's."""
    stride = 1 if rounds(1, 2) > 1 else 2  # `make check` kills at every other append
    number = 1
    while True:
        child = stage.start(SAVED, number=number, when=when, word=f"{when}-{number}")
        until = time.monotonic() + WITHIN_S
        while not Path(child.job.marker).exists() and child.process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        ended = child.process.poll() is not None
        if ended:
            assert child.end().error == ""
        else:
            child.kill()
        by_log, by_snapshot = (
            NewProcess(stage.record.workspace, snapshots=False),
            NewProcess(stage.record.workspace),
        )
        plain, files = by_snapshot.facts()
        assert (plain, files) == by_log.facts()
        _, text = files[f"{'notes' * 8}/n599.md"]
        assert text == f"{when}-{number} 599\n"
        if ended:  # it has fewer parts than that
            break
        number += stride
    assert number > 3
    until = time.monotonic() + WITHIN_S
    while by_snapshot.folded >= by_log.folded:  # nobody waited until the server had the snapshot
        assert time.monotonic() < until
        by_snapshot = NewProcess(stage.record.workspace)
        assert by_snapshot.facts() == (plain, files)
