"""Recorded exceptions: the exception of a tool is raised again unchanged, in every mode."""

import asyncio
import dataclasses
import json
import socket
import sqlite3
import subprocess
import threading
import urllib.error
import zipfile
from collections.abc import Callable
from configparser import MissingSectionHeaderError
from decimal import Decimal, InvalidOperation
from typing import Any

import httpx
import msgspec
import pydantic
import pytest
from pydantic_core import PydanticCustomError

import hansard
from hansard import testing
from hansard.agents.errors import RecordedFailure
from hansard.agents.steps import failures, tools
from hansard.agents.steps.failures import EXCEPTIONS_MAX, failure
from hansard.bus import errors as broker_errors
from hansard.domain import errors, values
from hansard.domain.fingerprint import UNORDERED
from hansard.domain.steps import Effects, Failure, Step, StepStatus
from hansard.ext.mcp import http_server

pytestmark = pytest.mark.later


def memory() -> Any:
    """Return a record in memory."""
    return testing.record()


class RateLimited(Exception):
    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Rendered(Exception):
    def __init__(self, code: int) -> None:
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


class Two(Exception):
    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")
        self.one, self.other = one, other


class Slotted(ValueError):
    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        super().__init__("slotted")
        self.place = place


class Priced(LookupError):
    def __init__(self, price: Decimal, tags: set[str]) -> None:
        super().__init__("priced")
        self.price, self.tags = price, tags


class Failed(OSError):
    def __init__(self, code: int) -> None:
        super().__init__(code, "no disk", "/data")
        self.code = code


