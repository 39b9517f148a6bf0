"""Summary of an experiment that is unfinished, or holds a trial twice."""

import pytest

import hansard

pytestmark = pytest.mark.slow


def test_open_and_repeated_trials_are_shown_before_the_sizes(data_dir, workspace, call):
    """Open and doubled trials are reported, and unequal arms without a plan are not."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        trials = [("a", n) for n in (*range(12), 0)] + [("b", n) for n in range(2)]
        for arm, task in trials:
            with record.run("w", experiment="e", arm=arm, task=f"t{task}", trial=0) as session:
                run = session.run
            record.experiments.score(run, {"reward": task % 2}, by="g")
        with record.run("w", experiment="e", arm="b", task="t2", trial=0):
            output = call("compare", "e").out
            lines = call("compare", "e", "--json").lines
    assert "b against a: not finished: 1 run of b still open: end, resume or settle them" in output
    assert "No run failed; not finished: b 1 of 3; 1 trial recorded more than once (of a)" in output
    assert "9 tasks of one arm only and 1 task without a value under an arm left out" in output
    assert "Units are missing" not in output
    assert "ended as completed" not in output
    [row] = [line for line in lines if line["kind"] == "comparison" and line["default"]][:1]
    assert (row["verdict"], row["arm_open"], row["difference"]) == ("not finished", 1, 0)


def test_a_test_that_disagrees_is_named_beside_the_verdict(data_dir, workspace, call):
    """Five tasks won and none lost of 20: better by the paired t test, not by the exact one."""
    with hansard.connect(workspace, data_dir=data_dir) as record:
        for arm in "ab":
            for task in range(20):
                with record.run("w", experiment="e", arm=arm, task=f"t{task}") as session:
                    run = session.run
                record.experiments.score(run, {"reward": float(arm == "b" and task < 5)}, by="g")
    output = call("compare", "e", "--show", "summary,pairs").out
    assert "b against a: better, by p 0.0210 (paired t test); the exact McNemar test disagrees" in (
        output
    )
    assert "exact McNemar test p 0.0625, which is on the other side of 0.05: the tests" in output
    assert "two samples" not in output
