"""Results of tools: restored exactly; an inexactly recorded one needs no second call."""

import dataclasses
import enum
import functools
import types
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pydantic
import pytest

import hansard
from hansard import testing
from hansard.agents.steps import conversions
from hansard.domain import values

pytestmark = pytest.mark.later

T = TypeVar("T")


def memory() -> Any:
    """Return a record in memory."""
    return testing.record()


class Text(pydantic.BaseModel):
    text: str
    note: str | None = None


class Call(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str
    arguments: dict[str, Any] = {}


class Reply(pydantic.BaseModel):
    """A model's reply, as SDKs have them: unions, fields that are not set, unknown ones."""

    model_config = pydantic.ConfigDict(extra="allow")
    parts: list[Text | Call]
    usage: int = 0
    _request: str | None = None
    _seen: list[int] = pydantic.PrivateAttr(default_factory=list)

    @functools.cached_property
    def words(self) -> object:
        """Return an object that cannot be recorded."""
        return object()


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]
    next: str | None = None


class Renamed(pydantic.BaseModel):
    kind: str = pydantic.Field(alias="type")


@dataclasses.dataclass
class Paid:
    cents: int
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = self.cents
        self.rounded = self.cents // 10


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    why: str


class Place(NamedTuple):
    x: int
    y: float = 0.5


class Colour(enum.Enum):
    RED = "red"
    BLUE = (1, 2)


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Line(msgspec.Struct):
    text: str
    of: Place | None = None


def _reply() -> Reply:
    parts: list[Any] = [Text(text="hi"), Call.model_validate({"name": "f", "more": [1]})]
    reply = Reply.model_validate({"parts": parts, "odd": {"x": Paid(5)}})
    reply._request = "req"
    reply._seen.append(1)
    assert reply.words
    return reply


def _sparse() -> Reply:
    """Return a reply without a required field, as SDKs build it if a provider omits one."""
    made = Reply.model_construct(odd=1)
    assert not hasattr(made, "parts")
    return made


RESULTS: dict[str, Callable[[], Any]] = {
    "model": _reply,
    "models": lambda: {"a": [_reply()], "b": (Text(text="x"),)},
    "sparse model": _sparse,
    "generic": lambda: Page[Text](items=[Text(text="x")]),
    "generic in generic": lambda: Page[Page[int]](items=[Page[int](items=[1])]),
    "alias": lambda: Renamed(type="x"),
    "dataclass": lambda: Paid(25),
    "slots": lambda: Refused("no"),
    "named tuple": lambda: Place(1),
    "enum": lambda: [Colour.RED, Colour.BLUE],
    "flag": lambda: Rights.READ | Rights.WRITE,
    "struct": lambda: Line("x", Place(1)),
}


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_a_record_that_nothing_annotates_comes_back(kind):
    """Its class is found by name, the same fields are set, and nothing runs again."""
    paid = []
    result = RESULTS[kind]()
    with memory() as record:
        for mode in (None, "resume", "strict", "offline"):
            options = {"mode": mode} if mode not in (None, "resume") else {}
            with record.run(None if options else "w", run="r", **options) as session:

                @session.tool(effects="once")
                def ask():
                    paid.append(1)
                    return result

                back = ask()
                assert values.same(back, result)
                if isinstance(result, Reply):
                    assert back.model_dump(exclude_unset=True) == result.model_dump(
                        exclude_unset=True
                    )
    assert paid == [1]


def test_an_annotation_may_be_a_union_of_records():
    """Fields alone do not distinguish the two classes: each is recorded with its name."""
    with memory() as record:
        for options in ({}, {"mode": "strict"}):
            with record.run(None if options else "w", run="r", **options) as session:

                @session.tool(effects="once")
                def pay(cents: int) -> Paid | Refused:
                    return Paid(cents) if cents else Refused("nothing")

                @session.tool(effects="once")
                def reply() -> Reply:
                    return _reply()

                assert [pay(5), pay(0)] == [Paid(5), Refused("nothing")]
                assert values.same(reply(), _reply())


def test_which_fields_were_set_comes_back_of_an_annotated_model():
    """A program sends the set fields: `model_dump(exclude_unset=True)` is the same."""
    with memory() as record:
        for options in ({}, {"mode": "strict"}):
            with record.run(None if options else "w", run="r", **options) as session:

                @session.tool(effects="pure")
                def ask() -> Text:
                    return Text(text="hi")

                assert ask().model_dump(exclude_unset=True) == {"text": "hi"}


class _Loud:
    def __init__(self) -> None:
        raise AssertionError


class _Built(msgspec.Struct):
    x: int

    def __post_init__(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    "name",
    ["os:system", "subprocess:Popen", f"{__name__}:_Loud", f"{__name__}:_Built", "no.module:X", 5],
)
def test_only_records_are_made_by_their_names(name):
    """A record may name any class: only records are made; no import, no constructor."""
    stored = {"$value": {"tag": "hansard.record.v1", "data": {"args": "x"}, "class": name}}
    with pytest.raises(hansard.BadValue, match="a record that no loaded module has"):
        values.revive(stored)


def test_a_constructor_does_not_run():
    """Recorded data fills the fields of a dataclass without running its own code."""
    name = conversions.class_name(Paid)
    stored = {"$value": {"tag": "hansard.record.v1", "data": {"cents": 1, "total": 9}}}
    stored["$value"]["class"] = name  # type: ignore[assignment] # of a record
    made = values.revive(stored)
    assert (made.cents, made.total, hasattr(made, "rounded")) == (1, 9, False)


# ---------------------------------------------------------------- classes that changed


