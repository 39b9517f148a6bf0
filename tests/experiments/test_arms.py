"""A run's arm is chosen by hash or by the caller, recorded before any action, and kept."""

from typing import Any

import pytest

import hansard
from hansard.bus.commits import revive
from hansard.domain.experiment import arm_of
from hansard.domain.ids import RunStream
from hansard.domain.run import RunAssigned
from tests.agents.twins import Lab

pytestmark = [pytest.mark.fast(cases=99, slow=0), pytest.mark.later]

ARMS = [
    "plain",
    {"name": "bold", "prompt": "greeting 4", "model": "m-1", "parameters": {"t": 0.5, "n": (1, 2)}},
]
PLAIN = hansard.experiments.Arm("plain")
BOLD = hansard.experiments.Arm("bold", "greeting 4", "m-1", {"t": 0.5, "n": (1, 2)})
BY_NAME = {"plain": PLAIN, "bold": BOLD}


def plan(**fields):
    """Return a plan of two arms."""
    return hansard.experiments.plan(arms=ARMS, metrics=["reward"], **fields)


async def assigned(record, run):
    """Return the newest assignment in a run's own stream."""
    view = await record.state(run)
    return view.life.assigned


async def test_a_run_has_the_arm_of_its_unit(lab: Lab):
    """Each task's session has the arm and parameters of its hash, and keeps it."""
    made = plan()
    async with lab.connect() as record:
        await record.experiments.register("greeting", made)
        seen: dict[str, hansard.experiments.Arm] = {}
        for task in [f"t-{n}" for n in range(12)] * 2:
            async with record.run(experiment="greeting", task=task, trial=len(seen)) as session:
                arm = session.arm
            expected = arm_of("greeting", made, task).name
            assert arm == BY_NAME[expected]
            assert seen.setdefault(task, arm) == arm
            assignment = await assigned(record, session.run)
            assert (assignment.experiment, assignment.arm, assignment.task) == (
                "greeting",
                expected,
                task,
            )
            assert (assignment.unit, assignment.chosen) == (task, "hash")
    assert {arm.name for arm in seen.values()} == {"plain", "bold"}


async def test_the_assignment_is_in_the_commit_that_begins_the_run(lab: Lab):
    """The assignment is in the transaction that begins the run."""
    async with lab.connect() as record:
        await record.experiments.register("greeting", plan())
        async with record.run(experiment="greeting", task="t", trial=2) as session:
            first, second = await record.commits(session.run)
    assert [event.type for event in first.commit.events] == [
        "run.started.v1",
        "run.assigned.v1",
        "run.agent_joined.v1",
    ]
    assert first.stream == RunStream(session.run)
    assert first.commit.tx is not None
    assert second.commit.tx is not None
    assert first.commit.tx.id == second.commit.tx.id
    event = revive(first.commit.events[1])
    assert isinstance(event, RunAssigned)
    assert event.trial == 2


@pytest.mark.parametrize("unit", ["run", "conversation", "customer"])
def test_a_unit_other_than_the_task(lab: Lab, unit):
    """The unit may be the run's id, its conversation, or a name from `unit=`."""

    async def scenario():
        made = plan(unit=unit)
        async with lab.connect() as record:
            await record.experiments.register("greeting", made)
            options = {"conversation": {"conversation": "talk"}, "customer": {"unit": "ada"}}
            async with record.run(experiment="greeting", **options.get(unit, {})) as session:
                pass
            value = {"run": session.run, "conversation": "talk", "customer": "ada"}[unit]
            assignment = await assigned(record, session.run)
            assert (assignment.unit, assignment.arm) == (
                value,
                arm_of("greeting", made, value).name,
            )

    lab.play(scenario())


async def test_the_caller_may_choose_the_arm(lab: Lab):
    """A chosen arm is recorded as such; a registered plan permits only its own arms."""
    async with lab.connect() as record:
        await record.experiments.register("greeting", plan())
        for arm in ("plain", "bold"):
            async with record.run(experiment="greeting", task="t", arm=arm) as session:
                assert session.arm == BY_NAME[arm]
            assignment = await assigned(record, session.run)
            assert (assignment.arm, assignment.chosen, assignment.unit) == (arm, "caller", "")
        async with record.run(experiment="else", arm="any") as session:
            assert session.arm == hansard.experiments.Arm("any")
        async with record.run(task="t", trial=0) as session:  # of no experiment
            assert session.arm is None
        assignment = await assigned(record, session.run)
        assert assignment == RunAssigned(task="t", trial=0)
        async with record.run() as session:
            assert session.arm is None
        assert await assigned(record, session.run) is None


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"experiment": "nope", "task": "t"}, "is not registered"),
    ({"experiment": "greeting", "arm": "short"}, "has no arm 'short': it has ['plain', 'bold']"),
    ({"experiment": "greeting"}, "give task="),
    ({"experiment": "greeting", "task": "t", "unit": "u"}, "leave out unit="),
    ({"experiment": "stopped", "task": "t"}, "is stopped (enough)"),
    ({"experiment": "stopped", "arm": "plain"}, "is stopped (enough)"),
    ({"arm": "plain"}, "give experiment="),
    ({"unit": "u"}, "give experiment="),
    ({"experiment": ""}, "experiment name ''"),
    ({"task": "a\nb"}, "task name"),
    ({"task": 13}, "task name 13"),
    ({"trial": True}, "trial: True"),
    ({"trial": "1"}, "trial: '1'"),
    ({"trial": 2**53}, "trial: 9007199254740992"),
]


