"""Values of numpy, pandas, pyarrow and pydantic are restored equal, without importing these."""

import asyncio
import hashlib
import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hansard
from hansard.domain import value_types, values
from hansard.domain.fingerprint import canonical, digest
from tests.agents.twins import Lab, TwinRecord

pytestmark = pytest.mark.later


def needed(name: str) -> Any:
    """Import a package of the test environment; without it these tests fail, not pass."""
    return importlib.import_module(name)


async def come(result: Any) -> Any:
    """Return the result of a tool of either client."""
    return await result if asyncio.iscoroutine(result) else result


def known_as(value: Any) -> str:
    """Return the form of a value in a fingerprint."""
    return digest(canonical(values.plain(value)))


def same(back: Any, value: Any) -> bool:
    """Return whether values are equal and of one type, by their package's own comparison."""
    declared = value_types.of_class(type(value))
    assert declared is not None
    return type(back) is type(value) and declared.compares(back, value)


NUMPY: dict[str, Callable[[], Any]] = {
    "float": lambda: np.float64(1.5),
    "mean": lambda: np.arange(4).mean(),
    "nan": lambda: np.float64("nan"),
    "single": lambda: np.float32(0.1),
    "large integer": lambda: np.int64(2**62 + 1),
    "bool": lambda: np.bool_(1),
    "text": lambda: np.str_("é"),
    "bytes": lambda: np.bytes_(b"\xff"),
    "complex": lambda: np.complex128(1 - 2j),
    "time": lambda: np.datetime64("2026-01-01T00:00:00.000000001"),
    "array": lambda: np.arange(12).reshape(3, 4),
    "fortran": lambda: np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "slice": lambda: np.arange(12)[::3],
    "big end first": lambda: np.array([1, 2], dtype=">i4"),
    "nans and zeros": lambda: np.array([float("nan"), -0.0, 0.0]),
    "texts": lambda: np.array([["a", "bé"], ["", "c"]]),
    "times": lambda: np.array(["2026-01-01", "NaT"], dtype="M8[D]"),
    "empty": lambda: np.zeros((0, 3)),
    "no dimension": lambda: np.array(5),
    "large": lambda: np.arange(100_000.0),
    "table": lambda: pa.table({"a": [1, None], "b": ["x", "y"]}),
}

PANDAS: dict[str, Callable[[Any], Any]] = {
    "frame": lambda pd: pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [1.5, float("nan")]}),
    "index": lambda pd: pd.DataFrame({"a": [1]}, index=pd.Index(["r"], name="rows")),
    "numbered columns": lambda pd: pd.DataFrame({1: [1], 2: [2]}),
    "zones": lambda pd: pd.DataFrame({"t": pd.date_range("2026", periods=3, tz="Europe/Paris")}),
    "times as index": lambda pd: pd.DataFrame({"x": [1, 2]}, pd.date_range("2026", periods=2)),
    "categories": lambda pd: pd.DataFrame({"c": pd.Categorical(["a"], ["b", "a"], ordered=True)}),
    "missing integers": lambda pd: pd.DataFrame({"i": pd.array([1, None], dtype="Int64")}),
    "objects": lambda pd: pd.DataFrame({"o": ["a", "b"]}, dtype=object),
    "two levels": lambda pd: pd.DataFrame(
        {("a", "b"): [1, 2]}, pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["p", "q"])
    ),
    "nothing": lambda pd: pd.DataFrame(),
    "large": lambda pd: pd.DataFrame({"x": range(50_000)}),
    "series": lambda pd: pd.Series([1.5, 2.5], name=("a", 1)),
    "timestamp": lambda pd: pd.Timestamp("2026-01-01T00:00:00.000000001", tz="Europe/Paris"),
    "plain timestamp": lambda pd: pd.Timestamp("2026"),
    "timedelta": lambda pd: pd.Timedelta("1ns"),
    "no time": lambda pd: pd.NaT,
    "not there": lambda pd: pd.NA,
}


def of_pandas(name: str) -> Callable[[], Any]:
    """Return a function that makes one of pandas' values when called."""
    return lambda: PANDAS[name](needed("pandas"))


