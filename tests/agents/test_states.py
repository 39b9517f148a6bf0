"""State: at every point of a real run it is a fresh fold; snapshots chain around its calls."""

from datetime import UTC, datetime, timedelta

import pytest

import hansard
from hansard.bus.commits import revive, whole_at
from hansard.bus.log import AtPosition
from hansard.domain import agent as agents
from hansard.domain.decider import fold
from hansard.domain.ids import AgentStream
from hansard.domain.snapshot import snapshot_id
from tests.agents.twins import TwinRecord

STREAM = AgentStream("r", "writer", "ada")


async def _busy(record, run="r", **options):
    """Record a run with one of everything."""
    async with record.run(run=run, **options) as session:

        @session.tool(effects="once")
        async def send(to: str) -> str:
            if to == "nobody":
                raise ValueError(to)
            return f"sent to {to}"

        @session.tool(effects="composite")
        async def both(one: str, two: str) -> list[str]:
            return await session.gather(lambda: send(one), lambda: send(two))

        @session.tool(effects="pure")
        async def count(n: int):
            for i in range(n):
                yield i

        await session.message("user", "go", tokens=2)
        assert await both("a", "b") == ["sent to a", "sent to b"]
        with pytest.raises(ValueError, match="nobody"):
            await send("nobody")
        await session.checkpoint("half", n=1)
        assert [i async for i in count(3)] == [0, 1, 2]
        await session.resource("file:x")
        await session.decide("?", selected="a")
        await session.message("assistant", "done", tokens=3)


@pytest.mark.slow(cases=1)
async def test_the_state_at_every_version_is_a_fresh_fold(record: TwinRecord):
    """At each version, position, commit, event and time the state is a fold of its events."""
    await _busy(record)
    commits = [s for s in await record.commits("r") if isinstance(s.stream, AgentStream)]
    events = [(s, e) for s in commits for e in s.commit.events]
    states = [fold(agents.AgentState(), [revive(e) for _, e in events[:k]])
              for k in range(len(events) + 1)]  # fmt: skip
    for stored in commits:
        last = stored.commit.last_version
        tx = stored.commit.tx
        whole = tx is None or tx.index == tx.count - 1  # else a position is inside of it
        points = [
            *([stored.position, f"{stored.position}"] if whole else []),
            f"ada@{stored.commit.version}",
            f"ada@{last}",
            stored.commit.id,
            *(f"{stored.position}.{index}" for index in range(len(stored.commit.events))),
            *(event.id for event in stored.commit.events),
            snapshot_id(STREAM, last),
        ]
        for at in points:
            view = await record.state("r", at)
            assert view.agent("ada") == states[last], at
        at_time = (await record.state("r", stored.time + timedelta(microseconds=1))).agent("ada")
        assert at_time == states[at_time.version]
        assert at_time.version >= (last if whole else last - 1)
    newest = (await record.state("r")).agent("ada")
    assert newest == states[-1]
    for step in newest.steps.values():
        view = await record.state("r", f"ada#{step.number}")
        assert view.agent("ada").version >= (step.outcome_version or step.version)
        assert view.agent("ada").steps[step.number] == step
    assert (await record.state("r", datetime.now(UTC))).agent("ada") == states[-1]
    stream = commits[0].stream
    for version, state in enumerate(states):
        read = await record.io(record.raw.workspace.states.agent(stream, version))
        assert read == state


async def test_an_unknown_point_is_refused_with_the_reason(record: TwinRecord):
    """An agent that is not there, or was not yet, is named with those that are."""
    await _busy(record)
    view = await record.state("r")
    with pytest.raises(hansard.errors.BusError, match="its agents at this point are: ada"):
        view.agent("bob")
    with pytest.raises(hansard.errors.BusError, match="was not found"):
        await record.state("never")


def test_two_agents_of_one_run_work_in_one_process(record):
    """Each has a stream, a role and a state of its own; the first to join owns the run's end."""

    @hansard.tool(effects="pure")
    def look(x: int) -> int:
        return x

    with record.run("w", run="r", agent="ada", role="writer") as ada:
        look(1)
        with record.run(run="r", agent="bob", role="reader") as bob:
            assert look(2) == 2
            assert bob.state.steps[1].arguments is not None
        assert look(3) == 3
        assert record.state("r").life.status == "open"
    view = record.state("r")
    assert view.life.status == "completed"
    assert view.life.roster == {"ada": "writer", "bob": "reader"}
    assert [bytes(s.arguments) for s in view.agent("ada").steps.values()] == [
        b'{"x":1}',
        b'{"x":3}',
    ]
    assert [bytes(s.arguments) for s in view.agent("bob").steps.values()] == [b'{"x":2}']
    assert (ada.agent, bob.role) == ("ada", "reader")


@pytest.mark.fast(cases=99, slow=0)
async def test_a_run_that_failed_says_so(record: TwinRecord):
    """An error that leaves the block fails the run with that error; a resume opens it again."""
    with pytest.raises(ValueError, match="enough"):
        async with record.run(run="r"):
            raise ValueError("enough")
    life = (await record.state("r")).life
    assert (life.status, life.error.type) == ("failed", "ValueError")
    assert life.error.message == "enough"
    assert (await record.state("r")).agent("ada").left == "failed"
    async with record.run(run="r"):
        assert (await record.state("r")).life.status == "open"
    assert (await record.state("r")).life.status == "completed"


async def test_an_address_is_found_without_reading_the_run(data_dir, workspace, monkeypatch):
    """The commit at its position is enough; a fork has addresses of its parent, too."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with record.run("w", run="r", agent="ada", role="writer") as session:
            for number in range(3):
                await session.message("user", f"message {number}")
                await session.board.put("key", number)
        log, points = record.workspace.log, record.workspace.points
        commits = await log.read(STREAM)
        addresses = {f"{each.position}.0": AtPosition(whole_at(each)) for each in commits}
        fork = await record.fork("r")
        assert (
            await points.up_to(fork, f"{commits[0].position}.0")
            == addresses[f"{commits[0].position}.0"]
        )

        async def read_run(*_: object) -> None:
            raise AssertionError

        monkeypatch.setattr(type(log), "read_run", read_run)
        assert {each: await points.up_to("r", each) for each in addresses} == addresses
