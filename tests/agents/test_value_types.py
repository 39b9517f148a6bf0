"""Values of the program's own types: restored, or refused where the tool is declared."""

import asyncio
import dataclasses
import enum
import io
import socket
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol, TypedDict

import msgspec
import pytest

import hansard
from hansard.domain import value_types, values
from hansard.domain.value_types import Tagged
from tests.agents.twins import Lab, TwinRecord

pytestmark = [pytest.mark.later, pytest.mark.fast(cases=99, slow=0)]


class Money:
    def __init__(self, cents: int, currency: str) -> None:
        self.cents = cents
        self.currency = currency

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.cents, self.currency))

    def __repr__(self) -> str:
        return f"Money({self.cents}, {self.currency!r})"


hansard.value_type(
    Money,
    tag="tests.money.v2",
    encode=lambda money: {"cents": money.cents, "currency": money.currency},
    decode=lambda data: Money(data["cents"], data["currency"]),
    older={"tests.money.v1": lambda data: Money(round(data * 100), "EUR")},
)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Line:
    what: str
    price: Money


class Point(NamedTuple):
    x: int
    y: int


class Order(TypedDict):
    name: str
    lines: list[Line]


@dataclasses.dataclass(frozen=True)
class Note:
    """A record with a tag of its own, restored without any annotation."""

    text: str
    color: Color = Color.RED
    of: Money | None = None


hansard.value_type(Note, tag="tests.note.v1")


@dataclasses.dataclass
class Page:
    notes: list[Note]
    first: Note | None = None


@dataclasses.dataclass
class Paper:
    tags: frozenset[str] = frozenset()
    size: tuple[int, int] = (0, 0)


class Shelf(msgspec.Struct):
    papers: list[Paper]
    best: Paper | None = None


class Odd:
    def __repr__(self) -> str:
        return "Odd(42)"


class Quacks(Protocol):
    def quack(self) -> None:
        """Quack."""


class NamedDict(TypedDict):
    odd: Odd


Cents = NewType("Cents", int)
LINE = Line("tea", Money(250, "EUR"))


async def come(result: Any) -> Any:
    """Return the result of a tool of either client."""
    return await result if asyncio.iscoroutine(result) else result


CASES: list[tuple[Any, Any]] = [
    (Money, Money(1, "EUR")),
    (Any, [Money(1, "EUR"), {"a": (Money(2, "USD"),)}]),
    (Any, {Money(1, "EUR"), Money(1, "USD")}),
    (Any, {Money(1, "EUR"): 1}),
    (Line, LINE),
    (list[Line], [LINE, LINE]),
    (Line | None, LINE),
    (Line | None, None),
    (Annotated[Line, "a note"], LINE),
    (dict[str, Line], {"a": LINE}),
    (Order, {"name": "a", "lines": [LINE]}),
    (Point, Point(1, 2)),
    (tuple[Point, ...], (Point(1, 2),)),
    (Shelf, Shelf([Paper(frozenset("ab"), (1, 2))], Paper())),
    (Color, Color.BLUE),
    (Literal[Color.RED, Color.BLUE], Color.BLUE),
    (Literal["a", "b"], "a"),
    (Cents, Cents(3)),
    (Note, Note("x", Color.BLUE, Money(1, "EUR"))),
    (Any, [Note("x"), Note("y")]),
    (Awaitable[Line], LINE),
    (Page, Page([Note("x")], Note("y"))),
    (list[Note] | None, [Note("x")]),
    (Note | Money, Note("x")),
    ("Line", LINE),
    ("list[Nowhere]", [1]),
]


IDS = [f"{n} {annotation!s:.40}" for n, (annotation, _) in enumerate(CASES)]


@pytest.mark.fast(cases=12, slow=0)
@pytest.mark.parametrize(("annotation", "value"), CASES, ids=IDS)
async def test_a_value_comes_back_equal(record: TwinRecord, annotation, value):
    """A result has its type in an offline replay, and is an equal argument."""
    for mode in (None, "offline"):
        async with record.run(run="r", mode=mode) as session:

            def give(x: Any = None) -> Any:
                assert mode is None
                return value

            give.__annotations__["return"] = annotation
            tool = session.raw.tool(effects="once")(give)
            back = await come(tool(value))
            assert back == value
            assert type(back) is type(value)


