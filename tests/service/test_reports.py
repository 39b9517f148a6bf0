"""`record.compare`, `audit` and `why` through the service: by the role's own tables."""

from pathlib import Path

import pytest

import hansard
from tests.compare.test_in_python import PLAN
from tests.service.support import ALL, Served

pytestmark = pytest.mark.thorough

FEW = """
[roles.few]
sees = [{ name = "runs and scores", kinds = ["run.*", "experiment.*"] }]
may = { query = true }
[roles.idle]
may = { tools = ["**"] }
"""


@pytest.mark.thorough(
    quick="service/test_replays.py::test_a_role_that_may_query_is_told_what_it_saved"
)
def test_a_role_is_told_of_what_it_is_shown(data_dir: Path, tmp_path: Path) -> None:
    """Reports follow what a role sees, and each is on record before it is given."""
    house = Served(data_dir, "reports", tmp_path)
    house.apply(ALL + FEW)
    house.begin()
    try:
        with house.trusted() as record:
            record.register("e", PLAN)
            for arm in ("plain", "bold"):
                with record.run("w", run=arm, experiment="e", arm=arm, task="t") as session:
                    options = [{"id": "this", "score": 0.6}, "that"]
                    session.decide("?", selected="this", alternatives=options, threshold=0.5)
                record.score(arm, {"solved": int(arm == "bold")}, by="judge")
            mine, why = record.compare("e"), record.why("bold")
            whole = record.audit(flip=0.2)
        with house.connect("ada", "writer") as record:
            made = record.compare("e", baseline="plain")
            assert made.report.judged == mine.report.judged
            [decision] = record.why("bold").rows
            assert decision["selected"] == why.rows[0]["selected"] == "this"
            explained = record.why(decision["decision"])
            assert isinstance(explained, hansard.types.DecisionReport)
            assert {row["part"] for row in explained.rows} >= {"decision", "outcome"}
            audited = record.audit(flip=0.2)
            assert audited.groups()[0].found == audited.found
            assert audited.summary.looked == whole.summary.looked
            with pytest.raises(hansard.errors.CallerError, match="known are e"):
                record.compare("f")
        with house.connect("bob", "few") as record:
            assert record.compare("e").report.judged == mine.report.judged
            assert record.why("bold").rows == []
            with pytest.raises(hansard.NotFound):
                record.why(decision["decision"])
        with house.connect("eve", "idle") as record:
            for ask in (record.compare, record.why, record.audit):
                with pytest.raises(hansard.errors.RoleRefused):
                    ask("e")
        with house.trusted() as record:
            [[count]] = record.sql(
                "SELECT count(*) FROM events WHERE type = 'query.answered.v1'"
            ).rows
            assert count == 6
    finally:
        house.end()