MADE = {**NUMPY, **{f"pandas {name}": of_pandas(name) for name in PANDAS}}


@pytest.mark.fast(cases=6, slow=0)
@pytest.mark.parametrize("name", MADE)
async def test_a_value_comes_back_equal(record: TwinRecord, name):
    """A result is restored in an offline replay, nested or as a blob, and is an equal argument."""
    make = MADE[name]
    for mode in (None, "offline"):
        async with record.run(run="r", mode=mode) as session:

            @session.raw.tool(effects="once")
            def give(x: Any) -> Any:
                assert mode is None
                return make()

            @session.raw.tool(effects="once")
            def inside(x: Any) -> Any:
                assert mode is None
                return {"a": [(make(),)]}

            assert same(await come(give(make())), make())
            assert same((await come(inside(make())))["a"][0][0], make())


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("name", MADE)
def test_equal_values_are_one_call(name):
    """A value that is made again has the same digest, and the bytes stay as they are when read."""
    make = MADE[name]
    assert known_as(make()) == known_as(make())
    with value_types.exactly():
        plain = values.plain(make())
        raw = bytes(values.dump(plain))
        assert bytes(values.dump(values.plain(values.load(raw)))) == raw
        with value_types.reading():
            assert bytes(values.dump(values.plain(values.load(raw)))) == raw


STORED: dict[str, tuple[Callable[[], Any], bytes]] = {
    "array": (
        lambda: np.arange(2, dtype="<i4"),
        (
            b'{"$value":{"tag":"numpy.array.v1","data":{"dtype":"<i4","shape":[2],"bytes":'
            b'{"$bytes":"AAAAAAEAAAA="}}}}'
        ),
    ),
    "texts": (
        lambda: np.array(["a"]),
        b'{"$value":{"tag":"numpy.array.v1","data":{"dtype":"<U1","shape":[1],"items":["a"]}}}',
    ),
    "scalar": (
        lambda: np.float64(1.5),
        b'{"$value":{"tag":"numpy.scalar.v1","data":{"dtype":"<f8","value":1.5}}}',
    ),
    "timestamp": (
        lambda: needed("pandas").Timestamp("2026-01-01", tz="UTC"),
        (
            b'{"$value":{"tag":"pandas.timestamp.v1","data":{"count":1767225600000000,"unit":"us",'
            b'"zone":"UTC","text":"2026-01-01T00:00:00+00:00"}}}'
        ),
    ),
    "frame": (
        lambda: needed("pandas").DataFrame({"a": [1, 2], "b": ["x", None]}),
        b"1233bbe8cd289d75a6ee0ba0ca980557dd7c732322ba18653fc9a8836b4ae16c",
    ),
    "series": (
        lambda: needed("pandas").Series([1.5], name="s"),
        b"b21b7b3d4692f22fadb1c5886d017ab32eeafec31716696fd9cb6f4ff219d8c2",
    ),
    "table": (
        lambda: pa.table({"a": [1]}),
        b"dddffe05d8dd15e2c828a2daa356467d899e27ccd9aa51976a4ec719b8159e76",
    ),
}
"""Stored bytes of values, or their SHA-256. They identify a call with such an argument: if a new
version of a package wrote them differently, recorded calls would no longer match.
"""


@pytest.mark.parametrize("name", STORED)
def test_what_is_stored_stays_as_it_is(name):
    """Byte for byte, whatever version of the package wrote it."""
    make, expected = STORED[name]
    with value_types.exactly():
        stored = bytes(values.dump(values.plain(make())))
    known = stored if len(stored) < 400 else hashlib.sha256(stored).hexdigest().encode()
    assert known == expected


