"""examples/ab.sql, statement by statement, over the experiment of examples/prompts."""

import os
import shutil
from pathlib import Path

import duckdb
import pytest

from hansard.projections.store import Store
from tests.faults._warm import run

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "prompts" / "search.py"
TOUR = (ROOT / "examples" / "ab.sql").read_text(encoding="utf-8")
STATEMENTS = [statement.query.strip() for statement in duckdb.extract_statements(TOUR)]
QUESTIONS = [part.strip() for part in TOUR.split("\n\n") if "SELECT" in part]


def _run(home: Path, *command: str) -> str:
    environment = {**os.environ, "HANSARD_DATA_DIR": str(home / "data")}
    done = run(command, cwd=home, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the completed example."""
    folder = tmp_path_factory.mktemp("prompts")
    assert "60 tasks under 2 arms" in _run(folder, str(PROGRAM))
    return folder


@pytest.fixture(scope="module")
def store(home: Path):
    """Yield the example's tables."""
    _run(home, "-m", "hansard", "rebuild")
    copied = shutil.copy(home / "data" / "projections" / "default.duckdb", home / "t.duckdb")
    opened = Store(Path(copied), read_only=True)
    yield opened
    opened.close()


def test_each_question_has_a_sentence_and_a_statement():
    """Each statement comes with the question that it answers."""
    assert len(QUESTIONS) == len(STATEMENTS) >= 15
    assert all(question.startswith("--") for question in QUESTIONS)


COMPARING = [
    number for number, statement in enumerate(STATEMENTS) if "FROM comparisons(" in statement
]
"""Statements that take seconds: the test of the example's results covers one in other words."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=pytest.mark.thorough if number in COMPARING else ())
        for number in range(len(STATEMENTS))
    ],
)
def test_each_statement_has_an_answer(number: int, store: Store):
    """Each statement runs unchanged and returns rows."""
    assert store.all(STATEMENTS[number])


@pytest.mark.slow
def test_the_example_s_answer_is_what_its_metrics_say(home: Path, store: Store):
    """Rarity finds more, and both ways of querying agree."""
    [row] = store.rows("FROM comparisons('search', only_metric := 'reward') WHERE \"default\"")
    assert (row["verdict"], row["wins"] > row["losses"]) == ("better", True)
    shares = dict(store.all("SELECT arm, mean FROM arm_summary('search', only_metric := 'reward')"))
    assert row["difference"] == pytest.approx(shares["rarity"] - shares["count"])
    assert "rarity against count: better" in _run(home, "-m", "hansard", "compare", "search")
