"""`hansard check` on published snapshots: it finds a flipped byte anywhere."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hansard
from hansard.projections import snapshots as published
from hansard.projections.table_files import TableFiles, role_place
from tests.cli.support import Call
from tests.damage.damages import WORKSPACE, Files, flip

pytestmark = pytest.mark.slow

ROLES = """
[roles.reader]
about = "Reads."
sees = [{ name = "all", kinds = ["**"] }]
may = { query = true }
"""


def newest(place: TableFiles) -> published.PublishedSnapshot:
    """Return the newest published snapshot."""
    generation = published.newest(place)
    assert generation is not None
    return generation


@contextmanager
def flipped(path: Path, at: int) -> Iterator[None]:
    """Yield a copy with a bit flipped in the place of a file meanwhile."""
    aside = path.with_name("aside")
    path.rename(aside)
    shutil.copyfile(aside, path)
    flip(path, at)
    try:
        yield
    finally:
        aside.replace(path)


def places(path: Path) -> list[int]:
    """Return offsets in a file: its headers, its end, and some in each part."""
    size = path.stat().st_size
    headers = [0, 8, 4096 + 20, 8192 + 20, size - 1]
    return sorted({each for each in (*headers, *range(0, size, max(1, size // 16))) if each < size})


def test_a_flipped_byte_anywhere_in_what_is_published(files: Files):
    """It is found in headers, used and free blocks, DuckDB's log and their descriptions."""
    place = TableFiles.of(files.home, WORKSPACE)
    generation = newest(place)
    assert published.damage(generation) is None
    paths = sorted(generation.folder.iterdir())
    assert generation.path in paths
    for path in paths:
        for at in places(path):
            with flipped(path, at):
                message = published.damage(generation)
                assert message is not None, (path.name, at)
                assert path.name in message
    assert published.damage(generation) is None


def test_check_finds_it(files: Files, cli: Call):
    """The error names the file and the remedy, which works."""
    place = TableFiles.of(files.home, WORKSPACE)
    with flipped(newest(place).path, 8192 + 20):
        result = cli("check")
        assert result.code == 1
        assert "tables.duckdb' is not what was published: its bytes changed" in result.out
        assert "run 'hansard rebuild'" in result.out
    assert cli("check").code == 0
    flip(newest(place).path, newest(place).path.stat().st_size // 2)
    assert cli("rebuild").code == 0
    assert cli("check").code == 0


def test_what_says_what_a_generation_is_is_not_believed_where_it_changed(files: Files, cli: Call):
    """No answer has an invalid position, and `check` reports the change."""
    place = TableFiles.of(files.home, WORKSPACE)
    generation = newest(place)
    path = generation.folder / "generation.json"
    content = path.read_bytes()
    assert b'"position":3' in content
    path.write_bytes(content.replace(b'"position":3', b'"position":2', 1))
    assert published.newest(place) is None
    result = cli("check")
    assert (result.code, "generation.json' is damaged" in result.out) == (1, True)
    answer = cli("sql", "--format", "csv", "SELECT max(position) FROM events")
    assert int(answer.out.split()[-1]) == generation.position
    assert cli("check").code == 0


def test_check_reads_what_is_published_for_a_role(files: Files, cli: Call):
    """Each role has a file of its own."""
    roles = files.home.with_name("roles.toml")
    roles.write_text(ROLES)
    with hansard.connect(workspace=WORKSPACE, data_dir=files.home) as record:
        record.roles.apply_file(roles)
    statement = "SELECT count(*) FROM events"
    assert cli("sql", "--role", "reader", statement).code == 0
    assert cli("check").code == 0
    generation = newest(role_place(files.home, WORKSPACE, "reader"))
    flip(generation.path, generation.path.stat().st_size // 2)
    result = cli("check")
    assert (result.code, "is not what was published" in result.out) == (1, True)
    assert str(generation.path) in result.out
    shutil.rmtree(generation.folder)
    assert cli("sql", "--role", "reader", statement).code == 0
    assert cli("check").code == 0
