"""Wire format: no bytes break its readers; an error is recorded as it was raised."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.agents.errors import AgentError, Blocked, RoleRefused
from hansard.agents.steps.failures import failure
from hansard.agents.steps.recorder import UNTOUCHED
from hansard.agents.steps.tools import spec
from hansard.bus import subjects
from hansard.bus.errors import BrokerError, Conflict
from hansard.domain.errors import BadName, BadValue, CallerError, Refused
from hansard.domain.ids import KeyStream
from hansard.operations.protocol import faults, wire
from hansard.operations.protocol.wire import Address, Request, Value
from hansard.projections.errors import SqlError

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    SCALARS | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=8,
)


class Odd(Exception):
    """An error of a program's own."""


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_read(data: bytes) -> None:
    """Bytes that are no request are ignored, invalid answers are BadValue, and nothing else is
    raised.
    """
    assert wire.request(data) is None or isinstance(wire.request(data), Request)
    with pytest.raises(BadValue):
        wire.answer(b"{" + data)


@given(st.text(), st.text())
def test_any_subject_is_read(one: str, two: str) -> None:
    """A foreign subject is ignored."""
    assert wire.address(one) is None or one.startswith("svc.")
    address = wire.address(f"svc.lab.{one}.{two}.open")
    assert address is None or isinstance(address, Address)


@given(NAMES, NAMES)
def test_the_subject_names_role_and_principal(role: str, principal: str) -> None:
    """A subject gives back the role and principal that it was made of, whatever they look like."""
    if any(subjects.token(name).startswith("==") for name in (role, principal)):
        return  # such names are issued no token
    opening = wire.address(wire.opening("lab", role, principal, "open"))
    assert opening == Address(role, principal, "", "open")
    within = wire.address(wire.within("lab", role, principal, "i1", "do"))
    assert within == Address(role, principal, "i1", "do")


@given(st.lists(PLAIN, max_size=3), st.sampled_from([Odd, ValueError, OSError, KeyError]))
def test_an_error_is_recorded_as_raised(args: list[Any], kind: type[Exception]) -> None:
    """The service records a client's error as a trusted session would."""
    error = kind(*args)
    fault = msgspec.json.decode(wire.encode(faults.of_program(error, None, None)), type=wire.Fault)
    assert failure(faults.rebuilt(fault)) == failure(error)


@pytest.mark.parametrize("length", [7_999, 8_000, 8_001, 20_000])
def test_long_texts_are_cut_once(length: int) -> None:
    """A long text is cut the same with and without the wire."""
    error = Odd("ä" * length)
    assert failure(faults.rebuilt(faults.of_program(error, None, None))) == failure(error)


@pytest.mark.parametrize("effects", ["pure", "idempotent", "once", "composite"])
@pytest.mark.parametrize(
    "error",
    [
        ValueError(1),
        TimeoutError(),
        ConnectionError("x"),
        KeyError("k"),
        Odd(),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_means_the_same(effects: str, error: BaseException) -> None:
    """An error settles an effect as the tool's own declaration does."""

    def tool() -> None: ...

    declared = spec(tool, effects, {"safe_errors": (KeyError,), "doubtful_errors": (Odd,)})
    rebuilt = faults.rebuilt(faults.of_program(error, declared, None))
    there = msgspec.structs.replace(declared, safe_errors=(), doubtful_errors=(faults.Doubtful,))
    for ask in ("is_safe", "is_doubtful", "may_retry"):
        assert getattr(there, ask)(rebuilt) == getattr(declared, ask)(error), ask
    assert isinstance(rebuilt, UNTOUCHED) == isinstance(error, UNTOUCHED)
    assert isinstance(rebuilt, Exception) == isinstance(error, Exception)


def test_ours_come_as_they_are() -> None:
    """Errors of ours are of the same class, with the same text and attributes."""
    for error in (
        Blocked("rule", "why", "tool"),
        RoleRefused("kind", "x", "role writer", "ask for: y"),
        Refused("no"),
        BadValue("here", "this", "that"),
    ):
        back = faults.ours(faults.of_service(error, {}))
        assert (type(back), str(back), back.args) == (type(error), str(error), error.args)
        assert vars(back).items() >= vars(error).items()


def test_internal_details_are_not_sent() -> None:
    """Positions, other agents' names and whatever else an error of the bus holds stay here."""
    broken = faults.ours(faults.of_service(BrokerError("doing a secret", 7, "secret"), {}))
    assert "secret" not in str(broken)
    assert "secret" not in repr(vars(broken))
    fault = faults.of_service(Conflict(KeyStream("r", "key"), 3, None), {})
    assert "position" not in fault.message
    assert faults.of_service(KeyError("secret"), {}).message.count("secret") == 0


@pytest.mark.parametrize(
    "fault",
    [
        {"category": "ours", "type": "Popen", "module": "subprocess"},
        {"category": "ours", "type": "logger", "module": "hansard.bus.loggers"},
        {"category": "ours", "type": "Nothing", "module": "hansard.bus.errors"},
        {"category": "ours", "type": "Failed", "module": "hansard.demo.story"},
        {"category": "ours", "type": "HansardError", "module": "hansard.domain.errors"},
    ],
)
def test_no_other_class_is_made(fault: dict[str, str]) -> None:
    """A client makes only errors that may cross, and imports nothing."""
    before = set(sys.modules)
    with pytest.raises(BadValue):
        faults.ours(wire.Fault(**fault, arguments=wire.dump(["x"])))  # type: ignore[arg-type] # each of them is a text
    assert set(sys.modules) == before


def test_every_public_error_has_a_code() -> None:
    """Every public error has a code; a subclass crosses as its nearest base."""

    def below(cls: type) -> Iterator[type]:
        subclasses: list[type] = cls.__subclasses__()
        for each in subclasses:
            yield each
            yield from below(each)

    classes = {AgentError, *below(AgentError), *below(SqlError), *below(CallerError)}
    rooms = (
        "agents.errors",
        "agents.experiments",
        "domain",
        "projections.sql_sandbox",
        "client.protocol.errors",
    )
    ours = {
        cls for cls in classes if cls.__module__.startswith(tuple(f"hansard.{r}" for r in rooms))
    }
    assert BadName in ours
    assert ours <= set(faults.CODES.values())

    class Own(Refused):
        pass

    assert type(faults.ours(faults.of_service(Own("no"), {}))) is Refused


def test_a_value_says_what_is_its_own() -> None:
    """The forms have defaults that stay out of the wire."""
    assert wire.encode(Value()) == b'{"type":"value"}'
    assert wire.answer(wire.DENIED) == wire.Denied()
