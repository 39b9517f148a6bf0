"""examples/trading_book, as its README has it."""

import os
from pathlib import Path

import pytest

from tests.faults._warm import run

pytestmark = pytest.mark.thorough

BOOK = Path(__file__).parents[2] / "examples" / "trading_book" / "book.py"
README = BOOK.with_name("README.md").read_text()
PROGRAM_S_MAX = 170


@pytest.mark.thorough(
    quick="tests/aggregates/test_kill.py::test_a_trader_killed_at_each_append_leaves_both_or_neither"
)
def test_the_trading_book_prints_what_its_readme_says(tmp_path: Path, data_dir: Path, workspace):
    """Run, run again, run as another trader: the same orders, each once."""
    place = {"HANSARD_DATA_DIR": str(data_dir), "HANSARD_WORKSPACE": workspace}

    def book(*arguments: str) -> str:
        env = {"PATH": os.environ.get("PATH", ""), **place}
        done = run([str(BOOK), *arguments], cwd=tmp_path, env=env, timeout=PROGRAM_S_MAX)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = book()
    assert first in README
    shown = book("--book")
    assert book() == first
    assert book("--book") == shown
    assert book("book-1", "bob") in README
    lines = book("--book").splitlines()
    assert lines[0] == "account desk: 40.22, 10 orders"
    assert len(lines) == 11
