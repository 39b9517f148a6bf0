"""A plan precedes the data: declaring, registering, concurrent registration, stopping."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import hansard
from hansard.agents.experiments import parameters_of
from hansard.bus.commits import revive_all
from hansard.bus.log import Append, Stored
from hansard.domain.ids import WorkspaceStream
from tests.agents.twins import Lab
from tests.faults._held import HeldLog


def plan(**fields):
    """Return a plan of two arms."""
    return hansard.experiments.plan(**{"arms": ["plain", "bold"], "metrics": ["reward"], **fields})


async def on_record(record, name):
    """Return the tags of an experiment's events, with each commit's author."""
    stored = await record.io(record.raw.workspace.log.read(WorkspaceStream("experiment", name)))
    return [
        (event.tag, item.commit.actor.agent)
        for item in stored
        for event in revive_all([item.commit])
    ]


async def test_the_same_plan_again_changes_nothing(lab: Lab):
    """The same plan in any spelling adds nothing; another one is refused with the difference."""
    async with lab.connect() as record:
        with pytest.raises(hansard.NotFound, match="'greeting'"):
            await record.experiments.get("greeting")
        with pytest.raises(hansard.BadValue, match=r"register\(plan\): \{\}; give Experiment"):
            await record.experiments.register("greeting", {})
        named: dict[str, Any] = {"name": "bold", "parameters": {"a": 1, "b": 0.5}}
        assert (
            await record.experiments.register("greeting", plan(arms=["plain", named]), by="ada")
            is True
        )
        named = {"parameters": {"b": 0.5, "a": 1.0}, "name": "bold", "weight": 1}
        assert await record.experiments.register("greeting", plan(arms=["plain", named])) is False
        with pytest.raises(hansard.errors.Refused) as refusal:
            await record.experiments.register("greeting", plan(arms=["plain", "bold"], alpha=0.01))
        assert "experiment 'greeting'" in str(refusal.value)
        assert """parameters of arm 'bold' {"a":1,"b":0.5}, not null""" in str(refusal.value)
        assert "alpha 0.05, not 0.01" in str(refusal.value)
        with pytest.raises(hansard.errors.Refused, match="hansard experiment list"):
            await record.experiments.stop("else")
        assert await record.experiments.stop("greeting", reason="enough", by="bob") is True
        assert await record.experiments.stop("greeting", reason="again") is False
        state = await record.experiments.get("greeting")
        assert (state.version, state.stopped.because) == (2, "enough")
        assert await on_record(record, "greeting") == [
            ("experiment.registered.v1", "ada"),
            ("experiment.stopped.v1", "bob"),
        ]
        with pytest.raises(hansard.errors.BadName):
            await record.experiments.register("a\nb", plan())


async def test_a_plan_is_replaced_until_its_first_run(lab: Lab):
    """The replacement holds, both are on record, and a plan in use is not replaced."""
    async with lab.connect() as record:
        with pytest.raises(hansard.errors.Refused, match="'greeting': it is not registered"):
            await record.experiments.register("greeting", plan(), replace=True)
        await record.experiments.register("greeting", plan(planned=6), by="ada")
        with pytest.raises(hansard.errors.Refused, match=r"planned 6, not 60.*replace it"):
            await record.experiments.register("greeting", plan(planned=60))
        with pytest.raises(hansard.BadValue, match="without replace=True"):
            await record.experiments.register("greeting", plan(), reason="why not")
        async with record.run("w", experiment="other", arm="bold"):
            pass
        again: dict[str, Any] = {"replace": True, "reason": "a zero was missing", "by": "bob"}
        assert await record.experiments.register("greeting", plan(planned=60), **again) is True
        assert await record.experiments.register("greeting", plan(planned=60), **again) is False
        assert await record.experiments.register("greeting", plan(planned=60)) is False
        state = await record.experiments.get("greeting")
        assert (state.plan.planned, state.plan.because) == (60, "a zero was missing")
        assert state.replaced == 1
        assert await on_record(record, "greeting") == [
            ("experiment.registered.v1", "ada"),
            ("experiment.registered.v1", "bob"),
        ]
        async with record.run("w", run="first", experiment="greeting", task="t"):
            pass
        with pytest.raises(hansard.errors.Refused, match=r"1 run of it already began \(first\)"):
            await record.experiments.register("greeting", plan(planned=7), replace=True)
        await record.experiments.register("late", plan())
        await record.experiments.stop("late")
        with pytest.raises(hansard.errors.Refused, match="it is stopped"):
            await record.experiments.register("late", plan(planned=1), replace=True)


async def test_a_secret_in_a_plan_is_not_recorded(lab: Lab):
    """Secrets in a plan's texts are not recorded, and do not change the plan's identity."""
    arms = [{"name": "a", "prompt": "use s3cret", "parameters": {"key": "s3cret", "t": 1}}]
    made = plan(arms=arms, question="is s3cret it?")
    async with lab.connect(redact={"key": "s3cret"}) as record:
        assert await record.experiments.register("greeting", made)
        assert not await record.experiments.register("greeting", made)
        await record.experiments.stop("greeting", reason="s3cret is out")
        stored = await record.io(
            record.raw.workspace.log.read(WorkspaceStream("experiment", "greeting"))
        )
        assert not any(b"s3cret" in item.body for item in stored)
        state = await record.experiments.get("greeting")
        assert parameters_of(state.plan.arms[0]) == {"key": hansard.Secret("key"), "t": 1}


def test_a_plan_contains_its_arguments():
    """A plan keeps its values; names refer to tables, and omitted fields have defaults."""
    made = plan(
        arms=["a", {"name": "b", "weight": 2, "parameters": {"x": (1, 2), "at": b"\0"}}],
        metrics=["m", {"name": "cost", "better": "lower", "smallest": 1}],
        planned=60,
    )
    assert [arm.weight for arm in made.arms] == [1.0, 2.0]
    assert parameters_of(made.arms[1]) == {"x": (1, 2), "at": b"\0"}
    assert parameters_of(made.arms[0]) == {}
    assert [(metric.better, metric.smallest) for metric in made.metrics] == [
        ("not stated", None),
        ("lower", 1.0),
    ]
    assert (made.planned, made.alpha, made.unit) == (60, 0.05, "task")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alhpa": 0.01}, "the plan: it has no field 'alhpa'; its fields are: arms, metrics"),
        ({"arms": [{"nmae": "a"}]}, "an arm: it has no field 'nmae'; its fields are: name, weight"),
        ({"metrics": [{"name": "m", "worse": 1}]}, "a metric: it has no field 'worse'"),
        ({"arms": [{"weight": 1}]}, "missing required field `name`"),
        ({"arms": "ab"}, "arms: 'ab'; give a list"),
        ({"arms": None}, "arms: none are given; give a list"),
        ({"arms": [3]}, "an arm: 3; give its name"),
        ({"metrics": [{"name": "m", "better": "more"}]}, "better is higher or lower"),
        ({"alpha": "0.05"}, "Expected `float`, got `str` - at `$.alpha`"),
        ({"planned": 1.5}, "$.planned"),
        ({"exploratory": 1}, "$.exploratory"),
        ({"arms": [{"name": "a", "parameters": {"f": print}}]}, "parameters"),
        ({"arms": [{"name": "a", "parameters": [1]}]}, "give them by name"),
        ({"trials": 0}, "trials: 0"),
    ],
)
def test_what_is_no_plan_names_its_field(fields, message):
    """An unknown field is reported with the known ones, a wrong value with its place."""
    with pytest.raises(hansard.BadValue) as refusal:
        plan(**fields)
    assert message in str(refusal.value)


# ---------------------------------------------------------------- races


class HeldAll(HeldLog):
    """A log like `HeldLog`, for the first transaction over several streams."""

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append later."""
        if not self.release.is_set():
            self.reached.set()
            await self.release.wait()
        return await self._log.append_all(appends)


