"""Any program gets the same results and record through the service as without it."""

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hansard
from hansard.client.session import Session
from tests.service.scenarios import Odd
from tests.service.support import House, Lab
from tests.service.test_parity import bare, record_of

pytestmark = pytest.mark.slow

EFFECTS = st.sampled_from(["pure", "idempotent", "once"])
VALUES = st.sampled_from([None, 0, "x", (1, 2), [1, [2]], {"a": {3}}, b"y", 1.5, True])
RAISED = {"ValueError": ValueError, "TimeoutError": TimeoutError, "Odd": Odd}
RAISED["NotDone"] = hansard.errors.NotDone
ERRORS = st.sampled_from(sorted(RAISED))
CALL = st.tuples(st.just("call"), EFFECTS, VALUES) | st.tuples(st.just("fail"), EFFECTS, ERRORS)
OTHER = st.one_of(
    st.tuples(st.just("message"), VALUES),
    st.tuples(st.just("checkpoint"), st.sampled_from("ab"), VALUES),
    st.tuples(st.just("put"), st.sampled_from("kl"), VALUES),
    st.tuples(st.just("add"), st.sampled_from("kn"), st.integers(-3, 3)),
    st.tuples(st.just("append"), st.sampled_from("kp"), VALUES),
    st.tuples(st.just("get"), st.sampled_from("klnp")),
    st.tuples(st.just("stream"), st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.just("task"), st.sampled_from("uv")),
    st.tuples(st.just("claim"), st.booleans()),
)
NESTED = st.tuples(st.just("nest"), st.lists(CALL, max_size=3))
PROGRAMS = st.lists(CALL | OTHER | NESTED, min_size=1, max_size=7)

_numbers = itertools.count(1)


class Player:
    """Interpreter of a program in a session, with its results."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.answers: list[Any] = []
        self.ran = 0
        self.tools = {effects: self.tool(effects) for effects in ("pure", "idempotent", "once")}
        self.nest = session.tool(effects="composite")(self.nest_)
        self.count = session.tool(effects="pure")(self.count_)

    def tool(self, effects: str) -> Any:
        """Return a tool that returns its argument, or raises the requested error."""

        def act(value: Any, error: str | None = None) -> Any:
            self.ran += 1
            if error is not None:
                raise RAISED[error]
            return value

        return self.session.tool(effects=effects, name=f"act_{effects}")(act)

    def nest_(self, ops: list[Any]) -> list[Any]:
        """Run operations in a composite tool."""
        return [self.outcome(op) for op in ops]

    def count_(self, n: int) -> Any:
        """Run a streaming tool."""
        yield from range(n)

    def outcome(self, op: Any) -> Any:
        """Return an operation's result or error."""
        try:
            return self.does(op)
        except Exception as error:  # noqa: BLE001 -- the error is the result
            return f"{type(error).__name__}: {error}"

    def does(self, op: Any) -> Any:
        """One operation."""
        session, board, team = self.session, self.session.board, self.session.team
        match op:
            case ("call", effects, value):
                return self.tools[effects](value)
            case ("fail", effects, error):
                return self.tools[effects](None, error=error)
            case ("message", value):
                return session.message("user", value)
            case ("checkpoint", name, value):
                return session.checkpoint(name, value=value)
            case ("put", key, value):
                return board.put(key, value)
            case ("add", key, amount):
                return board.add(key, amount)
            case ("append", key, item):
                return board.append(key, item)
            case ("get", key):
                return board.get(key)
            case ("stream", n, take):
                items = self.count(n)
                head = list(itertools.islice(items, take))
                items.close()
                return head
            case ("task", name):
                return team.add(name, task=name)
            case ("claim", well):
                task = team.claim()
                if task is None:
                    return None
                return team.complete(task, 1) if well else team.fail(task, "no")
            case ("nest", ops):
                return self.nest(list(ops))
            case _:
                raise AssertionError(op)


def played(house: House, door: str, run: str, program: list[Any]) -> tuple[list[Any], int]:
    """Return a program's results, and how often its tools ran."""
    where = house.connect() if door == "restricted" else house.trusted()
    options = {} if door == "restricted" else {"agent": "ada", "role": "writer"}
    with where as record, record.run("w", run=run, **options) as session:
        player = Player(session)
        player.answers = [player.outcome(op) for op in program]
    return bare(player.answers, {}), player.ran


@given(program=PROGRAMS)
@settings(
    max_examples=max(3, settings().max_examples // 8),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_same(house: House, other: House, program: list[Any]) -> None:
    """The same results, the same record, and, gone through again, the same again."""
    house.login()
    run = f"r{next(_numbers)}"
    for _ in range(2):
        answers = played(house, "restricted", run, program)
        expected = played(other, "trusted", run, program)
        assert answers == expected
        record = without_ids(record_of(Lab(house, "restricted", "sync"), run))
        assert record == without_ids(record_of(Lab(other, "trusted", "sync"), run))


def without_ids(record: list[Any]) -> list[Any]:
    """Return a record without the digests over event ids."""
    for *_, data in record:
        for digest in ("digest", "fingerprint", "full", "call"):
            data.pop(digest, None)
    return record
