"""docs/sql.md is what the schema says of itself."""

from pathlib import Path

import pytest

from hansard.projections._reference import page
from hansard.projections.store import Store

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"


def test_the_page_is_what_the_schema_says(tmp_path: Path):
    """Made again it is the same; every table, view and column has a comment."""
    store = Store(tmp_path / "t.duckdb")
    made = page(store)
    store.close()
    assert made == PAGE.read_text(encoding="utf-8"), (
        "run: python -m hansard.projections._reference > docs/sql.md"
    )


@pytest.mark.thorough(
    quick="tests/projections/test_columns.py::test_each_column_says_what_it_means"
)
def test_a_column_without_a_comment_is_refused(tmp_path: Path):
    """What is added to the schema is described, or there is no page."""
    store = Store(tmp_path / "t.duckdb")
    store.all("ALTER TABLE runs ADD COLUMN silent VARCHAR")
    with pytest.raises(ValueError, match=r"runs\.silent has no comment"):
        page(store)
    store.close()
