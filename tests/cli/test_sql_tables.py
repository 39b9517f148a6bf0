"""`hansard sql --tables`: what there is to query."""

from pathlib import Path

import pytest

import hansard
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


def test_scores_are_found_under_that_name(call: Call, record: hansard.Record, home: Path):
    """What 'hansard run score' records is a row of the view `scores`."""
    with hansard.connect("scored", data_dir=home) as own, own.run("w", run="scored"):
        pass
    assert call("run", "score", "scored", "reward=0.5", workspace="scored").code == 0
    [row] = call("sql", "FROM scores", "--json", workspace="scored").lines
    assert (row["metric"], row["value"]) == ("reward", 0.5)
