"""Spaces of thousands of files: a change costs the same however many others there are."""

import pytest

from hansard.client.record_sync import Record

pytestmark = pytest.mark.slow


def test_tables_of_thousands_of_files_are_made_within_their_bound(record: Record):
    """A row of a changed file costs what that file does, however many its change has."""
    space = record.memory("org")
    for begin in range(0, 2_000, 500):
        with space.change("an import", by="eve") as change:
            for number in range(begin, begin + 500):
                change.create(f"notes/n{number}.md", f"note {number}\n" * 30)
    assert record.sql("SELECT count(*), max(version) FROM memory_files").rows == [(2_000, 4)]
