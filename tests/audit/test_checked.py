"""The audit names what it checked and what it did not."""

from __future__ import annotations

from pathlib import Path

import pytest

import hansard
from tests.audit.support import Audited
from tests.audit.test_kinds import honest
from tests.real.support import write

pytestmark = pytest.mark.slow


def test_runs_of_no_experiment_are_listed_as_not_checked(home: Path, tmp_path: Path):
    """What compares the runs of an experiment says how many imported runs it left out, and of how
    few topics "nothing found" holds.
    """
    place = Audited(home, "no-experiment")
    runs = honest("e")[:8]
    for run in runs:
        del run["experiment"], run["arm"]
    file = tmp_path / "runs.jsonl"
    write(file, runs)
    with hansard.connect("no-experiment", data_dir=home):
        assert place.call("import", "chat-jsonl", str(file)).code == 0
        done = place.call("audit")
        *found, summary = place.call("audit", "--json").lines
    assert (done.code, found) == (0, [])
    reason = "8 runs are of no experiment, 8 of them imported: import with --experiment"
    assert f"  copies, failures, models, selection and times: {reason}\n" in done.out
    assert done.out.rstrip().endswith("nothing found in gaps")
    assert summary["checked"] == ["gaps"]
    blind = {row["topic"] for row in summary["looked"] if row["why_not"]}
    assert {"models", "selection", "copies", "times", "failures", "scores", "costs"} <= blind


def test_every_topic_is_either_checked_or_not(home: Path):
    """No topic of a finding is left out of the list, also in an empty workspace; of one run those
    that compare runs are listed as not checked.
    """
    place = Audited(home, "topics")
    with hansard.connect("topics", data_dir=home):
        topics = {row["topic"] for row in place.rows("SELECT DISTINCT topic FROM finding_kinds")}
    [empty] = place.call("audit", "--json").lines
    assert {row["topic"] for row in empty["looked"]} == topics
    assert empty["checked"] == []
    assert "nothing was checked" in place.call("audit").out
    with hansard.connect("topics", data_dir=home) as record, record.run("w", run="one") as session:
        session.tool(effects="pure", name="look")(lambda: 1)()
    *_, summary = place.call("audit", "one", "--json").lines
    assert set(summary["checked"]) == {"gaps", "intents", "retries"}
    of_run = {row["topic"]: row["why_not"] for row in summary["looked"]}
    assert topics - of_run.keys() == {"prompts", "experience"}
    assert "leave out the run" in of_run["selection"]
    assert "nothing found in gaps, intents and retries" in place.call("audit", "one").out


def test_a_decision_on_untrusted_input_is_a_finding(home: Path):
    """By the labels: with its sources and the command that explains it; a declassified one is of a
    kind of its own. 'hansard why' says the same.
    """
    place = Audited(home, "untrusted")
    with hansard.connect("untrusted", data_dir=home) as record:
        with record.run("w", run="r", agent="ada", role="reader") as session:

            @session.tool(effects="pure", gives="untrusted")
            def fetch(url: str) -> str:
                return url

            session.decide("which?", selected="first")
            fetch("https://example.org")
            session.decide("pay?", selected="yes")
        record.declassify("r", agent="ada", to="public", approver="eve", because="read by hand")
        with record.run(run="r", agent="ada", role="reader") as session:
            session.decide("pay again?", selected="no")
        rows = [row for row in place.call("audit", "--json").lines if row["kind"] == "finding"]
        found = {row["what"]: row for row in rows}
        assert found.keys() == {"untrusted input", "declassified input"}
        assert found["untrusted input"]["fact"] == (
            "pay? selected yes and rests on untrusted input: fetch (ada#1)"
        )
        assert found["untrusted input"]["severity"] == "high"
        assert "declassified by eve: read by hand" in found["declassified input"]["fact"]
        following = found["untrusted input"]["next"]
        assert following == f"hansard why {found['untrusted input']['address']}"
        why = place.call(*following.split()[1:])
        assert "It rests on untrusted input: fetch (ada#1)." in why.out
        facts = place.call(*following.split()[1:], "--json").lines
        [fact] = [row for row in facts if row.get("part") == "integrity"]
        assert fact["value"]["sources"] == ["fetch (ada#1)"]
        first = place.rows("SELECT decision FROM decisions ORDER BY position LIMIT 1")
        assert "untrusted" not in place.call("why", first[0]["decision"]).out