async def test_items_come_back_as_their_annotation_says(record: TwinRecord):
    """Each item of a stream is a record by its annotation, live and replayed."""
    for mode in (None, "offline"):
        async with record.run(run="r", mode=mode) as session:

            @session.tool(effects="once")
            async def lines(count: int) -> AsyncIterator[Line]:
                assert mode is None
                for _ in range(count):
                    yield LINE

            assert [line async for line in lines(2)] == [LINE, LINE]


class Unfit(NamedTuple):
    of: Any
    why: str


NEVER = [
    Unfit(Odd, "not a recordable type"),
    Unfit(list[Odd], "not a recordable type"),
    Unfit(Odd | socket.socket, "not a recordable type"),
    Unfit(socket.socket, "not a recordable type"),
    Unfit(io.TextIOWrapper, "an open file"),
    Unfit(typing.IO[str], "an open file"),
    Unfit(typing.TextIO, "an open file"),
    Unfit(Iterator[int], "make the tool a generator function"),
    Unfit(AsyncIterator[int], "make the tool a generator function"),
    Unfit(Callable[[], int], "is code"),
    Unfit(type[int], "is code"),
    Unfit(complex, "not a recordable type"),
    Unfit(Annotated[dict[str, Odd], "x"], "not a recordable type"),
    Unfit(dataclasses.make_dataclass("Holder", [("odd", Odd)]), "its field 'odd'"),
    Unfit(NamedDict, "its field 'odd'"),
    Unfit(type("Text", (str,), {}), "not a recordable type"),
]


@pytest.mark.fast(cases=8, slow=0)
@pytest.mark.parametrize("unfit", NEVER, ids=lambda unfit: str(unfit.of)[:40])
async def test_what_can_never_be_recorded_is_refused_when_declared(lab: Lab, unfit):
    """An annotation of such a type is refused with type, reason and remedy."""

    def give() -> Any: ...

    def take(x: Any) -> None: ...

    give.__annotations__["return"] = unfit.of
    take.__annotations__["x"] = unfit.of
    async with lab.connect() as record, record.run(run="r") as session:
        tools = [give] if "Text" in str(unfit.of) else [give, take]  # an argument is a plain text
        for tool in tools:
            with pytest.raises(hansard.ToolError, match=r"hansard\.value_type\(") as refusal:
                session.raw.tool(effects="once")(tool)
            assert unfit.why in str(refusal.value)
            assert tool.__name__ in str(refusal.value)
        assert session.state.steps == {}


async def test_what_may_be_recorded_is_declared(lab: Lab):
    """A protocol, an abstract class, an unknown name, a default or no annotation is accepted."""

    def quacks() -> Quacks: ...  # type: ignore[empty-body] # it is never called

    def maybe() -> Odd | None:
        return None

    def either() -> Odd | str:
        return "x"

    def later() -> "Nowhere":  # type: ignore[name-defined] # noqa: F821 -- a name that is not there
        return 1

    def defaulted(x: int, log: Callable[[], None] | None = None, odd: Odd = None) -> int:  # type: ignore[assignment] # as people write it
        return x

    def many(*odd: Odd, **more: Odd) -> Iterator[int]:
        yield 1

    def unannotated(x, y: Any, z: object):
        return x

    async with lab.connect() as record, record.run(run="r") as session:
        functions = (quacks, maybe, either, later, defaulted, many, unannotated)
        tools = {each.__name__: session.raw.tool(effects="pure")(each) for each in functions}
        assert await come(tools["maybe"]()) is None
        assert await come(tools["either"]()) == "x"
        assert await come(tools["later"]()) == 1
        assert await come(tools["defaulted"](2)) == 2
        assert await come(tools["unannotated"](3, 4, 5)) == 3


