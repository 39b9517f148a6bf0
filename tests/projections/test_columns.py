"""The meaning of each column is defined once, and is stored in each file."""

import re
from pathlib import Path

import pytest

from hansard.projections.store import Store, dictionary
from tests.sql_reference import of_slices, pages

COMMENTS = """
    SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal ORDER BY 1, 2
"""


@pytest.fixture
def comments(tmp_path: Path) -> list[tuple[str, str, str | None]]:
    """Return the comment of each column of a new file; slices describe theirs themselves."""
    store = Store(tmp_path / "t.duckdb")
    rows = store.all(COMMENTS)
    store.close()
    others = of_slices()
    return [row for row in rows if row[0] not in others]


def test_each_column_says_what_it_means(comments):
    """No column of a table or view is without a meaning."""
    assert comments
    assert [(table, column) for table, column, text in comments if not text] == []


def test_nothing_describes_what_is_not_there(comments):
    """Each entry belongs to an existing column that uses it."""
    shown = {(table, column): text for table, column, text in comments}
    entries = dict(dictionary())
    alike, everywhere = entries.pop("alike"), entries.pop("everywhere")
    assert {name for pair in alike.items() for name in pair} <= {table for table, _ in shown}
    assert {
        (table, column): text for table, of in entries.items() for column, text in of.items()
    }.items() <= shown.items()
    twice = [
        (name, column) for name, of in entries.items() for column in of if column in everywhere
    ]
    assert [
        (name, column) for name, column in twice if entries[name][column] == everywhere[column]
    ] == []
    unused = set(everywhere)
    for table, column in shown:
        if column not in entries.get(table, ()) and column not in entries.get(
            alike.get(table, ""), ()
        ):
            unused.discard(column)
    assert unused == set()


def test_what_is_everywhere_is_in_more_than_one_place(comments):
    """Shared column comments belong to several tables; a comment of one table is listed under
    it.
    """
    everywhere = dictionary()["everywhere"]
    places = {name: sum(column == name for _, column, _ in comments) for name in everywhere}
    assert [name for name, count in places.items() if count == 1] == []


# ------------------------------------------------------------ the pages


ROOT = Path(__file__).parents[2]
_NAMES = """
    SELECT table_name FROM duckdb_tables() WHERE NOT internal
    UNION SELECT view_name FROM duckdb_views() WHERE NOT internal
    UNION SELECT function_name FROM duckdb_functions()
        WHERE NOT internal AND database_name = current_database()
"""


@pytest.mark.slow
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
