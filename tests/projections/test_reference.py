"""The pages of tables in the site describe the whole schema."""

import re
from pathlib import Path

import pytest

from hansard.projections.store import Store
from tests.sql_reference import of_slices, pages

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
_NAMES = """
    SELECT table_name FROM duckdb_tables() WHERE NOT internal
    UNION SELECT view_name FROM duckdb_views() WHERE NOT internal
    UNION SELECT function_name FROM duckdb_functions()
        WHERE NOT internal AND database_name = current_database()
"""


def test_each_table_is_on_a_page_of_the_navigation(tmp_path: Path):
    """Each table, view, macro and function is on a page that the site lists."""
    store = Store(tmp_path / "t.duckdb")
    made = pages(store)
    names = {name for (name,) in store.all(_NAMES)} - of_slices()
    store.close()
    listed = re.findall(r'"docs/(sql(?:/.+)?\.md)"', (ROOT / "zensical.toml").read_text("utf-8"))
    assert sorted(listed) == sorted(made)
    text = "".join(made.values())
    assert [name for name in names if f"## `{name}" not in text and f"`{name}(" not in text] == []