@pytest.mark.parametrize("effects", ["once", "idempotent", "pure"])
async def test_an_effect_whose_result_cannot_be_recorded_is_not_made_again(lab: Lab, effects):
    """The step completes with the recordable part, redacted, and a warning; it is paid once."""
    paid = []
    secret = "sk-hunter2-hunter2"

    class Receipt:
        def __repr__(self) -> str:
            return f"<Receipt 17 {secret}>"

    async with lab.connect(redact={"key": secret}) as record:
        results: Any = None
        for kind in (Receipt, str):
            async with record.run(run="r") as session:

                @session.tool(effects=effects)
                async def pay(cents: int):
                    paid.append(cents)
                    return Receipt() if cents else {1: [2, object()]}

                with pytest.warns(hansard.errors.ResultInexact, match=r"hansard\.value_type"):
                    results = [await pay(100), await pay(0)]
            assert type(results[0]) is kind
        assert results == ["<Receipt 17 <secret:key>>", {1: [2, "<builtins.object>"]}]
        assert paid == [100, 0]
        steps = await record.steps("r")
        assert [step.status for step in steps] == ["completed"] * 2
        assert "Receipt cannot be recorded" in steps[0].inexact


async def test_a_type_that_is_not_registered_is_named(record: TwinRecord):
    """An unknown tag is refused with the remedy; readers are shown tag and data."""
    async with record.run(run="r") as session:

        @session.tool(effects="once")
        async def pay() -> Any:
            return Money(1, "EUR")

        await pay()
    declared = value_types.BY_TAG.pop("tests.money.v2")
    try:
        async with record.run(run="r", mode="offline") as session:

            @session.tool(effects="once")
            async def pay() -> Any:
                raise AssertionError

            with pytest.raises(hansard.BadValue, match=r"'tests\.money\.v2'.*value_type\("):
                await pay()
    finally:
        value_types.BY_TAG["tests.money.v2"] = declared
    [step] = await record.steps("r")
    with value_types.reading():
        restored = values.load(step.result)
    assert restored == Tagged("tests.money.v2", {"cents": 1, "currency": "EUR"})
    assert values.dump(values.plain(restored)) == step.result


async def test_an_older_version_of_a_type_is_read(record: TwinRecord):
    """A value recorded under an older tag is read through `older=`."""

    def tool(session: Any) -> Any:
        @session.tool(effects="once")
        async def pay() -> Any:
            return Tagged("tests.money.v1", 1.25)

        return pay

    with value_types.reading():  # as the version that wrote it
        async with record.run(run="r") as session:
            await tool(session)()
    async with record.run(run="r", mode="offline") as session:
        assert await tool(session)() == Money(125, "EUR")


async def test_secrets_are_taken_out_of_fields(lab: Lab):
    """A secret in a field is recorded by its name, and a live call gets its value."""
    secret = "sk-hunter2-hunter2"
    options: dict[str, Any] = {"redact": {"key": secret}, "secrets": {"key": secret}}
    async with lab.connect(**options) as record:
        for mode in (None, "offline"):
            async with record.run(run="r", mode=mode) as session:

                @session.tool(effects="once")
                async def line(of: Any) -> Line:
                    assert of.what == secret
                    return Line(secret, Money(1, f"a {secret}"))

                @session.tool(effects="once")
                async def note(of: Any) -> Any:
                    return Note(f"it is {secret}")

                got = await line(Line(hansard.Secret("key"), Money(1, "EUR")))  # type: ignore[arg-type] # in place of it
                noted = await note(Note(secret))
                if mode is None:
                    assert got.what == secret
                    assert noted.text == f"it is {secret}"
                else:
                    assert got == Line("<secret:key>", Money(1, "a <secret:key>"))
                    assert noted == Note("it is <secret:key>")
        commits = await record.commits("r")
        assert all(secret.encode() not in stored.body for stored in commits)


@pytest.mark.parametrize(
    ("cls", "options", "why"),
    [
        (1, {"tag": "a.v1"}, "is not a class"),
        (Odd, {"tag": "a.v1", "encode": id}, "give both"),
        (Odd, {"tag": "a.v1"}, "not a dataclass"),
        (Odd, {"tag": "a.v1", "encode": id, "decode": id}, "no __eq__"),
        (Line, {"tag": "Line"}, "a version"),
        (Line, {"tag": "numpy.line.v1"}, "does not begin with"),
        (Line, {"tag": "tests.money.v1"}, "is that of"),
        (Money, {"tag": "tests.money.v3", "encode": id, "decode": id}, "older="),
    ],
)
def test_a_registration_that_cannot_be_meant_is_refused(cls, options, why):
    """Fact, value and remedy, where it is registered; nothing is registered then."""
    before = dict(value_types.BY_TAG)
    with pytest.raises(hansard.BadValue, match=why):
        hansard.value_type(cls, **options)
    assert before == value_types.BY_TAG


