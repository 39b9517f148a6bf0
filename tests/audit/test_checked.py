"""Coverage of the audit: it names its checked and unchecked parts."""

import json
from pathlib import Path

import pytest

import hansard
from tests.audit.support import Audited
from tests.audit.test_kinds import honest
from tests.real.support import write

pytestmark = pytest.mark.slow


def test_runs_of_no_experiment_are_listed_as_not_checked(home: Path, tmp_path: Path):
    """The comparison says how many imported runs it left out, and for which topics."""
    place = Audited(home, "no-experiment")
    runs = honest("e")[:8]
    for run in runs:
        del run["experiment"], run["arm"]
    file = tmp_path / "runs.jsonl"
    write(file, runs)
    with hansard.connect("no-experiment", data_dir=home):
        assert place.call("import", "chat-jsonl", str(file)).code == 0
        done = place.call("audit")
        *rows, summary = place.call("audit", "--json").lines
    assert (done.code, rows) == (0, [])
    reason = "8 runs are of no experiment, 8 of them imported: import with --experiment"
    assert f"  copies, failures, models, selection and times: {reason}\n" in done.out
    assert done.out.rstrip().endswith("nothing found in gaps")
    assert summary["checked"] == ["gaps"]
    blind = {row["topic"] for row in summary["looked"] if row["why_not"]}
    assert {"models", "selection", "copies", "times", "failures", "scores", "costs"} <= blind


@pytest.mark.thorough(quick="test_every_topic_is_either_checked_or_not")
def test_tasks_that_an_arm_lacks_are_not_checked_while_a_run_is_open(home: Path):
    """The audit says so, and finds them once the run has ended."""
    place = Audited(home, "open-runs")
    with hansard.connect("open-runs", data_dir=home) as record:
        for arm, tasks in (("a", 4), ("b", 2)):
            for task in range(tasks):
                with record.run("w", experiment="e", arm=arm, task=f"t{task}") as session:
                    session.message("assistant", f"{arm}{task}")
                record.experiments.score(session.run, {"reward": 1.0}, by="judge")
        with record.run("w", experiment="e", arm="b", task="t2"):
            *rows, summary = place.call("audit", "--experiment", "e", "--json").lines
            text = place.call("audit", "--experiment", "e").out
    reasons = [row["why_not"] for row in summary["looked"] if row["topic"] == "selection"]
    assert rows == []
    assert "1 run is open: tasks that an arm lacks are looked for once it is over" in reasons
    assert "selection of e: 1 run is open" in text


def test_every_topic_is_either_checked_or_not(home: Path):
    """Every topic is listed, in an empty workspace and for one run too."""
    place = Audited(home, "topics")
    with hansard.connect("topics", data_dir=home):
        topics = {row["topic"] for row in place.rows("SELECT DISTINCT topic FROM finding_kinds")}
    [empty] = place.call("audit", "--json").lines
    assert {row["topic"] for row in empty["looked"]} == topics
    assert empty["checked"] == []
    output = place.call("audit")
    assert ("nothing was checked" in output.out, "open" in output.err) == (True, False)
    with hansard.connect("topics", data_dir=home) as record, record.run("w", run="one") as session:
        session.tool(effects="pure", name="look")(lambda: 1)()
    *_, summary = place.call("audit", "one", "--json").lines
    assert set(summary["checked"]) == {"gaps", "intents", "retries"}
    assert (empty["open_runs"], summary["open_runs"]) == (0, 0)
    of_run = {row["topic"]: row["why_not"] for row in summary["looked"]}
    assert topics - of_run.keys() == {"prompts", "experience"}
    assert "leave out the run" in of_run["selection"]
    assert "nothing found in gaps, intents and retries" in place.call("audit", "one").out


def test_a_decision_on_untrusted_input_is_a_finding(home: Path):
    """It is found by its labels, with sources and command; a declassified one is another kind."""
    place = Audited(home, "untrusted")
    with hansard.connect("untrusted", data_dir=home) as record:
        with record.run("w", run="r", agent="ada", role="reader") as session:

            @session.tool(effects="pure", gives="untrusted")
            def fetch(url: str) -> str:
                return url

            session.decide("which?", selected="first")
            fetch("https://example.org")
            session.decide("pay?", selected="yes")
        record.roles.declassify(
            "r", agent="ada", to="public", approver="eve", reason="read by hand"
        )
        with record.run(run="r", agent="ada", role="reader") as session:
            session.decide("pay again?", selected="no")
        rows = [row for row in place.call("audit", "--json").lines if row["kind"] == "finding"]
        by_kind = {row["what"]: row for row in rows}
        assert by_kind.keys() == {"untrusted input", "declassified input"}
        assert by_kind["untrusted input"]["fact"] == (
            "pay? selected yes and rests on untrusted input: fetch (ada#1)"
        )
        assert by_kind["untrusted input"]["severity"] == "high"
        assert "declassified by eve: read by hand" in by_kind["declassified input"]["fact"]
        following = by_kind["untrusted input"]["next"]
        assert following == f"hansard why {by_kind['untrusted input']['address']}"
        why = place.call(*following.split()[1:])
        assert "It rests on untrusted input: fetch (ada#1)." in why.out
        facts = place.call(*following.split()[1:], "--json").lines
        [fact] = [row for row in facts if row.get("part") == "integrity"]
        assert fact["value"]["sources"] == ["fetch (ada#1)"]
        first = place.rows("SELECT decision FROM decisions ORDER BY position LIMIT 1")
        assert "untrusted" not in place.call("why", first[0]["decision"]).out