@pytest.mark.parametrize("same", [True, False])
def test_who_registers_second_sees_who_was_first(data_dir, workspace, same):
    """The later commit finds the same plan, or is refused with the difference."""

    async def race():
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as late,
            hansard.connect_async(workspace, data_dir=data_dir) as early,
        ):
            held = HeldLog(late.workspace.log, "experiment.registered.v1")
            late.workspace.log = held
            other = plan() if same else plan(alpha=0.01)
            task = asyncio.create_task(late.experiments.register("greeting", other))
            await asyncio.wait_for(held.reached.wait(), 10)
            assert await early.experiments.register("greeting", plan())
            held.release.set()
            if same:
                assert await task is False
            else:
                with pytest.raises(hansard.errors.Refused, match=r"alpha 0\.05, not 0\.01"):
                    await task
            assert (await early.experiments.get("greeting")).version == 1

    asyncio.run(race())


def test_a_run_that_begins_while_a_plan_is_replaced_keeps_it(data_dir, workspace):
    """A run that begins before the commit prevents it; one that only continues does not."""

    async def race():
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as late,
            hansard.connect_async(workspace, data_dir=data_dir) as early,
        ):
            await early.experiments.register("greeting", plan())
            for experiment in ("other", "greeting"):
                held = HeldLog(late.workspace.log, "experiment.registered.v1")
                late.workspace.log = held
                planned = plan(planned=len(experiment))
                task = asyncio.create_task(
                    late.experiments.register("greeting", planned, replace=True)
                )
                await asyncio.wait_for(held.reached.wait(), 10)
                async with early.run("w", run=experiment, experiment=experiment, arm="bold"):
                    pass
                held.release.set()
                if experiment == "other":
                    assert await task is True
                else:
                    with pytest.raises(hansard.errors.Refused, match=r"already began \(greeting\)"):
                        await task
            state = await early.experiments.get("greeting")
            assert state.plan is not None
            assert (state.version, state.plan.planned) == (2, 5)

    asyncio.run(race())