def test_a_value_that_would_change_is_refused_before_the_call(record):
    """An argument that does not survive encoding is refused, and nothing runs."""

    @dataclasses.dataclass
    class Lossy:
        x: float

    hansard.value_type(Lossy, tag="tests.lossy.v1", encode=lambda it: round(it.x), decode=Lossy)

    class Broken(msgspec.Struct):
        x: int

    def fail(_: Any) -> Any:
        raise ZeroDivisionError

    hansard.value_type(Broken, tag="tests.broken.v1", encode=fail, decode=fail)
    with record.run("w") as session:

        @session.tool(effects="once")
        def take(x: Any) -> None:
            raise AssertionError

        with pytest.raises(hansard.BadValue, match=r"would come back as .*Lossy\(x=2"):
            take([Lossy(1.75)])
        with pytest.raises(hansard.BadValue, match="raised ZeroDivisionError"):
            take(Broken(1))
        assert session.state.steps == {}


def test_a_redefined_class_takes_the_place_of_the_one_before():
    """A notebook's cell that runs again registers its class again."""
    for _ in range(2):

        @dataclasses.dataclass
        class Cell:
            x: int

        hansard.value_type(Cell, tag="tests.cell.v1")
        assert values.revive(values.plain(Cell(1))) == Cell(1)


def test_no_dict_of_the_user_s_is_taken_for_a_tag():
    """A dict that looks like a value of a type is a dict."""
    plain = {"$value": {"tag": "tests.money.v2", "data": {}}}
    assert values.revive(values.plain(plain)) == plain
    with pytest.raises(hansard.BadValue):
        values.revive({"$value": {"tag": 1, "data": None}})
    with pytest.raises(hansard.BadValue):
        values.revive({"$value": 1})


def test_paths_are_plain_values():
    """Values that were plain before stay plain, in the same bytes."""
    assert values.plain(Path("/a")) == {"$path": "/a"}
    assert values.plain(Line("x", Money(1, "EUR")))["what"] == "x"


@pytest.mark.fast(cases=0)
def test_who_only_reads_sees_the_tag_and_the_data(record, call, tmp_path):
    """Trace, run, page, context, states and settlements show a value of an unknown type."""
    secret = Note("a note", Color.BLUE)
    with record.run("w", run="r", agent="ada", role="writer") as session:

        @session.tool(effects="once")
        def give(x: Any) -> Any:
            return Money(1, "EUR")

        @session.tool(effects="once")
        def lost() -> Any:
            raise TimeoutError

        give(secret)
        session.message("user", [Money(2, "EUR")])
        session.board.put("k", Money(3, "EUR"))
        with pytest.raises(TimeoutError):
            lost()
    taken = {tag: value_types.BY_TAG.pop(tag) for tag in ("tests.money.v2", "tests.note.v1")}
    try:
        money = '{"$value":{"tag":"tests.money.v2","data":{"cents":4,"currency":"EUR"}}}'
        call("run", "settle", "r", "ada#3", "--happened", money)
        page = tmp_path / "run.html"
        call("run", "html", "r", "--output", page)
        for command, shows in (
            (("run", "trace", "r"), False),
            (("run", "show", "r", "--json"), False),
            (("run", "context", "r", "--json"), True),
            (("run", "state", "r", "--json"), True),
            (("board", "r", "k", "--json"), True),
            (("check",), False),
        ):
            output = call(*command)
            assert output.code == 0, output
            assert "tests.money.v2" in output.out or not shows, command
        assert "tests.money.v2" in page.read_text()
    finally:
        value_types.BY_TAG.update(taken)
    assert values.load(record.state("r").agent("ada").steps[3].result) == Money(4, "EUR")
