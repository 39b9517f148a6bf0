"""Values of a restricted agent's own types: the service stores them, and runs no code for them."""

import asyncio
from typing import Any

import numpy as np
import pytest

from hansard.domain import value_types
from tests.agents.test_value_types import CASES, IDS, Money, come
from tests.agents.twins import at_once
from tests.service.support import House, Lab

pytestmark = pytest.mark.later

MONEY = value_types.BY_CLASS[Money]


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(("annotation", "value"), CASES, ids=IDS)
def test_a_value_comes_back_equal(lab: Lab, annotation: Any, value: Any) -> None:
    """A value of any supported type comes back equal on resume."""

    async def play() -> None:
        for again in (False, True):
            async with lab.connect() as record, record.run("w", run="r") as session:

                def give(x: Any = None) -> Any:
                    assert not again  # noqa: B023 -- called at once
                    return value

                give.__annotations__["return"] = annotation
                back = await come(session.raw.tool(effects="once")(give)(value))
                assert back == value
                assert type(back) is type(value)

    asyncio.run(play()) if lab.is_async else at_once(play())


def test_the_service_runs_no_code_for_a_value(house, monkeypatch):
    """The service passes on unknown types and never decodes them."""
    made: list[bool] = []

    def decode(data: Any) -> Money:
        made.append(value_types._reading.get())
        return MONEY.decode(data)

    kept = value_types.BY_TAG["tests.money.v2"]
    monkeypatch.setitem(value_types.BY_TAG, "tests.money.v2", (kept[0], decode))
    money, array = Money(1, "EUR"), np.arange(6.0).reshape(2, 3)
    with house.connect() as record, record.run("w", run="r") as session:

        @session.tool(effects="once")
        def items(count: int) -> Any:
            for _ in range(count):
                yield money

        assert list(items(2)) == [money, money]
        session.board.put("k", {"of": money, "array": array})
        values = session.board.get("k")
        assert values["of"] == money
        assert (values["array"] == array).all()
        session.checkpoint("c", of=money)
        assert session.checkpoint_data("c") == {"of": money}
        session.message("user", [money])
        assert session.context() == [{"role": "user", "content": [money]}]
        session.team.add("x", what=money, task="t")
        task = session.team.claim()
        assert task is not None
        assert task.what == money
        assert made
        assert not any(made)


class Slow(Exception):
    """An error that holds more than its arguments."""

    def __init__(self, *, after: float) -> None:
        super().__init__("slow")
        self.after = after


def test_an_error_comes_back_whole(house: House) -> None:
    """Attributes, members, cause and notes of an error pass through the service unchanged."""
    ran = []
    for _ in range(2):
        with house.connect() as record, record.run("w", run="r") as session:

            @session.tool(effects="pure")
            def fail() -> None:
                ran.append(1)
                error = ExceptionGroup("two", [Slow(after=2.5), KeyError("k")])
                error.add_note("look")
                raise error from Slow(after=1)

            after = session.tool(effects="pure", name="after")(lambda: 1)
            with pytest.raises(ExceptionGroup) as caught:
                fail()
            after()
            slow: Any = caught.value.exceptions[0]
            key: Any = caught.value.exceptions[1]
            assert (type(slow), slow.after, key.args) == (Slow, 2.5, ("k",))
            cause: Any = caught.value.__cause__
            assert cause.after == 1
            assert "look" in caught.value.__notes__
    assert ran == [1]
