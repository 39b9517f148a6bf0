"""`hansard sql --tables`: what there is to query."""

import pytest

from tests.cli.support import Call, Runs

pytestmark = pytest.mark.slow


def test_tables_and_views_are_listed_with_their_comments(call: Call, runs: Runs):
    """Each is listed once, by name, with a sentence on what a row of it is."""
    rows = call("sql", "--tables", "--json").lines
    names = [row["name"] for row in rows]
    assert names == sorted(set(names))
    kinds = {row["name"]: row["kind"] for row in rows}
    assert (kinds["steps"], kinds["scores"]) == ("table", "view")
    assert [row["name"] for row in rows if not row["comment"]] == []
    refused = call("sql", "--tables", "SELECT 1")
    assert (refused.code, refused.out) == (2, "")


def test_scores_are_found_under_that_name(call: Call, runs: Runs):
    """What 'hansard run score' records is a row of the view `scores`."""
    assert call("run", "score", runs.forked, "reward=0.5").code == 0
    [row] = call("sql", f"FROM scores WHERE run = '{runs.forked}'", "--json").lines
    assert (row["metric"], row["value"]) == ("reward", 0.5)
