"""`hansard experiment`, `hansard run score`, `hansard price`."""

import pytest

import hansard
from hansard.bus.clock import OS_USER
from hansard.cli.experiment import from_file
from hansard.domain.experiment import arm_of, differences
from tests.test_docs import ROOT, blocks

PLAN = """
name = "greeting"
question = "Does a bold greeting solve more?"
metrics = [
    {name = "reward", better = "higher"},
    {name = "cost", better = "lower", smallest = 0.05},
]
cluster = "site"
planned = 60
trials = 2

[[arms]]
name = "plain"

[[arms]]
name = "bold"
weight = 3
prompt = "greeting 4"
model = "m-1"
parameters = {temperature = 0.5, day = 2026-01-01}
"""


@pytest.fixture
def file(tmp_path):
    """Return a plan's file."""
    path = tmp_path / "greeting.toml"
    path.write_text(PLAN)
    return path


@pytest.mark.slow
def test_register_stop_and_assign(call, file, record):
    """A missing workspace is made, repeats add nothing, and an arm is shown without a record."""
    made = call("experiment", "register", file, "--json")
    assert made.lines == [{"experiment": "greeting", "registered": True, "replaced": False}]
    again = call("experiment", "register", file)
    assert (again.code, again.err) == (0, "")
    assert "is registered already, with this plan" in again.out
    plan = record.experiments.get("greeting").plan
    head = record._portal.run(record.workspace.log.head())
    arms = [call("experiment", "assign", "greeting", f"t-{n}").out.strip() for n in range(6)]
    assert arms == [arm_of("greeting", plan, f"t-{n}").name for n in range(6)]
    lines = call("experiment", "assign", "greeting", "t-0", "--json").lines
    arm = arms[0]
    assert lines == [{"experiment": "greeting", "unit": "t-0", "unit_is": "task", "arm": arm}]
    assert record._portal.run(record.workspace.log.head()) == head
    assert "is stopped" in call("experiment", "stop", "greeting", "--reason", "enough").out
    [stopped] = call("experiment", "stop", "greeting", "--json").lines
    assert (stopped["name"], stopped["result"]) == ("greeting", False)
    assert "is stopped" in call("experiment", "assign", "greeting", "t-0").err
    for unit in ("", "\udcff"):
        assert "unit name" in call("experiment", "assign", "greeting", unit).err
    for arguments in (["assign", "nope", "u"], ["show", "nope"], ["stop", "nope"]):
        refused = call("experiment", *arguments)
        assert (refused.code, refused.out) == (2, "")
        assert "nope" in refused.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAN.replace("planned", "plannd"), "no field 'plannd'"),
        (PLAN.replace("weight", "wieght"), "no field 'wieght'"),
        (PLAN.replace('name = "greeting"\n', "", 1), "it has no name"),
        (PLAN.replace("planned = 60", "planned = many"), "it is not valid TOML"),
        (PLAN.replace("planned = 60", "planned = 6.5"), "$.planned"),
        (PLAN + "parameters = {}", "it is not valid TOML"),
        ("", "it has no name"),
        ('name = "x"', "arms: none are given; give a list"),
        (PLAN.replace('name = "greeting"', "name = 3", 1), "name 3 is not valid"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_in_one_line(call, file, text, message):
    """An invalid plan is refused with the field and the known ones; nothing is registered."""
    file.write_text(text)
    refused = call("experiment", "register", file)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err
    assert refused.err.count("\n") == 1


def test_a_file_that_is_not_there_or_another_plan_is_refused(call, file, tmp_path):
    """A missing file or another plan is refused, with the difference."""
    assert call("experiment", "register", tmp_path / "none.toml").code == 2
    assert call("experiment", "register", file).code == 0
    file.write_text(PLAN.replace("planned = 60", "planned = 80"))
    refused = call("experiment", "register", file)
    assert refused.code == 2
    assert "planned 60, not 80" in refused.err


@pytest.mark.slow
def test_a_typing_error_does_not_cost_the_name(call, file, record):
    """A plan is replaced, in tables too, until its first run; a missing direction is reported."""
    file.write_text(PLAN.replace(', better = "higher"', ""))
    made = call("experiment", "register", file)
    assert "which direction of reward is better is not stated" in made.err
    before, _, _, reward, cost = call("experiment", "show", "greeting", "--json").lines
    assert (before["replaced"], reward["better"], cost["better"]) == (0, None, "lower")
    shown = call("experiment", "show", "greeting").out
    assert "not stated" in shown
    assert "replaced" not in shown
    file.write_text(PLAN.replace("[[arms]]", '[[arms]]\nname = "new"\n\n[[arms]]', 1))
    assert "replace it" in call("experiment", "register", file).err
    assert call("experiment", "register", file, "--reason", "x").code == 2
    replaced = call("experiment", "register", file, "--replace", "--reason", "an arm lacked")
    assert (replaced.code, replaced.err) == (0, "")
    assert "in the place of the plan before it" in replaced.out
    after, *arms, reward, _ = call("experiment", "show", "greeting", "--json").lines
    assert (after["replaced"], after["because"]) == (1, "an arm lacked")
    assert (after["registered_position"], reward["better"]) == (2, "higher")
    assert [arm["arm"] for arm in arms] == ["new", "plain", "bold"]
    assert "1 plan before it (an arm lacked)" in call("experiment", "show", "greeting").out
    with record.run("w", experiment="greeting", task="t"):
        pass
    file.write_text(PLAN)
    refused = call("experiment", "register", file, "--replace")
    assert refused.code == 2
    assert "1 run of it already began" in refused.err
    assert "registered before the data" in call("experiment", "show", "greeting").out


@pytest.mark.slow
def test_list_and_show_report_an_experiment_s_status(call, file, record):
    """Lists show plan, status, runs by arm and judged metrics, for people and as JSON lines."""
    assert call("experiment", "register", file).code == 0
    assert call("experiment", "list").out.splitlines()[1].split()[0] == "greeting"
    arms = []
    for n in range(3):
        with record.run("w", experiment="greeting", task=f"t-{n}", trial=0) as session:
            assert session.arm is not None
            arms.append(session.arm.name)
        record.experiments.score(session.run, {"reward": 1}, by="ada")
    with (
        pytest.raises(ZeroDivisionError),
        record.run("w", experiment="greeting", task="t-0", trial=1),
    ):
        raise ZeroDivisionError
    child = record.fork(record.runs()[0][0])
    arms.append(arms[0])
    about, *rest = call("experiment", "show", "greeting", "--json").lines
    head = record._portal.run(record.workspace.log.head())
    expected = {
        "question": "Does a bold greeting solve more?",
        "standing": "registered before the data",
        "unit": "task",
        "cluster": "site",
        "alpha": 0.05,
        "planned": 60,
        "trials": 2,
        "runs": 4,
        "registered_by": OS_USER,
        "registered_position": 1,
        "position": head,
        "stopped_at": None,
    }
    assert {name: about[name] for name in expected} == expected
    assert about["registered_at"].endswith("Z")
    by_arm = {line["arm"]: line for line in rest if line["kind"] == "arm"}
    assert {name: line["runs"] for name, line in by_arm.items()} == {
        name: arms.count(name) for name in ("plain", "bold")
    }
    assert sum(line["failed"] for line in by_arm.values()) == 1
    assert sum(line["completed"] for line in by_arm.values()) == 3
    assert (by_arm["bold"]["share"], by_arm["bold"]["prompt"]) == (0.75, "greeting 4")
    assert by_arm["bold"]["parameters"] == {"temperature": 0.5, "day": {"$date": "2026-01-01"}}
    metrics = {line["metric"]: line for line in rest if line["kind"] == "metric"}
    assert metrics["reward"]["judged_runs"] == 3
    assert (metrics["cost"]["judged_runs"], metrics["cost"]["smallest"]) == (0, 0.05)
    call("experiment", "stop", "greeting", "--reason", "enough")
    shown = call("experiment", "show", "greeting")
    assert (shown.code, shown.err) == (0, "")
    for text in ("registered before the data", "60 tasks, 2 trials", "75%", "(enough)", "site"):
        assert text in shown.out
    listed = call("experiment", "list", "--json").lines
    assert [(line["experiment"], line["stopped"], line["runs"]) for line in listed] == [
        ("greeting", True, 4)
    ]
    assert listed[0]["arms"] == ["plain", "bold"]
    assert child in {run for run, _ in record.runs()}  # a fork is no trial of its own


def test_a_run_is_scored_by_hand(call, record):
    """A run is scored by prefix or `last`; a repeat adds nothing, and a non-number is refused."""
    with record.run("w") as session:
        pass
    command = ("run", "score", "last", "reward=1", "cost=-2.5e-1", "--by", "ada", "--reason", "so")
    [line] = call(*command, "--json").lines
    assert line == {
        "run": session.run,
        "by": "ada",
        "metrics": {"reward": 1.0, "cost": -0.25},
        "recorded": True,
    }
    assert "has just these scores already by ada" in call(*command).out
    [judged] = record.state(session.run).life.judged
    assert (judged.by, judged.because, judged.metrics) == ("ada", "so", line["metrics"])
    for wrong in ("reward", "reward=", "=1", "reward=one", "reward=nan", "reward=inf"):
        refused = call("run", "score", session.run, wrong)
        assert (refused.code, refused.out) == (2, ""), wrong
    assert "'reward' is given twice" in call("run", "score", "last", "reward=1", "reward=2").err
    assert call("run", "score", "last").code == 2
    assert len(record.state(session.run).life.judged) == 1


def test_the_file_of_the_documentation_is_the_plan_of_its_code(tmp_path):
    """The page says that both are the same plan."""
    page = (ROOT / "docs" / "experiments.md").read_text()
    [text] = [block.text for block in blocks(page) if block.language == "toml"]
    path = tmp_path / "greeting.toml"
    path.write_text(text)
    name, plan = from_file(path)
    assert name == "greeting"
    code = next(block.text for block in blocks(page) if block.language == "python")
    call = code[
        code.index("hansard.experiments.plan(") : code.index("record.experiments.register")
    ].strip()
    assert not differences(plan, eval(call, {"hansard": hansard}))  # noqa: S307 -- our own page
