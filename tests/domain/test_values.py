"""Values: recorded exactly, or refused before anything is written."""

import collections
import dataclasses
import decimal
import enum
import math
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given

from hansard.domain import value_types, values
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical
from hansard.domain.values import DEPTH_MAX, Secret
from tests.domain import strategies


def same(one: Any, other: Any) -> bool:
    """Return whether values and types are equal at all depths, in order, NaN and -0.0 included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float | Decimal):
        return repr(one) == repr(other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, set | frozenset):
        return len(one) == len(other) and all(any(same(a, b) for b in other) for a in one)
    return bool(one == other)


def recorded(value: Any) -> bytes:
    """Return the recorded bytes of a value."""
    return bytes(values.dump(values.plain(value)))


@given(strategies.python_values)
def test_a_value_comes_back_exactly(value):
    """A recorded value is restored equal, of the same types, in the same order."""
    assert same(values.load(recorded(value)), value)


@given(strategies.python_values)
def test_what_is_recorded_is_plain_json(value):
    """Every recorded value has an RFC 8785 form and needs no extension of JSON to be read."""
    plain = values.plain(value)
    assert canonical(msgspec.json.decode(msgspec.json.encode(plain))) == canonical(plain)


@given(strategies.json_values)
def test_plain_json_is_recorded_unchanged(value):
    """JSON values without `$` keys are their own record: an auditor reads them without us."""
    if b'"$' not in msgspec.json.encode(value):
        assert msgspec.json.decode(recorded(value)) == value


TAGS = ["$tuple", "$set", "$frozenset", "$map", "$bytes", "$bytearray", "$decimal", "$int"]
TAGS += ["$float", "$datetime", "$date", "$time", "$timedelta", "$uuid", "$path", "$secret"]
TAGS += ["$blob", "$append", "$value", "$", "$new"]


@pytest.mark.fast(cases=5, slow=0)
@pytest.mark.parametrize("tag", TAGS)
@given(inner=strategies.json_values)
def test_a_recorded_value_is_never_mistaken_for_a_tag(tag, inner):
    """A dict that looks like one of our tags is restored as that dict."""
    for value in ({tag: inner}, {tag: inner, "b": 1}, [{tag: {tag: inner}}]):
        assert same(values.load(recorded(value)), value)
        assert f'{{"{tag}":'.encode() not in recorded(value) or tag == "$map"


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Slotted(str):
    __slots__ = ()


class Selfish(str):
    __slots__ = ()

    def __str__(self) -> str:
        return self


class Point(msgspec.Struct):
    x: int
    tags: set[str] = set()


class Row(msgspec.Struct, array_like=True):
    x: int
    tags: set[str] = set()


@dataclasses.dataclass
class Corner:
    at: tuple[int, int]
    seen: frozenset[str] = frozenset()
    when: date = date(2026, 1, 2)


Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024 -- the untyped kind is met, too


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (Slotted("x"), "x"),
        (Selfish("x"), "x"),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(int, a=1), {"a": 1}),
        (collections.Counter("a"), {"a": 1}),
        (Point(1, {"b"}), {"x": 1, "tags": {"b"}}),
        (Corner((1, 2)), {"at": (1, 2), "seen": frozenset(), "when": date(2026, 1, 2)}),
    ],
)
def test_records_and_subclasses_are_recorded_as_what_they_hold(value, plain):
    """An enum, a subclass of a plain type, a dataclass, a Struct: the plain value inside counts."""
    assert values.plain(value) == values.plain(plain)


def test_sets_inside_records_have_one_order():
    """Two equal records are the same arguments, however Python happens to order their sets."""
    names = [f"name-{i}" for i in range(40)]
    forwards, backwards = {*names}, {*names[::-1]}
    assert recorded(Point(1, forwards)) == recorded(Point(1, backwards))
    assert recorded(forwards) == recorded(backwards)
    assert recorded(Row(1, forwards)) == recorded(Row(1, backwards))
    assert values.plain(Point(1, forwards))["tags"] == {"$set": sorted(names)}


@pytest.mark.parametrize(
    "value",
    [
        object(),
        lambda: None,
        int,
        sys,
        open,
        1j,
        range(3),
        iter([]),
        {"a": [1, {"b": object()}]},
        {object(): 1},
        {(1, object()): 1},
        iter("generated"),
    ],
    ids=lambda value: type(value).__name__,  # a repr has an address, which differs by worker
)
def test_what_cannot_be_recorded_is_refused(value):
    """Anything without a plain form is BadValue: nothing is pickled, nothing is guessed."""
    with pytest.raises(BadValue):
        values.plain(value)


def test_a_refusal_names_the_place_inside_the_value():
    """The error states the place in the value, the fault and the remedy."""
    with pytest.raises(BadValue) as refusal:
        values.plain({"a": [1, {"b": object()}]}, "search(query)")
    assert refusal.value.where == "search(query)['a'][1]['b']"
    assert "builtins.object cannot be recorded" in str(refusal.value)
    assert "pass plain values" in refusal.value.remedy


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        "a\udfff\\ud83d\\\\",
        "\ud83d\ude00 and \U0001f600",
        {"\ud800": 1},
        ["\udc00"],
        {"$\ud800": 1},
        Path("folder/\udcff"),
    ],
    ids=range(7),
)
def test_a_lone_surrogate_is_kept_by_a_tag(value):
    """UTF-8 cannot encode a lone surrogate: such a text has a tag, and is restored unchanged."""
    raw = values.dump(values.plain(value))
    bytes(raw).decode()
    assert values.same(values.load(raw), value)


def test_a_text_with_surrogates_is_escaped_so_that_it_can_be_read():
    """Only surrogates and backslashes are escaped; any other escape is refused."""
    assert values.plain("caf\u00e9 \\ \ud83d!") == {"$text": "caf\u00e9 \\\\ \\ud83d!"}
    for escaped in ("\\", "\\x", "\\ud83", "\\u0041"):
        with pytest.raises(BadValue, match="text"):
            values.revive({"$text": escaped})


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("value", "tag"),
    [
        (datetime(2026, 10, 25, 2, 30, fold=1), "$fold"),  # noqa: DTZ001 -- a naive one
        (datetime(2026, 10, 25, 2, 30), "$datetime"),  # noqa: DTZ001 -- a naive one
        (time(2, 30, fold=1), "$fold"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), "$datetime"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), "$fold"),
        (datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN), "$datetime"),
    ],
    ids=["naive second", "naive first", "time", "repeated first", "repeated second", "skipped"],
)
def test_a_time_in_a_repeated_or_skipped_hour_comes_back(value, tag):
    """Wall time, offset and fold are kept; `==` does not compare such times."""
    with value_types.exactly():
        plain = values.plain(value)
    assert list(plain) == [tag]
    back = values.revive(plain)
    assert values.same(back, value)
    assert (back.replace(tzinfo=None), back.fold) == (value.replace(tzinfo=None), value.fold)
    assert back.utcoffset() == value.utcoffset()
    other = value.replace(fold=1 - value.fold)
    assert not values.same(back, other)


def test_the_fold_of_a_time_with_an_offset_is_no_part_of_a_call():
    """As an argument it is the instant that it denotes, as in records of earlier versions."""
    plain = values.plain(datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1))
    assert plain == {"$datetime": "2026-10-25T02:30:00+01:00"}


def _shared(of: Any, wrap: Any) -> Any:
    for _ in range(60):
        of = wrap(of)
    return of


@pytest.mark.parametrize(
    "value",
    [
        _shared([], lambda each: [each, each]),
        _shared({}, lambda each: {"a": each, "b": each}),
        _shared((), lambda each: (each, each)),
        ["x" * 1_000_000] * 1_000,
    ],
    ids=["lists", "dicts", "tuples", "texts"],
)
def test_parts_that_are_used_many_times_are_bounded(value, monkeypatch):
    """A value is counted as it would be written out, and refused before it is."""
    monkeypatch.setattr(values, "SIZE_MAX", 1_000_000)
    with pytest.raises(BadValue, match="bytes once it is written out"):
        values.plain(value)
    plain, losses = values.approximate(value)
    assert len(losses) == 1
    assert len(plain) < 1_000


def _nested(depth: int, wrap: Any) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"a": v}, lambda v: (v,), lambda v: {1: v}], ids="ldtm"
)
def test_nesting_has_a_stated_bound(wrap):
    """Values are accepted down to the bound and refused below it, without a recursion error."""
    fine = _nested(DEPTH_MAX // 2, wrap)
    assert same(values.load(recorded(fine)), fine)
    for depth in (DEPTH_MAX + 1, 100_000):
        with pytest.raises(BadValue, match="nested deeper"):
            values.plain(_nested(depth, wrap))


def test_a_value_that_holds_itself_is_refused():
    """A cycle has no end to record."""
    loop: list[Any] = []
    loop.append(loop)
    table: dict[str, Any] = {}
    table["self"] = table
    for value in (loop, table):
        with pytest.raises(BadValue, match="nested deeper"):
            values.plain(value)


@pytest.mark.parametrize(
    "value",
    [
        2**53 - 1,
        2**53,
        -(2**53),
        2**64,
        10**4_000,
        0.1,
        -0.0,
        5e-324,
        sys.float_info.max,
        math.inf,
        -math.inf,
        math.nan,
        Decimal("1.10"),
        Decimal("-0"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        decimal.Decimal("1E+999999"),
        datetime.max,  # noqa: DTZ901 -- a time without a zone is a value, too
        datetime(2026, 3, 29, 2, 30, fold=0, tzinfo=UTC),
        date.min,
        time.max,
        timedelta.min,
        timedelta(microseconds=-1),
        UUID(int=0),
        b"",
        bytes(range(256)),
        bytearray(b"\0"),
        "",
        "\0",
        "\u2028\ufeff\U0010ffff",
        (),
        set(),
        frozenset(),
        {},
        {1: {2: 3}, "a": 1},
        {(1, "a"): [None]},
        {None: 1, True: 2},
        {b"k": 1},
        Path("/tmp/../x y"),  # noqa: S108 -- only a name, no file is made there
        Secret("token"),
    ],
    ids=repr,
)
def test_the_edges_of_each_kind(value):
    """The ends of every kind's range are restored exactly."""
    assert same(values.load(recorded(value)), value)


