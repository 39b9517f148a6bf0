"""A strict replay is equal, and what was answered is told: through either door."""

from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.service.support import ALL, Lab, Served
from tests.service.test_parity import play

pytestmark = pytest.mark.slow


@pytest.mark.thorough(quick="service/test_doors.py::test_modes")
def test_a_strict_replay_that_makes_fewer_calls_fails_through_either_door(lab: Lab) -> None:
    """The error has both sides; what the newest session left behind is not asked for."""

    async def scenario() -> None:
        async with lab.connect("ada") as record:
            await works(record, 3)
            await works(record, 2)
            await works(record, 2, mode="strict")
            with pytest.raises(
                hansard.errors.ReplayDiffers, match="1 call on record not made"
            ) as error:
                await works(record, 1, mode="strict")
            assert error.value.not_made == ['step 2: step {"i":1} -> completed']
            own = ValueError("mine")
            with pytest.raises(ValueError, match="mine"):
                await works(record, 1, mode="strict", error=own)
            assert "1 call on record not made" in own.__notes__[0]

    async def works(record: Any, count: int, error: Exception | None = None, **how: Any) -> None:
        async with record.run(run="r", **how) as session:

            @session.tool(effects="pure")
            async def step(i: int) -> int:
                return i

            for i in range(count):
                await step(i)
            if error is not None:
                raise error

    play(lab, scenario())
    with lab.house.trusted() as record:
        [saved] = record.savings("r")
    assert (saved.calls, saved.sessions, saved.sessions_unknown) == (2, 1, 0)


def test_a_role_that_may_query_is_told_what_it_saved(data_dir: Path, tmp_path: Path) -> None:
    """A role that may query reads its savings; one that may not is refused."""
    house = Served(data_dir, "savings", tmp_path)
    house.apply(ALL + "\n[roles.idle.may]\ntools = ['**']\n")
    house.begin()
    try:
        with house.connect("ada", "writer") as record:
            for _ in range(2):
                with record.run("w", run="r") as session:

                    @session.tool(effects="idempotent")
                    def post(text: str) -> int:
                        return len(text)

                    assert post("tea") == 3
                    session.decide("?", selected="this")
            answer = record.savings("r", by="workflow")
            assert answer.position == record.sql("SELECT 1").position > 0
            [saved] = answer
            assert (saved.of, saved.calls, saved.effects, saved.cost) == ("w", 1, 1, None)
            with pytest.raises(hansard.BadValue, match="by"):
                record.savings(by="year")
            assert [row["selected"] for row in record.why("r").rows] == ["this"]
        with house.connect("eve", "idle") as record:
            for ask in (record.savings, record.compare, record.why, record.audit):
                with pytest.raises(hansard.errors.RoleRefused):
                    ask("r")
    finally:
        house.end()
