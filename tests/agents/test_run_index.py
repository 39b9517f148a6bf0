"""Lives of all runs: read in one pass, equal to reading run by run, and searchable."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.agents.workspace import RunFilter, Workspace, read_lives
from hansard.bus import subjects
from hansard.bus.clock import Clock
from hansard.bus.commits import record as recorded
from hansard.bus.log import Append, Stored
from hansard.domain import run as lives
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import RunStream
from hansard.domain.run import RunState, RunStatus
from hansard.domain.steps import Failure
from hansard.state.replay import fold_life
from tests.agents.twins import TwinRecord
from tests.requests import counted

pytestmark = pytest.mark.later

_clock = Clock()
BY = "ada"


def _commit(run: str, version: int, *events: Event) -> Append:
    """Return a commit of a run's life."""
    records = tuple(recorded(event, _clock.new_id()) for event in events)
    commit = Commit(
        id=_clock.new_id(), version=version, at=_clock.now(), actor=Actor(BY), events=records
    )
    return Append(RunStream(run), commit)


async def one_by_one(workspace: Workspace) -> list[tuple[str, RunState]]:
    """Return every run with its life, each read separately."""
    lives: list[tuple[int, str, RunState]] = []
    for run in await workspace.log.runs():
        commits: list[Stored] = await workspace.states.commits(RunStream(run))
        own = [stored for stored in commits if stored.stream == RunStream(run)]
        if own:
            lives.append((own[0].position, run, fold_life(commits)))
    return [(run, life) for _, run, life in sorted(lives, key=lambda item: -item[0])]


def _history(seed: int, runs: int) -> list[Append]:
    """Return runs of every kind, forks of forks among them, and forged events."""
    drawn = random.Random(seed)
    made: list[Append] = []
    begun: list[tuple[str, int]] = []
    for number in range(runs):
        name = f"r{number}" if number % 7 else f"{number} " + "ü" * 140  # no subject can carry it
        if begun and drawn.random() < 0.4:
            parent, version = drawn.choice(begun)
            cut = drawn.randint(1, version)
            begin: tuple[Event, ...] = (lives.RunForked(parent=parent, at={"life": cut}),)
            version = cut + 1
        else:
            begin = (lives.RunStarted(workflow=drawn.choice("vw"), labels={"n": str(number)}),)
            version = 1
        made.append(_commit(name, version, *begin, lives.AgentJoined(agent=BY, role="writer")))
        version += 2
        for _ in range(drawn.randint(0, 12)):
            event = drawn.choice(_EVENTS)(number)
            made.append(_commit(name, version, event))
            version += 1
        begun.append((name, version - 1))
    return made


_EVENTS: list[Callable[[int], Event]] = [
    lambda _: lives.RunCompleted(because="done"),
    lambda _: lives.RunFailed(error=Failure("E", "no"), agent=BY),
    lambda _: lives.RunCancelled(),
    lambda n: lives.RunResumed(agent=BY, epoch=n + 2),
    lambda _: lives.RunResumed(agent="eve", epoch=2),  # another author's: quarantined
    lambda _: lives.RunAgentLeft(agent=BY, outcome="completed"),
    lambda n: lives.RunAssigned(experiment="e", arm="ab"[n % 2], task=str(n)),
    lambda n: lives.RunScored(metrics={"reward": float(n)}, by="judge"),
]


@pytest.mark.thorough(quick="test_runs_are_found_by_what_they_are")
@pytest.mark.parametrize("seed", range(3))
async def test_all_at_once_is_as_one_by_one(data_dir: Path, workspace: str, seed: int):
    """One pass over all runs gives the same as reading each of them."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        for append in _history(seed, 60):
            await record.workspace.log.append(append)
        subject = subjects.subject(workspace, RunStream("broken"), 1)
        broker = record.workspace.log._writes  # type: ignore[attr-defined] # any client may send it
        await broker.request(subject, b"no commit", b"")
        known = await one_by_one(record.workspace)
        assert len(known) == 61
        assert await record.runs() == known
        assert len({life.status for _, life in known}) >= 5
        assert any(life.forked for _, life in known)


@pytest.mark.thorough(quick="test_runs_are_found_by_what_they_are")
async def test_requests_do_not_grow_with_runs(data_dir: Path, workspace: str):
    """150 lives take as many requests as 15, and few more where they exceed one answer."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        log = record.workspace.log
        took: list[int] = []
        for some in (range(15), range(15, 150)):
            made = []
            for number in some:
                begun: Event = lives.RunStarted(workflow="w")
                if number % 3 == 0:
                    begun = lives.RunForked(parent=f"p{number + 1}", at={"life": 1})
                made.append(_commit(f"p{number}", 1 if number % 3 else 2, begun))
            for append in made:
                await log.append(append)
            with counted(log) as traffic:
                assert len(await record.runs()) == some.stop
            took.append(len(traffic.subjects))
        assert took == [took[0]] * 2
        assert took[0] <= 4
        for number in range(150):
            for version in range(3, 11):
                scored = lives.RunScored(metrics={"m": 1.0}, by="j")
                at = version if number % 3 == 0 else version - 1
                await log.append(_commit(f"p{number}", at, scored))
        with counted(log) as traffic:
            assert len(await record.runs()) == 150
        assert len(traffic.subjects) <= 10