def test_what_makes_values_differ():
    """Byte order, dtype, shape, names, order, index and zone count; memory layout does not."""
    pd = needed("pandas")
    frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": ["x", "y", None, "z"]})
    different = [
        np.arange(4), np.arange(4, dtype=">i8"), np.arange(4.0), np.arange(4).reshape(2, 2),
        np.array([0.0]), np.array([-0.0]), np.float32(1), np.int64(1),
        frame, frame[["b", "a"]], frame.rename(columns={"a": "c"}), frame.set_index("a"),
        frame.set_index("b"), frame.astype({"a": "int32"}), frame.iloc[:2], pd.Series([1]),
        pd.Series([1], name="a"),
        pd.DataFrame({"t": pd.to_datetime(["2026-01-01"]).tz_localize("UTC")}),
        pd.DataFrame({"t": pd.to_datetime(["2026-01-01"]).tz_localize("Europe/London")}),
    ]  # fmt: skip
    assert len({known_as(value) for value in different}) == len(different)
    missing = pd.array([1, 99], dtype="Int64")
    missing[1] = None
    alike = [
        (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))),
        (np.arange(12)[::3], np.array([0, 3, 6, 9])),
        (frame.iloc[1:3].reset_index(drop=True), pd.DataFrame({"a": [2, 3], "b": ["y", None]})),
        (pd.DataFrame({"i": missing}), pd.DataFrame({"i": pd.array([1, None], dtype="Int64")})),
        (pa.table({"a": [1, 2, 3]}).slice(1), pa.table({"a": [2, 3]})),
        (np.float64(1.5), 1.5),
    ]
    for one, other in alike:
        assert known_as(one) == known_as(other)


def test_what_would_not_survive_is_refused():
    """Objects in arrays, floats with bytes that mean nothing, masks, attrs: refused, with why."""
    pd = needed("pandas")
    frame = pd.DataFrame({"a": [1]})
    frame.attrs["from"] = "here"
    for value in (
        np.array([object()]), np.longdouble(1), np.ma.array([1]), np.zeros(1, dtype="i4,f8"),
        frame, pd.DataFrame([[1, 2]], columns=["a", "a"]), pd.DataFrame({"o": [[1], [2]]}),
        pd.DataFrame({"o": [1, "a"]}),
    ):  # fmt: skip
        with pytest.raises(hansard.BadValue):
            values.plain(value)


def test_a_secret_inside_of_what_is_packed_is_refused(record):
    """A packed value with a secret in it is refused before the call, and nothing is stored."""
    pd = needed("pandas")
    secret = "sk-hunter2-hunter2"
    packed = [
        pd.DataFrame({"key": ["a", secret]}), pd.Series([secret]), np.array([secret]),
        np.array([secret.encode()]), pa.table({secret: [1]}),
        {"deep": [pd.DataFrame({secret: [1]})]},
    ]  # fmt: skip
    with record.run("w", run="r", redact={"key": secret}) as session:

        @session.tool(effects="once")
        def take(x: Any) -> None:
            raise AssertionError

        for value in packed:
            with pytest.raises(hansard.BadValue, match="secret"):
                take(value)
        take2 = session.tool(effects="pure", name="take2")(lambda x: None)
        take2([pd.DataFrame({"key": ["a", "b"]}), np.float64(1), np.str_(f"a {secret}")])
        assert len(session.state.steps) == 1


async def test_a_pydantic_model_is_a_record(lab: Lab):
    """An annotated model is called once and restored, also nested; unannotated, it needs a tag."""
    pydantic = needed("pydantic")
    paid: list[Any] = []

    class Item(pydantic.BaseModel):  # type: ignore[misc, name-defined] # loaded by name
        name: str
        tags: set[str] = set()

    class Order(pydantic.BaseModel):  # type: ignore[misc, name-defined] # loaded by name
        model_config = pydantic.ConfigDict(extra="allow")
        items: list[Item]
        number: int = pydantic.Field(alias="no", default=7)
        price: float | None = None

        @pydantic.field_validator("number")
        @classmethod
        def twice(cls, number: int) -> int:
            """Double the number, which a second validation would repeat."""
            return number * 2

    order = Order(items=[Item(name="a", tags={"x"})], no=3, more="said")
    async with lab.connect() as record:
        for again in (False, True):
            async with record.run(run="r") as session:

                @session.raw.tool(effects="once")
                def buy(of: Order) -> Order:
                    paid.append(of)
                    return order

                @session.raw.tool(effects="once")
                def every(of: list[Order]) -> "dict[str, Order | None]":
                    paid.append(of)
                    return {"a": order, "b": None}

                @session.raw.tool(effects="once", gives="untrusted")
                def stream(of: Any) -> Any:
                    paid.append(of)
                    yield from ()

                assert again == bool(paid)
                back = await come(buy(order))
                assert back == order
                assert type(back) is Order
                assert type(back.items[0]) is Item
                assert back.number == 6
                assert await come(every([order])) == {"a": order, "b": None}
        assert len(paid) == 2
        [step, _] = await record.steps("r")
        assert values.load(step.arguments)["of"]["items"] == [{"name": "a", "tags": {"x"}}]