def test_an_integer_without_a_text_is_refused():
    """Python does not write integers of over 4,300 digits; neither do we."""
    with pytest.raises(BadValue, match="4,300 digits"):
        values.plain(10**5_000)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"$nonsense":1}',
        b'{"$int":"x"}',
        b'{"$int":[1]}',
        b'{"$bytes":1}',
        b'{"$bytes":"#"}',
        b'{"$map":[[1]]}',
        b'{"$map":[[[],1]]}',
        b'{"$set":[[]]}',
        b'{"$set":1}',
        b'{"$decimal":"x"}',
        b'{"$datetime":"yesterday"}',
        b'{"$timedelta":["a"]}',
        b'{"$timedelta":[999999999999,0,0]}',
        b'{"$uuid":"x"}',
        b'{"$uuid":5}',
        b'{"$path":{}}',
        b'{"$float":"x"}',
        b'{"$blob":{"sha256":"0","size":1}}',
    ],
)
def test_a_forged_tag_makes_nothing(raw):
    """Recorded bytes that only look like a tag are BadValue: never an object, never a crash."""
    with pytest.raises(BadValue):
        values.load(raw)


def test_a_secret_is_passed_by_its_name():
    """Reading a recorded value back asks for secrets by name; by default it keeps their names."""
    raw = recorded({"key": Secret("token"), "all": [Secret("other")]})
    assert values.load(raw) == {"key": Secret("token"), "all": [Secret("other")]}
    assert values.load(raw, {"token": "t", "other": "o"}.__getitem__) == {"key": "t", "all": ["o"]}