@pytest.mark.thorough(quick="real/test_tau.py::test_the_audit_reads_what_a_submission_claims")
def test_the_claims_of_a_submission_are_compared_with_the_runs(home: Path, tmp_path: Path):
    """A claimed figure that the runs do not give is a finding; one without runs is not checked."""
    place = Audited(home, "submission")

    def simulation(task: int, trial: int, reward: float) -> dict[str, object]:
        return {
            "id": f"{task}.{trial}",
            "task_id": task,
            "trial": trial,
            "messages": [{"role": "user", "content": f"task {task}"}],
            "reward_info": {"reward": reward},
            "agent_cost": 0.25 + task / 100,
        }

    rewards = [(1, 1), (1, 0), (0, 0)]
    runs = [
        simulation(task, trial, float(each[trial]))
        for task, each in enumerate(rewards)
        for trial in (0, 1)
    ]
    info = {"environment_info": {"domain_name": "airline"}}
    honest_claims = {"pass_1": 50.0, "pass_2": 33.3, "pass_3": None, "cost": 0.26}
    files = {
        "runs": {"info": info, "simulations": runs},
        "claims": {"model_name": "m", "results": {"airline": honest_claims}},
        "forged": {"results": {"airline": {"pass_1": 52.0}, "retail": {"pass_1": 80.0}}},
        "neither": {"info": info},
    }
    paths = {name: tmp_path / f"{name}.json" for name in files}
    for name, content in files.items():
        paths[name].write_text(json.dumps(content))
    options = ("--experiment", "e", "--arm", "a")
    with hansard.connect("submission", data_dir=home):
        both = place.call(
            "import", "tau2-bench", str(paths["claims"]), str(paths["runs"]), *options
        )
        assert (both.code, "3 claimed figures" in both.out) == (0, True), both.err
        *rows, summary = place.call("audit", "--json").lines
        assert [row["what"] for row in rows if row["topic"] == "scores"] == []
        assert any(
            (row["looked"], row["what"]) == (3, "claimed means") for row in summary["looked"]
        )
        assert place.call("import", "tau2-bench", str(paths["forged"]), *options).code == 0
        *rows, summary = place.call("audit", "--json").lines
        [claim] = [row for row in rows if row["topic"] == "scores"]
        assert claim["what"] == "claimed mean"
        assert "claimed is a mean pass_1 of airline of 52.0 under arm a" in claim["fact"]
        assert "that of its 6 scored runs is 50.0" in claim["fact"]
        assert claim["next"] == "hansard compare e --show arms"
        assert any(
            "pass_1 of retail, has no runs" in (row["why_not"] or "") for row in summary["looked"]
        )
        for name, reason in (("claims", "give --experiment"), ("neither", "neither simulations")):
            done = place.call("import", "tau2-bench", str(paths[name]))
            assert (done.code, reason in done.out + done.err) == (1, True)


def test_open_runs_are_counted_without_a_finding(home: Path):
    """A run whose process is gone between two calls is named by the audit, which exits with 0."""
    place = Audited(home, "left-open")
    with hansard.connect("left-open", data_dir=home) as record:
        with record.run("w", run="ended") as session:
            session.message("user", "hello")
        child = record.fork("ended")
        audited = place.call("audit")
        *_, summary = place.call("audit", "--json").lines
        *_, fork = place.call("audit", child, "--json").lines
    assert [each["open_runs"] for each in (summary, fork)] == [1, 1]
    assert audited.code == 0
    assert "1 run is open, which is no finding" in audited.err
    assert "'hansard runs --status open' lists it" in audited.err


@pytest.mark.thorough(quick="test_every_topic_is_either_checked_or_not")
def test_costs_are_not_checked_for_want_of_a_model_or_of_a_price(home: Path):
    """The reason names what is missing: a call of a model, or the price of its model."""
    place = Audited(home, "unpriced")
    reasons = []
    with hansard.connect("unpriced", data_dir=home) as record:
        for run, kind, name in (
            ("tools", "tool", {}),
            ("nameless", "model", {}),
            ("models", "model", {"model": "m-1"}),
        ):
            with record.run("w", run=run) as session:
                session.tool(effects="pure", kind=kind, name="think")(lambda **_: 1)(**name)
            *_, summary = place.call("audit", run, "--json").lines
            reasons += [row["why_not"] for row in summary["looked"] if row["topic"] == "costs"]
    assert reasons == [
        "no model is recorded",
        "1 model call without a field model in its arguments or result",
        "no price is stated of a model that answered",
    ]
