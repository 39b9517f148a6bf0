"""Files made from the log are private to its owner, as the log is."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import hansard
from tests.cli.support import Call, Ran, ran
from tests.conftest import THOROUGH

pytestmark = pytest.mark.slow

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
