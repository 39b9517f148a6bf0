"""docs/sql.md and docs/sql/ equal the schema's own description."""

from pathlib import Path

import pytest

from hansard.projections.store import Store
from tests.sql_reference import of_slices, pages

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
_NAMES = """
    SELECT table_name FROM duckdb_tables() WHERE NOT internal
    UNION SELECT view_name FROM duckdb_views() WHERE NOT internal
    UNION SELECT function_name FROM duckdb_functions()
        WHERE NOT internal AND database_name = current_database()
"""


def test_the_pages_are_what_the_schema_says(tmp_path: Path):
    """Made again they are the same; every table, view, macro and function is in one of them."""
    store = Store(tmp_path / "t.duckdb")
    made = pages(store)
    names = {name for (name,) in store.all(_NAMES)} - of_slices()
    store.close()
    for name, text in made.items():
        assert text == (DOCS / name).read_text(encoding="utf-8"), (
            "run: python -m tests.sql_reference"
        )
    assert {path.name for path in (DOCS / "sql").iterdir()} == {
        Path(name).name for name in made if name != "sql.md"
    }
    text = "".join(made.values())
    assert [name for name in names if f"## `{name}" not in text and f"`{name}(" not in text] == []