@pytest.mark.parametrize("registered", [True, False])
def test_no_run_gets_an_arm_of_what_changed_meanwhile(data_dir, workspace, registered):
    """A stop or plan between read and commit is read again: no run, or the registered arm."""

    async def race():
        async with (
            hansard.connect_async(workspace, data_dir=data_dir) as late,
            hansard.connect_async(workspace, data_dir=data_dir) as early,
        ):
            if registered:
                await early.experiments.register("greeting", plan())
            held = HeldAll(late.workspace.log, "")
            late.workspace.log = held

            async def begin():
                async with late.run("w", experiment="greeting", arm="bold") as session:
                    return session.arm

            task = asyncio.create_task(begin())
            await asyncio.wait_for(held.reached.wait(), 10)
            if registered:
                await early.experiments.stop("greeting")
            else:
                arms = ["plain", {"name": "bold", "prompt": "p 2"}]
                await early.experiments.register("greeting", plan(arms=arms))
            held.release.set()
            if registered:
                with pytest.raises(hansard.errors.Refused, match="stopped"):
                    await task
                assert await early.runs() == []
            else:
                assert await task == hansard.experiments.Arm("bold", "p 2")

    asyncio.run(race())


# ------------------------------------------------------------ exports


ARMS = ["plain", {"name": "bold", "parameters": {"t": 0.5}}]


@pytest.fixture
def runs(record):
    """Return two runs of a registered experiment, one of an unregistered one, and one of none."""
    record.experiments.register("greeting", plan(arms=ARMS))
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
        record.experiments.register("greeting", plan(arms=ARMS, alpha=0.01))
        refused = there("import", "events", path)
        assert refused.code == 1
        assert "experiment/greeting differs here" in refused.err
        assert "import it into another workspace" in refused.err
        assert record.runs() == []
        assert record.experiments.get("greeting").plan == plan(arms=ARMS, alpha=0.01)