async def test_damage_leaves_the_others(data_dir: Path, workspace: str):
    """A life that begins in its middle is an error of the record, and of that run alone."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        log = record.workspace.log
        await log.append(_commit("sound", 1, lives.RunStarted(workflow="w")))
        await log.append(_commit("cut", 3, lives.RunCompleted()))
        by_run = {life.run: life for life in await read_lives(log)}
        assert by_run["sound"].state.status is RunStatus.OPEN
        assert "its life begins at version 3" in (by_run["cut"].problem or "")
        with pytest.raises(hansard.HansardError, match="its life begins at version 3"):
            await record.runs()


async def test_a_line_of_forks_has_an_end(data_dir: Path, workspace: str):
    """A run that is a fork of itself is reported instead of looping."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        log = record.workspace.log
        await log.append(_commit("a", 2, lives.RunForked(parent="a", at={"life": 1})))
        [life] = await asyncio.wait_for(read_lives(log), 30)
        assert "more than 100 parents" in (life.problem or "")


async def test_runs_are_found_by_what_they_are(record: TwinRecord):
    """Each filter alone, and all together."""
    await record.experiments.register("e", hansard.experiments.plan(arms=["a", "b"], metrics=["m"]))
    async with record.run("v", run="one", agent="ada", role="writer"):
        pass
    async with record.run("w", run="two", agent="bob", role="writer", experiment="e", task="t"):
        pass
    fork = await record.fork("two")
    with pytest.raises(ZeroDivisionError):
        async with record.run("w", run="three", agent="ada", role="critic"):
            raise ZeroDivisionError

    async def run_names(**options: object) -> list[str]:
        return [run for run, _ in await record.runs(**options)]

    assert await run_names() == ["three", fork, "two", "one"]
    assert await run_names(status=None) == ["three", fork, "two", "one"]
    assert await run_names(workflow="w") == ["three", fork, "two"]
    assert await run_names(agent="ada") == ["three", "one"]
    assert await run_names(role="writer") == [fork, "two", "one"]
    assert await run_names(agent="ada", role="writer") == ["one"]
    assert await run_names(agent="bob", role="critic") == []
    assert await run_names(experiment="e") == ["two"]  # a fork is no trial of its own
    assert await run_names(status="failed") == ["three"]
    assert await run_names(status=RunStatus.OPEN) == [fork]
    index = await record.io(read_lives(record.raw.workspace.log))
    began = {life.run: life.began_at for life in index}
    assert await run_names(since=began["two"]) == ["three", fork, "two"]
    assert await run_names(until=began["two"]) == ["two", "one"]
    text = began["two"].isoformat()
    assert await run_names(since=text, until=text, workflow="w", agent="bob") == ["two"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"status": "done"}, r"record.runs\(status\).*give one of .*open, completed, failed"),
        ({"status": "fail"}, "did you mean 'failed'"),
        ({"since": "yesterday"}, "give a time with a zone"),
        ({"until": "2026-11-21T10:00:00"}, "give a time with a zone"),
        ({"workflow": 3}, "give a text"),
        ({"agents": "ada"}, "did you mean 'agent'"),
    ],
)
def test_an_invalid_filter_is_refused(options: dict[str, object], message: str):
    """Wrong options name the right one, wrong values their choices."""
    with pytest.raises((hansard.BadValue, hansard.errors.BadOption), match=message):
        RunFilter.of(options)


def test_a_filter_says_what_it_asks_for():
    """In words, in UTC."""
    filters = RunFilter.of({"status": "open", "agent": "ada", "since": "2026-11-21T10:00:00+01:00"})
    assert str(filters) == "status open, agent 'ada', begun since 2026-11-21T09:00:00+00:00"
    assert msgspec.structs.asdict(RunFilter()) == dict.fromkeys(RunFilter.__struct_fields__)
    assert not str(RunFilter())
