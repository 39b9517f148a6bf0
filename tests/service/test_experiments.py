"""Experiments through the service: a run's place and arm, as far as the role sees them."""

from typing import Any

import msgspec
import pytest

from hansard.agents.errors import RoleRefused
from hansard.agents.experiments import Arm, NotPlaced, parameters_of
from hansard.bus.portal import portal
from hansard.client.restricted.link import Link
from hansard.domain.experiment import arm_of
from hansard.operations.protocol import wire
from hansard.operations.protocol.wire import Open
from tests.service.scenarios import caught
from tests.service.support import House, Lab
from tests.service.test_attacks import refusals
from tests.service.test_parity import PLAN, bare, play, record_of

pytestmark = pytest.mark.later

OWN = """
[roles.writer]
[[roles.writer.sees]]
name = "own work"
roles = ["writer"]
[roles.writer.may]
kinds = ["message.*"]
"""
EXPERIMENTS = '[[roles.writer.sees]]\nname = "experiments"\nkinds = ["experiment.*"]\n'
BOSS = '[roles.boss]\nclearance = "secret"\n[[roles.boss.sees]]\nname = "all"\nkinds = ["**"]\n'
BOLD = Arm("bold", "p 4", "m", {"t": 0.5, "of": (1, b"x")})


def register(house: House, name: str = "greeting", plan: Any = PLAN) -> None:
    """Register an experiment as a person."""
    with house.trusted() as record:
        record.experiments.register(name, plan)


def run(record: Any, name: str | None = None, workflow: str | None = "w", **options: Any) -> Any:
    """Return a session's arm and run."""
    with record.run(workflow, run=name, **options) as session:
        return session.arm, session.run


@pytest.mark.slow(cases=1)
def test_an_arm_by_hash(house: House, client: str) -> None:
    """The service assigns a task's arm when the run begins, and reports all of it."""
    register(house)
    house.login("ada")
    lab = Lab(house, "restricted", client)
    arms: dict[str, Arm | None] = {}

    async def scenario() -> None:
        async with lab.connect() as record:
            for task in "abcdefgh":
                place: dict[str, Any] = {"experiment": "greeting", "task": task, "trial": 1}
                async with record.run(run=task, **place) as session:
                    arms[task] = session.arm

    play(lab, scenario())
    for task, arm in arms.items():
        expected = arm_of("greeting", PLAN, task)
        name, prompt, model = expected.name, expected.prompt, expected.model
        assert arm == Arm(name, prompt, model, parameters_of(expected))
        begun = next(each for each in lab.commits(task) if "life" in str(each.stream))
        kinds = [event.type for event in begun.commit.events]
        assert kinds[:2] == ["run.started.v1", "run.assigned.v1"]
        data = msgspec.json.decode(begun.commit.events[1].data)
        assert (data["arm"], data["unit"], data["chosen"]) == (name, task, "hash")
    assert {each.name for each in arms.values() if each is not None} == {"plain", "bold"}


def refused_places(lab: Lab) -> list[str]:
    """Return the errors of places that do not exist or differ from the run's."""
    errors: list[str] = []
    places: list[dict[str, Any]] = [
        {"experiment": "none", "task": "t"},
        {"experiment": "stopped", "task": "t"},
        {"experiment": "greeting"},
        {"experiment": "greeting", "arm": "third"},
        {"experiment": "greeting", "task": "t", "unit": "u"},
        {"arm": "bold"},
        {"experiment": "greeting", "task": "t", "trial": "7"},
        {"experiment": ""},
        {"run": "r1", "experiment": "greeting", "arm": "plain"},
        {"run": "r1", "task": "another"},
        {"run": "r1", "trial": 4},
        {"run": "r1", "experiment": "other"},
    ]

    async def scenario() -> None:
        async with lab.connect() as record:
            place = {"experiment": "greeting", "arm": "bold", "task": "t-1"}
            async with record.run(run="r1", **place):
                pass
            for options in places:

                async def begin(options: dict[str, Any] = options) -> None:
                    async with record.run(**options):
                        pass

                errors.append(await caught(begin))

    play(lab, scenario())
    return errors