def _replayed(before: Any, value: Any, after: Any) -> Any:
    """Return a result of a class, as a strict replay gives it to a tool that names another one."""
    result = None
    with memory() as record:
        for options, cls in (({}, before), ({"mode": "strict"}, after)):
            with record.run(None if options else "w", run="r", **options) as session:

                def buy():
                    return value

                buy.__annotations__["return"] = cls
                result = session.tool(effects="once")(buy)()
    return result


def _dataclass(**fields: Any) -> Any:
    made = [
        (name, kind) if default is ... else (name, kind, dataclasses.field(default=default))
        for name, (kind, default) in fields.items()
    ]
    return dataclasses.make_dataclass("Receipt", made)


def _list_of(cls: type) -> Any:
    return types.GenericAlias(list, (cls,))


def _model(**fields: Any) -> Any:
    return pydantic.create_model("Receipt", **fields)


def _struct(**fields: Any) -> Any:
    made: list[Any] = [
        (name, kind) if default is ... else (name, kind, default)
        for name, (kind, default) in fields.items()
    ]
    return msgspec.defstruct("Receipt", made)


@pytest.mark.parametrize("make", [_dataclass, _model, _struct])
@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"cents": (int, ...), "to": (str, ...)}, "to"),
        ({"amount": (int, 0)}, "cents"),
        ({"cents": (str, ...)}, "cents"),
    ],
    ids=["new required field", "field that is gone", "other type"],
)
def test_a_class_that_changed_is_an_error_that_says_what(make, fields, what):
    """The error names tool, step, field and remedy; no object lacks a field."""
    before = make(cents=(int, ...))
    result = before(cents=5)
    with pytest.raises(hansard.errors.ResultMismatch) as caught:
        _replayed(before, result, make(**fields))
    message = str(caught.value)
    assert "agent#1 (buy)" in message
    assert what in message
    assert "change version= of buy" in message
    assert (caught.value.run, caught.value.step.number) == ("r", 1)
    with pytest.raises(hansard.errors.ResultMismatch):
        _replayed(_list_of(before), [result], _list_of(make(**fields)))


@pytest.mark.parametrize("make", [_dataclass, _model, _struct])
def test_a_new_field_with_a_default_is_no_change(make):
    """The object is whole."""
    before = make(cents=(int, ...))
    result = _replayed(before, before(cents=5), make(cents=(int, ...), to=(str, "you")))
    assert (result.cents, result.to) == (5, "you")


def test_an_enum_value_that_is_gone_is_an_error():
    """So is one in a field."""
    before: Any = enum.Enum("Shade", [("RED", "red"), ("BLUE", "blue")])  # type: ignore[misc] # two of one name
    after: Any = enum.Enum("Shade", [("RED", "red")])  # type: ignore[misc] # two of one name
    with pytest.raises(hansard.errors.ResultMismatch, match="'blue'"):
        _replayed(before, before.BLUE, after)
    holds = _dataclass(colour=(before, ...))
    with pytest.raises(hansard.errors.ResultMismatch, match="'blue'"):
        _replayed(holds, holds(before.BLUE), _dataclass(colour=(after, ...)))


def test_a_changed_class_does_not_run_its_tool_again():
    """A program that catches the error and calls again gets the same error."""
    before, after = _dataclass(a=(int, ...)), _dataclass(b=(int, ...))
    ran = []
    with memory() as record:
        for cls in (before, after):
            with record.run("w", run="r") as session:

                def buy():
                    ran.append(1)
                    return before(1)

                buy.__annotations__["return"] = cls
                tool = session.tool(effects="once")(buy)
                for _ in range(2 if cls is after else 1):
                    if cls is after:
                        with pytest.raises(hansard.errors.ResultMismatch):
                            tool()
                    else:
                        tool()
    assert ran == [1]


def test_a_class_named_in_the_record_may_change_too():
    """A record by the name of its class is checked as one by its annotation."""
    plain = values.plain(Text(text="x"), by_class=True)
    for data, what in (
        ({}, "its field 'text' has no default"),
        ({"text": "x", "gone": 1}, "it has no field 'gone'"),
    ):
        plain["$value"]["data"] = data
        with pytest.raises(hansard.BadValue, match=what):
            values.revive(plain)


# ---------------------------------------------------------------- what cannot be recorded


def test_a_shared_structure_is_bounded(monkeypatch):
    """A result whose parts are used so often that it would fill the memory completes its step."""
    monkeypatch.setattr(values, "SIZE_MAX", 100_000)
    nested: list[Any] = []
    for _ in range(60):
        nested = [nested, nested]
    with memory() as record, record.run("w", run="r") as session:

        @session.tool(effects="once")
        def ask():
            return nested

        with pytest.warns(hansard.errors.ResultInexact, match="once it is written out"):
            assert ask() is nested
        [step] = session.state.steps.values()
        assert step.status == "completed"

        @session.tool(effects="once")
        def take(x):
            raise AssertionError

        with pytest.raises(hansard.BadValue, match="once it is written out"):
            take(nested)


def test_a_result_that_its_annotation_denies_is_recorded():
    """The result does not fit the annotation, but the call was made."""
    ran = []
    with memory() as record:
        for _ in range(2):
            with record.run("w", run="r") as session:

                @session.tool(effects="once")
                def ask() -> Refused:
                    ran.append(1)
                    return {"cents": 5}  # type: ignore[return-value] # what it should not

                with pytest.warns(hansard.errors.ResultInexact):
                    result: Any = ask()
                assert result == {"cents": 5}
    assert ran == [1]