async def test_models_that_cannot_be_found_by_name_need_a_tag(lab: Lab):
    """A union of models, or a local class, is recorded as its fields, with a warning."""
    pydantic = needed("pydantic")

    class Yes(pydantic.BaseModel):  # type: ignore[misc, name-defined] # loaded by name
        why: str

    class No(pydantic.BaseModel):  # type: ignore[misc, name-defined] # loaded by name
        why: str

    def ask(x: int) -> Yes | No:
        return Yes(why="x") if x else No(why="y")

    def ask_any(x):
        return [ask(x)]

    async with lab.connect() as record:
        async with record.run(run="before") as session:
            tool = session.raw.tool(effects="once")(ask)
            with pytest.warns(hansard.errors.ResultInexact, match=r"hansard\.value_type"):
                answer = await come(tool(0))
            assert answer == ask(0)
        for cls in (Yes, No):
            hansard.value_type(cls, tag=f"tests.{cls.__name__}.v1")
        for mode in (None, "offline"):
            async with record.run(run="r", mode=mode) as session:
                for x in (0, 1):
                    tool = session.raw.tool(effects="once")(ask)
                    assert await come(tool(x)) == ask(x)
                    tool = session.raw.tool(effects="once")(ask_any)
                    assert await come(tool(x)) == [ask(x)]


def test_a_model_with_what_cannot_be_recorded_is_refused_when_declared(record):
    """A field of pydantic's secret text or of an unknown class is refused by name."""
    pydantic = needed("pydantic")

    class Login(pydantic.BaseModel):  # type: ignore[misc, name-defined] # loaded by name
        key: pydantic.SecretStr  # type: ignore[name-defined] # loaded by name

    def give() -> Login: ...  # type: ignore[empty-body] # it is never called

    with record.run("w") as session, pytest.raises(hansard.ToolError, match="its field 'key'"):
        session.tool(effects="once")(give)


CHILD = """
import sys
import hansard
from hansard.domain import values

with hansard.connect({workspace!r}, data_dir={data_dir!r}) as record:
    with record.run(run="r", agent="ada", role="writer", mode="offline") as session:

        @session.tool(effects="once")
        def give():
            raise AssertionError

        try:
            give()
        except hansard.BadValue as error:
            print(error)
    before = set(sys.modules)
    print(sorted({{"numpy", "pandas", "pydantic"}} & before))
    import numpy
    with record.run(run="r", agent="ada", role="writer", mode="offline") as session:

        @session.tool(effects="once")
        def give():
            raise AssertionError

        print(give().sum())
"""


@pytest.mark.slow
def test_a_package_that_is_not_loaded_is_not_loaded(data_dir, workspace):
    """A replay that reaches an array says to import numpy, and does not import it itself."""
    with hansard.Session(
        "w", run="r", agent="ada", role="writer", workspace=workspace, data_dir=data_dir
    ) as session:

        @session.tool(effects="once")
        def give():
            return np.arange(4)

        give()
    text = CHILD.format(workspace=workspace, data_dir=str(data_dir))
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text],
        capture_output=True,
        text=True,
        check=True,
        timeout=170,
    )
    message, loaded, total = process.stdout.splitlines()
    assert "numpy is not loaded in this process" in message
    assert "import numpy" in message
    assert (loaded, total) == ("[]", "6")
