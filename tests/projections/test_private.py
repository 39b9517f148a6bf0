"""What is made of the log is its owner's alone, as the log is."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

import hansard

pytestmark = pytest.mark.slow

COMMANDS = (
    ("sql", "SELECT count(*) FROM events"),
    ("search", "secret"),
    ("rebuild",),
    ("sql", "SELECT count(*) FROM events"),
    ("search", "secret"),
)
"""Each makes files: the tables, what is published of them, the index; and makes them anew."""


def open_to_others(folder: Path) -> dict[str, str]:
    """What in a folder others may read, write or enter, and how."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}
    return {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}


def told(home: Path, *command: str) -> str:
    """Run a command as one whose own files everybody may read and write."""
    done = subprocess.run(
        [sys.executable, "-m", "hansard", *command, "--data-dir", str(home), "-w", "lab"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        umask=0,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_file_is_the_owners_alone(tmp_path: Path):
    """Whatever the umask: tables, DuckDB's log, the published states, the search index; and those
    that an earlier version left open to others are closed.
    """
    home = tmp_path / "data"
    with hansard.connect("lab", data_dir=home) as record:
        with record.run("w", run="r", agent="a", role="b") as session:
            session.message("user", "secret")
        for command in COMMANDS:
            told(home, *command)
            assert not open_to_others(home / "projections"), command
        kinds = {path.suffix for path in (home / "projections").rglob("*") if path.is_file()}
        assert {".duckdb", ".sqlite"} <= kinds
        for path in (home / "projections").glob("lab.*"):
            if path.suffix in {".duckdb", ".sqlite"}:
                path.chmod(0o644)
        with record.run("w", run="r2", agent="a", role="b") as session:
            session.message("user", "secret")
        told(home, "sql", "SELECT count(*) FROM events")
        told(home, "search", "secret")
        assert not open_to_others(home / "projections")