@pytest.mark.slow(cases=1)
def test_what_cannot_be_is_refused_alike(house: House, other: House, client: str) -> None:
    """Impossible places are refused alike through both doors, and begin no run."""
    errors = {}
    for door, where in (("restricted", house), ("trusted", other)):
        where.login("ada")
        register(where)
        register(where, "stopped")
        with where.trusted() as record:
            record.experiments.stop("stopped", reason="enough")
        errors[door] = refused_places(Lab(where, door, client))
        with where.trusted() as record:
            assert [run for run, _ in record.runs()] == ["r1"]
    assert errors["restricted"] == errors["trusted"]
    assert len({*errors["trusted"]}) == len(errors["trusted"])
    assert "nothing" not in errors["trusted"]


def test_without_an_experiment(house: House, other: House, client: str) -> None:
    """Task, trial and an unregistered arm are recorded as for a trusted program."""
    records = {}
    for door, where in (("restricted", house), ("trusted", other)):
        where.login("ada")
        lab = Lab(where, door, client)
        arms: list[Any] = []

        async def scenario(lab: Lab = lab, arms: list[Any] = arms) -> None:
            async with lab.connect() as record:
                async with record.run(run="r1", task="t", trial=2) as session:
                    arms.append(session.arm)
                async with record.run(run="r2", experiment="loose", arm="a") as session:
                    arms.append(session.arm)

        play(lab, scenario())
        assert arms == [None, Arm("a")]
        records[door] = [record_of(lab, run) for run in ("r1", "r2")]
    assert bare(records["restricted"], {}) == bare(records["trusted"], {})


@pytest.mark.slow
def test_a_role_that_does_not_see_experiments(house: House) -> None:
    """Without sight of experiments a role takes part in none, and gets one text."""
    house.apply(OWN)
    register(house)
    register(house, "stopped")
    with house.trusted() as record:
        record.experiments.stop("stopped", reason="enough")
    texts = set()
    with house.connect() as record:
        for name in ("greeting", "stopped", "none"):
            for place in ({"task": "t"}, {"arm": "bold"}, {"arm": "third"}, {}):
                with pytest.raises(RoleRefused) as no:
                    run(record, experiment=name, **place)
                texts.add(str(no.value))
        [text] = texts
        kinds = 'kinds = ["experiment.registered", "experiment.stopped"]'
        assert f"[[roles.writer.sees]] with nothing but {kinds}" in text
        assert text in {
            f"role writer does not allow placing a run by its 'experiment': {reason}"
            for reason in (each.because for each in refusals(house))
        }
        arm, name = run(record, "r1", task="t")  # its own run's task it may say
        assert (arm, name) == (None, "r1")
        with house.trusted() as trusted:
            assert [name for name, _ in trusted.runs()] == ["r1"]
        house.apply(OWN + f'[[roles.writer.sees]]\nname = "asked"\n{kinds}\n')
        assert run(record, experiment="greeting", arm="bold")[0] == BOLD


def test_what_is_shown_of_another_s_run(house: House) -> None:
    """A run's arm is reported as far as the role sees the run and its plan."""
    register(house)
    place = {"experiment": "greeting", "arm": "bold", "task": "t"}
    with house.trusted() as record:
        for name, role in (("own", "writer"), ("boss's", "boss")):
            run(record, name, agent="eve", role=role, **place)
        run(record, "bare", agent="eve", role="boss")
    house.apply(OWN + EXPERIMENTS)
    with house.connect() as record:
        assert run(record, "own", None)[0] == BOLD
        assert run(record, "own", None, **place)[0] == BOLD
        with pytest.raises(NotPlaced, match="'t' as its task, not 'u'"):
            run(record, "own", None, task="u")
        texts = set()
        for name in ("boss's", "bare"):
            assert run(record, name, None)[0] is None
            for options in (place, {"task": "t"}, {"task": "u"}):
                with pytest.raises(RoleRefused) as no:
                    run(record, name, None, **options)
                texts.add(str(no.value).replace("experiment'", "task'"))
        assert len(texts) == 1
        house.apply(OWN)
        assert run(record, "own", None)[0] == Arm("bold")