def _scrub(text: str) -> str | Secret:
    return Secret("token") if text == "hunter2" else text.replace("hunter2", "<secret:token>")


@pytest.mark.parametrize(
    "value",
    [
        "hunter2",
        "the word is hunter2.",
        ["hunter2", ("hunter2",), {"hunter2"}],
        {"a": {"b": "hunter2!"}},
        {"x hunter2 y": 1},
        {1: "hunter2"},
        {("hunter2",): 1},
        b"bearer hunter2",
        b"hunter2",
        bytearray(b"\xff hunter2"),
        Path("/home/hunter2/x"),
        Path("hunter2"),
        Slotted("hunter2"),
        Point(1, {"hunter2"}),
        [{"$set": "hunter2"}],
    ],
    ids=repr,
)
def test_a_secret_is_nowhere_in_the_recorded_bytes(value):
    """A secret is removed from texts, keys, bytes and records, wherever it is in a value."""
    raw = bytes(values.dump(values.plain(value, scrub=_scrub)))
    assert b"hunter2" not in raw
    assert "hunter2" not in repr(values.load(raw))
    assert "token" in repr(values.load(raw))


def test_a_secret_as_a_key_is_refused():
    """A key that is a secret, or keys that would become one, cannot be recorded truly."""
    with pytest.raises(BadValue, match="as a key"):
        values.plain({"hunter2": 1}, scrub=_scrub)
    with pytest.raises(BadValue, match="two keys are the same"):
        values.plain({"x hunter2": 1, "x <secret:token>": 2}, scrub=_scrub)


def test_windows_paths_are_recorded_with_slashes():
    """A path is recorded in one form, whatever the system's own."""
    assert values.plain(PureWindowsPath(r"a\b")) == values.plain(PurePosixPath("a/b"))


class _Odd(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Any:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def test_other_mappings_are_refused():
    """A mapping that is no dict is refused, never recorded as its repr."""
    with pytest.raises(BadValue, match="_Odd cannot be recorded"):
        values.plain(_Odd())
