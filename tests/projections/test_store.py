"""The file of tables: schema, permitted writer, and description."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import structlog

import hansard
from hansard.domain import run
from hansard.domain.errors import BadName
from hansard.domain.ids import RunStream
from hansard.projections import store as module
from hansard.projections import table_files as table_schema
from hansard.projections.errors import Behind, Held, Newer, Older, ProjectionError, Unusable
from hansard.projections.runner import wait_for
from hansard.projections.store import Store, empty_file
from hansard.projections.table_files import (
    VERSION,
    ProjectorStatus,
    TableFiles,
    WriteLock,
    schema_digest,
)
from tests.cli.support import Call, Ran, ran
from tests.conftest import THOROUGH
from tests.projections.support import Messages, fill


def _some() -> Messages:
    messages = Messages()
    for number in range(4):
        messages.add(RunStream(f"r{number}"), 1, [run.RunStarted(workflow="w")])
    return messages


def test_a_file_written_by_a_newer_version_is_refused(tmp_path: Path):
    """A file of a newer version is left unchanged; the message has both versions and the
    remedies.
    """
    path = tmp_path / "t.duckdb"
    Store(path).close()
    with duckdb.connect(path) as con:
        con.execute("UPDATE schema_version SET version = 99, digest = 'later'")
    with pytest.raises(Newer, match=r"schema 99, this version knows up to \d+: upgrade") as newer:
        Store(path)
    assert (newer.value.found, newer.value.known) == (99, VERSION)
    assert newer.value.path == path


MADE_OTHERWISE = {
    "another schema": "UPDATE schema_version SET digest = 'other'",
    "an older version": "UPDATE schema_version SET version = 1, digest = 'older'",
    "a version that kept no digest": "DROP TABLE schema_version",
}


@pytest.mark.slow
@pytest.mark.parametrize("change", MADE_OTHERWISE.values(), ids=MADE_OTHERWISE)
def test_a_file_of_another_schema_is_emptied_for_a_rebuild(tmp_path: Path, change: str):
    """A file of another schema is emptied and rebuilt from the log's beginning."""
    path, messages = tmp_path / "t.duckdb", _some()
    store = Store(path)
    fill(store, messages.all)
    store.all(change)
    store.close()
    store = Store(path)
    assert (store.progress.position, store.all("SELECT count(*) FROM runs")) == (0, [(0,)])
    fill(store, messages.all)
    store.close()
    store = Store(path)
    assert (store.progress.position, store.all("SELECT count(*) FROM runs")) == (4, [(4,)])
    assert store.all("FROM schema_version") == [(VERSION, schema_digest())]
    store.close()


@pytest.mark.parametrize(
    "file", ["schema/20_helpers.sql", "schema/columns.toml", "tables/00_events.sql"]
)
def test_a_change_of_the_schema_changes_its_digest(tmp_path, monkeypatch, file):
    """A file of tables follows each change of the schema without a version number to raise."""
    here, digest = Path(table_schema.__file__).parent, schema_digest.__wrapped__
    for folder in ("schema", "tables"):
        shutil.copytree(here / folder, tmp_path / folder)
    monkeypatch.setattr(table_schema, "_HERE", tmp_path)
    assert digest() == schema_digest()
    with (tmp_path / file).open("a") as changed:
        changed.write("-- more\n")
    assert digest() != schema_digest()


@pytest.mark.slow
@pytest.mark.parametrize("change", MADE_OTHERWISE.values(), ids=MADE_OTHERWISE)
def test_a_reader_does_not_change_a_file_of_another_schema(tmp_path: Path, change: str):
    """A reader refuses a file of another schema with the remedy, and leaves its rows in place."""
    path = tmp_path / "t.duckdb"
    store = Store(path)
    fill(store, _some().all)
    store.all(change)
    store.close()
    with pytest.raises(Older, match=r"another version of Hansard made it.* 'hansard rebuild'"):
        Store(path, read_only=True)
    with duckdb.connect(path) as con:
        assert con.execute("SELECT count(*) FROM runs").fetchall() == [(4,)]


def test_what_is_no_projection_is_refused(tmp_path: Path):
    """Another database, or a file that is none, is not written to."""
    other, text = tmp_path / "other.duckdb", tmp_path / "text.duckdb"
    with duckdb.connect(other) as con:
        con.execute("CREATE TABLE mine (a INTEGER)")
    with pytest.raises(Unusable, match="it holds other tables"):
        Store(other)
    text.write_bytes(b"not a database" * 1_000)
    with pytest.raises(Unusable, match="hansard rebuild"):
        Store(text)
    assert text.read_bytes() == b"not a database" * 1_000


