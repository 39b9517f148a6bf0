"""An exported run brings its experiment's plan, and is judged in the copy as here."""

import pytest

import hansard
from hansard.domain.experiment import arm_of


def plan(**fields):
    """Return a plan of two arms."""
    arms = ["plain", {"name": "bold", "parameters": {"t": 0.5}}]
    return hansard.experiments.plan(arms=arms, metrics=["reward"], **fields)


@pytest.fixture
def runs(record):
    """Return two runs of a registered experiment, one of an unregistered one, and one of none."""
    record.experiments.register("greeting", plan())
    made = []
    for options in (
        {"experiment": "greeting", "task": "t-1"},
        {"experiment": "greeting", "task": "t-2", "arm": "bold"},
        {"experiment": "loose", "arm": "a"},
        {},
    ):
        with record.run("w", **options) as session:
            made.append(session.run)
    record.experiments.stop("greeting", reason="enough")
    return made


@pytest.fixture
def there(call, workspace):
    """Run the command line over another workspace; the last `-w` counts."""
    name = f"{workspace}-b"
    return lambda *arguments: call("-w", name, *arguments)


@pytest.mark.thorough(quick="test_one_run_takes_only_its_own_plan")
def test_the_plan_goes_along(call, there, runs, tmp_path, data_dir, workspace):
    """A copy is byte-equal, its plan precedes the data, and the arm is the same."""
    first, again = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert call("export", *runs, "-o", first).code == 0
    assert there("import", "events", first).code == 0
    assert there("export", *runs, "-o", again).code == 0
    assert again.read_bytes() == first.read_bytes()
    assert first.read_text().count("experiment.registered.v1") == 1
    about, *_ = there("experiment", "show", "greeting", "--json").lines
    assert about["standing"] == "registered before the data"
    assert (about["runs"], about["stopped_because"]) == (2, "enough")
    assert there("check").code == 0
    assert there("import", "events", first, "--json").lines[-1]["new"] == 0
    with hansard.connect(f"{workspace}-b", data_dir=data_dir) as record:
        by_hash = arm_of("greeting", plan(), "t-1").name
        for run, arm in zip(runs, [by_hash, "bold", "a", None], strict=True):
            with record.run(run=run, mode="strict") as session:
                seen = session.arm
            assert (seen.name if seen is not None else None) == arm
            if run == runs[1]:
                assert seen == hansard.experiments.Arm("bold", parameters={"t": 0.5})


def test_one_run_takes_only_its_own_plan(call, runs, tmp_path):
    """An exported run brings only its own plan, a fork its parent's."""
    path = tmp_path / "a.jsonl"
    for run, count in ((runs[2], 0), (runs[3], 0), (runs[1], 1)):
        assert call("export", run, "-o", path).code == 0
        assert path.read_text().count("experiment.registered.v1") == count
    child = call("run", "fork", runs[1]).out.strip()
    assert call("export", child, "-o", path).code == 0
    assert path.read_text().count("experiment.registered.v1") == 1


def test_another_plan_there_is_no_place_for_it(call, there, runs, tmp_path, data_dir, workspace):
    """Nothing of the file is taken, and the existing plan stays."""
    path = tmp_path / "a.jsonl"
    assert call("export", runs[0], "-o", path).code == 0
    with hansard.connect(f"{workspace}-b", data_dir=data_dir) as record:
        record.experiments.register("greeting", plan(alpha=0.01))
        refused = there("import", "events", path)
        assert refused.code == 1
        assert "experiment/greeting differs here" in refused.err
        assert "import it into another workspace" in refused.err
        assert record.runs() == []
        assert record.experiments.get("greeting").plan == plan(alpha=0.01)