def test_a_run_that_is_only_read(house: House) -> None:
    """A replay returns the arm as a session does."""
    register(house)
    with house.connect() as record:
        run(record, "r1", experiment="greeting", arm="bold")
        for mode in ("strict", "offline"):
            assert run(record, "r1", mode=mode)[0] == BOLD


def test_the_arm_that_stood_then(house: House) -> None:
    """An experiment registered after the run's begin has no arm for it."""
    with house.connect() as record:
        assert run(record, "r1", experiment="greeting", arm="bold")[0] == Arm("bold")
        register(house)
        assert run(record, "r1")[0] == Arm("bold")
        assert run(record, "r2", experiment="greeting", arm="bold")[0] == BOLD


# ------------------------------------------------------------ non-interference

PLACES: list[dict[str, Any]] = [
    {"experiment": "greeting", "task": "t"},
    {"experiment": "greeting", "arm": "bold"},
    {"experiment": "greeting", "arm": "third"},
    {"experiment": "greeting"},
    {"experiment": "greeting", "task": "t", "mode": "live"},
    {"run": "boss's"},
    {"run": "boss's", "experiment": "greeting"},
    {"run": "boss's", "experiment": "greeting", "arm": "bold", "task": "t"},
    {"run": "boss's", "task": "t"},
    {"run": "boss's", "task": "u"},
    {"run": "boss's", "trial": 3},
    {"run": "boss's", "arm": "plain"},
    {"run": "own"},
    {"run": "own", "task": "t"},
    {"run": "own", "task": "u"},
]
HIDDEN: list[tuple[bool, bool, dict[str, Any]]] = [
    (False, False, {}),
    (True, False, {"experiment": "greeting", "arm": "bold", "task": "t"}),
    (True, True, {"experiment": "greeting", "arm": "plain", "task": "u", "trial": 3}),
    (False, False, {"experiment": "greeting", "arm": "third"}),
]


async def opened(house: House) -> list[bytes]:
    """Return the service's answers to a client that requests each place, without their random
    ids.
    """
    link = await Link.open(house.known())
    answers: list[bytes] = []
    try:
        for place in PLACES:
            fields: dict[str, Any] = {"workflow": "w", "agent": "ada", **place}
            answer = await link.outside("open", Open(**fields))
            if isinstance(answer, wire.Opened):
                run = answer.run if "run" in place else ""
                answer = msgspec.structs.replace(answer, session="", instance="", run=run)
            answers.append(wire.encode(answer))
    finally:
        await link.close()
    return answers


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("world", HIDDEN[1:])
def test_hidden_experiments(house, other, world):
    """Hidden experiments and places change no byte of any answer."""
    answers = []
    other.begin()
    try:
        for where, (registered, stopped, place) in ((house, HIDDEN[0]), (other, world)):
            where.apply(OWN + BOSS)
            if registered:
                register(where)
            with where.trusted() as record:
                run(record, "boss's", agent="eve", role="boss", **place)
                run(record, "own", agent="bob", role="writer", task="t")
                if stopped:
                    record.experiments.stop("greeting", reason="enough")
            where.login()
            answers.append(portal().run(opened(where)))
    finally:
        other.end()
    empty, full = answers
    differing = [each for each in zip(PLACES, empty, full, strict=True) if each[1] != each[2]]
    assert differing == []
    kinds = [msgspec.json.decode(answer)["type"] for answer in full]
    assert kinds == [*["failed"] * 5, "opened", *["failed"] * 6, "opened", "opened", "failed"]
