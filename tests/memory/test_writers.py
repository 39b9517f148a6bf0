"""Many writers of one space, each with its own session, lose nothing."""

import threading

import pytest

from hansard.client.record import Record

pytestmark = pytest.mark.slow

WRITERS = 8
SPACE = "org"


def write(record: Record, number: int, edits: int, errors: list[BaseException]) -> None:
    """Edit a file of its own, and add to the one that all share."""
    agent = f"writer{number}"
    try:
        with record.run("w", agent=agent, role="writer", run=f"run-{number}") as session:
            memory = session.memory
            for edit in range(edits):
                memory.create(f"own/{agent}.md", f"edit {edit}\n", space=SPACE)
                memory.remember(f"{agent} {edit}", path="shared.md", space=SPACE)
    except BaseException as error:  # noqa: BLE001 -- the test reports it
        errors.append(error)


@pytest.mark.parametrize("edits", [5, pytest.param(1_000, marks=pytest.mark.thorough)])
@pytest.mark.timeout(3_000)
def test_no_edit_of_eight_writers_is_lost(record: Record, edits: int):
    """Eight writers edit own files and a shared one; each line of it is there exactly once."""
    record.memory(SPACE).set_policy("off", by="eve")
    errors: list[BaseException] = []
    writers = [
        threading.Thread(target=write, args=(record, number, edits, errors))
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert errors == []
    space = record.memory(SPACE)
    lines = space.view("shared.md").splitlines()
    assert sorted(lines) == sorted(
        f"- writer{number} {edit}" for number in range(WRITERS) for edit in range(edits)
    )
    for number in range(WRITERS):
        assert space.view(f"own/writer{number}.md") == f"edit {edits - 1}\n"
        assert len(space.history(f"own/writer{number}.md")) == edits