@pytest.mark.later
def test_a_store_that_is_read_writes_nothing(tmp_path: Path):
    """Several readers at once; a write is refused."""
    path = tmp_path / "t.duckdb"
    Store(path).close()
    readers = [Store(path, read_only=True) for _ in range(2)]
    messages = _some()
    with pytest.raises(ProjectionError, match="cannot be written"):
        fill(readers[0], messages.all)
    assert readers[1].progress.position == 0
    for reader in readers:
        reader.close()


@pytest.mark.slow
def test_a_batch_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """If a write fails half way, rows and position are unchanged; the next try works."""
    store, messages = Store(tmp_path / "t.duckdb"), _some()
    before = store.digests()

    def fails(*_: object) -> None:
        raise duckdb.IOException("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "_stand", fails)
        with pytest.raises(ProjectionError, match="the disk is full"):
            fill(store, messages.all)
    assert store.digests() == before
    assert store.progress.position == 0
    fill(store, messages.all)
    assert store.progress.position == 4
    store.close()


def test_the_view_lag_says_how_far_behind_it_is(tmp_path: Path):
    """The view has position, head, their distance, and the delay from the log to the tables."""
    store, messages = Store(tmp_path / "t.duckdb"), _some()
    fill(store, messages.all[:3], [])
    store.all("UPDATE progress SET head = 10, projected_at = logged_at + INTERVAL 250 MILLISECOND")
    [row] = store.all("SELECT position, head, behind, delay_ms FROM lag")
    assert row == (3, 10, 7, 250)
    store.close()


@pytest.mark.slow
def test_digests_tell_rows_apart(tmp_path: Path):
    """A row more, a row twice, a row less, a changed value: another digest; another order: none."""
    store = Store(tmp_path / "t.duckdb")
    fill(store, _some().all)
    columns = [row[1] for row in store.all("PRAGMA table_info('runs')")]
    first = store.digests()["runs"]
    store.all("CREATE TABLE kept AS SELECT * FROM runs")
    store.all("DELETE FROM runs")
    store.all("INSERT INTO runs SELECT * FROM kept ORDER BY run DESC")
    assert store._digest("runs", columns) == first
    seen = {first.sum}
    for change in (
        "INSERT INTO runs SELECT * FROM kept WHERE run = 'r1'",
        "DELETE FROM runs WHERE run = 'r1'",
        "UPDATE runs SET workflow = NULL WHERE run = 'r0'",
        "UPDATE runs SET workflow = '' WHERE run = 'r0'",
        "UPDATE runs SET workflow = 'NULL' WHERE run = 'r0'",
    ):
        store.all(change)
        seen.add(store._digest("runs", columns).sum)
    assert len(seen) == 6
    store.close()


# ---------------------------------------------------------------- who may write


def test_one_process_writes(tmp_path: Path):
    """A second projector is refused with the owner of the file, and can write after the first
    ends.
    """
    place = TableFiles.of(tmp_path, "lab")
    program = (
        "import sys; from pathlib import Path; from hansard.projections.table_files import *\n"
        "hold = WriteLock(TableFiles.of(Path(sys.argv[1]), 'lab'))\n"
        "print('held', flush=True); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    with pytest.raises(Held, match=f"process {child.pid} already projects into"):
        WriteLock(place)
    child.kill()
    child.communicate()
    hold = WriteLock(place)
    with pytest.raises(Held, match=f"process {os.getpid()} "):
        WriteLock(place)
    hold.close()
    WriteLock(place).close()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path):
    """The path and the reason, no traceback of the system's."""
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(Unusable, match="Not a directory"):
        WriteLock(TableFiles.of(tmp_path / "file", "lab"))


def test_a_place_is_inside_its_folder(tmp_path: Path):
    """A workspace's name cannot lead elsewhere."""
    with pytest.raises(BadName):
        TableFiles.of(tmp_path, "../other")
    assert TableFiles.of(tmp_path, "a").path == tmp_path / "projections" / "a.duckdb"


async def test_waiting_for_a_position(tmp_path: Path):
    """Waiting ends as soon as the projector arrives; else Behind, with both positions."""
    place = TableFiles.of(tmp_path, "lab")
    with pytest.raises(Behind, match=r"position 3 was not projected within 0 s.* are at 0"):
        await wait_for(place, 3, 0)
    hold = WriteLock(place)
    place.path.touch()
    hold.record_status(ProjectorStatus(os.getpid(), 5, 6))
    assert await wait_for(place, 3, 0) == 5
    with pytest.raises(Behind) as behind:
        await wait_for(place, 6, 0.05)
    assert (behind.value.target, behind.value.position) == (6, 5)
    assert place.status() == ProjectorStatus(os.getpid(), 5, 6, running=True)
    hold.close()
    assert place.status() == ProjectorStatus(os.getpid(), 5, 6, running=False)


def test_a_damaged_lock_file_is_no_status(tmp_path: Path):
    """A damaged lock file means no known owner, and is overwritten."""
    place = TableFiles.of(tmp_path, "lab")
    place.path.parent.mkdir()
    place.path.touch()
    place.lock.write_bytes(b"\x00" * 600)
    assert place.status() is None
    WriteLock(place).close()
    assert place.status() == ProjectorStatus(os.getpid(), running=False)


# ------------------------------------------------------------ the empty file of the tables


MADE = b"content of a file"


class Maker:
    """Makes the file, and counts."""

    made = 0

    def __call__(self) -> bytes:
        """Return the file."""
        self.made += 1
        return MADE


@pytest.fixture(name="cache")
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _kept(cache: Path) -> list[Path]:
    return sorted((cache / "hansard").iterdir())


def test_it_is_made_once(cache: Path):
    """The second caller gets the stored, private file; whole and partial ones differ."""
    make = Maker()
    assert [empty_file(make, "whole") for _ in range(2)] == [MADE, MADE]
    assert make.made == 1
    [kept] = _kept(cache)
    assert kept.stat().st_mode & 0o777 == 0o600
    empty_file(make, "partial")
    assert make.made == 2
    assert len(_kept(cache)) == 2


def test_one_that_is_not_whole_is_not_kept(cache: Path):
    """A file without the views of a faulty slice is made again by the next process."""
    make = Maker()
    for count in (1, 2):
        assert empty_file(make, "whole", keeps=lambda: False) == MADE
        assert make.made == count
    assert not cache.exists()


@pytest.mark.parametrize("damage", [b"", b"short", MADE + b"\0" * 32])
def test_what_is_damaged_is_made_again(cache: Path, damage: bytes):
    """A file that is cut, changed or foreign fails its trailing digest and is made again."""
    make = Maker()
    empty_file(make, "whole")
    [kept] = _kept(cache)
    kept.write_bytes(damage)
    assert empty_file(make, "whole") == MADE
    assert make.made == 2
    assert empty_file(make, "whole") == MADE
    assert make.made == 2


def test_where_nothing_can_be_kept_it_is_made(cache: Path):
    """If the cache folder cannot be used, the file is made each time without an error."""
    cache.write_text("a file")
    make = Maker()
    assert [empty_file(make, "whole") for _ in range(2)] == [MADE, MADE]
    assert make.made == 2


def test_old_ones_of_other_versions_go(cache: Path):
    """Files of other versions that are a month old are removed when another is made."""
    make = Maker()
    empty_file(make, "whole")
    [old] = _kept(cache)
    long_ago = old.stat().st_mtime - module.OLD_S - 1
    os.utime(old, (long_ago, long_ago))
    empty_file(make, "partial")
    assert old not in _kept(cache)


# ------------------------------------------------------------ private files


ASKING = (("sql", "SELECT count(*) FROM events"), ("search", "secret"))
COMMANDS = (*ASKING, ("rebuild",), *(ASKING if THOROUGH else ()))
"""Commands that make files: the tables, the published ones, the index; and remake them."""


def open_to_others(folder: Path) -> dict[str, str]:
    """Return the paths in a folder that others may read, write or enter, each with its mode."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}
    return {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}


@pytest.fixture
def command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    """Run a command as a user whose files are readable and writable by all."""
    before = os.umask(0)

    def run(*command: object) -> Ran:
        done = ran(capsys, monkeypatch, [*command, "--data-dir", tmp_path / "data", "-w", "lab"])
        assert done.code == 0, done.err
        return done

    yield run
    structlog.reset_defaults()
    os.umask(before)


@pytest.mark.slow
def test_each_file_is_the_owners_alone(tmp_path: Path, command_line: Call):
    """Tables, logs and indexes are the owner's alone, whatever the umask."""
    home = tmp_path / "data"
    with hansard.connect("lab", data_dir=home) as record:
        with record.run("w", run="r", agent="a", role="b") as session:
            session.message("user", "secret")
        for command in COMMANDS:
            command_line(*command)
            assert not open_to_others(home / "projections"), command
        kinds = {path.suffix for path in (home / "projections").rglob("*") if path.is_file()}
        assert {".duckdb", ".sqlite"} <= kinds
        for path in (home / "projections").glob("lab.*"):
            if path.suffix in {".duckdb", ".sqlite"}:
                path.chmod(0o644)
        with record.run("w", run="r2", agent="a", role="b") as session:
            session.message("user", "secret")
        command_line("sql", "SELECT count(*) FROM events")
        command_line("search", "secret")
        assert not open_to_others(home / "projections")