class Quiet(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@dataclasses.dataclass
class Order:
    number: int


@dataclasses.dataclass
class OrderFailed(Exception):
    order: Order
    reason: str = "sold out"


class Outer:
    class Nested(Exception):
        """An error class inside another class."""


class Model(pydantic.BaseModel):
    number: int
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def check(cls, name: str) -> str:
        """Refuse in its own words."""
        if name == "assert":
            raise AssertionError("not that")
        if name == "custom":
            raise pydantic_core_error()
        raise ValueError("never")


def pydantic_core_error() -> Exception:
    """Return an error of a kind that pydantic does not know."""
    return PydanticCustomError("shop_closed", "closed on {day}", {"day": "Monday"})


def _validate(name: str) -> None:
    Model(number="x", name=name)  # type: ignore[arg-type] # what it refuses


def _status() -> None:
    request = httpx.Request("POST", "https://api.example/v1", headers={"authorization": "key"})
    response = httpx.Response(429, json={"wait": 3}, headers={"retry-after": "3"}, request=request)
    response.raise_for_status()


def _openai() -> None:
    import openai  # noqa: PLC0415 -- slow to import, for each worker

    httpx2 = pytest.importorskip("httpx2")
    request = httpx2.Request("POST", "https://api.example/v1")
    response = httpx2.Response(429, json={"error": {"code": "slow"}}, request=request)
    raise openai.RateLimitError("slow down", response=response, body={"code": "slow"})


def _chained() -> None:
    try:
        _ = 1 / 0
    except ZeroDivisionError as error:
        raise RateLimited("slow", retry_after=5) from error


def _noted() -> None:
    error = ValueError("noted")
    error.add_note("look at the log")
    raise error


def _raise(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def _call(function: Callable[..., Any], *args: Any, **named: Any) -> Callable[[], Any]:
    return lambda: function(*args, **named)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "value": (_raise(ValueError("no")), lambda e: e.args),
    "key": (_call({}.__getitem__, "k"), lambda e: e.args),
    "attribute": (_call(getattr, 5, "no"), lambda e: e.name),
    "name": (_call(eval, "not_there"), lambda e: e.name),
    "import": (_call(__import__, "no_such_module"), lambda e: (e.name, e.msg)),
    "syntax": (_call(compile, "1 +", "x.py", "eval"), lambda e: (e.lineno, e.filename, e.text)),
    "unicode": (_call(b"\xff".decode), lambda e: (e.start, e.object, e.reason)),
    "file": (_call(open, "/nowhere/x"), lambda e: (e.errno, e.filename)),
    "os with text": (_raise(OSError("no device")), lambda e: (e.args, e.errno)),
    "os of its own": (_raise(Failed(5)), lambda e: (e.errno, e.filename, e.code)),
    "timeout": (_raise(TimeoutError("late")), lambda e: e.args),
    "resolver": (_raise(socket.gaierror(-2, "unknown host")), lambda e: e.errno),
    "process": (
        _raise(subprocess.CalledProcessError(3, ["sh", "-c", "x"], b"out", b"err")),
        lambda e: (e.returncode, e.cmd, e.stdout, e.stderr),
    ),
    "process in time": (
        _raise(subprocess.TimeoutExpired("sleep", 1.5, output=b"o")),
        lambda e: (e.cmd, e.timeout, e.output),
    ),
    "json": (_call(json.loads, "{bad"), lambda e: (e.pos, e.msg, e.doc, e.lineno, e.colno)),
    "sqlite": (
        _call(lambda: sqlite3.connect(":memory:").execute("select x from y")),
        lambda e: (e.sqlite_errorname, e.sqlite_errorcode),
    ),
    "zip": (_raise(zipfile.BadZipFile("no zip")), lambda e: e.args),
    "config": (_raise(MissingSectionHeaderError("a.ini", 3, "x")), lambda e: (e.lineno, e.line)),
    "url": (_raise(urllib.error.URLError("refused")), lambda e: e.reason),
    "decimal": (_raise(InvalidOperation("x")), lambda e: e.args),
    "named alone": (_raise(RateLimited("slow", retry_after=7)), lambda e: e.retry_after),
    "rendered": (_raise(Rendered(5)), lambda e: e.code),
    "two": (_raise(Two("a", "b")), lambda e: (e.one, e.other)),
    "slots": (_raise(Slotted(4)), lambda e: e.place),
    "values": (_raise(Priced(Decimal("0.1"), {"x"})), lambda e: (e.price, e.tags)),
    "no text": (_raise(Quiet(1)), lambda e: e.args),
    "dataclass": (_raise(OrderFailed(Order(5))), lambda e: (e.order, e.reason)),
    "nested class": (_raise(Outer.Nested("n")), lambda e: e.args),
    "validation": (_call(_validate, "x"), lambda e: e.errors()[0]["type"]),
    "validation asserted": (_call(_validate, "assert"), lambda e: e.errors()[1]["msg"]),
    "validation custom": (_call(_validate, "custom"), lambda e: e.errors()[1]["ctx"]),
    "http status": (
        _status,
        lambda e: (e.response.status_code, e.response.json(), e.request.url.host),
    ),
    "model sdk": (_openai, lambda e: (e.status_code, e.body, e.response.json(), e.code)),
    "http": (_raise(httpx.ConnectTimeout("late")), lambda e: e.args),
    "group": (
        _raise(ExceptionGroup("two", [ValueError("a"), RateLimited("b", retry_after=1)])),
        lambda e: (e.message, [type(each) for each in e.exceptions], e.exceptions[1].retry_after),
    ),
    "group in group": (
        _raise(BaseExceptionGroup("o", [ExceptionGroup("i", [KeyError("k")]), SystemExit(3)])),
        lambda e: (e.exceptions[0].exceptions[0].args, e.exceptions[1].code),
    ),
    "chained": (_chained, lambda e: (e.retry_after, repr(e.__cause__))),
    "noted": (_noted, lambda e: e.__notes__[0]),
    "exit": (_raise(SystemExit(3)), lambda e: e.code),
    "cancelled": (_raise(asyncio.CancelledError("off")), lambda e: e.args),
}


def _seen(fail: Callable[[], Any], look: Callable[[Any], Any]) -> Any:
    try:
        fail()
    except BaseException as error:  # noqa: BLE001 -- any exception of a tool is compared
        try:
            text = str(error)
        except RuntimeError:
            text = ""
        return type(error), look(error), text
    raise AssertionError


@pytest.mark.fast(cases=24, slow=0)
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("mode", ["resume", "strict", "offline", "fork"])
def test_an_exception_comes_back_whole(kind, mode):
    """Class, arguments, attributes, causes and notes are kept; the tool does not run again."""
    make, look = KINDS[kind]
    ran = []

    def program(session: Any) -> Any:
        @session.tool(effects="pure", name="fail", safe_errors=(BaseException,))
        def fail() -> None:
            ran.append(1)
            make()

        @session.tool(effects="pure", name="after")
        def after() -> int:
            return 1

        seen = _seen(fail, look)
        after()
        return seen

    with memory() as record:
        with record.run("w", run="r") as session:
            live = program(session)
        if mode == "fork":
            options: dict[str, Any] = {"run": record.fork("r")}
        else:
            options = {"run": "r"} if mode == "resume" else {"run": "r", "mode": mode}
        with record.run(**options) as session:
            assert program(session) == live
    assert ran == [1]


def _recorded(error: BaseException) -> Any:
    """Return an error as a strict replay raises it."""
    restored: Any = None
    with memory() as record:
        for options in ({}, {"mode": "strict"}):
            with record.run(None if options else "w", run="r", **options) as session:

                @session.tool(effects="pure")
                def fail() -> None:
                    raise error

                try:
                    fail()
                except Exception as raised:  # noqa: BLE001 -- the exception is compared
                    restored = raised
    return restored


def test_what_cannot_be_restored_is_of_both_classes():
    """Such an error is caught as its class and as RecordedFailure, and names what is missing."""
    error = RateLimited("slow", retry_after=7)
    error.lock = threading.Lock()  # type: ignore[attr-defined] # what a client's error may hold
    restored: Any = _recorded(error)
    assert {RateLimited, hansard.errors.RecordedFailure} <= set(type(restored).__mro__)
    assert (str(restored), restored.retry_after, restored.type_name) == ("slow", 7, "RateLimited")
    with pytest.raises(AttributeError, match="lock is not recorded"):
        _ = restored.lock
    restored = _recorded(ValueError(object()))
    assert isinstance(restored, ValueError)
    assert isinstance(restored, hansard.errors.RecordedFailure)


def test_a_class_that_is_nowhere_is_a_recorded_failure():
    """A class that no loaded module has by its name is found where the tool declares it."""

    def local() -> type[Exception]:
        class Local(Exception):
            pass

        return Local

    cls = local()
    made = {"error": cls("x")}
    with memory() as record:
        for options, raises, expected in (
            ({}, (), cls),
            ({"mode": "strict"}, (), hansard.errors.RecordedFailure),
            ({"mode": "strict"}, (cls,), cls),
        ):
            with record.run(None if options else "w", run="r", **options) as session:

                @session.tool(effects="pure", raises=raises)
                def fail() -> None:
                    raise made["error"]

                with pytest.raises(expected) as caught:
                    fail()
                assert type(caught.value) is expected


def test_no_constructor_runs_and_nothing_is_imported():
    """Recorded data only fills arguments and attributes of an exception class."""
    ran = []

    class Loud(Exception):
        def __init__(self, *args: object) -> None:
            ran.append(args)
            super().__init__(*args)

    globals()["Loud"] = Loud
    Loud.__qualname__ = "Loud"
    try:
        restored = _recorded(Loud("x"))
    finally:
        del globals()["Loud"]
    assert (type(restored), restored.args, ran) == (Loud, ("x",), [("x",)])


def test_what_is_recorded_of_an_exception_is_bounded():
    """Large attributes, long chains and wide groups are cut, with a note."""
    error = RateLimited("slow", retry_after=7)
    error.body = "x" * 200_000  # type: ignore[attr-defined] # a page of an error
    recorded = failure(error)
    assert (values.load(recorded.attributes), recorded.lost) == ({"retry_after": 7}, ("body",))
    chain = ValueError("0")
    for number in range(50):
        above = ValueError(str(number))
        above.__cause__ = chain
        chain = above
    depth, each = 0, failure(chain)
    while each.cause is not None:
        depth, each = depth + 1, each.cause
    assert depth < 10
    wide = failure(ExceptionGroup("many", [ValueError(str(n)) for n in range(500)]))
    assert (len(wide.exceptions), wide.lost) == (EXCEPTIONS_MAX, ("exceptions",))
    simple = failure(KeyError("k"))
    assert bytes(values.dump(simple)) == b'{"type":"KeyError","message":"\'k\'","arguments":["k"]}'


def test_a_secret_in_an_attribute_is_taken_out():
    """Attributes, causes and notes are recorded without the secrets that the record knows."""
    error = RateLimited("slow", retry_after=7)
    error.key = "sk-hunter2"  # type: ignore[attr-defined] # what a client's error may hold
    error.add_note("with sk-hunter2")
    error.__cause__ = ValueError("sk-hunter2")
    recorded = failure(error, lambda text: text.replace("sk-hunter2", "<secret>"))
    raw = bytes(values.dump(recorded))
    assert b"hunter2" not in raw
    assert raw.count(b"<secret>") >= 3


def test_headers_of_a_request_are_not_recorded():
    """Headers hold keys; a response keeps only the request's method and address."""
    with pytest.raises(httpx.HTTPStatusError) as caught:
        _status()
    raw = bytes(values.dump(failure(caught.value)))
    assert b"api.example" in raw
    assert b"authorization" not in raw.lower()


def nothing() -> None:
    """A tool that knows no error by name."""


def raised(name: str, module: str) -> BaseException:
    """Return the exception of a step whose error was recorded under a name and a module."""
    step = Step(
        number=1,
        tool="nothing",
        effects=Effects.ONCE,
        arguments=msgspec.Raw(b"{}"),
        call="c",
        fingerprint=UNORDERED,
        version=1,
        status=StepStatus.FAILED,
        error=Failure(name, "why", msgspec.Raw(b'["why"]'), module),
    )
    return failures.raised(step, tools.spec(nothing, "once", {}))


@pytest.mark.parametrize("cls", [broker_errors.NotFound, errors.BadValue])
@pytest.mark.parametrize("module", [None, "hansard.earlier.place"])
def test_an_error_is_found_by_its_name(cls: type[errors.HansardError], module: str | None):
    """By its module where it is still there, and wherever it is now."""
    assert type(raised(cls.__qualname__, module or cls.__module__)) is cls


def test_of_two_errors_with_one_name_the_recorded_module_decides():
    """Two modules have a Refused."""
    assert type(raised("Refused", http_server.__name__)) is http_server.Refused


def test_a_name_of_another_package_is_no_error_of_hansard():
    """Its class is unknown here, so the failure is a RecordedFailure."""
    assert type(raised("NotFound", "acme.errors")) is RecordedFailure