async def test_what_cannot_be_assigned_is_refused_before_anything_is_written(lab: Lab):
    """An invalid assignment is refused with the remedy, and no run is on record."""
    async with lab.connect() as record:
        await record.experiments.register("greeting", plan())
        await record.experiments.register("stopped", plan())
        assert await record.experiments.stop("stopped", reason="enough")
        for options, message in REFUSED:
            with pytest.raises(
                (hansard.errors.Refused, hansard.errors.BadName, hansard.BadValue)
            ) as refusal:
                async with record.run(**options):
                    pass
            assert message in str(refusal.value), options
        assert await record.runs() == []


async def test_resuming_and_joining_keep_the_run_s_arm(lab: Lab):
    """A resume or join keeps the run's arm, also after a stop; options may be left out."""
    async with lab.connect() as record:
        await record.experiments.register("greeting", plan())
        options: dict[str, Any] = {"experiment": "greeting", "task": "t-2", "trial": 1}
        async with record.run(**options) as session:
            run, arm = session.run, session.arm
        await record.experiments.stop("greeting")
        for more in (
            {},
            options,
            {"arm": arm.name},
            {"unit": "t-2"},
            {"agent": "bob", "role": "reader"},
        ):
            async with record.run(None, run=run, **more) as session:
                assert session.arm == arm
    async with lab.connect() as record:
        for mode in ("strict", "offline", "resume"):
            async with record.run(None, run=run, mode=mode) as session:
                assert session.arm == arm
        assert (await record.tags(run, None)).count("run.assigned.v1") == 1


async def test_another_place_for_a_run_that_has_begun_is_refused(lab: Lab):
    """A begun run refuses another arm, task, trial or experiment in every mode."""
    async with lab.connect() as record:
        await record.experiments.register("greeting", plan())
        async with record.run(experiment="greeting", task="t", trial=1, arm="plain") as session:
            run = session.run
        async with record.run() as session:
            bare = session.run
        for which, more, message in (
            (run, {"experiment": "greeting", "arm": "bold"}, "has 'plain' as its arm, not 'bold'"),
            (run, {"task": "u"}, "has 't' as its task, not 'u'"),
            (run, {"trial": 2}, "has 1 as its trial, not 2"),
            (run, {"experiment": "else"}, "has 'greeting' as its experiment"),
            (run, {"experiment": "greeting", "unit": "x"}, "has none as its unit"),
            (bare, {"experiment": "greeting", "task": "t"}, "has none as its experiment"),
        ):
            for mode in (None, "strict"):
                before = await record.commits(which)
                with pytest.raises(hansard.errors.Refused) as refusal:
                    async with record.run(None, run=which, mode=mode, **more):
                        pass
                assert message in str(refusal.value)
                assert await record.commits(which) == before


async def test_a_fork_inherits_the_arm(lab: Lab):
    """A fork, and a fork of it, inherits the arm and refuses any other."""
    async with lab.connect() as record:
        await record.experiments.register("greeting", plan())
        async with record.run(experiment="greeting", task="t-2") as session:
            run, arm = session.run, session.arm
        child = await record.fork(run)
        grandchild = await record.fork(child)
        for fork in (child, grandchild):
            async with record.run(None, run=fork, task="t-2") as session:
                assert session.arm == arm
            assert "run.assigned.v1" not in await record.tags(fork, None)
            with pytest.raises(hansard.errors.Refused, match="its arm"):
                async with record.run(None, run=fork, experiment="greeting", arm="other"):
                    pass


async def test_a_later_plan_does_not_change_what_a_run_saw(lab: Lab):
    """A run that began without a plan keeps only its arm's name after a plan is registered."""
    async with lab.connect() as record:
        async with record.run(experiment="greeting", arm="bold") as session:
            assert session.arm == hansard.experiments.Arm("bold")
        await record.experiments.register("greeting", plan())
        for mode in ("strict", "resume"):
            async with record.run(None, run=session.run, mode=mode) as again:
                assert again.arm == hansard.experiments.Arm("bold")
        async with record.run(experiment="greeting", arm="bold") as session:
            assert session.arm == BOLD
