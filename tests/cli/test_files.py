"""Files written by commands: private, complete, and safe to open."""

import csv
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard.bus.file_lock import whole
from tests.cli.support import Call, Runs


def mode(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def lenient() -> Iterator[None]:
    """Yield a umask that would let everybody read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.slow
@pytest.mark.usefixtures("lenient", "runs")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["run", "html", "last", "--output"], id="page"),
        pytest.param(["export", "last", "--output"], id="export"),
        pytest.param(["sql", "SELECT 1", "-o"], id="answer"),
    ],
)
def test_what_is_written_is_for_its_owner_only(call: Call, tmp_path: Path, command: list[str]):
    """Files are as private as the record, even where a file readable by others existed."""
    target = tmp_path / "out.csv"
    assert call(*command, target).code == 0
    assert mode(target) == 0o600
    target.chmod(0o644)
    assert call(*command, target).code == 0
    assert mode(target) == 0o600


def test_git_never_takes_the_record_along(home: Path, runs: Runs):
    """The record's folder ignores itself."""
    assert (home / ".gitignore").read_text().splitlines()[-1] == "*"


FORMULAS = ["=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1"]
PLAIN = ["a=1", " =1", "1", "", "'=1"]


def cells(call: Call, target: Path, *more: str) -> list[str]:
    """Return the cells of a text column in a CSV file."""
    texts = [text.replace("'", "''") for text in FORMULAS + PLAIN]
    rows = ", ".join(f"({number}, '{text}')" for number, text in enumerate(texts))
    statement = f"SELECT text FROM (VALUES {rows}) AS t(n, text) ORDER BY n"
    assert call("sql", statement, "-o", target, *more).code == 0
    with target.open(encoding="utf-8", newline="") as file:
        return [cell for [cell] in csv.reader(file)][1:]


@pytest.mark.slow
def test_a_cell_that_begins_a_formula_is_quoted(call: Call, runs: Runs, tmp_path: Path):
    """A spreadsheet takes it for a text, and nothing that an agent wrote is run there."""
    values = cells(call, tmp_path / "t.csv")
    assert values == [f"'{text}" for text in FORMULAS] + PLAIN


@pytest.mark.thorough(quick="test_a_cell_that_begins_a_formula_is_quoted")
def test_quoting_can_be_turned_off(call: Call, runs: Runs, tmp_path: Path):
    """For programs that read every character as it is."""
    assert cells(call, tmp_path / "t.csv", "--csv-formulas") == FORMULAS + PLAIN


@pytest.mark.slow
def test_numbers_are_no_formulas(call: Call, runs: Runs):
    """A negative number stays a number; the name of a column is a cell, too."""
    ran = call("sql", "SELECT -1 AS n, '=x' AS \"=y\"", "--format", "csv")
    assert ran.out == '"n","\'=y"\n-1,"\'=x"\n'


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("name", ["t.xlsx", "t.json", "t.tsv", "t.CSVX"])
def test_a_format_that_is_not_written_is_refused(call: Call, runs: Runs, tmp_path: Path, name: str):
    """Rather than a table under a name that promises something else; with those there are."""
    ran = call("sql", "SELECT 1", "-o", tmp_path / name)
    assert ran.code == 2
    assert Path(name).suffix in ran.err
    assert ".csv" in ran.err
    assert ".parquet" in ran.err
    assert "--format" in ran.err
    assert not (tmp_path / name).exists()
    assert call("sql", "SELECT 1", "-o", tmp_path / name, "--format", "csv").code == 0


@pytest.mark.slow
def test_endings_are_read_as_people_write_them(call: Call, runs: Runs, tmp_path: Path):
    """In capitals, too."""
    assert call("sql", "SELECT 1 AS a", "-o", tmp_path / "T.CSV").code == 0
    assert (tmp_path / "T.CSV").read_bytes() == b'"a"\n1\n'


def test_a_pipe_is_written_as_it_is(tmp_path: Path):
    """A target that is not a regular file keeps its mode."""
    with whole(Path(os.devnull)) as file:
        file.write(b"x")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
