"""A reader that stops in the middle of a stream, by intent or by a bug of its own."""

from pathlib import Path
from typing import Any

import pytest

import hansard

pytestmark = pytest.mark.later


class World:
    """A run over a stream whose reader may stop early, and the items made for it."""

    def __init__(self, data_dir: Path, effects: str) -> None:
        self.record = hansard.connect(workspace="readers", data_dir=data_dir)
        self.effects = effects
        self.made: list[int] = []
        self.offset = 0

    def read(self, session: hansard.Session, *, stops: bool) -> list[int]:
        """Read all five items, or raise an error at the third."""

        @session.tool(effects=self.effects)
        def lines(count: int):
            for number in range(count):
                self.made.append(number)
                yield number + self.offset

        got = []
        for item in lines(5):
            if stops and item == 2:
                raise ValueError("a bug in the reader")
            got.append(item)
        return got

    def stopped(self) -> str:
        """Record a run whose reader stops at the third item."""
        with pytest.raises(ValueError, match="a bug"), self.record.run("w") as session:
            self.read(session, stops=True)
        assert self.made == [0, 1, 2]
        self.made.clear()
        return session.run

    def resumed(self, run: str, **options: Any) -> list[int]:
        """Return the items that the fixed reader gets."""
        with self.record.run(run=run, **options) as session:
            return self.read(session, stops=False)


@pytest.fixture
def world(tmp_path, request):
    """Yield the world of one effects policy."""
    made = World(tmp_path, request.param)
    with made.record:
        yield made


@pytest.mark.parametrize("world", ["pure", "idempotent"], indirect=True)
def test_a_mended_reader_goes_on_where_the_tool_may_run_again(world):
    """Earlier items come from the record, the rest from the tool, and all are recorded."""
    run = world.stopped()
    assert world.resumed(run) == [0, 1, 2, 3, 4]
    assert world.made == [0, 1, 2, 3, 4]
    world.made.clear()
    assert world.resumed(run) == world.resumed(run, mode="strict") == [0, 1, 2, 3, 4]
    assert world.made == []


@pytest.mark.parametrize("world", ["once"], indirect=True)
def test_a_mended_reader_asks_where_the_tool_has_an_effect(world):
    """A person allows another run, or the stream ends where the reader stopped."""
    run, other = world.stopped(), world.stopped()
    for each in (run, other):
        with pytest.raises(hansard.Diverged, match="stopped after 3 items, continues"):
            world.resumed(each)
        assert world.made == []
    world.record.settle(run, "agent#1", "run_again")
    assert world.resumed(run) == [0, 1, 2, 3, 4]
    world.record.settle(other, "agent#1", "reuse")
    assert world.resumed(other) == [0, 1, 2]


@pytest.mark.parametrize("world", ["pure"], indirect=True)
def test_other_items_the_second_time_are_detected(world):
    """The reader never gets a mixture of two streams."""
    run = world.stopped()
    world.offset = 10
    with pytest.raises(hansard.Diverged, match="item 1 differs from the recorded one"):
        world.resumed(run)


@pytest.mark.parametrize("world", ["pure"], indirect=True)
def test_strict_replay_never_runs_the_rest(world):
    """A reader that needs more than is recorded gets an error."""
    run = world.stopped()
    with pytest.raises(hansard.errors.Miss, match=r"stopped after . items?, continues"):
        world.resumed(run, mode="strict")
    assert world.made == []
